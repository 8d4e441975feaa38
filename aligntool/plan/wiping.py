"""Where signatures of what lay on a drive before may be: at either end of what is on it, and of what will be.

In: extents. Out: the runs of bytes that are zeroed. Alone because a plan shows them and applying zeroes them, of new
tables and of the members of arrays alike.
"""

from collections.abc import Iterable

from aligntool.units import MIB, Extent, align_down, align_up

EDGE = MIB  # at either end


def wiped_ends(things: Iterable[Extent], within: Extent, sector_size: int) -> tuple[Extent, ...]:
    """Whole sectors, none outside `within`, sorted, and no two of them overlap. All in bytes, `sector_size` as well.

    Superblocks lie in the first MiB of a file system or in the last: ZFS has 512 KiB at either end, md 0.90 up to
    128 KiB from the end, LDM the last MiB.
    """
    ends = []
    for thing in things:
        start, end = max(thing.start, within.start), min(thing.end, within.end)
        ends += [(start, min(start + EDGE, end)), (max(end - EDGE, start), end)]
    merged: list[tuple[int, int]] = []
    for first, last in sorted(each for each in ends if each[0] < each[1]):
        start = max(align_down(first, sector_size), within.start)
        end = min(align_up(last, sector_size), within.end)
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(Extent(start, end - start) for start, end in merged)
