"""New tables on the medium, read by the usual partitioning tools."""

import fcntl
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Judged
from aligntool.change import Event, LayoutGoal, PartitionRequest, Plan, StepBegun, StepDone
from aligntool.device import Job, Jobs
from aligntool.errors import Refused, Stopped
from aligntool.formats.part_types import ROLES
from aligntool.inventory import Disk
from aligntool.layout.layout import make_layout, plan_layout, set_types, with_samples
from aligntool.linux.look import look
from aligntool.linux.targets import UserLimits
from aligntool.steps import MakeTable
from aligntool.units import MIB
from tests.conftest import digest, is_blank, run, unmount

MakeImage = Callable[..., Path]
Attach = Callable[..., Path]

GOAL = LayoutGoal(
    (
        PartitionRequest(32 * MIB, "esp", "EFI"),
        PartitionRequest(None, "linux-raid", "Größe"),
        PartitionRequest(8 * MIB, "swap"),
    )
)


def seen(path: Path, sector_size: int | None = None) -> Judged:
    return audit(look((str(path),), given=UserLimits(sector_size=sector_size)), {}).judged[0]


def planned(path: Path, goal: LayoutGoal, sector_size: int | None = None) -> tuple[Plan, Disk]:
    judged = seen(path, sector_size)
    return plan_layout(judged, goal), judged.disk


def made(path: Path, goal: LayoutGoal, sector_size: int | None = None) -> tuple[Plan, list[Event]]:
    plan, disk = planned(path, goal, sector_size)
    return plan, list(make_layout(plan, disk))


def by_sfdisk(path: Path) -> dict[str, object]:
    table: dict[str, object] = json.loads(run("sfdisk", "--json", path))["partitiontable"]
    return table


