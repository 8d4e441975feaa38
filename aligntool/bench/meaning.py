"""What the figures say of the drive: the processor in the way, command queueing, a cache, noise.

In: a result. Out: sentences. Alone because figures are read by people who want to know what follows from them, and what
does not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from aligntool.bench.conditions import DriveState
from aligntool.bench.results import Result, Series, as_ssd_score
from aligntool.bench.steady import MOST_EXCURSION, WINDOW, steadiness
from aligntool.trace import ARTICLE, Drive
from aligntool.units import KIB

GAIN = 1.2  # from which on a deeper queue is said to help
CACHE = 2.0  # times the first passes, from which on the later ones are said to show a cache
NOISY = 0.25
DEEP = 8  # requests in flight from which on a queue is called deep


@dataclass(frozen=True, slots=True)
class DepthGain:
    """One test with one request in flight, and with many."""

    one: Series
    deep: Series

    @property
    def times(self) -> float:
        return self.deep.iops.median / self.one.iops.median

    @property
    def overlaps(self) -> bool:
        return self.deep.iops.low <= self.one.iops.high and self.one.iops.low <= self.deep.iops.high


def meaning(result: Result) -> Iterator[str]:
    """Sentences, the most important first."""
    yield from _about_processor(result)
    yield from _about_noise(result)
    yield from _about_depth(result)
    yield from _about_passes(result)
    yield from _about_steadiness(result)
    yield from _about_score(result)
    yield from _about_boot(result)
    yield from _about_threads(result)


def depth_gains(result: Result) -> Iterator[DepthGain]:
    """Pairs of random tests that differ in their depth alone, with one thread (C3)."""
    for one in result.series:
        if not one.test.random or one.test.threads != 1 or one.test.depth != 1 or not one.iops.median:
            continue
        deeper = [
            each
            for each in result.series
            if (each.test.random, each.test.threads) == (True, 1)
            and (each.test.block, each.test.write) == (one.test.block, one.test.write)
            and each.test.depth >= DEEP
        ]
        if deeper:
            yield DepthGain(one, max(deeper, key=lambda each: each.test.depth))


def boot_drive(result: Result) -> Drive | None:
    """Its QD1 4 KiB rates, by which a drive for a system is rated (E1). None: they were not measured."""
    sides = [
        result.find(random=True, block=4 * KIB, depth=1, threads=1, write=write) for write in (False, True)
    ]
    rates = [Fraction(round(side.rate.median), 10**6) for side in sides if side and side.rate.median >= 1]
    return Drive(*rates) if len(rates) == 2 else None


def _about_processor(result: Result) -> Iterator[str]:
    bound = [each.test.title for each in result.series if each.thread_full]
    if bound:
        yield (
            f"CPU-bound: {', '.join(bound)}. A thread had no time left, so the drive may be faster than that; take "
            "more threads"
        )
    full = [each.test.title for each in result.series if each.machine_full and not each.thread_full]
    if full:
        yield (
            f"CPU-bound: {', '.join(full)}. All {result.conditions.cores} cores were busy, with this or with something "
            "else, so the drive may be faster than that"
        )


def _about_noise(result: Result) -> Iterator[str]:
    if result.settings.passes or result.settings.until_steady:
        return
    noisy = [each.test.title for each in result.series if each.rate.share > NOISY and each.rate.count > 1]
    if noisy:
        yield (
            f"the runs lie more than {NOISY:.0%} apart: {', '.join(noisy)}. Something else was going on, or a cache "
            "filled up"
        )


def _about_depth(result: Result) -> Iterator[str]:
    told = _offered(result.conditions.drives)
    for gain in depth_gains(result):
        what = f"{gain.deep.test.title} has {gain.times:.1f} times the IOPS of {gain.one.test.title}"
        gained = not gain.overlaps and gain.times >= GAIN
        if not gained and gain.deep.cpu_bound:
            yield f"{what}, and the processor held it back: that says nothing of command queueing (NCQ){told}"
        elif not gained:
            yield f"{what}: no gain from a deep queue, as without command queueing (NCQ){told}"
        else:
            held = ", and could do more, for the processor held it back" if gain.deep.cpu_bound else ""
            yield f"{what}: the drive works on several requests at once (NCQ or its like){held}{told}"


def _offered(drives: Sequence[DriveState]) -> str:
    """An array or a volume has no depth of its own: its members have."""
    if not drives:
        return ""
    if drives[0].queue_depth:
        return f"; the device offers a depth of {drives[0].queue_depth}"
    members = [drive for drive in drives[1:] if drive.queue_depth]
    if not members:
        return ""
    least = min(members, key=lambda drive: drive.queue_depth or 0)
    return f"; the drives below {drives[0].name} offer a depth of {least.queue_depth} or more ({least.name})"


def _about_passes(result: Result) -> Iterator[str]:
    """C4: a cache that keeps what was read makes the later passes faster; writes stay as they are."""
    if len(result.settings.passes) < 2:
        return
    few, many = min(result.settings.passes), max(result.settings.passes)
    for each in result.series:
        first, whole = each.of_passes(few), each.of_passes(many)
        if not first or not whole:
            continue
        later = [sample.bytes_per_s for sample in each.samples[few:]]
        times = median(later) / first
        verdict = "a cache keeps what was read" if not each.test.write else "a cache takes the writes"
        if times < CACHE or min(later) <= first:
            verdict = "no cache shows"
        yield (
            f"{each.test.title}: {first / 1e6:.1f} MB/s over {_passes(few)}, {whole / 1e6:.1f} over {_passes(many)}, "
            f"the later ones {times:.1f} times as fast: {verdict}"
        )


def _passes(count: int) -> str:
    return "one pass" if count == 1 else f"{count} passes"


def _about_steadiness(result: Result) -> Iterator[str]:
    if not result.settings.until_steady:
        return
    for each in result.series:
        found = steadiness([sample.iops for sample in each.samples])
        if found is None:
            yield f"{each.test.title}: fewer than {WINDOW} rounds, so nobody knows whether it is steady"
            continue
        state = "steady" if found.steady else "NOT steady"
        yield (
            f"{each.test.title}: {state} after {found.rounds} rounds: of the last {WINDOW} the average is "
            f"{found.average:,.0f} IOPS, they differ by {found.excursion:.1%} (at most {MOST_EXCURSION:.0%}), "
            f"the trend is {found.slope:.1%} (at most 10%)"
        )


def _about_score(result: Result) -> Iterator[str]:
    score = as_ssd_score(result.series) if result.settings.score == "as-ssd" else None
    if score:
        yield f"AS SSD's score: {score.read:.0f} read, {score.write:.0f} write, {score.total:.0f} in all"
    times = access_times(result) if result.settings.score == "as-ssd" else []
    if times:
        yield f"AS SSD's access time: {', '.join(f'{ms:.3f} ms {side}' for side, ms in times)}"


def access_times(result: Result) -> list[tuple[str, float]]:
    """What AS SSD calls so, in milliseconds: the median latency of one 4 KiB request at a time."""
    found = []
    for write in (False, True):
        each = result.find(random=True, block=4 * KIB, depth=1, threads=1, write=write)
        micro = each.middle("p50_us") if each else None
        if micro is not None:
            found.append(("write" if write else "read", micro / 1000))
    return found


def _about_boot(result: Result) -> Iterator[str]:
    drive = boot_drive(result)
    if drive:
        yield (
            f"for a system: {float(drive.read):.1f} MB/s read and {float(drive.write):.1f} MB/s write one at a time; "
            f"the commands of a boot take it {float(drive.boot_s(ARTICLE)):.1f} s (aligntool estimate boot)"
        )
        return
    read = result.find(random=True, block=4 * KIB, depth=1, threads=1, write=False)
    if read:
        yield (
            f"for a system: {read.rate.median / 1e6:.1f} MB/s read one at a time, which is what a boot waits for; "
            "writes were not measured"
        )


def _about_threads(result: Result) -> Iterator[str]:
    """From where on another thread gains nothing."""
    groups: dict[tuple[bool, int, int, bool], list[Series]] = {}
    for each in result.series:
        test = each.test
        groups.setdefault((test.random, test.block, test.depth, test.write), []).append(each)
    for group in groups.values():
        if len(group) < 3:
            continue
        best = max(group, key=lambda each: each.iops.median)
        enough = min(
            (each for each in group if each.iops.high >= best.iops.low), key=lambda each: each.test.threads
        )
        last = max(each.test.threads for each in group)
        threads = "thread" if enough.test.threads == 1 else "threads"
        yield f"{best.test.title} has the most IOPS, {best.iops.median:,.0f}; " + (
            f"more than {last} threads were not tried"
            if enough.test.threads == last
            else f"from {enough.test.threads} {threads} on the rest is within the noise"
        )
