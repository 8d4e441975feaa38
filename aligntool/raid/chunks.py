"""Choose chunk and level: rules, evidence, bandwidth ceilings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from aligntool.audit.arrays import FULL_STRIPE
from aligntool.audit.arrays import LEAST_CHUNK as LEAST
from aligntool.audit.report import Grid
from aligntool.change import RAID_WORDS
from aligntool.inventory import Disk, KnownGeometry, LinkHop, Source, Uplink
from aligntool.units import KIB, MIB, format_rate, format_size, is_power_of_two

# What distinguishes the levels: how many drives they need, what they keep twice, how much of it holds data.
#
# Source: md(4).

WORKLOADS = RAID_WORDS["workload"]
PARITY_LAYOUTS = ("left-symmetric", "left-asymmetric", "right-symmetric", "right-asymmetric")


@dataclass(frozen=True, slots=True)
class Level:
    word: str  # as mdadm and the kernel write it
    title: str
    least_members: int
    parity: int = 0  # members' worth of every stripe that holds no data
    striped: bool = True  # there is a chunk
    redundant: bool = True  # a member may fail


LEVELS = {
    "raid0": Level("raid0", "RAID0", 2, redundant=False),
    "raid1": Level("raid1", "RAID1", 2, striped=False),
    "raid10": Level("raid10", "RAID10", 2),
    "raid5": Level("raid5", "RAID5", 3, parity=1),
    "raid6": Level("raid6", "RAID6", 4, parity=2),
}


def level_of(word: str) -> Level:
    """Return the level of a running array, also one that aligntool never plans. RAID4 has its parity on one member."""
    raid4 = Level("raid4", "RAID4", 3, parity=1)
    other = Level(word, word, 1, striped=False, redundant=False)
    return LEVELS.get(word) or (raid4 if word == "raid4" else other)


def layouts_of(level: Level, members: int) -> tuple[str, ...]:
    """Return the values of `--layout`, the recommended one first; () where there is no choice. RAID10: n near, f far, o
    offset."""
    if level.parity:
        return PARITY_LAYOUTS
    if level.word == "raid10":
        copies = range(2, max(members, 2) + 1)
        return tuple(f"{kind}{number}" for number in copies for kind in "nfo")
    return ()


def copies_of(level: Level, members: int, layout: str) -> int:
    """Return how many copies of every byte the array has, not counting parity."""
    if level.word == "raid1":
        return members
    return int(layout[1:]) if level.word == "raid10" and layout[1:].isdigit() else 1


def data_members(level: Level, members: int, layout: str) -> int:
    """Return how many members' worth of a full stripe hold data, at least 1.

    RAID10 whose copies do not divide its members counts all of them, as the kernel's io_opt does
    (raid10_set_queue_limits), and so does RAID10 in the far and offset layouts, whose copies are none of the near
    ones that it divides by (raid10.c, setup_geo).
    """
    if level.word == "raid1":
        return 1
    copies = copies_of(level, members, layout)
    if layout.startswith(("f", "o")) or members % copies:
        copies = 1
    return max((members - level.parity) // copies, 1)


def capacity(level: Level, members: int, layout: str, each: int) -> int:
    """Return the size of the array in bytes when each member gives `each` bytes."""
    return (members - level.parity) * each // copies_of(level, members, layout)


# What the way to the drives and the drives themselves let through: the bandwidth that no array on them can
# exceed.
#
# It needs no goal: an array that exists has a ceiling as well.


@dataclass(frozen=True, slots=True)
class Lane:
    """The narrowest place on the way to one drive, or the drive itself."""

    bandwidth: int
    what: str


@dataclass(frozen=True, slots=True)
class DriveRate:
    """What one drive does alone with large requests in order, bytes per second; None: not known."""

    read: int | None
    write: int | None
    by: str  # "measured here", "known: Intel SSD 750"


Rates = Mapping[str, DriveRate]
"""By the disk's name."""

_NO_RATES: Rates = {}


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Bytes per second. None: neither a link on the way nor the drive's own rate is known."""

    read: int | None
    write: int | None
    binds: str  # what has to get faster for the array to read faster
    unknown: tuple[str, ...] = ()  # drives whose path is not known
    alone: int | None = None  # one sequential reader, where that is less than `read`
    binds_write: str = ""  # what has to get faster for the array to write faster
    rates: bool = False  # drives' own rates were looked at


def known_rates(known: Mapping[str, Sequence[KnownGeometry]]) -> dict[str, DriveRate]:
    """Return the rates in bytes per second from the drive database; the first row that says something counts."""
    rated = ((name, [row for row in rows if row.read_rate or row.write_rate]) for name, rows in known.items())
    firsts = ((name, rows[0]) for name, rows in rated if rows)
    return {name: DriveRate(row.read_rate, row.write_rate, f"{row.source}: {row.row}") for name, row in firsts}


