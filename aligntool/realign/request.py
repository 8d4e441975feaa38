"""Realign one disk as requested: look at it, plan, lock, apply. Shared by the command line and the Python API."""

import os
import signal
import stat
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

from aligntool import steps
from aligntool.audit.judge import audit
from aligntool.audit.report import AuditOptions, Judged
from aligntool.audit.wording import command, hints_for_disk, hints_with_options, holders_of, shell_word
from aligntool.change import Event, Plan, RealignGoal, Said, StepBegun, StepDone, Used, Waiting
from aligntool.claims import Claims
from aligntool.contents.catalogue import kind_named
from aligntool.contents.layers import read_layers
from aligntool.contents.windows_names import StartNames, read_names
from aligntool.errors import Refusal, Refused, Stopped, failing_as, refuse
from aligntool.formats.parked import find_parked, read_or_empty
from aligntool.formats.reader import is_blank, open_area
from aligntool.inventory import Disk, Inventory, Layer, Partition, Role, TableLabel
from aligntool.linux.applying import ChangeInProgress, recovery_commands
from aligntool.linux.block import DiskDevice, Limited, ReadOnlyDevice, limited, open_read_only
from aligntool.linux.change_process import apply_in_child
from aligntool.linux.checks import CheckResult, check_content, missing_checker
from aligntool.linux.child_process import STALL_S, OnNote
from aligntool.linux.commands import with_health
from aligntool.linux.content import UsedMap, is_free_behind, open_medium, read_used, whole_partition_map
from aligntool.linux.devices import FileReader
from aligntool.linux.held import held, status_of
from aligntool.linux.lock import lock_disk, refuse_disturbed, written_at
from aligntool.linux.look import look
from aligntool.linux.partitions import find_devices
from aligntool.linux.process import STOPPING
from aligntool.linux.targets import UserLimits, raw_copy
from aligntool.linux.users import all_ends, fresh_reader, loops_over, occupants, remaining_occupants
from aligntool.mover import disk_state, journal_format, move, table
from aligntool.mover.journal import Journal, open_journal, refuse_volatile
from aligntool.realign import shrink_commit
from aligntool.realign.named_ranges import described, refuse_named, save
from aligntool.realign.partition_selection import fills, overwriting_text, shrinkable
from aligntool.realign.placing import kind_of
from aligntool.realign.planning import plan_realign
from aligntool.realign.refusals import bad_blocks_refusal
from aligntool.realign.second_table import refuse_second_table
from aligntool.realign.shrink import refuse_unshrinkable, shrink_btrfs, shrunk_view
from aligntool.realign.suspended import names_suspensions
from aligntool.realign.trusted_maps import why_free_blocks_may_be_needed
from aligntool.recipes.drives import known_geometries
from aligntool.units import KIB, Extent, align_down, align_up, format_about, is_grid_size, is_sector_size


@dataclass(frozen=True, slots=True)
class Request:
    """The request for a plan: sizes in bytes; None: taken from the disk or the drive database.

    A plan that is applied later is planned again from the same request: docs/cli.md, "aligntool apply".
    """

    goal: RealignGoal = field(default_factory=RealignGoal)
    sector_size: int | None = None
    physical_sector_size: int | None = None
    page_size: int | None = None
    typed: tuple[str, ...] = ()  # the same options as words of the command line

    def __post_init__(self) -> None:
        """Raise ValueError for sizes that no option can request: a plan may come from a file."""
        for name in ("sector_size", "physical_sector_size"):
            size = getattr(self, name)
            if size is not None and not is_sector_size(size):
                raise ValueError(f"{name}: not a sector size")
        for name, grid in (("page_size", self.page_size), ("grain", self.goal.grain)):
            if grid is not None and not is_grid_size(grid):
                raise ValueError(f"{name}: not a multiple of 512")


