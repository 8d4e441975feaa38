"""The lattice for the starts of a new layout: what must be, and of what would be nice as much as costs little.

In: what was judged to matter on a disk, and the grain. Out: a Lattice, and sentences about what was taken and what was
not. Alone because a realign asks another question: it must not move data for what is only nice, whereas on an empty
disk an erase block or a stripe costs nothing but a gap.
"""

from collections.abc import Sequence

from aligntool.audit import Grid, GridKind, Severity
from aligntool.audit.words import asked_by
from aligntool.realign.lattice import Lattice, needed, on_grain
from aligntool.units import MIB, format_size, off_by

# What is only nice may leave no gap longer than this, and all gaps together take no more than this part of the disk.
_LONGEST_GAP = 64 * MIB
_SHARE_OF_DISK = 64


def layout_lattice(
    grids: Sequence[Grid], grain: int, *, sector_size: int, disk_size: int, count: int
) -> tuple[Lattice, tuple[str, ...]]:
    """`grain` and `disk_size` in bytes; `count`: the partitions, each of which may leave a gap before it."""
    errors = [grid for grid in grids if grid.severity is Severity.ERROR]
    warnings = [grid for grid in grids if grid.severity is Severity.WARNING]
    notes: list[str] = []
    need = needed([*errors, *warnings], sector_size)
    if need is None:
        need = needed(errors, sector_size) or Lattice(sector_size)
        named = ", ".join(_named(grid) for grid in warnings)
        notes.append(f"no start can lie on the physical sectors and on {named} at once; the sectors count")
    found = on_grain(need, grain)
    notes += [f"starts lie on {_named(grid)} as well" for grid in (*errors, *warnings) if grain % grid.size]
    for grid in grids:
        if grid.severity is not Severity.INFO or grid.kind is GridKind.GRAIN:
            continue
        both = on_grain(found, grid.size)
        gap = both.size - found.size
        cheap = both.size <= _LONGEST_GAP and gap * count * _SHARE_OF_DISK <= disk_size
        if off_by(found.phase, grid.size, grid.phase):
            notes.append(f"no start can lie on the physical sectors and on {_named(grid)} at once")
        elif gap and cheap:
            notes.append(f"starts lie on {_named(grid)} as well")
            found = both
        elif gap:
            notes.append(
                f"{_named(grid)} would leave gaps of up to {format_size(both.size)}, and is left aside"
            )
    return found, tuple(notes)


def _named(grid: Grid) -> str:
    return f"{format_size(grid.size)} ({asked_by(grid)})"
