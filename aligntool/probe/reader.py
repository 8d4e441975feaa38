"""Bytes of a disk or an image, read by absolute offset, never written.

Every parser in `probe` takes a `Reader`. A hostile disk can make a parser ask for any offset and any length, so a
reader answers each request with at most `LONGEST_READ` bytes and with less where the disk ends, and never raises for
that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

LONGEST_READ = 16 * 1024 * 1024  # no structure that aligntool reads is longer


class Reader(Protocol):
    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes:
        """The bytes at `offset`: fewer than `length` at the end of the disk, none outside it.

        Raises OSError where the medium cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class BeatingReader:
    """Another reader, and a call after each of its answers: whoever waits sees that the disk still gives some."""

    below: Reader
    beat: Callable[[], None]

    @property
    def size(self) -> int:
        return self.below.size

    def read(self, offset: int, length: int) -> bytes:
        content = self.below.read(offset, length)
        self.beat()
        return content


@dataclass(frozen=True, slots=True)
class BytesReader:
    """Bytes in memory: for tests, fuzzing, and structures that were already read."""

    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        return self.content[offset : offset + length] if clip(offset, length, self.size) > 0 else b""


@dataclass(frozen=True, slots=True)
class MappedReader:
    """A volume made of runs of another reader, as LVM and md put them together.

    `runs` are (offset in the volume, offset below, length), in bytes. What no run covers reads as missing: the answer
    ends there.
    """

    below: Reader
    runs: Sequence[tuple[int, int, int]]
    size: int

    def read(self, offset: int, length: int) -> bytes:
        wanted = clip(offset, length, self.size)
        pieces = []
        while wanted > 0:
            run = next((run for run in self.runs if run[0] <= offset < run[0] + run[2]), None)
            if run is None:
                break
            piece = self.below.read(run[1] + offset - run[0], min(wanted, run[0] + run[2] - offset))
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            wanted -= len(piece)
        return b"".join(pieces)


def clip(offset: int, length: int, size: int) -> int:
    """How many of the bytes asked for there are; 0 or less when none."""
    if offset < 0:
        return 0
    return min(length, size - offset, LONGEST_READ)
