"""Create files where the user named them, and nowhere else: no link of another user leads root's writes away.

The folders of a path are opened one by one. A symbolic link is followed only if nobody but root and the
caller can have put it there; then files are created, renamed and removed in the folder that is open, whatever
its path leads to by now (docs/decisions/0056-outputs-in-open-folders.md).
"""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aligntool.linux.sysfs import MOST_LINKS

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_OPEN_LINK = os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW
# O_DIRECTORY also mounts what autofs has there, which O_PATH alone does not (open(2)).
_OPEN_FOLDER = _OPEN_LINK | os.O_DIRECTORY


@dataclass(frozen=True, slots=True)
class Place:
    """A name in a folder. `folder`: its descriptor, of O_PATH."""

    folder: int
    name: str

    def status(self) -> os.stat_result | None:
        """Return what is there, a link itself, or None."""
        with suppress(FileNotFoundError):
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        return None

    def open(self, flags: int, mode: int = 0o600) -> int:
        """Open what is there, which must not be a link. Raises OSError."""
        return os.open(self.name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode, dir_fd=self.folder)

    def sync(self) -> None:
        """Make the names in the folder durable. Raises OSError."""
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def open_place(path: str | Path, *, follow: bool = False) -> Iterator[Place]:
    """Yield the place of a file. `follow`: if it is a link, the place to which it leads. Raises OSError."""
    folder, name = _walk(str(path), whole=False, follow=follow)
    try:
        yield Place(folder, name)
    finally:
        os.close(folder)


