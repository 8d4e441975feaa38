"""NVMe Identify, ATA IDENTIFY DEVICE and SD Status: bytes to facts."""

import struct
from dataclasses import replace

from aligntool.inventory import AtaFacts, LbaFormat, NvmeFacts
from aligntool.units import KIB, MIB

# ATA: IDENTIFY DEVICE.

IDENTIFY_LENGTH = 512
VPD_IDENTIFY_AT = 60  # ATA Information VPD page (SAT-3, 12.4.2)
ATA_COMMAND_AT = 56
IDENTIFY_DEVICE = 0xEC


def identify_in_vpd(page: bytes | None) -> bytes | None:
    """Return the IDENTIFY data in VPD page 89h, or None if it has none: a packet device (an optical drive) or
    any other page.
    """
    if page is None or len(page) < VPD_IDENTIFY_AT + IDENTIFY_LENGTH or page[1] != 0x89:
        return None
    if page[ATA_COMMAND_AT] != IDENTIFY_DEVICE:
        return None
    return page[VPD_IDENTIFY_AT : VPD_IDENTIFY_AT + IDENTIFY_LENGTH]


def decode_identify(data: bytes) -> AtaFacts | None:
    """Return the facts, or None if the data is not from an ATA disk (word 0 bit 15 set, empty, too short)."""
    if len(data) < IDENTIFY_LENGTH or not data[:IDENTIFY_LENGTH].strip(b"\0"):
        return None
    word = struct.unpack_from("<256H", data)
    if word[0] & 0x8000:
        return None
    # Words 106 and 209 are valid if their bits 15:14 are 01b; 117 and 118 state the logical sector in 16-bit
    # words.
    sizes = word[106] if word[106] & 0xC000 == 0x4000 else 0
    long_sector = 2 * (word[117] | word[118] << 16)
    logical = long_sector if sizes & 0x1000 and 512 <= long_sector <= 2 << 20 else 512
    physical = logical << (sizes & 0x0F) if sizes & 0x2000 else logical
    first = word[209] & 0x3FFF if word[209] & 0xC000 == 0x4000 else 0  # index of LBA 0 in its physical sector
    has_queue = word[76] not in (0, 0xFFFF) and word[76] & 0x0100  # NCQ
    return AtaFacts(
        logical_sector_size=logical,
        physical_sector_size=physical,
        alignment_offset=-first * logical % physical,  # to the next boundary, as the kernel counts
        rotation_rpm=word[217] if word[217] == 1 or 0x0401 <= word[217] <= 0xFFFE else None,
        queue_depth=(word[75] & 0x1F) + 1 if has_queue else 1,
        hybrid=None if word[78] in (0, 0xFFFF) else bool(word[78] & 0x0200),  # Hybrid Information, SATA 3.2
    )


def decode_names(data: bytes) -> tuple[str | None, str | None, str | None]:
    """Return model, serial number and firmware: two characters per word, the first in the high byte."""
    fields = (data[54:94], data[20:40], data[46:54])
    swapped = (b"".join(raw[at : at + 2][::-1] for at in range(0, len(raw), 2)) for raw in fields)
    model, serial, firmware = (raw.decode("ascii", "replace").strip(" \0") or None for raw in swapped)
    return model, serial, firmware


# SD cards: the SD Status register.

_AU_AT = 20  # bits 431 to 428 (SD Physical Layer Simplified Specification 4.10.2): the 21st digit
_AU_SIZES = (0, *(16 * KIB << step for step in range(10)), *(size * MIB for size in (12, 16, 24, 32, 64)))


def read_allocation_unit(status: str | None) -> int | None:
    """Return the allocation unit in bytes, 0 if the card states none, None if the register is not
    readable.
    """
    digits = (status or "").strip()
    if len(digits) != 128 or digits.strip("0123456789abcdefABCDEF") or not digits.strip("0"):
        return None
    return _AU_SIZES[int(digits[_AU_AT], 16)]


# NVMe: the Identify pages and the Host Memory Buffer.

PAGE = 4096
UNIT = 4096  # of MDTS: CAP.MPSMIN, 0 in every known drive, as Linux needs 4 KiB pages; of HMPRE and HMMIN
MOST_FORMATS = 64
LARGEST_MDTS = 20  # 2^20 pages are 4 GiB; more is implausible
LBADS = range(9, 33)


