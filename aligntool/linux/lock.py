"""Lock a disk while it is changed, inhibit sleep, and update the kernel's partitions."""

import array
import errno
import fcntl
import os
import select
import signal
import stat
import struct
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, cast

from aligntool.audit.wording import shell_word
from aligntool.commands import LISTS_DISKS, ByHand, by_hand, typed
from aligntool.errors import Refusal, Refused, Stopped, failing_as, refuse
from aligntool.formats.reader import Reader
from aligntool.inventory import LAST_NUMBER
from aligntool.linux.block import DiskDevice
from aligntool.linux.device_numbers import block_number, disk_folder, kernel_name, sysfs_folder
from aligntool.linux.file_locks import is_flocked, lock_of_file
from aligntool.linux.file_reader import fresh_reader
from aligntool.linux.held import held, open_held, status_of
from aligntool.linux.in_use import Occupant, all_ends, locks_on, loops_over, occupants, remaining_occupants
from aligntool.linux.lease import Lease, refuse_writers
from aligntool.linux.open_files import lasting_writers
from aligntool.linux.programs import end_program, find_program, run_program
from aligntool.linux.same_bytes import files_below, nodes_of
from aligntool.linux.sysfs import IO_NONE, live_paths, on_battery, opened
from aligntool.units import Extent

# Verify the device nodes of partitions: that they exist, are block devices, and show the planned bytes. A
# tool that opens a missing node creates a regular file; a tool that opens another disk's node destroys that
# disk.

_SYSFS_SECTOR = 512  # whatever the disk's sector is: Documentation/ABI/stable/sysfs-block
_SETTLE_S = 20.0
_SETTLE_PAUSE_S = 0.1


def wait_for_udev() -> None:
    """Wait until udev has processed its events; without udev return at once."""
    if find_program("udevadm") and Path("/run/udev/control").exists():
        run_program("udevadm", "settle", "--timeout=60")


def wait_for_partition(disk: str, device: str, extent: Extent) -> None:
    """Wait until `device` is the partition of `disk` at `extent`. Raises Stopped if it is not in time."""
    deadline = time.monotonic() + _SETTLE_S
    wait_for_udev()
    while why := partition_problem(disk, device, extent):
        if time.monotonic() > deadline:
            raise Stopped(f"{device}: {why}")
        time.sleep(_SETTLE_PAUSE_S)


def partition_problem(disk: str, device: str, extent: Extent) -> str:
    """Return why `device` is not the partition of `disk` at `extent`, or "" if it is."""
    device_number = block_number(device)
    disk_number = block_number(disk)
    if not (device_number and disk_number):
        return f"{disk if device_number else device} is not a block device"
    folder = sysfs_folder(device_number)
    try:
        start, length = (int((folder / name).read_text()) * _SYSFS_SECTOR for name in ("start", "size"))
    except (OSError, ValueError):
        return "the kernel shows no partition with that name"
    if folder.parent != sysfs_folder(disk_number):
        return f"it is not a partition of {disk}"
    if Extent(start, length) != extent:
        return (
            f"the kernel shows bytes {start}..{start + length} of {disk}, the plan has"
            f" {extent.start}..{extent.end}"
        )
    return ""


def kernel_folder(device: str) -> Path | None:
    """Return the folder of a block device in sysfs, or None if the path is not a block device."""
    number = block_number(device)
    return sysfs_folder(number) if number else None


# The kernel's partitions of a disk are removed and added one by one, without a re-read of the table. A
# re-read of the whole table (BLKRRPART) fails if any partition is in use, and would show parked partitions,
# while BLKPG affects one partition only.

# <linux/blkpg.h>
_BLKPG = IO_NONE | 0x1269
_ADD = 1
_DELETE = 2
_BLKPG_PARTITION = struct.Struct("qqi64s64s4x")  # start and length in bytes, number, two unused names
_BLKPG_REQUEST = struct.Struct("iiiP")  # operation, flags, length and address of the struct above

_REREAD_S = 2.0  # udev opens a partition for a moment after every change
_REREAD_PAUSE_S = 0.05


