"""One container as its parsers see it: a run of bytes that starts at zero and ends where the container ends.

In: a reader of the whole disk and the place of a partition on it. Out: bytes by relative offset, and the
numbers, texts and identifiers in them. It is alone because every parser needs it and none may fail on what it
finds: a field beyond the end of the bytes reads as zero, a text that is not text reads as replacement
characters, and nothing here raises but the reader itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

from aligntool.inventory import Layer
from aligntool.probe.reader import Reader
from aligntool.units import KIB, Extent

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
