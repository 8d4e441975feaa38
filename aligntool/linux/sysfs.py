"""Read sysfs, the udev database and mount tables of a running machine or a captured tree."""

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from aligntool.commands import shell_word, typed
from aligntool.errors import Refused, failing_as
from aligntool.linux.held import open_held
from aligntool.system import unescape
from aligntool.units import first_of

# The kernel's files: /sys, /proc and /run/udev of this machine, or of another one captured in a folder. A
# captured tree is hostile: its symbolic links may lead out of it, its files may be pipes, devices or endless.
# `Tree` shields its callers from that.

# A thousand disks have a hundred thousand attributes: this uses strings and system calls, no path objects.
# ruff: noqa: PTH208, PTH110, PTH112, PTH115


LONGEST_TEXT = 4096  # a sysfs attribute fills one page at most (Documentation/filesystems/sysfs.rst)
LONGEST_CONTENT = 4 * 1024 * 1024  # mountinfo of a machine with thousands of mounts
DEEPEST = 100  # nested folders; the longest path of a real sysfs has about forty
MOST_LINKS = 40  # as many as the kernel follows (MAXSYMLINKS)

READ_ONLY = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
# _IO() of <asm/ioctl.h>, the number of an ioctl without its direction and size: here "no data" is a bit of
# its own.
IO_NONE = 1 << 29 if os.uname().machine.startswith(("ppc", "mips", "sparc", "alpha")) else 0
_OPEN_CAPTURED = READ_ONLY | os.O_NOFOLLOW
_LONGEST_PATH = 1024  # deeper ones are resolved in a loop, not by recursion
_DOTS = ("", ".", "..")
# tar takes st_size, which is a page, for the length, and pads the content with NULs
_PADDING = " \t\n\r\v\f\0"
# A name in a captured sysfs, if a shell takes it as it is: it is printed in commands to copy.
_NAME = r"(?a)[A-Za-z0-9_.:!@%+,=~#^-]+"
_SYSFS = ("block", "class/block", "dev/block", "class/nvme", "devices")  # any of these makes a folder a /sys


@contextmanager
def opened(path: str | Path, flags: int = READ_ONLY) -> Iterator[int]:
    """Yield a descriptor of a file or device, and close it afterwards. Raises OSError, and Refused as
    `open_held`.
    """
    descriptor = open_held(str(path), flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


_GIVEN = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")


def opened_document(name: str, buffering: int = -1) -> BinaryIO:
    """Open a file that the user named: a regular file, or a pipe that this process was given (/dev/stdin,
    `<(...)`). Anything else, such as a FIFO that nothing writes to, may wait forever. Raises OSError.
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind) or (not stat.S_ISDIR(kind) and name.startswith(_GIVEN)):
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb", buffering)
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "not a regular file; a pipe can be given as /dev/stdin")


def live_paths(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the paths below a folder of /proc or /sys that match a pattern, sorted. `Path.glob` fails if one
    of its folders vanishes during the search, as when an unrelated process ends; here only that one is left
    out.
    """
    first, _, rest = pattern.partition("/")
    names: list[str] = []
    with suppress(OSError):
        names = sorted(fnmatch.filter(os.listdir(folder), first))
    for name in names:
        if rest:
            yield from live_paths(folder / name, rest)
        else:
            yield folder / name


def leased(path: str) -> Refused:
    """Return the refusal of a file that cannot be opened with O_NONBLOCK (EWOULDBLOCK): another program, such
    as an aligntool that has begun to change it, has a lease on it (open(2)).
    """
    text = f"{path} is being changed by another program"
    return Refused(text, hint=typed("fuser -v", path), code="in-use", subject=path)


@dataclass(frozen=True, slots=True)
class Tree:
    """The root of a machine: `root` is "" for the live machine, otherwise the folder that replaces its
    "/".
    """

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
        except OSError:  # the device is being removed, or its driver does not support the attribute
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
        pieces = []
        left = limit
        try:
            while left > 0 and (piece := os.read(descriptor, min(left, 65536))):
                pieces.append(piece)
                left -= len(piece)
                # only /proc returns less than requested before the end
                if len(piece) < 65536 and not self.live:
                    break
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return b"".join(pieces)

    def open(self, path: str) -> int | None:
        """Return a descriptor for reading a regular file, which the caller closes, or None if it does not
        exist or may not be read.
        """
        descriptor = self._open(path)
        if descriptor is not None and not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None
        return descriptor

    def names(self, path: str) -> list[str]:
        place = path if self.live else self._host_path(path, stat.S_IFDIR)
        try:
            names = sorted(os.listdir(place)) if place is not None else []
        except OSError:
            return []
        return [name for name in names if self.live or _is_name(path, name)]

    def exists(self, path: str) -> bool:
        return os.path.exists(path) if self.live else self._lookup(path) is not None

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path) if self.live else self._host_path(path, stat.S_IFDIR) is not None

    def link(self, path: str) -> str | None:
        """Return the target of a symbolic link, unresolved: its last component names a driver or a
        subsystem.
        """
        folder, _, name = path.rpartition("/")
        above = folder if self.live else self._lookup(folder)
        try:
            return None if above is None or name in _DOTS else os.readlink(f"{self.root}{above}/{name}")
        except OSError:
            return None

    def real(self, path: str) -> str | None:
        """Return the path without symbolic links, as the machine would resolve it, or None if it does not
        exist.
        """
        if not self.live:
            return self._lookup(path)
        return os.path.realpath(path) if os.path.exists(path) else None

    def _open(self, path: str) -> int | None:
        try:
            if self.live:
                return os.open(path, READ_ONLY)
            place = self._host_path(path)
            return None if place is None else os.open(place, _OPEN_CAPTURED)
        except (OSError, ValueError):
            return None

    def _host_path(self, path: str, kind: int = stat.S_IFREG) -> str | None:
        """Return the path on this machine of a captured file or folder, without symbolic links.

        None if it is not of that kind: opening a pipe or a device node in a captured tree could have side
        effects.
        """
        folder, _, name = path.rpartition("/")
        above = self._resolved.get(folder, "") or self._lookup(folder)
        if above is None or name in _DOTS or not _is_name(above, name):
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
        """Resolve a path as if the root were the machine's "/": ".." ends there, absolute links begin
        there.
        """
        cache = self._resolved
        if path in cache:
            return cache[path]
        folder, _, name = path.rpartition("/")
        if name in _DOTS or len(path) > _LONGEST_PATH:
            found = self._walk("", path)
        else:  # siblings share the work of their folder
            parent = self._lookup(folder) if folder else ""
            found = None if parent is None else self._walk(parent, name)
        cache[path] = found
        if found is not None:
            cache[found] = found
        return found

    def _walk(self, resolved: str, path: str) -> str | None:
        pending = path.split("/")[::-1]
        links = 0
        while pending:
            name = pending.pop()
            if name in ("", "."):
                continue
            if name == "..":
                resolved = resolved.rpartition("/")[0]
                continue
            if not _is_name(resolved, name):
                return None
            target = _link_target(f"{self.root}{resolved}/{name}")
            if target is None:
                return None
            if target == "":
                resolved = f"{resolved}/{name}"
                if resolved.count("/") > DEEPEST:  # attributes of all parent folders are looked up
                    return None
                continue
            links += 1
            if links > MOST_LINKS:
                return None
            resolved = "" if target.startswith("/") else resolved
            pending.extend(target.split("/")[::-1])
        return resolved


