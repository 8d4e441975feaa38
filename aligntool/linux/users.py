"""Find the users of a block device: mounts, swap, holders, locks; the place of a file on disk; attach loop devices."""

import errno
import fcntl
import os
import signal
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aligntool.audit.wording import shell_word
from aligntool.errors import Refused, Stopped, failing_as
from aligntool.linux.devices import FileReader, forget_cached
from aligntool.linux.process import has_signal, of_threads
from aligntool.linux.sysfs import READ_ONLY, SWAPS, mounts_now, opened, parse_swaps
from aligntool.units import Extent

# Who uses a disk: mounts, swap, what is stacked on it, loop devices over it. The kernel says only "busy" (EBUSY),
# and of a loop device over a disk or file not even that.

_USERS_S = 10.0  # a program that a killed aligntool left ends by itself, most of them at once


@dataclass(frozen=True, slots=True)
class Occupant:
    what: str  # "sda1 is mounted at /srv"
    end: str  # the command that ends it, or shows who it is
    passing: bool = False  # it ends by itself in a moment


def occupants(status: os.stat_result) -> tuple[Occupant, ...]:
    """Return the users of a whole disk and of each of its partitions; of a partition and of its disk as a whole, but of
    no other partition; of an image file, the loop devices over it.
    """
    others = (*killed(_flockers(status)), *loops_over(status))
    if not stat.S_ISBLK(status.st_mode):
        return others
    nodes = nodes_of(status)
    return tuple(dict.fromkeys([*_mounts(nodes), *_swaps(nodes), *_holders(nodes), *others]))


def remaining_occupants(status: os.stat_result) -> tuple[Occupant, ...]:
    """Return `occupants` once the programs of a killed aligntool have ended, or after some seconds those that still
    run.
    """
    deadline = time.monotonic() + _USERS_S
    found = occupants(status)
    while found and all(one.passing for one in found) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        found = occupants(status)
    return found


def loops_over(status: os.stat_result) -> Iterator[Occupant]:
    """Yield loop devices over the same bytes, which no exclusive opening notices."""
    if not stat.S_ISBLK(status.st_mode):
        yield from _loops({(status.st_dev, status.st_ino): "the file"})
    else:
        yield from _loops({(0, number): name for number, name in nodes_of(status).items()})


def nodes_of(status: os.stat_result) -> dict[int, str]:
    """Return the kernel names, by device number, of everything that shows bytes of a block device."""
    folder = sysfs_folder(status.st_rdev)
    folders = [folder, *(file.parent for file in sorted(folder.glob("*/partition")))]
    folders += [] if disk_folder(folder) == folder else [folder.parent]
    return {_number((each / "dev").read_text()): kernel_name(each) for each in folders}


def disk_folder(folder: Path) -> Path:
    """The whole disk's, of a partition's folder in sysfs."""
    return folder.parent if (folder / "partition").exists() else folder


def sysfs_folder(device: int) -> Path:
    """Return the folder of a block device by its number; Documentation/ABI/testing/sysfs-dev."""
    return Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()


def kernel_name(folder: Path) -> str:
    """Return the kernel's name: sysfs has cciss!c0d0 for /dev/cciss/c0d0."""
    return folder.name.replace("!", "/")


def _number(text: str) -> int:
    major, _, minor = text.strip().partition(":")
    return os.makedev(int(major), int(minor))