def ceiling(
    disks: Sequence[Disk], uplinks: Sequence[Uplink], level: Level, layout: str, rates: Rates = _NO_RATES
) -> Ceiling:
    """Return the ceiling of an array of these drives. A member counts as often as it is named."""
    links = {disk.name: lane for disk in disks if (lane := narrowest(disk))}
    shared = [uplink for uplink in uplinks if uplink.bandwidth and any(disk.name in uplink.members for disk in disks)]
    reading = dict(_with_drives(links, disks, {name: (one.read, one.by) for name, one in rates.items()}))
    writing = dict(_with_drives(links, disks, {name: (one.write, one.by) for name, one in rates.items()}))
    unknown = tuple(disk.name for disk in disks if disk.name not in links)
    each, binds = _slowest(reading, shared, disks)
    write_each, binds_write = _slowest(writing, shared, disks)
    count, alone = len(disks), None
    read = None if each is None else count * each
    write = None if write_each is None else (count - level.parity) * write_each // copies_of(level, count, layout)
    if level.word == "raid1":
        # Mirrors read independently: each as fast as its own way lets it. All of them are written.
        read = _together(reading, shared, disks) if all(disk.name in reading for disk in disks) else None
        alone = max((lane.bandwidth for lane in reading.values()), default=None)
    return Ceiling(read, write, binds, unknown, alone, binds_write, bool(rates))


def _with_drives(
    links: Mapping[str, Lane], disks: Sequence[Disk], rates: Mapping[str, tuple[int | None, str]]
) -> Iterator[tuple[str, Lane]]:
    """Yield each drive's narrowest place, where the drive itself may be that."""
    for disk in disks:
        link, (own, by) = links.get(disk.name), rates.get(disk.name, (None, ""))
        if own and (link is None or own < link.bandwidth):
            yield disk.name, Lane(own, f"{disk.name} itself ({format_rate(own)}, {by})")
        elif link:
            yield disk.name, link


