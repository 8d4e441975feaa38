"""Read traces: blktrace, blkparse, fio iologs, columns."""

import glob
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from pathlib import Path
from shlex import quote
from typing import BinaryIO

from aligntool.errors import Refused
from aligntool.linux.process import find_program
from aligntool.measure.trace import UNTIMED, Event, Kind, Moment

# A file as lines, in bounded memory: Python's own lines grow with a hostile file that has no line ends.

SECTOR = 512  # of blktrace and of our CSV, whatever the disk's sectors are
LAST_BYTE = 1 << 64  # no disk is larger
BLOCK = 256 << 10
LONGEST_LINE = BLOCK


def split_lines(stream: BinaryIO, head: bytes) -> Iterator[bytes]:
    """`head` was read from the stream to see what it is. A last line without its end was cut short: half of a number
    is a number, too.

    Raises Refused.
    """
    rest, block, number = b"", head or stream.read(BLOCK), 0
    while block:
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        number += len(lines)
        yield from lines
        if len(rest) > LONGEST_LINE:
            raise Refused(f"line {number + 1} of the log is longer than {LONGEST_LINE >> 10} KiB")
        block = stream.read(BLOCK)
    if rest:
        hint = "record it again; if the line is whole, end it with a line feed"
        raise Refused(f"the log was cut short: its last line, {number + 1}, has no end", hint=hint)


def whole(word: bytes) -> int:
    """Return a number that is written in the digits 0 to 9 alone. Python's int() also takes 1_000, signs and blanks.

    Raises ValueError.
    """
    if not word.isdigit() or len(word) > 20:  # of bytes: ASCII digits
        raise ValueError
    return int(word)


def bad_line(number: int, line: bytes, expected: str) -> Refused:
    """Return a refusal that shows the beginning of the line."""
    shown = line[:60].decode("utf-8", "backslashreplace")
    return Refused(f"line {number} of the log is not {expected}: {shown!r}", hint="see docs/trace.md, Formats")


# The text that blkparse prints: blkparse(1), "DEFAULT OUTPUT", and the output of blkparse 1.2.0. A line is
#
#     8,0    3        1     0.000000000   697  D   W 223490 + 8 [kjournald]
#
# device, CPU, number, seconds, process, action, RWBS, first sector of 512 bytes, their number. RWBS has D for
# discard, else W or R or N for none, F in front for a flush before it, and more letters that change nothing
# here. A flush and a command that does not come from a file system have no "+ 8".

FIRST_LINE = re.compile(rb"\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d+\s+\d+\s+[A-Zm]\w?\s")
_DEVICE = re.compile(rb"\d{1,10},\d{1,10}")
_RWBS = re.compile(rb"[A-Z]{1,8}")
_SUMMARY = re.compile(rb"(CPU\d+|Total|Events) \(|Throughput |Skips: |Input file |[^(]+ \(\d+(, \.\.\.)?\)\s*$")

_SKIPPED = (b"G", b"I", b"M", b"F", b"S", b"P", b"U", b"UT", b"X", b"B", b"A", b"T", b"m")
_MOMENTS = {b"Q": Moment.QUEUED, b"D": Moment.ISSUED, b"R": Moment.REQUEUED, b"C": Moment.COMPLETED} | dict.fromkeys(
    _SKIPPED
)


