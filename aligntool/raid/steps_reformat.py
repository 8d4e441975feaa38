"""Steps on the members of a running array: compare, take out, format, put back. And what planning needs to know."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from aligntool.audit.arrays import Member
from aligntool.change import Progress, Said
from aligntool.errors import Refused, Stopped, failing_as
from aligntool.formats.identify import format_scope
from aligntool.formats.smallest_units import NOT_READ, Unit, smallest_unit
from aligntool.inventory import Disk, TableCopyState, array_uuid
from aligntool.linux.commands import identify_controller, namespace_number, namespaces
from aligntool.linux.devices import FileReader, read_array
from aligntool.linux.lock import kernel_folder, lock_disk, locked, settle, wait_for_partition
from aligntool.linux.process import run_or_stop, run_program
from aligntool.linux.sysfs import Tree, opened
from aligntool.linux.users import disk_folder, in_use
from aligntool.raid.commands import member_commands, table_script
from aligntool.raid.reformat import IN_SYNC, RUNS, SPARE, Closer
from aligntool.raid.steps_drives import is_same_drive, look_at
from aligntool.raid.steps_md import attribute, shown_on, slaves, superblock_uuid, text_of
from aligntool.steps import CheckArray, FormatMember, MemberStep, PutBackMember, TakeOutMember
from aligntool.units import Extent

_PAUSE_S = 0.1
_FROZEN_S = 3.0
_LONGEST_PAUSE_S = 1.0
_PATIENCE_S = 20.0  # until md begins to recover, or the kernel shows what a format changed
_SECTOR = 512
_FAULTY, _WANTED = "faulty", "want_replacement"


def look_closer(disk: Disk, members: Sequence[Member]) -> Closer:
    """Read what an inventory does not have. `disk`: the array. Raises Refused where md shows nothing of it."""
    names = disk.array.members if disk.array else ()
    states = {name: _state(disk.name, name) for name in names}
    place = attribute(disk.name, "bitmap/location").lstrip("+")
    bitmap = int(place) * _SECTOR if place.lstrip("-").isdigit() else None
    found = {each.disk.name: _namespace(each.disk) for each in members}
    scopes = {name: scope for name, (scope, _) in found.items()}
    numbers = {name: number for name, (_, number) in found.items()}
    fixed = bool(attribute(disk.name, "logical_block_size"))
    clustered = attribute(disk.name, "bitmap/metadata") == "clustered"
    return Closer(states, _bad(disk.name), bitmap, _unit(disk), scopes, numbers, fixed, clustered)


def _namespace(disk: Disk) -> tuple[str | None, int | None]:
    """Return what a format of it changes, and its number. A drive that has no other one is formatted with it."""
    with suppress(OSError), opened(disk.path) as descriptor:
        scope, number = format_scope(identify_controller(descriptor) or b""), namespace_number(descriptor)
        only = scope == "drive" and namespaces(descriptor) == (number,)
        return "namespace" if only else scope, number
    return None, None


def _unit(disk: Disk) -> Unit:
    """Return the unit of what lies on the array, as far as that is one thing and can be read."""
    with suppress(OSError), opened(disk.path) as descriptor:
        reader = FileReader(descriptor, disk.size or 0)
        return next((smallest_unit(reader, layer) for layer in disk.content), NOT_READ)
    return NOT_READ


# The walk: each step looks at the array and at the drive, and does what is left to do.


def apply_member_step(step: MemberStep, index: int) -> Iterator[Said | Progress]:
    """Raises Refused where a comparison that comes before every write finds a difference, Stopped else."""
    match step:
        case CheckArray():
            yield from _check(step, index)
        case TakeOutMember():
            yield from _take_out(step, index)
        case FormatMember():
            yield from _format(step)
        case PutBackMember():
            yield from _put_back(step, index)


def undo_member_step(step: MemberStep, index: int) -> Iterator[Said | Progress]:
    """The other way round: a member that was put back is taken out, formatted as it was, and put back."""
    match step:
        case TakeOutMember(array, path, device):
            yield from _put_back(PutBackMember(array, path, device, 0), index)
        case FormatMember():
            yield from _format(backwards(step))
        case PutBackMember(array, path, device):
            yield from _take_out(TakeOutMember(array, path, device), index)


def backwards(step: FormatMember) -> FormatMember:
    """Return the step that gives the member its old format again."""
    old, new = (step.format_before, step.block_before), (step.format_after, step.block_after)
    whose = (step.array, step.path, step.disk, step.device, step.namespace)
    return FormatMember(*whose, *new, *old, step.entries, step.uuids)


# The array, by its UUID.


def running_array(step: MemberStep) -> str:
    """Return the kernel's name of the array; where a start of the machine left it without the member that is out, it is
    started. Raises Stopped.
    """
    settle()
    found = _find(step.array)
    if found is not None and attribute(found, "array_state") == "inactive":  # it may lack members that are there
        run_program("mdadm", "--stop", f"/dev/{found}")
        found = _find(step.array)
    if found is None:
        run_program("mdadm", "--assemble", "--run", step.path, f"--uuid={step.array}")
        settle()
        found = _find(step.array)
    if found is None or attribute(found, "array_state") not in RUNS:
        raise Stopped(f"the array {step.path}, UUID {step.array}, does not run: cat /proc/mdstat; mdadm --detail")
    if attribute(found, "array_state") == "read-auto":
        run_or_stop("mdadm", "--readwrite", f"/dev/{found}")
    _thaw(found)
    return found


def _thaw(name: str) -> None:
    """An mdadm that was killed while it added a member leaves the array frozen, and md fills no member then (Manage.c,
    sysfs_freeze_array). Another mdadm, which somebody else runs, does it for a moment only. Raises Stopped.
    """
    deadline = time.monotonic() + _FROZEN_S
    while attribute(name, "sync_action") == "frozen":
        if time.monotonic() > deadline:
            run_or_stop("mdadm", "--action=idle", f"/dev/{name}")
        time.sleep(_PAUSE_S)


def _find(uuid: str) -> str | None:
    """By the superblock of the first member that has one: one that is being added has none yet."""
    for folder in sorted(Path("/sys/block").glob("md*/md")):
        name = folder.parent.name
        if next(filter(None, (superblock_uuid(f"/dev/{each}") for each in sorted(slaves(name)))), "") == uuid:
            return name
    return None


def _of_member(name: str, member: str, word: str) -> str:
    return text_of(Path("/sys/block", name, "md", f"dev-{member}", word))


def _state(name: str, device: str) -> str:
    """Return what md calls the state of a member; "" where it is not in the array."""
    return _of_member(name, Path(device).name, "state")


def _states(name: str) -> dict[str, str]:
    return {each: _state(name, each) for each in slaves(name)}


def _block_size(name: str) -> int:
    return int(text_of(Path("/sys/block", name, "queue/logical_block_size")) or 0)


def _bad(name: str) -> tuple[str, ...]:
    """Return the members with blocks that md could not read or write; a resync copies such a list with the rest."""
    return tuple(each for each in sorted(slaves(name)) if _of_member(name, each, "bad_blocks"))


def _odd(name: str, *missing: str) -> str:
    """Return what keeps an array from being whole and idle; "": nothing. `missing`: how many members it may lack."""
    odd = [f"{each} is {state or 'gone'}" for each, state in _states(name).items() if state not in (IN_SYNC, SPARE)]
    odd += [f"{each} has a list of bad blocks" for each in _bad(name)]
    degraded, action = attribute(name, "degraded"), attribute(name, "sync_action")
    if degraded not in ("0", *missing) or action != "idle":
        odd.append(f"degraded {degraded}, sync_action {action}")
    return ", ".join(odd)


def _stop_unless_whole(name: str) -> None:
    """Every member in sync, nothing at work: only then one may go. Raises Stopped."""
    if what := _odd(name):
        text = f"/dev/{name} is not whole ({what}), so no member is taken out of it"
        raise Stopped(text, hint=f"sudo mdadm --detail /dev/{name}")


def _work(name: str, index: int) -> Iterator[Progress]:
    """Yield how far md is, until it is idle; it may take a moment until it begins."""
    begun, pause, deadline = False, _PAUSE_S, time.monotonic() + _PATIENCE_S
    while True:
        facts = read_array(Tree(""), f"/sys/block/{name}")
        busy = facts is not None and facts.sync_action not in ("idle", "frozen")
        if facts is None or not (busy or (not begun and time.monotonic() < deadline and facts.degraded)):
            return
        begun = begun or busy
        if facts.sync_done is not None and facts.sync_total:
            yield Progress(index, facts.sync_done, facts.sync_total)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


# CheckArray


def _check(step: CheckArray, index: int) -> Iterator[Said | Progress]:
    name = running_array(step)
    if attribute(name, "sync_action") == "check":  # of a run that was interrupted
        run_or_stop("mdadm", "--action=idle", f"/dev/{name}")
    yield from _work(name, index)
    _stop_unless_whole(name)
    _compare_all(name)
    run_or_stop("mdadm", "--action=check", f"/dev/{name}")
    try:
        yield from _work(name, index)
    except (GeneratorExit, KeyboardInterrupt):
        run_program("mdadm", "--action=idle", f"/dev/{name}")
        raise
    _stop_unless_whole(name)
    if attribute(name, "sync_min") != "0":
        raise Stopped(f"the comparison of the members of /dev/{name} was ended by another program before it was done")
    if (differ := attribute(name, "mismatch_cnt")) != "0":
        text = f"/dev/{name}: {differ} sectors of its members do not agree, so one of them may not take another's place"
        hint = f"aligntool audit; then sudo mdadm --action=repair /dev/{name}, which keeps one of the versions"
        raise (Stopped if index else Refused)(text, hint=hint)
    yield Said(f"all members of /dev/{name} agree")


def _compare_all(name: str) -> None:
    """md goes on where an earlier comparison was interrupted, and counts anew from there (md.c, md_do_sync)."""
    folder = Path("/sys/block", name, "md")
    with failing_as(Stopped, f"/dev/{name}: its whole length cannot be compared"):
        (folder / "sync_max").write_text("max")
        (folder / "sync_min").write_text("0")


# TakeOutMember


def _take_out(step: TakeOutMember, index: int) -> Iterator[Said | Progress]:
    name = running_array(step)
    state, array = _state(name, step.device), f"/dev/{name}"
    if not state:
        yield Said(f"{step.device} is out already")
        return
    if IN_SYNC in state:
        if _WANTED not in state:
            _stop_unless_whole(name)
            spares = [f"/dev/{each}" for each, state in sorted(_states(name).items()) if state == SPARE]
            if step.spare and not spares:
                text = f"{array} has no spare any more, which was to stand in for {step.device}"
                raise Stopped(text, hint=f"sudo mdadm {array} --add DEVICE")
            spare = step.spare if step.spare in spares else next(iter(spares), None)
            words = ("--replace", step.device, "--with", spare) if spare else ("--fail", step.device)
            run_or_stop("mdadm", array, *words)
        if _WANTED in _state(name, step.device):
            yield from _replaced(name, step.device, index)
    elif _FAULTY not in state:
        run_or_stop("mdadm", array, "--fail", step.device)  # it holds nothing that the others do not
    deadline = time.monotonic() + _PATIENCE_S
    while _state(name, step.device):
        said = run_program("mdadm", array, "--remove", step.device)
        if said.code and time.monotonic() > deadline:
            raise Stopped(f"{step.device} cannot be removed from {array}: {said.last_words}")
        settle()
    yield Said(f"{step.device} is out of {array}")


def _replaced(name: str, device: str, index: int) -> Iterator[Progress]:
    """Wait until the spare holds what the member does, whereupon md gives the member up. Raises Stopped."""
    deadline = time.monotonic() + _PATIENCE_S
    while _FAULTY not in _state(name, device):
        for progress in _work(name, index):
            yield progress
            deadline = time.monotonic() + _PATIENCE_S  # md may take hours, and then a moment until it gives it up
        if attribute(name, "sync_action") != "idle":
            deadline = time.monotonic() + _PATIENCE_S
        elif time.monotonic() > deadline:
            keep = f"echo -{_WANTED} | sudo tee /sys/block/{name}/md/dev-{Path(device).name}/state"
            raise Stopped(f"no spare took the place of {device} in /dev/{name}: cat /proc/mdstat", hint=keep)
        time.sleep(_PAUSE_S)


# FormatMember: the one step that erases, and what it looks at before.


def _format(step: FormatMember) -> Iterator[Said]:
    """A namespace that is out of its array, is the plan's by model, serial number, WWN and number, and holds nothing
    but what it held of the array. Raises Stopped, and Refused where it is in use.
    """
    path, name = step.disk.path, running_array(step)
    with lock_disk(path) as own:  # while it is open no other drive gets its name
        disk = _stop_unless_ours(step)
        done = disk.nvme is not None and disk.nvme.format_in_use == step.format_after
        if not done:
            _stop_unless_held_by_others(name, step)
            own.kernel.forget(own.kernel.numbers())
            run_or_stop(*member_commands(step)[0])
    if not done:  # closed meanwhile: what has it open goes on reading it in blocks of the old size
        _wait_for_blocks(step)
    new = f"{path} has logical blocks of {step.block_after} bytes"
    yield Said(f"{path} has its format already" if done else new)
    if step.entries:
        _make_table(step)


def _stop_unless_held_by_others(name: str, step: FormatMember) -> None:
    """Everything that the member held is on those that run without it: after a power cut another one may be gone, and
    this one the last. Raises Stopped.
    """
    own = _state(name, step.device)
    if what := _odd(name, "1") or (own and f"{step.device} is {own}"):
        text = f"/dev/{name} does not run on all members but {step.device} ({what}), so that is not formatted"
        raise Stopped(text, hint=f"sudo mdadm --detail /dev/{name}")


def _stop_unless_ours(step: FormatMember) -> Disk:
    disk = look_at(step.disk.path)
    path = disk.path
    if not is_same_drive(disk, step):
        raise Stopped(f"{path} is another drive than the plan's: model, serial number or WWN differ")
    holders = [*disk.holders, *(each for part in disk.partitions for each in part.holders)]
    places = [*disk.mounted_at, *(each for part in disk.partitions for each in part.mounted_at)]
    if holders or places:
        raise Stopped(f"{path} is in use, and is not formatted: {', '.join((*holders, *places))}")
    if not (disk.table_read and disk.content_read and disk.nvme and disk.nvme.format_in_use is not None):
        text = f"{path} could not be read, so it may not be what was taken out; it is not formatted"
        raise Stopped(text, hint=f"if its format was cut off: sudo nvme format {path} --lbaf={step.format_after}")
    if _namespace(disk) != ("namespace", step.namespace):
        raise Stopped(f"{path} is not namespace {step.namespace}, or a format would erase more than that")
    if disk.nvme.format_in_use not in (step.format_before, step.format_after):
        raise Stopped(f"{path} has format {disk.nvme.format_in_use}, which is neither the old one nor the new one")
    planned = {entry.extent for entry in step.entries}
    content = [*disk.content, *(layer for part in disk.partitions for layer in part.content)]
    odd = [part.extent for part in disk.partitions if part.extent not in planned]
    if odd or any(array_uuid(layer) != step.array for layer in content):
        raise Stopped(f"{path} holds what the plan does not have; it is not formatted", hint=f"sudo wipefs {path}")
    return disk


def _wait_for_blocks(step: FormatMember) -> None:
    """Raises Stopped where the drive does not become what was ordered, or is too short for its member."""
    deadline, file = time.monotonic() + _PATIENCE_S, Path("/sys/block", Path(step.disk.path).name)
    settle()
    while text_of(file / "queue/logical_block_size") != str(step.block_after):
        if time.monotonic() > deadline:
            raise Stopped(f"{step.disk.path} does not show logical blocks of {step.block_after} bytes after its format")
        time.sleep(_PAUSE_S)
    size = int(text_of(file / "size") or 0) * _SECTOR
    if size < (step.entries[-1].extent.end if step.entries else 0):
        raise Stopped(f"{step.disk.path} has only {size} bytes in this format, too few for its partition")


def _make_table(step: FormatMember) -> None:
    """The same partitions with the same GUIDs, in the sectors that the drive has now. Raises Stopped."""
    path = step.disk.path
    wanted = [(each.number, each.extent, uuid) for each, uuid in zip(step.entries, step.uuids, strict=True)]
    with lock_disk(path) as own:
        disk = _stop_unless_ours(step)
        found = [(part.number, part.extent, part.uuid) for part in disk.partitions]
        copies = disk.table.copies if disk.table and not disk.table.faults else ()
        if found != wanted or not copies or any(copy.state is not TableCopyState.GOOD for copy in copies):
            own.kernel.forget(own.kernel.numbers())
            said = run_program(*member_commands(step)[1], stdin=table_script(step).encode())
            if said.code:
                raise Stopped(f"sfdisk made no table on {path}: {said.last_words}")
        own.kernel.show([(entry.number, entry.extent) for entry in step.entries])
    for entry in step.entries:
        wait_for_partition(path, step.device, Extent(entry.extent.start, entry.extent.length))


# PutBackMember


def _put_back(step: PutBackMember, index: int) -> Iterator[Said | Progress]:
    name = running_array(step)
    grows = _block_size(name) < step.block_size
    if {_FAULTY, _WANTED} & set(_state(name, step.device).split(",")):  # it failed, or was on its way out
        yield from _take_out(TakeOutMember(step.array, step.path, step.device), index)
    if not _state(name, step.device):
        _add(name, step)
        yield Said(f"{step.device} is added to /dev/{name}")
    if _block_size(name) < step.block_size:
        _assemble_again(name, step)
        name = running_array(step)
        if _block_size(name) < step.block_size:
            raise Stopped(f"/dev/{name} still has logical blocks of {_block_size(name)} bytes, not {step.block_size}")
    if grows:
        yield Said(f"/dev/{name} has logical blocks of {step.block_size} bytes now, and may be used again")
    yield from _work(name, index)
    state = _state(name, step.device)
    if what := _odd(name) or ("" if state else f"{step.device} is gone"):
        raise Stopped(f"/dev/{name} did not become whole: {what}", hint=f"sudo mdadm --detail /dev/{name}; sudo dmesg")
    yield Said(f"{step.device} is back, {'as the spare' if state == SPARE else 'with all its data'}")


def _add(name: str, step: PutBackMember) -> None:
    """md changes the blocks of an array at once, or when it is assembled; nobody may be using it. Raises Stopped."""
    with _unused(name) if _block_size(name) < step.block_size else nullcontext(), locked(_drives_of([step.device])):
        if superblock_uuid(step.device) == step.array:  # it was not formatted, or was being filled when the power went
            run_or_stop("mdadm", "--zero-superblock", step.device)
        elif shown := shown_on(step.device):
            raise Stopped(f"{step.device} holds {shown}, and is not added over that")
        run_or_stop("mdadm", f"/dev/{name}", "--add", step.device)
    settle()


def _drives_of(devices: Iterable[str]) -> list[str]:
    """Return the drives, whose locks udev honours: it would look into what has just lost its superblock or array."""
    folders = (folder for each in devices if (folder := kernel_folder(each)))
    return sorted({f"/dev/{disk_folder(folder).name}" for folder in folders})


@contextmanager
def _unused(name: str) -> Iterator[None]:
    """Held exclusively, so that nothing mounts it meanwhile. Raises Stopped where it is in use."""
    try:
        descriptor = os.open(f"/dev/{name}", os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        text = f"/dev/{name} is in use, and its logical blocks must not change under it: {error.strerror}"
        raise Stopped(text, hint=f"lsblk /dev/{name}; unmount it") from error
    try:
        if users := in_use(f"/dev/{name}"):
            text = f"/dev/{name} is in use, and its logical blocks must not change under it: {users[0].what}"
            raise Stopped(text, hint=users[0].end)
        yield
    finally:
        os.close(descriptor)


def _assemble_again(name: str, step: PutBackMember) -> None:
    """An array takes the largest logical blocks of its members when it is assembled. Raises Stopped."""
    with _unused(name):
        nodes = [f"/dev/{each}" for each in sorted(slaves(name))]
    with locked(_drives_of(nodes)):  # or udev would assemble what it finds on them
        run_or_stop("mdadm", "--stop", f"/dev/{name}")
        run_or_stop("mdadm", "--assemble", "--run", step.path, f"--uuid={step.array}", *nodes)
    settle()
