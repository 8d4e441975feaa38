"""GPT: headers, entries, checksums and both copies."""

import struct
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from aligntool.device import Device, Sectors
from aligntool.formats.part_types import BASIC_DATA, LDM_TYPES, gpt_type_name
from aligntool.formats.reader import Reader, beyond_end, overlaps, peek
from aligntool.inventory import Fault, Partition, TableCopy, TableCopyState, TableFault
from aligntool.units import Extent, align_down, align_up

# One of the two copies of a GPT, as it is on the disk and as it shall be.
#
# In: a Device and where to look. Out: a copy with its checksums tried; one with other entries, its checksums
# right. Alone because both copies, before, in flight and after, are the same few fields. Offsets: UEFI
# specification 2.10, tables 5-5 (header) and 5-6 (entry).

UNUSED = bytes(16)  # the type GUID of an unused entry

_SIGNATURE = b"EFI PART"
_SHORTEST_HEADER = 92
_LENGTH_AT = 12
_CRC_AT = 16
_PLACES_AT = 24  # this LBA, the other copy's, first usable, last usable
_GUID_AT = 56
_ARRAY_AT = 72  # LBA of the entries, how many, bytes of each
_ENTRIES_CRC_AT = 88
_ENTRY_SIZES = range(128, 4097, 8)
_MOST_ENTRY_BYTES = 4 * 1024 * 1024  # more than which Linux refuses; the usual array has 16 KiB


@dataclass(frozen=True, slots=True)
class GptCopy:
    """Read the header's fields as they stand; the header's own checksum and place were right when it was read."""

    sector_size: int
    header: bytes  # the whole sector
    entries: bytes  # the whole sectors of the array

    @property
    def lba(self) -> int:
        return self._places()[0]

    @property
    def other_lba(self) -> int:
        return self._places()[1]

    @property
    def usable(self) -> Extent:
        """Where partitions may lie, in bytes."""
        _, _, first, last = self._places()
        return Extent(first * self.sector_size, (last - first + 1) * self.sector_size)

    @property
    def disk_guid(self) -> bytes:
        return self.header[_GUID_AT : _GUID_AT + 16]

    @property
    def entry_count(self) -> int:
        return self._array()[1]

    @property
    def entry_size(self) -> int:
        return self._array()[2]

    @property
    def header_extent(self) -> Extent:
        return Extent(self.lba * self.sector_size, self.sector_size)

    @property
    def entries_extent(self) -> Extent:
        return Extent(self._array()[0] * self.sector_size, len(self.entries))

    @property
    def used_bytes(self) -> bytes:
        """The entries without what follows them in their last sector."""
        return self.entries[: self.entry_count * self.entry_size]

    @property
    def sound(self) -> bool:
        """Whether the checksum of the entries is right."""
        (crc,) = struct.unpack_from("<I", self.header, _ENTRIES_CRC_AT)
        return bool(zlib.crc32(self.used_bytes) == crc)

    @property
    def group(self) -> tuple[Sectors, Sectors]:
        return Sectors(self.entries_extent.start, self.entries), Sectors(
            self.header_extent.start, self.header
        )

    def numbered(self) -> Iterator[tuple[int, bytes]]:
        """Every entry that is used, from number 1 on."""
        for number in range(1, self.entry_count + 1):
            at = (number - 1) * self.entry_size
            entry = self.entries[at : at + self.entry_size]
            if entry[:16] != UNUSED:
                yield number, entry

    def with_entries(self, changed: Mapping[int, bytes]) -> "GptCopy":
        """The same copy with these entries; both checksums are computed anew."""
        entries = bytearray(self.entries)
        for number, entry in changed.items():
            at = (number - 1) * self.entry_size
            entries[at : at + self.entry_size] = entry
        header = bytearray(self.header)
        used = self.entry_count * self.entry_size
        struct.pack_into("<I", header, _ENTRIES_CRC_AT, zlib.crc32(entries[:used]))
        struct.pack_into("<I", header, _CRC_AT, _header_crc(header))
        return replace(self, header=bytes(header), entries=bytes(entries))

    def _places(self) -> tuple[int, int, int, int]:
        this, other, first, last = struct.unpack_from("<QQQQ", self.header, _PLACES_AT)
        return this, other, first, last

    def _array(self) -> tuple[int, int, int]:
        lba, count, size = struct.unpack_from("<QII", self.header, _ARRAY_AT)
        return lba, count, size


