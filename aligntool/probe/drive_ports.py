"""Evidence that a SCSI disk is one drive, and not a LUN that a RAID controller, an array or a hypervisor makes."""

import re

from aligntool.inventory import DiskKind
from aligntool.probe.devices import Block
from aligntool.probe.tree import Tree
from aligntool.probe.udev import Record

_SAS = re.compile(r"/end_device-[^/]+/target[^/]+/")  # scsi_transport_sas.c: below a phy or an expander
_HOST = re.compile(r"(.*/host\d+)/(target\d+:\d+:\d+)/")
_B1_LENGTH = 6


def read_drive_port(tree: Tree, block: Block, kind: DiskKind) -> str | None:
    """Return which bus addresses the drive itself; None where nothing shows that there is one drive.

    RAID controllers put what they make below their host at once, without an end device of the SAS transport
    (megaraid_sas, hpsa, smartpqi, aacraid, arcmsr, 3w-*), and so do FC, iSCSI and hypervisors.
    """
    if kind is DiskKind.ATA:
        return "ata"
    if kind is not DiskKind.SCSI:
        return None
    if _SAS.search(f"{block.path}/"):
        return "sas"
    place = _HOST.match(f"{block.path}/")
    if place and tree.exists(f"{place[1]}/{place[2]}/spi_transport"):  # scsi_transport_spi.c
        return "spi"
    return None


def read_rotation(tree: Tree, block: Block, record: Record) -> int | None:
    """Return the revolutions per minute that the drive reports, 0 where it reports none; None: not readable here.

    Block Device Characteristics VPD page (SBC-4, 6.6.2), bytes 4 and 5: 0 not reported, 1 not rotating.
    """
    page = tree.content(f"{block.device}/vpd_pgb1", 4096)
    if page is not None and len(page) >= _B1_LENGTH and page[1] == 0xB1:
        rate = int.from_bytes(page[4:6], "big")
        return rate if 0x0401 <= rate <= 0xFFFE else 0
    return record.number("ID_ATA_ROTATION_RATE_RPM")
