"""Infer a flash unit from timed pairs, or state why it is unknown; write the result as a document."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import hypot
from statistics import fmean, median

from aligntool.audit.report import CONFIDENT, PROBE_SCHEMA, PROBE_VERSION
from aligntool.documents import as_json, as_object
from aligntool.measure import unit_design as design
from aligntool.measure.unit_design import Cells, Kind, Level, RandomSource, Sample, View
from aligntool.units import Extent, format_size

# Levels of one kind of pairs -> the boundaries that they show, or why none is accepted.
#
# Most of the rules reject: a false boundary is worse than none (docs/probing.md, docs/decisions/0019).

CERTAIN = 6.0  # times its own uncertainty: the least height of a step
IN_EACH = 3.0  # times its own uncertainty: the least height in every quarter and on each side alone
# times its uncertainty: a quantile of one level that contradicts by less is chance among dozens
AMONG_MANY = 5.0
SMALLEST_SHARE = 0.02  # of the time of a request: less does not matter, and may be caused by the computer
CLEAN = 1 / 3  # of a step's height, within which the levels below it and above it must agree with each other
LEAST = 1 / 2  # of a step's height, which each part of the experiment must show
MOST = 2.0  # times a step's height, which no quantile may exceed
TOO_FEW = "too few samples: --limit and --most can allow more"
_WAYS = (design.typical, design.fast)
# quantiles
_LOWER = (0.1, 0.25)
_UPPER = (0.5, 0.75)
_COMMON = (0.65,)  # a quantile below the requests that are late because of map misses or a busy computer


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps that were found, or why there are none."""

    heights_us: dict[int, float]  # by the level in bytes
    why: str = ""


def find_steps(kind: Kind, cells: Cells, control: Cells, request_us: float) -> Steps:
    """Return the boundaries that pairs of one kind show. `request_us`: the time of a request without a
    penalty.

    READ and WRITE: the sizes from which on crossing costs time, and from which on it costs more; the control
    is in the pairs, on both sides of the boundary. PART: the single size of which a half takes longer to
    write than the whole: below it both requests are parts of a unit, above it both are whole units. A drive
    that must read before it writes a part of a unit shows this; so does a drive that is slower for all writes
    below a size, at any place. `control`: writes of the whole size shifted by half, which distinguish the
    two.
    """
    floor = SMALLEST_SHARE * request_us
    sides = design.Sides(cells)
    if kind is Kind.SHIFT:
        return Steps({})
    if kind is Kind.PART:
        found = [
            _part_step(design.level_views(cells, way), design.level_views(control, way), floor)
            for way in _WAYS
        ]
    else:
        found = [_crossing_steps(design.level_views(cells, way), sides, floor) for way in _WAYS]
    most = max(found, key=lambda steps: len(steps.heights_us))
    # one way may show more steps, but no others
    if any(steps.heights_us.keys() - most.heights_us for steps in found):
        return Steps({}, "the typical requests and the fast ones indicate different sizes")
    return most


def resampled(cells: Cells, rng: RandomSource) -> Cells:
    """Return each cell resampled with replacement from itself (bootstrap)."""
    return {
        level: tuple(rng.choices(pairs, k=len(pairs)) for pairs in strata) for level, strata in cells.items()
    }


def _crossing_steps(levels: Sequence[Level], sides: design.Sides, floor: float) -> Steps:
    """Return the steps at which the penalty of crossing rises. `floor`: the least rise in µs that matters."""
    if len(levels) < 3:
        return Steps({}, TOO_FEW)
    groups: list[list[Level]] = [[levels[0]]]
    for level in levels[1:]:
        if _rises(groups[-1], level, floor):
            groups.append([level])
        else:
            groups[-1].append(level)
    if len(groups) > 1 and len(groups[-1]) == 1:
        groups.pop()  # only the largest boundary that was tested: no larger one confirms it
    if len(groups) == 1:
        return Steps({}, "crossing a boundary takes longer at no size")
    if min(map(len, groups)) < 2:
        return Steps({}, "a penalty of one size alone, which no neighbouring size confirms")
    heights_us = {}
    for low, high in pairwise(groups):
        why = _unclean(low, high, sides)
        if why:
            return Steps({}, why)
        if low is groups[0] and abs(_centre(low)) > CLEAN * _height(low, high):  # no crossing, no penalty
            return Steps({}, "the two requests of a pair differ where no boundary is crossed")
        heights_us[high[0].size] = _height(low, high)
    return Steps(heights_us)


