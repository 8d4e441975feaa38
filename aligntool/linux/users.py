"""Find what uses a block device: mounts, swap, holders, open files; where a file lies on disk."""

import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aligntool.audit.wording import shell_word
from aligntool.errors import Refused
from aligntool.linux.loops import GET_STATUS, STATUS_SIZE, is_own
from aligntool.linux.sysfs import SWAPS, mounts_now, parse_swaps
from aligntool.units import Extent

# Who uses a disk: mounts, swap, what is stacked on it, loop devices over it. The kernel says only "busy" (EBUSY),
# and of a loop device over a disk or file not even that.

_USERS_S = 10.0  # a program that a killed aligntool left ends by itself, most of them at once


@dataclass(frozen=True, slots=True)
class Occupant:
    what: str  # "sda1 is mounted at /srv"
    end: str  # the command that ends it, or shows who it is
    passing: bool = False  # a program of aligntool's own, which ends by itself


def occupants(status: os.stat_result) -> tuple[Occupant, ...]:
    """Of a whole disk and of each of its partitions; of a partition and of its disk as a whole, but of no other
    partition; of an image file, the loop devices over it.
    """
    if not stat.S_ISBLK(status.st_mode):
        return tuple(loops_over(status))
    nodes = nodes_of(status)
    return tuple(dict.fromkeys([*_mounts(nodes), *_swaps(nodes), *_holders(nodes), *loops_over(status)]))


def remaining_occupants(status: os.stat_result) -> tuple[Occupant, ...]:
    """Return what `occupants` finds once the programs have ended that an aligntool which was killed had started, or
    after some seconds with those that still run.
    """
    deadline = time.monotonic() + _USERS_S
    found = occupants(status)
    while found and all(one.passing for one in found) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        found = occupants(status)
    return found


def loops_over(status: os.stat_result) -> Iterator[Occupant]:
    """Loop devices over the same bytes, which no exclusive opening notices."""
    if not stat.S_ISBLK(status.st_mode):
        yield from _loops({(status.st_dev, status.st_ino): "the file"})
    else:
        yield from _loops({(0, number): name for number, name in nodes_of(status).items()})


def nodes_of(status: os.stat_result) -> dict[int, str]:
    """Kernel names, by device number, of everything that shows bytes of a block device."""
    folder = sysfs_folder(status.st_rdev)
    nodes = _nodes(status.st_rdev)
    if (folder / "partition").exists():
        nodes[_number((folder.parent / "dev").read_text())] = kernel_name(folder.parent)
    return nodes


def sysfs_folder(device: int) -> Path:
    """Of a block device by its number; Documentation/ABI/testing/sysfs-dev."""
    return Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()


def kernel_name(folder: Path) -> str:
    """sysfs writes cciss!c0d0 for /dev/cciss/c0d0."""
    return folder.name.replace("!", "/")


def _nodes(device: int) -> dict[int, str]:
    """The names of a disk and of its partitions by device number."""
    folder = sysfs_folder(device)
    parts = [file.parent for file in sorted(folder.glob("*/partition"))]
    return {device: kernel_name(folder)} | {_number((part / "dev").read_text()): kernel_name(part) for part in parts}


def _number(text: str) -> int:
    major, _, minor = text.strip().partition(":")
    return os.makedev(int(major), int(minor))


