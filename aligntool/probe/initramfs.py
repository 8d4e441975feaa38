"""What an initramfs holds of arrays: mdadm, its mdadm.conf, the arrays that dracut was told of.

In: an image, as a file descriptor. Out: an Initramfs; where it cannot be read, why. Alone because lsinitramfs names
files and prints none, unmkinitramfs writes the whole tree to disk, and lsinitrd and lsinitcpio each know their own
kind: here any image is read once, as it streams out of its own decompressor, and nothing is written
(docs/decisions/0016). Format: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
"""

import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

from aligntool.inventory import Initramfs
from aligntool.probe.config_files import array_uuid, merge_confs, parse_mdadm_conf
from aligntool.probe.programs import find_program

HEADER, TRAILER = 110, "TRAILER!!!"
NEWC = (b"070701", b"070702")
LONGEST_NAME = 4096
LONGEST_KEPT = 256 * 1024  # of a text file that is kept
MOST_BYTES = 1 << 30  # unpacked; none that boots is larger
PATIENCE_S = 120.0
PIECE = 1 << 20
_CONFS = ("etc/mdadm.conf", "etc/mdadm/mdadm.conf")
_PACKED = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ", "xz"),
    (b"BZh", "bzip2"),
    (b"\x02\x21\x4c\x18", "lz4"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x89LZO", "lzop"),
    (b"\x5d\x00\x00", "xz"),
)
_MAKERS = (
    ("usr/lib/dracut/", "dracut"),
    ("lib/dracut/", "dracut"),
    ("conf/initramfs.conf", "initramfs-tools"),
    ("init_functions", "mkinitcpio"),
)


class NotReadable(Exception):
    """Why; a sentence without a subject."""


@dataclass(slots=True)
class _Seen:
    """What was found so far."""

    maker: str = ""
    mdadm: bool = False
    confs: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    squashed: bool = False

    @property
    def enough(self) -> bool:
        """dracut's may name arrays after their mdadm.conf, and is read to its end."""
        return self.maker in ("initramfs-tools", "mkinitcpio") and self.mdadm and bool(self.confs)


def read_initramfs(descriptor: int, path: str) -> Initramfs:
    """Reads from the start on; the descriptor stays open."""
    seen = _Seen()
    try:
        _read(descriptor, seen)
    except NotReadable as reason:
        return Initramfs(path, unseen=str(reason))
    except OSError as error:
        return Initramfs(path, unseen=f"cannot be read: {error.strerror}")
    if seen.squashed and not seen.confs:
        return Initramfs(path, unseen="its files lie in a squashfs image inside")
    if not seen.maker and not seen.mdadm and not seen.confs:
        return Initramfs(path, unseen="nobody knows which program made it")
    confs = [parse_mdadm_conf(text, name) for name, text in sorted(seen.confs.items())]
    return Initramfs(path, seen.maker, seen.mdadm, merge_confs(confs) if confs else None, tuple(seen.asked))


def _read(descriptor: int, seen: _Seen) -> None:
    """Archives that are not packed, one after the other (microcode, modules), then one that is."""
    with os.fdopen(os.dup(descriptor), "rb", buffering=PIECE) as file:
        file.seek(0)
        _Archive(file, seen).read()
        if seen.enough:
            return
        rest = file.tell()
        head = file.read(8)
    if head[:2] == b"MZ":
        raise NotReadable("it is a unified kernel image")
    if not head.strip(b"\0"):
        return
    program = next((name for magic, name in _PACKED if head.startswith(magic)), None)
    if program is None:
        raise NotReadable("it is packed in an unknown way")
    _unpacked(descriptor, rest, program, seen)


def _unpacked(descriptor: int, rest: int, name: str, seen: _Seen) -> None:
    program = find_program(name)
    if program is None:
        raise NotReadable(f"it is packed by {name}, which is not installed")
    os.lseek(descriptor, rest, os.SEEK_SET)
    with subprocess.Popen(
        (program, "-dc"), stdin=descriptor, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        timer = threading.Timer(PATIENCE_S, child.kill)
        timer.daemon = True
        timer.start()
        try:
            if child.stdout is not None:
                archive = _Archive(child.stdout, seen)
                archive.read()
                if not archive.members:
                    raise NotReadable("what is packed in it is no cpio archive")
        finally:
            timer.cancel()
            child.kill()


class _Archive:
    """Members of newc archives, as long as there are any."""

    def __init__(self, file: IO[bytes], seen: _Seen) -> None:
        self.file = file
        self.seen = seen
        self.members = 0
        self.left = MOST_BYTES

    def read(self) -> None:
        while not self.seen.enough:
            head = self._padding()
            if head[:6] not in NEWC:
                self._back(head)
                return
            head += self._take(HEADER - len(head))
            if not self._member(head):
                raise NotReadable("it ends in the middle of a file")

    def _padding(self) -> bytes:
        """The first bytes that are not the zeros between two archives."""
        while True:
            head = self._take(4)
            if not head or head.strip(b"\0"):
                return head + self._take(4)

    def _member(self, head: bytes) -> bool:
        self.members += 1
        try:
            size, length = int(head[54:62], 16), int(head[94:102], 16)
        except ValueError:
            raise NotReadable("one of its headers is damaged") from None
        if length > LONGEST_NAME:
            raise NotReadable("one of its headers is damaged")
        name = self._take(_padded(HEADER + length) - HEADER)[:length].rstrip(b"\0")
        path = name.decode("utf-8", "replace").removeprefix("./").lstrip("/")
        kept = self._take(min(size, LONGEST_KEPT)) if _is_kept(path) else b""
        skipped = self._skip(_padded(size) - len(kept))
        _note(self.seen, path, kept)
        return skipped

    def _take(self, count: int) -> bytes:
        self.left -= count
        if self.left < 0:
            raise NotReadable("it holds more than an initramfs could")
        return self.file.read(count)

    def _skip(self, count: int) -> bool:
        while count > 0:
            piece = self._take(min(count, PIECE))
            if not piece:
                return False
            count -= len(piece)
        return True

    def _back(self, head: bytes) -> None:
        """Only a file can; of a pipe nobody reads on."""
        if head and self.file.seekable():
            self.file.seek(-len(head), os.SEEK_CUR)


def _padded(count: int) -> int:
    return (count + 3) & ~3


def _is_kept(path: str) -> bool:
    return path in _CONFS or _in_folder(
        path, ("etc/mdadm.conf.d/", "etc/mdadm/mdadm.conf.d/", "etc/cmdline.d/")
    )


def _in_folder(path: str, folders: tuple[str, ...]) -> bool:
    return path.startswith(folders) and path.endswith(".conf")


def _note(seen: _Seen, path: str, content: bytes) -> None:
    seen.maker = seen.maker or next((maker for start, maker in _MAKERS if path.startswith(start)), "")
    seen.mdadm = seen.mdadm or path in ("sbin/mdadm", "usr/sbin/mdadm", "usr/bin/mdadm", "bin/mdadm")
    seen.squashed = seen.squashed or path.startswith("squash-root.img")
    if not _is_kept(path) or not content:
        return
    text = content.decode("utf-8", "replace")
    if path.startswith("etc/cmdline.d/"):
        seen.asked += _asked(text)
    else:
        seen.confs[path] = text


def _asked(text: str) -> Iterator[str]:
    """rd.md.uuid=... of dracut.cmdline(7)."""
    for word in text.split():
        if word.startswith("rd.md.uuid=") and (uuid := array_uuid(word.partition("=")[2])):
            yield uuid
