"""What the links let through: the bandwidth that no array on these drives can exceed, and the link that binds.

In: disks with their paths, and the uplinks that several of them share. Out: bytes per second for reading and writing,
and who says so. Alone because it needs no goal: an array that exists has a ceiling as well. The drives' own speed is
not
known here; a ceiling is what the way to them carries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aligntool.inventory import Disk, LinkHop, Uplink
from aligntool.raid.levels import Level, copies_of
from aligntool.units import format_about


@dataclass(frozen=True, slots=True)
class Lane:
    """The narrowest place on the way to one drive."""

    disk: str
    bandwidth: int
    what: str


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Bytes per second. None: no link on the way is known."""

    read: int | None
    write: int | None
    binds: str  # what has to get faster for the array to get faster
    unknown: tuple[str, ...] = ()  # drives whose path is not known
    alone: int | None = None  # one sequential reader, where that is less than `read`


def ceiling(disks: Sequence[Disk], uplinks: Sequence[Uplink], level: Level, layout: str) -> Ceiling:
    """Of an array of these drives. A member counts as often as it is named."""
    lanes = {disk.name: lane for disk in disks if (lane := narrowest(disk))}
    unknown = tuple(disk.name for disk in disks if disk.name not in lanes)
    shared = [uplink for uplink in uplinks if uplink.bandwidth and _count(uplink, disks)]
    limits = [(lane.bandwidth, lane.what) for lane in lanes.values()]
    limits += [(_share(uplink, disks), _uplink_words(uplink, disks)) for uplink in shared]
    if not limits:
        return Ceiling(None, None, "", unknown)
    each, binds = min(limits)
    count = len(disks)
    if level.word == "raid1":
        # Mirrors read independently: each as fast as its own way lets it. All of them are written.
        read = _together(lanes, shared, disks)
        alone = max((lane.bandwidth for lane in lanes.values()), default=None)
        return Ceiling(None if unknown else read, each, binds, unknown, alone)
    data = (count - level.parity) * each // copies_of(level, count, layout)
    return Ceiling(count * each, data, binds, unknown)


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
    said = [f"the links carry at most {read} reading and {write} writing; {found.binds} binds"]
    if found.alone:
        said.append(
            f"one sequential reader of a RAID1 gets one drive, at most {rate(found.alone)}; several get more"
        )
    if found.unknown:
        said.append(f"the links of {', '.join(found.unknown)} are not known, so the ceiling may be lower")
    return tuple(said)


def rate(bandwidth: int) -> str:
    """As drives and links are sold, in powers of ten: 3.94 GB/s."""
    if bandwidth >= 10**9:
        return f"{bandwidth / 10**9:.2f} GB/s"
    if bandwidth >= 10**6:
        return f"{bandwidth / 10**6:.0f} MB/s"
    return f"{format_about(bandwidth)}/s"
