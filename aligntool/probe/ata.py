"""What an ATA drive says of itself: IDENTIFY DEVICE, decoded.

In: 512 bytes, or the VPD page 89h that carries them. Out: AtaFacts and the drive's full names. Alone because it is
pure; word numbers are those of ACS-3 (T13/2161-D), 7.12, and what libata makes of them is in include/linux/ata.h.
"""

from dataclasses import dataclass

from aligntool.inventory import AtaFacts

IDENTIFY_LENGTH = 512
VPD_IDENTIFY_AT = 60  # ATA Information VPD page (SAT-3, 12.4.2)
ATA_COMMAND_AT = 56
IDENTIFY_DEVICE = 0xEC


@dataclass(frozen=True, slots=True)
class AtaNames:
    model: str | None
    serial: str | None
    firmware: str | None


def identify_in_vpd(page: bytes | None) -> bytes | None:
    """The IDENTIFY data in VPD page 89h; None for a packet device (an optical drive) and for anything else."""
    if page is None or len(page) < VPD_IDENTIFY_AT + IDENTIFY_LENGTH or page[1] != 0x89:
        return None
    if page[ATA_COMMAND_AT] != IDENTIFY_DEVICE:
        return None
    return page[VPD_IDENTIFY_AT : VPD_IDENTIFY_AT + IDENTIFY_LENGTH]


def decode_identify(data: bytes) -> AtaFacts | None:
    """None when these are no IDENTIFY data of an ATA disk (word 0 bit 15 set, nothing there, too short)."""
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
    return AtaNames(_text(data, 27, 46), _text(data, 10, 19), _text(data, 23, 26))


def _sector_sizes(data: bytes) -> tuple[int, int]:
    """Word 106 counts when bits 15:14 are 01b; words 117-118 give the logical sector in words of two bytes."""
    told = _word(data, 106)
    if told & 0xC000 != 0x4000:
        return 512, 512
    logical = 512
    if told & 0x1000:
        words = _word(data, 117) | _word(data, 118) << 16
        logical = 2 * words if 256 <= words <= 1 << 20 else 512
    return logical, logical << (told & 0x0F) if told & 0x2000 else logical


def _alignment_offset(data: bytes, logical: int, physical: int) -> int:
    """Word 209 says where in its physical sector LBA 0 lies; the kernel counts from there to the next boundary."""
    told = _word(data, 209)
    if told & 0xC000 != 0x4000:
        return 0
    return -(told & 0x3FFF) * logical % physical


def _queue_depth(data: bytes) -> int:
    """Word 76 bit 8: NCQ; word 75 holds the depth less one. 0 and FFFFh: the word is not used."""
    serial_ata = _word(data, 76)
    if serial_ata in (0, 0xFFFF) or not serial_ata & 0x0100:
        return 1
    return (_word(data, 75) & 0x1F) + 1


def _hybrid(data: bytes) -> bool | None:
    """Word 78 bit 9: the Hybrid Information feature is supported (SATA 3.2)."""
    features = _word(data, 78)
    return None if features in (0, 0xFFFF) else bool(features & 0x0200)


def _word(data: bytes, number: int) -> int:
    return int.from_bytes(data[2 * number : 2 * number + 2], "little")


def _text(data: bytes, first: int, last: int) -> str | None:
    """Two characters a word, the first one in the high byte."""
    raw = data[2 * first : 2 * last + 2]
    swapped = b"".join(raw[at + 1 : at + 2] + raw[at : at + 1] for at in range(0, len(raw), 2))
    return swapped.decode("ascii", "replace").strip(" \0") or None
