"""Read and write a whole disk or image: aligned buffers, flushes, a rate limit."""

import ctypes
import errno
import fcntl
import mmap
import os
import stat
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress

from aligntool.commands import LISTS_DISKS
from aligntool.device import Device, Job, Jobs
from aligntool.errors import Refused, failing_as
from aligntool.linux.file_reader import is_hole
from aligntool.linux.held import open_held, status_of
from aligntool.linux.sysfs import IO_NONE, READ_ONLY, leased
from aligntool.units import KIB, MIB, Extent, align_down, align_up

# Page-aligned buffers for direct I/O, reused. Direct I/O requires aligned memory, which `bytes` does not
# guarantee, and mapping fresh pages for every 1 MiB took a third of the time of a read (measured: filling a
# fresh mapping takes 10 to 20 times as long as filling a mapping that was used before).

_BUFFER_SIZE = MIB  # of each pooled buffer
_MAX_FREE = 72  # two batches of 32 MiB, and one more for each thread that reads
_MAX_FREE_SHORT = 8
_LONG = 768 * KIB  # from here on nearly all of a buffer is used, so it may come from huge pages
_MIN_POOLED = 64 * KIB  # below this, the cost of fresh pages is negligible
_HUGE_PAGE = 2 * MIB  # a huge page, on x86-64 and on arm64 with small pages of 4 KiB
_ARENA_SIZE = 4 * _HUGE_PAGE

_Slot = tuple[mmap.mmap, int]  # memory, and the offset of the buffer in it


