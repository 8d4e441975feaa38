"""From wishes to places: the row is searched, and if need be a partition jumps over its neighbours.

In: a disk, who must and who may move. Out: places, in an order that can be copied, with a journal beside them. Alone
because it is where room for the partitions and room for the journal are weighed against each other.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aligntool.inventory import Disk, Role, TableLabel
from aligntool.plan import EntryChange, JournalPlace, RealignGoal
from aligntool.realign.boot_media import BOOT_LOADERS, boot_rom_code
from aligntool.realign.chain import chain_changes
from aligntool.realign.holds import hold
from aligntool.realign.journals import Needs, free_runs, holds_all, in_file, lay, least
from aligntool.realign.order import copy_order
from aligntool.realign.placing import Choice, Lean, Room, choose, place
from aligntool.realign.row import Movable, Thing, row_of
from aligntool.units import KIB, MIB, Extent

_GPT_ENTRIES = 16 * KIB  # 128 entries of 128 bytes, UEFI 5.3.1


@dataclass(frozen=True, slots=True)
class Found:
    """Where everything goes. `before` has the shortened extents of what is shrunk."""

    before: Mapping[int, Extent]
    after: Mapping[int, Extent]
    order: tuple[int, ...]  # those that move, in the order of copying
    chain: tuple[EntryChange, ...]  # logical partitions and containers
    journal: JournalPlace | None  # None: places are there, but no room for a journal
    journal_least: int = 0  # bytes that the smallest journal takes
    journal_room: int = 0  # bytes of the largest free run
    spots_only: bool = False  # the journal has room for the sectors of signatures only


def boot_floor(disk: Disk) -> int:
    """Return the byte below which nothing is moved down: the first MiB, what is used of the gap before the first
    partition, and where a boot ROM was recognised to find its program, all the places where the next programs lie.
    """
    table = disk.table
    known = BOOT_LOADERS if boot_rom_code(disk) else MIB
    return max(MIB, known, (table.gap_used_to if table else None) or 0)


def room_of(disk: Disk, goal: RealignGoal) -> Room:
    end = disk.size or 0
    usable = disk.table.usable if disk.table and disk.table.usable else Extent(0, end)
    start = max(usable.start, disk.sector_size)
    return Room(Extent(start, min(usable.end, end) - start), goal.least_start, boot_floor(disk))


def search(disk: Disk, movable: Movable, goal: RealignGoal, *, finer: bool = False) -> Found | None:
    """None when there is no place for everybody. The places are the cheapest ones beside which a journal fits.

    `finer`: where none fits beside places on the coarsest possible grain, on finer ones.
    """
    room = room_of(disk, goal)
    best: Found | None = None
    for each in _finer(movable) if finer else (movable,):
        found = _search(disk, each, goal, room)
        if found is None or found.journal is not None or not found.order:
            return found or best
        best = best or found
    return best


def _finer(movable: Movable) -> Iterator[Movable]:
    """Yield the wishes, then the same without the coarsest grain, again and again: a short way leaves more room for
    the journal.
    """
    most = max((len(lattices) for lattices in movable.must.values()), default=1)
    for left_out in range(max(most, 1)):
        must = {number: found[min(left_out, len(found) - 1) :] for number, found in movable.must.items()}
        yield replace(movable, must=must)


def _search(disk: Disk, movable: Movable, goal: RealignGoal, room: Room) -> Found | None:
    best: Found | None = None
    rows = dict.fromkeys(row_of(disk, movable, roomy=roomy) for roomy in (True, False))
    for row, choice in _choices(rows, room, movable):
        for lean in Lean:
            found = _settle(disk, row, place(row, room, choice, lean), goal)
            if found is None:
                continue
            if found.journal is not None:
                return found
            best = best or found
    return best


def _choices(
    rows: Iterable[Sequence[Thing]], room: Room, movable: Movable
) -> Iterator[tuple[Sequence[Thing], Choice]]:
    """Rows as they are; where that is impossible or moves what could stay, with one partition put elsewhere."""
    found = [(row, choice) for row in rows if (choice := choose(row, room))]
    if all(choice.cost[1] > len(movable.must) for _, choice in found):
        jumped = (other for row in rows for other in _with_a_jump(row, room))
        found += [(row, choice) for row in jumped if (choice := choose(row, room))]
    yield from sorted(found, key=lambda pair: pair[1].cost)[:_MOST_TRIED]


_MOST_TRIED = 8
_JUMPS_UP_TO = 24  # things: an MBR with 3 primary partitions and some 15 logical ones


def _with_a_jump(row: Sequence[Thing], room: Room) -> Iterator[Sequence[Thing]]:
    """Every row in which one thing that must move is elsewhere in the order; never into or out of a container."""
    if len(row) > _JUMPS_UP_TO:
        return
    inside = _inside(row)
    for index, thing in enumerate(row):
        if thing.may_stay or inside[index]:
            continue
        rest = [*row[:index], *row[index + 1 :]]
        rest_inside = _inside(rest)
        for slot in range(len(rest) + 1):
            if (
                slot != index
                and not (slot < len(rest) and rest_inside[slot])
                and _fits(thing, rest, slot, room)
            ):
                yield [*rest[:slot], thing, *rest[slot:]]


def _fits(thing: Thing, rest: Sequence[Thing], slot: int, room: Room) -> bool:
    """Whether the gap before `rest[slot]` is long enough as it is now."""
    start = rest[slot - 1].extent.end if slot else room.extent.start
    end = rest[slot].extent.start if slot < len(rest) else room.extent.end
    return end - start >= thing.extent.length


def _inside(row: Sequence[Thing]) -> list[bool]:
    """Whether a thing lies after a container's first EBR, its end included."""
    ends = [index for index, thing in enumerate(row) if thing.gives_way]
    found = [False] * len(row)
    for end in ends:
        start = max(index for index in range(end) if row[index].number is None and not row[index].gives_way)
        found[start + 1 : end + 1] = [True] * (end - start)
    return found


