"""Recommend and judge chunk sizes, with reasons. docs/raid.md has the source of each rule. Sizes are
bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from aligntool.audit.arrays import FULL_STRIPE
from aligntool.audit.arrays import LEAST_CHUNK as LEAST
from aligntool.audit.report import Grid
from aligntool.inventory import Source
from aligntool.raid.levels import Level
from aligntool.units import KIB, MIB, format_size, is_power_of_two

LARGEST = MIB
HALF_MIB = MIB // 2


class Evidence(StrEnum):
    """How well a rule is supported, the strongest evidence first."""

    REPORTED = "reported"  # by these drives
    MEASURED = "measured here"
    PUBLISHED = "published"  # by others: source code, vendors, measurements
    RULE = "rule of thumb"


_STRENGTH = {
    Source.REPORTED: Evidence.REPORTED,
    Source.MEASURED: Evidence.MEASURED,
    Source.KNOWN: Evidence.PUBLISHED,
}


@dataclass(frozen=True, slots=True)
class Rule:
    sentence: str
    evidence: Evidence
    kept: bool
    conflict: str = ""  # the rule that takes precedence: no chunk keeps both


@dataclass(frozen=True, slots=True)
class ChunkAdvice:
    """`size` None: the level has no chunk."""

    size: int | None
    reason: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Stripes:
    """The properties of an array that its chunk has to fit."""

    level: Level
    data: int  # members' worth of data in a full stripe
    workload: str
    database_page: int
    units: tuple[Grid, ...] = ()  # of the members: pages, mapping units, sectors


_Reason = tuple[int, str, Evidence]

_NOT_SLOWER = (
    "mdadm's default: smaller chunks were slower or no faster on emulated drives; no comparison on real"
    " drives is published, and `aligntool raid tune` measures your drives"
)
_SHORTER = (
    "the largest whose full stripe fits into one request of RAID5 and RAID6 (1MiB, published); on emulated"
    " drives a chunk below mdadm's 512KiB was slower or no faster, and `aligntool raid tune` measures your"
    " drives"
)

_STRIPED: dict[str, _Reason] = {
    "general": (HALF_MIB, "mdadm's default; no comparison on NVMe drives is published", Evidence.RULE),
    "boot": (
        HALF_MIB,
        "a boot reads small blocks one at a time; no chunk from 64KiB on splits them",
        Evidence.RULE,
    ),
    "database": (HALF_MIB, _NOT_SLOWER, Evidence.RULE),
    "sequential": (HALF_MIB, _NOT_SLOWER, Evidence.RULE),
    "lsm": (
        MIB,
        "data is written and compacted in long runs; ScyllaDB's setup uses 1MiB",
        Evidence.PUBLISHED,
    ),
    "vm": (256 * KIB, "a compromise, because guests mix small and large requests", Evidence.RULE),
}
_PARITY: dict[str, _Reason] = {
    "general": (
        128 * KIB,
        "a full stripe that fits into one request is written without reading",
        Evidence.RULE,
    ),
    "boot": (
        64 * KIB,
        "a boot reads small blocks one at a time; no chunk from 64KiB on splits them",
        Evidence.RULE,
    ),
    "database": (HALF_MIB, _NOT_SLOWER, Evidence.RULE),
    "sequential": (HALF_MIB, _NOT_SLOWER, Evidence.RULE),
    "lsm": (128 * KIB, "long writes fill whole stripes of at most 1MiB", Evidence.RULE),
    "vm": (64 * KIB, "mixed writes complete short stripes sooner", Evidence.RULE),
}


def recommend_chunk(stripes: Stripes) -> ChunkAdvice:
    """Return the recommended chunk in bytes, the reason, and its evidence."""
    if not stripes.level.striped:
        return ChunkAdvice(None, "every member holds all data, so there is no chunk", Evidence.PUBLISHED)
    size, reason, evidence = (_PARITY if stripes.level.parity else _STRIPED)[stripes.workload]
    if stripes.workload == "database" and not stripes.level.parity:
        size = max(size, _whole_chunk(4 * stripes.database_page))
    least = least_chunk(stripes)
    longest = 1 << (max(FULL_STRIPE // stripes.data, 1).bit_length() - 1)
    if stripes.level.parity and size > longest:
        size = longest
        evidence = Evidence.PUBLISHED
        if reason == _NOT_SLOWER:
            reason = _SHORTER
    if size < least:
        _, floor, evidence = _binding_floor(stripes)
        size = least
        reason = f"the smallest that the rules allow: {floor}"
    return ChunkAdvice(size, reason, evidence)


def judge_chunk(chunk: int, stripes: Stripes) -> Iterator[Rule]:
    """Yield every rule for chunks, and whether this chunk keeps it."""
    yield Rule(
        f"at least {format_size(LEAST)}: with 4KiB, a database on four NVMe drives reached 0.79 of the"
        " throughput of one drive (published); sizes in between were not measured",
        Evidence.RULE,
        chunk >= LEAST,
    )
    if stripes.units:
        unit = max(stripes.units, key=lambda grid: grid.size)
        sentence = f"{_multiple_of(unit)} ({unit.source}: {unit.by})"
        yield Rule(sentence, _STRENGTH.get(unit.source, Evidence.RULE), chunk % unit.size == 0)
    if stripes.workload == "database":
        sentence = f"at least two database pages of {format_size(stripes.database_page)}"
        yield Rule(sentence, Evidence.RULE, chunk >= 2 * stripes.database_page)
    if stripes.level.parity:
        whole = chunk * stripes.data
        most = f"{format_size(FULL_STRIPE)}, the kernel's largest request to RAID5 and RAID6"
        conflict = _binding_floor(stripes)[1] if whole > FULL_STRIPE and chunk <= least_chunk(stripes) else ""
        sentence = f"a full stripe of at most {most}; this one is {format_size(whole)}"
        yield Rule(sentence, Evidence.PUBLISHED, whole <= FULL_STRIPE, conflict)
    if not is_power_of_two(chunk):
        yield Rule("a power of two, as every file system's stripe unit expects", Evidence.RULE, False)


def _multiple_of(unit: Grid) -> str:
    return f"a multiple of the members' {unit.kind} of {format_size(unit.size)}"


def least_chunk(stripes: Stripes) -> int:
    """Return the least chunk in bytes: the largest floor."""
    return _whole_chunk(_binding_floor(stripes)[0])


def _whole_chunk(size: int) -> int:
    """Return the size rounded up to a power of two, as md requires for most levels, and at most LARGEST."""
    return 1 << (min(size, LARGEST) - 1).bit_length()


def _binding_floor(stripes: Stripes) -> _Reason:
    """Return the largest lower bound of the chunk, with its reason and evidence."""
    floors = [(LEAST, f"at least {format_size(LEAST)}", Evidence.RULE)]
    floors += [
        (unit.size, _multiple_of(unit), _STRENGTH.get(unit.source, Evidence.RULE)) for unit in stripes.units
    ]
    if stripes.workload == "database":
        page = stripes.database_page
        floors.append((2 * page, f"at least two database pages of {format_size(page)}", Evidence.RULE))
    return max(floors, key=lambda floor: floor[0])
