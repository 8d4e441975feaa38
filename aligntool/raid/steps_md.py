"""Steps on the array: create, assemble, verify, undo; its file systems; remains of earlier arrays."""

import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aligntool.change import Progress, Said
from aligntool.commands import ByHand, by_hand, typed
from aligntool.contents.catalogue import kind_named
from aligntool.errors import Refused, Stopped, failing_as
from aligntool.linux.checks import check_content, run_blkid
from aligntool.linux.lock import kernel_folder, wait_for_udev
from aligntool.linux.programs import export_values, run_or_stop, run_program
from aligntool.linux.sysfs import live_paths, opened
from aligntool.raid.commands import command_of
from aligntool.raid.levels import LEVELS
from aligntool.raid.steps_system import files_below, refuse_files
from aligntool.steps import MakeArray, MakeFileSystem, MakeMember, Step
from aligntool.units import KIB, Extent, format_size

# The running array compared with the plan.
#
# Both mdadm and the kernel round, and use whole members if no size is given: the array may then differ from
# the one that was shown, though every member is present.

SECTOR = 512
ROUNDING = 64 * KIB  # of a member without a chunk


def array_differences(step: MakeArray, folder: Path, size: int | None = None) -> Iterator[str]:
    """Yield how the array differs from the plan. `folder`: /sys/block/md127. `size`: of the array in bytes,
    or None to ignore it.

    Documentation/admin-guide/md.rst: chunk_size is in bytes, offset in sectors, as is the size of a block
    device. Values that sysfs does not show count as equal.
    """
    chunk = step.chunk
    offset = step.data.offset
    found = _number(folder / "md" / "chunk_size")
    if chunk is not None and found not in (None, chunk):
        yield f"its chunk is {format_size(found or 0)}, not {format_size(chunk)}"
    for file in live_paths(folder / "md", "dev-*/offset"):
        found = _number(file, SECTOR)
        if offset and found not in (None, offset):
            name = file.parent.name.removeprefix("dev-")
            yield f"its data begin {format_size(found or 0)} into {name}, not {format_size(offset)}"
    found = _number(folder / "size", SECTOR)
    if (
        size is not None
        and found is not None
        and abs(found - size) > max(chunk or 0, ROUNDING) * len(step.members)
    ):
        yield f"its size is {format_size(found)}, not {format_size(size)}"


def read_kernel_file(file: Path) -> str:
    """Return the content of a sysfs or procfs file, or "" if it cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _number(file: Path, unit: int = 1) -> int | None:
    word = read_kernel_file(file).partition(" ")[0]
    return int(word) * unit if word.isdigit() else None


# Whether a file system or an array of an interrupted plan was used since.
#
# A record shows how far aligntool came, but not what the user has done since: a file system that may have
# been written to is never recreated or wiped.

# blkid(8), EXIT STATUS
_NOTHING_FOUND = 2
_AMBIVALENT = 8


def is_there(step: MakeFileSystem) -> bool:
    """Return whether blkid finds the file system of the plan on the device; it probes, and ignores its
    cache.
    """
    found = export_values(run_blkid(step.device, "-o", "export").output)
    return (found.get("TYPE"), found.get("UUID", "").lower()) == (step.kind, step.uuid.lower())


def recognised_on(device: str) -> str:
    """Return what blkid recognises, including partition tables; "" for nothing. Raises Stopped if it
    fails.
    """
    probed = run_blkid(device, "-o", "value", "-s", "TYPE", "-s", "PTTYPE")
    if probed.code == _AMBIVALENT:
        return "more than one signature"
    if probed.code not in (0, _NOTHING_FOUND):
        raise Stopped(f"blkid cannot identify the content of {device}: {probed.output_tail or probed.code}")
    return " ".join(probed.output.split())


def was_never_mounted(device: str, kind: str) -> bool:
    """Return whether the superblock proves that it was never mounted; False also means unknown. Raises
    OSError.
    """
    with open(device, "rb", buffering=0) as file:  # noqa: PTH123 - a device
        head = os.pread(file.fileno(), 4 * KIB, 0)
    on_array = kind_named(kind).on_array
    return on_array is not None and on_array.was_never_mounted(head)


def refuse_foreign(device: str, planned: Sequence[MakeFileSystem]) -> None:
    """Raise Refused if the array holds anything but the plan's file system. A stopped array is not in use."""
    if kernel_folder(device) is None or any(is_there(step) for step in planned):
        return
    try:
        shown = recognised_on(device)
    except Stopped as error:
        raise Refused(str(error)) from error
    if shown:
        look = typed("blkid -p", device)
        raise Refused(f"{device} holds {shown}, which aligntool did not make; it would be lost", hint=look)