def _rises(low: Sequence[Level], level: Level, floor: float) -> bool:
    """Return whether the penalty rises at `level`: overall, and in every part of the experiment alone (both
    regions, both orders, compared with the request on either side).
    """
    rise = level.median - _centre(low)
    least = max(floor, level.whole.width)
    if rise <= max(CERTAIN * hypot(design.error_of_mean(lower.error for lower in low), level.error), least):
        return False
    for index, margin in enumerate(level.margins):
        rise = margin.median - _centre(low, index)
        error = hypot(design.error_of_mean(lower.margins[index].error for lower in low), margin.error)
        if rise <= max(IN_EACH * error, floor):
            return False
    return True


def _centre(group: Sequence[Level], margin: int | None = None) -> float:
    return fmean((level.whole if margin is None else level.margins[margin]).median for level in group)


def _height(low: Sequence[Level], high: Sequence[Level], margin: int | None = None) -> float:
    return _centre(high, margin) - _centre(low, margin)


def _unclean(low: Sequence[Level], high: Sequence[Level], sides: design.Sides) -> str:
    """Return why this is not a step; "" if it is."""
    height = _height(low, high)
    limit = CLEAN * height
    for group, where in ((low, "below"), (high, "above")):
        centre = _centre(group)
        if any(abs(level.median - centre) + 2 * level.error > limit for level in group):
            return f"the penalty does not begin at one size: the sizes {where} it differ from each other"
    margins = range(len(low[0].margins))
    parts = [
        (level.margins[at], _centre(group, at)) for group in (low, high) for at in margins for level in group
    ]
    # beyond doubt
    if any(abs(part.median - centre) - IN_EACH * part.error > limit for part, centre in parts):
        return "the regions of the disk, the two orders or the two sides indicate different sizes"
    if any(_height(low, high, margin) < LEAST * height for margin in margins):
        return "a part of the disk is slower, not the crossing: a request beside the boundary takes as long"
    if not all(_moves_as_a_whole(low, high, height, sides, side) for side in (0, 1)):
        return "only a part of the requests takes longer, as on units that are not powers of two"
    return ""


def _moves_as_a_whole(
    low: Sequence[Level], high: Sequence[Level], height: float, sides: design.Sides, side: int
) -> bool:
    """Return whether every request across is later by about the same time, and no request across a smaller
    boundary is. If one crossing in three costs time, or four in five, or if places are slow by chance, only
    some quantiles move. If pages of two sizes are mixed, the size at which only some crossings cost time is
    the last one below the step or the first one above.
    """
    least = LEAST * height
    most = MOST * height
    before = sides.shifts(low, side, _LOWER + _UPPER)
    for group in (high, high[:1]):
        after = sides.shifts(group, side, _LOWER + _UPPER)
        pairs = zip(before, after, strict=True)
        rises = [View(up.median - down.median, hypot(down.error, up.error)) for down, up in pairs]
        if any(rise.median < least for rise in rises[: len(_LOWER)]):
            return False
        if not all(_may_be(rise, least, most) for rise in rises):
            return False
    centre = _centre(low)
    return all(
        _may_be(shift, centre + lowest, centre + highest, AMONG_MANY)
        for levels, shares, lowest, highest in ((low, _COMMON, -least, least), (high, _LOWER, least, most))
        for level in levels
        for shift in sides.shifts([level], side, shares)
    )


def _may_be(view: View, least: float, most: float, times: float = IN_EACH) -> bool:
    """Return whether a value may be from `least` to `most`, within `times` its uncertainty."""
    return view.median + times * view.error >= least and view.median - times * view.error <= most


def _part_step(levels: Sequence[Level], shifted: Sequence[Level], floor: float) -> Steps:
    """Return the single size that is faster to write whole than in part, confirmed by the shifted writes."""
    if len(levels) < 3 or [level.size for level in levels] != [level.size for level in shifted]:
        return Steps({}, TOO_FEW)
    found = [level for level in levels if _costs(level, floor)]
    if len(found) != 1:
        why = "several sizes are" if found else "no size is"
        return Steps({}, f"{why} faster to write whole than in part")
    (unit,) = found
    if unit is levels[-1]:
        return Steps(
            {}, "only the largest size that was tried is faster to write whole, and no larger one confirms it"
        )
    limit = CLEAN * unit.median
    if any(abs(level.median) + 2 * level.error > limit for level in levels if level.size < unit.size):
        return Steps({}, "writes of less than a unit do not take the same time")
    if any(level.median + 2 * level.error > limit for level in levels if level.size > unit.size):
        return Steps({}, "writes of more than a unit do not take longer")
    why = _threshold_of_size(unit, shifted, floor)
    return Steps({}, why) if why else Steps({unit.size: unit.median})


