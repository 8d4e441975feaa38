"""Find what uses a block device: mounts, swap, holders, locks; find the extents of a file; attach loop devices."""

import errno
import fcntl
import os
import signal
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aligntool.audit.wording import release_command
from aligntool.commands import Command, joined_commands, typed
from aligntool.errors import Refused, Stopped, failing_as
from aligntool.inventory import Inventory
from aligntool.linux.devices import FileReader, forget_cached
from aligntool.linux.held import open_held, status_of
from aligntool.linux.partitions import find_devices
from aligntool.linux.process import has_signal, result_in_child, thread_paths
from aligntool.linux.sysfs import IO_NONE, READ_ONLY, live_paths, mounts_now, opened, swaps_now
from aligntool.units import Extent

# Users of a disk: mounts, swap, stacked devices, loop devices. The kernel reports only EBUSY, and for a loop device
# over a disk or file not even that.

_OWN_PROGRAMS_S = 10.0  # a program left behind by a killed aligntool ends by itself, usually at once


@dataclass(frozen=True, slots=True)
class Occupant:
    """A use of a disk that prevents a change."""

    what: str  # "sda1 is mounted at /srv"
    end: str  # the command that ends the use, or shows the program
    passing: bool = False  # it ends by itself soon


def occupants(status: os.stat_result) -> tuple[Occupant, ...]:
    """Return the users of a device: for a whole disk also those of its partitions; for a partition also those of the
    disk as a whole, but not of other partitions; for an image file, the loop devices over it.
    """
    others = (*killed_processes(_flockers(status)), *loops_over(status), *exports_of(status))
    if not stat.S_ISBLK(status.st_mode):
        return others
    nodes = nodes_of(status)
    listed = (*_mount_occupants(nodes), *_swap_occupants(nodes), *_holder_occupants(nodes))
    return tuple(dict.fromkeys((*listed, *caches(nodes.values()), *others)))


def all_ends(found: Iterable[Occupant]) -> str:
    """Return the commands that end all these uses, each once: several may be ended by the same command."""
    return joined_commands(occupant.end for occupant in found)


def remaining_occupants(status: os.stat_result) -> tuple[Occupant, ...]:
    """Wait some seconds at most for the programs of a killed aligntool to end; then return the `occupants`."""
    deadline = time.monotonic() + _OWN_PROGRAMS_S
    found = occupants(status)
    while found and all(occupant.passing for occupant in found) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        found = occupants(status)
    return found


def loops_over(status: os.stat_result) -> Iterator[Occupant]:
    """Yield the loop devices over the same bytes, which an exclusive open does not detect."""
    yield from _loop_occupants(_same_bytes(status))


_CONFIGFS = Path("/sys/kernel/config")
_EXPORTS = {"nvmet/subsystems/*/namespaces/*": "device_path", "target/core/*/*": "udev_path"}
"""The folders of what the kernel serves to other machines, and the file in each that names the device or file."""


def exports_of(status: os.stat_result, folder: Path = _CONFIGFS) -> Iterator[Occupant]:
    """Yield the targets of NVMe over fabrics and of iSCSI that serve the same bytes to other machines. An exclusive
    open does not detect them: nvmet and LIO's fileio open without claiming (nvme/target/io-cmd-bdev.c,
    nvmet_bdev_ns_enable; target/target_core_file.c, fd_configure_device).
    """
    same = _same_bytes(status)
    for pattern, word in _EXPORTS.items():
        for file in live_paths(folder, f"{pattern}/{word}"):
            try:
                served = Path(file.read_text(errors="surrogateescape").rstrip("\n")).stat()
                enabled = (file.parent / "enable").read_text().strip() == "1"
            except (OSError, ValueError):  # removed meanwhile, or without a device
                continue
            if enabled and (name := same.get(_identity(served))):
                end = f"{typed('ls', str(file.parent))}   shows it; nvmetcli or targetcli ends it"
                yield Occupant(f"{name} is served to other machines", end)


