"""Binary traces as the kernel writes them: struct blk_io_trace of include/uapi/linux/blktrace_api.h, for blkparse.

To measure reading a large one, as in docs/trace.md: python -m tests.measure.trace.blktrace_files big.blktrace.0 2000000
"""

import random
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MAGIC = 0x65617407
QUEUE, ALLOCATE, REQUEUE, ISSUE, COMPLETE, INSERT = 1, 4, 6, 7, 8, 12
CATEGORY = {QUEUE: 1 << 4, ALLOCATE: 1 << 4, INSERT: 1 << 4, REQUEUE: 1 << 5, ISSUE: 1 << 6, COMPLETE: 1 << 7}
READ, WRITE, FLUSH, DISCARD, FROM_FILE_SYSTEM = 1, 1 << 1, 1 << 2, 1 << 13, 1 << 8


@dataclass(frozen=True)
class Record:
    time_ns: int
    action: int
    does: int
    sector: int = 0
    length: int = 0
    device: int = 8 << 20
    processor: int = 0

    def packed(self, sequence: int, *, order: str = "<") -> bytes:
        action = self.action | (CATEGORY[self.action] | self.does | FROM_FILE_SYSTEM) << 16
        return struct.pack(
            f"{order}IIQQIIIIIHH",
            MAGIC, sequence, self.time_ns, self.sector, self.length, action, 697, self.device, self.processor, 0, 0,
        )  # fmt: skip


def write_trace(path: Path, records: Iterable[Record], *, order: str = "<") -> Path:
    path.write_bytes(b"".join(one.packed(number, order=order) for number, one in enumerate(records, 1)))
    return path


def drawn_records(seed: int, commands: int = 300) -> list[Record]:
    """Reads, writes, discards and flushes; some are requeued, up to eight are in flight."""
    drawn = random.Random(seed)
    records: list[Record] = []
    in_flight: list[tuple[int, int, int]] = []
    at = 2048

    def say(action: int, what: tuple[int, int, int]) -> None:
        records.append(Record(1000 * len(records), action, *what))

    for number in range(commands):
        does = drawn.choice((READ, READ, WRITE, WRITE, DISCARD | WRITE))
        at = at if drawn.random() < 0.5 else 8 * drawn.randrange(2048, 1 << 24)
        length = 4096 * drawn.choice((1, 2, 32))
        what = (does, at, length)
        at += length // 512
        say(QUEUE, what)
        say(ISSUE, what)
        if number % 17 == 0:
            say(REQUEUE, what)
            say(ISSUE, what)
        in_flight.append(what)
        if len(in_flight) == 8 or drawn.random() < 0.5:
            say(COMPLETE, in_flight.pop(drawn.randrange(len(in_flight))))
    for what in in_flight:
        say(COMPLETE, what)
    return records


def write_large(path: Path, commands: int) -> None:
    """Write random reads and writes, one after the other, with the five records of a plain command."""
    drawn = random.Random(1)
    number = 0
    with path.open("wb") as file:
        for _ in range(commands):
            does, sector = drawn.choice((READ, READ, WRITE)), drawn.randrange(1 << 30)
            length = drawn.choice((4096, 8192, 131072))
            for action in (QUEUE, ALLOCATE, INSERT, ISSUE, COMPLETE):
                number += 1
                file.write(Record(1000 * number, action, does, sector, length).packed(number))


if __name__ == "__main__":
    write_large(Path(sys.argv[1]), int(sys.argv[2]))
