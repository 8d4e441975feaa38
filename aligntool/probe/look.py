"""Looking: the machine, or the disks and images that the user names, become an Inventory.

In: what the user typed. Out: one Inventory. Alone because it only decides what is looked at, in which order, and what
becomes of a target that cannot be; the looking itself is done elsewhere.
"""

import os
import stat
from collections.abc import Iterator, Sequence

from aligntool.errors import Refused, objection_of, refuse
from aligntool.inventory import Disk, Inventory, System, Unseen
from aligntool.probe.devices import Block, block_of_number, find_block, list_blocks
from aligntool.probe.images import read_image
from aligntool.probe.limits import Given
from aligntool.probe.sysroot import open_sysroot
from aligntool.probe.tree import Tree

__all__ = ["Given", "look"]

_NOTHING_GIVEN = Given()


def look(
    targets: Sequence[str],
    *,
    sysroot: str | None = None,
    given: Given = _NOTHING_GIVEN,
    wake: bool = False,
    files: bool = True,
    arrays: bool = False,
) -> Inventory:
    """Every disk of the machine, or the targets. `sysroot`: a captured tree is looked at instead, and nothing else.
    `files`: where there is an array, also those of the system that make it come back, which takes seconds.
    `arrays`: every array that runs as well, named or not.

    Raises Refused when none of the targets can be looked at.
    """
    with open_sysroot(sysroot) as tree:
        if not targets:
            return _look_at_disks(tree, list_blocks(tree), given, wake=wake, files=files)
        found: dict[str, Block | None] = {}
        images: list[Disk] = []
        refused: list[tuple[str, Refused]] = []
        for target in targets:  # every one is tried before anything is refused: all reasons are told at once
            try:
                block = _find(tree, target)
                if block is not None:
                    found.setdefault(block.path, block)
                elif target not in found:
                    images.append(read_image(target, given))
                    found[target] = None
            except Refused as refusal:
                refused.append((target, refusal))
        if refused and not found:
            refuse(objection_of(refusal) for _, refusal in refused)
        for block in list_blocks(tree) if arrays else ():
            if tree.exists(f"{block.path}/md"):
                found.setdefault(block.path, block)
        blocks = [block for block in found.values() if block is not None]
        seen = _look_at_disks(tree, blocks, given, wake=True, files=files) if blocks else Inventory(())
        unseen = tuple(Unseen(target, str(refusal), refusal.hint) for target, refusal in refused)
        return Inventory((*seen.disks, *images), seen.uplinks, seen.adapters, unseen, seen.system)


def _look_at_disks(
    tree: Tree, blocks: Sequence[Block], given: Given, *, wake: bool, files: bool
) -> Inventory:
    """`wake`: disks that the user named are, because a name is a wish."""
    from aligntool.probe.disks import Looker
    from aligntool.probe.mapped import without_mapped_partitions
    from aligntool.probe.pcie import find_adapters, find_uplinks

    looker = Looker.of(tree, given, wake=wake)
    disks = without_mapped_partitions([looker.look_at(block) for block in blocks])
    system = _system(tree, disks) if files else None
    return Inventory(disks, find_uplinks(disks), find_adapters(tree), system=system)


def _system(tree: Tree, disks: Sequence[Disk]) -> System | None:
    """Only where there is an array: images are unpacked for it."""
    from aligntool.probe.unfinished import FOLDER

    if not any(disk.array for disk in disks) and not tree.names(FOLDER):
        return None
    from aligntool.probe.system import read_system

    return read_system(tree)


def _find(tree: Tree, target: str) -> Block | None:
    """A disk; None: the target is an image. Raises Refused."""
    if "\0" in target or not target:
        raise Refused(f"{target!r} is no name of a disk or file")
    if not tree.live:
        return _captured(tree, target)
    if "/" not in target:
        block = find_block(tree, target)
        if block is not None:
            return block
    return _on_this_machine(tree, target)


def _on_this_machine(tree: Tree, target: str) -> Block | None:
    try:
        status = os.stat(target)  # noqa: PTH116  (one call, not three)
    except OSError as error:
        hint = "aligntool audit, without a target, lists the disks of this machine"
        raise Refused(f"{target}: {error.strerror}", hint=hint) from error
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISBLK(mode):
        block = block_of_number(tree, f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}")
        if block is None:
            raise Refused(f"{target} is a node for a block device that this kernel does not have")
        return block
    if stat.S_ISDIR(mode):
        raise Refused(f"{target} is a folder", hint=f"--sysroot {target}, if it holds a captured machine")
    what = "a character device" if stat.S_ISCHR(mode) else "neither a block device nor a regular file"
    raise Refused(f"{target} is {what}", hint=_sibling(target))


def _sibling(target: str) -> str:
    """People type the NVMe controller and mean its namespace."""
    name = target.rpartition("/")[2]
    return f"aligntool audit {target}n1" if name.startswith("nvme") and name[4:].isdigit() else "lsblk -d"


def _captured(tree: Tree, target: str) -> Block:
    name = target.removeprefix("/dev/")
    block = find_block(tree, name) or next(_by_link(tree, name), None)
    if block is None:
        known = ", ".join(block.name for block in list_blocks(tree)[:12])
        raise Refused(f"{target} is not in the captured tree", hint=f"it has: {known}" if known else "")
    return block


def _by_link(tree: Tree, link: str) -> Iterator[Block]:
    """/dev/disk/by-id/... as udev made them on the captured machine."""
    from aligntool.probe.udev import open_database

    database = open_database(tree)
    for block in list_blocks(tree):
        parts = [f"{block.path}/{name}" for name in tree.names(block.path) if name.startswith(block.sysname)]
        for path in (block.path, *parts):
            if link in database.record(tree.text(f"{path}/dev"), path.rpartition("/")[2]).links:
                yield block
