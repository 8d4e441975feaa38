"""A disk of any size as a few hundred bytes of input.

The bytes that a fuzzer changes become a disk that is zero but for some pieces. Every input is a valid disk, so no
change is wasted on the format itself, and a 16 MiB image with a superblock at each end is an input of one KiB.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from aligntool.formats.reader import LONGEST_READ
from aligntool.units import Extent

_HEAD = struct.Struct("<BQQ")  # choices, size of the disk, start of the container
_PIECE = struct.Struct("<QH")  # its place and its length
_SECTOR_SIZES = (512, None, 4096, 512, 2048, None, 1024, 4096)
LARGEST = (1 << 63) - 1  # loff_t: no kernel shows a larger device
LONGEST_PIECE = 0xFFFF
BEYOND = 64 << 20

SECTOR_SIZE_BITS, IS_DRIVE, HAS_BAD_SECTOR, IS_CUT_SHORT = 0x07, 0x20, 0x40, 0x80


@dataclass(frozen=True, slots=True)
class Piece:
    at: int
    content: bytes

    @property
    def end(self) -> int:
        return self.at + len(self.content)


@dataclass(frozen=True, slots=True)
class SparseDisk:
    size: int
    pieces: tuple[Piece, ...]
    start: int = 0  # of the container in which layers are looked for
    choices: int = 0

    @property
    def sector_size(self) -> int | None:
        return _SECTOR_SIZES[self.choices & SECTOR_SIZE_BITS]

    @property
    def container(self) -> Extent:
        """Return the extent from `start` to the end of the disk, or (IS_CUT_SHORT) far beyond it, as on a truncated
        image.
        """
        length = max(self.size - self.start, 0)
        return Extent(self.start, length + BEYOND if self.choices & IS_CUT_SHORT else length)

    def reader(self) -> "SparseReader":
        bad = self.pieces[-1] if self.pieces and self.choices & HAS_BAD_SECTOR else None
        return SparseReader(self.size, _laid_out(self.pieces), bad)

    def encoded(self) -> bytes:
        head = _HEAD.pack(self.choices & 0xFF, self.size & LARGEST, self.start & LARGEST)
        parts = (
            Piece(piece.at + at, piece.content[at : at + LONGEST_PIECE])
            for piece in self.pieces
            for at in range(0, len(piece.content) or 1, LONGEST_PIECE)
        )
        return head + b"".join(_PIECE.pack(part.at & LARGEST, len(part.content)) + part.content for part in parts)

    def with_bytes(self, at: int, content: bytes) -> "SparseDisk":
        """Write these bytes at this place, inside the piece that covers it or as a new piece."""
        for index, piece in enumerate(self.pieces):
            if piece.at <= at and at + len(content) <= piece.end:
                into = at - piece.at
                changed = piece.content[:into] + content + piece.content[into + len(content) :]
                pieces = (*self.pieces[:index], Piece(piece.at, changed), *self.pieces[index + 1 :])
                return replace(self, pieces=pieces)
        return replace(self, pieces=(*self.pieces, Piece(at, content)))


def decode(data: bytes) -> SparseDisk:
    """Decode any bytes: what is missing is zero, and the last piece is as long as there are bytes."""
    choices, size, start = _HEAD.unpack(data[: _HEAD.size].ljust(_HEAD.size, b"\0"))
    pieces, at = [], _HEAD.size
    while at + _PIECE.size < len(data):
        place, length = _PIECE.unpack_from(data, at)
        at += _PIECE.size
        pieces.append(Piece(place & LARGEST, data[at : at + length]))
        at += length
    return SparseDisk(size & LARGEST, tuple(pieces), start & LARGEST, choices)


def of_pieces(size: int, pieces: Iterable[tuple[int, bytes]], *, start: int = 0, choices: int = 0) -> SparseDisk:
    """Encode only what is not zero, so that a megabyte of zeros between two sectors costs nothing."""
    kept = [Piece(at + begin, run) for at, content in pieces for begin, run in _runs(content)]
    return SparseDisk(size, tuple(kept), start, choices)


def _runs(content: bytes, grain: int = 64) -> list[tuple[int, bytes]]:
    """Return the parts of `content` that are not zero, in steps of `grain`; neighbours are joined."""
    runs: list[tuple[int, bytearray]] = []
    for at in range(0, len(content), grain):
        part = content[at : at + grain]
        if not any(part):
            continue
        if runs and at <= runs[-1][0] + len(runs[-1][1]) + grain and len(runs[-1][1]) < LONGEST_PIECE // 2:
            begin, run = runs[-1]
            run += bytes(at - begin - len(run)) + part
        else:
            runs.append((at, bytearray(part)))
    return [(at, bytes(run)) for at, run in runs]


def _laid_out(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Sort by place, so that a read finds its pieces; where two overlap, the later one in that order wins."""
    return tuple(sorted((piece for piece in pieces if piece.content), key=lambda piece: piece.at))


class TooMuchRead(AssertionError):
    """A parser read more than any real disk requires."""


@dataclass(slots=True)
class SparseReader:
    """A reader that counts what is read, and fails like a bad medium in `bad`."""

    size: int
    pieces: tuple[Piece, ...]
    bad: Piece | None = None
    most_bytes: int | None = None
    bytes_read: int = 0
    requests: int = 0
    _starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._starts = [piece.at for piece in self.pieces]

    def read(self, offset: int, length: int) -> bytes:
        self.requests += 1
        if offset < 0:
            return b""
        wanted = min(length, self.size - offset, LONGEST_READ)
        if wanted <= 0:
            return b""
        if self.bad and offset < self.bad.end and self.bad.at < offset + wanted:
            raise OSError(5, "Input/output error")
        self.bytes_read += wanted
        if self.most_bytes is not None and self.bytes_read > self.most_bytes:
            raise TooMuchRead(f"{self.bytes_read} bytes in {self.requests} requests")
        found = bytearray(wanted)
        for piece in self.pieces[: bisect_right(self._starts, offset + wanted - 1)]:
            begin, end = max(piece.at, offset), min(piece.end, offset + wanted)
            if begin < end:
                found[begin - offset : end - offset] = piece.content[begin - piece.at : end - piece.at]
        return bytes(found)
