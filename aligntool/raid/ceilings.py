"""What the way to the drives and the drives themselves let through: the bandwidth that no array on them can exceed.

In: disks with their paths, the uplinks that several of them share, and the drives' own rates where they are known. Out:
bytes per second for reading and writing, and who binds. Alone because it needs no goal: an array that exists has a
ceiling as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aligntool.inventory import Disk, KnownGeometry, LinkHop, Uplink
from aligntool.raid.levels import Level, copies_of
from aligntool.units import format_rate


@dataclass(frozen=True, slots=True)
class Lane:
    """The narrowest place on the way to one drive, or the drive itself."""

    disk: str
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
    """What the drive database says; the first row that says something counts."""
    found = {}
    for name, rows in known.items():
        row = next((row for row in rows if row.read_rate or row.write_rate), None)
        if row is not None:
            found[name] = DriveRate(row.read_rate, row.write_rate, f"{row.source}: {row.row}")
    return found


def ceiling(
    disks: Sequence[Disk], uplinks: Sequence[Uplink], level: Level, layout: str, rates: Rates = _NO_RATES
) -> Ceiling:
    """Of an array of these drives. A member counts as often as it is named."""
    links = {disk.name: lane for disk in disks if (lane := narrowest(disk))}
    shared = [uplink for uplink in uplinks if uplink.bandwidth and _count(uplink, disks)]
    reading = _with_drives(links, disks, {name: (one.read, one.by) for name, one in rates.items()})
    writing = _with_drives(links, disks, {name: (one.write, one.by) for name, one in rates.items()})
    unknown = tuple(disk.name for disk in disks if disk.name not in links)
    told = bool(rates)
    read_each, binds = _slowest(reading, shared, disks)
    write_each, binds_write = _slowest(writing, shared, disks)
    if level.word == "raid1":
        # Mirrors read independently: each as fast as its own way lets it. All of them are written.
        seen = all(disk.name in reading for disk in disks)
        read = _together(reading, shared, disks) if seen else None
        alone = max((lane.bandwidth for lane in reading.values()), default=None)
        return Ceiling(read, write_each, binds, unknown, alone, binds_write, told)
    count = len(disks)
    whole = None if read_each is None else count * read_each
    data = (
        None if write_each is None else (count - level.parity) * write_each // copies_of(level, count, layout)
    )
    return Ceiling(whole, data, binds, unknown, None, binds_write, told)


def _with_drives(
    links: Mapping[str, Lane], disks: Sequence[Disk], rates: Mapping[str, tuple[int | None, str]]
) -> dict[str, Lane]:
    """Each drive's narrowest place, where the drive itself may be that."""
    found = dict(links)
    for disk in disks:
        own, by = rates.get(disk.name, (None, ""))
        if own and (disk.name not in found or own < found[disk.name].bandwidth):
            found[disk.name] = Lane(disk.name, own, f"{disk.name} itself ({rate(own)}, {by})")
    return found


def _slowest(
    lanes: Mapping[str, Lane], shared: Sequence[Uplink], disks: Sequence[Disk]
) -> tuple[int | None, str]:
    """A stripe loads all members alike, so the slowest share binds all of them."""
    limits = [(lane.bandwidth, lane.what) for lane in lanes.values()]
    limits += [(_share(uplink, disks), _uplink_words(uplink, disks)) for uplink in shared]
    return min(limits) if limits else (None, "")


def narrowest(disk: Disk) -> Lane | None:
    """Of several paths the widest counts; what it shares with other drives is not looked at here."""
    ways = [way for path in disk.links if (way := _narrowest_hop(disk, path))]
    return max(ways, key=lambda lane: lane.bandwidth, default=None)


def _narrowest_hop(disk: Disk, path: Sequence[LinkHop]) -> Lane | None:
    found = [(hop.bandwidth, hop_words(disk, hop)) for hop in path if hop.bandwidth]
    found += [
        (hop.hidden_bandwidth, f"{hop.hidden_uplink or 'a hidden link'} above {disk.name}")
        for hop in path
        if hop.hidden_bandwidth
    ]
    if not found:
        return None
    bandwidth, what = min(found, key=lambda each: each[0] or 0)
    return Lane(disk.name, bandwidth or 0, what)


def hop_words(disk: Disk, hop: LinkHop) -> str:
    """ "the link of nvme0n1 at 0000:01:00.0, 8 GT/s x2"."""
    speed = f", {hop.speed_gts:g} GT/s x{hop.width}" if hop.speed_gts and hop.width else ""
    return f"the link of {disk.name} at {hop.address}{speed}"


def _count(uplink: Uplink, disks: Sequence[Disk]) -> int:
    return sum(disk.name in uplink.members for disk in disks)


def _share(uplink: Uplink, disks: Sequence[Disk]) -> int:
    """Stripes load all members alike, so each gets the same part of what they share."""
    return (uplink.bandwidth or 0) // _count(uplink, disks)


def _uplink_words(uplink: Uplink, disks: Sequence[Disk]) -> str:
    below = ", ".join(disk.name for disk in disks if disk.name in uplink.members)
    return f"{uplink.name} ({rate(uplink.bandwidth or 0)}, {uplink.source}), shared by {below}"


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
    read = rate(found.read) if found.read is not None else "not known"
    write = rate(found.write) if found.write is not None else "not known"
    who = "the links and the drives carry" if found.rates else "the links carry"
    if found.binds_write in ("", found.binds):
        said = [f"{who} at most {read} reading and {write} writing; {found.binds} binds"]
    else:
        said = [
            f"{who} at most {read} reading ({found.binds} binds) and {write} writing ({found.binds_write} binds)"
        ]
    if found.alone:
        said.append(
            f"one sequential reader of a RAID1 gets one drive, at most {rate(found.alone)}; several get more"
        )
    if found.unknown:
        said.append(f"the links of {', '.join(found.unknown)} are not known, so the ceiling may be lower")
    return tuple(said)


def rate(bandwidth: int) -> str:
    """As drives and links are sold, in powers of ten: 3.94 GB/s."""
    return format_rate(bandwidth)
