"""Find the extents of a file on its disk: a boundary of the disk can be measured inside a file only if they
are known.

FS_IOC_FIEMAP: Documentation/filesystems/fiemap.rst, include/uapi/linux/fiemap.h.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from aligntool.errors import Refused
from aligntool.linux.device_numbers import disk_of, sysfs_folder
from aligntool.units import Extent

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
    """Return the runs of a file. Raises Refused if the file system does not report them, or if its offsets
    are not offsets on a disk.
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


def _read_runs(descriptor: int, path: str, start: int) -> Iterator[Run]:
    position = 0
    count = 0
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
                raise Refused(
                    f"{path} is stored compressed, encrypted or inline, and has no extents of its own"
                )
            yield Run(logical, Extent(start + physical, length))
            position = logical + length
            count += 1
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