def _same_bytes(status: os.stat_result) -> dict[tuple[int, int], str]:
    """Return the name of each node that shows bytes of a device, or of an image file, by its `_identity`."""
    if not stat.S_ISBLK(status.st_mode):
        return {(status.st_dev, status.st_ino): "the file"}
    nodes = {(0, number): name for number, name in nodes_of(status).items()}
    return nodes | {backing: name for backing, name in _below(status.st_rdev) if backing[0]}


def nodes_of(status: os.stat_result) -> dict[int, str]:
    """Return the kernel names, by device number, of all nodes that show bytes of a block device: itself, its
    partitions, its disk; for a loop device also those of the device under it.
    """
    nodes: dict[int, str] = {}
    for device in (status.st_rdev, *(number for (file_device, number), _ in _below(status.st_rdev) if not file_device)):
        folder = sysfs_folder(device)
        folders = [folder, *(file.parent for file in live_paths(folder, "*/partition"))]
        folders += [] if disk_folder(folder) == folder else [folder.parent]
        nodes |= {_parse_number((each / "dev").read_text()): kernel_name(each) for each in folders}
    return nodes


def files_below(status: os.stat_result) -> tuple[str, ...]:
    """Return the file or device under a loop device, what is under that device, and so on; without those that have no
    name in this mount namespace. The kernel opens none of them exclusively (drivers/block/loop.c, loop_configure).
    """
    device = status.st_rdev if stat.S_ISBLK(status.st_mode) else 0
    return tuple(name for backing, name in _below(device) if name and _identity_of(name) == backing)


def _below(device: int) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the `_identity` and the name of each file or device that a loop device shows, from the top down."""
    while device:
        disk = disk_folder(sysfs_folder(device))
        file, device = disk / "loop/backing_file", 0
        with suppress(OSError):
            name = file.read_text(errors="surrogateescape").rstrip("\n")
            _, backing = _loop_backing(f"/dev/{kernel_name(disk)}", file)
            if any(backing):
                yield backing, name
                device = 0 if backing[0] else backing[1]


def disk_folder(folder: Path) -> Path:
    """Return the sysfs folder of the whole disk, given the folder of the disk or of a partition."""
    return folder.parent if (folder / "partition").exists() else folder


def sysfs_folder(device: int) -> Path:
    """Return the sysfs folder of a block device by its number; Documentation/ABI/testing/sysfs-dev."""
    return Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()


def kernel_name(folder: Path) -> str:
    """Return the kernel name for a sysfs folder: sysfs has cciss!c0d0 for /dev/cciss/c0d0."""
    return folder.name.replace("!", "/")


def _parse_number(text: str) -> int:
    major, _, minor = text.strip().partition(":")
    return os.makedev(int(major), int(minor))


def _mount_occupants(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    """Yield the mounts, inner ones first, matched by number and by source: the number of a btrfs is not a device's."""
    for mount in reversed(tuple(mounts_now())):
        source = block_number(mount.source)
        numbers = (_parse_number(mount.number), source, *(_btrfs_devices(source) if mount.kind == "btrfs" else ()))
        if name := next((nodes[number] for number in numbers if number in nodes), None):
            yield Occupant(f"{name} is mounted at {mount.place}", typed("umount", mount.place))


def _btrfs_devices(one: int) -> tuple[int, ...]:
    """Return all devices of a mounted btrfs, of which only one is its source: linux/fs/btrfs/sysfs.c."""
    for folder in live_paths(Path("/sys/fs/btrfs"), "*/devices"):
        with suppress(OSError):
            numbers = tuple(_parse_number((device / "dev").read_text()) for device in sorted(folder.iterdir()))
            if one in numbers:
                return numbers
    return ()