# Look at one disk, and plan its realign. `plan`, `realign` and `apply` must make the same plan for the same disk.


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """A plan, and the data from which it was made."""

    plan: Plan
    judged: Judged
    maps: Mapping[int, UsedMap]  # of the partitions that move
    rebuilt: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)  # new bytes of each recreated file system

    @property
    def runs(self) -> dict[int, tuple[Extent, ...]]:
        """The used bytes of each partition that moves, counted from its start."""
        return {number: used.runs for number, used in self.maps.items()}


def look_at(target: str, request: Request) -> tuple[Judged, Inventory]:
    """Return the disk, judged, and the inventory. Raises Refused if it cannot be read or is not a single disk."""
    given = UserLimits(sector_size=request.sector_size, physical_sector_size=request.physical_sector_size)
    inventory = look((target,), given=given)
    audit_options = AuditOptions(page_size=request.page_size, grain=request.goal.grain)
    report = audit(inventory, known_geometries(inventory), audit_options)
    if len(report.judged) != 1:
        raise Refused(f"{target} is {len(report.judged)} disks, not one", hint="name one disk")
    return report.judged[0], inventory


def find_plan(target: str, request: Request) -> FoundPlan:
    """Return the plan that aligns the partitions of the disk. Raises Refused with every reason."""
    rule = "a realign takes a whole disk, or some of its partitions by number"
    with held(target):
        return _find_plan(target, request, rule)


def _find_plan(target: str, request: Request, rule: str) -> FoundPlan:
    judged = look_before_change(target, request, rule, "--partition")
    path = judged.disk.path
    with naming_loops(path), hints_for_disk(path, judged.disk.raw_copy), hints_with_options(path, request.typed):
        found = plan_for(judged, request)
        refuse_second_table(judged.disk)
        _refuse_unusual_table(found.plan)
    return found


def _refuse_unusual_table(plan: Plan) -> None:
    """Raise Refused if the tables of the move cannot be made, such as for an EBR with its entries in another order."""
    park, rewrite = (
        next((step for step in plan.steps if isinstance(step, kind)), None)
        for kind in (steps.ParkEntries, steps.RewriteTable)
    )
    if isinstance(park, steps.ParkEntries) and isinstance(rewrite, steps.RewriteTable):
        with open_read_only(plan.disk.path, image_sector_size=plan.disk.sector_size) as device:
            table.table_images(device, park, rewrite, journal_at=None, journal_id=bytes(16))


def look_before_change(target: str, request: Request, rule: str, option: str = "") -> Judged:
    """Return the disk, judged, with its health and the devices that hold it. `rule`, `option`: see `refuse_part`.

    Raises Refused if it cannot be read, is a partition or in flight, or if a killed aligntool's programs still use it;
    also if the file requested for the journal would be in memory.
    """
    judged, _ = look_at(target, request)
    if request.goal.journal_file:
        refuse_volatile(request.goal.journal_file)
    if wait_for_leftovers(judged.disk.path):
        judged, _ = look_at(target, request)
    disk = judged.disk
    refuse_part(target, disk, rule, option)
    refuse_in_flight(disk.path)
    _refuse_marked(disk)
    refuse_changed_table(disk)
    return replace(judged, disk=replace(disk, failing=with_health(disk).failing), above=find_holders(disk))


def refuse_part(target: str, disk: Disk, rule: str, option: str = "") -> None:
    """Raise Refused if the target is a partition: reading it means reading its disk, but the user who names a partition
    does not expect writes to the whole disk.

    `option`: the option that takes the number of a partition besides the disk.
    """
    node = Path(target) if "/" in target or Path(target).exists() else Path("/dev", target)
    if not Path(disk.path).is_block_device() or (node.exists() and node.samefile(disk.path)):
        return
    numbers = {part.node: part.number for part in disk.partitions}
    number = numbers.get(node.resolve().name)
    more = f" {option} {number}" if option and number is not None else ""
    raise Refused(f"{target} is a part of {disk.path}, but {rule}", hint=f"give {disk.path}{more}")


