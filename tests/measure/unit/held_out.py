"""Simulated drives that were written after the rules of the inference and changed none of them.

Each imitates a unit in another way than those of `tests.measure.unit.hostile`, or has a unit that is hard to see.
"""

import math
import random
from collections.abc import Iterator

from aligntool.units import KIB, MIB, Extent
from tests.measure.unit.hostile import Hostile, Paged, every_kind, parts, touched


def drawn(seed: int, place: int) -> float:
    """Return a number from 0 to 1, always the same for the same place."""
    return random.Random(seed * 1_000_003 + place * 7919).random()


class SeekingFar(Hostile):
    """The distance from the last request matters."""

    last = 0

    def cost(self, extent: Extent, *, write: bool) -> float:
        far, self.last = abs(extent.start - self.last), extent.end
        return 3 * self.step * math.sqrt(far / self.size)


class SeekingFarOverPages(Paged):
    last = 0

    def cost(self, extent: Extent, *, write: bool) -> float:
        far, self.last = abs(extent.start - self.last), extent.end
        return super().cost(extent, write=write) + 3 * self.step * math.sqrt(far / self.size)


class PowerCapped(Hostile):
    """Twice as slow for a part of each period."""

    def setup(self) -> None:
        self.stretch, self.share = self.rng.choice((1e4, 1e5, 1e6)), self.rng.uniform(0.1, 0.9)

    def cost(self, extent: Extent, *, write: bool) -> float:
        return self.base if self.now % self.stretch < self.share * self.stretch else 0.0


class HashedDies(Hostile):
    """Dies selected by a hash of the address; one is slow, all work in parallel."""

    def setup(self) -> None:
        self.stripe, self.dies = self.pick(4, 16, 64, 256), self.rng.choice((2, 4, 8))

    def die(self, index: int) -> int:
        return (index ^ index >> 3 ^ index >> 7 ^ index >> 11) % self.dies

    def cost(self, extent: Extent, *, write: bool) -> float:
        first, last = extent.start // self.stripe, (extent.end - 1) // self.stripe
        return 2 * self.step if 0 in (self.die(first), self.die(last)) else 0.0


