"""The estimate of a boot, for people and for programs.

In: drives by their rates, and counts. Out: lines, or JSON. Alone because its figures are of another kind than those
of a trace: seconds that were reckoned, not commands that were counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from aligntool import __version__
from aligntool.render.json import Value, dumps
from aligntool.render.lines import EMPTY, Line, Style, plain, wrapped
from aligntool.trace import BootCounts, Drive, gap_s
from aligntool.units import significant

_NAMES = "AB"


class Source(StrEnum):
    """Where a count comes from."""

    ARTICLE = "article"
    GIVEN = "given"
    TRACE = "trace"


@dataclass(frozen=True, slots=True)
class Counted:
    """`log`: the name of the trace; "": there is none."""

    counts: BootCounts
    reads_from: Source
    writes_from: Source
    log: str = ""

    @property
    def words(self) -> str:
        if self.reads_from is self.writes_from:
            return self._name(self.reads_from)
        return f"reads {self._of(self.reads_from)}, writes {self._of(self.writes_from)}"

    def _name(self, source: Source) -> str:
        return {Source.ARTICLE: "the article of 2022", Source.TRACE: self.log}.get(source, "given")

    def _of(self, source: Source) -> str:
        return "given" if source is Source.GIVEN else f"of {self._name(source)}"


@dataclass(frozen=True, slots=True)
class Rated:
    """A drive, and why not to trust its rates: a sentence each."""

    drive: Drive
    doubts: tuple[str, ...] = ()


def boot_lines(rated: Sequence[Rated], counted: Counted, *, width: int) -> Iterator[Line]:
    counts, drives = counted.counts, [each.drive for each in rated]
    yield (
        (f"{counts.reads:,} reads, {counts.writes:,} writes", Style.TITLE),
        (f"  ({counted.words})", Style.DIM),
    )
    yield EMPTY
    for name, drive in zip(_NAMES, drives, strict=False):
        yield (
            (f"drive {name}  ", Style.TITLE),
            (f"{significant(float(drive.read), 4)} MB/s → {_micro(drive.read_s)} a read, ", Style.PLAIN),
            (f"{significant(float(drive.write), 4)} MB/s → {_micro(drive.write_s)} a write: ", Style.PLAIN),
            (_seconds(drive.boot_s(counts)), Style.TITLE),
        )
    for name, each in zip(_NAMES, rated, strict=False):
        for sentence in each.doubts:
            for line in wrapped(f"  warning: drive {name}: {sentence}", width, "    "):
                yield ((line, Style.DOUBT),)
    if len(drives) == 2:
        a, b = drives
        yield EMPTY
        gap = gap_s(a, b, counts)
        faster = (
            "as fast as A" if not gap else f"{_seconds(abs(gap))} {'faster' if gap > 0 else 'slower'} than A"
        )
        yield (("drive B is ", Style.PLAIN), (faster, Style.TITLE))
        yield plain(
            f"  {_micro(a.read_s - b.read_s)} × {counts.reads:,} + {_micro(a.write_s - b.write_s)} × {counts.writes:,}"
        )
    yield EMPTY
    yield (("4 KiB a command, one at a time; the processor's share of a boot is not in it.", Style.DIM),)


def boot_json(rated: Sequence[Rated], counted: Counted) -> str:
    """Times in seconds, rates in MB/s (10^6 bytes a second)."""
    counts, drives = counted.counts, [each.drive for each in rated]
    told: list[Value] = [
        {
            "read_mb_s": float(drive.read), "write_mb_s": float(drive.write), "read_s": float(drive.read_s),
            "write_s": float(drive.write_s), "boot_s": float(drive.boot_s(counts)), "warnings": list(each.doubts),
        }
        for each in rated
        for drive in (each.drive,)
    ]  # fmt: skip
    gap = float(gap_s(drives[0], drives[1], counts)) if len(drives) == 2 else None
    document: Value = {
        "schema": "aligntool.estimate.boot", "version": 1, "aligntool": __version__,
        "reads": counts.reads, "writes": counts.writes,
        "reads_from": counted.reads_from.value, "writes_from": counted.writes_from.value, "drives": told, "gap_s": gap,
    }  # fmt: skip
    return dumps(document) + "\n"


def _micro(seconds: Fraction) -> str:
    return f"{significant(float(seconds * 10**6), 4)} µs"


def _seconds(seconds: Fraction) -> str:
    return f"{float(seconds):.1f} s" if seconds >= 1 else f"{significant(float(seconds * 1000))} ms"
