"""Content in flight that another program changes, or that is put back from an older copy: it is never overwritten.

For every kind of change, at cuts spread over it, libblkid must find nothing or everything where content is rebuilt,
and resume and rollback must leave what another program wrote, and the journal.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from aligntool.change import Event, MovePlan
from aligntool.errors import Refused, Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.disk_state import is_complete
from aligntool.mover.in_flight import HIDDEN_FIRST
from aligntool.mover.journal import Contents as JournalContents
from aligntool.mover.journal import Journal
from aligntool.mover.journal_format import Position
from aligntool.mover.journal_search import find_journal
from aligntool.mover.move import realign, resume, rollback
from aligntool.mover.status import journal_status
from aligntool.mover.table import TableState, table_state
from aligntool.realign import shrink_commit
from aligntool.steps import HoldContent, RebuildContent
from aligntool.units import KIB, Extent
from tests.conftest import run
from tests.mover import test_convert_cuts, test_shrink_cuts, test_whole_disk_cuts
from tests.mover.conftest import Contents
from tests.mover.libblkid import ProbedImage
from tests.mover.planned_disks import make_planned
from tests.mover.simulated_disk import SimulatedDisk, crashes, until_cut
from tests.mover.test_simulated_cuts import NoKernel, final
from tests.run_aligntool import run_aligntool
from tests.thorough import THOROUGH, sample

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools(
        "mke2fs", "mkfs.fat", "mcopy", "fdisk", "sfdisk", "sgdisk", "losetup", "resize2fs", "qemu-storage-daemon"
    ),
]
Way = Callable[[MoveContext], Iterator[Event]]
Make = Callable[[str, Path, Contents], "Case"]
CUTS = 200 if THOROUGH else 12


@dataclass(frozen=True)
class Case:
    """A disk, and a change of it."""

    platter: bytes
    plan: MovePlan
    begin: Callable[[MoveContext], Iterator[Event]]
    rebuilt: JournalContents | None = None
    table: tuple[Extent, ...] = field(default=())

    @cached_property
    def whole(self) -> SimulatedDisk:
        disk = SimulatedDisk(self.platter)
        until_cut(self.begin(MoveContext(disk, NoKernel())))
        return disk

    def run(self, cut: int | None = None) -> SimulatedDisk:
        return self.whole.before(cut)

    @property
    def steps(self) -> tuple[object, ...]:
        return (self.rebuilt.plan if self.rebuilt else self.plan).steps

    @property
    def places(self) -> list[Extent]:
        """Return where content is hidden in flight."""
        found = [step.source for step in self.steps if isinstance(step, HoldContent)]
        return found + [step.extent for step in self.steps if isinstance(step, RebuildContent)]

    def cuts(self) -> Iterator[tuple[int, bytes]]:
        """Yield what some cuts leave on the disk."""
        operations, luck = self.run().operations, random.Random(1)
        for cut in sorted(luck.sample(range(operations), min(CUTS, operations))):
            yield cut, self.run(cut).after_the_cut(luck)


def simple(
    plan: MovePlan, platter: bytes, runs: Mapping[int, tuple[Extent, ...]], rebuilt: dict[int, tuple[bytes, ...]]
) -> Case:
    return Case(platter, plan, lambda context: realign(plan, context, runs, rebuilt))


def moved(label: str, folder: Path, contents: Contents) -> Case:
    planned = make_planned(7, label, 512)
    return simple(planned.plan, planned.platter, planned.runs, {})


def converted(label: str, folder: Path, contents: Contents) -> Case:
    made = test_convert_cuts.make(folder, 512, (4096,), 512, label)
    return simple(made.plan, made.platter, {}, made.rebuilt)


def partitioned(label: str, folder: Path, contents: Contents) -> Case:
    made = test_whole_disk_cuts.make(folder, "ext2", label=label)
    return simple(made.plan, made.platter, made.runs, {})


def shrunk(label: str, folder: Path, contents: Contents) -> Case:
    made = test_shrink_cuts.make_case(folder, contents, "ext4", label)
    begin = lambda context: shrink_commit.write(made.plan, context, made.prepared)  # noqa: E731
    return Case(made.platter, made.plan, begin, made.prepared.contents)


@cache
def made(make: Make, label: str, contents: Contents) -> Case:
    """Return the same case to all tests."""
    with TemporaryDirectory(prefix="aligntool-case-") as folder:
        return make(label, Path(folder), contents)


ALL = [(make, label) for make in (moved, converted, partitioned, shrunk) for label in ("gpt", "dos")]
NAMES = [f"{make.__name__}-{label}" for make, label in ALL]
REBUILT = [(make, label) for make, label in ALL if make in (converted, shrunk)]


@sample(4)
@pytest.mark.parametrize(("make", "label"), REBUILT, ids=[f"{make.__name__}-{label}" for make, label in REBUILT])
def test_half_rebuilt_content_is_never_recognised(contents: Contents, make: Make, label: str) -> None:
    case = made(make, label, contents)
    whole = case.run()
    new, hidden = final(whole), 0
    (step,) = (step for step in case.steps if isinstance(step, RebuildContent))
    place = step.extent
    with ProbedImage(case.platter) as witness:
        before = witness.see(place.start, place.length)["TYPE"]
        stride = 1 if THOROUGH else max(1, len(whole.log) // 150)
        for platter in islice(crashes(case.platter, whole.log, random.Random(label)), 0, None, stride):
            for extent in step.held.ranges:
                at = place.start + extent.start
                witness.write(at, platter[at : at + extent.length])
            seen = witness.see(place.start, place.length)
            if "TYPE" not in seen:
                hidden += 1
                continue
            assert seen["TYPE"] == before
            states = [
                all(
                    platter[place.start + part.start : place.start + part.end]
                    == content[place.start + part.start : place.start + part.end]
                    for part in step.held.ranges
                )
                for content in (case.platter, new)
            ]
            assert any(states), "a half-rebuilt file system is recognised"
    assert hidden


def new_head(folder: Path) -> bytes:
    """Return the first bytes of another file system."""
    path = folder / "other"
    path.write_bytes(bytes(256 * KIB))
    run("mke2fs", "-q", "-F", "-t", "ext2", "-b", "1024", path)
    return path.read_bytes()[: 16 * KIB]


@sample(8)
@pytest.mark.parametrize("way", [resume, rollback])
@pytest.mark.parametrize(("make", "label"), ALL, ids=NAMES)
def test_a_file_system_made_at_a_place_in_flight_is_not_overwritten(
    tmp_path: Path, contents: Contents, make: Make, label: str, way: Way
) -> None:
    case, head, stopped = made(make, label, contents), new_head(tmp_path), 0
    for cut, platter in case.cuts():
        for place in case.places:
            used = platter[: place.start] + head + platter[place.start + len(head) :]
            disk = SimulatedDisk(used)
            if find_journal_or_none(disk) is None:
                continue
            if is_overwritten_by_copies(case, platter, place):
                continue
            told = journal_status(SimulatedDisk(used), None)
            try:
                list(way(MoveContext(disk, NoKernel())))
            except (Refused, Stopped) as stop:
                assert disk.operations == 0 or "complete" in str(stop), f"cut {cut}: {stop}"
                stopped += 1
                is_told = way.__name__ not in told.ways or told.restore_table or told.complete
                assert is_told or "another program has written" not in str(stop), f"cut {cut}: {stop}"
            else:
                assert way.__name__ in told.ways or len(told.ways) == 1, f"cut {cut}"
            result = final(disk)
            assert result.startswith(head, place.start), f"cut {cut}, {place}"
    assert stopped


def find_journal_or_none(disk: SimulatedDisk) -> Journal | None:
    try:
        return find_journal(disk, None)
    except Refused:
        return None


def is_overwritten_by_copies(case: Case, platter: bytes, place: Extent) -> bool:
    """Return whether data of a partition may have been copied to this place already: then nobody can tell."""
    journal = find_journal_or_none(SimulatedDisk(platter))
    targets = [step.target for step in case.steps if hasattr(step, "target")]
    step = journal.contents.plan.steps[min(journal.position.step, len(case.steps) - 1)] if journal else None
    begun = not isinstance(step, HoldContent) if journal else True
    return begun and any(target.overlaps(Extent(place.start, 16 * KIB)) for target in targets)


@sample(8)
@pytest.mark.parametrize("way", [resume, rollback])
@pytest.mark.parametrize(("make", "label"), ALL, ids=NAMES)
def test_an_old_table_that_is_put_back_does_not_hide_that_content_is_in_flight(
    contents: Contents, make: Make, label: str, way: Way
) -> None:
    case, continued = made(make, label, contents), 0
    new = final(case.run())
    for cut, platter in case.cuts():
        journal = find_journal_or_none(SimulatedDisk(platter))
        if journal is None or journal.position.step <= journal.contents.plan.park_at:
            continue
        if not journal_status(SimulatedDisk(platter), None).begun:
            continue  # the content is shown, and whole
        images, commit = journal.contents.images, journal.contents.plan.commit_at
        if images.before == images.after and journal.position.step >= commit:
            continue  # the old table is that of the complete change
        changed = bytearray(platter)
        for sectors in (sectors for group in journal.contents.images.before for sectors in group):
            changed[sectors.at : sectors.at + len(sectors.data)] = sectors.data
        disk = SimulatedDisk(bytes(changed))
        if table_state(disk, images) is TableState.AFTER:
            continue  # only the copy at the end of the disk is that of before
        told = journal_status(disk, None)
        assert told.state == "in-flight", f"cut {cut}"
        try:
            list(way(MoveContext(disk, NoKernel())))
        except (Refused, Stopped) as stop:
            assert final(disk) == changed or "complete" in str(stop), f"cut {cut}: {stop}"
            continue
        place = next(step.journal.extent for step in case.steps if hasattr(step, "journal"))
        goes_on = way is resume and told.ways != ("rollback",)
        result, expected = final(disk), new if goes_on else case.platter
        if case.rebuilt or case.plan.conversion:
            for one in case.places:
                inside = (
                    [Extent(one.start, max(0, min(place.start, one.end) - one.start))] if one.overlaps(place) else [one]
                )
                assert all(result[at.start : at.end] == expected[at.start : at.end] for at in inside), f"cut {cut}"
        continued += 1
    assert continued


def with_old_table(platter: bytes, journal: Journal) -> bytes:
    changed = bytearray(platter)
    for sectors in (sectors for group in journal.contents.images.before for sectors in group):
        changed[sectors.at : sectors.at + len(sectors.data)] = sectors.data
    return bytes(changed)


def with_old_head(platter: bytes, journal: Journal, *, length: int = 17 * KIB) -> bytes:
    """Return a disk with the first bytes of its former content over the new table, or over a part of it."""
    (hold,) = (step for step in journal.contents.plan.steps if isinstance(step, HoldContent))
    held = zip(hold.held.ranges, journal.contents.held[hold.partition], strict=True)
    (head,) = (saved[:length] for extent, saved in held if extent.start == 0)
    return head + platter[len(head) :]


PUT_BACK = {
    "moved": (moved, with_old_table),
    "converted": (converted, with_old_table),
    "partitioned": (partitioned, with_old_head),
    "partitioned-in-part": (partitioned, partial(with_old_head, length=4 * KIB)),
}


@pytest.mark.parametrize(("make", "put_back"), PUT_BACK.values(), ids=PUT_BACK)
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_journal_stays_open_under_an_old_table_that_is_put_back(
    contents: Contents, make: Make, put_back: Callable[[bytes, Journal], bytes], label: str
) -> None:
    """The change is complete, but nothing else than its journal names the new places then."""
    case, stopped = made(make, label, contents), 0
    whole = case.run()
    at = next(step.journal.extent.start for step in case.steps if hasattr(step, "journal"))
    for cut in range(whole.operations - 60, whole.operations, 1 if THOROUGH else 2):
        platter = case.run(cut).after_the_cut(random.Random(cut))
        try:
            journal = Journal.open(SimulatedDisk(platter), at)
        except (Refused, OSError):
            continue
        if not is_complete(journal):
            continue
        changed = put_back(platter, journal)
        status = journal_status(SimulatedDisk(changed), None)
        if status.state != "in-flight":
            continue  # the heads of the journal are wiped already
        assert status.complete and status.restore_table
        for way in (resume, rollback):
            disk = SimulatedDisk(changed)
            with pytest.raises(Refused, match="another program has changed or removed the partition table"):
                list(way(MoveContext(disk, NoKernel())))
            assert final(disk) == changed
        disk = SimulatedDisk(changed)
        list(resume(MoveContext(disk, NoKernel()), restore_table=True))
        ordinary = SimulatedDisk(platter)  # what was copied from may have been used since the cut, and stays
        list(resume(MoveContext(ordinary, NoKernel())))
        assert final(disk) == final(ordinary)
        stopped += 1
    assert stopped


@sample(1)
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_rollback_clears_the_new_places_under_an_old_table(contents: Contents, label: str) -> None:
    case, cleared = made(moved, label, contents), 0
    middle = case.run(case.run().operations * 2 // 3).after_the_cut(random.Random(label))
    whole = SimulatedDisk(middle)
    list(rollback(MoveContext(whole, NoKernel())))
    for cut in range(0, whole.operations, 1 if THOROUGH else 7):
        disk = SimulatedDisk(middle, cut=cut)
        until_cut(rollback(MoveContext(disk, NoKernel())))
        platter = disk.after_the_cut(random.Random(cut))
        journal = find_journal_or_none(SimulatedDisk(platter))
        if journal is None:
            continue
        again = SimulatedDisk(with_old_table(platter, journal))
        try:
            list(rollback(MoveContext(again, NoKernel())))
        except (Refused, Stopped):
            continue
        ordinary = SimulatedDisk(platter)
        list(rollback(MoveContext(ordinary, NoKernel())))
        assert final(again) == final(ordinary), f"cut {cut}"
        cleared += 1
    assert cleared


@sample(4)
@pytest.mark.parametrize("way", [resume, rollback])
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_first_bytes_that_are_put_back_while_content_is_hidden_stop_both_directions(
    contents: Contents, label: str, way: Way
) -> None:
    """The content would be recognised, and markers would stay in its metadata."""
    case, stopped = made(partitioned, label, contents), 0
    whole = case.run()
    for cut in range(whole.operations):
        platter = case.run(cut).after_the_cut(random.Random(cut))
        changed = case.platter[: 4 * KIB] + platter[4 * KIB :]
        if b"aligntool: a partition was" not in changed[4 * KIB : 600 * KIB]:
            continue
        disk = SimulatedDisk(changed)
        journal = find_journal_or_none(disk)
        if journal is None or journal.position.step > 3:
            continue
        with pytest.raises(Stopped, match="another program has written"):
            list(way(MoveContext(disk, NoKernel())))
        assert final(disk) == changed
        stopped += 1
    assert stopped


@pytest.mark.parametrize("way", [resume, rollback])
@pytest.mark.parametrize(("make", "label"), REBUILT, ids=[f"{make.__name__}-{label}" for make, label in REBUILT])
def test_a_change_that_an_older_version_began_without_hiding_signatures_is_continued(
    contents: Contents, make: Make, label: str, way: Way
) -> None:
    case = made(make, label, contents)
    new = final(case.run())
    (index,) = (index for index, step in enumerate(case.steps) if isinstance(step, RebuildContent))
    step = case.steps[index]
    assert isinstance(step, RebuildContent)
    platter = next(left for left in map(final, map(case.run, range(1000))) if position(left) == Position(index))
    mixed = bytearray(platter)
    for extent in step.held.ranges:
        at = step.extent.start + extent.start
        mixed[at : at + extent.length // 2] = new[at : at + extent.length // 2]
    disk = SimulatedDisk(bytes(mixed))
    journal = find_journal(disk, None)
    assert journal is not None
    journal.record(Position(index, HIDDEN_FIRST - 1))
    list(way(MoveContext(disk, NoKernel())))
    result, expected = final(disk), new if way is resume else case.platter
    for extent in step.held.ranges:
        at = step.extent.start + extent.start
        assert result[at : at + extent.length] == expected[at : at + extent.length]


def position(platter: bytes) -> Position | None:
    journal = find_journal_or_none(SimulatedDisk(platter))
    return journal.position if journal else None


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_no_other_change_begins_under_an_old_table_that_was_put_back(
    tmp_path: Path, contents: Contents, label: str
) -> None:
    """The second conversion would take what is half rebuilt for free space, and lose every file."""
    case, image = made(converted, label, contents), tmp_path / "disk.img"
    (index,) = (index for index, step in enumerate(case.steps) if isinstance(step, RebuildContent))
    middle = Position(index, HIDDEN_FIRST)
    platters = map(final, map(case.run, range(case.run().operations)))
    platter = next(islice((left for left in platters if position(left) == middle), 5, None))
    journal = find_journal(SimulatedDisk(platter), None)
    assert journal is not None
    changed = bytearray(platter)
    for sectors in (sectors for group in journal.contents.images.before for sectors in group):
        changed[sectors.at : sectors.at + len(sectors.data)] = sectors.data
    image.write_bytes(changed)
    for words in (("convert", "--sector-size", "4096"), ("realign", "--grain", "64KiB"), ("partition", "--undo")):
        done = run_aligntool(*words, "--yes", image)
        assert done.returncode == 3 and f"aligntool status {image}" in done.stderr, (words, done.stderr)
    assert image.read_bytes() == changed
    assert "in flight" in run_aligntool("status", image, code=0).stdout
    run_aligntool("rollback", "--yes", image, code=0)
    result = image.read_bytes()
    place = next(step.journal.extent for step in case.steps if hasattr(step, "journal"))
    assert result[: place.start] + result[place.end :] == case.platter[: place.start] + case.platter[place.end :]


@pytest.mark.parametrize("way", ["resume", "rollback"])
def test_a_changed_disk_is_refused_before_the_question(tmp_path: Path, contents: Contents, way: str) -> None:
    """Without a terminal, the question itself would be refused with another exit code."""
    case, image = made(moved, "gpt", contents), tmp_path / "disk.img"
    platter = next(
        left for cut, left in case.cuts() if position(left) and is_hidden(case, left) and not is_taken(case, left)
    )
    place, head = case.places[0], new_head(tmp_path)
    image.write_bytes(platter[: place.start] + head + platter[place.start + len(head) :])
    done = run_aligntool(way, image)
    assert (done.returncode, "another program has written" in done.stderr) == (4, True), done.stderr
    assert f"aligntool status {image}" in done.stderr and "aligntool r" not in done.stderr  # both would stop
    told = run_aligntool("status", image, code=0).stdout
    assert "crash-safety.md" in told and "aligntool r" not in told
    dry = run_aligntool(way, "--dry-run", image, code=0)
    assert "another program has written" in dry.stdout


def is_hidden(case: Case, platter: bytes) -> bool:
    return platter.startswith(b"aligntool: a partition was here", case.places[0].start)


def is_taken(case: Case, platter: bytes) -> bool:
    return is_overwritten_by_copies(case, platter, case.places[0])
