"""The Device protocol: an open disk, and all operations of a move on it.

The real implementation is a block device or an image file; the tests have one with a write cache and power cuts.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from aligntool.units import MIB, Extent

Job = Callable[[], None]
Jobs = Iterable[Job]


class Device(Protocol):
    """An open disk. Offsets and lengths are bytes, and multiples of `sector_size`.

    What `write` wrote is durable only after `flush` returns; until then any subset of its sectors may survive a power
    cut. Both raise OSError with the errno of the medium.
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
        """Return whether these bytes are a hole of a sparse image, which reads as zeros. Return False if unknown."""
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
    """Write zeros to ranges in order, with a flush after each. What reads as zero is not written. Raises OSError."""
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
