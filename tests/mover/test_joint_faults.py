"""A sector of the journal goes bad and the power fails: the move is resumed or rolled back as without the bad sector.

The cut tears any sectors of one epoch; the bad sector is any one of the journal, at any moment.
"""

import itertools
import random
from collections.abc import Iterator

import pytest

from aligntool.errors import Refused
from aligntool.mover.journal import Contents, Journal
from aligntool.mover.journal_format import BODY_AT, COPIES, SLOT, SMALLEST_COPY, Position, Record
from aligntool.mover.journal_search import find_journal
from aligntool.steps import HoldContent, JournalPlace
from aligntool.units import Extent
from tests.mover.crowded_disks import Crowd, make_crowd
from tests.mover.simulated_disk import SECTOR, PowerCut, SimulatedDisk, crashes, every_crash
from tests.mover.test_other_journals import until
from tests.mover.test_simulated_cuts import act, check_end, final, is_new, recover
from tests.mover.test_simulated_media import place_of
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.needs_tools("sfdisk")

CROWDS = range(12 if THOROUGH else 2)
STRIDE = 1 if THOROUGH else 15
PLACE = JournalPlace(Extent(0, 3 * SMALLEST_COPY), SMALLEST_COPY, Extent(2 * SMALLEST_COPY, SMALLEST_COPY))
SLOTS = (1, 2)
RECORDS = [copy * SMALLEST_COPY + slot * SLOT for copy in COPIES for slot in SLOTS]  # the sectors that hold them
ID = bytes(range(16))
NOTHING_BAD = frozenset[int]()


@pytest.fixture(scope="module")
def contents() -> Contents:
    crowd = make_crowd(9400, "gpt")
    journal = find_journal(SimulatedDisk(until(crowd, crowd.platter, HoldContent)[0]), None)
    assert journal is not None
    return journal.contents


def with_records(contents: Contents, count: int) -> bytes:
    """Return a journal with positions 0 to `count`."""
    disk = SimulatedDisk(bytes(PLACE.extent.length))
    journal = Journal.create(disk, PLACE, contents, ID, Position(0))
    for step in range(1, count + 1):
        journal.record(Position(step))
    return final(disk)


def recorded(platter: bytes, step: int, *, bad: frozenset[int] = NOTHING_BAD, cut: int | None = None) -> SimulatedDisk:
    """Open and repair a journal, and record this position, as a resume does."""
    disk = SimulatedDisk(platter, bad=bad, cut=cut)
    journal = Journal.open(disk, 0)
    try:
        journal.repair_copies()
        journal.record(Position(step))
    except PowerCut:
        pass
    return disk


def position(platter: bytes, bad: frozenset[int]) -> int | None:
    """Return the step of the newest record, or None if that may be lost."""
    journal = Journal.open(SimulatedDisk(platter, bad=bad), 0)
    return None if journal.lost_slots else journal.position.step


def with_one_bad(platter: bytes) -> Iterator[tuple[bytes, frozenset[int]]]:
    """Yield the disk as it is, and with each sector of a record unreadable, or with other content."""
    yield platter, NOTHING_BAD
    for at in RECORDS:
        yield platter, frozenset((at,))
        for content in (bytes(SECTOR), b"\xff" * SECTOR) if THOROUGH else (b"\xff" * SECTOR,):
            yield platter[:at] + content + platter[at + SECTOR :], NOTHING_BAD


@sample(1)
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_record_survives_a_cut_and_a_bad_sector_in_every_combination(contents: Contents, count: int) -> None:
    """Neither the record before it is lost, on which the move relies, nor is the journal refused; also if the resume is
    cut again, and only then the sector becomes bad.
    """
    start = with_records(contents, count)
    luck = random.Random(count)
    states = set()
    for early in (NOTHING_BAD, *(frozenset((at,)) for at in RECORDS)):  # bad before the record is written
        once = recorded(start, count + 1, bad=early)
        for crashed in every_crash(start, once.log, luck, most=1 << 12):
            for left, late in with_one_bad(crashed) if not early else ((crashed, early),):
                found = position(left, late)
                assert found in (count, count + 1)
                states.add(found)
                again = recorded(left, count + 2, bad=late)
                assert position(final(again), late) == count + 2
                for cut in range(0, again.operations, 1 if THOROUGH else 5):
                    twice = recorded(left, count + 2, bad=late, cut=cut).after_the_cut(luck)
                    assert position(twice, late) in (found, count + 2)
    assert states == {count, count + 1}


def as_version_1_left_it(contents: Contents, count: int) -> bytes:
    """Return a journal whose records are each in one slot only, as version 0.1.0 wrote them."""
    raw = bytearray(with_records(contents, 0))
    for number in range(2, count + 2):
        record = Record(number, Position(number - 1))
        for copy in COPIES:
            at = copy * SMALLEST_COPY + record.slot * SLOT
            raw[at : at + SLOT] = record.sealed(ID)
    return bytes(raw)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_journal_of_version_1_is_never_continued_from_an_older_record(contents: Contents, count: int) -> None:
    start = as_version_1_left_it(contents, count)
    assert position(start, NOTHING_BAD) == count
    for one, other in itertools.combinations(RECORDS, 2):
        assert position(start, frozenset((one, other))) in (count, None)
    for crashed in every_crash(start, recorded(start, count + 1).log, random.Random(count), most=1 << 12):
        assert position(crashed, NOTHING_BAD) in (count, count + 1)
        for left, bad in with_one_bad(crashed):
            assert position(left, bad) in (count, count + 1, None)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_no_damage_of_records_leads_to_an_older_one(contents: Contents, count: int) -> None:
    """Any number of sectors that are bad: the journal has its newest record, or is refused."""
    start = with_records(contents, count)
    for number in range(1, len(RECORDS) + 1):
        for bad in itertools.combinations(RECORDS, number):
            assert position(start, frozenset(bad)) in (count, None)
    assert position(start, frozenset(RECORDS)) is None


def journal_sectors(crowd: Crowd) -> list[int]:
    """Return a sector of each part of each copy: head, records, body."""
    place = place_of(crowd)
    parts = (0, *(slot * SLOT for slot in SLOTS), BODY_AT, BODY_AT + SECTOR)
    return [place.extent.start + copy * place.copy_length + at for copy in COPIES for at in parts]


@sample(1)
@pytest.mark.parametrize("seed", CROWDS)
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_move_survives_a_cut_and_a_bad_sector_of_its_journal(label: str, seed: int) -> None:
    crowd, luck = make_crowd(9400 + seed, label), random.Random(seed)
    whole = act(crowd, crowd.platter, "realign")
    middle = final(act(crowd, crowd.platter, "realign", whole.operations * 2 // 3))
    back = act(crowd, middle, "rollback")
    ways = itertools.cycle(("resume", "rollback", "resume"))
    for start, log in ((crowd.platter, whole.log), (middle, back.log)):
        for platter in itertools.islice(crashes(start, log, luck), seed, None, STRIDE):
            for at in journal_sectors(crowd):
                left = platter[:at] + luck.choice((bytes(SECTOR), b"\xff" * SECTOR)) + platter[at + SECTOR :]
                try:
                    done = final(recover(crowd, left, next(ways)))
                except Refused as refusal:
                    raise AssertionError(f"with sector {at // SECTOR} bad") from refusal
                check_end(crowd, done, new=is_new(crowd, done))
