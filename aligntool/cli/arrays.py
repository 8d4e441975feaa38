"""Show, confirm and apply the plan of an array; resume and roll back an array; `raid show`."""

import os
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from aligntool.audit.arrays import sync_words
from aligntool.audit.judge import audit
from aligntool.audit.report import Judged, Report
from aligntool.audit.wording import holders_of, shell_word
from aligntool.change import ArrayPlan, ChangeState, Plan, RaidGoal, array_plan
from aligntool.cli import run_change
from aligntool.cli.options import command, remark, say, suggest, terminal_width
from aligntool.commands import ByHand, by_hand, commands_in, is_by_hand, typed
from aligntool.errors import Refusal, Refused, refuse
from aligntool.inventory import ArrayFacts, Disk, DiskKind, of_system
from aligntool.linux.block import open_read_only
from aligntool.linux.commands import with_health
from aligntool.linux.content import places_for_data, sample
from aligntool.linux.deadline import run_while_progressing
from aligntool.linux.devices import read_array
from aligntool.linux.files import volatile_kind
from aligntool.linux.in_use import unlisted_occupants
from aligntool.linux.installed import read_installed, refuse_incomplete, refuse_other_system
from aligntool.linux.look import look
from aligntool.linux.sysfs import Tree
from aligntool.linux.targets import UserLimits
from aligntool.mover.status import Status, journal_status
from aligntool.mover.unfinished_change import refuse_in_flight
from aligntool.raid.apply import apply_record, begin, undo_record
from aligntool.raid.ceilings import known_rates
from aligntool.raid.current_names import with_current_names
from aligntool.raid.first_sync import Zeroing
from aligntool.raid.lba_formats import Namespace
from aligntool.raid.members import Known
from aligntool.raid.planning import Needs, data_begins
from aligntool.raid.preflight import preflight, refuse_impossible
from aligntool.raid.record import Record, find_records, lock_state, read_record, remove_record
from aligntool.raid.running import ArrayView, arrays_of, find_array
from aligntool.raid.steps_drives import lock_members, read_all_disks, read_disk
from aligntool.raid.steps_format import read_namespace
from aligntool.raid.steps_luks import NO_KEY, Key
from aligntool.raid.steps_system import HERE, Paths, paths_of
from aligntool.raid.steps_zero import read_zeroing
from aligntool.realign.preconditions import find_holders
from aligntool.realign.repairs import with_repairs
from aligntool.realign.suspended import names_suspensions
from aligntool.recipes.drives import known_geometries
from aligntool.render.lines import Line, can_redraw, paragraph, plain
from aligntool.render.plan import array_lines, raid_plan_lines
from aligntool.render.progress import Pace, bench_progress_bar, bench_progress_lines, resync_progress
from aligntool.steps import (
    DriveStep,
    FileStep,
    FormatDrive,
    FormatMember,
    MakeArray,
    MakeFileSystem,
    MakeMember,
    ReencryptSectors,
    Step,
    is_same_disk,
    recognised_content,
)
from aligntool.system import System

# Make an array from a plan, resume it, roll it back.
#
# `raid create`, `apply`, `resume` and the other commands that change an array must lock, refuse, show
# progress and report in the same way.

_PLAN_AGAIN = "make a new plan with the command that made this one"
_MADE_AGAIN = "an unfinished array would have to be made again with --wipe"
_WITHOUT_RECORD = {
    "layers": "to continue, cryptsetup would have to repair it before the same command",
    "reformat": "to continue, mdadm would have to add the removed member before the same command",
}


class ArrayOperation(run_change.Operation, Protocol):
    """A change whose progress is kept in a record."""

    def lines(self, plan: Plan, type_next: str, *, verbose: bool = False) -> Iterable[Line]:
        yield from raid_plan_lines(
            array_plan(plan), width=terminal_width(), type_next=type_next, verbose=verbose
        )
        if not plan.steps:
            yield plain("Nothing to do.")

    def refuse_changed(self, plan: Plan) -> None:
        saved = array_plan(plan)
        if saved.drives:
            refuse_renamed(saved, look((), arrays=True, files=False).disks)
        refuse_changed(saved, self.make_plan())

    def locked(self, plan: Plan) -> AbstractContextManager[run_change.ChangeInProgress]:
        return locked_array(plan, self.make_plan)