def _costs(level: Level, floor: float) -> bool:
    """Return whether a level has a penalty: overall, and in every part of the experiment alone."""
    return level.median > max(CERTAIN * level.error, floor, level.whole.width) and all(
        margin.median > max(IN_EACH * margin.error, floor, LEAST * level.median) for margin in level.margins
    )


def _threshold_of_size(unit: Level, shifted: Sequence[Level], floor: float) -> str:
    """Return why only the size of a write may matter, and not its place; "" if writes shifted by half cost
    more for the same size and for no other.
    """
    size = format_size(unit.size)
    (same,) = (level for level in shifted if level.size == unit.size)
    if not _costs(same, floor) or same.median < LEAST * unit.median:
        alike = f"those of {size} take equally long at any place: a threshold of size, not a unit"
        return f"writes of less than {size} take longer, but {alike}"
    limit = CLEAN * same.median
    if any(abs(level.median) + 2 * level.error > limit for level in shifted if level is not same):
        return f"writes shifted by half take longer, but not only those of {size}"
    return ""


# Timed pairs -> the boundaries of the units of a drive, each with a confidence; or "unknown", with the
# reason. The same samples and the same random numbers give the same answer (docs/probing.md).

RESAMPLES = 100
# the limit that the simulated drives support (docs/probing.md), for any share of resamples
MOST_CONFIDENT = 0.97
_INTERVAL = 0.95  # of the resampled heights are in the reported interval


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of one kind of pairs for a boundary."""

    kind: Kind
    penalty_us: float
    interval_us: tuple[float, float]  # bootstrap, 95 %
    share: float  # of the time of a request without a penalty
    confidence: float  # share of the resampled experiments with the same boundary; at most MOST_CONFIDENT


@dataclass(frozen=True, slots=True)
class Boundary:
    size: int  # bytes
    evidence: tuple[Evidence, ...]  # the strongest first

    @property
    def confidence(self) -> float:
        return self.evidence[0].confidence


@dataclass(frozen=True, slots=True)
class Penalty:
    """The cost of crossing a boundary of one size."""

    level: int  # bytes
    median_us: float
    error_us: float  # uncertainty of the median


@dataclass(frozen=True, slots=True)
class KindResult:
    """The results of one kind of pairs."""

    kind: Kind
    samples: int
    request_us: float  # median of the requests without a penalty
    penalties: tuple[Penalty, ...]
    why: str  # why it shows no boundary; "" if it shows one


@dataclass(frozen=True, slots=True)
class Inference:
    """The inferred boundaries, ascending. Those below the required confidence are in `doubtful`."""

    boundaries: tuple[Boundary, ...]
    doubtful: tuple[Boundary, ...]
    looked: tuple[KindResult, ...]

    @property
    def unit(self) -> int | None:
        """The smallest boundary in bytes; None if unknown."""
        return self.boundaries[0].size if self.boundaries else None

    @property
    def why_unknown(self) -> tuple[str, ...]:
        """The reasons why no boundary is accepted, a sentence each."""
        if self.boundaries:
            return ()
        required = f"of the resampled experiments only; {CONFIDENT:.0%} are required"
        doubts = [
            (found.evidence[0].kind, format_size(found.size), found.confidence) for found in self.doubtful
        ]
        reasons = [f"{kind}: {size}, but in {confidence:.0%} {required}" for kind, size, confidence in doubts]
        return (*reasons, *(f"{result.kind}: {result.why}" for result in self.looked if result.why))


def infer(samples: Iterable[Sample], rng: RandomSource, *, resamples: int = RESAMPLES) -> Inference:
    """Return the boundaries that at least one kind of pairs shows with confidence; each kind is evaluated
    alone.
    """
    by_kind: dict[Kind, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_kind[sample.kind].append(sample)
    cells = {kind: _cells(kind, of_kind) for kind, of_kind in sorted(by_kind.items())}
    looked: list[KindResult] = []
    evidence: dict[int, list[Evidence]] = defaultdict(list)
    for kind, of_kind in cells.items():
        request_us = median(sample.faster_us for sample in by_kind[kind])
        control = cells.get(Kind.SHIFT, {}) if kind is Kind.PART else {}
        steps = find_steps(kind, of_kind, control, request_us)
        differences = {
            level: [slower - faster for slower, faster in chain(*strata)] for level, strata in of_kind.items()
        }
        penalties = [
            Penalty(level, *design.median_and_error(values)) for level, values in differences.items()
        ]
        looked.append(KindResult(kind, len(by_kind[kind]), request_us, tuple(penalties), steps.why))
        for size, item in _evidence(kind, (of_kind, control), request_us, steps, rng, resamples):
            evidence[size].append(item)
    ordered = {
        size: sorted(items, key=lambda item: -item.confidence) for size, items in sorted(evidence.items())
    }
    found = [Boundary(size, tuple(items)) for size, items in ordered.items()]
    sure = tuple(item for item in found if item.confidence >= CONFIDENT)
    return Inference(sure, tuple(item for item in found if item not in sure), tuple(looked))


def _cells(kind: Kind, samples: Sequence[Sample]) -> Cells:
    """Return the levels with enough samples in every stratum."""
    strata = design.QUARTERS if kind is Kind.SHIFT else design.STRATA  # the other kinds have both sides
    found: dict[int, tuple[list[tuple[float, float]], ...]] = {}
    for sample in samples:
        of_level = found.setdefault(sample.level, tuple([] for _ in range(strata)))
        of_level[sample.quarter].append((sample.slower_us, sample.faster_us))
    return design.centred(
        {size: cell for size, cell in sorted(found.items()) if min(map(len, cell)) >= design.FEWEST}
    )


def _evidence(
    kind: Kind, cells: tuple[Cells, Cells], request_us: float, steps: Steps, rng: RandomSource, resamples: int
) -> Iterable[tuple[int, Evidence]]:
    """Yield each boundary of `steps` with its evidence. `cells`: those of this kind, and those of its
    control.
    """
    heights: dict[int, list[float]] = {level: [] for level in steps.heights_us}
    for _ in range(resamples if heights else 0):
        own, control = (resampled(original, rng) for original in cells)
        for level, height_us in find_steps(kind, own, control, request_us).heights_us.items():
            heights.setdefault(level, []).append(height_us)
    for level, height_us in steps.heights_us.items():
        ordered = sorted(heights[level]) or [height_us]
        cut = int(len(ordered) * (1 - _INTERVAL) / 2)
        share = height_us / request_us if request_us > 0 else 0.0
        confidence = min(len(heights[level]) / resamples, MOST_CONFIDENT)
        yield level, Evidence(kind, height_us, (ordered[cut], ordered[-1 - cut]), share, confidence)


# The result of a probe as a document, which `audit.report.read_measured` reads.


@dataclass(frozen=True, slots=True)
class ProbedDisk:
    """The identity of a disk, as it reports it. Size in bytes."""

    name: str
    path: str
    size: int
    model: str | None = None
    serial: str | None = None
    wwn: str | None = None
    firmware: str | None = None


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe. Sizes in bytes; `regions` are those of the disk."""

    disk: ProbedDisk
    inference: Inference
    sector: int  # the smallest request of direct I/O
    regions: tuple[Extent, Extent]
    rounds: int
    read: int
    written: int
    zeros: float  # share of the reads that returned only zeros
    elapsed_s: float
    seed: int
    interrupted: bool
    file: str | None  # the file that was created for the writes; None: the disk itself


def document(result: ProbeResult, version: str) -> dict[str, object]:
    """Return the JSON document: sizes in bytes, times in µs, shares and confidences from 0 to 1."""
    inference = result.inference
    experiment = as_object(result)
    disk = experiment.pop("disk")
    del experiment["inference"]
    return {
        "schema": PROBE_SCHEMA,
        "version": PROBE_VERSION,
        "aligntool": version,
        "disk": disk,
        "unit": inference.unit,
        "confident_from": CONFIDENT,
        "boundaries": [_boundary(found) for found in inference.boundaries],
        "doubtful": [_boundary(found) for found in inference.doubtful],
        "why_unknown": list(inference.why_unknown),
        "looked": as_json(inference.looked),
        "experiment": experiment,
    }


def _boundary(boundary: Boundary) -> dict[str, object]:
    return {"size": boundary.size, "confidence": boundary.confidence, "evidence": as_json(boundary.evidence)}
