"""Detect other programs that have an image file open, or open it while it is changed: leases of fcntl(2).

The kernel grants a write lease on a file to its only opener, and makes each later opener wait until the lease
is released, for /proc/sys/fs/lease-break-time (45 s) at most. Reasons and limits: docs/decisions/0049.
"""

import errno
import fcntl
import os
import signal
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aligntool.commands import typed
from aligntool.errors import Refused, failing_as
from aligntool.linux.block import is_served
from aligntool.linux.held import place_of, status_of
from aligntool.linux.in_use import all_ends, loops_over
from aligntool.linux.open_files import lasting_writers, openers, program
from aligntool.linux.sysfs import leased, opened
from aligntool.units import first_of

_PATIENCE_S = 2.0  # indexers and virus scanners have a file open for a moment
_PAUSE_S = 0.05
_MOST_NAMED = 3

_LOCAL_KINDS = (
    *(
        "bcachefs",
        "btrfs",
        "exfat",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "hfs",
        "hfsplus",
        "jfs",
        "minix",
        "msdos",
    ),
    *("nilfs2", "ntfs", "ntfs3", "reiserfs", "udf", "ufs", "vfat", "xfs", "zfs"),
    *("devtmpfs", "ramfs", "rootfs", "tmpfs"),
)
"""File systems whose files nothing but this kernel serves, and of which an open file is the one that holds
the bytes. Of others the kernel grants leases, too, but does not know who uses a file on the server (NFS, SMB,
9P) or on another machine (OCFS2), or the file under it (FUSE, overlay, eCryptfs).
"""

_STACKED_KINDS = ("aufs", "ecryptfs", "overlay")


