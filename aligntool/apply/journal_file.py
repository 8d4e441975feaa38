"""A journal in a file, for a disk that has no free space for one.

In: a path that the user chose. Out: a Device over that file. Alone because a journal must outlive what it protects: it
may lie neither on the disk that is being changed nor in memory.
"""

import fcntl
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aligntool.apply.disk_device import DiskDevice
from aligntool.errors import Refused
from aligntool.units import format_about

_FORGETFUL = ("tmpfs", "ramfs", "overlay", "rootfs")
"""Kinds of file systems that a power cut empties; `overlay` and `rootfs` are what live systems run from."""


@contextmanager
def open_journal(file: str, *, disk: str, length: int | None = None) -> Iterator[DiskDevice]:
    """The file as a Device. `length`: make it anew, of so many bytes; otherwise it must be there.

    Raises Refused.
    """
    path = Path(file)
    if length is None:
        descriptor = _open(path, os.O_RDWR)
    else:
        _refuse_place(path, disk)
        descriptor = _make(path, length)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Refused(f"{file} is in use by another aligntool") from None
        with DiskDevice(descriptor) as device:
            yield device
    finally:
        os.close(descriptor)


def _open(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Refused(f"{path} is there already", hint=f"another name for --journal, or rm {path}") from None
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}", hint="--journal FILE names the journal's file") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refused(f"{path} is no regular file")
    return descriptor


def _make(path: Path, length: int) -> int:
    """Its blocks are there before the first write, and so is its name in the folder."""
    descriptor = _open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        os.posix_fallocate(descriptor, 0, length)
        os.fsync(descriptor)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        os.close(descriptor)
        path.unlink()
        raise Refused(
            f"{path}: a journal of {format_about(length)} cannot be made: {error.strerror}"
        ) from error
    return descriptor


def _refuse_place(path: Path, disk: str) -> None:
    try:
        folder = path.parent.stat()
        target = os.stat(disk)  # noqa: PTH116  (a device as well as a file)
    except OSError as error:
        raise Refused(f"{path.parent}: {error.strerror}") from error
    kind = _file_system(path.parent)
    if kind in _FORGETFUL:
        raise Refused(f"{path.parent} is a {kind}: a power cut would take the journal with it",
                      hint="--journal FILE, on a disk that stays")  # fmt: skip
    if stat.S_ISBLK(target.st_mode) and target.st_rdev in _disks_below(folder.st_dev):
        raise Refused(f"{path} would lie on {disk} itself", hint="--journal FILE, on another disk")


def _file_system(folder: Path) -> str:
    """Its kind, as stat(1) calls it; empty where that does not tell."""
    words = ("stat", "-f", "-c", "%T", str(folder))
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return done.stdout.strip()


def _disks_below(number: int) -> set[int]:
    """Every device that holds a file system's bytes: partition, disk, and whatever those are stacked on."""
    found: set[int] = set()
    waiting = [Path("/sys/dev/block", f"{os.major(number)}:{os.minor(number)}").resolve()]
    while waiting:
        folder = waiting.pop()
        major, _, minor = _text(folder / "dev").partition(":")
        if not minor or (one := os.makedev(int(major), int(minor))) in found:
            continue
        found.add(one)
        waiting += [slave.resolve() for slave in folder.glob("slaves/*")]
        if (folder / "partition").exists():
            waiting.append(folder.parent)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
