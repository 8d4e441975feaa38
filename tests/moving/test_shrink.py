"""Disks without any free space: a file system is shrunk by its own tool, everything moves, and nothing is lost.

Expected values come from the file systems' own checkers and readers, blkid and sfdisk.
"""

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.linux.block import DiskDevice
from aligntool.linux.users import partition_loop
from aligntool.realign.shrink import refuse_unshrinkable
from aligntool.steps import ShrinkContent
from aligntool.units import MIB, Extent
from tests.conftest import find_tool, run
from tests.moving.command_line import REFUSED, STOPPED, begin, realign
from tests.moving.conftest import MakeDisk
from tests.moving.containers import write
from tests.moving.disks import Disk, Row, Seen, content_of
from tests.moving.filesystems import FILESYSTEMS, SECTOR, Kind, ext
from tests.thorough import when_thorough

Sparse = Callable[..., Path]
Loop = Callable[..., Path]
pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("sfdisk", "sgdisk", "parted", "blkid", "losetup", "resize2fs", "ntfsresize"),
]

NAMED = {kind.name: kind for kind in FILESYSTEMS}
BTRFS = replace(NAMED["btrfs"], name="long btrfs", length=300 * MIB + 9 * SECTOR)  # 256 MiB always remain
KINDS = [kind.parameter() for kind in (NAMED["ext4"], NAMED["ntfs"], BTRFS)]
EXT4 = replace(ext("ext4", 64 * 2048 + 5), name="long ext4")
OF_ITS_LENGTH = ("ID_FS_SIZE", "ID_FS_LASTBLOCK")  # newer versions of blkid print them


def full(make: MakeDisk, label: str, *rows: Row) -> Disk:
    """Make a disk whose last partition ends at the end of the disk, or at its backup table."""
    return make(label, *rows, free=33 if label == "gpt" else 0)


def seen(disk: Disk) -> dict[int, Seen]:
    """Return what does not change when a file system is shrunk."""
    return {
        number: Seen(
            {key: value for key, value in one.blkid.items() if key not in OF_ITS_LENGTH},
            {key: value for key, value in one.entry.items() if key != "size"},
            one.hashes,
        )
        for number, one in disk.seen().items()
    }


def shrunk(disk: Disk, target: Path, *, needed: bool = True) -> dict[int, Extent]:
    """Realign it, and check everything that must not change. Return the places afterwards.

    `needed`: without shrinking there is no room for a journal, on any grain.
    """
    before, old = seen(disk), disk.extents()
    if needed:
        assert "shrunk by" in realign(target, code=REFUSED)
    said = realign(target, "--shrink")
    assert ("Windows checks a shrunk NTFS" in said) == any(row.kind.name == "ntfs" for row in disk.rows)
    assert seen(disk) == before
    disk.check()
    new = disk.extents()
    assert all(extent.start % MIB == 0 for extent in new.values())
    assert sum(new[number].length < old[number].length for number in old) == 1
    return new


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_system_on_a_full_disk_is_shrunk_and_moved_with_every_file(
    kind: Kind, make: MakeDisk, loop: Loop
) -> None:
    disk = full(make, "gpt", Row(kind, 34))
    shrunk(disk, loop(disk.image))


@when_thorough("takes longer")
@pytest.mark.parametrize("kind", KINDS)
def test_so_it_is_in_an_image_with_an_old_table(kind: Kind, make: MakeDisk) -> None:
    disk = full(make, "dos", Row(kind, 63))
    shrunk(disk, disk.image)


def test_a_logical_partition_gives_room_to_all_others(make: MakeDisk) -> None:
    """The primary one needs none of it: the extended partition begins where it did."""
    primary = Row(NAMED["fat12"], 63)
    first = Row(NAMED["ext2"], primary.end + 2048 + 63, logical=True)
    disk = full(make, "dos", primary, first, Row(EXT4, first.end + 63, logical=True))
    assert shrunk(disk, disk.image, needed=False)[6].length < EXT4.length


def test_an_ntfs_has_the_copy_of_its_boot_sector_in_its_last_sector_afterwards(make: MakeDisk) -> None:
    disk = full(make, "dos", Row(NAMED["ntfs"], 63))
    place = shrunk(disk, disk.image)[1]
    with disk.image.open("rb") as file:
        file.seek(place.start)
        first = file.read(SECTOR)
        file.seek(place.end - SECTOR)
        last = file.read(SECTOR)
    assert int.from_bytes(first[28:32], "little") == place.start // SECTOR
    assert (int.from_bytes(first[40:48], "little") + 1) * SECTOR <= place.length
    assert last == first


