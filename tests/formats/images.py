"""Disks for the tests of partition tables: read by aligntool and by other tools, or damaged on purpose."""

import json
import os
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aligntool.formats.reader import Reader, TableReading
from aligntool.formats.tables import read_table
from aligntool.inventory import Fault, Table
from aligntool.linux.file_reader import FileReader
from tests.conftest import find_tool, run
from tests.in_memory import BytesReader

MIB = 1024 * 1024


@dataclass(slots=True)
class CountingReader:
    """A reader that counts the bytes read and the requests."""

    below: Reader
    bytes_read: int = 0
    requests: int = 0

    @property
    def size(self) -> int:
        return self.below.size

    def read(self, offset: int, length: int) -> bytes:
        found = self.below.read(offset, length)
        self.bytes_read += len(found)
        self.requests += 1
        return found


@dataclass(slots=True)
class FailingReader:
    """A medium with unreadable runs, given as (start, end)."""

    below: Reader
    bad: Sequence[tuple[int, int]] = field(default_factory=tuple)

    @property
    def size(self) -> int:
        return self.below.size

    def read(self, offset: int, length: int) -> bytes:
        if any(offset < end and start < offset + length for start, end in self.bad):
            raise OSError(5, "Input/output error")
        return self.below.read(offset, length)


def read_image(path: Path, sector_size: int | None = None) -> TableReading:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_table(FileReader(descriptor, path.stat().st_size), sector_size=sector_size)
    finally:
        os.close(descriptor)


def read_bytes(content: bytes, sector_size: int | None = None) -> TableReading:
    return read_table(BytesReader(content), sector_size=sector_size)


def table_of(reading: TableReading) -> Table:
    assert reading.table is not None, "no table found"
    return reading.table


def faults_of(reading: TableReading) -> list[Fault]:
    return [fault.fault for fault in table_of(reading).faults]


def detail_of(reading: TableReading, kind: Fault) -> str:
    return next(fault.detail for fault in table_of(reading).faults if fault.fault is kind)


def places(reading: TableReading) -> dict[int, tuple[int, int]]:
    """Return number -> (start, size) in sectors of the table, as in sfdisk."""
    size = table_of(reading).sector_size
    return {part.number: (part.extent.start // size, part.extent.length // size) for part in reading.partitions}


@dataclass(frozen=True, slots=True)
class ReportedPartition:
    """A partition as another tool reports it; start and size in sectors."""

    start: int
    size: int
    type: str = ""
    uuid: str | None = None
    name: str | None = None


def sfdisk(path: Path) -> dict[str, object]:
    told = json.loads(run("sfdisk", "--json", path))["partitiontable"]
    assert isinstance(told, dict)
    return told


def sfdisk_partitions(path: Path) -> dict[int, ReportedPartition]:
    rows = sfdisk(path).get("partitions", [])
    assert isinstance(rows, list)
    return {
        int(row["node"].removeprefix(str(path)).lstrip("p")): ReportedPartition(
            row["start"], row["size"], row["type"], row.get("uuid"), row.get("name")
        )
        for row in rows
    }


def partx_partitions(path: Path) -> dict[int, tuple[int, int]]:
    """Return libblkid's reading, nested tables included; always in sectors of 512 bytes."""
    rows = run("partx", "--show", "--noheadings", "-o", "NR,START,SECTORS", path).splitlines()
    return {int(number): (int(start), int(size)) for number, start, size in (row.split() for row in rows)}


def parted_partitions(path: Path) -> dict[int, tuple[int, int, str]]:
    """Return number -> (start, size) in bytes, and the partition's name."""
    told = {}
    for row in run("parted", "-ms", path, "unit", "B", "print").splitlines()[2:]:
        number, start, _, size, _, name, _ = row.rstrip(";").split(":")
        told[int(number)] = (int(start.rstrip("B")), int(size.rstrip("B")), name)
    return told


def sgdisk_verify(path: Path) -> str:
    """Return the whole output of sgdisk about a table; half of it goes to its standard error."""
    words = [find_tool("sgdisk") or "sgdisk", "-v", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    return done.stdout + done.stderr


def patch(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def flip(path: Path, offset: int) -> None:
    """Flip the bits of one byte, counted from the end if negative."""
    with path.open("r+b") as file:
        file.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
        at = file.tell()
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))


def mbr(*entries: tuple[int, int, int, int], signature: int = 0) -> bytes:
    """Return a sector with entries (type, start, sectors, boot flag), and 55 AA."""
    sector = bytearray(512)
    sector[440:444] = struct.pack("<I", signature)
    for slot, (code, start, sectors, boot) in enumerate(entries):
        sector[446 + 16 * slot : 462 + 16 * slot] = struct.pack("<B3xB3xII", boot, code, start, sectors)
    sector[510:] = b"\x55\xaa"
    return bytes(sector)


def disk(size: int, *pieces: tuple[int, bytes]) -> bytes:
    """Return zeros with pieces at byte offsets."""
    content = bytearray(size)
    for at, piece in pieces:
        content[at : at + len(piece)] = piece
    return bytes(content)