def _mounts(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    """Compare the source as well as the number: a btrfs has a number that no device has."""
    for mount in mounts_now():
        name = nodes.get(_number(mount.number)) or nodes.get(_device_number(mount.source))
        if name:
            yield Occupant(f"{name} is mounted at {mount.place}", f"sudo umount {shell_word(mount.place)}")


def _swaps(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    for path in parse_swaps(Path(SWAPS).read_bytes()):
        name = nodes.get(_device_number(path))
        if name:
            yield Occupant(f"{name} is used as swap", f"sudo swapoff {shell_word(path)}")


def _holders(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    for number, name in nodes.items():
        for holder in sorted((sysfs_folder(number) / "holders").glob("*")):
            above = kernel_name(holder)
            if (holder / "md").is_dir():
                yield Occupant(f"the array {above} stands on {name}", f"sudo mdadm --stop /dev/{above}")
            elif (holder / "dm/name").is_file():
                mapping = (holder / "dm/name").read_text().strip()
                yield Occupant(
                    f"the mapping {mapping} ({above}) stands on {name}", f"sudo dmsetup remove {shell_word(mapping)}"
                )
            else:
                yield Occupant(f"{above} stands on {name}", f"lsblk /dev/{name}")


def _loops(targets: Mapping[tuple[int, int], str]) -> Iterator[Occupant]:
    """Loop devices over one of the targets, which are known by `_identity`."""
    for file in sorted(Path("/sys/block").glob("loop*/loop/backing_file")):
        try:
            status = Path(file.read_text(errors="surrogateescape").rstrip("\n")).stat()
        except OSError:  # detached meanwhile, deleted, or in another mount namespace
            continue
        name = targets.get(_identity(status))
        if name:
            loop = f"/dev/{file.parent.parent.name}"
            if _is_own(loop):
                what = f"a program that aligntool started works on {name} through {loop} and ends by itself"
                yield Occupant(what, f"sudo fuser -v {loop}", passing=True)
            else:
                yield Occupant(f"{name} is attached to {loop}", f"sudo losetup -d {loop}")


def _is_own(loop: str) -> bool:
    try:
        descriptor = os.open(loop, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return is_own(fcntl.ioctl(descriptor, GET_STATUS, bytes(STATUS_SIZE)))
        finally:
            os.close(descriptor)  # the last close detaches it
    except OSError:  # not root, or detached meanwhile
        return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    """A block device by its number, whatever its node is called; a file by its place."""
    return (0, status.st_rdev) if stat.S_ISBLK(status.st_mode) else (status.st_dev, status.st_ino)


def _device_number(path: str) -> int:
    """-1 where the path is not a block device: "tmpfs", "nfs:/srv", a swap file."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return -1
    return status.st_rdev if stat.S_ISBLK(status.st_mode) else -1


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
    """Bytes of a file that lie on the disk in one piece."""

    file_start: int
    disk: Extent


@dataclass(frozen=True, slots=True)
class Placed:
    disk: str  # kernel name: "sda", "dm-0"
    runs: tuple[Run, ...]


def file_extents(descriptor: int, path: str) -> Placed:
    """Raises Refused where the file system does not tell, or tells places that are not the disk's."""
    number = os.fstat(descriptor).st_dev
    if not sysfs_folder(number).exists():
        raise Refused(
            f"the place of {path} on a disk is unknown: its file system lies on no single block device "
            "(btrfs, ZFS, overlay, network and memory file systems)",
            hint="name a folder on ext4 or XFS, or a disk, which is then read only",
        )
    disk, start = disk_of(number)
    runs = tuple(_merged(_runs(descriptor, path, start)))
    return Placed(disk, runs)


def disk_of(device: int) -> tuple[str, int]:
    """The kernel's name of the disk that a block device is, or is a partition of; and the byte where it begins."""
    folder = sysfs_folder(device)
    if not (folder / "partition").exists():
        return kernel_name(folder), 0
    return kernel_name(folder.parent), int((folder / "start").read_text()) * 512


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


def _merged(runs: Iterator[Run]) -> Iterator[Run]:
    """Runs that go on where the one before ended, in the file and on the disk, are one."""
    last: Run | None = None
    for run in runs:
        if last and run.file_start == last.file_start + last.disk.length and run.disk.start == last.disk.end:
            last = Run(last.file_start, Extent(last.disk.start, last.disk.length + run.disk.length))
            continue
        if last:
            yield last
        last = run
    if last:
        yield last


# Who has a lock on a block device, asked without taking one. There are two kinds of locks that do not see each
# other, and planning must not make udev wait by taking one.

_FLOCK = "hhqqi"  # struct flock of fcntl(2), 64 bits: l_type, l_whence, l_start, l_len, l_pid
_LOCK_S = 2.0  # udev and blkid hold theirs for a moment after every change
_PAUSE_S = 0.05


def in_use(path: str) -> tuple[Occupant, ...]:
    """What neither a mount nor a holder in sysfs tells: loop devices over the same bytes, and locks of others, as QEMU
    has on the drives of its machines. Of a drive its partitions count, of a partition its drive.

    Raises OSError where the path is not there.
    """
    status = os.stat(path)  # noqa: PTH116 - a device number is asked for
    names = [f"/dev/{name}" for name in nodes_of(status).values()]
    return (*loops_over(status), *(one for name in names for one in locks_on(name)))


def locks_on(path: str) -> tuple[Occupant, ...]:
    """POSIX and OFD locks, and flock, of other processes; on this node, and on no other of the same device."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return ()  # a node that is not there has no locks; one that may not be read is refused elsewhere
    try:
        taken = _is_locked(descriptor) or _is_flocked(descriptor)
    finally:
        os.close(descriptor)
    return (Occupant(f"{path} is locked by another program", f"sudo fuser -v {shell_word(path)}"),) * taken


def _is_locked(descriptor: int) -> bool:
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    found = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


def _is_flocked(descriptor: int) -> bool:
    deadline = time.monotonic() + _LOCK_S
    while _has_flock(os.fstat(descriptor)):
        if time.monotonic() > deadline:
            return True
        time.sleep(_PAUSE_S)
    return False


def _has_flock(status: os.stat_result) -> bool:
    """proc_locks(5): "1: FLOCK  ADVISORY  WRITE 1234 00:05:361 0 EOF"; who waits for one has "->" before FLOCK."""
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == place and words[4] != str(os.getpid()):
            return True
    return False
