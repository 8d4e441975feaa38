"""Apply, resume and undo the plan of an array: the walk over its steps.

Crash safety rests on the order of record and step: the trace of a step is durable before the step begins, its
completion is durable before the next one begins, and every step can be repeated from its beginning.

The walk may stop at every `yield`: a caller that stops iterating has the effect of a power cut, and no other.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

from aligntool import steps
from aligntool.audit.arrays import partition_node
from aligntool.change import ArrayPlan, Event, Progress, Said, StepBegun, StepDone
from aligntool.commands import ByHand, by_hand
from aligntool.errors import Refused, Stopped, failing_as
from aligntool.linux.lock import partition_problem
from aligntool.raid import (
    steps_drives,
    steps_format,
    steps_luks,
    steps_md,
    steps_settings,
    steps_sync,
    steps_system,
    steps_zero,
)
from aligntool.raid.commands import purpose_of
from aligntool.raid.members import data_area
from aligntool.raid.record import Record, record_file, remove_record, save
from aligntool.raid.steps_reformat import apply_member_step, undo_member_step
from aligntool.raid.steps_system import Paths, Trace, has_backup
from aligntool.steps import FileStep, FormatDrive, MakeArray, MakeFileSystem, MakeMember, Mount


def begin(plan: ArrayPlan, paths: Paths) -> Record:
    """Durably write the record of a plan that is about to be applied, and return it. Raises Refused; no drive
    was written to.
    """
    try:
        for step in plan.steps:
            steps.array_step(step)
    except ValueError as error:
        raise Refused(str(error), hint="aligntool raid plan") from None
    record = Record(record_file(paths.state, plan), plan)
    if record.file.exists():
        raise Refused(f"{record.file} already exists", hint="aligntool status")
    with failing_as(Refused, f"{record.file} cannot be written"):
        save(record)
    return record


def apply_record(
    record: Record,
    plan: ArrayPlan,
    paths: Paths,
    locked: steps_drives.LockedMembers | None = None,
    key: steps_luks.Key = steps_luks.NO_KEY,
) -> Iterator[Event]:
    """Apply the plan from the position of its record to the end. `plan`: the record's, with the current names
    of the drives.

    `locked`: the members if they are locked already; None locks them here. They are unlocked once all of them
    are prepared. `key`: of a LUKS2 that is re-encrypted. Raises Stopped, or Refused if a drive or file is
    unavailable; the record is kept.
    """
    yield from _start_array(record, plan, whole=True)
    pending = plan.steps[max(record.position, 0) :]
    if locked is None:
        yield from steps_md.stop_old_arrays(plan.steps, pending)
    with steps_drives.lock_members(pending) if locked is None else nullcontext(locked) as locked:
        yield from _walk_forward(record, plan, paths, locked, key)


def _walk_forward(
    record: Record, plan: ArrayPlan, paths: Paths, locked: steps_drives.LockedMembers, key: steps_luks.Key
) -> Iterator[Event]:
    first_run = not (record.traces or record.begun or record.position)
    steps_format.stop_unless_all_blank(plan.steps[max(record.position, 0) :])
    for index in range(max(record.position, 0), len(plan.steps)):
        step = steps.array_step(plan.steps[index])
        if not isinstance(step, FormatDrive | MakeMember) and locked.unlock():
            steps_drives.wait_for_members(plan.steps)
        again = index in record.traces
        # the trace of a step that was begun is kept: it was read before the step wrote anything
        if not again:
            record = replace(record, traces={**record.traces, index: _trace(step, paths, record)})
        record = replace(record, position=index, begun=True, forward=True)
        _save(record)
        yield StepBegun(index)
        if isinstance(step, MakeMember):
            yield from steps_drives.make_member(step, locked, again=again, area=data_area(plan.steps))
        elif isinstance(step, FormatDrive):
            yield from steps_format.format_drive(step, locked)
        elif isinstance(step, MakeFileSystem):
            _stop_unless_ours(step, plan)
            yield from steps_md.make_file_system(step, new=first_run)
        elif isinstance(step, steps.MemberStep):
            yield from apply_member_step(plan.steps, index, new=first_run)
        elif isinstance(step, steps.ReencryptSectors):
            yield from steps_luks.reencrypt(step, index, plan, key)
        elif isinstance(step, steps.ApplySettings):
            yield from steps_settings.apply_settings(step)
        elif isinstance(step, steps.Synchronise):
            yield from steps_sync.synchronise(plan.of(MakeArray)[0], index)
        else:
            yield from _apply(step, index, plan, paths, record.trace(index), again=again)
        record = replace(record, position=index + 1, begun=False)
        _save(record)
        yield StepDone(index)
    yield from steps_system.backup_messages(record.plan, record.traces, paths)
    yield from steps_system.remove_old_backups(record.plan, record.traces, paths)
    _forget(record)


def undo_record(record: Record, plan: ArrayPlan, paths: Paths) -> Iterator[Event]:
    """Undo every step that was begun, in reverse order. The record names a step until it is undone.

    Raises Refused and Stopped like `apply_record`.
    """
    first = record.position if record.begun else record.position - 1
    steps_luks.refuse_begun(plan)
    made = steps_system.directories_made(plan)
    for mount in plan.of(Mount):  # refuse to lose files
        place = paths.mounted(mount.path)
        if steps_system.is_mounted(place):
            files = steps_system.files_below(place, made)
            steps_system.refuse_files(f"the new array at {place}", files)
    yield from _start_array_to_undo(replace(record, position=first), plan)
    refuse_in_use(plan, first)
    yield from _unmount_started(plan, first, paths)
    for index in range(min(first, len(plan.steps) - 1), -1, -1):
        step = steps.array_step(plan.steps[index])
        record = replace(record, position=index, begun=True, forward=False)
        _save(record)
        yield StepBegun(index)
        yield from _undo(step, index, plan, paths, record)
        record = replace(record, position=index - 1)  # that step was begun, since a later one was
        _save(record)
        yield StepDone(index)
    yield from steps_system.rebuild_restored(plan, record.traces, paths)
    _forget(record)


def refuse_in_use(plan: ArrayPlan, last: int) -> None:
    """Raise Refused if the file systems or the array that the steps up to `last` made are used by now."""
    made = [_on_current_node(step, plan) for step in plan.of(MakeFileSystem)]
    for step in plan.steps[: last + 1]:
        if isinstance(step, MakeFileSystem):
            steps_md.refuse_used(_on_current_node(step, plan), steps_system.directories_made(plan))
        elif isinstance(step, MakeArray) and (name := steps_md.find_running(step)):
            steps_md.refuse_foreign(
                f"/dev/{name}", [planned for planned in made if planned.device == f"/dev/{name}"]
            )


def _unmount_started(plan: ArrayPlan, last: int, paths: Paths) -> Iterator[Said]:
    """Unmount file systems that a reboot mounted by their fstab lines, although no step up to `last` did."""
    uuids = [step.uuid for step in plan.of(MakeFileSystem)]
    for step in plan.steps[last + 1 :]:
        if not isinstance(step, steps.MountStep | steps.Swapon):
            continue
        if steps_system.is_started_by_fstab(step, uuids, paths):
            yield from steps_system.undo_system(step, {}, paths)


def _on_current_node(step: MakeFileSystem, plan: ArrayPlan) -> MakeFileSystem:
    """Return the step with the current node of its array. After a reboot the array may run under another
    name, and it is not restarted to be undone.
    """
    made = plan.array
    name = steps_md.find_running(made) if made and made.device == step.device else None
    return replace(step, device=f"/dev/{name}") if name else step


def _trace(step: steps.ArrayStep, paths: Paths, record: Record) -> Trace:
    if isinstance(step, FileStep):
        return steps_system.find_file_trace(
            step, paths, keeps=not has_backup(step, record.plan, record.traces)
        )
    if isinstance(step, steps.SystemStep):
        return steps_system.find_system_trace(step, paths)
    return {}  # the plan has the former content of a member


_OtherStep = MakeArray | FileStep | steps.SystemStep


def _apply(
    step: _OtherStep, index: int, plan: ArrayPlan, paths: Paths, trace: Trace, *, again: bool
) -> Iterator[Said | Progress]:
    if isinstance(step, MakeArray):
        blank = step.zeroed or not steps_md.has_superblocks(step)
        for member in plan.of(MakeMember):
            steps_drives.stop_unless_in_place(member, data_area(plan.steps), blank=blank)
        zeroing = steps_zero.zero_members(step, index, plan.of(MakeMember)) if step.zeroed else ()
        yield from steps_md.make_array(step, plan.disk.size, zeroing)
    elif isinstance(step, FileStep):
        yield from steps_system.edit_file(step, paths, trace)
    else:
        if again and isinstance(step, steps.CheckInitramfs):
            # The user may have repaired the files that the checked image is built from.
            before = reversed(plan.steps[: plan.steps.index(step)])
            build = next(
                (past for past in before if isinstance(past, steps.RebuildInitramfs | steps.ReloadUnits)),
                None,
            )
            if build:
                yield Said(f"{purpose_of(build)}: {steps_system.shell_words(build, paths)}")
                yield from steps_system.apply_system(build, paths)
        yield from steps_system.apply_system(step, paths)


def _stop_unless_ours(step: MakeFileSystem, plan: ArrayPlan) -> None:
    """Raise Stopped unless an earlier step made the device: it is the array of the plan's UUID, or a
    partition at its planned extent.
    """
    made = plan.array
    if made and made.device == step.device:
        return steps_md.stop_unless_made(made)
    for member in plan.of(MakeMember):
        for entry in member.entries:
            if step.device == partition_node(member.disk.path, entry.number):
                why = partition_problem(member.disk.path, step.device, entry.extent)
                if why:
                    raise Stopped(f"{step.device}: {why}")
                return None
    raise Stopped(f"no step of the plan creates {step.device}")


def _undo(
    step: steps.ArrayStep, index: int, plan: ArrayPlan, paths: Paths, record: Record
) -> Iterator[Said | Progress]:
    if isinstance(step, MakeMember):
        blank = not any(isinstance(plan.steps[begun], MakeFileSystem) for begun in record.traces)
        yield from steps_drives.remove_member(step, data_area(plan.steps), blank=blank)
    elif isinstance(step, FormatDrive):
        yield steps_format.keep_format(step)
    elif isinstance(step, MakeArray):
        steps_md.remove_array(step)
        yield Said(f"{step.device} is stopped, and its superblocks are zeroed")
    elif isinstance(step, MakeFileSystem):
        yield from steps_md.remove_file_system(_on_current_node(step, plan))
    elif isinstance(step, steps.MemberStep):
        yield from undo_member_step(plan.steps, index)
    elif isinstance(step, steps.ReencryptSectors):
        yield steps_luks.undo(step, plan)
    elif isinstance(step, steps.ApplySettings):
        yield from steps_settings.undo_settings(step)
    elif isinstance(step, steps.Synchronise):
        steps_sync.restore_limit(plan.of(MakeArray)[0])
    elif isinstance(step, FileStep):
        yield from steps_system.restore_file(step, paths, record.trace(index))
        yield from steps_system.reload_restored(index, plan, record.traces, paths)
    else:
        yield from steps_system.undo_system(step, record.trace(index), paths)


def _start_array(record: Record, plan: ArrayPlan, *, whole: bool) -> Iterator[Said]:
    """Start the array if it was made, as later steps need it; after a reboot it may run under another
    name.
    """
    made = plan.array
    if made and record.position > plan.steps.index(made):
        named = any(isinstance(step, MakeFileSystem) for step in plan.steps[record.position :])
        yield from steps_md.start_array(made, named=named, whole=whole)


def _start_array_to_undo(record: Record, plan: ArrayPlan) -> Iterator[Said]:
    """Start the array, through which the file system to be wiped is reached. Raises Refused if it cannot be
    started and may hold files.
    """
    try:
        yield from _start_array(record, plan, whole=False)
    except Stopped as error:
        made = plan.array
        begun = [plan.steps[index] for index in record.traces]
        if (
            made
            and steps_md.has_superblocks(made)
            and any(isinstance(step, MakeFileSystem) for step in begun)
        ):
            text = f"the array cannot be started, so it is unknown whether it holds files: {error}"
            clear = by_hand(ByHand.MEMBERS, "mdadm", ", ".join(made.members))
            raise Refused(
                text, hint=f"if none of it is needed: {clear}, then run the same command again"
            ) from error
        yield Said(f"the array cannot be started and is removed as it is: {error}")


def _save(record: Record) -> None:
    with failing_as(Stopped, f"{record.file} cannot be written"):
        save(record)


def _forget(record: Record) -> None:
    with failing_as(Stopped, f"finished, but {record.file} cannot be removed"):
        remove_record(record)
