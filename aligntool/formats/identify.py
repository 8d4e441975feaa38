"""NVMe Identify, ATA IDENTIFY DEVICE and SD Status: bytes to facts."""

import struct
from dataclasses import dataclass

from aligntool.inventory import AtaFacts, LbaFormat, NvmeFacts
from aligntool.units import KIB, MIB

# What an ATA drive says of itself: IDENTIFY DEVICE, decoded.

IDENTIFY_LENGTH = 512
VPD_IDENTIFY_AT = 60  # ATA Information VPD page (SAT-3, 12.4.2)
ATA_COMMAND_AT = 56
IDENTIFY_DEVICE = 0xEC


@dataclass(frozen=True, slots=True)
class AtaNames:
    """The names of an ATA drive."""

    model: str | None
    serial: str | None
    firmware: str | None


def identify_in_vpd(page: bytes | None) -> bytes | None:
    """Return the IDENTIFY data in VPD page 89h; None for a packet device (an optical drive) and for anything else."""
    if page is None or len(page) < VPD_IDENTIFY_AT + IDENTIFY_LENGTH or page[1] != 0x89:
        return None
    if page[ATA_COMMAND_AT] != IDENTIFY_DEVICE:
        return None
    return page[VPD_IDENTIFY_AT : VPD_IDENTIFY_AT + IDENTIFY_LENGTH]


def decode_identify(data: bytes) -> AtaFacts | None:
    """Return the facts; None when these are not IDENTIFY data of an ATA disk (word 0 bit 15 set, empty, too short)."""
    if len(data) < IDENTIFY_LENGTH or not data[:IDENTIFY_LENGTH].strip(b"\0") or _word(data, 0) & 0x8000:
        return None
    logical, physical = _sector_sizes(data)
    rotation = _word(data, 217)
    return AtaFacts(
        logical_sector_size=logical,
        physical_sector_size=physical,
        alignment_offset=_alignment_offset(data, logical, physical),
        rotation_rpm=rotation if rotation == 1 or 0x0401 <= rotation <= 0xFFFE else None,
        queue_depth=_queue_depth(data),
        hybrid=_hybrid(data),
    )


def decode_names(data: bytes) -> AtaNames:
    return AtaNames(_ata_text(data, 27, 46), _ata_text(data, 10, 19), _ata_text(data, 23, 26))


def _sector_sizes(data: bytes) -> tuple[int, int]:
    """Return the sector sizes: word 106 counts when bits 15:14 are 01b; words 117-118 give the logical sector in words
    of two bytes.
    """
    told = _word(data, 106)
    if told & 0xC000 != 0x4000:
        return 512, 512
    logical = 512
    if told & 0x1000:
        words = _word(data, 117) | _word(data, 118) << 16
        logical = 2 * words if 256 <= words <= 1 << 20 else 512
    return logical, logical << (told & 0x0F) if told & 0x2000 else logical


def _alignment_offset(data: bytes, logical: int, physical: int) -> int:
    """Return the offset to the next boundary, as the kernel counts; word 209 has the place of LBA 0 in its physical
    sector.
    """
    told = _word(data, 209)
    if told & 0xC000 != 0x4000:
        return 0
    return -(told & 0x3FFF) * logical % physical


def _queue_depth(data: bytes) -> int:
    """Return the queue depth: word 76 bit 8 is NCQ; word 75 holds the depth less one. 0 and FFFFh: the word is not
    used.
    """
    serial_ata = _word(data, 76)
    if serial_ata in (0, 0xFFFF) or not serial_ata & 0x0100:
        return 1
    return (_word(data, 75) & 0x1F) + 1


def _hybrid(data: bytes) -> bool | None:
    """Return whether the Hybrid Information feature is supported: word 78 bit 9 (SATA 3.2)."""
    features = _word(data, 78)
    return None if features in (0, 0xFFFF) else bool(features & 0x0200)


def _word(data: bytes, number: int) -> int:
    return int.from_bytes(data[2 * number : 2 * number + 2], "little")


