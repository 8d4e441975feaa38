"""Where the journal lies, and how it is divided.

In: the extents that must not be touched, and what the journal has to hold. Out: a place, or how much is missing. Alone
because its safety is an argument of its own: it lies where nothing lies before, during or after the move.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aligntool.plan import JournalPlace
from aligntool.units import KIB, MIB, Extent, align_down, align_up

STEP = 64 * KIB  # a journal starts on a multiple of it, so that it can be found by looking there
SHORT = 64 * KIB  # a move over less goes through the stash as a whole
_LEAST_COPY = 64 * KIB  # the least that a resume looks for
_LIKED_COPY = 4 * MIB
_HEADER = 64 * KIB  # positions, records, checksums
_PLAN = 8 * KIB  # of the plan's text for each partition, about
_ROOM_LIKED, _ROOM_TIGHT = 256 * KIB, 64 * KIB  # for the runs of used blocks
# Where there is little room, as measured: a head and two records; text and runs of a partition, compressed; entries.
_SMALL_HEADER, _SMALL_PLAN, _SMALL_TABLE = 12 * KIB, 4 * KIB, 4 * KIB
_COMPRESSES = 4  # what superblocks and empty sectors do at least; the mover refuses first where they do not
_LEAST_STASH = 64 * KIB


@dataclass(frozen=True, slots=True)
class Needs:
    """What a journal has to hold; bytes."""

    held: int  # of all partitions that move
    table: int  # of the sectors of the table, in one of its states
    partitions: int
    distances: tuple[int, ...]
    spots: int = 0  # of `held`, the sectors that a signature can lie in; 0: all of it

    @property
    def shortest(self) -> int:
        return min(self.distances)


def sizes(needs: Needs) -> tuple[tuple[int, int], ...]:
    """Return (bytes of a copy, bytes of the stash), the most liked first.

    With a small stash a move is cut into fewer lanes or smaller windows, and flushes more often; a small copy holds the
    sectors of signatures only, and the runs of used blocks with the gaps between them filled. Both are as safe.
    """
    content = _content(needs)
    liked = max(_LIKED_COPY, _power_of_two(content + _ROOM_LIKED))
    roomy, tight = _power_of_two(content + _ROOM_LIKED), _power_of_two(content + _ROOM_TIGHT)
    short = needs.shortest < SHORT
    stashes = [32 * MIB if short else 40 * MIB, *(size * MIB for size in (24, 16, 8, 4, 2, 1))]
    least = MIB if short else min(MIB, align_up(max(needs.distances), STEP))
    good = [stash for stash in stashes if stash >= least]
    small = [MIB // 2, 256 * KIB, 128 * KIB, _LEAST_STASH]
    spots = needs.spots or needs.held
    lean = [
        _power_of_two(_SMALL_HEADER + held + _SMALL_TABLE + needs.partitions * _SMALL_PLAN)
        for held in (spots, spots // _COMPRESSES)
    ]
    found = [(copy, stash) for stash in good for copy in (liked, roomy)]
    found += [(tight, stash) for stash in (*good, *small)]
    found += [(copy, stash) for copy in lean if copy < tight for stash in (*good, *small)]
    return tuple(dict.fromkeys(found))


def holds_all(place: JournalPlace, needs: Needs) -> bool:
    """Return whether a copy has room for all that is held, or for the sectors of signatures only."""
    return place.copy_length >= _content(needs)


def _content(needs: Needs) -> int:
    return _HEADER + needs.held + 3 * needs.table + needs.partitions * _PLAN


def free_runs(taken: Iterable[Extent], room: Extent) -> Iterator[Extent]:
    """What is free of all of `taken` inside `room`, cut to multiples of 64 KiB at its start; from left to right."""
    at = room.start
    for one in (*sorted(taken), Extent(room.end, 0)):
        start = align_up(at, STEP)
        end = min(one.start, room.end)
        if end > start:
            yield Extent(start, end - start)
        at = max(at, one.end)


def lay(runs: Iterable[Extent], needs: Needs) -> JournalPlace | None:
    """In the last run that has room for everything liked, else in the largest; None when it is too small too."""
    wanted = sizes(needs)
    free = sorted(runs)
    liked = next((run for run in reversed(free) if run.length >= _total(wanted[0])), None)
    run = liked or max(free, key=lambda one: (one.length, one.start), default=Extent(0, 0))
    fitting = next((pair for pair in wanted if _total(pair) <= run.length), None)
    if fitting is None:
        return None
    start = align_down(run.end - _total(fitting), STEP)
    return _divided(max(start, run.start), fitting)


def in_file(path: str, needs: Needs) -> JournalPlace:
    """The same from the first byte of a file, with all that is liked."""
    place = _divided(0, sizes(needs)[0])
    return JournalPlace(place.extent, place.copy_length, place.stash, path)


def least(needs: Needs) -> int:
    """Bytes of the smallest journal that would do."""
    return min(_total(pair) for pair in sizes(needs))


def _divided(start: int, pair: tuple[int, int]) -> JournalPlace:
    copy, stash = pair
    return JournalPlace(Extent(start, _total(pair)), copy, Extent(2 * copy, stash))


def _total(pair: tuple[int, int]) -> int:
    return 2 * pair[0] + pair[1]


def _power_of_two(size: int) -> int:
    return max(_LEAST_COPY, 1 << (size - 1).bit_length())