class Lease:
    """The lease on a file that is open for a change. A block device has none: it is opened exclusively, and
    searched for writers (`refuse_writers`).
    """

    def __init__(self, descriptor: int, path: str, *, no_lease: bool = False, readers: bool = False) -> None:
        """Take no lease yet. `no_lease`: the user states that nothing else has the file open, if that is
        unknown. `readers`: others may have it open for reading; then the descriptor must be open only for
        reading.
        """
        self._descriptor = descriptor
        self._path = path
        self._no_lease = no_lease
        self._kind = fcntl.F_RDLCK if readers else fcntl.F_WRLCK
        self._is_held = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lease within the context, in which this program must not open the file again: it would
        wait for itself. Raises Refused if another program has the file open, or if that is unknown.
        """
        refuse_writers(self._descriptor, self._path, no_lease=self._no_lease)
        if not self._take():
            yield
            return
        self._is_held = True
        try:
            self._admit_readers()
            yield
        finally:
            self._is_held = False
            with suppress(OSError):  # the kernel has removed it
                self._set(fcntl.F_UNLCK)

    def probe(self) -> None:
        """Raise Refused if another program has the file open, or if that is unknown."""
        if self._take():
            self._set(fcntl.F_UNLCK)

    def check(self) -> None:
        """Raise OSError (EBUSY) if the lease is held and another program has begun to open the file for
        writing. The kernel makes it wait, so nothing is written after it has the file.
        """
        if self._is_held and fcntl.fcntl(self._descriptor, fcntl.F_GETLEASE) == fcntl.F_UNLCK:
            raise OSError(errno.EBUSY, "another program opens it for writing", self._path)

    def _take(self) -> bool:
        """Take the lease; return False if there can be none here and none is needed. Raises Refused."""
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode) or is_served(self._descriptor):
            return False
        kind = kind_of_file_system(self._descriptor)
        is_local = kind in _LOCAL_KINDS
        unknown = "" if is_local else f"its file system, {kind}, {_why_unknown(kind)}"
        try:
            self._take_patiently()
        except OSError as error:
            if error.errno == errno.EAGAIN and (is_local or _names(self._path)):
                raise in_use(self._path) from error
            denied = "a lease is granted only to the owner of the file and to root (CAP_LEASE)"
            why = denied if error.errno == errno.EACCES else error.strerror
            self._refuse_unknown(unknown or f"no lease: {why}")
            return False
        if unknown and not self._no_lease:
            self._set(fcntl.F_UNLCK)
            self._refuse_unknown(unknown)
        return True

    def _refuse_unknown(self, why: str) -> None:
        if not self._no_lease:
            raise _unknown(f"whether another program has {self._path} open is unknown: {why}", self._path)

    def _take_patiently(self) -> None:
        # Ignored by default, instead of SIGIO, which ends the process. F_GETLEASE tells what it would tell.
        fcntl.fcntl(self._descriptor, fcntl.F_SETSIG, signal.SIGURG)
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self._set(self._kind)
            except OSError as error:
                if error.errno != errno.EAGAIN or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)

    def _set(self, kind: int) -> None:
        fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, kind)

    def _admit_readers(self) -> None:
        """Ask for the file as a reader does: when the kernel's time has passed, it turns the write lease into
        a read lease, which holds up only those that write. It does not do so on request while the file is
        open for writing (linux/fs/locks.c, check_conflicting_open).
        """
        with suppress(BlockingIOError), opened(f"/proc/self/fd/{self._descriptor}"):
            pass


def _why_unknown(kind: str) -> str:
    if kind in _STACKED_KINDS:
        return "shows a file of another one, which a program may have open there"
    return "does not know of users on its server"


def refuse_open_image(path: str, *, no_lease: bool, readers: bool = False) -> None:
    """Raise Refused if another program has an image file open, or if that is unknown. `no_lease`, `readers`:
    see `Lease`. Without effect on anything but a file, and on a file that is to be changed, but not by this
    user.
    """
    if not os.path.isfile(path) or not (  # noqa: PTH113 - of a string
        readers or os.access(place_of(path), os.W_OK)
    ):
        return
    with failing_as(Refused, f"{path} cannot be read"):
        try:
            with opened(path) as descriptor:
                Lease(descriptor, path, no_lease=no_lease, readers=readers).probe()
        except BlockingIOError as error:  # a lease of another program
            raise leased(path) from error


def refuse_writers(descriptor: int, path: str, *, no_lease: bool) -> str:
    """Raise Refused if another program has a locked block device open for writing, one of its partitions, or
    the file under it, or if that is unknown. Without effect on a file. Return which programs even root may
    not look at, as a sentence, or "".
    """
    status = os.fstat(descriptor)
    if not stat.S_ISBLK(status.st_mode):
        return ""
    writers = lasting_writers(status)
    if writers.found:
        name = writers.found[0].name
        shown = f"{name}, which {path} shows," if writers.found[0].is_below else name
        programs = _programs(writer.process for writer in writers.found if writer.name == name)
        text = f"{shown} is open for writing in {programs or 'another program'}"
        raise Refused(text, hint=typed("fuser -v", name), code="in-use", subject=path)
    if writers.unseen and os.geteuid() != 0 and not no_lease:
        why = "only root sees what the programs of other users have open"
        raise _unknown(f"whether another program has {path} open for writing is unknown: {why}", path)
    unseen = first_of(writers.unseen, _MOST_NAMED)
    return f"whether {path} is open for writing could not be seen in: {unseen}" if unseen else ""


def _unknown(text: str, path: str) -> Refused:
    hint = "if nothing else has it open, add: --no-lease"
    return Refused(text, hint=hint, code="no-lease", subject=path)


def in_use(path: str) -> Refused:
    """Return the refusal of a file that another program or a loop device has open."""
    loops = tuple(loops_over(status_of(path)))
    if loops:
        what = "; ".join(loop.what for loop in loops)
        return Refused(f"{path} is in use: {what}", hint=all_ends(loops), code="in-use", subject=path)
    text = f"{path} is open in another program{_names(path)}"
    return Refused(text, hint=typed("fuser -v", path), code="in-use", subject=path)


def _names(path: str) -> str:
    """Return the programs that have a file open, as far as this user may see them, or ""."""
    programs = _programs(pid for pid in openers(Path(path)) if pid != os.getpid())
    return f": {programs}" if programs else ""


def _programs(processes: Iterable[int]) -> str:
    """Return the names and numbers of processes, or "" if all have ended."""
    names = []
    for pid in dict.fromkeys(processes):
        with suppress(OSError):  # it has ended
            names.append(program(pid))
    return first_of(names, _MOST_NAMED)


def kind_of_file_system(descriptor: int) -> str:
    """Return the kind of the file system of an open file, such as "nfs4", or "an unknown one".

    In a chroot whose root is no mount point, its own list lacks the mount of its root; that of init has it.
    """
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
        mount = next(line.split()[1] for line in lines if line.startswith("mnt_id:"))
        lists = (Path(f"/proc/{process}/mountinfo").read_text(errors="replace") for process in ("self", "1"))
        mounts = (line for each in lists for line in each.splitlines())
        return next(line.partition(" - ")[2].split()[0] for line in mounts if line.split()[0] == mount)
    return "an unknown one"
