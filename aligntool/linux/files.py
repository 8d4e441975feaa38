"""Write files atomically: pages, archives, configuration files with their mode and owner."""

import os
import re
import stat
import tarfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Literal, Protocol

from aligntool.errors import Refused, refuse_folder_name
from aligntool.linux.process import run_program

# Writes the archive of `aligntool snapshot`.
#
# In: entries, from whoever collected them. Out: one tar file, compressed as its name says. Alone because it
# is the only file of a user's choosing that is written: all at once or not at all, and never over another one
# unasked.

_Mode = Literal["w", "w:gz", "w:xz"]
_MODES: dict[str, _Mode] = {
    ".tar": "w",
    ".tar.gz": "w:gz",
    ".tgz": "w:gz",
    ".tar.xz": "w:xz",
    ".txz": "w:xz",
}


class Entry(Protocol):
    """probe.snapshot's, as far as it matters here."""

    @property
    def path(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def content(self) -> bytes: ...


def write_snapshot(path: str, entries: Iterable[Entry], *, overwrite: bool = False) -> None:
    """Raises Refused for a name that says no format, a file that is there, a place that cannot be written."""
    refuse_folder_name(path)
    target = Path(path)
    mode = next((mode for suffix, mode in _MODES.items() if target.name.endswith(suffix)), None)
    if mode is None:
        raise Refused(f"{path} does not say how to write it", hint=f"name it like {target.name}.tar.xz")
    if not overwrite and (target.exists() or target.is_symlink()):
        raise Refused(f"{path} is there already", hint="give another name, or --overwrite")
    if overwrite and target.exists() and not target.is_file():
        raise Refused(f"{path} is no regular file", hint="give another name")
    try:
        _write_member(target, mode, entries, overwrite=overwrite)
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}") from error


def _write_member(target: Path, mode: _Mode, entries: Iterable[Entry], *, overwrite: bool) -> None:
    with NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        temporary = Path(file.name)
        try:
            with tarfile.open(fileobj=file, mode=mode, format=tarfile.PAX_FORMAT) as tar:
                for entry in entries:
                    _add(tar, entry)
            file.flush()
            os.fsync(file.fileno())
            if overwrite:
                temporary.replace(target)
            else:
                os.link(temporary, target)  # unlike a rename, fails when somebody was faster
        except FileExistsError as error:
            raise Refused(f"{target} is there already", hint="give another name, or --overwrite") from error
        finally:
            temporary.unlink(missing_ok=True)


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    """Owner, time and mode are the same for all: they say nothing of the machine, and the archive is reproducible."""
    info = tarfile.TarInfo(entry.path)
    match entry.kind:
        case "directory":
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        case "symlink":
            info.type, info.linkname = tarfile.SYMTYPE, os.fsdecode(entry.content)
            tar.addfile(info)
        case _:
            info.size = len(entry.content)
            tar.addfile(info, BytesIO(entry.content))


# A file replaced as a whole: whoever reads it, and whenever the power goes, finds the old one or the new one.
#
# In: a path and bytes. Out: the file, durable. Alone because records and files of the system are both written
# like this.

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


# Whether what is written to a folder is still there after the power was cut.
#
# In: a folder. Out: the kind of its file system where that forgets, such as a live system's. Alone because
# journals and records must both outlive the machine that writes them.

_FORGETFUL = ("tmpfs", "ramfs")
"""Kinds of file systems, as stat(1) calls them, that a power cut empties."""


def forgetful_kind(folder: Path) -> str:
    """ "tmpfs", "ramfs"; "": it keeps what it is given, as far as anybody can tell."""
    kind = _output_of("stat", "-f", "-c", "%T", str(folder))
    if kind == "overlayfs":  # a live system writes into a tmpfs below it, a container onto a disk
        upper = re.search(
            r"upperdir=([^,]+)", _output_of("findmnt", "-n", "-o", "OPTIONS", "-T", str(folder))
        )
        kind = _output_of("stat", "-f", "-c", "%T", upper[1]) if upper else kind
    return kind if kind in _FORGETFUL else ""


def _output_of(*words: str) -> str:
    """Return what a program printed; empty where it failed."""
    return run_program(*words, only_reads=True).output.strip()


# A page or a picture into a file of the user's choosing, and a picture from SVG into PNG.
#
# In: text or bytes, and a name. Out: the file, whole or not at all. Alone because these are the only files
# that are made to be looked at; PNG comes from librsvg, which draws what is in the text and loads nothing
# from elsewhere.

SCALE = "2"  # for screens with small pixels
LIMIT_S = 120


def write_pages(pages: Sequence[tuple[str, bytes]], *, overwrite: bool = False) -> None:
    """Each under its name. Raises Refused for a file that is there and may not be replaced, before any is written, and
    for a place that cannot be written.
    """
    for name, _ in pages:
        refuse_folder_name(name)
        _refuse_taken(name, overwrite=overwrite)
    for name, content in pages:
        _write_page(name, content, overwrite=overwrite)


def _refuse_taken(name: str, *, overwrite: bool) -> None:
    target = Path(name)
    try:
        taken = target.is_symlink() or target.exists()
    except (OSError, ValueError) as error:
        raise Refused(f"{name} cannot be written: {_reason(error)}") from error
    if taken and not overwrite:
        raise Refused(
            f"{name} is there already; nothing was written", hint="give another name, or --overwrite"
        )
    if taken and not target.is_file():
        raise Refused(f"{name} is no regular file; nothing was written", hint="give another name")


def _write_page(name: str, content: bytes, *, overwrite: bool) -> None:
    """What is there is replaced in one step, so that nobody ever reads half a page."""
    target = Path(name).resolve() if overwrite else Path(name)
    fresh = target.with_name(f".{os.getpid()}-{target.name[:100]}") if overwrite else target
    try:
        with fresh.open("xb") as file:
            try:
                file.write(content)
                file.flush()
                if overwrite:
                    fresh.replace(target)
            except BaseException:
                fresh.unlink()
                raise
    except (OSError, ValueError) as error:
        raise Refused(f"{name} cannot be written: {_reason(error)}") from error


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def png_of(svg: str) -> bytes:
    """Raises Refused where rsvg-convert is missing or fails."""
    ended = run_program(
        "rsvg-convert", "--zoom", SCALE, "--format", "png", stdin=svg.encode(), limit_s=LIMIT_S
    )
    if ended.code or not ended.stdout:
        raise Refused(f"rsvg-convert drew nothing: {ended.last_words or f'exit code {ended.code}'}")
    return ended.stdout
