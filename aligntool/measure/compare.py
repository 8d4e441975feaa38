"""Compare results of benchmarks, and derive the notes and warnings on a single one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import log10
from statistics import median

from aligntool.inventory import DiskKind
from aligntool.measure import results as kept
from aligntool.measure.results import Conditions, DriveState, Result, Series, Spread, lowest_drives
from aligntool.measure.schedule import DEEP
from aligntool.measure.trace import ARTICLE, Drive
from aligntool.measure.unit_design import FALSE_LINE_RATE, LEAST_RUNS, holm, welch_p_value
from aligntool.recipes.goals import BenchTest
from aligntool.units import KIB, counted, format_about, significant

# Compare two results as an article of 2017 draws them: log10 of the ratio, 0 for equal, -1 for ten times
# slower.


class Verdict(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    NOISE = "within the noise"
    SINGLE = "too few runs to tell"
    UNSTEADY = "not steady"
    CPU = "held back by the processor"


@dataclass(frozen=True, slots=True)
class Ratio:
    """One test of two results, in bytes per second."""

    test: BenchTest
    before: Spread
    after: Spread
    verdict: Verdict
    chance: float | None
    """The p-value, corrected for all lines: how likely one drive differs from itself as much in any of them.
    None: the spread of the runs is unknown.
    """

    @property
    def log_ratio(self) -> float:
        return log10(self.after.median / self.before.median)

    @property
    def times(self) -> float:
        return self.after.median / self.before.median


_TITLES = {"filesystem": "file system", "mount_options": "mount options"}


@dataclass(frozen=True, slots=True)
class Difference:
    """A condition that was not the same while the two results were measured."""

    what: str
    before: str
    after: str

    @property
    def words(self) -> str:
        return f"{self.what}: {self.before} and {self.after}"


def compare(before: Result, after: Result) -> tuple[Ratio, ...]:
    """Return the ratios of one result to another, if no other results are compared."""
    return compare_all([(before, after)])[0]


def compare_all(pairs: Sequence[tuple[Result, Result]]) -> tuple[tuple[Ratio, ...], ...]:
    """Return for each pair the ratios of the tests that both have, in the order of the first result. Tests
    without a figure are omitted.

    "faster" and "slower" need ranges that do not overlap, and a difference that is significant among all
    lines of all pairs (Welch's t-test of the logarithms, Holm's correction): if a drive is compared with
    itself, at most five of 100 calls have a false line, for one test or forty, for two results or ten.
    """
    lines = [list(_lines(before, after)) for before, after in pairs]
    tested = [
        (number, a, b) for number, pair_lines in enumerate(lines) for a, b, testable in pair_lines if testable
    ]
    p_values = holm([welch_p_value(a.rates, b.rates) for _, a, b in tested])
    p_value_of = {(number, a.test): p_value for (number, a, _), p_value in zip(tested, p_values, strict=True)}
    return tuple(
        tuple(_ratio(a, b, p_value_of.get((number, a.test))) for a, b, _ in pair_lines)
        for number, pair_lines in enumerate(lines)
    )


def _lines(before: Result, after: Result) -> Iterator[tuple[Series, Series, bool]]:
    """Yield both series of each common test, and whether their runs show their spread."""
    others = {series.test: series for series in after.series}
    repeats = not (before.settings.passes or after.settings.passes)
    for a in before.series:
        b = others.get(a.test)
        if b is not None and a.rate.median > 0 and b.rate.median > 0:
            enough = min(a.rate.count, b.rate.count) >= LEAST_RUNS
            yield a, b, repeats and enough and not _unsteady(a, b)


def _unsteady(a: Series, b: Series) -> bool:
    """Return whether one of them was measured until steady and did not get there: such a drive has no rate
    yet.
    """
    return a.steady is False or b.steady is False


def _ratio(a: Series, b: Series, p_value: float | None) -> Ratio:
    return Ratio(a.test, a.rate, b.rate, _verdict(a, b, p_value), p_value)


def _verdict(before: Series, after: Series, p_value: float | None) -> Verdict:
    a = before.rate
    b = after.rate
    if p_value is None:
        return Verdict.UNSTEADY if _unsteady(before, after) else Verdict.SINGLE
    if p_value > FALSE_LINE_RATE or (a.low <= b.high and b.low <= a.high):
        return Verdict.CPU if before.cpu_bound or after.cpu_bound else Verdict.NOISE
    slower = after if b.median < a.median else before
    if slower.cpu_bound:  # its rate without that limit is unknown
        return Verdict.CPU
    return Verdict.SLOWER if slower is after else Verdict.FASTER


def unmatched(results: Sequence[Result]) -> tuple[str, ...]:
    """Return a sentence for tests that not all results have, and for each setting in which they differ."""
    sentences = []
    first = results[0]
    for other in results[1:]:
        titles = {series.test.title for series in first.series} ^ {
            series.test.title for series in other.series
        }
        if titles:
            sentences.append(f"in one result only: {', '.join(sorted(titles))}")
        for what, a, b in (
            ("size", first.settings.span, other.settings.span),
            ("kind of target", first.kind, other.kind),
            ("seconds of a run", first.settings.runtime_s, other.settings.runtime_s),
            ("direct I/O", first.settings.direct, other.settings.direct),
            ("preparation", first.settings.prepare, other.settings.prepare),
            ("data", first.settings.data, other.settings.data),
            ("pause", first.settings.pause_s, other.settings.pause_s),
        ):
            sentences += [f"the results differ in {what}: {a} and {b}"] if a != b else []
        if first.settings.passes or other.settings.passes:
            sentences += [
                "passes over the same data are not repeats: the first ones are compared, and their noise is"
                " unknown"
            ]
    return tuple(dict.fromkeys(sentences))


def doubts(result: Result, sides: Sequence[Series] | None = None) -> Iterator[str]:
    """Yield the reasons not to trust the result, or these tests of it, a sentence each."""
    series = result.series if sides is None else sides
    if not result.complete:
        yield "not complete: it was interrupted, or fio failed"
    if sides and (bound := _titles(sides, lambda side: side.cpu_bound)):
        yield f"CPU-bound: {bound}: the drive may be faster than that"
    beside = _titles(series, lambda side: side.busy_machine)
    if beside:
        yield (
            f"busy machine: other programs kept all cores busy during {beside}; the drive may be faster than"
            " that"
        )
    moving = _titles(series, lambda side: side.steady is False)
    if moving:
        yield f"NOT steady: {moving}"
    yield from kept.warnings_of(result.conditions, direct=result.settings.direct)


def differences(before: Result, after: Result) -> tuple[Difference, ...]:
    """Return the differences of the machines, then of the drives from the target down. Facts that neither
    result has are omitted.
    """
    a = before.conditions
    b = after.conditions
    return tuple(
        fact for fact in (*_of_machines(a, b), *_of_drives(a.drives, b.drives)) if fact.before != fact.after
    )


def _of_machines(a: Conditions, b: Conditions) -> Iterator[Difference]:
    for name in ("kernel", "fio", "processor", "cores", "governor", "filesystem", "mount_options"):
        before, after = (str(getattr(seen, name) or "not known") for seen in (a, b))
        yield Difference(_TITLES.get(name, name), before, after)
    if a.kernel and b.kernel:
        yield Difference("caches", *("dropped" if seen.caches_dropped else "not dropped" for seen in (a, b)))


def _of_drives(a: Sequence[DriveState], b: Sequence[DriveState]) -> Iterator[Difference]:
    """Yield the facts of each pair of drives. The firmware is compared for one model only, because it differs
    from model to model; a fact that is unknown on one side is not a difference.
    """
    if a and b:
        yield Difference("number of drives", str(len(a)), str(len(b)))
    for one, other in zip(a, b, strict=False):
        name = one.name if one.name == other.name else f"{one.name} and {other.name}"
        for fact in ("link", "scheduler", "write_cache", "queue_depth", "firmware"):
            before, after = getattr(one, fact), getattr(other, fact)
            if before is not None and after is not None and (fact != "firmware" or one.model == other.model):
                yield Difference(f"{fact.replace('_', ' ')} of {name}", str(before), str(after))


# What the figures show of the drive: a limit by the processor, a cache, noise.

CACHE = 2.0  # times the rate of the first pass: later passes that are faster show a cache
LEAST_PASSES = 2  # after the first
FLAT = 1.25  # times the rate of the first pass: later passes below that count as equally fast
NOISY = 0.25
JUST_WRITTEN = "a file that was just written is in a cache that keeps writes from the first pass on"


def result_notes(result: Result) -> Iterator[str]:
    """Yield notes on a result, a sentence each, the most important first."""
    yield from _about_processor(result)
    yield from _about_noise(result)
    yield from about_depth(result)
    yield from _about_passes(result)
    yield from _about_steadiness(result)
    yield from _about_score(result)
    yield from _about_boot(result)
    yield from _about_threads(result)


def boot_drive(result: Result) -> Drive | None:
    """Return the QD1 4 KiB rates, by which a drive for a system is rated (E1), or None if they were not
    measured, or were measured in passes over the same data: a boot does not read data twice.
    """
    if result.settings.passes:
        return None
    rates = [
        Fraction(round(side.rate.median), 10**6) for side in _boot_sides(result) if side.rate.median >= 1
    ]
    return Drive(*rates) if len(rates) == 2 else None


def boot_doubts(result: Result) -> Iterator[str]:
    """Yield the reasons not to trust the estimate from `boot_drive`, a sentence each."""
    return doubts(result, _boot_sides(result))


def _boot_sides(result: Result) -> list[Series]:
    """Return the QD1 4 KiB tests that were measured, reads first."""
    sides = (
        result.find(random=True, block=4 * KIB, depth=1, threads=1, write=write) for write in (False, True)
    )
    return [side for side in sides if side]


def _titles(series: Iterable[Series], keep: Callable[[Series], bool | None]) -> str:
    return ", ".join(side.test.title for side in series if keep(side))


def _about_processor(result: Result) -> Iterator[str]:
    cores = f"All {result.conditions.cores} cores were busy"
    bound = _titles(result.series, lambda side: side.thread_full)
    if bound:
        yield (
            f"CPU-bound: {bound}. A thread had no time left, so the drive may be faster than that; use more"
            " threads"
        )
    full = _titles(result.series, lambda side: side.cpu_bound and not side.thread_full)
    if full:
        yield f"CPU-bound: {full}. {cores}, so the drive may be faster than that"
    beside = _titles(result.series, lambda side: side.busy_machine)
    if beside:
        others = "mostly with other programs or the kernel's own threads"
        yield (
            f"busy machine: {beside}. {cores}, {others}, so the drive may be faster; measure again when it is"
            " idle"
        )


def _about_noise(result: Result) -> Iterator[str]:
    if result.settings.passes or result.settings.until_steady:
        return
    noisy = _titles(result.series, lambda side: side.rate.share > NOISY and side.rate.count > 1)
    if noisy:
        yield (
            f"the runs differ by more than {NOISY:.0%}: {noisy}. Something else was running, or a cache"
            " filled up"
        )


def _about_passes(result: Result) -> Iterator[str]:
    """C4: a cache that keeps what was read makes the later passes faster, but not writes."""
    if not result.settings.passes:
        return
    yield "the figures of each test are those of its first pass"
    for side in result.series:
        rates = [sample.bytes_per_s for sample in side.samples]
        over = {count: rate for count in sorted(result.settings.passes) if (rate := side.of_passes(count))}
        if len(rates) < 2 or not rates[0] or not over:
            continue
        times = [rate / rates[0] for rate in rates[1:]]
        found = cache_of(times)
        verdict = _cache_explanation(result, write=side.test.write) if found is Cache.SHOWS else found.value
        verdict += f", but {JUST_WRITTEN}" if found is Cache.NONE and result.kind == "folder" else ""
        passes = {1: "one pass"} | {count: f"{count} passes" for count in over if count > 1}
        figures = ", ".join(
            f"{significant(rate / 1e6)} MB/s over {passes[count]}" for count, rate in over.items()
        )
        faster = f"{median(times):.1f} times as fast ({min(times):.1f} to {max(times):.1f})"
        yield f"{side.test.title}: {figures}, later passes {faster}: {verdict}"


class Cache(StrEnum):
    SHOWS = "a cache"
    NONE = "no cache shows"
    FEW = f"can't tell whether there is a cache: fewer than {LEAST_PASSES} passes after the first"
    UNKNOWN = "can't tell whether there is a cache: some passes are much slower than others"
    SOME = "can't tell whether there is a cache: the later passes are somewhat faster"


def cache_of(times: Sequence[float]) -> Cache:
    """Return what passes over the same data show; `times`: the rates of all later passes divided by that of
    the first.

    A cache keeps everything that was read, so every later pass is CACHE times as fast; without a cache, none
    is. One pass that something else slowed down, or that was fast by chance, is not evidence of either.
    """
    if len(times) < LEAST_PASSES:
        return Cache.FEW
    if min(times) >= CACHE:
        return Cache.SHOWS
    if max(times) >= CACHE or min(times) <= 1 / FLAT:
        return Cache.UNKNOWN
    return Cache.NONE if median(times) < FLAT else Cache.SOME


def _cache_explanation(result: Result, *, write: bool) -> str:
    if not write:
        return "a cache keeps the data that was read"
    fresh = result.settings.prepare == "none"
    return "a cache takes the writes" + (", or unwritten blocks are slower to write" if fresh else "")


def _about_steadiness(result: Result) -> Iterator[str]:
    if not result.settings.until_steady:
        return
    yield f"the figures of each test are those of its last {kept.WINDOW} rounds"
    if result.kind == "folder":
        yield steady_file(result.settings.span)
    for side in result.series:
        found = kept.steadiness([sample.iops for sample in side.samples])
        if found is None:
            yield f"{side.test.title}: fewer than {kept.WINDOW} rounds, so it is unknown whether it is steady"
            continue
        state = "steady" if found.steady else "NOT steady"
        last = f"of the last {kept.WINDOW} the average is {found.average:,.0f} IOPS"
        limits = (
            f"{found.excursion:.1%} (at most {kept.MOST_EXCURSION:.0%}), the trend is {found.slope:.1%} (at"
            " most"
        )
        yield f"{side.test.title}: {state} after {found.rounds} rounds: {last}, they differ by {limits} 10%)"


def steady_file(span: int) -> str:
    """Return the note on a steady state that was measured on a file of `span` bytes: the drive can use the
    rest of its space.
    """
    return f"measured on a file of {format_about(span)}, which does not represent the whole drive"


def _about_score(result: Result) -> Iterator[str]:
    """Yield AS SSD's score and access time. Omitted for passes, which AS SSD does not have."""
    if result.settings.score != "as-ssd" or result.settings.passes:
        return
    score = kept.as_ssd_score(result.series)
    if score:
        yield "AS SSD's score: {:.0f} read, {:.0f} write, {:.0f} in total".format(*score)
    sides = [("write" if each.test.write else "read", each.middle("p50_us")) for each in _boot_sides(result)]
    times = [f"{us / 1000:.3f} ms {side}" for side, us in sides if us is not None]
    if times:
        yield f"AS SSD's access time: {', '.join(times)}"  # the median latency of one 4 KiB request at a time


