"""Design the timed pairs of a probe, and the statistics of their samples."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, product
from math import atan, cos, hypot, log, pi, sin, sqrt
from statistics import fmean, mean, variance
from typing import Protocol, TypeVar

from aligntool.units import GIB, KIB, MIB, Extent

# The requests that are timed to find the unit of a drive, and their order.
#
# The idea is that of flashbench (`flashbench -a`): a request across a boundary of the drive touches one more
# unit than a request beside it. A point that is an odd multiple of 2^k is on a boundary of every unit up to
# 2^k and of no larger one, so the size from which on crossing costs time is the unit.

MOST = 8 * MIB  # the largest boundary that is tested: allocation units of SD cards are 4 MiB and more
LARGEST_PART = 128 * KIB  # the largest write that is compared with its half
ROUNDS = 8
PAIRS = 4  # of each level in each stratum of a round
QUARTERS = 4  # two regions, each with either request first
STRATA = 2 * QUARTERS  # each quarter on both sides of the boundary
LEAST_LEVELS = 6  # a step needs levels below it and above it
FEWEST_POINTS = 12  # of a boundary in each region; a boundary with fewer is not tested


T = TypeVar("T")


class RandomSource(Protocol):
    """The part of `random.Random` that is used; with a seeded one an experiment can be repeated."""

    def randrange(self, start: int, stop: int | None = None, /) -> int: ...

    def choices(self, population: Sequence[T], *, k: int) -> list[T]: ...


class Kind(StrEnum):
    """The two requests that a pair compares."""

    READ = "read across"  # a read across a boundary, and one beside it
    WRITE = "write across"
    # a write of half a unit, and one of the whole unit: the half costs a read-modify-write
    PART = "write part"
    SHIFT = "write shifted"  # two writes of a whole unit, one shifted by half: the control of PART


@dataclass(frozen=True, slots=True)
class Pair:
    """Two requests that are sent one after the other; `slower` is the one that should take longer. Extents in
    bytes of the device.
    """

    kind: Kind
    level: int  # the tested boundary
    quarter: int  # the stratum: region + 2 if `slower` is first + 4 for the other side of the boundary
    slower: Extent  # across the boundary, half of the tested size, or shifted by half
    faster: Extent
    slower_first: bool


Round = tuple[Pair, ...]
_WHOLE_UNIT = (Kind.PART, Kind.SHIFT)
_Cell = tuple[Kind, int, int, int]
"""Kind, level, region, side."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A pair that was timed."""

    kind: Kind
    level: int
    quarter: int
    slower_us: float
    faster_us: float


# a drive without DRAM has the map of it in memory; and it has enough points of the largest boundary
REGION = GIB // 2

Regions = tuple[Extent, Extent]


