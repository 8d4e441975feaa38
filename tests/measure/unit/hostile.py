"""Simulated drives made to mislead the probe: their behaviour looks like a unit, and only some have one.

A drive is a class: `cost` is the extra time of a request, `boundaries` are the sizes whose multiples cost time to
cross. `KINDS` was used while the rules were made; `tests.measure.unit.held_out` has those that were not.
"""

import math
import random
from collections.abc import Iterable, Iterator
from typing import ClassVar

from aligntool.measure.unit_design import Kind, Pair, Round, Sample
from aligntool.units import GIB, KIB, Extent


class Hostile:
    """A drive without any boundary; every parameter is drawn from the seed. Times in µs, sizes in bytes."""

    sector = 512
    size = 8 * GIB
    only_read = False
    noise: ClassVar[tuple[float, ...]] = (0.02, 0.08, 0.15)  # jitter, one of which is drawn

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now = 0.0
        self.count = 0
        self.boundaries: frozenset[int] = frozenset()
        self.base = self.rng.choice((20.0, 80.0, 250.0))
        self.write_base = self.base * self.rng.choice((0.5, 1.0, 4.0))
        self.step = self.base * self.rng.choice((0.3, 0.6, 1.5))  # the extra time for crossing, or for being slow
        self.jitter = self.rng.choice(self.noise)
        self.late = self.rng.choice((0.0, 0.005, 0.03))
        self.kib = self.base * self.rng.choice((0.001, 0.004))  # per KiB transferred
        self.setup()

    def setup(self) -> None:
        """Draw the parameters of this kind."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return (Kind.READ,) if self.only_read else tuple(Kind)

    def cost(self, extent: Extent, *, write: bool) -> float:
        """Return the µs beyond the base time."""
        return 0.0

    def takes_us(self, extent: Extent, *, write: bool) -> float:
        self.count += 1
        base = self.write_base if write else self.base
        time = base + self.kib * extent.length / KIB + self.cost(extent, write=write)
        time += abs(self.rng.gauss(0, self.jitter)) * base
        if self.rng.random() < self.late:
            time += self.rng.expovariate(1 / (20 * base))
        time = self.seen(max(time, 1.0))
        self.now += time + 3
        return time

    def seen(self, time: float) -> float:
        """Return the time that the clock shows."""
        return time

    def samples(self, rounds: Iterable[Round]) -> Iterator[Sample]:
        return (timed(self, pair) for one in rounds for pair in one)

    def pick(self, *sizes: int) -> int:
        return self.rng.choice(sizes) * KIB


def timed(drive: Hostile, pair: Pair) -> Sample:
    write = pair.kind is not Kind.READ
    order = (pair.slower, pair.faster) if pair.slower_first else (pair.faster, pair.slower)
    first, second = (drive.takes_us(extent, write=write) for extent in order)
    slower, faster = (first, second) if pair.slower_first else (second, first)
    return Sample(pair.kind, pair.level, pair.quarter, slower, faster)


def touched(extent: Extent, size: int, phase: int = 0) -> int:
    return (extent.end - 1 - phase) // size - (extent.start - phase) // size + 1


def parts(extent: Extent, size: int) -> int:
    """Return how many units of this size it covers in part."""
    first, last = extent.start // size, (extent.end - 1) // size
    return sum(not (extent.start <= one * size and (one + 1) * size <= extent.end) for one in {first, last})


class Paged(Hostile):
    """Each page beyond the first costs another read; writes cost a read-modify-write for each part."""

    def setup(self) -> None:
        self.page = self.pick(4, 8, 16, 32, 64)
        self.boundaries = frozenset({self.page})

    def cost(self, extent: Extent, *, write: bool) -> float:
        if write:
            return 2 * self.step * parts(extent, self.page)
        return self.step * (touched(extent, self.page) - 1)


class PagedOnlyRead(Paged):
    only_read = True


class PagedLoud(Paged):
    noise = (0.25, 0.4)


class SmallWritesSlow(Hostile):
    def setup(self) -> None:
        self.least = self.pick(2, 4, 8, 16, 32, 64, 128)

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 3 * self.step if write and extent.length < self.least else 0.0


class SmallRequestsSlow(SmallWritesSlow):
    def cost(self, extent: Extent, *, write: bool) -> float:
        return 3 * self.step if extent.length < self.least else 0.0


class SmallWritesSlowOverAPage(Paged):
    """A threshold, and a page that reads show."""

    def setup(self) -> None:
        super().setup()
        self.least = self.pick(2, 4, 8, 16, 32, 64, 128)

    def cost(self, extent: Extent, *, write: bool) -> float:
        if write:
            return 3 * self.step if extent.length < self.least else 0.0
        return super().cost(extent, write=False)


class SmallWritesSlowOverAUnit(Paged):
    def setup(self) -> None:
        super().setup()
        self.least = self.pick(2, 4, 8, 16, 32, 64, 128)

    def cost(self, extent: Extent, *, write: bool) -> float:
        slow = 3 * self.step if write and extent.length < self.least else 0.0
        return slow + super().cost(extent, write=write)


class SmallWritesSlowerAndSlower(SmallWritesSlow):
    def cost(self, extent: Extent, *, write: bool) -> float:
        missing = max(self.least - extent.length, 0) / self.least
        return 4 * self.step * missing if write else 0.0


class TwoThresholds(SmallWritesSlow):
    def setup(self) -> None:
        super().setup()
        self.more = self.least * self.rng.choice((2, 4, 8))

    def cost(self, extent: Extent, *, write: bool) -> float:
        return (2 * self.step * ((extent.length < self.least) + (extent.length < self.more))) if write else 0.0


class NaturallyAlignedFast(SmallWritesSlow):
    """Writes of at least a size are fast if they begin at a multiple of their own size."""

    def cost(self, extent: Extent, *, write: bool) -> float:
        fast = extent.length >= self.least and extent.start % extent.length == 0
        return 3 * self.step if write and not fast else 0.0


class LargeWritesDisturb(SmallWritesSlow):
    """A request after a write of at least a size waits for that write."""

    before = 0

    def cost(self, extent: Extent, *, write: bool) -> float:
        slow = 3 * self.step if self.before >= self.least else 0.0
        self.before = extent.length if write else 0
        return slow


class CacheWithStalls(Hostile):
    """Writes go into a cache; when it is full, it is emptied while a write waits."""

    def setup(self) -> None:
        self.most, self.held = self.pick(256, 1024, 16384), 0

    def cost(self, extent: Extent, *, write: bool) -> float:
        self.held += extent.length if write else 0
        if self.held < self.most:
            return 0.0
        self.held = 0
        return 50 * self.base


class SlcCliff(Hostile):
    """After this many bytes every write is slow."""

    def setup(self) -> None:
        self.most, self.written = self.pick(4096, 32768, 131072), 0

    def cost(self, extent: Extent, *, write: bool) -> float:
        self.written += extent.length if write else 0
        return 5 * self.write_base if write and self.written > self.most else 0.0


class Collecting(Hostile):
    """Bursts of garbage collection."""

    def setup(self) -> None:
        self.until = 0.0

    def cost(self, extent: Extent, *, write: bool) -> float:
        if self.now > self.until and self.rng.random() < 0.002:
            self.until = self.now + 200 * self.base
        return self.rng.uniform(0, 8 * self.base) if self.now < self.until else 0.0


class Throttling(Paged):
    """Heat: slower and slower, then suddenly fast again."""

    def cost(self, extent: Extent, *, write: bool) -> float:
        heat = (self.count % 3000) / 3000
        return super().cost(extent, write=write) + heat * self.base


class SlowDie(Hostile):
    """One of several dies over which the addresses are spread is slow; they work in parallel."""

    def setup(self) -> None:
        self.stripe, self.dies = self.pick(4, 8, 16, 32, 64, 128), self.rng.choice((2, 4, 8, 16))
        self.slow = self.rng.randrange(self.dies)

    def cost(self, extent: Extent, *, write: bool) -> float:
        first, last = extent.start // self.stripe, (extent.end - 1) // self.stripe
        return 2 * self.step if any(one % self.dies == self.slow for one in range(first, last + 1)) else 0.0


class SlowDieOverPages(SlowDie):
    def setup(self) -> None:
        super().setup()
        self.boundaries = frozenset({self.stripe})

    def cost(self, extent: Extent, *, write: bool) -> float:
        return super().cost(extent, write=write) + self.step * (touched(extent, self.stripe) - 1)


class UnlikeDies(SlowDie):
    """Each die has its own speed; a request waits for the slowest that it needs."""

    def setup(self) -> None:
        super().setup()
        self.speeds = [self.rng.uniform(0, 3 * self.step) for _ in range(self.dies)]

    def cost(self, extent: Extent, *, write: bool) -> float:
        first, last = extent.start // self.stripe, (extent.end - 1) // self.stripe
        return max(self.speeds[one % self.dies] for one in range(first, last + 1))


class SlowRegion(Hostile):
    """A quarter of the addresses is slow."""

    def setup(self) -> None:
        self.slow = self.rng.randrange(4)

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 2 * self.step if extent.start * 4 // self.size == self.slow else 0.0


class SlowSpots(Hostile):
    """Some pieces, anywhere, are slow."""

    def setup(self) -> None:
        self.spot = self.pick(4, 16, 64, 1024, 4096)
        self.share = self.rng.choice((0.1, 0.3, 0.5, 0.7, 0.9))

    def cost(self, extent: Extent, *, write: bool) -> float:
        spots = range(extent.start // self.spot, (extent.end - 1) // self.spot + 1)
        return (
            2 * self.step if any(random.Random(one * 7919 + self.seed).random() < self.share for one in spots) else 0.0
        )


class Striped(Hostile):
    """Parallel dies: a request over two waits for the later one, no longer. The stripe may be visible or not."""

    def setup(self) -> None:
        self.stripe = self.pick(4, 8, 16, 64, 128)
        self.boundaries = frozenset({self.stripe})

    def cost(self, extent: Extent, *, write: bool) -> float:
        return max(self.rng.uniform(0, self.step) for _ in range(touched(extent, self.stripe)))


class MixedPages(Hostile):
    """Pages of 4 and 8 KiB alternate."""

    def setup(self) -> None:
        small = self.pick(4, 8, 16)
        self.edges = (0, small)
        self.period = 3 * small

    def cost(self, extent: Extent, *, write: bool) -> float:
        crossed = sum(
            (extent.end - 1 - edge) // self.period - (extent.start - edge) // self.period for edge in self.edges
        )
        return self.step * crossed


class MixedPagesByBlock(Hostile):
    """Blocks whose pages have one size, and blocks whose pages have twice that. The larger one costs
    time everywhere.
    """

    def setup(self) -> None:
        self.page, self.block = self.pick(4, 8, 16), self.pick(256, 1024, 4096)
        self.share = self.rng.choice((0.2, 0.5, 0.8))
        self.boundaries = frozenset({2 * self.page})

    def cost(self, extent: Extent, *, write: bool) -> float:
        small = random.Random(extent.start // self.block * 31 + self.seed).random() < self.share
        return self.step * (touched(extent, self.page if small else 2 * self.page) - 1)


class OddPages(Hostile):
    def setup(self) -> None:
        self.page = self.pick(3, 5, 6, 7, 12, 20, 24, 28, 40, 48, 96)

    def cost(self, extent: Extent, *, write: bool) -> float:
        return self.step * (parts(extent, self.page) if write else touched(extent, self.page) - 1)


class SplitByPlace(Hostile):
    """A controller that splits requests at multiples of a size."""

    def setup(self) -> None:
        self.at = self.pick(64, 128, 256, 512, 1024)
        self.boundaries = frozenset({self.at})

    def cost(self, extent: Extent, *, write: bool) -> float:
        return self.step * (touched(extent, self.at) - 1)


class SplitByLength(Hostile):
    def setup(self) -> None:
        self.most = self.pick(2, 16, 64)

    def cost(self, extent: Extent, *, write: bool) -> float:
        return self.step * ((extent.length - 1) // self.most)


class ReadingAhead(Hostile):
    """Data behind the last reads are already there; touching the end of a piece fetches the next one."""

    def setup(self) -> None:
        self.piece = self.pick(16, 64, 256)
        self.have: list[int] = []

    def cost(self, extent: Extent, *, write: bool) -> float:
        piece = extent.start // self.piece
        hit = piece in self.have
        at_end = (extent.end - 1) % self.piece >= self.piece - 1024
        self.have = [*self.have[-30:], piece, piece + 1]
        return (-0.6 * self.base if hit else 0.0) + (self.step if at_end else 0.0)


class Turning(Hostile):
    """A rotating disk: the position of the head decides. Its tracks are not powers of two, or one."""

    def setup(self) -> None:
        self.base, self.write_base, self.kib = 500.0, 600.0, 5.0
        self.turn = self.rng.choice((8333.0, 11111.0))
        self.track = self.pick(512, 777, 1000, 1024)

    def cost(self, extent: Extent, *, write: bool) -> float:
        angle = (self.now + self.base) / self.turn % 1
        return ((extent.start % self.track) / self.track - angle) % 1 * self.turn


class TurningPhysical(Turning):
    """The same with physical sectors of 4 KiB: a partial sector is read, and written one rotation later."""

    def setup(self) -> None:
        super().setup()
        self.boundaries = frozenset({4 * KIB})

    def cost(self, extent: Extent, *, write: bool) -> float:
        return super().cost(extent, write=write) + (self.turn * bool(parts(extent, 4 * KIB)) if write else 0.0)


class Zoned(Turning):
    """Outer tracks are longer and faster."""

    def cost(self, extent: Extent, *, write: bool) -> float:
        zone = extent.start * 16 // self.size
        track = self.track * (20 - zone) // 20 // 512 * 512
        angle = (self.now + self.base) / self.turn % 1
        return ((extent.start % track) / track - angle) % 1 * self.turn + zone * 10


class Raid0(Hostile):
    """A chunk: a request over two chunks waits for both drives."""

    def setup(self) -> None:
        self.chunk, self.drives = self.pick(16, 64, 128, 512), self.rng.choice((2, 3, 4))
        self.slow = self.rng.choice((0.0, 1.0)) * self.step
        self.boundaries = frozenset({self.chunk})

    def cost(self, extent: Extent, *, write: bool) -> float:
        chunks = range(extent.start // self.chunk, (extent.end - 1) // self.chunk + 1)
        each = [self.rng.uniform(0, self.step) + self.slow * (one % self.drives == 0) for one in chunks]
        return max(each) + 0.4 * self.step * (len(chunks) - 1)


class Raid5(Raid0):
    """Writes of less than a stripe read first; those of a whole stripe do not."""

    def setup(self) -> None:
        super().setup()
        self.data = self.rng.choice((2, 3, 4))
        stripe = self.data * self.chunk
        self.boundaries = frozenset({self.chunk, stripe} if self.data != 3 else {self.chunk})

    def cost(self, extent: Extent, *, write: bool) -> float:
        extra = 3 * self.step * parts(extent, self.data * self.chunk) if write else 0.0
        return super().cost(extent, write=write) + extra


class Clusters(Hostile):
    """An image file on the host: clusters, some of which do not follow their neighbour."""

    def setup(self) -> None:
        self.cluster, self.share = self.pick(64, 1024), self.rng.choice((0.3, 0.6, 0.95))
        self.boundaries = frozenset({self.cluster})

    def cost(self, extent: Extent, *, write: bool) -> float:
        crossed = touched(extent, self.cluster) - 1
        torn = random.Random(extent.start // self.cluster * 13 + self.seed).random() < self.share
        return self.step * (crossed and torn)


class Shifted(Hostile):
    """A page that does not begin at byte 0."""

    def setup(self) -> None:
        self.page = self.pick(1, 2, 4, 8, 16, 64)
        self.phase = self.rng.randrange(1, self.page // 512) * 512

    def cost(self, extent: Extent, *, write: bool) -> float:
        return self.step * (touched(extent, self.page, self.phase) - 1)


class Encrypted(Paged):
    """Sectors of 4 KiB are read and decrypted as a whole."""

    def setup(self) -> None:
        super().setup()
        self.page = 4 * KIB
        self.boundaries = frozenset({self.page})

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 0.3 * self.step * touched(extent, self.page) + super().cost(extent, write=write)


class CoarseClock(Hostile):
    def setup(self) -> None:
        self.tick = self.rng.choice((0.1, 0.5, 1.0, 4.0)) * self.base

    def seen(self, time: float) -> float:
        return math.floor(time / self.tick + self.rng.random()) * self.tick


class CoarseClockOverPages(Paged):
    def setup(self) -> None:
        super().setup()
        self.tick = self.rng.choice((0.1, 0.5, 1.0, 4.0)) * self.base

    def seen(self, time: float) -> float:
        return math.floor(time / self.tick + self.rng.random()) * self.tick


class HeavyTail(Hostile):
    def setup(self) -> None:
        self.alpha = self.rng.choice((0.7, 1.2, 2.0))

    def cost(self, extent: Extent, *, write: bool) -> float:
        return self.base * 0.3 * (self.rng.paretovariate(self.alpha) - 1)


class HeavyTailOverPages(Paged):
    def setup(self) -> None:
        super().setup()
        self.alpha = self.rng.choice((0.7, 1.2, 2.0))

    def cost(self, extent: Extent, *, write: bool) -> float:
        tail = self.base * 0.3 * (self.rng.paretovariate(self.alpha) - 1)
        return super().cost(extent, write=write) + tail


class BusyHost(Paged):
    """Other programs use the processor for a while."""

    def setup(self) -> None:
        super().setup()
        self.share = self.rng.choice((0.1, 0.3, 0.6))

    def cost(self, extent: Extent, *, write: bool) -> float:
        busy = math.sin(self.count / 500) > 1 - 2 * self.share
        extra = self.rng.expovariate(1 / (2 * self.base)) if busy and self.rng.random() < 0.5 else 0.0
        return super().cost(extent, write=write) + extra


class Bimodal(Hostile):
    """Two speeds, at random."""

    def setup(self) -> None:
        self.share = self.rng.choice((0.25, 0.5, 0.75))

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 2 * self.step if self.rng.random() < self.share else 0.0


class BimodalOverPages(Paged):
    def setup(self) -> None:
        super().setup()
        self.share = self.rng.choice((0.25, 0.5, 0.75))

    def cost(self, extent: Extent, *, write: bool) -> float:
        slow = 2 * self.step if self.rng.random() < self.share else 0.0
        return super().cost(extent, write=write) + slow


class Compressing(Hostile):
    """The time of a request depends on its contents."""

    def cost(self, extent: Extent, *, write: bool) -> float:
        share = random.Random(extent.start // 4096 * 17 + self.seed).random()
        return share * 3 * self.step * max(extent.length / (64 * KIB), 0.2)


class Sleepy(Hostile):
    """A power state that takes time to leave, every so often."""

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 10 * self.base if self.count % self.every < 3 else 0.0

    def setup(self) -> None:
        self.every = self.rng.choice((7, 64, 500))


class MapMisses(Hostile):
    """The map of a piece is loaded when a request needs it; few pieces are kept. A request over two may load two."""

    def setup(self) -> None:
        self.piece = self.pick(1024, 2048, 4096)
        self.keep = self.rng.choice((8, 64, 200))
        self.at_hand: list[int] = []
        self.boundaries = frozenset({self.piece})

    def cost(self, extent: Extent, *, write: bool) -> float:
        missed = 0
        for one in range(extent.start // self.piece, (extent.end - 1) // self.piece + 1):
            missed += one not in self.at_hand
            self.at_hand = [*[each for each in self.at_hand if each != one][-self.keep :], one]
        return missed * self.step


class Periodic(Hostile):
    """Every so many requests, a run of slow ones: at the pace of the experiment."""

    def setup(self) -> None:
        self.period = self.rng.choice((2, 3, 4, 14, 16, 28, 32, 64, 448, 896))
        self.slow = self.rng.randrange(1, self.period)

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 3 * self.step if self.count % self.period < self.slow else 0.0


class PeriodicOverPages(Paged):
    def setup(self) -> None:
        super().setup()
        self.period = self.rng.choice((2, 3, 4, 14, 16, 28, 32, 64, 448, 896))
        self.slow = self.rng.randrange(1, self.period)

    def cost(self, extent: Extent, *, write: bool) -> float:
        slow = 3 * self.step if self.count % self.period < self.slow else 0.0
        return super().cost(extent, write=write) + slow


class WarmingUp(Hostile):
    def cost(self, extent: Extent, *, write: bool) -> float:
        return 5 * self.base * math.exp(-self.count / 2000)


class OddStartsSlow(Hostile):
    """A start that is not a multiple of a size costs time, whatever boundary is crossed."""

    def setup(self) -> None:
        self.grid = self.pick(1, 2, 4, 8, 16)
        # From 4 KiB on, this is what a unit does to its requests.
        self.boundaries = frozenset({self.grid} if self.grid >= 4 * KIB else ())

    def cost(self, extent: Extent, *, write: bool) -> float:
        return self.step if extent.start % self.grid else 0.0


class Cached(Hostile):
    """Lines of a cache, filled in parallel and kept for long."""

    def setup(self) -> None:
        self.line = self.pick(4, 64, 1024)
        self.have: set[int] = set()

    def cost(self, extent: Extent, *, write: bool) -> float:
        lines = set(range(extent.start // self.line, (extent.end - 1) // self.line + 1))
        missed = lines - self.have
        self.have |= lines
        return 2 * self.step if missed else 0.0


class HalvesDiffer(Hostile):
    """Pages of one size in the first half, of another in the second."""

    def setup(self) -> None:
        self.pages = self.rng.sample((4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB), 2)
        self.boundaries = frozenset({max(self.pages)})

    def cost(self, extent: Extent, *, write: bool) -> float:
        return self.step * (touched(extent, self.pages[extent.start >= self.size // 2]) - 1)


def every_kind(base: type[Hostile] = Hostile) -> Iterator[type[Hostile]]:
    for one in base.__subclasses__():
        yield one
        yield from every_kind(one)


KINDS: dict[str, type[Hostile]] = {
    one.__name__: one for one in dict.fromkeys(every_kind()) if one.__module__ == __name__
}