def _about_boot(result: Result) -> Iterator[str]:
    drive = boot_drive(result)
    if drive:
        read, write = (significant(float(rate)) for rate in (drive.read, drive.write))
        boot = f"the commands of a boot take {float(drive.boot_s(ARTICLE)):.1f} s (aligntool estimate boot)"
        yield f"for a system: {read} MB/s read and {write} MB/s write one at a time; {boot}"
        return
    side = next((side for side in _boot_sides(result) if not side.test.write), None)
    if side and not result.settings.passes:
        alone = f"{significant(side.rate.median / 1e6)} MB/s read one at a time"
        yield f"for a system: {alone}, which is what a boot waits for; writes were not measured"


def _about_threads(result: Result) -> Iterator[str]:
    """Yield the number of threads beyond which another one gains nothing. Omitted for passes: the noise, with
    which a gain must be compared, is unknown then.
    """
    if result.settings.passes:
        return
    groups: dict[tuple[bool, int, int, str], list[Series]] = {}
    for side in result.series:
        test = side.test
        groups.setdefault((test.random, test.block, test.depth, test.does), []).append(side)
    for group in groups.values():
        if len(group) < 3:
            continue
        best = max(group, key=lambda side: side.iops.median)
        enough = min(
            (side for side in group if side.iops.high >= best.iops.low), key=lambda side: side.test.threads
        )
        last = max(side.test.threads for side in group)
        if enough.test.threads == last:
            rest = f"more than {last} threads were not tried"
        elif min(side.iops.count for side in group) < LEAST_RUNS:
            rest = f"can't tell how many threads are enough: fewer than {LEAST_RUNS} runs of each"
        else:
            rest = f"more than {counted(enough.test.threads, 'thread')}: within the noise"
        yield f"{best.test.title} has the most IOPS, {best.iops.median:,.0f}; {rest}"


