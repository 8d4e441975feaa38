"""Lock a disk against other programs and keep the machine awake while it is changed."""

import errno
import fcntl
import os
import select
import stat
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from aligntool.audit.wording import shell_word
from aligntool.errors import Refusal, Refused, refuse
from aligntool.linux.block import DiskDevice
from aligntool.linux.kernel import KernelView
from aligntool.linux.sysfs import on_battery, opened
from aligntool.linux.users import kernel_name, locks_on, nodes_of, remaining_occupants, sysfs_folder

# The machine stays awake while a disk is being changed, and says so when it may not. It is courtesy, not safety: a
# move survives a power cut, so nothing here is ever an error.

_ANSWER_S = 5.0
_HOLDING = ("sh", "-c", "echo; exec cat")  # speaks once the inhibition holds, ends with its standard input


@contextmanager
def awake(why: str, *, program: str = "systemd-inhibit") -> Iterator[str]:
    """Inhibit sleep and shutdown inside. Yields a sentence when they are not inhibited, otherwise an empty one.

    The child lives as long as its standard input: it goes when this program goes, however that is. It is in a session
    of its own, so that a Ctrl-C on the terminal does not reach it and no password is asked for there.
    """
    try:
        child = subprocess.Popen(
            (program, "--what=sleep:shutdown:idle", "--mode=block", "--who=aligntool", f"--why={why}", *_HOLDING),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, start_new_session=True,
        )  # fmt: skip
    except OSError:
        yield f"sleep and shutdown are not inhibited: {program} is not there"
        return
    try:
        held = _echoes(child)
        yield ("" if held else f"sleep and shutdown are not inhibited: {program} was refused, or logind does not run")
    finally:
        _end(child)


def _echoes(child: "subprocess.Popen[bytes]") -> bool:
    """Return whether the inhibition holds: only then the shell runs and prints. Nothing is written to a child that may
    be gone, because a broken pipe would end this program.
    """
    if child.stdout is None:
        return False
    ready, _, _ = select.select([child.stdout], [], [], _ANSWER_S)
    return bool(ready) and os.read(child.stdout.fileno(), 1) == b"\n"


def _end(child: "subprocess.Popen[bytes]") -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    try:
        child.wait(_ANSWER_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


# A disk taken for oneself before anything is written to it, and given back afterwards. What must be true before the
# first write is opened, locked or refused here, and nowhere else.

_PATIENCE_S = 2.0  # udev and blkid hold the lock for a moment after every change
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Holding:
    """A held disk; valid inside `hold_disk` only."""

    device: DiskDevice
    kernel: KernelView
    is_block: bool
    notes: tuple[str, ...]  # what the user should know, a sentence each


@contextmanager
def hold_disk(path: str, *, image_sector_size: int = 512, why: str = "changing partitions") -> Iterator[Holding]:
    """Hold a disk: opened exclusively (O_EXCL: no mount, swap, array or mapping, now or later), locked as udev expects
    (systemd, "Locking Block Device Access"); for a device, sleep and shutdown are inhibited.

    `image_sector_size` counts for an image file only. Raises Refused, with every reason that can be seen at once.
    """
    with ExitStack() as stack:
        descriptor = _open(path)
        stack.callback(os.close, descriptor)
        is_block = stat.S_ISBLK(os.fstat(descriptor).st_mode)
        _flock(descriptor, path, and_posix=True)
        device = stack.enter_context(DiskDevice(descriptor, image_sector_size=image_sector_size))
        notes = (
            (
                stack.enter_context(awake(f"{why}: {path}")),
                "the machine runs on its battery; plug it in" if on_battery() else "",
            )
            if is_block
            else ()
        )
        yield Holding(device, KernelView(descriptor), is_block, tuple(note for note in notes if note))


@contextmanager
def hold_partition(path: str) -> Iterator[DiskDevice]:
    """Hold a partition in the same way, while its neighbours are in use. Its whole disk is locked, because udev honours
    that lock before it reads a partition, but not opened exclusively.

    Raises Refused, with every reason that can be seen at once.
    """
    with ExitStack() as stack:
        descriptor = _open(path, whole=False)
        stack.callback(os.close, descriptor)
        _flock(descriptor, path, and_posix=True)
        names = nodes_of(os.fstat(descriptor)).values()
        refuse(Refusal("in-use", path, one.what, one.end) for name in names for one in locks_on(f"/dev/{name}"))
        folder = sysfs_folder(os.fstat(descriptor).st_rdev)
        if (folder / "partition").exists():  # else a mapping, whose own lock is all there is
            stack.enter_context(locked([f"/dev/{kernel_name(folder.parent)}"]))
        yield stack.enter_context(DiskDevice(descriptor))


@contextmanager
def hold_for_others(path: str, why: str) -> Iterator[None]:
    """Hold a disk or partition that a program of ours writes to: opened exclusively and locked. Raises Refused."""
    with ExitStack() as stack:
        descriptor = _open(path, whole=None)
        stack.callback(os.close, descriptor)
        _flock(descriptor, path)
        stack.enter_context(awake(f"{why}: {path}"))
        yield


@contextmanager
def alone(paths: Iterable[str]) -> Iterator[None]:
    """Hold devices exclusively (open(2), O_EXCL on a block device), which a load on a member itself does not do.
    Raises Refused where one is in use.
    """
    with ExitStack() as stack:
        for path in paths:
            try:
                stack.enter_context(opened(path, os.O_RDONLY | os.O_EXCL | os.O_NOCTTY))
            except OSError as error:
                raise _not_opened(path, error) from error
        yield


@contextmanager
def locked(disks: Iterable[str]) -> Iterator[None]:
    """Lock whole disks against udev (systemd, "Locking Block Device Access"): otherwise it would read the superblocks
    of an array that has just been stopped, and start it again. Opened for reading only: udev reads the table of a whole
    disk again when a writer closes it. Raises Refused.
    """
    with ExitStack() as stack:
        for disk in dict.fromkeys(disks):
            try:
                descriptor = stack.enter_context(opened(disk, os.O_RDONLY | os.O_NOCTTY))
            except OSError as error:
                raise _not_opened(disk, error) from error
            _flock(descriptor, disk)
        yield


def _open(path: str, *, whole: bool | None = True) -> int:
    """Open the path, and check it again once it is open: another device may have got its name meanwhile. `whole`: a
    disk; False: a partition; None: either.
    """
    try:
        before = os.stat(path)  # noqa: PTH116 - the same call as the fstat below
        _refuse_unfit(path, before, whole=whole)
        _refuse_occupied(path, before)
        exclusive = os.O_EXCL if stat.S_ISBLK(before.st_mode) else 0
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY | exclusive)
    except OSError as error:
        raise _not_opened(path, error) from error
    if not os.path.samestat(before, os.fstat(descriptor)):
        os.close(descriptor)
        raise Refused(f"{path} became another device while it was opened", hint="try again")
    return descriptor


