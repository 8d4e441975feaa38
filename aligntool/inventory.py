"""The inventory of a machine as frozen values, which `linux` fills once: disks, partitions, layers, links.

Every size and offset is in bytes, and every offset on a disk is counted from the start of the disk. Strings
that came from a device (models, serials, labels) are kept as they were read; `render` makes them harmless.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from aligntool.documents import OMITTED
from aligntool.system import Manifest, System
from aligntool.system import array_uuid as uuid_words
from aligntool.units import MIB, Extent

# Facts that drives and arrays report: NVMe, ATA, md.


@dataclass(frozen=True, slots=True)
class LbaFormat:
    """An LBA format of an NVMe namespace: data and metadata sizes in bytes, and its rated performance."""

    index: int
    data_size: int  # bytes
    metadata_size: int
    relative_performance: int  # 0 best, 1 better, 2 good, 3 degraded (NVMe base specification, LBA Format)


@dataclass(frozen=True, slots=True)
class NvmeFacts:
    """Fields of Identify Controller and Identify Namespace, in bytes. None: not read (no root, or a captured
    tree).

    The preferred sizes are also None if the drive does not report them (NSFEAT OPTPERF clear).
    """

    formats: tuple[LbaFormat, ...] = ()
    format_in_use: int | None = None  # index into formats
    preferred_write_granularity: int | None = None  # NPWG
    preferred_write_alignment: int | None = None  # NPWA
    preferred_deallocate_granularity: int | None = None  # NPDG
    preferred_deallocate_alignment: int | None = None  # NPDA
    optimal_write_size: int | None = None  # NOWS
    optimal_io_boundary: int | None = None  # NOIOB
    atomic_write_unit: int | None = None  # AWUN, or NAWUN where valid
    atomic_write_unit_power_fail: int | None = None  # AWUPF, or NAWUPF where valid
    max_transfer: int | None = None  # MDTS, in bytes; 0: no limit
    hmb_preferred: int | None = None  # HMPRE
    hmb_minimum: int | None = None  # HMMIN
    hmb_granted: int | None = None  # granted by the host: Get Features 0x0D; 0: off
    hmb_enabled: bool | None = None  # sysfs hmb attribute
    multipath: bool = False
    controllers: tuple[str, ...] = ()  # "nvme0"


@dataclass(frozen=True, slots=True)
class AtaFacts:
    """Fields of IDENTIFY DEVICE, read by SG_IO. Words 106 and 209: ACS-3, 7.13.6."""

    logical_sector_size: int | None = None
    physical_sector_size: int | None = None  # word 106
    alignment_offset: int | None = None  # word 209, in bytes, counted as by the kernel
    rotation_rpm: int | None = None  # word 217; 1: not rotating
    queue_depth: int | None = None  # word 75 + 1; 1 without NCQ (word 76)
    hybrid: bool | None = None  # Hybrid Information feature, word 78 bit 9


@dataclass(frozen=True, slots=True)
class Health:
    """The age and state that a drive reports. None: not reported.

    NVMe: SMART / Health Information log (base specification); ATA: the Percentage Used Endurance Indicator of
    the device statistics (ACS-3, A.11), or a wear attribute that smartctl knows by name for this model.
    """

    used_percent: int | None = None  # of the endurance rated by the maker; may exceed 100
    spare_percent: int | None = None  # of the spare blocks, still available
    spare_threshold: int | None = None  # below this the drive warns
    media_errors: int | None = None  # number of unrecovered data integrity errors
    temperature_c: int | None = None
    too_hot: bool = False  # above the drive's own threshold
    passed: bool | None = None  # the drive's own health assessment


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """State of an md array in sysfs (Documentation/admin-guide/md.rst), and its name from udev. None: not
    reported.
    """

    level: str
    chunk: int | None
    members: tuple[str, ...]  # kernel names
    member_data_offsets: tuple[tuple[str, int], ...] = ()  # member name -> bytes from the member's start
    metadata: str | None = None
    degraded: int | None = None
    layout: str | None = None  # RAID10: "n2", "f2", "o2" ...; RAID4, 5, 6: "left-symmetric" ...
    devices: int | None = None  # number of members, including missing ones
    each: int | None = None  # bytes that the array uses of every member
    uuid: str | None = None  # as written by mdadm, four words of eight digits
    name: str | None = None  # in the superblock: "host:data", "any:data" or "data"
    links: tuple[str, ...] = ()  # other nodes below /dev: "md/data"
    state: str | None = None  # array_state
    sync_action: str | None = None  # "idle", "resync", "recover", "check", "repair", "reshape", "frozen"
    sync_done: int | None = None  # bytes of each member
    sync_total: int | None = None
    sync_rate: int | None = None  # bytes per second
    policy: str | None = None  # "bitmap", "journal", "ppl", "resync" or "none"
    bitmap: str | None = None  # its place: "none", "internal", "external"
    bitmap_chunk: int | None = None  # bytes covered by one bit
    stripe_cache: int | None = None  # RAID4, 5, 6: pages for each member
    worker_threads: int | None = None  # RAID4, 5, 6: group_thread_cnt
    spares: tuple[str, ...] = ()  # members without data: spares, journals, faulty ones
    # in its superblocks; 0: not stored; None: a kernel before Linux 6.19
    stored_block_size: int | None = None
    # member name -> "in_sync", "faulty", "in_sync,write_mostly" ...
    member_states: tuple[tuple[str, str], ...] = ()
    # those of ARRAY_SETTINGS and MEMBER_SETTINGS that can be read; values of members that differ, with commas
    settings: tuple[tuple[str, str], ...] = field(default=(), metadata={OMITTED: True})
    # the text of the udev rule that keeps settings; None: there is none
    rule: str | None = field(default=None, metadata={OMITTED: True})


ARRAY_SETTINGS = ("md/group_thread_cnt", "md/stripe_cache_size", "queue/read_ahead_kb")
"""Attributes below the folder of an array in sysfs."""
MEMBER_SETTINGS = ("queue/scheduler", "queue/nr_requests")
"""Attributes below those of its drives."""


def rule_path(uuid: str) -> str:
    """Return the path of the udev rule that keeps the settings of an array."""
    return f"/etc/udev/rules.d/65-aligntool-{uuid.replace(':', '')}.rules"


# The geometry of a device, and its sources.


class Source(StrEnum):
    """The source of a number of the geometry. Sources are never mixed; a number from the user overrides the
    others.
    """

    GIVEN = "given"  # by the user, on the command line
    REPORTED = "reported"  # by the device, through the kernel or a command to it
    KNOWN = "known"  # the drive database has this model
    MEASURED = "measured"  # timed on this drive
    ASSUMED = "assumed"  # not known; a safe assumption for this class of device


class DiskKind(StrEnum):
    NVME = "nvme"
    ATA = "ata"
    SCSI = "scsi"  # SAS, FC, iSCSI, hardware RAID: anything on the SCSI layer that is neither ATA nor USB
    USB = "usb"
    UFS = "ufs"
    SD = "sd"
    EMMC = "emmc"
    VIRTIO = "virtio"  # and the other paravirtual disks: Xen, Hyper-V, VMware
    LOOP = "loop"
    MD = "md"
    DM = "dm"
    BCACHE = "bcache"
    DASD = "dasd"
    NETWORK = "network"  # nbd, rbd, drbd
    MEMORY = "memory"  # brd, pmem, null_blk
    IMAGE = "image"  # a file
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class IoLimits:
    """The queue limits of a device, with the kernel's names (Documentation/ABI/stable/sysfs-block).

    None: not reported (an image file; an attribute missing in a captured tree). `optimal_io_size` 0: the
    device does not report one. `alignment_offset` -1: a stacked device whose members contradict each other.
    """

    logical_block_size: int | None = None
    physical_block_size: int | None = None
    minimum_io_size: int | None = None
    optimal_io_size: int | None = None
    alignment_offset: int | None = None
    discard_granularity: int | None = None
    discard_alignment: int | None = None
    chunk_size: int | None = None  # queue/chunk_sectors in bytes: NVMe NOIOB, md chunk, zone size
    max_transfer: int | None = None  # queue/max_hw_sectors_kb in bytes
    discard_max: int | None = None  # queue/discard_max_bytes; 0: discards are not supported


@dataclass(frozen=True, slots=True)
class KnownGeometry:
    """The facts of a row of the drive database. Sizes in bytes; None: not in the database."""

    source: Source  # KNOWN for a row of the model itself, ASSUMED for a class default
    row: str  # "WD Caviar Green WD20EARS", "class: 3D NAND SSD"
    citation: str  # the source of the row
    confidence: str  # "high", "medium", "low"
    physical_block_size: int | None = None
    page_size: int | None = None
    indirection_unit: int | None = None
    erase_block: int | None = None
    dram: bool | None = None
    hybrid: bool | None = None
    note: str | None = None
    hmb: bool | None = None  # it uses a Host Memory Buffer
    distrust: tuple[str, ...] = ()  # fields of IoLimits in which this model does not report its grid
    read_rate: int | None = None  # bytes per second of large sequential requests, from the data sheet
    write_rate: int | None = None
    defect: str | None = None  # a known defect of the firmware of this row
    fixed_in: str | None = None  # the first firmware without it


# Layers on a partition: file systems, RAID members, encryption, volumes.


@dataclass(frozen=True, slots=True)
class Segment:
    """A contiguous part of a logical volume on this device."""

    volume: str  # "vg/lv"
    volume_offset: int  # bytes from the volume's start
    extent: Extent  # absolute bytes on the device
    stripe_size: int | None = None  # of a striped segment: bytes per stripe


@dataclass(frozen=True, slots=True)
class Layer:
    """Content recognised by its superblock on a partition, on a disk, or inside another layer.

    `kind` is blkid's TYPE: ext4, xfs, btrfs, ntfs, vfat, swap, crypto_LUKS, LVM2_member, linux_raid_member
    ...
    """

    kind: str
    extent: Extent  # on the disk; as long as the superblock claims, otherwise as the container
    version: str | None = None  # "FAT32", "1.2", "LUKS2"
    label: str | None = None
    uuid: str | None = None
    # byte of the disk from which its units are counted: start of a file system with blocks, md data, LUKS
    # payload, LVM pe_start, FAT cluster 2
    data_start: int | None = None
    # bytes of its unit from data_start on: block, cluster, LUKS sector, LVM extent
    data_unit: int | None = None
    claims_size: int | None = None  # bytes of the layer according to its superblock; None: not stated
    # ext4 stride, XFS sunit, in bytes; 0: the file system has no stripe setting
    stripe_unit: int | None = None
    stripe_width: int | None = None  # ext4 stripe_width, XFS swidth, in bytes
    raid_level: str | None = None  # md: "raid0", "raid1" ...
    raid_chunk: int | None = None  # md chunk in bytes
    raid_members: int | None = None
    segments: tuple[Segment, ...] = ()
    inner: tuple["Layer", ...] = ()  # layers that could be read inside this layer
    problems: tuple[str, ...] = ()  # inconsistencies in the superblock, a sentence each
    unclean: str | None = None  # a sentence: why it must not be changed now; None: no known reason
    # sectors before the volume, from its boot sector: NTFS, FAT, exFAT, BFS
    hidden_sectors: int | None = None
    backup_boot: int | None = None  # offset in the volume of the copy of its boot sector
    # as `hidden_sectors`, in that copy; None: it is not a boot sector
    backup_hidden_sectors: int | None = None
    has_tags: bool = False  # LUKS2 with dm-integrity, which states how many sectors there are
    # md: the count of events when a bit of the bitmap was last cleared, 0: never; None: no bitmap was read
    raid_cleared: int | None = None


def missing_bytes(kind: str, claimed: int, room: int) -> str:
    """Return the problem of a layer that claims more bytes than its container has, as text."""
    return f"{kind} claims {claimed} bytes, but its container has {room}: {claimed - room} are missing"


# Connections of drives: PCIe links, shared uplinks, adapters.


class Port(StrEnum):
    """The kind of a device on a PCIe path."""

    ENDPOINT = "endpoint"
    SWITCH = "switch"
    CPU_ROOT = "cpu-root-port"
    CHIPSET_ROOT = "chipset-root-port"
    ROOT = "root-port"  # a root port of the processor or the chipset, unknown which
    VMD = "vmd"
    BRIDGE = "bridge"


@dataclass(frozen=True, slots=True)
class LinkHop:
    """A PCIe device on the path from a drive to the root. Bandwidths: bytes per second of all lanes, one
    direction.
    """

    address: str  # 0000:01:00.0
    port: Port
    name: str | None = None  # from pci.ids
    speed_gts: float | None = None  # GT/s per lane, current
    width: int | None = None  # lanes, current
    max_speed_gts: float | None = None
    max_width: int | None = None
    bandwidth: int | None = None
    max_bandwidth: int | None = None
    pci_id: str | None = None  # "8086:a110"
    hidden_uplink: str | None = None  # a link above it that is not in sysfs: "DMI 3.0 x4"
    hidden_bandwidth: int | None = None


@dataclass(frozen=True, slots=True)
class LinkMaximum:
    """The maximum of a link: the lower speed and the smaller width of its two ends. None: not reported."""

    speed_gts: float | None
    width: int | None
    bandwidth: int | None  # bytes per second, one direction
    both_ends: bool  # False: the port reports nothing; this is the maximum of the drive


def link_maximum(drive: LinkHop, port: LinkHop | None) -> LinkMaximum:
    """Return the maximum of the link between a drive and the port above it. A link trains at the highest
    speed and width that both ends support (PCI Express base specification, Link Training).
    """
    ends = [end for end in (drive, port) if end is not None]
    widths = [end.max_width for end in ends if end.max_width]
    speeds = [(end.max_speed_gts, _lane(end)) for end in ends if end.max_speed_gts]
    width = min(widths, default=None)
    speed, lane = min(speeds, key=lambda pair: pair[0], default=(None, None))
    bandwidth = lane * width if lane and width else None
    return LinkMaximum(speed, width, bandwidth, len(widths) == len(speeds) == 2)


def runs_below(drive: LinkHop, most: LinkMaximum) -> bool:
    """Return whether a link runs slower or narrower than its maximum. A value that is not reported does not
    count.
    """
    pairs = (drive.speed_gts, most.speed_gts), (drive.width, most.width)
    return any(now and could and now < could for now, could in pairs)


def port_above(path: Sequence[LinkHop]) -> LinkHop | None:
    """Return the upper end of the drive's link, or None if unknown. A VMD controller is not an end of a
    link.
    """
    return path[1] if len(path) > 1 and path[1].port is not Port.VMD else None


def _lane(hop: LinkHop) -> int | None:
    return hop.max_bandwidth // hop.max_width if hop.max_bandwidth and hop.max_width else None


@dataclass(frozen=True, slots=True)
class Uplink:
    """A link that several drives share."""

    name: str  # "DMI 3.0 x4" or the address of the switch's upstream port
    bandwidth: int | None  # bytes per second, one direction; None: unknown
    source: Source
    members: tuple[str, ...]  # names of the disks below it


@dataclass(frozen=True, slots=True)
class Adapter:
    """A controller that hides or moves the drives behind it."""

    address: str
    name: str | None
    remapped_nvme: int = 0  # ahci's remapped_nvme: drives hidden by firmware RAID
    vmd: bool = False


# Partition tables, their faults, and partitions.


LAST_NUMBER = 255
"""The last number of a partition that Linux shows: DISK_MAX_PARTS is 256, and number 0 is the disk. A GPT may
have more entries.
"""


class Fault(StrEnum):
    """A kind of fault of a partition table. `audit` turns each fault into a finding."""

    GPT_PRIMARY_DAMAGED = "gpt-primary-damaged"
    GPT_BACKUP_DAMAGED = "gpt-backup-damaged"
    GPT_BACKUP_MISPLACED = "gpt-backup-misplaced"  # not in the disk's last sector
    GPT_COPIES_DIFFER = "gpt-copies-differ"  # both valid but different
    PROTECTIVE_MBR = "protective-mbr"  # missing, damaged or of the wrong size
    HYBRID_MBR = "hybrid-mbr"
    OTHER_SECTOR_SIZE = "other-sector-size"  # the table was written for sectors of another size
    OVERLAP = "overlap"
    BEYOND_END = "beyond-end"
    # GPT: before FirstUsableLBA, after LastUsableLBA, or on the table itself
    OUTSIDE_USABLE = "outside-usable"
    COVERS_TABLE = "covers-table"  # GPT: a partition is where a copy of the table is or belongs
    EBR_LOOP = "ebr-loop"
    EBR_BROKEN = "ebr-broken"
    EBR_INSIDE_PARTITION = "ebr-inside-partition"
    LOGICAL_OUTSIDE_EXTENDED = "logical-outside-extended"
    IMPLAUSIBLE_COUNT = "implausible-count"
    BAD_ENTRY = "bad-entry"  # for example, the end is before the start
    DYNAMIC_DISK = "dynamic-disk"  # Windows LDM: the real volumes are in a database, not in this table
    UNREADABLE = "unreadable"  # an I/O error where the table should be


@dataclass(frozen=True, slots=True)
class TableFault:
    """A fault of a partition table, with its numbers."""

    fault: Fault
    detail: str  # one sentence with the numbers
    at: int | None = None  # offset on the disk
    partitions: tuple[int, ...] = ()  # numbers of the partitions it concerns
    hides: bool = False  # because of it Linux reads no entry of the table, or wrong ones; not in the JSON


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
    at: int  # offset of its header
    state: TableCopyState


class TableLabel(StrEnum):
    """The type of a partition table, by the names of libfdisk and blkid (PTTYPE), so that users can look them
    up.
    """

    GPT = "gpt"
    DOS = "dos"
    APM = "mac"
    BSD = "bsd"
    SUN = "sun"
    SGI = "sgi"
    ATARI = "atari"
    DASD = "dasd"
    UNKNOWN = "unknown"  # the kernel has partitions, but their table could not be read


@dataclass(frozen=True, slots=True)
class InFlight:
    """A move of partitions that has begun and not ended, as marked in the table."""

    partitions: tuple[int, ...]  # numbers of the parked entries
    journal_at: int | None  # offset on this disk; None: a file on another disk, or not readable here


@dataclass(frozen=True, slots=True)
class BootCode:
    """A boot program that a boot ROM, firmware or another boot program finds by its offset on the disk."""

    kind: str  # "Rockchip boot loader", "GRUB", "LILO", "Ventoy" ...
    at: int  # offset on the disk; of GRUB from its boot sector
    encrypts: bool = False  # it decrypts the disk, by sector numbers counted from the start of the disk
    # its boot sector is the first one of this partition; None: it is that of the disk
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A partition table: its type, the sector size that it counts in, and its faults."""

    label: TableLabel
    sector_size: int  # bytes of the sectors that this table counts in
    disk_id: str | None = None  # GPT disk GUID, or MBR signature as 0x1234abcd
    hybrid: bool = False
    usable: Extent | None = None  # where partitions may lie
    copies: tuple[TableCopy, ...] = ()  # GPT only
    faults: tuple[TableFault, ...] = ()
    in_flight: InFlight | None = None  # None: no entry is parked
    sector_size_assumed: bool = False  # an MBR in an image: it may count in sectors of 4096 bytes as well
    boot_code: tuple[BootCode, ...] = ()
    gap_used_to: int | None = None  # end of the nonzero bytes between 1 MiB and the first partition
    empty_records: tuple[int, ...] = ()  # offsets of the EBRs that list no partition


