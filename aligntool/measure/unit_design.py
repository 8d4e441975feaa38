"""Design the timed pairs of a probe, and the views on their samples."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, product
from math import atan, cos, hypot, log, pi, sin, sqrt
from statistics import fmean, mean, variance
from typing import Protocol, TypeVar

from aligntool.units import GIB, KIB, MIB, Extent

# Which requests are timed to find the unit of a drive, and in which order.
#
# The idea is flashbench's (`flashbench -a`): a request across a boundary of the drive touches one more unit
# than a request beside it. A point that is an odd multiple of 2^k lies on a boundary of every unit up to 2^k
# and of none above, so the size from which on crossing costs time is the unit.

MOST = 8 * MIB  # the largest boundary that is looked for: allocation units of SD cards are 4 MiB and more
LARGEST_PART = 128 * KIB  # the largest write whose half is compared with it
ROUNDS = 8
PAIRS = 4  # of each level in each stratum of a round
QUARTERS = 4  # two regions, each with either request first
STRATA = 2 * QUARTERS  # each quarter on both sides of the boundary
LEAST_LEVELS = 6  # a step needs some below it and some above
FEWEST_POINTS = 12  # of one boundary in a region, or it is not looked for


T = TypeVar("T")


class Dice(Protocol):
    """What is needed of `random.Random`; a seeded one makes an experiment that can be repeated."""

    def randrange(self, start: int, stop: int | None = None, /) -> int: ...

    def choices(self, population: Sequence[T], *, k: int) -> list[T]: ...


class Kind(StrEnum):
    """What is compared in a pair."""

    READ = "read across"  # a read across a boundary, and one beside it
    WRITE = "write across"
    PART = "write part"  # a write of half a unit, and one of the whole: the half costs a read-modify-write
    SHIFT = "write shifted"  # two writes of a whole unit, one shifted by half: the control of PART


@dataclass(frozen=True, slots=True)
class Pair:
    """Two requests that are sent one after the other. Bytes, from the start of the device."""

    kind: Kind
    level: int  # the boundary that is asked about
    quarter: int  # the stratum: region + 2 if `dear` goes first + 4 for the other side of the boundary
    dear: Extent  # across the boundary, half of what is asked about, or shifted by half
    cheap: Extent
    dear_first: bool


Round = tuple[Pair, ...]
_WHOLE = (Kind.PART, Kind.SHIFT)
_Cell = tuple[Kind, int, int, int]
"""Kind, level, region, side."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A pair that was timed."""

    kind: Kind
    level: int
    quarter: int
    dear_us: float
    cheap_us: float


REGION = GIB // 2  # what the map of a drive without DRAM has at hand, and points enough of the largest

Regions = tuple[Extent, Extent]


