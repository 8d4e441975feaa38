"""Opening a log: which format it has, and what reads it.

In: a path, or "-" for standard input, and a format if the user gave one. Out: a Log. Alone because the beginning of a
file decides between readers that do not know each other.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import BinaryIO

from aligntool.errors import Refused
from aligntool.probe.logs import blkparse, columns, iolog
from aligntool.probe.logs.blktrace import blkparse_lines, byte_order
from aligntool.probe.logs.lines import BLOCK, split_lines
from aligntool.trace import Event

STDIN = "-"


class LogFormat(StrEnum):
    BLKPARSE = "blkparse"
    IOLOG = "iolog"
    CSV = "csv"
    BLKTRACE = "blktrace"


@dataclass(frozen=True, slots=True)
class Log:
    """`events` can be gone through once, while the log is open."""

    name: str
    form: LogFormat
    events: Iterator[Event]


_READERS: dict[LogFormat, Callable[[Iterable[bytes]], Iterator[Event]]] = {
    LogFormat.BLKPARSE: blkparse.blkparse_events,
    LogFormat.IOLOG: iolog.iolog_events,
    LogFormat.CSV: columns.csv_events,
    LogFormat.BLKTRACE: blkparse.blkparse_events,
}


@contextmanager
def open_log(path: str, form: LogFormat | None = None) -> Iterator[Log]:
    """`form` None: the file's beginning tells. Raises Refused, also while events are read, for anything that is wrong
    with the file.
    """
    try:
        stream = sys.stdin.buffer if path == STDIN else Path(path).open("rb")  # noqa: SIM115
        with stream:
            head = stream.read(BLOCK)
            form = LogFormat.BLKTRACE if byte_order(head) else form or _told_by(head)
            lines = _lines(path, form, stream, head)
            yield Log(path, form, _READERS[form](lines))
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}", hint=f"ls -l {quote(path)}") from error


def _lines(path: str, form: LogFormat, stream: BinaryIO, head: bytes) -> Iterator[bytes]:
    if form is not LogFormat.BLKTRACE:
        return split_lines(stream, head)
    if path == STDIN or not stream.seekable():
        raise Refused("binary traces of blktrace are not read from a pipe",
                      hint="blkparse -i - | aligntool trace -   at the end of the pipe")  # fmt: skip
    return blkparse_lines(Path(path))


def _told_by(head: bytes) -> LogFormat:
    """Raises Refused."""
    first = head.lstrip().split(b"\n", 1)[0]
    if iolog.FIRST_LINE.fullmatch(first):
        return LogFormat.IOLOG
    if columns.is_header(first):
        return LogFormat.CSV
    if blkparse.FIRST_LINE.match(first):
        return LogFormat.BLKPARSE
    if not head:
        raise Refused("the log is empty", hint="docs/trace.md tells how to record one")
    what = "it has bytes that are no text" if b"\0" in head else f"it begins with {first[:60]!r}"
    raise Refused(
        f"this is no log of blktrace, blkparse or fio, and no CSV with the header {columns.HEADER.decode()}: {what}",
        hint="docs/trace.md tells the formats, and how to record one",
    )
