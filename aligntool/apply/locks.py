"""Who has a lock on a block device, asked without taking one.

In: the path of a node. Out: a sentence each, with the command that tells more. Alone because there are two kinds of
locks that do not see each other, and because whoever only plans must not make udev wait by taking one.
"""

import fcntl
import os
import struct
import time
from pathlib import Path

from aligntool.apply.occupants import Occupant, loops_over, nodes_of
from aligntool.audit.words import shell_word

_FLOCK = "hhqqi"  # struct flock of fcntl(2), 64 bits: l_type, l_whence, l_start, l_len, l_pid
_PATIENCE_S = 2.0  # udev and blkid hold theirs for a moment after every change
_PAUSE_S = 0.05


def in_use(path: str) -> tuple[Occupant, ...]:
    """What neither a mount nor a holder in sysfs tells: loop devices over the same bytes, and locks of others, as QEMU
    has on the drives of its machines. Of a drive its partitions count, of a partition its drive.

    Raises OSError where the path is not there.
    """
    status = os.stat(path)  # noqa: PTH116 - a device number is asked for
    names = [f"/dev/{name}" for name in nodes_of(status).values()]
    return (*loops_over(status), *(one for name in names for one in locks_on(name)))


def locks_on(path: str) -> tuple[Occupant, ...]:
    """POSIX and OFD locks, and flock, of other processes; on this node, and on no other of the same device."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return ()  # a node that is not there has no locks; one that may not be read is refused elsewhere
    try:
        taken = _is_locked(descriptor) or _is_flocked(descriptor)
    finally:
        os.close(descriptor)
    return (Occupant(f"{path} is locked by another program", f"sudo fuser -v {shell_word(path)}"),) * taken


def _is_locked(descriptor: int) -> bool:
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    found = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


def _is_flocked(descriptor: int) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while _has_flock(os.fstat(descriptor)):
        if time.monotonic() > deadline:
            return True
        time.sleep(_PAUSE_S)
    return False


def _has_flock(status: os.stat_result) -> bool:
    """proc_locks(5): "1: FLOCK  ADVISORY  WRITE 1234 00:05:361 0 EOF"; who waits for one has "->" before FLOCK."""
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == place and words[4] != str(os.getpid()):
            return True
    return False
