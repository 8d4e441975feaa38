"""Positions inside a partition, and the checksums of superblocks."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from aligntool.formats.reader import Reader
from aligntool.inventory import Layer
from aligntool.units import KIB, Extent

# One container as its parsers see it: a run of bytes that starts at zero and ends where the container ends.
#
# In: a reader of the whole disk and the place of a partition on it. Out: bytes by relative offset, and the
# numbers, texts and identifiers in them. It is alone because every parser needs it and none may fail on what
# it finds: a field beyond the end of the bytes reads as zero, a text that is not text reads as replacement
# characters, and nothing here raises but the reader itself.

HEAD = 68 * KIB  # the farthest superblock at a fixed place is btrfs's: 4 KiB at 64 KiB
TAIL = 132 * KIB  # md 0.90 lies up to 128 KiB before the end, the older DDF anchor 257 sectors

DAMAGED = "checksum"  # the word that only the sentence of a failed superblock checksum begins with


@dataclass(frozen=True, slots=True)
class Area:
    reader: Reader
    extent: Extent
    sector_size: int
    head: bytes
    tail: bytes
    inside: Callable[[Reader, Extent], tuple[Layer, ...]]  # look for layers in a part of this one

    @property
    def start(self) -> int:
        return self.extent.start

    @property
    def size(self) -> int:
        return self.extent.length

    @property
    def is_whole(self) -> bool:
        """Whether this is the whole disk (or a whole image file) and not a part of it."""
        return self.start == 0 and self.extent.end >= self.reader.size

    @property
    def ends_with_a_partition(self) -> bool:
        """Whether what lies at this end may belong to a last partition that ends where the disk ends."""
        table = self.head[510:512] == b"\x55\xaa" or b"EFI PART" in (self.head[512:520], self.head[4096:4104])
        return self.is_whole and table

    def read(self, offset: int, length: int) -> bytes:
        """Bytes by offset from the container's start: fewer, or none, where the container ends."""
        length = min(length, self.size - offset)
        if offset < 0 or length <= 0:
            return b""
        if offset + length <= len(self.head):
            return self.head[offset : offset + length]
        into_tail = offset - (self.size - len(self.tail))
        if into_tail >= 0 and self.tail:
            return self.tail[into_tail : into_tail + length]
        return self.reader.read(self.start + offset, length)


def open_area(
    reader: Reader, extent: Extent, sector_size: int, inside: Callable[[Reader, Extent], tuple[Layer, ...]]
) -> Area:
    """Both ends are read once and at once; nearly every signature lies there."""
    head = reader.read(extent.start, min(HEAD, extent.length))
    tail_start = max(extent.length - TAIL, 0)
    tail = reader.read(extent.start + tail_start, extent.length - tail_start)
    if len(tail) < extent.length - tail_start:
        tail = b""  # the disk ends before the container does: what lies at its end is not the container's end
    return Area(reader, extent, sector_size, head, tail, inside)


def le16(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 2], "little")


def le32(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 4], "little")


def le64(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")


def be16(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 2], "big")


def be32(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 4], "big")


def be64(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "big")


def text_at(data: bytes, offset: int, length: int, encoding: str = "utf-8") -> str | None:
    """A label as blkid reads it: up to the first NUL, without the blanks around it. None when nothing is left."""
    raw = data[offset : offset + length]
    if encoding.startswith("utf-16"):
        raw = raw[: len(raw) & ~1]
    return raw.decode(encoding, "replace").split("\0", 1)[0].strip(" \t\n\r\v\f") or None


def uuid_at(data: bytes, offset: int) -> str | None:
    """Sixteen bytes in the order they are stored, as ext4, XFS, md and most others do. None when all are zero."""
    raw = data[offset : offset + 16]
    return _dashed(raw) if len(raw) == 16 and any(raw) else None


def guid_at(data: bytes, offset: int) -> str | None:
    """Sixteen bytes of a Microsoft GUID: the first three fields are little endian."""
    raw = data[offset : offset + 16]
    if len(raw) < 16 or not any(raw):
        return None
    return _dashed(raw[3::-1] + raw[5:3:-1] + raw[7:5:-1] + raw[8:])


def _dashed(raw: bytes) -> str:
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def serial_at(data: bytes, offset: int) -> str:
    """The volume serial number of FAT and exFAT, as blkid and Windows write it."""
    number = le32(data, offset)
    return f"{number >> 16:04X}-{number & 0xFFFF:04X}"


def checksum_problem(of: str, stored: int | str, computed: int | str) -> tuple[str, ...]:
    """The sentence for a checksum that does not fit, or nothing when it does."""
    if stored == computed:
        return ()
    if isinstance(stored, int) and isinstance(computed, int):
        return (f"{DAMAGED} of {of} is bad: {stored:#x} is stored, {computed:#x} computed",)
    return (f"{DAMAGED} of {of} is bad: {stored} is stored, {computed} computed",)


