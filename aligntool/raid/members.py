"""Members of an array: their health and differences, their extents and data offset, and the ranges to
zero.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aligntool.audit.arrays import Member, partition_node
from aligntool.audit.report import Grid
from aligntool.change import RaidGoal
from aligntool.formats.gpt import table_sizes
from aligntool.formats.part_types import ROLES
from aligntool.inventory import Disk, DiskKind, Health, KnownGeometry, LinkHop, TableLabel, Uplink
from aligntool.raid.levels import Level
from aligntool.steps import DataArea, MakeArray, NewEntry, SetPartitionType, Step, wiped_ends
from aligntool.units import MIB, Extent, align_down, align_up, format_about

# Wear and temperature of the members, in words, with warnings.
#
# A drive that reports no health is judged by its other properties, and the report mentions it.

NEARLY_WORN = 80  # per cent of the rated endurance
UNEVEN = 20  # per cent between the least and the most worn


# other kinds have no health of their own
_WITH_HEALTH = (DiskKind.ATA, DiskKind.SCSI, DiskKind.NVME, DiskKind.USB)


def without_health(disks: Sequence[Disk]) -> list[str]:
    """Return the names of the drives whose health was not read."""
    return [
        disk.name for disk in disks if disk.kind in _WITH_HEALTH and disk.health is None and not disk.failing
    ]


def unread_health(disks: Sequence[Disk]) -> Iterator[str]:
    """Yield a sentence that names the drives whose health was not read."""
    names = without_health(disks)
    if names:
        yield f"health not read: {', '.join(names)}; this needs root and smartctl (smartmontools)"


def health_words(health: Health) -> str:
    """Return the health in words: "3 % of its rated endurance used, 100 % of its spare blocks left (warns
    below 10 %), 41 °C".
    """
    warns = "" if health.spare_threshold is None else f" (warns below {health.spare_threshold} %)"
    words = (
        (health.used_percent, f"{health.used_percent} % of its rated endurance used"),
        (health.spare_percent, f"{health.spare_percent} % of its spare blocks left{warns}"),
        (health.media_errors, f"{health.media_errors or 'no'} media errors"),
        (health.temperature_c, f"{health.temperature_c} °C"),
        (health.too_hot or None, "above its temperature threshold"),
    )
    return ", ".join(text for fact, text in words if fact is not None)


def wear_warnings(members: Mapping[str, Health | None]) -> Iterator[str]:
    """Yield what needs attention in the health of the members, a sentence each."""
    known = {name: health for name, health in members.items() if health}
    worn = {name: used for name, health in known.items() if (used := health.used_percent) is not None}
    old = [f"{name} {used} %" for name, used in worn.items() if used >= NEARLY_WORN]
    if old:
        yield f"little rated endurance left: {', '.join(old)} used; equally worn members fail together"
    if worn and max(worn.values()) - min(worn.values()) >= UNEVEN:
        listed = ", ".join(f"{name} {used} %" for name, used in worn.items())
        yield f"the members are unevenly worn: {listed}; the most worn one will need replacement first"
    for name, health in known.items():
        if health.media_errors:
            yield f"{name} reports {health.media_errors} unrecoverable media errors: replace it first"
        if health.too_hot:
            yield f"{name} is above its own temperature threshold and slows down: improve its cooling first"


# Facts about the drives of a planned array.
#
# Nothing here refuses anything; `refusals` does.

Known = Mapping[str, Sequence[KnownGeometry]]
"""The rows of the drive database for each disk, by disk name."""


def member_sentences(
    member: Member, known: Sequence[KnownGeometry], uplinks: Sequence[Uplink] = ()
) -> Iterator[str]:
    """Yield the model, link, formats, memory and wear of a member, a sentence each that begins with its
    name.
    """
    disk = member.disk
    facts = [disk.model or "a drive without a model", f"firmware {disk.firmware}" if disk.firmware else ""]
    facts += [format_about(disk.size or 0), f"{disk.limits.logical_block_size or '?'}-byte sectors"]
    node = disk.numa_node
    facts += [link_words(disk), f"NUMA node {node}" if node is not None and node >= 0 else ""]
    yield f"{member.name}: " + ", ".join(fact for fact in facts if fact)
    yield from (f"{member.name} {words}" for words in shared_words(disk, uplinks))
    yield from _format(member)
    if is_dramless(disk, known):
        yield f"{member.name} has {dramless_words(disk)}: random writes to the array are slower and less even"
    if disk.health and (words := health_words(disk.health)):
        yield f"{member.name}: {words}"


def shared_words(disk: Disk, uplinks: Sequence[Uplink]) -> Iterator[str]:
    """Yield, for example, "shares DMI 3.0 x4 with nvme1n1" for each uplink that the drive shares."""
    for uplink in uplinks:
        others = [name for name in uplink.members if name != disk.name]
        if disk.name in uplink.members and others:
            yield f"shares {uplink.name} with {', '.join(others)}"


def dramless_words(disk: Disk) -> str:
    """Return how much of the host's memory a drive without DRAM requests, and how much it got, in words."""
    nvme = disk.nvme
    if nvme is None or not nvme.hmb_preferred:
        return "no DRAM of its own"
    granted = 0 if nvme.hmb_granted is None and nvme.hmb_enabled is False else nvme.hmb_granted
    got = "" if granted is None else f" and got {format_about(granted) if granted else 'nothing'}"
    return f"no DRAM of its own, requests {format_about(nvme.hmb_preferred)} of host memory{got}"


