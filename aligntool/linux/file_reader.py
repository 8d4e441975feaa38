"""Read an open file or block device, if wanted from the medium and not from the page cache."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from aligntool.formats.reader import readable_length
from aligntool.linux.sysfs import opened
from aligntool.units import KIB

_LONG = 64 * KIB


def forget_cached(descriptor: int) -> None:
    """Drop the clean pages of the whole disk. A disk and its partitions have separate page caches, so the
    cache of /dev/sda may be older than a write through /dev/sda1.
    """
    with suppress(OSError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def is_hole(descriptor: int, offset: int, length: int) -> bool:
    """Return whether these bytes are a hole of a file (lseek(2), SEEK_DATA)."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA) >= offset + length
    except OSError as error:
        return error.errno == errno.ENXIO  # no data from here to the end of the file


@dataclass(frozen=True, slots=True)
class FileReader:
    """A `Reader` of an open file or block device. `descriptor` must have been opened read-only; its owner
    closes it.
    """

    descriptor: int
    size: int

    def read(self, offset: int, length: int) -> bytes:
        left = readable_length(offset, length, self.size)
        if left >= _LONG and self._is_hole(offset, left):
            return bytes(left)  # the kernel would fill it a page at a time
        pieces = []
        while left > 0 and (piece := os.pread(self.descriptor, left, offset)):
            pieces.append(piece)
            offset += len(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _is_hole(self, offset: int, length: int) -> bool:
        is_there = os.fstat(self.descriptor).st_size >= offset + length  # 0: a block device
        return is_there and is_hole(self.descriptor, offset, length)


@contextmanager
def fresh_reader(path: str) -> Iterator[FileReader]:
    """Yield a reader of the disk or image, after dropping the cache of earlier reads. Raises OSError."""
    with opened(path) as descriptor:
        forget_cached(descriptor)
        yield FileReader(descriptor, os.lseek(descriptor, 0, os.SEEK_END))
