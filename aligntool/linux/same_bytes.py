"""Find the other nodes and files that show bytes of a disk: partitions, the disk, what is under a loop
device.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from aligntool.linux.device_numbers import disk_folder, identity_of, kernel_name, parse_number, sysfs_folder
from aligntool.linux.loops import loop_backing
from aligntool.linux.sysfs import live_paths


def names_by_identity(status: os.stat_result) -> dict[tuple[int, int], str]:
    """Return the name of each node that shows bytes of a device, or of an image file, by its `identity`."""
    if not stat.S_ISBLK(status.st_mode):
        return {(status.st_dev, status.st_ino): "the file"}
    nodes = {(0, number): name for number, name in nodes_of(status).items()}
    return nodes | {backing: name for backing, name in backings_of(status.st_rdev) if backing[0]}


def nodes_of(status: os.stat_result) -> dict[int, str]:
    """Return the kernel names, by device number, of all nodes that show bytes of a block device: itself, its
    partitions, its disk; for a loop device also those of the device under it.
    """
    nodes: dict[int, str] = {}
    for device in (
        status.st_rdev,
        *(number for (file_device, number), _ in backings_of(status.st_rdev) if not file_device),
    ):
        folder = sysfs_folder(device)
        folders = [folder, *(file.parent for file in live_paths(folder, "*/partition"))]
        folders += [] if disk_folder(folder) == folder else [folder.parent]
        nodes |= {parse_number((each / "dev").read_text()): kernel_name(each) for each in folders}
    return nodes


def files_below(status: os.stat_result) -> tuple[str, ...]:
    """Return the file or device under a loop device, what is under that device, and so on; without those that
    have no name in this mount namespace. The kernel opens none of them exclusively (drivers/block/loop.c,
    loop_configure).
    """
    device = status.st_rdev if stat.S_ISBLK(status.st_mode) else 0
    return tuple(name for backing, name in backings_of(device) if name and identity_of(name) == backing)


def backings_of(device: int) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the `identity` and the name of each file or device that a loop device shows, from the top
    down.
    """
    while device:
        disk = disk_folder(sysfs_folder(device))
        file = disk / "loop/backing_file"
        device = 0
        with suppress(OSError):
            name = file.read_text(errors="surrogateescape").rstrip("\n")
            _, backing = loop_backing(f"/dev/{kernel_name(disk)}", file)
            if any(backing):
                yield backing, name
                device = 0 if backing[0] else backing[1]
