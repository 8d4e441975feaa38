"""Where a journal on the disk may lie: only where a search finds it if no entry and no marker leads to it.

Somebody may put back the old table and the old first bytes of a disk in flight. The journal alone shows then
that the contents are half-moved.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from aligntool.units import GIB, MIB, Extent, merged

GRID = 1 << 16  # bytes; journals begin at its multiples
LONGEST_USUAL = 64 * MIB  # bytes of a journal with the preferred sizes, at most
NEAR_THE_END = GIB // 4
NEAR_THE_START = GIB // 16
AROUND_DAMAGE = 16 * GIB  # bytes at each end of a disk, searched if its table is damaged
MOST_PARTITIONS = 256  # beside which is searched; Linux shows 255


def searched_places(
    size: int,
    partitions: Iterable[Extent],
    *,
    at_the_end: int = NEAR_THE_END,
    at_the_start: int = NEAR_THE_START,
) -> tuple[Extent, ...]:
    """Return where a search for a journal looks on a disk of so many bytes, from left to right: at both ends,
    before each partition, and on both sides of its end. `partitions`: those of the table from before.
    """
    found = [Extent(0, at_the_start), Extent(max(size - at_the_end, 0), at_the_end)]
    for each in islice(sorted(partitions), MOST_PARTITIONS):
        found.append(_before(each.start))
        found.append(_before(each.end))
        found.append(Extent(each.end, LONGEST_USUAL))
    return merged(found, Extent(0, size), GRID)


def usable_places(
    size: int, listed: Iterable[Extent], in_chains: Iterable[Extent]
) -> Iterator[tuple[Extent, ...]]:
    """Yield where a journal may lie, the preferred places first. `listed`: the partitions that sector 0 or
    the GPT lists; `in_chains`: those that only EBRs list.

    In flight, content is copied over EBRs. The places beside what only they list are found by a search for a
    damaged table.
    """
    listed = tuple(listed)
    yield searched_places(size, listed)
    ends = Extent(0, AROUND_DAMAGE), Extent(max(size - AROUND_DAMAGE, 0), AROUND_DAMAGE)
    beside = searched_places(size, (*listed, *in_chains))
    found = (place.clipped(end) for place in beside for end in merged(ends, Extent(0, size), GRID))
    yield tuple(place for place in found if place.length)


def _before(edge: int) -> Extent:
    start = max(edge - LONGEST_USUAL, 0)
    return Extent(start, edge - start)