def link_sentences(member: Member) -> Iterator[str]:
    """Yield a sentence if a drive's link is slower or narrower than the drive supports."""
    hops = [path[0] for path in member.disk.links if path]
    if hops and all(_is_slowed(hop) for hop in hops):
        yield f"{member.name}: {link_words(member.disk)}; limited by its slot or link: aligntool audit -v"


def is_dramless(disk: Disk, known: Sequence[KnownGeometry]) -> bool:
    """Return whether the drive is known to have no DRAM: it requests a Host Memory Buffer, or the database
    says so. Unknown counts as no.
    """
    wants_hmb = disk.nvme is not None and bool(disk.nvme.hmb_preferred)
    return wants_hmb or any(row.dram is False for row in known)


def link_words(disk: Disk) -> str:
    """Return "link 8 GT/s x4, its maximum" or "link 8 GT/s x2 of 8 GT/s x4"; "" if unknown."""
    hop = disk.links[0][0] if disk.links and disk.links[0] else None
    if hop is None or not hop.speed_gts or not hop.width:
        return ""
    most = ", its maximum" if hop.max_speed_gts and hop.max_width else ""
    if _is_slowed(hop) and hop.max_speed_gts:
        most = f" of {hop.max_speed_gts:g} GT/s x{hop.max_width}"
    return f"link {hop.speed_gts:g} GT/s x{hop.width}{most}"


def _is_slowed(hop: LinkHop) -> bool:
    return bool(hop.bandwidth and hop.max_bandwidth and hop.bandwidth < hop.max_bandwidth)


def _format(member: Member) -> Iterator[str]:
    """Yield a sentence about an LBA format without metadata that the drive itself rates better than the one
    in use. Larger blocks alone are no reason to change.
    """
    nvme = member.disk.nvme
    formats = nvme.formats if nvme else ()
    used = next((form for form in formats if nvme and form.index == nvme.format_in_use), None)
    plain = [form for form in formats if form.metadata_size == 0]
    if used is None or not plain:
        return
    best = min(plain, key=lambda form: (form.relative_performance, -form.data_size))
    used_rating = used.relative_performance
    best_rating = best.relative_performance
    blocks = f"{used.data_size}-byte blocks and offers {best.data_size}"
    offer = f"{member.name} is formatted with {blocks} (format {best.index}"
    if best_rating < used_rating:
        rated = f"performance {best_rating} instead of {used_rating}, 0 is best"
        yield f"{offer}; {rated}); to format empty drives first: --lba-size {best.data_size}"
    elif best_rating == used_rating and best.data_size > used.data_size:
        yield f"{offer}), which the drive rates the same: no reason to change"


