"""This machine as entries of an archive: what a look reads of it, and a little more for the looks of later versions.

In: the live `Tree`. Out: `Entry`s, which apply.archive writes and `--sysroot` reads. Alone because nothing else reads a
machine in order to keep it.
"""

import os
from collections.abc import Iterator

from aligntool.inventory import Disk, DiskKind
from aligntool.probe.access import open_to_read, suspended
from aligntool.probe.devices import Block, list_blocks
from aligntool.probe.disks import Looker
from aligntool.probe.identify import CAPTURED
from aligntool.probe.limits import Given
from aligntool.probe.masks import mask_file
from aligntool.probe.nvme_commands import get_host_memory_buffer, identify_controller, identify_namespace
from aligntool.probe.pcie import find_adapters
from aligntool.probe.placeholders import Masks
from aligntool.probe.recorder import FILE, LINK, Entry, Recorder
from aligntool.probe.system import CAPTURED as IMAGES
from aligntool.probe.system import image_text, read_images, read_system
from aligntool.probe.tree import Tree

__all__ = ["Entry", "collect"]

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
    place = f"{CAPTURED}/{block.sysname}"
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
