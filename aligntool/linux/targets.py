"""Resolve a TARGET of the command line: a disk, a partition, an image, a captured tree."""

import gzip
import lzma
import os
import re
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Self, cast

from aligntool.audit.wording import shell_word
from aligntool.commands import LISTS_DISKS, Command, command, typed
from aligntool.contents.layers import Contents, read_contents
from aligntool.errors import Refused, failing_as
from aligntool.formats.reader import HeartbeatReader, Reader
from aligntool.inventory import Disk, DiskKind, IoLimits
from aligntool.linux.deadline import SILENCE_S, SILENT, Pulse, result_in_child, results_in_children
from aligntool.linux.devices import Block, block_of_number, find_block, list_blocks
from aligntool.linux.file_reader import FileReader
from aligntool.linux.held import hold, open_held, place_of, status_of
from aligntool.linux.sysfs import (
    READ_ONLY,
    Tree,
    UdevDatabase,
    captured_tree,
    leased,
    opened,
    opened_document,
)
from aligntool.units import MIB, first_of

# Sector sizes that the user gives, because the kernel reports none or wrong ones.


@dataclass(frozen=True, slots=True)
class UserLimits:
    """The values given on the command line for a disk, in bytes."""

    sector_size: int | None = None
    physical_sector_size: int | None = None


def with_user_limits(limits: IoLimits, given: UserLimits) -> tuple[IoLimits, tuple[str, ...]]:
    """Return the limits with the user's values, and the names of the overridden fields."""
    values = {"logical_block_size": given.sector_size, "physical_block_size": given.physical_sector_size}
    values = {name: value for name, value in values.items() if value is not None}
    return replace(limits, **values), tuple(values)


# Read a disk image, or refuse the file with the reason. A file reports no limits: they are empty except for
# the user's values. Containers and compressed images are refused, because they are not raw images of the
# disk.

UNPACKERS = ("xz", "gzip", "zstd", "bzip2", "lz4")
QEMU_DRIVERS = ("qcow2", "vmdk", "vdi", "vhdx", "vpc")

