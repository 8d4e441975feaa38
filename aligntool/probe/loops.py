"""A partition as other programs may read it: without stale caches, as a device that nothing can write to.

In: a disk or an image, and a place on it. Out: the path of a read-only loop device, which is given back afterwards.
Alone because it is the only thing that probing asks of the kernel beyond reading.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from aligntool.inventory.loop_config import CONFIGURE, CONTROL, GET_FREE, loop_config
from aligntool.probe.access import READ_ONLY, forget_cached
from aligntool.probe.file_reader import FileReader
from aligntool.units import Extent

_TRIES = 64  # another program may take the free device between the question and the answer


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
        device, descriptor = _attach(backing, extent)
    finally:
        os.close(backing)
    try:
        yield device
    finally:
        os.close(descriptor)


def _attach(backing: int, extent: Extent) -> tuple[str, int]:
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
