"""Steps that give an NVMe drive another LBA format: what they check first, and what they wait for."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from aligntool.audit.wording import contents_of_disk
from aligntool.change import Event, Plan, Said, StepBegun, StepDone
from aligntool.commands import ByHand, by_hand, typed
from aligntool.errors import Refused, Stopped
from aligntool.formats.identify import format_scope
from aligntool.inventory import Disk
from aligntool.linux.commands import identify_controller, namespace_number, namespaces
from aligntool.linux.content import sample
from aligntool.linux.lock import wait_for_udev
from aligntool.linux.programs import run_or_stop
from aligntool.linux.sysfs import opened
from aligntool.raid.commands import format_command
from aligntool.raid.lba_formats import Namespace
from aligntool.raid.steps_drives import LockedMembers, is_same_drive, lock_members, read_disk
from aligntool.raid.steps_md import read_kernel_file
from aligntool.steps import FormatDrive, FormatStep, Step
from aligntool.units import Extent, align_down

_PAUSE_S = 0.1
_PATIENCE_S = 20.0  # until the kernel shows the result of a format
_SECTOR = 512


def read_namespace(disk: Disk) -> Namespace:
    """Return the scope of a format and the number of the namespace. The scope "drive" of an only namespace
    counts as "namespace".
    """
    with suppress(OSError), opened(disk.path) as descriptor:
        scope = format_scope(identify_controller(descriptor) or b"")
        number = namespace_number(descriptor)
        only = scope == "drive" and namespaces(descriptor) == (number,)
        return Namespace("namespace" if only else scope, number)
    return Namespace()


def stop_unless_same_drive(disk: Disk, step: FormatStep) -> None:
    if not is_same_drive(disk, step):
        raise Stopped(f"{disk.path} is not the drive in the plan: model, serial number, WWN or size differ")


def stop_unless_formattable(disk: Disk, step: FormatStep) -> None:
    """Raise Stopped unless it is the drive and namespace in the plan, not in use, and a format erases only
    that.
    """
    path = disk.path
    stop_unless_same_drive(disk, step)
    holders = [*disk.holders, *(holder for part in disk.partitions for holder in part.holders)]
    places = [*disk.mounted_at, *(place for part in disk.partitions for place in part.mounted_at)]
    if holders or places:
        raise Stopped(f"{path} is in use, so it is not formatted: {', '.join((*holders, *places))}")
    if not (disk.table_read and disk.content_read and disk.nvme and disk.nvme.format_in_use is not None):
        text = f"{path} could not be read, so it may have other content by now; it is not formatted"
        raise Stopped(text, hint=f"if formatting was interrupted: {format_by_hand(step)}")
    if read_namespace(disk) != Namespace("namespace", step.namespace):
        raise Stopped(f"{path} is not namespace {step.namespace}, or formatting would erase more than that")
    if disk.nvme.format_in_use not in (step.format_before, step.format_after):
        raise Stopped(
            f"{path} has format {disk.nvme.format_in_use}, which is neither the old nor the new one"
        )


def format_by_hand(step: FormatStep) -> str:
    return by_hand(ByHand.SECTOR_SIZE, "nvme", f"{step.disk.path}, to format {step.format_after}")


def wait_for_blocks(step: FormatStep) -> int:
    """Wait until the kernel shows the new blocks, and return the size of the drive. Raises Stopped if it does
    not show them.
    """
    deadline = time.monotonic() + _PATIENCE_S
    file = Path("/sys/block", Path(step.disk.path).name)
    wait_for_udev()
    while read_kernel_file(file / "queue/logical_block_size") != str(step.block_after):
        if time.monotonic() > deadline:
            raise Stopped(
                f"{step.disk.path} does not show logical blocks of {step.block_after} bytes after formatting"
            )
        time.sleep(_PAUSE_S)
    return int(read_kernel_file(file / "size") or 0) * _SECTOR


# FormatDrive: an empty drive that becomes a member of a new array, or gets a new table.


def stop_unless_all_blank(steps: Sequence[Step]) -> None:
    """Raise Stopped unless every drive of these steps may be formatted: none is, as long as another one may
    not be.
    """
    for step in steps:
        if isinstance(step, FormatDrive):
            _stop_unless_blank(step)


def _stop_unless_blank(step: FormatDrive) -> Disk:
    """Read the drive, and return it. An interrupted format may have left either format; months later the
    drive may be in use elsewhere, which only its bytes show.
    """
    disk = read_disk(step.disk.path)
    path = disk.path
    stop_unless_formattable(disk, step)
    look = typed("wipefs --no-act", path)
    found = contents_of_disk(disk)
    if found:
        raise Stopped(f"{path} is not empty, so it is not formatted: {', '.join(found)}", hint=look)
    sampled = sample(path, Extent(0, disk.size or 0))
    if sampled.written:
        text = f"{path} holds data at {sampled.written} of {sampled.places} places; it is not formatted"
        raise Stopped(text, hint="sudo aligntool rollback does not touch it")
    if sampled.unreadable or not sampled.places:
        text = (
            f"{path} cannot be read at {sampled.unreadable} of {sampled.places} places; it is not formatted"
        )
        raise Stopped(text, hint=f"if formatting was interrupted: {format_by_hand(step)}")
    return disk


def format_drive(step: FormatDrive, members: LockedMembers) -> Iterator[Said]:
    """Format an empty drive. Raises Stopped, or Refused if it is in use."""
    path = step.disk.path
    with members.disk(path):  # while it is open no other drive gets its name
        disk = _stop_unless_blank(step)
        done = disk.nvme is not None and disk.nvme.format_in_use == step.format_after
        if not done:
            run_or_stop(*format_command(step))
    with members.closed(path):  # a process that has it open keeps reading in blocks of the old size
        size = wait_for_blocks(step)
    expected = align_down(step.disk.size, step.block_after)
    if size != expected:
        text = f"{path} has {size} bytes in this format, not {expected} as planned"
        raise Stopped(text, hint="sudo aligntool rollback\nthe same command then plans with that size")
    new = f"{path} has logical blocks of {step.block_after} bytes"
    yield Said(f"{path} already has its format" if done else new)


def format_for_table(plan: Plan) -> Iterator[Event]:
    """Format the drive of a new table, if the plan does. There is no record: an interruption leaves an empty
    drive with one of its two formats. Raises Refused before the first write, Stopped after it.
    """
    for index, step in plan.numbered(FormatDrive):
        with lock_members([step]) as members:
            try:
                _stop_unless_blank(step)
            except Stopped as stopped:
                raise Refused(str(stopped), hint=typed("aligntool audit", step.disk.path)) from stopped
            yield StepBegun(index)
            yield from format_drive(step, members)
            yield StepDone(index)


def keep_format(step: FormatDrive) -> Said:
    """Return what a rollback leaves: to format the drive again would erase it a second time, for nothing."""
    blocks = read_disk(step.disk.path).limits.logical_block_size or "unknown"
    return Said(f"{step.disk.path} keeps its logical blocks of {blocks} bytes: a rollback formats no drive")
