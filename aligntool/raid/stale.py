"""Lines in the files of the system that name an array of which no member is present, and that a new array
replaces: its name and its mount point are theirs.

They become comments. A line stays, and the new array is refused, unless it is certain that nothing on this
machine is meant by it: every disk was read, and nothing on one can hide another member.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aligntool.audit.array_boot import base_node, kernel_node, known_arrays, node_of
from aligntool.change import RaidGoal
from aligntool.contents.catalogue import kind_named
from aligntool.inventory import Disk, Inventory, Layer, Partition, Role, layers_on, with_inner
from aligntool.raid import boot
from aligntool.raid.commands import array_device
from aligntool.raid.running import CRYPTTAB
from aligntool.steps import EditFile
from aligntool.system import ArrayLine, System, TableLine


@dataclass(frozen=True, slots=True)
class StaleLine:
    """A line that becomes a comment."""

    file: str
    text: str

    @property
    def edit(self) -> EditFile:
        return boot.edit(self.file, self.text, f"# replaced by aligntool: {self.text}")

    @property
    def words(self) -> str:
        why = "it names an array of which no member is on this machine"
        return f"a line in {self.file} becomes a comment, because {why}: {self.text}"


def lines_in_the_way(files: System, goal: RaidGoal) -> tuple[ArrayLine, ...]:
    """Return the ARRAY lines that give the name of the new array to another one."""
    return tuple(line for line in files.mdadm.arrays if line.uuid and _names(line.device, goal))


def may_have_stale_lines(files: System, goal: RaidGoal) -> bool:
    """Return whether a line gives the name of the new array to another one, or is for the file system of a
    single drive that had the name.
    """
    marked = any(boot.mark_of_drive(goal) in line.options for line in files.fstab)
    return marked or bool(lines_in_the_way(files, goal))


def stale_lines(inventory: Inventory, goal: RaidGoal) -> tuple[StaleLine, ...]:
    """Return the lines that the new array replaces. `inventory`: of all disks, each with its content."""
    files = inventory.system
    if files is None or files.mdadm.unread or unseen_disks(inventory):
        return ()
    named = lines_in_the_way(files, goal)
    known = known_arrays(inventory)
    if not may_have_stale_lines(files, goal) or any(line.uuid in known or line.joined for line in named):
        return ()
    found = [StaleLine(line.file, line.text) for line in named]
    # Without the line of its file system, a directory would be bound that is on the disk of the system.
    lines = sorted(files.fstab, key=lambda line: not boot.is_bind_line(line, goal))
    found += [StaleLine(boot.FSTAB, line.text) for line in lines if _is_stale(line, goal, inventory)]
    found += [StaleLine(CRYPTTAB, line.text) for line in files.crypttab if _names(line.spec, goal)]
    texts = [(line.file, line.text) for line in files.mdadm.arrays]
    texts += [(boot.FSTAB, line.text) for line in files.fstab]
    texts += [(CRYPTTAB, line.text) for line in files.crypttab]
    return tuple(line for line in dict.fromkeys(found) if not _is_ambiguous(line, texts))


def _names(device: str | None, goal: RaidGoal) -> bool:
    """Return whether an ARRAY line's device, or a node, is that of the new array."""
    wanted = array_device(goal)
    return bool(device) and kernel_node(node_of(base_node(device or ""))) == kernel_node(wanted)


def _is_stale(line: TableLine, goal: RaidGoal, inventory: Inventory) -> bool:
    """Return whether a line of fstab is for the node of the new array, or for a directory of the former one,
    or has its mount point and names a file system that is nowhere.
    """
    if _names(line.spec, goal) or boot.is_bind_line(line, goal):
        return True
    key, _, value = line.spec.partition("=")
    is_meant = boot.mark_of_drive(goal) in line.options or (line.place == goal.place and goal.place)
    if not is_meant or key.upper() not in ("UUID", "LABEL") or not value:
        return False
    layers = [layer for disk in inventory.disks for layer in layers_on(disk, None)]
    found = {(layer.uuid if key.upper() == "UUID" else layer.label or "") or "" for layer in layers}
    return value.lower() not in {word.lower() for word in found}


def _is_ambiguous(line: StaleLine, texts: Sequence[tuple[str, str]]) -> bool:
    """Return whether another line contains its text: an edit replaces every line that contains it. A byte
    that is not UTF-8 was read as U+FFFD, which the file does not contain.
    """
    others = (text for file, text in texts if file == line.file and text != line.text)
    return "\ufffd" in line.text or any(line.text in text for text in others)


# What has to be seen before a line may be called stale.


def unseen_disks(inventory: Inventory) -> tuple[str, ...]:
    """Return the disks and partitions that were not read, or hold something that cannot be looked into, such
    as a LUKS that is not open.
    """
    return tuple(name for disk in inventory.disks for name in _unseen(disk)) + tuple(
        unseen.what for unseen in inventory.unseen
    )


def _unseen(disk: Disk) -> Iterator[str]:
    if not disk.size:
        return
    if not (disk.table_read and disk.content_read) or _hides(disk.content, disk):
        yield disk.name
    for part in disk.partitions:
        is_read = part.content_read or part.role in (Role.EXTENDED, Role.MAP)
        if not is_read or _hides(part.content, part):
            yield part.node or f"partition {part.number} of {disk.name}"


def _hides(content: Sequence[Layer], on: Disk | Partition) -> bool:
    """Return whether a layer is neither seen through nor in use by a device, which was read itself."""
    return not on.holders and any(
        not kind_named(layer.kind).is_seen_through(layer) for layer in with_inner(content)
    )
