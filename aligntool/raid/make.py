"""Apply a plan of an array: its record, preflight, the walk over its steps, finding drives after a reboot."""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from aligntool import steps
from aligntool.audit.array_boot import places_on
from aligntool.audit.arrays import partition_node
from aligntool.audit.wording import shell_word
from aligntool.change import Event, Plan, Progress, Said, StepBegun, StepDone, digest, from_json, to_json
from aligntool.documents import as_object, check_schema, decode, load_object
from aligntool.errors import Refusal, Refused, Stopped, failing_as, refuse
from aligntool.inventory import Disk
from aligntool.linux.files import remove_file, replace_file, sync_folder
from aligntool.linux.lock import partition_problem
from aligntool.linux.process import find_program, inherited, run_program
from aligntool.linux.users import killed, openers
from aligntool.raid import steps_drives, steps_luks, steps_md, steps_system
from aligntool.raid.boot import FSTAB, LIST_FILE
from aligntool.raid.commands import purpose_of
from aligntool.raid.members import array_of, data_area
from aligntool.raid.planning import Needs, needs_of_plan
from aligntool.raid.running import other_place
from aligntool.raid.steps_drives import LockedMembers, is_made, is_same_drive, lock_members, look_around, old_signatures
from aligntool.raid.steps_luks import NO_KEY, Key
from aligntool.raid.steps_md import refuse_foreign, refuse_used, stop_earlier
from aligntool.raid.steps_reformat import apply_member_step, undo_member_step
from aligntool.raid.steps_system import STATE, Paths, Trace, find_file, is_kept
from aligntool.steps import FileStep, MakeArray, MakeFileSystem, MakeMember, Mount, Step

# The record of an array that is being made: its plan, how far it came, and what it takes to undo each step.
#
# It is all that a resume knows: what it says must be on the disk before the step that it is about begins.
#
# Each record is a JSON file `arrays/UUID.json`, written anew beside the old one and put in its place by a
# rename. Where that folder forgets (a live system), the user is told, and nothing is lost but the way back.

SCHEMA = "aligntool.record"
VERSION = 1
LONGEST_RECORD = 16 << 20  # bytes; of an honest record a few files of the system are most


@dataclass(frozen=True, slots=True)
class Record:
    """`position`: the step that is next, or in the middle of which the work stopped where it has `begun`."""

    file: Path
    plan: Plan
    position: int = 0
    begun: bool = False
    forward: bool = True  # False: it is being taken back
    traces: Mapping[int, Trace] = field(default_factory=dict)

    def trace(self, index: int) -> Trace:
        return self.traces.get(index, {})


def record_file(state: Path, plan: Plan) -> Path:
    """Named by the UUID of the array that is made, which no two plans share; else by the plan's digest."""
    name = made.uuid.replace(":", "") if (made := array_of(plan.steps)) else digest(plan)[:32]
    return state / "arrays" / f"{name}.json"


def save(record: Record) -> None:
    """Durable when it returns. Raises OSError."""
    body = _body(record)
    text = json.dumps({**body, "checksum": _checksum(body)}, indent=1) + "\n"
    replace_file(record.file, text.encode(), mode=0o600)


def forget(record: Record) -> None:
    """The work is done, or taken back: nothing is unfinished any more. Raises OSError."""
    remove_file(record.file)


def find_records(state: Path = STATE) -> tuple[Record, ...]:
    """Return all records. Raises Refused for one that cannot be read, naming it."""
    with failing_as(Refused, str(state)):
        files = sorted((state / "arrays").glob("*.json"))
    return tuple(read_record(file) for file in files)


def read_record(file: Path) -> Record:
    """Raises Refused: not readable, torn, changed, or of another version."""
    try:
        if file.stat().st_size > LONGEST_RECORD:
            raise ValueError("it is far too large")
        document = load_object(file.read_text(encoding="utf-8"))
        check_schema(document, SCHEMA, VERSION)
        if document.pop("checksum", None) != _checksum(document):
            raise ValueError("it is damaged, or was changed by hand: its checksum does not fit")
        return _read(file, document)
    except PermissionError as error:
        raise Refused(f"{file}: {error.strerror}", hint="type the same after sudo") from error
    except (OSError, ValueError, Refused) as error:
        what = error.strerror if isinstance(error, OSError) else str(error)
        hint = f"mdadm --examine shows what its drives hold; when nothing is needed of them: rm {file}"
        raise Refused(f"{file}: the record of an unfinished array cannot be read: {what}", hint=hint) from error


