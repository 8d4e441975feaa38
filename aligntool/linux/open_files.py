"""Find the processes that have a file or device open."""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aligntool.linux.device_numbers import identity
from aligntool.linux.same_bytes import backings_of, nodes_of
from aligntool.linux.sysfs import live_paths

# A machine may have ten thousands of open files: strings and system calls, no path objects.
# ruff: noqa: PTH115, PTH116, PTH123, PTH208

_PATIENCE_S = 2.0  # a daemon that asks drives for their state has one open for a moment
_PAUSE_S = 0.05
_SERVED = ("9p", "afs", "ceph", "cifs", "coda", "fuse", "gfs2", "lustre", "nfs", "ocfs2", "smb", "virtiofs")
"""File systems whose server may be dead. To ask one of them for the status of a file may hang forever."""


def openers(path: Path) -> Iterator[int]:
    """Yield the processes that have a file open, not those that only hold its name (O_PATH)."""
    place = path.resolve()
    for link in live_paths(Path("/proc"), "[0-9]*/fd/*"):
        with suppress(OSError):
            # by name: a stat may hang if the file of another process is on a dead server
            if link.readlink() == place:
                flags = (
                    (link.parent.with_name("fdinfo") / link.name).read_text().split("flags:\t")[1].split()[0]
                )
                if not int(flags, 8) & os.O_PATH:
                    yield int(link.parts[2])


def program(pid: int) -> str:
    """Return the name and number of a process. Raises OSError if it has ended."""
    return f"{Path(f'/proc/{pid}/comm').read_text(errors='replace').strip()} (process {pid})"


@dataclass(frozen=True, slots=True)
class Writer:
    """A process that has a block device open for writing."""

    name: str  # of the node, or of the file under a loop device
    is_below: bool  # it is that file
    process: int


@dataclass(frozen=True, slots=True)
class Writers:
    """Who has a block device open for writing, by any of its nodes."""

    found: tuple[Writer, ...] = ()
    unseen: tuple[str, ...] = ()  # the processes at which this user may not look


def lasting_writers(status: os.stat_result) -> Writers:
    """Return the other processes that have a block device open for writing, and keep it for some seconds: the
    whole disk, a partition of it, or the file under a loop device. An exclusive open stops none of them.
    """
    deadline = time.monotonic() + _PATIENCE_S
    writers = _writers(status)
    while writers.found and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        writers = _writers(status)
    return writers


def _writers(status: os.stat_result) -> Writers:
    files = {backing: name for backing, name in backings_of(status.st_rdev) if backing[0]}
    nodes = {(0, number): f"/dev/{name}" for number, name in nodes_of(status).items()}
    wanted = nodes | files
    inodes = {inode for _, inode in files}
    mounts = _Mounts(_mounts_in(Path("/proc/self")))
    found: list[Writer] = []
    unseen = [] if Path("/proc/1").exists() else ["processes that are hidden (proc(5), hidepid)"]
    for process in live_paths(Path("/proc"), "[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            for one in _opened_for_writing(str(process)):
                # The inode of a file first, and that of a node only where no server can be asked for it.
                if one.inode in inodes or not mounts.is_served(one.mount, process):
                    with suppress(OSError, KeyError):
                        key = identity(os.stat(one.link))
                        found.append(Writer(wanted[key], key in files, int(process.name)))
        except PermissionError:
            with suppress(OSError):
                unseen.append(program(int(process.name)))
        except OSError:  # it has ended
            continue
    return Writers(tuple(dict.fromkeys(found)), tuple(unseen))


@dataclass(frozen=True, slots=True)
class _Opened:
    """A file that a process has open for writing."""

    link: str
    mount: str  # the number of its mount, or of its file system
    inode: int


def _opened_for_writing(process: str) -> Iterator[_Opened]:
    """Yield the files that a process has open for writing, or has mapped. `process`: its folder in /proc.
    Raises OSError.
    """
    names = os.listdir(f"{process}/fd")
    if not names:  # the first thread may have ended before the others
        for task in live_paths(Path(process) / "task", "*"):
            if task.name != Path(process).name:
                yield from _opened_for_writing(str(task))
    for name in names:
        link = f"{process}/fd/{name}"
        with suppress(FileNotFoundError, ProcessLookupError):
            if _is_writable(link) and os.readlink(link).startswith("/"):
                with open(f"{process}/fdinfo/{name}") as file:
                    fields = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
                yield _Opened(link, fields["mnt_id"], int(fields.get("ino", 0)))
    for line in Path(f"{process}/maps").read_text(errors="replace").splitlines():
        bounds, access, _, device, inode, *_ = line.split(maxsplit=5)
        if access.endswith("s") and inode != "0":
            first, last = (int(bound, 16) for bound in bounds.split("-"))
            link = f"{process}/map_files/{first:x}-{last:x}"
            with suppress(FileNotFoundError, ProcessLookupError):
                if _is_writable(link):
                    major, minor = (int(number, 16) for number in device.split(":"))
                    yield _Opened(link, f"{major}:{minor}", int(inode))


def _is_writable(link: str) -> bool:
    """Return whether a file was opened for writing: the permissions of its link (proc(5))."""
    return bool(os.lstat(link).st_mode & stat.S_IWUSR)


class _Mounts:
    """The kinds of file systems, by the number of a mount, and by that of the file system."""

    def __init__(self, kinds: dict[str, str]) -> None:
        self._kinds = kinds

    def is_served(self, mount: str, process: Path) -> bool:
        """Return whether a file system may have a server. `process`: it may have mounts of its own."""
        if mount not in self._kinds:
            self._kinds |= _mounts_in(process)
        return self._kinds.setdefault(mount, "").startswith(_SERVED)


def _mounts_in(process: Path) -> dict[str, str]:
    kinds = {}
    with suppress(OSError):
        for line in (process / "mountinfo").read_text(errors="replace").splitlines():
            words, _, rest = line.partition(" - ")
            number, _, device, *_ = words.split()
            kinds[number] = kinds[device] = rest.split()[0]
    return kinds
