"""Apply the plan of an array: its record, the preflight, the walk over its steps, its drives after a reboot."""

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
from aligntool.audit.array_boot import kernel_node, mount_points_of
from aligntool.audit.arrays import partition_node
from aligntool.audit.wording import shell_word
from aligntool.change import Event, Plan, Progress, Said, StepBegun, StepDone, digest, from_json, to_json
from aligntool.commands import ByHand, by_hand, typed
from aligntool.documents import as_object, check_schema, decode, load_object
from aligntool.errors import Refusal, Refused, Stopped, failing_as, refuse
from aligntool.inventory import Disk
from aligntool.linux.files import remove_file, replace_file, sync_folder
from aligntool.linux.in_use import killed_processes
from aligntool.linux.lock import partition_problem
from aligntool.linux.open_files import openers
from aligntool.linux.outputs import make_folder, open_place
from aligntool.linux.programs import find_program, inherited, run_program
from aligntool.raid import steps_drives, steps_luks, steps_md, steps_system
from aligntool.raid.boot import FSTAB, LIST_FILE, SYSTEMS, refuse_array_lines, refuse_device_lines
from aligntool.raid.commands import purpose_of
from aligntool.raid.members import array_of, data_area
from aligntool.raid.planning import Needs, needs_of_plan
from aligntool.raid.running import free_mount_point
from aligntool.raid.steps_reformat import apply_member_step, undo_member_step
from aligntool.raid.steps_system import STATE, Paths, Trace, edited, has_backup, text_of
from aligntool.steps import FileStep, MakeArray, MakeFileSystem, MakeMember, Mount, Step
from aligntool.system import merge_confs, parse_fstab, parse_mdadm_conf

# The record of an array that is being created: its plan, the progress, and what is needed to undo each step. A resume
# knows nothing else: a record has to be durable before the step that it describes begins.
#
# Each record is a JSON file `arrays/UUID.json`. A new version is written to a new file, which is renamed over the old
# one. If that folder does not survive a reboot (a live system), the user is warned; only rollback is lost.

SCHEMA = "aligntool.record"
VERSION = 1
LONGEST_RECORD = 16 << 20  # bytes; most of a genuine record are the contents of a few system files


@dataclass(frozen=True, slots=True)
class Record:
    """The record of an array. `position`: the next step, or the interrupted one if it has `begun`."""

    file: Path
    plan: Plan
    position: int = 0
    begun: bool = False
    forward: bool = True  # False: it is being undone
    traces: Mapping[int, Trace] = field(default_factory=dict)

    def trace(self, index: int) -> Trace:
        return self.traces.get(index, {})


def record_file(state: Path, plan: Plan) -> Path:
    """Return the file of a plan's record, named by the UUID of the new array, which no two plans share, else by the
    digest of the plan.
    """
    made = array_of(plan.steps)
    name = made.uuid.replace(":", "") if made else digest(plan)[:32]
    return state / "arrays" / f"{name}.json"


def save(record: Record) -> None:
    """Write the record; it is durable on return. Raises OSError."""
    body = _body(record)
    text = json.dumps({**body, "checksum": _checksum(body)}, indent=1) + "\n"
    replace_file(record.file, text.encode(), mode=0o600)


def remove_record(record: Record) -> None:
    """Remove the record, because the plan is applied or undone. Raises OSError."""
    remove_file(record.file)


def find_records(state: Path = STATE) -> tuple[Record, ...]:
    """Return all records. Raises Refused if one cannot be read, and names it."""
    folder = state / "arrays"
    try:
        files = sorted(folder.iterdir())  # Path.glob() returns nothing for a folder that may not be read
    except FileNotFoundError:
        return ()
    except OSError as error:
        text = f"the records of unfinished arrays in {folder} cannot be read: {error.strerror}"
        raise Refused(text, hint="run the same command with sudo") from error
    return tuple(read_record(file) for file in files if file.suffix == ".json")


def read_record(file: Path) -> Record:
    """Read a record. Raises Refused if it is not readable, torn, changed, or of another version."""
    try:
        if file.stat().st_size > LONGEST_RECORD:
            raise ValueError("it is far too large")
        document = load_object(file.read_text(encoding="utf-8"))
        check_schema(document, SCHEMA, VERSION)
        if document.pop("checksum", None) != _checksum(document):
            raise ValueError("it is damaged, or was changed by hand: its checksum does not match")
        return _decode_record(file, document)
    except PermissionError as error:
        raise Refused(f"{file}: {error.strerror}", hint="run the same command with sudo") from error
    except (OSError, ValueError, Refused) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        hint = by_hand(ByHand.RECORDS, "rm", shell_word(str(file)))
        raise Refused(f"{file}: the record of an unfinished array cannot be read: {reason}", hint=hint) from error


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


