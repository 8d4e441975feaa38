"""Read the system's files that assemble arrays: mdadm.conf, fstab, crypttab, each initramfs."""

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import IO, cast

from aligntool import system as config_files
from aligntool.linux import confined
from aligntool.linux.programs import export_values, find_program
from aligntool.linux.sysfs import LIVE, Tree
from aligntool.system import LATE_START_ENABLED, Initramfs, MdadmConf, System, Unfinished
from aligntool.units import KIB

# The family of the distribution, whose files and commands make an array permanent.

FILES = ("/etc/os-release", "/usr/lib/os-release")
FAMILIES = {
    "debian": ("debian", "ubuntu"),
    "fedora": ("fedora", "rhel", "centos"),
    "opensuse": ("opensuse", "suse", "sles"),
    "arch": ("arch", "archlinux"),
}
UPDATE_INITRAMFS = "/usr/sbin/update-initramfs"
DRACUT = "/usr/bin/dracut"
LONGEST_SCRIPT = 1 << 20


def find_distribution(tree: Tree = LIVE) -> str | None:
    """Return the family of the machine's distribution, or None if it is unknown."""
    return with_dracut(family_of(next(filter(None, (_text(tree, file) for file in FILES)), "")), tree.content)


def with_dracut(family: str | None, content: Callable[[str, int], bytes | None]) -> str | None:
    """Return "debian-dracut" for a Debian with dracut, otherwise the family. The packages dracut and
    initramfs-tools exclude each other. With dracut, update-initramfs is missing, or is a script that does not
    call mkinitramfs; that of initramfs-tools does.

    `content` reads a file up to a length, and returns None if it does not exist.
    """
    if family != "debian" or content(DRACUT, 1) is None:
        return family
    script = content(UPDATE_INITRAMFS, LONGEST_SCRIPT)
    return family if script is not None and b"mkinitramfs" in script else "debian-dracut"


def family_of(text: str) -> str | None:
    """Return the family by the ID in an os-release, otherwise by ID_LIKE, which has the closest relative
    first.
    """
    fields = export_values(text)
    words = (
        f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', " ")
        .replace("'", " ")
        .lower()
        .split()
    )
    known = FAMILIES.items()
    return next(
        (name for word in words for name, ids in known if word in ids or word.startswith(f"{name}-")), None
    )


# The parts of an initramfs that concern arrays: mdadm, its mdadm.conf, the arrays given to dracut.
# lsinitramfs lists files without their content, unmkinitramfs writes the whole tree to disk, and lsinitrd and
# lsinitcpio each support only their own kind. Here any image is read once, as a stream from its decompressor,
# and nothing is written (docs/decisions/0016). Format: the kernel's
# Documentation/driver-api/early-userspace/buffer-format.rst.

HEADER = 110
TRAILER = "TRAILER!!!"
NEWC = (b"070701", b"070702")
LONGEST_NAME = 4096
LONGEST_KEPT = 256 * 1024  # of a text file that is kept
MOST_BYTES = 1 << 30  # unpacked; no bootable image is larger
PATIENCE_S = 120.0
PIECE = 1 << 20
_CONFS = ("etc/mdadm.conf", "etc/mdadm/mdadm.conf")
_KEPT_FOLDERS = ("etc/mdadm.conf.d/", "etc/mdadm/mdadm.conf.d/", "etc/cmdline.d/")
_COMPRESSED = {
    "gzip": (b"\x1f\x8b",),
    "zstd": (b"\x28\xb5\x2f\xfd",),
    "xz": (b"\xfd7zXZ", b"\x5d\x00\x00"),
    "bzip2": (b"BZh",),
    "lz4": (b"\x02\x21\x4c\x18", b"\x04\x22\x4d\x18"),
    "lzop": (b"\x89LZO",),
}
_MAKERS = {
    "dracut": ("usr/lib/dracut/", "lib/dracut/"),
    "initramfs-tools": ("conf/initramfs.conf",),
    "mkinitcpio": ("init_functions",),
}


class NotReadable(Exception):
    """An image is not readable; the message is the reason."""


@dataclass(slots=True)
class _ImageFacts:
    """The facts read so far."""

    maker: str = ""
    mdadm: bool = False
    confs: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    squashed: bool = False

    @property
    def enough(self) -> bool:
        """Return whether the rest can be skipped; images of dracut are read to the end, because they may list
        arrays after their mdadm.conf.
        """
        return self.maker in ("initramfs-tools", "mkinitcpio") and self.mdadm and bool(self.confs)


