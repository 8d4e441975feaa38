"""What a probe works on: a disk that is read, a disk that was given up, or a file made for it and removed again.

In: a path. Out: a Target to time requests on, and where on the disk its bytes lie. Alone because it is all that a probe
writes, apart from the timed writes themselves.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from aligntool.apply.buffers import Buffers
from aligntool.apply.extents import Run, file_extents
from aligntool.apply.timing import Target, Tell, open_target
from aligntool.audit.words import shell_word
from aligntool.errors import Refused
from aligntool.units import MIB, Extent, format_size

_PIECE = 4 * MIB
_LOOKS = 8  # into each window
_LOOK = 4096


@dataclass(frozen=True, slots=True)
class Made:
    target: Target
    disk: str  # kernel name of the disk that the file lies on
    extents: tuple[Extent, ...]  # of the disk


@contextmanager
def opened_disk(path: str, *, write: bool) -> Iterator[Target]:
    """Whoever writes holds the disk already (`apply.hold`). Raises Refused."""
    with ExitStack() as stack:
        reading = open_target(path, write=False)
        stack.callback(os.close, reading)
        writing = None
        if write:
            writing = open_target(path, write=True)
            stack.callback(os.close, writing)
        yield Target(path, reading, writing)


@contextmanager
def made_file(folder: str, size: int, tell: Tell) -> Iterator[Made]:
    """Full of random bytes, because flash that was never written is not read; gone when the block ends.

    Raises Refused for too little room, and where nobody knows what bytes of a disk a file has.
    """
    room = os.statvfs(folder)
    if room.f_bavail * room.f_frsize < size + size // 8:
        raise Refused(
            f"{folder} has no room for a file of {format_size(size)}",
            hint=f"--size {format_size(max(size // 4, MIB))}",
        )
    with ExitStack() as stack:
        try:
            descriptor, path = tempfile.mkstemp(prefix=".aligntool-probe-", dir=folder)
        except OSError as error:
            hint = f"ls -ld {shell_word(folder)}"
            raise Refused(f"no file can be made in {folder}: {error.strerror}", hint=hint) from error
        stack.callback(Path(path).unlink, missing_ok=True)
        stack.callback(os.close, descriptor)
        _fill(descriptor, path, min(_LOOK, size), tell)
        file_extents(descriptor, path)  # refused now rather than when it is full
        _fill(descriptor, path, size, tell)
        placed = file_extents(descriptor, path)
        target = stack.enter_context(opened_disk(path, write=True))
        place = _placing(placed.runs)
        yield Made(
            Target(path, target.reading, target.writing, place),
            placed.disk,
            tuple(run.disk for run in placed.runs),
        )


def _fill(descriptor: int, path: str, size: int, tell: Tell) -> None:
    done = 0
    try:
        while done < size:
            tell(done / size)
            done += os.pwrite(descriptor, os.urandom(min(_PIECE, size - done)), done)
        os.fsync(descriptor)
    except OSError as error:
        raise Refused(f"{path} cannot be filled: {error.strerror}") from error


def _placing(runs: Sequence[Run]) -> Callable[[int], int]:
    def place(at: int) -> int:
        for run in runs:
            if run.disk.start <= at < run.disk.end:
                return run.file_start + at - run.disk.start
        raise Refused(f"byte {at} of the disk is not in the file")

    return place


def written_shares(target: Target, windows: Sequence[Extent], sector: int) -> tuple[float, ...]:
    """Of each window, the share of a few looks that found anything but zeros: where a drive has data to read."""
    length = max(_LOOK, sector)
    buffer = Buffers().lend(length)
    return tuple(_share(target, window, buffer) for window in windows)


def _share(target: Target, window: Extent, buffer: memoryview) -> float:
    step = window.length // _LOOKS // len(buffer) * len(buffer)
    found = 0
    for index in range(_LOOKS):
        try:
            os.preadv(target.reading, [buffer], window.start + index * step)
        except OSError:
            return 0.0  # a place that cannot be read is none to measure at
        found += any(buffer)
    return found / _LOOKS
