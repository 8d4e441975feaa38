"""Where a partition may begin: the points that are on every grid that counts.

In: the grids that an audit has settled for a disk, and the grain that is wished for. Out: lattices, the best first.
Alone because it is arithmetic that knows neither partitions nor free space.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from math import gcd, lcm

from aligntool.audit import Grid, Severity
from aligntool.units import align_down, align_up, off_by


@dataclass(frozen=True, slots=True)
class Lattice:
    """The multiples of `size` bytes, shifted up by `phase` bytes."""

    size: int
    phase: int = 0

    def has(self, offset: int) -> bool:
        return off_by(offset, self.size, self.phase) == 0

    def up(self, offset: int) -> int:
        """The first point at or after `offset`."""
        return align_up(offset, self.size, self.phase)

    def down(self, offset: int) -> int:
        """The last point at or before `offset`; may be negative."""
        return align_down(offset, self.size, self.phase)


def needed(grids: Iterable[Grid], sector_size: int) -> Lattice | None:
    """The points that are on every grid off which a start is an error or a warning; None when there are none.

    Grids of several sizes and phases meet where the Chinese remainder theorem says. The phase is the kernel's
    alignment_offset: with 3584, sector 63 of 512 bytes is right and sector 2048 is not.
    """
    asked = (Lattice(grid.size, grid.phase) for grid in grids if grid.severity is not Severity.INFO)
    start: Lattice | None = Lattice(sector_size)
    return reduce(_meeting, asked, start)


def _meeting(one: Lattice | None, other: Lattice) -> Lattice | None:
    if one is None:
        return None
    shared = gcd(one.size, other.size)
    apart = other.phase - one.phase
    if apart % shared:
        return None
    steps = apart // shared * pow(one.size // shared, -1, other.size // shared) if other.size > shared else 0
    size = lcm(one.size, other.size)
    return Lattice(size, (one.phase + steps % (other.size // shared) * one.size) % size)


def on_grain(need: Lattice, grain: int) -> Lattice:
    """The points that are on `need` and as far past a multiple of `grain` as the grid itself is past 0.

    So with a phase of 3584 a grain of 1MiB means 1MiB + 3584.
    """
    return Lattice(lcm(need.size, grain), need.phase)


def choices(need: Lattice, grain: int, *, only_grain: bool) -> tuple[Lattice, ...]:
    """`grain` first, then halves of it down to what the grids need. `only_grain`: nothing else is an answer."""
    found = [on_grain(need, grain)]
    while not only_grain and grain % 2 == 0 and found[-1].size > need.size:
        grain //= 2
        finer = on_grain(need, grain)
        if finer.size < found[-1].size:
            found.append(finer)
    return tuple(found)
