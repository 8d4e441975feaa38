"""GPT: headers, entries, checksums and both copies."""

import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from aligntool.device import Device, Sectors
from aligntool.formats.part_types import BASIC_DATA, LDM_TYPES, gpt_type_name
from aligntool.formats.reader import Reader, beyond_end, overlaps, read_or_none
from aligntool.inventory import Fault, Partition, TableCopy, TableCopyState, TableFault, TableLabel
from aligntool.units import Extent, align_down, align_up

# The structures: UEFI specification 2.10, tables 5-5 (header) and 5-6 (entry).

SIGNATURE = b"EFI PART"
MOST_ENTRY_BYTES = 4 * 1024 * 1024  # KMALLOC_MAX_SIZE: Linux refuses more; 16 KiB are usual
_SHORTEST_HEADER = 92
_LENGTH_AND_CRC = struct.Struct("<II")  # of the header, at byte 12
_LENGTH_AT = 12
_CRC_AT = 16
_ENTRIES_CRC_AT = 88
_FIELDS = struct.Struct("<QQQQ16sQIII")
_FIELDS_AT = 24
_ENTRY = struct.Struct("<16s16sQQQ72s")
_ENTRY_SIZES = range(128, 4097, 8)
_UNUSED = bytes(16)  # the type GUID of an unused entry


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of a header as stored, valid or not."""

    own_lba: int
    other_lba: int
    first_usable: int
    last_usable: int
    disk_guid: bytes
    entries_lba: int
    entry_count: int
    entry_size: int
    entries_crc: int

    @classmethod
    def unpack(cls, sector: bytes) -> Self:
        return cls(*_FIELDS.unpack_from(sector, _FIELDS_AT))

    @property
    def entry_bytes(self) -> int:
        return self.entry_count * self.entry_size

    def usable(self, sector_size: int) -> Extent | None:
        """Return the extent in bytes where partitions may lie, or None if the header leaves no sector for
        them.
        """
        count = self.last_usable - self.first_usable + 1
        return Extent(self.first_usable * sector_size, count * sector_size) if count > 0 else None


@dataclass(frozen=True, slots=True)
class GptEntry:
    """An entry in use."""

    number: int  # from 1
    raw: bytes  # in the entry size of the table
    type_guid: bytes
    unique_guid: bytes
    first: int
    last: int  # inclusive
    attributes: int
    raw_name: bytes

    @classmethod
    def unpack(cls, number: int, raw: bytes) -> Self:
        return cls(number, raw, *_ENTRY.unpack_from(raw))

    def pack(self) -> bytes:
        """Return the entry with its current fields; the bytes after them are those of `raw`."""
        fields = (self.type_guid, self.unique_guid, self.first, self.last, self.attributes, self.raw_name)
        return _ENTRY.pack(*fields) + self.raw[_ENTRY.size :]

    @property
    def name(self) -> str:
        """Return the name up to its first NUL; an unpaired surrogate becomes a replacement character."""
        return self.raw_name.decode("utf-16-le", "replace").split("\0", 1)[0]

    def extent(self, sector_size: int) -> Extent:
        return Extent(self.first * sector_size, (self.last - self.first + 1) * sector_size)


def _entries_in_use(entries: bytes, size: int) -> Iterator[GptEntry]:
    for at in range(0, len(entries), size):
        if entries[at : at + 16] != _UNUSED:
            yield GptEntry.unpack(at // size + 1, entries[at : at + size])


def _header_crc(sector: bytes | bytearray) -> int:
    """Return the checksum over the length that the header states, with its own checksum field as zero."""
    (length,) = struct.unpack_from("<I", sector, _LENGTH_AT)
    return zlib.crc32(sector[:_CRC_AT] + bytes(4) + sector[_CRC_AT + 4 : length])


def with_header_crc(sector: bytes | bytearray) -> bytes:
    """Return the sector of a header with its own checksum recomputed."""
    sealed = bytearray(sector)
    struct.pack_into("<I", sealed, _CRC_AT, _header_crc(sealed))
    return bytes(sealed)


def header_crc_is_good(sector: bytes) -> bool:
    """Return whether a whole sector has a header with a valid checksum, whatever the sector size."""
    if len(sector) < _SHORTEST_HEADER or not sector.startswith(SIGNATURE):
        return False
    length, crc = _LENGTH_AND_CRC.unpack_from(sector, _LENGTH_AT)
    return _SHORTEST_HEADER <= length <= len(sector) and bool(_header_crc(sector) == crc)


def _check_header(
    sector: bytes, header: Header, lba: int, last_lba: int | None
) -> tuple[bool, TableCopyState, str]:
    """Return whether the checksum is valid, the state, and why the header is refused, by the rules of UEFI
    section 5.3.2 and is_gpt_valid() in the kernel's block/partitions/efi.c. `last_lba` is the disk's; None:
    not compared.
    """
    malformed = TableCopyState.MALFORMED
    (length,) = struct.unpack_from("<I", sector, _LENGTH_AT)
    if not _SHORTEST_HEADER <= length <= len(sector):
        return False, malformed, f"claims to be {length} bytes long, not 92 to {len(sector)}"
    if not header_crc_is_good(sector):
        return False, TableCopyState.HEADER_CRC_BAD, "has a wrong checksum"
    why = ""
    if header.own_lba != lba:
        why = f"claims to be at sector {header.own_lba}, but it is at sector {lba}"
    elif header.last_usable < header.first_usable:
        why = f"has usable sectors {header.first_usable} to {header.last_usable}, an empty range"
    elif last_lba is not None and header.last_usable > last_lba:
        why = f"has usable sectors up to {header.last_usable}, but the disk's last sector is {last_lba}"
        why = f"{why}, so Linux refuses it"
    elif header.entry_size not in _ENTRY_SIZES:
        why = f"has entries of {header.entry_size} bytes, not 128 to 4096"
    elif not header.entry_count or header.entry_bytes > MOST_ENTRY_BYTES:
        why = f"has {header.entry_count} entries of {header.entry_size} bytes"
    return True, malformed if why else TableCopyState.GOOD, why


# A copy for writing: read from a Device, modified, packed into sectors.


@dataclass(frozen=True, slots=True)
class GptCopy:
    """A copy with a valid header: its checksum, place and sizes were right when it was read."""

    sector_size: int
    sector: bytes  # of the header
    entries: bytes  # the array, in whole sectors
    header: Header

    @property
    def usable(self) -> Extent:
        return self.header.usable(self.sector_size) or Extent(0, 0)  # a valid header leaves a sector

    @property
    def header_extent(self) -> Extent:
        return Extent(self.header.own_lba * self.sector_size, self.sector_size)

    @property
    def entries_extent(self) -> Extent:
        return Extent(self.header.entries_lba * self.sector_size, len(self.entries))

    @property
    def used_bytes(self) -> bytes:
        """Return the entries without the rest of their last sector."""
        return self.entries[: self.header.entry_bytes]

    @property
    def sound(self) -> bool:
        """Return whether the checksum of the entries is valid."""
        return bool(zlib.crc32(self.used_bytes) == self.header.entries_crc)

    @property
    def write_order(self) -> tuple[Sectors, Sectors]:
        return Sectors(self.entries_extent.start, self.entries), Sectors(
            self.header_extent.start, self.sector
        )

    def used_entries(self) -> Iterator[GptEntry]:
        return _entries_in_use(self.used_bytes, self.header.entry_size)

    def with_entries(self, changed: Mapping[int, GptEntry]) -> "GptCopy":
        """Return the copy with these entries, by number, and both checksums recomputed."""
        entries = bytearray(self.entries)
        size = self.header.entry_size
        for number, entry in changed.items():
            entries[(number - 1) * size : number * size] = entry.pack()
        sector = bytearray(self.sector)
        crc = zlib.crc32(entries[: self.header.entry_bytes])
        struct.pack_into("<I", sector, _ENTRIES_CRC_AT, crc)
        sealed = with_header_crc(sector)
        return GptCopy(self.sector_size, sealed, bytes(entries), replace(self.header, entries_crc=crc))


MOST_ENTRIES = _COUNT = _SIZE = 128  # entries and the bytes of one: UEFI 5.3.1


def table_sizes(sector_size: int) -> tuple[int, int]:
    """Return the number of bytes that a new GPT occupies at the start of a disk, with its MBR, and at the
    end.
    """
    copy = align_up(_COUNT * _SIZE, sector_size) + sector_size
    return sector_size + copy, copy


def ends_of_table(label: TableLabel | None, sector_size: int) -> tuple[int, int]:
    """Return how many bytes a table takes at the start and at the end of a disk, beside its partitions."""
    return table_sizes(sector_size) if label is TableLabel.GPT else (sector_size, 0)


def new_copy(
    sector_size: int,
    own: int,
    other: int,
    entries_lba: int,
    usable: Extent,
    disk_guid: bytes,
    used: Iterable[GptEntry],
) -> GptCopy:
    """Return one copy of a new GPT, with 128 entries. `own`, `other`: LBAs of both headers; `usable`: in
    bytes.
    """
    sector = bytearray(sector_size)
    struct.pack_into("<8sIII", sector, 0, SIGNATURE, 0x00010000, _SHORTEST_HEADER, 0)
    first, last = usable.start // sector_size, usable.end // sector_size - 1
    _FIELDS.pack_into(sector, _FIELDS_AT, own, other, first, last, disk_guid, entries_lba, _COUNT, _SIZE, 0)
    array = bytes(align_up(_COUNT * _SIZE, sector_size))
    empty = GptCopy(sector_size, bytes(sector), array, Header.unpack(bytes(sector)))
    return empty.with_entries({entry.number: entry for entry in used})


def new_pair(
    sectors: int, sector_size: int, disk_guid: bytes, entry: tuple[bytes, bytes, Extent, str]
) -> tuple[GptCopy, GptCopy]:
    """Return the primary and the backup copy of a new GPT with one partition: `entry` is its type GUID,
    unique GUID, extent and name.
    """
    head, tail = table_sizes(sector_size)
    last = sectors - 1
    type_guid, unique, extent, name = entry
    first = extent.start // sector_size
    end = extent.end // sector_size - 1
    partition = GptEntry(1, bytes(_SIZE), type_guid, unique, first, end, 0, name.encode("utf-16-le"))
    usable = Extent(head, sectors * sector_size - tail - head)
    primary, backup = (
        new_copy(sector_size, *lbas, usable, disk_guid, (partition,))
        for lbas in ((1, last, 2), (last, 1, sectors - tail // sector_size))
    )
    return primary, backup


def read_copy(device: Device, lba: int, sector_size: int) -> GptCopy | None:
    """Return the copy at `lba`, or None if its header is not valid; `sound` is the checksum of the entries.

    Raises OSError if the device cannot be read; no content of the disk raises anything.
    """
    sector = read_bytes(device, lba * sector_size, sector_size)
    if sector is None or not sector.startswith(SIGNATURE):
        return None
    header = Header.unpack(sector)
    if _check_header(sector, header, lba, None)[1] is not TableCopyState.GOOD:
        return None
    entries = read_bytes(device, header.entries_lba * sector_size, align_up(header.entry_bytes, sector_size))
    return None if entries is None else GptCopy(sector_size, sector, entries, header)


def read_bytes(device: Device, at: int, length: int) -> bytes | None:
    """Return bytes at any offset, aligned to sectors or not; None outside of the device. Raises OSError."""
    start, end = align_down(at, device.sector_size), align_up(at + length, device.sector_size)
    if start < 0 or end > device.size:
        return None
    return bytes(device.read(start, end - start))[at - start : at - start + length]


# A copy for the audit, however damaged it is.


@dataclass(frozen=True, slots=True)
class CheckedCopy:
    """The state of one copy of a GPT."""

    name: str
    lba: int
    sector_size: int
    state: TableCopyState
    why: str = ""  # what is wrong, to follow "the primary GPT header at sector 1"
    header: Header | None = None  # as stored, valid or not; None: no signature, or unreadable
    header_crc_good: bool = False
    entries: bytes = b""  # at most MOST_ENTRY_BYTES, whole entries only

    @property
    def at(self) -> int:
        return self.lba * self.sector_size

    @property
    def is_good(self) -> bool:
        return self.state is TableCopyState.GOOD

    def summary(self) -> TableCopy:
        return TableCopy(self.name, self.at, self.state)


def check_copy(reader: Reader, name: str, lba: int, sector_size: int) -> CheckedCopy:
    """Return the copy at `lba` and its state."""
    sector = read_or_none(reader, lba * sector_size, sector_size)
    if sector is None:
        return CheckedCopy(name, lba, sector_size, TableCopyState.UNREADABLE, "cannot be read: I/O error")
    if len(sector) < sector_size or not sector.startswith(SIGNATURE):
        return CheckedCopy(name, lba, sector_size, TableCopyState.MISSING, "is not there")
    header = Header.unpack(sector)
    crc_good, state, why = _check_header(sector, header, lba, reader.size // sector_size - 1)
    entries = b""
    if header.entry_size in _ENTRY_SIZES:
        count = min(header.entry_count, MOST_ENTRY_BYTES // header.entry_size)
        found = read_or_none(reader, header.entries_lba * sector_size, count * header.entry_size)
        entries = (found or b"")[: len(found or b"") // header.entry_size * header.entry_size]
        if state is TableCopyState.GOOD:
            state, why = _check_entries(found, header)
    return CheckedCopy(name, lba, sector_size, state, why, header, crc_good, entries)


def former_backups(reader: Reader, content: bytes, at: int, used: CheckedCopy) -> Iterator[Extent]:
    """Yield the extents of valid backups of a GPT that are in `content`, which begins at byte `at`, and to
    which its primary copy does not lead: `sgdisk -e` leaves one where the disk ended before it was copied to
    a larger one. Only those with the entries of the primary copy, byte for byte: nothing is lost with them.
    """
    if used.header is None or not used.is_good:
        return
    size = used.sector_size
    place = content.find(SIGNATURE)
    while place >= 0:
        lba, inside = divmod(at + place, size)
        place = content.find(SIGNATURE, place + 1)
        if inside:
            continue
        copy = check_copy(reader, "former backup", lba, size)
        header = copy.header
        if header is None or not copy.is_good or header.disk_guid != used.header.disk_guid:
            continue
        entries = Extent(header.entries_lba * size, align_up(header.entry_bytes, size))
        is_backup = entries.end == copy.at and header.own_lba != used.header.other_lba
        if is_backup and copy.entries == used.entries:
            yield Extent(entries.start, entries.length + size)


def _check_entries(found: bytes | None, header: Header) -> tuple[TableCopyState, str]:
    place = f"has entries at sector {header.entries_lba}"
    if found is None:
        return TableCopyState.UNREADABLE, f"{place} that cannot be read: I/O error"
    if len(found) < header.entry_bytes:
        return TableCopyState.ENTRIES_CRC_BAD, f"{place} that lie beyond the end of the disk"
    if zlib.crc32(found) != header.entries_crc:
        return TableCopyState.ENTRIES_CRC_BAD, f"{place} with a wrong checksum"
    return TableCopyState.GOOD, ""


# Entries (UEFI section 5.3.3) to partitions in bytes, and their faults.

_KERNEL_ENTRY_SIZE = 128
_FLAGS = {0: "required", 1: "no-block-io", 2: "legacy-boot"}
_BASIC_DATA_FLAGS = {60: "read-only", 61: "shadow-copy", 62: "hidden", 63: "no-automount"}
# Discoverable Partitions Specification
_LINUX_FLAGS = {59: "grow-file-system", 60: "read-only", 63: "no-automount"}


def read_entries(copy: CheckedCopy) -> tuple[list[Partition], list[TableFault]]:
    """Return the partitions of all entries in use. An entry that ends before it starts is a fault, not a
    partition.
    """
    partitions: list[Partition] = []
    faults: list[TableFault] = []
    header = copy.header
    if header is None or not copy.entries:
        return partitions, faults
    for entry in _entries_in_use(copy.entries, header.entry_size):
        if entry.last >= entry.first:
            partitions.append(_partition(entry, copy.sector_size))
            continue
        detail = (
            f"partition {entry.number} starts at sector {entry.first} and ends before that, at sector"
            f" {entry.last}"
        )
        place = header.entries_lba * copy.sector_size + (entry.number - 1) * header.entry_size
        faults.append(TableFault(Fault.BAD_ENTRY, detail, place, (entry.number,)))
    return partitions, faults


def _partition(entry: GptEntry, sector_size: int) -> Partition:
    type_guid = str(uuid.UUID(bytes_le=entry.type_guid)).upper()
    type_name = gpt_type_name(type_guid)
    return Partition(
        number=entry.number,
        extent=entry.extent(sector_size),
        type_code=type_guid,
        type_name=type_name,
        name=entry.name or None,
        uuid=str(uuid.UUID(bytes_le=entry.unique_guid)),
        flags=_flags(entry.attributes, type_guid, type_name),
    )


def _flags(attributes: int, type_guid: str, type_name: str) -> tuple[str, ...]:
    """Return the names of the attribute bits that are set. Bits 48 to 63 depend on the type; a bit without a
    name is shown by its number, as in sfdisk.
    """
    own = _LINUX_FLAGS if type_name.startswith("Linux") else {}
    words = _FLAGS | (_BASIC_DATA_FLAGS if type_guid == BASIC_DATA else own)
    return tuple(words.get(bit, f"guid:{bit}") for bit in range(64) if attributes >> bit & 1)


def entry_faults(
    copy: CheckedCopy, other: CheckedCopy, partitions: list[Partition], disk_size: int
) -> list[TableFault]:
    """Return the faults of the entries, of their number and size, and of their places."""
    header = copy.header
    if header is None:
        return []
    count = header.entry_count
    size = header.entry_size
    counts: list[str] = []
    if header.entry_bytes > MOST_ENTRY_BYTES:
        most = f"more than the {MOST_ENTRY_BYTES} bytes that are read; their checksum was not verified"
        counts.append(f"the {copy.name} GPT claims {count} entries of {size} bytes, {most}")
    elif size != _KERNEL_ENTRY_SIZE:
        only = f"UEFI allows it, but Linux reads only tables with entries of {_KERNEL_ENTRY_SIZE}"
        counts.append(f"the entries of this GPT have {size} bytes: {only}")
    hides = size != _KERNEL_ENTRY_SIZE
    faults = [TableFault(Fault.IMPLAUSIBLE_COUNT, detail, copy.at, hides=hides) for detail in counts]
    faults += overlaps(partitions) + beyond_end(partitions, disk_size)
    faults += _outside_usable(copy, header, partitions)
    faults += _covering_table(table_places(copy, other, disk_size), copy.sector_size, partitions)
    dynamic = tuple(item.number for item in partitions if item.type_code in LDM_TYPES)
    if dynamic:
        where = "in the LDM database of its metadata partition, not in this table"
        detail = f"this is a Windows dynamic disk: the real volumes are {where}"
        faults.append(TableFault(Fault.DYNAMIC_DISK, detail, copy.at, dynamic))
    return faults


def _outside_usable(copy: CheckedCopy, header: Header, partitions: list[Partition]) -> list[TableFault]:
    size = copy.sector_size
    usable = header.usable(size)
    why = f"the usable sectors of this GPT are {header.first_usable} to {header.last_usable}"
    return [
        TableFault(
            Fault.OUTSIDE_USABLE, f"{_sectors(item, size)}, but {why}", item.extent.start, (item.number,)
        )
        for item in partitions
        if usable and not usable.contains(item.extent)
    ]


def table_places(copy: CheckedCopy, other: CheckedCopy, disk_size: int) -> tuple[tuple[str, Extent], ...]:
    """Return the extents of both copies of the table, and the extent at the end of the disk where the backup
    belongs.

    A header can declare these extents usable. `copy` is the one in use.
    """
    size = copy.sector_size
    header = copy.header
    if header is None:
        return ()
    entry_bytes = align_up(header.entry_bytes, size)
    places = [("the start of the partition table", Extent(0, 2 * size))]
    for item in (copy, other):
        if item.header is not None:
            places.append((f"the {item.name} GPT", Extent(item.at, size)))
            places.append(
                (f"the {item.name} GPT", Extent(item.header.entries_lba * size, item.header.entry_bytes))
            )
    end = disk_size // size * size
    if entry_bytes <= MOST_ENTRY_BYTES and end > entry_bytes + size:
        places.append(("the place of the backup GPT", Extent(end - size - entry_bytes, entry_bytes + size)))
    return tuple(places)


def _covering_table(
    places: tuple[tuple[str, Extent], ...], size: int, partitions: list[Partition]
) -> list[TableFault]:
    faults = []
    for item in partitions:
        covered = [(what, place) for what, place in places if place.length and item.extent.overlaps(place)]
        if not covered:
            continue
        what, place = max(covered, key=lambda pair: pair[1].length)
        there = f"{what} is at sectors {place.start // size} to {place.end // size - 1}"
        detail = f"{_sectors(item, size)}, and {there}: a write to either destroys the other"
        faults.append(TableFault(Fault.COVERS_TABLE, detail, place.start, (item.number,)))
    return faults


def _sectors(item: Partition, size: int) -> str:
    return (
        f"partition {item.number} is at sectors {item.extent.start // size} to {item.extent.end // size - 1}"
    )
