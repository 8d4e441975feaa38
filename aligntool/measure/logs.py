"""Read traces: blktrace, blkparse, fio iologs, columns."""

import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from pathlib import Path
from typing import BinaryIO

from aligntool.commands import shell_word
from aligntool.errors import Refused, failing_as
from aligntool.linux.programs import find_program
from aligntool.linux.sysfs import opened_document
from aligntool.measure.trace import UNTIMED, Event, Kind, Moment

# Read a file line by line in bounded memory: Python's own lines grow without limit in a hostile file without
# line ends.

SECTOR = 512  # the unit of blktrace and of our CSV, for any sector size of the disk
LAST_BYTE = 1 << 64  # no disk is larger
BLOCK = 256 << 10
LONGEST_LINE = BLOCK


def split_lines(stream: BinaryIO, head: bytes) -> Iterator[bytes]:
    """Yield the lines of a stream; `head` is its beginning, which was read to detect the format.

    Raises Refused for a line that is too long, and for a last line without a line feed: it is truncated, and
    half of a number is a number, too.
    """
    rest = b""
    block = head or stream.read(BLOCK)
    number = 0
    while block:
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        number += len(lines)
        yield from lines
        if len(rest) > LONGEST_LINE:
            raise Refused(f"line {number + 1} of the log is longer than {LONGEST_LINE >> 10} KiB")
        block = stream.read(BLOCK)
    if rest:
        hint = "record it again; if the line is complete, end it with a line feed"
        raise Refused(f"the log is truncated: its last line, {number + 1}, has no line feed", hint=hint)


def integer(word: bytes) -> int:
    """Return a number that consists of the digits 0 to 9 only; Python's int() also accepts 1_000, signs and
    blanks.

    Raises ValueError.
    """
    if not word.isdigit() or len(word) > 20:  # for bytes, isdigit() accepts ASCII digits only
        raise ValueError
    return int(word)


def bad_line(number: int, line: bytes, expected: str) -> Refused:
    """Return a refusal that quotes the beginning of the line."""
    shown = line[:60].decode("utf-8", "replace")
    return Refused(
        f'line {number} of the log is not {expected}: "{shown}"', hint="see docs/trace.md, Formats"
    )


# The text that blkparse prints: blkparse(1), "DEFAULT OUTPUT", and the output of blkparse 1.2 and 1.3. A line
# is
#
#     8,0    3        1     0.000000000   697  D   W 223490 + 8 [kjournald]
#
# device, CPU, sequence number, seconds, process, action, RWBS, first sector, number of sectors (512 bytes
# each).
# RWBS has D for a discard, otherwise W, R, or N for neither; F in front for a flush before it; and more
# letters that do not matter here. A flush, and a command that does not come from a file system, have no "+
# 8".

FIRST_LINE = re.compile(rb"\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d+\s+\d+\s+[A-Zm]\w?\s")
_DEVICE = re.compile(rb"\d{1,10},\d{1,10}")
_RWBS = re.compile(rb"[A-Z]{1,8}")
_SUMMARY = re.compile(
    rb"(CPU\d+|Total|Events) \(|Throughput |Skips: |Input file |Trace started at |[^(]+ \(\d+(,"
    rb" \.\.\.)?\)\s*$"
)

_SKIPPED = (b"G", b"I", b"M", b"F", b"S", b"P", b"U", b"UT", b"X", b"B", b"A", b"T", b"m")
_MOMENTS = {
    b"Q": Moment.QUEUED,
    b"D": Moment.ISSUED,
    b"R": Moment.REQUEUED,
    b"C": Moment.COMPLETED,
} | dict.fromkeys(_SKIPPED)


def blkparse_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of blkparse's text, up to its summary. Raises Refused."""
    device = b""
    numbered = enumerate(lines, 1)
    for number, line in numbered:
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
                again = next((number for number, rest in numbered if FIRST_LINE.match(rest)), None)
                if again:
                    raise Refused(
                        f"line {again} of the log is an event, after the summary in line {number}",
                        hint="analyse one log at a time",
                    ) from None
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
    """Return start and length in bytes, both 0 if there is no range. Raises ValueError or IndexError."""
    if len(words) > 8 and words[8] == b"+":
        start, length = integer(words[7]) * SECTOR, integer(words[9]) * SECTOR
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