def differences(members: Sequence[Member], known: Known) -> Iterator[str]:
    """Yield how the members differ, a sentence each; `unused_words` has their sizes."""
    drives = [member.disk for member in members]
    properties: tuple[tuple[str, Callable[[Disk], object]], ...] = (
        ("models", lambda disk: disk.model),
        ("firmware", lambda disk: disk.firmware),
        ("links", lambda disk: link_words(disk) or None),
        ("kinds", lambda disk: disk.kind.value),
        (
            "DRAM",
            lambda disk: (
                "no DRAM" if is_dramless(disk, known.get(disk.name, ())) else "not known to lack DRAM"
            ),
        ),
        (_NUMA, lambda disk: disk.numa_node if disk.numa_node is None or disk.numa_node >= 0 else None),
    )
    for title, read in properties:
        found = {member.name: value for member in members if (value := read(member.disk)) is not None}
        if len(set(found.values())) > 1:
            listed = ", ".join(f"{name} {value}" for name, value in found.items())
            far = "a process on one node reaches the others over the link between the processors"
            why = far if title == _NUMA else "the slowest limits the array"
            yield f"the members have different {title}: {listed}; {why}"
    yield from (f"{disk.name}: {_ODD[disk.kind]}" for disk in drives if disk.kind in _ODD)
    yield from wear_warnings({member.name: member.disk.health for member in members})


# Kinds of disks that are not drives in a slot of this machine, and how they can disappear.
_NUMA = "NUMA nodes"
_ODD = {
    DiskKind.MEMORY: "a disk in memory, whose content is lost at power-off, unless it is persistent memory",
    DiskKind.NETWORK: "reached over a network; the array is degraded while the network is down",
    DiskKind.USB: "on USB; a loose cable removes the member from the array, and flushes may not reach the"
    " drive",
    DiskKind.LOOP: "a file, which after a reboot is a member only when it is attached again",
}


UNUSED = "Not used: "
"""Beginning of the note on what the smallest member makes the others leave free."""
_LITTLE = 100  # a difference of less than a hundredth is that of two drives of the same nominal size


def unused_words(placed: Sequence["Placed"]) -> Iterator[str]:
    """Yield how much of each larger drive the array cannot use, because all members are as long as the
    smallest.
    """
    lengths = {each.member.name: own_length(each) for each in placed}
    least = min(lengths, key=lengths.__getitem__)
    rests = {name: length - lengths[least] for name, length in lengths.items()}
    names: dict[str, list[str]] = {}
    for name, rest in rests.items():
        if rest * _LITTLE > lengths[name]:
            names.setdefault(format_about(rest), []).append(name)
    found = [f"{rest} of {'each of ' if len(of) > 1 else ''}{', '.join(of)}" for rest, of in names.items()]
    if found:
        yield f"{UNUSED}{'; '.join(found)}, because {least} has only {format_about(lengths[least])}"


# The extent of each member, and where the array's data begin in it.
#
# Pure arithmetic. mdadm's default offset is the mistake that this program exists to find: in a partition at 1
# MiB the data begin at 130 MiB, which is not a multiple of 4 MiB.

GRAIN = MIB
DATA_GRAIN = 4 * MIB
SPARE_ROOM = 100 * MIB
HEADROOM = 128 * MIB  # that mdadm reserves for later reshaping, less on small members (super1.c)
METADATA = MIB  # more than superblock, bad block log and bitmap need
TRIES = 64


@dataclass(frozen=True, slots=True)
class Placed:
    """A member with its extent on its drive, its device node, and the entries of its new partition table."""

    member: Member
    device: str
    extent: Extent
    entries: tuple[NewEntry, ...] = ()


