"""Timed pairs -> the boundaries at which a drive works, each with a confidence; or "unknown", and why.

In: samples, dice for the bootstrap. Out: an Inference. Alone because it is a pure function: the same samples and the
same dice give the same answer, so it is tried on simulated drives whose answer is known (docs/probing.md).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from aligntool.bench.inference_design import QUARTERS, STRATA, Dice, Kind, Sample
from aligntool.bench.inference_steps import Steps, find_steps, find_whole, resampled
from aligntool.bench.inference_views import FEWEST, Cells, centred, middle
from aligntool.units import format_size

RESAMPLES = 100
CONFIDENT = 0.95  # the audit takes nothing less
MOST_CONFIDENT = (
    0.97  # what simulated drives can vouch for (docs/probing.md), however often it comes out again
)
_MIDDLE = 0.95  # of the resampled heights lie in the interval that is reported

_FINDERS: Mapping[Kind, Callable[[Cells, Cells, float], Steps]] = {
    Kind.READ: find_steps,
    Kind.WRITE: find_steps,
    Kind.PART: find_whole,
}
_STRATA = {Kind.SHIFT: QUARTERS}  # the others have both sides


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
        doubts = tuple(
            f"{one.evidence[0].kind}: {format_size(one.size)}, but in {one.confidence:.0%} of the resampled "
            f"experiments only; {CONFIDENT:.0%} are asked for"
            for one in self.doubtful
        )
        return doubts + tuple(f"{one.kind}: {one.why}" for one in self.looked if one.why)


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
        steps = _FINDERS[kind](of_kind, control, request_us) if kind in _FINDERS else Steps(())
        looked.append(Looked(kind, len(by_kind[kind]), request_us, tuple(_penalties(of_kind)), steps.why))
        for size, one in _confirmed(kind, (of_kind, control), request_us, steps, dice, resamples):
            evidence[size].append(one)
    found = [
        Boundary(size, tuple(sorted(every, key=lambda one: -one.confidence)))
        for size, every in sorted(evidence.items())
    ]
    sure = tuple(one for one in found if one.confidence >= CONFIDENT)
    return Inference(sure, tuple(one for one in found if one not in sure), tuple(looked))


def _cells(kind: Kind, samples: Sequence[Sample]) -> Cells:
    """Levels with samples enough in every stratum."""
    strata = _STRATA.get(kind, STRATA)
    found: dict[int, tuple[list[tuple[float, float]], ...]] = {}
    for sample in samples:
        of_level = found.setdefault(sample.level, tuple([] for _ in range(strata)))
        of_level[sample.quarter].append((sample.dear_us, sample.cheap_us))
    return centred({level: found[level] for level in sorted(found) if min(map(len, found[level])) >= FEWEST})


def _penalties(cells: Cells) -> Iterable[Penalty]:
    for level, strata in cells.items():
        yield Penalty(level, *middle([dear - cheap for stratum in strata for dear, cheap in stratum]))


def _confirmed(
    kind: Kind, cells: tuple[Cells, Cells], request_us: float, steps: Steps, dice: Dice, resamples: int
) -> Iterable[tuple[int, Evidence]]:
    """The boundaries with their confidence. `cells`: of this kind, and of its control."""
    if not steps.steps:
        return
    times: Counter[int] = Counter()
    heights: dict[int, list[float]] = defaultdict(list)
    for _ in range(resamples):
        again, control = (resampled(each, dice) for each in cells)
        for step in _FINDERS[kind](again, control, request_us).steps:
            times[step.level] += 1
            heights[step.level].append(step.height_us)
    for step in steps.steps:
        ordered = sorted(heights[step.level]) or [step.height_us]
        cut = int(len(ordered) * (1 - _MIDDLE) / 2)
        yield (
            step.level,
            Evidence(
                kind,
                step.height_us,
                (ordered[cut], ordered[-1 - cut]),
                step.height_us / request_us if request_us > 0 else 0.0,
                min(times[step.level] / resamples, MOST_CONFIDENT),
            ),
        )