def wait_for_leftovers(path: str) -> bool:
    """Wait for programs that a killed aligntool started, and return whether there were any: resize2fs runs to its end,
    and no plan must rely on what was read before it ends. Raises Refused if it takes long.
    """
    status = _status_of(path)
    if not any(loop.passing for loop in loops_over(status)):
        return False
    remaining = [occupant for occupant in remaining_occupants(status) if occupant.passing]
    if remaining:
        words = "; ".join(occupant.what for occupant in remaining)
        raise Refused(f"{path} is in use: {words}", hint="\n".join(occupant.end for occupant in remaining))
    return True


def _status_of(path: str) -> os.stat_result:
    """Return the status of a disk or image. Raises Refused if the kernel lists a disk whose node in /dev is missing."""
    with failing_as(
        Refused, path, hint=f"the device node {path} is missing: udev creates it, at the latest when the machine starts"
    ):
        return status_of(path)


@contextmanager
def naming_loops(path: str) -> Iterator[None]:
    """Extend a refusal of an image or disk that is attached to a loop device: it may be mounted there, and then it must
    not be checked or repaired here. Raises Refused for sectors that the disk cannot read.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        text = f"{path} cannot be read: {error.strerror}"
        raise Refused(text, hint=command("audit", path), code="not-read", subject=path) from error
    except Refused as error:
        status = _status_of(path)
        found = occupants(status) if stat.S_ISREG(status.st_mode) else tuple(loops_over(status))
        if not found:
            raise
        text = f"{path} is in use: {'; '.join(occupant.what for occupant in found)}"
        attached = Refusal("in-use", path, text, all_ends(found))
        refuse((attached, *(replace(reason, hint="") for reason in error.refusals)))


def refuse_in_flight(path: str) -> None:
    """Raise Refused if the disk is in flight: its content must not be treated as complete, or as empty."""
    with failing_as(Refused, f"{path} cannot be read", hint=command("audit", path)), open_read_only(path) as device:
        parked = find_parked(device)
    if parked is not None:
        text = f"{path}: partitions of this disk are in flight"
        raise Refused(text, hint=command("status", path), code="in-flight", subject=path)


def shows_change(path: str) -> bool:
    """Return whether a change is in flight on a disk, by its table or a journal in the usual places.

    Raises OSError, and Refused if the disk cannot be opened.
    """
    with open_read_only(path) as device:
        try:
            return find_parked(device) is not None or move.journal_in_flight(device) is not None
        except Refused:  # several journals qualify
            return True


def _refuse_marked(disk: Disk) -> None:
    """Raise Refused if a partition holds a marker of a move in flight although its entry is not parked: another program
    has changed the table, and a new move would overwrite the journal.

    An extended partition has no content that is marked: what is in its last sector may be a marker that the last move
    of a logical partition left behind.
    """
    found, path = [], disk.path
    with failing_as(Refused, f"{path} cannot be read", hint=command("audit", path)), open_read_only(path) as device:
        for part in disk.partitions:
            if part.role is Role.EXTENDED:
                continue
            ends = (part.extent.start, part.extent.end - disk.sector_size) if not part.content else ()
            sectors = (read_or_empty(device, at, disk.sector_size) for at in ends)
            marker = next(filter(None, map(disk_state.MARKER.match, sectors)), None)
            if marker and (marker[2] is None or _has_journal(device, int(marker[2]))):
                text = f"partition {part.number} is in flight: another program has changed the partition table"
                file = () if marker[2] else ("--journal FILE",)
                found.append(Refusal("in-flight", disk.name, text, command("status", path, *file)))
    refuse(found)


def refuse_changed_table(disk: Disk) -> None:
    """Raise Refused if the disk has the journal of a change in flight, although its table shows none: an older table
    may have been put back.
    """
    with (
        failing_as(Refused, f"{disk.path} cannot be read", hint=command("audit", disk.path)),
        open_read_only(disk.path) as device,
    ):
        if move.journal_in_flight(device) is not None:
            text = f"{disk.path} is in flight: another program has changed the partition table"
            raise Refused(text, hint=command("status", disk.path), code="in-flight", subject=disk.path)


def _has_journal(device: ReadOnlyDevice, at: int) -> bool:
    """Return whether there is a journal, even if it is damaged or of another version."""
    try:
        Journal.open(device, at)
    except journal_format.NoJournal:
        return False
    except Refused:
        return True
    return True


def find_holders(disk: Disk) -> Inventory | None:
    """Return all devices that may be on the disk; None if none is."""
    return find_devices() if holders_of(disk) else None


def plan_for(judged: Judged, request: Request) -> FoundPlan:
    """Return the plan for a judged disk. Raises Refused with every reason.

    Maps of used blocks are read only for partitions that move, as reading the map of a large file system takes long. A
    map may show that another plan is cheaper, so this repeats until every partition that moves has a map.
    """
    disk = judged.disk
    with open_claims(disk, request.goal) as (claims, sentences):
        return _plan_with_maps(judged, request, claims, sentences)


@contextmanager
def open_claims(disk: Disk, goal: RealignGoal) -> Iterator[tuple[Claims, tuple[str, ...]]]:
    """Yield what a change of the disk may overwrite, and a sentence on each range that the user named. What a shrink of
    content on the whole disk freed before it was interrupted belongs to that content. Raises Refused if a range must
    not be overwritten, and OSError.
    """
    with fresh_reader(disk.path) as reader:
        refuse_named(disk, reader, goal.overwrite)
        named = (*goal.overwrite, *_freed_by_shrink(disk, reader))
        yield Claims(reader, named), tuple(described(reader, goal.overwrite, goal.save_to))


_LONGEST_BLOCK = 64 * KIB  # of an ext4 or NTFS


def _freed_by_shrink(disk: Disk, reader: FileReader) -> Iterator[Extent]:
    """Yield what a shrink of content on the whole disk has freed: up to the mark at the end of its former extent, which
    is less than a block before the end of the disk.
    """
    if disk.table is not None or len(disk.content) != 1 or not disk.content[0].claims_size:
        return
    (layer,), sector_size = disk.content, disk.sector_size
    start, last = align_up(layer.claims_size or 0, sector_size), align_down(reader.size, sector_size)
    ends = range(last, max(last - _LONGEST_BLOCK, start), -sector_size)
    marked = (end for end in ends if is_free_behind(reader, Extent(0, end), layer))
    yield from (Extent(start, end - start) for end in islice(marked, 1))


def _plan_with_maps(judged: Judged, request: Request, claims: Claims, sentences: tuple[str, ...]) -> FoundPlan:
    disk = judged.disk
    names = names_on(disk)
    # How far a file system can be shrunk depends on its used blocks.
    only = request.goal.used_only
    shorter = shrinkable(disk) if request.goal.shrink else ()
    maps = {part.number: read_map(disk, part.number, part.extent, used_only=only) for part in shorter}
    least = least_lengths(disk, shorter)
    while True:
        used = uses_of(maps, least)
        plan = plan_realign(judged, request.goal, used, claims, names=names)
        moves = {step.partition: step for step in plan.steps if isinstance(step, steps.CopyContent)}
        unread = [step for number, step in moves.items() if number not in maps]
        if not unread:
            refuse_bad_blocks(disk, disk.partitions, moves)
            _refuse_data_behind(disk, plan)
            plan = replace(plan, attention=(*sentences, *plan.attention)) if plan.steps else plan
            return FoundPlan(plan, judged, {number: maps[number] for number in moves})
        for step in unread:
            maps[step.partition] = read_map(disk, step.partition, step.source, used_only=only)


def least_lengths(disk: Disk, parts: Iterable[Partition]) -> dict[int, int]:
    """Return the bytes below which the file system on each partition is not shrunk, where its resizer states them."""
    found = {}
    for part in parts:
        if least_length := kind_of(part).least_length:
            try:
                with open_medium(disk.path, part.extent) as medium:
                    found[part.number] = least_length(medium)
            except OSError:
                found[part.number] = 0
    return found


def uses_of(maps: Mapping[int, UsedMap], least: Mapping[int, int]) -> dict[int, Used]:
    return {number: Used(number, found.bytes, found.by, least.get(number, 0)) for number, found in maps.items()}


def _refuse_data_behind(disk: Disk, plan: Plan) -> None:
    """Raise Refused if a file system already has the length wanted, and what follows it in its partition is neither
    blank nor left by a shrink that was interrupted.
    """
    shrunk = {step.partition for step in plan.steps if isinstance(step, steps.ShrinkContent)}
    for part in (part for part in disk.partitions if part.number in shrunk and not fills(part)):
        layer = part.content[0]
        start = part.extent.start + (layer.claims_size or 0)
        with failing_as(Refused, f"{disk.path} cannot be read"), fresh_reader(disk.path) as reader:
            free = is_free_behind(reader, part.extent, layer)
            if not free and not is_blank(reader, Extent(start, part.extent.end - start)):
                raise Refused(overwriting_text(part), code="no-room", subject=f"partition {part.number}")


def refuse_bad_blocks(disk: Disk, parts: Iterable[Partition], moved: Collection[int]) -> None:
    """Raise Refused if the content of a partition that moves lists bad blocks of the medium.

    The list would name other places, and the bad ones would hold data. Read here, and not for an audit, because the
    list of a FAT is its whole allocation table.
    """
    found = []
    for part in parts:
        layer = part.content[0] if len(part.content) == 1 and part.number in moved else None
        if layer is None:
            continue
        try:
            with fresh_reader(disk.path) as reader:
                area = open_area(reader, part.extent, disk.sector_size, lambda *_: ())
                count = kind_named(layer.kind).bad_blocks(area)
        except OSError as error:
            text = f"{disk.path} cannot be read: {error.strerror}"
            raise Refused(text, code="not-read", subject=disk.name) from error
        if count:
            what = f"partition {part.number}" if disk.partitions else disk.name
            found.append(bad_blocks_refusal(disk, part, what, layer, count))
    refuse(found)


def names_on(disk: Disk) -> dict[int, StartNames]:
    """Return the partition starts recorded in files of Windows, by the number of the partition with the files. Empty
    for a GPT, whose partitions Windows identifies by GUIDs, and for an MBR without a disk signature, which no file can
    name.
    """
    table = disk.table
    if table is None or table.label is not TableLabel.DOS or not (signature := int(table.disk_id or "0", 16)):
        return {}
    found = {}
    for part in disk.partitions:
        if kind_of(part).holds_windows:
            try:
                with fresh_reader(disk.path) as reader:
                    area = open_area(reader, part.extent, disk.sector_size, lambda *_: ())
                    found[part.number] = read_names(area, signature.to_bytes(4, "little"))
            except OSError as error:
                found[part.number] = StartNames(unclear=f"cannot be read: {error.strerror}")
    return found


def read_map(disk: Disk, number: int, extent: Extent, *, used_only: bool, shrunk: bool = False) -> UsedMap:
    """Return the used bytes of the partition of this number at `extent`; all of it if it has no map, if it cannot be
    checked, or if something else may need its free blocks, unless the user requests `used_only`. `shrunk`: its file
    system has just been shrunk, and checked.
    """
    layer = layer_of(disk, number)
    if layer and kind_named(layer.kind).is_map_checked and (missing := missing_checker(layer.kind)):
        return whole_partition_map(extent.length, missing)
    used = read_used(disk.path, extent, layer, sector_size=disk.sector_size, shrunk=shrunk)
    free = extent.length - used.bytes
    why = _why_needed(disk, extent, layer, shrunk=shrunk) if layer and free else ""
    if not why:
        return used
    if used_only:
        return UsedMap(used.runs, f"{used.by}, by --used-only, although {why}")
    skipped = f"{why}. {format_about(free)} of it is free ({used.by}); --used-only skips that"
    return whole_partition_map(extent.length, skipped)


def _why_needed(disk: Disk, extent: Extent, layer: Layer, *, shrunk: bool) -> str:
    """Return why something else may need the free blocks of a file system, or "" if nothing does."""
    try:
        with fresh_reader(disk.path) as reader:
            free = shrunk or is_free_behind(reader, extent, layer)
            return why_free_blocks_may_be_needed(disk, reader, extent, layer, free_behind=free)
    except OSError as error:
        return f"the disk cannot be read: {error.strerror}"


def layer_of(disk: Disk, number: int) -> Layer | None:
    """Return the content of a partition, or of the whole disk if there is no such partition; None if nothing or more
    than one layer was recognised.
    """
    content = next((part.content for part in disk.partitions if part.number == number), disk.content)
    return content[0] if len(content) == 1 else None


Finder = Callable[[str, Request], FoundPlan]
"""Function that plans again: `find_plan`, or its counterpart for another operation."""


# Lock the disk, and apply the plan.


def locked_realign(
    plan: Plan, request: Request, *, rate: int | None, on_note: OnNote, find: Finder = find_plan, no_lease: bool = False
) -> AbstractContextManager[ChangeInProgress]:
    """Lock the disk and check in a child process that the plan is still valid. `no_lease`: see `Lease`. Raises
    Refused.
    """
    path = plan.disk.path
    journal = next((step.journal for step in plan.steps if isinstance(step, steps.WriteJournal)), None)
    file, length = (journal.file, journal.extent.end) if journal else (None, None)

    @contextmanager
    def locked(note: OnNote) -> Iterator[ChangeInProgress]:
        opening = locked_disk(
            plan, path, on_note=note, journal_file=file, new_journal=length, rate=rate, no_lease=no_lease
        )
        with opening as context:
            since = written_at(path)
            events = _events(plan, request, verify_plan(plan, request, find), context, since)
            hint = recovery_commands(path, *journal_options(file))
            yield ChangeInProgress(events, hint, unthrottle_function(context), unanswered=context.unanswered)

    return apply_in_child(locked, plan, path, on_note)


@contextmanager
def locked_disk(
    plan: Plan,
    path: str,
    *,
    on_note: OnNote,
    journal_file: str | None,
    new_journal: int | None = None,
    rate: int | None,
    no_lease: bool = False,
) -> Iterator[move.MoveContext]:
    """Lock the disk, and open the file of its journal if there is one. `new_journal`: bytes of a journal file to make.
    `rate`: bytes per second at most. `no_lease`: see `Lease`. `on_note`: called with each sentence that the user should
    know.

    `path`: the present path of the disk, which may differ from the path in the plan.

    Raises Refused.
    """
    locking = lock_disk(path, image_sector_size=plan.disk.sector_size, keep_posix=True, no_lease=no_lease)
    with hints_for_disk(path, raw_copy(path)), locking as locked:
        for note in locked.notes:
            on_note(note)
        device = limited(locked.device, rate)
        opened = open_journal(journal_file, length=new_journal) if journal_file else nullcontext()
        with opened as journal:
            devices = {path: locked.device} | ({journal_file: journal} if journal_file and journal else {})
            unanswered = partial(_unanswered, devices)
            held, room_for = locked.lease.held, locked.device.room_for
            yield move.MoveContext(device, locked.kernel, journal, unanswered, held, room_for)


def _unanswered(devices: Mapping[str, DiskDevice]) -> Waiting | None:
    """Return the request that has waited longest, if it has waited too long."""
    (seconds, request), path = max((device.unanswered(), path) for path, device in devices.items())
    return Waiting(path, request, int(seconds)) if seconds >= STALL_S else None


def unthrottle_function(context: move.MoveContext) -> Callable[[], None]:
    """Return the function that makes a device with a limited rate stop waiting."""
    device = context.device
    return device.stop_throttling if isinstance(device, Limited) else lambda: None


_SUBJECT_WORDS = {
    "size": "size", "sector_size": "sector size", "label": "kind of table", "disk_id": "disk id",
    "model": "model", "serial": "serial number", "wwn": "WWN", "table_digest": "partition table",
}  # fmt: skip


_PLANNING = dict.fromkeys(("partition", "unpartition"), "plan partition") | {"convert": "plan convert"}


def verify_plan(plan: Plan, request: Request, find: Finder = find_plan) -> FoundPlan:
    """Plan again, and return the result. Raises Refused with what changed if disk, table or steps differ."""
    found = find(plan.disk.path, request)
    new = found.plan
    if steps.is_same_disk(plan.disk, new.disk) and plan.steps == new.steps and names_suspensions(plan, new):
        return found
    text = f"{plan.disk.path}: a new plan has different steps: the content of the disk or the request has changed"
    if not steps.is_same_disk(plan.disk, new.disk):
        changed = [word for name, word in _SUBJECT_WORDS.items() if getattr(plan.disk, name) != getattr(new.disk, name)]
        text = f"{plan.disk.path} has changed since the plan was made: different {', '.join(changed)}"
    again = command(_PLANNING.get(plan.purpose, "plan realign"), plan.disk.path, *request.typed)
    raise Refused(text, hint=f"make a new plan: {again}", code="plan-stale")


def _events(
    plan: Plan, request: Request, found: FoundPlan, context: move.MoveContext, since: int | None
) -> Iterator[Event]:
    """Apply the whole plan: checks, shrinking, then the move. `since`: see `refuse_disturbed`. Raises Refused or
    Stopped.
    """
    whole = yield from run_checks(plan)
    refuse_disturbed(plan.disk.path, since)
    if request.goal.save_to:
        save(plan.disk.path, request.goal.overwrite, request.goal.save_to)
        yield Said(f"saved to {request.goal.save_to}, at the same offsets as on the disk")
    shrunk = False
    for index, step in enumerate(plan.steps):
        if isinstance(step, steps.ShrinkContent):
            since = yield from _shrink(plan, index, step, request, context, since)
            shrunk = True
    runs = _runs_after_shrink(plan, request) if shrunk else found.runs
    copies = [step for step in plan.steps if isinstance(step, steps.CopyContent) and step.partition in whole]
    runs |= {step.partition: (Extent(0, step.source.length),) for step in copies}
    with context.alone():
        refuse_disturbed(plan.disk.path, since)
        yield from move.realign(plan, context, runs, found.rebuilt)


def run_checks(plan: Plan) -> Generator[Event, None, frozenset[int]]:
    """Run every check of a plan, and return the partitions to copy whole because they could not be checked: a map of
    used blocks is only as right as the file system. Raises Refused if a check finds errors.
    """
    whole = set()
    for index, step in enumerate(plan.steps):
        if isinstance(step, steps.CheckContent):
            yield StepBegun(index)
            result = _check(checked_disk(plan), step)
            if result.checked:
                yield Said(f"checked by {result.by}")
            elif _is_copied(plan, step.partition) and kind_named(step.kind).is_map_checked:
                whole.add(step.partition)
                yield Said(f"not checked: {result.by}; unused blocks are copied as well")
            else:
                yield Said(f"not checked: {result.by}")
            yield StepDone(index)
    return frozenset(whole)


def checked_disk(plan: Plan) -> str:
    """Return the path of the disk that the checks of a plan read: of a copy, its source."""
    return next((step.source.path for step in plan.steps if isinstance(step, steps.CopyDisk)), plan.disk.path)


def _check(path: str, step: steps.CheckContent) -> CheckResult:
    """Run the file system's own checker, which writes nothing. Raises Refused with its message."""
    result = check_content(path, step.extent, step.kind)
    if result.problem:
        text = f"partition {step.partition} ({step.kind}) failed the check by {result.by}: {result.problem}"
        subject, hint = f"partition {step.partition}", "repair it with its own tool first"
        raise Refused(text, hint=hint, code="content-damaged", subject=subject)
    return result


def _is_copied(plan: Plan, number: int) -> bool:
    """Return whether a plan copies the content of a partition; one that is recreated is not copied."""
    contents = [step for step in plan.steps if isinstance(step, steps.CopyContent | steps.RebuildContent)]
    if any(isinstance(step, steps.CopyDisk) for step in plan.steps):
        return all(step.partition != number for step in contents)
    return any(step.partition == number for step in contents if isinstance(step, steps.CopyContent))


def _shrink(
    plan: Plan, index: int, step: steps.ShrinkContent, request: Request, context: move.MoveContext, since: int | None
) -> Generator[Event, None, int | None]:
    """Shrink a file system, and return when an image was last written to by that."""
    path = plan.disk.path
    refuse_unshrinkable(path, step)
    yield StepBegun(index)
    if kind_named(step.kind).is_shrunk_mounted:
        with defer_interrupts():
            shrink_btrfs(path, step)
        written = _written_by_shrink(path)
    else:
        prepared = prepare_shrink(plan, step, request, context)
        with context.alone():
            refuse_disturbed(path, since)
            yield Said("the shrunk file system has no errors, and is written to the disk")
            with defer_interrupts():
                yield from shrink_commit.write(plan, context, prepared)
            written = _written_by_shrink(path)
    yield StepDone(index)
    return written


