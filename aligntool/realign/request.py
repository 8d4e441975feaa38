"""Realign one disk as requested: look at it, plan, lock, apply. What the command line and the Python API share."""

import os
import signal
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from aligntool.audit.judge import audit
from aligntool.audit.report import Judged, Wishes
from aligntool.audit.wording import command, naming, shell_word
from aligntool.change import Event, Plan, RealignGoal, Said, StepBegun, StepDone, Used, Waiting
from aligntool.errors import Refused, Stopped
from aligntool.formats.parked import find_parked
from aligntool.formats.reader import open_area
from aligntool.formats.windows_names import Names, read_names
from aligntool.inventory import Disk, Inventory, Layer, TableLabel
from aligntool.linux.apart import STALL_S
from aligntool.linux.block import DiskDevice, Limited, limited, look_only
from aligntool.linux.commands import asked_health
from aligntool.linux.content import UsedMap, check_content, read_used
from aligntool.linux.lock import lock_disk
from aligntool.linux.look import look
from aligntool.linux.process import STOPPING
from aligntool.linux.targets import Given
from aligntool.linux.users import fresh_reader, loops_over, occupants, remaining_occupants
from aligntool.realign import move
from aligntool.realign.apart import apart
from aligntool.realign.applying import Applying, ways_on
from aligntool.realign.journal import open_journal
from aligntool.realign.move import MoveContext
from aligntool.realign.placing import kind_of
from aligntool.realign.planning import plan_realign
from aligntool.realign.shrink import refuse_unable, shrink_content
from aligntool.realign.wanted import shrinkable
from aligntool.recipes.drives import known_of
from aligntool.steps import CheckContent, CopyContent, ShrinkContent, WriteJournal, is_same_disk
from aligntool.units import Extent


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of a plan: sizes in bytes; None: the disk and the database are asked.

    A plan that is applied later is made again from the same request: docs/cli.md, "aligntool apply".
    """

    goal: RealignGoal = field(default_factory=RealignGoal)
    sector_size: int | None = None
    physical_sector_size: int | None = None
    page_size: int | None = None
    typed: tuple[str, ...] = ()  # these options as words


# Look at one disk, and plan its realign.
#
# `plan`, `realign` and `apply` must come to the same plan from the same disk.


@dataclass(frozen=True, slots=True)
class Found:
    """A plan, and what it was made from."""

    plan: Plan
    judged: Judged
    maps: Mapping[int, UsedMap]  # of the partitions that move
    rebuilt: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)  # what is written of each that is made anew

    @property
    def runs(self) -> dict[int, tuple[Extent, ...]]:
        """The used bytes of each partition that moves, counted from its start."""
        return {number: used.runs for number, used in self.maps.items()}


def look_at(target: str, asked: Request) -> tuple[Judged, Inventory]:
    """The one disk, judged. Raises Refused where it cannot be looked at."""
    given = Given(sector_size=asked.sector_size, physical_sector_size=asked.physical_sector_size)
    inventory = look((target,), given=given)
    wishes = Wishes(page_size=asked.page_size, grain=asked.goal.grain)
    report = audit(inventory, known_of(inventory), wishes)
    if len(report.judged) != 1:
        raise Refused(f"{target} is not one disk but {len(report.judged)}", hint="name one disk")
    return report.judged[0], inventory


def find_plan(target: str, asked: Request) -> Found:
    """How the disk gets onto its grids. Raises Refused with every reason."""
    judged, _ = look_at(target, asked)
    if waited(judged.disk.path):
        judged, _ = look_at(target, asked)
    refuse_part(target, judged.disk, "a disk is realigned, all of it or some of its partitions", "--partition")
    refuse_in_flight(judged.disk.path)
    failing = asked_health(judged.disk).failing
    try:
        return plan_for(replace(judged, disk=replace(judged.disk, failing=failing)), asked)
    except Refused as error:
        raise _or_attached(judged.disk.path, error) from None


def refuse_part(target: str, disk: Disk, rule: str, option: str = "") -> None:
    """Looking at a partition is looking at its disk; writing to all of it would be another thing. Raises Refused.

    `option`: what takes the number of a partition beside its disk.
    """
    node = Path(target) if "/" in target else Path("/dev", target)
    if not Path(disk.path).is_block_device() or (node.exists() and node.samefile(disk.path)):
        return
    numbers = {each.node: each.number for each in disk.partitions}
    number = numbers.get(node.resolve().name)
    more = f" {option} {number}" if option and number is not None else ""
    raise Refused(f"{target} is a part of {disk.path}, and {rule}", hint=f"give {disk.path}{more}")


def waited(path: str) -> bool:
    """Return whether a program was waited for that an aligntool which was killed had started: resize2fs goes on to its
    end, and what it writes is not to be planned with. Raises Refused where it takes long.
    """
    status = _status_of(path)
    if not any(one.passing for one in loops_over(status)):
        return False
    left = [one for one in remaining_occupants(status) if one.passing]
    if left:
        words = "; ".join(one.what for one in left)
        raise Refused(f"{path} is in use: {words}", hint="\n".join(one.end for one in left))
    return True


def _status_of(path: str) -> os.stat_result:
    """Raise Refused where the kernel lists a disk whose node in /dev is missing."""
    try:
        return Path(path).stat()
    except OSError as error:
        hint = f"make the node of {path} in /dev, such as with: udevadm trigger"
        raise Refused(f"{path}: {error.strerror}", hint=hint) from error


def _or_attached(path: str, error: Refused) -> Refused:
    """An image that a loop device shows may be mounted there; then it must not be checked or repaired as a file."""
    status = _status_of(path)
    found = occupants(status) if stat.S_ISREG(status.st_mode) else ()
    if not found:
        return error
    words = "; ".join(one.what for one in found)
    return Refused(f"{path} is in use: {words}\n{error}", hint=" && ".join(one.end for one in found))


def refuse_in_flight(path: str) -> None:
    """What lies on such a disk must not be thought about as if it were whole, or empty. Raises Refused."""
    try:
        with look_only(path) as device:
            parked = find_parked(device)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}", hint=command("audit", path)) from error
    if parked is not None:
        text = f"{path}: partitions of this disk are in flight"
        raise Refused(text, hint=command("status", path), code="in-flight", subject=path)


def plan_for(judged: Judged, asked: Request) -> Found:
    """Maps are read of those partitions only that move, because one of a large file system takes its time; a map may
    show another way to be cheaper, so this goes on until every partition that moves has one.
    """
    disk = judged.disk
    names = names_on(disk)
    # How far a file system can be shrunk depends on what is used of it.
    maps = {part.number: read_map(disk, part.number, part.extent) for part in shrinkable(disk) if asked.goal.shrink}
    while True:
        used = {number: Used(number, found.bytes, found.by) for number, found in maps.items()}
        plan = plan_realign(judged, asked.goal, used, names=names)
        moves = {step.partition: step for step in plan.steps if isinstance(step, CopyContent)}
        unread = [step for number, step in moves.items() if number not in maps]
        if not unread:
            return Found(plan, judged, {number: maps[number] for number in moves})
        for step in unread:
            maps[step.partition] = read_map(disk, step.partition, step.source)


def names_on(disk: Disk) -> dict[int, Names]:
    """The starts that files of Windows name, by the partition that the files are on. Those of a GPT are named by GUIDs,
    and without a signature no file names a disk.
    """
    table = disk.table
    if table is None or table.label is not TableLabel.DOS or not (signature := int(table.disk_id or "0", 16)):
        return {}
    found = {}
    for part in disk.partitions:
        if kind_of(part) == "ntfs":
            try:
                with fresh_reader(disk.path) as reader:
                    area = open_area(reader, part.extent, disk.sector_size, lambda *_: ())
                    found[part.number] = read_names(area, signature.to_bytes(4, "little"))
            except OSError as error:
                found[part.number] = Names(unclear=f"cannot be read: {error.strerror}")
    return found


def read_map(disk: Disk, number: int, extent: Extent) -> UsedMap:
    """The used bytes of the partition of that number, which lies there; everything, where there is no map."""
    return read_used(disk.path, extent, layer_of(disk, number), sector_size=disk.sector_size)


def layer_of(disk: Disk, number: int) -> Layer | None:
    """What lies on a partition, or on a whole disk; None where nothing was recognised, or more than one thing."""
    content = next((part.content for part in disk.partitions if part.number == number), disk.content)
    return content[0] if len(content) == 1 else None


Finder = Callable[[str, Request], Found]
"""What plans again: `find_plan`, or the like for another operation."""


# Lock the disk, and apply the plan.


def locked_realign(
    plan: Plan, asked: Request, *, rate: int | None, on_note: Callable[[str], object], find: Finder = find_plan
) -> AbstractContextManager[Applying]:
    """Lock the disk, and see that the plan is still true, in a process of its own. Raises Refused."""
    path = plan.disk.path
    journal = next((step.journal for step in plan.steps if isinstance(step, WriteJournal)), None)
    file, length = (journal.file, journal.extent.end) if journal else (None, None)

    @contextmanager
    def locked(note: Callable[[str], object]) -> Iterator[Applying]:
        with locked_disk(plan, path, on_note=note, journal_file=file, new_journal=length, rate=rate) as context:
            events = _events(plan, asked, still_true(plan, asked, find), context)
            hint = ways_on(path, *journal_words(file))
            yield Applying(events, hint, hurrying(context), unanswered=context.unanswered)

    return apart(locked, plan, path, on_note)


@contextmanager
def locked_disk(
    plan: Plan,
    path: str,
    *,
    on_note: Callable[[str], object],
    journal_file: str | None,
    new_journal: int | None = None,
    rate: int | None = None,
) -> Iterator[MoveContext]:
    """The disk, locked, and where its journal lies. `new_journal`: make one of so many bytes. `rate`: bytes a second at
    most. `on_note`: gets what the user should know, a sentence each.

    `path`: where the disk is now, which need not be where it was when the plan was made.

    Raises Refused.
    """
    with naming(path), lock_disk(path, image_sector_size=plan.disk.sector_size) as locked:
        for note in locked.notes:
            on_note(note)
        device = limited(locked.device, rate)
        opened = open_journal(journal_file, length=new_journal) if journal_file else nullcontext()
        with opened as journal:
            asked = {path: locked.device} | ({journal_file: journal} if journal_file and journal else {})
            yield MoveContext(device, locked.kernel, journal, partial(_unanswered, asked))


def _unanswered(asked: Mapping[str, DiskDevice]) -> Waiting | None:
    """Return the request that has waited longest, where that is too long."""
    (seconds, request), path = max((device.unanswered(), path) for path, device in asked.items())
    return Waiting(path, request, int(seconds)) if seconds >= STALL_S else None


def hurrying(context: MoveContext) -> Callable[[], None]:
    """What makes a device that keeps a rate stop waiting."""
    device = context.device
    return device.hurry if isinstance(device, Limited) else lambda: None


_OF_DISK = {
    "size": "size", "sector_size": "sector size", "label": "kind of table", "disk_id": "disk id",
    "model": "model", "serial": "serial number", "wwn": "WWN", "table_digest": "partition table",
}  # fmt: skip


_PLANNING = dict.fromkeys(("partition", "unpartition"), "plan partition") | {"convert": "plan convert"}


def still_true(plan: Plan, asked: Request, find: Finder = find_plan) -> Found:
    """Plan again: the same disk, table and steps. Raises Refused with what changed."""
    found = find(plan.disk.path, asked)
    now = found.plan
    if is_same_disk(plan.disk, now.disk) and plan.steps == now.steps:
        return found
    text = f"{plan.disk.path}: planned again, the steps differ: the contents of the disk or the request have changed"
    if not is_same_disk(plan.disk, now.disk):
        changed = [word for name, word in _OF_DISK.items() if getattr(plan.disk, name) != getattr(now.disk, name)]
        text = f"{plan.disk.path} is not as it was when the plan was made: another {', '.join(changed)}"
    again = command(_PLANNING.get(plan.purpose, "plan realign"), plan.disk.path, *asked.typed)
    raise Refused(text, hint=f"make the plan anew: {again}", code="plan-stale")


def _events(plan: Plan, asked: Request, found: Found, context: MoveContext) -> Iterator[Event]:
    """The whole plan: checks, shrinking, and then the mover's part. Raises Refused or Stopped."""
    shrunk = False
    for index, step in enumerate(plan.steps):
        if isinstance(step, CheckContent):
            yield from _check(plan, index, step)
        elif isinstance(step, ShrinkContent):
            yield from _shrink(plan, index, step)
            shrunk = True
    yield from move.realign(plan, context, _runs_anew(plan, asked) if shrunk else found.runs, found.rebuilt)


