"""Lock a disk while it is changed, keep the machine awake, and tell the kernel of its new table."""

import array
import errno
import fcntl
import os
import select
import stat
import struct
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from aligntool.audit.wording import shell_word
from aligntool.errors import Refusal, Refused, Stopped, refuse
from aligntool.linux.block import DiskDevice
from aligntool.linux.process import find_program, run_program
from aligntool.linux.sysfs import on_battery, opened
from aligntool.linux.users import block_number, kernel_name, locks_on, nodes_of, remaining_occupants, sysfs_folder
from aligntool.units import Extent

# Inform the running kernel of a disk's partitions, and wait for device nodes.

# Device nodes of partitions: that they are there, are block devices, and show the bytes that were planned. A tool
# that opens a node which is not there makes a plain file of it, and one that opens another disk's node destroys that
# disk.

_SYSFS_SECTOR = 512  # whatever the disk's sector is: Documentation/ABI/stable/sysfs-block
_SETTLE_S = 20.0
_SETTLE_PAUSE_S = 0.1


def settle() -> None:
    """Wait until udev has finished; without udev there is nothing to wait for."""
    if find_program("udevadm") and Path("/run/udev/control").exists():
        run_program("udevadm", "settle", "--timeout=60")


def wait_for_partition(disk: str, device: str, extent: Extent) -> None:
    """Wait until `device` is that part of `disk`. Raises Stopped when it does not become so."""
    deadline = time.monotonic() + _SETTLE_S
    settle()
    while why := partition_problem(disk, device, extent):
        if time.monotonic() > deadline:
            raise Stopped(f"{device}: {why}")
        time.sleep(_SETTLE_PAUSE_S)


def partition_problem(disk: str, device: str, extent: Extent) -> str:
    """Return why `device` is not the partition of `disk` at `extent`; "": it is."""
    node, whole = block_number(device), block_number(disk)
    if not (node and whole):
        return f"{disk if node else device} is not a block device"
    folder = sysfs_folder(node)
    try:
        start, length = (int((folder / name).read_text()) * _SYSFS_SECTOR for name in ("start", "size"))
    except (OSError, ValueError):
        return "the kernel shows no partition of that name"
    if folder.parent != sysfs_folder(whole):
        return f"it is not a partition of {disk}"
    if Extent(start, length) != extent:
        return f"the kernel shows bytes {start}..{start + length} of {disk}, planned are {extent.start}..{extent.end}"
    return ""


def kernel_folder(device: str) -> Path | None:
    """Return the folder of a block device in sysfs; None where the path is none."""
    number = block_number(device)
    return sysfs_folder(number) if number else None


# What the kernel believes about a disk's partitions: removed and announced again, without reading the table anew. A
# re-read of the whole table (BLKRRPART) fails as soon as any partition is in use and shows what is parked, while
# BLKPG touches one partition only.

# <linux/blkpg.h>
_BLKPG = 0x1269
_ADD, _DELETE = 1, 2
_PARTITION = struct.Struct("qqi64s64s4x")  # start and length in bytes, number, two names that nobody uses
_REQUEST = struct.Struct("iiiP")  # operation, flags, length of what follows, its address

_REREAD_S = 2.0  # udev opens a partition for a moment after every change
_REREAD_PAUSE_S = 0.05


def forget_partitions(descriptor: int, numbers: Iterable[int]) -> None:
    """Remove partitions from the kernel. A number that it does not have is not an error.

    Raises Refused for a partition that is in use, with those before it taken away; OSError for anything else.
    """
    for number in numbers:
        try:
            _forget(descriptor, number)
        except OSError as error:
            if error.errno == errno.EBUSY:
                text = f"partition {number} is in use, so its node cannot be removed"
                raise Refused(text, hint="close what uses it: fuser -v, lsblk") from error
            if error.errno != errno.ENXIO:
                raise


def tell_partitions(descriptor: int, parts: Iterable[tuple[int, Extent]]) -> None:
    """Add partitions to the kernel. Raises OSError: EBUSY where one overlaps another that the kernel has."""
    for number, extent in parts:
        _request(descriptor, _ADD, number, extent)


