"""Write files atomically: pages, archives, configuration files with their mode and owner."""

import os
import re
import stat
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Literal

from aligntool.errors import Refused, refuse_folder_name
from aligntool.linux.process import run_program
from aligntool.linux.sysfs import live_paths, opened, opened_document
from aligntool.units import format_about

_NEW_SUFFIX = ".aligntool-new"


@contextmanager
def _new_file(target: Path, new: Path, *, replace: bool, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Yield the new file. Afterwards its content is durable and at `target`; after an error it is removed.

    Raises OSError; FileExistsError if `target` exists and `replace` is not set.
    """
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        if replace or not _link_if_new(new, target):
            new.replace(target)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


def _link_if_new(new: Path, target: Path) -> bool:
    """Name the file by a hard link, which replaces nothing, unlike a rename. False: no hard links here, as on FAT."""
    try:
        os.link(new, target)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(target):
            raise FileExistsError from None
        return False
    new.unlink()
    return True


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    with opened(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def remove_file(path: Path) -> None:
    """Remove a file durably, if it exists. Raises OSError."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


# Files of the system and aligntool's own records. A reader sees the old file or the new one, even after a power cut.


def replace_file(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Replace a file; it keeps its mode, owner and extended attributes. `mode` is for a new file.

    `path` must not be a symbolic link. Raises OSError.
    """
    _write_like(path, content, like=path, mode=mode, replace=True)


def keep_copy(path: Path, copy: Path) -> bool:
    """Copy a file with its attributes; False if `copy` already exists; it is kept. Raises OSError."""
    if os.path.lexists(copy):
        return False
    try:
        _write_like(copy, path.read_bytes(), like=path, mode=None, replace=False)
    except FileExistsError:
        return False
    return True


def _write_like(target: Path, content: bytes, *, like: Path, mode: int | None, replace: bool) -> None:
    """Write a file with the attributes of the file `like`."""
    new = target.with_name(target.name + _NEW_SUFFIX)
    new.unlink(missing_ok=True)  # of an interrupted attempt
    with _new_file(target, new, replace=replace) as file:
        file.write(content)
        file.flush()
        _copy_attributes(like, file.fileno(), mode)
    sync_folder(target.parent)


def _copy_attributes(path: Path, descriptor: int, mode: int | None) -> None:
    """Copy mode, owner and extended attributes (SELinux labels, ACLs) of the file at `path`; without one set `mode`."""
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
        with suppress(OSError):  # one that cannot be set, such as security.ima, does not prevent the others
            os.setxattr(descriptor, name, os.getxattr(path, name, follow_symlinks=False))


_VOLATILE = ("tmpfs", "ramfs")
"""File systems whose content a power cut erases, by their names in stat(1)."""


def volatile_kind(folder: Path) -> str:
    """Return the kind of the folder's file system if a power cut erases its content, else ""."""
    kind = _output_of("stat", "-f", "-c", "%T", str(folder))
    if kind == "overlayfs":  # a live system writes into a tmpfs below it, a container onto a disk
        upper = re.search(r"upperdir=([^,]+)", _output_of("findmnt", "-n", "-o", "OPTIONS", "-T", str(folder)))
        kind = _output_of("stat", "-f", "-c", "%T", upper[1]) if upper else kind
    return kind if kind in _VOLATILE else ""


def _output_of(*words: str) -> str:
    """Return the output of a program."""
    return run_program(*words, only_reads=True).output.strip()


# Files that the user named: pages, pictures, results, snapshots.


def read_text(name: str, *, hint: str = "", most: int = 1 << 26) -> str:
    """Return the text of a file of at most this many bytes. Raises Refused."""
    try:
        with opened_document(name) as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise Refused(f"{name} cannot be read: it is larger than {format_about(most)}", hint=hint)
        return content.decode()
    except (OSError, ValueError) as error:
        why = "not a text file" if isinstance(error, UnicodeDecodeError) else _reason(error)
        raise Refused(f"{name} cannot be read: {why}", hint=hint) from error


def write_pages(pages: Sequence[tuple[str, bytes]], *, overwrite: bool = False) -> None:
    """Write each page under its name. Raises Refused before any is written if one exists and may not be replaced, and
    if one cannot be written.
    """
    for name, _ in pages:
        refuse_output(name, overwrite=overwrite)
    for name, content in pages:
        write_file(name, content, overwrite=overwrite)


def write_file(name: str, content: bytes, *, overwrite: bool = False, mode: int = 0o666) -> None:
    """Write a file atomically. Raises Refused."""
    refuse_output(name, overwrite=overwrite)
    try:
        target = _replaced_path(name) if overwrite else Path(name)
        if overwrite and target.exists():  # its content may concern the same users only
            mode &= target.stat().st_mode
        new = target.with_name(
            f".{target.name[:100]}.{os.getpid()}"
        )  # not matched by *.prom, which node_exporter collects
        with _new_file(target, new, replace=overwrite, mode=mode) as file:
            file.write(content)
    except FileExistsError as error:
        raise Refused(f"{name} already exists; nothing was written", hint="use another name") from error
    except (OSError, ValueError) as error:
        raise Refused(f"{name} cannot be written: {_reason(error)}") from error


_SHARED = stat.S_ISVTX | stat.S_IWOTH


def _replaced_path(name: str) -> Path:
    """Return the path of the file to replace: links are followed, but none that another user put into a folder for all,
    such as /tmp (proc_sys_fs(5), protected_symlinks, which does not cover a rename). Raises Refused, and OSError.
    """
    path = Path(name)
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)  # the link may be replaced meanwhile
    except FileNotFoundError:
        return path
    try:
        found, folder = os.fstat(descriptor), path.parent.stat()
        if not stat.S_ISLNK(found.st_mode):
            return path.parent.resolve() / path.name
        if folder.st_mode & _SHARED == _SHARED and found.st_uid not in (os.geteuid(), folder.st_uid):
            raise Refused(f"{name} is a symbolic link of another user; nothing was written", hint="use another name")
        return _replaced_path(str(path.parent / os.readlink("", dir_fd=descriptor)))
    finally:
        os.close(descriptor)


def refuse_output(
    name: str, *, overwrite: bool = False, undone: str = "nothing was written", inputs: Iterable[str | None] = ()
) -> None:
    """Raise Refused if the file cannot be written, or exists and may not be replaced. `undone`: what was not done.
    `inputs`: the disks and files that are read, which are never replaced.
    """
    refuse_folder_name(name)
    target = Path(name)
    try:
        exists = target.is_symlink() or target.exists()
    except (OSError, ValueError) as error:
        raise Refused(f"{name} cannot be written: {_reason(error)}") from error
    if target.is_dir():
        raise Refused(f"{name} is a folder; {undone}", hint="use another name")
    # Path.exists fails without permission before Python 3.14
    read = filter(None, inputs)
    if target.exists() and any(os.path.exists(each) and target.samefile(each) for each in read):  # noqa: PTH110
        raise Refused(f"{name} is what is read; {undone}", hint="use another name")
    if exists and not overwrite:
        raise Refused(f"{name} already exists; {undone}", hint="use another name or --overwrite")
    if exists and not target.is_file():
        raise Refused(f"{name} is not a regular file; {undone}", hint="use another name")
    if exists and (loop := _loop_of(target)):
        raise Refused(f"{name} is attached to {loop}; {undone}", hint="use another name")
    folder = os.path.dirname(os.path.realpath(name))  # noqa: PTH120 - of the file that a link names
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        why = "is not writable" if os.path.isdir(folder) else "is not a folder"  # noqa: PTH112
        raise Refused(f"{folder} {why}, so {name} cannot be written; {undone}")


def _loop_of(target: Path) -> str:
    """Return a loop device that shows the file, or "": its data are lost if the file is replaced."""
    place = os.path.realpath(target)
    for file in live_paths(Path("/sys/block"), "loop*/loop/backing_file"):
        with suppress(OSError):  # detached meanwhile
            if file.read_text(errors="surrogateescape").rstrip("\n") == place:
                return f"/dev/{file.parts[3]}"
    return ""


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


# The archive of `aligntool snapshot`.

_Mode = Literal["w", "w:gz", "w:xz"]
_MODES: dict[str, _Mode] = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.xz": "w:xz", ".txz": "w:xz"}


def write_snapshot(path: str, entries: Iterable[tuple[str, str, bytes]], *, overwrite: bool = False) -> None:
    """Write the entries of linux.snapshot to a tar file, compressed by its suffix. Raises Refused, if possible before
    anything is collected.
    """
    refuse_output(path, overwrite=overwrite)
    name = Path(path).name
    mode = next((mode for suffix, mode in _MODES.items() if name.endswith(suffix)), None)
    if mode is None:
        raise Refused(f"{path} has no known archive suffix", hint=f"name it like {name}.tar.xz")
    write_file(path, archive_of(entries, mode), overwrite=overwrite, mode=0o600)


def archive_of(entries: Iterable[tuple[str, str, bytes]], mode: Literal["w", "w:gz", "w:xz"]) -> bytes:
    """Return the entries of linux.snapshot as a tar file."""
    archive = BytesIO()
    with tarfile.open(fileobj=archive, mode=mode, format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            _add_entry(tar, *entry)
    return archive.getvalue()


def _add_entry(tar: "tarfile.TarFile", path: str, kind: str, content: bytes) -> None:
    """Add an entry; owner, time and mode are the same for all, so that the archive is reproducible."""
    info = tarfile.TarInfo(path)
    if kind == "directory":
        info.type, info.mode = tarfile.DIRTYPE, 0o755
    elif kind == "symlink":
        info.type, info.linkname = tarfile.SYMTYPE, os.fsdecode(content)
    else:
        info.size = len(content)
    tar.addfile(info, BytesIO(content))


_PNG_S = 120


def png_of(svg: str) -> bytes:
    """Render an SVG picture as PNG, twice as large; librsvg loads no other files. Raises Refused."""
    ended = run_program("rsvg-convert", "--zoom", "2", "--format", "png", stdin=svg.encode(), limit_s=_PNG_S)
    if ended.code or not ended.stdout:
        raise Refused(f"rsvg-convert rendered nothing: {ended.last_words or f'exit code {ended.code}'}")
    return ended.stdout