def _slowest(lanes: Mapping[str, Lane], shared: Sequence[Uplink], disks: Sequence[Disk]) -> tuple[int | None, str]:
    """A stripe loads all members alike: each gets the same part of what they share, and the slowest binds all."""
    limits = [(lane.bandwidth, lane.what) for lane in lanes.values()]
    for uplink in shared:
        rate, below = uplink.bandwidth or 0, [disk.name for disk in disks if disk.name in uplink.members]
        words = f"{uplink.name} ({format_rate(rate)}, {uplink.source}), shared by {', '.join(below)}"
        limits.append((rate // len(below), words))
    return min(limits) if limits else (None, "")


def narrowest(disk: Disk) -> Lane | None:
    """Of several paths the widest counts; what it shares with other drives is not looked at here."""
    size = attrgetter("bandwidth")
    ways = [min(lanes, key=size) for path in disk.links if (lanes := tuple(_lanes(disk, path)))]
    return max(ways, key=size, default=None)


def _lanes(disk: Disk, path: Sequence[LinkHop]) -> Iterator[Lane]:
    yield from (Lane(hop.bandwidth, hop_words(disk, hop)) for hop in path if hop.bandwidth)
    for hop in path:
        if hop.hidden_bandwidth:
            yield Lane(hop.hidden_bandwidth, f"{hop.hidden_uplink or 'a hidden link'} above {disk.name}")


def hop_words(disk: Disk, hop: LinkHop) -> str:
    """ "the link of nvme0n1 at 0000:01:00.0, 8 GT/s x2"."""
    speed = f", {hop.speed_gts:g} GT/s x{hop.width}" if hop.speed_gts and hop.width else ""
    return f"the link of {disk.name} at {hop.address}{speed}"


def _together(lanes: Mapping[str, Lane], shared: Sequence[Uplink], disks: Sequence[Disk]) -> int:
    """All of them at once, each group under one uplink no faster than it. Nested uplinks: the narrowest one first."""
    left = {disk.name: lanes[disk.name].bandwidth for disk in disks if disk.name in lanes}
    for uplink in sorted(shared, key=lambda each: len(each.members)):
        below = [name for name in left if name in uplink.members]
        total = sum(left[name] for name in below)
        if total > (uplink.bandwidth or 0):
            for name in below:
                left[name] = left[name] * (uplink.bandwidth or 0) // total
    return sum(left.values())


def ceiling_words(found: Ceiling) -> tuple[str, ...]:
    """Sentences, for a plan's notes and for whoever shows an array."""
    if found.read is None and found.write is None:
        return ("no bandwidth ceiling is known: no link of these drives can be seen",)
    read, write = ("not known" if rate is None else format_rate(rate) for rate in (found.read, found.write))
    who = "the links and the drives carry" if found.rates else "the links carry"
    said = [f"{who} at most {read} reading ({found.binds} binds) and {write} writing ({found.binds_write} binds)"]
    if found.binds_write in ("", found.binds):
        said = [f"{who} at most {read} reading and {write} writing; {found.binds} binds"]
    if found.alone:
        most = format_rate(found.alone)
        said.append(f"one sequential reader of a RAID1 gets one drive, at most {most}; several get more")
    if found.unknown:
        said.append(f"the links of {', '.join(found.unknown)} are not known, so the ceiling may be lower")
    return tuple(said)


# Which chunk, and why.
#
# docs/raid.md has the source of each rule. Sizes in bytes.

LARGEST = MIB
HALF_MIB = MIB // 2


class Evidence(StrEnum):
    """How well something is known, the strongest first."""

    REPORTED = "reported"  # by these drives
    MEASURED = "measured here"
    PUBLISHED = "published"  # by others: source code, vendors, measurements
    RULE = "rule of thumb"


_STRENGTH = {
    Source.REPORTED: Evidence.REPORTED, Source.MEASURED: Evidence.MEASURED, Source.KNOWN: Evidence.PUBLISHED,
}  # fmt: skip


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
    "mdadm's own default: smaller chunks were slower or no faster on emulated drives, no comparison on real"
    " ones is published, and `aligntool raid tune` measures yours"
)
_SHORTER = (
    "the longest whose full stripe fits one request of RAID5 and RAID6 (1MiB, published); on emulated drives a shorter "
    "chunk than mdadm's 512KiB was slower or no faster, and `aligntool raid tune` measures yours"
)

_STRIPED: dict[str, _Words] = {
    "general": (HALF_MIB, "mdadm's own default; no comparison on NVMe drives is published", Evidence.RULE),
    "boot": (HALF_MIB, "booting is small reads one at a time, which no chunk of 64KiB and more splits", Evidence.RULE),
    "database": (HALF_MIB, _NOT_SLOWER, Evidence.RULE),
    "sequential": (HALF_MIB, _NOT_SLOWER, Evidence.RULE),
    "lsm": (MIB, "written and compacted in long runs; ScyllaDB's own setup uses 1MiB", Evidence.PUBLISHED),
    "vm": (256 * KIB, "guests mix small and large requests; between the two", Evidence.RULE),
}
_PARITY: dict[str, _Words] = {
    "general": (128 * KIB, "a full stripe that fits one request is written without reading", Evidence.RULE),
    "boot": (64 * KIB, "booting is small reads one at a time, which no chunk of 64KiB and more splits", Evidence.RULE),
    "database": (HALF_MIB, _NOT_SLOWER, Evidence.RULE),
    "sequential": (HALF_MIB, _NOT_SLOWER, Evidence.RULE),
    "lsm": (128 * KIB, "long writes fill whole stripes of at most 1MiB", Evidence.RULE),
    "vm": (64 * KIB, "short stripes are completed sooner by mixed writes", Evidence.RULE),
}


def recommend_chunk(stripes: Stripes) -> ChunkAdvice:
    """Return the recommended chunk in bytes, the reason, and how well it is known."""
    if not stripes.level.striped:
        return ChunkAdvice(None, "every member holds everything, so there is no chunk", Evidence.PUBLISHED)
    size, reason, evidence = (_PARITY if stripes.level.parity else _STRIPED)[stripes.workload]
    if stripes.workload == "database" and not stripes.level.parity:
        size = max(size, 4 * stripes.database_page)
    least = least_chunk(stripes)
    longest = 1 << (max(FULL_STRIPE // stripes.data, 1).bit_length() - 1)
    if stripes.level.parity and size > longest:
        size, evidence = longest, Evidence.PUBLISHED
        if reason == _NOT_SLOWER:
            reason = _SHORTER
    if size < least:
        _, what, evidence = _binding_floor(stripes)
        size, reason = least, f"the least that the rules allow: {what}"
    return ChunkAdvice(size, reason, evidence)


def judge_chunk(chunk: int, stripes: Stripes) -> Iterator[Rule]:
    """Yield every rule that a chunk should keep, and whether this one does."""
    yield Rule(
        f"at least {format_size(LEAST)}: with 4KiB a database on four NVMe drives did 0.79 of the work of one drive "
        "(published); what lies between is not measured",
        Evidence.RULE, chunk >= LEAST,
    )  # fmt: skip
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
        sentence = f"a full stripe of at most {most}; this one has {format_size(whole)}"
        yield Rule(sentence, Evidence.PUBLISHED, whole <= FULL_STRIPE, conflict)
    if not is_power_of_two(chunk):
        yield Rule("a power of two, as every file system's stripe unit expects", Evidence.RULE, False)


def _multiple_of(unit: Grid) -> str:
    return f"a multiple of the members' {unit.kind} of {format_size(unit.size)}"


def least_chunk(stripes: Stripes) -> int:
    """Return the least chunk in bytes: a power of two that is below none of the floors; what is not a power of two
    among them does not count.
    """
    return 1 << (min(_binding_floor(stripes)[0], LARGEST) - 1).bit_length()


def _binding_floor(stripes: Stripes) -> _Words:
    """The largest of the floors, in words."""
    floors = [(LEAST, f"at least {format_size(LEAST)}", Evidence.RULE)]
    floors += [(unit.size, _multiple_of(unit), _STRENGTH.get(unit.source, Evidence.RULE)) for unit in stripes.units]
    if stripes.workload == "database":
        page = stripes.database_page
        floors.append((2 * page, f"at least two database pages of {format_size(page)}", Evidence.RULE))
    return max(floors, key=lambda floor: floor[0])