def locked_array(
    plan: Plan, plan_again: Callable[[], Plan], key: Key = NO_KEY, check: Callable[[], None] = lambda: None
) -> AbstractContextManager[run_change.ChangeInProgress]:
    """Lock the drives, plan again, refuse what cannot be done, and begin a record, in a child process.

    This includes plans that only edit files or change layers: `key` opens the layers, and `check` raises
    Refused if their content forbids the change.

    Raises Refused while nothing is written, and Stopped afterwards; then the record is kept.
    """

    asked = array_plan(plan)

    @contextmanager
    def locked(on_note: Callable[[str], object]) -> Iterator[run_change.ChangeInProgress]:
        paths = paths_of(asked)
        with lock_state(paths.state):
            refuse_overlapping_change(asked, paths)
            with lock_members(plan.steps) as members:
                refuse_changed(asked, plan_again())
                refuse_impossible(asked, paths)
                check()
                kind = volatile_kind(paths.state)
                if kind:
                    again = _WITHOUT_RECORD.get(plan.purpose, _MADE_AGAIN)
                    on_note(f"{paths.state} is a {kind}: a power cut would lose the record, and {again}")
                record = begin(asked, paths)
                try:
                    events = apply_record(record, asked, paths, members, key)
                    yield run_change.ChangeInProgress(events, run_change.recovery_commands(plan.disk.path))
                except (Refused, KeyboardInterrupt):
                    remove_record(record)  # nothing was written yet
                    raise

    return run_change.lock_in_child(locked, plan, plan.disk.path)


def continue_array(record: Record, *, back: bool, json_: bool, key: Key = NO_KEY) -> ArrayPlan:
    """Finish or roll back an unfinished array. Return its plan with current names. Raises Refused and
    Stopped.
    """
    plan = run_while_progressing(lambda: _current_plan(record))
    ways = run_change.recovery_commands(plan.disk.path)

    @contextmanager
    def locked(on_note: Callable[[str], object]) -> Iterator[run_change.ChangeInProgress]:
        paths = paths_of(plan)
        with lock_state(paths.state):
            current = read_record(record.file)  # again, under the lock
            if _current_plan(current) != plan:
                text = "the device name of a drive has changed meanwhile"
                raise Refused(text, hint=ways, code="plan-stale")
            if back:
                events = undo_record(current, plan, paths)
                way = ChangeState.UNDOING
            else:
                events = apply_record(current, plan, paths, key=key)
                way = ChangeState.RESUMED
            yield run_change.ChangeInProgress(events, ways, way=way)

    with run_change.lock_in_child(locked, plan, plan.disk.path) as applying:
        run_change.apply_and_report(plan, applying, json_=json_, in_flight=True)
    return plan


def _current_plan(record: Record) -> ArrayPlan:
    """Return the plan with the current names of its drives. Raises Refused, also unless the installed system
    that it is for is mounted as it was.
    """
    installed = record.plan.installed
    try:
        if installed is not None:
            refuse_other_system(installed)
            refuse(refuse_incomplete(installed, read_installed(installed, images=False).fstab))
        return with_current_names(record.plan, read_all_disks())
    except Refused as refusal:
        refusal.change_hints(lambda hint: f"{hint}\n{_abandon_hint(record)}")
        raise


def report_array(plan: Plan, *, json_: bool, repeats: bool = False) -> None:
    """Look at the array again and report it. Raises Stopped if it cannot be looked at. `repeats`: also what
    needs attention, which only a plan that was shown in this run has told.
    """
    reformatted = plan.disk.path if plan.of(FormatMember) else ""
    device = next((made.device for made in plan.of(MakeArray)), reformatted)
    names = [Path(device).resolve().name] if device else None

    def look_again() -> Iterable[Line]:
        files = read_installed(plan.installed) if plan.installed else None
        return array_lines(look_at_arrays(names, files=files), width=terminal_width()) if names else ()

    again = command("raid show", device)
    run_change.end_change(plan, look_again, again=again, json_=json_, repeats=repeats)


