"""A disk with a write cache whose power can be cut before any operation.

What was flushed survives. Of the rest any subset of sectors may survive, and a sector may be torn, half old and half
new.
"""

import ctypes
import errno
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

SECTOR = 512


class PowerCut(BaseException):
    """Not an Exception: no handler of the tested program may catch it."""


# A platter has tens of MiB and is copied before each cut. glibc would map memory for each copy, and give it back: that
# every page of it is faulted in again takes longer than the test. mallopt(3)
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
ctypes.CDLL(None).mallopt(_M_MMAP_MAX, 0)
ctypes.CDLL(None).mallopt(_M_TRIM_THRESHOLD, 1 << 30)


class SimulatedDisk:
    """Operations are counted: each write and each flush. `cut`: the operation before which the power is cut. `beside`:
    another disk that is written to in the same run.
    """

    def __init__(
        self,
        platter: bytes,
        *,
        cut: int | None = None,
        bad: Iterable[int] = (),
        sector: int = SECTOR,
        beside: "SimulatedDisk | None" = None,
    ) -> None:
        self._platter = bytearray(platter)
        self._cache: dict[int, bytes] = {}
        self._cut = cut
        self._sector = sector
        self._bad = frozenset(bad)  # sectors that return an I/O error
        self._first, self._written = (bytes(platter), set[int]())  # a hole is what holds zeros and was never written
        self._beside = beside
        self.operations = 0
        self.operations_beside: list[int] = []  # of the other disk, before each operation of this one
        self.log: list[tuple[int, bytes] | None] = []  # writes in order; None: a flush

    @property
    def size(self) -> int:
        return len(self._platter)

    @property
    def sector_size(self) -> int:
        return self._sector

    def read(self, offset: int, length: int) -> bytes:
        self._check(offset, length)
        seen = bytearray(self._platter[offset : offset + length])
        for at in range(offset, offset + length, self._sector) if self._cache else ():
            if at in self._cache:
                seen[at - offset : at - offset + self._sector] = self._cache[at]
        return bytes(seen)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        self._check(offset, len(data))
        self._draw()
        raw = bytes(data)
        self.log.append((offset, raw))
        for at in range(0, len(raw), self._sector):
            self._cache[offset + at] = raw[at : at + self._sector]
        self._written.update(range(offset, offset + len(raw), self._sector))

    def flush(self) -> None:
        self._draw()
        self.log.append(None)
        for at, sector in self._cache.items():
            self._platter[at : at + len(sector)] = sector
        self._cache = {}

    def is_hole(self, offset: int, length: int) -> bool:
        written = not self._written.isdisjoint(range(offset, offset + length, self._sector))
        return not written and self._first[offset : offset + length] == bytes(length)

    def run_parallel(self, jobs: Iterable[Callable[[], None]], meanwhile: Callable[[], None] | None = None) -> None:
        if meanwhile:
            meanwhile()
        for job in jobs:
            job()

    def after_the_cut(self, luck: random.Random, *, torn: bool = True) -> bytes:
        """Return the platter as the next boot finds it."""
        return survivors(self._platter, self._cache, luck, torn=torn)

    def before(self, operation: int | None) -> "SimulatedDisk":
        """Return the disk as a power cut before this operation leaves it; None: as it is. What wrote to it does not run
        again, which takes many times as long.
        """
        left = SimulatedDisk(self._first, sector=self._sector)
        for entry in self.log[:operation]:
            left.flush() if entry is None else left.write(*entry)
        return left

    def both_before(self, operation: int | None) -> tuple["SimulatedDisk", "SimulatedDisk"]:
        """Return this disk and the one beside it as a power cut before an operation of this one leaves them."""
        assert self._beside
        at = self.operations if operation is None else operation
        beside = self.operations_beside[at] if at < self.operations else None
        return self.before(operation), self._beside.before(beside)

    def _draw(self) -> None:
        if self._cut is not None and self.operations >= self._cut:
            raise PowerCut
        self.operations += 1
        if self._beside:
            self.operations_beside.append(self._beside.operations)

    def _check(self, offset: int, length: int) -> None:
        assert offset % self._sector == 0
        assert length % self._sector == 0
        assert 0 <= offset <= offset + length <= len(self._platter)
        if self._bad and any(at in self._bad for at in range(offset, offset + length, self._sector)):
            raise OSError(errno.EIO, "Input/output error")


