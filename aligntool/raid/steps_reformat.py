"""Steps on the members of a running array: compare, remove, format, add back; and reading what their planning
needs.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from aligntool.audit.arrays import IN_SYNC, Member
from aligntool.audit.wording import shell_word
from aligntool.change import Progress, Said
from aligntool.commands import ByHand, by_hand, typed
from aligntool.contents.catalogue import smallest_unit
from aligntool.contents.kind import NOT_READ, Unit
from aligntool.errors import Refused, Stopped, failing_as
from aligntool.inventory import Disk, TableCopyState, array_uuid
from aligntool.linux.content import sample
from aligntool.linux.device_numbers import disk_folder
from aligntool.linux.devices import read_array
from aligntool.linux.file_reader import FileReader
from aligntool.linux.in_use import unlisted_occupants
from aligntool.linux.lock import (
    kernel_folder,
    lock_against_udev,
    lock_disk,
    wait_for_partition,
    wait_for_udev,
)
from aligntool.linux.programs import run_or_stop, run_program
from aligntool.linux.sysfs import Tree, opened
from aligntool.raid.commands import member_commands, table_script
from aligntool.raid.reformat import RUNS, SPARE, ArrayDetails
from aligntool.raid.steps_drives import read_disk
from aligntool.raid.steps_format import (
    format_by_hand,
    read_namespace,
    stop_unless_formattable,
    stop_unless_same_drive,
    wait_for_blocks,
)
from aligntool.raid.steps_md import (
    attribute,
    find_arrays,
    read_kernel_file,
    recognised_on,
    slaves,
    superblock_uuid,
)
from aligntool.steps import CheckArray, FormatMember, MemberStep, PutBackMember, Step, TakeOutMember
from aligntool.units import Extent

_PAUSE_S = 0.1
_FROZEN_S = 3.0
_LONGEST_PAUSE_S = 1.0
_PATIENCE_S = 20.0  # until md begins a recovery, or the kernel shows the result of a format
_SECTOR = 512
_FAULTY = "faulty"
_WANTED = "want_replacement"
_STORED_SIZE = "logical_block_size"  # of the array, in its superblocks: Linux 6.19


def read_array_details(disk: Disk, members: Sequence[Member]) -> ArrayDetails:
    """Read what an inventory lacks. `disk`: the array."""
    names = disk.array.members if disk.array else ()
    states = {name: _state(disk.name, name) for name in names}
    place = attribute(disk.name, "bitmap/location").lstrip("+")
    bitmap = int(place) * _SECTOR if place.lstrip("-").isdigit() else None
    namespaces = {member.disk.name: read_namespace(member.disk) for member in members}
    clustered = attribute(disk.name, "bitmap/metadata") == "clustered"
    bad_blocks = _members_with_bad_blocks(disk.name)
    return ArrayDetails(states, bad_blocks, bitmap, _unit(disk), namespaces, clustered)


def _unit(disk: Disk) -> Unit:
    """Return the smallest unit of the array's content, or NOT_READ."""
    with suppress(OSError), opened(disk.path) as descriptor:
        reader = FileReader(descriptor, disk.size or 0)
        return next((smallest_unit(reader, layer) for layer in disk.content), NOT_READ)
    return NOT_READ


# Applying and undoing the steps: each reads the state of the array and the drive, and does what remains.


def apply_member_step(steps: Sequence[Step], index: int, *, new: bool) -> Iterator[Said | Progress]:
    """Apply a step. `new`: the work was not interrupted, so no removed member was used for anything else
    meanwhile.

    Raises Refused if the comparison before any write finds a difference, else Stopped.
    """
    match steps[index]:
        case CheckArray() as step:
            yield from _check(step, index)
        case TakeOutMember() as step:
            yield from _remove(step, index)
        case FormatMember() as step:
            yield from _format(step, _removal_of(step.device, steps), index)
        case PutBackMember() as step:
            yield from _add_and_rebuild(step, index, new=new)