def wanted(plan: Plan, sector: int) -> list[tuple[int, int]]:
    return [(place.after.start // sector, place.after.length // sector) for place in plan.places]


# Image files, without root


@pytest.mark.needs_tools("sfdisk", "sgdisk", "parted")
def test_sfdisk_sgdisk_and_parted_read_a_new_gpt_as_planned(sparse: MakeImage) -> None:
    image = sparse(256 * MIB)
    plan, events = made(image, GOAL)
    assert events[:2] == [StepBegun(0), StepDone(0)]
    table = by_sfdisk(image)
    entries: list[dict[str, object]] = table["partitions"]  # type: ignore[assignment]
    assert table["label"] == "gpt"
    assert [(one["start"], one["size"]) for one in entries] == wanted(plan, 512)
    assert [one["type"] for one in entries] == [ROLES[part.role].gpt for part in GOAL.parts]
    assert [one.get("name", "") for one in entries] == ["EFI", "Größe", ""]
    assert len({one["uuid"] for one in entries}) == 3
    assert "No problems found" in run("sgdisk", "-v", image)
    printed = run("parted", "-s", "-m", image, "unit", "B", "print").splitlines()[2:]
    assert [line.split(":")[1:4] for line in printed] == [
        [f"{place.after.start}B", f"{place.after.end - 1}B", f"{place.after.length}B"] for place in plan.places
    ]
    assert "esp" in printed[0] and "raid" in printed[1] and "swap" in printed[2]


@pytest.mark.needs_tools("sfdisk")
def test_the_backup_of_a_new_gpt_matches_its_primary(sparse: MakeImage) -> None:
    image = sparse(256 * MIB)
    made(image, GOAL)
    before = by_sfdisk(image)
    with image.open("r+b") as file:
        file.seek(512)
        file.write(bytes(33 * 512))  # the primary, header and entries: libfdisk then reads the backup
    assert by_sfdisk(image) == before


@pytest.mark.needs_tools("sfdisk")
def test_sfdisk_reads_a_new_mbr_with_its_types_and_its_active_entry(sparse: MakeImage) -> None:
    image = sparse(256 * MIB)
    goal = LayoutGoal(
        (PartitionRequest(32 * MIB, "boot"), PartitionRequest(64 * MIB, "lvm"), PartitionRequest(None, "windows")),
        label="dos",
    )
    plan, _ = made(image, goal)
    table = by_sfdisk(image)
    entries: list[dict[str, object]] = table["partitions"]  # type: ignore[assignment]
    assert table["label"] == "dos"
    assert [(one["start"], one["size"]) for one in entries] == wanted(plan, 512)
    assert [one["type"] for one in entries] == ["83", "8e", "7"]
    assert [one.get("bootable", False) for one in entries] == [True, False, False]
    assert "No errors" in run("sfdisk", "--verify", image)


@pytest.mark.needs_tools("fdisk")
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_an_image_with_4096_byte_sectors_gets_a_table_in_4096_byte_sectors(sparse: MakeImage, label: str) -> None:
    image = sparse(256 * MIB)
    plan, _ = made(image, replace(GOAL, label=label), sector_size=4096)
    printed = run("fdisk", "-b", "4096", "-l", "-o", "Start,Sectors", image).splitlines()
    rows = [tuple(map(int, line.split())) for line in printed[-3:]]
    assert rows == wanted(plan, 4096)


@pytest.mark.needs_tools("blkid", "mkfs.ext4", "sfdisk")
def test_wiping_leaves_no_signature_where_the_old_or_the_new_partitions_are(sparse: MakeImage, tmp_path: Path) -> None:
    image = sparse(256 * MIB)
    run("sfdisk", "-q", image, stdin="label: gpt\nstart=2048, size=131072\nstart=133120, size=65536\n")
    run("mkfs.ext4", "-q", "-F", "-E", f"offset={MIB}", image, "64M")
    old = seen(image).disk.partitions
    assert [[layer.kind for layer in part.content] for part in old] == [["ext4"], []]
    plan, _ = made(image, LayoutGoal((PartitionRequest(None, "linux"),), label="dos", wipe=True))
    assert any("ext4" in sentence for sentence in plan.attention)
    for place in (*(part.extent.start for part in old), plan.places[0].after.start):
        assert run("blkid", "-p", "-O", str(place), image, fails=True) == ""
    assert b"EFI PART" not in image.read_bytes()
    assert seen(image).disk.partitions[0].content == ()


@pytest.mark.needs_tools("mkfs.ext4")
def test_without_wiping_only_the_table_is_written(sparse: MakeImage) -> None:
    image = sparse(64 * MIB)
    run("mkfs.ext4", "-q", "-F", "-E", f"offset={MIB}", image, "32M")
    before = image.read_bytes()
    made(image, LayoutGoal((PartitionRequest(32 * MIB, "linux"),)))
    after = image.read_bytes()
    assert after[MIB : 33 * MIB] == before[MIB : 33 * MIB]
    assert [layer.kind for layer in seen(image).disk.partitions[0].content] == ["ext4"]


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize("at", [3 * 512, 64 * MIB - 33 * 512])
def test_data_beside_an_empty_mbr_where_a_gpt_would_be_is_named(sparse: MakeImage, at: int) -> None:
    """An MBR is one sector: the rest of the place of a GPT may hold anything."""
    image = sparse(64 * MIB)
    run("sfdisk", "-q", image, stdin="label: dos\n")
    with image.open("r+b") as file:
        file.seek(at)
        file.write(random.Random(at).randbytes(30 * 512))
    judged = seen(image)
    judged = replace(judged, disk=with_samples(judged.disk, whole=True))
    goal = LayoutGoal((PartitionRequest(None, "linux"),))
    with pytest.raises(Refused, match="unrecognised data"):
        plan_layout(judged, goal)
    assert any("unrecognised data" in each for each in plan_layout(judged, replace(goal, wipe=True)).attention)


def test_a_second_run_has_nothing_to_do_and_an_old_plan_is_refused(sparse: MakeImage) -> None:
    image = sparse(64 * MIB)
    plan, disk = planned(image, LayoutGoal((PartitionRequest(None, "linux"),)))
    list(make_layout(plan, disk))
    before = digest(image)
    assert planned(image, LayoutGoal((PartitionRequest(None, "linux"),)))[0].steps == ()
    with pytest.raises(Refused, match="not empty"):
        planned(image, LayoutGoal((PartitionRequest(8 * MIB, "linux"),)))
    with pytest.raises(Refused, match="not the disk in the plan"):
        list(make_layout(plan, seen(image).disk))
    assert digest(image) == before


@pytest.mark.needs_tools("mkfs.ext4", "sfdisk")
@pytest.mark.parametrize("wipe", [False, True])
def test_a_plan_is_refused_if_a_file_system_was_created_since(sparse: MakeImage, wipe: bool) -> None:
    image = sparse(64 * MIB)
    if wipe:
        run("sfdisk", "-q", image, stdin="label: gpt\nstart=2048, size=65536\n")
    plan, _ = planned(image, LayoutGoal((PartitionRequest(None, "linux"),), wipe=wipe))
    run("mkfs.ext4", "-q", "-F", *(["-E", f"offset={MIB}"] if wipe else []), image, "32M")
    before = digest(image)
    with pytest.raises(
        Refused, match="has changed since this plan was made" if wipe else "not empty: ext4 on the whole disk"
    ):
        list(make_layout(plan, seen(image).disk))
    assert digest(image) == before


def test_another_image_of_the_same_name_is_detected_by_its_size(sparse: MakeImage) -> None:
    plan, _ = planned(sparse(64 * MIB), LayoutGoal((PartitionRequest(None, "linux"),)))
    image = sparse(65 * MIB)
    with pytest.raises(Refused, match="not the disk"):
        list(make_layout(plan, seen(image).disk))
    assert is_blank(image)


def test_the_audit_reports_every_new_partition_on_the_grid(sparse: MakeImage) -> None:
    image = sparse(256 * MIB)
    made(image, GOAL)
    assert [verdict.answer.value for verdict in seen(image).verdicts] == ["on the grid"] * 3


class Written:
    """An image in memory that records each write."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.writes: list[tuple[int, bytes]] = []
        self.size, self.sector_size = len(content), 512

    def read(self, offset: int, length: int) -> bytes:
        return self.content[offset : offset + length]

    def write(self, offset: int, data: bytes | memoryview) -> None:
        self.writes.append((offset, bytes(data)))
        self.content = self.content[:offset] + bytes(data) + self.content[offset + len(data) :]

    def flush(self) -> None:
        pass

    def is_hole(self, offset: int, length: int) -> bool:
        return False

    def run_parallel(self, jobs: Jobs, meanwhile: Job | None = None) -> None:
        if meanwhile:
            meanwhile()
        for job in jobs:
            job()


@pytest.mark.needs_tools("sfdisk")
def test_the_table_is_valid_after_a_cut_between_any_two_writes_of_the_types(sparse: MakeImage) -> None:
    image = sparse(64 * MIB)
    plan, _ = made(image, LayoutGoal((PartitionRequest(16 * MIB, "linux"), PartitionRequest(None, "linux"))))
    before = image.read_bytes()
    step = plan.steps[0]
    assert isinstance(step, MakeTable)
    entries = tuple(replace(entry, type_code=ROLES["lvm"].gpt, name="x") for entry in step.entries)
    device = Written(before)
    set_types(device, replace(step, entries=entries))
    seen_types = []
    for count in range(len(device.writes) + 1):
        with image.open("r+b") as file:
            file.write(before)
            for at, data in device.writes[:count]:
                file.seek(at)
                file.write(data)
        parts: list[dict[str, object]] = by_sfdisk(image)["partitions"]  # type: ignore[assignment]
        assert [(one["start"], one["size"]) for one in parts] == wanted(plan, 512)
        seen_types.append({one["type"] for one in parts})
    assert seen_types[0] == {ROLES["linux"].gpt} and seen_types[-1] == {ROLES["lvm"].gpt}


def test_setting_types_stops_if_the_table_is_missing() -> None:
    step = MakeTable("gpt", ())
    with pytest.raises(Stopped, match="missing from sector 1"):
        set_types(Written(bytes(MIB)), step)


# Loop devices


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk", "partx")
@pytest.mark.parametrize("sector", [512, 4096])
def test_on_a_block_device_the_kernel_shows_the_new_partitions(sparse: MakeImage, loop: Attach, sector: int) -> None:
    device = loop(sparse(256 * MIB), sector_size=sector)
    plan, _ = made(device, GOAL)
    table = by_sfdisk(device)
    entries: list[dict[str, object]] = table["partitions"]  # type: ignore[assignment]
    assert table.get("sectorsize") == sector
    assert [(one["start"], one["size"]) for one in entries] == wanted(plan, sector)
    folder = Path("/sys/block", device.name)
    shown = [
        (int((folder / f"{device.name}p{number}/start").read_text()) * 512,
         int((folder / f"{device.name}p{number}/size").read_text()) * 512)
        for number in (1, 2, 3)
    ]  # fmt: skip
    assert shown == [(place.after.start, place.after.length) for place in plan.places]


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "mkfs.ext4", "partx")
def test_a_disk_with_a_mounted_partition_is_refused_and_not_changed(
    sparse: MakeImage, loop: Attach, tmp_path: Path
) -> None:
    image = sparse(64 * MIB)
    device = loop(image)
    made(device, LayoutGoal((PartitionRequest(32 * MIB, "linux"),)))
    goal = LayoutGoal((PartitionRequest(None, "swap"),), wipe=True)
    plan, disk = planned(device, goal)
    partition = Path(f"{device}p1")
    run("mkfs.ext4", "-q", partition)
    plan, disk = planned(device, goal)
    place = tmp_path / "mounted"
    place.mkdir()
    run("mount", "-o", "ro", partition, place)
    try:
        before = digest(image)
        with pytest.raises(Refused, match="mounted at"):
            planned(device, goal)
        with pytest.raises(Refused, match="in use"):
            list(make_layout(plan, disk))  # seen before it was mounted
        assert digest(image) == before
    finally:
        unmount(place)


def test_an_image_that_another_program_has_locked_is_refused(sparse: MakeImage) -> None:
    image = sparse(64 * MIB)
    plan, disk = planned(image, LayoutGoal((PartitionRequest(None, "linux"),)))
    with image.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with pytest.raises(Refused, match="locked"):
            list(make_layout(plan, disk))
    assert is_blank(image)