def until_cut(events: Iterable[object]) -> None:
    """Consume the events of a run, to its end or until the power is cut."""
    with suppress(PowerCut):
        for _ in events:
            pass


def survivors(platter: bytes | bytearray, cache: dict[int, bytes], luck: random.Random, *, torn: bool) -> bytes:
    """Return the platter with each unflushed sector written, not written, or torn."""
    found = bytearray(platter)
    chance = luck.choice((0.0, 0.1, 0.5, 0.9, 1.0))
    tearing = luck.choice((0.0, 0.1, 0.9)) if torn else 0.0
    for at, sector in cache.items():
        if luck.random() < chance:
            found[at : at + len(sector)] = sector
        elif luck.random() < tearing:
            half = luck.randrange(1, len(sector))
            found[at : at + half] = sector[:half]
    return bytes(found)


Log = list[tuple[int, bytes] | None]


def every_crash(start: bytes, log: Log, luck: random.Random, *, most: int, torn: bool = True) -> Iterator[bytes]:
    """Yield every platter that a cut in any epoch of a run can leave; of an epoch with more than `most`, so many drawn
    ones.

    A sector holds its old content, or what any write of the epoch put there, or the beginning of a write before the
    rest of what was there: `torn`, one such content for each write.
    """
    platter = bytearray(start)
    for epoch in epochs(log):
        contents = possible_contents(bytes(platter), epoch, luck, torn=torn)
        yield from _combinations(bytes(platter), contents, luck, most)
        for offset, raw in epoch:
            platter[offset : offset + len(raw)] = raw
    yield bytes(platter)


def epochs(log: Log) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the writes between two flushes."""
    epoch: list[tuple[int, bytes]] = []
    for entry in log:
        if entry is not None:
            epoch.append(entry)
        elif epoch:
            yield epoch
            epoch = []
    if epoch:
        yield epoch


def possible_contents(
    platter: bytes, epoch: list[tuple[int, bytes]], luck: random.Random, *, torn: bool
) -> dict[int, list[bytes]]:
    """Return what each sector that the epoch changes can hold after a cut, without a cut first."""
    found: dict[int, list[bytes]] = {}
    for offset, raw in epoch:
        for at in range(0, len(raw), SECTOR):
            contents = found.setdefault(offset + at, [platter[offset + at : offset + at + SECTOR]])
            new = raw[at : at + SECTOR]
            if torn and new != contents[-1]:
                half = luck.randrange(1, SECTOR)
                contents.append(new[:half] + contents[-1][half:])
            contents.append(new)
    unlike = {at: list(dict.fromkeys(contents)) for at, contents in found.items()}
    return {at: contents for at, contents in unlike.items() if len(contents) > 1}


def _combinations(platter: bytes, contents: dict[int, list[bytes]], luck: random.Random, most: int) -> Iterator[bytes]:
    if math.prod(len(each) for each in contents.values()) <= most:
        chosen: Iterable[tuple[bytes, ...]] = itertools.product(*contents.values())
    else:
        chosen = (tuple(luck.choice(each) for each in contents.values()) for _ in range(most))
    for combination in chosen:
        left = bytearray(platter)
        for at, sector in zip(contents, combination, strict=True):
            left[at : at + SECTOR] = sector
        yield bytes(left)


def crashes(
    start: bytes, log: list[tuple[int, bytes] | None], luck: random.Random, *, torn: bool = True, sector: int = SECTOR
) -> Iterable[bytes]:
    """Yield the platters that a cut before each operation of a run would have left."""
    platter, cache = bytearray(start), dict[int, bytes]()
    for entry in log:
        yield survivors(platter, cache, luck, torn=torn)
        if entry is None:
            for at, found in cache.items():
                platter[at : at + len(found)] = found
            cache = {}
        else:
            offset, raw = entry
            for at in range(0, len(raw), sector):
                cache[offset + at] = raw[at : at + sector]
    yield survivors(platter, cache, luck, torn=torn)