def refuse_used(step: MakeFileSystem, made: Collection[str] = ()) -> None:
    """Raise Refused if the file system to be wiped has files, or if that is unknown. `made`: as for
    `files_below`.
    """
    is_mountable = kind_named(step.kind).is_mountable
    exists = is_mountable and kernel_folder(step.device) is not None and is_there(step)
    if exists and not was_never_mounted(step.device, step.kind):
        with _mount_points(step) as places:
            found = sorted({name for place in places for name in files_below(place, made)})[:5]
        refuse_files(step.device, found)


@contextmanager
def _mount_points(step: MakeFileSystem) -> Iterator[list[str]]:
    """Yield the mount points, or mount it read-only at a temporary one. Its log is replayed then, so that
    everything written to it is visible.
    """
    mounted = run_program("findmnt", "-n", "-r", "-o", "TARGET", "--source", step.device).output.split()
    if mounted:
        yield mounted
        return
    with tempfile.TemporaryDirectory(prefix="aligntool-look-") as name:
        ended = run_program("mount", "-t", step.kind, "-o", "ro,nosuid,nodev,noexec", step.device, name)
        if ended.code:
            look = typed("blkid -p", step.device)
            raise Refused(f"it is unknown whether {step.device} holds files: {ended.output_tail}", hint=look)
        try:
            yield [name]
        finally:
            run_program("umount", name)


# md arrays: found by their UUID, created, started again after a reboot, and removed.
#
# Superblocks of members are zeroed only if they have the UUID of the plan: anything else that is found stops
# the walk.

_USABLE = ("active", "active-idle", "clean", "readonly", "read-auto", "write-pending")
"""Values of md/array_state of an array that can be used: Documentation/admin-guide/md.rst."""


def make_array(
    step: MakeArray, size: int, zeroing: Iterable[Said | Progress] = ()
) -> Iterator[Said | Progress]:
    """Create the array. It must not hold anything yet: an incomplete one is removed and created again.

    `size`: of the array, in bytes. `zeroing`: zeroes the members, directly before the array is created.
    Raises Stopped.
    """
    wait_for_udev()
    running = find_running(step)
    if running is not None and slaves(running) == _names(step.members) and not _is_degraded(running):
        yield Said(f"{step.device} is already running")
    else:
        if running is not None and (shown := recognised_on(f"/dev/{running}")):
            raise Stopped(f"/dev/{running} lacks members and holds {shown}; it is not recreated")
        remove_array(step)
        _stop_unless_empty(step.members)
        yield from zeroing
        run_or_stop(*command_of(step))
        wait_for_udev()
    stop_unless_made(step, size)


def start_array(step: MakeArray, *, named: bool, whole: bool) -> Iterator[Said]:
    """Start the created array, for example after a reboot, unless it runs. `named`: under its own name, not
    as md127. `whole`: members that it lost meanwhile are added to it again.

    Raises Stopped.
    """
    wait_for_udev()
    running = find_running(step)
    if running is not None and (not named or _leads_to(step.device, running)):
        if whole:
            yield from _add_lost_members(step)
        return
    _stop_ours(step)
    run_or_stop("mdadm", "--assemble", step.device, f"--uuid={step.uuid}", *step.members)
    wait_for_udev()
    yield Said(f"{step.device} was started again")
    if whole:
        yield from _add_lost_members(step)
    stop_unless_made(step)


def _add_lost_members(step: MakeArray) -> Iterator[Said]:
    """Add the members again that the array lost, for example because a cable was loose, and that have its
    superblock: md then copies what was written meanwhile. `--add` would overwrite them, and is not used.

    Raises Stopped if a member is there and the array does not take it.
    """
    name = find_running(step)
    if name is None or not LEVELS[step.level].redundant:
        return
    for member in step.members:
        folder = kernel_folder(member)
        if folder is None or folder.name in slaves(name):
            continue
        if arrays_above([member]) or superblock_uuid(member) != step.uuid:
            continue
        ended = run_program("mdadm", f"/dev/{name}", "--re-add", member)
        if ended.code:
            why = f"which is there again, and md does not take it: {ended.output_tail}"
            raise Stopped(
                f"{step.device} lost {member}, {why}",
                hint=by_hand(ByHand.MEMBERS, "mdadm", f"{step.device} and {member}"),
            )
        wait_for_udev()
        yield Said(f"{member} is a member of {step.device} again")


def remove_array(step: MakeArray) -> None:
    """Stop the array and zero its superblocks. Raises Stopped if a member belongs to another array."""
    _stop_foreign(step)
    _stop_ours(step)
    for member in step.members:
        if superblock_uuid(member) == step.uuid:
            run_or_stop("mdadm", "--zero-superblock", member)
    wait_for_udev()


