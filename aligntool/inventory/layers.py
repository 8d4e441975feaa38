"""What lies on a partition: file systems, RAID members, encryption, volumes."""

from dataclasses import dataclass

from aligntool.units import Extent

LIVE_TOGETHER = frozenset(
    {"iso9660", "hfs", "udf"}
)  # on bridge and hybrid discs; libblkid accepts any mix of these


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of a logical volume on this device."""

    volume: str  # "vg/lv"
    volume_offset: int  # bytes from the volume's start
    extent: Extent  # absolute bytes on the device
    stripe_size: int | None = None  # for a striped segment: bytes a stripe


@dataclass(frozen=True, slots=True)
class Layer:
    """What was recognised on a partition, a disk, or inside another layer, by its own superblock.

    `kind` is blkid's TYPE: ext4, xfs, btrfs, ntfs, vfat, exfat, f2fs, swap, crypto_LUKS, LVM2_member,
    linux_raid_member, bcache, zfs_member, BitLocker, isw_raid_member ...
    """

    kind: str
    extent: Extent  # absolute bytes; as long as the superblock claims, else as its container
    version: str | None = None  # "FAT32", "1.2", "LUKS2"
    label: str | None = None
    uuid: str | None = None
    data_start: int | None = (
        None  # absolute byte of the first data: md data, LUKS payload, LVM pe_start, FAT cluster 2
    )
    data_unit: int | None = (
        None  # bytes the layer works in from data_start on: block, cluster, LUKS sector, LVM extent
    )
    claims_size: int | None = None  # bytes that the superblock says the layer has; None: it does not say
    stripe_unit: int | None = (
        None  # ext4 stride, XFS sunit, in bytes; 0: the file system has no stripe setting
    )
    stripe_width: int | None = None  # ext4 stripe_width, XFS swidth, in bytes
    raid_level: str | None = None  # md: "raid0", "raid1" ...
    raid_chunk: int | None = None  # md chunk in bytes
    raid_members: int | None = None
    segments: tuple[Segment, ...] = ()
    inner: tuple["Layer", ...] = ()  # what could be read through this layer
    problems: tuple[str, ...] = ()  # sentences: what is inconsistent in the superblock
    unclean: str | None = None  # a sentence: why it must not be touched now; None: nothing says so
    hidden_sectors: int | None = None  # sectors before the volume, says its boot sector: NTFS, FAT, exFAT
    backup_boot: int | None = None  # bytes from the volume's start to the copy of its boot sector


def missing_bytes(kind: str, claimed: int, room: int) -> str:
    """Return the problem of a layer that claims more bytes than its container has, in words."""
    return f"{kind} claims {claimed} bytes, its container has {room}: {claimed - room} are missing"
