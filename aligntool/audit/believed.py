"""Whether a reported physical sector of 512 bytes is that of one rotating drive.

Every Linux disk that reports nothing has 512 bytes and is "rotating" to the kernel (block/blk-settings.c, sd.c), so
neither is evidence: a LUN of a RAID controller and a virtual disk look like an old hard disk.
"""

import re

from aligntool.inventory import Disk, DiskKind
from aligntool.units import TIB

BELIEVED_UP_TO = 2 * TIB  # a rotating drive of this size may really have 512-byte sectors

_NOT_ONE_DRIVE = re.compile(
    r"\b(?:qemu|vbox|virtual|vmware|msft|google|xen|parallels|bochs|kvm|nutanix|vdisk"  # hypervisors
    r"|lio-org|iet|scst_\w+|iscsi|open-v|lun|symmetrix|netapp|3par\w*|compellent|equallogic|powervault"  # storage
    r"|perc|megaraid|mr\d\w*|serveraid|smartraid|smart array|logical vol\w*|logical drive"  # controllers
    r"|raid ?\d*|\w*raid|areca|arc-\d+\w*|adaptec|3ware|amcc|9\d{3}s\w*|dpt|mylex|jmicron|volume)\b",
    re.IGNORECASE,
)


def is_one_drive(disk: Disk) -> bool:
    """Return whether the disk is a rotating drive of its own, as far as it can be seen from here.

    It hangs on the port of one drive, it does not bear the name of a controller or a hypervisor, and where a SCSI
    drive can be asked for its rotation rate, it reports one.
    """
    if disk.kind not in (DiskKind.ATA, DiskKind.SCSI) or disk.rotational is not True:
        return False
    if _NOT_ONE_DRIVE.search(f"{disk.vendor or ''} {disk.model or ''}"):
        return False
    return disk.kind is DiskKind.ATA or (disk.drive_port is not None and disk.rotation_rpm != 0)


def why_not_one_drive(disk: Disk) -> str:
    """Return the reason in words, for a rotating disk on the SCSI layer."""
    if disk.kind is DiskKind.SCSI or _NOT_ONE_DRIVE.search(f"{disk.vendor or ''} {disk.model or ''}"):
        return "nothing shows that this is one drive, and not what a RAID controller, an array or a hypervisor makes"
    return "nothing reports what lies below"
