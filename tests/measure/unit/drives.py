"""Simulated drives with known page, unit and cache. Time is simulated too: a drive returns how long a request takes.

They model what is published about such drives, not one product: a request takes its base time, one more page read for
each page that it touches beyond the first, for a write a read-modify-write of each unit that it covers in part; in
addition jitter, a heavy tail (garbage collection), slow drift (heat), wake-up times, and caches with occasional hits.
"""

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from aligntool.measure.unit_design import Kind, Pair, Round, Sample
from aligntool.units import GIB, KIB, MIB, Extent


@dataclass(frozen=True)
class Noise:
    """Shares are fractions of the base time."""

    jitter: float = 0.02  # of most requests: normal distribution
    tail: float = 0.005  # share of late requests
    late: float = 20.0  # their delay in base times, on average (exponential)
    drift: float = 0.05  # slow, up and down
    waking: float = 0.0002  # share of requests that wake up the drive and take 2 ms longer


QUIET = Noise()
USUAL = Noise(jitter=0.08, tail=0.02, drift=0.15, waking=0.001)
LOUD = Noise(jitter=0.25, tail=0.06, late=50, drift=0.4, waking=0.005)
NOISES = {"quiet": QUIET, "usual": USUAL, "loud": LOUD}


@dataclass
class Drive:
    """Sizes in bytes, times in µs. `boundaries`: what may be reported; None: its page, unit and allocation unit, if
    they are powers of two and begin at byte 0.
    """

    seed: int = 0
    sector: int = 512
    size: int = 8 * GIB
    page: int = 0  # 0: reads show no page
    unit: int = 0  # of writes; 0: writes show no unit
    allocation: int = 0
    phase: int = 0
    base_us: float = 80.0
    page_us: float = 40.0  # per additional page
    allocation_us: float = 150.0
    write_us: float = 400.0
    transfer_us: float = 0.3  # per KiB
    read_hits: float = 0.0  # share of reads that a cache answers in a quarter of the time
    map_misses: float = 0.0  # share of requests that wait for the mapping table (DRAM-less), for another base time
    flushes: bool = True  # a durable write is durable; otherwise a cache takes it
    rotation_us: float = 0.0  # a rotating disk: each request waits up to this long
    second_region: "Drive | None" = None  # behaves differently in the second half
    noise: Noise = QUIET
    boundaries: frozenset[int] | None = None
    writes: bool = False  # the file or the disk may be overwritten
    clock: int = 0
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        if self.boundaries is None:
            found = [self.page, self.allocation, self.unit if self.writes and self.flushes else 0]
            self.boundaries = frozenset(size for size in found if size and not size & (size - 1) and not self.phase)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return (Kind.READ, Kind.WRITE, Kind.PART) if self.writes else (Kind.READ,)

    def samples(self, rounds: Iterable[Round]) -> Iterator[Sample]:
        for one in rounds:
            for pair in one:
                yield self._sample(pair)

    def _sample(self, pair: Pair) -> Sample:
        write = pair.kind is not Kind.READ
        order = (pair.slower, pair.faster) if pair.slower_first else (pair.faster, pair.slower)
        first, second = (self.takes_us(extent, write=write) for extent in order)
        slower, faster = (first, second) if pair.slower_first else (second, first)
        return Sample(pair.kind, pair.level, pair.quarter, slower, faster)

    def takes_us(self, extent: Extent, *, write: bool) -> float:
        if self.second_region is not None and extent.start >= self.size // 2:
            return self.second_region.takes_us(extent, write=write)
        self.clock += 1
        base = self.write_us if write else self.base_us
        time = base + self.transfer_us * extent.length / KIB
        time += self._written_us(extent) if write else self._read_us(extent)
        if self.map_misses and self.rng.random() < self.map_misses:
            time += self.base_us
        if self.rotation_us:
            time += self.rng.uniform(0, self.rotation_us)
        return self._noisy(time, base)

    def _read_us(self, extent: Extent) -> float:
        if self.read_hits and self.rng.random() < self.read_hits:
            return -0.75 * self.base_us
        return self.page_us * (self._touched(extent, self.page) - 1) + self.allocation_us * (
            self._touched(extent, self.allocation) - 1
        )

    def _written_us(self, extent: Extent) -> float:
        if not self.flushes or not self.unit:
            return 0.0
        first = (extent.start - self.phase) // self.unit
        last = (extent.end - 1 - self.phase) // self.unit
        time = 0.0
        for index in range(first, last + 1):
            low = index * self.unit + self.phase
            whole = extent.start <= low and low + self.unit <= extent.end
            time += self.page_us if whole else self.page_us + self.base_us + self.rotation_us
        return time

    def _touched(self, extent: Extent, size: int) -> int:
        return (extent.end - 1 - self.phase) // size - (extent.start - self.phase) // size + 1 if size else 1

    def _noisy(self, time: float, base: float) -> float:
        noise = self.noise
        time *= 1 + noise.drift * math.sin(self.clock / 3000)
        time += abs(self.rng.gauss(0, noise.jitter)) * base + self.rng.uniform(0, 1.5)
        if self.rng.random() < noise.tail:
            time += self.rng.expovariate(1 / (noise.late * base))
        if self.rng.random() < noise.waking:
            time += 2000
        return time


