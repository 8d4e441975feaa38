"""How long commands took, as btt counts it: from their issue to the drive (D2C), and from their queueing (Q2C), until
their completion; in memory that does not grow with the log.
"""

from dataclasses import dataclass

from aligntool.trace.commands import UNTIMED, WITH_RANGE, Event, Kind, Moment

MOST_KEPT = 65_536  # commands whose end is awaited
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_PARTS = 7  # bits: 128 buckets for each power of two, so that a percentile is at most 0.8 % too large


@dataclass(frozen=True, slots=True)
class Latency:
    """Times in nanoseconds. `percentiles` in the order of PERCENTILES, rounded up to the bucket's end."""

    since: Moment  # QUEUED: Q2C; ISSUED: D2C
    kind: Kind
    count: int
    mean: float
    least: int
    most: int
    percentiles: tuple[int, ...]


class _Times:
    """Of one kind, since one moment."""

    __slots__ = ("buckets", "count", "least", "most", "total")

    def __init__(self) -> None:
        self.count = self.total = self.most = 0
        self.least = 1 << 63
        self.buckets: dict[int, int] = {}

    def add(self, time: int) -> None:
        self.count += 1
        self.total += time
        if time < self.least:
            self.least = time
        if time > self.most:
            self.most = time
        shift = max(time.bit_length() - _PARTS - 1, 0)
        end = (time >> shift) + 1 << shift
        self.buckets[end] = self.buckets.get(end, 0) + 1

    def percentile(self, percent: float) -> int:
        """Return a time that so many percent did not exceed (nearest rank)."""
        wanted, seen = percent / 100 * self.count, 0
        for end in sorted(self.buckets):
            seen += self.buckets[end]
            if seen >= wanted:
                return min(end - 1, self.most)
        return self.most


class Latencies:
    """Follows the events of a log; `all()` is what they amount to."""

    def __init__(self) -> None:
        self._issued: dict[tuple[bytes, int], int] = {}
        self._queued: dict[tuple[bytes, int], tuple[int, int]] = {}  # time and length
        self._times: dict[tuple[Moment, Kind], _Times] = {}

    def follow(self, event: Event) -> None:
        moment, kind, source, start, length, time = event
        if not length or time == UNTIMED:
            return
        if moment is Moment.COMPLETED:
            self._complete(kind, source, start, length, time)
        elif moment is Moment.QUEUED:
            if len(self._queued) == MOST_KEPT:
                self._queued.clear()
            self._queued[source, start] = time, length
        elif (
            moment is Moment.ISSUED
        ):  # after a requeue once more: the time at the drive counts from the last one
            if len(self._issued) == MOST_KEPT:
                self._issued.clear()
            self._issued[source, start] = time

    def _complete(self, kind: Kind, source: bytes, start: int, length: int, time: int) -> None:
        since = self._issued.pop((source, start), None)
        if since is not None:
            self._add(Moment.ISSUED, kind, time - since)
        end = start + length
        while start < end:  # a request has one or more merged into it, or is a part of a larger one
            found = self._queued.pop((source, start), None)
            if found is None:
                return
            queued, own = found
            if start + own > end:  # split: it ends with its last part
                self._queued[source, end] = queued, start + own - end
                return
            self._add(Moment.QUEUED, kind, time - queued)
            start += own

    def _add(self, since: Moment, kind: Kind, time: int) -> None:
        if time >= 0:  # the clocks of two processors may disagree
            self._times.setdefault((since, kind), _Times()).add(time)

    def all(self) -> tuple[Latency, ...]:
        return tuple(
            Latency(
                since, kind, times.count, times.total / times.count, times.least, times.most,
                tuple(times.percentile(percent) for percent in PERCENTILES),
            )
            for since in (Moment.ISSUED, Moment.QUEUED)
            for kind in WITH_RANGE
            if (times := self._times.get((since, kind)))
        )  # fmt: skip
