"""A journal in a file, with the disk on which its move was begun, with a backup of that disk, and with other disks."""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from aligntool.change import Event, MovePlan, RealignGoal, StepDone
from aligntool.convert.operation import Conversion
from aligntool.errors import Refused, Stopped
from aligntool.formats.parked import find_parked
from aligntool.mover.context import MoveContext
from aligntool.mover.journal import Journal
from aligntool.mover.journal_search import find_journal
from aligntool.mover.move import realign, resume, rollback
from aligntool.realign.found_plan import find_plan
from aligntool.realign.request import Request
from aligntool.steps import CopyContent, HoldContent, ReleaseContent
from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.mover import test_convert_cuts, test_whole_disk_cuts
from tests.mover.command_line import aligntool
from tests.mover.entries import write_records
from tests.mover.planned_disks import make_planned, with_journal_in_file
from tests.mover.simulated_disk import SimulatedDisk, until_cut
from tests.mover.test_old_copies import PAIRS, Moment, both_directions, numbered_at, outcome
from tests.mover.test_old_copies import WAYS as DIRECTIONS
from tests.mover.test_simulated_cuts import NoKernel, final
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.needs_tools("mke2fs", "mkswap", "mkfs.fat", "mcopy", "fsck.fat", "sfdisk", "fdisk")

EVERY = 1 if THOROUGH else 23
Make = Callable[[str, Path], "Case"]


@dataclass(frozen=True)
class Case:
    """A disk, and a change of it whose journal is a file."""

    platter: bytes
    plan: MovePlan
    runs: Mapping[int, tuple[Extent, ...]]
    rebuilt: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)
    sector: int = 512

    @cached_property
    def whole(self) -> SimulatedDisk:
        length = next(step.journal.extent.length for step in self.plan.steps if hasattr(step, "journal"))
        file = SimulatedDisk(bytes(length), sector=self.sector)
        disk = SimulatedDisk(self.platter, sector=self.sector, beside=file)
        until_cut(realign(self.plan, MoveContext(disk, NoKernel(), file), self.runs, self.rebuilt))
        return disk

    def begun(self, cut: int | None = None) -> tuple[SimulatedDisk, SimulatedDisk]:
        """Begin the change, up to a power cut; return the disk and the file."""
        return self.whole.both_before(cut)

    def context(self, platter: bytes, journal: bytes) -> MoveContext:
        disk, file = (SimulatedDisk(content, sector=self.sector) for content in (platter, journal))
        return MoveContext(disk, NoKernel(), file)

    def has_moved_whole(self, platter: bytes) -> bool:
        """Return whether all copied bytes are at their new places; the bytes in the journal are checked elsewhere."""
        for step in self.plan.steps:
            if not isinstance(step, CopyContent):
                continue
            for copied in self.runs[step.partition]:
                taken = [held for held in step.held.ranges if held.overlaps(copied)]
                old, new = step.source.start + copied.start, step.target.start + copied.start
                if not taken and platter[new : new + copied.length] != self.platter[old : old + copied.length]:
                    return False
        return True


def realigned(label: str, _: Path) -> Case:
    planned = make_planned(7, label, 512).in_file
    return Case(planned.platter, planned.plan, planned.runs)


def whole_disk(label: str, folder: Path, *, undo: bool = False) -> Case:
    made = test_whole_disk_cuts.make(folder, "ext2", label=label)
    if undo:
        with_table = final(made.act(made.platter, "realign"))
        made = test_whole_disk_cuts.make(folder, "ext2", label=label, undo=True, old=with_table)
    return Case(made.platter, with_journal_in_file(made.plan), made.runs)


def converted(label: str, folder: Path) -> Case:
    made = test_convert_cuts.make(folder, 512, (4096,), 512, label)
    return Case(made.platter, with_journal_in_file(made.plan), {}, made.rebuilt, made.unit)


unpartitioned = partial(whole_disk, undo=True)


@cache
def made(make: Make, label: str) -> Case:
    """Return the same case to all tests."""
    with TemporaryDirectory(prefix="aligntool-case-") as folder:
        return make(label, Path(folder))


CASES = [(make, label) for make in (realigned, whole_disk, unpartitioned, converted) for label in ("gpt", "dos")]
NAMES = [f"{name}-{label}" for name in ("realign", "partition", "undo", "convert") for label in ("gpt", "dos")]


