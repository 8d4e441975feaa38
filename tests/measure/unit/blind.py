"""Simulated drives whose author knew neither the rules of the inference nor the other kinds."""

from aligntool.units import KIB, MIB, Extent
from tests.measure.unit.hostile import Hostile, every_kind


class PrefetchesForward(Hostile):
    """Data up to 1 MiB behind the last request were read ahead."""

    last = 0

    def cost(self, extent: Extent, *, write: bool) -> float:
        ahead, self.last = extent.start - self.last, extent.end
        return 0.0 if 0 <= ahead < MIB else 2 * self.step


class EveryFewIsSlow(Hostile):
    """Every n-th request is slow."""

    def setup(self) -> None:
        self.every = self.rng.choice((2, 3, 4, 6, 12, 16, 32, 64))

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 0.0 if self.count % self.every else 3 * self.step


class CoalescesWrites(Hostile):
    """A write over one of the last 32 costs nothing extra."""

    def setup(self) -> None:
        self.recent: list[Extent] = []

    def cost(self, extent: Extent, *, write: bool) -> float:
        hit = any(one.start < extent.end and extent.start < one.end for one in self.recent)
        self.recent = [*self.recent[-31:], extent]
        return 0.0 if hit else 2 * self.step


class FillsPagesInItsLog(Hostile):
    """A page is programmed whenever one is full, wherever the bytes belong."""

    def setup(self) -> None:
        self.page, self.bytes = self.pick(16, 64), 0

    def cost(self, extent: Extent, *, write: bool) -> float:
        before, self.bytes = self.bytes // self.page, self.bytes + extent.length
        return self.step * (self.bytes // self.page - before) if write else 0.0


class SlowSecondHalves(Hostile):
    """The bytes in the second half of each 64 KiB take longer; crossing a boundary costs nothing."""

    def cost(self, extent: Extent, *, write: bool) -> float:
        slow = sum(start % (64 * KIB) >= 32 * KIB for start in range(extent.start, extent.end, 512))
        return 3 * self.step * slow * 512 / extent.length


class OneSizeIsFast(Hostile):
    """Requests of one size are fast, wherever they are."""

    def setup(self) -> None:
        self.fast = self.pick(4, 8, 16, 32, 64)

    def cost(self, extent: Extent, *, write: bool) -> float:
        return 0.0 if extent.length == self.fast else 2 * self.step


class PowersOfTwoAreFast(Hostile):
    def cost(self, extent: Extent, *, write: bool) -> float:
        return 2 * self.step if extent.length & (extent.length - 1) else 0.0


class BoundariesAnywhere(Hostile):
    """Extents of a random length, in whole sectors."""

    def cost(self, extent: Extent, *, write: bool) -> float:
        places = range(extent.start // 512 + 1, (extent.end - 1) // 512 + 1)
        return 2 * self.step * sum((place * 2654435761 + self.seed * 40503 >> 9) % 50 == 0 for place in places)


class ShiftedOddPages(Hostile):
    """Pages that are not a power of two: 20, 33, 63.5 and 100 KiB; or a power of two, 512 bytes or 4 KiB later."""

    def setup(self) -> None:
        pages = ((20 * KIB, 0), (33 * KIB, 0), (127 * 512, 0), (100 * KIB, 0), (64 * KIB, 512), (16 * KIB, 4 * KIB))
        self.page, self.phase = self.rng.choice(pages)

    def cost(self, extent: Extent, *, write: bool) -> float:
        last = (extent.end - 1 - self.phase) // self.page
        return 2 * self.step * (last - (extent.start - self.phase) // self.page)


class DirectMappedByStart(Hostile):
    """64 lines of a cache, selected by some bits of the first byte."""

    def setup(self) -> None:
        self.lines: dict[int, int] = {}

    def cost(self, extent: Extent, *, write: bool) -> float:
        line, tag = extent.start // 4096 % 64, extent.start // (256 * KIB)
        hit, self.lines[line] = self.lines.get(line) == tag, tag
        return 0.0 if hit else 2 * self.step


KINDS: dict[str, type[Hostile]] = {
    one.__name__: one for one in dict.fromkeys(every_kind(Hostile)) if one.__module__ == __name__
}