# Shrinks that fail


def stand_in(folder: Path, name: str, *lines: str) -> None:
    """Write a program of that name that comes first in PATH."""
    program = folder / name
    program.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    program.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_a_tool_that_refuses_is_asked_before_anything_is_written(make: MakeDisk, programs: Path) -> None:
    disk = full(make, "dos", Row(NAMED["ext4"], 63))
    stand_in(programs, "resize2fs", "echo 'resize2fs: Device or resource busy' >&2", "exit 1")
    before = disk.image.read_bytes()
    assert "Device or resource busy" in realign(disk.image, "--shrink", code=REFUSED)
    assert disk.image.read_bytes() == before


def test_a_length_that_resize2fs_finds_too_short_is_refused(make: MakeDisk) -> None:
    disk = full(make, "dos", Row(NAMED["ext4"], 63))
    before, place = disk.image.read_bytes(), disk.extents()[1]
    with pytest.raises(Refused, match=r"needs .*, according to resize2fs"):
        refuse_unshrinkable(str(disk.image), ShrinkContent(1, place, "ext4", MIB))
    assert disk.image.read_bytes() == before


def test_a_length_that_ntfsresize_finds_too_short_is_refused(make: MakeDisk) -> None:
    disk = full(make, "dos", Row(NAMED["ntfs"], 63))
    before, place = disk.image.read_bytes(), disk.extents()[1]
    with pytest.raises(Refused, match="ntfsresize failed"):
        refuse_unshrinkable(str(disk.image), ShrinkContent(1, place, "ntfs", MIB))
    assert disk.image.read_bytes() == before


@pytest.mark.needs_tools("mkfs.btrfs")
def test_a_btrfs_of_several_devices_is_refused(sparse: Sparse, loop: Loop) -> None:
    """Its tool would shrink the device with id 1, which is elsewhere."""
    first, second = (sparse(300 * MIB, name) for name in ("first", "second"))
    run("mkfs.btrfs", "-q", "-d", "single", "-m", "single", loop(first), loop(second))
    for number, image in enumerate((first, second), 1):
        with pytest.raises(Refused, match=f"device {number} of a btrfs with 2"):
            refuse_unshrinkable(str(image), ShrinkContent(1, Extent(0, 300 * MIB), "btrfs", 280 * MIB))


def test_xfs_is_refused_with_the_reason(make: MakeDisk) -> None:
    disk = full(make, "dos", Row(NAMED["xfs"], 63))
    before = disk.image.read_bytes()
    assert "XFS cannot be shrunk" in realign(disk.image, "--shrink", code=REFUSED)
    assert disk.image.read_bytes() == before


@pytest.mark.on_disk  # below /dev, the suggested command would need root
def test_a_tool_that_is_killed_in_the_middle_is_told_with_what_to_type(make: MakeDisk, programs: Path) -> None:
    """The suggested commands are right: e2fsck repairs it, and then it is shrunk and moved."""
    disk = full(make, "dos", Row(NAMED["ext4"], 63))
    before = seen(disk)
    stand_in(programs, "resize2fs", f'[ "$1" = -P ] && exec {find_tool("resize2fs")} "$@"', "kill -9 $$")
    said = realign(disk.image, "--shrink", code=STOPPED)
    assert "killed by SIGKILL" in said and "no partition was moved" in said and "resume" not in said
    command = said.rpartition("→ ")[2].partition(";")[0]
    run("sh", "-c", f"{command} -y")
    (programs / "resize2fs").unlink()
    realign(disk.image, "--shrink")
    assert seen(disk) == before
    disk.check()


def test_a_tool_that_left_the_file_system_too_long_stops_the_move(make: MakeDisk, programs: Path) -> None:
    disk = full(make, "dos", Row(NAMED["ext4"], 63))
    before, places = seen(disk), disk.extents()
    stand_in(programs, "resize2fs", f'[ "$1" = -P ] && exec {find_tool("resize2fs")} "$@"', "exit 0")
    assert "no partition was moved" in realign(disk.image, "--shrink", code=STOPPED)
    assert (seen(disk), disk.extents()) == (before, places)


