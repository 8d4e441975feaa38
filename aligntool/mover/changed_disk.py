"""Refuse to continue where another program has written to the disk in flight."""

from collections.abc import Iterable, Iterator, Sequence

from aligntool.claims import outside
from aligntool.commands import DISK, ByHand, Command, Hint, command
from aligntool.contents.layers import read_layers
from aligntool.device import Device
from aligntool.errors import Refused, Stopped
from aligntool.mover import disk_state, in_flight, whole_disk
from aligntool.mover.hidden_signatures import View, is_visible
from aligntool.mover.journal import Journal
from aligntool.mover.journal_format import Position
from aligntool.mover.journal_match import state_of
from aligntool.mover.journal_search import find_journal
from aligntool.mover.newcomers import newcomers
from aligntool.mover.steps import views_at_target
from aligntool.mover.table import TableState, table_state
from aligntool.steps import HoldContent, RebuildContent, ReleaseContent
from aligntool.units import Extent

CHANGED_TABLE = "another program has changed or removed the partition table since the move began"


def refuse_changed_disk(device: Device, file: Device | None, *, back: bool, restore_table: bool) -> None:
    """Raise Refused or Stopped, before the user is asked, if a resume or a rollback would raise it before its
    first write.
    """
    journal = find_journal(device, file, any_table=restore_table)
    if journal is not None:
        state = state_of(device, journal)
        back = goes_back(device, journal, state, back=back)
        if not refuse_changes(device, journal, state, back=back, restore_table=restore_table):
            is_committed(device, journal, state)


def refuse_changes(
    device: Device, journal: Journal, state: disk_state.DiskState, *, back: bool, restore_table: bool
) -> bool:
    """Raise Refused or Stopped if another program has written to the disk in flight. Return whether content
    that was released is covered by the old table, which `restore_table` removes: then it is released again.
    """
    plan = journal.contents.plan
    images = journal.contents.images
    is_changed = state is disk_state.DiskState.CHANGED
    if is_changed and disk_state.is_used(device, plan):
        # Without the parked entry nothing is in flight.
        hint = Hint(Command("wipefs", (DISK,), section=ByHand.SIGNATURES), "\n", command("audit"))
        raise Refused(f"{disk_state.USED}; nothing was written", hint=hint, code="table-changed")
    covered = images.of_whole_disk and whole_disk.is_covered(device, journal)
    is_compared = restore_table or (images.of_whole_disk and not covered) or not is_changed
    if state in UNFINISHED and is_compared:
        _refuse_changed_content(device, journal, back=back, restore_table=restore_table, covered=covered)
    if state is disk_state.DiskState.CHANGED and not restore_table:
        again = command("rollback" if back else "resume", DISK, "--restore-table")
        hint = Hint(again, ", which shows both tables and asks")
        raise Refused(f"{CHANGED_TABLE}; nothing was written", hint=hint, code="table-changed")
    return covered


# Content that is visible may be used, whatever the type of its entry. What was allocated since is in no map,
# and what the journal saved of it is older. So once it is visible at its old place, only a rollback goes on,
# and at its new place only a resume. Both are open while all that is visible is as it was saved, and copied
# whole.


def goes_back(device: Device, journal: Journal, state: disk_state.DiskState, *, back: bool) -> bool:
    """Return the direction in which the work goes on if `back` is asked for: True for a rollback."""
    if state not in UNFINISHED or disk_state.is_complete(journal):
        return back
    only = only_way_back(device, journal)
    return back if only is None else only


def only_way_back(device: Device, journal: Journal) -> bool | None:
    """Return the only direction that is open, True for a rollback. None: both are, as nothing is visible that
    was changed, or is copied or rebuilt according to a map.
    """
    sign = whole_disk.marker_of(journal)
    plan = journal.contents.plan
    step = journal.position.step
    for index, hold in plan.numbered(HoldContent):
        views = in_flight.views_at_source(journal, hold, sign)
        if index >= step and _is_bound(device, journal, hold, views):
            return True
    for index, release in plan.numbered(ReleaseContent):
        if index <= step and _is_bound(device, journal, release, views_at_target(journal, release, sign)):
            return False
    return _only_way_of_rebuilt(device, journal, sign)


def _is_bound(
    device: Device, journal: Journal, step: HoldContent | ReleaseContent, views: tuple[View, View]
) -> bool:
    """Return whether content is visible at the place of the step, and has to stay there. A table that another
    program has put back over it is no use of it.
    """
    images = journal.contents.images
    tables = (Extent(one.at, len(one.data)) for one in images.sectors if images.of_whole_disk)
    seen = in_flight.compare(device, step.place.start, views[0], tuple(tables), others=views[1:])
    visible = seen.shown if images.of_whole_disk else seen.visible
    return visible and (seen.other is not None or _is_mapped(journal, step.partition))


def _only_way_of_rebuilt(device: Device, journal: Journal, sign: bytes) -> bool | None:
    """Return the only way of content that is rebuilt. What moves within a shrunk file system is read
    before.
    """
    position = journal.position
    is_mapped = disk_state.is_shrink(journal.contents.plan)
    for index, step in journal.contents.plan.numbered(RebuildContent):
        if in_flight.is_rebuilt_shown(device, journal, index, step, sign):
            return not position.forward
        if position.step < index or position == Position(index):
            found = in_flight.found_at_rebuilt(device, journal, index, step, sign)[0]
            if is_mapped or found is in_flight.Found.USED:
                return True
            continue
        for after in (False, True):
            view = in_flight.rebuilt_view(journal, step, sign, after=after)
            if is_mapped and in_flight.first_difference(device, step.extent.start, view) is None:
                return not after
    return None


