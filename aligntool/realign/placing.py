"""Find places for partitions: start grids, the order of copies, boot loaders at fixed places."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import reduce
from math import gcd, lcm

from aligntool.audit.report import Grid, Severity
from aligntool.contents.catalogue import kind_named
from aligntool.contents.kind import Kind
from aligntool.contents.windows_names import StartNames
from aligntool.inventory import BootCode, Disk, Partition, Role
from aligntool.units import MIB, Extent, align_down, align_up, off_by

# Disks that depend on the position of their partitions: boot media, boards whose boot ROM reads fixed
# offsets, disklabels. These are facts about the boot programs of other projects, each with its source;
# docs/boot-layouts.md has the whole table.

BOOT_LOADERS = 16 * MIB  # end of Rockchip's U-Boot, the largest known
# Started by a BIOS, or by the firmware of a mainframe, not by a boot ROM.
_SECTOR_0 = frozenset({"GRUB", "GRUB Legacy", "LILO", "Haiku Boot Manager", "Ventoy", "syslinux", "zipl"})
_VTOYEFI = 32 * MIB  # VENTOY_PART_SIZE
_DISKLABEL = "may hold a BSD disklabel, whose entries count from the start of the disk"
_LABEL_TYPES = {
    "0xa5": _DISKLABEL,  # FreeBSD, and NetBSD before 1.3.3
    "0xa6": _DISKLABEL,  # OpenBSD
    "0xa9": _DISKLABEL,  # NetBSD
    "0x63": "may hold slices of UnixWare, which count from the start of the disk",
    "516E7CB4-6ECF-11D6-8FF8-00022D09712B": _DISKLABEL,  # FreeBSD's container, gpart(8)
    "824CC7A0-36A8-11E3-890A-952519AD3F61": _DISKLABEL,  # OpenBSD
}
# OpenBSD and NetBSD list the whole disk
LABELS_DISK = ("0xa6", "0xa9", "824CC7A0-36A8-11E3-890A-952519AD3F61")


def boot_rom_code(disk: Disk) -> tuple[BootCode, ...]:
    """Return the boot programs that a boot ROM reads from a fixed offset, without those of a PC's sector
    0.
    """
    found = disk.table.boot_code if disk.table else ()
    return tuple(code for code in found if code.kind not in _SECTOR_0 and not code.encrypts)


def fixed_layout_reasons(disk: Disk) -> Iterator[str]:
    """Yield the reasons why no partition of the disk can be moved."""
    if _is_ventoy(disk):
        yield f"{disk.name} is a Ventoy medium: its second partition must directly follow the first"
    if any(kind_named(layer.kind).is_disc_image for layer in disk.content):
        inside = "its partitions are ranges of the image, and bytes outside them may belong to it"
        yield f"{disk.name} holds an ISO 9660 image from its first byte (isohybrid): {inside}"


def may_label_disk(part: Partition) -> bool:
    """Return whether the partition may hold a disklabel that lists other partitions of the disk, by their
    sectors.
    """
    return part.type_code in LABELS_DISK and _leaves_label_free(part)


def _leaves_label_free(part: Partition) -> bool:
    return all(kind_named(layer.kind).leaves_label_free for layer in part.content)


def fixed_place_reasons(disk: Disk, part: Partition) -> Iterator[str]:
    """Yield the reasons why this partition cannot be moved, or not by changing its entry alone."""
    why = _LABEL_TYPES.get(part.type_code) or _LABEL_TYPES.get(part.type_code.upper())
    if why and part.role is not Role.NESTED and _leaves_label_free(part):
        yield f"partition {part.number} {why}"
    for code in disk.table.boot_code if disk.table else ():
        if code.encrypts and not part.content:
            yield (
                f"partition {part.number} may be encrypted by {code.kind}, which stores sector numbers of the"
                " disk"
            )
    for code in boot_rom_code(disk):
        begins_there = part.extent.start <= code.at < part.extent.end
        if begins_there or (part.extent.start < BOOT_LOADERS and not part.content):
            where = f"{code.kind} at byte {code.at}"
            yield f"partition {part.number} may hold a boot program that is read from fixed sectors: {where}"
            return


def _is_ventoy(disk: Disk) -> bool:
    """Return whether the disk has what Ventoy checks at boot: the label, or its code in sector 0 and the
    position and length of the second partition (grub-core/ventoy/ventoy_cmd.c, ventoy_check_official_device).
    """
    if any(layer.label == "VTOYEFI" for part in disk.partitions for layer in part.content):
        return True
    parts = {part.number: part.extent for part in disk.partitions}
    marked = disk.table is not None and any(code.kind == "Ventoy" for code in disk.table.boot_code)
    return marked and {1, 2} <= set(parts) and parts[2].start == parts[1].end and parts[2].length == _VTOYEFI


UNKNOWN = "unknown"


def kind_of(partition: Partition) -> Kind:
    """Return the kind of the content, with the name "unknown" if nothing was recognised."""
    return kind_named(partition.content[0].kind if partition.content else UNKNOWN)


def kind_or_hint(partition: Partition) -> Kind:
    """Return the kind of the content, or the one that udev or the table states where it was not read."""
    return kind_of(partition) if partition.content else kind_named(partition.content_hint or UNKNOWN)


# Where a partition may start: the offsets on every grid that matters. This arithmetic knows neither
# partitions nor free space.


@dataclass(frozen=True, slots=True)
class StartGrid:
    """The multiples of `size` bytes, shifted up by `phase` bytes."""

    size: int
    phase: int = 0

    def has(self, offset: int) -> bool:
        return off_by(offset, self.size, self.phase) == 0

    def up(self, offset: int) -> int:
        """Return the first offset on the grid at or after `offset`."""
        return align_up(offset, self.size, self.phase)

    def down(self, offset: int) -> int:
        """Return the last offset on the grid at or before `offset`; may be negative."""
        return align_down(offset, self.size, self.phase)


def required_grid(grids: Iterable[Grid], sector_size: int) -> StartGrid | None:
    """Return the common offsets of all grids off which a start is an error or a warning; None if there are
    none.

    The common offsets of grids with several sizes and phases follow from the Chinese remainder theorem. The
    phase is the kernel's alignment_offset: with 3584, sector 63 of 512 bytes is aligned and sector 2048 is
    not.
    """
    required = (StartGrid(grid.size, grid.phase) for grid in grids if grid.severity is not Severity.INFO)
    start: StartGrid | None = StartGrid(sector_size)
    return reduce(_intersection, required, start)


def _intersection(first: StartGrid | None, second: StartGrid) -> StartGrid | None:
    if first is None:
        return None
    shared = gcd(first.size, second.size)
    apart = second.phase - first.phase
    if apart % shared:
        return None
    steps = (
        apart // shared * pow(first.size // shared, -1, second.size // shared) if second.size > shared else 0
    )
    size = lcm(first.size, second.size)
    return StartGrid(size, (first.phase + steps % (second.size // shared) * first.size) % size)


def on_grain(need: StartGrid, grain: int) -> StartGrid:
    """Return the offsets on `need` that are as far past a multiple of `grain` as the phase of `need` states.

    With a phase of 3584 a grain of 1MiB means 1MiB + 3584.
    """
    return StartGrid(lcm(need.size, grain), need.phase)


def choices(need: StartGrid, grain: int, *, only_grain: bool) -> tuple[StartGrid, ...]:
    """Return the grid of `grain`, then of its halves down to what the grids require. `only_grain`: the first
    alone.
    """
    found = [on_grain(need, grain)]
    while not only_grain and grain % 2 == 0 and found[-1].size > need.size:
        grain //= 2
        finer = on_grain(need, grain)
        if finer.size < found[-1].size:
            found.append(finer)
    return tuple(found)


# The order of the copies: no target may overlap a source that has not been copied yet. The safety of the
# whole move depends on it.


def copy_order(moves: Mapping[int, tuple[Extent, Extent]]) -> tuple[int, ...] | None:
    """Return the partition numbers in the order of copying. `moves`: number -> (old, new). None if partitions
    need each other's old places, so that no order is possible.

    If the order on the disk stays the same, there always is one: a partition that moves right into the old
    place of its neighbour waits for that neighbour, which moves right as well, and the last of them moves
    into free space. The same holds to the left.
    """
    waiting = dict(sorted(moves.items()))
    order: list[int] = []
    while waiting:
        unblocked = next((number for number in waiting if not _blocked(number, waiting)), None)
        if unblocked is None:
            return None
        order.append(unblocked)
        del waiting[unblocked]
    return tuple(order)


def _blocked(number: int, waiting: Mapping[int, tuple[Extent, Extent]]) -> bool:
    target = waiting[number][1]
    return any(other != number and target.overlaps(source) for other, (source, _) in waiting.items())


# A disk as a row of items from left to right, some of which may move. EBRs are items too, so the search for
# places need not know about their chain.


@dataclass(frozen=True, slots=True)
class RowItem:
    """A partition, an EBR, or the end of a container; sizes in bytes."""

    extent: Extent
    number: int | None = None  # None: not a partition that could move
    start_grids: tuple[StartGrid, ...] = ()  # allowed starts, best first; empty: it stays
    may_stay: bool = True
    cost: int = 0  # bytes to copy if it moves
    lead: int = 0  # bytes that must be free before it, for its EBR
    begins_container: bool = False  # the first EBR
    gives_way: bool = False  # the end of a container, which logical partitions may push to the right


Row = Sequence[RowItem]


@dataclass(frozen=True, slots=True)
class Movable:
    """Which partitions must move and which may, by number."""

    must: Mapping[int, tuple[StartGrid, ...]]  # must move
    may: Mapping[int, tuple[StartGrid, ...]]  # may move, to make room
    cost: Mapping[int, int]  # bytes to copy
    lengths: Mapping[int, int]  # of the partitions that are shrunk
    names: Mapping[int, StartNames] = field(default_factory=dict)  # partition starts recorded in their files
    kept: tuple[Extent, ...] = ()  # data in no partition, which stays


def row_of(disk: Disk, movable: Movable, *, roomy: bool = False) -> tuple[RowItem, ...]:
    """Return everything that takes space on the disk, in the order of the disk. `roomy`: EBRs keep their
    distance to their partitions.

    A container is a single item that stays unless one of its logical partitions must move. Otherwise its
    first sector, the first EBR, stays and its end may grow.
    """
    items = [RowItem(extent) for extent in movable.kept]
    for part in disk.partitions:
        match part.role:
            case Role.NESTED | Role.MAP:
                continue
            case Role.EXTENDED:
                inside = logicals_of(disk, part)
                if any(logical.number in movable.must for logical in inside):
                    items += _container_items(disk, part, movable, roomy=roomy)
                else:
                    items.append(RowItem(part.extent))
            case Role.LOGICAL:
                if not any(container.extent.contains(part.extent) for container in containers(disk)):
                    items.append(RowItem(part.extent))
            case Role.PRIMARY:
                items.append(_item(part, movable))
    return tuple(sorted(items, key=lambda item: (item.extent.start, item.extent.end)))


def containers(disk: Disk) -> tuple[Partition, ...]:
    return tuple(part for part in disk.partitions if part.role is Role.EXTENDED)


def logicals_of(disk: Disk, container: Partition) -> tuple[Partition, ...]:
    """Return the logical partitions in the order of the EBR chain, which is the order of their numbers."""
    extent = container.extent
    return tuple(
        part for part in disk.partitions if part.role is Role.LOGICAL and extent.contains(part.extent)
    )


def lead_of(part: Partition, sector_size: int) -> int:
    """Return the bytes from the start of a logical partition's EBR to the partition; one sector if the EBR is
    unknown.
    """
    return max(part.extent.start - part.record_at, sector_size) if part.record_at is not None else sector_size


def _container_items(disk: Disk, container: Partition, movable: Movable, *, roomy: bool) -> list[RowItem]:
    sector = disk.sector_size
    chain = logicals_of(disk, container)
    items = [RowItem(Extent(container.extent.start, sector), begins_container=True), _item(chain[0], movable)]
    for part in chain[1:]:
        items.append(replace(_item(part, movable), lead=lead_of(part, sector) if roomy else sector))
    return [*items, RowItem(Extent(container.extent.end, 0), gives_way=True)]


def _item(part: Partition, movable: Movable) -> RowItem:
    number = part.number
    extent = Extent(part.extent.start, movable.lengths.get(number, part.extent.length))
    must = movable.must.get(number)
    start_grids = must if must is not None else movable.may.get(number, ())
    return RowItem(extent, number, start_grids, must is None, movable.cost.get(number, extent.length))


# The cheapest places: an exact search from left to right over which items move, and to which grain.
#
# Cheapest means: fewest bytes to copy, then fewest partitions moved, then the coarsest grain. The order on
# the disk stays. A state is the cost so far and the end of the last item; of two states the one that costs
# more and ends later is dropped. For long rows only a few states are kept, always including the one that ends
# first: so a solution is found whenever there is one, though perhaps not the cheapest.

EXACT_UP_TO = 16  # items; all states are kept
_STATES_OF_LONG_ROWS = 6
_MOST_STATES = 1000
_STAYS = -1

Cost = tuple[int, int, int]
"""Bytes to copy, partitions that move, halvings of the grain."""


class PlacePreference(Enum):
    """Which of several equally cheap places to use."""

    NEAREST = "the shortest way"
    LEFT = "as far left as possible"
    RIGHT = "as far right as possible"


@dataclass(frozen=True, slots=True)
class Room:
    """Where partitions may be placed, in bytes."""

    extent: Extent
    least_start: int = 0  # lowest start of a partition that moves
    floor: int = MIB  # nothing moves down below it: a boot loader may be there


@dataclass(frozen=True, slots=True)
class Choice:
    """For each item of the row, the index of the start grid to which it moves, or `_STAYS`."""

    cost: Cost
    picks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _State:
    """A placement of the items up to one of them."""

    cost: Cost
    end: int
    pick: int
    before: "_State | None"


def choose_moves(row: Row, room: Room) -> Choice | None:
    """Return the cheapest choice for which there is room; None if there is none."""
    states = [_State((0, 0, 0), room.extent.start, _STAYS, None)]
    keep = _MOST_STATES if len(row) <= EXACT_UP_TO else _STATES_OF_LONG_ROWS
    for item in row:
        states = _undominated([new for state in states for new in _next_states(state, item, room)], keep)
    if not states:
        return None
    last: _State | None = min(states, key=lambda state: (state.cost, state.end))
    cost = last.cost if last else (0, 0, 0)
    picks = []
    while last and last.before:
        picks.append(last.pick)
        last = last.before
    return Choice(cost, tuple(reversed(picks)))


def place_items(row: Row, room: Room, choice: Choice, lean: PlacePreference) -> dict[int, Extent]:
    """Return the place of every numbered item. `choice` is from `choose_moves`, so there is room."""
    latest = _latest_starts(row, room, choice)
    places: dict[int, Extent] = {}
    end = room.extent.start
    for item, pick, last in zip(row, choice.picks, latest, strict=True):
        start = item.extent.start
        if pick != _STAYS:
            start_grid = item.start_grids[pick]
            first = first_place(item, start_grid, end, room)
            start = _chosen_start(item, start_grid, first, last, lean)
        end = max(end, start + item.extent.length)
        if item.number is not None:
            places[item.number] = item.extent.moved_to(start)
    return places


def _next_states(state: _State, item: RowItem, room: Room) -> Iterator[_State]:
    if item.gives_way:
        yield _State(state.cost, max(state.end, item.extent.end), _STAYS, state)
        return
    if item.may_stay and state.end + item.lead <= item.extent.start:
        yield _State(state.cost, item.extent.end, _STAYS, state)
    size, count, halvings = state.cost
    for pick, start_grid in enumerate(item.start_grids):
        start = first_place(item, start_grid, state.end, room)
        if start + item.extent.length <= room.extent.end:
            cost = (size + item.cost, count + 1, halvings + pick)
            yield _State(cost, start + item.extent.length, pick, state)


def first_place(item: RowItem, start_grid: StartGrid, end: int, room: Room) -> int:
    """Return the first start after `end`. An item never moves down to a start below the floor of the room."""
    start = start_grid.up(max(end + item.lead, room.least_start))
    if start < min(item.extent.start, room.floor):
        start = start_grid.up(min(item.extent.start, room.floor))
    return start


def _undominated(states: list[_State], keep: int) -> list[_State]:
    """Return the states without those to which another state is equal or better in both cost and end."""
    states.sort(key=lambda state: (state.cost, state.end))
    kept: list[_State] = []
    for state in states:
        if not kept or state.end < kept[-1].end:
            kept.append(state)
    return kept if len(kept) <= keep else [*kept[: keep - 1], kept[-1]]


def _latest_starts(row: Row, room: Room, choice: Choice) -> list[int]:
    """Return the highest start of each item at which it pushes no item that stays."""
    latest: list[int] = []
    limit = room.extent.end
    for item, pick in zip(reversed(row), reversed(choice.picks), strict=True):
        start = item.extent.start
        if pick != _STAYS:
            start = item.start_grids[pick].down(limit - item.extent.length)
        latest.append(start)
        if not item.gives_way:
            limit = start - item.lead
    return latest[::-1]


def _chosen_start(item: RowItem, start_grid: StartGrid, first: int, last: int, lean: PlacePreference) -> int:
    if last <= first or lean is PlacePreference.LEFT:
        return first
    if lean is PlacePreference.RIGHT:
        return last
    here = item.extent.start
    near = {min(max(start, first), last) for start in (start_grid.down(here), start_grid.up(here))}
    return min(near, key=lambda start: (abs(start - here), start))
