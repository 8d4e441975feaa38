"""All kinds of content, by name."""

from aligntool.contents.bitlocker import BITLOCKER
from aligntool.contents.btrfs import BTRFS
from aligntool.contents.exfat import EXFAT
from aligntool.contents.ext import ANY, EXT, JOURNAL, TEST
from aligntool.contents.f2fs import F2FS
from aligntool.contents.fat import FAT
from aligntool.contents.firmware_raid import FIRMWARE_RAID
from aligntool.contents.kind import Kind, Unit
from aligntool.contents.ldm import LDM
from aligntool.contents.luks import LUKS_KIND
from aligntool.contents.lvm import LVM
from aligntool.contents.md import MD
from aligntool.contents.ntfs import NTFS
from aligntool.contents.other import OTHER
from aligntool.contents.swap import SUSPENDED_SYSTEM, SWAP
from aligntool.contents.xfs import EXTERNAL_LOG, XFS
from aligntool.contents.zfs import ZFS
from aligntool.formats.reader import Reader
from aligntool.inventory import Layer

KINDS = (
    MD, *FIRMWARE_RAID, LVM, LUKS_KIND, BITLOCKER, LDM, FAT, SWAP, SUSPENDED_SYSTEM, XFS, EXTERNAL_LOG, *EXT, JOURNAL,
    TEST, ANY, ZFS, NTFS, BTRFS, EXFAT, F2FS, *OTHER,
)  # fmt: skip
_BY_NAME = {kind.name: kind for kind in KINDS}


def kind_named(name: str) -> Kind:
    """Return the kind with this TYPE of blkid. One that is not known has every careful answer."""
    return _BY_NAME.get(name) or Kind(name)


def smallest_unit(reader: Reader, layer: Layer) -> Unit:
    """Return the unit of a layer that was found on the disk of `reader`. Raises OSError."""
    if layer.problems:
        return Unit(None, f"is damaged ({layer.problems[0]})")
    return kind_named(layer.kind).smallest_unit(reader, layer, smallest_unit)