def _written_by_shrink(path: str) -> int | None:
    """Return when an image was last written to. Raises Stopped if the path does not lead to it any more."""
    try:
        return written_at(path)
    except Refused as error:
        raise Stopped(f"{error}; no partition was moved", hint=command("audit", path)) from error


def prepare_shrink(
    plan: Plan, step: steps.ShrinkContent, request: Request, context: move.MoveContext
) -> shrink_commit.Prepared:
    """Shrink a view of the file system, and return what to write to the disk. Raises Refused."""
    path, size = plan.disk.path, plan.disk.sector_size
    disk = look_at(path, request)[0].disk
    used = read_map(disk, step.partition, step.extent, used_only=request.goal.used_only).runs
    with shrunk_view(path, step) as view, fresh_reader(view.path) as reader:
        layer = next(iter(read_layers(reader, Extent(0, step.extent.length), sector_size=size)), None)
        if why := _why_too_long(step, layer):
            raise Refused(f"{why}; nothing was written", hint=command("audit", path))
        shrinker = kind_named(step.kind).shrinker
        if shrinker and shrinker.uses_unwritten:
            length = (layer.claims_size if layer else None) or step.length  # what follows it belongs to the old one
            used += read_used(view.path, Extent(0, length), layer, sector_size=size).runs
        return shrink_commit.prepare(plan, step, context, reader, view.changed(), used)


