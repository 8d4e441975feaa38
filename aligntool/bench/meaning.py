"""What the figures say of the drive: the processor in the way, a cache, noise.

In: a result. Out: sentences. Alone because figures are read by people who want to know what follows from them, and what
does not.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from fractions import Fraction
from statistics import median

from aligntool.bench.chance import LEAST_RUNS
from aligntool.bench.conditions import warnings_of
from aligntool.bench.queueing import about_depth
from aligntool.bench.results import Result, Series, as_ssd_score
from aligntool.bench.steady import MOST_EXCURSION, WINDOW, steadiness
from aligntool.trace import ARTICLE, Drive
from aligntool.units import KIB, format_about, significant

CACHE = 2.0  # times the first passes, from which on the later ones are said to show a cache
LEAST_PASSES = 2  # after the first
FLAT = 1.25  # times the first pass, up to which the later ones are called as fast
NOISY = 0.25
JUST_WRITTEN = "a file that was just written is in a cache that keeps writes from the first pass on"


def meaning(result: Result) -> Iterator[str]:
    """Sentences, the most important first."""
    yield from _about_processor(result)
    yield from _about_noise(result)
    yield from about_depth(result)
    yield from _about_passes(result)
    yield from _about_steadiness(result)
    yield from _about_score(result)
    yield from _about_boot(result)
    yield from _about_threads(result)


def boot_drive(result: Result) -> Drive | None:
    """Its QD1 4 KiB rates, by which a drive for a system is rated (E1). None: they were not measured, or in passes over
    the same data, which a boot does not read twice.
    """
    if result.settings.passes:
        return None
    rates = [
        Fraction(round(side.rate.median), 10**6) for side in _boot_sides(result) if side.rate.median >= 1
    ]
    return Drive(*rates) if len(rates) == 2 else None


def boot_doubts(result: Result) -> Iterator[str]:
    """Why not to trust what is reckoned from `boot_drive`, a sentence each."""
    if not result.complete:
        yield "not complete: it was interrupted, or fio failed"
    bound = [side.test.title for side in _boot_sides(result) if side.cpu_bound]
    if bound:
        yield f"CPU-bound: {', '.join(bound)}: the drive may be faster than that"
    beside = [side.test.title for side in _boot_sides(result) if side.busy_machine]
    if beside:
        yield f"busy machine: {', '.join(beside)}: the drive may be faster than that"
    moving = [side.test.title for side in _boot_sides(result) if side.steady is False]
    if moving:
        yield f"NOT steady: {', '.join(moving)}"
    yield from warnings_of(result.conditions, direct=result.settings.direct)


def _boot_sides(result: Result) -> list[Series]:
    """Reads first."""
    sides = (
        result.find(random=True, block=4 * KIB, depth=1, threads=1, write=write) for write in (False, True)
    )
    return [side for side in sides if side]


def _about_processor(result: Result) -> Iterator[str]:
    bound = [each.test.title for each in result.series if each.thread_full]
    if bound:
        yield (
            f"CPU-bound: {', '.join(bound)}. A thread had no time left, so the drive may be faster than that; take "
            "more threads"
        )
    full = [each.test.title for each in result.series if each.cpu_bound and not each.thread_full]
    if full:
        yield (
            f"CPU-bound: {', '.join(full)}. All {result.conditions.cores} cores were busy, so the drive may be faster "
            "than that"
        )
    beside = [each.test.title for each in result.series if each.busy_machine]
    if beside:
        yield (
            f"busy machine: {', '.join(beside)}. All {result.conditions.cores} cores were busy, most of it with other "
            "programs or the kernel's own threads, so the drive may be faster than that; measure again when it is idle"
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


def _about_passes(result: Result) -> Iterator[str]:
    """C4: a cache that keeps what was read makes the later passes faster; writes stay as they are."""
    if not result.settings.passes:
        return
    yield "the figures of each test are those of its first pass"
    for each in result.series:
        rates = [sample.bytes_per_s for sample in each.samples]
        over = {count: rate for count in sorted(result.settings.passes) if (rate := each.of_passes(count))}
        if len(rates) < 2 or not rates[0] or not over:
            continue
        times = [rate / rates[0] for rate in rates[1:]]
        found = cache_of(times)
        verdict = _cached(result, write=each.test.write) if found is Cache.SHOWS else found.value
        verdict += f", but {JUST_WRITTEN}" if found is Cache.NONE and result.kind == "folder" else ""
        figures = ", ".join(
            f"{significant(rate / 1e6)} MB/s over {_passes(count)}" for count, rate in over.items()
        )
        yield (
            f"{each.test.title}: {figures}, those after the first {median(times):.1f} times as fast "
            f"({min(times):.1f} to {max(times):.1f}): {verdict}"
        )


class Cache(StrEnum):
    SHOWS = "a cache"
    NONE = "no cache shows"
    FEW = f"can't tell whether there is a cache: fewer than {LEAST_PASSES} passes after the first"
    UNKNOWN = "can't tell whether there is a cache: some passes are much slower than others"
    SOME = "can't tell whether there is a cache: the later passes are somewhat faster"


def cache_of(times: Sequence[float]) -> Cache:
    """Return what passes over the same data show; `times`: the rates of all but the first pass, over that of the first.

    A cache keeps all that it has read, so every later pass is CACHE times as fast; without one, none is. One pass that
    something else slowed down, or one that was fast by chance, is no evidence of either.
    """
    if len(times) < LEAST_PASSES:
        return Cache.FEW
    if min(times) >= CACHE:
        return Cache.SHOWS
    if max(times) >= CACHE or min(times) <= 1 / FLAT:
        return Cache.UNKNOWN
    return Cache.NONE if median(times) < FLAT else Cache.SOME


def _cached(result: Result, *, write: bool) -> str:
    if not write:
        return "a cache keeps what was read"
    fresh = result.settings.prepare == "none"
    return "a cache takes the writes" + (", or what was never written is slower to write" if fresh else "")


def _passes(count: int) -> str:
    return "one pass" if count == 1 else f"{count} passes"


def _about_steadiness(result: Result) -> Iterator[str]:
    if not result.settings.until_steady:
        return
    yield f"the figures of each test are those of its last {WINDOW} rounds"
    if result.kind == "folder":
        yield steady_file(result.settings.span)
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


def steady_file(span: int) -> str:
    """`span`: bytes of the file. A drive has the rest of its room to work with."""
    return f"measured on a file of {format_about(span)}, which says nothing of the whole drive"


def _about_score(result: Result) -> Iterator[str]:
    """Not of passes: AS SSD knows none."""
    if result.settings.score != "as-ssd" or result.settings.passes:
        return
    score = as_ssd_score(result.series)
    if score:
        yield f"AS SSD's score: {score.read:.0f} read, {score.write:.0f} write, {score.total:.0f} in all"
    times = access_times(result)
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
            f"for a system: {significant(float(drive.read))} MB/s read and {significant(float(drive.write))} MB/s "
            "write one at a time; "
            f"the commands of a boot take it {float(drive.boot_s(ARTICLE)):.1f} s (aligntool estimate boot)"
        )
        return
    read = result.find(random=True, block=4 * KIB, depth=1, threads=1, write=False)
    if read and not result.settings.passes:
        yield (
            f"for a system: {significant(read.rate.median / 1e6)} MB/s read one at a time, which is what a boot waits "
            "for; writes were not measured"
        )


def _about_threads(result: Result) -> Iterator[str]:
    """From where on another thread gains nothing. One pass of each has no noise to hold a gain against."""
    if result.settings.passes:
        return
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
        if enough.test.threads == last:
            rest = f"more than {last} threads were not tried"
        elif min(each.iops.count for each in group) < LEAST_RUNS:
            rest = (
                f"can't tell from how many threads on the rest is noise: fewer than {LEAST_RUNS} runs of each"
            )
        else:
            rest = f"from {enough.test.threads} {threads} on the rest is within the noise"
        yield f"{best.test.title} has the most IOPS, {best.iops.median:,.0f}; {rest}"