class Buffers:
    """Free lists of buffers. A buffer returns to its list when the last view of it, or of a part of it, is
    released.

    Long buffers lie in huge pages if the kernel has them: the drive then gets 1 MiB as one segment instead of
    256, which halved the processor time of a transfer and took a third off the time of a write (measured,
    virtio).
    """

    def __init__(self) -> None:
        self._long: deque[_Slot] = deque(maxlen=_MAX_FREE + _ARENA_SIZE // _BUFFER_SIZE)
        self._short: deque[_Slot] = deque(maxlen=_MAX_FREE_SHORT)  # untouched pages of these take no memory

    def lend(self, length: int) -> memoryview:
        """Return a page-aligned buffer of `length` bytes, with undefined content."""
        if length == 0:
            return memoryview(bytearray())
        if not _MIN_POOLED <= length <= _BUFFER_SIZE:
            return memoryview(
                (ctypes.c_char * length).from_buffer(_map(align_up(length, mmap.PAGESIZE)))
            ).cast("B")
        free = self._long if length >= _LONG else self._short
        try:
            slot = free.pop()  # without a check before it: another thread may take the last one
        except IndexError:
            slot, *others = _map_arena() if length >= _LONG else [(_map(_BUFFER_SIZE), 0)]
            free.extend(others)
        # Every view, and every slice of it, keeps its array alive; the array keeps the memory alive.
        array = (ctypes.c_char * length).from_buffer(*slot)
        weakref.finalize(array, free.append, slot).atexit = False
        return memoryview(array).cast("B")


def _map_arena() -> list[_Slot]:
    """Return buffers in huge pages: touching one buffer allocates a page that holds two of them."""
    memory = _map(_ARENA_SIZE + _HUGE_PAGE)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    first = -_address(memory) % _HUGE_PAGE
    return [(memory, first + offset) for offset in range(0, _ARENA_SIZE, _BUFFER_SIZE)]


def equal_memory(first: bytes | memoryview, second: bytes | memoryview) -> bool:
    """Return whether both contents are equal, by memcmp.

    The == of a memoryview takes a hundred times as long, because it makes an object of each byte and holds
    the GIL.
    """
    if len(first) != len(second):
        return False
    if _is_read_only(first) or _is_read_only(second):
        return bytes(first) == bytes(second)
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return len(first) == 0 or bool(compare(_address(first), _address(second), len(first)) == 0)


def is_memory_aligned(data: bytes | memoryview, boundary: int) -> bool:
    """Return whether the data starts at a memory address that is a multiple of `boundary`; False for
    read-only memory, whose address is unknown.
    """
    return not _is_read_only(data) and _address(data) % boundary == 0


def _is_read_only(data: bytes | memoryview) -> bool:
    view = memoryview(data)
    return view.readonly or not view.contiguous


def _address(data: bytes | memoryview | mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(data)) if len(data) else 0


def _map(length: int) -> mmap.mmap:
    return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


# The Device that writes: a block device or an image file, read and written past the page cache. The rules of
# direct I/O are handled here: aligned offsets, lengths and memory, short transfers, file systems that do not
# support it.
#
# Direct I/O is also used for image files. Copying in 1 MiB pieces by four workers, flushed after each 32
# MiB, reached on ext4 1.1 times the rate of buffered reading and writing and 1.2 times that of
# copy_file_range; and data are read back from the medium without dropping caches. It was 0.8 to 1.3
# times as fast as `dd iflag=direct oflag=direct bs=1M` in the same minute, on an image file as on a loop
# device, at every multiple of the sector.

_BLKSSZGET = IO_NONE | 0x1268  # <linux/fs.h>; an int: the logical sector in bytes
_WORKERS = 4
_NAP_S = 0.1


class DiskDevice:
    """A Device over an open descriptor, which the caller owns and must keep open. It must not use it for
    reads and writes of its own, because they may have to be those of direct I/O.

    Images on file systems without direct I/O, or with a coarser grid than their sectors (512-byte sectors on
    a disk with 4096), and files that QEMU serves go through the page cache, which is dropped before a read.
    Linux writes the cache back before a direct read and drops it around a direct write of the same bytes, so
    requests of both kinds may be in progress at once (mm/filemap.c, kiocb_write_and_wait and
    kiocb_invalidate_pages).

    The file is not opened a second time for direct I/O: a lease is granted only to a file's only opener
    (linux/lease.py).
    """

    def __init__(
        self,
        descriptor: int,
        *,
        image_sector_size: int = 512,
        name: str | None = None,
        before_write: Callable[[], object] = lambda: None,
    ) -> None:
        """Open the device; `image_sector_size` is for image files only, a block device reports its own.
        `name`: the file name of its errors, if it is not the disk that is being changed. `before_write`:
        called before each write, which it prevents by an OSError.

        Raises OSError if the descriptor is not open for reading and writing.
        """
        self._descriptor = descriptor
        self._name = name
        self._before_write = before_write
        self._is_block = stat.S_ISBLK(os.fstat(descriptor).st_mode)
        self.sector_size = _sector_size(descriptor) if self._is_block else image_sector_size
        # Whole sectors: an incomplete sector at the end of an image file is not part of the disk.
        self.size = align_down(os.lseek(descriptor, 0, os.SEEK_END), self.sector_size)
        self._buffers = Buffers()
        self._unflushed = False  # something was written through the page cache
        self._pending: dict[int, tuple[float, str]] = {}  # by thread: when the request began, and its kind
        # Kept open, because starting four threads for sixteen jobs took a quarter of the processor time.
        # Twice as many threads, because the job that runs `meanwhile` may call `run_parallel`, too.
        self._pool = ThreadPoolExecutor(2 * _WORKERS, "disk")
        # Offset and length must be multiples of it for direct I/O; None: direct I/O is not used.
        self.direct_grid = (
            self.sector_size if not is_served(descriptor) and _use_direct_io(descriptor) else None
        )

    def __enter__(self) -> "DiskDevice":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the resources. Flush nothing, and leave the descriptor open."""
        self._pool.shutdown()

    def read(self, offset: int, length: int) -> memoryview:
        """Read bytes. Raises ValueError if not whole sectors, OSError (EIO) beyond the end and if the medium
        fails.
        """
        self._check_range(offset, length, beyond_end=errno.EIO)
        buffer = self._buffers.lend(length)
        if self._unflushed and not self._direct_for(offset, length):
            self.flush()
        if not self._is_block:
            # A file system may silently serve a direct read through its cache (btrfs: fs/btrfs/direct-io.c).
            # The whole file, because a folio that is larger than the range is not dropped.
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        self._transfer(
            "read", lambda file, done: os.preadv(file, [buffer[done:]], offset + done), offset, length
        )
        return buffer

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write bytes. Raises ValueError if not whole sectors, OSError: ENOSPC beyond the end, otherwise the
        error of the medium.
        """
        length = len(data)
        self._check_range(offset, length, beyond_end=errno.ENOSPC)
        self._before_write()
        view = memoryview(data)
        if self._direct_for(offset, length) and not is_memory_aligned(view, self.sector_size):
            view = self._buffers.lend(length)
            view[:] = data
        try:
            self._transfer(
                "write", lambda file, done: os.pwrite(file, view[done:], offset + done), offset, length
            )
        finally:
            # Set after the write: a flush in between has not flushed it.
            self._unflushed |= not self._direct_for(offset, length)

    def flush(self) -> None:
        """Flush the page cache and the drive's own cache (fdatasync)."""
        self._unflushed = False  # before the flush, so that a concurrent write sets it again
        try:
            with self._pending_request("flush"):
                os.fdatasync(self._descriptor)
        except OSError:
            self._unflushed = True
            raise

    def unanswered(self) -> tuple[float, str]:
        """Return how many seconds the oldest request has been waiting for the medium, and its kind: "read",
        "write" or "flush". Any thread may call it.
        """
        now = time.monotonic()
        began, kind = min(list(self._pending.values()), default=(now, ""))
        return now - began, kind

    def is_hole(self, offset: int, length: int) -> bool:
        """Return whether these bytes are a hole (lseek(2), SEEK_DATA); file systems without holes report only
        data.
        """
        if self._is_block:
            return False
        with self._pending_request("read"):
            return is_hole(self._descriptor, offset, length)

    def room_for(self, places: Iterable[Extent]) -> tuple[int, int] | None:
        """Return the bytes of these places that an image has no space for yet, and the free bytes of the file
        system that it is on. None: of a disk, or of a file system that does not state them, such as one in
        user space.
        """
        if self._is_block:
            return None
        found = os.fstatvfs(self._descriptor)
        if not found.f_blocks:
            return None
        free = found.f_bfree if os.geteuid() == 0 else found.f_bavail
        return sum(map(self._bytes_of_holes, places)), free * found.f_frsize

    def _bytes_of_holes(self, place: Extent) -> int:
        at = place.start
        holes = 0
        while at < place.end:
            try:
                data = min(os.lseek(self._descriptor, at, os.SEEK_DATA), place.end)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                data = place.end
            holes += data - at
            at = os.lseek(self._descriptor, data, os.SEEK_HOLE) if data < place.end else data
        return holes

    def run_parallel(self, jobs: Jobs, meanwhile: Job | None = None) -> None:
        """Run jobs, at most four at once. After an error start no further job; raise it when all have
        stopped.
        """
        queue = _JobQueue(jobs)
        workers: list[Future[None]] = []
        try:
            for _ in range(_WORKERS):
                with _errors_of_threads():
                    workers.append(self._pool.submit(queue.run_jobs))
            if meanwhile:
                meanwhile()
            while wait(workers, _NAP_S).not_done:
                # to the parent process, a main thread that never wakes is one whose disk does not answer
                pass
        finally:
            queue.close()
            wait(workers)
        for worker in workers:
            worker.result()

    def _direct_for(self, offset: int, length: int) -> bool:
        return (
            self.direct_grid is not None and offset % self.direct_grid == 0 and length % self.direct_grid == 0
        )

    @contextmanager
    def _pending_request(self, request: str) -> Iterator[None]:
        self._pending[threading.get_ident()] = time.monotonic(), request
        try:
            yield
        except OSError as error:
            if self._name is not None:  # None would be printed
                error.filename = self._name
            raise
        finally:
            del self._pending[threading.get_ident()]

    def _transfer(self, request: str, move: Callable[[int, int], int], offset: int, length: int) -> None:
        """Transfer all bytes: `move` gets a descriptor and the bytes done, and returns how many it
        transferred.
        """
        done = 0
        while done < length:
            is_direct = self._direct_for(offset, length)
            try:
                with self._pending_request(request):
                    moved = move(self._descriptor, done)
            except OSError as error:
                if error.errno != errno.EINVAL or not is_direct or self._is_block:
                    raise
                self._end_direct_io()
                continue
            if is_direct and moved < length - done:
                moved = align_down(moved, self.sector_size)  # so that the next request is on the grid again
            if moved == 0:
                raise OSError(errno.EIO, "the medium transferred nothing and reported no error")
            done += moved

    def _end_direct_io(self) -> None:
        """Use the page cache after the file system refused a request: its grid is coarser than the sectors. A
        query of the grid requires the statx of Linux 6.1, and a trial read of a hole succeeds on any grid.
        """
        _set_direct_io(self._descriptor, on=False)
        self.direct_grid = None  # afterwards: until then other threads make requests that both kinds accept
        self._unflushed = True  # perhaps by one of these requests

    def _check_range(self, offset: int, length: int, *, beyond_end: int) -> None:
        if offset < 0 or offset % self.sector_size or length % self.sector_size:
            raise ValueError(f"{length} bytes at {offset} are not whole sectors of {self.sector_size} bytes")
        if offset + length > self.size:
            raise OSError(
                beyond_end, f"{length} bytes at {offset} end beyond the disk, which has {self.size}"
            )


@contextmanager
def _errors_of_threads() -> Iterator[None]:
    """Raise OSError if a thread cannot be started, for lack of memory or by a limit (pthread_create:
    EAGAIN).
    """
    try:
        yield
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error


class _JobQueue:
    """A queue of jobs that several threads work through."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = iter(jobs)
        self._lock = threading.Lock()

    def run_jobs(self) -> None:
        while job := self._next():
            try:
                job()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Start no further job."""
        with self._lock:
            self._jobs = iter(())

    def _next(self) -> Job | None:
        with self._lock:
            return next(self._jobs, None)


def _sector_size(descriptor: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(descriptor, _BLKSSZGET, bytes(4)))[0])


