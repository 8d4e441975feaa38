"""Attach loop devices that the kernel detaches by itself."""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aligntool.errors import Refused, Stopped
from aligntool.linux.devices import READ_ONLY, FileReader, forget_cached
from aligntool.units import Extent

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
STATUS_SIZE = _INFO.size


def loop_config(descriptor: int, extent: Extent, *, read_only: bool) -> bytes:
    """Return the argument of LOOP_CONFIGURE (Linux 5.8): `extent` of the open file, in sectors of 512 bytes."""
    flags = _AUTOCLEAR | (_READ_ONLY if read_only else 0)
    info = _INFO.pack(0, 0, 0, extent.start, extent.length, 0, 0, 0, flags, _MARK, b"", b"", 0, 0)
    return _CONFIG.pack(descriptor, 0, info, *(0,) * 8)


def is_own(status: bytes) -> bool:
    """Return whether aligntool attached the loop device of which LOOP_GET_STATUS64 gave this."""
    return _INFO.unpack(status)[9].rstrip(b"\0") == _MARK if len(status) == _INFO.size else False


# A partition as a device of its own, for a program that writes to it while the disk is held. Two dangers: the
# program reads what an old cache holds, and the mover reads what the program has not written yet.
#
# The loop device goes through the page cache of the disk, which is dropped before; the mover's direct reads
# write that cache back, but not the loop device's own, which is written back here. A disk's partitions have
# caches of their own, which end when nobody has them open, and nobody has: the disk is held.

# <linux/fs.h>; root may.
_BLKROSET = 0x125D  # an int: 1 makes a block device read-only, and a loop device stays so for its next user
_BLKFLSBUF = 0x1261  # write the cache of a block device back and drop it
_TRIES = 64  # another program may take the free device between the question and the answer


@dataclass(frozen=True, slots=True)
class PartitionLoop:
    """`device` is this partition as long as `descriptor` is open, here or in a program that it was passed to."""

    device: str
    descriptor: int


@contextmanager
def partition_loop(path: str, extent: Extent) -> Iterator[PartitionLoop]:
    """Everything written to it is durable when the context ends without an error.

    It is detached when the last program closes it (LO_FLAGS_AUTOCLEAR), and so when aligntool is killed. A program
    that has the descriptor cannot find another disk under the device's name then. Raises Refused before, and Stopped
    where what was written cannot be made durable.
    """
    try:
        _write_back(path)
        loop = _attach_shrunk(path, extent)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    try:
        yield loop
        os.fsync(loop.descriptor)
    except OSError as error:
        raise Stopped(f"{loop.device} over {path}: {error.strerror}; no partition was moved") from error
    finally:
        os.close(loop.descriptor)
        _write_back(path)


def _attach_shrunk(path: str, extent: Extent) -> PartitionLoop:
    backing = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
        try:
            loop = _attach_free(control, loop_config(backing, extent, read_only=False))
        finally:
            os.close(control)
    except OSError as error:
        raise Refused(f"no loop device: {error.strerror}", hint="sudo modprobe loop") from error
    finally:
        os.close(backing)
    fcntl.ioctl(loop.descriptor, _BLKROSET, struct.pack("i", 0))
    return loop


def _attach_free(control: int, config: bytes) -> PartitionLoop:
    for _ in range(_TRIES):
        device = f"/dev/loop{fcntl.ioctl(control, GET_FREE)}"
        descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
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
    """The page cache of the disk or image is written; of a disk, it is dropped as well."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        if stat.S_ISBLK(os.fstat(descriptor).st_mode):
            fcntl.ioctl(descriptor, _BLKFLSBUF)
    finally:
        os.close(descriptor)


# A partition as other programs may read it: without stale caches, as a device that nothing can write to. It is the
# only thing that probing asks of the kernel beyond reading.


class NoLoop(Exception):
    """A sentence: why there is no loop device."""


@contextmanager
def fresh_reader(path: str) -> Iterator[FileReader]:
    """A reader of the disk or image as it is now, without what an earlier look left in the cache. Raises OSError."""
    descriptor = os.open(path, READ_ONLY)
    try:
        forget_cached(descriptor)
        yield FileReader(descriptor, os.lseek(descriptor, 0, os.SEEK_END))
    finally:
        os.close(descriptor)


@contextmanager
def read_only_loop(path: str, extent: Extent) -> Iterator[str]:
    """The device's path, for as long as the context lasts. Raises NoLoop, and OSError where `path` cannot be opened.

    The kernel detaches it when nobody has it open any more, also when aligntool is killed: whoever runs a program on it
    passes `leashed` to `ask`, so that the program ends with aligntool. Its sectors have 512 bytes whatever the disk
    has: every checker reads its own sector size from the superblock.
    """
    if os.geteuid() != 0:
        raise NoLoop("needs root")
    with fresh_reader(path):
        pass
    backing = os.open(path, READ_ONLY)
    try:
        device, descriptor = _attach_whole(backing, extent)
    finally:
        os.close(backing)
    try:
        yield device
    finally:
        os.close(descriptor)


def _attach_whole(backing: int, extent: Extent) -> tuple[str, int]:
    config = loop_config(backing, extent, read_only=True)
    try:
        control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
        try:
            for _ in range(_TRIES):
                device = f"/dev/loop{fcntl.ioctl(control, GET_FREE)}"
                descriptor = os.open(device, READ_ONLY)
                try:
                    fcntl.ioctl(descriptor, CONFIGURE, config)
                except OSError as error:
                    os.close(descriptor)
                    if error.errno != errno.EBUSY:
                        raise
                else:
                    return device, descriptor
        finally:
            os.close(control)
    except OSError as error:
        raise NoLoop(f"no loop device: {error.strerror}") from error
    raise NoLoop("no loop device: other programs take every free one")
