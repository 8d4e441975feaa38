"""How far a drive's mapping table reaches: random reads over spans that double, and the knee where they get slower.

In: the size there is, rates of runs. Out: spans, jobs, a knee with its confidence. Alone because a curve that looks
bent need not have a knee, and "none" must be an answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median

from aligntool.bench.chance import LEAST_RUNS, chance_of_two
from aligntool.bench.conditions import Conditions, bottom_of, crowded_words
from aligntool.bench.inference import CONFIDENT
from aligntool.bench.inference_design import Dice
from aligntool.bench.jobs import Job, Pattern
from aligntool.bench.measured import NEAR_A_CORE
from aligntool.units import KIB, MIB, format_about

BLOCK = 4 * KIB
DEPTH = 32
SMALLEST = 64 * MIB
FALLEN = 0.9  # of the rate over the spans before: a table that is at hand for 9 requests in 10 costs as much
FEWEST_BEFORE = 2  # spans that agree with each other, or there is nothing to fall from
STEP = 0.7  # of the rate over the spans before: a fall by a third, as noise may show it
STEADY = 0.2  # of their median, by which those spans may differ
ENOUGH = 5 / 4  # times the largest span: of a drive that has no more, all was looked at
RESAMPLES = 200
MAPPED = 1024  # bytes of the drive for each byte of its map: 4 bytes for each 4 KiB
_FLAT = "no knee"

Curve = Mapping[int, Sequence[float]]
"""Span in bytes -> requests a second, of each repeat."""


@dataclass(frozen=True, slots=True)
class Knee:
    """`below` is the largest span at the full rate, `above` the next one, which is slower. None: there is no knee, or
    it cannot be told, and `why` says which.
    """

    below: int | None
    above: int | None
    share: float  # of the full rate, at the span above
    confidence: float
    why: str

    @property
    def found(self) -> bool:
        return self.below is not None

    @property
    def flat(self) -> bool:
        """As fast over every span that was measured."""
        return not self.found and self.why.startswith(_FLAT)

    @property
    def sure(self) -> bool:
        """As sure as a probe must be of a unit."""
        return self.confidence >= CONFIDENT

    @property
    def words(self) -> str:
        """What is less sure is "perhaps" so."""
        if self.below is not None and self.above is not None:
            place = f"knee between {format_about(self.below)} and {format_about(self.above)}"
            return place if self.sure else f"perhaps a {place}"
        return f"perhaps {self.why}" if self.flat and not self.sure else self.why


def spans_of(size: int, smallest: int = SMALLEST) -> tuple[int, ...]:
    """Doubling from `smallest` on, and the whole at the end."""
    spans = []
    span = smallest
    while span < size:
        spans.append(span)
        span *= 2
    whole = size // BLOCK * BLOCK
    if not spans or whole > spans[-1] * ENOUGH:
        spans.append(whole)
    return tuple(spans)


def between(knee: Knee) -> int | None:
    """The span in the middle of the knee, to be measured as well; None: there is nothing to be told apart."""
    if knee.below is None or knee.above is None or knee.above < knee.below * 3 // 2:
        return None
    return (knee.below + knee.above) // 2 // BLOCK * BLOCK


def jobs_of(
    spans: Sequence[int], path: str, start: int, *, write: bool, runtime_s: float, repeat: int
) -> Iterator[tuple[int, Job]]:
    """One repeat, from the byte `start` of the path on. Every second one goes from the largest span to the smallest, so
    that heat hits neither end alone.
    """
    pattern = Pattern.RANDOM_WRITE if write else Pattern.RANDOM_READ
    for span in spans if repeat % 2 == 0 else reversed(spans):
        yield (
            span,
            Job(
                name="span", path=path, pattern=pattern, block=BLOCK, span=span, offset=start, depth=DEPTH,
                runtime_s=runtime_s, ramp_s=runtime_s / 4,
            ),
        )  # fmt: skip


def knee_of(curve: Curve, cpu: Curve, seen: Conditions, dice: Dice) -> Knee:
    """What may be said of a measurement; `cpu` as of `bound_spans`."""
    knee = not_by_the_processor(find_knee(curve, dice), cpu)
    return not_by_the_arm(not_beside_others(knee, seen), seen)


def find_knee(curve: Curve, dice: Dice, *, resamples: int = RESAMPLES) -> Knee:
    """The confidence is the share of resampled curves (bootstrap over the repeats) with the same answer.

    Where noise leaves that in doubt, a fall by a third or more at one place, from spans that agree with each other, is
    a knee too: no noise that leaves those within STEADY of each other makes it.
    """
    knee = _find_fall(curve, dice, resamples)
    if knee.sure or min((len(rates) for rates in curve.values()), default=0) < LEAST_RUNS:
        return knee
    return _find_step(curve, dice, resamples) or knee


def _find_fall(curve: Curve, dice: Dice, resamples: int) -> Knee:
    knee = _knee({span: median(rates) for span, rates in curve.items() if rates})
    if min((len(rates) for rates in curve.values()), default=0) < LEAST_RUNS:
        return Knee(None, None, 1.0, 0.0, f"can't tell: fewer than {LEAST_RUNS} repeats of every span")
    if _overlapping(curve, knee):
        return Knee(None, None, knee.share, 0.0, "can't tell: the repeats before and after the knee overlap")
    same = 0
    for _ in range(resamples):
        again = _knee({span: median(dice.choices(rates, k=len(rates))) for span, rates in curve.items()})
        same += (again.below, again.above, again.why) == (knee.below, knee.above, knee.why)
    return Knee(knee.below, knee.above, knee.share, same / resamples, knee.why)


def _find_step(curve: Curve, dice: Dice, resamples: int) -> Knee | None:
    """Return the knee at the place that splits the curve best into two levels; None: that is no step."""
    spans = sorted(curve)
    medians = [median(curve[span]) for span in spans]
    place = _best_split(medians)
    full, least = median(medians[:place] or [0.0]), medians[:place]
    if place < FEWEST_BEFORE or median(medians[place:]) > STEP * full:
        return None
    if min(least) < (1 - STEADY) * full or max(least) > (1 + STEADY) * full:
        return None
    if max(medians[place:]) > (1 - STEADY) * full:
        return None
    before = [rate for span in spans[:place] for rate in curve[span]]
    after = [rate for span in spans[place:] for rate in curve[span]]
    chance = chance_of_two(before, after) * (len(spans) - 1)  # any of the places could have been the best one
    same = sum(
        _best_split([median(dice.choices(curve[span], k=len(curve[span]))) for span in spans]) == place
        for _ in range(resamples)
    )
    share, sure = medians[place] / full, max(0.0, min(same / resamples, 1 - chance))
    return Knee(spans[place - 1], spans[place], share, sure, "")


def _best_split(rates: Sequence[float]) -> int:
    """Return how many of the first values are one level, so that the logarithms differ least from two levels (least
    squares).
    """
    logs = [log(max(rate, 1e-9)) for rate in rates]
    errors = [(_error(logs[:place]) + _error(logs[place:]), place) for place in range(1, len(logs))]
    return min(errors, default=(0.0, 0))[1]


def _error(values: Sequence[float]) -> float:
    middle = sum(values) / len(values)
    return sum((value - middle) ** 2 for value in values)


def bound_spans(cpu: Curve) -> tuple[int, ...]:
    """Spans over which fio's thread had no time left; `cpu`: percent of a core, of each repeat."""
    return tuple(span for span, shares in sorted(cpu.items()) if shares and median(shares) >= NEAR_A_CORE)