@sample(4)
@pytest.mark.parametrize(("make", "label"), CASES, ids=NAMES)
def test_a_move_is_continued_only_on_the_disk_where_it_was_begun(make: Make, label: str) -> None:
    """A backup looks like the disk before the move: to continue there would skip what was never copied there."""
    case, luck, refused = made(make, label), random.Random(label), 0
    operations = case.whole.operations
    noise = random.Random(1).randbytes(len(case.platter))
    for cut in range(0, operations, EVERY):
        disk, file = case.begun(cut)
        left, journal = disk.after_the_cut(luck, torn=False), final(file)
        for platter in (case.platter, noise, bytes(len(case.platter))):
            refused += sum(is_refused_or_untouched(case, platter, journal, way) for way in WAYS)
        for way in (resume, rollback):
            context = case.context(left, journal)
            try:
                list(way(context))
            except Stopped as stop:
                assert way is rollback and "complete" in str(stop)
            assert isinstance(context.device, SimulatedDisk)
            result = final(context.device)
            assert find_journal(SimulatedDisk(result, sector=case.sector), None) is None
            assert case.has_moved_whole(result) or result == case.platter or way is rollback
    assert refused > len(range(0, operations, EVERY))


def test_a_complete_move_is_not_offered_to_be_undone(tmp_path: Path) -> None:
    case = made(realigned, "gpt")
    commit = case.plan.commit_at
    disk, file = SimulatedDisk(case.platter), SimulatedDisk(bytes(case.plan.journal.extent.length))
    events = realign(case.plan, MoveContext(disk, NoKernel(), file), case.runs, case.rebuilt)
    for event in events:
        if event == StepDone(commit):
            break
    image, journal = tmp_path / "complete.img", tmp_path / "journal"
    image.write_bytes(final(disk))
    journal.write_bytes(final(file))
    options = (image, "--journal", journal)
    assert "rollback" not in aligntool("rollback", *options, "--dry-run").partition("\n")[2]
    assert "rollback" not in aligntool("status", *options)
    said = aligntool("rollback", *options, "--yes", code=4).partition("\n")[2]
    assert "the move is complete and cannot be rolled back; its journal is closed" in said
    assert "resume" not in said
    assert "rollback" not in said
    assert "nothing is in flight" in aligntool("status", image)


WAYS = [partial(way, restore_table=restore) for way in (resume, rollback) for restore in (False, True)]


