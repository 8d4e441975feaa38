"""Show traces and the estimated time of a boot, as text and JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import zip_longest

from aligntool.measure import trace
from aligntool.render.json import Value, document_text
from aligntool.render.lines import EMPTY, Line, Style, columns, paragraph, plain
from aligntool.units import format_about, format_size, significant

# The estimated time of a boot, as text and as JSON.

_NAMES = "AB"


class Source(StrEnum):
    """The source of a count."""

    ARTICLE = "article"
    GIVEN = "given"
    TRACE = "trace"


@dataclass(frozen=True, slots=True)
class Counted:
    """The requests of a boot and the sources of their numbers. `log`: the name of the trace, or "" without
    one.
    """

    counts: trace.BootCounts
    reads_from: Source
    writes_from: Source
    log: str = ""

    @property
    def words(self) -> str:
        if self.reads_from is self.writes_from:
            return self._name(self.reads_from)
        return f"reads {self._from(self.reads_from)}, writes {self._from(self.writes_from)}"

    def _name(self, source: Source) -> str:
        return {Source.ARTICLE: "the built-in boot", Source.TRACE: self.log}.get(source, "given")

    def _from(self, source: Source) -> str:
        return "given" if source is Source.GIVEN else f"from {self._name(source)}"


@dataclass(frozen=True, slots=True)
class Rated:
    """A drive, and the reasons to doubt its rates, a sentence each."""

    drive: trace.Drive
    doubts: tuple[str, ...] = ()


def boot_lines(rated: Sequence[Rated], counted: Counted, *, width: int) -> Iterator[Line]:
    counts = counted.counts
    drives = [estimate.drive for estimate in rated]
    yield (
        (f"{counts.reads:,} reads, {counts.writes:,} writes", Style.TITLE),
        (f"  ({counted.words})", Style.DIM),
    )
    yield EMPTY
    for name, drive in zip(_NAMES, drives, strict=False):
        rates = ((drive.read, drive.read_s, "read"), (drive.write, drive.write_s, "write"))
        words = ", ".join(
            f"{significant(float(rate), 4)} MB/s → {_us(spent)} a {verb}" for rate, spent, verb in rates
        )
        boot = _seconds(drive.boot_s(counts))
        yield ((f"drive {name}  ", Style.TITLE), (f"{words}: ", Style.PLAIN), (boot, Style.TITLE))
    for name, estimate in zip(_NAMES, rated, strict=False):
        for sentence in estimate.doubts:
            yield from paragraph(f"  warning: drive {name}: {sentence}", width, style=Style.DOUBT)
    if len(drives) == 2:
        a, b = drives
        yield EMPTY
        gap = a.boot_s(counts) - b.boot_s(counts)
        faster = (
            "as fast as A" if not gap else f"{_seconds(abs(gap))} {'faster' if gap > 0 else 'slower'} than A"
        )
        yield (("drive B is ", Style.PLAIN), (faster, Style.TITLE))
        reads = _us(a.read_s - b.read_s)
        writes = _us(a.write_s - b.write_s)
        yield plain(f"  {reads} × {counts.reads:,} + {writes} × {counts.writes:,}")
    yield EMPTY
    yield (("4 KiB per command, one at a time; processor time is not included.", Style.DIM),)


def boot_json(rated: Sequence[Rated], counted: Counted) -> str:
    """Return the estimate as JSON: times in seconds, rates in MB/s (10^6 bytes per second)."""
    counts = counted.counts
    drives = [estimate.drive for estimate in rated]
    boots = [drive.boot_s(counts) for drive in drives]
    drive_values: list[Value] = [
        {
            "read_mb_s": float(drive.read),
            "write_mb_s": float(drive.write),
            "read_s": float(drive.read_s),
            "write_s": float(drive.write_s),
            "boot_s": float(boot),
            "warnings": list(estimate.doubts),
        }
        for estimate, drive, boot in zip(rated, drives, boots, strict=True)
    ]
    values = {
        "reads": counts.reads,
        "writes": counts.writes,
        "reads_from": counted.reads_from.value,
        "writes_from": counted.writes_from.value,
        "drives": drive_values,
        "gap_s": float(boots[0] - boots[1]) if len(boots) == 2 else None,
    }
    return document_text("aligntool.estimate.boot", values)


def _us(seconds: Fraction) -> str:
    return f"{significant(float(seconds * 10**6), 4)} µs"


def _seconds(seconds: Fraction) -> str:
    return f"{float(seconds):.1f} s" if seconds >= 1 else f"{significant(float(seconds * 1000))} ms"


# The access pattern in a trace, as tables and as JSON.


def trace_lines(pattern: trace.Pattern, name: str, form: str, *, width: int) -> Iterator[Line]:
    yield ((name, Style.TITLE), (f"  {form}, {pattern.commands:,} commands", Style.PLAIN))
    sent = pattern.moment is trace.Moment.ISSUED
    way = "sent to the drive" if sent else "queued: the log does not record when they were sent"
    yield from paragraph(f"  counted when they were {way}", width, style=Style.DIM)
    if pattern.sources > 1:
        line = f"  of {pattern.sources:,} devices or files together; sequential requests are counted for each"
        yield from paragraph(line, width, style=Style.DIM)
    yield EMPTY
    yield from _commands(pattern)
    yield from _sizes(pattern)
    if pattern.depths is not None:
        yield from _depths(pattern.depths)
    yield from _latencies(pattern.latencies)
    yield from _crossings(pattern)


def _commands(pattern: trace.Pattern) -> Iterator[Line]:
    rows = [
        (
            row.kind.value,
            f"{row.count:,}",
            format_about(row.bytes),
            f"{row.sequential:,}",
            f"{row.random:,}",
            _share(row.random, row.count),
        )
        if row.sizes
        else (row.kind.value, f"{row.count:,}", "–", "–", "–", "")
        for row in pattern.rows
    ]
    yield from _table(("command", "count", "bytes", "sequential", "random", ""), rows)


def _sizes(pattern: trace.Pattern) -> Iterator[Line]:
    ranged = [row for row in pattern.rows if row.sizes]
    if not ranged:
        return
    yield EMPTY
    yield (("Sizes", Style.TITLE), ("  of requests, up to", Style.DIM))
    counts = enumerate(zip_longest(*(row.sizes for row in ranged), fillvalue=0))
    rows = [
        (format_size(trace.bucket_range(at)[1]), *map("{:,}".format, row)) for at, row in counts if any(row)
    ]
    yield from _table(("", *(row.kind.value for row in ranged)), rows)


def _depths(depths: trace.Buckets) -> Iterator[Line]:
    yield EMPTY
    yield (("Queue depth", Style.TITLE), ("  in flight when a request was sent, including itself", Style.DIM))
    total = sum(depths)
    for bucket, count in enumerate(depths):
        low, high = trace.bucket_range(bucket)
        label = str(high) if low == high else f"{low}–{high}"
        bar = "█" * round(30 * count / total)
        yield plain(f"  {label:>11}  {count:>12,}  {_share(count, total)}  {bar}")


def _latencies(latencies: Sequence[trace.Latency]) -> Iterator[Line]:
    """Yield two tables: the time from issue to completion, and from queueing to completion."""
    for since, name, words in (
        (trace.Moment.ISSUED, "D2C", "from issue to the drive until completion, in µs"),
        (trace.Moment.QUEUED, "Q2C", "from queueing until completion, in µs"),
    ):
        rows = [
            (
                latency.kind.value,
                f"{latency.count:,}",
                *(
                    significant(ns / 1000)
                    for ns in (latency.least, latency.mean, *latency.percentiles, latency.most)
                ),
            )
            for latency in latencies
            if latency.since is since
        ]
        if rows:
            yield EMPTY
            yield ((f"Latency {name}", Style.TITLE), (f"  {words}", Style.DIM))
            heads = ("", "count", "min", "mean", *(f"p{percent:g}" for percent in trace.PERCENTILES), "max")
            yield from _table(heads, rows)


def _crossings(pattern: trace.Pattern) -> Iterator[Line]:
    ranged = [row for row in pattern.rows if row.crossings]
    for index, first in enumerate(ranged[0].crossings if ranged else ()):
        grid = first.boundary
        shift = f" + {format_size(grid.phase)}" if grid.phase else ""
        yield EMPTY
        yield (("Alignment", Style.TITLE), (f"  to {format_size(grid.size)}{shift} ({grid.name})", Style.DIM))
        rows = []
        for row in ranged:
            crossing = row.crossings[index]
            rows.append(
                (
                    row.kind.value,
                    f"{crossing.off:,}",
                    _share(crossing.off, row.count),
                    f"{crossing.straddling:,}",
                    _share(crossing.straddling, row.count),
                )
            )
        yield from _table(("", "off the grid", "", "straddling", ""), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Line]:
    """Yield a table: the first column aligned left, numbers aligned right."""
    for number, text in enumerate(columns((heads, *rows))):
        yield ((f"  {text}", Style.PLAIN if number else Style.DIM),)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:5.1f} %"


def trace_json(pattern: trace.Pattern, form: str) -> str:
    values = {
        "format": form,
        "counted": pattern.moment.value,
        "sources": pattern.sources,
        "commands": [_row(row) for row in pattern.rows],
        "queue_depth": None if pattern.depths is None else _buckets(pattern.depths),
        "latency": [_latency(latency) for latency in pattern.latencies],
    }
    return document_text("aligntool.trace", values)


def _row(row: trace.Row) -> Value:
    if not row.sizes:
        return {"command": row.kind.value, "count": row.count}
    return {
        "command": row.kind.value,
        "count": row.count,
        "bytes": row.bytes,
        "sequential": row.sequential,
        "random": row.random,
        "sizes": _buckets(row.sizes),
        "alignment": [
            {
                "grid": crossing.boundary.name,
                "size": crossing.boundary.size,
                "phase": crossing.boundary.phase,
                "off_grid": crossing.off,
                "straddling": crossing.straddling,
            }
            for crossing in row.crossings
        ],
    }


def _latency(latency: trace.Latency) -> Value:
    names = (f"p{percent:g}_s" for percent in trace.PERCENTILES)
    return {
        "command": latency.kind.value,
        "since": latency.since.value,
        "count": latency.count,
        "min_s": latency.least / 1e9,
        "mean_s": latency.mean / 1e9,
        "max_s": latency.most / 1e9,
        **{name: value / 1e9 for name, value in zip(names, latency.percentiles, strict=True)},
    }


def _buckets(buckets: trace.Buckets) -> Value:
    """Return the buckets that are not empty."""
    ranges = [(trace.bucket_range(bucket), count) for bucket, count in enumerate(buckets) if count]
    return [{"from": low, "to": high, "count": count} for (low, high), count in ranges]