def blkparse_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Up to the summary.

    Raises Refused.
    """
    device = b""
    for number, line in enumerate(lines, 1):
        words = line.split(None, 10)
        try:
            moment = _MOMENTS[words[5]]
            if words[0] != device:
                device = words[0]
                if not _DEVICE.fullmatch(device):
                    raise ValueError
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


# The binary files of blktrace, converted to text by blkparse, which reports nothing about a file that was cut short:
# that is checked first.
#
# Source of the record: struct blk_io_trace, include/uapi/linux/blktrace_api.h: 48 bytes, the first four
# 0x65617407 in the byte order of the machine that recorded, the last two the length of what follows.

MAGIC = 0x65617407
RECORD = 48
WINDOW = 1 << 20
_NAME = re.compile(r"(.+\.blktrace)\.\d+")


def byte_order(head: bytes) -> str | None:
    """ "<" or ">" for a file of blktrace; None: it is none."""
    for order in "<>":
        if head[:4] == struct.pack(f"{order}I", MAGIC):
            return order
    return None


def blkparse_lines(path: Path) -> Iterator[bytes]:
    """Of NAME.blktrace.0 and its neighbours, one for each CPU, in the order of time; of another name, of that file.

    Raises Refused, also when blkparse is not installed.
    """
    program = find_program("blkparse")
    if program is None:
        raise Refused("this is a file of blktrace, and blkparse, which reads them, is not installed",
                      hint="install the package blktrace")  # fmt: skip
    named = _NAME.fullmatch(path.name)
    for file in sorted(path.parent.glob(f"{glob.escape(named[1])}.*")) if named else [path]:
        _check_whole(file)
    if named:
        yield from _text_of(program, str(path.absolute()))
        return
    with tempfile.TemporaryDirectory() as folder:  # from its standard input blkparse counts times anew on the way
        link = Path(folder, "log.blktrace.0")
        link.symlink_to(path.absolute())
        yield from _text_of(program, str(link))


def _text_of(program: str, name: str) -> Iterator[bytes]:
    """`name`: what blkparse finds its files by.

    The text comes through a pipe of its own: to standard output blkparse writes line by line, four times as slowly, and
    other things, too.
    """
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as text, tempfile.TemporaryFile() as errors:
        try:
            running = subprocess.Popen(
                (program, "-q", "-i", name, "-o", f"/dev/fd/{writer}"), pass_fds=(writer,), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=errors, env=os.environ | {"LC_ALL": "C"},
            )  # fmt: skip
        finally:
            os.close(writer)
        try:
            yield from split_lines(text, b"")
            if running.wait():
                errors.seek(0)
                said = errors.read(1000).decode("utf-8", "replace").strip()
                raise Refused(f"blkparse ended with {running.returncode} on this file: {said}")
        finally:
            running.kill()
            running.wait()


def _check_whole(path: Path) -> None:
    """Goes from record to record. Raises Refused for a file that ends within one, or has something else in it."""
    with path.open("rb", buffering=WINDOW) as file:
        order = byte_order(file.read(4)) or "<"
        file.seek(0)
        unpack = struct.Struct(f"{order}I42xH").unpack
        number = 0
        while record := file.read(RECORD):
            number += 1
            magic, more = unpack(record) if len(record) == RECORD else (MAGIC, 1)
            if magic != MAGIC:
                raise Refused(f"{path.name} is damaged: its record {number} has another magic number")
            if len(record) < RECORD or len(file.read(more)) < more:
                raise Refused(f"{path.name} was cut short: it ends within record {number}", hint="record it again")


# Our own format, for logs of other tools: CSV with the columns time_s,op,lba,sectors (docs/trace.md).

HEADER = b"time_s,op,lba,sectors"
MARK = b"\xef\xbb\xbf"  # that spreadsheets write before UTF-8

_TIME = re.compile(rb"[0-9]{1,20}(\.[0-9]{1,20})?([eE]-?[0-9]{1,2})?")

_COLUMN_KINDS = {b"R": Kind.READ, b"W": Kind.WRITE, b"D": Kind.DISCARD, b"F": Kind.FLUSH}


def is_header(line: bytes) -> bool:
    words = line.removeprefix(MARK).rstrip(b"\r").split(b",")
    return b",".join(words[:4]) == HEADER


def csv_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Columns after the fourth are ignored; of a flush also lba and sectors. Raises Refused."""
    rest = iter(lines)
    header = next(rest, b"")
    if not is_header(header):
        raise bad_line(1, header, f"the header {HEADER.decode()}")
    yield from _parsed(rest, _row_event, f"a row of {HEADER.decode()}")


