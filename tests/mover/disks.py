"""Whole disks for the tests: contents put at their starts under a table written by sfdisk, and what tools report of
them.

For every partition, `see` returns what blkid, sfdisk and the content's own tools report. Starts are in sectors, because
the cases are named after them.
"""

import json
import os
import re
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aligntool.units import MIB, Extent
from tests.conftest import run
from tests.mover.fileset import noise
from tests.mover.filesystems import SECTOR, Hashes, Kind

PIECE = 1 * MIB
ZEROES = bytes(PIECE)
EBR_TO_LOGICAL = 63  # sectors between a logical partition's EBR and its start, as on a disk of cylinders


@dataclass(frozen=True)
class Row:
    """A partition to create: `start` in sectors, and whether it is in an extended partition."""

    kind: Kind
    start: int
    logical: bool = False

    @property
    def end(self) -> int:
        return self.start + self.kind.length // SECTOR


@dataclass(frozen=True)
class Seen:
    """The properties of one partition that have to be the same after a move."""

    blkid: dict[str, str]
    entry: dict[str, Any]  # what sfdisk reports of it, without its start
    hashes: Hashes


@dataclass(frozen=True)
class Disk:
    """An image file and its contents; `rows` in the order of the table."""

    image: Path
    rows: tuple[Row, ...]

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers: primary partitions count from 1, logical ones from 5."""
        primary, logical = iter(range(1, 129)), iter(range(5, 64))
        return tuple(next(logical) if row.logical else next(primary) for row in self.rows)

    def extents(self) -> dict[int, Extent]:
        """Return the current places by sfdisk, without extended partitions."""
        return {
            number: Extent(entry["start"] * SECTOR, entry["size"] * SECTOR)
            for number, entry in entries(self.image).items()
            if entry["type"] not in {"5", "f", "85"}
        }

    def seen(self, *, at: dict[int, Extent] | None = None) -> dict[int, Seen]:
        """Return the properties by number. `at` is where to look if the table cannot be read."""
        table = entries(self.image)
        places = at or self.extents()
        return {
            number: Seen(
                blkid(self.image, places[number]),
                {key: value for key, value in table.get(number, {}).items() if key != "start"},
                read(self.image, places[number], row.kind),
            )
            for number, row in zip(self.numbers(), self.rows, strict=True)
        }

    def check(self) -> None:
        """Check every content with its own checker, and the table with other tools than its writer."""
        places = self.extents()
        for number, row in zip(self.numbers(), self.rows, strict=True):
            with content_of(self.image, places[number]) as content:
                row.kind.check(content)
        check_table(self.image)


def make_disk(image: Path, label: str, rows: tuple[Row, ...], contents: dict[str, Path], *, free: int) -> Disk:
    """Make a disk with `free` sectors behind the last partition, and noise as boot code and in the gap behind it."""
    end = max(row.end for row in rows)
    with image.open("xb") as file:
        file.truncate((end + free) * SECTOR)
        if label == "dos":
            gap = min(min(row.start for row in rows), 63) * SECTOR  # a boot loader of that time had one track
            file.write(noise("boot loader", gap))
    run(
        "sfdisk",
        "-q",
        "--no-reread",
        "--no-tell-kernel",
        "--wipe",
        "never",
        image,
        stdin=_script(label, rows, end + free),
    )
    for row in rows:
        place(contents[row.kind.name], image, row.start * SECTOR)
        set_hidden_sectors(image, row)
    return Disk(image, rows)


def _script(label: str, rows: tuple[Row, ...], size: int) -> str:
    lines = [f"label: {label}", "unit: sectors"]
    if label == "gpt":
        lines.append("first-lba: 34")
    for number, row in enumerate(rows):
        if row.logical and not rows[number - 1].logical:
            start = row.start - EBR_TO_LOGICAL
            lines.append(f"start={start}, size={size - start}, type=5")
        kind = row.kind.gpt_type if label == "gpt" else row.kind.mbr_type
        name = f', name="{row.kind.name} Ä"' if label == "gpt" else ""
        lines.append(f"start={row.start}, size={row.kind.length // SECTOR}, type={kind}{name}")
    return "\n".join(lines) + "\n"


# Bytes in and out


def place(content: Path, image: Path, start: int) -> None:
    """Copy the data of a file to byte `start` of another; holes and zeros stay holes."""
    with content.open("rb") as source, image.open("r+b") as target:
        for at, piece in data_of(source.fileno(), Extent(0, content.stat().st_size)):
            target.seek(start + at)
            target.write(piece)


@contextmanager
def content_of(image: Path, extent: Extent) -> Iterator[Path]:
    """Copy the bytes of one partition to a file of their own, for tools that take no offset."""
    with tempfile.TemporaryDirectory(prefix="aligntool-content-") as name:
        content = Path(name) / "content"
        with image.open("rb") as source, content.open("wb") as target:
            target.truncate(extent.length)
            for at, piece in data_of(source.fileno(), extent):
                target.seek(at - extent.start)
                target.write(piece)
        yield content


def data_of(descriptor: int, extent: Extent) -> Iterator[tuple[int, bytes]]:
    """Return (byte, data) of everything that is neither a hole nor zero."""
    at, end = extent.start, extent.start + extent.length
    while at < end:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:  # ENXIO: nothing but a hole up to the end
            return
        until = min(os.lseek(descriptor, at, os.SEEK_HOLE), end)
        while at < until:
            piece = os.pread(descriptor, min(PIECE, until - at), at)
            if piece != ZEROES[: len(piece)]:
                yield at, piece
            at += len(piece)


def read(image: Path, extent: Extent, kind: Kind) -> Hashes:
    with content_of(image, extent) as content:
        return kind.read(content)


# Tables and signatures


def entries(image: Path) -> dict[int, dict[str, Any]]:
    """Return what sfdisk reports of each partition, by number."""
    table = json.loads(run("sfdisk", "--json", image))["partitiontable"]
    found = {}
    for entry in table["partitions"]:
        number = int(re.findall(r"\d+$", entry.pop("node"))[0])
        found[number] = entry
    return found


def check_table(image: Path) -> None:
    said = run("sfdisk", "--verify", image)
    assert "No errors detected" in said, said
    if json.loads(run("sfdisk", "--json", image))["partitiontable"]["label"] == "gpt":
        said = run("sgdisk", "--verify", image)
        assert "No problems found" in said, said
        assert "corrupt GPT" not in said, said  # one of two copies is damaged, which sgdisk does not count as a problem
    run("parted", "-s", image, "unit", "s", "print")


def blkid(image: Path, extent: Extent) -> dict[str, str]:
    """Return what blkid finds; empty if nothing."""
    said = run("blkid", "-p", "-o", "udev", "-O", str(extent.start), "-S", str(extent.length), image, fails=True)
    return dict(line.split("=", 1) for line in said.splitlines() if line.startswith("ID_FS_"))


# The boot sector's record of its own place


def set_hidden_sectors(image: Path, row: Row) -> None:
    """Write it like a formatter that knew the start: counted from the start of the disk, or from the EBR."""
    value = EBR_TO_LOGICAL if row.logical else row.start
    with image.open("r+b") as file:
        for at, form in hidden_sector_fields(row.kind):
            file.seek(row.start * SECTOR + at)
            file.write(struct.pack(form, value))
        if row.kind.name == "exfat":
            _fix_exfat_checksums(file.fileno(), row.start * SECTOR)


def hidden_sectors(image: Path, start: int, kind: Kind) -> list[int]:
    """Return the fields' values in a partition that begins at byte `start`; none if there is no such field."""
    found = []
    with image.open("rb") as file:
        for at, form in hidden_sector_fields(kind):
            file.seek(start + at)
            found.append(struct.unpack(form, file.read(struct.calcsize(form)))[0])
    return found


