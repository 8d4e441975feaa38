"""The partitions of a multipath map: device-mapper devices of their own, which kpartx makes.

In: the map in sysfs. Out: `KernelPartition`s. Alone because such a partition has no `start` in sysfs: udev wrote down
where the table says that it begins (ID_PART_ENTRY_OFFSET, multipath-tools' kpartx.rules and blkid).
"""

import re
from collections.abc import Sequence

from aligntool.inventory import Disk, DiskKind
from aligntool.probe.devices import Block
from aligntool.probe.limits import SYSFS_SECTOR
from aligntool.probe.partitions import KernelPartition, Surroundings
from aligntool.probe.stack import names_above
from aligntool.units import Extent

_UUID = re.compile(r"part(\d{1,4})-.+", re.ASCII)


def read_mapped_partitions(around: Surroundings, block: Block) -> tuple[KernelPartition, ...]:
    """Ordered by number, each number once."""
    found: dict[int, KernelPartition] = {}
    for name in around.tree.names(f"{block.path}/holders"):
        partition = _read(around, name)
        if partition is not None:
            found.setdefault(partition.number, partition)
    return tuple(found[number] for number in sorted(found))


def _read(around: Surroundings, name: str) -> KernelPartition | None:
    tree = around.tree
    path = tree.real(f"/sys/class/block/{name}") or tree.real(f"/sys/block/{name}") or ""
    mapping = _UUID.fullmatch(tree.text(f"{path}/dm/uuid") or "")
    size, device = tree.number(f"{path}/size"), tree.text(f"{path}/dev")
    record = around.udev.record(device, name)
    start = record.number("ID_PART_ENTRY_OFFSET")
    if mapping is None or start is None or size is None or size < 0:
        return None
    shift = tree.number(f"{path}/alignment_offset")
    return KernelPartition(
        number=int(mapping.group(1)),
        extent=Extent(start * SYSFS_SECTOR, size * SYSFS_SECTOR),
        node=name,
        alignment_offset=shift if shift is not None and shift >= 0 else None,
        discard_alignment=None,
        holders=names_above(tree, path),
        mounted_at=around.mounts.of(device, f"/dev/{name}", f"/dev/mapper/{record.get('DM_NAME')}"),
        record=record,
    )


def without_mapped_partitions(disks: Sequence[Disk]) -> tuple[Disk, ...]:
    """The disks, and of the mappings only those that are not told as partitions of another."""
    told = {part.node for disk in disks if disk.kind is DiskKind.DM for part in disk.partitions}
    return tuple(
        disk for disk in disks
        if disk.kind is not DiskKind.DM or disk.name not in told or disk.partitions
    )  # fmt: skip