def refuse_renamed(plan: ArrayPlan, disks: Sequence[Disk]) -> None:
    """Raise Refused if a drive of a saved plan is missing or has another name now: another drive may have its
    name, and a new plan with the old names would overwrite that.
    """
    steps = zip(plan.drives, with_current_names(plan, disks).drives, strict=True)
    pairs = [(was.disk, now.disk.path) for was, now in steps if was.disk.path != now.disk.path]
    renamed = [
        f"{was.model or 'a drive'}, serial {was.serial or 'unknown'}, was {was.path} and is {path} now"
        for was, path in pairs
    ]
    if renamed:
        hint = "make a new plan with the current names of the drives"
        raise Refused("\n".join(dict.fromkeys(renamed)), hint=hint, code="plan-stale")


def since_planned(reason: Refusal, *, seen: bool) -> Refusal:
    """Return a reason why a saved plan cannot be made again, without options, which `apply` does not have.
    `seen`: the plan was made with the drives, whose content was other then.
    """
    hints = dict.fromkeys(_PLAN_AGAIN if _names_option(line) else line for line in reason.hint.split("\n"))
    if seen and reason.code == "not-empty":
        text = f"the content of {reason.subject} has changed since the plan was made: {reason.text}"
        return replace(reason, code="plan-stale", text=text, hint=_PLAN_AGAIN)
    return replace(reason, hint="\n".join(hints))


def _names_option(hint: str) -> bool:
    """Return whether a line of a hint is about an option of the command that plans, and is not a command."""
    return "--" in hint and not is_by_hand(hint) and not commands_in([hint])


def refuse_changed(plan: ArrayPlan, current: Plan) -> None:
    """Raise Refused if a plan made now has other steps, or would overwrite other content."""
    content = {step.device: step.holds for step in current.of(MakeMember)}
    changed = [
        f"the content of {step.device} has changed since the plan was made: it was"
        f" {_content_words(step.holds)}, and is now {_content_words(content[step.device])}"
        for step in plan.of(MakeMember)
        if content.get(step.device, step.holds) != step.holds
    ]
    if changed:
        raise Refused("\n".join(changed), hint=_PLAN_AGAIN, code="plan-stale")
    same = (plan.steps, plan.disk, plan.installed) == (current.steps, current.disk, current.installed)
    if not same or not names_suspensions(plan, current):
        members = ", ".join(dict.fromkeys(step.disk.path for step in plan.drives))
        text = f"{members or plan.disk.path}: the current state requires different steps than the plan"
        raise Refused(text, hint=_PLAN_AGAIN, code="plan-stale")


def _abandon_hint(record: Record) -> str:
    """Return how the user abandons an array, or replaces its drive, if a drive is lost."""
    file = shell_word(str(record.file))
    if record.plan.changes_layers:
        numbers = (f"-p {step.partition}" for step in record.plan.of(ReencryptSectors))
        again = command("realign", record.plan.disk.path, "--layers", *numbers)
        return f"to finish without the record: {by_hand(ByHand.RECORDS, 'rm', file)}, and then {again}"
    if record.plan.installed is not None and not record.plan.array:
        return f"if that system is gone: {by_hand(ByHand.RECORDS, 'rm', file)}"
    if record.plan.of(FormatMember):
        return f"a lost drive is replaced as usual: {by_hand(ByHand.RECORDS, 'mdadm', record.plan.disk.path)}"
    return f"if a drive is lost, abandon the array: {by_hand(ByHand.RECORDS, 'rm', file)}"


def _content_words(holds: tuple[str, ...]) -> str:
    return ", ".join(holds) or "nothing"