def read_initramfs(descriptor: int, path: str) -> Initramfs:
    """Read an image from its start; the descriptor stays open."""
    facts = _ImageFacts()
    try:
        _read_archives(descriptor, facts)
    except NotReadable as reason:
        return Initramfs(path, unseen=str(reason))
    except OSError as error:
        return Initramfs(path, unseen=f"cannot be read: {error.strerror}")
    if facts.squashed and not facts.confs:
        return Initramfs(path, unseen="its files are in a squashfs image inside it")
    if not facts.maker and not facts.mdadm and not facts.confs:
        return Initramfs(path, unseen="the program that made it is unknown")
    if all(name in facts.confs for name in _CONFS):  # mdadm reads only one of the two
        del facts.confs[_CONFS[0 if facts.maker == "initramfs-tools" else 1]]
    confs = [config_files.parse_mdadm_conf(text, name) for name, text in sorted(facts.confs.items())]
    conf = config_files.merge_confs(confs) if confs else None
    return Initramfs(path, facts.maker, facts.mdadm, conf, tuple(facts.asked))


def _read_archives(descriptor: int, facts: _ImageFacts) -> None:
    """Read uncompressed archives one after the other (microcode, modules), then a compressed one."""
    with os.fdopen(os.dup(descriptor), "rb", buffering=PIECE) as file:
        file.seek(0)
        _Archive(file, facts).read()
        if facts.enough:
            return
        rest = file.tell()
        head = file.read(8)
    if head[:2] == b"MZ":
        raise NotReadable("it is a unified kernel image")
    if not head.strip(b"\0"):
        return
    program = next((name for name, magics in _COMPRESSED.items() if head.startswith(magics)), None)
    if program is None:
        raise NotReadable("its compression is unknown")
    if find_program(program) is None:
        raise NotReadable(f"it is compressed with {program}, which is not installed")
    _read_compressed(descriptor, rest, program, facts)


def _read_compressed(descriptor: int, rest: int, program: str, facts: _ImageFacts) -> None:
    os.lseek(descriptor, rest, os.SEEK_SET)
    with confined.started(
        (find_program(program) or program, "-dc"), length=MOST_BYTES, stdin=descriptor
    ) as child:
        timer = threading.Timer(PATIENCE_S, child.kill)
        timer.daemon = True
        timer.start()
        try:
            archive = _Archive(cast(IO[bytes], child.stdout), facts)
            archive.read()
            if not archive.members:
                raise NotReadable("its compressed content is not a cpio archive")
        finally:
            timer.cancel()
            timer.join()  # the next program is started by a process without threads
            child.kill()


class _Archive:
    """A reader of consecutive newc archives."""

    def __init__(self, file: IO[bytes], seen: _ImageFacts) -> None:
        self.file = file
        self.seen = seen
        self.members = 0
        self.left = MOST_BYTES

    def read(self) -> None:
        while not self.seen.enough:
            head = self._padding()
            if head[:6] not in NEWC:
                self._seek_back(head)
                return
            head += self._read_bytes(HEADER - len(head))
            if not self._member(head):
                raise NotReadable("it ends in the middle of a file")

    def _padding(self) -> bytes:
        """Skip the zeros between two archives; return the first bytes after them."""
        while True:
            head = self._read_bytes(4)
            if not head or head.strip(b"\0"):
                return head + self._read_bytes(4)

    def _member(self, head: bytes) -> bool:
        self.members += 1
        try:
            size = int(head[54:62], 16)
            length = int(head[94:102], 16)
        except ValueError:
            raise NotReadable("one of its headers is damaged") from None
        if length > LONGEST_NAME:
            raise NotReadable("one of its headers is damaged")
        name = self._read_bytes(_align_4(HEADER + length) - HEADER)[:length].rstrip(b"\0")
        path = name.decode("utf-8", "replace").removeprefix("./").lstrip("/")
        kept = self._read_bytes(min(size, LONGEST_KEPT)) if _is_kept(path) else b""
        skipped = self._skip(_align_4(size) - len(kept))
        _note_member(self.seen, path, kept)
        return skipped

    def _read_bytes(self, count: int) -> bytes:
        self.left -= count
        if self.left < 0:
            raise NotReadable("it is larger than an initramfs can be")
        return self.file.read(count)

    def _skip(self, count: int) -> bool:
        while count > 0:
            piece = self._read_bytes(min(count, PIECE))
            if not piece:
                return False
            count -= len(piece)
        return True

    def _seek_back(self, head: bytes) -> None:
        """Seek back to before `head`, if this is a file; a pipe is not read further."""
        if head and self.file.seekable():
            self.file.seek(-len(head), os.SEEK_CUR)


