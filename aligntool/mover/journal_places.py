"""Where a journal on the disk may lie: only where a search finds it if no entry and no marker leads to it.

Somebody may put back the old table and the old first bytes of a disk in flight. The journal alone shows then
that the contents are half-moved.
"""

from collections.abc import Iterable
from itertools import islice

from aligntool.units import GIB, MIB, Extent, merged

GRID = 1 << 16  # bytes; journals begin at its multiples
LONGEST_USUAL = 64 * MIB  # bytes of a journal with the preferred sizes, at most
NEAR_THE_END = GIB // 4
NEAR_THE_START = GIB // 16
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


def _before(edge: int) -> Extent:
    start = max(edge - LONGEST_USUAL, 0)
    return Extent(start, edge - start)
