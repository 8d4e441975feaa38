"""The partitions that a kernel would show: a short, independent reader of MBR, EBRs and GPT; and a writer of EBRs."""

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aligntool.units import Extent
from tests.mover.simulated_disk import SECTOR

PARKED = bytes.fromhex("ebadd649c3b291468fa8bfbac209865b")  # 49d6adeb-b2c3-4691-8fa8-bfbac209865b
PARKED_BYTE = 0x7F


@dataclass(frozen=True, slots=True)
class Seen:
    extent: Extent
    parked: bool


def entries(platter: bytes, sector: int = SECTOR) -> dict[int, Seen]:
    records = [_record(platter, 446 + 16 * index) for index in range(4)]
    if records[0][0] == 0xEE:
        return _gpt(platter, sector)
    seen: dict[int, Seen] = {}
    for index, (kind, start, count) in enumerate(records):
        if count and kind in (0x05, 0x0F, 0x85):
            seen |= _logicals(platter, start, sector)
        if count:
            seen[index + 1] = Seen(Extent(start * sector, count * sector), kind == PARKED_BYTE)
    return seen


def _record(platter: bytes, at: int) -> tuple[int, int, int]:
    start, count = struct.unpack_from("<II", platter, at + 8)
    return platter[at + 4], start, count


def _logicals(platter: bytes, base: int, size: int) -> dict[int, Seen]:
    seen: dict[int, Seen] = {}
    at, number = base, 5
    while number < 60:
        sector = at * size
        assert platter[sector + 510 : sector + 512] == b"\x55\xaa", f"no EBR at sector {at}"
        _, start, count = _record(platter, sector + 446)
        if count:
            seen[number] = Seen(Extent((at + start) * size, count * size), False)
            number += 1
        kind, link, length = _record(platter, sector + 462)
        if not length or kind not in (0x05, 0x0F, 0x85):
            break
        at = base + link
    return seen


def _gpt(platter: bytes, sector: int) -> dict[int, Seen]:
    for header in (sector, len(platter) - sector):
        raw = bytearray(platter[header : header + sector])
        size, crc = struct.unpack_from("<II", raw, 12)
        raw[16:20] = bytes(4)
        if raw[:8] != b"EFI PART" or zlib.crc32(raw[:size]) != crc:
            continue
        table, count, each, digest = struct.unpack_from("<QIII", raw, 72)
        body = platter[table * sector : table * sector + count * each]
        if zlib.crc32(body) == digest:
            return dict(_gpt_entries(body, each, sector))
    raise AssertionError("neither copy of the GPT is valid")


def _gpt_entries(body: bytes, each: int, sector: int) -> list[tuple[int, Seen]]:
    found = []
    for index in range(0, len(body), each):
        if any(body[index : index + 16]):
            first, last = struct.unpack_from("<QQ", body, index + 32)
            extent = Extent(first * sector, (last - first + 1) * sector)
            found.append((index // each + 1, Seen(extent, body[index : index + 16] == PARKED)))
    return found


def write_records(disk: Path, size: int, records: Mapping[int, Iterable[tuple[int, int, int]]]) -> None:
    """Make an image with these MBR and EBRs, by sector: the type, start and length of each entry."""
    with disk.open("wb") as file:
        file.truncate(size)
        for sector, rows in records.items():
            file.seek(sector * SECTOR + 446)
            file.write(b"".join(struct.pack("<4xB3xII", *row) for row in rows).ljust(64, b"\0") + b"\x55\xaa")
