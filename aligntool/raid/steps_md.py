"""Steps on the array: create, assemble, compare, file systems, earlier arrays."""

import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aligntool.audit.wording import shell_word
from aligntool.change import Said
from aligntool.errors import Refused, Stopped, failing_as
from aligntool.linux.content import check_content
from aligntool.linux.lock import kernel_folder, settle
from aligntool.linux.process import export_values, run_or_stop, run_program
from aligntool.linux.sysfs import opened
from aligntool.raid.commands import command_of
from aligntool.raid.steps_system import files_below, refuse_files
from aligntool.steps import MakeArray, MakeFileSystem, MakeMember, Step
from aligntool.units import KIB, Extent, format_size

# What md made of a command, against what the plan said.
#
# Both mdadm and the kernel round, and take whole members where they are told of no size: what runs is then not what was
# shown, though every member is there.

SECTOR = 512
ROUNDING = 64 * KIB  # of a member without a chunk


def unlike(step: MakeArray, folder: Path, size: int | None = None) -> Iterator[str]:
    """`folder`: /sys/block/md127. `size`: of the array, bytes; None: it is not looked at.

    Documentation/admin-guide/md.rst: chunk_size is in bytes, offset in sectors, and so is the size of a block device.
    What sysfs does not show differs in nothing.
    """
    chunk, offset = step.chunk, step.data.offset
    found = _number(folder / "md" / "chunk_size")
    if chunk is not None and found not in (None, chunk):
        yield f"its chunk is {format_size(found or 0)} and not {format_size(chunk)}"
    for file in sorted((folder / "md").glob("dev-*/offset")):
        found = _number(file, SECTOR)
        if offset and found not in (None, offset):
            name = file.parent.name.removeprefix("dev-")
            yield f"its data begin {format_size(found or 0)} into {name} and not {format_size(offset)}"
    found = _number(folder / "size", SECTOR)
    if size is not None and found is not None and abs(found - size) > max(chunk or 0, ROUNDING) * len(step.members):
        yield f"it has {format_size(found)} and not {format_size(size)}"


