"""A disk with everything that was seen of it, and the machine as a whole."""

from dataclasses import dataclass
from enum import StrEnum

from aligntool.inventory.drives import ArrayFacts, AtaFacts, Health, NvmeFacts
from aligntool.inventory.geometry import DiskKind, IoLimits
from aligntool.inventory.layers import Layer
from aligntool.inventory.links import Adapter, LinkHop, Uplink
from aligntool.inventory.system import System
from aligntool.inventory.tables import Partition, Table, TableCopy
from aligntool.units import Extent


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
    drive_port: str | None = (
        None  # "ata", "sas", "spi": the bus addresses one drive; None: what else a host makes
    )
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
    disks: tuple[Disk, ...]
    uplinks: tuple[Uplink, ...] = ()
    adapters: tuple[Adapter, ...] = ()
    unseen: tuple[Unseen, ...] = ()  # about the machine as a whole
    system: System | None = None  # None: there is no array, or nobody could look
    captured: bool = False  # of another machine: no command that is typed here acts on its disks

    def disk(self, name: str) -> Disk | None:
        return next((disk for disk in self.disks if name in (disk.name, disk.path)), None)
