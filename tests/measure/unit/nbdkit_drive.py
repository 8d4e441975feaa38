"""A simulated slow drive with pages, run by nbdkit in its own Python.

`nbdkit python THIS size=BYTES page=BYTES base_us=N page_us=N [unit=BYTES part_us=N] [small=BYTES small_us=N]
[mapped=BYTES miss_us=N] [rate=1] [log=FILE]`: a read takes its base time and page_us for each page beyond the first, a
write part_us for each unit that it covers in part, and small_us if it is smaller than `small`, wherever it is. The
mapping table in memory covers `mapped` bytes, those used last; a read elsewhere takes miss_us more. What is written is
kept in memory, sparsely. Each read is a line of the log: byte, bytes.

With rate=1 it keeps its average rate: delays that a busy machine adds to a request are subtracted from the next ones.

It can import nothing from this checkout.
"""

import time
from pathlib import Path

API_VERSION = 2
NUMBERS = {
    "size": 1 << 30,
    "page": 0,
    "base_us": 1000,
    "page_us": 1000,
    "unit": 0,
    "part_us": 1000,
    "small": 0,
    "small_us": 1000,
    "mapped": 0,
    "miss_us": 0,
    "rate": 0,
}
IDLE_S = 0.25  # between two requests: nothing waited for the drive
CLOCK = {"due": 0.0, "done": 0.0}  # of the last request, in seconds
BLOCK = 4096
SEGMENT = 8 << 20  # bytes whose map is loaded at once
AT_HAND: dict[int, None] = {}  # segments, the most recently used one at the end
KEPT: dict[int, bytes] = {}
LOGS: list[str] = []
FILLING = bytes(range(1, 255)) * 17


def config(key: str, value: str) -> None:
    if key == "log":
        LOGS.append(value)
    else:
        NUMBERS[key] = int(value)


def open(readonly: bool) -> int:
    return 1


def get_size(_: int) -> int:
    return NUMBERS["size"]


def flush(_: int, flags: int) -> None:
    """Do nothing: every write is durable at once."""


def pread(_: int, buffer: bytearray, offset: int, flags: int) -> None:
    began = time.monotonic()
    done = 0
    while done < len(buffer):
        index, past = divmod(offset + done, BLOCK)
        piece = KEPT.get(index, FILLING[:BLOCK])[past : past + len(buffer) - done]
        buffer[done : done + len(piece)] = piece
        done += len(piece)
    for log in LOGS:
        with Path(log).open("a") as file:
            file.write(f"{offset} {len(buffer)}\n")
    page = NUMBERS["page"]
    pages = (offset + len(buffer) - 1) // page - offset // page if page else 0
    _take(began, NUMBERS["base_us"] + NUMBERS["page_us"] * pages + _map_us(offset))


def pwrite(_: int, buffer: bytes, offset: int, flags: int) -> None:
    began = time.monotonic()
    data = bytes(buffer)
    for at in range(offset // BLOCK, (offset + len(data) - 1) // BLOCK + 1):
        old = bytearray(KEPT.get(at, FILLING[:BLOCK]))
        low, high = max(at * BLOCK, offset), min((at + 1) * BLOCK, offset + len(data))
        old[low - at * BLOCK : high - at * BLOCK] = data[low - offset : high - offset]
        KEPT[at] = bytes(old)
    small_us = NUMBERS["small_us"] if len(data) < NUMBERS["small"] else 0
    _take(began, NUMBERS["base_us"] + NUMBERS["part_us"] * _parts(offset, len(data)) + small_us)


def _take(began: float, us: int) -> None:
    pause = began - CLOCK["done"]
    follows = NUMBERS["rate"] and pause < IDLE_S
    CLOCK["due"] = (CLOCK["due"] if follows else began) + us / 1e6
    time.sleep(max(CLOCK["due"] - time.monotonic(), 0))
    CLOCK["done"] = time.monotonic()


def _map_us(offset: int) -> int:
    if not NUMBERS["mapped"]:
        return 0
    segment = offset // SEGMENT
    hit = segment in AT_HAND
    AT_HAND.pop(segment, None)
    AT_HAND[segment] = None
    if len(AT_HAND) > NUMBERS["mapped"] // SEGMENT:
        del AT_HAND[next(iter(AT_HAND))]
    return 0 if hit else NUMBERS["miss_us"]


def _parts(offset: int, length: int) -> int:
    unit = NUMBERS["unit"]
    if not unit:
        return 0
    first, last = offset // unit, (offset + length - 1) // unit
    return sum(
        not (offset <= index * unit and (index + 1) * unit <= offset + length) for index in range(first, last + 1)
    )