def regions(room: Extent) -> Regions:
    """Its first and its last bytes, with a gap of an eighth between them at least."""
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
    """Places of a large disk among which two regions are chosen; of a small one, its two regions."""
    if size < 4 * REGION:
        return regions(Extent(0, size))
    count = min(size // REGION, MOST_WINDOWS)
    step = size // count // MOST * MOST
    return tuple(Extent(index * step, REGION) for index in range(count))


def fullest(of: Sequence[Extent], shares: Sequence[float]) -> Regions:
    """Return the two regions with the largest share of data, the first and the last one among equals."""
    first = max(range(len(of)), key=lambda index: (shares[index], -index))
    second = max((index for index in range(len(of)) if index != first), key=lambda index: (shares[index], index))
    return of[min(first, second)], of[max(first, second)]


def levels(sector: int, parts: Regions, most: int = MOST) -> tuple[int, ...]:
    """Return the sizes that are tested, from one sector up, each twice the one before, as far as both regions have
    points enough.

    A request has two sectors, so that of the first no boundary can be seen: what comes out there is noise, and says how
    much of it there is.
    """
    found = []
    level = sector
    while level <= most and all(len(_points(part, level, 2 * sector)) >= FEWEST_POINTS for part in parts):
        found.append(level)
        level *= 2
    return tuple(found)


def _points(region: Extent, level: int, request: int) -> range:
    """Each i with level × (2i + 1) in the region, and room for a request on both sides of that."""
    first = -(-(region.start + request - level) // (2 * level))
    return range(first, (region.end - request - level) // (2 * level) + 1)


def design(
    parts: Regions, sector: int, kinds: Sequence[Kind], dice: Dice, *, most: int = MOST, rounds: int = ROUNDS
) -> Iterator[Round]:
    """Yield rounds, each a whole experiment: all levels of all kinds, mixed, in both regions and on both sides; then
    the same cells in the reversed order at other places, with the other request of each pair first. An experiment that
    is cut short after some rounds is still a balanced one.

    `parts`: the bytes of the device that may be touched. `sector`: the smallest request. `most`: the largest boundary.
    PART brings its control along.
    """
    controlled = dict.fromkeys((*kinds, Kind.SHIFT) if Kind.PART in kinds else kinds)
    every = levels(sector, parts, most)
    whole = [level for level in every[1:] if level <= LARGEST_PART]
    asked = [(kind, level) for kind in controlled for level in (whole if kind in _WHOLE else every)]
    for _ in range(rounds):
        yield tuple(_round(asked, parts, sector, dice))


def _round(asked: Sequence[tuple[Kind, int]], parts: Regions, sector: int, dice: Dice) -> Iterator[Pair]:
    """Both regions in turn and mixed: what disturbs the computer for a moment must not hit one region alone."""
    cells = [
        (kind, level, region, side)
        for kind, level in asked
        for _, region, side in product(range(PAIRS), (0, 1), (0,) if kind is Kind.SHIFT else (0, 1))
    ]
    order = [(cell, dice.randrange(2) == 1) for cell in _mixed(cells, dice)]
    for cell, dear_first in order:
        yield _pair(cell, parts, sector, dice, dear_first=dear_first)
    for cell, dear_first in reversed(order):
        yield _pair(cell, parts, sector, dice, dear_first=not dear_first)


def _mixed(cells: Sequence[_Cell], dice: Dice) -> list[_Cell]:
    """Fisher and Yates."""
    mixed = list(cells)
    for last in range(len(mixed) - 1, 0, -1):
        other = dice.randrange(last + 1)
        mixed[last], mixed[other] = mixed[other], mixed[last]
    return mixed


def _pair(cell: _Cell, parts: Regions, sector: int, dice: Dice, *, dear_first: bool) -> Pair:
    """Both at places of the same kind, drawn again: nothing that was read before is read again on purpose."""
    kind, level, region, side = cell
    request = level if kind in _WHOLE else 2 * sector
    points = _points(parts[region], level, request)
    here, there = (level * (2 * dice.randrange(points.start, points.stop) + 1) for _ in "ab")
    match kind:
        case Kind.PART:  # both begin on the boundary, or both end there: neither crosses anything
            dear, cheap = Extent(here + side * level // 2, level // 2), Extent(there, level)
        case Kind.SHIFT:
            dear, cheap = Extent(here - level // 2, level), Extent(there, level)
        case _ if level == sector:  # across a point inside two sectors that belong together: beside every boundary
            dear, cheap = Extent(here - sector, request), Extent(there - sector, request)
        case _:
            dear, cheap = Extent(here - sector, request), Extent(there - side * request, request)
    return Pair(kind, level, region + 2 * dear_first + QUARTERS * side, dear, cheap, dear_first)


# Timed pairs of one level -> its penalty, how sure that is, and how it comes out in each stratum of the
# experiment.
#
# Medians and median absolute deviations throughout (a drive that collects garbage answers some requests a
# hundred times later). The spread of a median is 1.2533 x 1.4826 x MAD / sqrt(n), as for a normal
# distribution; where the values come in lumps (a clock that ticks coarsely), it is half of what lies between
# the ranks one standard deviation to both sides.

SPREAD = 1.858  # 1.2533 x 1.4826
LUMPS = 2.0  # so many times as far apart as that, the ranks show that the values follow no normal distribution
FEWEST = 8  # samples in a stratum

TimedPair = tuple[float, float]
"""What the request across the boundary took, and the one beside it. µs."""

Cells = Mapping[int, tuple[Sequence[TimedPair], ...]]
"""Level -> the pairs of each stratum."""


@dataclass(frozen=True, slots=True)
class View:
    """A penalty in µs, how sure it is, and how high a step must be at least."""

    median: float
    error: float
    width: float = 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """One level, looked at in one way: as a whole, and in parts of the experiment that must agree with it.

    `margins`: each quarter on both sides, then each side in all quarters; of a kind without sides, each quarter.
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


def look(cells: Cells, way: Way) -> list[Level]:
    """Return the levels with samples enough in every stratum, ascending."""
    return [
        Level(
            size, way([pair for stratum in strata for pair in stratum]),
            tuple(way([pair for index in margin for pair in strata[index]]) for margin in _MARGINS[len(strata)]),
        )
        for size, strata in sorted(cells.items())
        if len(strata) in _MARGINS and min(map(len, strata)) >= FEWEST
    ]  # fmt: skip


def centred(cells: Cells) -> Cells:
    """Return the pairs with the same mean difference in each quarter.

    The first request of a pair may take longer, and half of the quarters have the dear one first: without this, the
    median of all quarters together would be that of one order or the other, by chance.
    """
    if not cells:
        return cells
    usual = [_mean_difference(cells, quarter) for quarter in range(QUARTERS)]
    excess = [difference - fmean(usual) for difference in usual]
    return {level: tuple(_without_excess(strata, excess)) for level, strata in cells.items()}


def _mean_difference(cells: Cells, quarter: int) -> float:
    """Return the mean over all levels of the median difference in this quarter, on both sides of the boundary."""
    levels = (chain(*strata[quarter::QUARTERS]) for strata in cells.values())
    return fmean(middle([dear - cheap for dear, cheap in pairs])[0] for pairs in levels)


def _without_excess(strata: Sequence[Sequence[TimedPair]], excess: Sequence[float]) -> Iterator[list[TimedPair]]:
    """Yield each stratum with its dear requests shorter by the excess of its quarter."""
    for index, pairs in enumerate(strata):
        yield [(dear - excess[index % QUARTERS], cheap) for dear, cheap in pairs]


def typical(pairs: Sequence[TimedPair]) -> View:
    """Return the median of the differences in µs: good where most requests go alike, whatever the few others do."""
    return View(*middle([dear - cheap for dear, cheap in pairs]))


def fast(pairs: Sequence[TimedPair]) -> View:
    """Return the difference of the lower quartiles in µs: good where many requests are late for another reason (a busy
    computer, a mapping table that is not at hand), because what is late is later, never earlier.
    """
    dear, cheap = sorted([one for one, _ in pairs]), sorted([other for _, other in pairs])
    value, error = _apart(dear, cheap, 0.25)
    return View(value, error, _quantile(cheap, 0.25) - _quantile(cheap, 0.1))


class Sides:
    """The requests of each level on each side of the boundary, sorted once; both ways to look ask for them."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._sorted: dict[tuple[int, int], tuple[list[float], list[float]]] = {}

    def shifts(self, levels: Sequence[Level], side: int, shares: Sequence[float]) -> list[View]:
        """How far each quantile of the requests across lies from that of the requests beside, over all these levels."""
        known = [self._of(level.size, side) for level in levels]
        if len(known) == 1:
            dear, cheap = known[0]
        else:
            dear, cheap = (sorted(chain(*of_levels)) for of_levels in zip(*known, strict=True))
        return [View(*_apart(dear, cheap, share)) for share in shares]

    def _of(self, size: int, side: int) -> tuple[list[float], list[float]]:
        if (size, side) not in self._sorted:
            pairs = [pair for index in _SIDES[side] for pair in self._cells[size][index]]
            self._sorted[size, side] = (sorted([one for one, _ in pairs]), sorted([other for _, other in pairs]))
        return self._sorted[size, side]


def middle(values: Sequence[float]) -> tuple[float, float]:
    """Return the median, and the uncertainty of it."""
    ordered = sorted(values)
    centre = _quantile(ordered, 0.5)
    deviation = _quantile(sorted([abs(value - centre) for value in ordered]), 0.5)
    error, between = SPREAD * deviation / sqrt(len(ordered)), _unsure(ordered, 0.5)
    return centre, between if between > LUMPS * error else error


def together(errors: Iterable[float]) -> float:
    """Return the error of the mean of values with these errors."""
    every = list(errors)
    return hypot(*every) / len(every)


def _apart(dear: Sequence[float], cheap: Sequence[float], share: float) -> tuple[float, float]:
    """How far a quantile of the one lies from that of the other, and the uncertainty of it. Both are sorted."""
    value = _quantile(dear, share) - _quantile(cheap, share)
    return value, hypot(_unsure(dear, share), _unsure(cheap, share))


def _unsure(ordered: Sequence[float], share: float) -> float:
    """Half of what lies between the ranks one standard deviation to both sides of a quantile."""
    off = sqrt(share * (1 - share) / len(ordered))
    low, high = share - off if off < share else 0.0, share + off if share + off < 1 else 1.0
    return (_quantile(ordered, high) - _quantile(ordered, low)) / 2


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    here = ordered[low]
    return here + (ordered[low + 1] - here) * (place - low) if place > low else here


# Whether a difference may be noise: Student's t-test, and Holm's correction for multiple comparisons.

PROMISED = 0.05  # of all comparisons of a drive with itself may have a false line
LEAST_RUNS = 5
"""The spread of fewer is unknown: of three runs each, ranges that do not overlap come about by chance
once in ten times (2 of 20), of five each once in 126 times.
"""
_SLOWEST = 1e-9  # a rate of nothing has no logarithm


def welch_p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """That rates of the same drive differ so much or more, in either direction: Welch's t-test of their logarithms.

    At least two of each.
    """
    a, b = _logs(one), _logs(other)
    error_a, error_b = variance(a) / len(a), variance(b) / len(b)
    apart, error = abs(mean(a) - mean(b)), error_a + error_b
    if not error:
        return 0.0 if apart else 1.0
    freedom = error**2 / (error_a**2 / (len(a) - 1) + error_b**2 / (len(b) - 1))  # Welch-Satterthwaite
    return student_tails(apart / sqrt(error), int(freedom))


def loss_p_value(ratios: Sequence[float]) -> float:
    """That ratios whose logarithms are 0 on average lie so far below: a one-sided t-test. At least two."""
    logs = _logs(ratios)
    middle, error = mean(logs), sqrt(variance(logs) / len(logs))
    if not error:
        return 0.0 if middle < 0 else 1.0
    both = student_tails(abs(middle) / error, len(logs) - 1)
    return both / 2 if middle < 0 else 1 - both / 2


def holm(chances: Sequence[float]) -> tuple[float, ...]:
    """Each so much larger that below PROMISED there is a false one with a chance of PROMISED, however many there are
    (S. Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979).
    """
    order = sorted(range(len(chances)), key=lambda place: chances[place])
    found, largest = [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[place]))
        found[place] = largest
    return tuple(found)


def student_tails(t: float, freedom: int) -> float:
    """Return the share of Student's distribution beyond t and -t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
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
