"""Drives that are prepared and rolled back on loop devices, as sfdisk and blkid see them."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.errors import Refused, Stopped
from aligntool.raid.steps_drives import (
    LockedMembers,
    make_member,
    old_signatures,
    read_disk,
    refuse_unread,
    remove_member,
    stop_unless_in_place,
)
from aligntool.raid.steps_system import Paths
from aligntool.steps import DataArea, MakeMember
from aligntool.units import MIB, Extent
from tests.conftest import add_partition, is_blank, remove_partitions, run
from tests.raid.applying.builders import made_member, member_step, paths_in

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("losetup", "sfdisk", "blkid", "wipefs", "mkfs.ext4", "sgdisk"),
]

Sparse = Callable[..., Path]
Attach = Callable[..., Path]
SIZE = 64 * MIB


@pytest.fixture
def drive(sparse: Sparse, loop: Attach) -> Path:
    return loop(sparse(SIZE))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return paths_in(tmp_path)


def table(drive: Path) -> list[tuple[int, int, str, str]]:
    """Return (start and length in bytes, type, name) of each entry, read by sfdisk."""
    said = json.loads(run("sfdisk", "--json", drive))["partitiontable"]
    sector = said["sectorsize"]
    return [(one["start"] * sector, one["size"] * sector, one["type"], one["name"]) for one in said["partitions"]]


def wanted(step: MakeMember) -> list[tuple[int, int, str, str]]:
    return [(each.extent.start, each.extent.length, each.type_code, each.name) for each in step.entries]


@pytest.mark.parametrize("sector", [512, 4096])
def test_a_drive_gets_its_table_once_and_a_rollback_removes_it(
    sparse: Sparse, loop: Attach, paths: Paths, sector: int
) -> None:
    drive = loop(sparse(SIZE), sector_size=sector)
    step = member_step(paths, drive, esp=True)
    made_member(step)
    assert table(drive) == wanted(step)
    first = run("sfdisk", "--disk-id", drive)
    assert made_member(step, again=True) == [f"{drive} already has its table"]
    assert run("sfdisk", "--disk-id", drive) == first
    list(remove_member(step))
    assert run("wipefs", "--no-act", "--parsable", drive) == ""
    assert is_blank(drive)


def test_a_drive_that_is_not_the_one_in_the_plan_is_not_written_to(drive: Path, paths: Paths) -> None:
    step = member_step(paths, drive)
    other = replace(step, disk=replace(step.disk, serial="another"))
    with pytest.raises(Stopped, match="not the drive in the plan"):
        made_member(other, again=True)
    assert run("wipefs", "--no-act", "--parsable", drive) == ""


@pytest.mark.parametrize("again", [False, True])
def test_content_created_on_a_drive_since_the_plan_is_kept(drive: Path, paths: Paths, again: bool) -> None:
    step = member_step(paths, drive)
    run("mkfs.ext4", "-q", drive)
    before = run("blkid", "-p", drive)
    with pytest.raises(Stopped, match="was not there when the plan was made: ext4"):
        list(make_member(step, LockedMembers(), again=again))
    assert run("blkid", "-p", drive) == before


def test_a_table_created_on_a_drive_since_the_plan_is_kept(drive: Path, paths: Paths) -> None:
    step = member_step(paths, drive)
    run("sfdisk", "-q", drive, stdin="label: gpt\nstart=40960, size=40960\n")
    before = run("sfdisk", "--dump", drive)
    with pytest.raises(Stopped, match="another partition table"):
        made_member(step, again=True)
    assert run("sfdisk", "--dump", drive) == before


def lost_partition(drive: Path) -> None:
    """Write an ext4 at 1 MiB that no table shows any more."""
    run("mkfs.ext4", "-q", "-E", f"offset={MIB}", drive, "32M")


def test_a_lost_partition_is_detected_and_not_overwritten(drive: Path, paths: Paths) -> None:
    lost_partition(drive)
    step = member_step(paths, drive)
    assert [f"ext4 at byte {MIB}" in one.text for one in old_signatures(step, DataArea())] == [True]
    with pytest.raises(Stopped, match="not overwritten"):
        made_member(step)
    assert "ext4" in run("blkid", "-p", "-O", str(MIB), drive)
    assert run("wipefs", "--no-act", "--parsable", drive) == ""


def test_wiped_content_leaves_no_signature_in_the_new_partitions(drive: Path, paths: Paths) -> None:
    run("sfdisk", "-q", drive, stdin="label: dos\nstart=2048, size=60000\nstart=70000, size=40000\n")
    lost_partition(drive)
    step = member_step(paths, drive, wipe=True)
    made_member(step)
    assert table(drive) == wanted(step)
    for start, *_ in wanted(step):
        assert run("blkid", "-p", "-O", str(start), drive, fails=True) == ""


def test_the_partitions_are_wiped_even_if_the_table_is_the_same_as_before(drive: Path, paths: Paths) -> None:
    """An array is created again on the same drives, with --wipe."""
    first = member_step(paths, drive)
    made_member(first)
    run("mkfs.ext4", "-q", "-F", "-E", f"offset={MIB}", drive, "32M")
    again = member_step(paths, drive, wipe=True)
    made_member(again)
    assert table(drive) == wanted(first)
    assert run("blkid", "-p", "-O", str(MIB), drive, fails=True) == ""


def cut_tables(drive: Path, step: MakeMember) -> dict[str, bytes]:
    """Return images of the drive as a power cut during the write of the table may leave it, by the missing part."""
    made_member(step)
    whole = drive.read_bytes()
    end = len(whole) - 33 * 512
    list(remove_member(step))
    none = bytes(len(whole))
    return {
        "only the protective MBR": whole[:512] + none[512:],
        "no backup": whole[:end] + none[end:],
        "no primary": none[:MIB] + whole[MIB:],
        "no entries in the primary": whole[:1024] + none[1024:MIB] + whole[MIB:],
        "types not set": whole.replace(bytes.fromhex("0f889da1fc053b4da006743f0f84911e"), b"\x11" * 16),
    }


def test_an_incompletely_written_table_is_completed(drive: Path, paths: Paths) -> None:
    step = member_step(paths, drive)
    for what, image in cut_tables(drive, step).items():
        assert image != drive.read_bytes(), what
        drive.write_bytes(image)
        made_member(step, again=True)
        assert table(drive) == wanted(step), what
        assert "No problems" in run("sgdisk", "-v", drive), what


def test_an_incompletely_written_table_is_rolled_back(drive: Path, paths: Paths) -> None:
    step = member_step(paths, drive)
    for what, image in cut_tables(drive, step).items():
        drive.write_bytes(image)
        list(remove_member(step))
        assert is_blank(drive), what


def test_a_member_with_content_keeps_its_table(drive: Path, paths: Paths) -> None:
    step = member_step(paths, drive)
    made_member(step)
    run("mkfs.ext4", "-q", "-F", "-E", f"offset={MIB}", drive, "32M")
    assert any("left as it is" in said.text for said in remove_member(step))
    assert table(drive) == wanted(step)


def test_a_drive_whose_content_cannot_be_read_keeps_its_table(drive: Path, paths: Paths) -> None:
    looked = read_disk(str(drive))
    refuse_unread(looked)
    with pytest.raises(Refused, match="could not be read"):
        refuse_unread(replace(looked, content_read=False))


def unrecognised(device: Path, start: int = 0) -> bytes:
    """Write random bytes up to the end, like plain dm-crypt or a hidden volume; return what the device then holds."""
    with device.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(start)
        file.write(os.urandom(end - start))
        os.fsync(file.fileno())
    return device.read_bytes()


def test_a_drive_that_was_reused_since_its_plan_is_not_overwritten(drive: Path, paths: Paths) -> None:
    """The plan overwrote nothing: the drive was blank."""
    step = member_step(paths, drive)
    holds = unrecognised(drive)
    for again in (False, True):
        with pytest.raises(Stopped, match=r"holds (data|content) that was not there when the plan was made"):
            made_member(step, again=again)
    list(remove_member(step, blank=True))
    assert drive.read_bytes() == holds


def test_a_reused_member_is_neither_added_to_the_array_nor_wiped_by_a_rollback(drive: Path, paths: Paths) -> None:
    step = member_step(paths, drive)
    data, area = step.entries[-1].extent, DataArea(offset=4 * MIB)
    list(make_member(step, LockedMembers(), again=False, area=area))
    stop_unless_in_place(step, area, blank=True)
    holds = unrecognised(drive, data.start)[: data.end]
    stop_unless_in_place(step, area, blank=False)  # the data of an array are there by then
    with pytest.raises(Stopped, match=r"holds (data|content) that was not there when the plan was made"):
        stop_unless_in_place(step, area, blank=True)
    said = [each.text for each in remove_member(step, area, blank=True)]
    assert any("is left as it is" in each for each in said), said
    assert drive.read_bytes()[: data.end] == holds


def test_a_partition_that_the_kernel_has_elsewhere_does_not_become_a_member(drive: Path, paths: Paths) -> None:
    """mdadm writes where the kernel has the partition, but its content was read where the table has it."""
    run("sfdisk", "--quiet", "--no-tell-kernel", drive, stdin="label: gpt\nstart=2048, size=40960\n")
    add_partition(drive, 1, Extent(32 * MIB, 20 * MIB))
    step = replace(member_step(paths, drive), device=f"{drive}p1", entries=())
    with pytest.raises(Stopped, match="the kernel has it elsewhere than the table"):
        stop_unless_in_place(step, DataArea(), blank=False)
    remove_partitions(drive)
    add_partition(drive, 1, Extent(MIB, 20 * MIB))
    stop_unless_in_place(step, DataArea(), blank=False)
