"""Empty drives that are formatted before they become members or get a table, on loop devices as drives: their logical
blocks change as soon as they are not opened exclusively.
"""

import errno
import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.change import ArrayPlan, LayoutGoal, PartitionRequest, Said, StepBegun, StepDone, TablePlan
from aligntool.errors import Refused, Stopped
from aligntool.inventory import Disk, DiskKind, Inventory, LbaFormat, NvmeFacts
from aligntool.layout.layout import make_layout
from aligntool.linux.applying import ChangeInProgress, apply_events
from aligntool.linux.content import sample
from aligntool.raid import steps_drives, steps_format
from aligntool.raid.apply import apply_record, begin, undo_record
from aligntool.raid.formatting import plan_formats, plan_formatted_layout
from aligntool.raid.lba_formats import Namespace
from aligntool.raid.record import lock_state, read_record
from aligntool.raid.steps_drives import LockedMembers, lock_members, read_disk
from aligntool.raid.steps_format import format_drive, format_for_table
from aligntool.steps import FormatDrive, MakeMember, subject
from aligntool.units import MIB, Extent
from tests.conftest import run
from tests.raid.applying.builders import paths_in, plan_of, program

PATH = os.environ["PATH"]
pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("losetup", "blkid")]

# Format 0 has 512 bytes, format 3 has 4096.
NVME = """
echo "$@" >> {folder}/called
(until losetup --sector-size 4096 "$2"; do sleep 0.05; done) > /dev/null 2>&1 &
"""


def as_nvme(path: str) -> Disk:
    disk = steps_drives.read_disk(path)
    in_use = 0 if disk.limits.logical_block_size == 512 else 3
    return replace(disk, kind=DiskKind.NVME, nvme=NvmeFacts(format_in_use=in_use, controllers=("nvme0",)))


@pytest.fixture
def drives(
    sparse: Callable[..., Path], loop: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[Path]:
    monkeypatch.setattr(steps_format, "read_disk", as_nvme)
    monkeypatch.setattr(steps_format, "read_namespace", lambda _: Namespace("namespace", 1))
    folder = program(tmp_path, "nvme", NVME.format(folder=tmp_path))
    monkeypatch.setenv("PATH", f"{folder}:{PATH}")
    return [loop(sparse(32 * MIB, f"{number}.img")) for number in range(2)]


def planned(drives: list[Path]) -> ArrayPlan:
    disks = [read_disk(str(drive)) for drive in drives]
    formats = [FormatDrive(subject(disk), 1, 0, 512, 3, 4096) for disk in disks]
    members = [MakeMember(replace(step.disk, sector_size=4096), step.disk.path, "") for step in formats]
    return plan_of([*formats, *members])


def blocks(drives: list[Path]) -> list[int]:
    return [read_disk(str(drive)).limits.logical_block_size or 0 for drive in drives]


def called(folder: Path) -> list[str]:
    file = folder / "called"
    return file.read_text().splitlines() if file.exists() else []


def test_a_locked_drive_is_formatted_and_locked_again_in_its_new_blocks(drives: list[Path], tmp_path: Path) -> None:
    plan = planned(drives)
    step = plan.of(FormatDrive)[0]
    with lock_members(plan.steps) as members:
        (said,) = format_drive(step, members)
        assert said.text == f"{drives[0]} has logical blocks of 4096 bytes"
        assert blocks(drives) == [4096, 512]
        with members.disk(str(drives[0])) as locked:
            assert locked.device.sector_size == 4096
        for drive in drives:
            with pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
                os.open(drive, os.O_RDONLY | os.O_EXCL)
        (said,) = format_drive(step, members)
        assert said.text == f"{drives[0]} already has its format"
    words = f"admin-passthru {drives[0]} --opcode=0x80 --namespace-id=1 --cdw10=3 --timeout=600000"
    assert called(tmp_path) == [words]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda disk: replace(disk, serial="another"), "is not the drive in the plan"),
        (lambda disk: replace(disk, holders=("md0",)), "is in use, so it is not formatted: md0"),
        (lambda disk: replace(disk, nvme=None), "could not be read"),
        (lambda disk: replace(disk, content_read=False), "could not be read"),
        (lambda disk: replace(disk, nvme=replace(disk.nvme, format_in_use=1)), "neither the old nor the new"),
    ],
)
def test_a_drive_that_differs_from_the_plan_is_not_formatted(
    change: Callable[[Disk], Disk], said: str, drives: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps_format, "read_disk", lambda path: change(as_nvme(path)))
    with pytest.raises(Stopped, match=said):
        list(format_drive(planned(drives).of(FormatDrive)[0], LockedMembers()))
    assert not called(tmp_path)


@pytest.mark.parametrize("namespace", [Namespace("drive", 1), Namespace("namespace", 2), Namespace()])
def test_a_format_that_may_erase_more_is_not_begun(
    namespace: Namespace, drives: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps_format, "read_namespace", lambda _: namespace)
    with pytest.raises(Stopped, match="or formatting would erase more than that"):
        list(format_drive(planned(drives).of(FormatDrive)[0], LockedMembers()))
    assert not called(tmp_path)


