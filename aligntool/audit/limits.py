"""Believe or not: grading the sizes that a device reports before anything is compared with them.

Cases and sources: 33553920 (65535 × 512) from USB bridges, util-linux#1221 and #1224; 16773120 (4095 × 4096)
from SAS drivers, linux-block 2025-06; 33554432 (65536 × 512) from NVMe NOWS 65535, azure-vm-utils#99. Odd but
real stripes such as 196608 (three data disks, util-linux#688) must pass.
"""

from enum import StrEnum

from aligntool.inventory import Disk, DiskKind
from aligntool.units import MIB, is_power_of_two

STACKED = frozenset({DiskKind.MD, DiskKind.DM, DiskKind.BCACHE})
LARGEST_OPTIMAL_IO_OF_A_DRIVE = 4 * MIB
LARGEST_MINIMUM_IO_OF_A_DRIVE = 16 * MIB


class Grade(StrEnum):
    ABSENT = "absent"
    BOGUS = "bogus"
    PLAUSIBLE = "plausible"
    STRIPE = "plausible-stripe"


def grade_optimal_io(disk: Disk) -> tuple[Grade, str]:
    """The grade of `optimal_io_size` and the reason when it is bogus."""
    optimal = disk.limits.optimal_io_size or 0
    if optimal <= 0:
        return Grade.ABSENT, ""
    logical = disk.limits.logical_block_size or 512
    block = max(disk.limits.physical_block_size or 512, believed_minimum_io(disk))
    if optimal == 0xFFFF * logical:
        return Grade.BOGUS, f"it is 65535 sectors of {logical} bytes, what USB bridges report for “no limit”"
    if optimal % block:
        return Grade.BOGUS, f"it is no multiple of {block} bytes"
    if disk.kind in STACKED:
        return Grade.STRIPE, ""
    if not is_power_of_two(optimal) and optimal % MIB:
        # A strip times an odd number of data disks behind a RAID controller is a multiple of a minimum I/O size
        # that says so itself.
        if disk.kind is DiskKind.SCSI and believed_minimum_io(disk) >= 16 * 1024:
            return Grade.STRIPE, ""
        return Grade.BOGUS, "it is neither a power of two nor a multiple of 1 MiB, and this is a single drive"
    if optimal > LARGEST_OPTIMAL_IO_OF_A_DRIVE:
        return Grade.BOGUS, "it is larger than 4 MiB, and this is a single drive"
    return Grade.PLAUSIBLE, ""


def minimum_io_doubt(disk: Disk) -> str:
    """Why `minimum_io_size` is not believed; empty when it is."""
    minimum = disk.limits.minimum_io_size or 0
    logical = disk.limits.logical_block_size or 512
    if minimum <= 0:
        return ""
    if minimum % logical:
        return f"it is no multiple of the logical sector of {logical} bytes"
    if disk.kind in STACKED:
        return ""
    if not is_power_of_two(minimum) and disk.kind is not DiskKind.SCSI:
        return "it is no power of two, and this is a single drive"
    if minimum > LARGEST_MINIMUM_IO_OF_A_DRIVE:
        return "it is larger than 16 MiB"
    if (disk.limits.physical_block_size or 0) > minimum or minimum % (
        disk.limits.physical_block_size or 512
    ) == 0:
        return ""
    return f"it is no multiple of the physical sector of {disk.limits.physical_block_size} bytes"


def believed_minimum_io(disk: Disk) -> int:
    """`minimum_io_size` in bytes, 0 when absent or not believed."""
    minimum = disk.limits.minimum_io_size or 0
    return 0 if minimum <= 0 or minimum_io_doubt(disk) else minimum
