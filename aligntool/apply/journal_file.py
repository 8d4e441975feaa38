"""A journal in a file, for a disk that has no free space for one.

In: a path that the user chose. Out: a Device over that file. Alone because a journal must outlive what it protects: it
may not lie in memory. On the disk that is being changed it cannot lie, for nothing of a held disk is mounted.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aligntool.apply.disk_device import DiskDevice
from aligntool.apply.lasting import forgetful_kind
from aligntool.errors import Refused, refuse_folder_name
from aligntool.units import format_about


@contextmanager
def open_journal(file: str, *, length: int | None = None) -> Iterator[DiskDevice]:
    """The file as a Device. `length`: make it anew, of so many bytes; otherwise it must be there.

    A file that was made here goes again when nothing of it is needed: the work came to its end, or was refused before
    anything was written. Raises Refused.
    """
    refuse_folder_name(file)
    path = Path(file)
    if length is None:
        descriptor = _open(path, os.O_RDWR)
    else:
        _refuse_place(path)
        descriptor = _make(path, length)
    needed = True
    try:
        _lock(descriptor, file)
        with DiskDevice(descriptor) as device:
            yield device
        needed = False
    except (Refused, KeyboardInterrupt):
        needed = False
        raise
    finally:
        os.close(descriptor)
        if length is not None and not needed:
            path.unlink()


def _lock(descriptor: int, file: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Refused(f"{file} is in use by another aligntool") from None


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


def _refuse_place(path: Path) -> None:
    folder = path.absolute().parent
    kind = forgetful_kind(folder)
    if kind:
        raise Refused(f"{folder} is a {kind}: a power cut would take the journal with it",
                      hint="--journal FILE, on a disk that stays")  # fmt: skip