def hidden_sector_fields(kind: Kind) -> list[tuple[int, str]]:
    """(byte in the partition, form). Microsoft's specifications of FAT (3.1, 3.3) and exFAT (3.1.4); for NTFS, GRUB's
    include/grub/ntfs.h: the alternate boot sector is the partition's last one."""
    match kind.name:
        case "fat12" | "fat16":
            return [(0x1C, "<I")]
        case "fat32":
            return [(0x1C, "<I"), (6 * SECTOR + 0x1C, "<I")]
        case "ntfs":
            return [(0x1C, "<I"), (kind.length - SECTOR + 0x1C, "<I")]
        case "exfat":
            return [(0x40, "<Q"), (12 * SECTOR + 0x40, "<Q")]
    return []


def _fix_exfat_checksums(descriptor: int, start: int) -> None:
    """Fix the checksums. exFAT specification, 3.4: over eleven sectors without the flags and the percentage, stored in
    the twelfth.
    """
    for region in (start, start + 12 * SECTOR):
        checksum = 0
        for index, byte in enumerate(os.pread(descriptor, 11 * SECTOR, region)):
            if index not in {106, 107, 112}:
                checksum = (((checksum << 31) | (checksum >> 1)) + byte) & 0xFFFFFFFF
        os.pwrite(descriptor, struct.pack("<I", checksum) * (SECTOR // 4), region + 11 * SECTOR)