def refuse_overlapping_change(plan: ArrayPlan, paths: Paths) -> None:
    """Raise Refused if another array with any of these drives, or of this name, is unfinished."""
    drives = set(map(_drive_key, plan.drives))
    for record in find_records(paths.state):
        # After a reboot the array itself may have another name.
        is_same = record.plan.disk.path == plan.disk.path or record.plan.disk.disk_id == plan.disk.disk_id
        if record.plan.changes_layers:  # another disk may have its path by now
            is_same = is_same_disk(record.plan.disk, plan.disk)
        if is_same or drives & set(map(_drive_key, record.plan.drives)):
            path = record.plan.disk.path
            text = f"{path} is unfinished, and uses the same drives or the same name"
            raise Refused(text, hint=run_change.recovery_commands(path), code="in-flight", subject=path)


def refuse_unfinished(record: Record | None) -> None:
    """Raise Refused with the commands that continue an unfinished change, if there is one."""
    if record is not None:
        path = record.plan.disk.path
        text = f"an earlier change of {path} is unfinished"
        hint = run_change.recovery_commands(path)
        raise Refused(text, hint=hint, code="in-flight", subject=path)


def _drive_key(step: DriveStep) -> tuple[str | None, ...]:
    disk = step.disk
    return (disk.model, disk.serial, disk.wwn) if disk.serial or disk.wwn else (disk.path,)


# What prevents an array on this machine, checked before its plan is shown.
#
# A refusal after the confirmation would waste a typed answer, and a plan that is only shown would promise
# what cannot be done.


def refuse_unready(
    needs: Needs, steps: Sequence[Step] = (), others: Refused | None = None, paths: Paths = HERE
) -> None:
    """Raise Refused with every reason, after `others`, the refusals of the members. Do nothing without root.

    Nothing is written, no module is loaded, and no drive is woken. Drives with two names are recognised from
    sysfs and udev, so disks that belong to no array are not opened.
    """
    if os.geteuid() != 0:
        return
    disks = look((), arrays=True, files=False).disks if steps else ()
    reasons = preflight(needs, steps, paths, disks)
    if reasons:
        refuse([*(others.refusals if others else ()), *reasons])


# Look at drives that are, or will be, members of an array.
#
# Planning, making, tuning and showing an array begin with this.

NOTHING_GIVEN = UserLimits()


def look_at_members(drives: list[str]) -> tuple[list[Judged], tuple[int | None, ...], Report, Known]:
    """Return the drives with their health, the named partition of each or None, the report, and known
    geometry.

    Raises Refused.
    """
    report, known = _look(drives, arrays=True)
    named = [_find(report, target) for target in drives]
    for judged, _ in named:
        # A disk that cannot be read is refused by the plan, because its content is unknown.
        if os.access(judged.disk.path, os.R_OK):
            refuse_in_flight(judged.disk.path)
    disks = [
        replace(with_health(judged.disk), taken=users_beside_mounts(judged.disk, number))
        for judged, number in named
    ]
    members = [
        replace(judged, disk=disk, above=find_holders(disk))
        for (judged, _), disk in zip(named, disks, strict=True)
    ]
    return members, tuple(number for _, number in named), report, known


def look_at_captured(
    nodes: Sequence[str], sysroot: str
) -> tuple[list[Judged], tuple[int | None, ...], Report, Known]:
    """Return what `look_at_members` returns, of a captured machine. `nodes`: the kernel's paths of drives or
    partitions there. Nothing of this machine is looked at. Raises Refused.
    """
    report, known = _look(list(nodes), sysroot, arrays=True)
    machine = look((), sysroot=sysroot, files=False)
    places = {judged.disk.path: (judged, None) for judged in report.judged}
    parts = [(judged, part) for judged in report.judged for part in judged.disk.partitions]
    named = places | {f"/dev/{part.node}": (judged, part.number) for judged, part in parts if part.node}
    unknown = [node for node in nodes if node not in named]
    if unknown:
        text = f"{', '.join(unknown)}: neither a disk nor a partition of the captured machine"
        raise Refused(text, code="not-read", subject=unknown[0])
    found = [named[node] for node in nodes]
    members = [replace(judged, above=machine) if holders_of(judged.disk) else judged for judged, _ in found]
    return members, tuple(number for _, number in found), report, known


