"""Levels of one kind of pairs -> the boundaries that they show, or why none is believed.

The rules for not believing are most of it: a false boundary is worse than none (docs/probing.md, docs/decisions/0019).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot
from statistics import fmean

from aligntool.bench.inference_design import Dice
from aligntool.bench.inference_views import Cells, Level, Sides, View, fast, look, together, typical
from aligntool.units import format_size

CERTAIN = 6.0  # a step must be so many times as high as its own uncertainty
IN_EACH = 3.0  # and so many times in every quarter and on each side alone
AMONG_MANY = (
    5.0  # and so many times must one quantile of one level contradict it to be more than chance among dozens
)
SMALLEST_SHARE = (
    0.02  # of the time of a request: less is not worth a boundary, and may come from the computer
)
CLEAN = 1 / 3  # of a step's height, within which the levels below it and above it must agree with each other
LEAST = 1 / 2  # of a step's height, that each part of the experiment must show
MOST = 2.0  # of a step's height, that no quantile may move
TOO_FEW = "too few samples: --limit and --most can allow more"
_LOWER, _UPPER = (0.1, 0.25), (0.5, 0.75)  # quantiles
_COMMON = (0.65,)  # below what a map that is not at hand, or a busy computer, makes late


@dataclass(frozen=True, slots=True)
class Step:
    level: int  # bytes
    height_us: float


@dataclass(frozen=True, slots=True)
class Steps:
    """What was found; `why` says why nothing was."""

    steps: tuple[Step, ...]
    why: str = ""


def find_steps(cells: Cells, control: Cells, request_us: float) -> Steps:
    """Return where the penalty of crossing begins, and where it grows. The control is in the pairs: both sides of the
    boundary. `request_us`: what a request takes that pays no penalty.
    """
    sides = Sides(cells)
    return _agreed([_steps(look(cells, way), sides, SMALLEST_SHARE * request_us) for way in (typical, fast)])


def find_whole(cells: Cells, control: Cells, request_us: float) -> Steps:
    """Return the one size of which a half takes longer to write than the whole: below it all are parts, above it whole.

    A drive that must read before it writes a part of a unit shows this; so does one that is slower for all writes below
    a size, wherever they lie. `control`: writes of the whole size shifted by half, which tell the two apart.
    """
    floor = SMALLEST_SHARE * request_us
    return _agreed([_whole(look(cells, way), look(control, way), floor) for way in (typical, fast)])


def resampled(cells: Cells, dice: Dice) -> Cells:
    """Each cell drawn again from itself (bootstrap)."""
    return {
        level: tuple(dice.choices(stratum, k=len(stratum)) for stratum in strata)
        for level, strata in cells.items()
    }


def _agreed(found: Sequence[Steps]) -> Steps:
    """One way to look may see more than the other, but nothing else."""
    most = max(found, key=lambda steps: len(steps.steps))
    levels = {step.level for step in most.steps}
    if any({step.level for step in steps.steps} - levels for steps in found):
        return Steps((), "the typical requests and the fast ones tell of different sizes")
    return most


def _steps(seen: Sequence[Level], sides: Sides, floor: float) -> Steps:
    if len(seen) < 3:
        return Steps((), TOO_FEW)
    groups: list[list[Level]] = [[seen[0]]]
    for level in seen[1:]:
        if _rises(groups[-1], level, floor):
            groups.append([level])
        else:
            groups[-1].append(level)
    if len(groups) > 1 and len(groups[-1]) == 1:
        groups.pop()  # only the largest boundary that was tried: nothing confirms it
    if len(groups) == 1:
        return Steps((), "no size from which on crossing a boundary takes longer")
    if min(map(len, groups)) < 2:
        return Steps((), "a penalty of one size alone, which no neighbouring size confirms")
    steps = []
    for low, high in pairwise(groups):
        why = _unclean(low, high, sides) or (_not_from_zero(low, high) if low is groups[0] else "")
        if why:
            return Steps((), why)
        steps.append(Step(high[0].size, _height(low, high)))
    return Steps(tuple(steps))


def _rises(low: Sequence[Level], level: Level, floor: float) -> bool:
    """All in all, and in every part of the experiment alone: in both regions, in both orders, beside the requests on
    either side.
    """
    rise = level.median - fmean(one.median for one in low)
    least = max(floor, level.whole.width)
    if rise <= max(CERTAIN * hypot(together(one.error for one in low), level.error), least):
        return False
    for index, margin in enumerate(level.margins):
        rise = margin.median - fmean(one.margins[index].median for one in low)
        unsure = hypot(together(one.margins[index].error for one in low), margin.error)
        if rise <= max(IN_EACH * unsure, floor):
            return False
    return True


def _height(low: Sequence[Level], high: Sequence[Level]) -> float:
    return fmean(one.median for one in high) - fmean(one.median for one in low)


def _unclean(low: Sequence[Level], high: Sequence[Level], sides: Sides) -> str:
    """Why this is no step. Empty: it is one."""
    height = _height(low, high)
    limit = CLEAN * height
    for group, where in ((low, "below"), (high, "above")):
        centre = fmean(one.median for one in group)
        if any(abs(one.median - centre) + 2 * one.error > limit for one in group):
            return f"the penalty does not begin at one size: the sizes {where} it differ among themselves"
    margins = range(len(low[0].margins))
    if any(_differs(group, margin, limit) for group in (low, high) for margin in margins):
        return "the regions of the disk, the two orders or the two sides tell of different sizes"
    if any(_margin_height(low, high, margin) < LEAST * height for margin in margins):
        return "a part of the disk is slower, and not the crossing: it takes as long beside the boundary"
    if not all(_moves_as_a_whole(low, high, height, sides, side) for side in (0, 1)):
        return "only a part of the requests takes longer, as on units that are no power of two"
    return ""


def _differs(group: Sequence[Level], margin: int, limit: float) -> bool:
    """Whether one level of it lies apart from the others in this part of the experiment, beyond doubt."""
    centre = fmean(one.margins[margin].median for one in group)
    return any(
        abs(one.margins[margin].median - centre) - IN_EACH * one.margins[margin].error > limit
        for one in group
    )


def _margin_height(low: Sequence[Level], high: Sequence[Level], margin: int) -> float:
    return fmean(one.margins[margin].median for one in high) - fmean(
        one.margins[margin].median for one in low
    )


def _not_from_zero(low: Sequence[Level], high: Sequence[Level]) -> str:
    """What crosses nothing pays nothing."""
    if abs(fmean(one.median for one in low)) <= CLEAN * _height(low, high):
        return ""
    return "the two requests of a pair differ where no boundary is crossed"


def _moves_as_a_whole(
    low: Sequence[Level], high: Sequence[Level], height: float, sides: Sides, side: int
) -> bool:
    """Return whether every request across takes longer by about as much, and none of those across a smaller boundary.
    Where one crossing in three pays, or four in five, or where places are slow by chance, only some quantiles move.
    If pages of two sizes are mixed, the size at which only some pay is the last one below the step or the first one.
    """
    least, most = LEAST * height, MOST * height
    before = sides.shifts(low, side, _LOWER + _UPPER)
    for group in (high, high[:1]):
        after = sides.shifts(group, side, _LOWER + _UPPER)
        rises = [
            View(two.median - one.median, hypot(one.error, two.error))
            for one, two in zip(before, after, strict=True)
        ]
        if any(one.median < least for one in rises[: len(_LOWER)]):
            return False
        if not all(_may_be(one, least, most) for one in rises):
            return False
    centre = fmean(one.median for one in low)
    return all(
        _may_be(one, centre + lowest, centre + highest, AMONG_MANY)
        for levels, shares, lowest, highest in ((low, _COMMON, -least, least), (high, _LOWER, least, most))
        for level in levels
        for one in sides.shifts([level], side, shares)
    )


def _may_be(view: View, least: float, most: float, times: float = IN_EACH) -> bool:
    """Whether it lies in there, as far as it is known."""
    return view.median + times * view.error >= least and view.median - times * view.error <= most


def _whole(seen: Sequence[Level], shifted: Sequence[Level], floor: float) -> Steps:
    if len(seen) < 3 or [one.size for one in seen] != [one.size for one in shifted]:
        return Steps((), TOO_FEW)
    found = [level for level in seen if _costs(level, floor)]
    if len(found) != 1:
        why = "several sizes are" if found else "no size is"
        return Steps((), f"{why} faster to write whole than in part")
    (unit,) = found
    if unit is seen[-1]:
        return Steps(
            (), "only the largest size that was tried is faster to write whole, and no larger one confirms it"
        )
    limit = CLEAN * unit.median
    if any(abs(level.median) + 2 * level.error > limit for level in seen if level.size < unit.size):
        return Steps((), "writes of less than a unit do not take the same time")
    if any(level.median + 2 * level.error > limit for level in seen if level.size > unit.size):
        return Steps((), "writes of more than a unit do not take longer")
    why = _not_by_place(unit, shifted, floor)
    return Steps((), why) if why else Steps((Step(unit.size, unit.median),))


def _costs(level: Level, floor: float) -> bool:
    """All in all, and in every part of the experiment alone."""
    return level.median > max(CERTAIN * level.error, floor, level.whole.width) and all(
        one.median > max(IN_EACH * one.error, floor, LEAST * level.median) for one in level.margins
    )


def _not_by_place(unit: Level, shifted: Sequence[Level], floor: float) -> str:
    """Why it is the size of a write that counts and not the place. Empty: shifted by half, the same size costs more,
    and no other size does.
    """
    size = format_size(unit.size)
    (same,) = (one for one in shifted if one.size == unit.size)
    if not _costs(same, floor) or same.median < LEAST * unit.median:
        return (
            f"writes of less than {size} take longer, but those of {size} take as long wherever they lie: "
            "a threshold of size, no unit"
        )
    limit = CLEAN * same.median
    if any(abs(one.median) + 2 * one.error > limit for one in shifted if one is not same):
        return f"writes shifted by half take longer, but not of {size} alone"
    return ""