def not_by_the_processor(knee: Knee, cpu: Curve) -> Knee:
    """As fast over every span is what a processor shows, too."""
    if not knee.flat or not bound_spans(cpu):
        return knee
    return replace(
        knee, confidence=0.0, why="can't tell: CPU-bound, the drive may be faster over small spans"
    )


def not_beside_others(knee: Knee, seen: Conditions) -> Knee:
    """As fast over every span is what a machine shows, too, whose cores other programs wait for."""
    crowded = crowded_words(seen)
    return replace(knee, confidence=0.0, why=f"can't tell: {crowded}") if knee.flat and crowded else knee


def not_by_the_arm(knee: Knee, seen: Conditions) -> Knee:
    """The arm of a rotating disk goes further over a larger span, and takes longer for it."""
    turning = [drive.name for drive in bottom_of(seen.drives) if drive.rotational]
    if not knee.found or not turning:
        return knee
    why = f"can't tell: the kernel calls {turning[0]} a rotating disk, and those are slower over larger spans anyway"
    return Knee(None, None, knee.share, 0.0, why)


def _knee(rates: Mapping[int, float]) -> Knee:
    spans = sorted(rates)
    full: list[float] = []
    for place, span in enumerate(spans):
        if full and rates[span] < FALLEN * median(full):
            share = rates[span] / median(full)
            if len(full) < FEWEST_BEFORE:
                return Knee(
                    None, None, share, 0.0, "can't tell: the smallest spans have no steady rate to fall from"
                )
            back = [each for each in spans[place:] if rates[each] >= FALLEN * median(full)]
            if back:
                return Knee(None, None, share, 0.0, "can't tell: it gets slower and faster again")
            return Knee(spans[place - 1], span, share, 0.0, "")
        full.append(rates[span])
    if spans and min(full) * FALLEN > 0 and max(full) * FALLEN > min(full):
        return Knee(None, None, 1.0, 0.0, "can't tell: the rates differ, and fall nowhere")
    return Knee(None, None, 1.0, 0.0, f"{_FLAT} up to {format_about(spans[-1] if spans else 0)}")


def _overlapping(curve: Curve, knee: Knee) -> bool:
    if knee.below is None or knee.above is None:
        return False
    return max(curve[knee.above]) >= min(curve[knee.below])


def reach(host_memory: int) -> int:
    """Bytes of the drive that a buffer of so many bytes can hold the map of."""
    return host_memory * MAPPED