@dataclass(frozen=True, slots=True)
class _Body:
    schema: str
    version: int
    plan: dict[str, object]
    position: int
    begun: bool
    forward: bool
    traces: dict[str, dict[str, str]]


def _body(record: Record) -> dict[str, object]:
    plan: dict[str, object] = json.loads(to_json(record.plan))
    traces = {str(index): dict(trace) for index, trace in sorted(record.traces.items())}
    return as_object(_Body(SCHEMA, VERSION, plan, record.position, record.begun, record.forward, traces))


def _read(file: Path, document: dict[str, object]) -> Record:
    body = decode(_Body, document, exact=True)
    plan = from_json(json.dumps(body.plan))
    if not -1 <= body.position <= len(plan.steps):
        raise ValueError(f"it stands at step {body.position}, which the plan does not have")
    traces = {int(index): trace for index, trace in body.traces.items()}
    if any(not 0 <= index < len(plan.steps) for index in traces):
        raise ValueError("it knows of steps that the plan does not have")
    return Record(file, plan, body.position, body.begun, body.forward, traces)


def _checksum(body: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@contextmanager
def one_at_a_time(state: Path = STATE) -> Iterator[None]:
    """Let no other aligntool make or undo an array meanwhile, nor while a program that was run inside lives. Makes the
    directory. Raise Refused.
    """
    try:
        (state / "arrays").mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(state)
        sync_folder(state.parent)
        descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        root = isinstance(error, PermissionError)
        raise Refused(f"{state}: {error.strerror}", hint="type the same after sudo" if root else "") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with inherited(descriptor):
            yield
    except BlockingIOError:
        for left in killed(openers(state / "lock")):
            raise Refused(left.what, hint=left.end) from None
        raise Refused("another aligntool is making an array", hint="aligntool status") from None
    finally:
        os.close(descriptor)


# Everything that can be known to stand in the way, before the first write.
#
# A reason that is found after the first write is a half-made array, and one that is found before is a line of text.

_MODULE = {"raid5": "raid456", "raid6": "raid456"}


def refuse_impossible(plan: Plan, paths: Paths) -> None:
    """Raises Refused with every reason there is. Writes nothing, but may load the kernel's module for the level."""
    if os.geteuid() != 0:
        raise Refused("arrays are made by root only", hint="type the same after sudo", code="root-only")
    disks = look_around() if any(isinstance(step, MakeMember) for step in plan.steps) else ()
    refuse([*_about_kernel(plan.steps), *preflight(needs_of_plan(plan, here=True), plan.steps, paths, disks)])


def preflight(needs: Needs, planned: Sequence[Step], paths: Paths, disks: Sequence[Disk] = ()) -> list[Refusal]:
    """Return every reason that can be found by looking, so also for a plan that is only shown, and for a goal without a
    plan, which has no `planned`. `disks`: of the machine, to find drives with two names. Root only.
    """
    reasons = list(steps_system.missing_programs(needs.programs))
    if needs.device and Path(needs.device).exists():
        text = f"an array of the name {needs.device} runs already"
        reasons.append(Refusal("name-taken", needs.device, text, "--name another"))
    reasons += [*_about_paths(planned, disks), *_about_files(needs.steps, planned, paths)]
    if find_program("blkid"):
        area = data_area(planned)  # what no table shows, and blkid would find the moment a partition is there
        reasons += chain(*(old_signatures(step, area) for step in _members(planned) if not step.wipe))
    for step in needs.steps:
        if isinstance(step, steps.RebuildInitramfs):
            reasons += steps_system.refuse_hooks(step, paths)
        if isinstance(step, Mount) and find_program("mountpoint"):
            free = _elsewhere(step.path, paths)
            reasons += (Refusal("mount-point", step.path, text, free) for text in steps_system.refuse_mount_point(step))
    return reasons


def _about_kernel(planned: Sequence[Step]) -> Iterator[Refusal]:
    """/proc/mdstat lists the levels that the kernel can do; one that it has as a module is loaded."""
    made, mdstat = array_of(planned), Path("/proc/mdstat")
    if made and f"[{made.level}]" not in steps_md.text_of(mdstat):
        module = _MODULE.get(made.level, made.level)
        if find_program("modprobe"):
            run_program("modprobe", "-q", "--", module)
        if f"[{made.level}]" not in steps_md.text_of(mdstat):
            text = f"this kernel has no md, or not {made.level}"
            yield Refusal("kernel-lacks", made.level, text, f"modprobe {module}; uname -r")


def _about_paths(planned: Sequence[Step], disks: Sequence[Disk]) -> Iterator[Refusal]:
    """A drive that is in use by another name: the kernel knows of two drives, and guards each for itself."""
    for other in disks:
        places = places_on(other)
        above = [*other.holders, *(holder for part in other.partitions for holder in part.holders)]
        used = f"mounted at {places[0]}" if places else f"a part of {above[0]}" if above else ""
        for path in [step.disk.path for step in _members(planned) if used and _is_same(other, step.disk)]:
            if other.path != path:
                text = f"{path} and {other.path} are one drive by two names, and it is {used}"
                yield Refusal("same-drive", path, text, f"lsblk -o NAME,WWN,SERIAL,MOUNTPOINTS {path} {other.path}")


def _members(planned: Sequence[Step]) -> list[MakeMember]:
    return [step for step in planned if isinstance(step, MakeMember)]


def _is_same(disk: Disk, was: steps.Subject) -> bool:
    """By WWN; where one has none, by model, serial number and size."""
    if disk.wwn and was.wwn:
        return disk.wwn == was.wwn
    return bool(disk.serial) and (disk.model, disk.serial, disk.size) == (was.model, was.serial, was.size)


def _about_files(files: Sequence[Step], planned: Sequence[Step], paths: Paths) -> Iterator[Refusal]:
    drives = [each.disk.path for each in _members(planned)]
    for step in files:
        if isinstance(step, FileStep):
            unwritable = steps_system.refuse_unwritable(step, paths)
            yield from (Refusal("not-writable", step.path, text) for text in unwritable)
        if isinstance(step, steps.EditFile):
            yield from _about_names(step, paths)
            yield from _about_copies(step, drives, paths)


def _about_copies(step: steps.EditFile, drives: Sequence[str], paths: Paths) -> Iterator[Refusal]:
    """EFI system partitions of another array that are kept alike: its line would go, and they would drift apart."""
    if step.path != LIST_FILE:
        return
    text = _text_of(step.path, paths)
    for uuid in re.findall(r"[0-9A-F]{4}-[0-9A-F]{4}", " ".join(re.findall(r"(?m)^ESP_COPIES=(.*)", text))):
        device = os.path.realpath(paths.of(f"/dev/disk/by-uuid/{uuid}"))
        if os.path.lexists(device) and not device.startswith(tuple(drives)):
            text = f"{step.path} keeps {device}, an EFI system partition of another array, like its others, and would"
            hint = "make this array from a live system, so that each has a list of its own"
            yield Refusal("file-conflict", step.path, f"{text} not any more", hint)
            return


def _about_names(step: steps.EditFile, paths: Paths) -> Iterator[Refusal]:
    """Another array of that name in mdadm.conf, another file system at that place in fstab."""
    lines = [line for line in _text_of(step.path, paths).splitlines() if not re.match(r"\s*(#|$)", line)]
    others = [line.split() for line in lines if step.instead_of not in line]  # that one is replaced
    for ours in (line.split() for line in step.lines):
        for other in others:
            taken = len(ours) > 1 and len(other) > 1
            if taken and other[0] == ours[0] == "ARRAY" and other[1] == ours[1]:
                text = f"{step.path} gives the name {ours[1]} to another array: {' '.join(other)}"
                yield Refusal("name-taken", ours[1], text, "--name another")
            elif taken and step.path == FSTAB and other[1].rstrip("/") == ours[1] != "/":
                text = f"{step.path} mounts {other[0]} at {ours[1]} already"
                yield Refusal("mount-point", ours[1], text, _elsewhere(ours[1], paths))


def _text_of(path: str, paths: Paths) -> str:
    """Return what a file of the system holds; "" where it cannot be read."""
    try:
        return find_file(paths, path).read_text(errors="surrogateescape")
    except (OSError, Refused):
        return ""


def _elsewhere(place: str, paths: Paths) -> str:
    """A place that is not there yet, and that fstab does not name."""
    named = {word for line in _text_of(FSTAB, paths).splitlines() for word in line.split()[1:2]}
    free = other_place(place, lambda each: each in named or os.path.lexists(each))
    return f"--mount {shell_word(free)}"


# An array's plan, acted out: made, gone on with, taken back.
#
# The order of record and step is the promise: what a step found is durable before it begins, that it is done is durable
# before the next one begins, and every step may be done again from its beginning.
#
# Every `yield` is a place where the work may stop: whoever stops listening has only cut the power.


def begin(plan: Plan, paths: Paths) -> Record:
    """Write the record of a plan that is about to be applied, durably, and return it. Raises Refused: no drive was
    written to.
    """
    try:
        for step in plan.steps:
            steps.array_step(step)
    except ValueError as error:
        raise Refused(str(error), hint="aligntool raid plan") from None
    record = Record(record_file(paths.state, plan), plan)
    if record.file.exists():
        raise Refused(f"{record.file} is there already", hint="aligntool status")
    with failing_as(Refused, f"{record.file} cannot be written"):
        save(record)
    return record


def go_forward(
    record: Record, plan: Plan, paths: Paths, locked: LockedMembers | None = None, key: Key = NO_KEY
) -> Iterator[Event]:
    """Apply the plan from the position of its record to the end. `plan`: the record's, with the names that the drives
    have now.

    `locked`: the members, where they are locked already; None: they are locked here. They are unlocked once all of them
    are made. `key`: of a LUKS2 that is changed. Raises Stopped, or Refused where a drive or file may not be had; the
    record is kept.
    """
    yield from _start_array(record, plan)
    left = plan.steps[max(record.position, 0) :]
    if locked is None:
        yield from stop_earlier(plan.steps, left)
    with lock_members(left) if locked is None else nullcontext(locked) as locked:
        yield from _walk_forward(record, plan, paths, locked, key)


def _walk_forward(record: Record, plan: Plan, paths: Paths, locked: LockedMembers, key: Key) -> Iterator[Event]:
    first_run = not (record.traces or record.begun or record.position)
    for index in range(max(record.position, 0), len(plan.steps)):
        step = steps.array_step(plan.steps[index])
        if not isinstance(step, MakeMember) and locked.unlock():
            steps_drives.wait_for_members(plan.steps)
        again = index in record.traces
        if not again:  # of a step that was begun it was found before it wrote anything
            record = replace(record, traces={**record.traces, index: _trace(step, paths, record)})
        record = replace(record, position=index, begun=True, forward=True)
        _save(record)
        yield StepBegun(index)
        if isinstance(step, MakeMember):
            yield from steps_drives.make_member(step, locked, again=again, area=data_area(plan.steps))
        elif isinstance(step, MakeFileSystem):
            _stop_unless_ours(step, plan)
            yield from steps_md.make_file_system(step, new=first_run)
        elif isinstance(step, steps.MemberStep):
            yield from apply_member_step(step, index)
        elif isinstance(step, steps.ReencryptSectors):
            yield from steps_luks.reencrypt(step, index, plan, key)
        else:
            yield from _do(step, plan, paths, record.trace(index), again=again)
        record = replace(record, position=index + 1, begun=False)
        _save(record)
        yield StepDone(index)
    yield from steps_system.kept_words(record.plan, record.traces, paths)
    _forget(record)


def go_back(record: Record, plan: Plan, paths: Paths) -> Iterator[Event]:
    """Undo every step that was begun, the last one first. The record names a step until it is undone.

    Raises Refused and Stopped like `go_forward`.
    """
    first = record.position if record.begun else record.position - 1
    steps_luks.refuse_begun(plan)
    for step in plan.steps:  # files that would be lost
        if isinstance(step, Mount) and steps_system.is_mounted(step.path):
            steps_system.refuse_files(f"the new array at {step.path}", steps_system.files_below(step.path))
    yield from _start_array_to_undo(replace(record, position=first), plan)
    refuse_in_use(plan, first)
    yield from _unmount_started(plan, first)
    for index in range(min(first, len(plan.steps) - 1), -1, -1):
        step = steps.array_step(plan.steps[index])
        record = replace(record, position=index, begun=True, forward=False)
        _save(record)
        yield StepBegun(index)
        yield from _undo(step, index, plan, paths, record)
        record = replace(record, position=index - 1)  # which was begun, or there would be nothing after it
        _save(record)
        yield StepDone(index)
    yield from steps_system.rebuild_restored(plan, record.traces)
    _forget(record)


def refuse_in_use(plan: Plan, last: int) -> None:
    """Raise Refused where something was put on what the steps up to `last` made."""
    made = [_where_it_runs(step, plan) for step in plan.steps if isinstance(step, MakeFileSystem)]
    for step in plan.steps[: last + 1]:
        if isinstance(step, MakeFileSystem):
            refuse_used(_where_it_runs(step, plan))
        elif isinstance(step, MakeArray) and (name := steps_md.find_running(step)):
            refuse_foreign(f"/dev/{name}", [each for each in made if each.device == f"/dev/{name}"])


def _unmount_started(plan: Plan, last: int) -> Iterator[Said]:
    """What no step up to `last` mounted, and a start of the machine did, because its line was in fstab already."""
    uuids = [step.uuid for step in plan.steps if isinstance(step, MakeFileSystem)]
    for step in plan.steps[last + 1 :]:
        if isinstance(step, Mount | steps.Swapon) and steps_system.is_started_by_fstab(step, uuids):
            yield from steps_system.undo_system(step, {})


def _where_it_runs(step: MakeFileSystem, plan: Plan) -> MakeFileSystem:
    """After a reboot the array may run under another name, and is not started anew to be taken back."""
    made = array_of(plan.steps)
    name = steps_md.find_running(made) if made and made.device == step.device else None
    return replace(step, device=f"/dev/{name}") if name else step


def _trace(step: steps.ArrayStep, paths: Paths, record: Record) -> Trace:
    if isinstance(step, FileStep):
        return steps_system.find_file_trace(step, paths, keeps=not is_kept(step, record.plan, record.traces))
    if isinstance(step, steps.SystemStep):
        return steps_system.find_system_trace(step)
    return {}  # what a member held is in the plan


_Rest = MakeArray | FileStep | steps.SystemStep


def _do(step: _Rest, plan: Plan, paths: Paths, trace: Trace, *, again: bool) -> Iterator[Said]:
    if isinstance(step, MakeArray):
        blank = not steps_md.has_superblocks(step)
        for each in _members(plan.steps):
            steps_drives.stop_unless_standing(each, data_area(plan.steps), blank=blank)
        yield from steps_md.make_array(step, plan.disk.size)
    elif isinstance(step, FileStep):
        yield from steps_system.edit_file(step, paths, trace)
    else:
        if again and isinstance(step, steps.CheckInitramfs):
            # The user may have repaired what the image that it looks into is built from.
            before = reversed(plan.steps[: plan.steps.index(step)])
            build = next((one for one in before if isinstance(one, steps.RebuildInitramfs | steps.ReloadUnits)), None)
            if build:
                yield Said(f"{purpose_of(build)}: {steps_system.shell_words(build)}")
                yield from steps_system.apply_system(build)
        yield from steps_system.apply_system(step)


def _stop_unless_ours(step: MakeFileSystem, plan: Plan) -> None:
    """The device is what an earlier step made: the array of the plan's UUID, or a partition where it was planned.

    Raises Stopped.
    """
    if (made := array_of(plan.steps)) and made.device == step.device:
        return steps_md.stop_unless_made(made)
    for each in _members(plan.steps):
        for entry in each.entries:
            if step.device == partition_node(each.disk.path, entry.number):
                if why := partition_problem(each.disk.path, step.device, entry.extent):
                    raise Stopped(f"{step.device}: {why}")
                return None
    raise Stopped(f"no step of the plan makes {step.device}")


def _undo(step: steps.ArrayStep, index: int, plan: Plan, paths: Paths, record: Record) -> Iterator[Said | Progress]:
    if isinstance(step, MakeMember):
        blank = not any(isinstance(plan.steps[at], MakeFileSystem) for at in record.traces)
        yield from steps_drives.remove_member(step, data_area(plan.steps), blank=blank)
    elif isinstance(step, MakeArray):
        steps_md.take_apart(step)
        yield Said(f"{step.device} is stopped, and its superblocks are zeroed")
    elif isinstance(step, MakeFileSystem):
        yield from steps_md.remove_file_system(_where_it_runs(step, plan))
    elif isinstance(step, steps.MemberStep):
        yield from undo_member_step(step, index)
    elif isinstance(step, steps.ReencryptSectors):
        yield Said(f"partition {step.partition} is as it was")
    elif isinstance(step, FileStep):
        yield from steps_system.restore_file(step, paths, record.trace(index))
        yield from steps_system.reload_restored(index, plan, record.traces)
    else:
        yield from steps_system.undo_system(step, record.trace(index))


def _start_array(record: Record, plan: Plan) -> Iterator[Said]:
    """Steps that are still to come need the array that was made; after a reboot it may run under another name."""
    made = array_of(plan.steps)
    if made and record.position > plan.steps.index(made):
        named = any(isinstance(each, MakeFileSystem) for each in plan.steps[record.position :])
        yield from steps_md.start_array(made, named=named)


def _start_array_to_undo(record: Record, plan: Plan) -> Iterator[Said]:
    """A file system that is to be wiped is reached through its array. An array that cannot be started may hold files.

    Raises Refused.
    """
    try:
        yield from _start_array(record, plan)
    except Stopped as error:
        made = array_of(plan.steps)
        begun = [plan.steps[index] for index in record.traces]
        if made and steps_md.has_superblocks(made) and any(isinstance(step, MakeFileSystem) for step in begun):
            text = f"the array cannot be started, so it is unknown whether files lie on it: {error}"
            clear = f"mdadm --zero-superblock {' '.join(made.members)}"
            raise Refused(text, hint=f"when nothing of it is needed: {clear}, then the same again") from error
        yield Said(f"the array cannot be started, and is taken apart as it is: {error}")


def _save(record: Record) -> None:
    with failing_as(Stopped, f"{record.file} cannot be written"):
        save(record)


def _forget(record: Record) -> None:
    with failing_as(Stopped, f"all is done, but {record.file} cannot be removed"):
        forget(record)


# Where the drives of a plan are now: kernel names change from boot to boot.
#
# A resume that believed old names would write to whatever drive got them.

_NUMBERS = range(1, 129)


def plan_here(plan: Plan, disks: Sequence[Disk]) -> Plan:
    """Raises Refused, naming every drive that is missing or cannot be told from another."""
    if plan.purpose == "layers" and not Path(plan.disk.path).is_file():
        return replace(plan, disk=_subject_here(plan.disk, disks))
    names: dict[str, str] = {}
    reasons = []
    for step in (step for step in plan.steps if isinstance(step, steps.DriveStep)):
        found = _drive(step, disks)
        if len(found) == 1:
            before, now = step.disk.path, found[0].path
            names |= {before: now, **{partition_node(before, at): partition_node(now, at) for at in _NUMBERS}}
        else:
            reasons.append(_sentence(step, found))
    if len(set(names.values())) < len(names):
        reasons.append("two drives of the plan are the same drive now")
    if reasons:
        raise Refused("\n".join(reasons), hint="attach every drive of the array; lsblk -o NAME,MODEL,SERIAL,SIZE")
    return replace(plan, steps=tuple(_step_here(step, names) for step in plan.steps))


def _subject_here(was: steps.Subject, disks: Sequence[Disk]) -> steps.Subject:
    """Raise Refused unless exactly one disk is the one of the plan, by identity and table."""
    found = [disk.path for disk in disks if steps.is_same_disk(steps.subject(disk), was)]
    if len(found) != 1:
        names = ", ".join(found)
        text = f"cannot be told from others: {names}" if found else "is not there, or has another table"
        raise Refused(f"{was.path} {text}", hint="lsblk -o NAME,MODEL,SERIAL,SIZE")
    return replace(was, path=found[0])


def _drive(step: steps.DriveStep, disks: Sequence[Disk]) -> list[Disk]:
    """By serial number or WWN; a drive that has neither by its table once it was made, else by its name."""
    alike = [disk for disk in disks if is_same_drive(disk, step)]
    if step.disk.serial or step.disk.wwn:
        return alike
    made = [disk for disk in alike if isinstance(step, MakeMember) and step.entries and is_made(disk, step)]
    named = [disk for disk in alike if disk.path == step.disk.path]
    return named if not made or (named and named[0] in made) else made


def _sentence(step: steps.DriveStep, found: Sequence[Disk]) -> str:
    serial = f", serial {step.disk.serial}" if step.disk.serial else ""
    others = f"cannot be told from others: {', '.join(disk.path for disk in found)}" if found else "is not there"
    return f"{step.disk.model or 'a drive'}{serial}, which was {step.disk.path}, {others}"


def _step_here(step: Step, names: Mapping[str, str]) -> Step:
    """Only whole words are replaced, and all at once, so that two drives may have swapped their names."""
    match step:
        case MakeMember() | steps.FormatMember():
            disk = replace(step.disk, path=names[step.disk.path])
            return replace(step, disk=disk, device=names.get(step.device, step.device))
        case steps.TakeOutMember(_, _, device, spare):
            return replace(step, device=names.get(device, device), spare=names.get(spare, spare))
        case steps.PutBackMember(_, _, device):
            return replace(step, device=names.get(device, device))
        case MakeArray():
            return replace(step, members=tuple(names.get(each, each) for each in step.members))
        case MakeFileSystem(device):
            return replace(step, device=names.get(device, device))
        case steps.SetPartitionType(path):
            return replace(step, disk=names.get(path, path))
    return step