def refuse_unmounted(tree: Tree) -> None:
    """Raise Refused if the /sys of this machine is not mounted, as in a chroot: it would seem to have no
    disks.
    """
    if tree.live and not tree.exists("/sys/devices"):
        text = "/sys is not mounted, so the disks of this machine are not known"
        raise Refused(text, hint=typed("mount -t sysfs sysfs /sys"))


LIVE = Tree("")
POWER = "/sys/class/power_supply"


def on_battery(power: str = POWER) -> bool:
    """Return whether a battery of the machine is discharging without mains power.

    Documentation/ABI/testing/sysfs-class-power. Batteries of mice and pens have the scope "Device".
    """
    folders = [f"{power}/{name}" for name in LIVE.names(power)]
    found = [
        (LIVE.text(f"{folder}/type"), LIVE.text(f"{folder}/online"), LIVE.text(f"{folder}/status"))
        for folder in folders
        if LIVE.text(f"{folder}/scope") != "Device"
    ]
    mains = any(kind != "Battery" and online == "1" for kind, online, _ in found)
    return not mains and any(kind == "Battery" and status == "Discharging" for kind, _, status in found)


def _is_name(folder: str, name: str) -> bool:
    """Return whether an entry of a captured folder has a name that the kernel could have given it."""
    return not f"{folder}/".startswith("/sys/") or re.fullmatch(_NAME, name) is not None


def _link_target(place: str) -> str | None:
    """Return the target of a symbolic link, "" if the path is not a link, or None if it does not exist."""
    try:
        return os.readlink(place) if stat.S_ISLNK(os.lstat(place).st_mode) else ""
    except (OSError, ValueError):
        return None


def stripped(content: bytes) -> str:
    """Return the text of an attribute without surrounding white space and padding."""
    return content.decode("utf-8", "replace").strip(_PADDING)


def as_number(text: str | None) -> int | None:
    """Parse a decimal number as the kernel prints it; return None for anything else, of any length."""
    if text is None or not 0 < len(text) <= 20:
        return None
    digits = text[1:] if text[0] == "-" else text
    return int(text) if digits.isascii() and digits.isdigit() else None


