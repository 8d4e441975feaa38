"""A sweep over chunks -> which one is worth taking, or that there is no difference.

In: the figures of every cell, and the chunk that aligntool would take without them. Out: a choice, with how far apart
the chunks are and whether that is more than noise. Alone because it is a pure function, tried on made figures whose
answer is known.

A cell's score is the geometric mean of the rates of its loads, so every load counts alike, whatever its unit. Two
chunks are apart when the ranges of their scores over all rounds do not overlap and their medians differ by 3 % at
least. Of n rounds without any true difference the ranges lie apart in 2 of C(2n, n) cases: 10 % with three rounds,
0.8 % with five.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log, log2
from statistics import fmean, median

from aligntool.units import format_size

FEWEST = 3  # rounds from which on two ranges can say something
WORTH = 1.03  # a smaller difference is no reason to leave the recommendation


@dataclass(frozen=True, slots=True)
class Sample:
    """One load on one array. Bytes per second."""

    round: int
    chunk: int
    shape: str
    read: int
    write: int
    cpu: float = 0.0  # per cent of one core, of each thread of fio

    @property
    def rate(self) -> int:
        return self.read + self.write


@dataclass(frozen=True, slots=True)
class Identity:
    """A drive, by what does not change with its name."""

    name: str
    model: str | None
    serial: str | None
    wwn: str | None
    size: int | None
    firmware: str | None = None
    read: int | None = None  # what it did alone, bytes per second
    write: int | None = None

    @property
    def key(self) -> tuple[str | None, ...]:
        return (self.wwn,) if self.wwn else (self.model, self.serial)


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a sweep measured, and of what."""

    level: str
    layout: str
    workload: str
    database_page: int
    bitmap: str
    members: tuple[Identity, ...]
    span: int  # bytes of the array that the loads stayed in
    runtime_s: float
    complete: bool
    conditions: tuple[tuple[str, str], ...]  # "kernel", "fio", "aligntool" ...
    samples: tuple[Sample, ...]


class Verdict(StrEnum):
    KEPT = "kept"  # nothing was clearly faster than the recommended chunk
    CHANGED = "changed"
    UNKNOWN = "unknown"  # too few whole rounds


@dataclass(frozen=True, slots=True)
class Ratio:
    """Score against another chunk's score, round by round."""

    middle: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.least:.2f}–{self.most:.2f})"


@dataclass(frozen=True, slots=True)
class Choice:
    """`chunk` None: nothing can be said."""

    verdict: Verdict
    chunk: int | None
    reason: str
    rounds: int
    against: Mapping[int, Ratio]  # each chunk's score against the recommended one's
    apart: frozenset[int]  # those of them that differ from it by more than noise


def choose(samples: Sequence[Sample], recommended: int) -> Choice:
    """The recommended chunk, unless another one is clearly faster."""
    scores = scores_of(samples)
    rounds = len(next(iter(scores.values()), ()))
    if recommended not in scores or rounds < FEWEST:
        counted = "1 whole round is" if rounds == 1 else f"{rounds} whole rounds are"
        why = f"{counted} too few to tell a difference from noise; {FEWEST} are the least"
        if rounds >= FEWEST:
            why = f"{format_size(recommended)}, which aligntool would take, was not among the chunks measured"
        return Choice(Verdict.UNKNOWN, None, why, rounds, {}, frozenset())
    against = {chunk: ratio_of(scores[chunk], scores[recommended]) for chunk in sorted(scores)}
    apart = frozenset(
        chunk for chunk in scores
        if is_apart(scores[chunk], scores[recommended]) or is_apart(scores[recommended], scores[chunk])
    )  # fmt: skip
    best = max(scores, key=lambda chunk: median(scores[chunk]))
    alike = [chunk for chunk in scores if not is_apart(scores[best], scores[chunk])]
    if recommended in alike:
        reason = _kept(recommended, against, apart, rounds)
        return Choice(Verdict.KEPT, recommended, reason, rounds, against, apart)
    # Of those that nobody can tell from the best, the one that departs least from the recommendation.
    chunk = min(alike, key=lambda each: (abs(log2(each / recommended)), -median(scores[each])))
    reason = (
        f"{format_size(chunk)} did {against[chunk]} times the work of {format_size(recommended)}, which aligntool "
        f"would take otherwise, in {rounds} rounds"
    )
    return Choice(Verdict.CHANGED, chunk, reason, rounds, against, apart)


def _kept(recommended: int, against: Mapping[int, Ratio], apart: frozenset[int], rounds: int) -> str:
    slower = [chunk for chunk in sorted(apart) if against[chunk].middle < 1]
    if not apart:
        return f"no chunk differed from {format_size(recommended)} by more than the noise of {rounds} rounds"
    told = ", ".join(f"{format_size(chunk)} {against[chunk]}" for chunk in slower)
    return (
        f"none was clearly faster than {format_size(recommended)} in {rounds} rounds, and slower were: {told}"
    )


def scores_of(samples: Sequence[Sample]) -> dict[int, tuple[float, ...]]:
    """Of each chunk the score of every round in which all chunks did all loads; geometric means of bytes per second."""
    chunks = sorted({sample.chunk for sample in samples})
    shapes = {sample.shape for sample in samples}
    cells: dict[tuple[int, int], dict[str, int]] = {}
    for sample in samples:
        if sample.rate > 0:
            cells.setdefault((sample.round, sample.chunk), {})[sample.shape] = sample.rate
    whole = [
        number
        for number in sorted({sample.round for sample in samples})
        if all(cells.get((number, chunk), {}).keys() == shapes for chunk in chunks)
    ]
    return {
        chunk: tuple(geometric_mean(cells[number, chunk].values()) for number in whole) for chunk in chunks
    }


def geometric_mean(rates: Iterable[float]) -> float:
    return exp(fmean(log(rate) for rate in rates))


def ratio_of(scores: Sequence[float], others: Sequence[float]) -> Ratio:
    ratios = [one / other for one, other in zip(scores, others, strict=True)]
    return Ratio(median(ratios), min(ratios), max(ratios))


def is_apart(faster: Sequence[float], slower: Sequence[float]) -> bool:
    """Clearly faster: more than noise, and worth it."""
    if min(len(faster), len(slower)) < FEWEST:
        return False
    return min(faster) > max(slower) and median(faster) >= WORTH * median(slower)