def find_running(step: MakeArray) -> str | None:
    """Return the kernel's name, such as "md127", of the array that runs on the members with the step's
    UUID.
    """
    for name in sorted(arrays_above(step.members)):
        state = attribute(name, "array_state")
        if state in _USABLE and all(
            superblock_uuid(f"/dev/{member}") == step.uuid for member in slaves(name)
        ):
            return name
    return None


def find_arrays(uuid: str) -> list[str]:
    """Return the arrays of this UUID, by the first superblock among its members: a member that is being added
    has none yet. An inactive array of one removed member has the same UUID.
    """
    names = sorted(folder.parent.name for folder in live_paths(Path("/sys/block"), "md*/md"))
    uuids = {
        name: filter(None, (superblock_uuid(f"/dev/{member}") for member in sorted(slaves(name))))
        for name in names
    }
    return [name for name in names if next(uuids[name], "") == uuid]


def arrays_above(members: Sequence[str]) -> set[str]:
    """Return the md devices on top of any of these, whether they run or not.

    A drive's partitions count as the drive.
    """
    folders = [folder for member in members if (folder := kernel_folder(member)) is not None]
    return {holder.name for folder in folders for holder in live_paths(folder / "holders", "md*")}


def has_superblocks(step: MakeArray) -> bool:
    """Return whether any member has a superblock of the plan's array."""
    return any(superblock_uuid(member) == step.uuid for member in step.members)


def superblock_uuid(device: str) -> str:
    """Return the UUID of the md superblock as mdadm prints it, or "" if there is none."""
    return export_values(run_program("mdadm", "--examine", "--export", device).output).get("MD_UUID", "")


def _is_degraded(name: str) -> bool:
    return attribute(name, "degraded") not in ("", "0")


def _is_slave(member: str, name: str) -> bool:
    folder = kernel_folder(member)
    return folder is not None and folder.name in slaves(name)


def _leads_to(device: str, name: str) -> bool:
    folder = kernel_folder(device)
    return folder is not None and folder.name == name


def stop_unless_made(step: MakeArray, size: int | None = None) -> None:
    """Raise Stopped unless the array runs with all its members, under its own name, and as planned."""
    name = find_running(step)
    if name is None:
        raise Stopped(f"{step.device} does not run: {typed('mdadm --detail', step.device)}")
    if slaves(name) != _names(step.members):
        gone = [member for member in step.members if not _is_slave(member, name)]
        text = f"{step.device} does not run with all its members"
        if gone:
            text += f": {', '.join(gone)} missing; once connected, aligntool resume adds them again"
        raise Stopped(text, hint=typed("mdadm --detail", step.device))
    if not _leads_to(step.device, name):
        raise Stopped(f"the array runs as /dev/{name}, and {step.device} does not point to it")
    differences = tuple(array_differences(step, Path("/sys/block", name), size))
    if differences:
        raise Stopped(f"{step.device} differs from the plan: {'; '.join(differences)}")


def _stop_foreign(step: MakeArray) -> None:
    """Raise Stopped for a member of another array, and for an array that also has other drives."""
    for member in step.members:
        uuid = superblock_uuid(member)
        if uuid not in ("", step.uuid):
            raise Stopped(f"{member} has the superblock of another array, UUID {uuid}")
    for name in arrays_above(step.members):
        if not slaves(name) <= _names(step.members):
            raise Stopped(f"/dev/{name} also has other drives: {', '.join(sorted(slaves(name)))}")


def _stop_ours(step: MakeArray) -> None:
    """Stop the arrays on the members. Raises Stopped for an array that is not the step's."""
    for name in sorted(arrays_above(step.members)):
        if {superblock_uuid(f"/dev/{member}") for member in slaves(name)} != {step.uuid}:
            raise Stopped(f"/dev/{name} is another array on members of this one")
        run_or_stop("mdadm", "--stop", f"/dev/{name}")


def _stop_unless_empty(members: Sequence[str]) -> None:
    """Raise Stopped if a member holds anything: `mdadm --create --run` overwrites it without asking."""
    for member in members:
        if kernel_folder(member) is None:
            raise Stopped(f"{member} is not a block device")
        shown = recognised_on(member)
        if shown:
            raise Stopped(f"{member} holds {shown}, which is not overwritten")


def _names(devices: Sequence[str]) -> set[str]:
    return {folder.name for device in devices if (folder := kernel_folder(device)) is not None}


def slaves(name: str) -> set[str]:
    """Return the kernel's names of an array's members."""
    return {link.name for link in live_paths(Path("/sys/block", name, "slaves"), "*")}


