"""Counting events, one after the other, in memory that does not grow with the log.

In: events in the order of the log. Out: a Pattern. Alone because it is the only thing here that changes while it works,
and because ten million events go through it: what looks plain is quick.

The rule of sequential is that of the article: a command is sequential when it is of the same kind as the one before it
and its range goes on where that one ended, upwards. Anything between them, a flush too, ends the run. "The one before"
is the one on the same device or file: two drives have two heads.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from aligntool.errors import Refused
from aligntool.trace.commands import WITH_RANGE, Event, Kind, Moment
from aligntool.trace.latency import Latencies
from aligntool.trace.pattern import Boundary, Buckets, Crossing, Pattern, Row, bucket

MOST_SOURCES = 10_000
MOST_IN_FLIGHT = 65_536  # the longest queue of NVMe; more than that was lost, not in flight


class NoCommands(Refused):
    """A log in which nothing was asked."""


def read_pattern(events: Iterable[Event], boundaries: Sequence[Boundary] = ()) -> Pattern:
    """Counts commands when they are sent to the drive; in a log that never says so (of an md or dm device), when they
    are queued. Raises NoCommands, and Refused for a log of more than MOST_SOURCES devices or files.
    """
    tally, counted, latencies = _Tally(boundaries), Moment.QUEUED, Latencies()
    for event in events:
        latencies.follow(event)
        moment, kind, source, start, length, _ = event
        if moment is counted:
            tally.add(kind, source, start, length)
        elif moment is Moment.COMPLETED:
            tally.complete(source, start)
        elif moment is Moment.REQUEUED:
            tally.requeue(source, start)
        elif moment is Moment.ISSUED:
            tally, counted = _Tally(boundaries), Moment.ISSUED
            tally.add(kind, source, start, length)
    pattern = replace(tally.pattern(counted), latencies=latencies.all())
    if not pattern.commands:
        raise NoCommands("the log has no command in it", hint="docs/trace.md tells how to record one")
    return pattern


class _Counts:
    """Of one kind."""

    __slots__ = ("bytes", "count", "off", "sequential", "sizes", "straddling")

    def __init__(self, boundaries: int) -> None:
        self.count = self.bytes = self.sequential = 0
        self.sizes = [0] * 65
        self.off = [0] * boundaries
        self.straddling = [0] * boundaries


class _Tally:
    def __init__(self, boundaries: Sequence[Boundary]) -> None:
        self._boundaries = tuple(boundaries)
        self._grids = tuple((at, one.size, one.phase) for at, one in enumerate(boundaries))
        self._counts = {kind: _Counts(len(self._boundaries)) for kind in Kind}
        self._goes_on: dict[bytes, tuple[Kind, int]] = {}  # by source: what would be sequential
        self._in_flight: set[tuple[bytes, int]] = set()
        self._again: set[tuple[bytes, int]] = set()  # requeued, not yet issued again
        self._depth: dict[bytes, int] = {}
        self._depths = [0] * 65
        self._completions = False

    def add(self, kind: Kind, source: bytes, start: int, length: int) -> None:
        command = (source, start)
        if length and self._launch(command):
            return
        counts = self._counts[kind]
        counts.count += 1
        if self._goes_on.get(source) == (kind, start) and length:
            counts.sequential += 1
        elif source not in self._goes_on and len(self._goes_on) == MOST_SOURCES:
            raise Refused(f"the log has commands to more than {MOST_SOURCES} devices or files")
        self._goes_on[source] = (kind, start + length)
        if not length:
            return
        counts.bytes += length
        counts.sizes[bucket(length)] += 1
        for at, size, phase in self._grids:
            past = (start - phase) % size
            if past:
                counts.off[at] += 1
                # Units touched from here, against units that so many bytes need.
                if (past + length - 1) // size > (length - 1) // size:
                    counts.straddling[at] += 1

    def _launch(self, command: tuple[bytes, int]) -> bool:
        """Takes note that it is in flight; whether that is not the first time."""
        again = command in self._again
        self._again.discard(command)
        source = command[0]
        depth = self._depth.get(source, 0)
        if command not in self._in_flight:
            if len(self._in_flight) == MOST_IN_FLIGHT:
                self._in_flight.clear()
                self._depth.clear()
                depth = 0
            self._in_flight.add(command)
            depth += 1
            self._depth[source] = depth
        if not again:
            self._depths[bucket(depth)] += 1
        return again

    def complete(self, source: bytes, start: int) -> None:
        self._completions = True
        self._land((source, start))

    def requeue(self, source: bytes, start: int) -> None:
        command = (source, start)
        if command in self._in_flight:
            self._land(command)
            if len(self._again) < MOST_IN_FLIGHT:
                self._again.add(command)

    def _land(self, command: tuple[bytes, int]) -> None:
        if command in self._in_flight:
            self._in_flight.remove(command)
            self._depth[command[0]] -= 1

    def pattern(self, moment: Moment) -> Pattern:
        rows = tuple(self._row(kind) for kind in Kind if self._counts[kind].count)
        depths = _trimmed(self._depths) if self._completions else None
        return Pattern(moment, len(self._goes_on), rows, depths)

    def _row(self, kind: Kind) -> Row:
        counts = self._counts[kind]
        random = counts.count - counts.sequential if kind in WITH_RANGE else 0
        crossings = tuple(
            Crossing(boundary, counts.off[at], counts.straddling[at])
            for at, boundary in enumerate(self._boundaries)
        )
        return Row(
            kind, counts.count, counts.bytes, counts.sequential, random, _trimmed(counts.sizes),
            crossings if kind in WITH_RANGE else (),
        )  # fmt: skip


def _trimmed(counts: Sequence[int]) -> Buckets:
    """Without the empty buckets at the end."""
    last = max((index for index, count in enumerate(counts) if count), default=-1)
    return tuple(counts[: last + 1])
