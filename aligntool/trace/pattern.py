"""The access pattern that a log shows, as frozen values.

In: counts. Out: rows, histograms, crossings, and the arithmetic on them. Alone so that `render` and `cli` need not know
how it was counted. Sizes in bytes.
"""

from dataclasses import dataclass

from aligntool.trace.commands import Kind, Moment
from aligntool.trace.latency import Latency

Buckets = tuple[int, ...]
"""Number n counts what is over 2**(n-1) and at most 2**n; number 0 counts what is 1."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """A grid that requests are held against: the multiples of `size` shifted up by `phase`, in bytes of the log."""

    name: str
    size: int
    phase: int = 0


@dataclass(frozen=True, slots=True)
class Crossing:
    """Commands of one kind against one boundary."""

    boundary: Boundary
    off: int  # start off the grid
    straddling: int  # of those: touch a unit more than their size needs


@dataclass(frozen=True, slots=True)
class Row:
    """The commands of one kind. Of flushes and others, which have no range, only the count is not 0."""

    kind: Kind
    count: int
    bytes: int
    sequential: int
    random: int
    sizes: Buckets
    crossings: tuple[Crossing, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """`depths`: commands by how many were in flight on their device when they were sent, themselves counted; None: the
    log does not say when commands ended.
    """

    moment: Moment  # at which commands were counted
    sources: int  # devices or files
    rows: tuple[Row, ...]  # kinds that occur
    depths: Buckets | None
    latencies: tuple[Latency, ...] = ()  # of kinds that were seen to complete

    def count(self, kind: Kind) -> int:
        return next((row.count for row in self.rows if row.kind is kind), 0)

    @property
    def commands(self) -> int:
        return sum(row.count for row in self.rows)


def bucket(number: int) -> int:
    """The bucket of a number from 1 on: 1 → 0, 2 → 1, 3 and 4 → 2, 4096 → 12, 4097 → 13."""
    return (number - 1).bit_length()


def bucket_range(index: int) -> tuple[int, int]:
    """The first and the last number of a bucket."""
    return (1 << index - 1) + 1 if index else 1, 1 << index
