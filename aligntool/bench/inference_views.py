"""Timed pairs of one level -> its penalty, how sure that is, and how it comes out in each stratum of the experiment.

Medians and median absolute deviations throughout (a drive that collects garbage answers some requests a hundred times
later). The spread of a median is 1.2533 x 1.4826 x MAD / sqrt(n), as for a normal distribution; where the values come
in lumps (a clock that ticks coarsely), it is half of what lies between the ranks one standard deviation to both sides.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from statistics import fmean

from aligntool.bench.inference_design import QUARTERS, STRATA

SPREAD = 1.858  # 1.2533 x 1.4826
LUMPS = 2.0  # so many times as far apart as that, the ranks show that the values are no normal distribution
FEWEST = 8  # samples in a stratum

Pair = tuple[float, float]
"""What the request across the boundary took, and the one beside it. µs."""

Cells = Mapping[int, tuple[Sequence[Pair], ...]]
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


Way = Callable[[Sequence[Pair]], View]

_SIDES = (range(QUARTERS), range(QUARTERS, STRATA))
_MARGINS = {
    QUARTERS: tuple((quarter,) for quarter in range(QUARTERS)),
    STRATA: (*((quarter, quarter + QUARTERS) for quarter in range(QUARTERS)), *map(tuple, _SIDES)),
}


def look(cells: Cells, way: Way) -> list[Level]:
    """Return the levels with samples enough in every stratum, ascending."""
    return [
        _level(size, cells[size], way)
        for size in sorted(cells)
        if len(cells[size]) in _MARGINS and min(map(len, cells[size])) >= FEWEST
    ]


def _level(size: int, strata: tuple[Sequence[Pair], ...], way: Way) -> Level:
    return Level(
        size,
        way([pair for stratum in strata for pair in stratum]),
        tuple(way([pair for index in margin for pair in strata[index]]) for margin in _MARGINS[len(strata)]),
    )


def centred(cells: Cells) -> Cells:
    """Return the pairs without what all of a quarter have in common: the first request of a pair may take longer, and
    the median of both orders together would then be the one or the other by chance.
    """
    if not cells:
        return cells
    strata = len(next(iter(cells.values())))
    quarters = [
        fmean(
            middle([dear - cheap for pairs in levels[quarter::QUARTERS] for dear, cheap in pairs])[0]
            for levels in cells.values()
        )
        for quarter in range(QUARTERS)
    ]
    off = [quarters[index % QUARTERS] - fmean(quarters) for index in range(strata)]
    return {
        level: tuple(
            [(dear - off[index], cheap) for dear, cheap in pairs] for index, pairs in enumerate(of_level)
        )
        for level, of_level in cells.items()
    }


def typical(pairs: Sequence[Pair]) -> View:
    """The median of the differences: good where most requests go alike, whatever the few others do."""
    return View(*middle([dear - cheap for dear, cheap in pairs]))


def fast(pairs: Sequence[Pair]) -> View:
    """The difference of the lower quartiles: good where many requests are late for another reason (a busy computer, a
    mapping table that is not at hand), because what is late is later, never earlier.
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
        dear, cheap = [], []
        for level in levels:
            one, other = self._of(level.size, side)
            dear += one
            cheap += other
        if len(levels) > 1:
            dear.sort()
            cheap.sort()
        return [View(*_apart(dear, cheap, share)) for share in shares]

    def _of(self, size: int, side: int) -> tuple[list[float], list[float]]:
        if (size, side) not in self._sorted:
            pairs = [pair for index in _SIDES[side] for pair in self._cells[size][index]]
            self._sorted[size, side] = (
                sorted([one for one, _ in pairs]),
                sorted([other for _, other in pairs]),
            )
        return self._sorted[size, side]


def middle(values: Sequence[float]) -> tuple[float, float]:
    """Return the median, and the uncertainty of it."""
    ordered = sorted(values)
    centre = _quantile(ordered, 0.5)
    deviation = _quantile(sorted([abs(value - centre) for value in ordered]), 0.5)
    error, between = SPREAD * deviation / sqrt(len(ordered)), _unsure(ordered, 0.5)
    return centre, between if between > LUMPS * error else error


def together(errors: Iterable[float]) -> float:
    """How sure the mean of as many is."""
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
