"""What a machine has: frozen nouns, filled once by `linux` and never changed after.

Every size and offset is in bytes, and every offset inside a disk is counted from that disk's first byte. Strings that
came from a device (models, serials, labels) are kept as they were read; `render` makes them harmless.
"""

from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import StrEnum

from aligntool.system import Manifest, System
from aligntool.system import array_uuid as uuid_words
from aligntool.units import Extent
from aligntool.values import dataclass

# What drives and arrays say of themselves: NVMe, ATA, md.


@dataclass(frozen=True, slots=True)
class LbaFormat:
    """One format of an NVMe namespace: block and metadata sizes in bytes, and how fast the drive calls it."""

    index: int
    data_size: int  # bytes
    metadata_size: int
    relative_performance: int  # 0 best, 1 better, 2 good, 3 degraded (NVMe base specification, LBA Format)


@dataclass(frozen=True, slots=True)
class NvmeFacts:
    """Identify Controller and Identify Namespace, in bytes. None: not read (no root, or only a captured tree).

    The preferred sizes are None as well where the drive does not give them (NSFEAT OPTPERF clear).
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
    hmb_granted: int | None = None  # what the host gave: Get Features 0x0D; 0: off
    hmb_enabled: bool | None = None  # sysfs hmb attribute
    multipath: bool = False
    controllers: tuple[str, ...] = ()  # "nvme0"


@dataclass(frozen=True, slots=True)
class AtaFacts:
    """IDENTIFY DEVICE, by SG_IO. Words 106 and 209 (ACS-3, 7.13.6)."""

    logical_sector_size: int | None = None
    physical_sector_size: int | None = None  # word 106
    alignment_offset: int | None = None  # word 209, in bytes as the kernel counts it
    rotation_rpm: int | None = None  # word 217; 1: not rotating
    queue_depth: int | None = None  # word 75 + 1; 1 without NCQ (word 76)
    hybrid: bool | None = None  # Hybrid Information feature, word 78 bit 9


@dataclass(frozen=True, slots=True)
class Health:
    """What a drive says of its age and its state. None: it does not say.

    NVMe: SMART / Health Information log (base specification); ATA: the Percentage Used Endurance Indicator of the
    device statistics (ACS-3, A.11), else a wear attribute that smartctl knows by name for this model.
    """

    used_percent: int | None = None  # of the endurance that the maker rates it for; may pass 100
    spare_percent: int | None = None  # of the spare blocks, still there
    spare_threshold: int | None = None  # below this the drive warns
    media_errors: int | None = None  # times that it could not give back what was written
    temperature_c: int | None = None
    too_hot: bool = False  # by its own threshold
    passed: bool | None = None  # by its own verdict it does not fail


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """md as the running kernel sees it (Documentation/admin-guide/md.rst), and its name as udev has it. None: it was
    not told.
    """

    level: str
    chunk: int | None
    members: tuple[str, ...]  # kernel names
    member_data_offsets: tuple[tuple[str, int], ...] = ()  # member name -> bytes from the member's start
    metadata: str | None = None
    degraded: int | None = None
    layout: str | None = None  # RAID10: "n2", "f2", "o2" ...; RAID4, 5, 6: "left-symmetric" ...
    devices: int | None = None  # how many members it is made of, the missing ones too
    each: int | None = None  # bytes that every member gives
    uuid: str | None = None  # as mdadm writes it, four words of eight digits
    name: str | None = None  # of the superblock: "host:data", "any:data" or "data"
    links: tuple[str, ...] = ()  # other nodes below /dev: "md/data"
    state: str | None = None  # array_state
    sync_action: str | None = None  # "idle", "resync", "recover", "check", "repair", "reshape", "frozen"
    sync_done: int | None = None  # bytes of each member
    sync_total: int | None = None
    sync_rate: int | None = None  # bytes per second
    policy: str | None = None  # "bitmap", "journal", "ppl", "resync" or "none"
    bitmap: str | None = None  # where it lies: "none", "internal", "external"
    bitmap_chunk: int | None = None  # bytes that one bit stands for
    stripe_cache: int | None = None  # RAID4, 5, 6: pages for each member
    worker_threads: int | None = None  # RAID4, 5, 6: group_thread_cnt


# What is said of a device's grid, and by whom.


class Source(StrEnum):
    """Where a number of geometry comes from; the four are never mixed up, and a user's own word comes before them."""

    GIVEN = "given"  # by the user, on the command line
    REPORTED = "reported"  # by the device, through the kernel or a command to it
    KNOWN = "known"  # the drive database has this model
    MEASURED = "measured"  # timed on this drive
    ASSUMED = "assumed"  # nobody said; the careful guess for this class of device


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
    """What the kernel says of a device's grid, in its own words (Documentation/ABI/stable/sysfs-block).

    None: nobody reports it (an image file; an attribute missing in a captured tree). `optimal_io_size` 0: the device
    does not say. `alignment_offset` -1: a stacked device whose members contradict each other.
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
    discard_max: int | None = None  # queue/discard_max_bytes; 0: discards are not taken


@dataclass(frozen=True, slots=True)
class KnownGeometry:
    """What the drive database says of a model. Sizes in bytes; None: the database does not say.

    `source` is KNOWN for a row of the model itself and ASSUMED for a class default; `citation` is where the row
    comes from.
    """

    source: Source
    row: str  # "WD Caviar Green WD20EARS", "class: 3D NAND SSD"
    citation: str
    confidence: str  # "high", "medium", "low"
    physical_block_size: int | None = None
    page_size: int | None = None
    indirection_unit: int | None = None
    erase_block: int | None = None
    dram: bool | None = None
    hybrid: bool | None = None
    note: str | None = None
    hmb: bool | None = None  # it works from a Host Memory Buffer
    distrust: tuple[str, ...] = ()  # fields of IoLimits in which this model reports something else than its grid
    read_rate: int | None = None  # bytes per second, large requests in order, as its data sheet says
    write_rate: int | None = None
    defect: str | None = None  # of the firmware that the row is for
    fixed_in: str | None = None  # the first firmware without it


# What lies on a partition: file systems, RAID members, encryption, volumes.

LIVE_TOGETHER = frozenset({"iso9660", "hfs", "udf"})  # on bridge and hybrid discs; libblkid accepts any mix of these


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
    data_start: int | None = None  # absolute byte of the first data: md data, LUKS payload, LVM pe_start, FAT cluster 2
    data_unit: int | None = None  # bytes the layer works in from data_start on: block, cluster, LUKS sector, LVM extent
    claims_size: int | None = None  # bytes that the superblock says the layer has; None: it does not say
    stripe_unit: int | None = None  # ext4 stride, XFS sunit, in bytes; 0: the file system has no stripe setting
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


# Where drives hang: PCIe links, shared uplinks, adapters.


class Port(StrEnum):
    """What a hop of the PCIe path is."""

    ENDPOINT = "endpoint"
    SWITCH = "switch"
    CPU_ROOT = "cpu-root-port"
    CHIPSET_ROOT = "chipset-root-port"
    ROOT = "root-port"  # a root port, and nobody can tell whose
    VMD = "vmd"
    BRIDGE = "bridge"


@dataclass(frozen=True, slots=True)
class LinkHop:
    """One PCIe device on the way from a drive up to the root; speeds in bytes per second over all lanes, one
    direction.
    """

    address: str  # 0000:01:00.0
    port: Port
    name: str | None = None  # from pci.ids
    speed_gts: float | None = None  # GT/s a lane, now
    width: int | None = None  # lanes, now
    max_speed_gts: float | None = None
    max_width: int | None = None
    bandwidth: int | None = None
    max_bandwidth: int | None = None
    pci_id: str | None = None  # "8086:a110"
    hidden_uplink: str | None = None  # a link above it that sysfs does not show: "DMI 3.0 x4"
    hidden_bandwidth: int | None = None


@dataclass(frozen=True, slots=True)
class LinkMost:
    """The most that a link can run at: the lower speed of its two ends, and the fewer lanes. None: not reported."""

    speed_gts: float | None
    width: int | None
    bandwidth: int | None  # bytes per second, one direction
    both_ends: bool  # False: the port reports nothing, and this is the drive's own maximum


def most_of(drive: LinkHop, port: LinkHop | None) -> LinkMost:
    """Return what the link between a drive and the port above it can run at. A port never trains a faster speed than
    its own, and lanes that one end lacks stay dark (PCI Express base specification, Link Training).
    """
    ends = [end for end in (drive, port) if end is not None]
    widths = [end.max_width for end in ends if end.max_width]
    speeds = [(end.max_speed_gts, _lane(end)) for end in ends if end.max_speed_gts]
    width = min(widths, default=None)
    speed, lane = min(speeds, key=lambda each: each[0], default=(None, None))
    bandwidth = lane * width if lane and width else None
    return LinkMost(speed, width, bandwidth, len(widths) == len(speeds) == 2)


def runs_below(drive: LinkHop, most: LinkMost) -> bool:
    """Return whether a link runs slower or narrower than it could. What is not reported is not slow."""
    pairs = (drive.speed_gts, most.speed_gts), (drive.width, most.width)
    return any(now and could and now < could for now, could in pairs)


def port_above(path: Sequence[LinkHop]) -> LinkHop | None:
    """Return the upper end of the drive's link; None: unknown. A VMD controller is not an end of a link."""
    return path[1] if len(path) > 1 and path[1].port is not Port.VMD else None