# Whether a drive works on several requests at once: compare one in flight with two, four and many (C3).
#
# A drive that serves one request at a time gains from a second one in flight, too: while it works on one, the
# processor prepares the next (Little's law: if a request takes S seconds of the drive and H of the processor,
# one in flight has 1 / (S + H) IOPS, and any number in flight at most 1 / S). So a gain alone proves nothing.
# It is due to the drive if it continues from two requests in flight to four, if the processor was too idle
# for H to explain it, and if no wait that keeps no core busy explains it either: leaving an idle state takes
# up to IDLE_US with a drive of this machine; a network or a hypervisor may take any time. Only a request
# every QUICK_US is more than any flash serves one at a time.

GAIN = 1.2  # times the IOPS: from here on a deeper queue counts as faster
SHARE = 0.8  # of the busy time that a serial drive needs: a busy share is only accurate to some percent
BATCHED = 0.5  # of the processor time of a request at depth 1: deep queues share interrupts and wake-ups
IDLE_US = 200.0  # exit latency of C8 in intel_idle, the deepest state that is worth a wait below 5 ms
QUICK_US = 25.0  # a page read of flash takes longer (25 for SLC, 40 to 100 for TLC)
_ATTACHED = (
    DiskKind.NVME,
    DiskKind.ATA,
    DiskKind.USB,
    DiskKind.UFS,
    DiskKind.SD,
    DiskKind.EMMC,
    DiskKind.LOOP,
)
# there may be no flash at all: a target's memory answers at once
_NOT_FLASH = (DiskKind.NETWORK, DiskKind.MEMORY)