def _refuse_unfit(path: str, status: os.stat_result, *, whole: bool | None) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    if not stat.S_ISBLK(status.st_mode):
        raise Refused(f"{path} is neither a block device nor an image file", hint="lsblk -d")
    if whole:
        refuse_partition(path, status)
    elif whole is False and not any((sysfs_folder(status.st_rdev) / name).exists() for name in ("partition", "dm")):
        # Partitions of a multipath map are mappings of their own.
        raise Refused(f"{path} is not a partition", hint="lsblk")
    if (sysfs_folder(status.st_rdev) / "ro").read_text().strip() == "1":
        raise Refused(f"{path} is read-only", hint=f"sudo blockdev --setrw {shell_word(path)}")


def refuse_partition(path: str, status: os.stat_result) -> None:
    """Raise Refused for a part of a disk, which does not describe the disk."""
    folder = sysfs_folder(status.st_rdev) if stat.S_ISBLK(status.st_mode) else None
    if folder is not None and (folder / "partition").exists():
        disk = f"/dev/{kernel_name(folder.parent)}"
        number = (folder / "partition").read_text().strip()
        raise Refused(f"{path} is partition {number} of {disk}; a whole disk is needed", hint=f"give {disk}")


def _refuse_occupied(path: str, status: os.stat_result) -> None:
    found = remaining_occupants(status)
    if found:
        reasons = "; ".join(one.what for one in found)
        end = " && ".join(one.end for one in found)
        raise Refused(f"{path} is in use: {reasons}", hint=end, code="in-use", subject=path)


def _not_opened(path: str, error: OSError) -> Refused:
    word = shell_word(path)
    match error.errno:
        case errno.EBUSY:
            return Refused(f"{path} is in use by a program that has it for itself", hint=f"sudo fuser -v {word}")
        case errno.EACCES | errno.EPERM if path.startswith("/dev/"):
            return Refused(f"{path} may not be written by this user", hint="type the same after sudo")
        case errno.EACCES:
            return Refused(f"{path} may not be written by this user", hint=f"chmod u+w {word}")
        case errno.EPERM:
            return Refused(f"{path} may not be written by anybody", hint=f"sudo chattr -i {word}")
    return Refused(f"{path} cannot be opened to write: {error.strerror}", hint=f"ls -l {word}")


def _flock(descriptor: int, path: str, *, and_posix: bool = False) -> None:
    """Lock it with flock, and check for POSIX locks of other programs, such as QEMU's on the disks of its machines."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if and_posix:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.lockf(descriptor, fcntl.LOCK_UN)
            return
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise Refused(f"{path} cannot be locked: {error.strerror}") from error
            if time.monotonic() > deadline:
                hint = f"sudo fuser -v {shell_word(path)}"
                raise Refused(f"{path} is locked by another program", hint=hint) from error
        time.sleep(_PAUSE_S)