def _lane(hop: LinkHop) -> int | None:
    return hop.max_bandwidth // hop.max_width if hop.max_bandwidth and hop.max_width else None


@dataclass(frozen=True, slots=True)
class Uplink:
    """A link that several drives share."""

    name: str  # "DMI 3.0 x4" or the address of the switch's upstream port
    bandwidth: int | None  # bytes per second, one direction; None: unknown
    source: Source
    members: tuple[str, ...]  # disk names below it


@dataclass(frozen=True, slots=True)
class Adapter:
    """A controller that changes what can be seen of the drives behind it."""

    address: str
    name: str | None
    remapped_nvme: int = 0  # ahci's remapped_nvme: drives hidden by firmware RAID
    vmd: bool = False


# Partition tables, what can be wrong with them, and partitions.


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
    OUTSIDE_USABLE = "outside-usable"  # GPT: before FirstUsableLBA, after LastUsableLBA, or on the table itself
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
    """One thing that is wrong with a partition table, with its numbers."""

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
    """A partition table: its kind, the sectors that it counts in, and what is wrong with it."""

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
    gap_used_to: int | None = None  # byte behind the last one between 1 MiB and the first partition that is not zero


class Role(StrEnum):
    PRIMARY = "primary"
    EXTENDED = "extended"  # the container of MBR logicals: holds no data, needs no alignment
    LOGICAL = "logical"
    NESTED = "nested"  # inside another partition's own label: BSD slices, minix, and the like
    MAP = "map"  # the table's own entry: Apple_partition_map, Sun's whole-disk slice, Apple_Free


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition, or a region that a table describes as one. Extents in bytes from the start of the disk."""

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
    content_hint: str | None = None  # what the udev database or the table says lies here, when nobody could look
    mounted_at: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()  # kernel names of md/dm devices on top
    kernel_alignment_offset: int | None = None  # the partition's own alignment_offset in sysfs: the kernel's verdict
    kernel_discard_alignment: int | None = None
    record_at: int | None = None  # byte of the EBR that names it; logical partitions of an MBR only


# A disk with everything that was seen of it, and the machine as a whole.


class Gap(StrEnum):
    """How much is missing where something could not be looked at."""

    PART = "part"  # the disk is judged without it
    EMPTY = "empty"  # there is no medium, so there is nothing to judge; only who named it is waiting for an answer
    DISK = "disk"  # the disk cannot be judged: not opened, not read, left asleep, size or partitions unknown
    NO_ANSWER = "no-answer"  # the disk cannot be judged: it did not answer in time


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that could not be looked at, and why: never silently left out."""

    what: str  # "partition table", "NVMe Identify"
    why: str  # "needs root"
    hint: str = ""  # the next thing to type
    gap: Gap = Gap.PART


