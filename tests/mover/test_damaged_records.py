"""Damaged records of a journal, at every moment of a move: recovered, or stopped with nothing changed.

Damage is what a cut does not cause: sectors with other content, or unreadable ones. A cut precedes it.
"""

import itertools
import random
from collections.abc import Iterator

import pytest

from aligntool.errors import Refused, Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.journal_format import Record, read_record
from aligntool.mover.journal_search import find_journal
from aligntool.mover.move import resume, rollback, status
from aligntool.steps import WriteJournal
from tests.mover.crowded_disks import Crowd, make_crowd
from tests.mover.simulated_disk import SimulatedDisk, crashes
from tests.mover.test_simulated_cuts import NoKernel, act, check_end, check_table, final, is_new
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.needs_tools("sfdisk")

CROWDS = range(30 if THOROUGH else 2)
STRIDE = 1 if THOROUGH else 7  # this many operations from one cut to the next
SLOT = 4096
SLOTS = (1, 2)
WAYS = {"resume": resume, "rollback": rollback}


def ended(crowd: Crowd, platter: bytes, way: str, bad: frozenset[int] = frozenset()) -> str:
    """Return "done", "stopped" with nothing changed, or "nothing" if nothing was in flight; checked each time."""
    disk = SimulatedDisk(platter, bad=bad)
    context = MoveContext(disk, NoKernel())
    try:
        list(WAYS[way](context))
    except (Refused, Stopped) as refusal:
        if "complete" in str(refusal) or "nothing is in flight" in str(refusal):
            check_end(crowd, final(disk), new=is_new(crowd, final(disk)))
            return "nothing"
        assert isinstance(refusal, Refused) and disk.operations == 0, refusal
        with pytest.raises(Refused):
            status(MoveContext(SimulatedDisk(platter, bad=bad), NoKernel()))
        return "stopped"
    check_end(crowd, final(disk), new=is_new(crowd, final(disk)))
    return "done"


def slot_at(crowd: Crowd, copy: int, slot: int) -> int:
    place = next(step.journal for step in crowd.plan.steps if isinstance(step, WriteJournal))
    return place.extent.start + copy * place.copy_length + slot * SLOT


def damaged(platter: bytes, places: Iterator[int], content: bytes) -> bytes:
    made = bytearray(platter)
    for at in places:
        made[at : at + len(content)] = content
    return bytes(made)


