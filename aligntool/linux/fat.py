"""Make a FAT anew for sectors of another size, with its files, label and serial number, beside the old one."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from aligntool.audit.wording import shell_word
from aligntool.errors import Refused
from aligntool.formats.fat_files import BrokenFatError, copy_files
from aligntool.formats.reader import Reader
from aligntool.formats.windows_fs import ENTRY, FAT12_BELOW, FAT16_BELOW, Boot, read_boot
from aligntool.inventory import Layer
from aligntool.linux.content import NoMap, read_fat
from aligntool.linux.process import Ended, run_program
from aligntool.linux.users import fresh_reader
from aligntool.units import MIB, Extent, align_down, format_about, merged

# On copies in files: nothing of the disk is written. mkfs.fat makes it, formats/fat_files.py copies the files, and with
# mtools and fsck.fat what was made is compared with what it was made from, file by file, before anybody uses it.

_BLOCK = 4096  # sectors of either size
_LEGAL = {32: range(FAT16_BELOW, 0x0FFFFFF5), 16: range(FAT12_BELOW, FAT16_BELOW), 12: range(1, FAT12_BELOW)}
_FREE = re.compile(r"^.* bytes free\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NewFat:
    """What has to be written, in whole blocks counted from the partition's start, and its FAT32, FAT16 or FAT12."""

    runs: tuple[Extent, ...]
    parts: tuple[bytes, ...]
    version: str
    files: int


def new_fat(path: str, extent: Extent, layer: Layer, length: int, sector_size: int, most: int) -> NewFat:
    """Return a FAT of `length` bytes with all that the one at `extent` of the disk or image has.

    `most`: bytes that it may take in memory. Raises Refused where it cannot be had.
    """
    with TemporaryDirectory(prefix="aligntool-") as folder, _room_in(folder):
        old, new = Path(folder, "old"), Path(folder, "new")
        boot = _copy_out(path, extent, old, most)
        bits = _make(new, boot, layer, extent.start, length, sector_size)
        files = _fill(Path(folder), path)
        runs = tuple(_runs(new))
        with fresh_reader(str(new)) as reader:
            parts = tuple(b"".join(_pieces(reader, run)) for run in runs)
    return NewFat(runs, parts, f"FAT{bits}", files)


@contextmanager
def _room_in(folder: str) -> Iterator[None]:
    """Raise Refused with the reason where it is that the folder is full, of which mcopy has no words then."""
    try:
        yield
    except (OSError, Refused) as error:
        if shutil.disk_usage(folder).free >= MIB:
            raise
        text = f"it is made in {shell_word(str(Path(folder).parent))}, where no room is left"
        raise _unbuilt(text, "TMPDIR=FOLDER names another one") from error


def _pieces(reader: Reader, run: Extent) -> Iterator[bytes]:
    return (reader.read(at, min(MIB, run.end - at)) for at in range(run.start, run.end, MIB))


def _copy_out(path: str, extent: Extent, old: Path, most: int) -> Boot:
    """Copy what is used of the old one into a file."""
    try:
        with fresh_reader(path) as reader, old.open("xb") as file:
            boot = read_boot(reader.read(extent.start, 512))
            runs = tuple(read_fat(reader, extent.start))
            used = sum(run.length for run in runs)
            if used > most:
                text = f"the FAT at byte {extent.start} has {format_about(used)} in use"
                raise Refused(f"{text}, and at most {format_about(most)} are rebuilt in place",
                              hint="aligntool convert DISK --sector-size N -o NEW", code="too-large")  # fmt: skip
            file.truncate(extent.length)
            for run in runs:
                file.seek(run.start)
                file.writelines(_pieces(reader, run.moved_to(extent.start + run.start)))
    except (NoMap, OSError) as error:
        raise _unbuilt(f"the FAT at byte {extent.start} cannot be read: {error}") from error
    if boot is None:
        raise _unbuilt(f"the boot sector at byte {extent.start} makes no sense")
    return boot