def text_of(file: Path) -> str:
    """Return what a file of the kernel's says; "" where there is none."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _number(file: Path, unit: int = 1) -> int | None:
    word = text_of(file).partition(" ")[0]
    return int(word) * unit if word.isdigit() else None


# Whether anybody used what was made: a file system, or an array, of a work that stopped on the way.
#
# A record shows how far aligntool came and nothing of what the user did since: what may have been written is never made
# again or wiped.

_XFS_IN_PROGRESS = 126  # struct xfs_dsb: 1 until mkfs.xfs has written all else, and not mounted meanwhile
_EXT_SUPER = KIB
# struct ext4_super_block, from its start: s_mtime, s_mnt_count, s_last_mounted.
_EXT_TIME, _EXT_COUNT, _EXT_PLACE = 0x2C, 0x34, 0x88
_EXT_MAGIC = 0xEF53
_HOLDING_FILES = ("xfs", "ext4", "btrfs", "vfat")  # swap does not
_NOT_THERE, _TWO_THINGS = 2, 8  # blkid(8), EXIT STATUS


def is_there(step: MakeFileSystem) -> bool:
    """Return whether blkid sees the file system of the plan on the device itself, without its cache."""
    found = export_values(run_program("blkid", "-p", "-o", "export", step.device).output)
    return (found.get("TYPE"), found.get("UUID", "").lower()) == (step.kind, step.uuid.lower())


def shown_on(device: str) -> str:
    """Return what blkid recognises, a partition table too; "": nothing. Raises Stopped where it cannot tell."""
    said = run_program("blkid", "-p", "-o", "value", "-s", "TYPE", "-s", "PTTYPE", device)
    if said.code == _TWO_THINGS:
        return "more than one thing"
    if said.code not in (0, _NOT_THERE):
        raise Stopped(f"blkid cannot tell what {device} holds: {said.last_words or said.code}")
    return " ".join(said.output.split())


def was_never_mounted(device: str, kind: str) -> bool:
    """Only where the superblock itself proves it: False also stands for "nobody can tell". Raises OSError."""
    with open(device, "rb", buffering=0) as file:  # noqa: PTH123 - a device
        head = os.pread(file.fileno(), 4 * KIB, 0)
    if kind == "xfs":
        return head.startswith(b"XFSB") and head[_XFS_IN_PROGRESS] == 1
    if kind == "ext4":
        block = head[_EXT_SUPER:]
        (mounted,) = struct.unpack_from("<I", block, _EXT_TIME)
        count, _, magic = struct.unpack_from("<HHH", block, _EXT_COUNT)
        return magic == _EXT_MAGIC and not (mounted or count or block[_EXT_PLACE])
    return False


def refuse_foreign(device: str, planned: Sequence[MakeFileSystem]) -> None:
    """Raises Refused where the array holds something else than the plan's file system. One that does not run has nobody
    on it.
    """
    if kernel_folder(device) is None or any(is_there(step) for step in planned):
        return
    try:
        shown = shown_on(device)
    except Stopped as error:
        raise Refused(str(error)) from error
    if shown:
        look = f"sudo blkid -p {shell_word(device)}"
        raise Refused(f"{device} holds {shown}, which aligntool did not make; it would be lost", hint=look)


def refuse_used(step: MakeFileSystem) -> None:
    """Raises Refused where files lie on the file system that would be wiped, or nobody can tell."""
    there = step.kind in _HOLDING_FILES and kernel_folder(step.device) is not None and is_there(step)
    if there and not was_never_mounted(step.device, step.kind):
        with _mount_points(step) as places:
            found = sorted({name for place in places for name in files_below(place)})[:5]
        refuse_files(step.device, found)


@contextmanager
def _mount_points(step: MakeFileSystem) -> Iterator[list[str]]:
    """Where it is mounted; else one place, read-only: its log is replayed, so that nothing written is missing."""
    there = run_program("findmnt", "-n", "-r", "-o", "TARGET", "--source", step.device).output.split()
    if there:
        yield there
        return
    with tempfile.TemporaryDirectory(prefix="aligntool-look-") as name:
        said = run_program("mount", "-t", step.kind, "-o", "ro,nosuid,nodev,noexec", step.device, name)
        if said.code:
            look = f"sudo blkid -p {shell_word(step.device)}"
            raise Refused(f"it is unknown whether files lie on {step.device}: {said.last_words}", hint=look)
        try:
            yield [name]
        finally:
            run_program("umount", name)


# md arrays: found by their UUID, made, started again after a reboot, and taken apart.
#
# Only here superblocks of members are read and zeroed, and only those that carry the UUID of the plan ever are:
# whatever else is found there stops the work.

_RUNS = ("active", "active-idle", "clean", "readonly", "read-auto", "write-pending")
"""md/array_state of an array that can be used: Documentation/admin-guide/md.rst."""


def make_array(step: MakeArray, size: int) -> Iterator[Said]:
    """Only while nothing was made on the array yet: what is half there is taken apart and made again.

    `size`: of the array, in bytes. Raises Stopped.
    """
    settle()
    running = find_running(step)
    if running is not None and slaves(running) == _names(step.members) and not _is_degraded(running):
        yield Said(f"{step.device} runs already")
    else:
        if running is not None and (shown := shown_on(f"/dev/{running}")):
            raise Stopped(f"/dev/{running} runs without all its members and holds {shown}; it is not made again")
        take_apart(step)
        _stop_where_something_lies(step.members)
        run_or_stop(*command_of(step))
        settle()
    stop_unless_made(step, size)


def start_array(step: MakeArray, *, named: bool) -> Iterator[Said]:
    """Start an array that was made, also after a reboot; where it is to be `named`, under its own name, not as md127.

    Raises Stopped.
    """
    settle()
    running = find_running(step)
    if running is not None and (not named or _leads_to(step.device, running)):
        return
    _stop_ours(step)
    run_or_stop("mdadm", "--assemble", step.device, f"--uuid={step.uuid}", *step.members)
    settle()
    yield Said(f"{step.device} was started again")
    stop_unless_made(step)


def take_apart(step: MakeArray) -> None:
    """No array of that UUID runs, and no member carries it. Raises Stopped where a member belongs to another array."""
    _stop_foreign(step)
    _stop_ours(step)
    for member in step.members:
        if superblock_uuid(member) == step.uuid:
            run_or_stop("mdadm", "--zero-superblock", member)
    settle()


def find_running(step: MakeArray) -> str | None:
    """Return the kernel's name of the array that runs on the step's members and carries its UUID; "md127"."""
    for name in sorted(arrays_above(step.members)):
        state = attribute(name, "array_state")
        if state in _RUNS and all(superblock_uuid(f"/dev/{each}") == step.uuid for each in slaves(name)):
            return name
    return None


def arrays_above(members: Sequence[str]) -> set[str]:
    """md devices that stand on any of these, whether they run or not. A drive's partitions count as the drive."""
    folders = [folder for each in members if (folder := kernel_folder(each)) is not None]
    return {each.name for folder in folders for each in (folder / "holders").glob("md*")}


