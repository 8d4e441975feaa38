"""Medians, ranges, confidence of a comparison; queueing at depth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import atan, cos, log, pi, sin, sqrt
from statistics import mean, variance

from aligntool.inventory import DiskKind
from aligntool.measure.results import DriveState, Result, Series, bottom_of
from aligntool.recipes.goals import BenchTest

# Whether a difference may be noise: Student's t-test, and Holm's correction for multiple comparisons.

PROMISED = 0.05  # of all comparisons of a drive with itself may have a false line
LEAST_RUNS = 5
"""The spread of fewer is unknown: of three runs each, ranges that do not overlap come about by chance
once in ten times (2 of 20), of five each once in 126 times.
"""
_SLOWEST = 1e-9  # a rate of nothing has no logarithm


def welch_p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """That rates of the same drive differ so much or more, in either direction: Welch's t-test of their logarithms.

    At least two of each.
    """
    a, b = _logs(one), _logs(other)
    error_a, error_b = variance(a) / len(a), variance(b) / len(b)
    apart, error = abs(mean(a) - mean(b)), error_a + error_b
    if not error:
        return 0.0 if apart else 1.0
    freedom = error**2 / (error_a**2 / (len(a) - 1) + error_b**2 / (len(b) - 1))  # Welch-Satterthwaite
    return student_tails(apart / sqrt(error), int(freedom))


def loss_p_value(ratios: Sequence[float]) -> float:
    """That ratios whose logarithms are 0 on average lie so far below: a one-sided t-test. At least two."""
    logs = _logs(ratios)
    middle, error = mean(logs), sqrt(variance(logs) / len(logs))
    if not error:
        return 0.0 if middle < 0 else 1.0
    both = student_tails(abs(middle) / error, len(logs) - 1)
    return both / 2 if middle < 0 else 1 - both / 2


def holm(chances: Sequence[float]) -> tuple[float, ...]:
    """Each so much larger that below PROMISED there is a false one with a chance of PROMISED, however many there are
    (S. Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979).
    """
    order = sorted(range(len(chances)), key=lambda place: chances[place])
    found, largest = [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[place]))
        found[place] = largest
    return tuple(found)


def student_tails(t: float, freedom: int) -> float:
    """The share of Student's distribution beyond t and -t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term, total = (cos(angle), cos(angle) if freedom > 1 else 0.0) if odd else (1.0, 1.0)
    for step in range(3 if odd else 2, freedom - 1, 2):
        term *= cos(angle) ** 2 * (step - 1) / step
        total += term
    within = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return max(0.0, 1 - within)


def _logs(rates: Sequence[float]) -> list[float]:
    return [log(max(rate, _SLOWEST)) for rate in rates]


# Whether a drive works on several requests at once: one in flight beside two, four and many (C3).
#
# A drive that serves one request at a time gains from a second one in flight, too: while it works on one, the
# processor prepares the next (Little's law: with S seconds of the drive and H of the processor a request, one
# in flight has 1 / (S + H) IOPS, and however many in flight at most 1 / S). So a gain alone proves nothing.
# It is the drive's when it goes on from two requests in flight to four, when the processor was too idle for H
# to explain it, and when no wait that keeps no core busy explains it either: leaving an idle state takes up
# to IDLE_US with a drive of this machine, a network or a hypervisor takes any time. Only a request every
# QUICK_US is more than any flash serves one at a time.

GAIN = 1.2  # from which on a deeper queue is said to help
DEEP = 8  # requests in flight from which on a queue is called deep
BETWEEN = (2, 4)
SHARE = 0.8  # of what a serial drive needs: a busy share is measured to some percent
BATCHED = 0.5  # of the processor's time a request at depth 1: deep queues share interrupts and wake-ups
IDLE_US = 200.0  # intel_idle: of the states that a wait below 5 ms is worth, the deepest (C8) takes so long to leave
QUICK_US = 25.0  # a page read of flash takes longer (25 of SLC, 40 to 100 of TLC)
_ATTACHED = (DiskKind.NVME, DiskKind.ATA, DiskKind.USB, DiskKind.UFS, DiskKind.SD, DiskKind.EMMC, DiskKind.LOOP)
_FAR = (DiskKind.NETWORK, DiskKind.MEMORY)  # no flash need be there: a target's memory answers at once


class Gain(StrEnum):
    SOME = "the drive works on several requests at once (NCQ or its like)"
    NONE = "no gain from a deep queue, as without command queueing (NCQ)"
    UNKNOWN = "can't tell whether a deep queue gains anything"


