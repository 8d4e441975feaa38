"""Looking: the machine, or the disks and images that the user names, become an Inventory.

In: what the user typed. Out: one Inventory. Alone because it only decides what is looked at, in which order, and what
becomes of a target that cannot be; the looking itself is done elsewhere.
"""

import os
import stat
from collections.abc import Iterator, Sequence

from aligntool.errors import Refused
from aligntool.inventory import Disk, Inventory, Unseen
from aligntool.probe.devices import Block, block_of_number, find_block, list_blocks
from aligntool.probe.disks import Looker
from aligntool.probe.images import read_image
from aligntool.probe.limits import Given
from aligntool.probe.mounts import read_mounts
from aligntool.probe.partitions import Surroundings
from aligntool.probe.pcie import Topology, find_adapters, find_uplinks
from aligntool.probe.sysroot import open_sysroot
from aligntool.probe.tree import Tree
from aligntool.probe.udev import open_database

__all__ = ["Given", "look"]

_NOTHING_GIVEN = Given()


def look(
    targets: Sequence[str], *, sysroot: str | None = None, given: Given = _NOTHING_GIVEN, wake: bool = False
) -> Inventory:
    """Every disk of the machine, or the targets. `sysroot`: a captured tree is looked at instead, and nothing else.

    Raises Refused when none of the targets can be looked at.
    """
    with open_sysroot(sysroot) as tree:
        around = Surroundings(tree, open_database(tree), read_mounts(tree))
        looker = Looker(around, Topology(tree), given, wake)
        if targets:
            disks, unseen = _named(looker, targets)
        else:
            disks, unseen = tuple(looker.look_at(block, named=False) for block in list_blocks(tree)), ()
        return Inventory(disks, find_uplinks(disks), find_adapters(tree), unseen)


def _named(looker: Looker, targets: Sequence[str]) -> tuple[tuple[Disk, ...], tuple[Unseen, ...]]:
    """Every target is tried before anything is refused, so that all reasons are told at once."""
    disks: dict[str, Disk] = {}
    refused: list[tuple[str, Refused]] = []
    for target in targets:
        try:
            found = _find(looker.around.tree, target, looker.around)
            if isinstance(found, Block):
                if found.path not in disks:
                    disks[found.path] = looker.look_at(found, named=True)
            else:
                disks[found] = read_image(found, looker.given)
        except Refused as refusal:
            refused.append((target, refusal))
    if refused and not disks:
        raise _all_refused([refusal for _, refusal in refused])
    return tuple(disks.values()), tuple(
        Unseen(target, str(refusal), refusal.hint) for target, refusal in refused
    )


def _all_refused(refusals: Sequence[Refused]) -> Refused:
    reasons = [str(refusal) for refusal in refusals]
    hints = dict.fromkeys(refusal.hint for refusal in refusals if refusal.hint)
    return Refused("\n".join(reasons), hint="\n".join(hints))


def _find(tree: Tree, target: str, around: Surroundings) -> Block | str:
    """A disk, or the path of an image. Raises Refused."""
    if "\0" in target or not target:
        raise Refused(f"{target!r} is no name of a disk or file")
    if not tree.live:
        return _captured(around, target)
    if "/" not in target:
        block = find_block(tree, target)
        if block is not None:
            return block
    return _on_this_machine(tree, target)


def _on_this_machine(tree: Tree, target: str) -> Block | str:
    try:
        status = os.stat(target)  # noqa: PTH116  (one call, not three)
    except OSError as error:
        hint = "aligntool audit, without a target, lists the disks of this machine"
        raise Refused(f"{target}: {error.strerror}", hint=hint) from error
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return target
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
    return f"aligntool audit {target}n1" if name.startswith("nvme") and name[4:].isdigit() else ""


def _captured(around: Surroundings, target: str) -> Block:
    name = target.removeprefix("/dev/")
    block = find_block(around.tree, name) or next(_by_link(around, name), None)
    if block is None:
        known = ", ".join(block.name for block in list_blocks(around.tree)[:12])
        raise Refused(f"{target} is not in the captured tree", hint=f"it has: {known}" if known else "")
    return block


def _by_link(around: Surroundings, link: str) -> Iterator[Block]:
    """/dev/disk/by-id/... as udev made them on the captured machine."""
    for block in list_blocks(around.tree):
        paths = [block.path, *_partition_folders(around.tree, block)]
        for path in paths:
            number = around.tree.text(f"{path}/dev")
            if link in around.udev.record(number, path.rpartition("/")[2]).links:
                yield block


def _partition_folders(tree: Tree, block: Block) -> list[str]:
    return [f"{block.path}/{name}" for name in tree.names(block.path) if name.startswith(block.sysname)]
