"""The power is cut before every single operation, and again during the resume: nothing is ever lost."""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import pytest

from aligntool.change import MovePlan
from aligntool.errors import Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.journal_search import find_journal
from aligntool.mover.left_journals import find_left
from aligntool.mover.move import realign, resume, rollback, status
from aligntool.units import Extent
from tests.mover.crowded_disks import PATCH_AT, Crowd, Part, make_crowd
from tests.mover.entries import Seen, entries
from tests.mover.simulated_disk import SECTOR, SimulatedDisk, crashes, until_cut
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.needs_tools("sfdisk")

EVERY_CUT = range(60 if THOROUGH else 4)
SOME_CUTS = range(600 if THOROUGH else 60)


class NoKernel:
    """An image file has no partitions in any kernel."""

    def forget(self, numbers: tuple[int, ...]) -> None:
        pass

    def add_absent(self, partitions: tuple[tuple[int, Extent], ...]) -> None:
        pass

    def show(self, partitions: tuple[tuple[int, Extent], ...]) -> None:
        pass


def act(crowd: Crowd, platter: bytes, how: str, cut: int | None = None) -> SimulatedDisk:
    """Run to the end, or to the cut; return the disk."""
    return act_on(SimulatedDisk(platter, cut=cut), crowd.plan, crowd.runs, how)


def act_on(
    disk: SimulatedDisk,
    plan: MovePlan,
    runs: Mapping[int, tuple[Extent, ...]],
    how: str,
    rebuilt: Mapping[int, tuple[bytes, ...]] = MappingProxyType({}),
) -> SimulatedDisk:
    context = MoveContext(disk, NoKernel())
    events = {
        "realign": lambda: realign(plan, context, runs, rebuilt),
        "resume": lambda: resume(context),
        "rollback": lambda: rollback(context),
    }[how]()
    until_cut(events)
    return disk


class Actor(Protocol):
    """A disk and a change of it."""

    def act(self, platter: bytes, how: str, cut: int | None = None) -> SimulatedDisk: ...


def recovered(case: Actor, platter: bytes, how: str, cut: int | None = None, *, sector: int = SECTOR) -> SimulatedDisk:
    """Resume or roll back if something is in flight; what is complete is resumed, also if it is closed already."""
    disk = SimulatedDisk(platter, sector=sector)
    if find_journal(disk, None) is None and find_left(disk) is None:
        return disk
    try:
        return case.act(platter, how, cut)
    except Stopped as stop:
        assert "complete" in str(stop)
        assert how == "rollback"
        return case.act(platter, "resume", cut) if find_journal(disk, None) or find_left(disk) else disk


def recover(crowd: Crowd, platter: bytes, how: str, cut: int | None = None) -> SimulatedDisk:
    """Recover as a user would: resume or roll back if a move is in flight or its journal is left, else do nothing."""
    disk = SimulatedDisk(platter)
    if find_journal(disk, None) is None and find_left(disk) is None:
        return disk
    try:
        return act(crowd, platter, how, cut)
    except Stopped as stop:  # the table shows it as complete already: then it is resumed
        assert "complete" in str(stop)
        assert how == "rollback"
        return act(crowd, platter, "resume", cut)


def leads_to_new(platter: bytes, *, resumed: bool, sector: int = SECTOR) -> bool:
    """Return where the content is in the end: once it is visible at one of its places, only one way is open."""
    ways = status(MoveContext(SimulatedDisk(platter, sector=sector), NoKernel())).ways
    return ways == ("resume",) if len(ways) == 1 else resumed


def final(disk: SimulatedDisk) -> bytes:
    return disk.after_the_cut(random.Random(0), torn=False)


def whole_at(crowd: Crowd, platter: bytes, part: Part, start: int) -> bool:
    return crowd.content(platter, part, start) == crowd.content(crowd.platter, part, part.old.start)


def signs_at(platter: bytes, part: Part, start: int) -> list[bool]:
    """Return which of the partition's signatures are there: those by which blkid would recognise it."""
    return [platter[start + at : start + at + len(magic)] == magic for at, magic in part.signs]


def check_nothing_or_whole(crowd: Crowd, platter: bytes) -> None:
    """Check that at the old and the new place there is nothing to recognise, or everything but redundant signatures.
    The new place may begin in another partition, and is recognised by that one's content until it is gone.
    """
    places = [(start, part) for part in crowd.parts for start in {part.old.start, part.new.start}]
    for start, part in places:
        if part.moves and any(signs_at(platter, part, start)):
            here = [other for at, other in places if at == start and signs_at(platter, other, start)[0]]
            assert here, f"partition {part.number} is recognised at {start} by what is left over"
            assert any(whole_but_signs(crowd, platter, other, start) for other in here), (
                f"partition {part.number} half seen at {start}"
            )


