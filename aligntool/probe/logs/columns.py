"""The plain table that anybody can write: CSV with the columns time_s,op,lba,sectors.

In: lines. Out: events. Alone because it is our own format, for logs of tools that are not known here: docs/trace.md.
"""

import re
from collections.abc import Iterable, Iterator

from aligntool.probe.logs.lines import LAST_BYTE, SECTOR, bad_line, whole
from aligntool.trace import UNTIMED, Event, Kind, Moment

HEADER = b"time_s,op,lba,sectors"
MARK = b"\xef\xbb\xbf"  # that spreadsheets write before UTF-8

_TIME = re.compile(rb"[0-9]{1,20}(\.[0-9]{1,20})?([eE]-?[0-9]{1,2})?")

_KINDS = {b"R": Kind.READ, b"W": Kind.WRITE, b"D": Kind.DISCARD, b"F": Kind.FLUSH}


def is_header(line: bytes) -> bool:
    words = line.removeprefix(MARK).rstrip(b"\r").split(b",")
    return b",".join(words[:4]) == HEADER


def csv_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Columns after the fourth are ignored; of a flush also lba and sectors. Raises Refused."""
    numbered = enumerate(lines, 1)
    _, header = next(numbered, (1, b""))
    if not is_header(header):
        raise bad_line(1, header, f"the header {HEADER.decode()}")
    for number, line in numbered:
        words = line.rstrip(b"\r").split(b",", 4)
        try:
            kind = _KINDS[words[1]]
            if not _TIME.fullmatch(words[0]):
                raise ValueError
            if kind is Kind.FLUSH:
                start, length = 0, 0
            else:
                start, length = whole(words[2]) * SECTOR, whole(words[3]) * SECTOR
                if not length or start + length > LAST_BYTE:
                    raise ValueError
        except (IndexError, KeyError, ValueError):
            if not line.strip():
                continue
            raise bad_line(number, line, f"a row of {HEADER.decode()}") from None
        yield Moment.ISSUED, kind, b"", start, length, UNTIMED