def population(each: int = 1) -> Iterator[tuple[str, Drive]]:
    """Yield every kind of drive of the study, `each` times with other seeds, with the name of its family."""
    seed = 0
    for family, drive in _kinds_of_drives():
        for level, noise in NOISES.items():
            for _ in range(each):
                seed += 1
                second = drive.second_region
                if second is not None:
                    second = replace(second, seed=seed + 500_000, noise=noise)
                yield f"{family}|{level}", replace(drive, seed=seed, noise=noise, second_region=second)


def _kinds_of_drives() -> Iterator[tuple[str, Drive]]:
    for page in (4, 8, 16, 32, 64):
        size = page * KIB
        yield "flash, page of 4 to 64 KiB, read only", Drive(page=size)
        yield "the same, pages read side by side: a third of the penalty", Drive(page=size, page_us=12)
        yield "the same, a third of the reads from a cache", Drive(page=size, read_hits=0.33)
        yield "flash without DRAM, a tenth of the map not at hand", Drive(page=size, map_misses=0.1)
        yield "flash without DRAM, half of the map not at hand", Drive(page=size, map_misses=0.5)
        yield "flash, unit of 4 to 64 KiB, reads and writes", Drive(page=size, unit=size, writes=True)
        yield ("the same, a write cache that ignores flushes", Drive(page=size, unit=size, writes=True, flushes=False))
        yield "unit of 4 to 64 KiB, only writes show it", Drive(unit=size, writes=True)
    yield "page of 16 KiB, sectors of 4 KiB (4Kn)", Drive(page=16 * KIB, sector=4096)
    yield "mapped in 4 KiB, page of 16 KiB", Drive(page=16 * KIB, unit=4 * KIB, writes=True)
    for page in (8, 16):
        card = Drive(page=page * KIB, allocation=4 * MIB, base_us=600, page_us=200, allocation_us=900)
        yield "SD card, allocation unit of 4 MiB", card
        yield "SD card, allocation unit of 4 MiB, small", replace(card, size=512 * MIB)
    disk = Drive(base_us=4000, rotation_us=8300, write_us=4000, unit=4096)
    yield ("rotating disk, 4 KiB sectors, reads and writes", replace(disk, writes=True, boundaries=frozenset({4096})))
    yield "no pattern: rotating disk, read only", disk
    yield "no pattern: memory, virtual disk", Drive(base_us=5, transfer_us=0.05)
    yield "no pattern: flash, unwritten or cached", Drive(writes=True)
    yield "no pattern: everything in a cache", Drive(page=16 * KIB, read_hits=0.9, boundaries=frozenset())
    for odd in (12, 24, 48, 96):
        yield "no power of two: unit of 12 to 96 KiB", Drive(page=odd * KIB, unit=odd * KIB, writes=True)
    yield "4 KiB shifted by 3584 bytes", Drive(page=4096, unit=4096, phase=3584, writes=True)
    yield "16 KiB shifted by 31.5 KiB", Drive(page=16 * KIB, phase=63 * 512)
    for name, other in (("a page in one half of the drive only", 0), ("pages of 16 and 32 KiB, one in each half", 32)):
        yield name, Drive(page=16 * KIB, second_region=Drive(page=other * KIB), boundaries=frozenset())
