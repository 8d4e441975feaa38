"""A disk as a row of things from left to right, some of which may move.

In: a disk and what was decided about its partitions. Out: things with what they may do. Alone because a chain of EBRs
makes the row of an MBR longer than its partitions, and the search for places need not know that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aligntool.inventory import Disk, Partition, Role
from aligntool.realign.lattice import Lattice
from aligntool.units import Extent


@dataclass(frozen=True, slots=True)
class Thing:
    """A partition, an EBR, or the end of a container; sizes in bytes."""

    extent: Extent
    number: int | None = None  # None: no partition that could move
    lattices: tuple[Lattice, ...] = ()  # where it may go, best first; none: it stays
    may_stay: bool = True
    cost: int = 0  # bytes to copy when it moves
    lead: int = 0  # bytes that must be free before it, for its EBR
    gives_way: bool = False  # a container's end: pushed to the right by what is inside


@dataclass(frozen=True, slots=True)
class Movable:
    """What was decided about the partitions, by number."""

    must: Mapping[int, tuple[Lattice, ...]]  # these move
    may: Mapping[int, tuple[Lattice, ...]]  # these may, to make room
    cost: Mapping[int, int]  # bytes to copy
    lengths: Mapping[int, int]  # of those that are shrunk


def row_of(disk: Disk, movable: Movable, *, roomy: bool = False) -> tuple[Thing, ...]:
    """Everything that takes space on the disk, in the order of the disk. `roomy`: EBRs keep their distance.

    A container that none of whose logical partitions must move is one thing that stays. Else its first sector, the
    first EBR, stays and its end may grow.
    """
    things: list[Thing] = []
    for part in disk.partitions:
        match part.role:
            case Role.NESTED | Role.MAP:
                continue
            case Role.EXTENDED:
                inside = logicals_of(disk, part)
                if any(one.number in movable.must for one in inside):
                    things += _opened(disk, part, movable, roomy=roomy)
                else:
                    things.append(Thing(part.extent))
            case Role.LOGICAL:
                if not any(one.extent.contains(part.extent) for one in containers(disk)):
                    things.append(Thing(part.extent))
            case Role.PRIMARY:
                things.append(_thing(part, movable))
    return tuple(sorted(things, key=lambda thing: (thing.extent.start, thing.extent.end)))


def containers(disk: Disk) -> tuple[Partition, ...]:
    return tuple(part for part in disk.partitions if part.role is Role.EXTENDED)


def logicals_of(disk: Disk, container: Partition) -> tuple[Partition, ...]:
    """In the order of the chain of EBRs, which is the order of their numbers."""
    return tuple(
        part
        for part in disk.partitions
        if part.role is Role.LOGICAL and container.extent.contains(part.extent)
    )


def lead_of(part: Partition, sector_size: int) -> int:
    """Bytes from a logical partition's EBR to the partition; a sector where the EBR is not known."""
    return max(part.extent.start - part.record_at, sector_size) if part.record_at is not None else sector_size


def _opened(disk: Disk, container: Partition, movable: Movable, *, roomy: bool) -> list[Thing]:
    sector = disk.sector_size
    chain = logicals_of(disk, container)
    first, *others = (_thing(part, movable) for part in chain)
    leads = [lead_of(part, sector) if roomy else sector for part in chain[1:]]
    return [
        Thing(Extent(container.extent.start, sector)),
        first,
        *(replace(thing, lead=lead) for thing, lead in zip(others, leads, strict=True)),
        Thing(Extent(container.extent.end, 0), gives_way=True),
    ]


def _thing(part: Partition, movable: Movable) -> Thing:
    number = part.number
    extent = Extent(part.extent.start, movable.lengths.get(number, part.extent.length))
    must = movable.must.get(number)
    lattices = must if must is not None else movable.may.get(number, ())
    return Thing(extent, number, lattices, must is None, movable.cost.get(number, extent.length))