def decode_nvme(controller: bytes, namespace: bytes, *, hmb_granted: int | None = None) -> NvmeFacts:
    """Return the facts of Identify Controller (CNS 01h) and Identify Namespace (CNS 00h), of each page that
    is valid.

    The page of an inactive namespace is all zeros. Values in units of an unknown block size stay None.
    """
    facts = NvmeFacts(hmb_granted=hmb_granted)
    atomic: tuple[int | None, int | None] = (None, None)
    if len(controller) >= PAGE and controller[4:72].strip(b"\0"):
        atomic = struct.unpack_from("<HH", controller, 526)
        preferred, minimum = struct.unpack_from("<II", controller, 272)
        shift = controller[77]
        most = 0 if shift == 0 else UNIT << shift if shift <= LARGEST_MDTS else None
        facts = replace(facts, max_transfer=most, hmb_preferred=preferred * UNIT, hmb_minimum=minimum * UNIT)
    if len(namespace) < PAGE or not namespace[:384].strip(b"\0"):
        return facts
    features = namespace[24]
    in_use = (namespace[26] & 0x0F) | (namespace[26] >> 5 & 0x03) << 4
    formats = _formats(namespace)
    facts = replace(facts, formats=formats, format_in_use=in_use)
    block = next((lba.data_size for lba in formats if lba.index == in_use), None)
    if block is None:
        return facts
    # OPTPERF: one bit up to NVMe 2.0, two since 2.1, where 10b means that only the wide NPDGL and NPDAL are
    # present.
    optimal = features >> 4 & 0b11
    npwg, npwa, npdg, npda, nows = ((field + 1) * block for field in struct.unpack_from("<5H", namespace, 64))
    # 0: as the controller states
    own = struct.unpack_from("<HH", namespace, 34) if features & 0b10 else (0, 0)
    normal, power_fail = (mine or default for mine, default in zip(own, atomic, strict=True))
    return replace(
        facts,
        preferred_write_granularity=npwg if optimal else None,
        preferred_write_alignment=npwa if optimal else None,
        preferred_deallocate_granularity=npdg if optimal & 0b01 else None,
        preferred_deallocate_alignment=npda if optimal & 0b01 else None,
        optimal_write_size=nows if optimal else None,
        optimal_io_boundary=int.from_bytes(namespace[46:48], "little") * block,
        atomic_write_unit=None if normal is None else (normal + 1) * block,
        atomic_write_unit_power_fail=None if power_fail is None else (power_fail + 1) * block,
    )


def deallocates_zeroed(namespace: bytes) -> bool | None:
    """Return whether the drive deallocates the blocks that a Write Zeroes command names, and these read as
    zeros: DLFEAT bits 3 and 2:0, Identify Namespace byte 33. None: the page is not readable.
    """
    if len(namespace) < PAGE or not namespace[:384].strip(b"\0"):
        return None
    return namespace[33] & 0b1111 == 0b1001


def format_scope(controller: bytes) -> str | None:
    """Return the scope of a Format NVM of one namespace: "namespace", "drive" (all namespaces: FNA bit 0), or
    "none" if the drive lacks the command (OACS bit 1); None if the Identify Controller page is not readable.
    """
    if len(controller) < PAGE or not controller[4:72].strip(b"\0"):
        return None
    if not controller[256] & 0b10:
        return "none"
    return "drive" if controller[524] & 0b1 else "namespace"


def _formats(page: bytes) -> tuple[LbaFormat, ...]:
    """Return the LBA formats: NLBAF counts from zero; the NULBAF formats, with unique attributes, follow
    them.
    """
    count = min(page[25] + 1 + page[82], MOST_FORMATS)
    fields = struct.iter_unpack("<HBB", page[128 : 128 + 4 * count])
    return tuple(
        LbaFormat(index, 1 << shift, metadata, performance & 0b11)
        for index, (metadata, shift, performance) in enumerate(fields)
        if shift in LBADS  # 0: this format is not available
    )


def decode_hmb(enabled: int, attributes: bytes) -> int:
    """Return the size in bytes of the Host Memory Buffer from Get Features 0Dh, 0 if it is off (dword 0 bit
    0); HSIZE counts pages of the host, 4 KiB on Linux.
    """
    return int.from_bytes(attributes[:4], "little") * UNIT if enabled & 1 and len(attributes) >= 4 else 0