def look_at_stand_ins(images: Sequence[str], given: UserLimits) -> tuple[list[Judged], Report, Known]:
    """Return image files as the drives that they stand for in a plan. Raises Refused."""
    report, known = _look(list(images), given=given)
    members = []
    for image in images:
        refuse_in_flight(image)
        judged, _ = _find(report, image)
        members.append(replace(judged, disk=replace(judged.disk, kind=DiskKind.OTHER)))
    return members, report, known


def users_beside_mounts(disk: Disk, number: int | None = None) -> tuple[tuple[str, str], ...]:
    """Return the users of a disk or partition other than mounts and holders, and how to end each use."""
    node = next((part.node for part in disk.partitions if part.number == number and part.node), disk.name)
    with suppress(OSError):
        return tuple((user.what, user.end) for user in unlisted_occupants(f"/dev/{node}"))
    return ()


def sampled_members(members: Sequence[Judged], goal: RaidGoal) -> list[Judged]:
    """Return the members with samples of their content, so that unrecognised data is overwritten only if
    named.
    """
    data_starts = data_begins(members, goal)
    sampled = []
    for judged, number, start in zip_longest(members, goal.partitions, data_starts):
        disk = judged.disk
        part = next((part for part in disk.partitions if part.number == number), None)
        extent = part.extent if part else places_for_data(disk)
        if extent.length and os.access(disk.path, os.R_OK):
            disk = replace(disk, sampled=sample(disk.path, extent, () if start is None else (start,)))
        sampled.append(replace(judged, disk=disk))
    return sampled


def namespaces_of(members: Sequence[Judged]) -> dict[str, Namespace]:
    """Return the namespace of each NVMe drive, by the drive's name."""
    disks = [judged.disk for judged in members if judged.disk.kind is DiskKind.NVME]
    return {disk.name: read_namespace(disk) for disk in disks}


def zeroing_of(members: Sequence[Judged]) -> dict[str, Zeroing]:
    """Return how each NVMe drive can be zeroed, by the drive's name."""
    disks = [judged.disk for judged in members if judged.disk.kind is DiskKind.NVME]
    return {disk.name: read_zeroing(disk) for disk in disks}


def look_for_array(name: str, *, command: str) -> tuple[Report, Disk]:
    """Return the report of every disk, and the array that `find_array` finds by this name. Raises Refused."""
    report, _ = _look([], arrays=True)
    return report, find_array([judged.disk for judged in report.judged], name, command=command)


def look_at_arrays(
    names: Sequence[str], sysroot: str | None = None, files: System | None = None
) -> tuple[ArrayView, ...]:
    """Return arrays of this or a captured machine by their kernel names; all if none is named. `files`: those
    of an installed system.

    Every disk is looked at, to find the members. Raises Refused for a name that is not an array.
    """
    report, known = _look([], sysroot, arrays=True, files=files)
    words = "aligntool raid show" if sysroot is None else command("raid show --sysroot", sysroot)
    return arrays_of(report, names, known_rates(known), known, words)


def _look(
    targets: list[str],
    sysroot: str | None = None,
    *,
    arrays: bool = False,
    given: UserLimits = NOTHING_GIVEN,
    files: System | None = None,
) -> tuple[Report, Known]:
    """Look and audit; `arrays`: also running arrays; `files`: of an installed system in place of the running
    one. Raises Refused if any of the targets could not be read.
    """
    inventory = look(targets, sysroot=sysroot, arrays=arrays, given=given, files=files is None)
    inventory = of_system(inventory, files) if files else inventory
    if targets:
        refuse(Refusal("not-read", unseen.what, unseen.why, unseen.hint) for unseen in inventory.unseen)
    known = known_geometries(inventory)
    report = audit(inventory, known)
    return with_repairs(report)[0], known


def _find(report: Report, target: str) -> tuple[Judged, int | None]:
    """Return the named disk, and its named partition, or None for the whole disk. Follows links. Raises
    Refused.
    """
    path = Path(target) if "/" in target else Path("/dev", target)
    names = {target, str(path), str(path.resolve())}
    for judged in report.judged:
        if names & {judged.disk.name, judged.disk.path}:
            return judged, None
        for part in judged.disk.partitions:
            if part.node and f"/dev/{part.node}" in names:
                return judged, part.number
    raise Refused(f"{target} is neither a disk nor a partition", hint="lsblk")


