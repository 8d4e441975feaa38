"""A change of a drive's sector size is suggested if the drive reports support for it, and only then."""

from dataclasses import replace

from aligntool.convert.planning import reformatting
from aligntool.inventory import Disk, DiskKind, IoLimits, LbaFormat, NvmeFacts
from aligntool.units import GIB

NVME = Disk("nvme0n1", "/dev/nvme0n1", DiskKind.NVME, GIB, IoLimits(logical_block_size=512))
FORMATS = (LbaFormat(0, 512, 0, 2), LbaFormat(1, 4096, 8, 1), LbaFormat(2, 4096, 0, 0))


def test_the_format_without_metadata_is_suggested() -> None:
    """nvme-format(1): --lbaf is the index in the list of the drive."""
    (said,) = reformatting(replace(NVME, nvme=NvmeFacts(FORMATS)), 4096)
    assert said.endswith("by hand, with nvme on /dev/nvme0n1: docs/by-hand.md#another-sector-size")
    assert "erases" in said and "its format 2," in said
    (said,) = reformatting(replace(NVME, nvme=NvmeFacts(FORMATS)), 512)
    assert "its format 0," in said


def test_no_command_is_suggested_for_a_drive_without_such_a_format() -> None:
    assert not [*reformatting(replace(NVME, nvme=NvmeFacts(FORMATS[:2])), 4096)]
    assert not [*reformatting(replace(NVME, kind=DiskKind.USB), 4096)]


def test_for_an_ata_drive_hdparm_is_suggested() -> None:
    """hdparm(8), --set-sector-size."""
    (said,) = reformatting(replace(NVME, path="/dev/sdb", kind=DiskKind.ATA), 4096)
    assert said.endswith("by hand, with hdparm on /dev/sdb: docs/by-hand.md#another-sector-size")