def _align_4(count: int) -> int:
    return (count + 3) & ~3


def _is_kept(path: str) -> bool:
    return path in _CONFS or (path.startswith(_KEPT_FOLDERS) and _is_conf_name(path.rpartition("/")[2]))


def _is_conf_name(name: str) -> bool:
    """Return whether mdadm reads a file of this name in mdadm.conf.d: its config.c, conf_file_or_dir."""
    return name.endswith(".conf") and not name.startswith(".")


def _note_member(facts: _ImageFacts, path: str, content: bytes) -> None:
    facts.maker = facts.maker or next(
        (maker for maker, starts in _MAKERS.items() if path.startswith(starts)), ""
    )
    facts.mdadm = facts.mdadm or path in ("sbin/mdadm", "usr/sbin/mdadm", "usr/bin/mdadm", "bin/mdadm")
    facts.squashed = facts.squashed or path.startswith("squash-root.img")
    if not _is_kept(path) or not content:
        return
    text = content.decode("utf-8", "replace")
    if path.startswith("etc/cmdline.d/"):  # rd.md.uuid=...: dracut.cmdline(7)
        found = (
            config_files.array_uuid(word[11:]) for word in text.split() if word.startswith("rd.md.uuid=")
        )
        facts.asked += filter(None, found)
    else:
        facts.confs[path] = text


# Arrays whose creation is unfinished. raid/record.py writes the record; here only its existence and position
# matter.

RECORDS = "/var/lib/aligntool/arrays"
LONGEST = 16 << 20
MOST = 64


_CONFIGURING = ("raid", "persist")  # the purposes of plans that configure how their array starts


def read_unfinished(tree: Tree) -> tuple[Unfinished, ...]:
    """Describe the unfinished arrays by their records in aligntool's folder, which requires root; a damaged
    record is also reported.
    """
    names = [name for name in tree.names(RECORDS) if name.endswith(".json")]
    return tuple(
        _describe_record(f"{RECORDS}/{name}", tree.content(f"{RECORDS}/{name}", LONGEST))
        for name in names[:MOST]
    )


def _describe_record(file: str, content: bytes | None) -> Unfinished:
    try:
        document = json.loads(content or b"")
        plan = document["plan"]["plan"]
        position = document["position"]
        name = plan["disk"]["path"]
        array = plan["disk"]["disk_id"]
        steps = len(plan["steps"])
        purpose = plan["purpose"]
        direction = "" if document["forward"] else ", being rolled back"
    except (ValueError, KeyError, TypeError, RecursionError):
        return Unfinished(f"{file}: the record of an unfinished change cannot be read")
    task = {"raid": "creation", "layers": "re-encryption", "reformat": "reformat"}.get(purpose, "repair")
    text = f"{name}: its {task} is not finished, step {position + 1} of {steps}{direction} ({file})"
    return Unfinished(text, config_files.array_uuid(str(array)) or "" if purpose in _CONFIGURING else "")


# The files of the system that assemble arrays at boot, or prevent it. They are read only if there is an
# array.

CAPTURED = "/aligntool/initramfs"  # where a snapshot keeps the facts about the images
# Debian's mdadm reads the first one that exists, others the last one.
MDADM_CONFS = ("/etc/mdadm/mdadm.conf", "/etc/mdadm.conf")
SYNC_LIMIT = "/proc/sys/dev/raid/speed_limit_max"  # KiB/s
SAFELY = "/sys/module/raid456/parameters/devices_handle_discard_safely"
MOST_IMAGES = 16
MOST_FILES = 64
LONGEST_FILE = 1 << 20
_IMAGE = r"initrd(\.img)?-.+|initramfs-.+\.img|initrd|initramfs"
_NOT_BOOTED = r".*(kdump|rescue).*|.*[.-](bak|old|orig|dpkg-\w+|new|tmp)"
_MACHINE = r"[0-9a-f]{32}|Default"  # a folder of the Boot Loader Specification


def read_system(tree: Tree, *, images: bool = True) -> System | None:
    """Return the system's files, or None if there are none. `images`: also unpack the initramfs images, which
    takes seconds; those that only root may read are reported as unseen.
    """
    fstab = _text(tree, "/etc/fstab")
    if fstab is None and all(_text(tree, file) is None for file in FILES):
        return None
    family = find_distribution(tree)
    words = (tree.text("/proc/cmdline") or "").split()
    hostname = tree.text("/proc/sys/kernel/hostname")
    return System(
        family=family,
        hostname=None if hostname in (None, "", "(none)") else hostname,  # the last is the kernel's own
        mdadm=_read_mdadm_confs(tree, family),
        fstab=config_files.parse_fstab(fstab or ""),
        crypttab=config_files.parse_crypttab(_text(tree, "/etc/crypttab") or ""),
        initramfs=tuple(read_images(tree)) if images else (),
        command_line=tuple(word for word in words if config_files.concerns_arrays(word)),
        unfinished=read_unfinished(tree),
        discards_on_parity={"Y": True, "N": False}.get(tree.text(SAFELY) or ""),
        sync_limit=_sync_limit(tree.text(SYNC_LIMIT) or ""),
        late_start=tree.content(LATE_START_ENABLED) is not None,
        kernel=tree.text("/proc/sys/kernel/osrelease"),
    )


