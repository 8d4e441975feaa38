"""A Device is an open disk, with all operations of a move on it. A Medium is a content that is only read.

The real implementation of a Device is a block device or an image file; the tests have one with a write cache
and power cuts. That of a Medium runs programs; the tests have one with what these printed.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Protocol

from aligntool.units import MIB, Extent

Job = Callable[[], None]
Jobs = Iterable[Job]


class Device(Protocol):
    """An open disk. Offsets and lengths are bytes, and multiples of `sector_size`.

    What `write` wrote is durable only after `flush` returns; until then any subset of its sectors may survive
    a power cut. Both raise OSError with the errno of the medium.
    """

    @property
    def size(self) -> int: ...

    @property
    def sector_size(self) -> int:
        """Return the number of bytes that the device writes atomically."""
        ...

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """Return exactly `length` bytes from the medium, not from a cache."""
        ...

    def write(self, offset: int, data: bytes | memoryview) -> None: ...

    def is_hole(self, offset: int, length: int) -> bool:
        """Return whether these bytes are a hole of a sparse image, which reads as zeros. Return False if
        unknown.
        """
        ...

    def flush(self) -> None:
        """Return when everything written is durable."""
        ...

    def run_parallel(self, jobs: Jobs, meanwhile: Job | None = None) -> None:
        """Execute these jobs in any order or concurrently; return when all are done, raise the first error.

        `meanwhile` runs in the calling thread, so that Ctrl-C interrupts it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sectors:
    """Bytes and their offset on the disk."""

    at: int
    data: bytes


Writing = tuple[tuple[Sectors, ...], ...]
"""Groups of sectors, written in order: each group is flushed before the next one begins."""


def zero(device: Device, ranges: Iterable[Extent]) -> None:
    """Write zeros to ranges in order, with a flush after each. What reads as zero is not written. Raises
    OSError.
    """
    for extent in ranges:
        end = min(extent.end, device.size)
        for at in range(extent.start, end, MIB):
            _zero_piece(device, at, min(MIB, end - at))
        device.flush()


def _zero_piece(device: Device, at: int, length: int) -> None:
    if device.is_hole(at, length):
        return
    zeros = bytes(length)
    with suppress(OSError):  # a sector that cannot be read may still accept a write
        if bytes(device.read(at, length)) == zeros:
            return
    device.write(at, zeros)


OUTPUT = "OUTPUT"
"""A word of a command line that stands for a new file, which is read instead of what the program prints."""
OTHER_OUTPUT = "OTHER-OUTPUT"
"""A word of a command line that stands for a new file that is not read."""


class Borrowed(Protocol):
    """A content that programs can open by its name, and only read."""

    @property
    def name(self) -> str: ...

    def lines_of(
        self, *words: str, title: str = "", limit_s: float | None = None
    ) -> AbstractContextManager[Iterable[str]]:
        """Run a program that gets this content, and nothing else, and return what it printed, line by line:
        it may be hundreds of megabytes. `title`: what a message calls it, else the first word. Raises NoMap
        if it fails.
        """
        ...


class Medium(Protocol):
    """A content, from its first byte to its last one, to which nothing writes."""

    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes, fewer at the end. Raises OSError."""
        ...

    def device(self) -> AbstractContextManager[Borrowed]:
        """Lend a read-only block device of this content. Raises NoLoop if there can be none."""
        ...

    def at_offset(self) -> AbstractContextManager[Borrowed]:
        """Lend the disk or image with the name by which e2fsprogs open the content inside it."""
        ...