def captured_tree(folder: str, *, archive: str = "") -> Tree:
    """Return the captured tree in a folder; accept also its parent folder and the `sys` in it. `archive`: the
    file that was unpacked into the folder.

    Raises Refused if there is no sysfs.
    """
    place = Path(folder).absolute()
    if place.name == "..":
        place = place.resolve()
    with failing_as(Refused, folder):
        found = place.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise Refused(f"{folder} is not a folder", hint="give the folder that holds the captured sys/")
    if _has_sysfs(f"{place}/sys"):
        return _tree_of_folder(place)
    if place.name == "sys" and _has_sysfs(str(place)):
        return _tree_of_folder(place.parent)
    with failing_as(Refused, f"{folder} cannot be read"):
        captures = [child for child in sorted(place.iterdir()) if _has_sysfs(f"{child}/sys")]
    if len(captures) == 1:
        return _tree_of_folder(captures[0])
    if captures:
        names = first_of([child.name for child in captures], 8)
        hint = "" if archive else f"--sysroot {shell_word(str(captures[0]))}"
        raise Refused(f"{archive or folder} holds several captured machines: {names}", hint=hint)
    hint = "capture a machine with: aligntool snapshot -o snapshot.tar.xz"
    raise Refused(f"{archive or folder} is not a snapshot: it has no sys/ folder", hint=hint)


def _tree_of_folder(place: Path) -> Tree:
    return Tree(str(place) if str(place) != "/" else "/.")  # "" would be the live machine


def _has_sysfs(place: str) -> bool:
    return any(os.path.isdir(f"{place}/{name}") for name in _SYSFS)


# Mounts and swap. The fields of /proc/self/mountinfo are escaped (a space is \040), and file systems on
# several devices have a number there that is not the number of a device.

SWAP = "[SWAP]"  # as lsblk writes it
MOUNTS = "/proc/self/mountinfo"
SWAPS = "/proc/swaps"
DISKSTATS = "/proc/diskstats"
UPTIME = "/proc/uptime"


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system."""

    place: str
    kind: str
    source: str
    options: str  # of the mount and of the file system
    number: str  # "8:1"; for btrfs and the like, not the number of a device


@dataclass(frozen=True, slots=True)
class Mounts:
    """The mount points of devices, by number and by node: btrfs, ZFS and overlay have anonymous numbers."""

    places: Mapping[str, list[str]]

    def of(self, number: str | None, *nodes: str) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(place for key in (number or "", *nodes) for place in self.places.get(key, ()))
        )


def read_mounts(tree: Tree) -> Mounts:
    places: dict[str, list[str]] = {}
    mounts = tuple(parse_mounts(tree.content(MOUNTS) or b""))
    shared = tuple(_btrfs_nodes(tree)) if any(mount.kind == "btrfs" for mount in mounts) else ()
    for mount in mounts:
        nodes = {mount.source} if mount.source.startswith("/dev/") else set()
        nodes |= next(
            (others for others in shared if mount.kind == "btrfs" and mount.source in others), set()
        )
        for key in (mount.number, *nodes):
            places.setdefault(key, []).append(mount.place)
    for node in parse_swaps(tree.content(SWAPS) or b""):
        if node.startswith("/dev/"):
            places.setdefault(node, []).append(SWAP)
    return Mounts(places)


def _btrfs_nodes(tree: Tree) -> Iterator[set[str]]:
    """Yield the nodes of each mounted btrfs, of whose devices its mount names only one:
    linux/fs/btrfs/sysfs.c.
    """
    for one in tree.names("/sys/fs/btrfs"):
        names = tree.names(f"/sys/fs/btrfs/{one}/devices")
        mapped = filter(None, (tree.text(f"/sys/block/{name}/dm/name") for name in names))
        yield {
            *(f"/dev/{name.replace('!', '/')}" for name in names),
            *(f"/dev/mapper/{name}" for name in mapped),
        }


def mounts_now() -> Iterator[Mount]:
    """Yield the mounts in the namespace of this process. Raises OSError."""
    return parse_mounts(Path(MOUNTS).read_bytes())


def parse_mounts(content: bytes) -> Iterator[Mount]:
    """Parse proc_pid_mountinfo(5): "36 35 98:0 /root /place rw,noatime master:1 - ext3 /dev/root rw"."""
    for line in content.split(b"\n"):
        before, found, after = line.partition(b" - ")
        words = before.split(b" ")
        rest = after.split(b" ")
        if found and len(words) >= 6 and len(rest) >= 3:
            number = words[2].decode("ascii", "replace")
            options = b",".join((words[5], rest[2]))
            kind = rest[0].decode("utf-8", "replace")
            yield Mount(
                unescape(words[4]), kind, unescape(rest[1]), options.decode("utf-8", "replace"), number
            )


def swaps_now() -> Iterator[str]:
    """Yield the devices and files that are swap, also for a kernel without swap, which has no list of
    them.
    """
    with suppress(FileNotFoundError):
        yield from parse_swaps(Path(SWAPS).read_bytes())


def parse_swaps(content: bytes) -> Iterator[str]:
    """Yield the devices and files in proc_swaps(5)."""
    yield from (unescape(words[0]) for line in content.split(b"\n")[1:] if len(words := line.split()) >= 2)


# The bytes written to each device since boot: Documentation/admin-guide/iostats.rst, field 7 after the three
# that identify the device, in sectors of 512 bytes on every device; proc_uptime(5).

_WRITTEN = 9
_STATS_SECTOR = 512


def read_written(tree: Tree) -> dict[str, float]:
    """Return the average write rate of each disk and partition since boot, in bytes a second by kernel name;
    {} if the kernel's counters or the uptime are missing.
    """
    seconds = re.match(rb"\d{1,12}(\.\d{1,9})?(?= )", tree.content(UPTIME, 64) or b"")
    if seconds is None or float(seconds[0]) <= 0:
        return {}
    rows = (line.split() for line in (tree.content(DISKSTATS) or b"").splitlines())
    counted = {row[2]: row[_WRITTEN] for row in rows if len(row) > _WRITTEN and row[_WRITTEN][:20].isdigit()}
    return {
        name.decode("utf-8", "replace"): int(count[:20]) * _STATS_SECTOR / float(seconds[0])
        for name, count in counted.items()
    }


# The udev database: the results of its rules and of blkid for each device, readable for every user. Captured
# trees have it in two forms (/run/udev/data as the daemon keeps it, /dev/NAME as util-linux's `mk-input.sh`
# captures it for `lsblk --sysroot`), and udev has its own escape.

LONGEST_RECORD = 256 * 1024  # enough for thousands of links
_HEX = rb"\\x([0-9a-fA-F]{2})"


@dataclass(frozen=True, slots=True)
class Record:
    """udev's properties of one device."""

    properties: Mapping[str, str]
    links: tuple[str, ...] = ()  # below /dev: "disk/by-id/wwn-0x5000..."

    def get(self, key: str) -> str | None:
        return self.properties.get(key) or None

    def decoded(self, key: str) -> str | None:
        """Return a property whose name ends in _ENC, or which blkid encodes the same way
        (ID_PART_ENTRY_NAME).
        """
        value = self.properties.get(key)
        return None if value is None else unescape_udev(value).strip() or None

    def number(self, key: str) -> int | None:
        value = self.properties.get(key, "")
        return int(value) if 0 < len(value) <= 20 and value.isascii() and value.isdigit() else None


