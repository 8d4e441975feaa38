"""LUKS1 and LUKS2: the start of the encrypted payload and the size of its sectors.

What is inside is encrypted, so there is no inner layer. Formats:
LUKS1 on-disk format 1.2.3, LUKS2 on-disk format 1.1 (cryptsetup's docs folder). A header that lies on another
device (detached) leaves nothing here to recognise.
"""

import hashlib
import json
from dataclasses import replace

from aligntool.formats.reader import Area, be16, be32, be64, checksum_problem, text_at
from aligntool.inventory import Layer
from aligntool.units import KIB

MAGIC = b"LUKS\xba\xbe"
MAGIC_SECOND = b"SKUL\xba\xbe"
SECTOR = 512  # LUKS1 counts its payload offset in these
HEADER_SIZES = tuple(16 * KIB << power for power in range(9))  # specification 3.1: 16 KiB to 4 MiB
CHECKSUM_AT, CHECKSUM_SIZE = 448, 64


_Header = tuple[bytes, tuple[str, ...]]  # one LUKS2 header copy, and its problems


def read_luks(area: Area) -> Layer | None:
    if area.head[:6] != MAGIC:
        return None
    version = be16(area.head, 6)
    if version == 1:
        return _read_1(area)
    return _read_2(area) if version == 2 and be64(area.head, 256) == 0 else None


def read_luks_second(area: Area) -> Layer | None:
    """Return the second LUKS2 header alone, when the first was overwritten: `cryptsetup repair` can restore it.

    mkfs and mkswap wipe both headers, so what is left shows that something else wrote over the first.
    """
    for at in HEADER_SIZES[:3]:
        if area.head[at : at + 6] == MAGIC_SECOND and be64(area.head, at + 256) == at:
            lost = f"the first LUKS2 header is gone; the second, {at} bytes further, is left"
            second = _read_header(area, at)
            return _layer_2(area, second, (lost,)) if second else None
    return None


def _read_1(area: Area) -> Layer:
    payload = be32(area.head, 104) * SECTOR
    return Layer(
        kind="crypto_LUKS", extent=area.extent, version="LUKS1", uuid=text_at(area.head, 168, 40),
        data_start=area.start + payload if payload else None,  # 0: a detached header, the payload is elsewhere
        data_unit=SECTOR, problems=_payload_problem(area, payload),
    )  # fmt: skip


def _read_2(area: Area) -> Layer | None:
    first = _read_header(area, 0)
    if first is None:
        return None
    second = _read_header(area, be64(first[0], 8))
    if second is None:
        return _layer_2(area, first, (*first[1], "the second LUKS2 header is missing or unreadable"))
    if first[1] and not second[1]:  # the volume is whole: `cryptsetup repair` writes the first header anew
        lost = f"the first LUKS2 header is damaged, the second is whole: {'; '.join(first[1])}"
        return _layer_2(area, second, (lost,))
    problems = first[1] + tuple(f"{problem} (second copy)" for problem in second[1])
    updates = [be64(content, 16) for content, _ in (first, second)]
    if not problems and updates[0] != updates[1]:
        problems = (f"the two LUKS2 headers differ: update {updates[0]} and update {updates[1]}; the newer one counts",)
    return _layer_2(area, max((first, second), key=lambda header: (not header[1], be64(header[0], 16))), problems)


def _read_header(area: Area, at: int) -> _Header | None:
    """Return one of the two copies, with its JSON area; None when there is none."""
    start = area.read(at, 4096)
    size = be64(start, 8)
    if start[:6] not in (MAGIC, MAGIC_SECOND) or be16(start, 6) != 2 or size not in HEADER_SIZES:
        return None
    content = area.read(at, size)
    if len(content) < size:
        return content, (f"the LUKS2 header has {size} bytes, {len(content)} of them are here",)
    algorithm = text_at(content, 72, 32)
    if algorithm not in ("sha1", "sha256", "sha384", "sha512"):
        return content, (f"the LUKS2 header's checksum algorithm {algorithm} is not known",)
    blanked = content[:CHECKSUM_AT] + bytes(CHECKSUM_SIZE) + content[CHECKSUM_AT + CHECKSUM_SIZE :]
    computed = hashlib.new(algorithm, blanked, usedforsecurity=False).digest()
    stored = content[CHECKSUM_AT : CHECKSUM_AT + len(computed)]
    return content, checksum_problem("the LUKS2 header", stored.hex()[:16], computed.hex()[:16])


def _layer_2(area: Area, header: _Header, problems: tuple[str, ...]) -> Layer:
    content = header[0]
    offset, length, sector = min(_segments(content), default=(None, 0, None))
    if offset is None:
        problems = (*problems, "the LUKS2 header names no encrypted segment")
    else:
        problems = (*problems, *_payload_problem(area, offset))
    return replace(
        area.layer("crypto_LUKS", offset + length if offset is not None and length else None, sector), version="LUKS2",
        label=text_at(content, 24, 48), uuid=text_at(content, 168, 40),
        data_start=None if offset is None else area.start + offset, problems=problems,
    )  # fmt: skip


def _segments(content: bytes) -> list[tuple[int, int, int]]:
    """Return (offset, length, sector size) of every usable segment; length 0: up to the end of the device.

    While a device is being re-encrypted there are several; the first byte of data is the lowest offset.
    """
    try:
        tree = json.loads(content[4096:].split(b"\0", 1)[0])
    except (ValueError, RecursionError):
        return []
    segments = tree.get("segments") if isinstance(tree, dict) else None
    if not isinstance(segments, dict):
        return []
    usable = []
    for segment in segments.values():
        if not isinstance(segment, dict):
            continue
        offset, length = _decimal(segment.get("offset")), _decimal(segment.get("size"))
        sector = segment.get("sector_size", SECTOR)
        if offset is not None and isinstance(sector, int) and sector in (512, 1024, 2048, 4096):
            usable.append((offset, length or 0, sector))
    return usable


def _decimal(word: object) -> int | None:
    """Return a number that LUKS2 writes as a JSON string of 64 bits (specification 3.1.1)."""
    if isinstance(word, str) and len(word) <= 20 and word.isascii() and word.isdigit():
        return int(word)
    return None


def _payload_problem(area: Area, payload: int) -> tuple[str, ...]:
    if payload < area.size:
        return ()
    return (f"the encrypted data should start {payload} bytes in, its container has {area.size} bytes",)
