"""Read sysfs, the udev database and mount tables of a running machine or a captured tree."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from string import whitespace

from aligntool.errors import Refused, failing_as
from aligntool.system import unescape
from aligntool.values import dataclass

# The kernel's files: /sys, /proc and /run/udev of this machine, or of another one captured in a folder. A captured
# tree is hostile: its symbolic links may lead out of it, its files may be pipes, devices or endless, and a caller
# that reads an attribute must not depend on it.

# A thousand disks are a hundred thousand attributes: strings and system calls here, no path objects.
# ruff: noqa: PTH208, PTH110, PTH112, PTH115


LONGEST_TEXT = 4096  # a sysfs attribute fills one page at most (Documentation/filesystems/sysfs.rst)
LONGEST_CONTENT = 4 * 1024 * 1024  # mountinfo of a machine with thousands of mounts
DEEPEST = 100  # folders in folders; the longest path of a real sysfs has about forty
MOST_LINKS = 40  # as many as the kernel follows (MAXSYMLINKS)

READ_ONLY = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_CAPTURED = READ_ONLY | os.O_NOFOLLOW
_LONGEST_PATH = 1024  # deeper ones are resolved in a loop, not by recursion
_DOTS = ("", ".", "..")
_PADDING = f"{whitespace}\0"  # tar believes st_size, which is a page, and fills what it could not read with NULs
_SYSFS = ("block", "class/block", "dev/block", "class/nvme", "devices")  # any of these makes a folder a /sys


@contextmanager
def opened(path: str | Path, flags: int = READ_ONLY) -> Iterator[int]:
    """Yield a descriptor of a file or device; it is closed afterwards. Raises OSError."""
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Tree:
    """The root of a machine: `root` is "" for the live machine, otherwise the folder that replaces its "/"."""

    root: str
    _resolved: dict[str, str | None] = field(default_factory=dict, repr=False, compare=False)

    @property
    def live(self) -> bool:
        return not self.root

    def text(self, path: str) -> str | None:
        """Return the stripped content of a short file."""
        descriptor = self._open(path)
        if descriptor is None:
            return None
        try:
            return stripped(os.read(descriptor, LONGEST_TEXT))
        except OSError:  # attributes of a device that is going away, or that this driver does not answer
            return None
        finally:
            os.close(descriptor)

    def number(self, path: str) -> int | None:
        return as_number(self.text(path))

    def content(self, path: str, limit: int = LONGEST_CONTENT) -> bytes | None:
        """Return the bytes of a file that may be long or binary, up to `limit`."""
        descriptor = self._open(path)
        if descriptor is None:
            return None
        pieces, wanted = [], limit
        try:
            while wanted > 0 and (piece := os.read(descriptor, min(wanted, 65536))):
                pieces.append(piece)
                wanted -= len(piece)
                if len(piece) < 65536 and not self.live:  # only /proc gives less than it has
                    break
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return b"".join(pieces)

    def open(self, path: str) -> int | None:
        """Return a descriptor for reading a regular file, which the caller closes; None: not there, or not
        permitted.
        """
        descriptor = self._open(path)
        if descriptor is not None and not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None
        return descriptor

    def names(self, path: str) -> list[str]:
        place = path if self.live else self._host(path, stat.S_IFDIR)
        try:
            return sorted(os.listdir(place)) if place is not None else []
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(path) if self.live else self._lookup(path) is not None

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path) if self.live else self._host(path, stat.S_IFDIR) is not None

    def link(self, path: str) -> str | None:
        """Return the target of a symbolic link, unresolved: its last word names a driver, a subsystem."""
        folder, _, name = path.rpartition("/")
        above = folder if self.live else self._lookup(folder)
        try:
            return None if above is None or name in _DOTS else os.readlink(f"{self.root}{above}/{name}")
        except OSError:
            return None

    def real(self, path: str) -> str | None:
        """Return the path without symbolic links, as the machine would resolve it; None when nothing is there."""
        if not self.live:
            return self._lookup(path)
        return os.path.realpath(path) if os.path.exists(path) else None

    def _open(self, path: str) -> int | None:
        try:
            if self.live:
                return os.open(path, READ_ONLY)
            place = self._host(path)
            return None if place is None else os.open(place, _CAPTURED)
        except (OSError, ValueError):
            return None

    def _host(self, path: str, kind: int = stat.S_IFREG) -> str | None:
        """Return where something of the captured machine is on this one, with no symbolic link left in its path.

        None when it is not of that kind: opening a pipe or a device node that lies in a captured tree could do
        something.
        """
        folder, _, name = path.rpartition("/")
        above = self._resolved.get(folder, "") or self._lookup(folder)
        if above is None or name in _DOTS:
            return None
        place = f"{self.root}{above}/{name}"
        try:
            found = stat.S_IFMT(os.lstat(place).st_mode)
            if found == stat.S_IFLNK:
                inside = self._lookup(path)
                if inside is None:
                    return None
                place = self.root + inside
                found = stat.S_IFMT(os.lstat(place).st_mode)
        except (OSError, ValueError):
            return None
        return place if found == kind else None

    def _lookup(self, path: str) -> str | None:
        """Resolve a path as if the root were the machine's "/": ".." stops there, absolute links start there."""
        known = self._resolved
        if path in known:
            return known[path]
        folder, _, name = path.rpartition("/")
        if name in _DOTS or len(path) > _LONGEST_PATH:
            found = self._walk("", path)
        else:  # siblings share the work of their folder
            above = self._lookup(folder) if folder else ""
            found = None if above is None else self._walk(above, name)
        known[path] = found
        if found is not None:
            known[found] = found
        return found

    def _walk(self, here: str, path: str) -> str | None:
        todo, links = path.split("/")[::-1], 0
        while todo:
            word = todo.pop()
            if word in ("", "."):
                continue
            if word == "..":
                here = here.rpartition("/")[0]
                continue
            target = _link_target(f"{self.root}{here}/{word}")
            if target is None:
                return None
            if target == "":
                here = f"{here}/{word}"
                if here.count("/") > DEEPEST:  # every folder above is asked for something, and each is looked up
                    return None
                continue
            links += 1
            if links > MOST_LINKS:
                return None
            here = "" if target.startswith("/") else here
            todo.extend(target.split("/")[::-1])
        return here