def has_superblocks(step: MakeArray) -> bool:
    """Some member still belongs to the array of the plan."""
    return any(superblock_uuid(member) == step.uuid for member in step.members)


def superblock_uuid(device: str) -> str:
    """As mdadm writes it; "": the device carries no superblock of md."""
    return export_values(run_program("mdadm", "--examine", "--export", device).output).get("MD_UUID", "")


def _is_degraded(name: str) -> bool:
    return attribute(name, "degraded") not in ("", "0")


def _leads_to(device: str, name: str) -> bool:
    folder = kernel_folder(device)
    return folder is not None and folder.name == name


def stop_unless_made(step: MakeArray, size: int | None = None) -> None:
    """Raise Stopped unless the array runs with all its members, its name leads to it, and it is as planned."""
    name = find_running(step)
    if name is None or slaves(name) != _names(step.members):
        raise Stopped(f"{step.device} does not run with all its members: mdadm --detail {step.device}")
    if not _leads_to(step.device, name):
        raise Stopped(f"the array runs as /dev/{name}, and {step.device} does not lead there")
    if wrong := tuple(unlike(step, Path("/sys/block", name), size)):
        raise Stopped(f"{step.device} is not what was planned: {'; '.join(wrong)}")


def _stop_foreign(step: MakeArray) -> None:
    """A member of another array is never touched, and neither is an array that stands on anything else."""
    for member in step.members:
        uuid = superblock_uuid(member)
        if uuid not in ("", step.uuid):
            raise Stopped(f"{member} carries the superblock of another array, UUID {uuid}")
    for name in arrays_above(step.members):
        if not slaves(name) <= _names(step.members):
            raise Stopped(f"/dev/{name} stands on other drives as well: {', '.join(sorted(slaves(name)))}")


def _stop_ours(step: MakeArray) -> None:
    """Stop the arrays on the members. Raise Stopped for one that is not the step's."""
    for name in sorted(arrays_above(step.members)):
        if {superblock_uuid(f"/dev/{each}") for each in slaves(name)} != {step.uuid}:
            raise Stopped(f"/dev/{name} is another array, and stands on members of this one")
        run_or_stop("mdadm", "--stop", f"/dev/{name}")


def _stop_where_something_lies(members: Sequence[str]) -> None:
    """`mdadm --create --run` overwrites without a question."""
    for member in members:
        if kernel_folder(member) is None:
            raise Stopped(f"{member} is not a block device")
        if shown := shown_on(member):
            raise Stopped(f"{member} holds {shown}; it is not made a member over that")


def _names(devices: Sequence[str]) -> set[str]:
    return {folder.name for each in devices if (folder := kernel_folder(each)) is not None}


def slaves(name: str) -> set[str]:
    """Return the kernel's names of the members that an array stands on."""
    return {each.name for each in Path("/sys/block", name, "slaves").glob("*")}


def attribute(name: str, word: str) -> str:
    """Return what the kernel says in a file of the array's folder md; "" where there is none."""
    return text_of(Path("/sys/block", name, "md", word))


# A file system made where the plan wants one, or found there already.
#
# Making one destroys what was there: it is done only on a device that nobody uses, and, once the work had stopped, only
# where nobody can have used it since.


