"""Where on its disk a file lies.

In: an open file. Out: the disk, and runs of the file with their bytes on it; or a Refused that says why nobody knows.
Alone because a boundary of a disk can be looked for inside a file only by who knows where the file begins.

FS_IOC_FIEMAP: Documentation/filesystems/fiemap.rst, include/uapi/linux/fiemap.h.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from aligntool.apply.occupants import kernel_name, sysfs_folder
from aligntool.errors import Refused
from aligntool.units import Extent

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
            f"nobody says where on a disk {path} lies: its file system lies on no single block device "
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
        buffer = bytearray(
            _HEAD.pack(at, (1 << 64) - 1 - at, _SYNC, 0, _AT_ONCE, 0) + bytes(_RUN.size * _AT_ONCE)
        )
        try:
            fcntl.ioctl(descriptor, _FIEMAP, buffer)
        except OSError as error:
            silent = error.errno in (errno.EOPNOTSUPP, errno.ENOTTY)
            why = "its file system does not tell" if silent else error.strerror
            raise Refused(f"nobody says where on its disk {path} lies: {why}") from error
        found = _HEAD.unpack_from(buffer)[3]
        for index in range(found):
            logical, physical, length, _, _, flags, *_ = _RUN.unpack_from(
                buffer, _HEAD.size + index * _RUN.size
            )
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