def own_length(placed: Placed) -> int:
    """Return the size in bytes of the drive or of the existing partition; the member may use less of it."""
    part = placed.member.partition
    return part.extent.length if part else placed.member.disk.size or 0


def spare_room(goal: RaidGoal, level: Level) -> int:
    """Return the bytes to leave free at the end of each drive, as a replacement may be slightly smaller.
    Members of an array without redundancy cannot be replaced, so it leaves none.
    """
    if goal.spare_room is not None:
        return goal.spare_room
    return SPARE_ROOM if level.redundant else 0


def place_members(members: Sequence[Member], goal: RaidGoal, level: Level) -> tuple[Placed, ...]:
    """Place all members with the same length, as the smallest allows. It can be below 0, which the caller
    refuses.
    """
    existing = goal.whole_drives or any(member.partition for member in members)
    found = [_existing(member, goal, level) if existing else _new(member, goal, level) for member in members]
    length = min(placed.extent.length for placed in found)
    if goal.member_size is not None:
        length = min(length, goal.member_size)
    if level.redundant or not existing:  # a RAID0 uses whole members: md has no size for them
        length = align_down(length, GRAIN)
    return tuple(_cut(placed, length, new=not existing) for placed in found)


def _cut(placed: Placed, length: int, *, new: bool) -> Placed:
    """Limit a member to this length. An existing partition keeps its own length; the array uses only part of
    it.
    """
    extent = Extent(placed.extent.start, length)
    entries = tuple(
        replace(entry, extent=extent) if entry.extent == placed.extent else entry for entry in placed.entries
    )
    return Placed(placed.member, placed.device, extent, entries if new else ())


def _existing(member: Member, goal: RaidGoal, level: Level) -> Placed:
    disk = member.disk
    part = member.partition
    if part:
        return Placed(
            member, f"/dev/{part.node}" if part.node else partition_node(disk.path, part.number), part.extent
        )
    return Placed(member, disk.path, Extent(0, (disk.size or 0) - spare_room(goal, level)))


def _new(member: Member, goal: RaidGoal, level: Level) -> Placed:
    """Place a member in a new GPT, behind an EFI system partition if the goal has one."""
    disk = member.disk
    sector = disk.limits.logical_block_size or disk.sector_size
    end = align_down(disk.size or 0, sector) - table_sizes(sector)[1] - spare_room(goal, level)
    entries: list[NewEntry] = []
    start = first_on_grids(member.grids, MIB)
    if goal.esp_size:
        esp = Extent(start, align_up(goal.esp_size, GRAIN))
        entries.append(NewEntry(1, esp, ROLES["esp"].gpt, "EFI"))
        start = first_on_grids(member.grids, esp.end)
    extent = Extent(start, end - start)
    number = len(entries) + 1
    entries.append(NewEntry(number, extent, ROLES["linux-raid"].gpt, goal.name))
    return Placed(member, partition_node(disk.path, number), extent, tuple(entries))


def first_on_grids(grids: Sequence[Grid], least: int) -> int:
    """Return the first MiB boundary from `least` on, with the phase of the first grid, that is on all the
    grids; if none of the first TRIES is, the first boundary.
    """
    phase = grids[0].phase if grids else 0
    first = align_up(least, GRAIN, phase)
    return next(
        (start for start in range(first, first + TRIES * GRAIN, GRAIN) if _is_on_grids(grids, start)), first
    )


def _is_on_grids(grids: Sequence[Grid], offset: int) -> bool:
    return all(grid.off_by(offset) == 0 for grid in grids)


@dataclass(frozen=True, slots=True)
class DataOffset:
    """The data offset: `size` bytes from the start of each member, 0 if the data begin with the member.
    `off`: members whose data are off their grids.
    """

    size: int
    grain: int  # of the data's start on the drives, relative to the phase of their sectors; 0: no common one
    off: tuple[str, ...] = ()