def _runs_after_shrink(plan: Plan, request: Request) -> dict[int, tuple[Extent, ...]]:
    """Return the used bytes by partition, read again as a file system that was shrunk has its blocks elsewhere. Raises
    Stopped if it is longer than requested: what lies behind the new end would not be copied.
    """
    disk = look_at(plan.disk.path, request)[0].disk
    shrinks = {step.partition: step for step in plan.steps if isinstance(step, steps.ShrinkContent)}
    for number, step in shrinks.items():
        if why := _why_too_long(step, layer_of(disk, number)):
            raise Stopped(f"{why}; no partition was moved", hint=command("audit", plan.disk.path))
    copies = {step.partition: step.source for step in plan.steps if isinstance(step, steps.CopyContent)}
    only = request.goal.used_only
    return {
        number: read_map(disk, number, at, used_only=only, shrunk=number in shrinks).runs
        for number, at in copies.items()
    }


def _why_too_long(step: steps.ShrinkContent, layer: Layer | None) -> str:
    """Return a sentence if a file system is longer than it was to become; empty if not."""
    claims = layer.claims_size if layer else None
    if claims is not None and claims <= step.length:
        return ""
    found = "an unknown number" if claims is None else str(claims)
    return f"partition {step.partition} was to be shrunk to {step.length} bytes, but its {step.kind} has {found}"


def journal_options(file: str | None) -> list[str]:
    return [f"--journal {shell_word(file)}"] if file else []


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C for aligntool and for the programs that it runs: another tool may not survive an interruption."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
