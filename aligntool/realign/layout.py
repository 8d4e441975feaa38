"""A disk without a table, and what is wanted of it -> the plan of a new table.

In: a judged disk and a LayoutGoal. Out: a Plan with the one step MakeTable, or Refused with all reasons at once. Alone
because nothing moves here: where a realign has to find room, a layout has only to be careful with what it places.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from aligntool.audit import Judged
from aligntool.errors import Refused, refuse
from aligntool.inventory import Disk
from aligntool.plan import LayoutGoal, MakeTable, NewEntry, PartWish, Place, Plan, Subject
from aligntool.plan.wiping import wiped_ends
from aligntool.realign.lattice import Lattice
from aligntool.realign.layout_grid import layout_lattice
from aligntool.realign.layout_refusals import TABLE_NAMES, holdings, refuse_impossible
from aligntool.realign.subject import subject
from aligntool.recipe.roles import ROLES
from aligntool.units import KIB, MIB, Extent, align_down, align_up, format_about, format_size

# The room that GRUB's manual recommends to leave before the first partition (BIOS installation).
LEAST_START = MIB
GPT_ENTRIES = 16 * KIB  # 128 entries of 128 bytes, what UEFI asks for at least (5.3.1)


def plan_layout(judged: Judged, goal: LayoutGoal) -> Plan:
    """Every start on the disk's grids and on the goal's grain, every length a multiple of that grain.

    Raises Refused: the disk is in use, not empty, too small, or the goal is not possible.
    """
    disk = judged.disk
    refuse_impossible(disk, goal)
    sector_size = table_sector(disk)
    grid, grid_notes = layout_lattice(
        judged.grids,
        goal.grain,
        sector_size=sector_size,
        disk_size=disk.size or 0,
        count=len(goal.parts),
    )
    room = _room(disk.size or 0, goal, sector_size)
    extents = _placed(goal, room, grid)
    _refuse_beyond_mbr(disk, goal, extents, sector_size)
    step = MakeTable(goal.label, _entries(goal, extents), goal.wipe)
    return Plan(
        purpose="layout",
        disk=layout_subject(disk),
        goal=f"a new {TABLE_NAMES[goal.label]} with {_counted(len(extents), 'partition')}, "
        f"every start on {format_size(grid.size)}",
        places=tuple(_place(entry, goal.parts[entry.number - 1], grid) for entry in step.entries),
        steps=(step,),
        attention=layout_attention(disk, wipe=goal.wipe),
        notes=(*grid_notes, *_notes(disk, goal, extents, room, step)),
    )


def table_sector(disk: Disk) -> int:
    """Bytes in the sectors that a new table counts in: the device's own, whatever an old table was made for."""
    return disk.limits.logical_block_size or disk.sector_size


def layout_subject(disk: Disk) -> Subject:
    """The disk's identity, with the sectors of its table to come."""
    return replace(subject(disk), sector_size=table_sector(disk))


def layout_attention(disk: Disk, *, wipe: bool) -> tuple[str, ...]:
    """What is lost, and what is left to do. The same as long as nobody puts anything else on the disk."""
    lost = tuple(f"lost: {each}" for each in holdings(disk)) if wipe else ()
    return (*lost, "the partitions are empty: each still needs its file system, array member or swap header")


def wiped_ranges(disk: Disk, step: MakeTable) -> tuple[Extent, ...]:
    """Both ends of the disk, of what is on it, and of what will be. Sorted, and no two of them overlap."""
    whole = Extent(0, disk.size or 0)
    things = [whole, *(part.extent for part in disk.partitions), *(entry.extent for entry in step.entries)]
    return wiped_ends(things, whole, table_sector(disk))  # an old table may have counted in smaller sectors


def _room(size: int, goal: LayoutGoal, sector_size: int) -> Extent:
    """Where partitions may lie: after the first MiB, before the backup GPT, before what is left free on purpose."""
    end = align_down(size, sector_size)
    if goal.label == "gpt":
        end -= sector_size + align_up(GPT_ENTRIES, sector_size)
    return Extent(LEAST_START, max(end - goal.spare_end - LEAST_START, 0))


