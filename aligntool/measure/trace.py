"""Analyse a trace: access pattern, sizes, latency, and the estimate of a boot."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from fractions import Fraction

from aligntool.errors import Refused

# Estimate how long the commands of a boot take on a drive, and how far two drives are apart. Source: the
# article of 2022 on storage for an operating system, which counted the commands of one boot and assumes the 4
# KiB QD1 rate for each.

REQUEST = 4096  # bytes of a command at the QD1 rate
MEGABYTE = 10**6  # of MB/s, as benchmarks print it


@dataclass(frozen=True, slots=True)
class BootCounts:
    """The number of commands of a boot."""

    reads: int
    writes: int


ARTICLE = BootCounts(reads=40_553, writes=4_938)
"""Of these 6 and 2 are sequential."""


@dataclass(frozen=True, slots=True)
class Drive:
    """A drive by its QD1 4 KiB rates, in MB/s (10^6 bytes a second); both greater than 0."""

    read: Fraction
    write: Fraction

    @property
    def read_s(self) -> Fraction:
        """Seconds of a read: 100 MB/s → 40.96 µs."""
        return Fraction(REQUEST) / (self.read * MEGABYTE)

    @property
    def write_s(self) -> Fraction:
        return Fraction(REQUEST) / (self.write * MEGABYTE)

    def boot_s(self, counts: BootCounts) -> Fraction:
        """Return the seconds for which the commands of a boot, one after the other, keep the drive busy."""
        return self.read_s * counts.reads + self.write_s * counts.writes


def parse_drive(text: str) -> Drive:
    """Return the drive in a text such as "41.5,120": MB/s of reads and of writes; a single number stands for
    both.

    Raises ValueError with a message for the user.
    """
    rates = [_rate(word) for word in text.split(",")]
    if len(rates) > 2 or None in rates:
        raise ValueError(
            f"{text!r} is not a rate; write MB/s of reads, or of reads and writes, like 41.5,120"
        )
    first, last = rates[0], rates[-1]
    return Drive(first or Fraction(0), last or Fraction(0))


def _rate(word: str) -> Fraction | None:
    number = word.strip()
    if len(number) > 20 or not number.replace(".", "", 1).isdecimal() or not number.isascii():
        return None
    rate = Fraction(number if number[0] != "." else f"0{number}")
    return rate if rate > 0 else None


# The commands of a log as values, for any format.


class Kind(StrEnum):
    """The kind of a command. Only the first three have a range of addresses."""

    READ = "read"
    WRITE = "write"
    DISCARD = "discard"
    FLUSH = "flush"
    OTHER = "other"


WITH_RANGE = (Kind.READ, Kind.WRITE, Kind.DISCARD)


class Moment(Enum):
    """The stage of a command that an event marks. Logs with a single stage have ISSUED."""

    QUEUED = "queued"  # passed to the kernel's block layer, which may still merge or split requests
    ISSUED = "issued"  # sent to the drive
    REQUEUED = "requeued"  # the driver could not accept it; it will be issued again
    COMPLETED = "completed"


Event = tuple[Moment, Kind, bytes, int, int, int]
"""Moment, kind, source (a device number or file name), start and length in bytes, and the time in
nanoseconds, UNTIMED if the log has none. A plain tuple, because there are millions of them. The length is 0
if the kind has no range.
"""
UNTIMED = -1


# Measure the latency of commands as btt does: from their issue to the drive (D2C), and from their queueing
# (Q2C), until their completion; in memory that does not grow with the log.

MOST_KEPT = 65_536  # commands that are not complete
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_BUCKET_BITS = 7  # 128 buckets for each power of two, so that a percentile is at most 0.8 % too large


@dataclass(frozen=True, slots=True)
class Latency:
    """Times in nanoseconds. `percentiles` in the order of PERCENTILES, rounded up to the end of the
    bucket.
    """

    since: Moment  # QUEUED: Q2C; ISSUED: D2C
    kind: Kind
    count: int
    mean: float
    least: int
    most: int
    percentiles: tuple[int, ...]


class _Times:
    """The latencies of one kind, since one moment."""

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
        shift = max(time.bit_length() - _BUCKET_BITS - 1, 0)
        end = (time >> shift) + 1 << shift
        self.buckets[end] = self.buckets.get(end, 0) + 1

    def percentile(self, percent: float) -> int:
        """Return the time that `percent` of the commands did not exceed (nearest rank)."""
        rank = percent / 100 * self.count
        seen = 0
        for end in sorted(self.buckets):
            seen += self.buckets[end]
            if seen >= rank:
                return min(end - 1, self.most)
        return self.most


class Latencies:
    """Collect the latencies of commands from the events of a log."""

    def __init__(self) -> None:
        self._issued: dict[tuple[bytes, int], int] = {}
        self._queued: dict[tuple[bytes, int], tuple[int, int]] = {}  # time and length
        self._times: dict[tuple[Moment, Kind], _Times] = {}

    def follow(self, event: Event) -> None:
        """Add an event, in the order of the log."""
        moment, kind, source, start, length, time = event
        if not length or time == UNTIMED:
            return
        if moment is Moment.COMPLETED:
            self._complete(kind, source, start, length, time)
        elif moment is Moment.QUEUED:
            if len(self._queued) == MOST_KEPT:
                self._queued.clear()
            self._queued[source, start] = time, length
        # again after a requeue: the time at the drive counts from the last issue
        elif moment is Moment.ISSUED:
            if len(self._issued) == MOST_KEPT:
                self._issued.clear()
            self._issued[source, start] = time

    def _complete(self, kind: Kind, source: bytes, start: int, length: int, time: int) -> None:
        since = self._issued.pop((source, start), None)
        if since is not None:
            self._add(Moment.ISSUED, kind, time - since)
        end = start + length
        # the request consists of one or more queued commands, or is a part of a larger one
        while start < end:
            found = self._queued.pop((source, start), None)
            if found is None:
                return
            queued, queued_length = found
            if start + queued_length > end:  # split: it ends with its last part
                self._queued[source, end] = queued, start + queued_length - end
                return
            self._add(Moment.QUEUED, kind, time - queued)
            start += queued_length

    def _add(self, since: Moment, kind: Kind, time: int) -> None:
        if time >= 0:  # the clocks of two processors may disagree
            self._times.setdefault((since, kind), _Times()).add(time)

    def all(self) -> tuple[Latency, ...]:
        """Return the latencies for each moment and kind."""
        return tuple(
            Latency(
                since,
                kind,
                times.count,
                times.total / times.count,
                times.least,
                times.most,
                tuple(times.percentile(percent) for percent in PERCENTILES),
            )
            for since in (Moment.ISSUED, Moment.QUEUED)
            for kind in WITH_RANGE
            if (times := self._times.get((since, kind)))
        )


# The access pattern of a log, as frozen values.

Buckets = tuple[int, ...]
"""Bucket n counts values above 2**(n-1), up to and including 2**n; bucket 0 counts the value 1."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """A grid with which requests are compared: the multiples of `size` shifted up by `phase`, in bytes of the
    log.
    """

    name: str
    size: int
    phase: int = 0


@dataclass(frozen=True, slots=True)
class Crossing:
    """The commands of one kind, compared with one boundary."""

    boundary: Boundary
    off: int  # commands that start off the grid
    straddling: int  # of those, the commands that touch one unit more than their size requires


@dataclass(frozen=True, slots=True)
class Row:
    """The commands of one kind. For flushes and others, which have no range, only the count is not 0."""

    kind: Kind
    count: int
    bytes: int
    sequential: int
    random: int
    sizes: Buckets
    crossings: tuple[Crossing, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """The access pattern. `depths`: commands by the number in flight on their device when they were sent,
    including themselves; None: the log has no completions.
    """

    moment: Moment  # at which commands were counted
    sources: int  # devices or files
    rows: tuple[Row, ...]  # of kinds that occur
    depths: Buckets | None
    latencies: tuple[Latency, ...] = ()  # of kinds with completions

    def count(self, kind: Kind) -> int:
        return next((row.count for row in self.rows if row.kind is kind), 0)

    @property
    def commands(self) -> int:
        return sum(row.count for row in self.rows)


def bucket(number: int) -> int:
    """Return the bucket of a number from 1 on: 1 → 0, 2 → 1, 3 and 4 → 2, 4096 → 12, 4097 → 13."""
    return (number - 1).bit_length()


def bucket_range(index: int) -> tuple[int, int]:
    """Return the first and the last number of a bucket."""
    return (1 << index - 1) + 1 if index else 1, 1 << index


# Count events one by one, in memory that does not grow with the log.
#
# "Sequential" is defined as in the article: a command is sequential if it has the same kind as the previous
# command and its range begins where that one ended. Any command between them, even a flush, ends the run. The
# previous command is the one on the same device or file: two drives have two heads.

MOST_SOURCES = 10_000
MOST_IN_FLIGHT = 65_536  # the longest queue of NVMe; beyond that, completions were lost


class NoCommands(Refused):
    """A log without any command."""


def read_pattern(events: Iterable[Event], boundaries: Sequence[Boundary] = ()) -> Pattern:
    """Return the access pattern of a log. Commands are counted when they are sent to the drive, or when they
    are queued if the log has no such events (an md or dm device). Raises NoCommands, and Refused for a log of
    more than MOST_SOURCES devices or files.
    """
    tally = _Tally(boundaries)
    counted = Moment.QUEUED
    latencies = Latencies()
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
            tally = _Tally(boundaries)
            counted = Moment.ISSUED
            tally.add(kind, source, start, length)
    pattern = replace(tally.pattern(counted), latencies=latencies.all())
    if not pattern.commands:
        raise NoCommands("the log contains no commands", hint="docs/trace.md shows how to record one")
    return pattern


class _Counts:
    """The counts of one kind."""

    __slots__ = ("bytes", "count", "off", "sequential", "sizes", "straddling")

    def __init__(self, boundaries: int) -> None:
        self.count = self.bytes = self.sequential = 0
        self.sizes = [0] * 65
        self.off = [0] * boundaries
        self.straddling = [0] * boundaries


class _Tally:
    def __init__(self, boundaries: Sequence[Boundary]) -> None:
        self._boundaries = tuple(boundaries)
        self._grids = tuple(
            (index, boundary.size, boundary.phase) for index, boundary in enumerate(boundaries)
        )
        self._counts = {kind: _Counts(len(self._boundaries)) for kind in Kind}
        # by source: kind and start of a sequential command
        self._sequential_next: dict[bytes, tuple[Kind, int]] = {}
        self._in_flight: set[tuple[bytes, int]] = set()
        self._requeued: set[tuple[bytes, int]] = set()  # not yet issued again
        self._depth: dict[bytes, int] = {}
        self._depths = [0] * 65
        self._completions = False

    def add(self, kind: Kind, source: bytes, start: int, length: int) -> None:
        command = (source, start)
        if length and self._launch(command):
            return
        counts = self._counts[kind]
        counts.count += 1
        if self._sequential_next.get(source) == (kind, start) and length:
            counts.sequential += 1
        elif source not in self._sequential_next and len(self._sequential_next) == MOST_SOURCES:
            raise Refused(f"the log has commands to more than {MOST_SOURCES} devices or files")
        self._sequential_next[source] = (kind, start + length)
        if not length:
            return
        counts.bytes += length
        counts.sizes[bucket(length)] += 1
        for index, size, phase in self._grids:
            past = (start - phase) % size
            if past:
                counts.off[index] += 1
                # Units touched from here, compared with the units that so many bytes require.
                if (past + length - 1) // size > (length - 1) // size:
                    counts.straddling[index] += 1

    def _launch(self, command: tuple[bytes, int]) -> bool:
        """Record that a command is in flight; return whether it was issued before (and requeued)."""
        reissued = command in self._requeued
        self._requeued.discard(command)
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
        if not reissued:
            self._depths[bucket(depth)] += 1
        return reissued

    def complete(self, source: bytes, start: int) -> None:
        self._completions = True
        self._land((source, start))

    def requeue(self, source: bytes, start: int) -> None:
        command = (source, start)
        if command in self._in_flight:
            self._land(command)
            if len(self._requeued) < MOST_IN_FLIGHT:
                self._requeued.add(command)

    def _land(self, command: tuple[bytes, int]) -> None:
        if command in self._in_flight:
            self._in_flight.remove(command)
            self._depth[command[0]] -= 1

    def pattern(self, moment: Moment) -> Pattern:
        rows = tuple(self._row(kind) for kind in Kind if self._counts[kind].count)
        depths = _trimmed(self._depths) if self._completions else None
        return Pattern(moment, len(self._sequential_next), rows, depths)

    def _row(self, kind: Kind) -> Row:
        counts = self._counts[kind]
        random = counts.count - counts.sequential if kind in WITH_RANGE else 0
        crossings = tuple(map(Crossing, self._boundaries, counts.off, counts.straddling))
        return Row(
            kind,
            counts.count,
            counts.bytes,
            counts.sequential,
            random,
            _trimmed(counts.sizes),
            crossings if kind in WITH_RANGE else (),
        )


def _trimmed(counts: Sequence[int]) -> Buckets:
    """Return the buckets without the empty ones at the end."""
    last = max((index for index, count in enumerate(counts) if count), default=-1)
    return tuple(counts[: last + 1])