def undo_member_step(steps: Sequence[Step], index: int) -> Iterator[Said | Progress]:
    """Undo a step. In reverse order, a member that was added is removed, gets its old format, and is added
    back.
    """
    match steps[index]:
        case TakeOutMember(array, path, device):
            yield from _add_and_rebuild(PutBackMember(array, path, device, 0), index)
        case FormatMember() as step:
            yield from _format(backwards(step), _removal_of(step.device, steps), index)
        case PutBackMember(device=device):
            yield from _remove(_removal_of(device, steps), index)


def _removal_of(device: str, steps: Sequence[Step]) -> TakeOutMember:
    return next(step for step in steps if isinstance(step, TakeOutMember) and step.device == device)


def backwards(step: FormatMember) -> FormatMember:
    """Return the step that restores the old format of the member."""
    old, new = (step.format_before, step.block_before), (step.format_after, step.block_after)
    whose = (step.array, step.path, step.disk, step.device, step.namespace)
    return FormatMember(*whose, *new, *old, step.entries, step.uuids)


# The array, by its UUID.


def running_array(step: MemberStep) -> str:
    """Return the kernel's name of the array. Start it if a reboot left it inactive because of the removed
    member. Raises Stopped.
    """
    wait_for_udev()
    for name in find_arrays(step.array):
        # it may lack members that exist, or hold the removed one
        if attribute(name, "array_state") == "inactive":
            run_program("mdadm", "--stop", f"/dev/{name}")
    why = "no member of it was found"
    if not find_arrays(step.array):
        ended = run_program("mdadm", "--assemble", "--run", step.path, f"--uuid={step.array}")
        why = ended.output_tail or why
        wait_for_udev()
    found = next(iter(find_arrays(step.array)), None)
    state = attribute(found, "array_state") if found else why
    if found is None or state not in RUNS:
        raise Stopped(
            f"the array {step.path}, UUID {step.array}, does not run: {state}", hint=start_hint(step, state)
        )
    if attribute(found, "array_state") == "read-auto":
        run_or_stop("mdadm", "--readwrite", f"/dev/{found}")
    _thaw(found)
    return found


_MDSTAT = "cat /proc/mdstat"


def start_hint(step: MemberStep, state: str) -> str:
    """Return how the user makes the array usable. "broken": more members are lost than it can lose (Linux
    6.1).
    """
    if state == "readonly":
        return by_hand(ByHand.MEMBERS, "mdadm", f"{shell_word(step.path)}, which is read-only")
    forced = by_hand(ByHand.MEMBERS, "mdadm", f"{shell_word(step.path)}, UUID {step.array}")
    return f"{_MDSTAT}\nif a member is too old or the array is dirty and degraded: {forced}"


def _thaw(name: str) -> None:
    """Unfreeze the array. An mdadm that was killed while it added a member leaves it frozen, and md then
    rebuilds no member (Manage.c, sysfs_freeze_array). An mdadm of another process freezes it for a moment
    only. Raises Stopped.
    """
    deadline = time.monotonic() + _FROZEN_S
    while attribute(name, "sync_action") == "frozen":
        if time.monotonic() > deadline:
            run_or_stop("mdadm", "--action=idle", f"/dev/{name}")
        time.sleep(_PAUSE_S)


def _member_attribute(name: str, member: str, word: str) -> str:
    return read_kernel_file(Path("/sys/block", name, "md", f"dev-{member}", word))


def _state(name: str, device: str) -> str:
    """Return md's state of a member, or "" if it is not in the array."""
    return _member_attribute(name, Path(device).name, "state")


def _states(name: str) -> dict[str, str]:
    return {member: _state(name, member) for member in slaves(name)}


def _block_size(name: str) -> int:
    return int(read_kernel_file(Path("/sys/block", name, "queue/logical_block_size")) or 0)


def _members_with_bad_blocks(name: str) -> tuple[str, ...]:
    """Return the members with blocks that md could not read or write; a resync copies such a list too."""
    return tuple(member for member in sorted(slaves(name)) if _member_attribute(name, member, "bad_blocks"))