# Unfinished arrays, as `status`, `resume` and `rollback` find them: in the records, by any of their names.
#
# A move is found on its disk and an array in the folder of records; the user of `aligntool resume` need not
# know which of the two stopped.


def find_record(target: str | None) -> Record | None:
    """Return the unfinished array of a device, a name or a UUID; without a target, the only unfinished array.

    Raises Refused if several could be meant, or a record cannot be read.
    """
    try:
        records = find_records()
    except Refused:
        # Without root an image can be read, although the records cannot; opening a disk then fails with its
        # reason. As root, a record that is damaged must not keep a disk in flight that has nothing to do with
        # it.
        if (
            target is None
            or (os.geteuid() == 0 and not _is_in_flight(target))
            # Path.exists may fail
            or not os.path.exists(target)  # noqa: PTH110
        ):
            raise
        return None
    records = with_current_paths(records)
    if target is not None:
        return next((record for record in records if _is_named(record.plan, target)), None)
    if len(records) > 1:
        paths = [record.plan.disk.path for record in records]
        ways = "\n".join(command("status", path) for path in paths)
        raise Refused(f"several arrays are unfinished: {', '.join(paths)}", hint=ways)
    return records[0] if records else None


def _is_in_flight(target: str) -> bool:
    """Return whether a move is in flight on the target: no array then has it, and no layers are being changed
    on it.
    """

    def state() -> str:
        with open_read_only(target) as device:
            return journal_status(device, None).state

    try:
        return run_while_progressing(state, target) == "in-flight"
    except Refused as error:
        return error.refusals[0].code in ("journal-elsewhere", "journal-damaged")
    except OSError:
        return False


def with_current_paths(records: Iterable[Record]) -> tuple[Record, ...]:
    return tuple(map(_with_current_path, records))


def _with_current_path(record: Record) -> Record:
    """Return a record of layers with the current path of its disk: another disk may have the old one by
    now.
    """
    with suppress(Refused):  # it is missing, which applying the record reports
        if record.plan.changes_layers:
            return replace(record, plan=with_current_names(record.plan, read_all_disks()))
    return record


def _is_named(plan: ArrayPlan, target: str) -> bool:
    """Return whether a target is a name in the plan, or the current name of one of its drives."""
    array = plan.disk
    if target in (array.path, Path(array.path).name, array.disk_id):
        return True
    path = target if "/" in target else f"/dev/{target}"
    if not {path, str(Path(path).resolve())}.isdisjoint(_current_drives(plan)):
        return True
    return Path(array.path).exists() and Path(path).exists() and Path(array.path).samefile(path)


def _current_drives(plan: ArrayPlan) -> set[str]:
    with suppress(Refused):  # a drive is missing: only the names in the plan are known
        plan = with_current_names(plan, read_all_disks())
    return {*(step.disk.path for step in plan.drives), *plan.members}


def array_status(record: Record) -> Status:
    """Return the progress of an unfinished array."""
    plan = record.plan
    state = (
        "its files are not complete, so it may not start at the next boot; the array itself is not affected"
    )
    if plan.array:
        state = "it is not finished: do not store anything on it yet"
    elif plan.of(FormatMember):
        state = (
            "its members are being formatted one at a time: do not remove another one until that is finished"
        )
    elif plan.changes_layers:
        state = "a layer is being changed in place: do not open, repair or partition it"
    sentences = [state if record.forward else "it was being rolled back"]
    if plan.installed is not None:
        sentences.append(f"system: {plan.installed.root}, on {plan.installed.file_system}")
    files = [paths_of(plan).mounted(step.path) for step in plan.steps if isinstance(step, FileStep)]
    lists = {"members": plan.members, "files": files, "record": [str(record.file)]}
    sentences += [f"{word}: {', '.join(names)}" for word, names in lists.items() if names]
    return Status("unfinished", tuple(sentences), plan, record.position, forward=record.forward)


def require_unfinished(record: Record | None) -> Record:
    """Return the record. Raises Refused if there is none."""
    if record is None:
        text = "there is no unfinished array; one that is finished is removed by hand"
        removal = by_hand(ByHand.REMOVING, "mdadm", "an array")
        raise Refused(text, hint=f"the disks in flight: sudo aligntool status\n{removal}")
    return record


def recover_array(record: Record, *, json_: bool, back: bool) -> None:
    """Finish or roll back an unfinished array, and report it. Raises Stopped if it stops again."""
    plan = continue_array(record, back=back, json_=json_)
    if not back:
        report_array(record.plan, json_=json_, repeats=True)
        return
    drives = dict.fromkeys(step.disk.path for step in plan.drives)
    again = typed("aligntool audit", *drives) if drives else ""

    def look_again() -> Iterable[Line]:
        for text in _rolled_back(plan, record.traces):
            yield from [plain(text)] if json_ else paragraph(text, terminal_width())

    run_change.end_change(plan, look_again, again=again, json_=json_, back=True, hint=again)
    if again and not json_:
        suggest(again)


def _rolled_back(plan: ArrayPlan, begun: Container[int]) -> Iterator[str]:
    """Yield what is left after a rollback. `begun`: the steps that were begun, by their index in the plan."""
    undone = [step for index, step in enumerate(plan.steps) if index in begun]
    yield f"{plan.disk.path} was rolled back"
    made = [step.device for step in undone if isinstance(step, MakeArray | MakeFileSystem)]
    if made:
        yield f"removed: the {'array' if plan.array else 'file system'} {', '.join(dict.fromkeys(made))}"
    files = dict.fromkeys(step.path for step in undone if isinstance(step, FileStep))
    if files:
        yield f"its changes are undone in {', '.join(files)}"
    for step in undone:
        if isinstance(step, FormatDrive):
            yield f"{step.disk.path}: it keeps the format that it has by now"
        if isinstance(step, MakeMember):
            yield f"{step.device if not step.entries else step.disk.path}: {_left_on(step)}"


def _left_on(step: MakeMember) -> str:
    """Return whether a drive is as it was before it became a member."""
    if step.wipe:
        lost = f" ({_content_words(step.holds)})" if step.holds else ""
        return f"its former content{lost} was overwritten, and cannot be restored"
    if not step.entries:
        return "its partition table was not changed"
    try:
        disk = read_disk(step.disk.path)
    except Refused as refused:
        return f"it could not be read: {refused}"
    if not disk.table_read or not disk.content_read:
        return "it could not be read again"
    found = recognised_content(disk) or [f"partition {part.number}" for part in disk.partitions]
    if found:
        return f"it holds {', '.join(found)}"
    return "as before, without a partition table or recognised content"


# The first resynchronisation of a new array: report it, or wait for it.
#
# Nothing else in aligntool waits for the kernel, and no user has to: the array can be used meanwhile.

_PAUSE_S = 1.0


def report_resync(device: str) -> None:
    """Report a running resynchronisation and its progress."""
    facts = _running_resync(device)
    if facts:
        text = (
            f"The members are being synchronised in the background ({facts.sync_action}{sync_words(facts)})"
        )
        text += f"; the array is ready. To see the progress: {command('raid show', device)}"
        remark(text)


def wait_for_resync(device: str) -> None:
    """Wait for the end of the resynchronisation. Ctrl-C ends the wait, not the resynchronisation."""
    on_terminal = can_redraw(sys.stderr, os.environ)
    pace = Pace(time.monotonic)
    try:
        with (
            bench_progress_bar(sys.stderr)
            if on_terminal
            else bench_progress_lines(sys.stderr, tenths=True) as show
        ):
            while facts := _running_resync(device):
                show(*resync_progress(facts.sync_done, facts.sync_total, facts.sync_rate, pace))
                time.sleep(_PAUSE_S)
    except KeyboardInterrupt:
        say("stopped waiting; the resynchronisation continues in the background")


def _running_resync(device: str) -> ArrayFacts | None:
    """Return the array, or None unless it is being resynchronised."""
    facts = read_array(Tree(""), f"/sys/block/{Path(device).resolve().name}")
    return facts if facts and facts.sync_action in ("resync", "recover", "reshape") else None
