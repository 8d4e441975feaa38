"""Samples of one kind -> the boundaries that they show, or why none is believed.

In: the pairs of every level, quarter by quarter. Out: levels from which on a request pays more. Alone because the
rules for not believing are most of it: a false boundary is worse than none.

Medians and median absolute deviations throughout (a drive that collects garbage answers some requests a hundred times
later). The spread of a median is 1.2533 × 1.4826 × MAD / √n, as for a normal distribution.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot, sqrt
from statistics import fmean

from aligntool.bench.inference_design import QUARTERS, Dice

CERTAIN = 6.0  # a step must be so many times as high as its own uncertainty
IN_EACH = 3.0  # and so many times in every quarter alone
SMALLEST_SHARE = (
    0.02  # of the time of a request: less is not worth a boundary, and may come from the computer
)
CLEAN = 1 / 3  # of a step's height, within which the levels below it and above it must agree with each other
SPREAD = 1.858  # 1.2533 × 1.4826
TOO_FEW = "too few samples: --limit and --most can allow more"
FEWEST = 16  # samples in a cell

Pair = tuple[float, float]
"""What the request across the boundary took, and the one beside it. µs."""

Cells = Mapping[int, tuple[Sequence[Pair], ...]]
"""Level -> the pairs of each quarter."""


@dataclass(frozen=True, slots=True)
class Step:
    level: int  # bytes
    height_us: float


@dataclass(frozen=True, slots=True)
class Steps:
    """What was found; `why` says why nothing was."""

    steps: tuple[Step, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class _View:
    """One way to look at pairs: the penalty, how sure it is, its quartiles, and how high a step must be at least."""

    median: float
    error: float
    low: float
    high: float
    width: float


@dataclass(frozen=True, slots=True)
class _Level:
    """One level, looked at in one way: in every quarter, and as a whole."""

    size: int
    quarters: tuple[_View, ...]
    whole: _View

    @property
    def median(self) -> float:
        return self.whole.median

    @property
    def error(self) -> float:
        return self.whole.error


def middle(values: Sequence[float]) -> tuple[float, float]:
    """Median, and the uncertainty of it."""
    ordered = sorted(values)
    centre = _quantile(ordered, 0.5)
    deviation = _quantile(sorted(abs(value - centre) for value in ordered), 0.5)
    return centre, SPREAD * deviation / sqrt(len(ordered))


def _typical(pairs: Sequence[Pair]) -> _View:
    """The median of the differences: good where most requests go alike, whatever the few others do."""
    penalties = sorted(dear - cheap for dear, cheap in pairs)
    value, error = middle(penalties)
    return _View(value, error, _quantile(penalties, 0.25), _quantile(penalties, 0.75), 0.0)


def _fast(pairs: Sequence[Pair]) -> _View:
    """The difference of the lower quartiles: good where many requests are late for another reason (a busy computer, a
    mapping table that is not at hand), because what is late is later, never earlier.

    Its uncertainty is half of what lies between the ranks one standard deviation to both sides.
    """
    dear, cheap = sorted(pair[0] for pair in pairs), sorted(pair[1] for pair in pairs)
    off = sqrt(0.25 * 0.75 / len(pairs))
    spreads = [(_quantile(each, 0.25 + off) - _quantile(each, 0.25 - off)) / 2 for each in (dear, cheap)]
    value = _quantile(dear, 0.25) - _quantile(cheap, 0.25)
    return _View(value, hypot(*spreads), value, value, _quantile(cheap, 0.25) - _quantile(cheap, 0.1))


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def find_steps(cells: Cells, request_us: float) -> Steps:
    """Where the penalty of crossing begins, and where it grows. `request_us`: what a request takes that pays none."""
    return _agreed([_steps(_look(cells, view), SMALLEST_SHARE * request_us) for view in (_typical, _fast)])


def find_whole(cells: Cells, request_us: float) -> Steps:
    """The one size of which a half takes longer to write than the whole: below it all are parts, above it whole.

    A drive that must read before it writes a part of a unit shows this; one with a write cache does not.
    """
    return _agreed([_whole(_look(cells, view), SMALLEST_SHARE * request_us) for view in (_typical, _fast)])


def _agreed(found: Sequence[Steps]) -> Steps:
    """One way to look may see more than the other, but nothing else."""
    most = max(found, key=lambda steps: len(steps.steps))
    levels = {step.level for step in most.steps}
    if any({step.level for step in steps.steps} - levels for steps in found):
        return Steps((), "the typical requests and the fast ones tell of different sizes")
    return most


def _steps(seen: Sequence[_Level], floor: float) -> Steps:
    if len(seen) < 3:
        return Steps((), TOO_FEW)
    groups: list[list[_Level]] = [[seen[0]]]
    for level in seen[1:]:
        if _rises(groups[-1], level, floor):
            groups.append([level])
        else:
            groups[-1].append(level)
    if len(groups) > 1 and len(groups[-1]) == 1:
        groups.pop()  # only the largest boundary that was tried: nothing confirms it
    if len(groups) == 1:
        return Steps((), "no size from which on crossing a boundary takes longer")
    steps = []
    for low, high in pairwise(groups):
        why = _unclean(low, high)
        if why:
            return Steps((), why)
        steps.append(Step(high[0].size, _height(low, high)))
    return Steps(tuple(steps))


def _whole(seen: Sequence[_Level], floor: float) -> Steps:
    if len(seen) < 3:
        return Steps((), TOO_FEW)
    found = [
        level
        for level in seen
        if level.median > max(CERTAIN * level.error, floor, level.whole.width)
        and all(one.median > max(IN_EACH * one.error, floor) for one in level.quarters)
    ]
    if len(found) != 1:
        why = "several sizes are" if found else "no size is"
        return Steps((), f"{why} faster to write whole than in part")
    unit = found[0]
    limit = CLEAN * unit.median
    if any(abs(level.median) + 2 * level.error > limit for level in seen if level.size < unit.size):
        return Steps((), "writes of less than a unit do not take the same time")
    if any(level.median + 2 * level.error > limit for level in seen if level.size > unit.size):
        return Steps((), "writes of more than a unit do not take longer")
    return Steps((Step(unit.size, unit.median),))


def resampled(cells: Cells, dice: Dice) -> Cells:
    """Each cell drawn again from itself (bootstrap)."""
    return {
        level: tuple(dice.choices(quarter, k=len(quarter)) for quarter in quarters)
        for level, quarters in cells.items()
    }


def _look(cells: Cells, view: Callable[[Sequence[Pair]], _View]) -> list[_Level]:
    return [
        _Level(
            size, tuple(map(view, cells[size])), view([pair for quarter in cells[size] for pair in quarter])
        )
        for size in sorted(cells)
        if len(cells[size]) == QUARTERS and min(len(quarter) for quarter in cells[size]) >= FEWEST
    ]


def _rises(low: Sequence[_Level], level: _Level, floor: float) -> bool:
    """All in all, and in every quarter alone: in both regions, in both orders."""
    rise = level.median - fmean(one.median for one in low)
    least = max(floor, level.whole.width)
    if rise <= max(CERTAIN * hypot(_together(one.error for one in low), level.error), least):
        return False
    for index, quarter in enumerate(level.quarters):
        rise = quarter.median - fmean(one.quarters[index].median for one in low)
        unsure = hypot(_together(one.quarters[index].error for one in low), quarter.error)
        if rise <= max(IN_EACH * unsure, floor):
            return False
    return True


def _together(errors: Iterable[float]) -> float:
    """How sure the mean of as many is."""
    every = [error * error for error in errors]
    return sqrt(sum(every)) / len(every)


def _height(low: Sequence[_Level], high: Sequence[_Level]) -> float:
    return fmean(one.median for one in high) - fmean(one.median for one in low)


def _unclean(low: Sequence[_Level], high: Sequence[_Level]) -> str:
    """Why this is no step. Empty: it is one."""
    height = _height(low, high)
    limit = CLEAN * height
    for group, where in ((low, "below"), (high, "above")):
        centre = fmean(one.median for one in group)
        if any(abs(one.median - centre) + 2 * one.error > limit for one in group):
            return f"the penalty does not begin at one size: the sizes {where} it differ among themselves"
    if any(_differs(group, quarter, limit) for group in (low, high) for quarter in range(QUARTERS)):
        return "the regions of the disk, or the two orders, tell of different sizes"
    if not _moved_as_a_whole(low, high, height):
        return "only a part of the requests takes longer, as on units that are no power of two"
    return ""


def _differs(group: Sequence[_Level], quarter: int, limit: float) -> bool:
    """Whether one level of it lies apart from the others in this quarter, beyond doubt."""
    centre = fmean(one.quarters[quarter].median for one in group)
    return any(
        abs(one.quarters[quarter].median - centre) - IN_EACH * one.quarters[quarter].error > limit
        for one in group
    )


def _moved_as_a_whole(low: Sequence[_Level], high: Sequence[_Level], height: float) -> bool:
    """A quartile must rise with the median, and none by far more: where one crossing in three pays, none and one do."""
    rises = (
        fmean(one.whole.low for one in high) - fmean(one.whole.low for one in low),
        fmean(one.whole.high for one in high) - fmean(one.whole.high for one in low),
    )
    return max(rises) <= 2 * height and any(rise >= height / 2 for rise in rises)