def _check(plan: Plan, index: int, step: CheckContent) -> Iterator[Event]:
    """The file system's own checker, which writes nothing. Raises Refused with its words."""
    yield StepBegun(index)
    result = check_content(plan.disk.path, step.extent, step.kind)
    if result.problem:
        raise Refused(
            f"partition {step.partition} ({step.kind}) failed the check by {result.by}: {result.problem}",
            hint="repair it with its own tool first",
            code="content-damaged",
            subject=f"partition {step.partition}",
        )
    yield Said(f"checked by {result.by}" if result.checked else f"not checked: {result.by}")
    yield StepDone(index)


def _shrink(plan: Plan, index: int, step: ShrinkContent) -> Iterator[Event]:
    refuse_unable(plan.disk.path, step)
    yield StepBegun(index)
    with undisturbed():
        shrink_content(plan.disk.path, step)
    yield StepDone(index)


def _runs_anew(plan: Plan, asked: Request) -> dict[int, tuple[Extent, ...]]:
    """A file system that was shrunk has its blocks elsewhere. Raises Stopped where it is longer than was asked for:
    what lies behind the new end would be left out.
    """
    judged, _ = look_at(plan.disk.path, asked)
    for step in plan.steps:
        if isinstance(step, ShrinkContent):
            layer = layer_of(judged.disk, step.partition)
            claims = None if layer is None else layer.claims_size
            if claims is None or claims > step.length:
                raise Stopped(
                    f"partition {step.partition} was to be shrunk to {step.length} bytes, and its {step.kind} has"
                    f" {'an unknown number' if claims is None else claims}; no partition was moved",
                    hint=command("audit", plan.disk.path),
                )
    copies = [step for step in plan.steps if isinstance(step, CopyContent)]
    return {step.partition: read_map(judged.disk, step.partition, step.source).runs for step in copies}


def journal_words(file: str | None) -> list[str]:
    return [f"--journal {shell_word(file)}"] if file else []


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C waits meanwhile, for us and for the programs that are run: another tool may not be as easily cut."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
