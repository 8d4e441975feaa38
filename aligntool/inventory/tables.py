"""Partition tables, what can be wrong with them, and partitions."""

from dataclasses import dataclass
from enum import StrEnum

from aligntool.inventory.layers import Layer
from aligntool.units import Extent


class Fault(StrEnum):
    """What can be wrong with a partition table; `audit` turns each into a finding."""

    GPT_PRIMARY_DAMAGED = "gpt-primary-damaged"
    GPT_BACKUP_DAMAGED = "gpt-backup-damaged"
    GPT_BACKUP_MISPLACED = "gpt-backup-misplaced"  # not in the disk's last sector
    GPT_COPIES_DIFFER = "gpt-copies-differ"  # both valid, and they disagree
    PROTECTIVE_MBR = "protective-mbr"  # missing, damaged or of the wrong size
    HYBRID_MBR = "hybrid-mbr"
    OTHER_SECTOR_SIZE = "other-sector-size"  # the table was written for sectors of another size
    OVERLAP = "overlap"
    BEYOND_END = "beyond-end"
    OUTSIDE_USABLE = (
        "outside-usable"  # GPT: before FirstUsableLBA, after LastUsableLBA, or on the table itself
    )
    COVERS_TABLE = "covers-table"  # GPT: a partition lies where a copy of the table is or belongs
    EBR_LOOP = "ebr-loop"
    EBR_BROKEN = "ebr-broken"
    EBR_INSIDE_PARTITION = "ebr-inside-partition"
    LOGICAL_OUTSIDE_EXTENDED = "logical-outside-extended"
    IMPLAUSIBLE_COUNT = "implausible-count"
    BAD_ENTRY = "bad-entry"  # ends before it starts, and the like
    DYNAMIC_DISK = "dynamic-disk"  # Windows LDM: the real volumes are in a database, not in this table
    UNREADABLE = "unreadable"  # an I/O error where the table should be


@dataclass(frozen=True, slots=True)
class TableFault:
    fault: Fault
    detail: str  # one sentence with the numbers, for people
    at: int | None = None  # byte on the disk where it was seen
    partitions: tuple[int, ...] = ()  # numbers of the partitions it concerns


class TableCopyState(StrEnum):
    GOOD = "good"
    HEADER_CRC_BAD = "header-crc-bad"
    ENTRIES_CRC_BAD = "entries-crc-bad"
    MALFORMED = "malformed"
    MISSING = "missing"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class TableCopy:
    """One of the two copies of a GPT."""

    name: str  # "primary" or "backup"
    at: int  # byte of its header
    state: TableCopyState


class TableLabel(StrEnum):
    """The names libfdisk and blkid use (blkid's PTTYPE), so that people can look them up."""

    GPT = "gpt"
    DOS = "dos"
    APM = "mac"
    BSD = "bsd"
    SUN = "sun"
    SGI = "sgi"
    ATARI = "atari"
    DASD = "dasd"
    UNKNOWN = "unknown"  # the kernel sees partitions; which table they come from could not be read


@dataclass(frozen=True, slots=True)
class InFlight:
    """A move of partitions that has begun and not ended, as the table marks it."""

    partitions: tuple[int, ...]  # numbers of the parked entries
    journal_at: int | None  # byte on this disk; None: in a file on another disk, or not readable here


@dataclass(frozen=True, slots=True)
class BootCode:
    """A boot program that a boot ROM, firmware or another boot program finds by its place on the disk."""

    kind: str  # "Rockchip boot loader", "GRUB", "LILO", "Ventoy" ...
    at: int  # byte on the disk; of GRUB the sector that its boot sector names
    encrypts: bool = False  # it decrypts what lies on the disk, by sectors counted from the disk's start


@dataclass(frozen=True, slots=True)
class Table:
    label: TableLabel
    sector_size: int  # bytes in the sectors that this table counts in
    disk_id: str | None = None  # GPT disk GUID, or MBR signature as 0x1234abcd
    hybrid: bool = False
    usable: Extent | None = None  # where partitions may lie
    copies: tuple[TableCopy, ...] = ()  # GPT only
    faults: tuple[TableFault, ...] = ()
    in_flight: InFlight | None = None  # None: no entry is parked
    sector_size_assumed: bool = False  # an MBR in an image: it may count in sectors of 4096 bytes as well
    boot_code: tuple[BootCode, ...] = ()
    gap_used_to: int | None = (
        None  # byte behind the last one between 1 MiB and the first partition that is not zero
    )


class Role(StrEnum):
    PRIMARY = "primary"
    EXTENDED = "extended"  # the container of MBR logicals: holds no data, needs no alignment
    LOGICAL = "logical"
    NESTED = "nested"  # inside another partition's own label: BSD slices, minix, and the like
    MAP = "map"  # the table's own entry: Apple_partition_map, Sun's whole-disk slice, Apple_Free


@dataclass(frozen=True, slots=True)
class Partition:
    number: int
    extent: Extent
    role: Role = Role.PRIMARY
    type_code: str = ""  # "0x83" for MBR, upper-case GUID for GPT, the type's own word elsewhere
    type_name: str = ""  # "Linux filesystem", "EFI System" ...
    name: str | None = None  # GPT partition name
    uuid: str | None = None  # PARTUUID
    flags: tuple[str, ...] = ()
    node: str | None = None  # kernel name, "sda1"
    content: tuple[Layer, ...] = ()  # more than one: ambiguous, and that is said
    content_read: bool = False  # False: nobody could look, so an empty `content` means nothing
    content_hint: str | None = (
        None  # what the udev database or the table says lies here, when nobody could look
    )
    mounted_at: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()  # kernel names of md/dm devices on top
    kernel_alignment_offset: int | None = (
        None  # the partition's own alignment_offset in sysfs: the kernel's verdict
    )
    kernel_discard_alignment: int | None = None
    record_at: int | None = None  # byte of the EBR that names it; logical partitions of an MBR only
