"""Write the files of `v1`. They are frozen: this program remains as the description of how they were made.

    python -m tests.golden.make FOLDER

A table is made and read by sfdisk, contents are `journals.content`, and each stage is the state of the disk when the
mover has reached it. Nothing is written unless the end of each move was verified independently of the program.
"""

import io
import json
import random
import secrets
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aligntool.change import Event, MovePlan, Place
from aligntool.mover.context import MoveContext
from aligntool.mover.move import realign, rollback
from aligntool.steps import (
    CloseJournal,
    CopyContent,
    CopyStrips,
    EntryChange,
    HoldContent,
    JournalPlace,
    ParkEntries,
    Patch,
    ReleaseContent,
    RewriteTable,
    SavedRanges,
    Step,
    Subject,
    WriteJournal,
)
from aligntool.units import Extent
from tests.conftest import run
from tests.golden.documents import PLANS, RECORDS, RESULTS, record_text
from tests.golden.journals import (
    CASES,
    PATCH_AT,
    SECTOR,
    Case,
    Moved,
    Stage,
    check_content,
    content,
    copy_length,
    journal_at,
    newest,
)
from tests.mover.simulated_disk import SimulatedDisk
from tests.mover.test_simulated_cuts import NoKernel

HELD = SavedRanges((Extent(0, 2 * SECTOR), Extent(9 * SECTOR, SECTOR)))
BACK_FROM = 0.7  # the share of the stages of a move after which it is rolled back


def platter(case: Case) -> bytes:
    """Return the disk before the move: the table made by sfdisk, and everything else."""
    rows = [(part.number, part.before, part.length, "L") for part in (*case.parts, *case.stays)]
    rows += [(4, *case.container, "E")] if case.container else []
    script = [f"label: {case.label}", "unit: sectors"]
    gpt = case.label == "gpt"
    script += ["label-id: 11111111-2222-4333-8444-555555555555", "first-lba: 34"] if gpt else []
    script += [] if gpt else ["label-id: 0x12345678"]
    for number, start, length, kind in sorted(rows):
        more = f", uuid=00000000-0000-4000-8000-00000000000{number}, name=part{number}" if gpt else ""
        kind = "83" if kind == "L" and not gpt else kind
        script.append(f"{number} : start={start}, size={length}, type={kind}{more}")
    with tempfile.NamedTemporaryFile(suffix=".img") as file:
        file.truncate(case.size)
        run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", file.name, stdin="\n".join(script) + "\n")
        raw = bytearray(Path(file.name).read_bytes())
    for part in (*case.parts, *case.stays):
        raw[part.before * SECTOR : (part.before + part.length) * SECTOR] = content(part, part.before)
    return bytes(raw)


def plan_of(case: Case) -> MovePlan:
    """Return a handmade plan, so that both directions and the smallest journal are in it."""
    at, copy, stash = (kib * 1024 for kib in case.journal)
    place = JournalPlace(
        Extent(at, 2 * copy + stash), copy, Extent(2 * copy, stash), "journal" if case.in_file else None
    )
    parts = case.parts
    logicals = [part for part in parts if part.record]
    parked = tuple(sorted({4 if part.record else part.number for part in parts}))
    steps: list[Step] = [WriteJournal(place), ParkEntries(tuple(part.number for part in parts), parked)]
    steps += [HoldContent(part.number, _extent(part, part.before), HELD) for part in parts]
    steps += [_copy(case, part) for part in parts]
    steps += [
        ReleaseContent(
            part.number,
            "unknown",
            _extent(part, part.after),
            HELD,
            (Patch("hidden sectors", PATCH_AT, 4, part.before, part.after),),
        )
        for part in parts
    ]
    changes = [_change(part) for part in sorted(parts, key=lambda part: part.number)]
    steps += [RewriteTable(case.label, tuple(changes)), CloseJournal(place)]
    places = tuple(
        Place(part.number, _extent(part, part.before), _extent(part, part.after), "made up", "golden")
        for part in (*parts, *case.stays)
    )
    assert len(logicals) in (0, 2)
    disk = Subject("golden.img", case.size, SECTOR, case.label, None, None, None, None, "")
    return MovePlan("realign", disk, "every start elsewhere", places, tuple(steps))


def _extent(part: Moved, start: int) -> Extent:
    return Extent(start * SECTOR, part.length * SECTOR)


def _copy(case: Case, part: Moved) -> CopyContent:
    distance = abs(part.after - part.before)
    window = (8 if distance < 8 else min(distance, 16)) * SECTOR
    lanes = CopyStrips(window, 16 * SECTOR, 40 * SECTOR, case.journal[2] * 1024, case.staged and distance < 8)
    return CopyContent(part.number, "unknown", _extent(part, part.before), _extent(part, part.after), HELD, lanes)


def _change(part: Moved) -> EntryChange:
    before, after = (at * SECTOR for at in part.record) if part.record else (None, None)
    return EntryChange(part.number, _extent(part, part.before), _extent(part, part.after), before, after)