def make_file_system(step: MakeFileSystem, *, new: bool) -> Iterator[Said]:
    """`new`: the device was made by this very run, so that whatever shows on it is left over from before.

    Raises Stopped: the device is not there or in use, holds what somebody may need, or the program failed.
    """
    settle()
    if kernel_folder(step.device) is None:
        raise Stopped(f"{step.device} is not a block device")
    size = _exclusively(step.device)
    if is_there(step):
        problem = check_content(step.device, Extent(0, size), step.kind).problem
        if problem is None:
            yield Said(f"{step.device} has its {step.kind} already")
            return
        if not was_never_mounted(step.device, step.kind):
            repair = f"it may have been used since, so it is not made again: repair {step.device} with its own tool"
            raise Stopped(f"{problem}; {repair}")
        yield Said(f"made again: {problem}")
    elif not new and (shown := shown_on(step.device)):
        when = "which was not there when the work stopped, or is left over from before; nothing was written over it"
        raise Stopped(f"{step.device} holds {shown}, {when}: sudo blkid -p {step.device}")
    run_or_stop(*command_of(step))
    with opened(step.device, os.O_RDWR) as descriptor:
        os.fsync(descriptor)
    settle()
    if not is_there(step):
        raise Stopped(f"{step.device} does not hold {step.kind} {step.uuid} after {command_of(step)[0]}")


def remove_file_system(step: MakeFileSystem) -> Iterator[Said]:
    """Nothing recognises it any more; only if it is the one of the plan. Raises Stopped where it is in use."""
    if kernel_folder(step.device) is None or not is_there(step):
        return
    _exclusively(step.device)
    run_or_stop("wipefs", "--all", "--quiet", step.device)
    settle()
    yield Said(f"the {step.kind} on {step.device} is gone")


def _exclusively(device: str) -> int:
    """Its size in bytes. Raises Stopped where it is mounted, or anything stands on it."""
    size = 0
    with (
        failing_as(Stopped, f"{device} is in use or cannot be opened"),
        opened(device, os.O_RDONLY | os.O_EXCL) as descriptor,
    ):
        size = os.lseek(descriptor, 0, os.SEEK_END)
    return size


# What is left of earlier arrays on members that a plan wipes, when the work goes on after a power cut.
#
# A member that was not erased yet brings its old array up at the next start, without the members that were.
# Such a rest is stopped. An array of which nothing is missing is not: it may have been used since.


def stop_earlier(steps: Sequence[Step], left: Sequence[Step]) -> Iterator[Said]:
    """Stop every incomplete array that stands on nothing but what `steps` wipe, and of which every superblock is one
    that they give up. `left`: the steps that are not done yet.

    Raises Refused where such an array is in use.
    """
    wiped = [step for step in left if isinstance(step, MakeMember) and step.wipe]
    if not wiped:
        return
    settle()
    uuids = {uuid for step in steps if isinstance(step, MakeMember) for uuid in step.old_arrays}
    wiped_devices = {name for step in wiped for name in _wiped_devices(step)}
    for name in sorted(arrays_above([f"/dev/{each}" for each in wiped_devices])):
        found = {superblock_uuid(f"/dev/{each}") for each in slaves(name)}
        given_up = slaves(name) <= wiped_devices and len(found) == 1 and found <= uuids
        if given_up and (_is_degraded(name) or attribute(name, "array_state") in ("inactive", "clear")):
            said = run_program("mdadm", "--stop", f"/dev/{name}")
            if said.code:
                text = f"/dev/{name} is what is left of an earlier array, and cannot be stopped: {said.last_words}"
                raise Refused(text, hint=f"lsblk /dev/{name}; then sudo mdadm --stop /dev/{name}")
            yield Said(f"/dev/{name}, what is left of the earlier array {found.pop()}, is stopped")
    settle()


def _wiped_devices(step: MakeMember) -> Iterator[str]:
    """The kernel's names of all that the step wipes: a partition that is taken, else the drive and its partitions."""
    folder = kernel_folder(step.device)
    if step.entries or step.device == step.disk.path:
        folder = kernel_folder(step.disk.path)
    if folder is not None:
        yield folder.name
        yield from (part.parent.name for part in folder.glob("*/partition"))
