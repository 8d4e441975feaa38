"""The real Device: a block device or an image file, read and written past the page cache.

In: an open descriptor. Out: bytes of the medium. Alone because direct I/O has rules that no other part should know:
offsets, lengths and memory on a grid, short transfers, file systems without it.

Direct I/O is used for image files as well. Copying in 1 MiB pieces by four workers, flushed after each 32 MiB, reached
on ext4 1.1 times the rate of buffered reading and writing and 1.2 times that of copy_file_range; and what is read back
comes from the medium without dropping caches. It was 0.8 to 1.3 times as fast as `dd iflag=direct oflag=direct bs=1M`
in the same minute, on an image file as on a loop device, at every multiple of the sector.
"""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from threading import Lock
from types import TracebackType

from aligntool.apply.buffers import Buffers, starts_on
from aligntool.apply.device import Job, Jobs
from aligntool.units import align_down

_BLKSSZGET = 0x1268  # <linux/fs.h>; an int: the logical sector in bytes
_WORKERS = 4
_PAGE = 4096  # the coarsest grid that is tried: file systems ask for the sectors of their device


class DiskDevice:
    """A Device over an open descriptor, which stays the caller's and must outlive this.

    Requests that the medium's grid for direct I/O does not allow (an image with 512-byte sectors on a disk with 4096)
    and file systems without direct I/O are served through the page cache, which is dropped before a read. Linux
    writes the cache back before a direct read and drops it around a direct write of the same bytes, so both kinds may
    be mixed (mm/filemap.c, kiocb_write_and_wait and kiocb_invalidate_pages).
    """

    def __init__(self, descriptor: int, *, image_sector_size: int = 512) -> None:
        """`image_sector_size` counts for image files only; a block device says its own.

        Raises OSError when the descriptor is not open for reading and writing.
        """
        self._buffered = descriptor
        self._is_block = stat.S_ISBLK(os.fstat(descriptor).st_mode)
        self._sector_size = _sector_size(descriptor) if self._is_block else image_sector_size
        self._size = align_down(os.lseek(descriptor, 0, os.SEEK_END), self._sector_size)
        self._buffers = Buffers()
        self._unflushed = False  # something was written through the page cache
        # Kept, because beginning four threads for sixteen jobs took a quarter of the processor's time. Twice as many:
        # what is done `meanwhile` may work together, too.
        self._pool = ThreadPoolExecutor(2 * _WORKERS, "disk")
        self._direct = _open_direct(descriptor)
        self._grid = None if self._direct is None else self._sector_size

    def __enter__(self) -> "DiskDevice":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Flushes nothing. The descriptor stays open."""
        self._pool.shutdown()
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None

    @property
    def size(self) -> int:
        """Whole sectors; a rest at the end of an image file is no part of the disk."""
        return self._size

    @property
    def sector_size(self) -> int:
        return self._sector_size

    @property
    def direct_grid(self) -> int | None:
        """Bytes of which offset and length must be multiples to go past the page cache; None: nothing does.

        Of an image file it is what has not been refused so far.
        """
        return self._grid

    def read(self, offset: int, length: int) -> memoryview:
        """Raises ValueError off the sectors, OSError (EIO) beyond the end and when the medium fails."""
        self._check(offset, length, beyond_end=errno.EIO)
        buffer = self._buffers.lend(length)
        if self._unflushed and not self._direct_for(offset, length):
            self.flush()
        if not self._is_block:
            # A file system may serve a direct read through its cache without a word (btrfs: fs/btrfs/direct-io.c).
            # The whole file, because of a folio that is larger than the range nothing is dropped.
            os.posix_fadvise(self._buffered, 0, 0, os.POSIX_FADV_DONTNEED)
        self._transfer(lambda file, done: os.preadv(file, [buffer[done:]], offset + done), offset, length)
        return buffer

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Raises ValueError off the sectors, OSError: ENOSPC beyond the end; else what the medium gave."""
        length = len(data)
        self._check(offset, length, beyond_end=errno.ENOSPC)
        view = memoryview(data)
        if self._direct_for(offset, length) and not starts_on(view, self._sector_size):
            view = self._buffers.lend(length)
            view[:] = data
        try:
            self._transfer(lambda file, done: os.pwrite(file, view[done:], offset + done), offset, length)
        finally:
            # Afterwards: a flush that came in between has not flushed this.
            self._unflushed |= not self._direct_for(offset, length)

    def flush(self) -> None:
        """fdatasync: the file system's writes, and the drive's own cache."""
        self._unflushed = False  # before, so that a write meanwhile is not forgotten
        try:
            os.fdatasync(self._buffered)
        except OSError:
            self._unflushed = True
            raise

    def is_hole(self, offset: int, length: int) -> bool:
        """lseek(2), SEEK_DATA: file systems that know no holes call everything data."""
        if self._is_block:
            return False
        try:
            return os.lseek(self._buffered, offset, os.SEEK_DATA) >= offset + length
        except OSError as error:
            return error.errno == errno.ENXIO  # no data from here to the end of the file

    def together(self, jobs: Jobs, meanwhile: Job | None = None) -> None:
        """At most four at once. After an error no further job begins; it is raised when all have stopped."""
        line = _Line(jobs)
        workers: list[Future[None]] = []
        try:
            for _ in range(_WORKERS):
                workers.append(self._pool.submit(line.work_off))
            if meanwhile:
                meanwhile()
            wait(workers, return_when=FIRST_EXCEPTION)
        finally:
            line.close()
            wait(workers)
        for worker in workers:
            worker.result()

    def _direct_for(self, offset: int, length: int) -> bool:
        return self._grid is not None and offset % self._grid == 0 and length % self._grid == 0

    def _transfer(self, move: Callable[[int, int], int], offset: int, length: int) -> None:
        """`move` gets a descriptor and how much is done already, and says how much more it did."""
        done = 0
        while done < length:
            direct = self._direct if self._direct_for(offset, length) else None
            try:
                moved = move(self._buffered if direct is None else direct, done)
            except OSError as error:
                if error.errno != errno.EINVAL or direct is None or self._is_block:
                    raise
                self._coarsen(offset, length)
                continue
            if direct is not None and moved < length - done:
                moved = align_down(moved, self._grid or 1)  # so that the next request is on the grid again
            if moved == 0:
                raise OSError(errno.EIO, "the medium transferred nothing and named no error")
            done += moved

    def _coarsen(self, offset: int, length: int) -> None:
        """The file system refused this one. Asking beforehand takes statx of Linux 6.1, and a trial read of a hole
        is answered on any grid."""
        refused_on_pages = offset % _PAGE == 0 and length % _PAGE == 0
        self._grid = None if refused_on_pages else _PAGE

    def _check(self, offset: int, length: int, *, beyond_end: int) -> None:
        if offset < 0 or offset % self._sector_size or length % self._sector_size:
            raise ValueError(f"{length} bytes at {offset} are no sectors of {self._sector_size} bytes")
        if offset + length > self._size:
            raise OSError(beyond_end, f"{length} bytes at {offset} end beyond the disk's {self._size}")


class _Line:
    """Jobs that several threads work off, one after the other."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = iter(jobs)
        self._lock = Lock()

    def work_off(self) -> None:
        while job := self._next():
            try:
                job()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """No further job begins."""
        with self._lock:
            self._jobs = iter(())

    def _next(self) -> Job | None:
        with self._lock:
            return next(self._jobs, None)


def _sector_size(descriptor: int) -> int:
    answer = fcntl.ioctl(descriptor, _BLKSSZGET, bytes(4))
    return int(struct.unpack("i", answer)[0])


def _open_direct(descriptor: int) -> int | None:
    """The same file once more; None where its file system has no direct I/O (EINVAL, open(2))."""
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise
