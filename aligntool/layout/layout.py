"""Plan and write a new partition layout."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from aligntool.audit.report import Grid, GridKind, Judged, Severity
from aligntool.audit.wording import LABELS, LOST, ZEROED, contents_or_data, grid_words
from aligntool.change import (
    Event,
    LayoutGoal,
    PartitionRequest,
    Place,
    Plan,
    Said,
    StepBegun,
    StepDone,
    TablePlan,
)
from aligntool.commands import ByHand, by_hand, command
from aligntool.device import Device, zero
from aligntool.documents import LARGEST
from aligntool.errors import Refusal, Refused, Stopped, refuse
from aligntool.formats.gpt import GptCopy, read_copy, table_sizes
from aligntool.formats.mbr import ADDRESSABLE, entries_of, with_entries
from aligntool.formats.part_types import ROLES
from aligntool.inventory import Disk
from aligntool.linux.content import places_for_data, sample
from aligntool.linux.held import TRY_AGAIN, status_of
from aligntool.linux.lock import lock_disk
from aligntool.linux.sysfs import live_paths
from aligntool.realign.placing import StartGrid, on_grain, required_grid
from aligntool.realign.refusals import goal_refusals, refuse_impossible, refuse_unfit
from aligntool.steps import (
    FormatDrive,
    MakeMember,
    MakeTable,
    NewEntry,
    Subject,
    is_same_disk,
    subject,
    wiped_ends,
)
from aligntool.units import (
    MIB,
    Extent,
    align_down,
    align_up,
    counted,
    format_about,
    format_size,
    is_sector_size,
    off_by,
)

if TYPE_CHECKING:
    import parted


# Types, names and the active flag, written into a table that libparted has just made.
#
# Libparted before 3.6 can set neither a type GUID nor a type byte
# (docs/decisions/0009-types-after-libparted.md). aligntool writes nothing else of a new table itself.

_NAME_LENGTH = 72  # bytes: UEFI specification 5.3.3, "GPT Partition Entry"
_ACTIVE = 0x80


def set_types(device: Device, step: MakeTable | MakeMember) -> None:
    """Write the types and names into the entries, and flush. Raises OSError, and Stopped if the table of
    libparted is missing.
    """
    if step.label == "gpt":
        alternate = _copy(device, 1).header.other_lba
        for lba in (alternate, 1):  # one copy is valid at every moment
            copy = _copy(device, lba)
            changed = {entry.number: entry for entry in copy.used_entries()}
            for new in step.entries:
                guid = UUID(new.type_code).bytes_le
                name = new.name.encode("utf-16-le").ljust(_NAME_LENGTH, b"\0")
                changed[new.number] = replace(changed[new.number], type_guid=guid, raw_name=name)
            for sectors in copy.with_entries(changed).write_order:
                device.write(sectors.at, sectors.data)
            device.flush()
    else:
        _set_in_mbr(device, step.entries)


def _copy(device: Device, lba: int) -> GptCopy:
    copy = read_copy(device, lba, device.sector_size)
    if copy is None:
        raise Stopped(f"the header of the new GPT is missing from sector {lba}")
    return copy


def _set_in_mbr(device: Device, entries: Sequence[NewEntry]) -> None:
    sector = bytes(device.read(0, device.sector_size))
    written = entries_of(sector)
    if written is None:
        raise Stopped("the new MBR in sector 0 does not end in 55 AA")
    changed = {}
    for new in entries:
        boot = _ACTIVE if new.active else 0
        code = int(new.type_code, 16)
        changed[new.number] = replace(written[new.number - 1], boot=boot, code=code)
    device.write(0, with_entries(sector, changed))
    device.flush()


# The grid for the starts of a new layout: all required grids, and preferred grids that cost little. Unlike a
# realign, which must not move data for a preference, on an empty disk alignment to an erase block or a stripe
# costs only a gap.

# A preferred grid may leave no gap longer than this, and all gaps together take at most this fraction of the
# disk.
_LONGEST_GAP = 64 * MIB
_SHARE_OF_DISK = 64


def layout_grid(
    grids: Sequence[Grid], grain: int, *, sector_size: int, disk_size: int, count: int
) -> tuple[StartGrid, tuple[str, ...]]:
    """Return the grid for starts, and notes on it. `grain` and `disk_size` in bytes; `count`: the number of
    partitions, each of which may leave a gap before it.
    """
    errors = [grid for grid in grids if grid.severity is Severity.ERROR]
    warnings = [grid for grid in grids if grid.severity is Severity.WARNING]
    notes: list[str] = []
    need = required_grid([*errors, *warnings], sector_size)
    if need is None:
        need = required_grid(errors, sector_size) or StartGrid(sector_size)
        warning_names = ", ".join(_grid_name(grid) for grid in warnings)
        notes.append(
            f"no start can be aligned to both the physical sectors and {warning_names}; the sectors take"
            " precedence"
        )
    found = on_grain(need, grain)
    notes += [
        f"starts are also aligned to {_grid_name(grid)}" for grid in (*errors, *warnings) if grain % grid.size
    ]
    for grid in grids:
        if grid.severity is not Severity.INFO or grid.kind is GridKind.GRAIN:
            continue
        both = on_grain(found, grid.size)
        gap = both.size - found.size
        cheap = both.size <= _LONGEST_GAP and gap * count * _SHARE_OF_DISK <= disk_size
        if off_by(found.phase, grid.size, grid.phase):
            notes.append(f"no start can be aligned to both the physical sectors and {_grid_name(grid)}")
        elif gap and cheap:
            notes.append(f"starts are also aligned to {_grid_name(grid)}")
            found = both
        elif gap:
            notes.append(
                f"{_grid_name(grid)} would leave gaps of up to {format_size(both.size)} and is not used"
            )
    return found, tuple(notes)


def _grid_name(grid: Grid) -> str:
    return f"{format_size(grid.size)} ({grid_words(grid)})"


# From a disk without a table and a goal to the plan of a new table.

# GRUB's manual recommends to leave this space before the first partition (BIOS installation).
LEAST_START = MIB


def plan_layout(judged: Judged, goal: LayoutGoal) -> TablePlan:
    """Return the plan of a table with every start on the disk's grids and on the goal's grain, and every
    length a multiple of that grain.

    The plan has no steps if the disk already has that table, unless it is to be wiped.

    Raises Refused if the disk is in use, not empty or too small, or the goal is impossible.
    """
    disk = judged.disk
    if disk.partitions and not goal.wipe and not any(goal_refusals(disk, goal)):
        with suppress(Refused):
            plan = _plan_new_table(judged, goal)
            if _has_table(disk, plan):
                places = tuple(
                    replace(place, before=place.after, why="already there") for place in plan.places
                )
                title = plan.goal.removeprefix("a new ")
                return replace(plan, goal=title, places=places, steps=(), attention=(), notes=())
    refuse_impossible(disk, goal, judged.above)
    return _plan_new_table(judged, goal)


def _plan_new_table(judged: Judged, goal: LayoutGoal) -> TablePlan:
    disk = judged.disk
    sector_size = table_sector(judged.disk)
    size = disk.size or 0
    count = len(goal.parts)
    grid, grid_notes = layout_grid(
        judged.grids, goal.grain, sector_size=sector_size, disk_size=size, count=count
    )
    room = _room(size, goal, sector_size)
    extents = _place_parts(goal, room, grid)
    if goal.label == "dos":
        refuse(_beyond_mbr(disk, extents, sector_size))
    step = MakeTable(goal.label, _entries(goal, extents), goal.wipe)
    parts = counted(len(extents), "partition")
    on = format_size(grid.size)
    title = f"a new {LABELS[goal.label]} with {parts}, every start on {on}"
    places = tuple(_place(entry, goal.parts[entry.number - 1], grid) for entry in step.entries)
    notes = (*grid_notes, *_notes(disk, goal, extents, room, step))
    attention = layout_attention(disk, wipe=goal.wipe)
    return TablePlan("layout", layout_subject(disk), title, places, (step,), attention, notes)


def _has_table(disk: Disk, plan: TablePlan) -> bool:
    """Return whether the disk has exactly these entries; the active flag is not compared."""
    (step,) = plan.of(MakeTable)
    if not (disk.table and disk.table.label == step.label and not disk.table.faults):
        return False
    found = [(part.number, part.extent, part.type_code, part.name or "") for part in disk.partitions]
    return found == [(entry.number, entry.extent, entry.type_code, entry.name) for entry in step.entries]


def table_sector(disk: Disk) -> int:
    """Return the sector size of a new table: that of the device, not of an old table."""
    return disk.limits.logical_block_size or disk.sector_size


def layout_subject(disk: Disk) -> Subject:
    """Return the disk's identity, with the sectors of its new table."""
    return replace(subject(disk), sector_size=table_sector(disk))