def _swap_occupants(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    for path in swaps_now():
        if name := nodes.get(block_number(path)):
            yield Occupant(f"{name} is used as swap", typed("swapoff", path))


def _holder_occupants(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    folders = ((sysfs_folder(number) / "holders", name) for number, name in nodes.items())
    held = [(kernel_name(holder), name) for folder, name in folders for holder in live_paths(folder, "*")]
    devices = find_devices() if held else Inventory(())
    for holder, name in held:
        what = f"{holder} ({device.mapping})" if (device := devices.disk(holder)) and device.mapping else holder
        yield Occupant(f"{what} uses {name}", release_command(holder, devices))


def caches(names: Iterable[str], folder: Path = Path("/sys/class/block")) -> Iterator[Occupant]:
    """Yield the caches of running bcache devices, which sysfs does not list as holders of them (bcache/super.c,
    register_cache).
    """
    for name in names:
        if (used := folder / name.replace("/", "!") / "bcache/set").exists():
            end = Command("tee", (f"{used}/unregister",), stdin="1").typed()
            yield Occupant(f"{name} is the cache of a bcache", end)


def _loop_occupants(targets: Mapping[tuple[int, int], str]) -> Iterator[Occupant]:
    """Yield the loop devices over one of the targets, matched by `_identity`."""
    for file in live_paths(Path("/sys/block"), "loop*/loop/backing_file"):
        loop = f"/dev/{file.parent.parent.name}"
        is_own, backing = _ask_loop(loop, file, {device for device, _ in targets})
        if (0, block_number(loop)) not in targets and (name := targets.get(backing)):
            mappings = [*live_paths(file.parent.parent / "holders", "*/dm/name")] if is_own else []
            for mapping in mappings:  # left behind by an aligntool that was killed
                with suppress(OSError):  # closed meanwhile
                    opened_as = mapping.read_text().strip()
                    yield Occupant(f"{name} is open as {opened_as}", typed("cryptsetup close", opened_as), passing=True)
            if is_own and not mappings:
                what = f"a program started by aligntool is using {name} through {loop} and will end by itself"
                yield Occupant(what, typed("fuser -v", loop), passing=True)
            elif not is_own:
                yield Occupant(f"{name} is attached to {loop}", *_detaching(loop, file.parent))


def killed_processes(processes: Iterable[int | str]) -> Iterator[Occupant]:
    """Yield the processes that were killed and have not ended: they end when the disk answers, and until then
    the disk may still execute their writes.
    """
    for pid in processes:
        if any(has_signal(task, "SigPnd", signal.SIGKILL) for task in thread_paths(pid)):
            what = f"process {pid} was interrupted, but still waits for a read or write that the disk has not answered"
            end = f"ps {pid}   shows whether it has ended; sudo dmesg shows why the disk does not answer"
            yield Occupant(what, end, passing=True)


def openers(path: Path) -> Iterator[int]:
    """Yield the processes that have a file open, not those that only hold its name (O_PATH)."""
    place = path.resolve()
    for link in live_paths(Path("/proc"), "[0-9]*/fd/*"):
        with suppress(OSError):
            if link.readlink() == place:  # by name: a stat may hang if the file of another process is on a dead server
                flags = (link.parent.with_name("fdinfo") / link.name).read_text().split("flags:\t")[1].split()[0]
                if not int(flags, 8) & os.O_PATH:
                    yield int(link.parts[2])


def writers_below(status: os.stat_result) -> Iterator[tuple[str, int]]:
    """Yield each file that a loop device shows, and the processes that have it open for writing: what they write goes
    past the lock on the device. Only root sees those of other users.
    """
    files = {backing: name for backing, name in _below(status.st_rdev) if backing[0]}
    numbers = {inode for _, inode in files}
    for link in live_paths(Path("/proc"), "[0-9]*/fdinfo/*") if files else ():
        with suppress(OSError, KeyError, ValueError):
            fields = dict(line.split(":\t", 1) for line in link.read_text().splitlines() if ":\t" in line)
            # The number first: to ask for the status of any other file may hang, if its server is dead.
            if int(fields["ino"]) in numbers and int(fields["flags"], 8) & os.O_ACCMODE != os.O_RDONLY:
                yield files[_identity(link.parent.with_name("fd").joinpath(link.name).stat())], int(link.parts[2])


def _ask_loop(loop: str, file: Path, devices: Set[int]) -> tuple[bool, tuple[int, int]]:
    """Return `_loop_backing`, or nothing if an NFS or FUSE server, which none of `devices` is on, does not answer."""
    with suppress(OSError, IndexError):
        path = Path(file.read_text(errors="surrogateescape").rstrip("\n"))
        above = (each for each in mounts_now() if path.is_relative_to(each.place))
        number = sorted(above, key=lambda each: len(each.place))[-1].number
        if number.startswith("0:") and os.makedev(0, int(number[2:])) not in devices:
            return result_in_child(lambda _: _loop_backing(loop, file), 3.0) or (False, (0, 0))
    return _loop_backing(loop, file)


def _loop_backing(loop: str, file: Path) -> tuple[bool, tuple[int, int]]:
    """Return whether a loop device is aligntool's own, and the `_identity` of what it shows.

    The kernel knows it by number. The name in sysfs (`file`), the only source without root, may be that of a hard link
    that was deleted, or belong to another mount namespace, where it is another file.
    """
    with suppress(OSError), opened(loop, os.O_RDONLY) as descriptor:  # the last close detaches it
        info = _LOOP_INFO.unpack(fcntl.ioctl(descriptor, GET_STATUS, bytes(_LOOP_INFO.size)))
        return info[9].rstrip(b"\0") == _MARK, (0, info[2]) if info[2] else info[:2]
    try:
        return False, _identity_of(file.read_text(errors="surrogateescape").rstrip("\n"))
    except OSError:  # detached meanwhile
        return False, (0, 0)


def _detaching(loop: str, folder: Path) -> tuple[str, bool]:
    """Return the command that detaches a loop device, and whether that is about to happen. LO_FLAGS_AUTOCLEAR is set by
    `losetup -d` on a device that is open, by udev for a moment or as long as it is mounted, and by `mount -o loop`.
    """
    end = typed("losetup -d", loop)
    try:
        clears, nodes = (folder / "autoclear").read_text().strip() == "1", nodes_of(Path(loop).stat())
    except OSError:  # detached meanwhile
        return end, True
    if uses := (*_mount_occupants(nodes), *_swap_occupants(nodes), *_holder_occupants(nodes)):
        return all_ends([*uses, *(() if clears else (Occupant("", end),))]), False
    return end, clears


def _identity(status: os.stat_result) -> tuple[int, int]:
    """Return a key that is equal for all nodes of a block device, or for all paths of a file."""
    return (0, status.st_rdev) if stat.S_ISBLK(status.st_mode) else (status.st_dev, status.st_ino)


def _identity_of(name: str) -> tuple[int, int]:
    """Return the `_identity` of a path, or (0, 0) if it does not exist."""
    with suppress(OSError):
        return _identity(Path(name).stat())
    return 0, 0


def block_number(path: str) -> int:
    """Return the device number, or 0 if the path is not a block device: "tmpfs", "nfs:/srv", a swap file."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return 0
    return status.st_rdev if stat.S_ISBLK(status.st_mode) else 0


# The extents of a file on its disk. A boundary of the disk can be measured inside a file only if its extents are known.
#
# FS_IOC_FIEMAP: Documentation/filesystems/fiemap.rst, include/uapi/linux/fiemap.h.

_FIEMAP = 0xC020660B
_FIEMAP_SYNC = 1  # allocate and write delayed data first
_FIEMAP_HEADER = struct.Struct("=QQIIII")
_FIEMAP_EXTENT = struct.Struct("=QQQ2QI3I")
_EXTENT_LAST = 0x1
# Unknown, delayed, encoded, encrypted, unaligned, inline, tail.
_NOT_IN_PLACE = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400
_EXTENTS_PER_CALL = 512
_MAX_EXTENTS = 200_000


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes of a file that are contiguous on the disk."""

    file_start: int
    disk: Extent


@dataclass(frozen=True, slots=True)
class Placed:
    """A file on its disk."""

    disk: str  # kernel name: "sda", "dm-0"
    runs: tuple[Run, ...]


def file_extents(descriptor: int, path: str) -> Placed:
    """Return the runs of a file. Raises Refused if the file system does not report them, or if its offsets are not
    offsets on a disk.
    """
    number = os.fstat(descriptor).st_dev
    if not sysfs_folder(number).exists():
        raise Refused(
            f"the place of {path} on a disk is unknown: its file system is not on a single block device "
            "(btrfs, ZFS, overlay, network and memory file systems)",
            hint="give a folder on ext4 or XFS, or a disk, which is then only read",
        )
    disk, start = disk_of(number)
    return Placed(disk, tuple(_merged(_read_runs(descriptor, path, start))))


def disk_of(device: int) -> tuple[str, int]:
    """Return the kernel name of the disk to which a block device belongs, and the byte of the disk where it begins."""
    folder = sysfs_folder(device)
    disk = disk_folder(folder)
    return kernel_name(disk), 0 if disk == folder else int((folder / "start").read_text()) * 512


def _read_runs(descriptor: int, path: str, start: int) -> Iterator[Run]:
    position, count = 0, 0
    while True:
        buffer = bytearray(
            _FIEMAP_HEADER.pack(position, (1 << 64) - 1 - position, _FIEMAP_SYNC, 0, _EXTENTS_PER_CALL, 0)
            + bytes(_FIEMAP_EXTENT.size * _EXTENTS_PER_CALL)
        )
        try:
            fcntl.ioctl(descriptor, _FIEMAP, buffer)
        except OSError as error:
            silent = error.errno in (errno.EOPNOTSUPP, errno.ENOTTY)
            why = "its file system does not report it" if silent else error.strerror
            raise Refused(f"the place of {path} on its disk is unknown: {why}") from error
        extents = _FIEMAP_HEADER.unpack_from(buffer)[3]
        for index in range(extents):
            logical, physical, length, _, _, flags, *_ = _FIEMAP_EXTENT.unpack_from(
                buffer, _FIEMAP_HEADER.size + index * _FIEMAP_EXTENT.size
            )
            if flags & _NOT_IN_PLACE:
                raise Refused(f"{path} is stored compressed, encrypted or inline, and has no extents of its own")
            yield Run(logical, Extent(start + physical, length))
            position, count = logical + length, count + 1
            if flags & _EXTENT_LAST:
                return
        if not extents or count > _MAX_EXTENTS:
            return


def _merged(runs: Iterator[Run]) -> list[Run]:
    """Merge runs that are contiguous both in the file and on the disk."""
    merged: list[Run] = []
    for run in runs:
        last = merged[-1] if merged else None
        if last and run.file_start == last.file_start + last.disk.length and run.disk.start == last.disk.end:
            merged[-1] = Run(last.file_start, Extent(last.disk.start, last.disk.length + run.disk.length))
        else:
            merged.append(run)
    return merged


# Query the locks on a block device without taking one. There are two independent kinds of locks; planning must take
# neither, because udev would have to wait.

_FLOCK_FORMAT = "hhqqi"  # struct flock of fcntl(2), 64 bits: l_type, l_whence, l_start, l_len, l_pid
_FLOCK_PATIENCE_S = 2.0  # udev and blkid keep theirs for a moment after every change
_PAUSE_S = 0.05


def unlisted_users(path: str) -> tuple[Occupant, ...]:
    """Return the users that neither a mount nor a holder in sysfs shows: loop devices over the same bytes, targets that
    serve them to other machines, bcache, and locks of other programs, such as QEMU's on the drives of its machines. For
    a drive this includes its partitions, for a partition its drive.

    Raises OSError if the path does not exist.
    """
    status = status_of(path)
    names = nodes_of(status).values()
    others = (*loops_over(status), *exports_of(status), *caches(names))
    return (*others, *(occupant for name in names for occupant in locks_on(f"/dev/{name}")))


def locks_on(path: str) -> tuple[Occupant, ...]:
    """Return whether other processes have POSIX, OFD or flock locks, as an `Occupant` or (). Only locks on this node
    count, not those on another node of the same device.
    """
    try:
        descriptor = open_held(path, READ_ONLY)
    except OSError:
        return ()  # a missing node has no locks; an unreadable one is refused elsewhere
    try:
        locked = is_locked(descriptor)
    finally:
        os.close(descriptor)
    return (Occupant(f"{path} is locked by another program", typed("fuser -v", path)),) * locked


def is_locked(descriptor: int) -> bool:
    """Return whether other processes have POSIX, OFD or flock locks on this node."""
    lock = struct.pack(_FLOCK_FORMAT, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind = struct.unpack(_FLOCK_FORMAT, fcntl.fcntl(descriptor, fcntl.F_GETLK, lock))[0]
    return kind != fcntl.F_UNLCK or is_flocked(os.fstat(descriptor))


def lock_of_file(descriptor: int, kind: int) -> None:
    """Lock or unlock a whole file for POSIX locks of other programs; the lock belongs to the open file, as that of
    flock. Raises OSError.
    """
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK_FORMAT, kind, os.SEEK_SET, 0, 0, 0))


def is_flocked(status: os.stat_result) -> bool:
    """Return whether another process has a flock on this file, and keeps it for some seconds."""
    deadline = time.monotonic() + _FLOCK_PATIENCE_S
    while any(pid != str(os.getpid()) for pid in _flockers(status)):
        if time.monotonic() > deadline:
            return True
        time.sleep(_PAUSE_S)
    return False


def _flockers(status: os.stat_result) -> list[str]:
    """Return the processes with a flock (proc_locks(5)): "1: FLOCK ADVISORY WRITE 1234 00:05:361 0 EOF"; a waiting
    process has "->" before FLOCK.
    """
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return [words[4] for words in lines if (*words[1:2], *words[5:6]) == ("FLOCK", place)]


# Structures and ioctls of linux/loop.h to attach a loop device.
#
# A loop device of aligntool has LO_FLAGS_AUTOCLEAR from the beginning: the kernel detaches it when the last program
# closes it, so a SIGKILL leaves none behind. Its name (`lo_file_name`) is a mark: it shows a later run that a program
# of a killed run still has the device open. `losetup --list` reads the backing file from sysfs, so the mark
# does not change its output.

CONTROL = "/dev/loop-control"
GET_FREE, CONFIGURE, GET_STATUS = 0x4C82, 0x4C0A, 0x4C05

_READ_ONLY, _AUTOCLEAR, _DIRECT = 1, 4, 16
_MARK = b"aligntool"
# struct loop_info64: device, inode, rdevice, offset, sizelimit; number, encrypt type and key size, flags; file name,
# crypt name, key, init. struct loop_config: descriptor, block size, loop_info64, eight reserved
# words.
_LOOP_INFO = struct.Struct("=5Q4I64s64s32s2Q")
_LOOP_CONFIG = struct.Struct(f"=II{_LOOP_INFO.size}s8Q")


def loop_config(descriptor: int, extent: Extent, *, read_only: bool, direct: bool = False) -> bytes:
    """Return the argument of LOOP_CONFIGURE (Linux 5.8): `extent` of the open file, in sectors of 512 bytes.

    `direct`: writes bypass the page cache, if the file and its sectors permit it.
    """
    flags = _AUTOCLEAR | (_READ_ONLY if read_only else 0) | (_DIRECT if direct else 0)
    info = _LOOP_INFO.pack(0, 0, 0, extent.start, extent.length, 0, 0, 0, flags, _MARK, b"", b"", 0, 0)
    return _LOOP_CONFIG.pack(descriptor, 0, info, *(0,) * 8)


# A partition as a separate device, for a program that writes to it while the disk is locked. Two dangers: the program
# may read stale data from a cache, and the mover may read before the data of the program are written.
#
# The loop device goes through the page cache of the disk, which is dropped before; the mover's direct reads write that
# cache back, but not the loop device's own, which is written back here. The partitions of the disk have caches of their
# own, which are dropped when no program has them open. None has, because the disk is locked.

# <linux/fs.h>; both require root.
_BLKROSET = IO_NONE | 0x125D  # an int: 1 makes a block device read-only; a loop device stays so for its next user
_BLKFLSBUF = IO_NONE | 0x1261  # write the cache of a block device back and drop it
_LOOP_TRIES = 64  # another program may take the free device before it is configured


@dataclass(frozen=True, slots=True)
class PartitionLoop:
    """A loop device. `device` is this partition as long as `descriptor` is open, here or in a program that inherited
    it.
    """

    device: str
    descriptor: int


@contextmanager
def partition_loop(path: str, extent: Extent, *, direct: bool = False) -> Iterator[PartitionLoop]:
    """Attach a partition; everything written to it is durable when the context ends without an error. `direct`: if
    possible, writes reach the disk in their order, not whenever the page cache is written back.

    It is detached when the last program closes it (LO_FLAGS_AUTOCLEAR), even if aligntool is killed. As long as a
    program has the descriptor, the device's name cannot refer to another disk. Raises Refused if it cannot be
    attached, and Stopped if the writes cannot be made durable.
    """
    with ExitStack() as stack:
        try:
            backing = stack.enter_context(opened(path, os.O_RDWR))  # not by its path again once something was written
            _write_back(backing)
            loop = _attach(backing, extent, read_only=False, direct=direct)
            stack.callback(_write_back, backing)
            stack.callback(os.close, loop.descriptor)
            fcntl.ioctl(loop.descriptor, _BLKROSET, struct.pack("i", 0))
        except NoLoop as reason:
            raise Refused(str(reason), hint=typed("modprobe loop")) from reason
        except OSError as error:
            raise Refused(f"{path}: {error.strerror}") from error
        with failing_as(Stopped, f"{loop.device} over {path}", "; no partition was moved"):
            yield loop
            os.fsync(loop.descriptor)


def _attach(backing: int, extent: Extent, *, read_only: bool, direct: bool = False) -> PartitionLoop:
    """Attach a loop device over an open disk or image. Raises NoLoop."""
    config = loop_config(backing, extent, read_only=read_only, direct=direct)
    try:
        with opened(CONTROL, os.O_RDWR) as control:
            return _attach_free(control, config, READ_ONLY if read_only else os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise NoLoop(f"no loop device: {error.strerror}") from error


def _attach_free(control: int, config: bytes, flags: int) -> PartitionLoop:
    for _ in range(_LOOP_TRIES):
        device = f"/dev/loop{fcntl.ioctl(control, GET_FREE)}"
        descriptor = os.open(device, flags)
        try:
            fcntl.ioctl(descriptor, CONFIGURE, config)
        except OSError as error:
            os.close(descriptor)
            if error.errno != errno.EBUSY:
                raise
        else:
            return PartitionLoop(device, descriptor)
    raise OSError(errno.EBUSY, "other programs took every free device")


def _write_back(descriptor: int) -> None:
    """Write back the page cache of the disk or image; for a disk, also drop it."""
    os.fsync(descriptor)
    if stat.S_ISBLK(os.fstat(descriptor).st_mode):
        fcntl.ioctl(descriptor, _BLKFLSBUF)


# A partition for programs that only read: without stale caches, as a read-only device. It is the only change of the
# kernel's state that an audit makes.


class NoLoop(Exception):
    """No loop device can be attached; the message is the reason."""


@contextmanager
def fresh_reader(path: str) -> Iterator[FileReader]:
    """Yield a reader of the disk or image, after dropping the cache of earlier reads. Raises OSError."""
    with opened(path) as descriptor:
        forget_cached(descriptor)
        yield FileReader(descriptor, os.lseek(descriptor, 0, os.SEEK_END))


@contextmanager
def read_only_loop(path: str, extent: Extent) -> Iterator[str]:
    """Attach a partition read-only and yield the path of the device. Raises NoLoop, and OSError if `path` cannot be
    opened.

    The kernel detaches it when no program has it open any more, even if aligntool is killed: run programs on it with
    `only_reads`, so that they end with aligntool. Its sectors have 512 bytes, whatever the disk has: every checker
    reads the sector size from the superblock.
    """
    if os.geteuid() != 0:
        raise NoLoop("needs root")
    with fresh_reader(path) as reader:
        loop = _attach(reader.descriptor, extent, read_only=True)
    try:
        yield loop.device
    finally:
        os.close(loop.descriptor)
