"""Look up the path of a disk or image once: later a command opens what it found there, whatever the path
names then.

Another user may own a folder or a link on the way to an image, and swap it after it was checked or locked. So
a held disk is opened through its descriptor, also by the programs that are started, and its path is only a
name to print: docs/decisions/0054.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aligntool.errors import Refused

_PROC = "/proc/self/fd"

TRY_AGAIN = "find out what replaced it, and run the same command again"

Identity = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class _Held:
    """A disk or image. `descriptor` (O_PATH) neither opens nor locks it, and does not break a lease on it."""

    descriptor: int
    identity: Identity


_HELD: dict[str, _Held] = {}
"""By path, as the user spelled it. A fork inherits it with the descriptors: `keep_only` in
linux/deadline.py.
"""


def hold(path: str) -> None:
    """Hold the disk or image at this path until the process ends; without effect on anything else, on a path
    that is held already, and without /proc, where no disk is locked either. What keeps it from being looked
    up is reported when it is opened.
    """
    if path in _HELD or not os.path.exists(_PROC):  # noqa: PTH110 - a string, as all paths here
        return
    with suppress(OSError, ValueError):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) or stat.S_ISBLK(status.st_mode):
            _HELD[path] = _Held(descriptor, _identity(status))
        else:
            os.close(descriptor)


def release(path: str) -> None:
    """Look the path up again when it is used next."""
    found = _HELD.pop(path, None)
    if found:
        os.close(found.descriptor)


@contextmanager
def held(path: str) -> Iterator[None]:
    """Hold the disk or image at this path within the context, or longer if it is held already."""
    is_ours = path not in _HELD
    hold(path)
    try:
        yield
    finally:
        if is_ours:
            release(path)


def place_of(path: str) -> str:
    """Return the name by which a held disk or image is opened here, and in programs that inherit its
    descriptor; of anything else, the path. Raises Refused if the path names something else by now.
    """
    found = _HELD.get(path)
    if found is None:
        return path
    present: Identity = ()
    with suppress(OSError):
        present = _identity(os.stat(path))  # noqa: PTH116
    if present != found.identity:
        text = (
            f"{path} names another file or device than when it was first opened: something replaced it"
            " meanwhile"
        )
        raise Refused(text, hint=TRY_AGAIN)
    return f"{_PROC}/{found.descriptor}"


def is_held(path: str) -> bool:
    return path in _HELD


def descriptors_of(path: str) -> tuple[int, ...]:
    """Return the descriptor that a program has to inherit to open `place_of` this path; () if it is not
    held.
    """
    found = _HELD.get(path)
    return (found.descriptor,) if found else ()


def all_descriptors() -> tuple[int, ...]:
    """Return the descriptors of everything that is held."""
    return tuple(each.descriptor for each in _HELD.values())


def status_of(path: str) -> os.stat_result:
    """Return the status of what is held, or at the path. Raises OSError, and Refused as `place_of` does."""
    return os.stat(place_of(path))  # noqa: PTH116


def open_held(path: str, flags: int) -> int:
    """Open what is held, or at the path. Raises OSError with this path, and Refused as `place_of` does."""
    try:
        return os.open(place_of(path), flags | os.O_CLOEXEC)
    except OSError as error:
        error.filename = path
        raise


def _identity(status: os.stat_result) -> Identity:
    """Return what is equal for all paths of a file, or for all nodes of a block device as long as it is the
    same one: the kernel gives a number again, but not a diskseq (Documentation/ABI/testing/sysfs-block, Linux
    5.15).
    """
    if not stat.S_ISBLK(status.st_mode):
        return status.st_dev, status.st_ino
    folder = Path(f"/sys/dev/block/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}")
    for file in (folder / "diskseq", folder / "../diskseq"):  # that of a partition is its disk's
        with suppress(OSError):
            return status.st_rdev, file.read_text()
    return (status.st_rdev,)
