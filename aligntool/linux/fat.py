"""Recreate a FAT for sectors of another size, with its files, label and serial number, in a temporary
file.
"""

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
from aligntool.commands import DISK, command
from aligntool.contents.fat import (
    ABOUT_LABELS,
    ENTRY,
    FAT12_BELOW,
    FAT16_BELOW,
    BrokenFatError,
    FatBootSector,
    parse_fat_boot_sector,
    used_clusters,
)
from aligntool.contents.fat_files import copy_boot_label, copy_files, count_root_entries
from aligntool.contents.used_blocks import NoMap
from aligntool.errors import Refused
from aligntool.formats.numbers import le16
from aligntool.formats.reader import is_blank, read_pieces
from aligntool.inventory import Layer
from aligntool.linux.checks import reports_only
from aligntool.linux.confined import run_confined
from aligntool.linux.file_reader import fresh_reader
from aligntool.linux.programs import ProgramResult, run_program
from aligntool.linux.sysfs import opened
from aligntool.units import MIB, Extent, align_down, align_up, format_about, merged

# It works on copies in files: nothing on the disk is written. mkfs.fat makes the new FAT,
# contents/fat_files.py copies the files, and mtools and fsck.fat compare it with the old one, file by file,
# before it is used.

_BLOCK = 4096  # whole sectors of either size
_LEGAL_CLUSTERS = {
    32: range(FAT16_BELOW, 0x0FFFFFF5),
    16: range(FAT12_BELOW, FAT16_BELOW),
    12: range(1, FAT12_BELOW),
}
_MOST_ENTRIES = 255 * _BLOCK // ENTRY  # whole sectors; mkfs.fat accepts up to 32767
_MOST_PER_CLUSTER = 128  # sectors: the field has one byte, for a power of two
_NO_BOOT_CODE = re.compile(rb"not (?:a )?bootable")  # mkfs.fat, mformat
_FREE_LINE = re.compile(r"^.* bytes free\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NewFat:
    """The bytes to write, in whole blocks counted from the partition's start. `version`: "FAT32", "FAT16",
    "FAT12". `length`: of the partition, or up to the bytes that follow the old FAT. `boot_code`: the old FAT
    had a boot program.
    """

    runs: tuple[Extent, ...]
    parts: tuple[bytes, ...]
    version: str
    files: int
    length: int
    boot_code: bool


def new_fat(path: str, extent: Extent, layer: Layer, length: int, sector_size: int, most: int) -> NewFat:
    """Return a FAT of `length` bytes with all content of the one at `extent` of the disk or image, or a
    shorter one if other bytes follow the old FAT.

    `most`: the limit of used bytes, since they are kept in memory. Raises Refused if it cannot be recreated.
    """
    with TemporaryDirectory(prefix="aligntool-") as folder, _naming_full_folder(folder):
        old, new = Path(folder, "old"), Path(folder, "new")
        boot = _copy_used(path, extent, old, most)
        length = min(length, _free_length(path, extent, layer))
        bits = _make_new(new, boot, layer, extent.start, length, sector_size, _count_root_entries(old))
        files = _copy_and_compare(Path(folder), path)
        runs = tuple(_runs(new))
        with fresh_reader(str(new)) as reader:
            parts = tuple(b"".join(read_pieces(reader, run)) for run in runs)
        return NewFat(runs, parts, f"FAT{bits}", files, length, _has_boot_code(old, boot))


def _free_length(path: str, extent: Extent, layer: Layer) -> int:
    """Return how long the FAT may be without covering bytes that follow the old one in the partition."""
    claims = layer.claims_size or extent.length
    rest = Extent(extent.start + claims, max(extent.length - claims, 0))
    try:
        with fresh_reader(path) as reader:
            return extent.length if is_blank(reader, rest) else align_down(claims, _BLOCK)
    except OSError as error:
        raise _not_rebuilt(f"what follows the FAT at byte {extent.start} cannot be read: {error}") from error


@contextmanager
def _naming_full_folder(folder: str) -> Iterator[None]:
    """Raise Refused for an error that is due to a full folder, which mcopy does not report as such."""
    try:
        yield
    except (OSError, Refused) as error:
        if shutil.disk_usage(folder).free >= MIB:
            raise
        text = f"no space is left in {shell_word(str(Path(folder).parent))}, where it is built"
        raise _not_rebuilt(text, "set TMPDIR to another folder") from error


def _copy_used(path: str, extent: Extent, old: Path, most: int) -> FatBootSector:
    """Copy the used blocks of the old FAT to a file."""
    try:
        with fresh_reader(path) as reader, old.open("xb") as file:
            boot = parse_fat_boot_sector(reader.read(extent.start, 512))
            runs = tuple(used_clusters(reader, extent.start))
            used = sum(run.length for run in runs)
            if used > most:
                text = f"the FAT at byte {extent.start} has {format_about(used)} in use"
                raise Refused(
                    f"{text}; at most {format_about(most)} can be rebuilt in place",
                    hint=command("convert", DISK, "--sector-size N", "-o NEW"),
                    code="too-large",
                )
            file.truncate(extent.length)
            for run in runs:
                file.seek(run.start)
                file.writelines(read_pieces(reader, run.moved_to(extent.start + run.start)))
    except (NoMap, OSError) as error:
        raise _not_rebuilt(f"the FAT at byte {extent.start} cannot be read: {error}") from error
    if boot is None:
        raise _not_rebuilt(f"the boot sector at byte {extent.start} is invalid")
    return boot


def _has_boot_code(fat: Path, boot: FatBootSector) -> bool:
    """Return whether the reserved sectors hold a boot program, except one that only prints that it is
    none.
    """
    with fat.open("rb") as file:
        head = file.read(boot.reserved * boot.sector)
    code = head[90 if boot.bits == 32 else 62 : 510]
    info, backup = (le16(head, 48), le16(head, 50)) if boot.bits == 32 else (0, 0)
    known = {0, info, backup, backup + info}
    rest = (
        head[number * boot.sector :][: boot.sector - 4]
        for number in range(boot.reserved)
        if number not in known
    )
    return (any(code) and not _NO_BOOT_CODE.search(code)) or any(map(any, rest))


def _count_root_entries(fat: Path) -> int:
    with fat.open("rb") as file:
        try:
            return count_root_entries(_Content(file.fileno()))
        except BrokenFatError as error:
            raise _not_rebuilt(*error.args) from error


def _make_new(
    new: Path, boot: FatBootSector, layer: Layer, start: int, length: int, sector_size: int, root_entries: int
) -> int:
    """Make the new FAT, with the same entries if the number of clusters allows it; return the bits of an
    entry.
    """
    size = align_down(length, sector_size)
    serial = ("-i", layer.uuid.replace("-", "")) if layer.uuid else ()
    # for a BIOS, which reads no further
    hidden = start // sector_size if start // sector_size < 1 << 32 else 0
    per_cluster = min(max(boot.cluster // sector_size, 1), _MOST_PER_CLUSTER)
    options = ("--invariant", f"-S{sector_size}", f"-s{per_cluster}", f"-h{hidden}")
    # The entries of the root directory, in whole sectors; ignored for FAT32, whose root directory grows.
    entries = align_up(max(boot.directory // ENTRY, root_entries, 512), sector_size // ENTRY)
    options = (*options, f"-r{min(entries, _MOST_ENTRIES)}", *serial, "--mbr=n")
    for bits in dict.fromkeys((boot.bits, 32, 16, 12)):
        new.unlink(missing_ok=True)
        with new.open("xb") as file:
            file.truncate(size)
        result = run_program("mkfs.fat", f"-F{bits}", *options, str(new))
        with new.open("rb") as file:
            made = parse_fat_boot_sector(file.read(512))
        if result.code == 0 and made and made.bits == bits and made.clusters in _LEGAL_CLUSTERS[bits]:
            return bits
    raise _not_rebuilt(
        f"a FAT of {format_about(size)} cannot have {sector_size}-byte sectors: {result.output_tail}"
    )


def _copy_and_compare(folder: Path, path: str) -> int:
    """Copy all files from the old FAT to the new one, and compare both. Return the number of files."""
    for name in ("old", "new"):
        Path(folder, f"{name}.conf").write_text(f'mtools_skip_check=1\ndrive f: file="{folder}/{name}"\n')
    with ExitStack() as stack:
        old, new = (stack.enter_context(Path(folder, name).open("r+b")) for name in ("old", "new"))
        try:
            count = copy_files(_Content(old.fileno()), _Content(new.fileno()))
            copy_boot_label(_Content(old.fileno()), _Content(new.fileno()))
        except BrokenFatError as error:
            raise _not_rebuilt(*error.args) from error
    if _listing(folder, "old") != _listing(folder, "new"):
        raise _not_rebuilt("names, sizes, times or attributes of its files differ after the copy")
    if _digests(folder, "old") != _digests(folder, "new"):
        raise _not_rebuilt("its files differ after the copy")
    with opened(folder / "new") as disk:
        checked = run_confined("fsck.fat", "-n", f"/proc/self/fd/{disk}", disks=(disk,))
    if checked.code and not (
        checked.code == 1 and reports_only(ABOUT_LABELS, checked.output + checked.errors)
    ):
        raise _not_rebuilt(
            f"fsck.fat found errors in the new FAT for {shell_word(path)}: {checked.last_lines}"
        )
    return count


@dataclass(frozen=True, slots=True)
class _Content:
    """The bytes of a file. A write to a full disk raises OSError, whereas an mmap ends the process
    (SIGBUS).
    """

    descriptor: int

    def __getitem__(self, piece: slice) -> bytes:
        start, end = piece.start or 0, piece.stop
        return os.pread(self.descriptor, end - start, start)

    def __setitem__(self, piece: slice, content: bytes) -> None:
        os.pwrite(self.descriptor, content, piece.start)


def _listing(folder: Path, name: str) -> tuple[str, str, str]:
    """Return the names in the root directory, the details of all files as mdir lists them, and their
    attributes.
    """
    names = _mtools(folder, name, "mdir", "-b", "-a", "f:/", empty=True)
    details = _mtools(folder, name, "mdir", "-/", "-a", "f:/", empty=True)
    attributes = _mtools(folder, name, "mattrib", "-/", "f:/") if names else ""
    return names, _FREE_LINE.sub("", details), attributes


def _digests(folder: Path, name: str) -> dict[str, str]:
    with _extract(folder, name) as root:
        files = (file for file in root.rglob("*") if file.is_file())
        return {str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@contextmanager
def _extract(folder: Path, name: str) -> Iterator[Path]:
    with TemporaryDirectory(dir=folder) as root:
        if _listing(folder, name)[0]:
            _mtools(folder, name, "mcopy", "-s", "-n", "f:/*", root)
        yield Path(root)


def _mtools(folder: Path, name: str, *words: str, empty: bool = False) -> str:
    """Return the output of a program of mtools. `empty`: it may find nothing."""
    environment = {"MTOOLSRC": str(Path(folder, f"{name}.conf")), "LC_ALL": "C.UTF-8"}
    result: ProgramResult = run_confined(*words, folder=folder, environment=environment)
    if result.code and not (empty and "not found" in result.errors):
        raise _not_rebuilt(f"{words[0]}: {result.output_tail}")
    return result.output


def _runs(new: Path) -> Iterator[Extent]:
    with fresh_reader(str(new)) as reader:
        yield from merged(used_clusters(reader, 0), Extent(0, reader.size), _BLOCK)


def _not_rebuilt(text: str, hint: str = command("audit")) -> Refused:
    return Refused(f"a FAT cannot be recreated: {text}", hint=hint, code="not-rebuilt")