@dataclass(frozen=True, slots=True)
class Sampled:
    """A few places of a drive, or of a partition, that were read for no other reason than to see whether they are
    blank: zeros, or ones throughout.
    """

    places: int
    written: int  # of them: those that hold anything else
    unreadable: int
    digest: str  # SHA-256 of all of them, in hexadecimal


@dataclass(frozen=True, slots=True)
class Disk:
    """A block device or an image file, with all that was read of it. Sizes and offsets in bytes; None: unknown."""

    name: str  # kernel name ("nvme0n1"), or the path of an image file as the user typed it
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
    drive_port: str | None = None  # "ata", "sas", "spi": the bus addresses one drive; None: what else a host makes
    removable: bool = False
    read_only: bool = False
    queue_depth: int | None = None
    numa_node: int | None = None
    erase_size: int | None = None  # MMC/SD: device/erase_size
    preferred_erase_size: int | None = None  # MMC/SD: device/preferred_erase_size, the allocation unit
    allocation_unit: int | None = None  # SD: AU_SIZE of the SD Status, in bytes; 0: the card states none
    table: Table | None = None  # None: none found, or (table_read False) nobody could look
    table_read: bool = False
    partitions: tuple[Partition, ...] = ()
    kernel_partitions: tuple[tuple[int, Extent], ...] = ()  # what the kernel has, from sysfs
    content: tuple[Layer, ...] = ()  # a file system or member on the whole disk
    content_read: bool = False
    content_hint: str | None = None
    # Of a GPT, on a drive without a table or in an md array as a whole.
    gpt_headers: tuple[TableCopy, ...] = ()
    mounted_at: tuple[str, ...] = ()
    slaves: tuple[str, ...] = ()  # kernel names below a stacked device
    stands_on: tuple[str, ...] = ()  # at the bottom: drives by kernel name, itself for one; "file /a.img"
    zoned: str | None = None  # queue/zoned: "none", "host-aware", "host-managed"
    holders: tuple[str, ...] = ()
    array: ArrayFacts | None = None
    mapping: str | None = None  # dm: "lvm vg/lv", "crypt LUKS2 name", "multipath", "raid" ...
    nvme: NvmeFacts | None = None
    ata: AtaFacts | None = None
    failing: str | None = None  # a sentence: the drive says that it fails; None: it does not, or nobody asked
    # Asked for before a plan of an array only: health; what a few places of the drive hold, or of the partition of it
    # that is to be a member; and loop devices and locks on it, each with the command that tells more.
    health: Health | None = None
    sampled: Sampled | None = None
    taken: tuple[tuple[str, str], ...] = ()
    links: tuple[tuple[LinkHop, ...], ...] = ()  # one path a controller, drive first, root last
    unseen: tuple[Unseen, ...] = ()

    @property
    def sector_size(self) -> int:
        """Bytes in the sectors that the user counts in on this disk: those of its table, else the device's own."""
        return self.table.sector_size if self.table else self.limits.logical_block_size or 512


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything that was looked at: disks, links, adapters, the system, and what could not be seen."""

    disks: tuple[Disk, ...]
    uplinks: tuple[Uplink, ...] = ()
    adapters: tuple[Adapter, ...] = ()
    unseen: tuple[Unseen, ...] = ()  # about the machine as a whole
    system: System | None = None  # None: there is no array, or nobody could look
    captured: bool = False  # of another machine: no command that is typed here acts on its disks
    manifest: Manifest = field(default=Manifest(), compare=False)

    def disk(self, name: str) -> Disk | None:
        return next((disk for disk in self.disks if name in (disk.name, disk.path)), None)


def superblocks_on(disk: Disk, number: int | None = None) -> tuple[str, ...]:
    """Return the UUIDs, as mdadm writes them, of md arrays with a superblock on a partition, or anywhere on a disk."""
    found = (array_uuid(layer) for layer in layers_on(disk, number))
    return tuple(dict.fromkeys(each for each in found if each))


def array_uuid(layer: Layer) -> str:
    """Return the UUID of an array as mdadm writes it; "" for another layer."""
    return (uuid_words(layer.uuid) or "") if layer.kind == "linux_raid_member" else ""


def layers_on(disk: Disk, number: int | None) -> Iterator[Layer]:
    """Return what is recognised on a partition, or on a disk and all its partitions, with what lies inside."""
    for part in disk.partitions:
        if number in (None, part.number):
            yield from _with_inner(part.content)
    if number is None:
        yield from _with_inner(disk.content)


def _with_inner(layers: Sequence[Layer]) -> Iterator[Layer]:
    for layer in layers:
        yield from (layer, *_with_inner(layer.inner))