# The binary files of blktrace, converted to text by blkparse. blkparse does not report a truncated file, so
# that is checked first.
#
# Source of the record: struct blk_io_trace, include/uapi/linux/blktrace_api.h: 48 bytes, the first four
# 0x65617407 in the byte order of the recording machine, the last two the length of the data that follow.

MAGIC = 0x65617407
RECORD = 48
WINDOW = 1 << 20
MOST_PROCESSORS = 8192  # of Linux
_NAME = re.compile(r"(.+\.blktrace)\.\d+")


def byte_order(head: bytes) -> str | None:
    """Return "<" or ">" for a file of blktrace, None for any other file."""
    for order in "<>":
        if head[:4] == struct.pack(f"{order}I", MAGIC):
            return order
    return None


def blkparse_lines(path: Path) -> Iterator[bytes]:
    """Yield the text of NAME.blktrace.0 and its siblings, one for each CPU, in the order of time; for any
    other name, of that file alone.

    Raises Refused, also if blkparse is not installed.
    """
    program = find_program("blkparse")
    if program is None:
        raise Refused(
            "this is a file of blktrace, but blkparse, which reads it, is not installed",
            hint="install the package blktrace",
        )
    named = _NAME.fullmatch(path.name)
    alike = re.compile(rf"{re.escape(named[1] if named else '')}\.\d+")
    files = (
        [file for file in sorted(path.parent.iterdir()) if alike.fullmatch(file.name)] if named else [path]
    )
    # links, because on standard input blkparse restarts its times
    with tempfile.TemporaryDirectory() as folder:
        processors = _processors(files)
        for number in range(max(processors, default=-1) + 1):
            link = Path(folder, f"log.blktrace.{number}")
            if number in processors:
                link.symlink_to(processors[number].absolute())
            else:
                link.touch()  # blkparse stops at the first number that is missing
        yield from _text_of(program, f"{folder}/log")


def _processors(files: Iterable[Path]) -> dict[int, Path]:
    """Return the files that have records, each by its processor, from which blkparse expects all records of a
    file.
    """
    found: dict[int, Path] = {}
    for file in files:
        number = _processor(file)
        if number is not None and found.setdefault(number, file) is not file:
            raise Refused(f"{found[number].name} and {file.name} have records of the same processor")
    return found


