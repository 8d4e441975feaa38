"""A disk that logs its requests and fails on request. nbdkit runs it in its own Python.

`nbdkit python THIS image=FILE log=FILE faults=FILE`: reads and writes go to the image; every write and flush goes to
the log; every range in the file of faults returns an I/O error, stores a write with a flipped bit, or ("stall-read")
does not answer as long as it is listed there. The file of faults is read before every request, so a disk can fail and
be repaired while it is in use. There is no cache: what is written is in the image at once. The replay of the log
decides what a cache could have lost.

It can import nothing from this checkout.
"""

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

API_VERSION = 2
PATHS: dict[str, str] = {}
HEAD = struct.Struct("<cQI")  # b"W" or b"F", byte, bytes that follow


def config(key: str, value: str) -> None:
    PATHS[key] = value


def open(readonly: bool) -> int:
    return os.open(PATHS["image"], os.O_RDWR)


def close(disk: int) -> None:
    os.close(disk)


def get_size(disk: int) -> int:
    return os.lseek(disk, 0, os.SEEK_END)


def pread(disk: int, buffer: bytearray, offset: int, flags: int) -> None:
    _fail_if_requested("read", offset, len(buffer))
    buffer[:] = os.pread(disk, len(buffer), offset)


def pwrite(disk: int, buffer: bytes, offset: int, flags: int) -> None:
    _fail_if_requested("write", offset, len(buffer))
    content = _garbled(offset, bytes(buffer))
    os.pwrite(disk, content, offset)
    _note(b"W", offset, content)


def flush(disk: int, flags: int) -> None:
    _fail_if_requested("flush", 0, 1)
    _note(b"F", 0, b"")


def _note(kind: bytes, offset: int, content: bytes) -> None:
    if "log" in PATHS:
        with Path(PATHS["log"]).open("ab") as log:
            log.write(HEAD.pack(kind, offset, len(content)) + content)


def _fail_if_requested(what: str, offset: int, length: int) -> None:
    while next(_told(f"stall-{what}", offset, length), None) is not None:
        time.sleep(0.05)
    if next(_told(what, offset, length), None) is not None:
        raise OSError(5, f"{what} at {offset}: told to fail")


def _garbled(offset: int, content: bytes) -> bytes:
    """Flip one bit in each range that is to be written wrongly."""
    wrong = bytearray(content)
    for start in _told("garble", offset, len(content)):
        wrong[max(start, offset) - offset] ^= 0x10
    return bytes(wrong)


def _told(what: str, offset: int, length: int) -> Iterator[int]:
    """Return the first bytes of the ranges that touch this one. A fault is a line: "read 4096 512": operation, byte,
    bytes.
    """
    if "faults" in PATHS:
        for line in Path(PATHS["faults"]).read_text().splitlines():
            kind, start, many = line.split()
            if kind == what and int(start) < offset + length and offset < int(start) + int(many):
                yield int(start)