class KernelView:
    """The kernel's partitions of one disk; none for an image file, for which nothing is done.

    A disk of which the kernel shows no partition when this is made (a loop device without partition scan) is left so.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        status = os.fstat(descriptor)
        self._folder = sysfs_folder(status.st_rdev) if stat.S_ISBLK(status.st_mode) else None
        self._shows = bool(self.extents())

    def numbers(self) -> tuple[int, ...]:
        return tuple(self.extents())

    def extents(self) -> dict[int, Extent]:
        """Return the kernel's partitions by number, in bytes. An extended container is as short as it is shown."""
        if self._folder is None:
            return {}
        found = {}
        for file in self._folder.glob("*/partition"):
            start, size = (int((file.parent / name).read_text()) for name in ("start", "size"))
            found[int(file.read_text())] = Extent(start * _SYSFS_SECTOR, size * _SYSFS_SECTOR)
        return dict(sorted(found.items()))

    def forget(self, numbers: Collection[int]) -> None:
        """Remove those of `numbers` that the kernel has, all of them or, when one is in use, none.

        Raises Refused when one is in use.
        """
        before = {number: extent for number, extent in self.extents().items() if number in numbers}
        try:
            forget_partitions(self._descriptor, before)
        except BaseException:
            now = self.extents()
            tell_partitions(self._descriptor, [one for one in before.items() if one[0] not in now])
            raise

    def show(self, parts: Iterable[tuple[int, Extent]]) -> None:
        """Add the partitions of a table that was just made, also on a disk that had none before.

        An extended container becomes as short as the kernel makes it (block/partitions/msdos.c).

        Not libparted's own way (commitToOS): Debian's waits there for udev, which waits for the lock on the disk that
        is locked meanwhile (debian/patches/udevadm-settle.patch). Raises OSError. A disk on which the kernel shows
        no partitions at all (EINVAL: GENHD_FL_NO_PART) is left so.
        """
        try:
            self._add(parts)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise

    def tell(self, parts: Iterable[tuple[int, Extent]]) -> None:
        """Add those of `parts` that the kernel does not have."""
        if self._shows:
            self._add(parts)

    def _add(self, parts: Iterable[tuple[int, Extent]]) -> None:
        known = self.extents()
        if self._folder is None:
            return
        sector = int((self._folder / "queue/logical_block_size").read_text())
        places = dict(parts)
        for number, extent in places.items():
            if number not in known:
                holds = any(extent.contains(one) for other, one in places.items() if other != number)
                shown = Extent(extent.start, max(sector, 1024)) if holds else extent
                tell_partitions(self._descriptor, [(number, shown)])


def _forget(descriptor: int, number: int) -> None:
    deadline = time.monotonic() + _REREAD_S
    while True:
        try:
            return _request(descriptor, _DELETE, number, Extent(0, 0))
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(_REREAD_PAUSE_S)


def _request(descriptor: int, operation: int, number: int, extent: Extent) -> None:
    body = array.array("B", _PARTITION.pack(extent.start, extent.length, number, b"", b""))
    address, length = body.buffer_info()
    fcntl.ioctl(descriptor, _BLKPG, _REQUEST.pack(operation, 0, length, address))


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
    given, output = cast(IO[bytes], child.stdin), cast(IO[bytes], child.stdout)
    try:
        # Only where the inhibition holds the shell runs and prints. Nothing is written to a child that may be gone,
        # because a broken pipe would end this program.
        ready, _, _ = select.select([output], [], [], _ANSWER_S)
        granted = ready and os.read(output.fileno(), 1) == b"\n"
        yield (
            "" if granted else f"sleep and shutdown are not inhibited: {program} was refused, or logind does not run"
        )
    finally:
        given.close()
        output.close()
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
class LockedDisk:
    """A locked disk; valid inside `lock_disk` only."""

    device: DiskDevice
    kernel: KernelView
    is_block: bool
    notes: tuple[str, ...]  # what the user should know, a sentence each


