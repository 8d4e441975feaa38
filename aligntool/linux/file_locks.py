"""Query the locks of other programs on a file or block device, and lock a file against them.

There are two independent kinds of locks. Planning queries both and takes neither, because udev would have to
wait.
"""

import fcntl
import os
import struct
import time
from pathlib import Path

_FLOCK_FORMAT = "hhqqi"  # struct flock of fcntl(2), 64 bits: l_type, l_whence, l_start, l_len, l_pid
_FLOCK_PATIENCE_S = 2.0  # udev and blkid keep theirs for a moment after every change
_PAUSE_S = 0.05


def is_locked(descriptor: int) -> bool:
    """Return whether other processes have POSIX, OFD or flock locks on this node."""
    lock = struct.pack(_FLOCK_FORMAT, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind = struct.unpack(_FLOCK_FORMAT, fcntl.fcntl(descriptor, fcntl.F_GETLK, lock))[0]
    return kind != fcntl.F_UNLCK or is_flocked(os.fstat(descriptor))


def lock_of_file(descriptor: int, kind: int) -> None:
    """Lock or unlock a whole file for POSIX locks of other programs; the lock belongs to the open file, as
    that of flock. Raises OSError.
    """
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK_FORMAT, kind, os.SEEK_SET, 0, 0, 0))


def is_flocked(status: os.stat_result) -> bool:
    """Return whether another process has a flock on this file, and keeps it for some seconds."""
    deadline = time.monotonic() + _FLOCK_PATIENCE_S
    while any(pid != str(os.getpid()) for pid in flockers(status)):
        if time.monotonic() > deadline:
            return True
        time.sleep(_PAUSE_S)
    return False


def flockers(status: os.stat_result) -> list[str]:
    """Return the processes with a flock (proc_locks(5)): "1: FLOCK ADVISORY WRITE 1234 00:05:361 0 EOF"; a
    waiting process has "->" before FLOCK.
    """
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return [words[4] for words in lines if (*words[1:2], *words[5:6]) == ("FLOCK", place)]