# (offset, magic, description, opener: a driver of QEMU, a program that unpacks it, "qemu-img " and a driver
# for which the file is not shown in place of its disk, or advice)
_CONTAINERS = (
    (0, b"QFI\xfb", "a QEMU copy-on-write image (qcow2)", "qcow2"),
    (0, b"KDMV", "a VMware disk (vmdk)", "vmdk"),
    (0, b"# Disk DescriptorFile", "the descriptor of a VMware disk (vmdk)", "qemu-img vmdk"),
    (0x40, b"\x7f\x10\xda\xbe", "a VirtualBox disk (vdi)", "vdi"),
    (0, b"vhdxfile", "a Hyper-V disk (vhdx)", "vhdx"),
    (0, b"conectix", "a dynamic Virtual PC disk (vhd)", "vpc"),
    (0, b"QED\0", "a QEMU enhanced disk (qed)", "qemu-img qed"),
    (0, b"WithoutFreeSpace", "a Parallels disk", "qemu-img parallels"),
    (0, b"WithouFreSpacExt", "a Parallels disk", "qemu-img parallels"),
    (0, b"\xfd7zXZ\0", "compressed with xz", "xz"),
    (0, b"\x1f\x8b", "compressed with gzip", "gzip"),
    (0, b"\x28\xb5\x2f\xfd", "compressed with zstd", "zstd"),
    (0, b"BZh", "compressed with bzip2", "bzip2"),
    (0, b"\x04\x22\x4d\x18", "compressed with lz4", "lz4"),
    (0, b"PK\x03\x04", "a zip archive", "unpack it with unzip"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it with 7z"),
    (0, b"\x3a\xff\x26\xed", "an Android sparse image", "make a raw image of it with simg2img"),
    (0, b"EVF\x09\x0d\x0a\xff\x00", "an EnCase image (E01)", "ewfmount"),
    (0, b"partclone-image", "a partclone image", "make a raw image of it with partclone.restore"),
)
_HEAD = 512
_FOOTER = 512  # Virtual Hard Disk Image Format Specification, "Hard Disk Footer Format"
_SECTOR = 512
# a first partition begins after this many bytes, and a backup GPT lies within the last ones
_EDGE = 1024 * 1024


def read_image(path: str, given: UserLimits, pulse: Pulse = SILENT, *, known: bool = True) -> Disk:
    """Read a disk image. Raises Refused if the file is not an image, or cannot be read. `known`: also if
    nothing in it is recognised.
    """
    descriptor = _open_image(path)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        reader = HeartbeatReader(FileReader(descriptor, size), pulse.beat)
        refuse_containers(path, reader)
        limits, limits_given = with_user_limits(IoLimits(), given)
        seen = read_contents(reader, sector_size=given.sector_size)
        if known:
            _refuse_unknown_content(path, reader, seen)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return Disk(
        name=path,
        path=path,
        kind=DiskKind.IMAGE,
        size=size,
        limits=limits,
        limits_given=limits_given,
        # by capabilities, too: linux/virtual.py
        read_only=not os.access(place_of(path), os.W_OK, effective_ids=True),
        table=seen.table,
        table_read=seen.table_read,
        partitions=seen.partitions,
        content=seen.content,
        gpt_headers=seen.gpt_headers,
        content_read=seen.content_read,
        unseen=seen.unseen,
        raw_copy=raw_copy(path),
    )


def _open_image(path: str) -> int:
    as_root = typed("aligntool audit", path) if os.geteuid() else ""
    with failing_as(Refused, f"{path} cannot be opened", denied=as_root):
        try:
            descriptor = open_held(path, READ_ONLY)
        except BlockingIOError as error:
            raise leased(path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was replaced meanwhile
        os.close(descriptor)
        raise Refused(f"{path} is no longer a regular file")
    return descriptor


def _refuse_unknown_content(path: str, reader: Reader, seen: Contents) -> None:
    """Raise Refused for a file in which nothing can be judged: its content is unknown, and its ends are not
    both blank (all zeros, or all ones like erased flash).
    """
    if (
        not seen.table_read
        or seen.table
        or seen.partitions
        or seen.content
        or seen.gpt_headers
        or seen.unseen
    ):
        return
    if reader.size % _SECTOR:
        text = f"{path} is not a disk image: its size of {reader.size} bytes is not a multiple of {_SECTOR}"
        raise Refused(text, hint=typed("file", path))
    ends = reader.read(0, _EDGE), reader.read(max(reader.size - _EDGE, 0), _EDGE)
    if any(end.strip(b"\0") and end.strip(b"\xff") for end in ends):
        text = (
            f"{path} cannot be judged: it has neither a known partition table nor a known file system, and is"
            " not blank"
        )
        raise Refused(text, hint=typed("file", path))


def refuse_containers(path: str, reader: Reader) -> None:
    """Raise Refused for a file with a disk in another format than raw."""
    if reader.size == 0:
        raise Refused(f"{path} is empty", hint="give a disk image or a block device")
    container = _container(reader.read(0, _HEAD), reader.read(max(0, reader.size - _FOOTER), _FOOTER))
    if container:
        what, opener = container
        raise Refused(
            f"{path} is {what}, not a raw disk image", hint=raw_copy(path) or _how_to_open(path, opener)
        )


def _how_to_open(path: str, opener: str) -> str:
    """Return the command that makes a raw image of a file, or other advice. `opener`: see `_CONTAINERS`."""
    new = new_file("disk.img")
    if opener in UNPACKERS:
        unpacking = Command(opener, ("-dc", path), output=new)
        return f"{unpacking} && aligntool audit {new}"
    driver = opener.removeprefix("qemu-img ")
    if driver in QEMU_DRIVERS or driver != opener:
        return typed(f"qemu-img convert -f {driver} -O raw", path, new)
    if opener == "ewfmount":
        return f"{typed('ewfmount', path, '/mnt')} && sudo aligntool audit /mnt/ewf1"
    return opener


def new_file(name: str) -> str:
    """Return a name for the new file of a suggested command: this one, with a number if such a file
    exists.
    """
    stem, suffix = os.path.splitext(name)  # noqa: PTH122
    names = (name, *(f"{stem}-{number}{suffix}" for number in range(2, 1000)))
    return next((free for free in names if not os.path.lexists(free)), "NEW_FILE")


def _container(head: bytes, tail: bytes) -> tuple[str, str] | None:
    if tail.startswith(b"conectix"):  # its footer is not part of the disk: a backup GPT would overwrite it
        return "a Virtual PC disk of fixed size (vhd)", "vpc"
    return next(
        ((what, opener) for offset, magic, what, opener in _CONTAINERS if head.startswith(magic, offset)),
        None,
    )


_SHOWN: dict[str, tuple[str, str]] = {}
"""By real path: the command that makes a raw image of a virtual disk in whose place this process and its
children see the disk inside. It belongs to the mount namespace, which is also a property of the process:
linux/virtual.py.
"""


def note_shown(path: str, raw_copy: str, writable_copy: str) -> None:
    """Note that this process sees the disk in this file in its place from now on."""
    _SHOWN[os.path.realpath(path)] = raw_copy, writable_copy


def raw_copy(path: str) -> str:
    """Return the command that makes a raw image of a virtual disk; "" if the path is what other programs see,
    too.
    """
    return _SHOWN.get(os.path.realpath(path), ("", ""))[0] if _SHOWN else ""


def writable_copy(path: str) -> str:
    """Return the command that makes an image that can be changed of one that is only read, otherwise ""."""
    return _SHOWN.get(os.path.realpath(path), ("", ""))[1] if _SHOWN else ""


def find_virtual(targets: Sequence[str], silence_s: float) -> dict[str, str]:
    """Return the targets that are files with a disk inside, each with the driver of QEMU or the program that
    opens it. A target that does not exist or does not answer is omitted.
    """

    def read(_: Pulse) -> dict[str, str]:
        return {
            target: opener for target in targets if (opener := _opener_of(target)) in QEMU_DRIVERS + UNPACKERS
        }

    return (result_in_child(read, silence_s) if targets else None) or {}


def _opener_of(path: str) -> str:
    with suppress(OSError, ValueError):
        if stat.S_ISREG(status_of(path).st_mode):
            with opened(path) as descriptor:
                tail = os.pread(descriptor, _FOOTER, max(0, os.fstat(descriptor).st_size - _FOOTER))
                found = _container(os.pread(descriptor, _HEAD, 0), tail)
                return found[1] if found else ""
    return ""


# The machine to read: this one, a folder with the files of another one, or an archive written by `aligntool
# snapshot`. An archive is unpacked into a temporary folder.


@contextmanager
def open_sysroot(sysroot: str | None) -> Iterator[Tree]:
    """Yield the tree of this machine, or a captured one. Raises Refused if it has no sysfs."""
    if sysroot is None:
        yield Tree("")
    elif not os.path.isfile(sysroot):  # noqa: PTH113 - Path.is_file fails without permission
        yield captured_tree(sysroot)
    else:
        with tempfile.TemporaryDirectory(prefix="aligntool-", dir=folder_in_memory()) as folder:
            unpack(sysroot, folder)
            yield captured_tree(folder, archive=sysroot)


_MEMORY = "/dev/shm"
_FREE_MEMORY = 512 * 1024 * 1024


def folder_in_memory() -> str | None:
    """Return the folder in memory in which archives are unpacked: the kernel needs up to twenty times as long
    to make files on a disk. None: the user has chosen another one, or too little memory is free.
    """
    if tempfile.tempdir or any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")):
        return None
    with suppress(OSError):
        room = os.statvfs(_MEMORY)
        if os.access(_MEMORY, os.W_OK | os.X_OK) and room.f_bavail * room.f_frsize >= _FREE_MEMORY:
            return _MEMORY
    return None


# Unpack the archive of a snapshot. It is hostile: its names may lead anywhere, and a few bytes may unpack to
# gigabytes.

MOST_MEMBERS = 2_000_000
MOST_BYTES = 512 * 1024 * 1024
LARGEST_MEMBER = 16 * 1024 * 1024
_LONGEST_HEADER = 64 * 1024  # of a tar archive: names and times of one member
_LONGEST_COMMON = 4 * 1024  # of all headers that concern every member; tarfile copies them for each
DEEPEST = 100  # nested folders, as many as a `Tree` follows

# For each MiB of an archive, begun or whole. Files are counted because the kernel takes longer for them under
# load.
MEMBERS_PER_MIB = 10_000
BYTES_PER_MIB = 64 * MIB
UNPACKING_S = 5.0  # of processor time without the kernel's, as a last resort


_UNPACK_IT = "unpack it with tar, and give the folder"


@dataclass(slots=True)
class _Bounded:
    """A stream that is limited to `left` bytes."""

    stream: IO[bytes]
    left: int

    def read(self, size: int) -> bytes:
        piece = self.stream.read(size)
        self.left -= len(piece)
        if self.left < 0:
            raise Refused("the archive unpacks to more data than any captured machine has")
        return piece


def _bounded_member() -> "type[tarfile.TarInfo]":
    """Return the class of the members of an archive, with limits for their headers."""
    common: list[int] = []  # lengths

    class Member(tarfile.TarInfo):
        """A member; tarfile itself takes a damaged or missing header after the first one for the end, and
        reads an extended header of any length into memory, for some of them in quadratic time.
        """

        def _proc_member(self, tar: "tarfile.TarFile") -> "tarfile.TarInfo":
            if not self.isfile() and self.size > _LONGEST_HEADER:
                raise tarfile.ReadError(f"an extended header of {self.size} bytes")
            if self.type == tarfile.XGLTYPE:
                common.append(tarfile.BLOCKSIZE + self.size)
            if sum(common) > _LONGEST_COMMON:
                raise tarfile.ReadError(f"common headers of {sum(common)} bytes")
            if self.type == tarfile.GNUTYPE_SPARSE:
                raise tarfile.ReadError("a sparse file, which no captured machine has")
            return cast("tarfile.TarInfo", super()._proc_member(tar))  # type: ignore[misc]

        @classmethod
        def fromtarfile(cls, tar: "tarfile.TarFile") -> Self:
            try:
                return super().fromtarfile(tar)
            except tarfile.EOFHeaderError:  # type: ignore[attr-defined] # the block of zeros at the end
                raise
            except tarfile.HeaderError as error:
                raise tarfile.ReadError from error

    return Member


def _open_stream(stream: _Bounded) -> "tarfile.TarFile":
    """Return the archive in a stream, of which tarfile only reads."""
    return tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|", tarinfo=_bounded_member())


def unpack(archive: str, folder: str) -> None:
    """Unpack folders, files and links. Raises Refused."""
    mibs = 1 + os.path.getsize(archive) // MIB  # noqa: PTH202
    most_bytes = min(MOST_BYTES, BYTES_PER_MIB * mibs)
    most_members = min(MOST_MEMBERS, MEMBERS_PER_MIB * mibs)
    limit_s = UNPACKING_S * mibs
    try:
        with _decompressed(archive) as stream, _open_stream(data := _Bounded(stream, most_bytes)) as tar:
            folders = {folder}
            end_s = os.times().user + limit_s
            for members, member in enumerate(tar):
                if member.size > LARGEST_MEMBER:
                    raise Refused(f"{archive} unpacks to larger files than any captured machine has")
                if members >= most_members:
                    text = (
                        f"{archive} was not unpacked: it has more than {most_members} files, too many for its"
                        " size"
                    )
                    raise Refused(text, hint=_UNPACK_IT)
                if os.times().user > end_s:
                    text = f"{archive} was not unpacked: that takes more than {limit_s:g} s of processor time"
                    raise Refused(text, hint=_UNPACK_IT)
                _unpack_member(tar, member, folder, folders)
                vars(tar)["members"] = []  # which would keep all of them in memory
            while data.read(1 << 16):  # gzip and xz have their checksum at the end
                pass
    except (
        tarfile.TarError,
        lzma.LZMAError,
        zlib.error,
        OSError,
        EOFError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        hint = "give a folder, or a file written by `aligntool snapshot`"
        raise Refused(f"{archive} cannot be unpacked: {_damage(error)}", hint=hint) from error


def _damage(error: Exception) -> str:
    """Return what is wrong with an archive in words, instead of those of Python's modules."""
    if isinstance(error, lzma.LZMAError | zlib.error | gzip.BadGzipFile):
        return "its compressed data are damaged"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "not a complete tar archive"


def _decompressed(archive: str) -> IO[bytes]:
    raw = opened_document(archive)  # the caller closes it, through the stream
    head = raw.read(6)
    raw.seek(0)
    if head.startswith(b"\xfd7zXZ\0"):
        return cast("IO[bytes]", lzma.open(raw))
    return cast("IO[bytes]", gzip.open(raw)) if head.startswith(b"\x1f\x8b") else raw


def _unpack_member(tar: "tarfile.TarFile", member: "tarfile.TarInfo", folder: str, folders: set[str]) -> None:
    """Create a folder, file or link; only a `Tree` follows links. `folders`: those created so far.

    Raises Refused, for the whole archive, if a name leads out of the folder or through a link.
    """
    words = [word for word in member.name.split("/") if word not in ("", ".")]
    if not words:
        return
    if member.name.startswith("/") or ".." in words:
        raise Refused(f"the archive contains {member.name!r}, which leads out of it")
    if len(words) > DEEPEST:
        raise Refused("the archive nests folders deeper than any captured machine")
    if member.issparse():  # half a KiB in the archive may unpack to any size
        raise Refused(f"the archive contains {member.name!r}, a sparse file, which no captured machine has")
    path = folder
    for depth, word in enumerate(words, 1):
        path = f"{path}/{word}"
        if path in folders:
            continue
        if os.path.islink(path):  # noqa: PTH114
            raise Refused(f"the archive contains {member.name!r} behind a symbolic link")
        if depth < len(words) or member.isdir():
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
            folders.add(path)
    if member.issym():
        os.symlink(member.linkname, path)  # noqa: PTH211
    elif member.isreg() and (source := tar.extractfile(member)):
        with source, open(path, "xb") as file:  # noqa: PTH123  (O_EXCL follows no link)
            file.write(source.read(LARGEST_MEMBER))


# Resolve a TARGET of the command line to a disk or a file.


def find_target(tree: Tree, target: str) -> Block | None:
    """Return the disk, or None if the target is an image file. Raises Refused for anything else, and for an
    ambiguous name.
    """
    if "\0" in target or not target:
        raise Refused(f"{target!r} is not the name of a disk or file")
    if not tree.live:
        return _find_captured(tree, target)
    if "/" not in target:
        refuse_ambiguous(target)
        block = find_block(tree, target)
        if block is not None:
            return block
    return _find_live(tree, target)


def refuse_ambiguous(target: str, *, folders: bool = False) -> None:
    """Raise Refused for a name without a slash that is both a file in the current folder and a disk of this
    machine. `folders`: also if it is a folder.
    """
    if "/" in target or "\0" in target or target in ("", ".", "..") or not os.path.lexists(target):
        return
    file = Path(target)
    node = Path("/dev", target)
    if not Path("/sys/class/block", target).exists() or (file.is_dir() and not folders):
        return
    if file.exists() and node.exists() and file.samefile(node):
        return
    what = "folder" if file.is_dir() else "file"
    text = f"{target} is ambiguous: it is a {what} in the current folder, and {node} is a disk"
    raise Refused(text, hint=f"give ./{shell_word(target)} for the {what}, {node} for the disk")


def hold_targets(targets: Sequence[str], silence_s: float = SILENCE_S) -> None:
    """Hold the targets until this process ends (linux/held.py), except those that do not answer: to look them
    up would block this process forever.
    """

    def look_up(target: str, _: Pulse) -> bool:
        with suppress(OSError, ValueError):
            os.stat(target)  # noqa: PTH116
        return True

    for number, answered in results_in_children([partial(look_up, target) for target in targets], silence_s):
        if answered:
            hold(targets[number])


def refuse_silent(path: str, silence_s: float = SILENCE_S) -> None:
    """Raise Refused for a disk or file that does not answer: opening it would block this process forever.
    Nothing else is opened: opening a character device may have side effects.
    """

    def read(_: Pulse) -> bool:
        with suppress(OSError, ValueError):
            mode = status_of(path).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
                return True
            with opened(path) as descriptor:
                os.pread(descriptor, 4096, 0)
        return True  # an error is an answer, too

    if result_in_child(read, silence_s) is None:
        raise Refused(f"{path} did not answer within {silence_s:g} s", hint=typed("dmesg"))


def _find_live(tree: Tree, target: str) -> Block | None:
    with failing_as(Refused, target, hint=LISTS_DISKS):
        try:
            status = status_of(target)
        except FileNotFoundError as error:
            raise Refused(f"{target}: {error.strerror}", hint=_similar_file(target)) from error
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISBLK(mode):
        block = block_of_number(tree, f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}")
        if block is None:
            raise Refused(f"{target} is a device node, but this kernel has no such block device")
        return block
    if stat.S_ISDIR(mode):
        captured = os.path.isdir(f"{target}/sys")  # noqa: PTH112 - Path.is_dir fails without permission
        hint = command("audit --sysroot", target) if captured else LISTS_DISKS
        raise Refused(f"{target} is a folder", hint=hint)
    what = "a character device" if stat.S_ISCHR(mode) else "neither a block device nor a regular file"
    # Users often give the controller of an NVMe drive instead of its namespace.
    hint = typed("aligntool audit", f"{target}n1") if re.fullmatch(r"(.*/)?nvme\d+", target) else LISTS_DISKS
    raise Refused(f"{target} is {what}", hint=hint)


_MOST_NAMES = 1000


def _similar_file(target: str) -> str:
    """Return the hint for a path that does not exist: a file with a similar name next to it, never a disk."""
    folder, slash, name = target.rpartition("/")
    with suppress(OSError, ValueError), os.scandir(f"{folder}{slash}" or ".") as entries:
        names = [entry.name for entry in islice(entries, _MOST_NAMES) if entry.is_file()]
        similar = get_close_matches(name, names, n=1, cutoff=0.7)
        if similar:
            return f"did you mean {shell_word(f'{folder}{slash}{similar[0]}')}?"
    return LISTS_DISKS


def _find_captured(tree: Tree, target: str) -> Block:
    name = target.removeprefix("/dev/")
    block = find_block(tree, name) or next((found for found, _ in _disks_by_link(tree, name)), None)
    if block is None:
        known = first_of([block.name for block in list_blocks(tree)], 12)
        raise Refused(f"{target} is not in the captured tree", hint=f"it has: {known}" if known else "")
    return block


def captured_node(tree: Tree, target: str) -> str:
    """Return the kernel's path of a disk or partition of a captured machine. Raises Refused."""
    _find_captured(tree, target)
    name = target.removeprefix("/dev/")
    linked = None if find_block(tree, name) else next((node for _, node in _disks_by_link(tree, name)), None)
    return f"/dev/{linked or name}"


def _disks_by_link(tree: Tree, link: str) -> Iterator[tuple[Block, str]]:
    """Yield the disks to which a link such as /dev/disk/by-id/... led on the captured machine, by udev's
    records, each with the kernel's name of the disk or partition that it led to.
    """
    database = UdevDatabase(tree)
    for block in list_blocks(tree):
        parts = [f"{block.path}/{name}" for name in tree.names(block.path) if name.startswith(block.sysname)]
        for path in (block.path, *parts):
            node = path.rpartition("/")[2]
            if link in database.record(tree.text(f"{path}/dev"), node).links:
                yield block, block.name if path == block.path else node
