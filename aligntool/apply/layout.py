"""A new partition table, made for real: on a block device, or in an image file without root.

In: the plan of a layout, and the disk as it is now. Out: the table, and events. Alone because it is the one thing that
aligntool does to a disk without a journal: there is nothing on the disk that a journal could bring back.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aligntool.apply.device import Device
from aligntool.apply.hold import hold_disk
from aligntool.apply.layout_types import set_types
from aligntool.errors import Refused, Stopped
from aligntool.inventory import Disk
from aligntool.plan import Event, MakeMember, MakeTable, Plan, Said, StepBegun, StepDone
from aligntool.realign.layout import layout_attention, layout_subject, wiped_ranges
from aligntool.realign.layout_refusals import refuse_unfit
from aligntool.realign.subject import is_same_disk
from aligntool.units import MIB, Extent

if TYPE_CHECKING:
    import parted

_AGAIN = "aligntool layout DISK --wipe"


def make_layout(plan: Plan, disk: Disk) -> Iterator[Event]:
    """Make the table, flushed to the medium. `disk`: looked at just now, not when the plan was made.

    Raises Refused before the first write, when the disk is not the plan's any more or is in use; Stopped after it.
    """
    step = plan.steps[0] if len(plan.steps) == 1 else None
    if not isinstance(step, MakeTable):
        raise Refused("this is no plan of a new layout", hint="aligntool plan layout DISK -o plan.json")
    if not is_same_disk(plan.disk, layout_subject(disk)):
        raise Refused(f"{disk.path} is not the disk that this plan was made for, or its table has changed since",
                      hint="make the plan anew: aligntool plan layout DISK")  # fmt: skip
    refuse_unfit(disk, wipe=step.wipe)
    if plan.attention != layout_attention(disk, wipe=step.wipe):
        raise Refused(f"other things lie on {disk.path} than when this plan was made",
                      hint="make the plan anew: aligntool plan layout DISK")  # fmt: skip
    with (
        hold_disk(disk.path, image_sector_size=plan.disk.sector_size, why="a new partition table") as held,
        new_table(disk.path, step, plan.disk.sector_size) as table,
    ):
        _refuse_other_sectors(held.device, plan, disk.path)
        held.kernel.forget(held.kernel.numbers())
        yield StepBegun(0)
        failures: tuple[type[Exception], ...] = (OSError, *libparted_errors())
        try:
            if step.wipe:
                zero(held.device, wiped_ranges(disk, step))
            table.commitToDevice()
            set_types(held.device, step)
            held.kernel.show([(entry.number, entry.extent) for entry in step.entries])
        except failures as error:
            raise Stopped(f"{disk.path}: {error}; its new table may be unfinished", hint=_AGAIN) from error
        yield StepDone(0)
    yield from (Said(note) for note in held.notes)


def _refuse_other_sectors(device: Device, plan: Plan, path: str) -> None:
    if device.sector_size != plan.disk.sector_size:
        raise Refused(f"{path} has sectors of {device.sector_size} bytes, the plan's disk {plan.disk.sector_size}",
                      hint="make the plan anew: aligntool plan layout DISK")  # fmt: skip


def zero(device: Device, ranges: tuple[Extent, ...]) -> None:
    """Flushed range by range, so that a backup at the end outlives what it is the backup of. Raises OSError."""
    zeroes = bytes(MIB)
    for extent in ranges:
        end = min(extent.end, device.size)
        for at in range(extent.start, end, MIB):
            device.write(at, zeroes[: end - at])
        device.flush()


@contextmanager
def new_table(path: str, step: MakeTable | MakeMember, sector_size: int) -> "Iterator[parted.Disk]":
    """libparted picks identifiers, checks that nothing overlaps, and will write both copies of a GPT. Writes nothing.

    Raises Refused when libparted does not want such a table.
    """
    import parted

    device = None
    try:
        with _told_of_sectors(sector_size):
            device = parted.getDevice(path)
        table = parted.freshDisk(device, "msdos" if step.label == "dos" else "gpt")
        for entry in step.entries:
            start, length = entry.extent.start // sector_size, entry.extent.length // sector_size
            geometry = parted.Geometry(device, start=start, length=length)
            partition = parted.Partition(table, parted.PARTITION_NORMAL, geometry=geometry)
            table.addPartition(partition, parted.Constraint(exactGeom=geometry))
        yield table
    except libparted_errors() as error:
        raise Refused(f"{path}: libparted: {error}") from error
    finally:
        # libparted would answer for the next file of this path with the length of this one.
        if device is not None:
            device.removeFromCache()


@contextmanager
def _told_of_sectors(sector_size: int) -> Iterator[None]:
    """libparted takes the sectors of an image file from its environment (libparted/arch/linux.c, init_file)."""
    before = os.environ.get("PARTED_SECTOR_SIZE")
    os.environ["PARTED_SECTOR_SIZE"] = str(sector_size)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PARTED_SECTOR_SIZE"]
        else:
            os.environ["PARTED_SECTOR_SIZE"] = before


def libparted_errors() -> tuple[type[Exception], ...]:
    """What libparted raises: they have no class above them all."""
    import _ped

    return tuple(each for name, each in vars(_ped).items() if name.endswith("Exception"))