def _ata_text(data: bytes, first: int, last: int) -> str | None:
    """Return text of two characters a word, the first one in the high byte."""
    raw = data[2 * first : 2 * last + 2]
    swapped = b"".join(raw[at + 1 : at + 2] + raw[at : at + 1] for at in range(0, len(raw), 2))
    return swapped.decode("ascii", "replace").strip(" \0") or None


# What an SD card states of its flash: the SD Status register.

_DIGITS = 128  # 512 bits in hexadecimal
_AU_AT = 20  # bits 431 to 428 (SD Physical Layer Simplified Specification 4.10.2): the 21st digit
_AU_SIZES = (
    0, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 12 * MIB,
    16 * MIB, 24 * MIB, 32 * MIB, 64 * MIB,
)  # fmt: skip


def read_allocation_unit(status: str | None) -> int | None:
    """Return the allocation unit in bytes, 0 where the card states none; None: the register is not readable here."""
    digits = (status or "").strip()
    if len(digits) != _DIGITS or digits.strip("0123456789abcdefABCDEF") or not digits.strip("0"):
        return None
    return _AU_SIZES[int(digits[_AU_AT], 16)]


# What an NVMe drive says of itself: the Identify pages, decoded.

PAGE = 4096
MINIMUM_PAGE = 4096  # CAP.MPSMIN, the unit of MDTS; every known drive has 0 there, and Linux needs 4 KiB pages
HMB_UNIT = 4096  # HMPRE and HMMIN
MOST_FORMATS = 64
LARGEST_MDTS = 20  # 2^20 pages are 4 GiB; more is nonsense
SMALLEST_LBADS, LARGEST_LBADS = 9, 32


@dataclass(frozen=True, slots=True)
class ControllerPage:
    """The NVMe Identify Controller data structure, as far as it is used."""

    model: str | None = None
    serial: str | None = None
    firmware: str | None = None
    max_transfer: int | None = None  # bytes; 0: no limit
    hmb_preferred: int | None = None
    hmb_minimum: int | None = None
    atomic_blocks: int | None = None  # AWUN + 1, in logical blocks of whichever namespace
    atomic_blocks_power_fail: int | None = None  # AWUPF + 1


@dataclass(frozen=True, slots=True)
class NamespacePage:
    """The NVMe Identify Namespace data structure, as far as it is used. Sizes in bytes."""

    formats: tuple[LbaFormat, ...] = ()
    format_in_use: int | None = None
    block_size: int | None = None  # of the format in use
    preferred_blocks: tuple[int, int] | None = None  # NPWG, NPWA
    deallocate_blocks: tuple[int, int] | None = None  # NPDG, NPDA
    optimal_write_blocks: int | None = None  # NOWS
    optimal_boundary_blocks: int | None = None  # NOIOB; 0: none
    atomic_blocks: int | None = None  # NAWUN + 1; None: as the controller says
    atomic_blocks_power_fail: int | None = None


def decode_controller(page: bytes) -> ControllerPage | None:
    """Return Identify Controller, CNS 01h; None when the page is not valid."""
    if len(page) < PAGE or not page[4:72].strip(b"\0"):
        return None
    awun, awupf = struct.unpack_from("<HH", page, 526)
    preferred, minimum = struct.unpack_from("<II", page, 272)
    shift = page[77]
    return ControllerPage(
        serial=_nvme_text(page[4:24]),
        model=_nvme_text(page[24:64]),
        firmware=_nvme_text(page[64:72]),
        max_transfer=0 if shift == 0 else MINIMUM_PAGE << shift if shift <= LARGEST_MDTS else None,
        hmb_preferred=preferred * HMB_UNIT,
        hmb_minimum=minimum * HMB_UNIT,
        atomic_blocks=awun + 1,
        atomic_blocks_power_fail=awupf + 1,
    )