def whole_but_signs(crowd: Crowd, platter: bytes, part: Part, start: int) -> bool:
    """Return whether everything but the sectors of the signatures after the first is as before."""
    found, was = bytearray(platter), bytearray(crowd.platter)
    for at, _ in part.signs[1:]:
        sector = at // SECTOR * SECTOR
        found[start + sector : start + sector + SECTOR] = bytes(SECTOR)
        was[part.old.start + sector : part.old.start + sector + SECTOR] = bytes(SECTOR)
    return crowd.content(bytes(found), part, start) == crowd.content(bytes(was), part, part.old.start)


def check_table(crowd: Crowd, platter: bytes) -> None:
    """Check that every entry that a kernel would offer for mounting shows a complete partition."""
    seen = entries(platter)
    for part in crowd.parts:
        entry = seen.get(part.number)
        if entry is not None and not entry.parked:
            assert entry.extent in (part.old, part.new)
            assert whole_at(crowd, platter, part, entry.extent.start), f"partition {part.number} is offered half moved"


def check_end(crowd: Crowd, platter: bytes, *, new: bool) -> None:
    expected = {part.number: Seen(part.new if new else part.old, False) for part in crowd.parts}
    assert {number: it for number, it in entries(platter).items() if number in expected} == expected
    for part in crowd.parts:
        start = (part.new if new else part.old).start
        assert whole_at(crowd, platter, part, start)
        if part.held.ranges[0].start == 0:
            assert int.from_bytes(platter[start + PATCH_AT : start + PATCH_AT + 4], "little") == start // SECTOR
    assert find_journal(SimulatedDisk(platter), None) is None


def is_new(crowd: Crowd, platter: bytes) -> bool:
    seen = entries(platter)
    return all(seen[part.number].extent == part.new for part in crowd.parts)


def crowds(seeds: range) -> Iterator[Crowd]:
    for seed in seeds:
        yield make_crowd(seed, "gpt" if seed % 2 else "dos")


@sample(6)
@pytest.mark.parametrize("seed", EVERY_CUT)
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_cut_before_every_operation_loses_nothing(seed: int, label: str) -> None:
    crowd = make_crowd(1000 + seed, label)
    whole = act(crowd, crowd.platter, "realign")
    check_end(crowd, final(whole), new=True)
    for number, platter in enumerate(crashes(crowd.platter, whole.log, random.Random(seed))):
        check_nothing_or_whole(crowd, platter)
        check_table(crowd, platter)
        how = "rollback" if number % 3 == 2 else "resume"
        done = final(recover(crowd, platter, how))
        new = is_new(crowd, done)
        check_end(crowd, done, new=new)


@sample(30)
@pytest.mark.parametrize("seed", SOME_CUTS)
def test_many_cuts_in_a_row_lose_nothing(seed: int) -> None:
    """Resume and rollback alternate, each cut again and again."""
    luck = random.Random(seed)
    crowd = make_crowd(seed, luck.choice(("gpt", "dos")))
    operations = act(crowd, crowd.platter, "realign").operations
    disk = act(crowd, crowd.platter, "realign", luck.randrange(operations))
    for _ in range(luck.randint(1, 8)):
        platter = disk.after_the_cut(luck)
        check_nothing_or_whole(crowd, platter)
        check_table(crowd, platter)
        disk = recover(crowd, platter, luck.choice(("resume", "resume", "rollback")), luck.randint(0, 60))
    platter = disk.after_the_cut(luck)
    check_nothing_or_whole(crowd, platter)
    how = luck.choice(("resume", "rollback"))
    done = final(recover(crowd, platter, how))
    check_end(crowd, done, new=is_new(crowd, done))


@pytest.mark.parametrize("seed", range(6))
def test_a_rollback_undoes_everything_and_a_resume_finishes(seed: int) -> None:
    """From the middle of a move, each goes in its own direction."""
    crowd = make_crowd(3000 + seed, "gpt" if seed % 2 else "dos")
    operations = act(crowd, crowd.platter, "realign").operations
    middle = act(crowd, crowd.platter, "realign", operations // 2).after_the_cut(random.Random(seed))
    check_end(crowd, final(recover(crowd, middle, "resume")), new=True)
    check_end(crowd, final(recover(crowd, middle, "rollback")), new=False)


def test_bytes_that_are_not_moved_do_not_change(tmp_path: Path) -> None:
    """Outside targets, sources, tables and the journal no byte changes."""
    for crowd in crowds(range(2000, 2008)):
        done = final(act(crowd, crowd.platter, "realign"))
        place = next(step.journal for step in crowd.plan.steps if hasattr(step, "journal"))
        touched = [Extent(0, 34 * SECTOR), Extent(len(done) - 33 * SECTOR, 33 * SECTOR), place.extent]
        for part in crowd.parts:
            touched += [part.old, part.new] if part.moves else []
            touched += [Extent(it, SECTOR) for it in (part.record_old, part.record_new) if it is not None]
        for at in range(0, len(done), SECTOR):
            if not any(it.start <= at < it.end for it in touched):
                assert done[at : at + SECTOR] == crowd.platter[at : at + SECTOR], f"sector {at // SECTOR} changed"