_SERVED_BY_QEMU: set[int] = set()
"""Device numbers of the file systems on which QEMU serves a disk to this process: linux/virtual.py."""


def note_served(path: str) -> None:
    """Note that QEMU serves this file by FUSE, so that direct I/O is not used on it.

    The kernel splits a direct write of more than 1 MiB into requests that it sends at once. QEMU's export
    receives one while it still writes another, into the same buffer, and writes wrong bytes without an error
    (seen with QEMU 7.2). Buffered writes are sent one after the other, and a buffered read reaches the server
    after the page cache was dropped.
    """
    _SERVED_BY_QEMU.add(status_of(path).st_dev)


def is_served(descriptor: int) -> bool:
    """Return whether QEMU serves this file to this process: see `note_served`."""
    return os.fstat(descriptor).st_dev in _SERVED_BY_QEMU


def _use_direct_io(descriptor: int) -> bool:
    """Switch the open file to direct I/O; return False if its file system does not support it (EINVAL,
    open(2)).
    """
    try:
        _set_direct_io(descriptor, on=True)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        raise
    return True


def _set_direct_io(descriptor: int, *, on: bool) -> None:
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)


# A Device that cannot write, to read the state of a disk. It must work while another program has the disk
# locked, and must not be able to do harm.


class ReadOnlyDevice:
    """A read-only Device: it reads at any offset, and from the medium as far as the page cache can be
    dropped.
    """

    def __init__(self, descriptor: int, sector_size: int = 512) -> None:
        self._descriptor = descriptor
        self._is_block = stat.S_ISBLK(os.fstat(descriptor).st_mode)
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
        raise OSError(errno.EBADF, "this device was opened read-only")

    def is_hole(self, offset: int, length: int) -> bool:
        """Return whether these bytes are a hole, which a block device does not have."""
        return not self._is_block and is_hole(self._descriptor, offset, length)

    def flush(self) -> None:
        """Do nothing: nothing was written."""

    def run_parallel(self, jobs: Jobs, meanwhile: Job | None = None) -> None:
        if meanwhile:
            meanwhile()
        for job in jobs:
            job()


