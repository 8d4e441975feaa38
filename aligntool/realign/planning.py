"""Plan a realign: places of the partitions and steps. Determine which misaligned partitions a realign can
repair.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from math import ceil
from typing import Protocol

from aligntool import steps
from aligntool.audit.layers import clusters_off, data_starts
from aligntool.audit.report import Answer, Judged, Repair, Report
from aligntool.audit.wording import (
    audit_command,
    change_by_hand,
    contents_of_disk,
    labelled,
    next_command,
    next_look,
    next_realign,
    type_words,
)
from aligntool.change import COPY_RATES, Estimate, MovePlan, Place, RealignGoal, Used
from aligntool.claims import ALL_FREE, Claims, format_range
from aligntool.commands import ByHand, Command, Hint, by_hand, is_by_hand, joined_commands, typed
from aligntool.contents.md import MD
from aligntool.contents.windows_names import StartNames
from aligntool.errors import Refusal, Refused, refuse
from aligntool.inventory import Disk, DiskKind, Inventory, Partition, Role
from aligntool.mover.claimed_room import FULL_MBR
from aligntool.mover.held_ranges import held_ranges
from aligntool.mover.schedule import Schedule
from aligntool.realign import partition_selection, search
from aligntool.realign.placing import (
    Movable,
    containers,
    first_place,
    kind_of,
    kind_or_hint,
    logicals_of,
    required_grid,
    row_of,
)
from aligntool.realign.preconditions import use_through_loops
from aligntool.realign.refusals import (
    disk_reasons,
    ends_early,
    partition_reasons,
    unlisted_data,
    with_table_to_end,
    without_consequences,
)
from aligntool.realign.suspended import suspension_attention
from aligntool.system import MASKED_NAME
from aligntool.units import GIB, MIB, Extent, align_down, format_about, format_size

# From the places found to a plan. Only the order of the steps and the texts are determined here; no decision
# is made.

Changes = tuple[steps.EntryChange, ...]
_PAGE = 4096
_LONGEST_WINDOW = 8 * MIB
_LONGEST_STAGED = 32 * MIB
_BATCH = 32 * MIB  # two of them are in memory at once, and all of it must stay below 150 MiB
# Seconds that a batch waits for its three flushes: of the data, and of each copy of the record.
_ROTATIONAL_FLUSHES = 0.03
_FLASH_FLUSHES = 0.003
_SAMPLE = 64 * MIB  # part of a copy whose batches are counted


def write_plan(
    disk: Disk,
    goal: RealignGoal,
    selection: partition_selection.Selection,
    found: search.FoundPlaces | None,
    used: partition_selection.Uses,
    shrunk: partition_selection.Shrinks,
) -> MovePlan:
    """Return the plan as a document. `found` None: nothing has to move."""
    changes = _changes(disk, found)
    after = {change.number: change.after for change in changes}
    moving = frozenset(found.order if found else ())
    patched = {
        part.number: _patching(disk, part, changes, shrunk)
        for part in disk.partitions
        if part.number in moving
    }
    patched = _with_file_patches(selection, found, patched)
    plan_steps = tuple(_steps(disk, found, shrunk, changes, patched)) if found and found.journal else ()
    places = tuple(_place(part, selection, after.get(part.number, part.extent)) for part in disk.partitions)
    attention = (
        *(suspension_attention(disk) if plan_steps else ()),
        *partition_selection.attention_to(disk, moving, patched, selection.names, shrunk),
        *partition_selection.letters_taken(disk, selection.names, found),
        *partition_selection.attention_to_shrunk(shrunk),
    )
    notes = (*selection.notes, *partition_selection.notes_on(disk, selection, found, shrunk, patched))
    cost = estimate(disk, moving, used, plan_steps) if moving else Estimate(0, 0)
    words = _goal_words(goal)
    return MovePlan("realign", steps.subject(disk), words, places, plan_steps, attention, notes, cost)


def _changes(disk: Disk, found: search.FoundPlaces | None) -> Changes:
    """Return every entry of the table that changes; for a logical partition, its whole chain."""
    if found is None:
        return ()
    changes = {change.number: change for change in found.chain}
    for part in disk.partitions:
        number = part.number
        at = part.record_at
        if number not in changes and found.after[number] != part.extent:
            changes[number] = steps.EntryChange(number, part.extent, found.after[number], at, at)
    return tuple(changes[number] for number in sorted(changes))


def _patching(
    disk: Disk, part: Partition, changes: Changes, shrunk: partition_selection.Shrinks
) -> search.Patching:
    """Return the patches of a partition. A shrink puts the copy of an NTFS boot sector elsewhere."""
    if part.number in shrunk:
        length = shrunk[part.number].length
        part = replace(part, content=tuple(search.with_new_copy(layer, length) for layer in part.content))
    change = next(change for change in changes if change.number == part.number)
    return search.patching(part, change.after, change.record_after, disk.sector_size)


def _with_file_patches(
    selection: partition_selection.Selection,
    found: search.FoundPlaces | None,
    patched: partition_selection.Patched,
) -> dict[int, search.Patching]:
    """Return `patched` with the patches of files that name a start, which may be on partitions that stay."""
    moved = found.moved if found else {}
    named = {
        number: patches
        for number, one in selection.names.items()
        if (patches := search.file_patches(one, moved))
    }
    both = {
        number: patched.get(number, search.Patching()) for number in sorted(patched.keys() | named.keys())
    }
    return {
        number: replace(own, patches=(*own.patches, *named.get(number, ()))) for number, own in both.items()
    }


def _steps(
    disk: Disk,
    found: search.FoundPlaces,
    shrunk: partition_selection.Shrinks,
    changes: Changes,
    patched: partition_selection.Patched,
) -> Iterator[steps.Step]:
    """Yield the steps in their order: check, shrink, journal, park, hold, copy, release, commit, close."""
    parts = {part.number: part for part in disk.partitions}
    journal = found.journal
    if journal is None or disk.table is None:
        return
    touched = sorted({*patched, *shrunk})
    moves = {number: (found.before[number], found.after[number]) for number in patched}
    helds = {number: _held(disk, parts[number], found, patched[number]) for number in moves}
    for number in touched:
        if kind_of(parts[number]).checker:
            yield steps.CheckContent(number, parts[number].extent, kind_of(parts[number]).name)
    for number, shrink in sorted(shrunk.items()):
        yield steps.ShrinkContent(number, parts[number].extent, shrink.kind, shrink.length)
    yield steps.WriteJournal(journal)
    if moves:
        yield steps.ParkEntries(tuple(touched), _parked(disk, touched))
    for number in sorted(moves):
        yield steps.HoldContent(number, moves[number][0], helds[number])
    for number in found.order:
        source, target = moves[number]
        lanes = copy_strips_for(abs(target.start - source.start), journal, disk.sector_size)
        yield steps.CopyContent(number, kind_of(parts[number]).name, source, target, helds[number], lanes)
    for number in sorted(moves):
        kind = kind_of(parts[number]).name
        target = moves[number][1]
        yield steps.ReleaseContent(number, kind, target, helds[number], patched[number].patches)
    yield steps.RewriteTable(disk.table.label.value, changes)
    yield steps.CloseJournal(journal)


def _held(
    disk: Disk, part: Partition, found: search.FoundPlaces, patched: search.Patching
) -> steps.SavedRanges:
    more = (search.needed_for(patch) for patch in patched.patches)
    length = found.before[part.number].length
    return held_ranges(part, length, disk.sector_size, more, signatures_only=found.signatures_only)


def _parked(disk: Disk, touched: Collection[int]) -> tuple[int, ...]:
    """Return the entries that move or are shrunk: another partition may be placed at their present end, so
    none of them may grow in the meantime. Logical partitions are parked by their container.
    """
    parked = set(touched)
    for container in containers(disk):
        inside = {part.number for part in logicals_of(disk, container)}
        if inside & parked:
            parked = (parked - inside) | {container.number}
    return tuple(sorted(parked))


def copy_strips_for(distance: int, journal: steps.JournalPlace, sector_size: int) -> steps.CopyStrips:
    """Return how a copy is divided into copy strips. A window is never longer than the distance; over short
    distances everything goes through the stash.
    """
    stash = journal.stash.length
    if distance < search.SHORT:
        return steps.CopyStrips(min(stash, _LONGEST_STAGED), _BATCH, GIB, stash, staged=True)
    window = min(distance, _LONGEST_WINDOW)
    return steps.CopyStrips(align_down(window, _PAGE if window >= _PAGE else sector_size), _BATCH, GIB, stash)


def _place(part: Partition, selection: partition_selection.Selection, after: Extent) -> Place:
    why = selection.must.get(part.number) or selection.stays.get(part.number, "")
    if part.number in selection.may and after.start != part.extent.start:
        why = "on the grid; makes room"
    if part.number not in selection.must and after.start == part.extent.start and after != part.extent:
        why = f"{why}; its end moves" if why else "its end moves"
    what = "extended" if part.role is Role.EXTENDED else type_words(part)
    return Place(part.number, part.extent, after, labelled(part.content[0]) if part.content else what, why)


def _goal_words(goal: RealignGoal) -> str:
    """Return the goal in words. A partition that stays may be off a grain that was not given."""
    on = format_size(goal.grain) if goal.grain_given or goal.partitions else "its boundary"
    numbers = ", ".join(map(str, goal.partitions))
    least_start = format_size(goal.least_start)
    words = f"every start on {on}"
    if goal.partitions:
        words = (
            f"partitions {numbers} on {on}" if len(goal.partitions) > 1 else f"partition {numbers} on {on}"
        )
    return f"{words}, none before {least_start}" if goal.least_start else words


def estimate(
    disk: Disk, moving: frozenset[int], used: partition_selection.Uses, plan_steps: Sequence[steps.Step]
) -> Estimate:
    """Return the bytes and the seconds that copying the partitions of these numbers takes."""
    unread = "everything: the used blocks were not read"
    parts = parts_of(disk, moving)
    uses = tuple(used.get(part.number, Used(part.number, part.extent.length, unread)) for part in parts)
    uses = tuple(replace(use, least=0) for use in uses)
    total = sum(use.bytes for use in uses)
    if disk.kind is DiskKind.IMAGE:
        return Estimate(total, None, uses)
    flash = disk.rotational is False
    rate = COPY_RATES.flash if flash else COPY_RATES.rotational
    flushes = _FLASH_FLUSHES if flash else _ROTATIONAL_FLUSHES
    sizes = {use.partition: use.bytes for use in uses}
    batches = sum(
        _batches(step, sizes[step.partition]) for step in plan_steps if isinstance(step, steps.CopyContent)
    )
    return Estimate(total, ceil(total / rate + batches * flushes), uses)


def _batches(step: steps.CopyContent, size: int) -> float:
    """Return the approximate number of batches for `size` bytes; a small journal makes them many and
    small.
    """
    sample = min(size, _SAMPLE)
    schedule = Schedule((Extent(0, sample),), step.target.start - step.source.start, step.lanes)
    return sum(1 for _ in schedule.batches()) * size / max(sample, 1)


# From a judged disk and a goal to a plan: which partitions move, what prevents it, where to, in which steps.


class _Room(Enum):
    NONE = "nowhere to go"
    NO_JOURNAL = "a place, but no journal"
    ENOUGH = "a place and a journal"


_Rooms = Mapping[int, tuple[_Room, tuple[int, ...]]]


def plan_realign(
    judged: Judged,
    goal: RealignGoal,
    used: partition_selection.Uses,
    claims: Claims,
    *,
    names: Mapping[int, StartNames] | None = None,
) -> MovePlan:
    """Return the cheapest plan that aligns every start. `used`: the bytes that a move of each partition
    copies; a partition missing there is copied whole. `claims`: what may be overwritten. `names`: the starts
    recorded in files of Windows.

    The plan has no steps if nothing has to move. Raises Refused with all reasons, a line each.
    """
    disk = judged.disk
    if not disk.partitions:
        refuse((_nothing_there(disk),))
    selection = replace(partition_selection.select_partitions(judged, goal), names=names or {})
    if not selection.must and not selection.reasons:
        _refuse_if_not_judged(judged)
        return _with_clusters(judged, goal, write_plan(disk, goal, selection, None, used, {}))
    reasons = [*selection.reasons, *disk_reasons(judged)]
    against = partition_reasons(disk, parts_of(disk, selection.must))
    reasons += [reason for found in against.values() for reason in found]
    whole = disk.size is not None and bool(selection.start_grids)

    def places_for(shrunk: partition_selection.Shrinks, *, finer: bool = False) -> search.FoundPlaces | None:
        return search.search(disk, movable(disk, selection, used, shrunk), goal, claims, finer=finer)

    def places_if_settled(
        shrunk: partition_selection.Shrinks, *, finer: bool = False
    ) -> search.FoundPlaces | None:
        moved = movable(disk, selection, used, shrunk, settled=True)
        return search.search(disk, moved, goal, claims, finer=finer)

    found, shrunk = _find_places(disk, goal, used, places_for) if whole else (None, {})
    if whole and selection.must and _lacks_room(found):
        settled = _find_places(disk, goal, used, places_if_settled, settled=True)
        first = _reasons_to_settle(disk, *settled)
        reasons += first or [_no_room(judged, goal, selection, used, found, places_if_settled, claims)]
    if found is not None:
        reasons += partition_selection.unpatchable_reasons(disk, selection.names, found, shrunk)
        reasons += partition_selection.ambiguous_superblocks(disk, found)
    if reasons or found is None:
        raise _refusal(
            disk, reasons, against, lambda: _with(_Room.ENOUGH, _fitting(judged, selection, goal, claims))
        )
    plan = write_plan(disk, goal, selection, found, used, shrunk)
    plan = replace(plan, notes=(*plan.notes, *_detour(disk, goal, selection, used, found, claims)))
    return _with_clusters(judged, goal, plan)


def _detour(
    disk: Disk,
    goal: RealignGoal,
    selection: partition_selection.Selection,
    used: partition_selection.Uses,
    found: search.FoundPlaces,
    claims: Claims,
) -> Iterator[str]:
    """Yield what changes the order of the partitions, if it is data that no table lists."""
    if partition_selection.same_order(disk, found) or not claims.in_the_way:
        return
    direct = search.search(disk, movable(disk, selection, used, {}), goal, ALL_FREE)
    if direct is not None and partition_selection.same_order(disk, direct):
        where = format_range(claims.in_the_way[0])
        yield f"the order would stay without data that no table lists, the first at bytes {where}"


def _with_clusters(judged: Judged, goal: RealignGoal, plan: MovePlan) -> MovePlan:
    """Return the plan with attention to the clusters that it leaves off the grid."""
    starts = {
        place.number: place.after.start
        for place in plan.places
        if place.before != place.after or not goal.partitions or place.number in goal.partitions
    }
    clusters = partition_selection.attention_to_clusters(judged, starts)
    return replace(plan, attention=(*plan.attention, *clusters))


def _reasons_to_settle(
    disk: Disk, found: search.FoundPlaces | None, shrunk: partition_selection.Shrinks
) -> list[Refusal]:
    """Return the reasons against the partitions of these places: with them settled there is room, so that the
    lack of room is none. Empty if there is no room even then.
    """
    if found is None or _lacks_room(found):
        return []
    against = partition_reasons(disk, parts_of(disk, {*found.order, *shrunk}))
    return [reason for reasons in against.values() for reason in reasons]


def movable(
    disk: Disk,
    selection: partition_selection.Selection,
    used: partition_selection.Uses,
    shrunk: partition_selection.Shrinks,
    *,
    settled: bool = False,
) -> Movable:
    """Return what the search for places may move. `settled`: see `shrinkable`."""
    against = partition_reasons(disk, parts_of(disk, selection.may))
    may = {
        number: selection.grids_of(number) for number in partition_selection.allowed(against, settled=settled)
    }
    cost = {part.number: used[part.number].bytes for part in disk.partitions if part.number in used}
    lengths = {number: shrink.length for number, shrink in shrunk.items()}
    must = {number: selection.grids_of(number) for number in selection.must}
    return Movable(must, may, cost, lengths, selection.names)


class _PlacesFor(Protocol):
    """The search for places, if these file systems are shrunk."""

    def __call__(
        self, shrunk: partition_selection.Shrinks, /, *, finer: bool = False
    ) -> search.FoundPlaces | None: ...


def _find_places(
    disk: Disk,
    goal: RealignGoal,
    used: partition_selection.Uses,
    places_for: _PlacesFor,
    *,
    settled: bool = False,
) -> tuple[search.FoundPlaces | None, dict[int, partition_selection.Shrunk]]:
    found = places_for({})
    if _lacks_room(found) and goal.shrink:
        shorter = partition_selection.room_by_shrinking(disk, used, places_for, settled=settled)
        if shorter is not None:
            return shorter
    if found is not None and found.journal is None:
        found = places_for({}, finer=True)
    return found, {}


def _lacks_room(found: search.FoundPlaces | None) -> bool:
    return found is None or bool(found.order and found.journal is None)


def parts_of(disk: Disk, numbers: Collection[int]) -> tuple[Partition, ...]:
    return tuple(part for part in disk.partitions if part.number in numbers)


def _nothing_there(disk: Disk) -> Refusal:
    text = f"there are no partitions on {disk.name}"
    held = contents_of_disk(disk)
    if not disk.table_read:
        text = f"the partition table of {disk.name} was not read"
        return Refusal("not-read", disk.name, text, next_command(disk, "plan realign"))
    if held or (disk.table and disk.table.faults) or not disk.content_read or disk.gpt_headers:
        # No hint leads to a new table if anything was recognised, or could not be read.
        found = f": {', '.join(held)}" if held else ""
        bare = disk.content and not disk.table and not disk.gpt_headers
        hint = next_command(disk, "plan partition") if bare else audit_command(disk)
        return Refusal("no-partition", disk.name, f"{text}{found}", hint)
    return Refusal("no-partition", disk.name, text, next_command(disk, "plan layout", "--part rest:linux"))


def _refuse_if_not_judged(judged: Judged) -> None:
    """Raise Refused if no partition could be judged, such as when the table belongs to an array: then it is
    unknown whether any is misaligned.
    """
    verdicts = judged.verdicts
    if verdicts and all(verdict.answer is Answer.UNKNOWN for verdict in verdicts):
        text = f"alignment cannot be judged: {verdicts[0].why or 'unknown'}"
        hint = audit_command(judged.disk)
        raise Refused(text, hint=hint, code="not-judged", subject=judged.disk.name)


def _no_room(
    judged: Judged,
    goal: RealignGoal,
    selection: partition_selection.Selection,
    used: partition_selection.Uses,
    found: search.FoundPlaces | None,
    places_for: _PlacesFor,
    claims: Claims,
) -> Refusal:
    disk = judged.disk
    whole = with_table_to_end(disk)
    # Also the backup that the table has now counts as free: it is not in use any more then.
    if whole and not _lacks_room(
        search.search(whole, movable(whole, selection, used, {}), goal, ALL_FREE, finer=True)
    ):
        return ends_early(disk)
    if claims.in_the_way:
        roomy = search.search(disk, movable(disk, selection, used, {}), goal, ALL_FREE, finer=True)
        if not _lacks_room(roomy):
            for_journal = found is not None
            refusal = unlisted_data(disk, claims, "plan realign", for_journal=for_journal)
            helps, shrinking = partition_selection.shrink_hint(disk, used, places_for, shrink=goal.shrink)
            named = _with(_Room.ENOUGH, _fitting(judged, selection, goal, claims))
            if named:
                helps = f"; {partition_selection.partition_words(named)} can be moved without that{helps}"
            alone = next_command(disk, "plan realign", *_options(named)) if named else ""
            return replace(
                refusal, text=f"{refusal.text}{helps}", hint=_in_lines(alone, shrinking, refusal.hint)
            )
    helps, hint = partition_selection.shrink_hint(disk, used, places_for, shrink=goal.shrink)
    if found is not None:
        least = found.journal_least
        room = found.journal_room
        text = (
            f"there is no room for the journal: it needs {format_about(least)} in one piece, but the largest"
            " free one"
        )
        text += (
            f" has {format_about(room)}, {least - room} bytes short; a file on another disk also works{helps}"
        )
        if least <= found.journal_unclaimed:
            text = f"{FULL_MBR}; a file on another disk also works"
        return Refusal(
            "no-journal-room", disk.name, text, next_command(disk, "realign", "--journal FILE"), False
        )
    fitting = _fitting(judged, selection, goal, claims)
    named, by_file = (_with(room, fitting) for room in (_Room.ENOUGH, _Room.NO_JOURNAL))
    fits = [f"for {partition_selection.partition_words(named)}"] if named else []
    if by_file:
        fits.append(f"for {partition_selection.partition_words(by_file)} with the journal in a file")
    if fits:
        helps = f"; there is {' and '.join(fits)}{helps}"
        options = _options(named) if named else (*_options(by_file), "--journal FILE")
        hint = _in_lines(next_command(disk, "plan realign", *options), hint)
    grain = " of the requested grain" if goal.grain_given else ""
    who = selection.must.keys() - {*named, *by_file} or selection.must
    text = f"there is no room to put {partition_selection.partition_words(sorted(who))} on a boundary{grain}"
    if not hint:
        hint = next_look(disk) if goal.grain_given else _copy_away(disk, who)
    return Refusal("no-room", disk.name, f"{text}{_unusable_room(disk)}{helps}", hint, lasting=False)


def _unusable_room(disk: Disk) -> str:
    """Return why free space of a disk may be no room for a move, in parentheses; "" if nothing is known."""
    text = ""
    floor = search.boot_floor(disk)
    if floor > MIB:
        text += f" (nothing is moved below {format_size(floor)}: a boot loader may be there)"
    if search.is_full_mbr(disk):
        text += " (the MBR has no unused entry, and without one only some room can be used)"
    return text


def _in_lines(*hints: str) -> Hint:
    """Return those of the hints that are not empty, a line each."""
    found = [part for hint in hints if hint for part in ("\n", hint)]
    return Hint(*found[1:])


def _copy_away(disk: Disk, numbers: Collection[int]) -> str:
    """Return where the user finds what to do if there is no room for these partitions, and nothing can be
    shrunk: a member of an array has no files of its own.
    """
    for part in parts_of(disk, numbers):
        if kind_or_hint(part) is MD:
            return change_by_hand(disk, ByHand.MEMBERS, "mdadm", part)
    return change_by_hand(disk, ByHand.RECREATING, "rsync")


def _fitting(
    judged: Judged, selection: partition_selection.Selection, goal: RealignGoal, claims: Claims
) -> _Rooms:
    """Return the partitions for which there is room while the others stay; {} if the goal has more than
    partitions.
    """
    if replace(goal, partitions=()) != _GOAL:
        return {}
    against = partition_reasons(judged.disk, parts_of(judged.disk, selection.must))
    numbers = tuple(number for number, reasons in against.items() if _may_move(reasons))
    return _rooms(judged, selection, numbers, claims)


def _with(room: _Room, rooms: _Rooms) -> tuple[int, ...]:
    """Return the partitions that have this room together."""
    return next((named for found, named in rooms.values() if found is room), ())


def _refusal(
    disk: Disk,
    reasons: list[Refusal],
    against: Mapping[int, tuple[Refusal, ...]],
    fitting: Callable[[], Collection[int]],
) -> Refused:
    """Return the refusal with all reasons and the next command: to move the other partitions alone if some
    can never be moved, of these the `fitting` ones, otherwise the first command that helps.
    """
    reasons = without_consequences(disk, reasons)
    lines = dict.fromkeys(reason.text for reason in reasons)
    reasons_of_partitions = sum(len(found) for found in against.values())
    others = [number for number, found in against.items() if not found]
    temporary = [reason for reason in reasons if not reason.lasting]
    hint = (temporary or reasons)[0].hint if reasons else ""
    if others and reasons_of_partitions and reasons_of_partitions == len(reasons) and not temporary:
        hint = next_command(disk, "plan realign", *_options(fitting() or others))
    return Refused("\n".join(lines), hint=hint, refusals=dict.fromkeys(reasons))


# Whether a misaligned partition can be repaired, for the audit to report. This must be cheap: an audit may
# cover thousands of disks, and tables with thousands of partitions.

IN_PLACE = "in-place"
WITH_SHRINK = "with-shrink"
NOT = "not"
"""Values of `answer`."""

_SEARCHED_UP_TO = 32  # partitions; if there are more, only the room next to each is checked
_GOAL = RealignGoal()


def find_repairs(judged: Judged) -> tuple[Repair, ...]:
    """Return for each partition whose misalignment matters whether and how it can be repaired."""
    misaligned = (verdict for verdict in judged.verdicts if verdict.answer is Answer.OFF and verdict.matters)
    disk = judged.disk
    off = [verdict.partition for verdict in misaligned if verdict.partition is not None]
    if not off and not any(data_starts(part) for part in disk.partitions):
        return ()
    selection = partition_selection.select_partitions(judged, _GOAL)
    off += [number for number in selection.must if number not in off]
    if not off:
        return ()
    # Then nothing is to be checked or repaired here: the file system may be mounted there.
    attached = use_through_loops(disk.path) if disk.kind is DiskKind.IMAGE else None
    in_use = () if attached is None else (attached,)
    disk_wide = (*in_use, *selection.reasons, *disk_reasons(judged))
    against = partition_reasons(disk, parts_of(disk, off))
    reasons = {number: (*disk_wide, *against[number]) for number in off}
    rooms = _rooms(
        judged, selection, tuple(number for number in selection.must if _may_move(reasons[number]))
    )
    wanting = tuple(number for number in off if number not in rooms and _may_move(reasons[number]))
    whole = with_table_to_end(disk) if wanting else None
    behind = _rooms(replace(judged, disk=whole), selection, wanting) if whole else {}
    for number in behind:
        reasons[number] = (*reasons[number], ends_early(disk))
    rooms |= behind
    lacking = any(number not in rooms for number in wanting)
    shrinking = _possible_shrink(judged, selection, in_use) if lacking else ("", "")
    of_all = tuple(reason for number in off for reason in against[number])

    def repair(number: int) -> Repair:
        found = rooms.get(number, (_Room.NONE, ()))
        room, named = found
        together = of_all if room is not _Room.NONE and not named else ()
        return _repair(disk, number, found, reasons[number] or together, shrinking)

    return tuple(_naming_clusters(judged, repair(number)) for number in off)


def _naming_clusters(judged: Judged, repair: Repair) -> Repair:
    """Return the repair with what a move does not cure: clusters that are off at any start on the grid."""
    (part,) = parts_of(judged.disk, (repair.partition,))
    if repair.answer == NOT or not any(clusters_off(judged, part, 0)):
        return repair
    stay = "but its clusters stay off it: only a new file system cures that"
    return replace(repair, why=f"{repair.why}, {stay}")


def _possible_shrink(
    judged: Judged, selection: partition_selection.Selection, in_use: tuple[Refusal, ...]
) -> tuple[str, str]:
    """Return what a plan without used blocks says on shrinking, and the command; both empty if no file system
    can be shrunk. `in_use`: what has to be ended before.
    """
    disk = judged.disk

    def places_for(shrunk: partition_selection.Shrinks) -> search.FoundPlaces | None:
        moved = movable(disk, selection, {}, shrunk, settled=True)
        return search.search(disk, moved, _GOAL, ALL_FREE)

    if disk.size is not None and selection.start_grids and len(disk.partitions) <= _SEARCHED_UP_TO:
        helps, command = partition_selection.shrink_hint(disk, {}, places_for, shrink=False)
        if command:
            return helps, command
    found = [
        part for part in partition_selection.shrinkable(disk, settled=True) if partition_selection.fills(part)
    ]
    if not found:
        return "", ""
    against = partition_reasons(disk, found)
    text = "; shrinking a file system here may make some"
    if in_use or all(against.values()):
        first = (*in_use, *against[found[0].number])[0]
        return f"{text}, {partition_selection.once_resolved(first)}", first.hint
    return text, next_command(disk, "plan realign", "--shrink")


def _may_move(reasons: Collection[Refusal]) -> bool:
    return not any(reason.lasting for reason in reasons)


def with_repair_commands(report: Report, repairs: Mapping[str, Sequence[Repair]]) -> Report:
    """Return the report with better commands in the findings that recommend a plan.

    Such a command settles what must be settled first, has the option without which the plan is refused, or
    shows why it is refused.
    """
    answers: dict[tuple[str | None, int | None, str], str] = {
        (judged.disk.name, repair.partition, next_realign(judged.disk)): repair.next
        for judged in report.judged
        for repair in repairs.get(judged.disk.name, ())
        if repair.next
    }
    arrays = {judged.disk.name: judged.disk for judged in report.judged if judged.disk.array}
    found = ((finding, (finding.disk, finding.partition, finding.next)) for finding in report.findings)
    return replace(
        report,
        findings=tuple(
            replace(finding, next=_by_members(arrays[finding.disk or ""], report.inventory, repairs))
            if finding.disk in arrays and finding.partition is None and finding.start == 0 and finding.off_by
            else replace(finding, next=answers.get(key, finding.next))
            for finding, key in found
        ),
    )


def with_members(report: Report, repairs: Mapping[str, Sequence[Repair]]) -> dict[str, tuple[Repair, ...]]:
    """Return the repairs, with the command that moves the members of an array on which no start is on all
    grids at once: the array itself is where its members put it.
    """
    excluded = {
        judged.disk.name: _by_members(judged.disk, report.inventory, repairs)
        for judged in report.judged
        if judged.disk.array and required_grid(judged.grids, judged.disk.sector_size) is None
    }
    return {
        name: tuple(replace(repair, next=excluded[name]) if name in excluded else repair for repair in found)
        for name, found in repairs.items()
    }


def _by_members(array: Disk, inventory: Inventory, repairs: Mapping[str, Sequence[Repair]]) -> str:
    """Return how the start of an array is moved: the partition of each member is realigned. What stops the
    array comes after: a plan only reads, and shows it. A member that is a whole drive, or a partition that
    nothing moves, leaves only a new array.
    """
    members = set(array.array.members if array.array else ())
    disks = (*inventory.disks, *inventory.below)
    on = [(disk, part) for disk in disks for part in disk.partitions if part.node in members]
    never = {(name, one.partition) for name, each in repairs.items() for one in each if one.answer is NOT}
    if not members or {part.node for _, part in on} != members or never & {(d.name, p.number) for d, p in on}:
        return by_hand(ByHand.MEMBERS, "mdadm", array.path)
    plans = [next_command(disk, "plan realign") for disk in dict.fromkeys(disk for disk, _ in on)]
    return joined_commands(plans)


def on_captured_machine(
    report: Report, repairs: Mapping[str, Sequence[Repair]]
) -> tuple[Report, dict[str, tuple[Repair, ...]]]:
    """Return report and repairs of a captured machine, with every command on a disk marked to be run
    there.
    """
    root = report.inventory.sysroot
    findings = (replace(finding, next=there(finding.next, root)) for finding in report.findings)
    moved = {
        name: tuple(replace(repair, next=there(repair.next, root)) for repair in found)
        for name, found in repairs.items()
    }
    return replace(report, findings=tuple(findings)), moved


def there(command: str, sysroot: str) -> str:
    """Return the command marked to be run on the captured machine; one that shows what was captured is for
    here. What has a name that the snapshot masked, and is another one there, is stated in words.
    """
    match getattr(command, "parts", ()):
        case (Command("aligntool", ("audit", "--map", path)),) if sysroot:
            return typed("aligntool audit --map --sysroot", sysroot, path.removeprefix("/dev/"), sudo=False)
    if not command or command.startswith(("aligntool explain ", "aligntool drives ")):
        return command
    commands = command.split(" && ")
    if any(MASKED_NAME.search(each) and not is_by_hand(each) for each in commands):
        command = _without_masked(commands)
    return Hint("on the captured machine: ", command)


def _without_masked(commands: Sequence[str]) -> str:
    """Return the commands of aligntool that have no masked name, and what comes before them in words: a
    command that stops a device fails as long as something that cannot be named uses it.
    """
    own = [each for each in commands if " aligntool " in each and not MASKED_NAME.search(each)]
    found = (re.search(r"(?:sudo|by hand, with) ([\w.-]+)", each) for each in commands if each not in own)
    programs = dict.fromkeys(match[1] for match in found if match)
    if "aligntool" in programs:
        return "an audit there shows the command, with the names that are masked here"
    words = f"release what uses it ({', '.join(programs)}), under names that are masked here"
    return f"first {words}: {' && '.join(own)}" if own else words


# An audit does not read there; a plan does.
_IF_EMPTY = "if the space between the partitions is empty"


def _repair(
    disk: Disk,
    number: int,
    found: tuple[_Room, tuple[int, ...]],
    reasons: tuple[Refusal, ...],
    shrinking: tuple[str, str],
) -> Repair:
    room = found[0]
    named = _options(found[1])
    for reason in reasons:
        if reason.lasting:
            return Repair(number, NOT, reason.text, reason.hint)
    helps, shrink = shrinking
    match room:
        case _Room.NO_JOURNAL:
            answer = IN_PLACE
            why = f"there is room next to it, {_IF_EMPTY}, but none on this disk for a journal"
            why += _unusable_room(disk)
            command = next_command(disk, "plan realign", *named, "--journal FILE")
        case _Room.ENOUGH:
            answer = IN_PLACE
            why = f"there is room to move onto the grid, {_IF_EMPTY}"
            command = next_command(disk, "plan realign", *named)
        case _ if shrink:
            answer = WITH_SHRINK
            why = f"there is not enough room{_unusable_room(disk)}{helps}"
            command = shrink
        case _:
            return _not_shrunk(disk, number)
    if reasons:
        first = partition_selection.once_resolved(reasons[0])
        why = why if first in why else f"{why}, {first}"
        command = reasons[0].hint
    return Repair(number, answer, why, command)


def _not_shrunk(disk: Disk, number: int) -> Repair:
    """Return why a partition without room cannot be repaired by a shrink either."""
    no_room = f"there is not enough room{_unusable_room(disk)}"
    shorter = partition_selection.shorter_contents(disk)
    if shorter:
        why = f"{no_room}; {partition_selection.overwriting_text(shorter[-1])}"
        return Repair(number, NOT, why, by_hand(ByHand.GROWING, "its own tool"))
    why = partition_selection.why_not_shrunk(disk) or "no shrink makes enough"
    text = f"{no_room}, and nothing here can be shrunk: {why}"
    return Repair(number, NOT, text, _copy_away(disk, (number,)))


def _options(numbers: Collection[int]) -> Iterator[str]:
    return (f"-p {number}" for number in numbers)


def _rooms(
    judged: Judged,
    selection: partition_selection.Selection,
    numbers: tuple[int, ...],
    claims: Claims = ALL_FREE,
) -> dict[int, tuple[_Room, tuple[int, ...]]]:
    """Return the room for each of these misaligned partitions that has any, and which partitions to name in
    the command that moves it: none if all misaligned partitions of the disk fit, otherwise those that fit
    together, or it alone.
    An audit reads no free space, so that all counts as free: whether it is, is known when the move is
    planned.
    """
    disk = judged.disk
    if not numbers or not selection.start_grids or disk.size is None:
        return {}
    if len(disk.partitions) > _SEARCHED_UP_TO:
        return dict.fromkeys(_with_room_beside(disk, selection), (_Room.ENOUGH, ()))
    if (
        len(numbers) == len(selection.must)
        and (room := _room_for(judged, selection, claims)) is not _Room.NONE
    ):
        return dict.fromkeys(numbers, (room, ()))
    alone = {number: _room_of(judged, (number,), claims) for number in numbers}
    fitting = tuple(number for number, room in alone.items() if room is not _Room.NONE)
    for named in (numbers, fitting):
        if named and (room := _room_of(judged, named, claims)) is not _Room.NONE:
            return dict.fromkeys(named, (room, named))
    return {number: (alone[number], (number,)) for number in fitting}


def _room_of(judged: Judged, numbers: tuple[int, ...], claims: Claims) -> _Room:
    return _room_for(
        judged, partition_selection.select_partitions(judged, RealignGoal(partitions=numbers)), claims
    )


def _room_for(judged: Judged, selection: partition_selection.Selection, claims: Claims) -> _Room:
    found = search.search(judged.disk, movable(judged.disk, selection, {}, {}), _GOAL, claims, finer=True)
    return _Room.NONE if found is None else _Room.ENOUGH if found.journal else _Room.NO_JOURNAL


def _with_room_beside(disk: Disk, selection: partition_selection.Selection) -> frozenset[int]:
    """Return the partitions with enough free space on either side while all others stay."""
    row = row_of(disk, movable(disk, selection, {}, {}))
    room = search.room_of(disk, _GOAL)
    found = set()
    end = room.extent.start
    for item, free_to in zip(
        row, [*(following.extent.start for following in row[1:]), room.extent.end], strict=False
    ):
        if item.number is not None and item.number in selection.must:
            start = first_place(item, selection.grids_of(item.number)[-1], end, room)
            if start + item.extent.length <= free_to:
                found.add(item.number)
        end = max(end, item.extent.end)
    return frozenset(found)
