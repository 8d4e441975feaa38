r"""Who uses a disk: mounts, swap, what is stacked on it, loop devices over it.

In: the status of a block device or image file. Out: a sentence each, with the command that ends the use. Alone because
the kernel says only "busy" (EBUSY), and of a loop device over a disk or file not even that.
"""

import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aligntool.audit.words import shell_word
from aligntool.inventory.loop_config import GET_STATUS, STATUS_SIZE, is_own

_PATIENCE_S = 10.0  # a program that a killed aligntool left ends by itself, most of them at once
_PAUSE_S = 0.05
_ESCAPE = re.compile(r"\\([0-7]{3})")  # \040 for a space: fs/proc_namespace.c, mangle


@dataclass(frozen=True, slots=True)
class Occupant:
    what: str  # "sda1 is mounted at /srv"
    end: str  # the command that ends it, or shows who it is
    passing: bool = False  # a program of aligntool's own, which ends by itself


def occupants(status: os.stat_result) -> tuple[Occupant, ...]:
    """Of a whole disk and of each of its partitions; of a partition and of its disk as a whole, but of no other
    partition; of an image file, the loop devices over it.
    """
    if not stat.S_ISBLK(status.st_mode):
        return tuple(loops_over(status))
    nodes = nodes_of(status)
    return tuple(dict.fromkeys([*_mounts(nodes), *_swaps(nodes), *_holders(nodes), *loops_over(status)]))


def lasting_occupants(status: os.stat_result) -> tuple[Occupant, ...]:
    """Return what `occupants` finds once the programs have ended that an aligntool which was killed had started, or
    after some seconds with those that still run.
    """
    deadline = time.monotonic() + _PATIENCE_S
    found = occupants(status)
    while found and all(one.passing for one in found) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        found = occupants(status)
    return found


def loops_over(status: os.stat_result) -> Iterator[Occupant]:
    """Loop devices over the same bytes, which no exclusive opening notices."""
    if not stat.S_ISBLK(status.st_mode):
        yield from _loops({(status.st_dev, status.st_ino): "the file"})
    else:
        yield from _loops({(0, number): name for number, name in nodes_of(status).items()})


def nodes_of(status: os.stat_result) -> dict[int, str]:
    """Kernel names, by device number, of everything that shows bytes of a block device."""
    folder = sysfs_folder(status.st_rdev)
    nodes = _nodes(status.st_rdev)
    if (folder / "partition").exists():
        nodes[_number((folder.parent / "dev").read_text())] = kernel_name(folder.parent)
    return nodes


def sysfs_folder(device: int) -> Path:
    """Of a block device by its number; Documentation/ABI/testing/sysfs-dev."""
    return Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()


def kernel_name(folder: Path) -> str:
    """sysfs writes cciss!c0d0 for /dev/cciss/c0d0."""
    return folder.name.replace("!", "/")


def _nodes(device: int) -> dict[int, str]:
    """The names of a disk and of its partitions by device number."""
    folder = sysfs_folder(device)
    parts = [file.parent for file in sorted(folder.glob("*/partition"))]
    return {device: kernel_name(folder)} | {
        _number((part / "dev").read_text()): kernel_name(part) for part in parts
    }


def _number(text: str) -> int:
    major, _, minor = text.strip().partition(":")
    return os.makedev(int(major), int(minor))


def _mounts(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    """proc_pid_mountinfo(5): "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw".

    The source is looked at as well as the number: a btrfs has a number that no device has.
    """
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        words, _, rest = line.partition(" - ")
        number, place = _number(words.split()[2]), _plain(words.split()[4])
        source = _plain(rest.split()[1])
        name = nodes.get(number) or nodes.get(_device_number(source))
        if name:
            yield Occupant(f"{name} is mounted at {place}", f"sudo umount {shell_word(place)}")


def _swaps(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    for line in Path("/proc/swaps").read_text(errors="surrogateescape").splitlines()[1:]:
        path = _plain(line.split()[0])
        name = nodes.get(_device_number(path))
        if name:
            yield Occupant(f"{name} is used as swap", f"sudo swapoff {shell_word(path)}")


def _holders(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    for number, name in nodes.items():
        for holder in sorted((sysfs_folder(number) / "holders").glob("*")):
            above = kernel_name(holder)
            if (holder / "md").is_dir():
                yield Occupant(f"the array {above} stands on {name}", f"sudo mdadm --stop /dev/{above}")
            elif (holder / "dm/name").is_file():
                mapping = (holder / "dm/name").read_text().strip()
                yield Occupant(
                    f"the mapping {mapping} ({above}) stands on {name}",
                    f"sudo dmsetup remove {shell_word(mapping)}",
                )
            else:
                yield Occupant(f"{above} stands on {name}", f"lsblk /dev/{name}")


def _loops(targets: Mapping[tuple[int, int], str]) -> Iterator[Occupant]:
    """Loop devices over one of the targets, which are known by `_identity`."""
    for file in sorted(Path("/sys/block").glob("loop*/loop/backing_file")):
        try:
            status = Path(file.read_text(errors="surrogateescape").rstrip("\n")).stat()
        except OSError:  # detached meanwhile, deleted, or in another mount namespace
            continue
        name = targets.get(_identity(status))
        if name:
            loop = f"/dev/{file.parent.parent.name}"
            if _is_own(loop):
                what = f"a program that aligntool started works on {name} through {loop} and ends by itself"
                yield Occupant(what, f"sudo fuser -v {loop}", passing=True)
            else:
                yield Occupant(f"{name} is attached to {loop}", f"sudo losetup -d {loop}")


def _is_own(loop: str) -> bool:
    try:
        descriptor = os.open(loop, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return is_own(fcntl.ioctl(descriptor, GET_STATUS, bytes(STATUS_SIZE)))
        finally:
            os.close(descriptor)  # the last close detaches it
    except OSError:  # not root, or detached meanwhile
        return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    """A block device by its number, whatever its node is called; a file by its place."""
    return (0, status.st_rdev) if stat.S_ISBLK(status.st_mode) else (status.st_dev, status.st_ino)


def _device_number(path: str) -> int:
    """-1 where the path is no block device: "tmpfs", "nfs:/srv", a swap file."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return -1
    return status.st_rdev if stat.S_ISBLK(status.st_mode) else -1


def _plain(word: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), word)