def layout_attention(disk: Disk, *, wipe: bool) -> tuple[str, ...]:
    """Return what is lost and what remains to do; the same as long as the content of the disk is
    unchanged.
    """
    lost = tuple(f"{LOST}{content}" for content in contents_or_data(disk)) if wipe else ()
    to_fill = by_hand(ByHand.FILLING, "mkfs, mkswap, pvcreate or mdadm")
    needs = "each still needs its file system, swap header or member"
    return (*lost, f"nothing is written into the partitions: {needs}: {to_fill}")


def wiped_ranges(disk: Disk, step: MakeTable) -> tuple[Extent, ...]:
    """Return the bytes to wipe: both ends of the disk and of every old and new partition, sorted and
    disjoint.
    """
    whole = Extent(0, disk.size or 0)
    pieces = [whole, *(part.extent for part in disk.partitions), *(entry.extent for entry in step.entries)]
    return wiped_ends(pieces, whole, table_sector(disk))  # an old table may have counted in smaller sectors


def _room(size: int, goal: LayoutGoal, sector_size: int) -> Extent:
    """Return where partitions may lie: after the first MiB, before backup GPT and reserved space at the
    end.
    """
    end = align_down(size, sector_size)
    if goal.label == "gpt":
        end -= table_sizes(sector_size)[1]
    return Extent(LEAST_START, max(end - goal.spare_end - LEAST_START, 0))


def _place_parts(goal: LayoutGoal, room: Extent, grid: StartGrid) -> tuple[Extent, ...]:
    """Return the extents of the partitions. Those before the one that takes the rest are placed from the
    start of the room, those behind it from the end. Raises Refused if the disk is too small.
    """
    lengths = [None if part.size is None else align_up(part.size, goal.grain) for part in goal.parts]
    rest = lengths.index(None) if None in lengths else len(lengths)
    before = []
    behind = []
    at = room.start
    end = align_down(room.end, goal.grain, grid.phase)
    beside_grain = room.end - end
    for length in lengths[:rest]:
        before.append(Extent(grid.up(at), length or 0))
        at = before[-1].end
    for length in reversed(lengths[rest + 1 :]):
        behind.append(Extent(grid.down(end - (length or 0)), length or 0))
        end = behind[-1].start
    rest_extents = []
    if rest < len(lengths):
        start = grid.up(at)
        rest_extents = [Extent(start, align_down(end - start, goal.grain))]
        at = start + goal.grain  # its least length
    if at > end:
        short = align_up(at - end, goal.grain) - beside_grain
        text = (
            f"the disk is too small by {_exactly(short)}: {_exactly(room.length)} is available for partitions"
        )
        hint = "request less, or give one partition the rest: --part rest:linux"
        raise Refused(text, hint=hint, code="too-small", subject="--part")
    return (*before, *rest_extents, *reversed(behind))


def _beyond_mbr(disk: Disk, extents: Sequence[Extent], sector_size: int) -> Iterator[Refusal]:
    """Yield a refusal for each partition beyond the 32 bits that an MBR entry has for start and length."""
    limit = ADDRESSABLE * sector_size
    for number, extent in enumerate(extents, 1):
        if extent.end > limit or extent.length >= limit:
            end = f"partition {number} would end at byte {extent.end} of {disk.name}"
            text = f"{end}, but an MBR reaches only to {format_size(limit)}"
            yield Refusal("table-limit", f"partition {number}", text, "--table gpt")


def _entries(goal: LayoutGoal, extents: Sequence[Extent]) -> tuple[NewEntry, ...]:
    parts = [(part, ROLES[part.role], extent) for part, extent in zip(goal.parts, extents, strict=True)]
    if goal.label == "gpt":
        return tuple(
            NewEntry(at, extent, role.gpt, part.name) for at, (part, role, extent) in enumerate(parts, 1)
        )
    return tuple(
        NewEntry(at, extent, role.mbr or "", "", role.active) for at, (_, role, extent) in enumerate(parts, 1)
    )


def _place(entry: NewEntry, part: PartitionRequest, grid: StartGrid) -> Place:
    return Place(
        entry.number, None, entry.extent, _what(part.role, entry.name), f"on {format_size(grid.size)}"
    )


def _what(role: str, name: str) -> str:
    title = ROLES[role].title
    return f'{title} "{name}"' if name else title