def problems_of(name: str, *missing: str) -> str:
    """Return why an array is not complete and idle, or "". `missing`: other accepted values of `degraded`."""
    problems = [
        f"{member} is {state or 'gone'}"
        for member, state in _states(name).items()
        if state not in (IN_SYNC, SPARE)
    ]
    problems += [f"{member} has a list of bad blocks" for member in _members_with_bad_blocks(name)]
    degraded = attribute(name, "degraded")
    action = attribute(name, "sync_action")
    if not degraded:  # its last member is gone, and udev stopped it
        problems.append("it no longer runs")
    elif degraded not in ("0", *missing) or action != "idle":
        problems.append(f"degraded {degraded}, sync_action {action}")
    return ", ".join(problems)


def _stop_unless_whole(name: str) -> None:
    """Raise Stopped unless every member is in sync and md is idle: only then may a member be removed."""
    problems = problems_of(name)
    if problems:
        text = f"/dev/{name} is not complete and idle ({problems}), so no member is removed"
        raise Stopped(text, hint=typed("mdadm --detail", f"/dev/{name}"))


def wait_until_idle(name: str, index: int) -> Iterator[Progress]:
    """Yield the progress of md until it is idle; it may take a moment to begin."""
    begun = False
    pause = _PAUSE_S
    deadline = time.monotonic() + _PATIENCE_S
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
    if attribute(name, "sync_action") == "check":  # left by an interrupted run
        run_or_stop("mdadm", "--action=idle", f"/dev/{name}")
    yield from wait_until_idle(name, index)
    _stop_unless_whole(name)
    _select_whole_length(name)
    run_or_stop("mdadm", "--action=check", f"/dev/{name}")
    try:
        yield from wait_until_idle(name, index)
    except (GeneratorExit, KeyboardInterrupt):
        run_program("mdadm", "--action=idle", f"/dev/{name}")
        raise
    _stop_unless_whole(name)
    if attribute(name, "sync_min") != "0":
        raise Stopped(
            f"another program ended the comparison of the members of /dev/{name} before it was complete"
        )
    differ = attribute(name, "mismatch_cnt")
    if differ != "0":
        text = f"/dev/{name}: {differ} sectors of its members differ, so one of them must not replace another"
        hint = by_hand(ByHand.MEMBERS, "mdadm", f"/dev/{name}, whose members differ")
        if index:
            hint = f"swap and mapped files differ while in use, so unmount it and compare again; else {hint}"
        raise (Stopped if index else Refused)(text, hint=hint)
    yield Said(f"all members of /dev/{name} agree")


def _select_whole_length(name: str) -> None:
    """Have md compare the whole length: otherwise it continues where an earlier comparison was interrupted,
    and counts only from there (md.c, md_do_sync).
    """
    folder = Path("/sys/block", name, "md")
    with failing_as(Stopped, f"/dev/{name}: its whole length cannot be compared"):
        (folder / "sync_max").write_text("max")
        (folder / "sync_min").write_text("0")


# TakeOutMember


def _remove(step: TakeOutMember, index: int) -> Iterator[Said | Progress]:
    name = running_array(step)
    state = _state(name, step.device)
    array = f"/dev/{name}"
    if not state:
        yield Said(f"{step.device} is already removed")
        return
    if IN_SYNC in state:
        if _WANTED not in state:
            yield from wait_until_idle(name, index)
            _stop_unless_whole(name)
            spares = [f"/dev/{member}" for member, state in sorted(_states(name).items()) if state == SPARE]
            if step.spare and not spares:
                text = f"{array} no longer has the spare that should replace {step.device}"
                raise Stopped(text, hint=by_hand(ByHand.MEMBERS, "mdadm", f"{array}, a spare to add"))
            spare = step.spare if step.spare in spares else next(iter(spares), None)
            words = ("--replace", step.device, "--with", spare) if spare else ("--fail", step.device)
            run_or_stop("mdadm", array, *words)
        if _WANTED in _state(name, step.device):
            yield from _wait_for_replacement(name, step.device, index)
    elif _FAULTY not in state:
        run_or_stop("mdadm", array, "--fail", step.device)  # the others have all of its data
    deadline = time.monotonic() + _PATIENCE_S
    while _state(name, step.device):
        ended = run_program("mdadm", array, "--remove", step.device)
        if ended.code and time.monotonic() > deadline:
            raise Stopped(f"{step.device} cannot be removed from {array}: {ended.output_tail}")
        wait_for_udev()
    yield Said(f"{step.device} is removed from {array}")