def moments(crowd: Crowd, seed: int, *, torn: bool = True) -> Iterator[bytes]:
    """Yield some of the states that a cut before each operation leaves, of a move and of the rollback
    from its middle.
    """
    whole = act(crowd, crowd.platter, "realign")
    starts = (final(whole.before(cut)) for cut in range(whole.operations * 2 // 3, 0, -1))
    middle = next(one for one in starts if len(status(MoveContext(SimulatedDisk(one), NoKernel())).ways) == 2)
    back = act(crowd, middle, "rollback")
    for start, log in ((crowd.platter, whole.log), (middle, back.log)):
        for platter in itertools.islice(crashes(start, log, random.Random(seed), torn=torn), seed, None, STRIDE):
            if find_journal(SimulatedDisk(platter), None) is not None:
                yield platter


@sample(2)
@pytest.mark.parametrize("seed", CROWDS)
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_with_a_slot_damaged_in_both_copies_nothing_continues_from_an_older_record(label: str, seed: int) -> None:
    crowd = make_crowd(9200 + seed, label)
    ends = set()
    ways = itertools.cycle(WAYS)
    for platter in moments(crowd, seed):
        for slot in SLOTS:
            content = random.Random(slot).choice((b"\xff", b"\0")) * 512
            both = (slot_at(crowd, copy, slot) for copy in (0, 1))
            ends.add(ended(crowd, damaged(platter, both, content), next(ways)))
    assert "stopped" in ends


@sample(3)
@pytest.mark.parametrize("seed", CROWDS)
@pytest.mark.parametrize("label", ["gpt", "dos"])
@pytest.mark.parametrize("copy", [0, 1])
def test_the_records_of_one_copy_suffice_at_every_moment(label: str, seed: int, copy: int) -> None:
    crowd = make_crowd(9250 + seed, label)
    ways = itertools.cycle(WAYS)
    for number, platter in enumerate(moments(crowd, seed, torn=False)):
        lost = [slot_at(crowd, copy, slot) for slot in (SLOTS if number % 2 else (1 + number // 2 % 2,))]
        bad = frozenset(lost) if number % 3 == 0 else frozenset()
        way = next(ways)
        end = ended(crowd, damaged(platter, iter(lost), b"\xff" * 512), way, bad)
        if way == "rollback" and end == "nothing":  # a complete move is not undone
            end = "done" if ended(crowd, platter, way) == "nothing" else "lost"
        assert end == "done"


@pytest.mark.parametrize("seed", range(20 if THOROUGH else 2))
def test_a_record_that_a_cut_left_in_one_copy_is_completed_before_the_move_continues(seed: int) -> None:
    """Cut between the two copies of a record, resumed, cut again; then the copy that had the record loses it."""
    crowd, luck = make_crowd(9310 + seed, ("gpt", "dos")[seed % 2]), random.Random(seed)
    whole = act(crowd, crowd.platter, "realign")
    cuts = crashes(crowd.platter, whole.log, luck, torn=False)
    standing = (platter for platter in cuts if find_journal(SimulatedDisk(platter), None) is not None)
    unlike = [platter for platter in standing if newer_copy(crowd, platter) is not None]
    assert unlike
    for platter in unlike if THOROUGH else unlike[:16]:
        newer = newer_copy(crowd, platter)
        assert newer is not None
        for cut in range(1, 16) if THOROUGH else (8, 11):
            again = act(crowd, platter, "resume", cut).after_the_cut(luck, torn=False)
            lost = (slot_at(crowd, newer, slot) for slot in SLOTS)
            assert ended(crowd, damaged(again, lost, b"\xff" * 512), "resume") in ("done", "nothing")


def newer_copy(crowd: Crowd, platter: bytes) -> int | None:
    """Return the copy whose newest record the other lacks; None if both have the same."""
    copies = [
        [read_record(SimulatedDisk(platter), slot_at(crowd, copy, slot), id_of(crowd, platter)) for slot in SLOTS]
        for copy in (0, 1)
    ]
    newest = [max(record.number for record in records if record) for records in copies]
    return None if newest[0] == newest[1] else newest.index(max(newest))


def id_of(crowd: Crowd, platter: bytes) -> bytes:
    journal = find_journal(SimulatedDisk(platter), None)
    assert journal is not None
    return journal.id


def between_records(crowd: Crowd) -> tuple[bytes, Record]:
    """Return a disk in the middle of a move, and its newest record, which is in every slot."""
    whole = act(crowd, crowd.platter, "realign")
    for cut in range(whole.operations // 2, whole.operations):
        middle = final(whole.before(cut))
        places = (slot_at(crowd, copy, slot) for copy in (0, 1) for slot in SLOTS)
        found = [read_record(SimulatedDisk(middle), at, id_of(crowd, middle)) for at in places]
        if found[0] is not None and found == [found[0]] * len(found):
            return middle, found[0]
    raise AssertionError("no record is in every slot")


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_unreadable_sectors_of_the_newest_record_stop_the_move(label: str) -> None:
    crowd = make_crowd(9206, label)
    middle, newest = between_records(crowd)
    for slots in (SLOTS, (newest.next_slot,)):
        bad = frozenset(slot_at(crowd, copy, slot) for copy in (0, 1) for slot in slots)
        for way in WAYS:
            assert ended(crowd, middle, way, bad) == "stopped"
    check_table(crowd, middle)


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_of_the_two_slots_that_have_the_newest_record_one_is_not_needed(label: str) -> None:
    crowd = make_crowd(9206, label)
    middle, newest = between_records(crowd)
    both = damaged(middle, (slot_at(crowd, copy, newest.slot) for copy in (0, 1)), b"\xff" * 512)
    for way in WAYS:
        assert ended(crowd, both, way) == "done"