@pytest.mark.parametrize(("make", "label"), CASES, ids=NAMES)
def test_a_rollback_that_is_cut_is_continued_by_either_command(make: Make, label: str) -> None:
    case = made(make, label)
    disk, file = case.begun(case.whole.operations // 3)
    left, journal = disk.after_the_cut(random.Random(label), torn=False), final(file)
    whole = case.context(left, journal)
    list(rollback(whole))
    assert isinstance(whole.device, SimulatedDisk)
    operations = whole.device.operations
    undone = final(whole.device)
    assert is_back(case, undone)
    for at in range(0, len(undone), case.sector):  # what the new places had in bytes that no table lists is zeroed
        sector = undone[at : at + case.sector]
        assert sector == case.platter[at : at + case.sector] or (not any(sector) and is_new_place(case, at))
    for cut in range(0 if THOROUGH else max(0, operations - 8), operations):
        again, record = SimulatedDisk(left, cut=cut, sector=case.sector), SimulatedDisk(journal, sector=case.sector)
        until_cut(rollback(MoveContext(again, NoKernel(), record)))
        cut_left, cut_journal = again.after_the_cut(random.Random(cut), torn=False), final(record)
        for way in (resume, rollback):
            context = case.context(cut_left, cut_journal)
            list(way(context))
            assert isinstance(context.device, SimulatedDisk)
            result = final(context.device)
            assert result == undone if way is rollback else case.has_moved_whole(result) or result == undone


@sample(4)
@pytest.mark.parametrize(("make", "label"), CASES, ids=NAMES)
def test_an_older_copy_of_the_journal_is_refused_once_the_change_has_ended(make: Make, label: str) -> None:
    """To continue with it would repeat batches whose source is overwritten, also after a system used the content."""
    case, refused = made(make, label), 0
    disk = SimulatedDisk(case.platter, sector=case.sector)
    file = SimulatedDisk(bytes(case.plan.journal.extent.length), sector=case.sector)
    copies, recorded = [], StepDone(case.plan.commit_at - 1)  # then no rollback is possible
    if case.plan.releases:
        recorded = StepDone(case.plan.index_of(ReleaseContent) - 1)
    for event in realign(case.plan, MoveContext(disk, NoKernel(), file), case.runs, case.rebuilt):
        if event == recorded:
            break
        copies.append(final(file))
    for ended in (resume, rollback):
        platter = continued(case, final(disk), final(file), ended)
        for older, found in itertools.product(
            copies[1 :: 1 if THOROUGH else 3], (platter, used(case, platter, back=ended is rollback))
        ):
            refused += sum(is_refused_or_untouched(case, found, older, way) for way in WAYS)
    assert refused


def used(case: Case, platter: bytes, *, back: bool) -> bytes:
    """Return the disk after a system wrote to the head of each partition, where superblocks have a time and a state."""
    written = bytearray(platter)
    for place in case.plan.places:
        extent = place.before if back else place.after
        if extent and not any(extent.contains(other.after) for other in case.plan.places if other != place):
            written[extent.start + 1024 + 44 : extent.start + 1024 + 60] = b"mounted and used"
    return bytes(written)


def is_refused_or_untouched(
    case: Case, platter: bytes, journal: bytes, way: Callable[[MoveContext], Iterator[Event]]
) -> bool:
    """Return whether it is refused; check that not a byte of the disk and of the journal changes."""
    context = case.context(platter, journal)
    assert isinstance(context.device, SimulatedDisk) and isinstance(context.journal, SimulatedDisk)
    try:
        list(way(context))
        Journal.open(SimulatedDisk(final(context.journal), sector=case.sector), 0)  # the disk in flight needs it still
    except Refused as refusal:
        assert refusal.refusals[0].code == "wrong-journal", str(refusal)
        assert context.device.operations == context.journal.operations == 0
        return True
    except Stopped as stop:
        assert "complete" in str(stop)
    assert final(context.device) == platter
    return False


def test_a_truncated_journal_file_is_refused_before_anything_is_written() -> None:
    """The stash at its end would be missing: some batches would be moved, and recorded in one of two journals."""
    case = made(realigned, "gpt")
    disk, file = case.begun(case.whole.operations // 2)
    journal = final(file)
    context = case.context(final(disk), journal[:-512])
    with pytest.raises(Refused, match="truncated"):
        list(resume(context))
    assert isinstance(context.device, SimulatedDisk) and isinstance(context.journal, SimulatedDisk)
    assert context.device.operations == context.journal.operations == 0
    whole = case.context(final(disk), journal)
    list(resume(whole))
    assert isinstance(whole.device, SimulatedDisk) and case.has_moved_whole(final(whole.device))


def test_a_conversion_of_only_the_table_is_refused_if_the_table_is_gone(tmp_path: Path) -> None:
    """Nothing else on the disk shows the conversion; the content has not changed, so a new table loses nothing."""
    disk, content = tmp_path / "disk.img", tmp_path / "content"
    run("mke2fs", "-q", "-t", "ext2", "-b", "4096", content, "1m")
    disk.write_bytes(bytes(MIB) + content.read_bytes() + bytes(MIB))
    run("sfdisk", "-q", disk, stdin="label: dos\nstart=2048, size=2048, type=83\n")
    request = Request()
    found = Conversion(request, (4096,)).find_plan(str(disk), request)
    case = Case(disk.read_bytes(), with_journal_in_file(found.plan), {}, dict(found.rebuilt))
    refused = 0
    for cut in range(1, case.whole.operations):
        begun, file = case.begun(cut)
        left = begun.after_the_cut(random.Random(cut), torn=False)
        assert left[512:] == case.platter[512:]
        gone = bytes(512) + left[512:]
        refused += sum(is_refused_or_untouched(case, gone, final(file), way) for way in WAYS)
        damaged = case.context(left[:510] + bytes(2) + left[512:], final(file))  # it is recognised nevertheless
        list(resume(damaged))
        assert isinstance(damaged.device, SimulatedDisk) and final(damaged.device)[510:] == left[510:]
    assert refused


FAT = slice(256 * KIB, 756 * KIB)  # of the disk that is converted


def continued(case: Case, platter: bytes, journal: bytes, way: Callable[..., Iterator[Event]]) -> bytes:
    context = case.context(platter, journal)
    list(way(context))
    assert isinstance(context.device, SimulatedDisk)
    return final(context.device)


@sample(2)
@pytest.mark.parametrize("way", [resume, rollback])
@pytest.mark.parametrize("label", ["dos", "gpt"])
def test_a_half_rebuilt_fat_is_finished_under_a_table_that_was_changed(
    label: str, way: Callable[..., Iterator[Event]]
) -> None:
    """A system writes a signature into the MBR, or initialises the disk; only half of the FAT shows the conversion."""
    case = made(converted, label)
    new = final(case.begun()[0])
    head, tail = bytes(440) + b"WIN!" + bytes(66) + b"\x55\xaa" + bytes(200 * KIB - 512), bytes(64 * KIB)
    halves = 0
    begun = ((case.begun(cut), random.Random(seed)) for cut in range(case.whole.operations) for seed in range(6))
    for (disk, file), luck in begun:
        left, journal = disk.after_the_cut(luck, torn=False), final(file)
        if left[FAT] in (case.platter[FAT], new[FAT]):
            continue
        changed = left[:440] + b"WIN!" + left[444:] if label == "dos" else head + left[200 * KIB : -64 * KIB] + tail
        result = continued(case, changed, journal, partial(way, restore_table=True))
        assert result[FAT] == (new if way is resume else case.platter)[FAT]
        halves += 1
    assert halves


def test_a_conversion_under_another_disk_signature_continues_with_a_restored_table() -> None:
    case, hidden = made(converted, "dos"), 0
    new = final(case.begun()[0])
    for cut in range(1, case.whole.operations):
        disk, file = case.begun(cut)
        left, journal = disk.after_the_cut(random.Random(cut), torn=False), final(file)
        if find_parked(SimulatedDisk(left)) is None:
            continue
        hidden += 1
        result = continued(case, left[:440] + b"WIN!" + left[444:], journal, partial(resume, restore_table=True))
        assert result == new
    assert hidden


@pytest.mark.on_disk
def test_a_sector_0_torn_by_a_power_cut_is_recognised_as_that_of_the_conversion(tmp_path: Path) -> None:
    """Old and new entries differ by more bytes than a sector may that is damaged and recognised nevertheless."""
    disk, content = tmp_path / "disk.img", tmp_path / "content"
    run("mke2fs", "-q", "-t", "ext2", "-b", "4096", content, "1m")
    disk.write_bytes(bytes(MIB) + content.read_bytes() * 4 + bytes(MIB))
    lines = "".join(f"start={2048 * number}, size=2048, type=83\n" for number in range(1, 5))
    run("sfdisk", "-q", disk, stdin=f"label: dos\n{lines}")
    request = Request(RealignGoal(journal_file=str(tmp_path / "journal")))
    found = Conversion(request, (4096,)).find_plan(str(disk), request)
    case = Case(disk.read_bytes(), with_journal_in_file(found.plan), {}, dict(found.rebuilt))
    new, torn = final(case.begun()[0]), 0
    for cut in range(1, case.whole.operations):
        begun, file = case.begun(cut)
        left, journal = final(begun), final(file)
        if find_parked(SimulatedDisk(left)) is None:
            continue
        parking = Journal.open(SimulatedDisk(journal), 0).position.step <= case.plan.park_at
        other = case.platter if parking else new
        for at in range(447, 510):
            result = continued(case, other[:at] + left[at:], journal, resume)
            assert result == new or (parking and result == case.platter)
            torn += 1
    assert torn


def test_the_id_in_a_torn_entry_is_not_taken_for_that_of_another_journal() -> None:
    """Half of it belongs to the old entry: the journal is found by its file, and not taken for that of another move."""
    case, torn = made(converted, "gpt"), 0
    for cut in (3, 13):
        for seed in range(12) if cut == 13 else (54,):
            disk, file = case.begun(cut)
            left = disk.after_the_cut(random.Random(seed * 777 + cut), torn=True)
            torn += left != final(disk)
            assert find_journal(SimulatedDisk(left), SimulatedDisk(final(file)))
    assert torn


def test_a_backup_with_a_blank_partition_is_refused(tmp_path: Path) -> None:
    """The bytes that are written last to the place of a blank partition are zeros, which the backup has as well."""
    disk, content = tmp_path / "disk.img", tmp_path / "content"
    run("mke2fs", "-q", "-t", "ext2", "-b", "4096", content, "2m")
    disk.write_bytes(bytes(63 * 512) + content.read_bytes() + bytes(4 * MIB))
    run("sfdisk", "-q", disk, stdin="label: dos\nstart=63, size=4096, type=83\nstart=4159, size=2048, type=83\n")
    found = find_plan(str(disk), Request())
    case = Case(disk.read_bytes(), with_journal_in_file(found.plan), found.runs)
    refused = 0
    for cut in range(1, case.whole.operations, EVERY):
        begun, file = case.begun(cut)
        refused += sum(is_refused_or_untouched(case, case.platter, final(file), way) for way in WAYS)
        result = continued(case, final(begun), final(file), resume)
        assert case.has_moved_whole(result) or result == case.platter
    assert refused


@pytest.mark.parametrize("begun", [False, True])
def test_only_the_journal_file_of_a_finished_move_is_reported_as_no_longer_needed(tmp_path: Path, begun: bool) -> None:
    """Before anything is parked, the disk may be a backup of the one in flight, which needs the file."""
    case = made(realigned, "dos")
    disk, journal = case.begun(case.whole.operations // 2 if begun else 0)
    image, file = tmp_path / "disk.img", tmp_path / "journal"
    image.write_bytes(final(disk))
    file.write_bytes(final(journal))
    said = aligntool("resume", image, "--journal", file, "--yes")
    assert ("no longer needed" in said, "is kept" in said) == (begun, not begun)


# Older copies of the file or of the disk (test_old_copies.py).


MAKERS = {"partition": whole_disk, "unpartition": unpartitioned, "convert": converted}


def begun_case(case: Case, context: MoveContext) -> Iterable[Event]:
    return realign(case.plan, context, case.runs, case.rebuilt)


@sample(2)
@pytest.mark.parametrize("label", ["gpt", "dos"])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_changes_of_a_whole_disk_do_not_follow_older_copies(make: Make, label: str) -> None:
    case, luck = made(make, label), random.Random(label)
    length = next(step.journal.extent.length for step in case.plan.steps if hasattr(step, "journal"))
    start = Moment(case.platter, bytes(length))
    every = 9 if any(isinstance(step, CopyContent) for step in case.plan.steps) else 2
    begin = partial(begun_case, case)
    moments = both_directions(begin, start, sector=case.sector, every=every)
    complete = outcome(begin, start, case.sector)
    assert isinstance(complete, bytes)
    for _ in range(PAIRS // 4):
        mixed = Moment(luck.choice((case.platter, *(one.disk for one in moments))), luck.choice(moments).file)
        for way in DIRECTIONS:
            end = outcome(way, mixed, case.sector)
            if isinstance(end, bytes):
                assert case.has_moved_whole(end) or is_back(case, end)
                assert case.runs or end in (case.platter, complete)


def is_new_place(case: Case, at: int) -> bool:
    return any(isinstance(step, CopyContent) and step.target.contains(Extent(at, 1)) for step in case.plan.steps)


def is_back(case: Case, platter: bytes) -> bool:
    """Return whether all used bytes are at their old place."""
    for step in case.plan.steps:
        if isinstance(step, HoldContent):
            start = step.source.start
            for used in (*case.runs[step.partition], *step.held.ranges):
                if (
                    platter[start + used.start : start + used.end]
                    != case.platter[start + used.start : start + used.end]
                ):
                    return False
    return True


@pytest.mark.parametrize("label", ["gpt", "dos"])
@pytest.mark.parametrize("sector", [512, 4096])
def test_every_plan_with_a_journal_in_a_file_numbers_a_marker(label: str, sector: int) -> None:
    for seed in range(20 if THOROUGH else 4):
        planned = make_planned(seed, label, sector).in_file
        length = next(step.journal.extent.length for step in planned.plan.steps if hasattr(step, "journal"))
        start = Moment(planned.platter, bytes(length))
        disk, file = SimulatedDisk(start.disk, sector=sector), SimulatedDisk(start.file, sector=sector)
        for event in realign(planned.plan, MoveContext(disk, NoKernel(), file), planned.runs):
            if isinstance(event, StepDone):  # the journal is written
                break
        assert numbered_at(Moment(final(disk), final(file))) is not None


def test_a_journal_file_is_refused_if_the_disk_has_no_room_for_its_number(tmp_path: Path) -> None:
    """The new place and its EBR take every sector that is hidden: an older disk would look the same with this file."""
    disk = tmp_path / "disk.img"
    records = {
        0: [(0x05, 2048, 120_000)],
        2048: [(0x83, 2048, 12_286), (0x05, 14_334, 16_386)],
        16_382: [(0x83, 1, 16_385)],
    }
    write_records(disk, 64 * MIB, records)
    run("mke2fs", "-q", "-F", "-t", "ext2", "-b", "1024", "-E", f"offset={16_383 * 512}", disk, "8192")
    found = find_plan(str(disk), Request(RealignGoal(), sector_size=512))
    case = Case(disk.read_bytes(), with_journal_in_file(found.plan), found.runs)
    with pytest.raises(Refused, match="whether the journal file and the disk are of the same moment"):
        _ = case.whole
    assert final(Case(case.platter, found.plan, found.runs).whole) != case.platter
