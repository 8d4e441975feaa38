"""Opening a disk to read it, or saying why that was not done.

In: a path. Out: an open descriptor, or an `Unseen`. Alone because of what must never happen here: nothing is opened for
writing, a sleeping drive is not woken, and one drive that cannot be opened spoils nothing for the others.
"""

import errno
import os

from aligntool.inventory import DiskKind, Gap, Unseen
from aligntool.probe.contents import WHAT
from aligntool.probe.devices import Block
from aligntool.probe.tree import Tree

READ_ONLY = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY

_REASONS = {
    errno.ENOMEDIUM: "there is no medium in the drive",
    errno.EBUSY: "it is in exclusive use",
    errno.ENOENT: "its node in /dev is missing",
    errno.ENXIO: "the device is gone",
    errno.ENODEV: "the device is gone",
}


def open_to_read(path: str) -> int | Unseen:
    try:
        return os.open(path, READ_ONLY)
    except OSError as error:
        return _not_opened(path, error)


def _not_opened(path: str, error: OSError) -> Unseen:
    if error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0:
        return Unseen(WHAT, f"needs root to open {path}", f"sudo aligntool audit {path}", Gap.DISK)
    reason = _REASONS.get(error.errno or 0, error.strerror or "it cannot be opened")
    gap = Gap.EMPTY if error.errno == errno.ENOMEDIUM else Gap.DISK
    return Unseen(WHAT, f"{path}: {reason}", gap=gap)


def suspended(tree: Tree, block: Block) -> bool:
    """The kernel has put the device to sleep, and opening its node would start a motor (sd_open resumes it).

    Flash wakes in milliseconds and without a sound: an SD card is suspended three seconds after its last request
    (drivers/mmc/core/block.c), so that an idle one would never be looked at.
    """
    if tree.text(f"{block.path}/queue/rotational") == "0":
        return False
    return tree.text(f"{block.device}/power/runtime_status") == "suspended"


def blocked(tree: Tree, block: Block) -> Unseen | None:
    """A read of such a device would wait until somebody resumes it, which may be never."""
    if tree.text(f"{block.path}/dm/suspended") == "1":
        return Unseen(WHAT, "the mapping is suspended", f"sudo dmsetup resume /dev/{block.name}", Gap.DISK)
    if tree.text(f"{block.device}/state") in ("offline", "blocked", "transport-offline", "quiesce"):
        return Unseen(WHAT, f"the kernel has taken {block.name} offline", gap=Gap.DISK)
    return None


def spun_down(descriptor: int, kind: DiskKind, rotational: bool | None) -> bool:
    """The drive has gone to standby by itself; the next read would spin it up."""
    if kind is not DiskKind.ATA or rotational is False:
        return False
    from aligntool.probe.ata_commands import is_standby

    return is_standby(descriptor) is True


def left_asleep() -> Unseen:
    return Unseen(WHAT, "the drive is asleep and was left so", "sudo aligntool audit --wake", Gap.DISK)


def forget_cached(descriptor: int) -> None:
    """A disk and its partitions have page caches of their own, so what was written through /dev/sda1 need not be in
    that of /dev/sda yet when an earlier look left it there. Clean pages only are dropped, and only of the whole disk.
    """
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        return
