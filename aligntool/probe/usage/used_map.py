"""Which bytes of a partition a move has to copy, and the care that is taken with every such answer.

In: the runs that a file system's own tool calls used. Out: a `UsedMap` that covers them and a little more. Alone
because this is the one place where "a little more" is decided: a byte that is missing here is lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from aligntool.units import KIB, MIB, Extent, align_down, align_up

EDGE = MIB  # of both ends is always copied: boot sectors, their copies, RAID and LVM remains
SMALLEST_GAP = 64 * KIB  # a shorter one costs more to leave out than to copy
MOST_RUNS = 65536


class NoMap(Exception):
    """A sentence: why a tool's answer is none, or is not believed."""


@dataclass(frozen=True, slots=True)
class UsedMap:
    """`runs` are counted from the partition's start, sorted, apart from each other, multiples of its sector size."""

    runs: tuple[Extent, ...]
    by: str  # "dumpe2fs", "everything: no map for crypto_LUKS"

    @property
    def bytes(self) -> int:
        return sum(run.length for run in self.runs)


def everything(length: int, why: str) -> UsedMap:
    """One run for a partition of `length` bytes, and the reason."""
    return UsedMap((Extent(0, length),), f"everything: {why}")


def with_edges(
    used: Iterable[Extent], length: int, *, known: int, sector_size: int, by: str, most_runs: int = MOST_RUNS
) -> UsedMap:
    """The runs of a partition of `length` bytes, of which the tool knows the first `known`.

    What lies behind these and both edges count as used. Raises NoMap when a run is outside the partition.
    """
    edges = (Extent(0, EDGE), Extent(length - EDGE, EDGE), Extent(known, length - known))
    spans = []
    for run in (*used, *edges):
        start, end = max(run.start, 0), min(run.end, length)
        if run not in edges and (start, end) != (run.start, run.end):
            raise NoMap(f"the run from {run.start} to {run.end} is outside the partition")
        if start < end:
            spans.append((align_down(start, sector_size), min(align_up(end, sector_size), length)))
    return UsedMap(_few(_joined(sorted(spans), SMALLEST_GAP), most_runs), by)


def _joined(spans: list[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    """Sorted spans; those with less than `gap` between them become one."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start - joined[-1][1] < gap:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _few(spans: list[tuple[int, int]], most: int) -> tuple[Extent, ...]:
    """At most `most` runs: the smallest gaps are filled first."""
    if len(spans) > most:
        gaps = sorted(after[0] - before[1] for before, after in pairwise(spans))
        spans = _joined(spans, gaps[len(spans) - most - 1] + 1)
    return tuple(Extent(start, end - start) for start, end in spans)