LIVE = Tree("")
POWER = "/sys/class/power_supply"


def on_battery(power: str = POWER) -> bool:
    """Return whether a battery of the machine is discharging without mains power.

    Documentation/ABI/testing/sysfs-class-power. Batteries of mice and pens have the scope "Device".
    """
    folders = [f"{power}/{name}" for name in LIVE.names(power)]
    found = [
        (LIVE.text(f"{each}/type"), LIVE.text(f"{each}/online"), LIVE.text(f"{each}/status"))
        for each in folders
        if LIVE.text(f"{each}/scope") != "Device"
    ]
    mains = any(kind != "Battery" and online == "1" for kind, online, _ in found)
    return not mains and any(kind == "Battery" and status == "Discharging" for kind, _, status in found)


def _link_target(place: str) -> str | None:
    """Return the target of a symbolic link; "" when it is not a link; None when nothing is there."""
    try:
        return os.readlink(place) if stat.S_ISLNK(os.lstat(place).st_mode) else ""
    except (OSError, ValueError):
        return None


def stripped(content: bytes) -> str:
    """Return the text of an attribute without the white space and the padding around it."""
    return content.decode("utf-8", "replace").strip(_PADDING)


def as_number(text: str | None) -> int | None:
    """Return a decimal number as the kernel prints it; None for anything else, however long."""
    if text is None or not 0 < len(text) <= 20:
        return None
    digits = text[1:] if text[0] == "-" else text
    return int(text) if digits.isascii() and digits.isdigit() else None