def _decode_record(file: Path, document: dict[str, object]) -> Record:
    body = decode(_Body, document, exact=True)
    plan = from_json(json.dumps(body.plan))
    if not -1 <= body.position <= len(plan.steps):
        raise ValueError(f"it is at step {body.position}; the plan has no such step")
    traces = {int(index): trace for index, trace in body.traces.items()}
    if any(not 0 <= index < len(plan.steps) for index in traces):
        raise ValueError("it has traces of steps that the plan does not have")
    return Record(file, plan, body.position, body.begun, body.forward, traces)


def _checksum(body: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@contextmanager
def lock_state(state: Path = STATE) -> Iterator[None]:
    """Keep other aligntool processes from creating or undoing an array while this one, or a program that it started,
    runs. Create the state directory. Raises Refused.
    """
    with failing_as(Refused, str(state), denied="run the same command with sudo"):
        make_folder(state)
        make_folder(state / "arrays", 0o700)
        sync_folder(state)
        sync_folder(state.parent)
        with open_place(state / "lock") as place:
            descriptor = place.open(os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with inherited(descriptor):
            yield
    except BlockingIOError:
        for user in killed_processes(openers(state / "lock")):
            raise Refused(user.what, hint=user.end) from None
        raise Refused("another aligntool process is creating an array", hint="aligntool status") from None
    finally:
        os.close(descriptor)


# The preflight: every reason that can be found before the first write.
#
# A problem found after the first write leaves an unfinished array; found before, it is only a message.

_MODULE = {"raid5": "raid456", "raid6": "raid456"}


def refuse_impossible(plan: Plan, paths: Paths) -> None:
    """Raise Refused with every reason. Writes nothing, but may load the kernel's module for the level."""
    if os.geteuid() != 0:
        raise Refused("only root can create arrays", hint="run the same command with sudo", code="root-only")
    disks = steps_drives.read_all_disks() if any(isinstance(step, MakeMember) for step in plan.steps) else ()
    refuse([*_check_kernel(plan.steps), *preflight(needs_of_plan(plan, here=True), plan.steps, paths, disks)])


def preflight(needs: Needs, planned: Sequence[Step], paths: Paths, disks: Sequence[Disk] = ()) -> list[Refusal]:
    """Return every reason that can be found by reading, also for a plan that is only shown. `planned`: the steps, empty
    for a goal without a plan. `disks`: all of the machine, to find drives with two names. Root only.
    """
    reasons = list(steps_system.missing_programs(needs.programs))
    if needs.device and any(Path(node).exists() for node in (needs.device, kernel_node(needs.device))):
        text = f"an array named {needs.device} is already running"
        reasons.append(Refusal("name-taken", needs.device, text, "--name another"))
    reasons += [*_refuse_other_names(planned, disks), *_refuse_files(needs.steps, planned, paths)]
    if find_program("blkid"):
        area = data_area(planned)  # content that no table shows, but blkid finds as soon as a partition exists
        reasons += chain(*(steps_drives.old_signatures(step, area) for step in members_in(planned) if not step.wipe))
    for step in needs.steps:
        if isinstance(step, steps.RebuildInitramfs):
            reasons += steps_system.refuse_hooks(step, paths)
        if isinstance(step, Mount) and find_program("mountpoint"):
            found = steps_system.refuse_mount_point(step, paths)
            free = _hint_for_free_place(step.path, paths)
            reasons += (Refusal("mount-point", step.path, text, free) for text in found)
    return reasons


def _check_kernel(planned: Sequence[Step]) -> Iterator[Refusal]:
    """Refuse a level that the kernel lacks. /proc/mdstat lists the available levels; a missing module is loaded."""
    made = array_of(planned)
    mdstat = Path("/proc/mdstat")
    if made and f"[{made.level}]" not in steps_md.read_kernel_file(mdstat):
        module = _MODULE.get(made.level, made.level)
        if find_program("modprobe"):
            run_program("modprobe", "-q", "--", module)
        if f"[{made.level}]" not in steps_md.read_kernel_file(mdstat):
            text = f"this kernel lacks md or {made.level}"
            yield Refusal("kernel-lacks", made.level, text, f"{typed('modprobe', module)}; uname -r")


def _refuse_other_names(planned: Sequence[Step], disks: Sequence[Disk]) -> Iterator[Refusal]:
    """Refuse a drive that is in use under another name: to the kernel these are two drives, locked separately."""
    for other in disks:
        places = mount_points_of(other)
        above = [*other.holders, *(holder for part in other.partitions for holder in part.holders)]
        used = f"mounted at {places[0]}" if places else f"a part of {above[0]}" if above else ""
        for path in [step.disk.path for step in members_in(planned) if used and _is_same(other, step.disk)]:
            if other.path != path:
                text = f"{path} and {other.path} are the same drive, which is {used}"
                yield Refusal(
                    "same-drive",
                    path,
                    text,
                    typed("lsblk -o NAME,WWN,SERIAL,MOUNTPOINTS", path, other.path, sudo=False),
                )


def members_in(planned: Sequence[Step]) -> list[MakeMember]:
    return [step for step in planned if isinstance(step, MakeMember)]


def _is_same(disk: Disk, was: steps.Subject) -> bool:
    """Compare by WWN; if one has none, by model, serial number and size."""
    if disk.wwn and was.wwn:
        return disk.wwn == was.wwn
    return bool(disk.serial) and (disk.model, disk.serial, disk.size) == (was.model, was.serial, was.size)


def _refuse_files(files: Sequence[Step], planned: Sequence[Step], paths: Paths) -> Iterator[Refusal]:
    texts: dict[str, str] = {}  # of the edited files, as the steps before leave them
    for step in (step for step in files if isinstance(step, FileStep)):
        unwritable = tuple(steps_system.refuse_unwritable(step, paths))
        yield from (Refusal("not-writable", step.path, text) for text in unwritable)
        if isinstance(step, steps.EditFile) and not unwritable:
            text = texts.get(step.path) or text_of(step.path, paths)
            yield from _refuse_taken_places(step, text, paths)
            yield from _refuse_esp_copies(step, [member.disk.path for member in members_in(planned)], paths)
            if any(line.startswith("ARRAY ") for line in step.lines):
                yield from _refuse_array_lines(step, text, planned, paths)
            texts[step.path] = os.fsdecode(edited(os.fsencode(text), step))


def _refuse_array_lines(step: steps.EditFile, text: str, planned: Sequence[Step], paths: Paths) -> Iterator[Refusal]:
    more = (f"{step.path}.d/{file.name}" for file in sorted(paths.of(f"{step.path}.d").glob("[!.]*.conf")))
    texts = {step.path: text, **{file: text_of(file, paths) for file in more}}
    conf = merge_confs([parse_mdadm_conf(text, file) for file, text in texts.items()])
    yield from refuse_array_lines(conf, step, array_of(planned))
    yield from refuse_device_lines(conf, step.path, [member.device for member in members_in(planned)])
    for other in {system.mdadm_conf for system in SYSTEMS.values()} - {step.path}:
        if paths.of(other).exists() and not paths.of(step.path).exists():
            why = f"{other} is read by mdadm now, but not once {step.path} exists"
            yield Refusal("file-conflict", other, why, by_hand(ByHand.SYSTEM_FILES, "mv", f"{other}, to {step.path}"))


def _refuse_esp_copies(step: steps.EditFile, drives: Sequence[str], paths: Paths) -> Iterator[Refusal]:
    """Refuse to replace the list of another array's EFI system partitions, which would no longer be kept in sync."""
    if step.path != LIST_FILE:
        return
    ours = {partition_node(drive, number) for drive in drives for number in _NUMBERS}
    text = text_of(step.path, paths)
    for uuid in re.findall(r"[0-9A-F]{4}-[0-9A-F]{4}", " ".join(re.findall(r"(?m)^ESP_COPIES=(.*)", text))):
        device = os.path.realpath(paths.of(f"/dev/disk/by-uuid/{uuid}"))
        if os.path.lexists(device) and device not in ours:
            text = f"{step.path} keeps {device}, an EFI system partition of another array, in sync; that would stop"
            hint = "create this array from a live system, so that each array has its own list"
            yield Refusal("file-conflict", step.path, text, hint)
            return


def _refuse_taken_places(step: steps.EditFile, text: str, paths: Paths) -> Iterator[Refusal]:
    """Refuse the mount point of another file system in fstab, except in place of a line that has it already."""
    lines = parse_fstab(text) if step.path == FSTAB else ()
    replaced = {line.place for line in lines if step.instead_of in line.text}
    taken = {line.place: line.spec for line in lines if line.place.startswith("/")}
    for place in {line.place for line in parse_fstab("\n".join(step.lines))} & taken.keys() - replaced:
        text = f"{step.path} already mounts {taken[place]} at {place}"
        yield Refusal("mount-point", place, text, _hint_for_free_place(place, paths))


def _hint_for_free_place(place: str, paths: Paths) -> str:
    """Return the option for a mount point that neither exists nor is in fstab."""
    named = {word for line in text_of(FSTAB, paths).splitlines() for word in line.split()[1:2]}
    free = free_mount_point(place, lambda path: path in named or os.path.lexists(path))
    return f"--mount {shell_word(free)}"


# The walk over the steps: apply, resume, undo.
#
# Crash safety rests on the order of record and step: the trace of a step is durable before the step begins, its
# completion is durable before the next one begins, and every step can be repeated from its beginning.
#
# The walk may stop at every `yield`: a caller that stops iterating has the effect of a power cut, and no other.


def begin(plan: Plan, paths: Paths) -> Record:
    """Durably write the record of a plan that is about to be applied, and return it. Raises Refused; no drive was
    written to.
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
    plan: Plan,
    paths: Paths,
    locked: steps_drives.LockedMembers | None = None,
    key: steps_luks.Key = steps_luks.NO_KEY,
) -> Iterator[Event]:
    """Apply the plan from the position of its record to the end. `plan`: the record's, with the current names of the
    drives.

    `locked`: the members if they are locked already; None locks them here. They are unlocked once all of them are
    prepared. `key`: of a LUKS2 that is re-encrypted. Raises Stopped, or Refused if a drive or file is unavailable; the
    record is kept.
    """
    yield from _start_array(record, plan)
    pending = plan.steps[max(record.position, 0) :]
    if locked is None:
        yield from steps_md.stop_old_arrays(plan.steps, pending)
    with steps_drives.lock_members(pending) if locked is None else nullcontext(locked) as locked:
        yield from _walk_forward(record, plan, paths, locked, key)


def _walk_forward(
    record: Record, plan: Plan, paths: Paths, locked: steps_drives.LockedMembers, key: steps_luks.Key
) -> Iterator[Event]:
    first_run = not (record.traces or record.begun or record.position)
    for index in range(max(record.position, 0), len(plan.steps)):
        step = steps.array_step(plan.steps[index])
        if not isinstance(step, MakeMember) and locked.unlock():
            steps_drives.wait_for_members(plan.steps)
        again = index in record.traces
        if not again:  # the trace of a step that was begun is kept: it was read before the step wrote anything
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
            yield from apply_member_step(plan.steps, index, new=first_run)
        elif isinstance(step, steps.ReencryptSectors):
            yield from steps_luks.reencrypt(step, index, plan, key)
        else:
            yield from _apply(step, plan, paths, record.trace(index), again=again)
        record = replace(record, position=index + 1, begun=False)
        _save(record)
        yield StepDone(index)
    yield from steps_system.backup_messages(record.plan, record.traces, paths)
    _forget(record)


def undo_record(record: Record, plan: Plan, paths: Paths) -> Iterator[Event]:
    """Undo every step that was begun, in reverse order. The record names a step until it is undone.

    Raises Refused and Stopped like `apply_record`.
    """
    first = record.position if record.begun else record.position - 1
    steps_luks.refuse_begun(plan)
    for step in plan.steps:  # refuse to lose files
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
        record = replace(record, position=index - 1)  # that step was begun, since a later one was
        _save(record)
        yield StepDone(index)
    yield from steps_system.rebuild_restored(plan, record.traces)
    _forget(record)


def refuse_in_use(plan: Plan, last: int) -> None:
    """Raise Refused if the file systems or the array that the steps up to `last` made are used by now."""
    made = [_on_current_node(step, plan) for step in plan.steps if isinstance(step, MakeFileSystem)]
    for step in plan.steps[: last + 1]:
        if isinstance(step, MakeFileSystem):
            steps_md.refuse_used(_on_current_node(step, plan))
        elif isinstance(step, MakeArray) and (name := steps_md.find_running(step)):
            steps_md.refuse_foreign(f"/dev/{name}", [planned for planned in made if planned.device == f"/dev/{name}"])


def _unmount_started(plan: Plan, last: int) -> Iterator[Said]:
    """Unmount file systems that a reboot mounted by their fstab lines, although no step up to `last` did."""
    uuids = [step.uuid for step in plan.steps if isinstance(step, MakeFileSystem)]
    for step in plan.steps[last + 1 :]:
        if isinstance(step, Mount | steps.Swapon) and steps_system.is_started_by_fstab(step, uuids):
            yield from steps_system.undo_system(step, {})


def _on_current_node(step: MakeFileSystem, plan: Plan) -> MakeFileSystem:
    """Return the step with the current node of its array. After a reboot the array may run under another name, and it
    is not restarted to be undone.
    """
    made = array_of(plan.steps)
    name = steps_md.find_running(made) if made and made.device == step.device else None
    return replace(step, device=f"/dev/{name}") if name else step


def _trace(step: steps.ArrayStep, paths: Paths, record: Record) -> Trace:
    if isinstance(step, FileStep):
        return steps_system.find_file_trace(step, paths, keeps=not has_backup(step, record.plan, record.traces))
    if isinstance(step, steps.SystemStep):
        return steps_system.find_system_trace(step)
    return {}  # the plan has the former content of a member


_OtherStep = MakeArray | FileStep | steps.SystemStep


def _apply(step: _OtherStep, plan: Plan, paths: Paths, trace: Trace, *, again: bool) -> Iterator[Said]:
    if isinstance(step, MakeArray):
        blank = not steps_md.has_superblocks(step)
        for member in members_in(plan.steps):
            steps_drives.stop_unless_in_place(member, data_area(plan.steps), blank=blank)
        yield from steps_md.make_array(step, plan.disk.size)
    elif isinstance(step, FileStep):
        yield from steps_system.edit_file(step, paths, trace)
    else:
        if again and isinstance(step, steps.CheckInitramfs):
            # The user may have repaired the files that the checked image is built from.
            before = reversed(plan.steps[: plan.steps.index(step)])
            build = next(
                (past for past in before if isinstance(past, steps.RebuildInitramfs | steps.ReloadUnits)), None
            )
            if build:
                yield Said(f"{purpose_of(build)}: {steps_system.shell_words(build)}")
                yield from steps_system.apply_system(build)
        yield from steps_system.apply_system(step)


def _stop_unless_ours(step: MakeFileSystem, plan: Plan) -> None:
    """Raise Stopped unless an earlier step made the device: it is the array of the plan's UUID, or a partition at its
    planned extent.
    """
    made = array_of(plan.steps)
    if made and made.device == step.device:
        return steps_md.stop_unless_made(made)
    for member in members_in(plan.steps):
        for entry in member.entries:
            if step.device == partition_node(member.disk.path, entry.number):
                why = partition_problem(member.disk.path, step.device, entry.extent)
                if why:
                    raise Stopped(f"{step.device}: {why}")
                return None
    raise Stopped(f"no step of the plan creates {step.device}")


def _undo(step: steps.ArrayStep, index: int, plan: Plan, paths: Paths, record: Record) -> Iterator[Said | Progress]:
    if isinstance(step, MakeMember):
        blank = not any(isinstance(plan.steps[begun], MakeFileSystem) for begun in record.traces)
        yield from steps_drives.remove_member(step, data_area(plan.steps), blank=blank)
    elif isinstance(step, MakeArray):
        steps_md.remove_array(step)
        yield Said(f"{step.device} is stopped, and its superblocks are zeroed")
    elif isinstance(step, MakeFileSystem):
        yield from steps_md.remove_file_system(_on_current_node(step, plan))
    elif isinstance(step, steps.MemberStep):
        yield from undo_member_step(plan.steps, index)
    elif isinstance(step, steps.ReencryptSectors):
        yield steps_luks.undo(step, plan)
    elif isinstance(step, FileStep):
        yield from steps_system.restore_file(step, paths, record.trace(index))
        yield from steps_system.reload_restored(index, plan, record.traces)
    else:
        yield from steps_system.undo_system(step, record.trace(index))


def _start_array(record: Record, plan: Plan) -> Iterator[Said]:
    """Start the array if it was made, as later steps need it; after a reboot it may run under another name."""
    made = array_of(plan.steps)
    if made and record.position > plan.steps.index(made):
        named = any(isinstance(step, MakeFileSystem) for step in plan.steps[record.position :])
        yield from steps_md.start_array(made, named=named)


def _start_array_to_undo(record: Record, plan: Plan) -> Iterator[Said]:
    """Start the array, through which the file system to be wiped is reached. Raises Refused if it cannot be started and
    may hold files.
    """
    try:
        yield from _start_array(record, plan)
    except Stopped as error:
        made = array_of(plan.steps)
        begun = [plan.steps[index] for index in record.traces]
        if made and steps_md.has_superblocks(made) and any(isinstance(step, MakeFileSystem) for step in begun):
            text = f"the array cannot be started, so it is unknown whether it holds files: {error}"
            clear = by_hand(ByHand.MEMBERS, "mdadm", ", ".join(made.members))
            raise Refused(text, hint=f"if none of it is needed: {clear}, then run the same command again") from error
        yield Said(f"the array cannot be started and is removed as it is: {error}")


def _save(record: Record) -> None:
    with failing_as(Stopped, f"{record.file} cannot be written"):
        save(record)


def _forget(record: Record) -> None:
    with failing_as(Stopped, f"finished, but {record.file} cannot be removed"):
        remove_record(record)


# The current names of a plan's drives: kernel names change from boot to boot.
#
# A resume that trusted the old names would write to the drives that have them now.

_NUMBERS = range(1, 129)


def with_current_names(plan: Plan, disks: Sequence[Disk]) -> Plan:
    """Return the plan with the current names of its drives. Raises Refused if a drive is missing or ambiguous, and
    names every such drive.
    """
    if plan.purpose == "layers":
        return steps_luks.with_current_path(plan, disks)
    names: dict[str, str] = {}
    reasons = []
    for step in (step for step in plan.steps if isinstance(step, steps.DriveStep)):
        found = _find_drives(step, disks)
        if len(found) == 1:
            old, new = step.disk.path, found[0].path
            names |= {old: new, **{partition_node(old, part): partition_node(new, part) for part in _NUMBERS}}
        else:
            reasons.append(_not_found_text(step, found))
    if len(set(names.values())) < len(names):
        reasons.append("two drives of the plan are now the same drive")
    if reasons:
        raise Refused("\n".join(reasons), hint="attach every drive of the array; lsblk -o NAME,MODEL,SERIAL,SIZE")
    return replace(plan, steps=tuple(_step_here(step, names) for step in plan.steps))


def _find_drives(step: steps.DriveStep, disks: Sequence[Disk]) -> list[Disk]:
    """Return the disks that match by serial number or WWN. A drive that has neither is found by its new table once that
    is made, else by its name.
    """
    alike = [disk for disk in disks if steps_drives.is_same_drive(disk, step)]
    if step.disk.serial or step.disk.wwn:
        return alike
    made = []
    if isinstance(step, MakeMember) and step.entries:
        made = [disk for disk in alike if steps_drives.has_new_table(disk, step)]
    named = [disk for disk in alike if disk.path == step.disk.path]
    return named if not made or (named and named[0] in made) else made


def _not_found_text(step: steps.DriveStep, found: Sequence[Disk]) -> str:
    serial = f", serial {step.disk.serial}" if step.disk.serial else ""
    names = ", ".join(disk.path for disk in found)
    others = f"cannot be distinguished from others: {names}" if found else "is missing"
    return f"{step.disk.model or 'a drive'}{serial}, which was {step.disk.path}, {others}"


def _step_here(step: Step, names: Mapping[str, str]) -> Step:
    """Return the step with the current names. Only whole names are replaced, and all at once, because two drives may
    have swapped their names.
    """
    match step:
        case MakeMember() | steps.FormatMember():
            disk = replace(step.disk, path=names[step.disk.path])
            return replace(step, disk=disk, device=names.get(step.device, step.device))
        case steps.TakeOutMember(_, _, device, spare):
            return replace(step, device=names.get(device, device), spare=names.get(spare, spare))
        case steps.PutBackMember(_, _, device):
            return replace(step, device=names.get(device, device))
        case MakeArray():
            return replace(step, members=tuple(names.get(member, member) for member in step.members))
        case MakeFileSystem(device):
            return replace(step, device=names.get(device, device))
        case steps.SetPartitionType(path):
            return replace(step, disk=names.get(path, path))
    return step
