"""A Device that cannot write, for whoever only asks where a disk stands.

In: the path of a disk or image. Out: a Device on a descriptor that is open for reading. Alone because asking must be
possible while somebody else holds the disk, and must be unable to do harm.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from aligntool.apply.device import Job, Jobs
from aligntool.errors import Refused


class LookOnly:
    """Reads are from the medium as far as the page cache can be told to forget; offsets may be any."""

    def __init__(self, descriptor: int, sector_size: int = 512) -> None:
        self._descriptor = descriptor
        self.size = os.lseek(descriptor, 0, os.SEEK_END) // sector_size * sector_size
        self.sector_size = sector_size

    def read(self, offset: int, length: int) -> bytes:
        if offset + length > self.size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.posix_fadvise(self._descriptor, offset, length, os.POSIX_FADV_DONTNEED)
        data = b""
        while len(data) < length:
            piece = os.pread(self._descriptor, length - len(data), offset + len(data))
            if not piece:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            data += piece
        return data

    def write(self, offset: int, data: bytes | memoryview) -> None:
        raise OSError(errno.EBADF, "this device was opened to read")

    def is_hole(self, offset: int, length: int) -> bool:
        return False  # nobody asks: nothing is copied here

    def flush(self) -> None:
        """Nothing was written."""

    def together(self, jobs: Jobs, meanwhile: Job | None = None) -> None:
        if meanwhile:
            meanwhile()
        for job in jobs:
            job()


@contextmanager
def look_only(path: str) -> Iterator[LookOnly]:
    """Raises Refused where it is no disk or image, or may not be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        hint = "type the same after sudo" if error.errno in (errno.EACCES, errno.EPERM) else "lsblk -d"
        raise Refused(f"{path}: {error.strerror}", hint=hint) from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISBLK(mode) or stat.S_ISREG(mode)):
            raise Refused(f"{path} is neither a block device nor an image file", hint="lsblk -d")
        yield LookOnly(descriptor)
    finally:
        os.close(descriptor)