class Role(StrEnum):
    PRIMARY = "primary"
    EXTENDED = "extended"  # the container of MBR logicals: holds no data, needs no alignment
    LOGICAL = "logical"
    NESTED = "nested"  # in a table inside another partition: BSD slices, minix ...
    MAP = "map"  # the table's own entry: Apple_partition_map, Sun's whole-disk slice, Apple_Free


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, or a region that a table describes as one. Extents in bytes from the start of the disk."""

    number: int
    extent: Extent
    role: Role = Role.PRIMARY
    type_code: str = ""  # "0x83" for MBR, upper-case GUID for GPT, the name of the type elsewhere
    type_name: str = ""  # "Linux filesystem", "EFI System" ...
    name: str | None = None  # GPT partition name
    uuid: str | None = None  # PARTUUID
    flags: tuple[str, ...] = ()
    node: str | None = None  # kernel name, "sda1"
    content: tuple[Layer, ...] = ()  # more than one: ambiguous, which is reported
    content_read: bool = False  # False: not readable, so an empty `content` does not mean that it is empty
    content_hint: str | None = None  # the content according to udev or the table, if not readable
    mounted_at: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()  # kernel names of md/dm devices on top
    # alignment_offset of the partition in sysfs: the kernel's verdict
    kernel_alignment_offset: int | None = None
    kernel_discard_alignment: int | None = None
    record_at: int | None = None  # offset of its EBR; logical partitions of an MBR only


# A disk with all that was read of it, and the machine.


class Gap(StrEnum):
    """What is missing because something could not be read."""

    PART = "part"  # the disk is judged without it
    EMPTY = "empty"  # no medium, so nothing to judge; DISK instead if the user named the disk
    DISK = "disk"  # the disk cannot be judged: not opened, not read, left asleep, size or partitions unknown
    NO_ANSWER = "no-answer"  # the disk cannot be judged: it did not answer in time


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that could not be read, and why. It is always reported."""

    what: str  # "partition table", "NVMe Identify"
    why: str  # "needs root"
    hint: str = ""  # the next command to type
    gap: Gap = Gap.PART

    @property
    def is_named(self) -> bool:
        """Whether the reason begins with the name."""
        return self.why.startswith((f"{self.what}: ", f"{self.what} "))

    @property
    def text(self) -> str:
        """The name and the reason; the name is not said twice."""
        return self.why if self.is_named else f"{self.what}: {self.why}"


