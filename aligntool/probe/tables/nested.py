"""Tables inside an MBR partition: BSD disklabels, Solaris and UnixWare slices, Minix subpartitions.

Comes in: the MBR's entries. Goes out: nested partitions, numbered on after the logical ones, in the order and with the
rules of the second pass of msdos_partition() in the kernel (block/partitions/msdos.c). All four count in 512 bytes,
also on a disk with other sectors. Alone because each is a small format of its own.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aligntool.inventory import Fault, Partition, Role, TableFault
from aligntool.probe.reader import Reader
from aligntool.probe.tables import bsd
from aligntool.probe.tables.ebr import Chains
from aligntool.probe.tables.mbr_sector import MbrSector, parse_sector
from aligntool.probe.tables.mbr_types import mbr_type_name
from aligntool.probe.tables.reading import peek
from aligntool.units import Extent

_SECTOR = 512
_FREEBSD, _OPENBSD, _NETBSD, _MINIX = 0xA5, 0xA6, 0xA9, 0x81
_VTOC_SANE = 0x600DDEEE
_UNIXWARE = 0xCA5E600D
_WHOLE_DISK = 5  # Solaris tag V_BACKUP, UnixWare's whole-disk tag
_VTOC_TAGS = {1: "boot", 2: "root", 3: "swap", 4: "usr", 5: "whole disk", 6: "stand", 7: "var", 8: "home"}


@dataclass(frozen=True, slots=True)
class _Piece:
    extent: Extent
    type_code: str
    type_name: str
    role: Role = Role.NESTED


def add_nested(reader: Reader, table: MbrSector, *, sector_size: int, chains: Chains) -> list[Partition]:
    """The nested partitions of all primary partitions; numbers go on from `chains`, faults go into it."""
    found: list[Partition] = []
    for entry in table.used:
        read = _READERS.get(entry.code)
        if read is None:
            continue
        parent = Extent(entry.start * sector_size, entry.sectors * sector_size)
        for piece in read(reader, parent, entry.code):
            if piece.extent == parent or not piece.extent.length:
                continue  # the parent once more
            if not parent.contains(piece.extent):
                chains.faults.extend(_outside(piece, entry.slot, entry.code))
            elif not chains.full:
                found.append(_partition(piece, chains.next_number))
                chains.next_number += 1
    return found


def _outside(piece: _Piece, slot: int, code: int) -> list[TableFault]:
    """NetBSD and OpenBSD labels describe the whole disk on purpose; elsewhere such a slice is a mistake."""
    if code in (_OPENBSD, _NETBSD):
        return []
    detail = (
        f"a nested entry of partition {slot} is at bytes {piece.extent.start} to {piece.extent.end - 1}, outside that "
        "partition; Linux leaves it out"
    )
    return [TableFault(Fault.BAD_ENTRY, detail, piece.extent.start, (slot,))]


def _partition(piece: _Piece, number: int) -> Partition:
    return Partition(number, piece.extent, piece.role, piece.type_code, piece.type_name)


def _run(start: int, sectors: int, base: int = 0) -> Extent:
    return Extent(base + start * _SECTOR, sectors * _SECTOR)


def _bsd(reader: Reader, parent: Extent, code: int) -> Iterator[_Piece]:
    slices = bsd.read_slices(reader, parent.start + _SECTOR)
    if slices is None:
        return
    # FreeBSD counts from the partition where its c, the whole partition, starts at 0; all else counts from the disk.
    relative = code == _FREEBSD and len(slices) > 2 and slices[2].start == 0
    for entry in slices:
        if entry.kind:
            extent = _run(entry.start, entry.sectors, parent.start if relative else 0)
            yield _Piece(extent, str(entry.kind), bsd.type_name(entry.kind))


def _solaris(reader: Reader, parent: Extent, code: int) -> Iterator[_Piece]:
    """0x82 is Linux swap as well: only the sanity word makes it Solaris."""
    raw = peek(reader, parent.start + _SECTOR, _SECTOR) or b""
    if len(raw) < _SECTOR or struct.unpack_from("<II", raw, 12) != (_VTOC_SANE, 1):
        return
    count = 16 if struct.unpack_from("<H", raw, 30)[0] > 8 else 8
    for index in range(count):
        tag, _, start, sectors = struct.unpack_from("<HHII", raw, 72 + index * 12)
        yield _vtoc_piece(tag, _run(start, sectors, parent.start))


def _unixware(reader: Reader, parent: Extent, code: int) -> Iterator[_Piece]:
    raw = peek(reader, parent.start + 29 * _SECTOR, _SECTOR) or b""
    if len(raw) < _SECTOR or struct.unpack_from("<I", raw, 4)[0] != _UNIXWARE:
        return
    if struct.unpack_from("<I", raw, 156)[0] != _VTOC_SANE:
        return
    for index in range(1, 16):
        tag, _, start, sectors = struct.unpack_from("<HHII", raw, 216 + index * 12)
        if tag:
            yield _vtoc_piece(tag, _run(start, sectors))


def _vtoc_piece(tag: int, extent: Extent) -> _Piece:
    role = Role.MAP if tag == _WHOLE_DISK else Role.NESTED
    return _Piece(extent, f"0x{tag:02x}", _VTOC_TAGS.get(tag, ""), role)


def _minix(reader: Reader, parent: Extent, code: int) -> Iterator[_Piece]:
    table = parse_sector(peek(reader, parent.start, _SECTOR))
    if table is None or table.entries[0].code != _MINIX:
        return
    for entry in table.entries:
        if entry.code == _MINIX:
            yield _Piece(_run(entry.start, entry.sectors), f"0x{_MINIX:02x}", mbr_type_name(_MINIX))


_READERS: dict[int, Callable[[Reader, Extent, int], Iterator[_Piece]]] = {
    _FREEBSD: _bsd,
    _OPENBSD: _bsd,
    _NETBSD: _bsd,
    _MINIX: _minix,
    0x63: _unixware,
    0x82: _solaris,
    0xBF: _solaris,
}
