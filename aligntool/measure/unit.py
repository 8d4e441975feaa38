"""Infer a flash unit from timed pairs, or state why it is unknown; the kept file."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import hypot
from statistics import fmean, median

from aligntool.audit.report import CONFIDENT, PROBE_SCHEMA, PROBE_VERSION
from aligntool.documents import as_json, as_object
from aligntool.measure import unit_design as design
from aligntool.measure.unit_design import Cells, Dice, Kind, Level, Sample, View
from aligntool.units import Extent, format_size

# Levels of one kind of pairs -> the boundaries that they show, or why none is believed.
#
# The rules for not believing are most of it: a false boundary is worse than none (docs/probing.md,
# docs/decisions/0019).

CERTAIN = 6.0  # a step must be so many times as high as its own uncertainty
IN_EACH = 3.0  # and so many times in every quarter and on each side alone
AMONG_MANY = 5.0  # and so many times must one quantile of one level contradict it to be more than chance among dozens
SMALLEST_SHARE = 0.02  # of the time of a request: less is not worth a boundary, and may come from the computer
CLEAN = 1 / 3  # of a step's height, within which the levels below it and above it must agree with each other
LEAST = 1 / 2  # of a step's height, that each part of the experiment must show
MOST = 2.0  # of a step's height, that no quantile may move
TOO_FEW = "too few samples: --limit and --most can allow more"
_WAYS = (design.typical, design.fast)
_LOWER, _UPPER = (0.1, 0.25), (0.5, 0.75)  # quantiles
_COMMON = (0.65,)  # below what a map that is not at hand, or a busy computer, makes late


@dataclass(frozen=True, slots=True)
class Steps:
    """What was found, or why nothing was."""

    heights_us: dict[int, float]  # by the level in bytes
    why: str = ""


def find(kind: Kind, cells: Cells, control: Cells, request_us: float) -> Steps:
    """Return the boundaries that pairs of one kind show. `request_us`: what a request takes that pays no penalty.

    READ and WRITE: where the penalty of crossing begins, and where it grows; the control is in the pairs, on both sides
    of the boundary. PART: the one size of which a half takes longer to write than the whole: below it all are parts,
    above it whole. A drive that must read before it writes a part of a unit shows this; so does one that is slower for
    all writes below a size, wherever they lie. `control`: writes of the whole size shifted by half, which tell the two
    apart.
    """
    floor, sides = SMALLEST_SHARE * request_us, design.Sides(cells)
    if kind is Kind.SHIFT:
        return Steps({})
    if kind is Kind.PART:
        found = [_whole(design.look(cells, way), design.look(control, way), floor) for way in _WAYS]
    else:
        found = [_steps(design.look(cells, way), sides, floor) for way in _WAYS]
    most = max(found, key=lambda steps: len(steps.heights_us))
    if any(steps.heights_us.keys() - most.heights_us for steps in found):  # one way may see more, but nothing else
        return Steps({}, "the typical requests and the fast ones indicate different sizes")
    return most


def resampled(cells: Cells, dice: Dice) -> Cells:
    """Return each cell resampled with replacement from itself (bootstrap)."""
    return {level: tuple(dice.choices(one, k=len(one)) for one in strata) for level, strata in cells.items()}


def _steps(seen: Sequence[Level], sides: design.Sides, floor: float) -> Steps:
    if len(seen) < 3:
        return Steps({}, TOO_FEW)
    groups: list[list[Level]] = [[seen[0]]]
    for level in seen[1:]:
        if _rises(groups[-1], level, floor):
            groups.append([level])
        else:
            groups[-1].append(level)
    if len(groups) > 1 and len(groups[-1]) == 1:
        groups.pop()  # only the largest boundary that was tried: nothing confirms it
    if len(groups) == 1:
        return Steps({}, "no size from which on crossing a boundary takes longer")
    if min(map(len, groups)) < 2:
        return Steps({}, "a penalty of one size alone, which no neighbouring size confirms")
    heights_us = {}
    for low, high in pairwise(groups):
        if why := _unclean(low, high, sides):
            return Steps({}, why)
        if low is groups[0] and abs(_centre(low)) > CLEAN * _height(low, high):  # what crosses nothing pays nothing
            return Steps({}, "the two requests of a pair differ where no boundary is crossed")
        heights_us[high[0].size] = _height(low, high)
    return Steps(heights_us)


def _rises(low: Sequence[Level], level: Level, floor: float) -> bool:
    """All in all, and in every part of the experiment alone: in both regions, in both orders, beside the requests on
    either side.
    """
    rise = level.median - _centre(low)
    least = max(floor, level.whole.width)
    if rise <= max(CERTAIN * hypot(design.together(one.error for one in low), level.error), least):
        return False
    for index, margin in enumerate(level.margins):
        rise = margin.median - _centre(low, index)
        unsure = hypot(design.together(one.margins[index].error for one in low), margin.error)
        if rise <= max(IN_EACH * unsure, floor):
            return False
    return True


def _centre(group: Sequence[Level], margin: int | None = None) -> float:
    return fmean((one.whole if margin is None else one.margins[margin]).median for one in group)


def _height(low: Sequence[Level], high: Sequence[Level], margin: int | None = None) -> float:
    return _centre(high, margin) - _centre(low, margin)


def _unclean(low: Sequence[Level], high: Sequence[Level], sides: design.Sides) -> str:
    """Return why this is not a step; "": it is one."""
    height = _height(low, high)
    limit = CLEAN * height
    for group, where in ((low, "below"), (high, "above")):
        centre = _centre(group)
        if any(abs(one.median - centre) + 2 * one.error > limit for one in group):
            return f"the penalty does not begin at one size: the sizes {where} it differ among themselves"
    margins = range(len(low[0].margins))
    parts = [(each.margins[at], _centre(group, at)) for group in (low, high) for at in margins for each in group]
    if any(abs(one.median - centre) - IN_EACH * one.error > limit for one, centre in parts):  # beyond doubt
        return "the regions of the disk, the two orders or the two sides indicate different sizes"
    if any(_height(low, high, margin) < LEAST * height for margin in margins):
        return "a part of the disk is slower, and not the crossing: it takes as long beside the boundary"
    if not all(_moves_as_a_whole(low, high, height, sides, side) for side in (0, 1)):
        return "only a part of the requests takes longer, as on units that are not powers of two"
    return ""


def _moves_as_a_whole(
    low: Sequence[Level], high: Sequence[Level], height: float, sides: design.Sides, side: int
) -> bool:
    """Return whether every request across takes longer by about as much, and none of those across a smaller boundary.
    Where one crossing in three pays, or four in five, or where places are slow by chance, only some quantiles move.
    If pages of two sizes are mixed, the size at which only some pay is the last one below the step or the first one.
    """
    least, most = LEAST * height, MOST * height
    before = sides.shifts(low, side, _LOWER + _UPPER)
    for group in (high, high[:1]):
        after = sides.shifts(group, side, _LOWER + _UPPER)
        pairs = zip(before, after, strict=True)
        rises = [View(two.median - one.median, hypot(one.error, two.error)) for one, two in pairs]
        if any(one.median < least for one in rises[: len(_LOWER)]):
            return False
        if not all(_may_be(one, least, most) for one in rises):
            return False
    centre = _centre(low)
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
        return Steps({}, TOO_FEW)
    found = [level for level in seen if _costs(level, floor)]
    if len(found) != 1:
        why = "several sizes are" if found else "no size is"
        return Steps({}, f"{why} faster to write whole than in part")
    (unit,) = found
    if unit is seen[-1]:
        return Steps({}, "only the largest size that was tried is faster to write whole, and no larger one confirms it")
    limit = CLEAN * unit.median
    if any(abs(level.median) + 2 * level.error > limit for level in seen if level.size < unit.size):
        return Steps({}, "writes of less than a unit do not take the same time")
    if any(level.median + 2 * level.error > limit for level in seen if level.size > unit.size):
        return Steps({}, "writes of more than a unit do not take longer")
    why = _not_by_place(unit, shifted, floor)
    return Steps({}, why) if why else Steps({unit.size: unit.median})


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
        alike = f"those of {size} take as long wherever they lie: a threshold of size, no unit"
        return f"writes of less than {size} take longer, but {alike}"
    limit = CLEAN * same.median
    if any(abs(one.median) + 2 * one.error > limit for one in shifted if one is not same):
        return f"writes shifted by half take longer, but not of {size} alone"
    return ""


# Timed pairs -> the boundaries at which a drive works, each with a confidence; or "unknown", and why. The same samples
# and the same dice give the same answer (docs/probing.md).

RESAMPLES = 100
MOST_CONFIDENT = 0.97  # what simulated drives can vouch for (docs/probing.md), however often it comes out again
_MIDDLE = 0.95  # of the resampled heights lie in the interval that is reported


@dataclass(frozen=True, slots=True)
class Evidence:
    """One kind of pairs that shows a boundary."""

    kind: Kind
    penalty_us: float
    interval_us: tuple[float, float]  # bootstrap, 95 %
    share: float  # of a request that pays no penalty
    confidence: float  # in how many of the resampled experiments it comes out again; MOST_CONFIDENT at most


@dataclass(frozen=True, slots=True)
class Boundary:
    size: int  # bytes
    evidence: tuple[Evidence, ...]  # the strongest first

    @property
    def confidence(self) -> float:
        return self.evidence[0].confidence


@dataclass(frozen=True, slots=True)
class Penalty:
    """What crossing a boundary of one size cost."""

    level: int  # bytes
    median_us: float
    error_us: float  # how sure the median is


@dataclass(frozen=True, slots=True)
class Looked:
    """What one kind of pairs was worth."""

    kind: Kind
    samples: int
    request_us: float  # median of the requests that pay no penalty
    penalties: tuple[Penalty, ...]
    why: str  # why it shows nothing; empty: it shows something


@dataclass(frozen=True, slots=True)
class Inference:
    """`boundaries` ascending; those below the stated confidence are in `doubtful`."""

    boundaries: tuple[Boundary, ...]
    doubtful: tuple[Boundary, ...]
    looked: tuple[Looked, ...]

    @property
    def unit(self) -> int | None:
        """Bytes; None: unknown."""
        return self.boundaries[0].size if self.boundaries else None

    @property
    def why_unknown(self) -> tuple[str, ...]:
        if self.boundaries:
            return ()
        asked = f"of the resampled experiments only; {CONFIDENT:.0%} are asked for"
        doubts = [(each.evidence[0].kind, format_size(each.size), each.confidence) for each in self.doubtful]
        said = [f"{kind}: {size}, but in {confidence:.0%} {asked}" for kind, size, confidence in doubts]
        return (*said, *(f"{one.kind}: {one.why}" for one in self.looked if one.why))


def infer(samples: Iterable[Sample], dice: Dice, *, resamples: int = RESAMPLES) -> Inference:
    """Return the boundaries that one kind of pairs shows with confidence; each kind is judged alone."""
    by_kind: dict[Kind, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_kind[sample.kind].append(sample)
    cells = {kind: _cells(kind, of_kind) for kind, of_kind in sorted(by_kind.items())}
    looked: list[Looked] = []
    evidence: dict[int, list[Evidence]] = defaultdict(list)
    for kind, of_kind in cells.items():
        request_us = median(sample.cheap_us for sample in by_kind[kind])
        control = cells.get(Kind.SHIFT, {}) if kind is Kind.PART else {}
        steps = find(kind, of_kind, control, request_us)
        apart = {level: [dear - cheap for dear, cheap in chain(*strata)] for level, strata in of_kind.items()}
        penalties = [Penalty(level, *design.middle(each)) for level, each in apart.items()]
        looked.append(Looked(kind, len(by_kind[kind]), request_us, tuple(penalties), steps.why))
        for size, one in _confirmed(kind, (of_kind, control), request_us, steps, dice, resamples):
            evidence[size].append(one)
    ordered = {size: sorted(every, key=lambda one: -one.confidence) for size, every in sorted(evidence.items())}
    found = [Boundary(size, tuple(every)) for size, every in ordered.items()]
    sure = tuple(one for one in found if one.confidence >= CONFIDENT)
    return Inference(sure, tuple(one for one in found if one not in sure), tuple(looked))


def _cells(kind: Kind, samples: Sequence[Sample]) -> Cells:
    """Levels with samples enough in every stratum."""
    strata = design.QUARTERS if kind is Kind.SHIFT else design.STRATA  # the others have both sides
    found: dict[int, tuple[list[tuple[float, float]], ...]] = {}
    for sample in samples:
        of_level = found.setdefault(sample.level, tuple([] for _ in range(strata)))
        of_level[sample.quarter].append((sample.dear_us, sample.cheap_us))
    return design.centred({at: one for at, one in sorted(found.items()) if min(map(len, one)) >= design.FEWEST})


def _confirmed(
    kind: Kind, cells: tuple[Cells, Cells], request_us: float, steps: Steps, dice: Dice, resamples: int
) -> Iterable[tuple[int, Evidence]]:
    """The boundaries with their confidence. `cells`: of this kind, and of its control."""
    heights: dict[int, list[float]] = {level: [] for level in steps.heights_us}
    for _ in range(resamples if heights else 0):
        again, control = (resampled(each, dice) for each in cells)
        for level, height_us in find(kind, again, control, request_us).heights_us.items():
            heights.setdefault(level, []).append(height_us)
    for level, height_us in steps.heights_us.items():
        ordered = sorted(heights[level]) or [height_us]
        cut = int(len(ordered) * (1 - _MIDDLE) / 2)
        share = height_us / request_us if request_us > 0 else 0.0
        confidence = min(len(heights[level]) / resamples, MOST_CONFIDENT)
        yield level, Evidence(kind, height_us, (ordered[cut], ordered[-1 - cut]), share, confidence)


# What a probe found, as a document; `audit.report.read_measured` reads it.


@dataclass(frozen=True, slots=True)
class Probed:
    """The disk, as it calls itself. Size in bytes."""

    name: str
    path: str
    size: int
    model: str | None = None
    serial: str | None = None
    wwn: str | None = None
    firmware: str | None = None


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Bytes; `regions` are of the disk."""

    disk: Probed
    inference: Inference
    sector: int  # the smallest request of direct I/O
    regions: tuple[Extent, Extent]
    rounds: int
    read: int
    written: int
    zeros: float  # share of the reads
    elapsed_s: float
    seed: int
    interrupted: bool
    file: str | None  # the file that was made to write in; None: the disk itself


def document(result: ProbeResult, version: str) -> dict[str, object]:
    """Sizes in bytes, times in µs, shares and confidences from 0 to 1."""
    inference, experiment = result.inference, as_object(result)
    disk = experiment.pop("disk")
    del experiment["inference"]
    return {
        "schema": PROBE_SCHEMA, "version": PROBE_VERSION, "aligntool": version, "disk": disk, "unit": inference.unit,
        "confident_from": CONFIDENT, "boundaries": [_boundary(one) for one in inference.boundaries],
        "doubtful": [_boundary(one) for one in inference.doubtful], "why_unknown": list(inference.why_unknown),
        "looked": as_json(inference.looked), "experiment": experiment,
    }  # fmt: skip


def _boundary(boundary: Boundary) -> dict[str, object]:
    return {"size": boundary.size, "confidence": boundary.confidence, "evidence": as_json(boundary.evidence)}
