"""In which order to copy: no target may cover a source that has not been copied yet.

In: old and new extents. Out: partition numbers. Alone because the safety of the whole move hangs on it.
"""

from collections.abc import Mapping

from aligntool.units import Extent


def copy_order(moves: Mapping[int, tuple[Extent, Extent]]) -> tuple[int, ...] | None:
    """`moves`: number -> (old, new). None when they want each other's places, which no order can serve.

    Where the order on the disk stays the same there always is one: who moves right into a neighbour's old place waits
    for a neighbour that moves right as well, and the last of them goes into free space; leftwards alike.
    """
    waiting = dict(sorted(moves.items()))
    order: list[int] = []
    while waiting:
        free = next((number for number in waiting if not _blocked(number, waiting)), None)
        if free is None:
            return None
        order.append(free)
        del waiting[free]
    return tuple(order)


def _blocked(number: int, waiting: Mapping[int, tuple[Extent, Extent]]) -> bool:
    target = waiting[number][1]
    return any(other != number and target.overlaps(source) for other, (source, _) in waiting.items())
