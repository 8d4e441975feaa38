"""An array's plan, acted out: made, gone on with, taken back.

In: a record, with its plan in the names that the drives have now. Out: events, and an array that runs, or none. Alone
because the order of record and step is the promise: what a step found is durable before it begins, that it is done is
durable before the next one begins, and every step may be done again from its beginning.

Every `yield` is a place where the work may stop: whoever stops listening has only cut the power.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import assert_never

from aligntool.apply.arrays import assembly, commands, contents, editing, members
from aligntool.apply.arrays.backups import is_kept, kept_words
from aligntool.apply.arrays.carrying import build_images_back, carry_back
from aligntool.apply.arrays.earlier import stop_earlier
from aligntool.apply.arrays.holding import HeldMembers, hold_members
from aligntool.apply.arrays.nodes import partition_problem
from aligntool.apply.arrays.record import Record, forget, record_file, save
from aligntool.apply.arrays.site import Site
from aligntool.apply.arrays.untouched import refuse_foreign, refuse_used
from aligntool.errors import Refused, Stopped
from aligntool.plan import (
    ArrayStep,
    EditFile,
    Event,
    FileStep,
    MakeArray,
    MakeFileSystem,
    MakeMember,
    Plan,
    RunCommand,
    Said,
    Step,
    StepBegun,
    StepDone,
    WriteFile,
)
from aligntool.raid.members import partition_node
from aligntool.raid.wiping import data_area


def begin(plan: Plan, site: Site) -> Record:
    """The record of a plan that is about to be carried out, durable. Raises Refused: no drive was written to."""
    for step in plan.steps:
        _array_step(step)
    record = Record(record_file(site.state, plan), plan)
    if record.file.exists():
        raise Refused(f"{record.file} is there already", hint="aligntool status")
    try:
        save(record)
    except OSError as error:
        raise Refused(f"{record.file} cannot be written: {error.strerror}") from error
    return record


def go_forward(record: Record, plan: Plan, site: Site, held: HeldMembers | None = None) -> Iterator[Event]:
    """From where the record stands to the end. `plan`: the record's, with the names that the drives have now.

    `held`: the members, as whoever looked at them last still holds them; None: they are held here. They are given back
    once all of them are made. Raises Stopped, or Refused where a drive or file may not be had; the record is kept.
    """
    yield from _awakened(record, plan)
    if held is not None:
        yield from _walk_forward(record, plan, site, held)
        return
    left = plan.steps[max(record.position, 0) :]
    yield from stop_earlier(plan.steps, left)
    with hold_members(left) as held:
        yield from _walk_forward(record, plan, site, held)


def _walk_forward(record: Record, plan: Plan, site: Site, held: HeldMembers) -> Iterator[Event]:
    first_run = not (record.traces or record.begun or record.position)
    for index in range(max(record.position, 0), len(plan.steps)):
        step = _array_step(plan.steps[index])
        if not isinstance(step, MakeMember) and held.release():
            members.wait_for_members(plan.steps)
        again = index in record.traces
        if not again:  # of a step that was begun it was found before it wrote anything
            record = record.noting(index, _trace(step, site, record))
        record = replace(record, position=index, begun=True, forward=True)
        _save(record)
        yield StepBegun(index)
        if isinstance(step, MakeMember):
            yield from members.make_member(step, site, held, again=again, area=data_area(plan.steps))
        else:
            yield from _do(step, plan, site, record.trace(index), again=again, first_run=first_run)
        record = replace(record, position=index + 1, begun=False)
        _save(record)
        yield StepDone(index)
    yield from kept_words(record, site)
    _forget(record)


def go_back(record: Record, plan: Plan, site: Site) -> Iterator[Event]:
    """Undo every step that was begun, the last one first. The record names a step until it is undone.

    Raises Refused and Stopped like `go_forward`.
    """
    first = record.position if record.begun else record.position - 1
    refuse_filled(plan)
    yield from _awakened_to_be_undone(replace(record, position=first), plan)
    refuse_taken(plan, first)
    yield from _given_back(plan, first)
    for index in range(min(first, len(plan.steps) - 1), -1, -1):
        step = _array_step(plan.steps[index])
        record = replace(record, position=index, begun=True, forward=False)
        _save(record)
        yield StepBegun(index)
        yield from _undo(step, index, plan, site, record)
        record = replace(record, position=index - 1)  # which was begun, or there would be nothing after it
        _save(record)
        yield StepDone(index)
    yield from build_images_back(plan, record)
    _forget(record)


def refuse_filled(plan: Plan) -> None:
    """Raises Refused where somebody uses what would be taken away."""
    for step in plan.steps:
        if isinstance(step, RunCommand) and step.command[0] == "mount" and len(step.command) == 2:
            place = step.command[1]
            found = commands.files_below(place) if commands.is_mounted(place) else []
            if found:
                raise Refused(
                    f"files lie on the new array at {place}: {', '.join(found)}; they would be lost",
                    hint="aligntool resume keeps the array; to take it back all the same, move the files away first",
                )


def refuse_taken(plan: Plan, last: int) -> None:
    """Raises Refused where somebody put something on what the steps up to `last` made."""
    made = [_where_it_runs(step, plan) for step in plan.steps if isinstance(step, MakeFileSystem)]
    for step in plan.steps[: last + 1]:
        if isinstance(step, MakeFileSystem):
            refuse_used(_where_it_runs(step, plan))
        elif isinstance(step, MakeArray) and (name := assembly.find_running(step)):
            refuse_foreign(f"/dev/{name}", [each for each in made if each.device == f"/dev/{name}"])


def _given_back(plan: Plan, last: int) -> Iterator[Said]:
    """What no step up to `last` mounted, and a start of the machine did, because its line was in fstab already."""
    uuids = [step.uuid for step in plan.steps if isinstance(step, MakeFileSystem)]
    for step in plan.steps[last + 1 :]:
        if isinstance(step, RunCommand) and commands.started_by_itself(step, uuids):
            yield from commands.undo_command(step, {})


def _where_it_runs(step: MakeFileSystem, plan: Plan) -> MakeFileSystem:
    """After a reboot the array may run under another name, and is not started anew to be taken back."""
    for each in plan.steps:
        if isinstance(each, MakeArray) and each.device == step.device:
            name = assembly.find_running(each)
            return replace(step, device=f"/dev/{name}") if name else step
    return step


def _trace(step: ArrayStep, site: Site, record: Record) -> Mapping[str, str]:
    match step:
        case EditFile() | WriteFile():
            return editing.find_trace(step, site, keeps=not is_kept(step, record))
        case RunCommand():
            return commands.find_trace(step)
        case MakeMember() | MakeArray() | MakeFileSystem():  # what a member held is in the plan
            return {}
        case _:
            assert_never(step)


def _do(
    step: MakeArray | MakeFileSystem | FileStep | RunCommand,
    plan: Plan,
    site: Site,
    trace: Mapping[str, str],
    *,
    again: bool,
    first_run: bool,
) -> Iterator[Said]:
    match step:
        case MakeArray():
            blank = not assembly.has_superblocks(step)
            for each in plan.steps:
                if isinstance(each, MakeMember):
                    members.stop_unless_standing(each, site, data_area(plan.steps), blank=blank)
            yield from assembly.make_array(step, plan.disk.size)
        case MakeFileSystem():
            _stop_unless_ours(step, plan)
            yield from contents.make_file_system(step, site, new=first_run)
        case EditFile() | WriteFile():
            yield from editing.edit_file(step, site, trace)
        case RunCommand():
            if again and step.expects:
                yield from _rebuilt(plan.steps.index(step), plan)
            yield from commands.run_command(step)
        case _:
            assert_never(step)


def _rebuilt(index: int, plan: Plan) -> Iterator[Said]:
    """A look that did not find what it should finds no more until what it looks at is built anew: the user may have
    mended what it is built of.
    """
    for step in reversed(plan.steps[:index]):
        if isinstance(step, RunCommand) and commands.rebuilds(step):
            yield Said(f"{step.purpose}: {' '.join(step.command)}")
            yield from commands.run_command(step)
            return


def _stop_unless_ours(step: MakeFileSystem, plan: Plan) -> None:
    """The device is what an earlier step made: the array of the plan's UUID, or a partition where it was planned.

    Raises Stopped.
    """
    for each in plan.steps:
        match each:
            case MakeArray() if each.device == step.device:
                return assembly.stop_unless_made(each)
            case MakeMember():
                for entry in each.entries:
                    if step.device == partition_node(each.disk.path, entry.number):
                        if why := partition_problem(each.disk.path, step.device, entry.extent):
                            raise Stopped(f"{step.device}: {why}")
                        return None
    raise Stopped(f"no step of the plan makes {step.device}")


def _undo(step: ArrayStep, index: int, plan: Plan, site: Site, record: Record) -> Iterator[Said]:
    match step:
        case MakeMember():
            blank = not any(isinstance(plan.steps[at], MakeFileSystem) for at in record.traces)
            yield from members.remove_member(step, site, data_area(plan.steps), blank=blank)
        case MakeArray():
            assembly.take_apart(step)
            yield Said(f"{step.device} is stopped, and its superblocks are gone")
        case MakeFileSystem():
            yield from contents.remove_file_system(_where_it_runs(step, plan))
        case EditFile() | WriteFile():
            yield from editing.restore_file(step, site, record.trace(index))
            yield from carry_back(index, plan, record)
        case RunCommand():
            yield from commands.undo_command(step, record.trace(index))
        case _:
            assert_never(step)


def _awakened(record: Record, plan: Plan) -> Iterator[Said]:
    """Steps that are still to come need the array that was made; after a reboot it may run under another name."""
    made = next((at for at, step in enumerate(plan.steps) if isinstance(step, MakeArray)), None)
    if made is None or record.position <= made:
        return
    step = plan.steps[made]
    if isinstance(step, MakeArray):
        named = any(isinstance(each, MakeFileSystem) for each in plan.steps[record.position :])
        yield from assembly.start_array(step, named=named)


def _awakened_to_be_undone(record: Record, plan: Plan) -> Iterator[Said]:
    """A file system that is to be wiped is reached through its array. An array that cannot be started may hold files.

    Raises Refused.
    """
    try:
        yield from _awakened(record, plan)
    except Stopped as error:
        made = next((step for step in plan.steps if isinstance(step, MakeArray)), None)
        begun = [plan.steps[index] for index in record.traces]
        if (
            made
            and assembly.has_superblocks(made)
            and any(isinstance(step, MakeFileSystem) for step in begun)
        ):
            clear = f"mdadm --zero-superblock {' '.join(made.members)}"
            raise Refused(
                f"the array cannot be started, so nobody can tell whether files lie on it: {error}",
                hint=f"when nothing of it is needed: {clear}, then the same again",
            ) from error
        yield Said(f"the array cannot be started, and is taken apart as it is: {error}")


def _array_step(step: Step) -> ArrayStep:
    if isinstance(step, MakeMember | MakeArray | MakeFileSystem | EditFile | WriteFile | RunCommand):
        return step
    raise Refused(f"{type(step).__name__} is no step of an array", hint="aligntool raid plan")


def _save(record: Record) -> None:
    try:
        save(record)
    except OSError as error:
        raise Stopped(f"{record.file} cannot be written: {error.strerror}") from error


def _forget(record: Record) -> None:
    try:
        forget(record)
    except OSError as error:
        raise Stopped(f"all is done, but {record.file} cannot be removed: {error.strerror}") from error