@pytest.mark.parametrize("at", [0, 4 * MIB, 32 * MIB - 512])
def test_no_drive_is_formatted_if_one_of_them_holds_data(at: int, drives: list[Path], tmp_path: Path) -> None:
    plan = planned(drives)
    with drives[1].open("r+b") as second:
        second.seek(at)
        second.write(b"data of another program")
    paths = paths_in(tmp_path)
    with lock_state(paths.state), pytest.raises(Stopped, match="it is not formatted") as stopped:
        list(apply_record(begin(plan, paths), plan, paths))
    assert str(drives[1]) in str(stopped.value)
    assert blocks(drives) == [512, 512] and not called(tmp_path)


def test_a_drive_of_another_size_than_planned_stops_the_work(drives: list[Path]) -> None:
    step = planned(drives).of(FormatDrive)[0]
    # as if it had had other blocks when the plan was made
    step = replace(step, disk=replace(step.disk, size=step.disk.size + 4096, sector_size=520))
    with pytest.raises(Stopped, match=f"has {32 * MIB} bytes in this format, not {32 * MIB + 4096} as planned"):
        list(format_drive(step, LockedMembers()))


def test_a_rollback_keeps_the_format_of_a_drive(drives: list[Path], tmp_path: Path) -> None:
    plan = planned(drives)
    paths = paths_in(tmp_path)
    with lock_state(paths.state):
        events = apply_record(begin(plan, paths), plan, paths)
        while next(events) != StepDone(0):
            pass
        del events  # as a power cut ends it
        (file,) = (paths.state / "arrays").glob("*.json")
        said = [str(event) for event in undo_record(read_record(file), plan, paths)]
    assert any("keeps its logical blocks of 4096 bytes: a rollback formats no drive" in text for text in said)
    assert blocks(drives) == [4096, 512] and len(called(tmp_path)) == 1
    assert not file.exists()


WANTED = LayoutGoal((PartitionRequest(8 * MIB, "esp"), PartitionRequest(None, "linux")))


def table_plan(drive: Path) -> TablePlan:
    """Return the plan of a table on a drive that is formatted first."""
    disk = replace(as_nvme(str(drive)), sampled=sample(str(drive), Extent(0, 32 * MIB)), serial="S1")
    formats = (LbaFormat(0, 512, 0, 2), LbaFormat(3, 4096, 0, 0))
    disk = replace(disk, nvme=replace(disk.nvme or NvmeFacts(), formats=formats))
    machine = Inventory((disk,))
    namespaces = {disk.name: Namespace("namespace", 1)}
    formatting = plan_formats(audit(machine, {}).judged, machine, 4096, {}, namespaces, machine.disks)
    plan = plan_formatted_layout(formatting, WANTED)
    (step,) = plan.of(FormatDrive)  # a loop device has no serial number
    disk_of_plan = replace(plan.disk, serial=None)
    return replace(
        plan, disk=disk_of_plan, steps=(replace(step, disk=replace(step.disk, serial=None)), *plan.steps[1:])
    )


@pytest.mark.needs_tools("sfdisk")
def test_a_drive_is_formatted_and_gets_its_table_in_the_new_blocks(drives: list[Path], tmp_path: Path) -> None:
    plan = table_plan(drives[0])
    events = [event for event in format_for_table(plan) if not isinstance(event, Said)]
    assert events == [StepBegun(0), StepDone(0)] and blocks(drives) == [4096, 512]
    assert list(make_layout(plan, read_disk(str(drives[0]))))[:2] == [StepBegun(1), StepDone(1)]
    table = json.loads(run("sfdisk", "--json", drives[0]))["partitiontable"]
    assert (table["sectorsize"], table["lastlba"]) == (4096, 32 * MIB // 4096 - 6)
    assert [part["start"] * 4096 for part in table["partitions"]] == [place.after.start for place in plan.places]
    assert len(called(tmp_path)) == 1


@pytest.mark.parametrize("at", [0, 4 * MIB, 32 * MIB - 512])
def test_a_drive_that_was_written_to_is_refused_before_its_format(at: int, drives: list[Path], tmp_path: Path) -> None:
    plan = table_plan(drives[0])
    with drives[0].open("r+b") as drive:
        drive.seek(at)
        drive.write(b"data of another program")
    with pytest.raises(Refused, match="it is not formatted"):
        list(format_for_table(plan))
    assert blocks(drives) == [512, 512] and not called(tmp_path)


def test_a_drive_that_is_in_use_is_refused_before_its_format(drives: list[Path], tmp_path: Path) -> None:
    plan = table_plan(drives[0])
    descriptor = os.open(drives[0], os.O_RDONLY | os.O_EXCL)
    try:
        with pytest.raises(Refused):
            list(format_for_table(plan))
    finally:
        os.close(descriptor)
    assert not called(tmp_path)


def test_an_interrupted_format_is_reported_as_such(drives: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = table_plan(drives[0])
    monkeypatch.setattr(steps_format, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(steps_format, "read_kernel_file", lambda _: "512")
    with pytest.raises(Stopped) as stopped:
        apply_events(plan, ChangeInProgress(format_for_table(plan), "again"), nullcontext(print), lambda *_: None)
    assert "does not show logical blocks of 4096 bytes" in str(stopped.value) and stopped.value.hint == "again"