def _wait_for_replacement(name: str, device: str, index: int) -> Iterator[Progress]:
    """Wait until the spare has the data of the member, after which md marks the member faulty. Raises
    Stopped.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while _FAULTY not in _state(name, device):
        for progress in wait_until_idle(name, index):
            yield progress
            # the copy may take hours, and md a moment more to mark it faulty
            deadline = time.monotonic() + _PATIENCE_S
        if attribute(name, "sync_action") != "idle":
            deadline = time.monotonic() + _PATIENCE_S
        elif time.monotonic() > deadline:
            keep = by_hand(ByHand.MEMBERS, "tee", f"{device}, marked {_WANTED}")
            raise Stopped(
                f"no spare replaced {device} in /dev/{name}", hint=f"{_MDSTAT}\nto keep {device}: {keep}"
            )
        time.sleep(_PAUSE_S)


# FormatMember: the only step that erases, with its checks.


def _format(step: FormatMember, removal: TakeOutMember, index: int) -> Iterator[Said | Progress]:
    """Format a namespace that was removed from its array, matches the plan by model, serial number, WWN and
    number, and holds nothing but its former content of the array. Raises Stopped, or Refused if it is in use.
    """
    path = step.disk.path
    name = running_array(step)
    if _state(name, step.device):  # after a power cut before md recorded the removal, or added since
        disk = read_disk(path)
        stop_unless_same_drive(disk, step)
        if disk.nvme is not None and disk.nvme.format_in_use == step.format_after:
            yield Said(f"{path} already has its format")
            return
        # so that it leaves only an array whose other members are in sync
        yield from wait_until_idle(name, index)
        yield from _remove(removal, index)
    with lock_disk(path) as own:  # while it is open no other drive gets its name
        disk = _stop_unless_ours(step)
        done = disk.nvme is not None and disk.nvme.format_in_use == step.format_after
        if not done:
            _stop_unless_redundant(name, step)
            stop_if_not_its_own(disk, step)
            own.kernel.forget(own.kernel.numbers())
            run_or_stop(*member_commands(step)[0])
    # after the lock is closed: a process that has it open keeps reading in blocks of the old size
    if not done:
        size = wait_for_blocks(step)
        if size < (step.entries[-1].extent.end if step.entries else 0):
            raise Stopped(f"{path} has only {size} bytes in this format, too few for its partition")
    new = f"{path} has logical blocks of {step.block_after} bytes"
    yield Said(f"{path} already has its format" if done else new)
    if step.entries:
        _make_table(step)


def _stop_unless_redundant(name: str, step: FormatMember) -> None:
    """Raise Stopped unless the array runs on all other members, which have all data of this one: after a
    power cut another member may be missing, so that only this one has its data.
    """
    state = _state(name, step.device)
    problems = problems_of(name, "1") or (state and f"{step.device} is {state}")
    if problems:
        text = (
            f"/dev/{name} lacks members other than {step.device} ({problems}), so that one is not formatted"
        )
        raise Stopped(text, hint=typed("mdadm --detail", f"/dev/{name}"))


def _stop_unless_ours(step: FormatMember) -> Disk:
    """Read the drive, and return it. Raises Stopped unless it is the plan's, not in use, and may be
    formatted.
    """
    disk = read_disk(step.disk.path)
    path = disk.path
    stop_unless_formattable(disk, step)
    planned = {entry.extent for entry in step.entries}
    content = [*disk.content, *(layer for part in disk.partitions for layer in part.content)]
    unplanned = [part.extent for part in disk.partitions if part.extent not in planned]
    if unplanned or any(array_uuid(layer) != step.array for layer in content):
        raise Stopped(
            f"{path} holds content that is not in the plan; it is not formatted",
            hint=typed("wipefs --no-act", path),
        )
    return disk


def stop_if_not_its_own(disk: Disk, step: FormatMember) -> None:
    """Raise Stopped if a drive on which nothing is recognised, not even its superblock of the array, is not
    blank.
    """
    if any(part.content for part in disk.partitions) or disk.content:
        return  # `_stop_unless_ours` found only this array's
    extent = step.entries[-1].extent if step.entries and disk.partitions else Extent(0, disk.size or 0)
    stop_if_reused(disk.path, extent, format_by_hand(step))


def stop_if_reused(path: str, extent: Extent, erase: str) -> None:
    """Raise Stopped if a removed member that lost its superblock of the array holds data: the work may be
    resumed months later, and only its bytes show whether the drive is used for anything else by now. `erase`:
    how the user erases it.
    """
    found = sample(path, extent)
    if found.written or found.unreadable:
        places = f"{found.written + found.unreadable} of {found.places} places"
        text = f"{path} has no superblock of the array, but data at {places}; it is not overwritten"
        raise Stopped(text, hint=f"if none of it is needed: {erase}")


def _make_table(step: FormatMember) -> None:
    """Write the same partitions with the same GUIDs, in sectors of the new size. Raises Stopped."""
    path = step.disk.path
    wanted = [
        (entry.number, entry.extent, uuid) for entry, uuid in zip(step.entries, step.uuids, strict=True)
    ]
    with lock_disk(path) as own:
        disk = _stop_unless_ours(step)
        found = [(part.number, part.extent, part.uuid) for part in disk.partitions]
        copies = disk.table.copies if disk.table and not disk.table.faults else ()
        if found != wanted or not copies or any(copy.state is not TableCopyState.GOOD for copy in copies):
            own.kernel.forget(own.kernel.numbers())
            ended = run_program(*member_commands(step)[1], stdin=table_script(step).encode())
            if ended.code:
                raise Stopped(f"sfdisk wrote no table to {path}: {ended.output_tail}")
        own.kernel.show([(entry.number, entry.extent) for entry in step.entries])
    for entry in step.entries:
        wait_for_partition(path, step.device, Extent(entry.extent.start, entry.extent.length))


# PutBackMember


def _add_and_rebuild(step: PutBackMember, index: int, *, new: bool = False) -> Iterator[Said | Progress]:
    name = running_array(step)
    grows = _block_size(name) < step.block_size
    if {_FAULTY, _WANTED} & set(_state(name, step.device).split(",")):  # it failed, or was being replaced
        yield from _remove(TakeOutMember(step.array, step.path, step.device), index)
    if _block_size(name) < step.block_size and attribute(name, _STORED_SIZE):
        _enlarge_blocks(name, step.block_size)
        name = running_array(step)
    if not _state(name, step.device):
        _add(name, step, new=new)
        yield Said(f"{step.device} is added to /dev/{name}")
    if _block_size(name) < step.block_size:
        _assemble_again(name, step)
        name = running_array(step)
        if _block_size(name) < step.block_size:
            raise Stopped(
                f"/dev/{name} still has logical blocks of {_block_size(name)} bytes, not {step.block_size}"
            )
    if grows:
        yield Said(f"/dev/{name} now has logical blocks of {step.block_size} bytes and can be used again")
    yield from wait_until_idle(name, index)
    state = _state(name, step.device)
    problems = problems_of(name) or ("" if state else f"{step.device} is missing")
    if problems:
        text = f"/dev/{name} is not complete again: {problems}"
        raise Stopped(text, hint=f"{typed('mdadm --detail', f'/dev/{name}')}; sudo dmesg")
    yield Said(f"{step.device} is back, {'as the spare' if state == SPARE else 'with all its data'}")


def _add(name: str, step: PutBackMember, *, new: bool) -> None:
    """Add a member; `new`: it was blank a moment ago. If the array's blocks grow, md changes them at once or
    at the next assembly, so the array must not be in use. mdadm adds a member that has its superblock as the
    same one, so that with a bitmap only what has changed is copied (Manage.c, attempt_re_add). Raises
    Stopped.
    """
    with (
        _unused(name) if _block_size(name) < step.block_size else nullcontext(),
        lock_against_udev(_drives_of([step.device])),
    ):
        # not formatted, or being rebuilt when the power failed
        if superblock_uuid(step.device) == step.array:
            _add_former(name, step.device)
        elif shown := recognised_on(step.device):
            raise Stopped(f"{step.device} holds {shown}, which is not overwritten")
        else:
            if not new:
                size = int(read_kernel_file((kernel_folder(step.device) or Path()) / "size") or 0) * _SECTOR
                stop_if_reused(
                    step.device, Extent(0, size), by_hand(ByHand.EMPTYING, "blkdiscard", step.device)
                )
            run_or_stop("mdadm", f"/dev/{name}", "--add", step.device)
    wait_for_udev()


def _add_former(name: str, device: str) -> None:
    """Add a member that has its superblock. If another one has bad blocks, it may have the only copy of them,
    so it must not be rebuilt. Raises Stopped.
    """
    bad = _members_with_bad_blocks(name)
    ended = run_program("mdadm", f"/dev/{name}", "--re-add" if bad else "--add", device)
    if ended.code and bad:
        text = (
            f"{device} may have the only copy of the bad blocks of {', '.join(bad)}, so it is not rebuilt"
            " from them"
        )
        raise Stopped(text, hint=typed("mdadm --examine-badblocks", f"/dev/{bad[0]}"))
    if ended.code:
        raise Stopped(f"{device} cannot be added to /dev/{name}: {ended.output_tail}")


def _drives_of(devices: Iterable[str]) -> list[str]:
    """Return the whole drives, whose locks udev respects: otherwise it would probe what has just lost its
    superblock or array.
    """
    folders = (folder for device in devices if (folder := kernel_folder(device)))
    return sorted({f"/dev/{disk_folder(folder).name}" for folder in folders})


@contextmanager
def _unused(name: str) -> Iterator[None]:
    """Open the array exclusively, so that nothing mounts it meanwhile. Raises Stopped if it is in use."""
    in_use = f"/dev/{name} is in use, so its logical blocks must not change"
    with failing_as(Stopped, in_use, hint=f"{typed('lsblk', f'/dev/{name}')}; unmount it"):
        descriptor = os.open(f"/dev/{name}", os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    try:
        users = unlisted_occupants(f"/dev/{name}")
        if users:
            raise Stopped(f"{in_use}: {users[0].what}", hint=users[0].end)
        yield
    finally:
        os.close(descriptor)


def _enlarge_blocks(name: str, size: int) -> None:
    """Give the array blocks of `size` bytes before a member has them: Linux 6.19 and later do not add a
    member with larger blocks than the array, which they change only while it is inactive (md.c, lbs_store).
    Raises Stopped.
    """
    with _unused(name):
        pass  # md refuses to make it inactive if it is opened from here on
    with failing_as(Stopped, f"/dev/{name}: its logical blocks cannot be enlarged"):
        folder = Path("/sys/block", name, "md")
        (folder / "array_state").write_text("inactive")
        try:
            (folder / _STORED_SIZE).write_text(str(size))
        finally:
            (folder / "array_state").write_text("active")
    wait_for_udev()


def _assemble_again(name: str, step: PutBackMember) -> None:
    """Assemble the array again: only then does it adopt the largest logical blocks of its members. Raises
    Stopped.
    """
    with _unused(name):
        nodes = [f"/dev/{member}" for member in sorted(slaves(name))]
    with lock_against_udev(_drives_of(nodes)):  # otherwise udev would assemble what it finds on them
        run_or_stop("mdadm", "--stop", f"/dev/{name}")
        run_or_stop("mdadm", "--assemble", "--run", step.path, f"--uuid={step.array}", *nodes)
    wait_for_udev()
