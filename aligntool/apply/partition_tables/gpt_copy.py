"""One of the two copies of a GPT, as it is on the disk and as it shall be.

In: a Device and where to look. Out: a copy with its checksums tried; one with other entries, its checksums right. Alone
because both copies, before, in flight and after, are the same few fields. Offsets: UEFI specification 2.10, tables 5-5
(header) and 5-6 (entry).
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from aligntool.apply.device import Device, Sectors
from aligntool.units import Extent, align_down, align_up

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
