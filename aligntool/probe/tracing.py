"""Whether what a disk is asked can be recorded here: root, the kernel's part, blktrace.

In: a device as it was typed. Out: a Traceable, or one Refused with every reason at once. Alone because each part that
can be missing is somebody else's to add: the user's, the package's, the kernel's.

The folder `trace` of a block device in sysfs is there where the kernel has CONFIG_BLK_DEV_IO_TRACE
(kernel/trace/blktrace.c, blk_trace_attr_group); the events come through debugfs.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aligntool.audit.words import shell_word
from aligntool.errors import Objection, Refused, refuse
from aligntool.probe.bench_targets import mount_of
from aligntool.probe.mounts import unescape
from aligntool.probe.programs import find_program

_DEBUGFS = "/sys/kernel/debug"
_MOST_BELOW = 64  # disks of an array, volumes of volumes


@dataclass(frozen=True, slots=True)
class Traceable:
    """A device that can be traced."""

    path: str
    name: str  # the kernel's: "nvme0n1", "sda1"
    debugfs: str  # where it is mounted


def find_traceable(named: str) -> Traceable:
    """Raises Refused with all that is missing."""
    path = named if "/" in named or Path(named).exists() else f"/dev/{named}"
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        raise Refused(f"{named}: {getattr(error, 'strerror', None) or error}", hint="lsblk") from error
    if not stat.S_ISBLK(status.st_mode):
        hint = f"sudo losetup -f --show {shell_word(path)}" if stat.S_ISREG(status.st_mode) else "lsblk"
        raise Refused(f"{named} is no block device, and the kernel traces nothing else", hint=hint)
    folder = _folder(status.st_rdev)
    debugfs = _debugfs()
    refuse(_missing(folder, debugfs))
    return Traceable(path, folder.name.replace("!", "/"), debugfs or _DEBUGFS)


def _missing(folder: Path, debugfs: str | None) -> Iterator[Objection]:
    """What, and what to type next."""
    if os.geteuid() != 0:
        yield "only root may trace a disk", "type the same after sudo"
    lacking = [name for name in ("blktrace", "blkparse") if find_program(name) is None]
    if lacking:
        yield f"not installed: {', '.join(lacking)}", "install the package blktrace"
    if not (folder / "trace").is_dir():
        yield (
            f"this kernel cannot trace {folder.name}: it was built without CONFIG_BLK_DEV_IO_TRACE",
            "take the kernel of a distribution, or record on another machine",
        )
    if _is_traced(folder):  # blktrace would fail, and end that trace as it goes
        yield (
            f"{folder.name} is being traced already",
            f"if nobody needs that trace: sudo blktrace -k -d {shell_word(f'/dev/{folder.name}')}",
        )
    if debugfs is None:
        yield (
            "debugfs is not mounted, and events come through it",
            f"sudo mount -t debugfs debugfs {_DEBUGFS}",
        )


def _is_traced(folder: Path) -> bool:
    try:
        return (folder / "trace/enable").read_text().strip() != "0"
    except OSError:  # not there, or for root only: that is said by itself
        return False


def _debugfs() -> str | None:
    """Where it is mounted; the usual place first."""
    found = []
    for line in Path("/proc/self/mounts").read_bytes().splitlines():
        words = line.split(b" ")
        if len(words) > 2 and words[2] == b"debugfs":
            found.append(unescape(words[1]))
    return _DEBUGFS if _DEBUGFS in found else next(iter(found), None)


def lies_on(path: str, traced: Traceable) -> bool:
    """Whether what is written at this path ends up on the disk that is traced; False too where nobody can say."""
    mount = mount_of(path)
    numbers = [Path(path).stat().st_dev]
    if mount is not None and Path(mount.source).is_block_device():  # btrfs shows a number that no device has
        numbers.append(Path(mount.source).stat().st_rdev)
    ours = _disk(_folder(Path(traced.path).stat().st_rdev))
    return any(ours.name in _below(_folder(number)) for number in numbers)


def _below(folder: Path) -> set[str]:
    """The names of a device's disk and of all that it stands on: members, volumes, the file behind a loop device."""
    found: set[str] = set()
    left = [folder]
    while left and len(found) < _MOST_BELOW:
        each = left.pop()
        disk = _disk(each)
        if not each.exists() or disk.name in found:
            continue
        found.add(disk.name)
        left += [slave.resolve() for slave in disk.glob("slaves/*")]
        backing = disk / "loop/backing_file"
        if backing.exists() and (file := Path(backing.read_text().strip())).exists():
            left.append(_folder(file.stat().st_dev))
    return found


def _disk(folder: Path) -> Path:
    """The whole disk's folder, of a partition's."""
    return folder.parent if (folder / "partition").exists() else folder


def _folder(number: int) -> Path:
    return Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