def read_copy(device: Device, lba: int, sector_size: int) -> GptCopy | None:
    """None where there is no header whose checksum and place are right, or none that makes sense; the checksum of the
    entries is `sound`. Raises OSError where the device cannot be read, nothing for what is there.
    """
    header = read_bytes(device, lba * sector_size, sector_size)
    if header is None or not header.startswith(_SIGNATURE):
        return None
    (length,) = struct.unpack_from("<I", header, _LENGTH_AT)
    (crc,) = struct.unpack_from("<I", header, _CRC_AT)
    if not _SHORTEST_HEADER <= length <= sector_size or crc != _header_crc(header):
        return None
    this, _, first, last = struct.unpack_from("<QQQQ", header, _PLACES_AT)
    array, count, size = struct.unpack_from("<QII", header, _ARRAY_AT)
    if this != lba or last < first or size not in _ENTRY_SIZES or not 0 < count * size <= _MOST_ENTRY_BYTES:
        return None
    entries = read_bytes(device, array * sector_size, align_up(count * size, sector_size))
    return None if entries is None else GptCopy(sector_size, header, entries)


def read_bytes(device: Device, at: int, length: int) -> bytes | None:
    """Bytes anywhere on the device, on its sectors or not; None beyond its end. Raises OSError."""
    start, end = align_down(at, device.sector_size), align_up(at + length, device.sector_size)
    if end > device.size:
        return None
    return bytes(device.read(start, end - start))[at - start : at - start + length]


def _header_crc(header: bytes | bytearray) -> int:
    """Over as many bytes as the header says it has, its own checksum counted as zero."""
    (length,) = struct.unpack_from("<I", header, _LENGTH_AT)
    return zlib.crc32(header[:_CRC_AT] + bytes(4) + header[_CRC_AT + 4 : length])


# One of the two copies of a GPT: a header sector and the array of entries it points to.
#
# Comes in: where to look. Goes out: what is there, checksums tried, nothing believed that was not bounded
# first. Alone because both copies, at any place and for any sector size, are read by the same rules: UEFI
# specification, section 5.3.2, and what the kernel (block/partitions/efi.c, is_gpt_valid) refuses.

SIGNATURE = b"EFI PART"
MOST_ENTRY_BYTES = (
    4 * 1024 * 1024
)  # KMALLOC_MAX_SIZE, more than which Linux refuses; the usual array has 16 KiB


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


def judge_copy(reader: Reader, name: str, lba: int, sector_size: int) -> Copy:
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


# The entries of a GPT: partitions and what is wrong with them.
#
# Comes in: the copy of the table that is believed. Goes out: partitions in bytes, and faults. Alone because
# choosing a copy (`gpt`) and reading one (`gpt_copy`) have nothing to do with what an entry means (UEFI
# specification, 5.3.3).

_UNUSED = bytes(16)
_KERNEL_ENTRY_SIZE = 128
_KERNEL_LAST_NUMBER = 255  # DISK_MAX_PARTS
_FLAGS = {0: "required", 1: "no-block-io", 2: "legacy-boot"}
_BASIC_DATA_FLAGS = {60: "read-only", 61: "shadow-copy", 62: "hidden", 63: "no-automount"}
_LINUX_FLAGS = {
    59: "grow-file-system",
    60: "read-only",
    63: "no-automount",
}  # Discoverable Partitions Specification


def read_entries(copy: Copy) -> tuple[list[Partition], list[TableFault]]:
    """Every used entry. One that ends before it starts holds nothing: it becomes a fault and no partition."""
    partitions: list[Partition] = []
    faults: list[TableFault] = []
    header = copy.header
    if header is None or not copy.entries:
        return partitions, faults
    for at in range(0, len(copy.entries), header.entry_size):
        if copy.entries[at : at + 16] == _UNUSED:
            continue
        number = at // header.entry_size + 1
        first, last = struct.unpack_from("<QQ", copy.entries, at + 32)
        if last < first:
            detail = f"partition {number} starts at sector {first} and ends before that, at sector {last}"
            place = header.entries_lba * copy.sector_size + at
            faults.append(TableFault(Fault.BAD_ENTRY, detail, place, (number,)))
            continue
        extent = Extent(first * copy.sector_size, (last - first + 1) * copy.sector_size)
        partitions.append(_partition(copy.entries[at : at + 128], number, extent))
    return partitions, faults


def _partition(entry: bytes, number: int, extent: Extent) -> Partition:
    type_guid = str(uuid.UUID(bytes_le=entry[:16])).upper()
    type_name = gpt_type_name(type_guid)
    attributes = int.from_bytes(entry[48:56], "little")
    # The name ends at its first NUL; half a surrogate pair is possible on disk and becomes a replacement character.
    name = entry[56:128].decode("utf-16-le", "replace").split("\0", 1)[0]
    return Partition(
        number=number,
        extent=extent,
        type_code=type_guid,
        type_name=type_name,
        name=name or None,
        uuid=str(uuid.UUID(bytes_le=entry[16:32])),
        flags=_flags(attributes, type_guid, type_name),
    )


