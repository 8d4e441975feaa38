"""Device nodes of partitions: that they are there, are block devices, and show the bytes that were planned.

In: a disk, and where a partition should be. Out: nothing, or Stopped. Alone because a tool that opens a node which is
not there makes a plain file of it, and one that opens another disk's node destroys that disk.
"""

import stat
import time
from pathlib import Path

from aligntool.apply.arrays.running import ask
from aligntool.apply.occupants import sysfs_folder
from aligntool.apply.programs import find_program
from aligntool.errors import Stopped
from aligntool.units import Extent

_SYSFS_SECTOR = 512  # whatever the disk's sector is: Documentation/ABI/stable/sysfs-block
_PATIENCE_S = 20.0
_PAUSE_S = 0.1


def settle() -> None:
    """udev has done what it had to do; without udev there is nothing to wait for."""
    if find_program("udevadm") and Path("/run/udev/control").exists():
        ask("udevadm", "settle", "--timeout=60")


def wait_for_partition(disk: str, device: str, extent: Extent) -> None:
    """Returns once `device` is that part of `disk`. Raises Stopped when it does not become so."""
    deadline = time.monotonic() + _PATIENCE_S
    settle()
    while why := partition_problem(disk, device, extent):
        if time.monotonic() > deadline:
            raise Stopped(f"{device}: {why}")
        time.sleep(_PAUSE_S)


def partition_problem(disk: str, device: str, extent: Extent) -> str:
    """Why `device` is not the partition of `disk` at `extent`; "": it is."""
    node, whole = _block_number(device), _block_number(disk)
    if node is None or whole is None:
        return f"{device if node is None else disk} is no block device"
    folder = sysfs_folder(node)
    try:
        start, length = (int((folder / name).read_text()) * _SYSFS_SECTOR for name in ("start", "size"))
    except (OSError, ValueError):
        return "the kernel shows no partition of that name"
    if folder.parent != sysfs_folder(whole):
        return f"it is no partition of {disk}"
    if Extent(start, length) != extent:
        return f"the kernel shows bytes {start}..{start + length} of {disk}, planned are {extent.start}..{extent.end}"
    return ""


def kernel_folder(device: str) -> Path | None:
    """Of a block device in sysfs; None where the path is none."""
    number = _block_number(device)
    return None if number is None else sysfs_folder(number)


def _block_number(device: str) -> int | None:
    try:
        status = Path(device).stat()
    except OSError:
        return None
    return status.st_rdev if stat.S_ISBLK(status.st_mode) else None
