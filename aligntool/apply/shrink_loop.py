"""A partition as a device of its own, for a program that writes to it while the disk is held.

In: a disk or image, and a place on it. Out: a loop device. Alone because of its two dangers: that the
program reads what an old cache says, and that the mover reads what the program has not written yet.

The loop device goes through the page cache of the disk, which is dropped before; the mover's direct reads write that
cache back, but not the loop device's own, which is written back here. A disk's partitions have caches of their own,
which end when nobody has them open, and nobody has: the disk is held.
"""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aligntool.errors import Refused, Stopped
from aligntool.inventory.loop_config import CONFIGURE, CONTROL, GET_FREE, loop_config
from aligntool.units import Extent

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
        loop = _attach(path, extent)
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


def _attach(path: str, extent: Extent) -> PartitionLoop:
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