def _notes(
    disk: Disk, goal: LayoutGoal, extents: Sequence[Extent], room: Extent, step: MakeTable
) -> tuple[str, ...]:
    notes = []
    grain = format_size(goal.grain)
    for number, (part, extent) in enumerate(zip(goal.parts, extents, strict=True), 1):
        if part.size is not None and part.size != extent.length:
            sizes = f"{format_size(extent.length)}, not {format_size(part.size)}"
            notes.append(f"partition {number} is {sizes}: lengths are multiples of {grain}")
    left = room.end - max(extent.end for extent in extents)
    if left >= goal.grain:
        notes.append(f"{format_size(left)} stays free after the last partition")
    if goal.spare_end:
        notes.append(f"{format_size(goal.spare_end)} is left free at the end, as requested")
    if goal.label == "dos" and any(part.name for part in goal.parts):
        notes.append("an MBR cannot store partition names; they are omitted")
    if goal.wipe:
        ranges = ", ".join(f"{wiped.start}..{wiped.end}" for wiped in wiped_ranges(disk, step))
        notes.append(f"{ZEROED}bytes {ranges}")
    return tuple(notes)


def _exactly(size: int) -> str:
    return f"{format_about(size)} ({size}B)"


# Write a new partition table to a block device, or to an image file without root. This is the only change to
# a disk without a journal: the disk has no content that a journal could restore.


def with_samples(disk: Disk, *, whole: bool) -> Disk:
    """Return the disk with samples of the bytes that a table overwrites: no signature may identify data
    there. What else is on the disk is kept without --wipe, so that a lost table can be made again.

    `whole`: samples of the whole disk, for --wipe, which also zeroes where partitions may have been, and for
    a format. They are also of the whole disk if only --wipe replaces an empty table.
    """
    size = disk.size or 0
    (head, tail) = table_sizes(table_sector(disk))
    if whole or (disk.table and not disk.partitions):
        return replace(disk, sampled=sample(disk.path, places_for_data(disk), (MIB,)))
    if size < head + tail:
        return disk
    first, last = sample(disk.path, Extent(0, head)), sample(disk.path, Extent(size - tail, tail))
    return replace(
        disk, sampled=replace(first, places=first.places + last.places, written=first.written + last.written)
    )


def _table_step(plan: Plan) -> MakeTable | None:
    """Return the last step, which makes the table, or None in other plans. Before it, a drive may be
    formatted.
    """
    *before, last = plan.steps or (None,)
    if isinstance(last, MakeTable) and all(isinstance(step, FormatDrive) for step in before):
        return last
    return None


def refuse_unsound(plan: Plan) -> None:
    """Raise Refused if a saved plan does not make the table that it shows. Other plans are made again from
    their request; the digest does not show who made the plan.
    """
    step = _table_step(plan)
    unit = plan.disk.sector_size
    size = plan.disk.size
    if isinstance(step, MakeTable) and step.label in LABELS and is_sector_size(unit):
        pairs = zip(step.entries, plan.places, strict=True)
        same = len(step.entries) == len(plan.places) and all(
            (at, entry.extent) == (entry.number, place.after)
            and (entry.number, None) == (place.number, place.before)
            and 0 < entry.extent.start < entry.extent.end <= size <= LARGEST
            and not (entry.extent.start | entry.extent.length) % unit
            and len(entry.name.encode("utf-16-le", "surrogatepass")) <= _NAME_LENGTH
            and any(
                entry.type_code == (role.gpt if step.label == "gpt" else role.mbr)
                and entry.active == (step.label == "dos" and role.active)
                and place.what == _what(word, entry.name)
                for word, role in ROLES.items()
            )
            for at, (entry, place) in enumerate(pairs, 1)
        )
        if same:
            return
    if plan.steps:
        raise Refused("this plan does not make the table that it shows", hint=_planning(plan))


def _planning(plan: Plan) -> str:
    return command("plan layout", plan.disk.path, "-o plan.json")


def make_layout(plan: Plan, disk: Disk, *, no_lease: bool = False) -> Iterator[Event]:
    """Make the table, flushed to the medium. `disk`: as read now, not when the plan was made. `no_lease`: see
    `Lease`, which is not held meanwhile, because libparted opens the image again.

    Raises Refused before the first write if the disk is no longer that of the plan or is in use; Stopped
    after it.
    """
    step = _table_step(plan)
    if step is None:
        raise Refused("this plan is not for a new layout", hint=_planning(plan))
    if not is_same_disk(plan.disk, layout_subject(disk)):
        raise _stale(disk, f"{disk.path} is not the disk in the plan, or its table has changed since")
    disk = with_samples(disk, whole=step.wipe)
    refuse_unfit(disk, wipe=step.wipe)
    if plan.attention != layout_attention(disk, wipe=step.wipe):
        raise _stale(disk, f"the content of {disk.path} has changed since this plan was made")
    size = plan.disk.sector_size
    with (
        lock_disk(disk.path, image_sector_size=size, keep_posix=True, no_lease=no_lease) as locked,
        new_table(disk.path, step, plan.disk.sector_size) as table,
        ExitStack() as opening,
    ):
        if locked.device.sector_size != plan.disk.sector_size:
            sizes = f"{locked.device.sector_size} bytes, but the disk in the plan has {plan.disk.sector_size}"
            raise _stale(disk, f"{disk.path} has sectors of {sizes}")
        opening.enter_context(opened_by_libparted(table.device, disk.path))
        locked.kernel.forget(locked.kernel.numbers())
        index = len(plan.steps) - 1
        yield StepBegun(index)
        failures: tuple[type[Exception], ...] = (OSError, *libparted_errors())
        try:
            if step.wipe:
                zero(locked.device, wiped_ranges(disk, step))
            table.commitToDevice()
            opening.close()
            set_types(locked.device, step)
            locked.kernel.show([(entry.number, entry.extent) for entry in step.entries])
        except failures as error:
            raise Stopped(f"{disk.path}: {error}; its new table may be incomplete") from error
        yield StepDone(index)
    yield from (Said(note) for note in locked.notes)