DENSE = 16 * MIB  # no area of this length is missed by a sample that counts as proof


@dataclass(frozen=True, slots=True)
class Sampled:
    """Samples of a drive or partition, read to determine whether it is blank: all zeros, or all ones."""

    places: int
    written: int  # places with other bytes
    unreadable: int
    digest: str  # SHA-256 of all places that are not blank, in hexadecimal
    spacing: int | None = None  # from one place to the next; None: everything was read
    whole: int = 0  # bytes that a plan overwrites: if it is not 0, all of them are among the places

    @property
    def is_sparse(self) -> bool:
        """Return whether so much was not read that blank places say little about the rest."""
        return self.spacing is not None and self.spacing > DENSE


@dataclass(frozen=True, slots=True)
class Disk:
    """A block device or an image file, with all that was read of it. Sizes and offsets in bytes; None:
    unknown.
    """

    name: str  # kernel name ("nvme0n1"), or the path of an image file as typed
    path: str  # "/dev/nvme0n1" or the image file
    kind: DiskKind
    size: int | None  # bytes; None: not known
    limits: IoLimits
    limits_given: tuple[str, ...] = ()  # names of the fields of `limits` that the user set
    model: str | None = None
    vendor: str | None = None
    serial: str | None = None
    firmware: str | None = None
    wwn: str | None = None  # EUI-64, NGUID, WWN
    rotational: bool | None = None
    rotation_rpm: int | None = None  # as the drive reports it: SCSI VPD page B1h, udev; 0: it reports none
    drive_port: str | None = None  # "ata", "sas", "spi": a bus that addresses one drive; None: any other host
    removable: bool = False
    read_only: bool = False
    queue_depth: int | None = None
    numa_node: int | None = None
    erase_size: int | None = None  # MMC/SD: device/erase_size
    preferred_erase_size: int | None = None  # MMC/SD: device/preferred_erase_size, the allocation unit
    allocation_unit: int | None = None  # SD: AU_SIZE of the SD Status, in bytes; 0: the card states none
    table: Table | None = None  # None: none found, or not readable (table_read False)
    table_read: bool = False
    partitions: tuple[Partition, ...] = ()
    kernel_partitions: tuple[tuple[int, Extent], ...] = ()  # the kernel's partitions, from sysfs
    content: tuple[Layer, ...] = ()  # a file system or member on the whole disk
    content_read: bool = False
    content_hint: str | None = None
    # Leftover headers of a GPT, on a drive without a table or on a whole-drive member of an md array.
    gpt_headers: tuple[TableCopy, ...] = ()
    mounted_at: tuple[str, ...] = ()
    slaves: tuple[str, ...] = ()  # kernel names below a stacked device
    stands_on: tuple[str, ...] = ()  # at the bottom: drives by kernel name, for a drive itself; "file /a.img"
    zoned: str | None = None  # queue/zoned: "none", "host-aware", "host-managed"
    holders: tuple[str, ...] = ()
    array: ArrayFacts | None = None
    mapping: str | None = None  # dm: "lvm vg/lv", "crypt LUKS2 name", "multipath", "raid" ...
    nvme: NvmeFacts | None = None
    ata: AtaFacts | None = None
    # a sentence: the drive reports that it fails; None: it does not, or was not queried
    failing: str | None = None
    # Read only before a plan of an array: health; samples of the drive, or of its partition that becomes a
    # member; and loop devices and locks on it, each with the command that shows details.
    health: Health | None = None
    sampled: Sampled | None = None
    taken: tuple[tuple[str, str], ...] = ()
    links: tuple[tuple[LinkHop, ...], ...] = ()  # one path per controller, drive first, root last
    unseen: tuple[Unseen, ...] = ()
    # Of a virtual disk: the command that makes a raw image. Only aligntool sees the disk inside the
    # container.
    raw_copy: str = field(default="", compare=False)

    @property
    def sector_size(self) -> int:
        """Return the bytes of a sector as the user counts them on this disk: of its table, or else of the
        device.
        """
        return self.table.sector_size if self.table else self.limits.logical_block_size or 512


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything that was read: disks, links, adapters, config files of the system, and what could not be
    read.
    """

    disks: tuple[Disk, ...]
    uplinks: tuple[Uplink, ...] = ()
    adapters: tuple[Adapter, ...] = ()
    unseen: tuple[Unseen, ...] = ()  # of the machine as a whole
    system: System | None = None  # None: there is no array, and none is named; or not readable
    captured: bool = False  # from another machine: commands typed here do not act on its disks
    manifest: Manifest = field(default=Manifest(), compare=False)
    sysroot: str = field(default="", compare=False)  # the name of the captured machine's file or folder
    is_whole: bool = field(default=False, compare=False)  # every disk of the machine was looked at
    below: tuple[Disk, ...] = ()  # what the named disks stand on: judged with them, and not reported

    def disk(self, name: str) -> Disk | None:
        return next((disk for disk in self.disks if name in (disk.name, disk.path)), None)


def of_system(inventory: Inventory, system: System) -> Inventory:
    """Return the inventory with the files of this system. If it is an installed one, what is mounted below
    its folder has the place that it has there, and all other mounts are not its own.
    """
    installed = system.installed
    if installed is None:
        return replace(inventory, system=system)

    def places(found: tuple[str, ...]) -> tuple[str, ...]:
        inside = (place.removeprefix(installed.root) or "/" for place in found if is_below(place))
        return (*inside, *(place for place in found if not place.startswith("/")))

    def is_below(place: str) -> bool:
        return place == installed.root or place.startswith(f"{installed.root}/")

    def moved(disk: Disk) -> Disk:
        parts = tuple(replace(part, mounted_at=places(part.mounted_at)) for part in disk.partitions)
        return replace(disk, mounted_at=places(disk.mounted_at), partitions=parts)

    return replace(inventory, system=system, disks=tuple(map(moved, inventory.disks)))


def superblocks_on(disk: Disk, number: int | None = None) -> tuple[str, ...]:
    """Return the UUIDs, as written by mdadm, of the md superblocks on a partition, or anywhere on a disk."""
    return tuple(dict.fromkeys(filter(None, map(array_uuid, layers_on(disk, number)))))


def array_uuid(layer: Layer) -> str:
    """Return the UUID of an array as written by mdadm, or "" for another kind of layer."""
    return (uuid_words(layer.uuid) or "") if layer.kind == "linux_raid_member" else ""


def layers_on(disk: Disk, number: int | None) -> Iterator[Layer]:
    """Yield the layers on a partition, or on a disk and all its partitions, each followed by its inner
    layers.
    """
    for part in disk.partitions:
        if number in (None, part.number):
            yield from with_inner(part.content)
    if number is None:
        yield from with_inner(disk.content)


def with_inner(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Yield the layers, each followed by its inner layers."""
    for layer in layers:
        yield from (layer, *with_inner(layer.inner))
