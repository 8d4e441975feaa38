"""A move that version 1 began is finished by every later version, forwards or backwards, with the same result."""

import json
import random
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache

import pytest

from aligntool.errors import Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.journal import Journal, pack
from aligntool.mover.journal_format import BODY_AT, Position, Record, copy_lengths, read_parts
from aligntool.mover.journal_search import find_journal
from aligntool.mover.move import resume, rollback
from aligntool.steps import WriteJournal
from tests.golden import make
from tests.golden.journals import (
    CASES,
    SECTOR,
    SLOT,
    Case,
    Stage,
    check_content,
    content,
    copy_length,
    journal_at,
    names_of_stages,
    records,
    stages,
)
from tests.mover.entries import entries
from tests.mover.simulated_disk import SimulatedDisk
from tests.mover.test_simulated_cuts import NoKernel
from tests.thorough import sample

PARK = 1  # the place of ParkEntries among the steps

# One case at a time: together they are more than a hundred MiB, which every fork of the process would have to map.
kept = lru_cache(maxsize=1)(lambda name: tuple(stages(name)))

STAGES = [pytest.param(case, name, id=f"{case}-{name}") for case in CASES for name in names_of_stages(case)]
each_stage = pytest.mark.parametrize(("of", "name"), STAGES)
each_case = pytest.mark.parametrize("name", CASES)


def stage_of(case: str, name: str) -> Stage:
    return next(stage for stage in kept(case) if stage.name == name)


def move_context(disk: bytes, file: bytes | None) -> tuple[SimulatedDisk, MoveContext]:
    made = SimulatedDisk(disk)
    return made, MoveContext(made, NoKernel(), None if file is None else SimulatedDisk(file))


def check_table(case: Case, disk: bytes, *, new: bool) -> None:
    seen = entries(disk)
    for part in (*case.parts, *case.stays):
        assert not seen[part.number].parked
        assert seen[part.number].extent.start == (part.after if new else part.before) * SECTOR


def ended(case: Case, disk: bytes, file: bytes | None, how: Callable[[MoveContext], Iterator[object]]) -> bytes:
    """Return the disk after a resume or a rollback; unchanged if nothing is in flight."""
    made, context = move_context(disk, file)
    if find_journal(context.device, context.journal) is not None:
        try:
            for _ in how(context):
                pass
        except Stopped as stop:
            assert how is rollback and "complete" in str(stop)
    return made.after_the_cut(random.Random(0), torn=False)


def test_every_kind_of_stage_is_stored() -> None:
    for name, case in CASES.items():
        last = len(make.plan_of(case).steps) - 1
        positions = {stage.position for stage in kept(name)}
        assert {step for step, _, forward in positions if forward} == set(range(PARK, last + 1))
        assert {step for step, _, forward in positions if not forward} >= set(range(PARK, 2 + len(case.parts)))
        assert max(batch for _, batch, forward in positions if forward) >= 3


@sample(60)
@each_stage
def test_a_stage_of_version_1_is_resumed_or_rolled_back_with_every_byte_in_place(of: str, name: str) -> None:
    case, stage = CASES[of], stage_of(of, name)
    step, _, _ = stage.position
    last = len(make.plan_of(case).steps) - 1
    for how, new in ((resume, step > PARK), (rollback, step == last)):
        done = ended(case, stage.disk, stage.file, how)
        check_content(case, done, new=new)
        check_table(case, done, new=new)


@each_case
@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("piece", ["head", "record", "body"])
def test_either_copy_of_version_1_may_be_torn(name: str, copy: int, piece: str) -> None:
    """Whichever sector of it is torn: the other copy has the same content, and the move is finished."""
    case = CASES[name]
    middle = kept(name)[len(kept(name)) // 3]
    at = journal_at(case) + copy * copy_length(case)
    at += {"head": 0, "record": SLOT, "body": BODY_AT}[piece]
    raw = bytearray(middle.journal_in)
    raw[at : at + SECTOR] = bytes(256) + raw[at + 256 : at + SECTOR]
    disk, file = (bytes(raw), None) if middle.file is None else (middle.disk, bytes(raw))
    journal = Journal.open(SimulatedDisk(bytes(raw)), journal_at(case))
    assert journal.damage or piece == "record"
    assert journal.contents.plan == make.plan_of(case)
    done = ended(case, disk, file, resume)
    check_content(case, done, new=True)


@sample(60)
@each_stage
def test_a_journal_of_version_1_is_read_and_written_back_identically(of: str, name: str) -> None:
    case, stage = CASES[of], stage_of(of, name)
    raw, at = stage.journal_in, journal_at(case)
    device = SimulatedDisk(raw)
    journal = Journal.open(device, at)
    assert journal.position == Position(*stage.position)
    assert journal.contents.plan == make.plan_of(case)
    assert journal.contents.held == {
        part.number: tuple(content(part, part.before)[one.start : one.end] for one in make.HELD.ranges)
        for part in case.parts
    }
    parts = read_parts(device, at)
    assert zlib.decompress(pack(journal.contents)) == zlib.decompress(parts.body)
    assert raw[at : at + SLOT] == parts.head.sealed()
    newest = max(number for number, *_ in records(raw, at))
    record = Record(newest, journal.position)
    if stage.name != "torn":
        slot = at + record.slot * SLOT
        assert raw[slot : slot + SLOT] == record.sealed(journal.id)


@each_case
def test_a_new_journal_is_identical_to_one_of_version_1(name: str) -> None:
    case, stage = CASES[name], kept(name)[0]
    at, raw = journal_at(case), stage.journal_in
    was = Journal.open(SimulatedDisk(raw), at)
    place = next(step.journal for step in was.contents.plan.steps if isinstance(step, WriteJournal))
    disk = SimulatedDisk(bytes(len(raw)))
    Journal.create(disk, place, was.contents, was.id, Position(PARK))
    made = disk.after_the_cut(random.Random(0), torn=False)
    for copy in (0, 1):
        first = at + copy * copy_length(case)
        if zlib_is_the_same(raw, at, made):
            assert made[first : first + copy_length(case)] == raw[first : first + copy_length(case)]
        assert made[first + SLOT : first + BODY_AT] == raw[first + SLOT : first + BODY_AT]
    assert copy_length(case) in copy_lengths(len(raw) - at)


def zlib_is_the_same(raw: bytes, at: int, made: bytes) -> bool:
    """Return whether zlib compresses to the same bytes; not every zlib does, and a journal need not."""
    body = zlib.compress(zlib.decompress(read_parts(SimulatedDisk(raw), at).body), 1)
    return body == read_parts(SimulatedDisk(raw), at).body


def test_the_body_of_a_journal_has_the_key_names_of_version_1() -> None:
    raw = zlib.decompress(read_parts(SimulatedDisk(kept("gpt-up")[0].disk), 192 * 1024).body)
    index = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert list(index) == ["plan", "images", "runs", "held"]
    assert list(index["images"]) == ["before", "parked", "after"]
