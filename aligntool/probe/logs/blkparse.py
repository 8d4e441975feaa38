"""The text that blkparse prints.

In: lines. Out: events. Alone because it is the format of a program: blkparse(1), "DEFAULT OUTPUT", and what blkparse
1.2.0 really prints. A line is

    8,0    3        1     0.000000000   697  D   W 223490 + 8 [kjournald]

device, CPU, number, seconds, process, action, RWBS, first sector of 512 bytes, their number. RWBS has D for discard,
else W or R or N for none, F in front for a flush before it, and more letters that change nothing here. A flush and a
command that does not come from a file system have no "+ 8".
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from aligntool.probe.logs.lines import LAST_BYTE, SECTOR, bad_line, whole
from aligntool.trace import Event, Kind, Moment

FIRST_LINE = re.compile(rb"\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d+\s+\d+\s+[A-Zm]\w?\s")
_DEVICE = re.compile(rb"\d{1,10},\d{1,10}")
_RWBS = re.compile(rb"[A-Z]{1,8}")
_SUMMARY = re.compile(
    rb"(CPU\d+|Total|Events) \(|Throughput |Skips: |Input file |[^(]+ \(\d+(, \.\.\.)?\)\s*$"
)

_MOMENTS = {b"Q": Moment.QUEUED, b"D": Moment.ISSUED, b"R": Moment.REQUEUED, b"C": Moment.COMPLETED}
_SKIPPED = (b"G", b"I", b"M", b"F", b"S", b"P", b"U", b"UT", b"X", b"B", b"A", b"T", b"m")


def blkparse_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Up to the summary.

    Raises Refused.
    """
    moments: dict[bytes, Moment | None] = {**_MOMENTS, **dict.fromkeys(_SKIPPED)}
    device = b""
    for number, line in enumerate(lines, 1):
        words = line.split(None, 10)
        try:
            moment = moments[words[5]]
            if words[0] != device:
                device = _device(words[0])
            if moment is None:
                continue
            start, length = _range(words, line)
            kind = _kind(words[6], length > 0)
            time = _nanoseconds(words[3])
        except (IndexError, KeyError, ValueError):
            if not line.strip():
                continue
            if _SUMMARY.match(line):
                return
            raise bad_line(number, line, "an event as blkparse prints it") from None
        yield moment, kind, device, start, length, time


def _device(word: bytes) -> bytes:
    if not _DEVICE.fullmatch(word):
        raise ValueError
    return word


def _nanoseconds(word: bytes) -> int:
    """ "0.000003000" → 3000. Raises ValueError."""
    seconds, _, rest = word.partition(b".")
    digits = seconds + rest.ljust(9, b"0")
    if not seconds or not rest or len(rest) > 9 or len(digits) > 20 or not digits.isdigit():
        raise ValueError
    return int(digits)


def _range(words: list[bytes], line: bytes) -> tuple[int, int]:
    """Start and length in bytes; both 0 where there is none. Raises ValueError, IndexError."""
    if len(words) > 8 and words[8] == b"+":
        start, length = whole(words[7]) * SECTOR, whole(words[9]) * SECTOR
        if start + length > LAST_BYTE:
            raise ValueError
        return start, length
    if not line.rstrip().endswith(b"]"):
        raise ValueError
    return 0, 0


@lru_cache(maxsize=256)
def _kind(rwbs: bytes, with_range: bool) -> Kind:
    if not _RWBS.fullmatch(rwbs):
        raise ValueError
    if with_range:
        for letter, kind in ((b"D", Kind.DISCARD), (b"W", Kind.WRITE), (b"R", Kind.READ)):
            if letter in rwbs:
                return kind
    return Kind.FLUSH if b"F" in rwbs else Kind.OTHER
