"""Write files atomically: pages, archives, configuration files with their mode and owner."""

import lzma
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO, Literal

from aligntool.errors import Refused, refuse_folder_name
from aligntool.linux.outputs import Place, new_file, open_place
from aligntool.linux.programs import run_program
from aligntool.linux.sysfs import live_paths, opened, opened_document
from aligntool.units import format_about

# Files of the system and aligntool's own records. A reader sees the old file or the new one, even after a
# power cut.


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    with opened(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def remove_file(path: Path) -> None:
    """Remove a file durably, if it exists. Raises OSError."""
    with open_place(path) as place:
        with suppress(FileNotFoundError):
            os.unlink(place.name, dir_fd=place.folder)
        place.sync()


def replace_file(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace a file; it keeps its mode, owner and extended attributes. `mode` is for a new file.

    `path` must not be a symbolic link. Raises OSError.
    """
    with open_place(path) as place, _like(place) as like:
        _write_like(place, content, like=like, mode=mode, replace=True)


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, which is replaced by the longer one, and must not be a symbolic link. Raises
    OSError.
    """
    with open_place(path) as place, _like(place) as like:
        known = b""
        if like is not None:
            with os.fdopen(os.dup(like), "rb") as file:
                known = file.read()
        _write_like(place, known + f"{line}\n".encode(), like=like, mode=0o644, replace=True)


def keep_copy(path: Path, copy: Path) -> bool:
    """Copy a file with its attributes; False if `copy` already exists; it is kept. Raises OSError."""
    with open_place(path) as place, open_place(copy) as new, _like(place) as like:
        if new.status() is not None:
            return False
        try:
            _write_like(new, path.read_bytes(), like=like, mode=0o600, replace=False)
        except FileExistsError:
            return False
    return True


@contextmanager
def _like(place: Place) -> Iterator[int | None]:
    """Yield a descriptor of the file whose attributes are copied, or None if there is none. Raises
    OSError.
    """
    if place.status() is None:
        yield None
        return
    descriptor = place.open(os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_like(place: Place, content: bytes, *, like: int | None, mode: int, replace: bool) -> None:
    """Write a file with the attributes of the file `like`; without one, with this mode."""
    with new_file(place, replace=replace) as descriptor:
        _write_all(descriptor, content)
        if like is None:
            os.fchmod(descriptor, mode)
        else:
            _copy_attributes(like, descriptor)
    place.sync()


def _copy_attributes(like: int, descriptor: int) -> None:
    """Copy mode, owner and extended attributes (SELinux labels, ACLs)."""
    status = os.fstat(like)
    os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    names: list[str] = []
    with suppress(OSError):  # a file system without them
        names = os.listxattr(like)
    for name in names:
        with suppress(OSError):  # one that cannot be set, such as security.ima, does not prevent the others
            os.setxattr(descriptor, name, os.getxattr(like, name))


def _write_all(descriptor: int, content: bytes | BinaryIO) -> None:
    with os.fdopen(os.dup(descriptor), "wb") as file:
        copyfileobj(BytesIO(content) if isinstance(content, bytes) else content, file)


_VOLATILE = ("tmpfs", "ramfs")
"""File systems whose content a power cut erases, by their names in stat(1)."""


def volatile_kind(folder: Path) -> str:
    """Return the kind of the folder's file system if a power cut erases its content, else ""."""
    kind = _output_of("stat", "-f", "-c", "%T", str(folder))
    if kind == "overlayfs":  # a live system writes into a tmpfs below it, a container onto a disk
        upper = re.search(
            r"upperdir=([^,]+)", _output_of("findmnt", "-n", "-o", "OPTIONS", "-T", str(folder))
        )
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
            raise Refused(
                f"{name} cannot be read: it is too large, more than {format_about(most)}", hint=hint
            )
        return content.decode()
    except (OSError, ValueError) as error:
        why = "not a text file" if isinstance(error, UnicodeDecodeError) else _reason(error)
        raise Refused(f"{name} cannot be read: {why}", hint=hint) from error


def write_pages(pages: Sequence[tuple[str, bytes]], *, overwrite: bool = False) -> None:
    """Write each page under its name. Raises Refused before any is written if one exists and may not be
    replaced, and if one cannot be written.
    """
    for name, _ in pages:
        refuse_output(name, overwrite=overwrite)
    for name, content in pages:
        write_file(name, content, overwrite=overwrite)


def write_file(name: str, content: bytes | BinaryIO, *, overwrite: bool = False, mode: int = 0o666) -> None:
    """Write a file atomically. Raises Refused."""
    refuse_output(name, overwrite=overwrite)
    try:
        with open_place(name, follow=overwrite) as place:
            old = _replaced(place, name, "nothing was written") if overwrite else None
            if old is not None:  # its content may concern the same users only
                mode &= old.st_mode
            with new_file(place, mode, replace=old is not None) as descriptor:
                _write_all(descriptor, content)
    except FileExistsError as error:
        raise Refused(f"{name} already exists; nothing was written", hint="use another name") from error
    except (OSError, ValueError) as error:
        raise Refused(f"{name} cannot be written: {_reason(error)}") from error


def _replaced(place: Place, name: str, undone: str) -> os.stat_result | None:
    """Return the status of the file that is to be replaced, or None if there is none. Raises Refused unless
    aligntool has written it, and OSError.
    """
    try:
        descriptor = place.open(os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Refused(f"{name} is not a regular file; {undone}", hint="use another name")
        if not is_own_output(os.pread(descriptor, LONGEST_BEGINNING, 0)):
            text = f"{name} is not recognised as written by aligntool, so it is not replaced; {undone}"
            raise Refused(text, hint="use another name, or remove it")
        return found
    finally:
        os.close(descriptor)


# What --overwrite replaces: empty files, and those that begin as aligntool's own outputs do. Copies of disks,
# journals and whatever another program wrote are not among them.

LONGEST_BEGINNING = 4096
_ARCHIVE_COMMENT = "aligntool snapshot"
_ARCHIVE_HEADER = f"30 comment={_ARCHIVE_COMMENT}\n".encode()  # pax(1): the length of the record first
_PNG_MARK = b"tEXtSoftware\0aligntool"
_BEGINNINGS = re.compile(
    rb'\s*\{\s*"schema":\s*"aligntool\.'  # every JSON document: docs/json.md
    rb'|\{\s*"fio version"'  # fio's own results, which `bench --fio-output` saves
    rb"|<!DOCTYPE html>\s*<html [^>]*>\s*<head>(?:\s*<meta [^>]*>)*?"
    rb'\s*<meta name="generator" content="aligntool '
    rb'|<svg [^>]* aria-labelledby="([\w-]+)-title \1-desc" class="picture">'
    rb"|# HELP aligntool_"  # metrics
    # a log of `trace record`, in blkparse's format
    rb"|\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d+\s+\d+\s+[A-Zm]\w?\s"
    rb"|\x89PNG\r\n\x1a\n.{4}IHDR.{17}.{4}" + re.escape(_PNG_MARK),
    re.DOTALL,
)  # fmt: skip


def is_own_output(beginning: bytes) -> bool:
    """Return whether a file with this beginning may be replaced: it is empty, or an output of aligntool."""
    return not beginning or bool(_BEGINNINGS.match(beginning)) or _is_own_archive(beginning)


def _is_own_archive(beginning: bytes) -> bool:
    """Return whether it is the beginning of a snapshot, which has a comment in its first header."""
    with suppress(lzma.LZMAError, zlib.error, EOFError):
        if beginning.startswith(b"\xfd7zXZ\0"):
            beginning = lzma.LZMADecompressor().decompress(beginning, 2 * tarfile.BLOCKSIZE)
        elif beginning.startswith(b"\x1f\x8b"):
            beginning = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(beginning, 2 * tarfile.BLOCKSIZE)
    return beginning[tarfile.BLOCKSIZE : 2 * tarfile.BLOCKSIZE].startswith(_ARCHIVE_HEADER)


def refuse_output(
    name: str,
    *,
    overwrite: bool = False,
    undone: str = "nothing was written",
    inputs: Iterable[str | None] = (),
) -> None:
    """Raise Refused if the file cannot be written, or exists and may not be replaced. `undone`: what was not
    done. `inputs`: the disks and files that are read, which are never replaced.
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
    if target.exists() and any(
        os.path.exists(each) and target.samefile(each)  # noqa: PTH110
        for each in read
    ):
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
    try:
        with open_place(name, follow=overwrite) as place:
            if overwrite:
                _replaced(place, name, undone)
    except OSError as error:
        raise Refused(
            f"{name} cannot be written: {_reason(error)}; {undone}", hint="use another name"
        ) from error


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
    """Write the entries of linux.snapshot to a tar file, compressed by its suffix. Raises Refused, if
    possible before anything is collected.
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
    comment = {"comment": _ARCHIVE_COMMENT}
    with tarfile.open(fileobj=archive, mode=mode, format=tarfile.PAX_FORMAT, pax_headers=comment) as tar:
        for entry in entries:
            _add_entry(tar, *entry)
    return archive.getvalue()


def _add_entry(tar: "tarfile.TarFile", path: str, kind: str, content: bytes) -> None:
    """Add an entry; owner, time and mode are the same for all, so that the archive is reproducible."""
    info = tarfile.TarInfo(path)
    if kind == "directory":
        info.type = tarfile.DIRTYPE
        info.mode = 0o755
    elif kind == "symlink":
        info.type = tarfile.SYMTYPE
        info.linkname = os.fsdecode(content)
    else:
        info.size = len(content)
    tar.addfile(info, BytesIO(content))


_PNG_S = 120
_PNG_HEADER = 33  # bytes of the signature and of the first chunk, IHDR


def png_of(svg: str) -> bytes:
    """Render an SVG picture as PNG, twice as large; librsvg loads no other files. Raises Refused."""
    ended = run_program("rsvg-convert", "--zoom", "2", "--format", "png", stdin=svg.encode(), limit_s=_PNG_S)
    if ended.code or not ended.stdout:
        raise Refused(f"rsvg-convert rendered nothing: {ended.output_tail or f'exit code {ended.code}'}")
    text = len(_PNG_MARK) - 4  # the type of the chunk is not counted (PNG specification, 5.3)
    chunk = text.to_bytes(4, "big") + _PNG_MARK + zlib.crc32(_PNG_MARK).to_bytes(4, "big")
    return ended.stdout[:_PNG_HEADER] + chunk + ended.stdout[_PNG_HEADER:]
