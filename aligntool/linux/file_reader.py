"""Read an open file or block device, if wanted from the medium and not from the page cache."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from aligntool.formats.reader import readable_length
from aligntool.linux.sysfs import opened


def forget_cached(descriptor: int) -> None:
    """Drop the clean pages of the whole disk. A disk and its partitions have separate page caches, so the
    cache of /dev/sda may be older than a write through /dev/sda1.
    """
    with suppress(OSError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


@dataclass(frozen=True, slots=True)
class FileReader:
    """A `Reader` of an open file or block device. `descriptor` must have been opened read-only; its owner
    closes it.
    """

    descriptor: int
    size: int

    def read(self, offset: int, length: int) -> bytes:
        left = readable_length(offset, length, self.size)
        pieces = []
        while left > 0 and (piece := os.pread(self.descriptor, left, offset)):
            pieces.append(piece)
            offset += len(piece)
            left -= len(piece)
        return b"".join(pieces)


@contextmanager
def fresh_reader(path: str) -> Iterator[FileReader]:
    """Yield a reader of the disk or image, after dropping the cache of earlier reads. Raises OSError."""
    with opened(path) as descriptor:
        forget_cached(descriptor)
        yield FileReader(descriptor, os.lseek(descriptor, 0, os.SEEK_END))
