"""From where on the disk the same load is run, so that starts can be put beside each other.

In: the unit, the room there is. Out: places, loads, jobs, or Refused. Alone because what is run is decided before
anything is measured.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import lcm

from aligntool.bench.jobs import Job, Pattern
from aligntool.errors import Refused
from aligntool.units import KIB, MIB, Extent, align_up, format_size

OLD_START = 63 * KIB // 2  # sector 63 of 512 bytes, where partitions began once
RESIDUES = 8  # of a unit are tried at most
RANDOM_BLOCK = 4 * KIB
SEQUENTIAL_BLOCK = 128 * KIB
_OLD_TITLE = "as sector 63"
_CONTROL = MIB  # after the aligned start: as well aligned, so that what differs there is noise


@dataclass(frozen=True, slots=True)
class Place:
    """A start to measure from; bytes of the disk."""

    title: str
    start: int
    residue: int  # past the last boundary of the unit
    control: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    pattern: Pattern
    block: int  # bytes
    depth: int

    @property
    def title(self) -> str:
        kind = "sequential" if self.pattern.sequential else "random"
        verb = "write" if self.pattern.writes else "read"
        return f"{kind} {verb}, {format_size(self.block)} QD{self.depth}"


@dataclass(frozen=True, slots=True)
class Run:
    load: Load
    place: Place
    job: Job


def loads_of(*, writes: bool, depth: int) -> tuple[Load, ...]:
    patterns = (Pattern.RANDOM_READ, Pattern.RANDOM_WRITE, Pattern.READ, Pattern.WRITE)
    return tuple(
        Load(pattern, SEQUENTIAL_BLOCK if pattern.sequential else RANDOM_BLOCK, depth)
        for pattern in patterns
        if writes or not pattern.writes
    )


MOST_RUNS = 10_000
"""That a result holds: at a second each they take hours."""


def refuse_too_small(size: int, unit: int, sector: int, only: int | None) -> None:
    """So many bytes, wherever on the disk they will lie: said before a file is filled in vain. Raises Refused."""
    places_of(Extent(lcm(MIB, unit), size), unit, sector, only)


def places_of(
    room: Extent, unit: int, sector: int, only: int | None = None, *, every: bool = False
) -> tuple[Place, ...]:
    """The aligned start, one that is as good, sector 63, and the residues of the unit. Raises Refused.

    `room`: bytes of the disk. Sector 63 does not exist where sectors are larger than 512 bytes. `only`: this start of a
    disk in place of sector 63 and the residues. `every`: the residues of all sectors, not of each eighth of the unit.
    """
    base = align_up(max(room.start, 1), lcm(MIB, unit))
    control = base + align_up(_CONTROL, unit)
    places = [Place("aligned, as 2048", base, 0), Place("as well aligned", control, 0, control=True)]
    places += (
        _misaligned(base, unit, sector, every=every)
        if only is None
        else [_one_start(only, base, unit, sector)]
    )
    if len(places) == 2:
        raise Refused(
            f"every start is on the boundary of a unit of {format_size(unit)}, for sectors have {format_size(sector)}",
            hint=f"--unit {format_size(4 * max(unit, sector))} for a larger one",
        )
    last = max(place.start for place in places)
    if last + 16 * SEQUENTIAL_BLOCK > room.end:
        raise Refused(
            f"{format_size(room.length)} are too little to start at several places",
            hint=f"something larger, or --size {format_size(_enough(base, last, unit))} for a folder",
        )
    return tuple(places)


def _enough(base: int, last: int, unit: int) -> int:
    """For these starts, wherever the first byte lies."""
    needed = last - base + lcm(MIB, unit) + 16 * SEQUENTIAL_BLOCK
    return max(256 * MIB, align_up(needed, MIB))


def _misaligned(base: int, unit: int, sector: int, *, every: bool) -> Iterator[Place]:
    old = OLD_START % unit if OLD_START % sector == 0 else 0
    if old:
        yield Place(_OLD_TITLE, base + OLD_START, old)
    step = sector if every else max(sector, unit // RESIDUES)
    for residue in range(step, unit, step):
        if residue != old:
            yield Place(f"{format_size(residue)} past", base + residue, residue)


def _one_start(start: int, base: int, unit: int, sector: int) -> Place:
    if start % sector:
        raise Refused(f"no partition can start at {format_size(start)}: sectors have {format_size(sector)}")
    if start % unit == 0:
        raise Refused(
            f"{format_size(start)} is on the boundary of a unit of {format_size(unit)}, as the aligned start is",
            hint="--start 32256 is sector 63; without --start all of them are tried",
        )
    title = _OLD_TITLE if start == OLD_START else f"at {format_size(start)}"
    return Place(title, base + (start if start < MIB else start % unit), start % unit)


def refuse_too_many(runs: int) -> None:
    """Raises Refused."""
    if runs > MOST_RUNS:
        raise Refused(
            f"that is {runs} runs, and a result holds at most {MOST_RUNS}",
            hint="fewer --repeats, or without --every, which tries each eighth of the unit",
        )


def runs_of(
    places: Sequence[Place],
    loads: Sequence[Load],
    room: Extent,
    path: str,
    shift: int,
    runtime_s: float,
    repeat: int,
) -> Iterator[Run]:
    """One repeat: every load from every start. The starts take turns, and each repeat begins with another one.

    `shift`: the byte of the disk where the file or device at `path` begins.
    """
    length = room.end - max(place.start for place in places)
    for load in loads:
        turn = repeat % len(places)
        for place in (*places[turn:], *places[:turn]):
            yield Run(
                load, place,
                Job(
                    name="alignment", path=path, pattern=load.pattern, block=load.block,
                    span=length // load.block * load.block, offset=place.start - shift, depth=load.depth,
                    runtime_s=runtime_s,
                ),
            )  # fmt: skip
