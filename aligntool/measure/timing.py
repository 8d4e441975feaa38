"""Time pairs of requests on an open device or a file."""

import errno
import gc
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from aligntool.errors import Refused, Stopped, failing_as
from aligntool.formats.reader import has_data
from aligntool.linux.block import Buffers
from aligntool.linux.file_extents import Run, file_extents
from aligntool.linux.held import open_held
from aligntool.linux.sysfs import opened
from aligntool.measure.results import room_words
from aligntool.measure.run import made_file as benchmark_file
from aligntool.measure.unit_design import Kind, Pair, Round, Sample
from aligntool.units import MIB, Extent, align_up, format_size

# Send requests one at a time and time each: one system call and nothing else between two readings of the
# clock.

_POOL = 4 * MIB  # of random bytes, the data of writes
Transfer = Callable[[int, list[memoryview], int], int]
Tell = Callable[[float], None]
"""Called with the finished share, from 0 to 1, before each round."""


@dataclass(frozen=True, slots=True)
class Target:
    """An open file or device. `place` converts an offset on the disk to one in the file; None: they are the
    same.
    """

    path: str
    reading: int  # descriptor with O_DIRECT
    writing: int | None = None  # descriptor with O_DIRECT and O_DSYNC; None: nothing may be written
    place: Callable[[int], int] | None = None


@dataclass(frozen=True, slots=True)
class Timed:
    samples: tuple[Sample, ...]
    rounds: int  # complete ones
    read: int  # bytes
    written: int
    zeros: float  # share of the reads that returned only zeros
    elapsed_s: float
    interrupted: bool = False  # Ctrl-C


