"""Record what an audit reads of a machine into an archive."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from aligntool.inventory import Disk, DiskKind
from aligntool.linux.commands import get_host_memory_buffer, identify_controller, identify_namespace
from aligntool.linux.devices import Block, list_blocks, open_to_read, suspended
from aligntool.linux.drives import Given
from aligntool.linux.look import CAPTURED_IDENTIFY, Looker
from aligntool.linux.masks import Masks, mask_file
from aligntool.linux.pcie import find_adapters
from aligntool.linux.sysfs import LONGEST_CONTENT, Tree, as_number, stripped
from aligntool.linux.system import CAPTURED as IMAGES
from aligntool.linux.system import image_text, read_images, read_system
from aligntool.system import LATE_START_ENABLED

# A look at this machine that records everything it reads. This is how a snapshot cannot forget anything: what was
# not read while looking is not needed to look again.

FILE, LINK, FOLDER = "file", "symlink", "directory"
_OPEN_TO_ALL = (
    "/sys/",
    "/proc/",
    "/run/udev/",
    "/etc/os-release",
    "/usr/lib/os-release",
    "/etc/fstab",
    "/etc/mdadm/mdadm.conf",
    "/etc/mdadm.conf",
    LATE_START_ENABLED,
)
# /proc/self leads to a number that means nothing later, /etc/os-release to where nobody asks for it
_KEPT_AS_ASKED = ("/proc/", "/etc/", "/usr/lib/")


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to put into a snapshot."""

    path: str  # "sys/block/sda", without the leading slash
    kind: str
    content: bytes = b""  # of a file; of a symbolic link, where it leads


