"""Two results side by side, as an article of 2017 draws them: log10 of the ratio, 0 for equal, -1 for ten times slower.

In: results. Out: a ratio for each test that both have, and whether it is more than noise. Alone because what counts as
noise is a rule, and the pictures and tables that show it must all follow the same one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log10

from aligntool.bench.chance import LEAST_RUNS, PROMISED, chance_of_two, holm
from aligntool.bench.results import Result, Series, Spread
from aligntool.recipe import BenchTest


class Verdict(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    NOISE = "within the noise"
    SINGLE = "too few runs to tell"
    CPU = "held back by the processor"


@dataclass(frozen=True, slots=True)
class Ratio:
    """One test of two results, in bytes a second."""

    test: BenchTest
    before: Spread
    after: Spread
    verdict: Verdict
    chance: float | None  # that one drive differs so much from itself in any of the lines; None: too few runs

    @property
    def log_ratio(self) -> float:
        return log10(self.after.median / self.before.median)

    @property
    def times(self) -> float:
        return self.after.median / self.before.median


def compare(before: Result, after: Result) -> tuple[Ratio, ...]:
    """Of the tests that both have, in the order of the first. Those without a figure are left out.

    "faster" and "slower" need ranges that do not overlap, and a difference that is no chance among so many lines
    (Welch's t-test of the logarithms, Holm's correction): of 100 comparisons of a drive with itself at most five have a
    false line, be it of one test or of forty.
    """
    others = {each.test: each for each in after.series}
    pairs = [
        (each, others[each.test])
        for each in before.series
        if each.test in others and each.rate.median > 0 and others[each.test].rate.median > 0
    ]
    repeats = not (before.settings.passes or after.settings.passes)
    told = [repeats and min(one.rate.count, other.rate.count) >= LEAST_RUNS for one, other in pairs]
    chances = iter(
        holm([chance_of_two(a.rates, b.rates) for (a, b), enough in zip(pairs, told, strict=True) if enough])
    )
    return tuple(
        _ratio(one, other, next(chances) if enough else None)
        for (one, other), enough in zip(pairs, told, strict=True)
    )


def _ratio(one: Series, other: Series, chance: float | None) -> Ratio:
    return Ratio(one.test, one.rate, other.rate, _verdict(one, other, chance), chance)


def _verdict(one: Series, other: Series, chance: float | None) -> Verdict:
    a, b = one.rate, other.rate
    if chance is None:
        return Verdict.SINGLE
    if chance > PROMISED or (a.low <= b.high and b.low <= a.high):
        return Verdict.CPU if one.cpu_bound or other.cpu_bound else Verdict.NOISE
    slower = other if b.median < a.median else one
    if slower.cpu_bound:  # nobody knows what it could have done
        return Verdict.CPU
    return Verdict.SLOWER if slower is other else Verdict.FASTER


def unmatched(results: Sequence[Result]) -> tuple[str, ...]:
    """Titles of tests that not all of them have, and settings in which they differ: a sentence each."""
    said = []
    first = results[0]
    for other in results[1:]:
        titles = {each.test.title for each in first.series} ^ {each.test.title for each in other.series}
        if titles:
            said.append(f"only one of them has: {', '.join(sorted(titles))}")
        for what, a, b in (
            ("size", first.settings.span, other.settings.span),
            ("seconds of a run", first.settings.runtime_s, other.settings.runtime_s),
            ("direct I/O", first.settings.direct, other.settings.direct),
            ("kind of target", first.kind, other.kind),
            ("preparation", first.settings.prepare, other.settings.prepare),
        ):
            if a != b:
                said.append(f"they differ in their {what}: {a} and {b}")
        if first.settings.passes or other.settings.passes:
            said.append(
                "passes over the same data are no repeats: their ranges show the cache, not the noise"
            )
    return tuple(dict.fromkeys(said))
