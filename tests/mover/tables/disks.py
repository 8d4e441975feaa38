"""Disks in memory with tables made by other programs, and the steps between two of them."""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aligntool.device import Job, Jobs, Writing
from aligntool.formats.tables import read_table
from aligntool.mover.table import TableImages, table_images
from aligntool.steps import EntryChange, ParkEntries, RewriteTable
from aligntool.units import MIB, Extent
from tests.conftest import run
from tests.in_memory import BytesReader

Sparse = Callable[..., Path]
JOURNAL_AT = 5 * MIB
JOURNAL_ID = bytes(range(100, 116))


@dataclass(slots=True)
class MemoryDevice:
    """A Device that enforces sector alignment like a disk."""

    content: bytearray
    sector_size: int = 512
    written: list[int] = field(default_factory=list)  # the offset of each write, in order

    @classmethod
    def of(cls, path: Path, sector_size: int = 512) -> "MemoryDevice":
        return cls(bytearray(path.read_bytes()), sector_size)

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> memoryview:
        self._check(offset, length)
        return memoryview(bytes(self.content[offset : offset + length]))

    def write(self, offset: int, data: bytes | memoryview) -> None:
        self._check(offset, len(data))
        self.written.append(offset)
        self.content[offset : offset + len(data)] = data

    def flush(self) -> None:
        pass

    def is_hole(self, offset: int, length: int) -> bool:
        return False

    def run_parallel(self, jobs: Jobs, meanwhile: Job | None = None) -> None:
        if meanwhile:
            meanwhile()
        for job in jobs:
            job()

    def put(self, writing: Writing) -> None:
        for group in writing:
            for sectors in group:
                self.write(sectors.at, sectors.data)

    def write_until_cut(self, writing: Writing, group: int, survivors: Collection[int]) -> None:
        """Write the groups before `group`, and of that group only the sectors whose index is in `survivors`."""
        self.put(writing[:group])
        sectors = [
            (run_of.at + at, run_of.data[at : at + self.sector_size])
            for run_of in writing[group]
            for at in range(0, len(run_of.data), self.sector_size)
        ]
        for index in survivors:
            self.write(*sectors[index % len(sectors)])

    def _check(self, offset: int, length: int) -> None:
        if offset % self.sector_size or length % self.sector_size:
            raise ValueError(f"{offset}+{length} is off the sectors")
        if not 0 <= offset <= offset + length <= self.size:
            raise OSError(5, "beyond the end")


def made_by_sfdisk(sparse: Sparse, script: str, name: str = "disk.img", *, size: int = 64 * MIB) -> Path:
    path = sparse(size, name)
    run("sfdisk", "-q", "--wipe", "never", path, stdin=script)
    return path


def sfdisk_table(path: Path) -> dict[str, Any]:
    """Return the table as sfdisk prints it, without the name of the file."""
    told = run("sfdisk", "--json", path)  # sfdisk may print what it leaves out before the JSON
    table: dict[str, Any] = json.loads(told[told.index("{") :])["partitiontable"]
    device = table.pop("device")
    for part in table.get("partitions", []):
        part["node"] = int(part["node"].removeprefix(device).removeprefix("p"))
    return table


def extents(path: Path, sector_size: int = 512) -> dict[int, Extent]:
    return {
        part["node"]: Extent(part["start"] * sector_size, part["size"] * sector_size)
        for part in sfdisk_table(path)["partitions"]
    }


def records(path: Path, sector_size: int = 512) -> dict[int, int | None]:
    """Return the places of the EBRs, which no other tool prints."""
    reading = read_table(BytesReader(path.read_bytes()), sector_size=sector_size)
    return {part.number: part.record_at for part in reading.partitions}


def changes_between(before: Path, after: Path, sector_size: int = 512) -> tuple[EntryChange, ...]:
    """Return the changes that turn the first table into the second, as sfdisk reads the two."""
    old, new = extents(before, sector_size), extents(after, sector_size)
    records_before, records_after = (records(path, sector_size) for path in (before, after))
    return tuple(
        EntryChange(number, old[number], new[number], records_before[number], records_after[number])
        for number in old
        if (old[number], records_before[number]) != (new[number], records_after[number])
    )


def images_for(
    device: MemoryDevice,
    label: str,
    changes: Sequence[EntryChange],
    parked: Sequence[int],
    *,
    journal_at: int | None = JOURNAL_AT,
) -> TableImages:
    moving = tuple(change.number for change in changes)
    return table_images(
        device, ParkEntries(moving, tuple(parked)), RewriteTable(label, tuple(changes)),
        journal_at=journal_at, journal_id=JOURNAL_ID,
    )  # fmt: skip


def moved(number: int, extent: Extent, by: int, record: int | None = None) -> EntryChange:
    """Move a partition; its EBR stays where it is."""
    return EntryChange(number, extent, extent.moved_to(extent.start + by), record, record)