@contextmanager
def open_folder(path: str | Path, *, make: int | None = None) -> Iterator[int]:
    """Yield a descriptor of a folder, of O_PATH. `make`: create what is missing of it, with this mode.

    Raises OSError.
    """
    folder, _ = _walk(str(path), whole=True, follow=True, make=make)
    try:
        yield folder
    finally:
        os.close(folder)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Create a folder and those above it, if they do not exist. Raises OSError."""
    with open_folder(path, make=mode):
        pass


def _walk(path: str, *, whole: bool, follow: bool, make: int | None = None) -> tuple[int, str]:
    """Return a descriptor of the folder, and the last component of the path; `whole`: of the path itself."""
    pending = path.split("/")[::-1]
    links = 0
    folder = os.open("/" if path.startswith("/") else ".", _OPEN_FOLDER)
    try:
        while pending:
            name = pending.pop()
            if name in ("", "."):
                continue
            if not whole and not any(pending) and not (follow and _is_link(folder, name)):
                return folder, name
            step: int | None = None
            target = _link_in(folder, name)
            if target is None:
                step = _entered(folder, name, make)
            else:
                links += 1
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                pending += target.split("/")[::-1]
                if target.startswith("/"):
                    step = os.open("/", _OPEN_FOLDER)
            if step is not None:
                os.close(folder)
                folder = step
        if not whole:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except BaseException:
        os.close(folder)
        raise
    return folder, ""


def _is_link(folder: int, name: str) -> bool:
    status = Place(folder, name).status()
    return status is not None and stat.S_ISLNK(status.st_mode)


def _link_in(folder: int, name: str) -> str | None:
    """Return the target of a link, or None if it is not one. Raises OSError if another user can have put it
    there.
    """
    if not _is_link(folder, name):
        return None
    link = os.open(name, _OPEN_LINK, dir_fd=folder)
    try:
        found = os.fstat(link)
        if not stat.S_ISLNK(found.st_mode):  # it was replaced meanwhile
            return None
        # Whoever owns the folder can have moved a link of ours into it.
        if not {found.st_uid, os.fstat(folder).st_uid} <= _trusted_users():
            above = Path(f"/proc/self/fd/{folder}").readlink()
            raise OSError(errno.ELOOP, f"{above}/{name} is a symbolic link of another user")
        return os.readlink("", dir_fd=link)
    finally:
        os.close(link)


def _trusted_users() -> set[int]:
    """Return root, the caller, and who lent root's rights by sudo or pkexec. Whoever owns "/" is root, too:
    in a user namespace it is the number of all users that have none there.
    """
    lenders = (os.environ.get(name, "") for name in ("SUDO_UID", "PKEXEC_UID"))
    return {0, os.geteuid(), Path("/").stat().st_uid, *(int(user) for user in lenders if user.isdecimal())}


def _entered(folder: int, name: str, make: int | None) -> int:
    """Return a descriptor of a folder in a folder. `make`: its mode, if it does not exist."""
    try:
        return os.open(name, _OPEN_FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if make is None:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, make, dir_fd=folder)
    return os.open(name, _OPEN_FOLDER, dir_fd=folder)


@contextmanager
def new_file(place: Place, mode: int = 0o600, *, replace: bool = False) -> Iterator[int]:
    """Yield the descriptor of a new file. At the end its content is durable and it gets its name; after an
    error, or if this process is killed, nothing is left of it. `replace`: the name may exist.

    Raises OSError; FileExistsError if the name exists and `replace` is not set.
    """
    if not replace and place.status() is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    descriptor, temporary = _created(place.folder, mode)
    try:
        yield descriptor
        os.fsync(descriptor)
        if temporary is None and replace:  # linkat(2) replaces nothing
            temporary = _temporary_name()
            _link(descriptor, Place(place.folder, temporary))
        if temporary is None:
            _link(descriptor, place)
        elif replace or not _linked(temporary, place):
            os.replace(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=place.folder)
        raise
    finally:
        os.close(descriptor)


def _created(folder: int, mode: int) -> tuple[int, str | None]:
    """Return a new file in the folder and its temporary name; None: it has none, so that it vanishes with
    this process. Some file systems have no such files (open(2), O_TMPFILE), and without /proc there is no way
    to name it later.
    """
    with suppress(OSError):
        descriptor = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode, dir_fd=folder)
        if os.path.exists(f"/proc/self/fd/{descriptor}"):  # noqa: PTH110
            return descriptor, None
        os.close(descriptor)
    name = _temporary_name()
    return os.open(name, _CREATE, mode, dir_fd=folder), name


def _temporary_name() -> str:
    return f".aligntool-{secrets.token_hex(8)}"  # not matched by *.prom, which node_exporter collects


def _link(descriptor: int, place: Place) -> None:
    """Give a file without a name this one (open(2), O_TMPFILE)."""
    os.link(f"/proc/self/fd/{descriptor}", place.name, dst_dir_fd=place.folder, follow_symlinks=True)


def _linked(temporary: str, place: Place) -> bool:
    """Name the file by a hard link, which replaces nothing, unlike a rename. False: no hard links here, as on
    FAT.
    """
    try:
        os.link(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except FileExistsError:
        raise
    except OSError:
        if place.status() is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        return False
    os.unlink(temporary, dir_fd=place.folder)
    return True


def remove_if_same(path: str | Path, descriptor: int) -> None:
    """Remove the file of this descriptor, unless it was removed or renamed, or another file has its name by
    now.
    Raises OSError.
    """
    with open_place(path) as place:
        found = place.status()
        if found is not None and os.path.samestat(found, os.fstat(descriptor)):
            os.unlink(place.name, dir_fd=place.folder)


@contextmanager
def private_folder(parent: str | Path, prefix: str) -> Iterator[Path]:
    """Yield a path to a new folder, which leads there whatever others rename, and remove the folder
    afterwards. Raises OSError.
    """
    with open_folder(parent) as above:
        name = f"{prefix}{secrets.token_hex(4)}"
        os.mkdir(name, 0o700, dir_fd=above)
        try:
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
            try:
                if os.fstat(folder).st_uid != os.geteuid():
                    raise OSError(errno.EEXIST, f"{parent}/{name} was replaced by another user")
                yield Path(f"/proc/{os.getpid()}/fd/{folder}")
            finally:
                os.close(folder)
        finally:
            shutil.rmtree(name, ignore_errors=True, dir_fd=above)