@contextmanager
def opened_by_libparted(device: "parted.Device", path: str) -> Iterator[None]:
    """Keep the disk open in libparted, which opens it by its path. Raises Refused if that leads to another
    one than the disk at `path` that is locked.
    """
    before = _times_open(path)
    device.open()
    try:
        if _times_open(path) == before:
            raise Refused(f"libparted opened another file or device than {path}", hint=TRY_AGAIN)
        yield
    finally:
        device.close()


def _times_open(path: str) -> int:
    """Return how many descriptors of this process are the disk or image at a path."""
    status = status_of(path)
    found = []
    for descriptor in live_paths(Path("/proc/self/fd"), "*"):
        with suppress(OSError):  # that of the folder itself
            found.append(os.path.samestat(descriptor.stat(), status))
    return sum(found)


def _stale(disk: Disk, reason: str) -> Refused:
    return Refused(reason, hint=f"make a new plan: {command('plan layout', disk.path)}", code="plan-stale")


@contextmanager
def new_table(path: str, step: MakeTable | MakeMember, sector_size: int) -> "Iterator[parted.Disk]":
    """Build the table in libparted, which chooses identifiers and checks for overlaps. Writes nothing.

    Raises Refused if libparted rejects the table.
    """
    import parted

    device = None
    try:
        with _sector_size_for_libparted(sector_size):
            device = parted.getDevice(path)
        table = parted.freshDisk(device, "msdos" if step.label == "dos" else "gpt")
        for entry in step.entries:
            start, length = entry.extent.start // sector_size, entry.extent.length // sector_size
            geometry = parted.Geometry(device, start=start, length=length)
            partition = parted.Partition(table, parted.PARTITION_NORMAL, geometry=geometry)
            table.addPartition(partition, parted.Constraint(exactGeom=geometry))
        yield table
    except libparted_errors() as error:
        raise Refused(f"{path}: libparted: {error}") from error
    finally:
        # From its cache libparted would report the length of this file for the next one at the same path.
        if device is not None:
            device.removeFromCache()


@contextmanager
def _sector_size_for_libparted(sector_size: int) -> Iterator[None]:
    """Set the sector size of an image file in the environment, where libparted reads it
    (libparted/arch/linux.c, init_file).
    """
    before = os.environ.get("PARTED_SECTOR_SIZE")
    os.environ["PARTED_SECTOR_SIZE"] = str(sector_size)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PARTED_SECTOR_SIZE"]
        else:
            os.environ["PARTED_SECTOR_SIZE"] = before


def require_libparted(plan: Plan) -> None:
    """Raise Refused if the plan makes a partition table and Python's libparted module, which the single file
    aligntool.pyz cannot contain, is missing, or cannot pass the name of the disk.
    """
    makes_table = any(isinstance(step, MakeTable | MakeMember) and step.entries for step in plan.steps)
    if makes_table and find_spec("parted") is None:
        text = "new partition tables are made by libparted, whose Python module is not installed"
        hint = "install the package python3-parted (Fedora: python3-pyparted, Arch: python-pyparted)"
        raise Refused(text, hint=hint, code="not-installed", subject="parted")
    path = plan.disk.path
    if makes_table and path != path.encode("utf-8", "replace").decode():
        raise Refused(
            f"{path}: its name is not valid UTF-8, which libparted requires", hint="rename it first"
        )


def libparted_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of libparted, which have no common base class."""
    import _ped

    return tuple(member for name, member in vars(_ped).items() if name.endswith("Exception"))
