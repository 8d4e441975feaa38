"""All kinds of content: the order in which they are recognised, and by name."""

from aligntool.contents.bcachefs import BCACHEFS
from aligntool.contents.bitlocker import BITLOCKER
from aligntool.contents.btrfs import BTRFS
from aligntool.contents.exfat import EXFAT
from aligntool.contents.ext import ANY, EXT, JOURNAL, TEST
from aligntool.contents.f2fs import F2FS
from aligntool.contents.fat import FAT
from aligntool.contents.firmware_raid import FIRMWARE_RAID
from aligntool.contents.kind import Kind, Unit
from aligntool.contents.ldm import LDM
from aligntool.contents.luks import LUKS, read_luks_second
from aligntool.contents.lvm import LVM
from aligntool.contents.md import MD
from aligntool.contents.ntfs import NTFS
from aligntool.contents.other import LAST_READERS, WITHOUT_SIGNATURES, others
from aligntool.contents.signatures import PARTITION_TABLES
from aligntool.contents.swap import SUSPENDED_SYSTEM, SWAP
from aligntool.contents.xfs import EXTERNAL_LOG, XFS
from aligntool.contents.zfs import ZFS
from aligntool.formats.reader import Reader
from aligntool.inventory import Layer

# The order of recognition, which is libblkid's: `blkid -p` reports the first match.
KINDS = (
    MD,
    *FIRMWARE_RAID,
    *others("bcache"),
    BCACHEFS,
    *others("ceph_bluestore", "drbd", "drbdmanage_control_volume", "drbdproxy_datalog"),
    LVM,
    *others("LVM1_member", "DM_snapshot_cow", "DM_verity_hash", "DM_integrity"),
    LUKS,
    *others("VMFS_volume_member", "ubi", "vdo", "stratis"),
    BITLOCKER,
    *others("cs_fvault2"),
    LDM,
    FAT,
    SUSPENDED_SYSTEM,
    SWAP,
    XFS,
    EXTERNAL_LOG,
    *others("exfs"),
    ANY,
    *EXT,
    JOURNAL,
    TEST,
    *others("reiserfs", "reiser4", "jfs", "udf", "iso9660"),
    ZFS,
    *others("hfsplus", "ufs", "hpfs", "sysv", "xenix"),
    NTFS,
    *others(
        "ReFS",
        "cramfs",
        "romfs",
        "scoutfs",
        "minix",
        "gfs",
        "ocfs",
        "ocfs2",
        "oracleasm",
        "vxfs",
        "squashfs",
        "nss",
    ),
    BTRFS,
    *others("ubifs", "bfs", "VMFS", "befs", "nilfs2"),
    EXFAT,
    F2FS,
    *others("mpool", "apfs", "zonefs", "erofs"),
    *WITHOUT_SIGNATURES,
)

OWNER_READERS = tuple(reader for kind in KINDS if kind.is_owner for reader in kind.readers)
FILE_SYSTEM_READERS = (*(read for kind in KINDS if not kind.is_owner for read in kind.readers), *LAST_READERS)
ON_FLOPPIES = tuple(reader for kind in KINDS if kind.is_on_floppies for reader in kind.readers)
LAST_RESORT = (read_luks_second,)
CONTENT_SIGNATURES = tuple(signature for kind in KINDS for signature in kind.signatures)
SIGNATURES = (*CONTENT_SIGNATURES, *PARTITION_TABLES)

_BY_NAME = {kind.name: kind for kind in KINDS}


def kind_named(name: str) -> Kind:
    """Return the kind with this TYPE of blkid. One that is not known has every careful answer."""
    return _BY_NAME.get(name) or Kind(name)


def smallest_unit(reader: Reader, layer: Layer) -> Unit:
    """Return the unit of a layer that was found on the disk of `reader`. Raises OSError."""
    if layer.problems:
        return Unit(None, f"is damaged ({layer.problems[0]})")
    return kind_named(layer.kind).smallest_unit(reader, layer, smallest_unit)
