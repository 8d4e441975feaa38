"""A file replaced as a whole: whoever reads it, and whenever the power goes, finds the old one or the new one.

In: a path and bytes. Out: the file, durable. Alone because records and files of the system are both written like this.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

_ENDING = ".aligntool-new"


def replace_file(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """`mode` is for a file that is new; one that is there keeps its mode, owner and extended attributes.

    `path` is no symbolic link: whoever calls this has followed it. Raises OSError.
    """
    new = path.with_name(path.name + _ENDING)
    new.unlink(missing_ok=True)  # of an attempt that was cut short
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            _dress(path, descriptor, mode)
            os.fsync(descriptor)
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    sync_folder(path.parent)


def keep_copy(path: Path, copy: Path) -> bool:
    """What the file is now, beside it. False: a copy is there already, and stays as it is. Raises OSError."""
    if os.path.lexists(copy):
        return False
    new = copy.with_name(copy.name + _ENDING)
    replace_file(new, path.read_bytes(), mode=0o600)
    descriptor = os.open(new, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        _dress(path, descriptor, None)
        os.fsync(descriptor)
        os.link(new, copy)  # unlike a rename it replaces nothing
    except FileExistsError:
        return False
    finally:
        os.close(descriptor)
        new.unlink()
        sync_folder(copy.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Names that were made or taken away are durable when it returns. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _dress(path: Path, descriptor: int, mode: int | None) -> None:
    """Mode, owner and extended attributes (SELinux labels, ACLs) of the file that is there, else `mode`."""
    try:
        status = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        os.fchmod(descriptor, 0o644 if mode is None else mode)
        return
    os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    names: list[str] = []
    with suppress(OSError):  # a file system without them
        names = os.listxattr(path, follow_symlinks=False)
    for name in names:
        with suppress(OSError):  # one that may not be set, such as security.ima, takes no other with it
            os.setxattr(descriptor, name, os.getxattr(path, name, follow_symlinks=False))