@contextmanager
def lock_disk(path: str, *, image_sector_size: int = 512) -> Iterator[LockedDisk]:
    """Lock a disk: opened exclusively (O_EXCL: no mount, swap, array or mapping, now or later), locked as udev expects
    (systemd, "Locking Block Device Access").

    `image_sector_size` counts for an image file only. Raises Refused, with every reason that can be seen at once.
    """
    with _taken(path) as descriptor, DiskDevice(descriptor, image_sector_size=image_sector_size) as device:
        is_block = stat.S_ISBLK(os.fstat(descriptor).st_mode)
        battery = ("the machine runs on its battery; plug it in",) if is_block and on_battery() else ()
        yield LockedDisk(device, KernelView(descriptor), is_block, battery)


@contextmanager
def lock_partition(path: str) -> Iterator[DiskDevice]:
    """Lock a partition in the same way, while its neighbours are in use. Its whole disk is locked, because udev honours
    that lock before it reads a partition, but not opened exclusively.

    Raises Refused, with every reason that can be seen at once.
    """
    with _taken(path, whole=False) as descriptor:
        status = os.fstat(descriptor)
        names = nodes_of(status).values()
        refuse(Refusal("in-use", path, one.what, one.end) for name in names for one in locks_on(f"/dev/{name}"))
        folder = sysfs_folder(status.st_rdev)
        # A mapping's own lock is all there is.
        disks = [f"/dev/{kernel_name(folder.parent)}"] if (folder / "partition").exists() else []
        with locked(disks), DiskDevice(descriptor) as device:
            yield device


@contextmanager
def lock_for_others(path: str, why: str) -> Iterator[None]:
    """Lock a disk or partition that a program of ours writes to: opened exclusively and locked. Raises Refused."""
    with _taken(path, whole=None, and_posix=False), awake(f"{why}: {path}"):
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
def locked(disks: Iterable[str], *, shared: bool = False) -> Iterator[None]:
    """Lock whole disks against udev (systemd, "Locking Block Device Access"): otherwise it would read the superblocks
    of an array that has just been stopped, and start it again. Opened for reading only: udev reads the table of a whole
    disk again when a writer closes it. `shared`: with others that only read. Raises Refused.
    """
    with ExitStack() as stack:
        for disk in dict.fromkeys(disks):
            try:
                descriptor = stack.enter_context(opened(disk, os.O_RDONLY | os.O_NOCTTY))
            except OSError as error:
                raise _not_opened(disk, error) from error
            _flock(descriptor, disk, shared=shared)
        yield


@contextmanager
def _taken(path: str, *, whole: bool | None = True, and_posix: bool = True) -> Iterator[int]:
    """Open and lock the path. `whole`: a disk; False: a partition; None: either."""
    descriptor = _open(path, whole)
    try:
        _flock(descriptor, path, and_posix=and_posix)
        yield descriptor
    finally:
        with suppress(OSError):  # as in DiskDevice.close
            os.close(descriptor)


def _open(path: str, whole: bool | None) -> int:
    """Open the path, and check it again once it is open: another device may have got its name meanwhile."""
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
    folder = sysfs_folder(status.st_rdev)
    if stat.S_ISBLK(status.st_mode) and (folder / "partition").exists():
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
            return Refused(f"{path} is opened exclusively by another program", hint=f"sudo fuser -v {word}")
        case errno.EACCES | errno.EPERM if path.startswith("/dev/"):
            return Refused(f"{path} may not be written by this user", hint="type the same after sudo")
        case errno.EACCES:
            return Refused(f"{path} may not be written by this user", hint=f"chmod u+w {word}")
        case errno.EPERM:
            return Refused(f"{path} may not be written by anybody", hint=f"sudo chattr -i {word}")
    return Refused(f"{path} cannot be opened to write: {error.strerror}", hint=f"ls -l {word}")


def _flock(descriptor: int, path: str, *, and_posix: bool = False, shared: bool = False) -> None:
    """Lock it with flock, and check for POSIX locks of other programs, such as QEMU's on the disks of its machines."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
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
