"""Where the members lie, and where the array's data begin in each.

In: the members and the goal. Out: an extent for each member, the entries of new tables, and one data offset that puts
the data of every member on its grids. Alone because it is arithmetic, and because mdadm's default offset is the mistake
this program exists to find: from a partition at 1 MiB it begins at 130 MiB, which is no multiple of 4 MiB.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aligntool.audit import Grid
from aligntool.plan import NewEntry, RaidGoal
from aligntool.raid.levels import Level
from aligntool.raid.members import Member, partition_node
from aligntool.recipe.roles import ROLES
from aligntool.units import KIB, MIB, Extent, align_down, align_up

GRAIN = MIB
DATA_GRAIN = 4 * MIB
SPARE_ROOM = 100 * MIB
HEADROOM = 128 * MIB  # mdadm leaves as much for later reshaping, and less on small members (super1.c)
METADATA = MIB  # superblock, bad block log and bitmap take less
GPT_ENTRIES = 16 * KIB  # UEFI 5.3.1
TRIES = 64


@dataclass(frozen=True, slots=True)
class Placed:
    """One member: where it lies on its drive, what it is called, and the table that is made for it."""

    member: Member
    device: str
    extent: Extent
    entries: tuple[NewEntry, ...] = ()


def own_length(placed: Placed) -> int:
    """Of the drive, or of the partition that is taken: the member may use less."""
    part = placed.member.partition
    return part.extent.length if part else placed.member.disk.size or 0


def spare_room(goal: RaidGoal, level: Level) -> int:
    """A replacement may be a little smaller; an array without redundancy has none."""
    if goal.spare_room is not None:
        return goal.spare_room
    return SPARE_ROOM if level.redundant else 0


def place_members(members: Sequence[Member], goal: RaidGoal, level: Level) -> tuple[Placed, ...]:
    """As long as the smallest allows, all alike. A length below 0 is possible: the caller refuses it."""
    taken = goal.whole_drives or any(member.partition for member in members)
    found = [_taken(member, goal, level) if taken else _new(member, goal, level) for member in members]
    length = min(placed.extent.length for placed in found)
    if goal.member_size is not None:
        length = min(length, goal.member_size)
    if level.redundant or not taken:  # a RAID0 takes all of what is there: md has no size for its members
        length = align_down(length, GRAIN)
    return tuple(_cut(placed, length, new=not taken) for placed in found)


def _cut(placed: Placed, length: int, *, new: bool) -> Placed:
    """A partition that is taken keeps its own length; the array uses no more than the smallest of it."""
    extent = Extent(placed.extent.start, length)
    entries = tuple(
        NewEntry(entry.number, extent, entry.type_code, entry.name)
        if entry.extent == placed.extent
        else entry
        for entry in placed.entries
    )
    return Placed(placed.member, placed.device, extent, entries if new else ())


def _taken(member: Member, goal: RaidGoal, level: Level) -> Placed:
    part = member.partition
    extent = part.extent if part else Extent(0, member.disk.size or 0)
    device = f"/dev/{part.node}" if part and part.node else member.disk.path
    if part and not part.node:
        device = partition_node(member.disk.path, part.number)
    room = 0 if part else spare_room(goal, level)
    return Placed(member, device, Extent(extent.start, extent.length - room))


def _new(member: Member, goal: RaidGoal, level: Level) -> Placed:
    """A GPT with, if asked for, an EFI system partition, and the member."""
    disk = member.disk
    sector = disk.limits.logical_block_size or disk.sector_size
    end = (
        align_down(disk.size or 0, sector) - sector - align_up(GPT_ENTRIES, sector) - spare_room(goal, level)
    )
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
    """The first MiB, shifted as the first grid is, that lies on all the grids; where none soon does, the first MiB."""
    phase = grids[0].phase if grids else 0
    first = align_up(least, GRAIN, phase)
    return next((at for at in range(first, first + TRIES * GRAIN, GRAIN) if _on(grids, at)), first)


def _on(grids: Sequence[Grid], offset: int) -> bool:
    return all(grid.off_by(offset) == 0 for grid in grids)


@dataclass(frozen=True, slots=True)
class DataOffset:
    """`size` bytes from the start of each member; 0: the data begin with the member. `off`: members off their grids."""

    size: int
    grain: int  # of the data's start on the drives, counted from where the drives' sectors begin; 0: none for all
    off: tuple[str, ...] = ()


def data_offset(placed: Sequence[Placed], goal: RaidGoal) -> DataOffset:
    """The least that leaves mdadm's headroom and puts the data of every member on 4 MiB, else on their grids."""
    if goal.metadata == "1.0":
        return DataOffset(0, 0, _off(placed, 0))
    least = align_up(headroom(min(each.extent.length for each in placed)) + METADATA, MIB)
    tries = range(least, least + TRIES * MIB, MIB)
    for grain in (DATA_GRAIN, GRAIN, 0):
        for size in tries:
            if not _off(placed, size) and all(_on_grain(each, size, grain) for each in placed):
                return DataOffset(size, grain)
    return DataOffset(least, 0, _off(placed, least))


def headroom(length: int) -> int:
    """As mdadm reckons it: 128 MiB, halved until it is at most a 1024th of the member."""
    room = HEADROOM
    while room * 1024 > length and room > MIB:
        room //= 2
    return room


def _off(placed: Sequence[Placed], size: int) -> tuple[str, ...]:
    return tuple(each.device for each in placed if not _on(each.member.grids, each.extent.start + size))


def _on_grain(each: Placed, size: int, grain: int) -> bool:
    phase = each.member.grids[0].phase if each.member.grids else 0
    return not grain or (each.extent.start + size - phase) % grain == 0