def attribute(name: str, word: str) -> str:
    """Return the content of a file in the array's sysfs folder md, or "" if there is none."""
    return read_kernel_file(Path("/sys/block", name, "md", word))


# Making the file systems of the plan, unless they exist already.
#
# Making one destroys the former content: it is done only on a device that is not in use, and after an
# interruption only if the device cannot have been used since.


def make_file_system(step: MakeFileSystem, *, new: bool) -> Iterator[Said]:
    """Make the file system. `new`: the device was made by this run, so that anything recognised on it is old.

    Raises Stopped if the device is missing or in use, may hold content that is needed, or the program fails.
    """
    wait_for_udev()
    if kernel_folder(step.device) is None:
        raise Stopped(f"{step.device} is not a block device")
    size = _size_unless_used(step.device)
    if is_there(step):
        problem = check_content(step.device, Extent(0, size), step.kind).problem
        if problem is None:
            yield Said(f"{step.device} already has its {step.kind}")
            return
        if not was_never_mounted(step.device, step.kind):
            repair = (
                f"it may have been used since, so it is not recreated: repair {step.device} with its own tool"
            )
            raise Stopped(f"{problem}; {repair}")
        yield Said(f"recreated: {problem}")
    elif not new and (shown := recognised_on(step.device)):
        when = (
            "which was not there when the work stopped, or is left over from before; it was not overwritten"
        )
        raise Stopped(f"{step.device} holds {shown}, {when}: {typed('blkid -p', step.device)}")
    run_or_stop(*command_of(step))
    with opened(step.device, os.O_RDWR) as descriptor:
        os.fsync(descriptor)
    wait_for_udev()
    if not is_there(step):
        raise Stopped(f"{step.device} does not hold {step.kind} {step.uuid} after {command_of(step)[0]}")


def remove_file_system(step: MakeFileSystem) -> Iterator[Said]:
    """Erase the signatures of the file system if it is the plan's. Raises Stopped if it is in use."""
    if kernel_folder(step.device) is None or not is_there(step):
        return
    _size_unless_used(step.device)
    run_or_stop("wipefs", "--all", "--quiet", step.device)
    wait_for_udev()
    yield Said(f"the {step.kind} on {step.device} is removed")


def _size_unless_used(device: str) -> int:
    """Open the device exclusively, and return its size in bytes. Raises Stopped if it is mounted or has
    holders.
    """
    opening = failing_as(Stopped, f"{device} is in use or cannot be opened")
    with opening, opened(device, os.O_RDONLY | os.O_EXCL) as descriptor:
        return os.lseek(descriptor, 0, os.SEEK_END)


# Remains of earlier arrays on members that a plan wipes, at a resume after a power cut.
#
# A member that was not erased yet starts its old array at the next boot, without the members that were
# erased. These remains are stopped. A complete array is not stopped: it may have been used since.


def stop_old_arrays(steps: Sequence[Step], left: Sequence[Step]) -> Iterator[Said]:
    """Stop every incomplete array whose members are all wiped by the pending steps, and whose superblocks all
    belong to arrays that the plan erases. `left`: the pending steps.

    Raises Refused if such an array is in use.
    """
    wiped = [step for step in left if isinstance(step, MakeMember) and step.wipe]
    if not wiped:
        return
    wait_for_udev()
    uuids = {uuid for step in steps if isinstance(step, MakeMember) for uuid in step.old_arrays}
    wiped_devices = {name for step in wiped for name in _wiped_devices(step)}
    for name in sorted(arrays_above([f"/dev/{device}" for device in wiped_devices])):
        found = {superblock_uuid(f"/dev/{member}") for member in slaves(name)}
        erased = slaves(name) <= wiped_devices and len(found) == 1 and found <= uuids
        if erased and (_is_degraded(name) or attribute(name, "array_state") in ("inactive", "clear")):
            ended = run_program("mdadm", "--stop", f"/dev/{name}")
            if ended.code:
                text = (
                    f"/dev/{name} is the remainder of an earlier array and cannot be stopped:"
                    f" {ended.output_tail}"
                )
                raise Refused(
                    text, hint=f"{typed('lsblk', f'/dev/{name}')}; {typed('mdadm --stop', f'/dev/{name}')}"
                )
            yield Said(f"/dev/{name}, the remainder of the earlier array {found.pop()}, is stopped")
    wait_for_udev()


def _wiped_devices(step: MakeMember) -> Iterator[str]:
    """Yield the kernel's names of the devices that the step wipes: the existing partition, or the drive with
    all its partitions.
    """
    folder = kernel_folder(step.device)
    if step.entries or step.device == step.disk.path:
        folder = kernel_folder(step.disk.path)
    if folder is not None:
        yield folder.name
        yield from (part.parent.name for part in live_paths(folder, "*/partition"))