class Gain(StrEnum):
    SOME = "the drive works on several requests at once (NCQ or its like)"
    NONE = "no gain from a deep queue, as without command queueing (NCQ)"
    UNKNOWN = "can't tell whether a deep queue gains anything"


@dataclass(frozen=True, slots=True)
class DepthGain:
    """One test with one request in flight and with many; with two and with four if they were measured."""

    one: Series
    deep: Series
    two: Series | None = None
    four: Series | None = None
    kinds: frozenset[str | None] = frozenset()
    """DiskKind of the drives at the bottom; empty: not known."""

    @property
    def times(self) -> float:
        return self.deep.iops.median / self.one.iops.median

    @property
    def overlaps(self) -> bool:
        return self.deep.iops.low <= self.one.iops.high and self.one.iops.low <= self.deep.iops.high

    @property
    def gain(self) -> Gain:
        """SOME: the gain is GAIN or more and beyond the noise, and nothing but the drive explains it. NONE:
        it is less than GAIN in every run of the deep queue.
        """
        if self.times >= GAIN and not self.overlaps:
            return Gain.UNKNOWN if self.doubt else Gain.SOME
        highest = self.deep.iops.high / self.one.iops.median
        limited = self.deep.cpu_bound or self.deep.machine_full
        return Gain.NONE if self.times < GAIN and highest < GAIN and not limited else Gain.UNKNOWN

    @property
    def doubt(self) -> str:
        """Why a gain may not be due to the drive; "" if it is."""
        if any(side is not None and side.busy_machine for side in (self.one, self.two, self.four)):
            return "the machine was busy with other programs"
        if self.one.cpu_bound:
            return "the processor was already the limit with one request in flight"
        if self.two is None or self.four is None:
            return "two and four requests in flight were not measured"
        if self.four.iops.median < GAIN * self.two.iops.median or self.four.iops.low <= self.two.iops.high:
            return "four requests in flight gain nothing over two, as when processor and drive take turns"
        if self._explained_by_processor:
            return (
                "the processor was busy enough to explain it: it prepares requests while the drive serves"
                " others"
            )
        if self._explained_by_wait:
            return "a wait between drive and processor that keeps no core busy also explains it"
        return ""

    @property
    def _explained_by_wait(self) -> bool:
        """Whether a drive that serves one request at a time could show this gain because of a wait: the time
        of a request with one in flight less its time with many.
        """
        deep_us = 1e6 / self.deep.iops.median
        waited_us = 1e6 / self.one.iops.median - deep_us
        if deep_us <= QUICK_US and not self.kinds & frozenset(_NOT_FLASH):
            return False
        return waited_us <= IDLE_US or not self.kinds or not self.kinds <= frozenset(_ATTACHED)

    @property
    def _explained_by_processor(self) -> bool:
        """Whether a drive that serves one request at a time could show this gain because of the processor,
        which must then have been busy for 1 - 1/gain of the time with one in flight, and on gain - 1 cores
        with many.
        """
        needed = SHARE * (1 - 1 / self.times)
        at_depth = self.deep.middle("busy_cores")
        busy = max(at_depth or 0, self.deep.cores) if at_depth is not None else None
        enough_deep = busy is None or busy >= BATCHED * (self.times - 1)
        # Cores of fio's threads or of the whole machine: threads of the kernel or a driver work for a
        # request, too.
        return max(self.one.cores, self.one.middle("busy_cores") or 0.0) >= needed and enough_deep


