"""One of the two copies of a GPT: a header sector and the array of entries it points to.

Comes in: where to look. Goes out: what is there, checksums tried, nothing believed that was not bounded first. Alone
because both copies, at any place and for any sector size, are read by the same rules: UEFI specification, section
5.3.2, and what the kernel (block/partitions/efi.c, is_gpt_valid) refuses.
"""

import struct
import zlib
from dataclasses import dataclass

from aligntool.inventory import TableCopy, TableCopyState
from aligntool.probe.reader import Reader
from aligntool.probe.tables.reading import peek

SIGNATURE = b"EFI PART"
MOST_ENTRY_BYTES = (
    4 * 1024 * 1024
)  # KMALLOC_MAX_SIZE, more than which Linux refuses; the usual array has 16 KiB
_SHORTEST_HEADER = 92
_ENTRY_SIZES = range(128, 4097, 8)


@dataclass(frozen=True, slots=True)
class Header:
    own_lba: int
    other_lba: int
    first_usable: int
    last_usable: int
    disk_guid: bytes
    entries_lba: int
    entry_count: int
    entry_size: int
    entries_crc: int

    @property
    def entry_bytes(self) -> int:
        return self.entry_count * self.entry_size


@dataclass(frozen=True, slots=True)
class Copy:
    name: str
    lba: int
    sector_size: int
    state: TableCopyState
    why: str = ""  # what is wrong, to follow "the primary GPT header at sector 1"
    header: Header | None = None  # what the bytes say, right or not; None: no signature, or not readable
    header_crc_good: bool = False
    entries: bytes = b""  # at most MOST_ENTRY_BYTES, whole entries only

    @property
    def at(self) -> int:
        return self.lba * self.sector_size

    @property
    def is_good(self) -> bool:
        return self.state is TableCopyState.GOOD

    def told(self) -> TableCopy:
        return TableCopy(self.name, self.at, self.state)


def read_copy(reader: Reader, name: str, lba: int, sector_size: int) -> Copy:
    sector = peek(reader, lba * sector_size, sector_size)
    if sector is None:
        return Copy(name, lba, sector_size, TableCopyState.UNREADABLE, "cannot be read: I/O error")
    if len(sector) < sector_size or not sector.startswith(SIGNATURE):
        return Copy(name, lba, sector_size, TableCopyState.MISSING, "is not there")
    header = Header(*struct.unpack_from("<QQQQ16sQIII", sector, 24))
    crc_good, state, why = _judge_header(sector, header, lba, reader.size // sector_size - 1)
    entries = b""
    if header.entry_size in _ENTRY_SIZES:
        count = min(header.entry_count, MOST_ENTRY_BYTES // header.entry_size)
        found = peek(reader, header.entries_lba * sector_size, count * header.entry_size)
        entries = (found or b"")[: len(found or b"") // header.entry_size * header.entry_size]
        if state is TableCopyState.GOOD:
            state, why = _judge_entries(found, header)
    return Copy(name, lba, sector_size, state, why, header, crc_good, entries)


def header_crc_is_good(sector: bytes) -> bool:
    """Whether a whole sector carries a header with a right checksum; how one is found when nobody knows the size."""
    if len(sector) < _SHORTEST_HEADER or not sector.startswith(SIGNATURE):
        return False
    length, crc = struct.unpack_from("<II", sector, 12)
    if not _SHORTEST_HEADER <= length <= len(sector):
        return False
    return bool(zlib.crc32(sector[:16] + bytes(4) + sector[20:length]) == crc)


def _judge_header(sector: bytes, header: Header, lba: int, last_lba: int) -> tuple[bool, TableCopyState, str]:
    malformed = TableCopyState.MALFORMED
    length = struct.unpack_from("<I", sector, 12)[0]
    if not _SHORTEST_HEADER <= length <= len(sector):
        return False, malformed, f"claims to be {length} bytes long, not 92 to {len(sector)}"
    if not header_crc_is_good(sector):
        return False, TableCopyState.HEADER_CRC_BAD, "has a wrong checksum"
    if header.own_lba != lba:
        return True, malformed, f"says that it is at sector {header.own_lba}, but it is at sector {lba}"
    if header.last_usable < header.first_usable:
        why = f"has usable sectors {header.first_usable} to {header.last_usable}, which is none"
        return True, malformed, why
    if header.last_usable > last_lba:
        why = (
            f"has usable sectors up to {header.last_usable}, but the disk's last sector is {last_lba}, so Linux "
            "refuses it"
        )
        return True, malformed, why
    if header.entry_size not in _ENTRY_SIZES:
        return True, malformed, f"has entries of {header.entry_size} bytes, not 128 to 4096"
    if not header.entry_count or header.entry_bytes > MOST_ENTRY_BYTES:
        return True, malformed, f"has {header.entry_count} entries of {header.entry_size} bytes"
    return True, TableCopyState.GOOD, ""


def _judge_entries(found: bytes | None, header: Header) -> tuple[TableCopyState, str]:
    place = f"whose entries, at sector {header.entries_lba},"
    if found is None:
        return TableCopyState.UNREADABLE, f"{place} cannot be read: I/O error"
    if len(found) < header.entry_bytes:
        return TableCopyState.ENTRIES_CRC_BAD, f"{place} lie beyond the end of the disk"
    if zlib.crc32(found) != header.entries_crc:
        return TableCopyState.ENTRIES_CRC_BAD, f"{place} have a wrong checksum"
    return TableCopyState.GOOD, ""
