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
class ArrayFacts:
    """md as the running kernel sees it."""

    level: str
    chunk: int | None
    members: tuple[str, ...]  # kernel names
    member_data_offsets: tuple[tuple[str, int], ...] = ()  # member name -> bytes from the member's start
    metadata: str | None = None
    degraded: int | None = None
