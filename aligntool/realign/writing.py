"""What was decided, written down as a plan.

In: places, the journal's place, what is shrunk. Out: a Plan. Alone because everything is decided when it begins: here
are only the order of the steps and the words.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from aligntool.audit.words import layer_name
from aligntool.inventory import Disk, DiskKind, Partition, Role
from aligntool.plan import (
    CheckContent,
    CloseJournal,
    CopyContent,
    EntryChange,
    Estimate,
    Held,
    HoldContent,
    JournalPlace,
    Lanes,
    ParkEntries,
    Place,
    Plan,
    RealignGoal,
    ReleaseContent,
    RewriteTable,
    ShrinkContent,
    Step,
    Used,
    WriteJournal,
)
from aligntool.realign.attention import attention_to, notes_on
from aligntool.realign.holds import hold, kind_of
from aligntool.realign.journals import SHORT
from aligntool.realign.patches import Patching, needed_for, patching
from aligntool.realign.row import containers, logicals_of
from aligntool.realign.search import Found
from aligntool.realign.shrinking import Shrunk, attention_to_shrunk
from aligntool.realign.subject import subject
from aligntool.realign.wanted import Wanted
from aligntool.units import GIB, MIB, Extent, align_down, format_size

CHECKED = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "ntfs", "vfat", "exfat", "f2fs"})
"""What has a checker that writes nothing."""

_PAGE = 4096
_LONGEST_WINDOW = 8 * MIB
_LONGEST_STAGED = 16 * MIB
_BATCH = 16 * MIB  # two of them are in memory at once, and all of it must stay below 100 MB
# Bytes a second that reading, writing and reading back together may take; a drive of ten years ago does more.
_ROTATIONAL, _FLASH = 60 * 10**6, 300 * 10**6


def write_plan(
    disk: Disk,
    goal: RealignGoal,
    wish: Wanted,
    found: Found | None,
    used: Mapping[int, Used],
    shrunk: Mapping[int, Shrunk],
) -> Plan:
    """`found` None: nothing has to move."""
    changes = _changes(disk, found)
    after = {change.number: change.after for change in changes}
    moving = frozenset(found.order if found else ())
    patched = {
        part.number: _patching(disk, part, changes, shrunk)
        for part in disk.partitions
        if part.number in moving
    }
    steps = _steps(disk, found, shrunk, changes, patched) if found and found.journal else ()
    return Plan(
        purpose="realign",
        disk=subject(disk),
        goal=_goal_words(goal),
        places=tuple(_place(part, wish, after.get(part.number, part.extent)) for part in disk.partitions),
        steps=tuple(steps),
        attention=(*attention_to(disk, moving, patched), *attention_to_shrunk(shrunk)),
        notes=(*wish.notes, *notes_on(disk, goal, wish, found, shrunk, patched)),
        estimate=_estimate(disk, moving, used) if moving else Estimate(0, 0),
    )


def _changes(disk: Disk, found: Found | None) -> tuple[EntryChange, ...]:
    """Everything that the table has to say differently afterwards; with one logical partition, its whole chain."""
    if found is None:
        return ()
    chained = {change.number for change in found.chain}
    others = tuple(
        EntryChange(part.number, part.extent, found.after[part.number], part.record_at, part.record_at)
        for part in disk.partitions
        if part.number not in chained and found.after[part.number] != part.extent
    )
    return tuple(sorted((*others, *found.chain), key=lambda change: change.number))


def _patching(
    disk: Disk, part: Partition, changes: Sequence[EntryChange], shrunk: Mapping[int, Shrunk]
) -> Patching:
    """ntfsresize puts the copy of the boot sector into the last sector of the length that it is told."""
    if part.number in shrunk:
        last = shrunk[part.number].length - disk.sector_size
        content = tuple(replace(layer, backup_boot=layer.backup_boot and last) for layer in part.content)
        part = replace(part, content=content)
    change = next(change for change in changes if change.number == part.number)
    return patching(part, change.after, change.record_after, disk.sector_size)


def _steps(
    disk: Disk,
    found: Found,
    shrunk: Mapping[int, Shrunk],
    changes: tuple[EntryChange, ...],
    patched: Mapping[int, Patching],
) -> Iterator[Step]:
    """As the design has it: check, shrink, journal, park, hold, copy, release, commit, close."""
    parts = {part.number: part for part in disk.partitions}
    journal = found.journal
    if journal is None or disk.table is None:
        return
    touched = sorted({*found.order, *shrunk})
    moves = {number: (found.before[number], found.after[number]) for number in found.order}
    helds = {number: _held(disk, parts[number], found, patched[number]) for number in moves}
    for number in touched:
        if kind_of(parts[number]) in CHECKED:
            yield CheckContent(number, parts[number].extent, kind_of(parts[number]))
    for number, one in sorted(shrunk.items()):
        yield ShrinkContent(number, parts[number].extent, one.kind, one.length)
    yield WriteJournal(journal)
    if moves:
        yield ParkEntries(tuple(touched), _parked(disk, touched))
    for number in sorted(moves):
        yield HoldContent(number, moves[number][0], helds[number])
    for number in found.order:
        source, target = moves[number]
        lanes = lanes_for(abs(target.start - source.start), journal, disk.sector_size)
        yield CopyContent(number, kind_of(parts[number]), source, target, helds[number], lanes)
    for number in sorted(moves):
        kind, target = kind_of(parts[number]), moves[number][1]
        yield ReleaseContent(number, kind, target, helds[number], patched[number].patches)
    yield RewriteTable(disk.table.label.value, changes)
    yield CloseJournal(journal)


def _held(disk: Disk, part: Partition, found: Found, patched: Patching) -> Held:
    more = (needed_for(patch) for patch in patched.patches)
    length = found.before[part.number].length
    return hold(part, length, disk.sector_size, more, spots_only=found.spots_only)


def _parked(disk: Disk, touched: Collection[int]) -> tuple[int, ...]:
    """Those that move, and those that are shrunk: others may come to lie where they end now, so nobody may let them
    grow meanwhile. Logical partitions are parked by their container.
    """
    parked = set(touched)
    for container in containers(disk):
        inside = {part.number for part in logicals_of(disk, container)}
        if inside & parked:
            parked = (parked - inside) | {container.number}
    return tuple(sorted(parked))


def lanes_for(distance: int, journal: JournalPlace, sector_size: int) -> Lanes:
    """A window is never longer than the distance; over short distances everything goes through the stash."""
    stash = journal.stash.length
    if distance < SHORT:
        return Lanes(min(stash, _LONGEST_STAGED), _BATCH, GIB, stash, staged=True)
    window = min(distance, _LONGEST_WINDOW)
    return Lanes(align_down(window, _PAGE if window >= _PAGE else sector_size), _BATCH, GIB, stash)


def _place(part: Partition, wish: Wanted, after: Extent) -> Place:
    why = wish.must.get(part.number) or wish.stays.get(part.number, "")
    if part.number in wish.may and after.start != part.extent.start:
        why = "on the grid; makes room"
    if part.number not in wish.must and after.start == part.extent.start and after != part.extent:
        why = f"{why}; its end moves" if why else "its end moves"
    return Place(part.number, part.extent, after, _what(part), why)


def _what(part: Partition) -> str:
    """What a user would call it: kind and label, else the type."""
    if part.content:
        layer = part.content[0]
        return f'{layer_name(layer)} "{layer.label}"' if layer.label else layer_name(layer)
    if part.role is Role.EXTENDED:
        return "extended"
    return part.type_name or part.type_code or "unknown"


def _goal_words(goal: RealignGoal) -> str:
    who = "every start"
    if goal.partitions:
        who = "partition " + ", ".join(str(number) for number in goal.partitions)
    least = f", none before {format_size(goal.least_start)}" if goal.least_start else ""
    return f"{who} on {format_size(goal.grain)}{least}"


def _estimate(disk: Disk, moving: frozenset[int], used: Mapping[int, Used]) -> Estimate:
    uses = tuple(
        used.get(part.number, Used(part.number, part.extent.length, "everything: nobody asked what is used"))
        for part in disk.partitions
        if part.number in moving
    )
    total = sum(one.bytes for one in uses)
    if disk.kind is DiskKind.IMAGE:
        return Estimate(total, None, uses)
    rate = _FLASH if disk.rotational is False else _ROTATIONAL
    return Estimate(total, -(-total // rate), uses)