@dataclass(frozen=True, slots=True)
class DepthGain:
    """One test with one request in flight, with many, and where they were measured with two and with four."""

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
        """SOME: the gain is GAIN or more and beyond the noise, and nothing but the drive explains it. NONE: less than
        GAIN, in every run of the deep queue.
        """
        if self.times >= GAIN and not self.overlaps:
            return Gain.UNKNOWN if self.doubt else Gain.SOME
        most = self.deep.iops.high / self.one.iops.median
        held = self.deep.cpu_bound or self.deep.machine_full
        return Gain.NONE if self.times < GAIN and most < GAIN and not held else Gain.UNKNOWN

    @property
    def doubt(self) -> str:
        """Return why a gain may not be the drive's; "": it is."""
        if any(each is not None and each.busy_machine for each in (self.one, self.two, self.four)):
            return "the machine was busy with other programs"
        if self.one.cpu_bound:
            return "the processor was the limit with one request in flight already"
        if self.two is None or self.four is None:
            return "two and four requests in flight were not measured"
        if self.four.iops.median < GAIN * self.two.iops.median or self.four.iops.low <= self.two.iops.high:
            return "four requests in flight gain nothing over two, as where processor and drive take turns"
        if self._by_processor:
            return "the processor was busy enough to explain it: it prepares requests while the drive serves others"
        if self._by_waiting:
            return "a wait between drive and processor that keeps no core busy explains it as well"
        return ""

    @property
    def _by_waiting(self) -> bool:
        """Whether a drive that serves one request at a time could show this gain behind a wait: what a request takes
        with one in flight, less what it takes with many.
        """
        deep_us = 1e6 / self.deep.iops.median
        waited_us = 1e6 / self.one.iops.median - deep_us
        if deep_us <= QUICK_US and not self.kinds & frozenset(_FAR):
            return False
        return waited_us <= IDLE_US or not self.kinds or not self.kinds <= frozenset(_ATTACHED)

    @property
    def _by_processor(self) -> bool:
        """Whether a drive that serves one request at a time could show this gain. The processor's part of a request
        must then have been 1 - 1/gain of the time with one in flight, and gain - 1 cores with many.
        """
        needed = SHARE * (1 - 1 / self.times)
        at_depth = self.deep.middle("busy_cores")
        busy = max(at_depth or 0, self.deep.cores) if at_depth is not None else None
        enough_deep = busy is None or busy >= BATCHED * (self.times - 1)
        # Cores, of fio's threads or of the whole machine: a kernel's or a driver's threads work for a request, too.
        return max(self.one.cores, self.one.middle("busy_cores") or 0.0) >= needed and enough_deep


def depths_between(tests: Sequence[BenchTest]) -> tuple[BenchTest, ...]:
    """Return the tests with two and four requests in flight that `depth_gains` needs and a profile lacks: of each
    random read that it has at depth 1 and at DEEP or more, with one thread.
    """
    single = {(each.block, each.depth) for each in tests if each.random and not each.write and each.threads == 1}
    blocks = [block for block, depth in sorted(single) if depth == 1]
    return tuple(
        BenchTest(True, block, depth, 1, False)
        for block in blocks
        if any(other == block and deep >= DEEP for other, deep in single)
        for depth in BETWEEN
        if (block, depth) not in single
    )


def depth_gains(result: Result) -> Iterator[DepthGain]:
    """Pairs of random tests that differ in their depth alone, with one thread. None of a result that shows nothing:
    past the page cache is what the drive does, passes over the same data show a cache, and of fewer than LEAST_RUNS
    the noise is not known.
    """
    if not result.settings.direct or result.settings.passes:
        return
    random = [each for each in result.series if each.test.random and each.test.threads == 1]
    known = [each for each in random if each.iops.count >= LEAST_RUNS]
    for one in known:
        kind = (one.test.block, one.test.write)
        alike = {each.test.depth: each for each in known if (each.test.block, each.test.write) == kind}
        deepest = max(alike)
        kinds = frozenset(drive.kind for drive in bottom_of(result.conditions.drives))
        if one.test.depth == 1 and one.iops.median and deepest >= DEEP:
            yield DepthGain(one, alike[deepest], alike.get(2), alike.get(4), kinds)


def about_depth(result: Result) -> Iterator[str]:
    """A sentence for each pair."""
    for pair in depth_gains(result):
        what = f"{pair.deep.test.title} has {pair.times:.1f} times the IOPS of {pair.one.test.title}"
        yield f"{what}{_verdict(pair)}{_offered(result.conditions.drives)}"


def _verdict(pair: DepthGain) -> str:
    bound, gain = pair.deep.cpu_bound, pair.gain
    if gain is not Gain.UNKNOWN:
        more = ", and could do more, for the processor held it back" if bound and gain is Gain.SOME else ""
        return f": {gain}{more}"
    if pair.times >= GAIN and not pair.overlaps:
        return f": can't tell whether the drive works on several requests at once: {pair.doubt}"
    if pair.deep.busy_machine or bound:
        why = "the processor held it back" if bound else "the machine was busy with other programs"
        return f", and {why}, so command queueing (NCQ) cannot be judged"
    return f": {gain}: " + ("the runs overlap" if pair.overlaps else "some runs gain, and others do not")


def _offered(drives: Sequence[DriveState]) -> str:
    """An array or a volume has no depth of its own: its members have."""
    if drives and drives[0].queue_depth:
        return f"; the device offers a depth of {drives[0].queue_depth}"
    least = min((drive for drive in drives if drive.queue_depth), key=lambda each: each.queue_depth or 0, default=None)
    if least is None:
        return ""
    return f"; the drives below {drives[0].name} offer a depth of {least.queue_depth} or more ({least.name})"