def _placed(goal: LayoutGoal, room: Extent, grid: Lattice) -> tuple[Extent, ...]:
    """From the front up to the one that takes the rest, and from the back down to it."""
    lengths = [None if part.size is None else align_up(part.size, goal.grain) for part in goal.parts]
    rest = lengths.index(None) if None in lengths else len(lengths)
    before, behind = [], []
    at, end = room.start, align_down(room.end, goal.grain, grid.phase)
    for length in lengths[:rest]:
        before.append(Extent(grid.up(at), length or 0))
        at = before[-1].end
    for length in reversed(lengths[rest + 1 :]):
        behind.append(Extent(grid.down(end - (length or 0)), length or 0))
        end = behind[-1].start
    left = []
    if rest < len(lengths):
        start = grid.up(at)
        left = [Extent(start, align_down(end - start, goal.grain))]
        at = start + goal.grain  # as little as it may be
    if at > end:
        _refuse_small(room, at - end)
    return (*before, *left, *reversed(behind))


def _refuse_small(room: Extent, missing: int) -> NoReturn:
    raise Refused(
        f"the disk is too small by {_exactly(missing)}: there are {_exactly(room.length)} for partitions",
        hint="ask for less, or give one partition the rest: --part rest:linux",
    )


def _refuse_beyond_mbr(disk: Disk, goal: LayoutGoal, extents: Sequence[Extent], sector_size: int) -> None:
    """An MBR entry has 32 bits each for its first sector and its number of sectors."""
    limit = 2**32 * sector_size
    far = [index for index, each in enumerate(extents, 1) if each.end > limit or each.length >= limit]
    if goal.label == "dos" and far:
        reasons = [
            (
                f"partition {index} would end at byte {extents[index - 1].end} of {disk.name}, and an MBR reaches no "
                f"farther than {format_size(limit)}",
                "--label gpt",
            )
            for index in far
        ]
        refuse(reasons)


def _entries(goal: LayoutGoal, extents: Sequence[Extent]) -> tuple[NewEntry, ...]:
    entries = []
    for number, (part, extent) in enumerate(zip(goal.parts, extents, strict=True), 1):
        role = ROLES[part.role]
        if goal.label == "gpt":
            entries.append(NewEntry(number, extent, role.gpt, part.name))
        else:
            entries.append(NewEntry(number, extent, role.mbr or "", active=role.active))
    return tuple(entries)


def _place(entry: NewEntry, part: PartWish, grid: Lattice) -> Place:
    title = ROLES[part.role].title
    what = f'{title} "{entry.name}"' if entry.name else title
    return Place(entry.number, None, entry.extent, what, f"on {format_size(grid.size)}")


def _notes(
    disk: Disk, goal: LayoutGoal, extents: Sequence[Extent], room: Extent, step: MakeTable
) -> tuple[str, ...]:
    notes = [
        f"partition {number} is {format_size(extent.length)}, not {format_size(part.size)}: lengths are multiples of "
        f"{format_size(goal.grain)}"
        for number, (part, extent) in enumerate(zip(goal.parts, extents, strict=True), 1)
        if part.size is not None and part.size != extent.length
    ]
    left = room.end - max(extent.end for extent in extents)
    if left >= goal.grain:
        notes.append(f"{format_size(left)} stay free behind the last partition")
    if goal.spare_end:
        notes.append(f"{format_size(goal.spare_end)} are left free at the end, as asked for")
    if goal.label == "dos" and any(part.name for part in goal.parts):
        notes.append("an MBR has no room for the names of partitions; they are left out")
    if goal.wipe:
        ranges = ", ".join(f"{one.start}-{one.end - 1}" for one in wiped_ranges(disk, step))
        notes.append(f"zeroed first, so that no old signature comes back: bytes {ranges}")
    return tuple(notes)


def _exactly(size: int) -> str:
    return f"{format_about(size)} ({size}B)"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
