"""Small disks on which partitions move, stored at every stage as `v1/NAME.tar.xz`.

`CASES` gives each disk before the move and, from its archive, the disk at each stage with the content of its journal.
Records are parsed here from their bytes, not by the program: docs/crash-safety.md, "The journal". Both the program that
made the files and the tests use this.
"""

import json
import struct
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECTOR = 512
V1 = Path(__file__).parent / "v1"
PATCH_AT = 28  # of each partition: its first sector, four bytes
SLOT = 4096
RECORD = struct.Struct("<18s16sQBIQ")


@dataclass(frozen=True, slots=True)
class Moved:
    """A partition in sectors. `record`: the sector of its EBR, before and after."""

    number: int
    before: int
    after: int
    length: int
    record: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """`parts` in the order in which they are copied; the places of the journal in KiB: start, copy, stash."""

    label: str
    parts: tuple[Moved, ...]
    stays: tuple[Moved, ...]
    journal: tuple[int, int, int]
    container: tuple[int, int] | None = None
    in_file: bool = False
    staged: bool = False
    script: tuple[str, ...] = field(default=())

    @property
    def size(self) -> int:
        start, copy, stash = self.journal
        behind = 256 if self.in_file else start + 2 * copy + stash
        return (behind + 64) * 1024

    @property
    def file_size(self) -> int:
        return (2 * self.journal[1] + self.journal[2]) * 1024


CASES = {
    "gpt-up": Case("gpt", (Moved(2, 143, 192, 60), Moved(1, 63, 96, 80)), (Moved(3, 256, 256, 20),), (192, 1024, 256)),
    "gpt-down": Case("gpt", (Moved(1, 127, 96, 80), Moved(2, 207, 184, 60)), (Moved(3, 34, 34, 20),), (192, 64, 64)),
    "dos-up": Case(
        "dos",
        (Moved(6, 243, 248, 40, (242, 247)), Moved(5, 164, 200, 40, (163, 163)), Moved(1, 63, 64, 60)),
        (),
        (192, 64, 64),
        container=(163, 140),
        staged=True,
    ),
    "dos-down-file": Case(
        "dos", (Moved(1, 127, 96, 80), Moved(2, 207, 184, 60)), (Moved(3, 300, 300, 20),), (0, 64, 64), in_file=True
    ),
}


@dataclass(frozen=True, slots=True)
class Stage:
    """One state of the disk, and of the journal file if there is one."""

    name: str
    position: tuple[int, int, bool]  # of the newest record: step, batch, forward
    disk: bytes
    file: bytes | None

    @property
    def journal_in(self) -> bytes:
        return self.disk if self.file is None else self.file


def sector(number: int, index: int, start: int) -> bytes:
    """Return the content of sector `index` of a partition that begins at `start`: it is the same nowhere else."""
    raw = bytearray((f"partition {number}, sector {index}\n" * 32).encode()[:SECTOR])
    if index == 0:
        raw[PATCH_AT : PATCH_AT + 4] = struct.pack("<I", start)
    return bytes(raw)


def content(part: Moved, start: int) -> bytes:
    return b"".join(sector(part.number, index, start) for index in range(part.length))


def check_content(case: Case, disk: bytes, *, new: bool) -> None:
    """Check that every partition is in its place, and intact."""
    for part in (*case.parts, *case.stays):
        start = part.after if new else part.before
        found = disk[start * SECTOR : (start + part.length) * SECTOR]
        assert found == content(part, start), f"partition {part.number} at sector {start}"


def journal_at(case: Case) -> int:
    return 0 if case.in_file else case.journal[0] * 1024


def copy_length(case: Case) -> int:
    return case.journal[1] * 1024


def records(raw: bytes, at: int) -> list[tuple[int, int, int, bool]]:
    """Return number, step, batch and direction of each intact record of the copy at `at`."""
    found = []
    for slot in (1, 2):
        one = raw[at + slot * SLOT : at + slot * SLOT + SECTOR]
        if zlib.crc32(one[:-4]) == int.from_bytes(one[-4:], "little"):
            magic, _, number, forward, step, batch = RECORD.unpack(one[: RECORD.size])
            assert magic == b"aligntool record_\n"
            found.append((number, step, batch, bool(forward)))
    return found


def newest(case: Case, raw: bytes) -> tuple[int, int, bool]:
    """Return step, batch and direction of the newest record in either copy."""
    at = journal_at(case)
    _, step, batch, forward = max(one for copy in (0, 1) for one in records(raw, at + copy * copy_length(case)))
    return step, batch, forward


def names_of_stages(name: str) -> tuple[str, ...]:
    """Return the names in chronological order; the archive begins with the list of them."""
    with tarfile.open(V1 / f"{name}.tar.xz", "r:xz") as tar:
        first = next(iter(tar))
        facts = tar.extractfile(first) if first.name == "stages.json" else None
        assert facts is not None
        return tuple(json.loads(facts.read()))


def stages(name: str) -> Iterator[Stage]:
    """Return the stages from the archive in chronological order."""
    with tarfile.open(V1 / f"{name}.tar.xz", "r:xz") as tar:
        parts = {member.name: tar.extractfile(member) for member in tar}
        files = {key: file.read() for key, file in parts.items() if file is not None}
    facts: dict[str, Any] = json.loads(files["stages.json"])
    for stage, (step, batch, forward) in facts.items():
        yield Stage(stage, (step, batch, forward), files[f"{stage}/disk"], files.get(f"{stage}/journal"))
