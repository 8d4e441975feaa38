"""What a benchmark is to work on: a folder, a file, a device; and the file system that it lies on.

In: what the user typed. Out: a Target, its mount, or Refused. Alone because a slip here decides between a file of our
own and somebody's data.
"""

import errno
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from aligntool.bench.conditions import MEMORY
from aligntool.bench.schedule import Target, TargetKind
from aligntool.errors import Refused
from aligntool.probe.mounts import unescape
from aligntool.probe.targets import refuse_ambiguous, refuse_silent


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of proc_pid_mountinfo(5)."""

    place: str
    kind: str
    source: str
    options: str  # of the mount and of the file system
    number: str  # "8:1"; of btrfs and its like one that no device has


def find_target(named: str) -> Target:
    """Raises Refused."""
    found = _find(named)
    place = f"{found.path}/{found.name}" if found.name else found.path
    return replace(found, place=os.path.abspath(place))  # noqa: PTH100 - links stay as they were named


def _find(named: str) -> Target:
    if not named or "\0" in named:
        raise Refused(f"{named!r} is no name of a folder, file or device")
    refuse_ambiguous(named, folders=True)
    path = named if "/" in named or os.path.lexists(named) else _device_path(named)
    refuse_silent(path)
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        if named.rpartition("/")[2] in ("", ".", ".."):
            raise Refused(
                f"{named}: folder not found; nothing was written", hint=f"mkdir {quote(named)}"
            ) from None
        if "/" not in named:  # a slip of the keyboard is no wish for a file
            hint = (
                f"a folder or device; ./{named} makes a file here; bench list, show and compare are commands"
            )
            raise Refused(f"{named} is not there", hint=hint) from None
        return _new_file(named, path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Refused(f"{named}: {why}") from error
    if stat.S_ISDIR(mode):
        return _in_folder(named, path, None)
    if stat.S_ISBLK(mode):
        return _device(named, path)
    if stat.S_ISREG(mode):
        return _file(named, path)
    raise Refused(f"{named} is neither a folder nor a file nor a block device", hint="lsblk")


def _device_path(name: str) -> str:
    """ "sda" is meant as /dev/sda where there is no such file here, and such a device."""
    path = f"/dev/{name}"
    try:
        return path if stat.S_ISBLK(Path(path).stat().st_mode) else name
    except OSError:
        return name


def _new_file(named: str, path: str) -> Target:
    folder = Path(path).parent
    if path.startswith("/dev/") and mount_of("/dev") == mount_of(str(folder) if folder.is_dir() else "/dev"):
        raise Refused(f"{named} is not there", hint="lsblk")
    if not folder.is_dir():
        raise Refused(f"{named} is not there, and neither is its folder", hint=f"ls -ld {folder}")
    return _in_folder(named, str(folder), Path(path).name)


def _in_folder(named: str, folder: str, name: str | None) -> Target:
    mount = mount_of(folder)
    if mount and mount.kind in MEMORY:
        raise Refused(
            f"{named} is in memory ({mount.kind}): that is no drive",
            hint="name a folder on the drive, such as /home",
        )
    room = os.statvfs(folder)
    if room.f_flag & os.ST_RDONLY:
        raise Refused(f"{named} is on a file system that is mounted read-only", hint="name another folder")
    return Target(
        named, TargetKind.FOLDER, folder, free=room.f_bavail * room.f_frsize, name=name,
        logical_block=_logical_block(Path(folder).stat().st_dev), direct=_folder_is_direct(folder),
    )  # fmt: skip


def _folder_is_direct(folder: str) -> bool:
    """Whether a file there can be opened past the page cache. The file has no name and is gone with the descriptor."""
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return error.errno != errno.EINVAL  # others (no O_TMPFILE, no right) say nothing of it
    os.close(descriptor)
    return True


def _file(named: str, path: str) -> Target:
    status = Path(path).stat()
    if not status.st_size:
        raise Refused(f"{named} is empty: there is nothing in it to read", hint="name its folder")
    mount = mount_of(path)
    if mount and mount.kind in MEMORY:
        raise Refused(
            f"{named} is in memory ({mount.kind}): that is no drive", hint="name a file on the drive"
        )
    return Target(
        named, TargetKind.FILE, path, size=status.st_size, logical_block=_logical_block(status.st_dev),
        direct=_opens_directly(named, path),
    )  # fmt: skip


def _device(named: str, path: str) -> Target:
    direct = _opens_directly(named, path)
    with open(path, "rb", buffering=0) as device:  # noqa: PTH123 - seek tells a block device's size
        size = device.seek(0, os.SEEK_END)
    if not size:
        raise Refused(f"{named} has no size: it holds no medium", hint="lsblk")
    block = _logical_block(Path(path).stat().st_rdev)
    return Target(named, TargetKind.DEVICE, path, size=size, logical_block=block, direct=direct)


def _opens_directly(named: str, path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY))
    except OSError as error:
        hint = "type the same after sudo" if isinstance(error, PermissionError) else ""
        raise Refused(f"{named} cannot be opened: {error.strerror}", hint=hint) from error
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _logical_block(number: int) -> int:
    """Of the device with that number; of a number that no device has (btrfs, overlay), what suits every disk."""
    folder = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    for place in (folder, folder.parent):  # a partition has its queue one folder up
        try:
            return int((place / "queue/logical_block_size").read_text())
        except (OSError, ValueError):
            continue
    return 4096


def mount_of(path: str) -> Mount | None:
    """The mount that a path lies on: the last one with the longest mount point above it."""
    real, best = os.path.realpath(path), None
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return None
    for line in lines:
        before, found, after = line.partition(b" - ")
        words, rest = before.split(b" "), after.split(b" ")
        if not found or len(words) < 6 or len(rest) < 3:
            continue
        place = unescape(words[4])
        above = place == "/" or real == place or real.startswith(place + "/")
        if above and (best is None or len(place) >= len(best.place)):
            options = f"{words[5].decode('utf-8', 'replace')},{rest[2].decode('utf-8', 'replace')}"
            best = Mount(
                place,
                rest[0].decode("utf-8", "replace"),
                unescape(rest[1]),
                options,
                words[2].decode("ascii", "replace"),
            )
    return best