def _text_of(program: str, name: str) -> Iterator[bytes]:
    """Yield the lines that blkparse prints. `name`: the name by which it finds its files.

    The text comes through a separate pipe: on standard output blkparse writes line by line, four times as
    slowly, and prints other text, too.
    """
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as text, tempfile.TemporaryFile() as errors:
        try:
            running = subprocess.Popen(
                (program, "-q", "-i", name, "-o", f"/dev/fd/{writer}"),
                pass_fds=(writer,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=os.environ | {"LC_ALL": "C"},
            )
        finally:
            os.close(writer)
        try:
            yield from split_lines(text, b"")
            if running.wait():
                errors.seek(0)
                message = errors.read(1000).decode("utf-8", "replace").strip()
                raise Refused(f"blkparse exited with {running.returncode} on this file: {message}")
        finally:
            running.kill()
            running.wait()


def _processor(path: Path) -> int | None:
    """Return the processor that all records of a file are of, None for an empty file. Raises Refused for a
    file that ends within a record, has anything other than records, or records of several processors.
    """
    with opened_document(str(path), WINDOW) as file:
        order = byte_order(file.read(4)) or "<"
        file.seek(0)
        unpack = struct.Struct(f"{order}I36xI2xH").unpack
        number = 0
        found = None
        while record := file.read(RECORD):
            number += 1
            magic, processor, data_length = unpack(record) if len(record) == RECORD else (MAGIC, found, 1)
            if magic != MAGIC or (processor or 0) >= MOST_PROCESSORS:
                raise Refused(f"{path.name} is damaged: its record {number} is not one of blktrace")
            if len(record) < RECORD or len(file.read(data_length)) < data_length:
                raise Refused(
                    f"{path.name} is truncated: it ends within record {number}", hint="record it again"
                )
            if processor != found and found is not None:
                raise Refused(
                    f"{path.name} has records of several processors, as blktrace writes them to a pipe",
                    hint=f"blkparse -q -i - <{shell_word(str(path))} | aligntool trace -",
                )
            found = processor
    return found


# Our own format, for logs of other tools: CSV with the columns time_s,op,lba,sectors (docs/trace.md).

HEADER = b"time_s,op,lba,sectors"
MARK = b"\xef\xbb\xbf"  # byte order mark, which spreadsheets write before UTF-8

_TIME = re.compile(rb"[0-9]{1,20}(\.[0-9]{1,20})?([eE]-?[0-9]{1,2})?")

_COLUMN_KINDS = {b"R": Kind.READ, b"W": Kind.WRITE, b"D": Kind.DISCARD, b"F": Kind.FLUSH}


def is_header(line: bytes) -> bool:
    words = line.removeprefix(MARK).rstrip(b"\r").split(b",")
    return b",".join(words[:4]) == HEADER


def csv_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a CSV. Columns after the fourth are ignored, and so are lba and sectors of a flush.
    Raises Refused.
    """
    rest = iter(lines)
    header = next(rest, b"")
    if not is_header(header):
        raise bad_line(1, header, f"the header {HEADER.decode()}")
    yield from _parse_lines(rest, _row_event, f"a row of {HEADER.decode()}")


def _row_event(line: bytes) -> Event:
    """Return the event of a CSV row. Raises ValueError, IndexError or KeyError."""
    words = line.rstrip(b"\r").split(b",", 4)
    kind = _COLUMN_KINDS[words[1]]
    if not _TIME.fullmatch(words[0]):
        raise ValueError
    start, length = (
        (0, 0)
        if kind is Kind.FLUSH
        else _checked_range(integer(words[2]) * SECTOR, integer(words[3]) * SECTOR)
    )
    return Moment.ISSUED, kind, b"", start, length, UNTIMED


def _checked_range(start: int, length: int) -> tuple[int, int]:
    """Return the range. Raises ValueError if it is empty, or beyond the end of any disk."""
    if not length or start + length > LAST_BYTE:
        raise ValueError
    return start, length


def _parse_lines(
    rest: Iterable[bytes], parse: Callable[[bytes], Event | None], expected: str
) -> Iterator[Event]:
    """Yield the events of the lines after the first one. Raises Refused."""
    for number, line in enumerate(rest, 2):
        try:
            event = parse(line)
        except (IndexError, KeyError, ValueError):
            if not line.strip():
                continue
            raise bad_line(number, line, expected) from None
        if event:
            yield event


# The logs that fio writes with --write_iolog, versions 2 and 3: fio(1), "TRACE FILE FORMAT", and iolog.c. The
# first line is followed by
#
#     /dev/sda add                     and in version 3 a time in front:    21 /dev/sda add
#     /dev/sda read 61440 4096                                             163 /dev/sda read 61440 4096
#
# with offset and length in bytes, from the beginning of the file.

IOLOG_FIRST_LINE = re.compile(rb"fio version ([23]) iolog\s*")
LONGEST_NAME = 4096  # PATH_MAX

_IOLOG_KINDS = {
    b"read": Kind.READ,
    b"write": Kind.WRITE,
    b"trim": Kind.DISCARD,
    b"sync": Kind.FLUSH,
    b"datasync": Kind.FLUSH,
}
_FILE_ACTIONS = (b"add", b"open", b"close")


def iolog_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of fio's iolog. Raises Refused."""
    rest = iter(lines)
    title = next(rest, b"")
    found = IOLOG_FIRST_LINE.fullmatch(title)
    if not found:
        raise bad_line(1, title, '"fio version 2 iolog" or "fio version 3 iolog"')
    parse = partial(_iolog_event, timed=found[1] == b"3")
    yield from _parse_lines(rest, parse, f"an action of fio's iolog, version {found[1].decode()}")


def _iolog_event(line: bytes, *, timed: bool) -> Event | None:
    """Return the event of a line, or None if nothing was sent to a drive. Names may contain blanks, so lines
    are split from their end.

    Raises ValueError, IndexError or KeyError.
    """
    if timed and line:
        time, line = line.split(None, 1)
        integer(time)
    words = line.rsplit(None, 3)
    if (
        not words
        or words[-1] in _FILE_ACTIONS
        or words[1] == b"sync_file_range"
        or (words[1] == b"wait" and not timed)
    ):
        return None  # sync_file_range(2) only starts writes of the page cache, whose own lines are counted
    kind = _IOLOG_KINDS[words[1]]
    name = words[0]
    offset_length = (integer(words[2]), integer(words[3]))
    if len(name) > LONGEST_NAME:
        raise ValueError
    start, length = (0, 0) if kind is Kind.FLUSH else _checked_range(*offset_length)
    return Moment.ISSUED, kind, name, start, length, UNTIMED


# Open a log: detect its format and choose its reader.

STDIN = "-"


class LogFormat(StrEnum):
    BLKPARSE = "blkparse"
    IOLOG = "iolog"
    CSV = "csv"
    BLKTRACE = "blktrace"


@dataclass(frozen=True, slots=True)
class Log:
    """An open log. `events` can be iterated once, while the log is open."""

    name: str
    form: LogFormat
    events: Iterator[Event]


_READERS: dict[LogFormat, Callable[[Iterable[bytes]], Iterator[Event]]] = {
    LogFormat.BLKPARSE: blkparse_events,
    LogFormat.IOLOG: iolog_events,
    LogFormat.CSV: csv_events,
    LogFormat.BLKTRACE: blkparse_events,
}


@contextmanager
def open_log(path: str, form: LogFormat | None = None) -> Iterator[Log]:
    """Open a log; `form` None: detect the format from the beginning of the file. Raises Refused, also while
    events are read, for any fault of the file.
    """
    with failing_as(Refused, path), _opened(path) as stream:
        head = stream.read(BLOCK)
        form = LogFormat.BLKTRACE if byte_order(head) else form or _detect_format(path, head)
        lines = _lines(path, form, stream, head)
        yield Log(path, form, _READERS[form](lines))


def _opened(path: str) -> BinaryIO:
    return os.fdopen(0, "rb") if path == STDIN else opened_document(path)  # sys.stdin is None if it is closed


def _lines(path: str, form: LogFormat, stream: BinaryIO, head: bytes) -> Iterator[bytes]:
    if form is not LogFormat.BLKTRACE:
        return split_lines(stream, head)
    if path == STDIN or not stream.seekable():
        raise Refused(
            "binary traces of blktrace cannot be read from a pipe",
            hint="blkparse -i - | aligntool trace -   at the end of the pipe",
        )
    return blkparse_lines(Path(path))


def _detect_format(path: str, head: bytes) -> LogFormat:
    """Return the format of a log that begins with `head`. Raises Refused."""
    name = "standard input" if path == STDIN else path
    first = head.lstrip().split(b"\n", 1)[0]
    if IOLOG_FIRST_LINE.fullmatch(first):
        return LogFormat.IOLOG
    if is_header(first) or FIRST_LINE.match(first):
        return LogFormat.CSV if is_header(first) else LogFormat.BLKPARSE
    if not head:
        raise Refused(f"{name} is empty", hint="docs/trace.md shows how to record one")
    begins = first[:60].decode("utf-8", "replace")
    what = "it has bytes that are not text" if b"\0" in head else f'it begins with "{begins}"'
    words = (
        f"{name} is not a log of blktrace, blkparse or fio, nor a CSV with the header {HEADER.decode()}:"
        f" {what}"
    )
    raise Refused(words, hint="docs/trace.md describes the formats and how to record one")