def regions(room: Extent) -> Regions:
    """Return two regions at the start and the end of `room`, with a gap of at least an eighth between
    them.
    """
    length = min(room.length * 7 // 16, REGION)
    return Extent(room.start, length), Extent(room.end - length, length)


def regions_among(extents: Sequence[Extent]) -> Regions:
    """Return the two longest regions, or two parts of the longest one, whichever gives the longer pair."""
    ordered = sorted(extents, key=lambda extent: -extent.length)
    parts = regions(ordered[0])
    if len(ordered) > 1 and min(ordered[1].length, REGION) > parts[0].length:
        one, other = (Extent(extent.start, min(extent.length, REGION)) for extent in ordered[:2])
        return one, other
    return parts


MOST_WINDOWS = 32


def windows(size: int) -> tuple[Extent, ...]:
    """Return the candidates of a large disk, among which two regions are chosen; for a small disk, its two
    regions.
    """
    if size < 4 * REGION:
        return regions(Extent(0, size))
    count = min(size // REGION, MOST_WINDOWS)
    step = size // count // MOST * MOST
    return tuple(Extent(index * step, REGION) for index in range(count))


def regions_with_most_data(of: Sequence[Extent], shares: Sequence[float]) -> Regions:
    """Return the two regions with the largest shares of data; among equals, the first and the last one."""
    first = max(range(len(of)), key=lambda index: (shares[index], -index))
    second = max(
        (index for index in range(len(of)) if index != first), key=lambda index: (shares[index], index)
    )
    return of[min(first, second)], of[max(first, second)]


def levels(sector: int, parts: Regions, most: int = MOST) -> tuple[int, ...]:
    """Return the sizes to test, doubling from one sector up, as long as both regions have enough points.

    A request has two sectors, so the first size cannot show a boundary: its result is noise, and shows how
    large the noise is.
    """
    found = []
    level = sector
    while level <= most and all(len(_points(part, level, 2 * sector)) >= FEWEST_POINTS for part in parts):
        found.append(level)
        level *= 2
    return tuple(found)


def _points(region: Extent, level: int, request: int) -> range:
    """Return every i with level × (2i + 1) in the region and room for a request on both sides of that
    point.
    """
    first = -(-(region.start + request - level) // (2 * level))
    return range(first, (region.end - request - level) // (2 * level) + 1)


def design(
    parts: Regions,
    sector: int,
    kinds: Sequence[Kind],
    rng: RandomSource,
    *,
    most: int = MOST,
    rounds: int = ROUNDS,
) -> Iterator[Round]:
    """Yield rounds, each a complete experiment: all levels of all kinds, shuffled, in both regions and on
    both sides; then the same cells in reverse order at other places, with the other request of each pair
    first. An experiment that ends early after some rounds is therefore still balanced.

    `parts`: the bytes of the device that may be used. `sector`: the smallest request. `most`: the largest
    boundary. PART includes its control, SHIFT.
    """
    controlled = dict.fromkeys((*kinds, Kind.SHIFT) if Kind.PART in kinds else kinds)
    sizes = levels(sector, parts, most)
    unit_sizes = [level for level in sizes[1:] if level <= LARGEST_PART]
    tested = [
        (kind, level) for kind in controlled for level in (unit_sizes if kind in _WHOLE_UNIT else sizes)
    ]
    for _ in range(rounds):
        yield tuple(_round(tested, parts, sector, rng))


def _round(
    tested: Sequence[tuple[Kind, int]], parts: Regions, sector: int, rng: RandomSource
) -> Iterator[Pair]:
    """Yield the pairs of a round. Both regions are shuffled together, so that a short disturbance of the
    computer does not affect one region alone.
    """
    cells = [
        (kind, level, region, side)
        for kind, level in tested
        for _, region, side in product(range(PAIRS), (0, 1), (0,) if kind is Kind.SHIFT else (0, 1))
    ]
    order = [(cell, rng.randrange(2) == 1) for cell in _shuffled(cells, rng)]
    for cell, slower_first in order:
        yield _pair(cell, parts, sector, rng, slower_first=slower_first)
    for cell, slower_first in reversed(order):
        yield _pair(cell, parts, sector, rng, slower_first=not slower_first)


def _shuffled(cells: Sequence[_Cell], rng: RandomSource) -> list[_Cell]:
    """Return the cells in random order (Fisher and Yates)."""
    shuffled = list(cells)
    for last in range(len(shuffled) - 1, 0, -1):
        other = rng.randrange(last + 1)
        shuffled[last], shuffled[other] = shuffled[other], shuffled[last]
    return shuffled


def _pair(cell: _Cell, parts: Regions, sector: int, rng: RandomSource, *, slower_first: bool) -> Pair:
    """Return a pair at two random places of the same kind; no place is deliberately used twice."""
    kind, level, region, side = cell
    request = level if kind in _WHOLE_UNIT else 2 * sector
    points = _points(parts[region], level, request)
    here, there = (level * (2 * rng.randrange(points.start, points.stop) + 1) for _ in "ab")
    match kind:
        case Kind.PART:  # both begin on a boundary, or both end on one: neither crosses anything
            slower = Extent(here + side * level // 2, level // 2)
            faster = Extent(there, level)
        case Kind.SHIFT:
            slower = Extent(here - level // 2, level)
            faster = Extent(there, level)
        # across a point within a pair of sectors: both requests are beside every boundary
        case _ if level == sector:
            slower = Extent(here - sector, request)
            faster = Extent(there - sector, request)
        case _:
            slower = Extent(here - sector, request)
            faster = Extent(there - side * request, request)
    return Pair(kind, level, region + 2 * slower_first + QUARTERS * side, slower, faster, slower_first)


# Timed pairs of one level -> its penalty, the uncertainty of that, and the same in each stratum of the
# experiment.
#
# Medians and median absolute deviations are used throughout, because a drive that collects garbage answers
# some requests a hundred times later. The uncertainty of a median is 1.2533 x 1.4826 x MAD / sqrt(n), as for
# a normal distribution; if the values are lumped (by a coarse clock), it is half of the distance between the
# ranks one standard deviation to both sides.

SPREAD = 1.858  # 1.2533 x 1.4826
LUMPS = 2.0  # times that uncertainty: if the ranks are further apart, the values are not normally distributed
FEWEST = 8  # samples in a stratum

TimedPair = tuple[float, float]
"""The times of the request across the boundary and of the one beside it, in µs."""

Cells = Mapping[int, tuple[Sequence[TimedPair], ...]]
"""Level -> the pairs of each stratum."""


@dataclass(frozen=True, slots=True)
class View:
    """A penalty in µs, its uncertainty, and the least height of a step."""

    median: float
    error: float
    width: float = 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """One level by one statistic: as a whole, and in parts of the experiment that must agree with it.

    `margins`: each quarter on both sides, then each side in all quarters; for a kind without sides, each
    quarter.
    """

    size: int
    whole: View
    margins: tuple[View, ...]

    @property
    def median(self) -> float:
        return self.whole.median

    @property
    def error(self) -> float:
        return self.whole.error


Way = Callable[[Sequence[TimedPair]], View]

_SIDES = (range(QUARTERS), range(QUARTERS, STRATA))
_MARGINS = {
    QUARTERS: tuple((quarter,) for quarter in range(QUARTERS)),
    STRATA: (*((quarter, quarter + QUARTERS) for quarter in range(QUARTERS)), *map(tuple, _SIDES)),
}


def level_views(cells: Cells, way: Way) -> list[Level]:
    """Return the levels with enough samples in every stratum, ascending."""
    return [
        Level(
            size,
            way([pair for stratum in strata for pair in stratum]),
            tuple(
                way([pair for index in margin for pair in strata[index]]) for margin in _MARGINS[len(strata)]
            ),
        )
        for size, strata in sorted(cells.items())
        if len(strata) in _MARGINS and min(map(len, strata)) >= FEWEST
    ]


def centred(cells: Cells) -> Cells:
    """Return the pairs shifted to the same mean difference in each quarter.

    The first request of a pair may take longer, and half of the quarters have the slower one first: without
    this, the median of all quarters together would be that of one order or the other, by chance.
    """
    if not cells:
        return cells
    differences = [_mean_difference(cells, quarter) for quarter in range(QUARTERS)]
    excess = [difference - fmean(differences) for difference in differences]
    return {level: tuple(_without_excess(strata, excess)) for level, strata in cells.items()}


def _mean_difference(cells: Cells, quarter: int) -> float:
    """Return the mean over all levels of the median difference in this quarter, on both sides of the
    boundary.
    """
    levels = (chain(*strata[quarter::QUARTERS]) for strata in cells.values())
    return fmean(median_and_error([slower - faster for slower, faster in pairs])[0] for pairs in levels)


def _without_excess(
    strata: Sequence[Sequence[TimedPair]], excess: Sequence[float]
) -> Iterator[list[TimedPair]]:
    """Yield each stratum with its slower requests shorter by the excess of its quarter."""
    for index, pairs in enumerate(strata):
        yield [(slower - excess[index % QUARTERS], faster) for slower, faster in pairs]


def typical(pairs: Sequence[TimedPair]) -> View:
    """Return the median of the differences in µs: robust if most requests are alike, whatever the few others
    do.
    """
    return View(*median_and_error([slower - faster for slower, faster in pairs]))


def fast(pairs: Sequence[TimedPair]) -> View:
    """Return the difference of the lower quartiles in µs: robust if many requests are late for another reason
    (a busy computer, a mapping table that is not in memory), because such a request is later, never earlier.
    """
    slower = sorted([first for first, _ in pairs])
    faster = sorted([second for _, second in pairs])
    value, error = _quantile_difference(slower, faster, 0.25)
    return View(value, error, _quantile(faster, 0.25) - _quantile(faster, 0.1))


class Sides:
    """The requests of each level on each side of the boundary, sorted once for all statistics."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._sorted: dict[tuple[int, int], tuple[list[float], list[float]]] = {}

    def shifts(self, levels: Sequence[Level], side: int, shares: Sequence[float]) -> list[View]:
        """Return how much later each quantile of the requests across is than that of the requests beside,
        over all these levels.
        """
        requests = [self._sorted_requests(level.size, side) for level in levels]
        if len(requests) == 1:
            slower, faster = requests[0]
        else:
            slower, faster = (sorted(chain(*of_levels)) for of_levels in zip(*requests, strict=True))
        return [View(*_quantile_difference(slower, faster, share)) for share in shares]

    def _sorted_requests(self, size: int, side: int) -> tuple[list[float], list[float]]:
        if (size, side) not in self._sorted:
            pairs = [pair for index in _SIDES[side] for pair in self._cells[size][index]]
            self._sorted[size, side] = (
                sorted([slower for slower, _ in pairs]),
                sorted([faster for _, faster in pairs]),
            )
        return self._sorted[size, side]


def median_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and its uncertainty."""
    ordered = sorted(values)
    centre = _quantile(ordered, 0.5)
    deviation = _quantile(sorted([abs(value - centre) for value in ordered]), 0.5)
    error = SPREAD * deviation / sqrt(len(ordered))
    by_ranks = _uncertainty(ordered, 0.5)
    return centre, by_ranks if by_ranks > LUMPS * error else error


def error_of_mean(errors: Iterable[float]) -> float:
    """Return the error of the mean of values with these errors."""
    values = list(errors)
    return hypot(*values) / len(values)


def _quantile_difference(
    slower: Sequence[float], faster: Sequence[float], share: float
) -> tuple[float, float]:
    """Return the difference of a quantile of `slower` and that of `faster`, and its uncertainty. Both are
    sorted.
    """
    value = _quantile(slower, share) - _quantile(faster, share)
    return value, hypot(_uncertainty(slower, share), _uncertainty(faster, share))


def _uncertainty(ordered: Sequence[float], share: float) -> float:
    """Return half of the distance between the ranks one standard deviation to both sides of a quantile."""
    deviation = sqrt(share * (1 - share) / len(ordered))
    low, high = (
        share - deviation if deviation < share else 0.0,
        share + deviation if share + deviation < 1 else 1.0,
    )
    return (_quantile(ordered, high) - _quantile(ordered, low)) / 2


def _quantile(ordered: Sequence[float], share: float) -> float:
    rank = share * (len(ordered) - 1)
    low = int(rank)
    value = ordered[low]
    return value + (ordered[low + 1] - value) * (rank - low) if rank > low else value


# Test whether a difference may be noise: Student's t-test, and Holm's correction for multiple comparisons.

FALSE_LINE_RATE = 0.05  # of all comparisons of a drive with itself may have a false line
LEAST_RUNS = 5
"""The spread of fewer runs is unknown: with three runs each, ranges that do not overlap occur by chance once
in ten times (2 of 20), with five each once in 126 times.
"""
_SLOWEST = 1e-9  # a rate of 0 has no logarithm


def welch_p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the probability that rates of the same drive differ as much or more, in either direction:
    Welch's t-test of their logarithms.

    Each sequence needs at least two rates.
    """
    a = _logs(one)
    b = _logs(other)
    error_a = variance(a) / len(a)
    error_b = variance(b) / len(b)
    difference = abs(mean(a) - mean(b))
    error = error_a + error_b
    if not error:
        return 0.0 if difference else 1.0
    freedom = error**2 / (error_a**2 / (len(a) - 1) + error_b**2 / (len(b) - 1))  # Welch-Satterthwaite
    return student_tails(difference / sqrt(error), int(freedom))


def loss_p_value(ratios: Sequence[float]) -> float:
    """Return the probability that ratios are as far below 1 or further although their logarithms are 0 on
    average: a one-sided t-test. At least two ratios are needed.
    """
    logs = _logs(ratios)
    middle = mean(logs)
    error = sqrt(variance(logs) / len(logs))
    if not error:
        return 0.0 if middle < 0 else 1.0
    both = student_tails(abs(middle) / error, len(logs) - 1)
    return both / 2 if middle < 0 else 1 - both / 2


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return the p-values, each increased so that the probability of any false one below FALSE_LINE_RATE is
    at most that rate, for any number of them (S. Holm, A Simple Sequentially Rejective Multiple Test
    Procedure, 1979).
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return tuple(adjusted)


def student_tails(t: float, freedom: int) -> float:
    """Return the share of Student's distribution beyond t and -t (Abramowitz and Stegun, 26.7.3 and
    26.7.4).
    """
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term, total = (cos(angle), cos(angle) if freedom > 1 else 0.0) if odd else (1.0, 1.0)
    for step in range(3 if odd else 2, freedom - 1, 2):
        term *= cos(angle) ** 2 * (step - 1) / step
        total += term
    within = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return max(0.0, 1 - within)


def _logs(rates: Sequence[float]) -> list[float]:
    return [log(max(rate, _SLOWEST)) for rate in rates]
