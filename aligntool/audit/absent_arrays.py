"""Judge arrays that mdadm.conf or fstab names and of which no member is there: drives that came back blank.

The boot waits for the mount, goes on without it because of nofail, and what is written below the mount point
lands on the file system above it. Sources: mdadm.conf(5), fstab(5), systemd.mount(5).
"""

import re
from collections.abc import Iterator

from aligntool.audit.array_boot import kernel_node, known_arrays, mount_points_of, node_of, running_nodes
from aligntool.audit.report import Code, Finding, Severity
from aligntool.commands import typed
from aligntool.contents.md import MD
from aligntool.inventory import Disk, Inventory, Layer, Role, layers_on
from aligntool.system import ArrayLine, System, TableLine

_NATIVE = re.compile(r"(0|0\.90|1|1\.[012]|default)")  # other metadata is that of a firmware: mdadm.conf(5)
_FOREIGN_WORDS = re.compile(r"(?i)\s(container|member)=")
_WITHOUT_CONTENT = (Role.EXTENDED, Role.MAP)
_NODE = re.compile(r"/dev/md(/.+|_?d?\d+(p\d+)?)")
_LOOK = typed("lsblk -o NAME,SIZE,TYPE,FSTYPE,MODEL,SERIAL")


def absent_array_findings(inventory: Inventory) -> Iterator[Finding]:
    """Yield a finding for each array that the files name and that has no member, if every disk was read."""
    system = inventory.system
    if system is None or not inventory.is_whole or system.mdadm.unread or not _is_all_read(inventory):
        return
    mounts = tuple(_missing_mounts(inventory, system))
    lines = tuple(line for line in system.mdadm.arrays if _is_absent(line, inventory, system))
    nodes = {kernel_node(node_of(line.device)) for line in lines}
    for line in lines:
        sentence = f"{line.file} names the array {line.device or line.text}, and no member of it is there"
        yield _finding(sentence, line.text, mounts)
    if not known_arrays(inventory):  # otherwise a node may be another name of an array that is there
        for mount in mounts:
            if _NODE.fullmatch(mount.spec) and kernel_node(mount.spec) not in nodes:
                sentence = f"fstab names the array {mount.spec}, and no member of any array is there"
                yield _finding(sentence, mount.text, (mount,))


def _finding(sentence: str, text: str, mounts: tuple[TableLine, ...]) -> Finding:
    severity = Severity.ERROR if mounts else Severity.WARNING
    evidence = (text, *map(_loss, mounts))
    return Finding(Code.ARRAY_ABSENT, severity, sentence, evidence=evidence, next=_LOOK)


def _loss(line: TableLine) -> str:
    """Return what a line of fstab with a content that no disk has costs."""
    if not line.place.startswith("/"):
        return f"fstab uses {line.spec} as swap space, which no disk has"
    lands = "what is written there lands on the file system above"
    return f"fstab mounts {line.spec} at {line.place}, which no disk has; {lands}"


def _is_absent(line: ArrayLine, inventory: Inventory, system: System) -> bool:
    """Return whether the line names an array with md's own metadata by its UUID or its name, and no disk has
    a superblock of it.
    """
    metadata = re.search(r"(?i)\smetadata=(\S+)", line.text)
    is_native = metadata is None or _NATIVE.fullmatch(metadata[1])
    if line.device == "<ignore>" or not is_native or _FOREIGN_WORDS.search(line.text):
        return False
    if line.uuid:
        changing = [change.starts for change in system.unfinished]
        return line.uuid not in known_arrays(inventory) and line.uuid not in changing
    if not line.name:
        return False
    names = {(layer.label or "").lower() for layer in _layers(inventory) if layer.kind == MD.name}
    names |= {(disk.array.name or "").lower() for disk in inventory.disks if disk.array}
    return line.name.lower() not in names


def _missing_mounts(inventory: Inventory, system: System) -> Iterator[TableLine]:
    """Yield the fstab lines that are mounted at boot, but not now, from a content that no disk has."""
    found = {f"uuid={layer.uuid}".lower() for layer in _layers(inventory) if layer.uuid}
    found |= {f"label={layer.label}".lower() for layer in _layers(inventory) if layer.label}
    running = {node for disk in inventory.disks for node in running_nodes(disk)}
    mounted = {place for disk in inventory.disks for place in mount_points_of(disk)}
    for line in system.fstab:
        spec = line.spec.replace('"', "").lower()
        is_named = spec.startswith(("uuid=", "label=")) and spec not in found
        is_node = bool(_NODE.fullmatch(line.spec)) and line.spec not in running
        if (is_named or is_node) and "noauto" not in line.options and line.place not in mounted:
            yield line


def _layers(inventory: Inventory) -> Iterator[Layer]:
    for disk in inventory.disks:
        yield from layers_on(disk, None)


def _is_all_read(inventory: Inventory) -> bool:
    """Return whether the content of every disk is known, so that nothing that was not read is a member."""
    return not inventory.unseen and all(_is_read(disk) for disk in inventory.disks if disk.size)


def _is_read(disk: Disk) -> bool:
    parts = all(part.content_read for part in disk.partitions if part.role not in _WITHOUT_CONTENT)
    return disk.table_read and disk.content_read and parts