@dataclass(frozen=True, slots=True)
class Recorder(Tree):
    """Answers for this machine, and says it were a captured tree, so that nobody opens a disk."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    source: Tree = field(default_factory=lambda: Tree(""))

    @property
    def live(self) -> bool:
        return False

    def text(self, path: str) -> str | None:
        content = self.content(path, 4096)
        return None if content is None else stripped(content)

    def number(self, path: str) -> int | None:
        return as_number(self.text(path))

    def content(self, path: str, limit: int = LONGEST_CONTENT) -> bytes | None:
        if not path.startswith(_OPEN_TO_ALL):
            return None
        content = self.source.content(path, limit)
        if content is not None:
            self.files[self._place(path)] = content
        return content

    def names(self, path: str) -> list[str]:
        if not f"{path}/".startswith(_OPEN_TO_ALL) or not self.is_directory(path):
            return []
        names = self.source.names(path)
        for name in names:
            self._note(f"{path}/{name}")
        return names

    def exists(self, path: str) -> bool:
        return self.real(path) is not None

    def is_directory(self, path: str) -> bool:
        if not f"{path}/".startswith(_OPEN_TO_ALL) or not self.source.is_directory(path):
            return False
        self._note(path)
        return True

    def link(self, path: str) -> str | None:
        self._note(path)
        return self.source.link(path)

    def real(self, path: str) -> str | None:
        real = self.source.real(path)
        if real is not None:
            self._note(path)
            self._note(real)
            if not self.source.is_directory(real):
                self.content(real)
        return real

    def _note(self, path: str) -> None:
        place = self._place(path)
        if place not in self.links and self.source.is_directory(place):
            self.folders.add(place)

    def _place(self, path: str) -> str:
        """Where a path lies with no symbolic link before its last word; the links on the way are noted."""
        if path.startswith(_KEPT_AS_ASKED):
            return path
        here, words = "", [word for word in path.split("/") if word]
        for index, word in enumerate(words):
            place = f"{here}/{word}"
            if place not in self.links:
                target = self.source.link(place)
                if target is None:
                    here = place
                    continue
                self.links[place] = target
            if index == len(words) - 1:
                return place
            here = self.source.real(place) or place
        return here

    def entries(self) -> list[Entry]:
        found = [Entry(path[1:], FOLDER) for path in self.folders]
        found += [Entry(path[1:], LINK, os.fsencode(target)) for path, target in self.links.items()]
        found += [Entry(path[1:], FILE, content) for path, content in self.files.items()]
        return sorted(found, key=lambda entry: entry.path)


# This machine as entries of an archive: what a look reads of it, and a little more for the looks of later versions.
# Nothing else reads a machine in order to keep it.

# Folders of a block device whose attributes are kept whole; those that change while one looks are left out.
_FOLDERS = ("", "/queue", "/md", "/md/bitmap", "/dm", "/loop", "/bcache", "/integrity")
_VOLATILE = frozenset(("stat", "inflight", "trace", "events", "io_poll_delay"))
_MORE = ("/proc/sys/kernel/osrelease", "/proc/mdstat")
_DEVICE = [
    "type",
    "state",
    "transport",
    "cntlid",
    "subsystype",
    "queue_type",
    "timeout",
    "vpd_pg89",
    "vpd_pgb0",
    "vpd_pgb1",
    "vpd_pgb2",
    "cmdq_en",
]
_MOST_ATTRIBUTES = 400  # in one folder


def collect(tree: Tree, *, serials: bool) -> Iterator[Entry]:
    """Without `serials` every identity is replaced by a placeholder. Opens NVMe namespaces for Identify, no other
    device, and nothing for writing.
    """
    recorder = Recorder("", source=tree)
    seen = _look(recorder)
    for block, disk in seen:
        _keep_attributes(recorder, block)
        if disk.kind is DiskKind.NVME:
            recorder.files.update(_identify(tree, block))
    for path in _MORE:
        recorder.content(path)
    if any(disk.array for _, disk in seen):
        read_system(recorder)
        for number, image in enumerate(read_images(tree), 1):
            recorder.files[f"{IMAGES}/{number}"] = image_text(image).encode()
    yield from recorder.entries() if serials else _masked(recorder.entries())


def _look(recorder: Recorder) -> list[tuple[Block, Disk]]:
    looker = Looker.of(recorder, Given(), wake=False)
    find_adapters(recorder)
    return [(block, looker.look_at(block)) for block in list_blocks(recorder)]


def _keep_attributes(recorder: Recorder, block: Block) -> None:
    names = recorder.names(block.path)
    folders = [f"{block.path}{folder}" for folder in _FOLDERS]
    folders += [f"{block.path}/{name}" for name in names if name.startswith(block.sysname)]
    for folder in folders:
        if recorder.is_directory(folder):
            for name in recorder.source.names(folder)[:_MOST_ATTRIBUTES]:
                path = f"{folder}/{name}"
                if name not in _VOLATILE and recorder.source.link(path) is None:
                    recorder.text(path)
    for name in _DEVICE:
        recorder.content(f"{block.device}/{name}", 4096)


def _identify(tree: Tree, block: Block) -> Iterator[tuple[str, bytes]]:
    if not tree.live or suspended(tree, block):
        return
    descriptor = open_to_read(f"/dev/{block.name}")
    if not isinstance(descriptor, int):
        return
    place = f"{CAPTURED_IDENTIFY}/{block.sysname}"
    try:
        controller = identify_controller(descriptor)
        namespace = identify_namespace(descriptor, tree.number(f"{block.path}/nsid"))
        buffer = get_host_memory_buffer(descriptor)
    finally:
        os.close(descriptor)
    if controller is not None:
        yield f"{place}.ctrl", controller
    if namespace is not None:
        yield f"{place}.ns", namespace
    if buffer is not None:
        yield f"{place}.hmb", buffer[0].to_bytes(4, "little") + buffer[1]


def _masked(entries: list[Entry]) -> Iterator[Entry]:
    """Files by what they are; folders and links by their names, where a bus puts identities into its paths."""
    masks = Masks()
    for entry in entries:
        path = masks.anywhere(entry.path)
        if entry.kind == LINK:
            yield Entry(path, LINK, os.fsencode(masks.anywhere(os.fsdecode(entry.content))))
            continue
        content = mask_file(masks, f"/{entry.path}", entry.content) if entry.kind == FILE else b""
        if content is not None:
            yield Entry(path, entry.kind, content)
