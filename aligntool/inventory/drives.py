"""What drives and arrays say of themselves: NVMe, ATA, md."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LbaFormat:
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
