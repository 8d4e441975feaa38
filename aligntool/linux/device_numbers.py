"""Identify a block device by its number: its folder in sysfs, its kernel name, its disk."""

import os
import stat
from contextlib import suppress
from pathlib import Path


def disk_folder(folder: Path) -> Path:
    """Return the sysfs folder of the whole disk, given the folder of the disk or of a partition."""
    return folder.parent if (folder / "partition").exists() else folder


def sysfs_folder(device: int) -> Path:
    """Return the sysfs folder of a block device by its number; Documentation/ABI/testing/sysfs-dev."""
    return Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()


def kernel_name(folder: Path) -> str:
    """Return the kernel name for a sysfs folder: sysfs has cciss!c0d0 for /dev/cciss/c0d0."""
    return folder.name.replace("!", "/")


def parse_number(text: str) -> int:
    major, _, minor = text.strip().partition(":")
    return os.makedev(int(major), int(minor))


def identity(status: os.stat_result) -> tuple[int, int]:
    """Return a key that is equal for all nodes of a block device, or for all paths of a file."""
    return (0, status.st_rdev) if stat.S_ISBLK(status.st_mode) else (status.st_dev, status.st_ino)


def identity_of(name: str) -> tuple[int, int]:
    """Return the `identity` of a path, or (0, 0) if it does not exist."""
    with suppress(OSError):
        return identity(Path(name).stat())
    return 0, 0


def block_number(path: str) -> int:
    """Return the device number, or 0 if the path is not a block device: "tmpfs", "nfs:/srv", a swap file."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return 0
    return status.st_rdev if stat.S_ISBLK(status.st_mode) else 0


def disk_of(device: int) -> tuple[str, int]:
    """Return the kernel name of the disk to which a block device belongs, and the byte of the disk where it
    begins.
    """
    folder = sysfs_folder(device)
    disk = disk_folder(folder)
    return kernel_name(disk), 0 if disk == folder else int((folder / "start").read_text()) * 512
