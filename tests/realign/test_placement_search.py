"""The search for places, on rows without a disk."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.realign.placing import PlacePreference, Room, RowItem, StartGrid, choose_moves, place_items
from aligntool.units import Extent

LATTICES = (StartGrid(16), StartGrid(8))
ROOM = Room(Extent(1, 139))


@st.composite
def rows(draw: st.DrawFn) -> tuple[RowItem, ...]:
    at, things = 1, []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        at += draw(st.integers(0, 12))
        length = draw(st.integers(1, 20))
        must = draw(st.booleans())
        start_grids = LATTICES if must or draw(st.booleans()) else ()
        lead = draw(st.sampled_from([0, 0, 1, 5])) if number > 1 else 0
        things.append(RowItem(Extent(at + lead, length), number, start_grids, not must, length, lead))
        at += lead + length
    return tuple(things)


@given(rows(), st.sampled_from(PlacePreference))
def test_places_keep_their_leads_and_stay_in_the_room_with_either_preference(
    row: tuple[RowItem, ...], lean: PlacePreference
) -> None:
    choice = choose_moves(row, ROOM)
    if choice is None:
        return
    places = place_items(row, ROOM, choice, lean)
    for one, other in pairwise(row):
        assert places[one.number or 0].end + other.lead <= places[other.number or 0].start
    assert all(ROOM.extent.contains(extent) for extent in places.values())
    for thing in row:
        start = places[thing.number or 0].start
        assert start == thing.extent.start or start % 8 == 0


@given(rows())
def test_no_cheaper_solution_exists(row: tuple[RowItem, ...]) -> None:
    """Compared with an exhaustive search of all places."""
    choice = choose_moves(row, ROOM)
    tried = [
        sum(
            thing.cost
            for thing, start in zip(row, starts, strict=True)
            if start != thing.extent.start or not thing.may_stay
        )
        for starts in product(*(_starts(thing) for thing in row))
        if _is_possible(row, starts)
    ]
    assert (choice.cost[0] if choice else None) == min(tried, default=None)


def _starts(thing: RowItem) -> list[int]:
    stays = [thing.extent.start] if thing.may_stay or thing.extent.start % 8 == 0 else []
    # Nothing moves left here: all of it is in the first MiB.
    return stays + [at for at in range(0, 140, 8) if thing.start_grids and at > thing.extent.start]


def _is_possible(row: tuple[RowItem, ...], starts: tuple[int, ...]) -> bool:
    end = ROOM.extent.start
    for thing, start in zip(row, starts, strict=True):
        if start < end + thing.lead:
            return False
        end = start + thing.extent.length
    return end <= ROOM.extent.end


@pytest.mark.parametrize("count", [20, 200])
def test_a_solution_for_a_long_row_is_found_if_one_exists(count: int) -> None:
    """Every item has to move right by one step of the grid, and there is just enough room."""
    row = tuple(RowItem(Extent(1 + 16 * index, 16), index + 1, (StartGrid(16),), False, 16) for index in range(count))
    exact = Room(Extent(0, 16 * (count + 1)))
    choice = choose_moves(row, exact)
    assert choice is not None
    assert [extent.start for extent in place_items(row, exact, choice, PlacePreference.NEAREST).values()] == [
        16 * (index + 1) for index in range(count)
    ]
    assert choose_moves(row, Room(Extent(0, 16 * (count + 1) - 1))) is None
