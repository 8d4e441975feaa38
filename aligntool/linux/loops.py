"""Attach loop devices, for programs that write to a partition or only read it; find what a loop device
shows.
"""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aligntool.commands import typed
from aligntool.errors import Refused, Stopped, failing_as
from aligntool.linux.deadline import result_in_child
from aligntool.linux.device_numbers import identity_of
from aligntool.linux.file_reader import fresh_reader
from aligntool.linux.sysfs import IO_NONE, READ_ONLY, mounts_now, opened
from aligntool.units import Extent

# Structures and ioctls of linux/loop.h to attach a loop device.
#
# A loop device of aligntool has LO_FLAGS_AUTOCLEAR from the beginning: the kernel detaches it when the last
# program closes it, so a SIGKILL leaves none behind. Its name (`lo_file_name`) is a mark: it shows a later
# run that a program of a killed run still has the device open. `losetup --list` reads the backing file from
# sysfs, so the mark does not change its output.

CONTROL = "/dev/loop-control"
GET_FREE = 0x4C82
CONFIGURE = 0x4C0A
GET_STATUS = 0x4C05

_READ_ONLY = 1
_AUTOCLEAR = 4
_DIRECT = 16
_MARK = b"aligntool"
# struct loop_info64: device, inode, rdevice, offset, sizelimit; number, encrypt type and key size, flags;
# file name, crypt name, key, init. struct loop_config: descriptor, block size, loop_info64, eight reserved
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


def ask_loop(loop: str, file: Path, devices: Set[int]) -> tuple[bool, tuple[int, int]]:
    """Return `loop_backing`, or nothing if an NFS or FUSE server, which none of `devices` is on, does not
    answer.
    """
    with suppress(OSError, IndexError):
        path = Path(file.read_text(errors="surrogateescape").rstrip("\n"))
        above = (each for each in mounts_now() if path.is_relative_to(each.place))
        number = sorted(above, key=lambda each: len(each.place))[-1].number
        if number.startswith("0:") and os.makedev(0, int(number[2:])) not in devices:
            return result_in_child(lambda _: loop_backing(loop, file), 3.0) or (False, (0, 0))
    return loop_backing(loop, file)


def loop_backing(loop: str, file: Path) -> tuple[bool, tuple[int, int]]:
    """Return whether a loop device is aligntool's own, and the `identity` of what it shows.

    The kernel knows it by number. The name in sysfs (`file`), the only source without root, may be that of a
    hard link that was deleted, or belong to another mount namespace, where it is another file.
    """
    with suppress(OSError), opened(loop, os.O_RDONLY) as descriptor:  # the last close detaches it
        info = _LOOP_INFO.unpack(fcntl.ioctl(descriptor, GET_STATUS, bytes(_LOOP_INFO.size)))
        return info[9].rstrip(b"\0") == _MARK, (0, info[2]) if info[2] else info[:2]
    try:
        return False, identity_of(file.read_text(errors="surrogateescape").rstrip("\n"))
    except OSError:  # detached meanwhile
        return False, (0, 0)


# A partition as a separate device, for a program that writes to it while the disk is locked. Two dangers: the
# program may read stale data from a cache, and the mover may read before the data of the program are written.
#
# The loop device goes through the page cache of the disk, which is dropped before; the mover's direct reads
# write that cache back, but not the loop device's own, which is written back here. The partitions of the disk
# have caches of their own, which are dropped when no program has them open. None has, because the disk is
# locked.

# <linux/fs.h>; both require root.
# an int: 1 makes a block device read-only; a loop device stays so for its next user
_BLKROSET = IO_NONE | 0x125D
_BLKFLSBUF = IO_NONE | 0x1261  # write the cache of a block device back and drop it
_LOOP_TRIES = 64  # another program may take the free device before it is configured


@dataclass(frozen=True, slots=True)
class PartitionLoop:
    """A loop device. `device` is this partition as long as `descriptor` is open, here or in a program that
    inherited it.
    """

    device: str
    descriptor: int


@contextmanager
def partition_loop(path: str, extent: Extent, *, direct: bool = False) -> Iterator[PartitionLoop]:
    """Attach a partition; everything written to it is durable when the context ends without an error.
    `direct`: if possible, writes reach the disk in their order, not whenever the page cache is written back.

    It is detached when the last program closes it (LO_FLAGS_AUTOCLEAR), even if aligntool is killed. As long
    as a program has the descriptor, the device's name cannot refer to another disk. Raises Refused if it
    cannot be attached, and Stopped if the writes cannot be made durable.
    """
    with ExitStack() as stack:
        try:
            # not by its path again once something was written
            backing = stack.enter_context(opened(path, os.O_RDWR))
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


# A partition for programs that only read: without stale caches, as a read-only device. It is the only change
# of the kernel's state that an audit makes.


class NoLoop(Exception):
    """No loop device can be attached; the message is the reason."""


@contextmanager
def read_only_loop(path: str, extent: Extent) -> Iterator[str]:
    """Attach a partition read-only and yield the path of the device. Raises NoLoop, and OSError if `path`
    cannot be opened.

    The kernel detaches it when no program has it open any more, even if aligntool is killed: run programs on
    it with `only_reads`, so that they end with aligntool. Its sectors have 512 bytes, whatever the disk has:
    every checker reads the sector size from the superblock.
    """
    if os.geteuid() != 0:
        raise NoLoop("needs root")
    with fresh_reader(path) as reader:
        loop = _attach(reader.descriptor, extent, read_only=True)
    try:
        yield loop.device
    finally:
        os.close(loop.descriptor)