def _flags(attributes: int, type_guid: str, type_name: str) -> tuple[str, ...]:
    """Bits 48 to 63 belong to the type; where nobody says what one means, its number is given, as sfdisk does."""
    words = dict(_FLAGS)
    if type_guid == BASIC_DATA:
        words |= _BASIC_DATA_FLAGS
    elif type_name.startswith("Linux"):
        words |= _LINUX_FLAGS
    return (
        tuple(words.get(bit, f"guid:{bit}") for bit in range(64) if attributes >> bit & 1)
        if attributes
        else ()
    )


def entry_faults(copy: Copy, other: Copy, partitions: list[Partition], disk_size: int) -> list[TableFault]:
    """What the entries and their number are accused of."""
    header = copy.header
    if header is None:
        return []
    faults = _count_faults(copy, header, partitions)
    faults += overlaps(partitions)
    faults += beyond_end(partitions, disk_size)
    faults += _outside_usable(copy, header, partitions)
    faults += _covering(table_places(copy, other, disk_size), copy.sector_size, partitions)
    dynamic = tuple(item.number for item in partitions if item.type_code in LDM_TYPES)
    if dynamic:
        detail = (
            "this is a Windows dynamic disk: the real volumes are in the LDM database of its metadata partition, not "
            "in this table"
        )
        faults.append(TableFault(Fault.DYNAMIC_DISK, detail, copy.at, dynamic))
    return faults


def _count_faults(copy: Copy, header: Header, partitions: list[Partition]) -> list[TableFault]:
    faults = []
    if header.entry_bytes > MOST_ENTRY_BYTES:
        detail = (
            f"the {copy.name} GPT claims {header.entry_count} entries of {header.entry_size} bytes, more than the "
            f"{MOST_ENTRY_BYTES} bytes that are read; their checksum was not tried"
        )
        faults.append(TableFault(Fault.IMPLAUSIBLE_COUNT, detail, copy.at))
    elif header.entry_size != _KERNEL_ENTRY_SIZE:
        detail = (
            f"the entries of this GPT have {header.entry_size} bytes: UEFI allows it, but Linux reads only tables with "
            f"entries of {_KERNEL_ENTRY_SIZE}"
        )
        faults.append(TableFault(Fault.IMPLAUSIBLE_COUNT, detail, copy.at))
    hidden = tuple(item.number for item in partitions if item.number > _KERNEL_LAST_NUMBER)
    if hidden:
        detail = (
            f"{len(hidden)} partitions have numbers above {_KERNEL_LAST_NUMBER}, which Linux does not show"
        )
        faults.append(TableFault(Fault.IMPLAUSIBLE_COUNT, detail, copy.at, hidden))
    return faults


def _outside_usable(copy: Copy, header: Header, partitions: list[Partition]) -> list[TableFault]:
    if header.last_usable < header.first_usable:
        return []
    size = copy.sector_size
    usable = Extent(header.first_usable * size, (header.last_usable - header.first_usable + 1) * size)
    why = f"this GPT has its usable sectors from {header.first_usable} to {header.last_usable}"
    return [
        TableFault(
            Fault.OUTSIDE_USABLE, f"{_sectors(item, size)}, but {why}", item.extent.start, (item.number,)
        )
        for item in partitions
        if not usable.contains(item.extent)
    ]


def table_places(copy: Copy, other: Copy, disk_size: int) -> tuple[tuple[str, Extent], ...]:
    """Return where both copies of the table are, and where the backup belongs: the end of the disk.

    A header can call these places usable. `copy`: the one that is believed.
    """
    size, header = copy.sector_size, copy.header
    if header is None:
        return ()
    entry_bytes = -(-header.entry_bytes // size) * size
    places = [("the start of the partition table", Extent(0, 2 * size))]
    for one in (copy, other):
        if one.header is not None:
            places.append((f"the {one.name} GPT", Extent(one.at, size)))
            places.append(
                (f"the {one.name} GPT", Extent(one.header.entries_lba * size, one.header.entry_bytes))
            )
    end = disk_size // size * size
    if entry_bytes <= MOST_ENTRY_BYTES and end > entry_bytes + size:
        places.append(("the place of the backup GPT", Extent(end - size - entry_bytes, entry_bytes + size)))
    return tuple(places)


def _covering(
    places: tuple[tuple[str, Extent], ...], size: int, partitions: list[Partition]
) -> list[TableFault]:
    faults = []
    for item in partitions:
        covered = [(what, place) for what, place in places if place.length and item.extent.overlaps(place)]
        if not covered:
            continue
        what, place = max(covered, key=lambda one: one[1].length)
        first, last = place.start // size, place.end // size - 1
        there = f"{what} is at sectors {first} to {last}"
        detail = f"{_sectors(item, size)}, and {there}: a write to either destroys the other"
        faults.append(TableFault(Fault.COVERS_TABLE, detail, place.start, (item.number,)))
    return faults


def _sectors(item: Partition, size: int) -> str:
    first, last = item.extent.start // size, item.extent.end // size - 1
    return f"partition {item.number} is at sectors {first} to {last}"
