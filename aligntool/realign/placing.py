"""The cheapest places: an exact search over who moves and how finely, from left to right.

In: a row of things and the room they have. Out: where each partition goes, or nothing. Alone because it is the only
search here, and it knows nothing of disks.

Cheapest means: fewest bytes to copy, then fewest partitions moved, then the coarsest grain. The order on the disk
stays. From left to right a state is what was paid so far and where the last thing ends; of two states the one that
paid more and ends later is dropped. For long rows only a few states are kept, the one that ends first always among
them: so a way is found whenever there is one, if perhaps not the cheapest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from aligntool.realign.lattice import Lattice
from aligntool.realign.row import Thing
from aligntool.units import MIB, Extent

EXACT_UP_TO = 16  # things; all states are kept
_STATES_OF_LONG_ROWS = 6
_MOST_STATES = 1000
_STAYS = -1

Cost = tuple[int, int, int]
"""Bytes to copy, partitions that move, steps down from the grain."""


class Lean(Enum):
    """Which of the cheapest places to take."""

    NEAREST = "the shortest way"
    LEFT = "as far left as possible"
    RIGHT = "as far right as possible"


@dataclass(frozen=True, slots=True)
class Room:
    extent: Extent  # where partitions may lie
    least_start: int = 0  # no partition that moves may begin before
    floor: int = MIB  # nothing moves left below it: a boot loader may lie there


@dataclass(frozen=True, slots=True)
class Choice:
    """Who moves, and to which of its lattices; `_STAYS` for who stays. In the order of the row."""

    cost: Cost
    picks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _State:
    cost: Cost
    end: int
    pick: int
    before: "_State | None"


def choose(row: Sequence[Thing], room: Room) -> Choice | None:
    """The cheapest choice for which there is room; None when there is none."""
    states = [_State((0, 0, 0), room.extent.start, _STAYS, None)]
    keep = _MOST_STATES if len(row) <= EXACT_UP_TO else _STATES_OF_LONG_ROWS
    for thing in row:
        states = _best([after for state in states for after in _after(state, thing, room)], keep)
    if not states:
        return None
    last: _State | None = min(states, key=lambda state: (state.cost, state.end))
    cost, picks = (last.cost if last else (0, 0, 0)), []
    while last and last.before:
        picks.append(last.pick)
        last = last.before
    return Choice(cost, tuple(reversed(picks)))


def place(row: Sequence[Thing], room: Room, choice: Choice, lean: Lean) -> dict[int, Extent]:
    """Where everything goes that has a number. There is room: `choose` has found it."""
    latest = _latest(row, room, choice)
    places: dict[int, Extent] = {}
    end = room.extent.start
    for thing, pick, last in zip(row, choice.picks, latest, strict=True):
        start = thing.extent.start
        if pick != _STAYS:
            lattice = thing.lattices[pick]
            first = first_place(thing, lattice, end, room)
            start = _pick(thing, lattice, first, last, lean)
        end = max(end, start + thing.extent.length)
        if thing.number is not None:
            places[thing.number] = thing.extent.moved_to(start)
    return places


def _after(state: _State, thing: Thing, room: Room) -> Iterator[_State]:
    if thing.gives_way:
        yield _State(state.cost, max(state.end, thing.extent.end), _STAYS, state)
        return
    if thing.may_stay and state.end + thing.lead <= thing.extent.start:
        yield _State(state.cost, thing.extent.end, _STAYS, state)
    size, count, steps = state.cost
    for pick, lattice in enumerate(thing.lattices):
        start = first_place(thing, lattice, state.end, room)
        if start + thing.extent.length <= room.extent.end:
            cost = (size + thing.cost, count + 1, steps + pick)
            yield _State(cost, start + thing.extent.length, pick, state)


def first_place(thing: Thing, lattice: Lattice, end: int, room: Room) -> int:
    """Return the first place after `end`; none to the left of the thing lies below the room's floor."""
    start = lattice.up(max(end + thing.lead, room.least_start))
    if start < min(thing.extent.start, room.floor):
        start = lattice.up(min(thing.extent.start, room.floor))
    return start


def _best(states: list[_State], keep: int) -> list[_State]:
    """Without those that another one beats in cost and in end."""
    states.sort(key=lambda state: (state.cost, state.end))
    kept: list[_State] = []
    for state in states:
        if not kept or state.end < kept[-1].end:
            kept.append(state)
    return kept if len(kept) <= keep else [*kept[: keep - 1], kept[-1]]


def _latest(row: Sequence[Thing], room: Room, choice: Choice) -> list[int]:
    """How far right each one could go without pushing a thing that stays."""
    latest: list[int] = []
    limit = room.extent.end
    for thing, pick in zip(reversed(row), reversed(choice.picks), strict=True):
        start = thing.extent.start
        if pick != _STAYS:
            start = thing.lattices[pick].down(limit - thing.extent.length)
        latest.append(start)
        if not thing.gives_way:
            limit = start - thing.lead
    return latest[::-1]


def _pick(thing: Thing, lattice: Lattice, first: int, last: int, lean: Lean) -> int:
    if last <= first or lean is Lean.LEFT:
        return first
    if lean is Lean.RIGHT:
        return last
    here = thing.extent.start
    near = {min(max(point, first), last) for point in (lattice.down(here), lattice.up(here))}
    return min(near, key=lambda point: (abs(point - here), point))