NOTHING = Record({})


class UdevDatabase:
    """udev's records, live or captured. Their existence is checked once: most captured trees lack them.

    The files in /dev of a live machine are devices, and are never opened here.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.has_records = tree.is_directory("/run/udev/data")
        self.has_files = not tree.live and tree.is_directory("/dev")  # captured for `lsblk --sysroot`

    def record(self, number: str | None, name: str) -> Record:
        """Return the record by device number ("8:1"), otherwise by kernel name; NOTHING if there is none."""
        if self.has_records and number:
            content = self.tree.content(f"/run/udev/data/b{number}", LONGEST_RECORD)
            if content is not None:
                return parse_record(content)
        content = self.tree.content(f"/dev/{name}", LONGEST_RECORD) if self.has_files else None
        return NOTHING if content is None else parse_dump(content)


def parse_record(content: bytes) -> Record:
    """Parse lines "E:KEY=value" and "S:link" (systemd, src/libsystemd/sd-device/device-private.c)."""
    lines = content.decode("utf-8", "replace").split("\n")
    properties = _parse_properties(line[2:] for line in lines if line.startswith("E:"))
    return Record(properties, tuple(line[2:] for line in lines if line.startswith("S:")))


def parse_dump(content: bytes) -> Record:
    """Parse lines "KEY=value", as `udevadm info --query=property` prints them; the links are in DEVLINKS."""
    properties = _parse_properties(content.decode("utf-8", "replace").split("\n"))
    links = properties.get("DEVLINKS", "").split()
    return Record(properties, tuple(link.removeprefix("/dev/") for link in links))


def _parse_properties(lines: Iterable[str]) -> dict[str, str]:
    return {key: value for key, found, value in (line.partition("=") for line in lines) if found}


def unescape_udev(text: str) -> str:
    r"""Decode udev's escapes, such as "\x20"; anything else is kept."""
    raw = text.encode("utf-8", "replace")
    return re.sub(_HEX, lambda found: bytes.fromhex(found[1].decode()), raw).decode("utf-8", "replace")
