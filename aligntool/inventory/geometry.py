"""What is said of a device's grid, and by whom."""

from dataclasses import dataclass
from enum import StrEnum


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
    distrust: tuple[
        str, ...
    ] = ()  # fields of IoLimits in which this model reports something else than its grid
    read_rate: int | None = None  # bytes per second, large requests in order, as its data sheet says
    write_rate: int | None = None
