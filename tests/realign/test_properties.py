"""For any disk: the plan is on every grid, overlaps nothing, and can be copied in its order."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aligntool.audit.report import Answer, Severity
from aligntool.change import Plan, RealignGoal, Used, from_json, to_json
from aligntool.claims import ALL_FREE
from aligntool.errors import Refused
from aligntool.inventory import Disk, DiskKind, Role, TableLabel
from aligntool.realign.planning import find_repairs, plan_realign
from aligntool.steps import CopyContent, EntryChange, JournalPlace, RewriteTable, WriteJournal
from aligntool.units import MIB, Extent
from tests.realign.movable_disks import judged, movable_disk
from tests.thorough import examples

GAPS = st.sampled_from([0, 0, 1, 7, 8, 33, 64, 500, 2048, 3000, 20000])
LENGTHS = st.sampled_from([100, 2047, 4096, 10000, 20480])
KINDS = st.sampled_from(["ext4", "xfs", "swap", "ntfs", "crypto_LUKS", ""])


@st.composite
def disks(draw: st.DrawFn) -> Disk:
    label = draw(st.sampled_from([TableLabel.GPT, TableLabel.DOS]))
    logical, physical, offset = draw(
        st.sampled_from([(512, 512, 0), (512, 4096, 0), (512, 4096, 3584), (4096, 4096, 0), (512, 16384, 0)])
    )
    at = draw(st.sampled_from([34, 40, 63, 64, 2047, 2048]))
    words = []
    for _ in range(draw(st.integers(1, 3 if label is TableLabel.DOS else 6))):
        length = draw(LENGTHS)
        words.append(f"{at}+{length} {draw(KINDS)}")
        at += length + draw(GAPS)
    if label is TableLabel.DOS and draw(st.booleans()):
        start = at
        inside = []
        for index in range(draw(st.integers(1, 4))):
            at += draw(st.sampled_from([1, 2, 63, 2048, 9000]))
            length = draw(LENGTHS)
            inside.append(f"{5 + index}l {at}+{length} {draw(KINDS)}")
            at += length
        at += draw(GAPS)
        words += [f"4e {start}+{at - start}", *inside]
    spare = draw(st.sampled_from([0, 100, 4000, 8000, 20000, 200000, 1 << 33]))  # the last: behind the room of an MBR
    size = (at + 40 + spare) * logical
    return movable_disk(
        "; ".join(words), label=label, size=size, logical=logical, physical=physical, offset=offset, kind=DiskKind.ATA
    )


GOALS = st.builds(RealignGoal, shrink=st.booleans(), journal_file=st.sampled_from([None, None, "journal.bin"]))


def planned(disk: Disk, goal: RealignGoal) -> Plan | None:
    used = {part.number: Used(part.number, part.extent.length // 3, "a third") for part in disk.partitions}
    try:
        return plan_realign(judged(disk), goal, used, ALL_FREE)
    except Refused:
        return None


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(disks(), GOALS)
def test_a_plan_has_every_guaranteed_property(disk: Disk, goal: RealignGoal) -> None:
    plan = planned(disk, goal)
    if plan is None:
        return
    assert planned(disk, goal) == plan
    assert from_json(to_json(plan)) == plan
    after_it = _disk_after(disk, plan)
    assert all(verdict.answer is Answer.ON for verdict in judged(after_it).verdicts if verdict.matters)
    _nothing_overlaps(after_it)
    _nothing_moves_into_the_boot_loader(plan)
    _order_is_safe(plan)
    for step in plan.steps:
        if isinstance(step, WriteJournal):
            _is_out_of_the_way(step.journal, disk, after_it, plan)


def _changes(plan: Plan) -> dict[int, EntryChange]:
    return {change.number: change for step in plan.steps if isinstance(step, RewriteTable) for change in step.changes}


def _disk_after(disk: Disk, plan: Plan) -> Disk:
    changes = _changes(plan)
    assert {place.number: place.after for place in plan.places} == {
        part.number: changes[part.number].after if part.number in changes else part.extent for part in disk.partitions
    }
    parts = []
    for part in disk.partitions:
        change = changes.get(part.number)
        if change is not None:
            assert (change.before, change.record_before) == (part.extent, part.record_at)
            part = replace(part, extent=change.after, record_at=change.record_after)
        parts.append(part)
    return replace(disk, partitions=tuple(parts))


def _table_pieces(disk: Disk) -> Iterator[Extent]:
    """Return what occupies space on the disk: partitions, and EBRs of one sector."""
    container = next((part for part in disk.partitions if part.role is Role.EXTENDED), None)
    for part in disk.partitions:
        if part.role is not Role.EXTENDED:
            yield part.extent
        if part.record_at is not None:
            yield Extent(part.record_at, disk.sector_size)
    if container:
        records = [part.record_at for part in disk.partitions if part.record_at is not None]
        assert container.extent.start in records
        inside = [part.extent for part in disk.partitions if part.role is Role.LOGICAL]
        assert all(container.extent.contains(extent) for extent in inside)
        assert all(container.extent.contains(Extent(record, disk.sector_size)) for record in records)
        outside = [part.extent for part in disk.partitions if part.role is Role.PRIMARY]
        assert not any(container.extent.overlaps(extent) for extent in outside)


def _nothing_overlaps(disk: Disk) -> None:
    pieces = sorted(_table_pieces(disk))
    assert all(one.end <= other.start for one, other in pairwise(pieces))
    usable = disk.table.usable if disk.table else None
    assert usable and all(usable.contains(piece) for piece in pieces)
    # A logical partition's EBR comes before it, with nothing in between.
    for part in disk.partitions:
        if part.record_at is not None:
            assert part.record_at + disk.sector_size <= part.extent.start


def _nothing_moves_into_the_boot_loader(plan: Plan) -> None:
    for place in plan.places:
        if place.before and place.after.start < place.before.start:
            assert place.after.start >= MIB


def _order_is_safe(plan: Plan) -> None:
    copies = [step for step in plan.steps if isinstance(step, CopyContent)]
    for index, step in enumerate(copies):
        assert step.source.length == step.target.length
        assert not any(step.target.overlaps(later.source) for later in copies[index + 1 :])
        if not step.lanes.staged:
            assert 0 < step.lanes.window <= abs(step.target.start - step.source.start)
        assert step.lanes.window % plan.disk.sector_size == 0
    moved = {place.number for place in plan.places if place.before and place.after.start != place.before.start}
    assert {step.partition for step in copies} == moved


def _is_out_of_the_way(journal: JournalPlace, before: Disk, after: Disk, plan: Plan) -> None:
    assert journal.extent.start % 65536 == 0
    assert journal.stash.start == 2 * journal.copy_length
    assert journal.extent.length == 2 * journal.copy_length + journal.stash.length
    if journal.file:
        return
    floor = MIB
    if before.table and before.table.label is TableLabel.DOS:
        floor = max(MIB, min(part.extent.start for part in before.partitions))
    assert journal.extent.start >= floor
    assert before.table and before.table.usable and before.table.usable.contains(journal.extent)
    assert _is_found(journal.extent.start, before)
    shrunk = {
        place.number: place.after.length
        for place in plan.places
        if place.before and place.before.length != place.after.length
    }
    for piece in [*_table_pieces(_shortened(before, shrunk)), *_table_pieces(after)]:
        assert not journal.extent.overlaps(piece)


def _is_found(at: int, disk: Disk) -> bool:
    """Return whether a journal is at a place that docs/crash-safety.md names: a search looks there."""
    near = 64 * MIB
    ends = [part.extent.end for part in disk.partitions]
    return (
        at < near
        or at >= (disk.size or 0) - 256 * MIB
        or any(0 < part.extent.start - at <= near for part in disk.partitions)
        or any(-near <= end - at <= near for end in ends)
    )


def _shortened(disk: Disk, lengths: dict[int, int]) -> Disk:
    """Return the lengths of the file systems when the journal is written: those that are shrunk are shorter by then."""
    return replace(
        disk,
        partitions=tuple(
            replace(part, extent=Extent(part.extent.start, lengths[part.number]))
            if part.number in lengths and part.role is not Role.EXTENDED
            else part
            for part in disk.partitions
        ),
    )


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(disks())
def test_partitions_reported_as_repairable_can_be_repaired_together_or_alone(disk: Disk) -> None:
    told = find_repairs(judged(disk))
    off = [verdict.partition for verdict in judged(disk).verdicts if verdict.answer is Answer.OFF]
    assert [mend.partition for mend in told] == off
    together = planned(disk, RealignGoal(journal_file="journal.bin")) is not None
    for mend in told:
        alone = RealignGoal(partitions=(mend.partition,), journal_file="journal.bin")
        mended = together or planned(disk, alone) is not None
        assert mended == (mend.answer == "in-place")


def test_a_grid_of_more_than_info_severity_is_required() -> None:
    """The properties above rely on the audit's verdict; it must not have lost its grids."""
    disk = movable_disk("63+10000", physical=16384)
    severities = {grid.severity for grid in judged(disk).grids}
    assert Severity.ERROR in severities