def is_damaged(layer: Layer) -> bool:
    return any(problem.startswith(DAMAGED) for problem in layer.problems)


# The checksums that superblocks carry and Python's library lacks.
#
# In: a few KiB of bytes. Out: a number to compare with the stored one. Tables are made at the first use, so
# that an audit that needs none pays for none.

CASTAGNOLI = 0x82F63B78  # CRC-32C, reflected
ECMA_182 = 0x42F0E1EBA9EA3693  # CRC-64, not reflected
_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF


@cache
def _crc32c_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (CASTAGNOLI if remainder & 1 else 0)
        table.append(remainder)
    return tuple(table)


@cache
def _crc64_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        remainder = byte << 56
        for _ in range(8):
            remainder = remainder << 1 & _MASK64 ^ (ECMA_182 if remainder >> 63 else 0)
        table.append(remainder)
    return tuple(table)


def crc32c(data: bytes, seed: int = _MASK32) -> int:
    """CRC-32C without the final inversion, as ext4 stores it; btrfs and XFS store the inverse."""
    table = _crc32c_table()
    crc = seed
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc


def crc32c_inverted(data: bytes) -> int:
    return crc32c(data) ^ _MASK32


def crc32_seeded(data: bytes, seed: int) -> int:
    """CRC-32 from a start value of one's own and without inversions: LVM (0xf597a6cf) and f2fs (0xf2f52010)."""
    return zlib.crc32(data, seed ^ _MASK32) ^ _MASK32


def crc64(data: bytes) -> int:
    """CRC-64/WE: bcache's."""
    table = _crc64_table()
    crc = _MASK64
    for byte in data:
        crc = crc << 8 & _MASK64 ^ table[crc >> 56 ^ byte]
    return crc ^ _MASK64


def folded_sum(data: bytes, order: Literal["little", "big"] = "little") -> int:
    """md's: 32-bit words, and a last half-word as a number, summed up, the carries added once."""
    total = sum(int.from_bytes(data[at : at + 4], order) for at in range(0, len(data), 4))
    return ((total & _MASK32) + (total >> 32)) & _MASK32


def fletcher64(data: bytes) -> int:
    """APFS's: Apple File System Reference, Object Checksum."""
    low = high = 0
    for at in range(0, len(data) & ~3, 4):
        low += int.from_bytes(data[at : at + 4], "little")
        high += low
    first = ~((low + high) % _MASK32) & _MASK32
    second = ~((low + first) % _MASK32) & _MASK32
    return second << 32 | first


def rotating_sum(data: bytes, skipped: tuple[int, ...]) -> int:
    """exFAT's boot checksum: specification 3.4. `skipped` are the bytes that change while mounted."""
    total = 0
    for at, byte in enumerate(data):
        if at not in skipped:
            total = ((total & 1) << 31) + (total >> 1) + byte & _MASK32
    return total


_XXH = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def xxh64(data: bytes) -> int:
    """xxHash, 64 bits, seed 0 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md): btrfs's second checksum."""
    one, two, _, four, five = _XXH
    total = five
    striped = len(data) & ~31
    if striped:
        lanes = [(one + two) & _MASK64, two, 0, -one & _MASK64]
        for at in range(0, striped, 32):
            lanes = [_xxh_round(lane, _le64(data, at + 8 * index)) for index, lane in enumerate(lanes)]
        total = sum(_rotated(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK64
        for lane in lanes:
            total = ((total ^ _xxh_round(0, lane)) * one + four) & _MASK64
    total = (total + len(data)) & _MASK64
    for at in range(striped, len(data) - 7, 8):
        total = (_rotated(total ^ _xxh_round(0, _le64(data, at)), 27) * one + four) & _MASK64
    return _xxh_end(total, data[len(data) & ~7 :])


def _xxh_end(total: int, rest: bytes) -> int:
    one, two, three, _, five = _XXH
    if len(rest) >= 4:
        total = (
            _rotated(total ^ int.from_bytes(rest[:4], "little") * one & _MASK64, 23) * two + three
        ) & _MASK64
        rest = rest[4:]
    for byte in rest:
        total = _rotated(total ^ byte * five & _MASK64, 11) * one & _MASK64
    total = (total ^ total >> 33) * two & _MASK64
    total = (total ^ total >> 29) * three & _MASK64
    return total ^ total >> 32


def _xxh_round(lane: int, word: int) -> int:
    return _rotated((lane + word * _XXH[1]) & _MASK64, 31) * _XXH[0] & _MASK64


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> 64 - bits) & _MASK64


def _le64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")
