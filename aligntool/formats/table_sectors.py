"""The sectors that hold an MBR or a GPT: where they are, without identities, and as a disk that has nothing
else.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from aligntool.formats.gpt import MOST_ENTRY_BYTES, SIGNATURE, Header, header_crc_is_good, with_header_crc
from aligntool.formats.parked import PARKED_GPT
from aligntool.formats.reader import Reader, TableReading, readable_length
from aligntool.inventory import Role, TableLabel
from aligntool.units import Extent, is_sector_size

_MBR_SECTOR = 512  # whatever the disk's sector size
_MBR_ENTRIES_AT = 446  # before them: boot code and the disk signature
_HEADER_END = 92  # of the fields of a header; the rest of its sector is reserved
_GUID_AT = 56
_ENTRIES_CRC_AT = 88
_UNIQUE_GUID = slice(16, 32)
_NAME = slice(56, 128)
_ENTRY = 128


def table_extents(reader: Reader, found: TableReading) -> tuple[Extent, ...]:
    """Return the sectors that hold the table, in order: none of a disk without an MBR or a GPT. Raises
    OSError.
    """
    table = found.table
    if table is None or table.label not in (TableLabel.GPT, TableLabel.DOS):
        return ()
    sizes = (table.sector_size, 512, 4096)  # an old GPT may have been written for another size
    headers = {copy.at for copy in table.copies} | {at for size in sizes for at in (size, reader.size - size)}
    records = {part.record_at for part in found.partitions} - {None}
    records |= {part.extent.start for part in found.partitions if part.role is Role.EXTENDED}
    extents = {Extent(at, _MBR_SECTOR) for at in (0, *records) if at is not None}
    for at in headers:
        extents |= set(_copy_extents(reader, at, table.sector_size))
    return tuple(sorted(extents))


def _copy_extents(reader: Reader, at: int, usual_size: int) -> Iterator[Extent]:
    """Yield the header at this byte, if there is one, and its entries, if their place and length are
    possible.
    """
    sector = reader.read(at, usual_size)
    if len(sector) < _HEADER_END or not sector.startswith(SIGNATURE):
        return
    header = Header.unpack(sector)
    size = _sector_size(header, at, usual_size)
    yield Extent(at, size)
    entries = Extent(header.entries_lba * size, header.entry_bytes)
    if 0 < entries.length <= MOST_ENTRY_BYTES and entries.end <= reader.size:
        yield entries


def _sector_size(header: Header, at: int, usual: int) -> int:
    """Return the sector size for which a header was written, by its own address."""
    size = at // header.own_lba if header.own_lba else 0
    return size if is_sector_size(size) and size * header.own_lba == at else usual


def without_identities(sectors: Mapping[int, bytes], mask: Callable[[bytes], bytes]) -> dict[int, bytes]:
    """Return the sectors of a table without boot code, names and the rest of deleted entries, with GUIDs
    changed by `mask`. Checksums that were right are right again, and wrong ones stay wrong.
    """
    found = {
        at: bytes(_MBR_ENTRIES_AT) + sector[_MBR_ENTRIES_AT:_MBR_SECTOR] for at, sector in sectors.items()
    }
    for at, sector in sectors.items():
        if len(sector) >= _HEADER_END and sector.startswith(SIGNATURE):
            header = Header.unpack(sector)
            start = header.entries_lba * _sector_size(header, at, len(sector))
            entries = sectors.get(start, b"")
            masked = _mask_entries(entries, header, mask)
            found[at] = _mask_header(sector, header, entries, masked, mask)
            if entries:
                found[start] = masked
    return found


def _mask_entries(entries: bytes, header: Header, mask: Callable[[bytes], bytes]) -> bytes:
    masked = bytearray(len(entries))
    size = header.entry_size
    for at in range(0, len(entries), size) if size >= _ENTRY else ():
        entry = bytearray(entries[at : at + _ENTRY])
        if not any(entry[:16]) or len(entry) < _ENTRY:
            continue
        if entry[:16] != PARKED_GPT.bytes_le:  # the fields of a parked entry lead to its journal
            entry[_UNIQUE_GUID] = mask(bytes(entry[_UNIQUE_GUID]))
            entry[_NAME] = bytes(len(entry[_NAME]))
        masked[at : at + _ENTRY] = entry
    return bytes(masked)


def _mask_header(
    sector: bytes, header: Header, entries: bytes, masked: bytes, mask: Callable[[bytes], bytes]
) -> bytes:
    changed = bytearray(sector[:_HEADER_END]) + bytes(len(sector) - _HEADER_END)
    changed[_GUID_AT : _GUID_AT + 16] = mask(header.disk_guid)
    if zlib.crc32(entries) == header.entries_crc:
        struct.pack_into("<I", changed, _ENTRIES_CRC_AT, zlib.crc32(masked))
    return with_header_crc(changed) if header_crc_is_good(sector) else bytes(changed)


@dataclass(frozen=True, slots=True)
class TableSectors:
    """A `Reader` of a disk of which only the sectors of its table are known. All others read as zero."""

    size: int
    sectors: Mapping[int, bytes]

    def read(self, offset: int, length: int) -> bytes:
        found = bytearray(max(readable_length(offset, length, self.size), 0))
        end = offset + len(found)
        for at, sector in self.sectors.items():
            first, last = max(at, offset), min(at + len(sector), end)
            if first < last:
                found[first - offset : last - offset] = sector[first - at : last - at]
        return bytes(found)
