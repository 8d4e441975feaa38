"""The bandwidth ceiling of an array, set by the links to its drives and by the drives themselves.

It needs no goal: a running array also has a ceiling.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from aligntool.inventory import Disk, KnownGeometry, LinkHop, Uplink
from aligntool.raid.levels import Level, copies_of
from aligntool.units import format_rate


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The narrowest link on the path to a drive, or the drive itself."""

    bandwidth: int
    what: str


@dataclass(frozen=True, slots=True)
class DriveRate:
    """Sequential rates of one drive alone, in bytes per second; None if unknown."""

    read: int | None
    write: int | None
    by: str  # "measured here", "known: Intel SSD 750"


Rates = Mapping[str, DriveRate]
"""Rates by disk name."""

_NO_RATES: Rates = {}


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Rates in bytes per second; None if neither a link on the path nor the drive's own rate is known."""

    read: int | None
    write: int | None
    binds: str  # the bottleneck for reads
    unknown: tuple[str, ...] = ()  # drives whose links are unknown
    alone: int | None = None  # rate of one sequential reader, if it is less than `read`
    binds_write: str = ""  # the bottleneck for writes
    rates: bool = False  # drives' own rates were taken into account


def known_rates(known: Mapping[str, Sequence[KnownGeometry]]) -> dict[str, DriveRate]:
    """Return the rates in bytes per second from the drive database, from the first row of each drive that has
    any.
    """
    rated = ((name, [row for row in rows if row.read_rate or row.write_rate]) for name, rows in known.items())
    firsts = ((name, rows[0]) for name, rows in rated if rows)
    return {
        name: DriveRate(row.read_rate, row.write_rate, f"{row.source}: {row.row}") for name, row in firsts
    }


def ceiling(
    disks: Sequence[Disk], uplinks: Sequence[Uplink], level: Level, layout: str, rates: Rates = _NO_RATES
) -> Ceiling:
    """Return the ceiling of an array of these drives. A drive that is listed twice counts as two members."""
    links = {disk.name: link for disk in disks if (link := narrowest_link(disk))}
    shared = [
        uplink
        for uplink in uplinks
        if uplink.bandwidth and any(disk.name in uplink.members for disk in disks)
    ]
    reading = dict(_with_drives(links, disks, {name: (one.read, one.by) for name, one in rates.items()}))
    writing = dict(_with_drives(links, disks, {name: (one.write, one.by) for name, one in rates.items()}))
    unknown = tuple(disk.name for disk in disks if disk.name not in links)
    member_rate, binds = _slowest(reading, shared, disks)
    write_each, binds_write = _slowest(writing, shared, disks)
    count = len(disks)
    alone = None
    read = None if member_rate is None else count * member_rate
    write = (
        None if write_each is None else (count - level.parity) * write_each // copies_of(level, count, layout)
    )
    if level.word == "raid1":
        # Mirrors are read independently, each at the rate of its own path. Every write goes to all of them.
        read = _together(reading, shared, disks) if all(disk.name in reading for disk in disks) else None
        alone = max((link.bandwidth for link in reading.values()), default=None)
    return Ceiling(read, write, binds, unknown, alone, binds_write, bool(rates))


def _with_drives(
    links: Mapping[str, Bottleneck], disks: Sequence[Disk], rates: Mapping[str, tuple[int | None, str]]
) -> Iterator[tuple[str, Bottleneck]]:
    """Yield the bottleneck of each drive: its narrowest link, or the drive itself if it is slower."""
    for disk in disks:
        link = links.get(disk.name)
        (rate, source) = rates.get(disk.name, (None, ""))
        if rate and (link is None or rate < link.bandwidth):
            yield disk.name, Bottleneck(rate, f"{disk.name} itself ({format_rate(rate)}, {source})")
        elif link:
            yield disk.name, link


def _slowest(
    links: Mapping[str, Bottleneck], shared: Sequence[Uplink], disks: Sequence[Disk]
) -> tuple[int | None, str]:
    """Return the bandwidth of the slowest member and its bottleneck. A stripe loads all members equally: each
    gets the same share of a common uplink or drive, and the slowest limits all.
    """
    names = [disk.name for disk in disks]
    limits = [(link.bandwidth // names.count(name), link.what) for name, link in links.items()]
    for uplink in shared:
        rate = uplink.bandwidth or 0
        below = [disk.name for disk in disks if disk.name in uplink.members]
        names_below = ", ".join(dict.fromkeys(below))  # two members may be on one drive
        words = f"{uplink.name} ({format_rate(rate)}, {uplink.source}), shared by {names_below}"
        limits.append((rate // len(below), words))
    return min(limits) if limits else (None, "")


def narrowest_link(disk: Disk) -> Bottleneck | None:
    """Return the narrowest link on the path to a drive, or on the widest of several paths; links shared with
    other drives count as unshared.
    """
    bandwidth = attrgetter("bandwidth")
    bottlenecks = [min(links, key=bandwidth) for path in disk.links if (links := tuple(_links(disk, path)))]
    return max(bottlenecks, key=bandwidth, default=None)


def _links(disk: Disk, path: Sequence[LinkHop]) -> Iterator[Bottleneck]:
    yield from (Bottleneck(hop.bandwidth, hop_words(disk, hop)) for hop in path if hop.bandwidth)
    for hop in path:
        if hop.hidden_bandwidth:
            yield Bottleneck(
                hop.hidden_bandwidth, f"{hop.hidden_uplink or 'a hidden link'} above {disk.name}"
            )


def hop_words(disk: Disk, hop: LinkHop) -> str:
    """Return the link in words: "the link of nvme0n1 at 0000:01:00.0, 8 GT/s x2"."""
    speed = f", {hop.speed_gts:g} GT/s x{hop.width}" if hop.speed_gts and hop.width else ""
    return f"the link of {disk.name} at {hop.address}{speed}"


def _together(links: Mapping[str, Bottleneck], shared: Sequence[Uplink], disks: Sequence[Disk]) -> int:
    """Return the bandwidth of all drives at once; drives below an uplink share its bandwidth. Of nested
    uplinks, the one with the fewest drives is applied first.
    """
    rates = {disk.name: links[disk.name].bandwidth for disk in disks if disk.name in links}
    for uplink in sorted(shared, key=lambda uplink: len(uplink.members)):
        below = [name for name in rates if name in uplink.members]
        total = sum(rates[name] for name in below)
        if total > (uplink.bandwidth or 0):
            for name in below:
                rates[name] = rates[name] * (uplink.bandwidth or 0) // total
    return sum(rates.values())


def ceiling_words(bound: Ceiling) -> tuple[str, ...]:
    """Return the ceiling in sentences, for the notes of a plan and the display of an array."""
    if bound.read is None and bound.write is None:
        return ("bandwidth ceiling unknown: the links of these drives are not visible",)
    read, write = (
        "an unknown rate" if rate is None else format_rate(rate) for rate in (bound.read, bound.write)
    )
    carriers = "the links and the drives allow" if bound.rates else "the links allow"
    sentences = [
        f"{carriers} at most {read} for reads, limited by {bound.binds},"
        f" and {write} for writes, limited by {bound.binds_write}"
    ]
    if bound.binds_write in ("", bound.binds):
        sentences = [f"{carriers} at most {read} for reads and {write} for writes, limited by {bound.binds}"]
    if bound.alone:
        most = format_rate(bound.alone)
        sentences.append(
            f"one sequential reader of a RAID1 uses one drive, at most {most}; several readers get more"
        )
    if bound.unknown:
        sentences.append(f"the links of {', '.join(bound.unknown)} are unknown, so the ceiling may be lower")
    return tuple(sentences)