_DENIED_TO_ROOT = "root itself is denied: allow this device in the container or the security module"


@contextmanager
def open_read_only(path: str, *, image_sector_size: int | None = None) -> Iterator[ReadOnlyDevice]:
    """Open a disk or image for reading, in sectors of 512 bytes; with `image_sector_size` in those of a disk,
    or of that size for an image.

    Raises Refused if it is neither, or cannot be opened.
    """
    with failing_as(
        Refused,
        path,
        hint=LISTS_DISKS,
        denied=_DENIED_TO_ROOT if os.geteuid() == 0 else "run the same command with sudo",
    ):
        mode = status_of(path).st_mode  # before the open, which a FIFO blocks, and which rewinds a tape
        if not (stat.S_ISBLK(mode) or stat.S_ISREG(mode)):
            raise Refused(f"{path} is neither a block device nor an image file", hint=LISTS_DISKS)
        try:
            descriptor = open_held(path, READ_ONLY)
        except BlockingIOError as error:  # an image with a lease: linux/lease.py
            raise leased(path) from error
    try:
        own = image_sector_size is not None and stat.S_ISBLK(mode)
        yield ReadOnlyDevice(descriptor, _sector_size(descriptor) if own else image_sector_size or 512)
    finally:
        os.close(descriptor)


# A Device with a limited rate. The user sets the limit; the code that copies is not aware of it.


def limited(device: Device, rate: int | None) -> Device:
    """Return the device with its writes limited to `rate` bytes a second; None or 0: the device itself."""
    return Limited(device, rate) if rate else device


class Limited:
    """A device that writes at most this many bytes a second, over all threads; idle time does not accumulate.

    Only writes count: a copy reads and verifies as much as it writes, so this is the rate at which data
    moves.
    """

    def __init__(self, device: Device, bytes_per_second: int) -> None:
        """Set the rate. Raises ValueError if it is below one byte a second."""
        if bytes_per_second < 1:
            raise ValueError(f"{bytes_per_second} bytes a second is not a valid rate")
        self.size = device.size
        self.sector_size = device.sector_size
        self.read = device.read
        self._write = device.write
        self.is_hole = device.is_hole
        self.flush = device.flush
        self.run_parallel = device.run_parallel
        self._rate = bytes_per_second
        self._lock = threading.Lock()
        self._free_at_s = 0.0  # on the monotonic clock: when the next write may begin
        self._hurried = False

    def write(self, offset: int, data: bytes | memoryview) -> None:
        with self._lock:
            begin = max(time.monotonic(), self._free_at_s)
            self._free_at_s = begin + len(data) / self._rate
        while not self._hurried and (left := begin - time.monotonic()) > 0:
            time.sleep(min(left, _NAP_S))
        self._write(offset, data)

    def stop_throttling(self) -> None:
        """End all waiting, including a wait in progress, to stop the work soon. Signal handlers may call
        it.
        """
        self._hurried = True
