"""Inform the running kernel of a disk's partitions, and wait for device nodes."""

import array
import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from aligntool.errors import Refused, Stopped
from aligntool.linux.process import find_program, run_program
from aligntool.linux.users import block_number, sysfs_folder
from aligntool.units import Extent

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
                raise Refused(
                    f"partition {number} is in use, so its node cannot be removed",
                    hint="close what uses it: fuser -v, lsblk",
                ) from error
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
        self._folder: Path | None = None
        if stat.S_ISBLK(status.st_mode):
            self._folder = sysfs_folder(status.st_rdev)
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

        Not libparted's own way (commitToOS): Debian's waits there for udev, which waits for the lock on the disk that
        is being held meanwhile (debian/patches/udevadm-settle.patch). Raises OSError. A disk on which the kernel shows
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
        tell_partitions(self._descriptor, [part for part in parts if self._folder and part[0] not in known])


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
