"""Which chunk, and why.

In: the level, the number of members, the workload, and what the members' flash works in. Out: a chunk with its reason,
the rules that it keeps or breaks, and how strong the evidence for each is. Alone because it is the one number that
people argue about; docs/raid.md tells where each comes from. Sizes in bytes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from aligntool.audit import Grid, GridKind
from aligntool.inventory import Source
from aligntool.raid.levels import Level
from aligntool.units import KIB, MIB, format_size, is_power_of_two

LEAST = 16 * KIB
FULL_STRIPE = MIB  # RAID5_MAX_REQ_STRIPES: 256 pages of 4 KiB in one request, drivers/md/raid5.c
LARGEST = MIB
HALF_MIB = MIB // 2


class Evidence(StrEnum):
    """How well something is known, the strongest first."""

    REPORTED = "reported"  # by these drives
    MEASURED = "measured here"
    PUBLISHED = "published"  # by others: source code, vendors, measurements
    RULE = "rule of thumb"


@dataclass(frozen=True, slots=True)
class Rule:
    sentence: str
    evidence: Evidence
    kept: bool
    conflict: str = ""  # the rule that this one gives way to: no chunk keeps both


@dataclass(frozen=True, slots=True)
class ChunkAdvice:
    """`size` None: the level has no chunk."""

    size: int | None
    reason: str
    evidence: Evidence
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class Stripes:
    """What a chunk has to fit."""

    level: Level
    data: int  # members' worth of data in a full stripe
    workload: str
    database_page: int
    units: tuple[Grid, ...] = ()  # of the members: pages, mapping units, sectors


_Words = tuple[int, str, Evidence]

_NOT_SLOWER = (
    "mdadm's own default: smaller chunks were slower or no faster on emulated drives, nobody has published a "
    "comparison on real ones, and `aligntool raid tune` measures yours"
)
_SHORTER = (
    "the longest whose full stripe fits one request of RAID5 and RAID6 (1MiB, published); on emulated drives a shorter "
    "chunk than mdadm's 512KiB was slower or no faster, and `aligntool raid tune` measures yours"
)

_STRIPED: dict[str, _Words] = {
    "general": (HALF_MIB, "mdadm's own default; nobody has published a comparison on NVMe drives", Evidence.RULE),
    "boot": (HALF_MIB, "booting is small reads one at a time, which no chunk of 64KiB and more splits", Evidence.RULE),
    "database": (HALF_MIB, _NOT_SLOWER, Evidence.RULE),
    "sequential": (HALF_MIB, _NOT_SLOWER, Evidence.RULE),
    "lsm": (MIB, "written and compacted in long runs; ScyllaDB's own setup uses 1MiB", Evidence.PUBLISHED),
    "vm": (256 * KIB, "guests mix small and large requests; between the two", Evidence.RULE),
}  # fmt: skip
_PARITY: dict[str, _Words] = {
    "general": (128 * KIB, "a full stripe that fits one request is written without reading", Evidence.RULE),
    "boot": (64 * KIB, "booting is small reads one at a time, which no chunk of 64KiB and more splits", Evidence.RULE),
    "database": (HALF_MIB, _NOT_SLOWER, Evidence.RULE),
    "sequential": (HALF_MIB, _NOT_SLOWER, Evidence.RULE),
    "lsm": (128 * KIB, "long writes fill whole stripes of at most 1MiB", Evidence.RULE),
    "vm": (64 * KIB, "short stripes are completed sooner by mixed writes", Evidence.RULE),
}  # fmt: skip


def member_units(grids: Sequence[Grid]) -> tuple[Grid, ...]:
    """The boundaries of the members that a chunk must not cut."""
    kinds = (GridKind.PHYSICAL, GridKind.MINIMUM_IO, GridKind.PAGE, GridKind.UNIT)
    return tuple(grid for grid in grids if grid.kind in kinds)


def recommend_chunk(stripes: Stripes) -> ChunkAdvice:
    """The chunk that aligntool would take."""
    if not stripes.level.striped:
        return ChunkAdvice(None, "every member holds everything, so there is no chunk", Evidence.PUBLISHED)
    size, reason, evidence = _wanted(stripes)
    least = least_chunk(stripes)
    longest = _power_below(FULL_STRIPE // stripes.data)
    if stripes.level.parity and size > longest:
        size, evidence = longest, Evidence.PUBLISHED
        if reason == _NOT_SLOWER:
            reason = _SHORTER
    if size < least:
        what, evidence = _binding_floor(stripes)
        size, reason = least, f"the least that the rules allow: {what}"
    return ChunkAdvice(size, reason, evidence, judge_chunk(size, stripes))


def judge_chunk(chunk: int, stripes: Stripes) -> tuple[Rule, ...]:
    """Every rule that a chunk should keep, and whether this one does."""
    return tuple(_rules(chunk, stripes))


def _rules(chunk: int, stripes: Stripes) -> Iterator[Rule]:
    yield Rule(
        f"at least {format_size(LEAST)}: with 4KiB a database on four NVMe drives did 0.79 of the work of one drive "
        "(published); nobody has measured what lies between",
        Evidence.RULE, chunk >= LEAST,
    )  # fmt: skip
    if stripes.units:
        unit = max(stripes.units, key=lambda grid: grid.size)
        yield Rule(
            f"a multiple of the members' {unit.kind} of {format_size(unit.size)} ({unit.source}: {unit.by})",
            _strength(unit.source), chunk % unit.size == 0,
        )  # fmt: skip
    if stripes.workload == "database":
        least = 2 * stripes.database_page
        sentence = f"at least two database pages of {format_size(stripes.database_page)}"
        yield Rule(sentence, Evidence.RULE, chunk >= least)
    if stripes.level.parity:
        whole = chunk * stripes.data
        sentence = (
            f"a full stripe of at most {format_size(FULL_STRIPE)}, the kernel's largest request to RAID5 and RAID6; "
            f"this one has {format_size(whole)}"
        )
        conflict = _binding_floor(stripes)[0] if whole > FULL_STRIPE and chunk <= least_chunk(stripes) else ""
        yield Rule(sentence, Evidence.PUBLISHED, whole <= FULL_STRIPE, conflict)
    if not is_power_of_two(chunk):
        yield Rule("a power of two, as every file system's stripe unit expects", Evidence.RULE, False)


def _wanted(stripes: Stripes) -> _Words:
    if stripes.level.parity:
        return _PARITY[stripes.workload]
    size, reason, evidence = _STRIPED[stripes.workload]
    if stripes.workload == "database":
        size = max(size, 4 * stripes.database_page)
    return size, reason, evidence


def least_chunk(stripes: Stripes) -> int:
    """A power of two that is below none of the floors; what is no power of two among them binds nobody."""
    floors = [LEAST, *(grid.size for grid in stripes.units)]
    if stripes.workload == "database":
        floors.append(2 * stripes.database_page)
    return _power_above(min(max(floors), LARGEST))


def _binding_floor(stripes: Stripes) -> tuple[str, Evidence]:
    """The largest of the floors, in words."""
    floors = [(LEAST, f"at least {format_size(LEAST)}", Evidence.RULE)]
    floors += [
        (
            grid.size,
            f"a multiple of the members' {grid.kind} of {format_size(grid.size)}",
            _strength(grid.source),
        )
        for grid in stripes.units
    ]
    if stripes.workload == "database":
        page = stripes.database_page
        floors.append((2 * page, f"at least two database pages of {format_size(page)}", Evidence.RULE))
    _, words, evidence = max(floors, key=lambda floor: floor[0])
    return words, evidence


def _strength(source: Source) -> Evidence:
    return {
        Source.REPORTED: Evidence.REPORTED,
        Source.MEASURED: Evidence.MEASURED,
        Source.KNOWN: Evidence.PUBLISHED,
    }.get(source, Evidence.RULE)


def _power_below(size: int) -> int:
    return 1 << (size.bit_length() - 1) if size else 1


def _power_above(size: int) -> int:
    return 1 << (size - 1).bit_length()