def _is_mapped(journal: Journal, partition: int) -> bool:
    """Return whether only a part of a partition's content is copied: what its map calls used."""
    copies = (copy for copy in journal.contents.plan.copies if copy.partition == partition)
    for copy in copies:
        whole = Extent(0, copy.source.length)
        copied = (*journal.contents.runs[partition], *copy.held.ranges)
        if any(outside((whole,), copied)):
            return True
    return False


def is_committed(device: Device, journal: Journal, state: disk_state.DiskState) -> bool:
    """Return whether the new table was written. Raises Stopped if the journal says so, but neither that table
    nor all of the new content is there.
    """
    if state is disk_state.DiskState.LEFT:
        return True
    complete = disk_state.is_complete(journal) or state is disk_state.DiskState.COMPLETE
    if complete and table_state(device, journal.contents.images) is not TableState.AFTER:
        in_flight.check_rebuilt(device, journal, whole_disk.marker_of(journal), after=True)
    return complete


UNFINISHED = (disk_state.DiskState.CHANGED, disk_state.DiskState.IN_FLIGHT, disk_state.DiskState.UNREADABLE)


def _refuse_changed_content(
    device: Device, journal: Journal, *, back: bool, restore_table: bool, covered: bool
) -> None:
    """Raise Stopped if another program has written where content is in flight: neither direction may
    overwrite it.
    """
    changes = tuple(content_changes(device, journal, back=back, restore_table=restore_table, covered=covered))
    if changes:
        text = f"{changed_sentence(changes)}; nothing was written, and the journal is kept"
        is_whole = all(change.is_used for change in changes)
        raise Stopped(f"{text}: {in_flight.STAYS if is_whole else in_flight.CHOOSE}")


def content_changes(
    device: Device, journal: Journal, *, back: bool, restore_table: bool = False, covered: bool = False
) -> Iterator[in_flight.Change]:
    """Yield where another program has written. `back`: also where only a rollback overwrites something.
    `covered`: content is released again that a table lies over.
    """
    sign = whole_disk.marker_of(journal)
    plan = journal.contents.plan
    at_step = journal.position.step
    if restore_table:
        yield from _grown(device, _released(device, journal, sign))
    if back:  # a parked entry may be longer than its content
        hidden = (one for index, one in plan.numbered(HoldContent) if index >= at_step)
        views = ((one, in_flight.views_at_source(journal, one, sign)) for one in hidden)
        shown = (one for one, two in views if is_visible(device, one.source.start, two[0]))
        yield from _grown(device, shown, "which has grown beyond its place")
    if disk_state.is_complete(journal) and not covered:
        return
    images = journal.contents.images.sectors if restore_table else ()
    table_places = tuple(Extent(sectors.at, len(sectors.data)) for sectors in images)
    if back or not covered:  # from the release on, nothing else is written
        yield from in_flight.changes(device, journal, sign, back=back, restore_table=restore_table)
        for start, what in newcomers(device, journal):
            yield in_flight.Change(None, start, f"something new, {what}")
    for index, step in plan.numbered(ReleaseContent):
        at = None
        if (back or covered) and index < at_step:
            view = views_at_target(journal, step, sign)[0]
            at = in_flight.first_difference(device, step.target.start, view, table_places)
        elif journal.position == Position(index, in_flight.SHOWING):
            at = _written_over_hidden(device, journal, step, table_places)
        if at is not None:
            yield in_flight.Change(step.partition, at)


def _written_over_hidden(
    device: Device, journal: Journal, step: ReleaseContent, taken: tuple[Extent, ...]
) -> int | None:
    """Return the first byte that another program wrote to content of which only signatures are hidden."""
    views = views_at_target(journal, step, whole_disk.marker_of(journal))
    seen = in_flight.compare_shown(device, step.target.start, views, taken)
    return None if seen.visible else seen.other


def _released(device: Device, journal: Journal, sign: bytes) -> Iterator[ReleaseContent]:
    """Yield the steps whose content is visible at its new place."""
    at_step = journal.position.step
    for index, step in journal.contents.plan.numbered(ReleaseContent):
        view = views_at_target(journal, step, sign)[0]
        if index < at_step or (index == at_step and is_visible(device, step.target.start, view)):
            yield step


def _grown(
    device: Device, steps: Iterable[HoldContent | ReleaseContent], what: str = ""
) -> Iterator[in_flight.Change]:
    """Yield the content that has grown beyond the place of its step: the journal's table would cut it off."""
    reader = disk_state.LegibleDisk(device, ())
    for step in steps:
        start = step.place.start
        layers = read_layers(reader, Extent(start, device.size - start), sector_size=device.sector_size)
        if max((layer.claims_size or 0 for layer in layers), default=0) > step.place.length:
            named = what and f"partition {step.partition}, {what}"
            yield in_flight.Change(step.partition, step.place.end, named)


def changed_sentence(changes: Sequence[in_flight.Change]) -> str:
    where = ", ".join(
        f"{change.what or f'partition {change.partition}'} (byte {change.at})" for change in changes
    )
    return f"another program has written to content in flight: {where}"