def open_target(path: str, *, write: bool) -> int:
    """Open a file or device for direct I/O, with writes that return when they are durable. Raises Refused."""
    flags = (os.O_WRONLY | os.O_DSYNC) if write else os.O_RDONLY
    try:
        return open_held(path, flags | os.O_DIRECT | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.EINVAL:
            words = (
                f"{path} does not support direct I/O: the times would be those of the page cache, not of the"
                " drive"
            )
            raise Refused(words, hint="name a disk, or a folder on a file system with direct I/O") from error
        hint = "run the same command with sudo" if error.errno in (errno.EACCES, errno.EPERM) else ""
        raise Refused(f"{path} cannot be opened: {error.strerror}", hint=hint) from error


def smallest_request(descriptor: int, least: int) -> int:
    """Return the smallest unit of direct I/O in bytes, found by trying sizes from `least` on. Raises
    Refused.
    """
    size = least
    while size <= 65536:
        try:
            if os.preadv(descriptor, [Buffers().lend(size)], size) == size:
                return size
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise Refused(f"it cannot be read at byte {size}: {error.strerror}") from error
        size *= 2
    raise Refused("it accepts no direct I/O of up to 64 KiB")


def time_rounds(
    rounds: Iterable[Round], target: Target, *, limit_s: float, most_bytes: int, tell: Tell | None = None
) -> Timed:
    """Time complete rounds until they end or the next one would exceed the limit of time or of bytes. Ctrl-C
    ends it as well, with the rounds that are complete.

    Raises Refused if not even one round is within the limits, and for a read that fails; Stopped instead if
    something was written on a disk by then.
    """
    run = _Run(target)
    samples: list[Sample] = []
    done = 0
    began = time.perf_counter()
    interrupted = False
    with _on_one_processor():
        try:
            for pairs in rounds:
                if not done:
                    run.warm_up(pairs, most_bytes - _bytes_of(pairs))
                    began = time.perf_counter()
                elapsed = time.perf_counter() - began
                moved = run.read + run.written
                if done and (elapsed * (done + 1) / done > limit_s or moved + _bytes_of(pairs) > most_bytes):
                    break
                if tell is not None:
                    tell(min(max(elapsed / limit_s, moved / most_bytes), 1.0) if done else 0.0)
                timed = run.round(pairs, began + limit_s)
                if timed is None and not done:
                    raise run.too_slow(pairs, limit_s)
                if timed is None:
                    break
                samples += timed
                done += 1
        except KeyboardInterrupt:
            interrupted = True
    elapsed = time.perf_counter() - began
    zeros = run.zeros / run.reads if run.reads else 0.0
    return Timed(tuple(samples), done, run.read, run.written, zeros, elapsed, interrupted)


def _bytes_of(pairs: Round) -> int:
    """Return the bytes that a round reads and writes."""
    return sum(pair.slower.length + pair.faster.length for pair in pairs)


class _Run:
    """The buffers and counters of one probe."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.read = self.written = self.reads = self.zeros = self.pairs = 0
        self._buffers = Buffers()
        self._lent: dict[int, memoryview] = {}
        self._pool: memoryview | None = None

    def warm_up(self, pairs: Round, spare: int) -> None:
        """Wake the drive and the processor with reads that are not counted. `spare`: the bytes of the limit
        that the round leaves for them. Raises Refused if it is negative: the round itself exceeds the limit.
        """
        if spare < 0:
            needed = align_up(_bytes_of(pairs), MIB)
            words = (
                f"one round of requests reads and writes {format_size(needed)}, which is more than the limit"
            )
            raise Refused(words, hint=f"--most {format_size(needed)}, or a smaller --largest")
        until = time.perf_counter() + 0.5
        for pair in pairs:
            if time.perf_counter() > until or self.read + pair.faster.length > spare:
                return
            self._read(pair.faster)

    def round(self, pairs: Round, until: float) -> tuple[Sample, ...] | None:
        """Time a round. Return None if the time is over before it is complete. `until`: a time of
        perf_counter.
        """
        samples = []
        self.pairs = 0
        for pair in pairs:
            if time.perf_counter() > until:
                return None
            samples.append(self.pair(pair))
            self.pairs += 1
        return tuple(samples)

    def too_slow(self, pairs: Round, limit_s: float) -> Refused | Stopped:
        """Return the error for a first round that was not complete in time."""
        needed = ceil(1.2 * limit_s * len(pairs) / max(self.pairs, 1))
        done = f"only {self.pairs} of {len(pairs)} pairs of requests of the first round were complete"
        words = f"after {limit_s:g} s {done}; an incomplete round gives no result"
        return self._refused_or_stopped(words, hint=f"--limit {needed}, or a smaller --largest")

    def pair(self, pair: Pair) -> Sample:
        """Time both requests of a pair."""
        send = self._read if pair.kind is Kind.READ else self._write
        first = send(pair.slower if pair.slower_first else pair.faster)
        second = send(pair.faster if pair.slower_first else pair.slower)
        slower, faster = (first, second) if pair.slower_first else (second, first)
        return Sample(pair.kind, pair.level, pair.quarter, slower, faster)

    def _read(self, extent: Extent) -> float:
        """Read the extent and return the time in µs."""
        buffer = self._lent.get(extent.length)
        if buffer is None:
            buffer = self._lent[extent.length] = self._buffers.lend(extent.length)
        elapsed = self._time_request(os.preadv, self.target.reading, buffer, extent)
        self.read += extent.length
        self.reads += 1
        self.zeros += not any(buffer[:: max(extent.length // 16, 1)]) and not has_data(bytes(buffer))
        return elapsed

    def _write(self, extent: Extent) -> float:
        """Write random data and return the time in µs until they are durable."""
        if self.target.writing is None:
            raise Refused(f"{self.target.path} was not opened for writing")
        if self._pool is None:
            self._pool = self._buffers.lend(_POOL)
            self._pool[:] = os.urandom(_POOL)
        begin = self.written % (_POOL - extent.length) // 4096 * 4096
        data = self._pool[begin : begin + extent.length]
        elapsed = self._time_request(os.pwritev, self.target.writing, data, extent)
        self.written += extent.length
        return elapsed

    def _time_request(self, call: Transfer, descriptor: int, data: memoryview, extent: Extent) -> float:
        """Send one request and return its time in µs."""
        offset = extent.start if self.target.place is None else self.target.place(extent.start)
        buffers = [data]
        clock = time.perf_counter_ns
        try:
            before = clock()
            transferred = call(descriptor, buffers, offset)
            elapsed = clock() - before
        except OSError as error:
            raise self._failed(descriptor, extent, error.strerror) from error
        if transferred != extent.length:
            raise self._failed(descriptor, extent, f"only {transferred} bytes of {extent.length} were")
        return elapsed / 1000

    def _failed(self, descriptor: int, extent: Extent, why: str | None) -> Refused | Stopped:
        verb = "read" if descriptor == self.target.reading else "written"
        return self._refused_or_stopped(f"{self.target.path} cannot be {verb} at byte {extent.start}: {why}")

    def _refused_or_stopped(self, words: str, hint: str = "") -> Refused | Stopped:
        """Return Stopped if something was written on a disk, otherwise Refused: a file of our own is
        removed.
        """
        written = self.written and self.target.place is None
        return Stopped(words, hint=hint) if written else Refused(words, hint=hint)


@contextmanager
def _on_one_processor() -> Iterator[None]:
    """Run the block on one processor, kept awake (as root: /dev/cpu_dma_latency,
    Documentation/power/pm_qos_interface.rst), without Python's garbage collection. All of it is restored
    afterwards.
    """
    with ExitStack() as stack:
        before = os.sched_getaffinity(0)
        with suppress(OSError):
            os.sched_setaffinity(0, {min(before)})
            stack.callback(os.sched_setaffinity, 0, before)
        with suppress(OSError):
            latency = os.open("/dev/cpu_dma_latency", os.O_WRONLY | os.O_CLOEXEC)
            stack.callback(os.close, latency)
            os.write(latency, bytes(4))
        if gc.isenabled():
            gc.disable()
            stack.callback(gc.enable)
        yield


# The target of a probe: a disk that is only read, a disk that may be overwritten, or a file that is created
# for it and removed.

_FILL_BLOCK = 4 * MIB
_SAMPLES = 8  # blocks that are read in each window


@dataclass(frozen=True, slots=True)
class OpenProbeFile:
    target: Target
    disk: str  # kernel name of the disk that has the file
    extents: tuple[Extent, ...]  # of the disk


@contextmanager
def opened_disk(path: str, *, write: bool) -> Iterator[Target]:
    """Open a disk or file. To write to a disk, the caller must have locked it (`linux/lock.py`). Raises
    Refused.
    """
    with ExitStack() as stack:
        reading = open_target(path, write=False)
        stack.callback(os.close, reading)
        writing = None
        if write:
            writing = open_target(path, write=True)
            stack.callback(os.close, writing)
        yield Target(path, reading, writing)


@contextmanager
def made_file(folder: str, size: int, tell: Tell) -> Iterator[OpenProbeFile]:
    """Create a file and remove it when the block ends. It is filled with random bytes, because a drive does
    not access the flash to read unwritten blocks.

    Raises Refused for too little room, and if the place of the file on the disk is unknown.
    """
    room = os.statvfs(folder)
    words = room_words(size, room.f_bavail * room.f_frsize)
    if words:
        raise Refused(f"there is not enough space in {folder}: {words}", hint="use a smaller --size")
    with ExitStack() as stack:
        name = str(Path(folder, f".aligntool-probe-{secrets.token_hex(4)}"))
        with benchmark_file(folder, size, name=Path(name).name) as path:
            descriptor = stack.enter_context(opened(path, os.O_WRONLY))
            file_extents(descriptor, name)  # refuse now rather than after filling it
            target = stack.enter_context(opened_disk(path, write=True))
        # The file has no name from here on: it is gone with this process, however that ends.
        _fill(descriptor, name, size, tell)
        placed = file_extents(descriptor, name)
        target = replace(target, path=name, place=_disk_to_file(placed.runs))
        yield OpenProbeFile(target, placed.disk, tuple(run.disk for run in placed.runs))


def _fill(descriptor: int, path: str, size: int, tell: Tell) -> None:
    done = 0
    with failing_as(Refused, f"{path} cannot be filled"):
        while done < size:
            tell(done / size)
            done += os.pwrite(descriptor, os.urandom(min(_FILL_BLOCK, size - done)), done)
        os.fsync(descriptor)


def _disk_to_file(runs: Sequence[Run]) -> Callable[[int], int]:
    """Return the function that converts an offset on the disk to one in the file."""

    def place(offset: int) -> int:
        for run in runs:
            if run.disk.start <= offset < run.disk.end:
                return run.file_start + offset - run.disk.start
        raise Refused(f"byte {offset} of the disk is not in the file")

    return place


def written_shares(target: Target, windows: Sequence[Extent], sector: int) -> tuple[float, ...]:
    """Return for each window the share of sampled blocks that are not all zeros, i.e. that a drive must
    read.
    """
    buffer = Buffers().lend(max(4096, sector))
    return tuple(_written_share(target, window, buffer) for window in windows)


def _written_share(target: Target, window: Extent, buffer: memoryview) -> float:
    step = window.length // _SAMPLES // len(buffer) * len(buffer)
    written = 0
    for index in range(_SAMPLES):
        try:
            os.preadv(target.reading, [buffer], window.start + index * step)
        except OSError:
            return 0.0  # do not measure at a place that cannot be read
        written += has_data(bytes(buffer))
    return written / _SAMPLES