def decode_namespace(page: bytes) -> NamespacePage | None:
    """Return Identify Namespace, CNS 00h; None when the page is not valid (an inactive namespace answers with
    zeros).
    """
    if len(page) < PAGE or not page[:384].strip(b"\0"):
        return None
    features, in_use = page[24], (page[26] & 0x0F) | (page[26] >> 5 & 0x03) << 4
    formats = _formats(page)
    nawun, nawupf = struct.unpack_from("<HH", page, 34)
    npwg, npwa, npdg, npda, nows = struct.unpack_from("<5H", page, 64)
    # OPTPERF: one bit up to NVMe 2.0, two since 2.1, where 10b says that only the wide NPDGL and NPDAL are there.
    optimal = features >> 4 & 0b11
    has_atomics = bool(features & 0b10)
    return NamespacePage(
        formats=formats,
        format_in_use=in_use,
        block_size=next((lba.data_size for lba in formats if lba.index == in_use), None),
        preferred_blocks=(npwg + 1, npwa + 1) if optimal else None,
        deallocate_blocks=(npdg + 1, npda + 1) if optimal & 0b01 else None,
        optimal_write_blocks=nows + 1 if optimal else None,
        optimal_boundary_blocks=int.from_bytes(page[46:48], "little"),
        atomic_blocks=nawun + 1 if has_atomics and nawun else None,
        atomic_blocks_power_fail=nawupf + 1 if has_atomics and nawupf else None,
    )


def _formats(page: bytes) -> tuple[LbaFormat, ...]:
    """Return the LBA formats: NLBAF counts from zero; NULBAF, the formats with separate attributes, follow behind."""
    count = min(page[25] + 1 + page[82], MOST_FORMATS)
    found = []
    for index in range(count):
        metadata, shift, performance = struct.unpack_from("<HBB", page, 128 + 4 * index)
        if SMALLEST_LBADS <= shift <= LARGEST_LBADS:  # 0: this format is not available
            found.append(LbaFormat(index, 1 << shift, metadata, performance & 0b11))
    return tuple(found)


def decode_hmb(enabled: int, attributes: bytes) -> int:
    """Return the buffer of Get Features 0Dh: dword 0 bit 0 is set when it is on; HSIZE counts pages of the host, 4 KiB
    on Linux.
    """
    if not enabled & 1 or len(attributes) < 4:
        return 0
    return int.from_bytes(attributes[:4], "little") * HMB_UNIT


def combine(
    controller: ControllerPage | None, namespace: NamespacePage | None, *, hmb_granted: int | None = None
) -> NvmeFacts:
    """Return everything in bytes; values that need an unknown block size stay None."""
    controller, namespace = controller or ControllerPage(), namespace or NamespacePage()
    block = namespace.block_size
    preferred, deallocate = namespace.preferred_blocks or (None, None), namespace.deallocate_blocks or (None, None)
    atomic_power_fail = namespace.atomic_blocks_power_fail or controller.atomic_blocks_power_fail
    return NvmeFacts(
        formats=namespace.formats,
        format_in_use=namespace.format_in_use,
        preferred_write_granularity=_bytes(preferred[0], block),
        preferred_write_alignment=_bytes(preferred[1], block),
        preferred_deallocate_granularity=_bytes(deallocate[0], block),
        preferred_deallocate_alignment=_bytes(deallocate[1], block),
        optimal_write_size=_bytes(namespace.optimal_write_blocks, block),
        optimal_io_boundary=_bytes(namespace.optimal_boundary_blocks, block),
        atomic_write_unit=_bytes(namespace.atomic_blocks or controller.atomic_blocks, block),
        atomic_write_unit_power_fail=_bytes(atomic_power_fail, block),
        max_transfer=controller.max_transfer,
        hmb_preferred=controller.hmb_preferred,
        hmb_minimum=controller.hmb_minimum,
        hmb_granted=hmb_granted,
    )


def _bytes(blocks: int | None, block_size: int | None) -> int | None:
    return None if blocks is None or block_size is None else blocks * block_size


def _nvme_text(raw: bytes) -> str | None:
    return raw.decode("ascii", "replace").strip(" \0") or None
