"""The one hole in the wall: everything that a mover may do to a disk goes through a Device.

A real one is a block device or an image file; the tests have one with a write cache whose power can be cut.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from aligntool.values import dataclass

Job = Callable[[], None]
Jobs = Iterable[Job]


class Device(Protocol):
    """Offsets and lengths are bytes, and multiples of `sector_size`.

    `write` promises nothing before `flush` returns; until then any subset of its sectors may survive a power cut. Both
    raise OSError with the errno that the medium gave.
    """

    @property
    def size(self) -> int: ...

    @property
    def sector_size(self) -> int:
        """Return the bytes that are written whole or not at all."""
        ...

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """Return exactly `length` bytes from the medium, not from a cache."""
        ...

    def write(self, offset: int, data: bytes | memoryview) -> None: ...

    def is_hole(self, offset: int, length: int) -> bool:
        """Return whether these bytes are zeros that are not stored, in a sparse image; False where this is not
        known.
        """
        ...

    def flush(self) -> None:
        """Returns when everything written is durable."""
        ...

    def together(self, jobs: Jobs, meanwhile: Job | None = None) -> None:
        """Execute these jobs, in any order or at once; return when all are done, raise the first error.

        `meanwhile` is done by the calling thread, so that Ctrl-C reaches it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sectors:
    """Bytes and where on the disk they belong."""

    at: int
    data: bytes


Writing = tuple[tuple[Sectors, ...], ...]
"""Groups of sectors. The groups are written in order, each flushed before the next one begins."""