def _mounts(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    """Yield the mounts; the source is compared as well as the number, because a btrfs has a number that no
    device has.
    """
    for mount in mounts_now():
        if name := nodes.get(_number(mount.number)) or nodes.get(block_number(mount.source)):
            yield Occupant(f"{name} is mounted at {mount.place}", f"sudo umount {shell_word(mount.place)}")


def _swaps(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    for path in parse_swaps(Path(SWAPS).read_bytes()):
        if name := nodes.get(block_number(path)):
            yield Occupant(f"{name} is used as swap", f"sudo swapoff {shell_word(path)}")


def _holders(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    for number, name in nodes.items():
        for holder in sorted((sysfs_folder(number) / "holders").glob("*")):
            above = kernel_name(holder)
            if (holder / "md").is_dir():
                yield Occupant(f"the array {above} stands on {name}", f"sudo mdadm --stop /dev/{above}")
            elif (holder / "dm/name").is_file():
                mapping = (holder / "dm/name").read_text().strip()
                end = f"sudo dmsetup remove {shell_word(mapping)}"
                yield Occupant(f"the mapping {mapping} ({above}) stands on {name}", end)
            else:
                yield Occupant(f"{above} stands on {name}", f"lsblk /dev/{name}")


def _loops(targets: Mapping[tuple[int, int], str]) -> Iterator[Occupant]:
    """Yield loop devices over one of the targets, which are compared by `_identity`."""
    for file in sorted(Path("/sys/block").glob("loop*/loop/backing_file")):
        try:
            status = Path(file.read_text(errors="surrogateescape").rstrip("\n")).stat()
        except OSError:  # detached meanwhile, deleted, or in another mount namespace
            continue
        if name := targets.get(_identity(status)):
            loop = f"/dev/{file.parent.parent.name}"
            if _is_own(loop):
                what = f"a program that aligntool started works on {name} through {loop} and ends by itself"
                yield Occupant(what, f"sudo fuser -v {loop}", passing=True)
            else:
                passing = _is_being_detached(file.parent)
                yield Occupant(f"{name} is attached to {loop}", f"sudo losetup -d {loop}", passing=passing)


def killed(processes: Iterable[int | str]) -> Iterator[Occupant]:
    """Yield those of the processes that were killed and have not ended: they do when a disk answers them, and what they
    had begun to write may be written until then.
    """
    for pid in processes:
        if any(has_signal(task, "SigPnd", signal.SIGKILL) for task in of_threads(pid)):
            what = f"process {pid} was interrupted, and still waits for a read or write that the disk has not answered"
            end = f"ps {pid}   shows whether it has ended; sudo dmesg, why the disk does not answer"
            yield Occupant(what, end, passing=True)


def openers(path: Path) -> Iterator[int]:
    """Yield the processes that have a file open."""
    place = path.resolve()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if link.readlink() == place:  # compared by name: what others have open may be on a server that is gone
                yield int(link.parts[2])


def _is_own(loop: str) -> bool:
    try:
        with opened(loop, os.O_RDONLY) as descriptor:  # the last close detaches it
            status = fcntl.ioctl(descriptor, GET_STATUS, bytes(_INFO.size))
    except OSError:  # not root, or detached meanwhile
        return False
    return bool(_INFO.unpack(status)[9].rstrip(b"\0") == _MARK)


def _is_being_detached(folder: Path) -> bool:
    """The kernel sets LO_FLAGS_AUTOCLEAR where `losetup -d` meets a program that has the device open, as udev may for
    a moment. What `mount -o loop` attached has the flag as well, for as long as it is mounted.
    """
    try:
        flag, number = (folder / "autoclear").read_text(), _number((folder.parent / "dev").read_text())
    except OSError:  # detached meanwhile
        return True
    return flag.strip() == "1" and all(_number(mount.number) != number for mount in mounts_now())


def _identity(status: os.stat_result) -> tuple[int, int]:
    """Return a block device by its number, for any node of it; a file by its place."""
    return (0, status.st_rdev) if stat.S_ISBLK(status.st_mode) else (status.st_dev, status.st_ino)


def block_number(path: str) -> int:
    """Return the device number; 0 where the path is not a block device: "tmpfs", "nfs:/srv", a swap file."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return 0
    return status.st_rdev if stat.S_ISBLK(status.st_mode) else 0


# Where on its disk a file lies. A boundary of a disk can be looked for inside a file only where it is known where
# the file begins.
#
# FS_IOC_FIEMAP: Documentation/filesystems/fiemap.rst, include/uapi/linux/fiemap.h.

_FIEMAP = 0xC020660B
_SYNC = 1  # write out what is not yet placed
_HEAD = struct.Struct("=QQIIII")
_RUN = struct.Struct("=QQQ2QI3I")
_LAST = 0x1
# Unknown, delayed, encoded, encrypted, unaligned, inline, tail.
_ELSEWHERE = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400
_AT_ONCE = 512
_MOST = 200_000


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes of a file that are contiguous on the disk."""

    file_start: int
    disk: Extent


@dataclass(frozen=True, slots=True)
class Placed:
    disk: str  # kernel name: "sda", "dm-0"
    runs: tuple[Run, ...]


def file_extents(descriptor: int, path: str) -> Placed:
    """Return the runs of a file. Raises Refused where the file system does not report them, or reports places that are
    not the disk's.
    """
    number = os.fstat(descriptor).st_dev
    if not sysfs_folder(number).exists():
        raise Refused(
            f"the place of {path} on a disk is unknown: its file system lies on no single block device "
            "(btrfs, ZFS, overlay, network and memory file systems)",
            hint="name a folder on ext4 or XFS, or a disk, which is then read only",
        )
    disk, start = disk_of(number)
    return Placed(disk, tuple(_merged(_runs(descriptor, path, start))))


def disk_of(device: int) -> tuple[str, int]:
    """Return the kernel's name of the disk that a block device is, or is a partition of; and the byte where it
    begins.
    """
    folder = sysfs_folder(device)
    disk = disk_folder(folder)
    return kernel_name(disk), 0 if disk == folder else int((folder / "start").read_text()) * 512


def _runs(descriptor: int, path: str, start: int) -> Iterator[Run]:
    at, count = 0, 0
    while True:
        buffer = bytearray(_HEAD.pack(at, (1 << 64) - 1 - at, _SYNC, 0, _AT_ONCE, 0) + bytes(_RUN.size * _AT_ONCE))
        try:
            fcntl.ioctl(descriptor, _FIEMAP, buffer)
        except OSError as error:
            silent = error.errno in (errno.EOPNOTSUPP, errno.ENOTTY)
            why = "its file system does not report it" if silent else error.strerror
            raise Refused(f"the place of {path} on its disk is unknown: {why}") from error
        found = _HEAD.unpack_from(buffer)[3]
        for index in range(found):
            logical, physical, length, _, _, flags, *_ = _RUN.unpack_from(buffer, _HEAD.size + index * _RUN.size)
            if flags & _ELSEWHERE:
                raise Refused(f"{path} is kept compressed, encrypted or inline, and has no place of its own")
            yield Run(logical, Extent(start + physical, length))
            at, count = logical + length, count + 1
            if flags & _LAST:
                return
        if not found or count > _MOST:
            return


def _merged(runs: Iterator[Run]) -> list[Run]:
    """Return the runs; those that continue the one before, in the file and on the disk, are merged."""
    found: list[Run] = []
    for run in runs:
        last = found[-1] if found else None
        if last and run.file_start == last.file_start + last.disk.length and run.disk.start == last.disk.end:
            found[-1] = Run(last.file_start, Extent(last.disk.start, last.disk.length + run.disk.length))
        else:
            found.append(run)
    return found


# Who has a lock on a block device, asked without taking one. There are two kinds of locks that do not see each
# other, and planning must not make udev wait by taking one.

_FLOCK = "hhqqi"  # struct flock of fcntl(2), 64 bits: l_type, l_whence, l_start, l_len, l_pid
_LOCK_S = 2.0  # udev and blkid hold theirs for a moment after every change
_PAUSE_S = 0.05


def in_use(path: str) -> tuple[Occupant, ...]:
    """Return uses that neither a mount nor a holder in sysfs shows: loop devices over the same bytes, and locks of
    other programs, as QEMU has on the drives of its machines. For a drive its partitions count, for a partition its
    drive.

    Raises OSError where the path is not there.
    """
    status = os.stat(path)  # noqa: PTH116 - a device number is asked for
    names = [f"/dev/{name}" for name in nodes_of(status).values()]
    return (*loops_over(status), *(one for name in names for one in locks_on(name)))


def locks_on(path: str) -> tuple[Occupant, ...]:
    """Return POSIX and OFD locks, and flock, of other processes; on this node, and on no other of the same device."""
    try:
        descriptor = os.open(path, READ_ONLY)
    except OSError:
        return ()  # a node that is not there has no locks; one that may not be read is refused elsewhere
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        taken = struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK or _is_flocked(descriptor)
    finally:
        os.close(descriptor)
    return (Occupant(f"{path} is locked by another program", f"sudo fuser -v {shell_word(path)}"),) * taken


def _is_flocked(descriptor: int) -> bool:
    deadline = time.monotonic() + _LOCK_S
    while _has_flock(os.fstat(descriptor)):
        if time.monotonic() > deadline:
            return True
        time.sleep(_PAUSE_S)
    return False


def _has_flock(status: os.stat_result) -> bool:
    return any(pid != str(os.getpid()) for pid in _flockers(status))


def _flockers(status: os.stat_result) -> list[str]:
    """Return the processes with a flock (proc_locks(5)): "1: FLOCK ADVISORY WRITE 1234 00:05:361 0 EOF"; a waiting
    process has "->" before FLOCK.
    """
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return [words[4] for words in lines if (*words[1:2], *words[5:6]) == ("FLOCK", place)]


# What the kernel is asked for when a loop device is attached, as the bytes of linux/loop.h.
#
# A loop device of aligntool has LO_FLAGS_AUTOCLEAR from the first moment: the kernel detaches it when the
# last program closes it, so a SIGKILL leaves none behind. Its name (`lo_file_name`) is a mark by which a
# later run recognises one that a program of a killed run still has open. The backing file of `losetup --list`
# is sysfs', and stays what it is.

CONTROL = "/dev/loop-control"
GET_FREE, CONFIGURE, GET_STATUS = 0x4C82, 0x4C0A, 0x4C05

_READ_ONLY, _AUTOCLEAR = 1, 4
_MARK = b"aligntool"
# struct loop_info64: device, inode, rdevice, offset, sizelimit; number, encrypt type and key size, flags; file name,
# crypt name, key, init. struct loop_config: descriptor, block size, that, eight reserved words.
_INFO = struct.Struct("=5Q4I64s64s32s2Q")
_CONFIG = struct.Struct(f"=II{_INFO.size}s8Q")


def loop_config(descriptor: int, extent: Extent, *, read_only: bool) -> bytes:
    """Return the argument of LOOP_CONFIGURE (Linux 5.8): `extent` of the open file, in sectors of 512 bytes."""
    flags = _AUTOCLEAR | (_READ_ONLY if read_only else 0)
    info = _INFO.pack(0, 0, 0, extent.start, extent.length, 0, 0, 0, flags, _MARK, b"", b"", 0, 0)
    return _CONFIG.pack(descriptor, 0, info, *(0,) * 8)


# A partition as a device of its own, for a program that writes to it while the disk is locked. Two dangers: the
# program reads what an old cache holds, and the mover reads what the program has not written yet.
#
# The loop device goes through the page cache of the disk, which is dropped before; the mover's direct reads
# write that cache back, but not the loop device's own, which is written back here. A disk's partitions have
# caches of their own, which end when nobody has them open, and nobody has: the disk is locked.

# <linux/fs.h>; root may.
_BLKROSET = 0x125D  # an int: 1 makes a block device read-only, and a loop device stays so for its next user
_BLKFLSBUF = 0x1261  # write the cache of a block device back and drop it
_TRIES = 64  # another program may take the free device between the question and the answer


@dataclass(frozen=True, slots=True)
class PartitionLoop:
    """A loop device. `device` is this partition as long as `descriptor` is open, here or in a program that it was
    passed to.
    """

    device: str
    descriptor: int


@contextmanager
def partition_loop(path: str, extent: Extent) -> Iterator[PartitionLoop]:
    """Attach a partition; everything written to it is durable when the context ends without an error.

    It is detached when the last program closes it (LO_FLAGS_AUTOCLEAR), and so when aligntool is killed. A program
    that has the descriptor cannot find another disk under the device's name then. Raises Refused before, and Stopped
    where what was written cannot be made durable.
    """
    try:
        _write_back(path)
        loop = _attach(path, extent, read_only=False)
        fcntl.ioctl(loop.descriptor, _BLKROSET, struct.pack("i", 0))
    except NoLoop as reason:
        raise Refused(str(reason), hint="sudo modprobe loop") from reason
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    try:
        with failing_as(Stopped, f"{loop.device} over {path}", "; no partition was moved"):
            yield loop
            os.fsync(loop.descriptor)
    finally:
        os.close(loop.descriptor)
        _write_back(path)


def _attach(path: str, extent: Extent, *, read_only: bool) -> PartitionLoop:
    """Attach a loop device. Raises OSError where `path` cannot be opened, and NoLoop."""
    flags = READ_ONLY if read_only else os.O_RDWR | os.O_CLOEXEC
    with opened(path, flags) as backing:
        config = loop_config(backing, extent, read_only=read_only)
        try:
            with opened(CONTROL, os.O_RDWR) as control:
                return _attach_free(control, config, flags)
        except OSError as error:
            raise NoLoop(f"no loop device: {error.strerror}") from error


def _attach_free(control: int, config: bytes, flags: int) -> PartitionLoop:
    for _ in range(_TRIES):
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
    raise OSError(errno.EBUSY, "other programs take every free one")


def _write_back(path: str) -> None:
    """Write the page cache of the disk or image; for a disk, drop it as well."""
    with opened(path, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)
        if stat.S_ISBLK(os.fstat(descriptor).st_mode):
            fcntl.ioctl(descriptor, _BLKFLSBUF)


# A partition as other programs may read it: without stale caches, as a device that nothing can write to. It is the
# only thing that probing asks of the kernel beyond reading.


class NoLoop(Exception):
    """No loop device; a sentence with the reason."""


@contextmanager
def fresh_reader(path: str) -> Iterator[FileReader]:
    """Yield a reader of the disk or image as it is now, without the cache of an earlier read. Raises OSError."""
    with opened(path) as descriptor:
        forget_cached(descriptor)
        yield FileReader(descriptor, os.lseek(descriptor, 0, os.SEEK_END))


@contextmanager
def read_only_loop(path: str, extent: Extent) -> Iterator[str]:
    """Yield the device's path, for the duration of the context. Raises NoLoop, and OSError where `path` cannot be
    opened.

    The kernel detaches it when nobody has it open any more, also when aligntool is killed: whoever runs a program on it
    passes `leashed` to `ask`, so that the program ends with aligntool. Its sectors have 512 bytes whatever the disk
    has: every checker reads its own sector size from the superblock.
    """
    if os.geteuid() != 0:
        raise NoLoop("needs root")
    with fresh_reader(path):
        pass
    loop = _attach(path, extent, read_only=True)
    try:
        yield loop.device
    finally:
        os.close(loop.descriptor)
