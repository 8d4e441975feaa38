"""Writes the archive of `aligntool snapshot`.

In: entries, from whoever collected them. Out: one tar file, compressed as its name says. Alone because it is the only
file of a user's choosing that is written: all at once or not at all, and never over another one unasked.
"""

import os
import tarfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Literal, Protocol

from aligntool.errors import Refused, refuse_folder_name

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
        _write(target, mode, entries, overwrite=overwrite)
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}") from error


def _write(target: Path, mode: _Mode, entries: Iterable[Entry], *, overwrite: bool) -> None:
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