def depth_gains(result: Result) -> Iterator[DepthGain]:
    """Yield pairs of random tests with one thread that differ only in their depth. Results that show nothing
    have none: only direct I/O shows the drive, passes over the same data show a cache, and the noise of fewer
    than LEAST_RUNS runs is unknown.
    """
    if not result.settings.direct or result.settings.passes:
        return
    single = [side for side in result.series if side.test.threads == 1 and side.test.reads is None]
    random = [side for side in single if side.test.random]
    repeated = [side for side in random if side.iops.count >= LEAST_RUNS]
    for one in repeated:
        kind = (one.test.block, one.test.write)
        by_depth = {side.test.depth: side for side in repeated if (side.test.block, side.test.write) == kind}
        deepest = max(by_depth)
        kinds = frozenset(drive.kind for drive in lowest_drives(result.conditions.drives))
        if one.test.depth == 1 and one.iops.median and deepest >= DEEP:
            yield DepthGain(one, by_depth[deepest], by_depth.get(2), by_depth.get(4), kinds)


def about_depth(result: Result) -> Iterator[str]:
    """Yield a sentence on each pair of `depth_gains`."""
    for pair in depth_gains(result):
        what = f"{pair.deep.test.title} has {pair.times:.1f} times the IOPS of {pair.one.test.title}"
        yield f"{what}{_depth_words(pair)}{_offered_depth(result.conditions.drives)}"