def _make(new: Path, boot: Boot, layer: Layer, start: int, length: int, sector_size: int) -> int:
    """Make the new one, of the same kind where it has enough clusters for that; return the bits of an entry."""
    if layer.label and not layer.label.isascii():
        raise _unbuilt(f"its label {layer.label!r} has letters that mkfs.fat does not take", "mlabel renames it")
    size = align_down(length, sector_size)
    serial = ("-i", layer.uuid.replace("-", "")) if layer.uuid else ()
    label = ("-n", layer.label) if layer.label else ()
    hidden = start // sector_size if start // sector_size < 1 << 32 else 0  # for a BIOS, which reaches no further
    form = (f"-S{sector_size}", f"-s{max(boot.cluster, sector_size) // sector_size}", f"-h{hidden}")
    entries = f"-r{max(boot.directory // ENTRY, 512)}"  # of the first folder; a FAT32 takes no notice
    form = ("--invariant", *form, entries, *serial, *label, "--mbr=n")  # the first has a serial number of its own
    for bits in dict.fromkeys((boot.bits, 32, 16, 12)):
        new.unlink(missing_ok=True)
        with new.open("xb") as file:
            file.truncate(size)
        ended = run_program("mkfs.fat", f"-F{bits}", *form, str(new))
        with new.open("rb") as file:
            made = read_boot(file.read(512))
        if ended.code == 0 and made and made.bits == bits and made.clusters in _LEGAL[bits]:
            return bits
    raise _unbuilt(f"no FAT of {format_about(size)} has sectors of {sector_size} bytes: {ended.last_words}")


def _fill(folder: Path, path: str) -> int:
    """Copy all files from the old one to the new one, and compare both. Return the number of files."""
    for name in ("old", "new"):
        Path(folder, f"{name}.conf").write_text(f'mtools_skip_check=1\ndrive f: file="{folder}/{name}"\n')
    with ExitStack() as stack:
        old, new = (stack.enter_context(Path(folder, name).open("r+b")) for name in ("old", "new"))
        try:
            count = copy_files(_Content(old.fileno()), _Content(new.fileno()))
        except BrokenFatError as error:
            raise _unbuilt(str(error)) from error
    if _listing(folder, "old") != _listing(folder, "new"):
        raise _unbuilt("names, sizes, times or attributes of its files differ after they were copied")
    if _digests(folder, "old") != _digests(folder, "new"):
        raise _unbuilt("its files differ after they were copied")
    checked = run_program("fsck.fat", "-n", str(Path(folder, "new")), only_reads=True)
    if checked.code:
        raise _unbuilt(f"fsck.fat finds what was made for {shell_word(path)} not whole: {checked.last_lines}")
    return count


@dataclass(frozen=True, slots=True)
class _Content:
    """The bytes of a file. A write that finds no room is an error, where an mmap ends the process (SIGBUS)."""

    descriptor: int

    def __getitem__(self, piece: slice) -> bytes:
        start, end = piece.start or 0, piece.stop
        return os.pread(self.descriptor, end - start, start)

    def __setitem__(self, piece: slice, content: bytes) -> None:
        os.pwrite(self.descriptor, content, piece.start)


def _listing(folder: Path, name: str) -> tuple[str, str, str]:
    """Return the names in the first folder; and everything that is listed of all files, and of their attributes."""
    names = _mtools(folder, name, "mdir", "-b", "-a", "f:/", empty=True)
    details = _mtools(folder, name, "mdir", "-/", "-a", "f:/", empty=True)
    attributes = _mtools(folder, name, "mattrib", "-/", "f:/") if names else ""
    return names, _FREE.sub("", details), attributes


def _digests(folder: Path, name: str) -> dict[str, str]:
    with _extracted(folder, name) as root:
        files = (one for one in root.rglob("*") if one.is_file())
        return {str(one.relative_to(root)): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}


@contextmanager
def _extracted(folder: Path, name: str) -> Iterator[Path]:
    with TemporaryDirectory(dir=folder) as root:
        if _listing(folder, name)[0]:
            _mtools(folder, name, "mcopy", "-s", "-n", "f:/*", root)
        yield Path(root)


def _mtools(folder: Path, name: str, *words: str, empty: bool = False) -> str:
    """Return what a program of mtools prints. `empty`: it may find nothing."""
    environment = {"MTOOLSRC": str(Path(folder, f"{name}.conf")), "LC_ALL": "C.UTF-8"}
    ended: Ended = run_program(*words, environment=environment)
    if ended.code and not (empty and "not found" in ended.errors):
        raise _unbuilt(f"{words[0]}: {ended.last_words}")
    return ended.output


def _runs(new: Path) -> Iterator[Extent]:
    with fresh_reader(str(new)) as reader:
        yield from merged(read_fat(reader, 0), Extent(0, reader.size), _BLOCK)


def _unbuilt(text: str, hint: str = "aligntool audit DISK") -> Refused:
    return Refused(f"a FAT cannot be made anew: {text}", hint=hint, code="not-rebuilt")