def _row_event(line: bytes) -> Event:
    """Raises ValueError, IndexError or KeyError."""
    words = line.rstrip(b"\r").split(b",", 4)
    kind = _COLUMN_KINDS[words[1]]
    if not _TIME.fullmatch(words[0]):
        raise ValueError
    start, length = (0, 0) if kind is Kind.FLUSH else _bytes_of(whole(words[2]) * SECTOR, whole(words[3]) * SECTOR)
    return Moment.ISSUED, kind, b"", start, length, UNTIMED


def _bytes_of(start: int, length: int) -> tuple[int, int]:
    """Raises ValueError for nothing, and for what lies beyond any disk."""
    if not length or start + length > LAST_BYTE:
        raise ValueError
    return start, length


def _parsed(rest: Iterable[bytes], parse: Callable[[bytes], Event | None], expected: str) -> Iterator[Event]:
    """The lines after the first one. Raises Refused."""
    for number, line in enumerate(rest, 2):
        try:
            event = parse(line)
        except (IndexError, KeyError, ValueError):
            if not line.strip():
                continue
            raise bad_line(number, line, expected) from None
        if event:
            yield event


# The logs that fio writes with --write_iolog, versions 2 and 3: fio(1), "TRACE FILE FORMAT", and iolog.c. After the
# first line come
#
#     /dev/sda add                     and in version 3 a time in front:    21 /dev/sda add
#     /dev/sda read 61440 4096                                             163 /dev/sda read 61440 4096
#
# with offset and length in bytes, counted from the beginning of the file.

IOLOG_FIRST_LINE = re.compile(rb"fio version ([23]) iolog\s*")
LONGEST_NAME = 4096  # PATH_MAX

_IOLOG_KINDS = {
    b"read": Kind.READ, b"write": Kind.WRITE, b"trim": Kind.DISCARD, b"sync": Kind.FLUSH, b"datasync": Kind.FLUSH,
}  # fmt: skip
_ABOUT_FILES = (b"add", b"open", b"close")


def iolog_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Raises Refused."""
    rest = iter(lines)
    title = next(rest, b"")
    found = IOLOG_FIRST_LINE.fullmatch(title)
    if not found:
        raise bad_line(1, title, '"fio version 2 iolog" or "fio version 3 iolog"')
    parse = partial(_event, timed=found[1] == b"3")
    yield from _parsed(rest, parse, f"an action of fio's iolog, version {found[1].decode()}")


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
    kind, name, place = _IOLOG_KINDS[words[1]], words[0], (whole(words[2]), whole(words[3]))
    if len(name) > LONGEST_NAME:
        raise ValueError
    start, length = (0, 0) if kind is Kind.FLUSH else _bytes_of(*place)
    return Moment.ISSUED, kind, name, start, length, UNTIMED


# Opening a log: which format it has, and what reads it.

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
    LogFormat.BLKPARSE: blkparse_events, LogFormat.IOLOG: iolog_events, LogFormat.CSV: csv_events,
    LogFormat.BLKTRACE: blkparse_events,
}  # fmt: skip


@contextmanager
def open_log(path: str, form: LogFormat | None = None) -> Iterator[Log]:
    """`form` None: detected by the file's beginning. Raises Refused, also while events are read, for anything that is
    wrong with the file.
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
    if IOLOG_FIRST_LINE.fullmatch(first):
        return LogFormat.IOLOG
    if is_header(first) or FIRST_LINE.match(first):
        return LogFormat.CSV if is_header(first) else LogFormat.BLKPARSE
    if not head:
        raise Refused("the log is empty", hint="docs/trace.md has how to record one")
    what = "it has bytes that are not text" if b"\0" in head else f"it begins with {first[:60]!r}"
    words = f"this is not a log of blktrace, blkparse or fio, nor a CSV with the header {HEADER.decode()}: {what}"
    raise Refused(words, hint="docs/trace.md has the formats and how to record one")
