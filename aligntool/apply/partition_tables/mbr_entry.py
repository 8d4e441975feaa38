"""The four entries of an MBR or an EBR, taken out of their sector, moved and put back.

In: a sector. Out: its entries as they stand, in sectors; a sector with other entries. Alone because the MBR, the EBRs
and the search for parked entries all need it. Layout: UEFI specification 2.10, tables 5-1 and 5-2.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace

from aligntool.apply.partition_tables.chs import Geometry, moved_address
from aligntool.units import Extent

SIZE = 16
EXTENDED_KINDS = frozenset({0x05, 0x0F, 0x85})  # DOS, Windows with LBA, Linux

_FIRST_AT = 446
_SIGNATURE_AT = 510
_SIGNATURE = b"\x55\xaa"
_LAYOUT = struct.Struct("<B3sB3sII")


@dataclass(frozen=True, slots=True)
class MbrEntry:
    status: int
    chs_start: bytes
    kind: int
    chs_end: bytes
    start: int  # sectors, counted from 0, the EBR or the container
    sectors: int

    @property
    def is_extended(self) -> bool:
        return self.kind in EXTENDED_KINDS

    def pack(self) -> bytes:
        return _LAYOUT.pack(self.status, self.chs_start, self.kind, self.chs_end, self.start, self.sectors)


NO_ENTRY = MbrEntry(0, bytes(3), 0, bytes(3), 0, 0)


def entries_of(sector: bytes) -> tuple[MbrEntry, ...] | None:
    """All four; None where the sector does not end in 55 AA."""
    if sector[_SIGNATURE_AT : _SIGNATURE_AT + 2] != _SIGNATURE:
        return None
    return tuple(MbrEntry(*_LAYOUT.unpack_from(sector, _FIRST_AT + SIZE * index)) for index in range(4))


def with_entries(sector: bytes, changed: Mapping[int, MbrEntry]) -> bytes:
    """The same sector with these entries, counted from 0. Everything else in it is kept."""
    made = bytearray(sector)
    for index, entry in changed.items():
        at = _FIRST_AT + SIZE * index
        made[at : at + SIZE] = entry.pack()
    return bytes(made)


def moved_entry(
    entry: MbrEntry, old: Extent, new: Extent, *, counted_from: int = 0, sector_size: int, geometry: Geometry
) -> MbrEntry:
    """The entry for `new` in place of `old`; `counted_from` is the byte that its start counts from.

    What has not moved stays as it is, even where other tools would write it differently.
    """
    start = (new.start - counted_from) // sector_size
    if old == new:
        return replace(entry, start=start)

    def chs(address: bytes, before: int, after: int) -> bytes:
        return moved_address(address, before // sector_size, after // sector_size, geometry)

    return replace(
        entry,
        chs_start=chs(entry.chs_start, old.start, new.start),
        chs_end=chs(entry.chs_end, old.end - 1, new.end - 1),
        start=start,
        sectors=new.length // sector_size,
    )