def captured_tree(folder: str) -> Tree:
    """Return the tree in a folder that the user names; accepts the folder above it and the `sys` inside it.

    Raises Refused when there is no sysfs.
    """
    place = Path(folder).absolute()
    if place.name == "..":
        place = place.resolve()
    if not place.is_dir():
        raise Refused(f"{folder} is not a folder", hint="give the folder that holds the captured sys/")
    if _has_sysfs(f"{place}/sys"):
        return _tree_at(place)
    if place.name == "sys" and _has_sysfs(str(place)):
        return _tree_at(place.parent)
    with failing_as(Refused, f"{folder} cannot be read"):
        inside = [below for below in sorted(place.iterdir()) if _has_sysfs(f"{below}/sys")]
    if len(inside) == 1:
        return _tree_at(inside[0])
    if inside:
        names = ", ".join(below.name for below in inside[:8])
        raise Refused(f"{folder} holds several captured machines: {names}", hint=f"--sysroot {inside[0]}")
    hint = "capture a machine with: aligntool snapshot -o FILE.tar.xz"
    raise Refused(f"{folder} holds no captured sys/ folder", hint=hint)


def _tree_at(place: Path) -> Tree:
    return Tree(str(place) if str(place) != "/" else "/.")  # "" would be the live machine


def _has_sysfs(place: str) -> bool:
    return any(os.path.isdir(f"{place}/{name}") for name in _SYSFS)


# Where devices are mounted or swapped to. The words of /proc/self/mountinfo are escaped (a space is \040), and file
# systems of several devices have a number there that no device has.

SWAP = "[SWAP]"  # as lsblk writes it
MOUNTS, SWAPS = "/proc/self/mountinfo", "/proc/swaps"
DISKSTATS, UPTIME = "/proc/diskstats", "/proc/uptime"


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system."""

    place: str
    kind: str
    source: str
    options: str  # of the mount and of the file system
    number: str  # "8:1"; of btrfs and its like one that no device has


@dataclass(frozen=True, slots=True)
class Mounts:
    """The mount points of devices, by number and by node: btrfs, ZFS and overlay have anonymous numbers."""

    places: Mapping[str, list[str]]

    def of(self, number: str | None, *nodes: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(place for key in (number or "", *nodes) for place in self.places.get(key, ())))


def read_mounts(tree: Tree) -> Mounts:
    places: dict[str, list[str]] = {}
    for mount in parse_mounts(tree.content(MOUNTS) or b""):
        places.setdefault(mount.number, []).append(mount.place)
        if mount.source.startswith("/dev/"):
            places.setdefault(mount.source, []).append(mount.place)
    for node in parse_swaps(tree.content(SWAPS) or b""):
        if node.startswith("/dev/"):
            places.setdefault(node, []).append(SWAP)
    return Mounts(places)


def mounts_now() -> Iterator[Mount]:
    """Yield what is mounted in this process's namespace. Raises OSError."""
    return parse_mounts(Path(MOUNTS).read_bytes())


def parse_mounts(content: bytes) -> Iterator[Mount]:
    """Yield the lines of proc_pid_mountinfo(5), "36 35 98:0 /root /place rw,noatime master:1 - ext3 /dev/root rw"."""
    for line in content.split(b"\n"):
        before, found, after = line.partition(b" - ")
        words, rest = before.split(b" "), after.split(b" ")
        if found and len(words) >= 6 and len(rest) >= 3:
            number, options = words[2].decode("ascii", "replace"), b",".join((words[5], rest[2]))
            kind = rest[0].decode("utf-8", "replace")
            yield Mount(unescape(words[4]), kind, unescape(rest[1]), options.decode("utf-8", "replace"), number)


def parse_swaps(content: bytes) -> Iterator[str]:
    """Yield the devices and files of proc_swaps(5)."""
    yield from (unescape(words[0]) for line in content.split(b"\n")[1:] if len(words := line.split()) >= 2)


# How much was written to each device since the machine started: Documentation/admin-guide/iostats.rst, field 7 behind
# the three that name the device, in sectors of 512 bytes on every device; proc_uptime(5).

_WRITTEN, _STATS_SECTOR = 9, 512


