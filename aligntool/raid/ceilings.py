"""The bandwidth that no array can exceed: what the way to the drives and the drives themselves let through.

It needs no goal: an array that exists has a ceiling as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from aligntool.inventory import Disk, KnownGeometry, LinkHop, Uplink
from aligntool.raid.levels import Level, copies_of
from aligntool.units import format_rate


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
