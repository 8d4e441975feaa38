"""Make the contents of a journal from a plan, before the first write."""

from collections.abc import Mapping

from aligntool.change import MovePlan
from aligntool.device import Device
from aligntool.errors import Refused
from aligntool.mover import numbered_marker, table, whole_disk
from aligntool.mover.claimed_room import claims_of
from aligntool.mover.convert_table import convert_images
from aligntool.mover.hidden_signatures import read_saved
from aligntool.mover.journal import Contents, pack
from aligntool.mover.journal_format import BODY_AT
from aligntool.mover.newcomers import brought_content, own_content
from aligntool.mover.steps import patched
from aligntool.mover.table import TableImages, TableState, table_state
from aligntool.steps import CopyContent
from aligntool.units import KIB, Extent

# unused bytes between runs that may be copied, too
_GAPS = (0, *(64 * KIB << step for step in range(0, 40, 4)))
Runs = Mapping[int, tuple[Extent, ...]]  # by the number of a partition, counted from its start


def journal_contents(
    plan: MovePlan,
    device: Device,
    runs: Runs,
    rebuilt: Mapping[int, tuple[bytes, ...]],
    at: int | None,
    id_: bytes,
) -> Contents:
    """Return the contents of the journal, checked as far as possible before the first write. `at`: the byte
    of the disk where it begins, None in a file. Raises Refused, and OSError if the disk is unreadable.
    """
    images = planned_images(plan, device, at, id_)
    held = {step.partition: read_saved(device, step.source.start, step.held) for step in plan.holds}
    for rebuild in plan.rebuilds:
        before = read_saved(device, rebuild.extent.start, rebuild.held)
        held[rebuild.partition] = (*before, *rebuilt[rebuild.partition])
    for release in plan.releases:
        patched(release.held, held[release.partition], release.patches)
    numbered_at = numbered_marker.place_for(plan, images, held) if at is None else None
    if at is None and plan.holds and numbered_at is None:
        text = (
            "the new places and the table take every sector of the disk that could show whether the journal"
            " file and the disk are of the same moment"
        )
        raise Refused(text, hint="plan without --journal FILE", code="no-journal-room")
    own = own_content(device, plan, images)
    brought = brought_content(device, plan)
    for gap in _GAPS:
        copied = {
            step.partition: _without_saved(_with_gaps_filled(runs[step.partition], gap), step)
            for step in plan.copies
        }
        contents = Contents(plan, images, copied, held, numbered_at, own, brought)
        if BODY_AT + len(pack(contents)) <= plan.journal.copy_length:
            break
    return contents


def planned_images(plan: MovePlan, device: Device, at: int | None, id_: bytes) -> TableImages:
    """Return the tables of a plan; see `journal_contents`. Raises Refused if they cannot be made, or the disk
    does not have the old one.
    """
    if plan.conversion:
        images = convert_images(device, plan, journal_at=at, journal_id=id_)
        state = table_state(device, images)
    elif whole_disk.adds_table(plan) is None:
        claims = claims_of(plan.steps)
        images = table.table_images(
            device, plan.park, plan.rewrite, journal_at=at, journal_id=id_, claims=claims
        )
        state = table_state(device, images)
    else:
        images = whole_disk.whole_images(device, plan, journal_at=at, journal_id=id_)
        state = table_state(device, images.without_sector_0(TableState.BEFORE))
    if state is not TableState.BEFORE:
        text = "the partition table has changed since the plan was made"
        raise Refused(text, hint="make a new plan", code="plan-stale")
    return images


def _with_gaps_filled(runs: tuple[Extent, ...], gap: int) -> tuple[Extent, ...]:
    """Return the runs with every gap of at most `gap` bytes filled: more to copy, but less to store."""
    filled: list[Extent] = []
    for run in sorted(runs) if gap else runs:
        if gap and filled and run.start - filled[-1].end <= gap:
            start = filled.pop().start
            run = Extent(start, run.end - start)
        filled.append(run)
    return tuple(filled)


def _without_saved(runs: tuple[Extent, ...], step: CopyContent) -> tuple[Extent, ...]:
    """Return the runs without the bytes that the journal has saved, which are not copied."""
    left = []
    for run in runs:
        start = run.start
        for held in sorted(step.held.ranges):
            if held.start < run.end and held.end > start:
                if held.start > start:
                    left.append(Extent(start, held.start - start))
                start = held.end
        if start < run.end:
            left.append(Extent(start, min(run.end, step.source.length) - start))
    return tuple(left)