def _depth_words(pair: DepthGain) -> str:
    bound = pair.deep.cpu_bound
    gain = pair.gain
    if gain is not Gain.UNKNOWN:
        more = ", and could do more: the processor limited it" if bound and gain is Gain.SOME else ""
        return f": {gain}{more}"
    if pair.times >= GAIN and not pair.overlaps:
        return f": can't tell whether the drive works on several requests at once: {pair.doubt}"
    if pair.deep.busy_machine or bound:
        why = "the processor limited it" if bound else "the machine was busy with other programs"
        return f", and {why}, so command queueing (NCQ) cannot be judged"
    return f": {gain}: " + ("the runs overlap" if pair.overlaps else "some runs gain, and others do not")


def _offered_depth(drives: Sequence[DriveState]) -> str:
    """Return the clause with the queue depth that the device offers, or the smallest of the drives below it:
    an array or a volume has no depth of its own.
    """
    if drives and drives[0].queue_depth:
        return f"; the device offers a depth of {drives[0].queue_depth}"
    offering = [drive for drive in drives if drive.queue_depth]
    if not offering:
        return ""
    least = min(offering, key=lambda drive: drive.queue_depth or 0)
    return f"; the drives below {drives[0].name} offer a depth of {least.queue_depth} or more ({least.name})"
