"""Mutations of a disk or a text that leave most of it valid, so that they reach deep code.

An input is mutated with a source of random numbers and, if a guided engine runs, with its own byte mutations. Numbers
are replaced by those that break programs, at the places where formats store numbers.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from tests.fuzz.checksums import fix_checksums
from tests.fuzz.machine import FILES, PLACES, Edit, decode_edits
from tests.fuzz.sparse import LONGEST_PIECE, Piece, SparseDisk, decode

MOST_PIECES = 48
Change = Callable[[bytes, int], bytes]  # the engine's: these bytes, at most this many

_EDGES = (0, 1, 2, 3, 7, 8, 0x7F, 0x80, 0xFF, 0x100, 512, 4096, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 1 << 20,
          (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 44, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
_ODD = (b'"', b"{", b"}", b"[", b"]", b",", b"\\", b"\n", b"#", b"\xff", b"0x", b"-", b"1e9", b"null")
_DIGITS = re.compile(rb"\d+")
_LONG = 1 << 16  # bytes
_WORDS = re.compile(rb"[A-Za-z0-9_]+|\"[^\"\n]*\"|[{}\[\]=,:]")
_TEXT = frozenset(range(0x20, 0x7F)) | frozenset(b"\t\n\r")


@dataclass(frozen=True, slots=True)
class Mutator:
    random: Random
    change: Change

    def disk(self, data: bytes, most: int) -> bytes:
        """Apply one to four changes; then, in three of four cases, fix the checksums."""
        disk = decode(data)
        for _ in range(self.random.choice((1, 1, 1, 2, 2, 4))):
            disk = self._changed(disk)
        if self.random.random() < 0.75:
            disk = fix_checksums(disk)
        encoded = disk.encoded()
        return encoded if len(encoded) <= most else data[:most]

    def text(self, data: bytes, most: int) -> bytes:
        changed = self.words(data) if self.random.random() < 0.7 else self.change(data, most)
        return changed[:most]

    def raw(self, data: bytes, most: int) -> bytes:
        """Change pages of fixed length: half the time a number at an even place, else a mutation of the engine."""
        return (self.numbers(data) if self.random.random() < 0.5 else self.change(data, most))[:most]

    def edits(self, data: bytes, most: int) -> bytes:
        """Change a captured tree: another file, another content, a link or nothing in its place."""
        edits = decode_edits(data) or [Edit(0, 0, b"")]
        index = self.random.randrange(len(edits))
        edit = edits[index]
        match self.random.randrange(8):
            case 0:
                edit = replace(edit, index=self.random.randrange(len(PLACES)))
            case 1:
                edit = replace(edit, kind=self.random.randrange(16))
            case 2:
                place = self.random.choice(PLACES)
                target = self.random.choice(("/", "..", "../..", place, place.rpartition("/")[0], "/etc/passwd"))
                edit = replace(edit, kind=13, content=target.encode())
            case 3:
                other = self.random.randrange(len(PLACES))
                edits.append(Edit(other, 0, self.words(FILES.get(PLACES[other], b"1"))))
            case _:
                change = self.random.choice((self.words, self.numbers, lambda text: self.change(text, 512)))
                edit = replace(edit, content=change(edit.content))
        edits[index] = edit
        return b"".join(edit.encoded() for edit in edits)[:most]

    def _changed(self, disk: SparseDisk) -> SparseDisk:
        kind = self.random.randrange(16)
        if kind == 0:
            return replace(disk, size=self._size(disk))
        if kind == 1:
            return replace(disk, start=self.random.choice((0, 512, 32256, 1 << 20, max(disk.size - 4096, 0))))
        if kind == 2:
            return replace(disk, choices=self.random.randrange(256) & self.random.choice((0xFF, 0x27)))
        if not disk.pieces:
            return disk.with_bytes(0, self.change(b"\0" * 64, 512))
        index = self.random.randrange(len(disk.pieces))
        piece = disk.pieces[index]
        if kind == 3:
            return _without(disk, index)
        if kind == 4 and len(disk.pieces) < MOST_PIECES:
            return replace(disk, pieces=(*disk.pieces, Piece(self._place(disk), piece.content)))
        if kind == 5:
            return _with(disk, index, Piece(self._place(disk), piece.content))
        return _with(disk, index, Piece(piece.at, self._content(piece.content)))

    def _content(self, content: bytes) -> bytes:
        kind = self.random.randrange(8)
        if kind < 2 and _is_text(content):
            return self.words(content)[:LONGEST_PIECE]
        if kind < 6:
            return self.numbers(content)
        return self.change(content, min(max(2 * len(content), 64), LONGEST_PIECE))

    def _size(self, disk: SparseDisk) -> int:
        """Return a size that is larger, smaller, or ends inside a structure."""
        piece = self.random.choice(disk.pieces) if disk.pieces else Piece(0, b"\0")
        inside = piece.at + self.random.randrange(1, min(len(piece.content), 512) + 1) if piece.content else 0
        sizes = (disk.size - 512, disk.size + 4096, disk.size // 2, 2 * disk.size, inside, inside)
        return self.random.choice((*sizes, 65536, 1 << 20, 1440 << 10, 1 << 31, 1 << 45, -1)) & (1 << 63) - 1

    def _place(self, disk: SparseDisk) -> int:
        """Return a place where formats store structures: from the start of the disk, the container or a piece, or from
        the end.
        """
        step = self.random.choice((0, 512, 1024, 4096, 8192, 16384, 65536, 1 << 20))
        base = self.random.choice((0, disk.start, disk.size - 2 * step, self.random.choice(disk.pieces).at))
        return max(base + step, 0) & (1 << 63) - 1

    def numbers(self, content: bytes) -> bytes:
        """Change a field of 1, 2, 4 or 8 bytes at a multiple of its length, in either byte order."""
        if not content:
            return content
        width = self.random.choice((1, 2, 2, 4, 4, 4, 8))
        at = self.random.randrange(len(content)) & -width
        order = self.random.choice(("little", "little", "big"))
        old = int.from_bytes(content[at : at + width], "little" if order == "little" else "big")
        new = self.random.choice((
            self.random.choice(_EDGES), self.random.choice(_EDGES), old + 1, old - 1, 2 * old, old // 2,
            old ^ 1 << self.random.randrange(8 * width), self.random.getrandbits(8 * width),
        ))  # fmt: skip
        raw = (new & (1 << 8 * width) - 1).to_bytes(width, "little" if order == "little" else "big")
        return content[:at] + raw[: len(content) - at] + content[at + width :]

    def words(self, content: bytes) -> bytes:
        """Change a text: another number, a word doubled, a word removed, two words swapped, a stretch repeated."""
        pattern = _DIGITS if self.random.random() < 0.4 else _WORDS
        words = self._two_words(pattern, content)
        if not words:
            return self.change(content, len(content) + 64)
        one, two = words
        begin, end = one.span()
        match self.random.randrange(6):
            case 0 | 1 if pattern is _DIGITS:
                number = str(self.random.choice((*_EDGES, -1, 10**19, 10**60, int(one.group()[:18]) + 1)))
                return content[:begin] + number.encode() + content[end:]
            case 2:
                return content[:begin] + content[end:]
            case 3:
                first, last = sorted((one.start(), two.end()))
                return content[:last] + content[first:last] + content[last:]
            case 4:
                return content[:begin] + two.group() + content[end:]
            case _:
                return content[:end] + self.random.choice(_ODD) + content[end:]

    def _two_words(self, pattern: re.Pattern[bytes], content: bytes) -> tuple[re.Match[bytes], re.Match[bytes]] | None:
        """Draw two words. Those of a long text are not all found first: a million of them takes seconds."""
        if len(content) <= _LONG:
            found = list(pattern.finditer(content))
            return (self.random.choice(found), self.random.choice(found)) if found else None
        places = (self.random.randrange(len(content)) for _ in range(2))
        one, two = (pattern.search(content, at) or pattern.search(content) for at in places)
        return (one, two) if one and two else None


def any_bytes(random: Random) -> Change:
    """Mutate bytes blindly as a guided engine does, for machines that have no such engine."""

    def change(content: bytes, most: int) -> bytes:
        raw = bytearray(content)
        for _ in range(random.choice((1, 1, 2, 4))):
            at = random.randrange(len(raw) + 1)
            match random.randrange(6):
                case 0 | 1 if at < len(raw):
                    raw[at] ^= 1 << random.randrange(8)
                case 2:
                    raw[at:at] = random.randbytes(random.choice((1, 2, 8, 64)))
                case 3:
                    del raw[at : at + random.choice((1, 2, 8, 512))]
                case 4:
                    raw[at:at] = raw[: random.choice((4, 16, 128))]
                case _:
                    raw[at : at + 4] = bytes((random.choice((0, 0xFF)),)) * 4
        return bytes(raw[:most])

    return change


def _is_text(content: bytes) -> bool:
    """Return whether it is mostly text; a text among binary fields counts."""
    sample = content[:4096]
    return sum(byte in _TEXT for byte in sample) * 4 >= len(sample) * 3


def _with(disk: SparseDisk, index: int, piece: Piece) -> SparseDisk:
    return replace(disk, pieces=(*disk.pieces[:index], piece, *disk.pieces[index + 1 :]))


def _without(disk: SparseDisk, index: int) -> SparseDisk:
    return replace(disk, pieces=disk.pieces[:index] + disk.pieces[index + 1 :])