def made_stages(case: Case) -> Iterator[Stage]:
    """Move to the end; then roll back from an intermediate stage to the beginning."""
    start = platter(case)
    disk, file = SimulatedDisk(start), SimulatedDisk(bytes(case.file_size)) if case.in_file else None
    runs = {part.number: _runs(part) for part in case.parts}
    context = MoveContext(disk, NoKernel(), file)
    forwards = list(_seen(case, "f", realign(plan_of(case), context, runs), disk, file))
    check_content(case, _flushed(disk), new=True)
    _check_table(case, _flushed(disk), new=True)
    yield from forwards
    yield _torn(case, forwards)
    turn = forwards[int(len(forwards) * BACK_FROM)]
    disk = SimulatedDisk(turn.disk)
    file = None if turn.file is None else SimulatedDisk(turn.file)
    context = MoveContext(disk, NoKernel(), file)
    yield from _seen(case, "b", rollback(context), disk, file)
    check_content(case, _flushed(disk), new=False)
    _check_table(case, _flushed(disk), new=False)


def _runs(part: Moved) -> tuple[Extent, ...]:
    """Return the whole partition in three pieces."""
    third = part.length // 3 * SECTOR
    return Extent(0, third), Extent(third, third), Extent(2 * third, part.length * SECTOR - 2 * third)


def _seen(
    case: Case, way: str, events: Iterator[Event], disk: SimulatedDisk, file: SimulatedDisk | None
) -> Iterator[Stage]:
    """Yield a stage wherever the mover could be stopped and the newest record has changed."""
    known: set[tuple[int, int, bool]] = set()
    for _ in events:
        found = _flushed(disk)
        journal = None if file is None else _flushed(file)
        raw = journal or found
        at = journal_at(case)
        if raw[at : at + 18] != b"aligntool journal\n":
            continue  # not written yet, or closed
        position = newest(case, raw)
        if position not in known:
            known.add(position)
            yield Stage(f"{way}{position[0]:02}-{position[1]:02}", position, found, journal)


def _torn(case: Case, forwards: list[Stage]) -> Stage:
    """Simulate a power cut while a record is written into the first copy: half of its sector is new."""
    middle = len(forwards) // 2
    was, is_ = forwards[middle], forwards[middle + 1]
    at, length = journal_at(case), copy_length(case)
    slot = next(slot for slot in (1, 2) if _slot(was, at, slot) != _slot(is_, at, slot))
    half = at + slot * 4096
    name = "torn"
    raw = bytearray(is_.journal_in)
    raw[half + 256 : half + SECTOR] = was.journal_in[half + 256 : half + SECTOR]
    second = half + length
    raw[second : second + SECTOR] = was.journal_in[second : second + SECTOR]
    position = was.position
    if case.in_file:
        return Stage(name, position, is_.disk, bytes(raw))
    return Stage(name, position, bytes(raw), None)


def _slot(stage: Stage, at: int, slot: int) -> bytes:
    return stage.journal_in[at + slot * 4096 : at + slot * 4096 + SECTOR]


def _flushed(disk: SimulatedDisk) -> bytes:
    return disk.after_the_cut(random.Random(0), torn=False)


def _check_table(case: Case, disk: bytes, *, new: bool) -> None:
    """Check the table with sfdisk."""
    with tempfile.NamedTemporaryFile(suffix=".img") as file:
        Path(file.name).write_bytes(disk)
        said = json.loads(run("sfdisk", "--json", file.name))["partitiontable"]["partitions"]
    found = {int(row["node"].rpartition(".img")[2]): row["start"] for row in said}
    for part in (*case.parts, *case.stays):
        assert found[part.number] == (part.after if new else part.before)


def write_archive(target: Path, made: list[Stage]) -> None:
    facts = json.dumps({stage.name: list(stage.position) for stage in made}, indent=1).encode()
    with tarfile.open(target, "w:xz", preset=9) as tar:
        members = [("stages.json", facts)]
        for stage in made:
            members += [(f"{stage.name}/disk", stage.disk)]
            members += [(f"{stage.name}/journal", stage.file)] if stage.file is not None else []
        for name, raw in members:
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))


def main(folder: Path) -> None:
    luck = random.Random("golden")
    secrets.token_bytes = lambda nbytes=None: luck.randbytes(nbytes or 16)  # the same journal ids each time
    for name, case in CASES.items():
        made = list(made_stages(case))
        write_archive(folder / f"{name}.tar.xz", made)
    texts = {name: written(plan) for name, (plan, written) in PLANS.items()}
    with tempfile.TemporaryDirectory() as scratch:
        texts |= {name: record_text(record, Path(scratch)) for name, record in RECORDS.items()}
    for name, text in (texts | {name: written() for name, written in RESULTS.items()}).items():
        (folder / f"{name}.json").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