class SlowPlane(Hostile):
    """Every second piece is slow, for all requests."""

    def setup(self) -> None:
        self.piece = self.pick(4, 8, 32, 128, 1024)

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 2 * self.step * max(extent.start // self.piece % 2, (extent.end - 1) // self.piece % 2)


class Appending(Hostile):
    """A log: a page is programmed whenever this many bytes have been written, wherever they belong."""

    def setup(self) -> None:
        self.page, self.pending = self.pick(4, 16, 64), 0

    def cost(self, extent: Extent, *, write: bool) -> float:
        if not write:
            return 0.0
        self.pending += extent.length
        full, self.pending = divmod(self.pending, self.page)
        return 2 * self.step * min(full, 2)


class SmallInARowSlow(Hostile):
    """After a few small writes the next small ones are slow."""

    def setup(self) -> None:
        self.least, self.row = self.pick(4, 8, 16, 32, 64), 0

    def cost(self, extent: Extent, *, write: bool) -> float:
        small = write and extent.length < self.least
        self.row = self.row + 1 if small else 0
        return 3 * self.step if self.row > 2 else 0.0


class LargeWritesSlow(Hostile):
    """From a certain size, writes take another, slower path."""

    def setup(self) -> None:
        self.least = self.pick(2, 4, 16, 64, 128)

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 3 * self.step if write and extent.length >= self.least else 0.0


class OddLengthsSlow(Hostile):
    """A length that is not a multiple of a size is copied first."""

    def setup(self) -> None:
        self.grid = self.pick(1, 2, 4, 8, 16, 32, 64)

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 3 * self.step if extent.length % self.grid else 0.0


class SmallUnlessAtTheFront(Hostile):
    """Writes below a size are slow, except at the front of a piece of 1 MiB."""

    def setup(self) -> None:
        self.least = self.pick(4, 8, 16, 32, 64)

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 3 * self.step if write and extent.length < self.least and extent.start % MIB else 0.0


class ThresholdByChance(Hostile):
    """Below a size most writes are slow, from it on some are."""

    def setup(self) -> None:
        self.least, self.often = self.pick(4, 8, 16, 32, 64), self.rng.uniform(0.6, 1.0)

    def cost(self, extent: Extent, *, write: bool) -> float:
        share = self.often if extent.length < self.least else 0.2
        return 3 * self.step if write and self.rng.random() < share else 0.0


class ThresholdAndSlowPlane(SlowPlane):
    """Both at once: small writes are slow, and so is every second piece."""

    def setup(self) -> None:
        super().setup()
        self.least = self.pick(4, 8, 16, 32, 64)

    def cost(self, extent: Extent, *, write: bool) -> float:
        slow = 3 * self.step if write and extent.length < self.least else 0.0
        return slow + super().cost(extent, write=write)


class LongDelayOfSmall(Hostile):
    """What is smaller than a packet waits for a timer, forty times as long."""

    def setup(self) -> None:
        self.least = self.rng.choice((1448, 1500, 4096, 8948, 65536))

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 40 * self.base if write and extent.length < self.least else 0.0


class CrossingIsFaster(Hostile):
    """Two planes read in parallel: a request across both is the faster one."""

    def setup(self) -> None:
        self.page = self.pick(4, 16, 64)

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 0.0 if touched(extent, self.page) > 1 else 0.5 * self.step


class PlanePairs(Hostile):
    """Pages in pairs that are read at once: the unit is twice the page."""

    def setup(self) -> None:
        self.pair = 2 * self.pick(4, 8, 16)
        self.boundaries = frozenset({self.pair})

    def cost(self, extent: Extent, *, write: bool) -> float:
        return self.step * (touched(extent, self.pair) - 1)


class KindsOfPages(Hostile):
    """Low, middle and high pages of a cell take different times; two are read in parallel."""

    def setup(self) -> None:
        self.page = self.pick(4, 8, 16, 32)

    def cost(self, extent: Extent, *, write: bool) -> float:
        first, last = extent.start // self.page, (extent.end - 1) // self.page
        return self.step * max(first % 3, last % 3)


class KindsOfPagesInTurn(KindsOfPages):
    """The same, read one after the other: each page that is touched adds its cost."""

    def setup(self) -> None:
        super().setup()
        self.boundaries = frozenset({self.page})

    def cost(self, extent: Extent, *, write: bool) -> float:
        first, last = extent.start // self.page, (extent.end - 1) // self.page
        return 0.3 * self.step * (first % 3) + 2 * self.step * (last - first)


class SlowLastPage(Hostile):
    """The last page of each block is slow."""

    def setup(self) -> None:
        self.block = self.pick(64, 256, 1024, 4096)

    def cost(self, extent: Extent, *, write: bool) -> float:
        end = self.block - 4 * KIB
        return 2 * self.step if max(extent.start % self.block, (extent.end - 1) % self.block) >= end else 0.0


class SlowFirstPage(SlowLastPage):
    def cost(self, extent: Extent, *, write: bool) -> float:
        low = min(extent.start % self.block, (extent.end - 1) % self.block)
        return 2 * self.step if low < 4 * KIB else 0.0


class Remapped(Hostile):
    """Pieces that were remapped elsewhere."""

    def setup(self) -> None:
        self.piece, self.share = self.pick(4, 64, 512), self.rng.choice((0.02, 0.2, 0.6))

    def cost(self, extent: Extent, *, write: bool) -> float:
        moved = drawn(self.seed, extent.start // self.piece) < self.share
        return 5 * self.step if moved else 0.0


class Gradient(Hostile):
    """The higher the address, the slower."""

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 3 * self.base * extent.start / self.size


class SpeedOfEachMebibyte(Hostile):
    """Every mebibyte has its own speed; a request takes the mean of what it touches."""

    def cost(self, extent: Extent, *, write: bool) -> float:
        return self.step * sum(drawn(self.seed, at // MIB) for at in (extent.start, extent.end - 1))


class CachedUnits(Paged):
    """A read-modify-write costs nothing if the unit was touched before."""

    def setup(self) -> None:
        super().setup()
        self.have: set[int] = set()

    def cost(self, extent: Extent, *, write: bool) -> float:
        ends = {extent.start // self.page, (extent.end - 1) // self.page}
        missed = ends - self.have
        self.have |= ends
        return 2 * self.step * len(missed) if write and extent.length % self.page else 0.0


class Shingled(Hostile):
    """A media cache; when it is full, bands are rewritten."""

    def setup(self) -> None:
        self.held, self.most = 0, self.rng.choice((50, 500, 2000))

    def cost(self, extent: Extent, *, write: bool) -> float:
        self.held += write
        if self.held < self.most:
            return 0.0
        self.held = self.held - 1 if self.rng.random() < 0.9 else 0
        return 30 * self.base


class MirrorInTurn(Hostile):
    """Two drives, one slower, that answer alternately; or the one that owns the piece."""

    def setup(self) -> None:
        self.piece = self.pick(64, 128, 1024)
        self.by_place = self.rng.random() < 0.5

    def cost(self, extent: Extent, *, write: bool) -> float:
        which = extent.start // self.piece if self.by_place else self.count
        return 2 * self.step * (which % 2)


class ThreeDrivesOneSlow(Hostile):
    """Three drives in a stripe, one slow; in parallel."""

    def setup(self) -> None:
        self.chunk = self.pick(4, 16, 64, 256)

    def cost(self, extent: Extent, *, write: bool) -> float:
        ends = (extent.start // self.chunk % 3, (extent.end - 1) // self.chunk % 3)
        return 2 * self.step if 0 in ends else 0.0


class Thin(Hostile):
    """Chunks are allocated by the first write to them."""

    def setup(self) -> None:
        self.chunk = self.pick(64, 512, 1024)
        self.boundaries = frozenset({self.chunk})
        self.have: set[int] = set()

    def cost(self, extent: Extent, *, write: bool) -> float:
        new = {extent.start // self.chunk, (extent.end - 1) // self.chunk} - self.have
        self.have |= new if write else set()
        return 4 * self.step * len(new) if write else 0.0


class TurningAround(Hostile):
    """A write after a read waits, and a read after a write."""

    before = False

    def cost(self, extent: Extent, *, write: bool) -> float:
        turned, self.before = self.before is not write, write
        return 2 * self.step if turned else 0.0


class TurningAroundOverPages(Paged):
    before = False

    def cost(self, extent: Extent, *, write: bool) -> float:
        turned, self.before = self.before is not write, write
        return super().cost(extent, write=write) + (2 * self.step if turned else 0.0)


class SecondIsFaster(Paged):
    """Two requests close in time: the second of each pair finds the drive awake."""

    def cost(self, extent: Extent, *, write: bool) -> float:
        return super().cost(extent, write=write) + 4 * self.step * (self.count % 2)


class SecondIsFasterWithoutPages(Hostile):
    def cost(self, extent: Extent, *, write: bool) -> float:
        return 4 * self.step * (self.count % 2)


class LogNormal(Hostile):
    def cost(self, extent: Extent, *, write: bool) -> float:
        return self.base * self.rng.lognormvariate(0, 1)


class LogNormalOverPages(Paged):
    def cost(self, extent: Extent, *, write: bool) -> float:
        return super().cost(extent, write=write) + 0.5 * self.base * self.rng.lognormvariate(0, 1)


class Wandering(Hostile):
    """Noise that persists for a while."""

    level = 0.0

    def cost(self, extent: Extent, *, write: bool) -> float:
        self.level = 0.98 * self.level + self.rng.gauss(0, 0.1 * self.base)
        return abs(self.level)


class WanderingOverPages(Paged):
    level = 0.0

    def cost(self, extent: Extent, *, write: bool) -> float:
        self.level = 0.98 * self.level + self.rng.gauss(0, 0.1 * self.base)
        return super().cost(extent, write=write) + abs(self.level)


class BusyQueue(Hostile):
    """One of several queues, chosen for each request, is busy."""

    def setup(self) -> None:
        self.queues = self.rng.choice((2, 4, 8))

    def cost(self, extent: Extent, *, write: bool) -> float:
        return self.rng.expovariate(1 / (3 * self.base)) if self.rng.randrange(self.queues) == 0 else 0.0


class Associative(Hostile):
    """A cache of few sets: addresses that are a power of two apart evict each other. Lines are filled in parallel."""

    def setup(self) -> None:
        self.line, self.sets = self.pick(4, 64, 256), self.rng.choice((16, 256, 2048))
        self.have: dict[int, list[int]] = {}

    def cost(self, extent: Extent, *, write: bool) -> float:
        missed = False
        for line in range(extent.start // self.line, (extent.end - 1) // self.line + 1):
            kept = self.have.setdefault(line % self.sets, [])
            missed |= line not in kept
            self.have[line % self.sets] = [line, *(one for one in kept if one != line)][:4]
        return 2 * self.step if missed else 0.0


class BankConflicts(Hostile):
    """A bank that the last request used too is not ready yet."""

    def setup(self) -> None:
        self.bank, self.banks = self.pick(4, 8, 16, 64), self.rng.choice((4, 8, 16))
        self.before: set[int] = set()

    def cost(self, extent: Extent, *, write: bool) -> float:
        used = {at // self.bank % self.banks for at in (extent.start, extent.end - 1)}
        slow, self.before = bool(used & self.before), used
        return 2 * self.step if slow else 0.0


class SomeBoundariesCost(Hostile):
    """Half, two thirds or four fifths of the boundaries of a size cost time, the others do not."""

    noise = (0.05, 0.15, 0.3)

    def setup(self) -> None:
        self.piece, self.share = self.pick(4, 16, 64), self.rng.choice((0.5, 0.67, 0.8))

    def cost(self, extent: Extent, *, write: bool) -> float:
        last = (extent.end - 1) // self.piece
        crossed = touched(extent, self.piece) > 1
        return self.step if crossed and drawn(self.seed, last) < self.share else 0.0


class OneDriveBehindAnother(Hostile):
    """Two drives, concatenated; the second one begins off its page."""

    def setup(self) -> None:
        self.page, self.phase = self.pick(4, 16, 64), 512 * self.rng.choice((1, 3, 7))

    def cost(self, extent: Extent, *, write: bool) -> float:
        phase = self.phase if extent.start >= self.size // 2 else 0
        return self.step * (touched(extent, self.page, phase) - 1)


class UnitAmongDecoys(Paged):
    """A unit, a size threshold, a slow region and bursts."""

    def setup(self) -> None:
        super().setup()
        self.least = self.pick(32, 64, 128)

    def cost(self, extent: Extent, *, write: bool) -> float:
        time = super().cost(extent, write=write)
        time += 2 * self.step if write and extent.length < self.least else 0.0
        time += self.step if extent.start > self.size // 2 else 0.0
        return time + (10 * self.base if self.count % 977 < 20 else 0.0)


class WeakPage(Hostile):
    """Crossing costs one percent."""

    def setup(self) -> None:
        self.page = self.pick(4, 16, 64)
        self.boundaries = frozenset({self.page})

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 0.01 * self.base * (touched(extent, self.page) - 1)


class SlcThenUnit(Paged):
    """Writes go to a fast cache without units until it is full."""

    def setup(self) -> None:
        super().setup()
        self.most, self.written = self.rng.choice((2, 16, 64)) * MIB, 0

    def cost(self, extent: Extent, *, write: bool) -> float:
        self.written += extent.length if write else 0
        if write and self.written < self.most:
            return 0.0
        return super().cost(extent, write=write)


class FullLinesOnly(Hostile):
    """A true unit of writes that reads do not show: partial coverage costs a read, once."""

    def setup(self) -> None:
        self.unit = self.pick(4, 8, 16, 32)
        self.boundaries = frozenset({self.unit})

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 2 * self.step * parts(extent, self.unit) if write else 0.0


def _kinds() -> Iterator[type[Hostile]]:
    return (one for one in dict.fromkeys(every_kind(Hostile)) if one.__module__ == __name__)


KINDS: dict[str, type[Hostile]] = {one.__name__: one for one in _kinds()}
