"""The logs that fio writes with --write_iolog, versions 2 and 3.

In: lines. Out: events, each as if it were sent to a drive when fio sent it. Alone because it is the format of a
program: fio(1), "TRACE FILE FORMAT", and iolog.c. After the first line come

    /dev/sda add                     and in version 3 a time in front:    21 /dev/sda add
    /dev/sda read 61440 4096                                             163 /dev/sda read 61440 4096

with offset and length in bytes, counted from the beginning of the file.
"""

import re
from collections.abc import Iterable, Iterator

from aligntool.probe.logs.lines import LAST_BYTE, bad_line, whole
from aligntool.trace import UNTIMED, Event, Kind, Moment

FIRST_LINE = re.compile(rb"fio version ([23]) iolog\s*")
LONGEST_NAME = 4096  # PATH_MAX

_KINDS = {
    b"read": Kind.READ,
    b"write": Kind.WRITE,
    b"trim": Kind.DISCARD,
    b"sync": Kind.FLUSH,
    b"datasync": Kind.FLUSH,
}
_ABOUT_FILES = (b"add", b"open", b"close")


def iolog_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Raises Refused."""
    numbered = enumerate(lines, 1)
    _, title = next(numbered, (1, b""))
    found = FIRST_LINE.fullmatch(title)
    if not found:
        raise bad_line(1, title, '"fio version 2 iolog" or "fio version 3 iolog"')
    timed = found[1] == b"3"
    for number, line in numbered:
        try:
            event = _event(line, timed=timed)
        except (IndexError, KeyError, ValueError):
            raise bad_line(number, line, f"an action of fio's iolog, version {found[1].decode()}") from None
        if event:
            yield event


def _event(line: bytes, *, timed: bool) -> Event | None:
    """None: nothing was sent to a drive. Names may have blanks in them, so lines are read from their end.

    Raises ValueError, IndexError or KeyError.
    """
    if timed and line:
        time, line = line.split(None, 1)
        whole(time)
    words = line.rsplit(None, 3)
    if not words or words[-1] in _ABOUT_FILES or (words[1] == b"wait" and not timed):
        return None
    kind, start, length = _KINDS[words[1]], whole(words[2]), whole(words[3])
    name = words[0]
    if start + length > LAST_BYTE or len(name) > LONGEST_NAME:
        raise ValueError
    if kind is Kind.FLUSH:
        return Moment.ISSUED, kind, name, 0, 0, UNTIMED
    if not length:
        raise ValueError
    return Moment.ISSUED, kind, name, start, length, UNTIMED