def data_offset(placed: Sequence[Placed], goal: RaidGoal) -> DataOffset:
    """Return the least offset that leaves mdadm's headroom and puts the data of every member on a multiple of
    4 MiB, else of 1 MiB, else on their grids only.
    """
    if goal.metadata == "1.0":
        return DataOffset(0, 0, _off_grids(placed, 0))
    least = align_up(headroom(min(place.extent.length for place in placed)) + METADATA, MIB)
    tries = range(least, least + TRIES * MIB, MIB)
    for grain in (DATA_GRAIN, GRAIN, 0):
        for size in tries:
            if not _off_grids(placed, size) and all(_is_on_grain(place, size, grain) for place in placed):
                return DataOffset(size, grain)
    return DataOffset(least, 0, _off_grids(placed, least))


def headroom(length: int) -> int:
    """Return the headroom in bytes as mdadm computes it: 128 MiB, halved until it is at most a 1024th of the
    member.
    """
    room = HEADROOM
    while room * 1024 > length and room > MIB:
        room //= 2
    return room


def _off_grids(placed: Sequence[Placed], size: int) -> tuple[str, ...]:
    return tuple(
        place.device for place in placed if not _is_on_grids(place.member.grids, place.extent.start + size)
    )


def _is_on_grain(placed: Placed, size: int, grain: int) -> bool:
    phase = placed.member.grids[0].phase if placed.member.grids else 0
    return not grain or (placed.extent.start + size - phase) % grain == 0


# The partition type of an existing partition that becomes a member.
#
# It is the only change in a table that is kept: with the type of a swap space, of /home or of an EFI system
# partition, systemd-gpt-auto-generator(8), installers and firmware would mistake a member for one of these.


def type_steps(placed: Sequence[Placed]) -> Iterator[SetPartitionType]:
    """Yield the steps that set the types of member partitions. They come after the array: until it is made,
    the tables have to be as planned.
    """
    for place in placed:
        part = place.member.partition
        path = place.member.disk.path
        wanted = _raid_type(place.member)
        if part is not None and wanted and part.type_code.removeprefix("0x").upper() != wanted.upper():
            yield SetPartitionType(path, part.number, wanted)


def _raid_type(member: Member) -> str:
    """Return the type of RAID members as sfdisk takes it, a GUID or a byte without 0x; "" if the kind of
    table has none.
    """
    role = ROLES["linux-raid"]
    table = member.disk.table
    types = {TableLabel.GPT: role.gpt, TableLabel.DOS: (role.mbr or "").removeprefix("0x")}
    return types.get(table.label, "") if table else ""


# The ranges of a drive that are zeroed when its content is overwritten by an array.
#
# The plan shows them and applying zeroes them: both call this.


def array_of(steps: Sequence[Step]) -> MakeArray | None:
    """Return the step that creates the array, or None."""
    return next((step for step in steps if isinstance(step, MakeArray)), None)


def data_area(steps: Sequence[Step]) -> DataArea:
    """Return the data area on each member of the array that these steps create."""
    made = array_of(steps)
    return made.data if made else DataArea()


def ranges_to_zero(
    disk: Disk, entries: Sequence[NewEntry], taken: Extent | None, area: DataArea
) -> tuple[Extent, ...]:
    """Return the ranges of the drive to zero: a MiB at both ends of the drive, of each old and new partition,
    and of the array's data.

    `entries`: of the new table, the member last. `taken`: the existing partition that becomes the member;
    then nothing outside it is zeroed. Sorted, without overlaps.
    """
    sector_size = disk.limits.logical_block_size or disk.sector_size
    if taken is not None:
        return wiped_ends((taken, area.of(taken)), taken, sector_size)
    whole = Extent(0, disk.size or 0)
    member = entries[-1].extent if entries else whole
    parts = [part.extent for part in disk.partitions] + [entry.extent for entry in entries]
    return wiped_ends((whole, *parts, area.of(member)), whole, sector_size)