@pytest.mark.needs_tools("ntfsresize")
def test_a_killed_aligntool_leaves_the_tool_to_its_end_and_no_loop_device(make: MakeDisk, programs: Path) -> None:
    """ntfsresize prints each percent: with a pipe whose reader is gone it could not, and would be killed."""
    disk = full(make, "dos", Row(NAMED["ntfs"], 63))
    before = seen(disk)
    begun, go_on, ended = (programs / name for name in ("begun", "go on", "ended"))
    stand_in(
        programs, "ntfsresize", f'case $* in *--no-action*|*--info*) exec {find_tool("ntfsresize")} "$@";; esac',
        f"touch '{begun}'", f"for i in $(seq 600); do [ -e '{go_on}' ] && break; sleep 0.05; done",
        f"[ -e '{go_on}' ] || exit 1", "echo some percent",
        f"{find_tool('ntfsresize')} \"$@\"", f"echo $? > '{ended}'",
    )  # fmt: skip
    process = begin("realign", disk.image, "--yes", "--shrink")
    wait_for(begun)
    process.kill()
    process.wait()
    assert "a program started by aligntool is using the file" in realign(disk.image, "--shrink", code=REFUSED)
    go_on.touch()
    wait_for(ended)
    assert ended.read_text() == "0\n"
    wait_until_detached(disk.image)
    assert seen(disk) == before
    with content_of(disk.image, disk.extents()[1]) as content:
        run("ntfsresize", "--info", "--force", content)
    assert "start Windows and shut it down" in realign(disk.image, "--shrink", code=REFUSED)


@pytest.mark.parametrize("kind", [NAMED["ext4"].parameter(), BTRFS.parameter()])
def test_what_was_shrunk_when_aligntool_was_killed_is_shrunk_and_moved_by_typing_the_same_again(
    kind: Kind, make: MakeDisk, programs: Path
) -> None:
    if kind is BTRFS and subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("the root of this chroot is not a mount point: unshare --mount takes two tries")
    disk = full(make, "gpt", Row(kind, 34))
    before, ended, aligntool = seen(disk), programs / "ended", programs / "aligntool"
    name, asked = ("unshare", "true") if kind is BTRFS else ("resize2fs", "-P")
    stand_in(programs, name, f'case "$*" in *{asked}*) exec {find_tool(name)} "$@";; esac',
             f"kill -9 $(cat '{aligntool}')", f'{find_tool(name)} "$@"', f"echo $? > '{ended}'")  # fmt: skip
    process = begin("realign", disk.image, "--yes", "--shrink")
    aligntool.write_text(str(process.pid))
    process.wait()
    wait_for(ended)
    assert ended.read_text() == "0\n"
    wait_until_detached(disk.image)
    (programs / name).unlink()
    assert seen(disk) == before
    realign(disk.image, "--shrink")
    assert seen(disk) == before
    disk.check()


def wait_for(file: Path) -> None:
    limit = time.monotonic() + 30
    while not file.exists() or (file.name == "ended" and not file.read_text()):
        assert time.monotonic() < limit, f"{file.name} did not come"
        time.sleep(0.02)


def wait_until_detached(image: Path) -> None:
    """Wait until the tool is detached from its loop devices; it has ended, and the shell around it will at once."""
    limit = time.monotonic() + 30
    while attached := run("losetup", "-j", image):
        assert time.monotonic() < limit, attached
        time.sleep(0.02)


# Caches


def test_nobody_reads_what_a_cache_had_before_the_tool_or_misses_what_it_wrote(sparse: Sparse, loop: Loop) -> None:
    """The disk's cache is kept stale by a process that has it open; the loop device's own is not written back by itself
    as long as a process has it open.
    """
    image = sparse(4 * MIB)
    disk, place = loop(image), Extent(63 * SECTOR, 2 * MIB)
    with disk.open("rb", buffering=0) as looker:
        assert not any(looker.read(MIB))
        write(image, place.start, b"changed behind the cache")
        with partition_loop(str(disk), place) as other:
            late = os.open(other.device, os.O_RDONLY)
            assert os.read(late, 24) == b"changed behind the cache"
            write(Path(other.device), SECTOR, b"by the tool")
        try:
            assert image.read_bytes()[place.start + SECTOR :][:11] == b"by the tool"
            with disk.open("r+b", buffering=0) as file, DiskDevice(file.fileno()) as device:
                assert bytes(device.read(place.start + SECTOR, SECTOR))[:11] == b"by the tool"
            looker.seek(place.start + SECTOR)
            assert looker.read(11) == b"by the tool"
        finally:
            os.close(late)
    assert not Path("/sys/block", Path(other.device).name, "loop").exists()