def _sync_limit(text: str) -> int | None:
    return int(text) * KIB if text.isdigit() else None


def _read_mdadm_confs(tree: Tree, family: str | None) -> MdadmConf:
    """Merge the first existing file of the two places with those in the folder beside it; without a file,
    with those beside the first place: mdadm's config.c, load_conffile.
    """
    mains = MDADM_CONFS if (family or "").startswith("debian") else MDADM_CONFS[::-1]
    main = next((file for file in mains if tree.exists(file)), mains[0])
    names = list(filter(_is_conf_name, tree.names(f"{main}.d")))[:MOST_FILES]
    found = [(file, _text(tree, file)) for file in (main, *(f"{main}.d/{name}" for name in names))]
    confs = [config_files.parse_mdadm_conf(text, file) for file, text in found if text is not None]
    unread = (
        file for file, text in found if text is None and tree.exists(file) and not tree.is_directory(file)
    )
    return replace(config_files.merge_confs(confs), unread=tuple(unread))


def _text(tree: Tree, path: str) -> str | None:
    content = tree.content(path, LONGEST_FILE)
    return None if content is None else content.decode("utf-8", "replace")


def read_images(tree: Tree) -> Iterator[Initramfs]:
    """Yield the images that a boot loader would find; for a snapshot their recorded facts."""
    if not tree.live and tree.is_directory(CAPTURED):
        for name in tree.names(CAPTURED)[:MOST_IMAGES]:
            text = _text(tree, f"{CAPTURED}/{name}")
            if text is not None:
                yield parse_image_text(text)
        return
    for path in list(_image_paths(tree))[:MOST_IMAGES]:
        yield _read_image(tree, path)


def _image_paths(tree: Tree) -> Iterator[str]:
    """Yield the images in /boot, and those of the Boot Loader Specification: /boot/ID/VERSION/initrd. Links
    are skipped: they lead to other images of these.
    """
    for folder in ("/boot", "/efi", "/boot/efi"):
        below = [f"{folder}/{name}" for name in tree.names(folder) if re.fullmatch(_MACHINE, name)]
        for place in [folder, *(f"{machine}/{name}" for machine in below for name in tree.names(machine))]:
            for name in tree.names(place)[:MOST_FILES]:
                path = f"{place}/{name}"
                if (
                    re.fullmatch(_IMAGE, name)
                    and not re.fullmatch(_NOT_BOOTED, name)
                    and tree.link(path) is None
                ):
                    yield path


def _read_image(tree: Tree, path: str) -> Initramfs:
    descriptor = tree.open(path)
    if descriptor is None:
        return Initramfs(path, unseen="needs root" if tree.live and os.geteuid() != 0 else "cannot be opened")
    try:
        return read_initramfs(descriptor, path)
    finally:
        os.close(descriptor)


def image_text(image: Initramfs) -> str:
    """Format the facts about an image for a snapshot, with the ARRAY lines of the mdadm.conf in it."""
    lines = [f"path={image.path}", f"maker={image.maker}", f"mdadm={'yes' if image.has_mdadm else 'no'}"]
    lines += [f"asked={uuid}" for uuid in image.arrays_asked]
    lines += [f"unseen={image.unseen}"] if image.unseen else []
    if image.conf is not None:
        lines += ["conf:", *(line.text for line in image.conf.arrays)]
    return "\n".join(lines) + "\n"


def parse_image_text(text: str) -> Initramfs:
    head, inside, conf = text.partition("conf:\n")
    fields = export_values(head)
    asked = (config_files.array_uuid(line[6:]) for line in head.splitlines() if line.startswith("asked="))
    return Initramfs(
        path=fields.get("path", ""),
        maker=fields.get("maker", ""),
        has_mdadm=fields.get("mdadm") == "yes",
        conf=config_files.parse_mdadm_conf(conf, "mdadm.conf") if inside else None,
        arrays_asked=tuple(filter(None, asked)),
        unseen=fields.get("unseen", ""),
    )
