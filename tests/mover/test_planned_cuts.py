"""Plans that the planner makes for real tables survive power cuts like the made-up plans of other tests.

`ALIGNTOOL_THOROUGH=1` tries hundreds of disks.
"""

import random
from collections.abc import Iterator
from itertools import count

import pytest

from aligntool.errors import Refused, Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.journal_search import find_journal
from aligntool.mover.move import realign, resume, rollback
from aligntool.steps import CopyContent, EntryChange, HoldContent, RewriteTable, WriteJournal
from aligntool.units import Extent
from tests.mover.entries import entries
from tests.mover.planned_disks import SPARES, TIGHT, Planned, make_planned
from tests.mover.simulated_disk import PowerCut, SimulatedDisk
from tests.mover.test_simulated_cuts import NoKernel
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs", "mkfs.fat")

SEEDS = range(80 if THOROUGH else 3)
CUTS = 30 if THOROUGH else 8


@sample(4)
@pytest.mark.parametrize("sector", [512, 4096])
@pytest.mark.parametrize("label", ["gpt", "dos"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_planned_move_survives_every_cut(seed: int, label: str, sector: int) -> None:
    planned = next(each for each in drawn(seed, label, sector) if journal_fits(each))
    if seed % 3 == 2:
        planned = planned.in_file
    survives(planned, random.Random(seed))


def drawn(seed: int, label: str, sector: int, spares: tuple[int, ...] = SPARES) -> Iterator[Planned]:
    """Yield disks for this seed, the seed itself first."""
    yield make_planned(seed, label, sector, spares)
    for number in count(1000 * (seed + 1)):
        yield make_planned(number, label, sector, spares)


def journal_fits(planned: Planned) -> bool:
    """Return whether the content of the journal can be compressed into its place; noise cannot, and the move is
    refused.
    """
    try:
        whole(planned)
    except Refused as refused:
        assert "bytes short" in str(refused)
        return False
    return True


def survives(planned: Planned, luck: random.Random) -> None:
    operations, done = whole(planned)
    check(planned, done, new=True)
    check_what_stays(planned, done)
    for _ in range(CUTS):
        platter, journal = act(planned, "realign", planned.platter, None, luck, luck.randrange(operations))
        for _ in range(luck.choice((0, 0, 1, 4))):
            how = luck.choice(("resume", "rollback"))
            platter, journal = act(planned, how, platter, journal, luck, luck.randint(0, 60))
            check_table(planned, platter)
        how = luck.choice(("resume", "rollback"))
        done, _ = act(planned, how, platter, journal, luck, None)
        new = entry_starts(planned, done) == [change.after.start for change in changes(planned)]
        check(planned, done, new=new)
        check_what_stays(planned, done)


@sample(3)
@pytest.mark.parametrize("spare", TIGHT)
@pytest.mark.parametrize("label", ["gpt", "dos"])
@pytest.mark.parametrize("seed", SEEDS[::3])
def test_a_disk_that_is_nearly_full_survives_every_cut(seed: int, label: str, spare: int) -> None:
    survives(small(seed, label, spare), random.Random(seed))


def small(seed: int, label: str, spare: int) -> Planned:
    """Return one with a journal in less than the free space, into which everything fits."""
    for planned in drawn(seed, label, 512, (spare,)):
        place = next(step.journal for step in planned.plan.steps if isinstance(step, WriteJournal))
        if place.extent.length <= spare and journal_fits(planned):
            return planned
    raise AssertionError


def whole(planned: Planned) -> tuple[int, bytes]:
    """Return how many operations a move takes, and the disk afterwards."""
    disk, file = disks(planned, planned.platter, None, None)
    for _ in realign(planned.plan, MoveContext(disk, NoKernel(), file), planned.runs):
        pass
    return disk.operations, disk.after_the_cut(random.Random(0), torn=False)


def disks(
    planned: Planned, platter: bytes, journal: bytes | None, cut: int | None
) -> tuple[SimulatedDisk, SimulatedDisk | None]:
    place = next(step.journal for step in planned.plan.steps if isinstance(step, WriteJournal))
    file = SimulatedDisk(journal or bytes(place.extent.length), sector=planned.sector) if place.file else None
    return SimulatedDisk(platter, cut=cut, sector=planned.sector), file


def act(
    planned: Planned, how: str, platter: bytes, journal: bytes | None, luck: random.Random, cut: int | None
) -> tuple[bytes, bytes | None]:
    """Return the disk and the journal file after the next boot."""
    disk, file = disks(planned, platter, journal, cut)
    context = MoveContext(disk, NoKernel(), file)
    try:
        if how == "realign":
            for _ in realign(planned.plan, context, planned.runs):
                pass
        else:
            recover(context, how)
    except PowerCut:
        pass
    left = disk.after_the_cut(luck, torn=False)
    return left, file.after_the_cut(luck, torn=False) if file else None


def recover(context: MoveContext, how: str) -> None:
    try:
        if find_journal(context.device, context.journal) is None:
            return
    except Refused as refusal:  # the file has not become a journal yet
        assert context.journal and "no readable journal" in str(refusal)
        return
    try:
        for _ in resume(context) if how == "resume" else rollback(context):
            pass
    except Stopped as stop:
        assert how == "rollback" and "complete" in str(stop)
        assert find_journal(context.device, None) is None


def changes(planned: Planned) -> tuple[EntryChange, ...]:
    """Return the changes of partitions; a container that grows begins where it began."""
    moved = {step.partition for step in planned.plan.steps if isinstance(step, CopyContent)}
    return tuple(
        change
        for step in planned.plan.steps
        if isinstance(step, RewriteTable)
        for change in step.changes
        if change.number in moved
    )


def entry_starts(planned: Planned, platter: bytes) -> list[int]:
    seen = entries(platter, planned.sector)
    return [seen[change.number].extent.start for change in changes(planned)]


def holds(planned: Planned) -> Iterator[tuple[HoldContent, EntryChange]]:
    by_number = {change.number: change for change in changes(planned)}
    for step in planned.plan.steps:
        if isinstance(step, HoldContent):
            yield step, by_number[step.partition]


def check(planned: Planned, platter: bytes, *, new: bool) -> None:
    """Check that the table is the old or the new one, and so is everything that it shows."""
    seen = entries(platter, planned.sector)
    assert not any(entry.parked for entry in seen.values())
    for step, change in holds(planned):
        place = change.after if new else change.before
        assert seen[step.partition].extent == place
        assert is_whole(planned, platter, step, place.start), f"partition {step.partition}"


def check_table(planned: Planned, platter: bytes) -> None:
    """Check that every entry that a kernel would offer for mounting shows a complete partition."""
    seen = entries(platter, planned.sector)
    for step, change in holds(planned):
        entry = seen.get(step.partition)
        if entry is not None and not entry.parked:
            assert entry.extent in (change.before, change.after)
            assert is_whole(planned, platter, step, entry.extent.start), f"{step.partition} is half moved"


def is_whole(planned: Planned, platter: bytes, step: HoldContent, start: int) -> bool:
    was = planned.content(planned.platter, step, step.source.start)
    return planned.content(platter, step, start) == was


def check_what_stays(planned: Planned, platter: bytes) -> None:
    """Check that no byte changes outside of old and new places, tables and the journal."""
    place = next(step.journal for step in planned.plan.steps if isinstance(step, WriteJournal))
    touched = [] if place.file else [place.extent]
    sector, gpt = planned.sector, planned.plan.disk.label == "gpt"
    size = len(platter)
    gpts = [Extent(sector, sector + 16384), Extent(size - 33 * sector, 16384), Extent(size - sector, sector)]
    touched += gpts if gpt else [Extent(446, 64)]
    for step in planned.plan.steps:
        if isinstance(step, RewriteTable):
            for change in step.changes:
                ebrs = (change.record_before, change.record_after)
                touched += [Extent(at, sector) for at in ebrs if at is not None]
                if change in changes(planned):
                    touched += [change.before, change.after]
    at = 0
    for extent in sorted(touched):
        if extent.start > at:
            assert platter[at : extent.start] == planned.platter[at : extent.start], f"between {at} and {extent}"
        at = max(at, extent.end)
    assert platter[at:] == planned.platter[at:]