def _settle(
    disk: Disk, row: Sequence[Thing], places: Mapping[int, Extent], goal: RealignGoal
) -> Found | None:
    lengths = {thing.number: thing.extent for thing in row if thing.number is not None}
    before = {part.number: lengths.get(part.number, part.extent) for part in disk.partitions}
    after = {number: places.get(number, extent) for number, extent in before.items()}
    moves = {number: (before[number], after[number]) for number in before if before[number] != after[number]}
    order = copy_order(moves)
    if order is None:
        return None
    chain = chain_changes(disk, after)
    if not moves:
        return Found(before, after, (), chain, None)
    needs = _needs(disk, moves)
    runs = tuple(free_runs(_taken(disk, before, after, chain), _journal_room(disk, goal)))
    journal = in_file(goal.journal_file, needs) if goal.journal_file else lay(runs, needs)
    largest = max((run.length for run in runs), default=0)
    spots_only = journal is not None and not holds_all(journal, needs)
    return Found(before, after, order, chain, journal, least(needs), largest, spots_only)


def _needs(disk: Disk, moves: Mapping[int, tuple[Extent, Extent]]) -> Needs:
    sector = disk.sector_size
    parts = {part.number: part for part in disk.partitions}
    held, spots = (
        sum(
            extent.length
            for number, (old, _) in moves.items()
            for extent in hold(parts[number], old.length, sector, spots_only=spots_only).ranges
        )
        for spots_only in (False, True)
    )
    if disk.table and disk.table.label is TableLabel.GPT:
        table = 2 * (_GPT_ENTRIES + sector) + sector
    else:
        table = sector * (1 + 2 * sum(part.role is Role.LOGICAL for part in disk.partitions))
    distances = tuple(abs(new.start - old.start) for old, new in moves.values())
    return Needs(held, table, len(moves), distances, spots)


def _journal_room(disk: Disk, goal: RealignGoal) -> Extent:
    """Not where a boot loader may lie: before the first partition, on a GPT as far as 16 MiB (those of ARM boards),
    and nowhere below the floor.
    """
    room = room_of(disk, goal)
    first = min((part.extent.start for part in disk.partitions), default=0)
    if disk.table and disk.table.label is TableLabel.GPT:
        first = min(first, BOOT_LOADERS)
    start = max(room.extent.start, room.floor, first)
    return Extent(start, max(0, room.extent.end - start))


def _taken(
    disk: Disk, before: Mapping[int, Extent], after: Mapping[int, Extent], chain: Sequence[EntryChange]
) -> Iterator[Extent]:
    """Sources, targets, everybody else, and the EBRs of before and after."""
    for part in disk.partitions:
        if part.role is Role.EXTENDED:
            yield Extent(part.extent.start, disk.sector_size)
            continue
        yield before[part.number]
        yield after[part.number]
        if part.record_at is not None:
            yield Extent(part.record_at, disk.sector_size)
    for change in chain:
        if change.record_after is not None:
            yield Extent(change.record_after, disk.sector_size)
