"""The estimate of a boot, for people and for programs.

In: drives by their rates, and counts. Out: lines, or JSON. Alone because its figures are of another kind than those
of a trace: seconds that were reckoned, not commands that were counted.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from aligntool import __version__
from aligntool.render.json import Value, dumps
from aligntool.render.lines import EMPTY, Line, Style, plain
from aligntool.trace import BootCounts, Drive, gap_s

_NAMES = "AB"


def boot_lines(drives: Sequence[Drive], counts: BootCounts, source: str) -> Iterator[Line]:
    """`source`: where the counts come from."""
    yield ((f"{counts.reads:,} reads, {counts.writes:,} writes", Style.TITLE), (f"  ({source})", Style.DIM))
    yield EMPTY
    for name, drive in zip(_NAMES, drives, strict=False):
        yield (
            (f"drive {name}  ", Style.TITLE),
            (f"{float(drive.read):.4g} MB/s → {_micro(drive.read_s)} a read, ", Style.PLAIN),
            (f"{float(drive.write):.4g} MB/s → {_micro(drive.write_s)} a write: ", Style.PLAIN),
            (_seconds(drive.boot_s(counts)), Style.TITLE),
        )
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


def boot_json(drives: Sequence[Drive], counts: BootCounts) -> str:
    """Times in seconds, rates in MB/s (10^6 bytes a second)."""
    told: list[Value] = [
        {
            "read_mb_s": float(drive.read), "write_mb_s": float(drive.write), "read_s": float(drive.read_s),
            "write_s": float(drive.write_s), "boot_s": float(drive.boot_s(counts)),
        }
        for drive in drives
    ]  # fmt: skip
    gap = float(gap_s(drives[0], drives[1], counts)) if len(drives) == 2 else None
    document: Value = {
        "schema": "aligntool.estimate.boot", "version": 1, "aligntool": __version__,
        "reads": counts.reads, "writes": counts.writes, "drives": told, "gap_s": gap,
    }  # fmt: skip
    return dumps(document) + "\n"


def _micro(seconds: Fraction) -> str:
    return f"{float(seconds * 10**6):.4g} µs"


def _seconds(seconds: Fraction) -> str:
    return f"{float(seconds):.1f} s" if seconds >= 1 else f"{float(seconds * 1000):.3g} ms"