def forget_partitions(descriptor: int, numbers: Iterable[int]) -> None:
    """Remove partitions from the kernel. A number that it does not have is not an error.

    Raises Refused if a partition is in use, after those before it were removed; OSError for any other error.
    """
    for number in numbers:
        try:
            _forget_patiently(descriptor, number)
        except OSError as error:
            if error.errno == errno.EBUSY:
                text = f"partition {number} is in use, so its node cannot be removed"
                raise Refused(text, hint="find and end what uses it: fuser -v, lsblk") from error
            if error.errno != errno.ENXIO:
                raise


def add_partitions(descriptor: int, parts: Iterable[tuple[int, Extent]]) -> None:
    """Add partitions to the kernel. Raises OSError: EBUSY if one overlaps a partition of the kernel."""
    for number, extent in parts:
        _blkpg(descriptor, _ADD, number, extent)


class KernelView:
    """The kernel's partitions of one disk; an image file has none, and nothing is done.

    If the kernel shows no partition of the disk at the beginning (a loop device without partition scan),
    `add_absent` adds none.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        status = os.fstat(descriptor)
        self._folder = sysfs_folder(status.st_rdev) if stat.S_ISBLK(status.st_mode) else None
        self._has_partitions = bool(self.extents())

    def numbers(self) -> tuple[int, ...]:
        return tuple(self.extents())

    def extents(self) -> dict[int, Extent]:
        """Return the kernel's partitions by number, in bytes. An extended container is as short as shown
        there.
        """
        if self._folder is None:
            return {}
        extents = {}
        for file in live_paths(self._folder, "*/partition"):
            start, size = (int((file.parent / name).read_text()) for name in ("start", "size"))
            extents[int(file.read_text())] = Extent(start * _SYSFS_SECTOR, size * _SYSFS_SECTOR)
        return dict(sorted(extents.items()))

    def forget(self, numbers: Collection[int]) -> None:
        """Remove the partitions in `numbers` that the kernel has: all, or none if one is in use.

        Raises Refused if one is in use.
        """
        removed = {number: extent for number, extent in self.extents().items() if number in numbers}
        try:
            forget_partitions(self._descriptor, removed)
        except BaseException:
            current = self.extents()
            add_partitions(self._descriptor, [entry for entry in removed.items() if entry[0] not in current])
            raise

    def show(self, parts: Iterable[tuple[int, Extent]]) -> None:
        """Add the partitions of a new table, also on a disk that had none before. Raises OSError.

        An extended container becomes as short as the kernel makes it (block/partitions/msdos.c).

        libparted's commitToOS is not used: Debian's waits for udev, which waits for the lock that we hold on
        the disk (debian/patches/udevadm-settle.patch). On a disk for which the kernel shows no partitions at
        all (EINVAL: GENHD_FL_NO_PART), do nothing.
        """
        try:
            self._add(parts)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise

    def add_absent(self, parts: Iterable[tuple[int, Extent]]) -> None:
        """Add those of `parts` that the kernel does not have."""
        if self._has_partitions:
            self._add(parts)

    def _add(self, parts: Iterable[tuple[int, Extent]]) -> None:
        present = self.extents()
        if self._folder is None:
            return
        sector = int((self._folder / "queue/logical_block_size").read_text())
        extents = dict(parts)
        for number, extent in extents.items():
            if number not in present and number <= LAST_NUMBER:
                is_container = any(extent.contains(one) for other, one in extents.items() if other != number)
                shown = Extent(extent.start, max(sector, 1024)) if is_container else extent
                add_partitions(self._descriptor, [(number, shown)])


def _forget_patiently(descriptor: int, number: int) -> None:
    deadline = time.monotonic() + _REREAD_S
    while True:
        try:
            return _blkpg(descriptor, _DELETE, number, Extent(0, 0))
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(_REREAD_PAUSE_S)


def _blkpg(descriptor: int, operation: int, number: int, extent: Extent) -> None:
    body = array.array("B", _BLKPG_PARTITION.pack(extent.start, extent.length, number, b"", b""))
    address, length = body.buffer_info()
    fcntl.ioctl(descriptor, _BLKPG, _BLKPG_REQUEST.pack(operation, 0, length, address))


# Inhibit sleep and shutdown while a disk is changed, and report if that is not possible. This is a
# convenience, not a safety measure: a move survives a power cut, so nothing here is an error.

_ANSWER_S = 5.0
_HOLD_SHELL = ("sh", "-c", "echo; exec cat")  # prints a line when sleep is inhibited, ends with its stdin


@contextmanager
def inhibit_sleep(why: str, *, program: str = "systemd-inhibit") -> Iterator[str]:
    """Inhibit sleep and shutdown within the context. Yield why they are not inhibited, or "".

    The child ends when its standard input is closed, so it ends when this program ends or is killed. It has
    its own session, so that a Ctrl-C on the terminal does not reach it and no password is requested there.
    """
    try:
        inhibitor = subprocess.Popen(
            (
                program,
                "--what=sleep:shutdown:idle",
                "--mode=block",
                "--who=aligntool",
                f"--why={why}",
                *_HOLD_SHELL,
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
    except OSError:
        yield f"sleep and shutdown are not inhibited: {program} not found"
        return
    stdin = cast(IO[bytes], inhibitor.stdin)
    stdout = cast(IO[bytes], inhibitor.stdout)
    try:
        # The shell runs and prints only if sleep is inhibited. Nothing is written to a child that may have
        # ended, because a broken pipe would end this program.
        ready, _, _ = select.select([stdout], [], [], _ANSWER_S)
        granted = ready and os.read(stdout.fileno(), 1) == b"\n"
        yield (
            ""
            if granted
            else f"sleep and shutdown are not inhibited: {program} was refused, or logind is not running"
        )
    finally:
        stdin.close()
        stdout.close()
        end_program(inhibitor, signal.SIGTERM, _ANSWER_S)


# Lock a disk before anything is written to it, and unlock it afterwards. All preconditions of the first write
# are checked here, and nowhere else.

_PATIENCE_S = 2.0  # udev and blkid hold the lock for a moment after every change
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class LockedDisk:
    """A locked disk; valid only within the context of `lock_disk`."""

    device: DiskDevice
    kernel: KernelView
    is_block: bool
    notes: tuple[str, ...]  # for the user, a sentence each
    lease: Lease  # on an image file; not held yet


@contextmanager
def lock_disk(
    path: str, *, image_sector_size: int = 512, keep_posix: bool = False, no_lease: bool = False
) -> Iterator[LockedDisk]:
    """Lock a disk: open it exclusively (O_EXCL: no mount, swap, array or mapping, now or later) and lock it
    as udev expects (systemd, "Locking Block Device Access").

    No other program has an image file open then, and while its lease is held none opens it; `no_lease`: see
    `Lease`. `image_sector_size` applies only to an image file. `keep_posix`: no virtual machine can be
    started on it meanwhile, but `locks_on` then reports our own lock. Raises Refused, with all reasons that
    can be found at once.
    """
    with _open_and_lock(path, keep_posix=keep_posix, no_lease=no_lease) as (descriptor, unseen):
        lease = Lease(descriptor, path, no_lease=no_lease)
        lease.probe()
        with DiskDevice(descriptor, image_sector_size=image_sector_size, before_write=lease.check) as device:
            is_block = stat.S_ISBLK(os.fstat(descriptor).st_mode)
            notes = tuple(_notes_on_locking(path, unseen)) if is_block else ()
            yield LockedDisk(device, KernelView(descriptor), is_block, notes, lease)


_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO, include/linux/proc_ns.h


def _notes_on_locking(path: str, unseen: str) -> Iterator[str]:
    if on_battery():
        yield "the machine is running on battery; plug it in"
    if Path("/proc/self/ns/pid").stat().st_ino != _FIRST_PID_NAMESPACE:
        yield f"whether {path} is open for writing could not be seen in programs outside of this container"
    if unseen:
        yield unseen


@contextmanager
def lock_partition(path: str) -> Iterator[DiskDevice]:
    """Lock a partition in the same way, while its neighbours may be in use. Its whole disk is locked, because
    udev honours that lock before it reads a partition, but not opened exclusively.

    Raises Refused, with all reasons that can be found at once.
    """
    with _open_and_lock(path, whole=False) as (descriptor, _):
        status = os.fstat(descriptor)
        node_names = nodes_of(status).values()
        refuse(
            Refusal("in-use", path, occupant.what, occupant.end)
            for name in node_names
            for occupant in locks_on(f"/dev/{name}")
        )
        folder = sysfs_folder(status.st_rdev)
        # A mapping has only its own lock.
        disks = [f"/dev/{kernel_name(folder.parent)}"] if (folder / "partition").exists() else []
        with lock_against_udev(disks), DiskDevice(descriptor) as device:
            yield device


@contextmanager
def lock_for_others(path: str, why: str) -> Iterator[None]:
    """Lock a disk or partition to which a program that we run writes, and inhibit sleep. Raises Refused."""
    with _open_and_lock(path, whole=None, and_posix=False), inhibit_sleep(f"{why}: {path}"):
        yield


@contextmanager
def open_exclusively(paths: Iterable[str]) -> Iterator[None]:
    """Open devices exclusively (open(2), O_EXCL on a block device), for a benchmark on array members, which
    does not do so itself. Raises Refused if one is in use.
    """
    with ExitStack() as stack:
        for path in paths:
            try:
                stack.enter_context(opened(path, os.O_RDONLY | os.O_EXCL | os.O_NOCTTY))
            except OSError as error:
                raise _not_opened(path, error) from error
        yield


@contextmanager
def lock_against_udev(
    disks: Iterable[str], *, shared: bool = False, keep_posix: bool = False
) -> Iterator[None]:
    """Lock whole disks against udev (systemd, "Locking Block Device Access"), which would read the
    superblocks of an array that has just been stopped, and start it again. Open them only for reading: udev
    re-reads the table of a whole disk when a writer closes it. `shared`: share the lock with other readers.
    `keep_posix`: see `lock_disk`. Raises Refused.
    """
    with ExitStack() as stack:
        for disk in dict.fromkeys(disks):
            try:
                descriptor = stack.enter_context(opened(disk, os.O_RDONLY | os.O_NOCTTY))
            except OSError as error:
                raise _not_opened(disk, error) from error
            _flock(
                descriptor,
                disk,
                shared=shared,
                posix=fcntl.F_RDLCK if keep_posix else None,
                keep_posix=keep_posix,
            )
        yield


@contextmanager
def _open_and_lock(
    path: str,
    *,
    whole: bool | None = True,
    and_posix: bool = True,
    keep_posix: bool = False,
    no_lease: bool = True,
) -> Iterator[tuple[int, str]]:
    """Open and lock the path, which is looked up only once while it is locked. `whole`: a disk; False: a
    partition; None: either. `no_lease`: see `Lease`. Yield the descriptor, and what `refuse_writers` returns.
    """
    with held(path):
        descriptor = _open_exclusively(path, whole)
        try:
            _flock(descriptor, path, posix=fcntl.F_WRLCK if and_posix else None, keep_posix=keep_posix)
            # a loop device's file, which another program may change
            below = files_below(os.fstat(descriptor))
            refuse(
                Refusal("in-use", path, found.what, found.end) for name in below for found in locks_on(name)
            )
            with open_exclusively(below), lock_against_udev(below, keep_posix=keep_posix):
                unseen = refuse_writers(descriptor, path, no_lease=no_lease)
                yield descriptor, unseen
        finally:
            with suppress(OSError):  # as in DiskDevice.close
                os.close(descriptor)


def _open_exclusively(path: str, whole: bool | None) -> int:
    """Open the path, then check that it is still the same device: another one may have taken its name
    meanwhile.
    """
    try:
        status = status_of(path)
        _refuse_unfit(path, status, whole=whole)
        _refuse_occupied(path, status)
        exclusive = os.O_EXCL if stat.S_ISBLK(status.st_mode) else 0
        _refuse_locked_image(path, status)
        descriptor = open_held(path, os.O_RDWR | os.O_NOCTTY | exclusive)
    except OSError as error:
        raise _not_opened(path, error) from error
    if not os.path.samestat(status, os.fstat(descriptor)):
        os.close(descriptor)
        raise Refused(f"{path} changed to another device while it was being opened", hint="try again")
    return descriptor


def _refuse_locked_image(path: str, status: os.stat_result) -> None:
    """Raise Refused if another program has locked an image file: if it is a change in progress, opening the
    file for writing would end that (linux/lease.py).
    """
    if stat.S_ISREG(status.st_mode) and is_flocked(status):
        raise _locked_by_another(path)


def _refuse_unfit(path: str, status: os.stat_result, *, whole: bool | None) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    if not stat.S_ISBLK(status.st_mode):
        raise Refused(f"{path} is neither a block device nor an image file", hint=LISTS_DISKS)
    if whole:
        refuse_partition(path, status)
    elif whole is False and not any(
        (sysfs_folder(status.st_rdev) / name).exists() for name in ("partition", "dm")
    ):
        # Partitions of a multipath map are separate mappings.
        raise Refused(f"{path} is not a partition", hint="lsblk")
    if (sysfs_folder(status.st_rdev) / "ro").read_text().strip() == "1":
        raise Refused(f"{path} is read-only", hint=by_hand(ByHand.READ_ONLY, "blockdev", shell_word(path)))


def refuse_partition(path: str, status: os.stat_result) -> None:
    """Raise Refused for a partition, where a whole disk is required."""
    folder = sysfs_folder(status.st_rdev)
    if stat.S_ISBLK(status.st_mode) and (folder / "partition").exists():
        disk = f"/dev/{kernel_name(folder.parent)}"
        number = (folder / "partition").read_text().strip()
        raise Refused(f"{path} is partition {number} of {disk}; a whole disk is needed", hint=f"give {disk}")


def _refuse_occupied(path: str, status: os.stat_result) -> None:
    remaining = (*remaining_occupants(status), *uses_by_other_paths(status))
    if remaining:
        reasons = "; ".join(occupant.what for occupant in remaining)
        hint = all_ends(remaining)
        raise Refused(f"{path} is in use: {reasons}", hint=hint, code="in-use", subject=path)


# Two paths to one drive are two drives to the kernel unless multipath joins them, and an exclusive open of
# one does not affect the other.


def uses_by_other_paths(status: os.stat_result, folder: Path = Path("/sys/block")) -> Iterator[Occupant]:
    """Yield the uses of the same drive under another name. Cheap USB adapters give different drives one
    identifier; such drives are told apart by their tables.
    """
    if not stat.S_ISBLK(status.st_mode):
        return
    own = disk_folder(sysfs_folder(status.st_rdev))
    identity = _identifier(folder / own.name)
    for other in sorted(folder.iterdir()) if identity else ():
        if other.name != own.name and _identifier(other) == identity:
            name = kernel_name(other)
            uses = _uses_of(f"/dev/{name}")
            if uses and _have_same_table(f"/dev/{kernel_name(own)}", f"/dev/{name}"):
                same = f"{name} is another path to the same drive"
                yield from (replace(use, what=f"{same}: {use.what}") for use in uses)


def _uses_of(path: str) -> tuple[Occupant, ...]:
    """Return the uses of a path, or one that is unknown if they cannot be read."""
    try:
        status = os.stat(path)  # noqa: PTH116 - as for `status`
        return (*occupants(status), *_writing(status))
    except FileNotFoundError:  # a hidden path of NVMe, or removed meanwhile
        return ()
    except OSError as error:  # such as ENODEV or EIO, of a drive that is just being removed
        return (Occupant(f"whether it is in use is unknown: {error.strerror}", typed("lsblk", path)),)


def _writing(status: os.stat_result) -> Iterator[Occupant]:
    for writer in lasting_writers(status).found:
        what = f"{writer.name} is open for writing in process {writer.process}"
        yield Occupant(what, typed("fuser -v", writer.name))


def _identifier(disk: Path) -> tuple[str, str] | None:
    """Return what SCSI or NVMe reports to identify a drive, and its size."""
    for file in (disk / "device/wwid", disk / "wwid"):
        with suppress(OSError):
            wwid = file.read_text(errors="replace").strip()
            if wwid:
                return wwid, (disk / "size").read_text()
    return None


def _have_same_table(path: str, other: str) -> bool:
    """Return whether both have the same table or none; also if that cannot be read. No other bytes are
    compared: those of a mounted file system may not be on the medium yet.
    """
    try:
        with fresh_reader(path) as first, fresh_reader(other) as second:
            return _table_bytes(first) == _table_bytes(second)
    except OSError:
        return True


def _table_bytes(reader: Reader) -> tuple[bytes, ...]:
    """Return the disk signature and entries of an MBR, and the header of a GPT, with the GUID of the disk."""
    head = reader.read(0, 2 * 4096)
    return head[440:512], *(head[at : at + 92] for at in (512, 4096) if head[at : at + 8] == b"EFI PART")


# The kernel attaches an image file to a loop device whatever locks it has (drivers/block/loop.c,
# loop_configure), so a file system in it can be mounted and changed while it is checked or copied.


def written_at(path: str) -> int | None:
    """Return when an image file was last written to; None if unknown: for a disk, which is opened
    exclusively, and for a file that a program serves, maybe with the present time (QEMU,
    block/export/fuse.c).
    """
    status = status_of(path)
    folder = os.stat(Path(path).resolve().parent)  # noqa: PTH116 - also of a disk
    return status.st_mtime_ns if stat.S_ISREG(status.st_mode) and status.st_dev == folder.st_dev else None


def refuse_disturbed(path: str, since: int | None) -> None:
    """Raise Refused if the disk or image was attached to a loop device after it was locked, or if the image
    was written to. `since`: what `written_at` returned then.
    """
    with failing_as(Refused, path):
        attached = [occupant for occupant in loops_over(status_of(path)) if not occupant.passing]
        changed = written_at(path) != since
    refuse(
        Refusal("in-use", path, f"{path} is in use: {occupant.what}", occupant.end) for occupant in attached
    )
    if changed:
        text = f"{path} was changed by another program since it was locked"
        raise Refused(text, hint=typed("fuser -v", path), code="in-use", subject=path)


# For a file on an ext4 that became read-only after an error: mount(8), errors=remount-ro.
MOUNT_FOR_WRITING = "mount its file system for writing again, after a check if there were errors"


def _not_opened(path: str, error: OSError) -> Refused:
    quoted = shell_word(path)
    match error.errno:
        case errno.ENOENT if str(error.filename).startswith("/proc/"):
            return Refused(
                f"/proc is not mounted, so the users of {path} are not known",
                hint=typed("mount -t proc proc /proc"),
            )
        case errno.EBUSY:
            return Refused(f"{path} is opened exclusively by another program", hint=typed("fuser -v", path))
        case errno.EACCES | errno.EPERM if path.startswith("/dev/"):
            return Refused(f"{path} is not writable by this user", hint="run the same command with sudo")
        case errno.EACCES:
            return Refused(
                f"{path} is not writable by this user", hint=by_hand(ByHand.READ_ONLY, "chmod", quoted)
            )
        case errno.EPERM:
            return Refused(
                f"{path} is immutable or append-only", hint=by_hand(ByHand.READ_ONLY, "chattr", quoted)
            )
        case errno.EROFS:
            return Refused(f"{path} cannot be opened for writing: {error.strerror}", hint=MOUNT_FOR_WRITING)
    return Refused(f"{path} cannot be opened for writing: {error.strerror}")


def _flock(
    descriptor: int, path: str, *, posix: int | None = None, keep_posix: bool = False, shared: bool = False
) -> None:
    """Lock the file with flock. `posix`: the kind of a lock that also conflicts with POSIX locks of other
    programs, such as QEMU's on the disks of its machines; it is kept only with `keep_posix`. Raises Refused.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if posix is not None:
                lock_of_file(descriptor, posix)
                if not keep_posix:
                    lock_of_file(descriptor, fcntl.F_UNLCK)
            return
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise Refused(f"{path} cannot be locked: {error.strerror}") from error
            if time.monotonic() > deadline:
                raise _locked_by_another(path) from error
        time.sleep(_PAUSE_S)


def _locked_by_another(path: str) -> Refused:
    return Refused(f"{path} is locked by another program", hint=typed("fuser -v", path))
