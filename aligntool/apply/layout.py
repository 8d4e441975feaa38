"""A new partition table, made for real: on a block device, or in an image file without root.

In: the plan of a layout, and the disk as it is now. Out: the table, and events. Alone because it is the one thing that
aligntool does to a disk without a journal: there is nothing on the disk that a journal could bring back.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from aligntool.apply.device import Device
from aligntool.apply.disk_device import DiskDevice
from aligntool.apply.layout_types import set_types
from aligntool.errors import Refused, Stopped
from aligntool.inventory import Disk
from aligntool.plan import Event, MakeTable, Plan, Said, StepBegun, StepDone
from aligntool.realign.layout import layout_attention, layout_subject, wiped_ranges
from aligntool.realign.layout_refusals import refuse_unfit
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
    if replace(plan.disk, path="") != replace(layout_subject(disk), path=""):
        raise Refused(f"{disk.path} is not the disk that this plan was made for, or its table has changed since",
                      hint="make the plan anew: aligntool plan layout DISK")  # fmt: skip
    refuse_unfit(disk, wipe=step.wipe)
    if plan.attention != layout_attention(disk, wipe=step.wipe):
        raise Refused(f"other things lie on {disk.path} than when this plan was made",
                      hint="make the plan anew: aligntool plan layout DISK")  # fmt: skip
    with _held(disk.path) as (descriptor, is_block):
        with DiskDevice(descriptor, image_sector_size=plan.disk.sector_size) as device:
            _refuse_other_sectors(device, plan, disk.path)
            failures: tuple[type[Exception], ...] = (OSError, *_libparted_errors())
            yield StepBegun(0)
            with _new_table(disk.path, step, device.sector_size) as table:
                try:
                    if step.wipe:
                        _zero(device, wiped_ranges(disk, step))
                    table.commitToDevice()
                    set_types(device, step)
                    if is_block:
                        table.commitToOS()  # BLKPG: old partitions leave the kernel, new ones come
                except failures as error:
                    raise Stopped(
                        f"{disk.path}: {error}; its new table may be unfinished", hint=_AGAIN
                    ) from error
        yield StepDone(0)
    if is_block:
        yield Said("the kernel knows the new partitions")


@contextmanager
def _held(path: str) -> Iterator[tuple[int, bool]]:
    """Open for nobody else: O_EXCL fails while anything is mounted or stacked; the lock keeps udev from looking.

    https://systemd.io/BLOCK_DEVICE_LOCKING/
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
        is_block = stat.S_ISBLK(mode)
        if not is_block and not stat.S_ISREG(mode):
            raise Refused(f"{path} is neither a block device nor an image file")
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_EXCL if is_block else 0))
    except OSError as error:
        busy = error.errno == errno.EBUSY
        why = "in use: something on it is mounted, or runs on top of it" if busy else error.strerror
        raise Refused(
            f"{path} is {why}" if busy else f"{path}: {why}", hint=f"lsblk {path}" if busy else ""
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise Refused(
            f"{path} is locked by another program", hint=f"lslocks; then try {path} again"
        ) from error
    try:
        yield descriptor, is_block
    finally:
        os.close(descriptor)


def _refuse_other_sectors(device: Device, plan: Plan, path: str) -> None:
    if device.sector_size != plan.disk.sector_size:
        raise Refused(f"{path} has sectors of {device.sector_size} bytes, the plan's disk {plan.disk.sector_size}",
                      hint="make the plan anew: aligntool plan layout DISK")  # fmt: skip


def _zero(device: Device, ranges: tuple[Extent, ...]) -> None:
    zeroes = bytes(MIB)
    for extent in ranges:
        end = min(extent.end, device.size)
        for at in range(extent.start, end, MIB):
            device.write(at, zeroes[: end - at])
    device.flush()


@contextmanager
def _new_table(path: str, step: MakeTable, sector_size: int) -> "Iterator[parted.Disk]":
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
    except _libparted_errors() as error:
        raise Refused(f"{path}: libparted: {error}") from error
    finally:
        if (
            device is not None
        ):  # or libparted would answer for the next file of this path with this one's length
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


def _libparted_errors() -> tuple[type[Exception], ...]:
    """They have no class above them all."""
    import _ped

    return tuple(each for name, each in vars(_ped).items() if name.endswith("Exception"))
