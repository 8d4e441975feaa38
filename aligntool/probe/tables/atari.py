"""The Atari root sector: AHDI with its chain of extended (XGM) partitions, and the ICD variant.

Comes in: sector 0. Goes out: partitions, numbered as the kernel's block/partitions/atari.c does. Alone because the
format has no magic: it is believed only where sizes, identifiers and the bad-sector list all agree, as in libblkid, and
after every other label was tried. It is defined for 512-byte sectors only.
"""

import struct
from dataclasses import dataclass
from itertools import pairwise

from aligntool.inventory import Fault, Partition, Role, Table, TableFault, TableLabel
from aligntool.probe.reader import Reader
from aligntool.probe.tables.checks import beyond_end, overlaps
from aligntool.probe.tables.reading import TableReading, peek, thin_out, unreadable
from aligntool.units import Extent

_SECTOR = 512
_PRIMARY_AT, _ICD_AT, _SIZE_AT, _BAD_LIST_AT = 0x1C6, 0x156, 0x1C2, 0x1F6
_MOST_LINKS = 100
_EXTENDED = "XGM"
_COMMON = frozenset({"GEM", "BGM", "LNX", "SWP", "RAW"})
_LARGEST = 2**31 - 1  # sectors; libblkid takes nothing larger for an Atari disk


@dataclass(frozen=True, slots=True)
class _Entry:
    flag: int
    kind: str
    start: int
    sectors: int

    @property
    def active(self) -> bool:
        return bool(self.flag & 1)

    def fits(self, sectors: int) -> bool:
        return self.start > 0 and self.sectors > 0 and self.start + self.sectors <= sectors


def read_atari(reader: Reader, sector: bytes) -> TableReading | None:
    sectors = int.from_bytes(sector[_SIZE_AT : _SIZE_AT + 4], "big")
    if len(sector) < _SECTOR or not 2 <= sectors <= min(reader.size // _SECTOR, _LARGEST):
        return None
    bad_start, bad_count = struct.unpack_from(">II", sector, _BAD_LIST_AT)
    if (bad_start or bad_count) and not _Entry(1, "", bad_start, bad_count).fits(sectors):
        return None
    entries = _entries(sector, _PRIMARY_AT, 4)
    active = [entry for entry in entries if entry.active]
    if not active or not all(_is_name(entry.kind) and entry.fits(sectors) for entry in active):
        return None
    return _read(reader, sector, entries)


def _entries(sector: bytes, at: int, count: int) -> list[_Entry]:
    found = []
    for index in range(count):
        flag, kind, start, sectors = struct.unpack_from(">B3sII", sector, at + index * 12)
        found.append(_Entry(flag, kind.decode("latin-1"), start, sectors))
    return found


def _is_name(kind: str) -> bool:
    return kind.isascii() and kind.isalnum()


def _read(reader: Reader, sector: bytes, entries: list[_Entry]) -> TableReading:
    partitions: list[Partition] = []
    faults: list[TableFault] = []
    number, extended = 1, False
    for entry in entries:
        if entry.active and entry.kind == _EXTENDED:
            extended = True
            number = _follow(reader, entry, number, partitions, faults)
        elif entry.active:
            _add(partitions, entry, entry.start, number, Role.PRIMARY)
        number += 1
    icd = _entries(sector, _ICD_AT, 8)
    if not extended and icd[0].kind in _COMMON:
        for entry in icd:
            if entry.active and entry.kind in _COMMON:
                _add(partitions, entry, entry.start, number, Role.PRIMARY)
            number += 1
    faults += beyond_end(partitions, reader.size)
    faults += overlaps(partitions)
    return TableReading(Table(TableLabel.ATARI, _SECTOR, faults=thin_out(faults)), tuple(partitions))


def _follow(
    reader: Reader, extended: _Entry, number: int, partitions: list[Partition], faults: list[TableFault]
) -> int:
    """The chain of one XGM partition; returns the last number it used, or the one it did not."""
    here, seen = extended.start, {0}
    while len(seen) <= _MOST_LINKS:
        at = here * _SECTOR
        if here in seen:
            detail = f"the chain of XGM sectors comes back to sector {here}: it turns in a circle"
            faults.append(TableFault(Fault.EBR_LOOP, detail, at))
            return number
        seen.add(here)
        raw = peek(reader, at, _SECTOR)
        if raw is None:
            faults.append(unreadable("an XGM sector", at))
            return number
        pair = _data_and_link(raw)
        if pair is None:
            detail = f"the XGM sector {here} holds no partition"
            faults.append(TableFault(Fault.EBR_BROKEN, detail, at))
            return number
        data, link = pair
        _add(partitions, data, here + data.start, number, Role.LOGICAL)
        if not (link.active and link.kind == _EXTENDED):
            return number
        here, number = extended.start + link.start, number + 1
    detail = f"the chain of XGM sectors goes on after {_MOST_LINKS} of them"
    faults.append(TableFault(Fault.IMPLAUSIBLE_COUNT, detail, here * _SECTOR))
    return number


def _data_and_link(raw: bytes) -> tuple[_Entry, _Entry] | None:
    """The first active entry is the partition, the one behind it the link to the next (libblkid's reading)."""
    if len(raw) < _SECTOR:
        return None
    entries = _entries(raw, _PRIMARY_AT, 4)
    for data, link in pairwise(entries):
        if data.active:
            return None if data.kind == _EXTENDED else (data, link)
    return None


def _add(partitions: list[Partition], entry: _Entry, start: int, number: int, role: Role) -> None:
    if not entry.sectors:
        return
    extent = Extent(start * _SECTOR, entry.sectors * _SECTOR)
    flags = ("boot",) if entry.flag & 0x80 else ()
    partitions.append(Partition(number, extent, role, type_code=entry.kind, flags=flags))
