"""A file as lines, in bounded memory, however long its lines are.

In: a stream and what was already read of it. Out: lines of bytes without their ends. Alone because Python's own lines
grow with the file when a hostile one has no line ends.
"""

from collections.abc import Iterator
from typing import BinaryIO

from aligntool.errors import Refused

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
        raise Refused(
            f"the log was cut short: its last line, {number + 1}, has no end",
            hint="record it again; if the line is whole, end it with a line feed",
        )


def whole(word: bytes) -> int:
    """Return a number that is written in the digits 0 to 9 alone. Python's int() also takes 1_000, signs and blanks.

    Raises ValueError.
    """
    if not word.isdigit() or len(word) > 20:  # of bytes: ASCII digits
        raise ValueError
    return int(word)


def bad_line(number: int, line: bytes, expected: str) -> Refused:
    """A refusal that shows the beginning of the line."""
    shown = line[:60].decode("utf-8", "backslashreplace")
    return Refused(
        f"line {number} of the log is not {expected}: {shown!r}", hint="see docs/trace.md, Formats"
    )
