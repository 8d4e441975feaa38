"""Whether a drive works on several requests at once: one in flight beside many (C3).

In: a result. Out: pairs of tests, and a sentence for each. Alone because "no gain" accuses a drive, and noise must
not say it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from aligntool.bench.chance import LEAST_RUNS
from aligntool.bench.conditions import DriveState
from aligntool.bench.results import Result, Series

GAIN = 1.2  # from which on a deeper queue is said to help
DEEP = 8  # requests in flight from which on a queue is called deep


class Gain(StrEnum):
    SOME = "the drive works on several requests at once (NCQ or its like)"
    NONE = "no gain from a deep queue, as without command queueing (NCQ)"
    UNKNOWN = "can't tell whether a deep queue gains anything"


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

    @property
    def gain(self) -> Gain:
        """SOME: GAIN times or more, and no run of the deep queue is as slow as one of the other. NONE: less than that,
        in every run of the deep queue.
        """
        if self.times >= GAIN and not self.overlaps:
            return Gain.SOME
        most = self.deep.iops.high / self.one.iops.median
        return Gain.NONE if self.times < GAIN and most < GAIN else Gain.UNKNOWN


def depth_gains(result: Result) -> Iterator[DepthGain]:
    """Pairs of random tests that differ in their depth alone, with one thread. None of a result that cannot tell: past
    the page cache is what the drive does, passes over the same data show a cache, and of fewer than LEAST_RUNS nobody
    knows how far they lie apart.
    """
    if not result.settings.direct or result.settings.passes:
        return
    told = [
        each
        for each in result.series
        if (each.test.random, each.test.threads) == (True, 1) and each.iops.count >= LEAST_RUNS
    ]
    for one in told:
        deeper = [
            each
            for each in told
            if (each.test.block, each.test.write) == (one.test.block, one.test.write)
            and each.test.depth >= DEEP
        ]
        if one.test.depth == 1 and one.iops.median and deeper:
            yield DepthGain(one, max(deeper, key=lambda each: each.test.depth))


def about_depth(result: Result) -> Iterator[str]:
    """A sentence for each pair."""
    offered = _offered(result.conditions.drives)
    for pair in depth_gains(result):
        what = f"{pair.deep.test.title} has {pair.times:.1f} times the IOPS of {pair.one.test.title}"
        yield f"{what}{_verdict(pair)}{offered}"


def _verdict(pair: DepthGain) -> str:
    bound, gain = pair.deep.cpu_bound, pair.gain
    if gain is Gain.SOME:
        return f": {gain}" + (", and could do more, for the processor held it back" if bound else "")
    if bound:
        return ", and the processor held it back: that says nothing of command queueing (NCQ)"
    if gain is Gain.NONE:
        return f": {gain}"
    return f": {gain}: " + ("the runs overlap" if pair.overlaps else "some runs gain, and others do not")


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