def read_written(tree: Tree) -> dict[str, float]:
    """Return the bytes a second that were written to each disk and partition, by its kernel name, on average since the
    start; empty where the kernel's counters, or the time, are not there.
    """
    seconds = re.match(rb"\d{1,12}(\.\d{1,9})?(?= )", tree.content(UPTIME, 64) or b"")
    if seconds is None or float(seconds[0]) <= 0:
        return {}
    rows = (line.split() for line in (tree.content(DISKSTATS) or b"").splitlines())
    counted = {row[2]: row[_WRITTEN] for row in rows if len(row) > _WRITTEN and row[_WRITTEN][:20].isdigit()}
    return {name.decode("utf-8", "replace"): int(count[:20]) * _STATS_SECTOR / float(seconds[0])
            for name, count in counted.items()}  # fmt: skip


# The udev database: what its rules and blkid found out about a device, kept for everybody to read. Two forms of it
# exist in captured trees (/run/udev/data as the daemon keeps it, /dev/NAME as util-linux's `mk-input.sh` captures it
# for `lsblk --sysroot`), and udev escapes strings in its own way.

LONGEST_RECORD = 256 * 1024  # thousands of links; the daemon itself keeps them in one small file
_HEX = re.compile(rb"\\x([0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True)
class Record:
    """udev's properties of one device."""

    properties: Mapping[str, str]
    links: tuple[str, ...] = ()  # below /dev: "disk/by-id/wwn-0x5000..."

    def get(self, key: str) -> str | None:
        return self.properties.get(key) or None

    def decoded(self, key: str) -> str | None:
        """Return a property whose name ends in _ENC, or which blkid encodes the same way (ID_PART_ENTRY_NAME)."""
        value = self.properties.get(key)
        return None if value is None else unescape_udev(value).strip() or None

    def number(self, key: str) -> int | None:
        value = self.properties.get(key, "")
        return int(value) if 0 < len(value) <= 20 and value.isascii() and value.isdigit() else None


NOTHING = Record({})


class UdevDatabase:
    """udev's records, live or captured. That they exist is checked once: most captured trees lack them.

    The files in /dev of a live machine are devices, and nothing here opens one.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.has_records = tree.is_directory("/run/udev/data")
        self.has_files = not tree.live and tree.is_directory("/dev")  # captured for `lsblk --sysroot`

    def record(self, number: str | None, name: str) -> Record:
        """Return the record by device number ("8:1"), otherwise by kernel name."""
        if self.has_records and number:
            content = self.tree.content(f"/run/udev/data/b{number}", LONGEST_RECORD)
            if content is not None:
                return parse_record(content)
        content = self.tree.content(f"/dev/{name}", LONGEST_RECORD) if self.has_files else None
        return NOTHING if content is None else parse_dump(content)


def parse_record(content: bytes) -> Record:
    """Return the record of lines "E:KEY=value" and "S:link" (systemd, src/libsystemd/sd-device/device-private.c)."""
    lines = content.decode("utf-8", "replace").split("\n")
    properties = _values(line[2:] for line in lines if line.startswith("E:"))
    return Record(properties, tuple(line[2:] for line in lines if line.startswith("S:")))


def parse_dump(content: bytes) -> Record:
    """Return the record of lines "KEY=value", as `udevadm info --query=property` prints them; links are in DEVLINKS."""
    properties = _values(content.decode("utf-8", "replace").split("\n"))
    links = properties.get("DEVLINKS", "").split()
    return Record(properties, tuple(link.removeprefix("/dev/") for link in links))


def _values(lines: Iterable[str]) -> dict[str, str]:
    return {key: value for key, found, value in (line.partition("=") for line in lines) if found}


def unescape_udev(text: str) -> str:
    r"""Turn udev's "\x20" back into bytes, and the bytes into text; anything that is not such an escape stays."""
    raw = text.encode("utf-8", "replace")
    return _HEX.sub(lambda found: bytes.fromhex(found[1].decode()), raw).decode("utf-8", "replace")
