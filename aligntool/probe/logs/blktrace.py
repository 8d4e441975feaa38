"""The binary files of blktrace, turned into text by blkparse.

In: the path of a file. Out: lines as blkparse prints them. Alone because another program runs beside us, and must be
ended when we stop in the middle. blkparse itself is silent about a file that was cut short, so that is looked at first.

Source of the record: struct blk_io_trace, include/uapi/linux/blktrace_api.h: 48 bytes, the first four 0x65617407 in the
byte order of the machine that recorded, the last two the length of what follows.
"""

import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aligntool.errors import Refused
from aligntool.probe.logs.lines import split_lines
from aligntool.probe.programs import find_program

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
    for file in sorted(path.parent.glob(f"{_literal(named[1])}.*")) if named else [path]:
        _check_whole(file)
    if named:
        yield from _text_of(program, str(path.absolute()))
        return
    with (
        tempfile.TemporaryDirectory() as folder
    ):  # from its standard input blkparse counts times anew on the way
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


def _literal(name: str) -> str:
    """A name in which nothing is a pattern."""
    return re.sub(r"([*?[])", r"[\1]", name)


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
                raise Refused(
                    f"{path.name} was cut short: it ends within record {number}", hint="record it again"
                )
