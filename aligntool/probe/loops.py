"""A partition as other programs may read it: without stale caches, as a device that nothing can write to.

In: a disk or an image, and a place on it. Out: the path of a read-only loop device, which is given back afterwards.
Alone because it is the only thing that probing asks of the kernel beyond reading.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aligntool.probe.access import READ_ONLY, forget_cached
from aligntool.probe.programs import ask
from aligntool.probe.reader import FileReader
from aligntool.units import Extent

PATIENCE_S = 30.0


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

    Its sectors have 512 bytes whatever the disk has: every checker reads its own sector size from the superblock.
    """
    if os.geteuid() != 0:
        raise NoLoop("needs root")
    with fresh_reader(path):
        pass
    place = ("-o", str(extent.start), "--sizelimit", str(extent.length))
    attached = ask("losetup", "-r", "-f", "--show", *place, str(Path(path).absolute()), limit_s=PATIENCE_S)
    device = attached.output.strip()
    if attached.code != 0 or not device:
        raise NoLoop(f"there is no loop device: {attached.last_words}")
    try:
        yield device
    finally:
        ask("losetup", "-d", device, limit_s=PATIENCE_S)
