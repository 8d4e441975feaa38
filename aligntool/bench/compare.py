"""Two results side by side, as an article of 2017 draws them: log10 of the ratio, 0 for equal, -1 for ten times slower.

In: results. Out: a ratio for each test that both have, and whether it is more than noise; what spoils either side, and
what was not the same. Alone because what counts as noise is a rule, and the pictures and tables that show it must all
follow the same one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log10

from aligntool.bench.chance import LEAST_RUNS, PROMISED, chance_of_two, holm
from aligntool.bench.conditions import Conditions, DriveState, warnings_of
from aligntool.bench.results import Result, Series, Spread
from aligntool.recipe import BenchTest


class Verdict(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    NOISE = "within the noise"
    SINGLE = "too few runs to tell"
    UNSTEADY = "not steady"
    CPU = "held back by the processor"


@dataclass(frozen=True, slots=True)
class Ratio:
    """One test of two results, in bytes a second."""

    test: BenchTest
    before: Spread
    after: Spread
    verdict: Verdict
    chance: float | None
    """That one drive differs so much from itself in any of the lines; None: nobody knows how far its runs lie apart."""

    @property
    def log_ratio(self) -> float:
        return log10(self.after.median / self.before.median)

    @property
    def times(self) -> float:
        return self.after.median / self.before.median


@dataclass(frozen=True, slots=True)
class Difference:
    """What was not the same while the two were measured."""

    what: str
    before: str
    after: str

    @property
    def words(self) -> str:
        return f"{self.what}: {self.before} and {self.after}"


def compare(before: Result, after: Result) -> tuple[Ratio, ...]:
    """One beside another, where no more are looked at together."""
    return compare_all([(before, after)])[0]


def compare_all(pairs: Sequence[tuple[Result, Result]]) -> tuple[tuple[Ratio, ...], ...]:
    """For each pair the tests that both have, in the order of the first. Those without a figure are left out.

    "faster" and "slower" need ranges that do not overlap, and a difference that is no chance among so many lines of all
    pairs (Welch's t-test of the logarithms, Holm's correction): where a drive is put beside itself, at most five of 100
    calls have a false line, be it of one test or of forty, of two results or of ten.
    """
    lines = [list(_lines(before, after)) for before, after in pairs]
    every = [line for of_pair in lines for line in of_pair]
    chances = iter(holm([chance_of_two(one.rates, other.rates) for one, other, enough in every if enough]))
    return tuple(
        tuple(_ratio(one, other, next(chances) if enough else None) for one, other, enough in of_pair)
        for of_pair in lines
    )


def _lines(before: Result, after: Result) -> Iterator[tuple[Series, Series, bool]]:
    """Both sides of a test, and whether their runs tell how far they lie apart."""
    others = {each.test: each for each in after.series}
    repeats = not (before.settings.passes or after.settings.passes)
    for one in before.series:
        other = others.get(one.test)
        if other is None or one.rate.median <= 0 or other.rate.median <= 0:
            continue
        enough = min(one.rate.count, other.rate.count) >= LEAST_RUNS
        yield one, other, repeats and enough and not _unsteady(one, other)


def _unsteady(one: Series, other: Series) -> bool:
    """A drive that was to come to rest, and is on its way there still, has no rate yet."""
    return one.steady is False or other.steady is False


def _ratio(one: Series, other: Series, chance: float | None) -> Ratio:
    return Ratio(one.test, one.rate, other.rate, _verdict(one, other, chance), chance)


def _verdict(one: Series, other: Series, chance: float | None) -> Verdict:
    a, b = one.rate, other.rate
    if chance is None:
        return Verdict.UNSTEADY if _unsteady(one, other) else Verdict.SINGLE
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
                "passes over the same data are no repeats: the first of each stands here, and nobody knows its noise"
            )
    return tuple(dict.fromkeys(said))


def doubts(result: Result) -> tuple[str, ...]:
    """Why not to trust one side, a sentence each."""
    said = [] if result.complete else ["not complete: it was interrupted, or fio failed"]
    moving = [each.test.title for each in result.series if each.steady is False]
    if moving:
        said.append(f"it was to be measured until it is steady, and is not: {', '.join(moving)}")
    beside = [each.test.title for each in result.series if each.busy_machine]
    if beside:
        said.append(f"busy machine: other programs kept all cores busy during {', '.join(beside)}")
    return (*said, *warnings_of(result.conditions, direct=result.settings.direct))


def differences(before: Result, after: Result) -> tuple[Difference, ...]:
    """Of the machine and of the drives, in the order in which they lie below each other. What neither says is none."""
    a, b = before.conditions, after.conditions
    found = [*_of_machines(a, b), *_of_drives(a.drives, b.drives)]
    return tuple(each for each in found if each.before != each.after)


def _of_machines(a: Conditions, b: Conditions) -> Iterator[Difference]:
    for what, one, other in (
        ("kernel", a.kernel, b.kernel),
        ("fio", a.fio, b.fio),
        ("processor", a.processor, b.processor),
        ("cores", a.cores, b.cores),
        ("governor", a.governor, b.governor),
        ("file system", a.filesystem, b.filesystem),
        ("mount options", a.mount_options, b.mount_options),
    ):
        yield Difference(what, str(one or "not known"), str(other or "not known"))
    if a.kernel and b.kernel:
        yield Difference("caches", _dropped(a), _dropped(b))


def _dropped(seen: Conditions) -> str:
    return "dropped" if seen.caches_dropped else "not dropped"


def _of_drives(a: Sequence[DriveState], b: Sequence[DriveState]) -> Iterator[Difference]:
    """What a drive brings along differs from model to model; what is not known of one side is no difference."""
    if a and b:
        yield Difference("number of drives", str(len(a)), str(len(b)))
    for one, other in zip(a, b, strict=False):
        name = one.name if one.name == other.name else f"{one.name} and {other.name}"
        facts: list[tuple[str, str | int | None, str | int | None]] = [
            ("link", one.link, other.link),
            ("scheduler", one.scheduler, other.scheduler),
            ("write cache", one.write_cache, other.write_cache),
            ("queue depth", one.queue_depth, other.queue_depth),
        ]
        if one.model == other.model:
            facts.append(("firmware", one.firmware, other.firmware))
        for what, before, after in facts:
            if before is not None and after is not None:
                yield Difference(f"{what} of {name}", str(before), str(after))
