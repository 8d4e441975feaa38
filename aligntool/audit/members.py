"""Members of running md arrays whose superblocks nobody could read: sysfs knows where their data start all the same.

In: an Inventory. Out: the same with a layer on every such member, so that the stack is added up without root too.
"""

from dataclasses import replace

from aligntool.inventory import ArrayFacts, Disk, Inventory, Layer, Partition
from aligntool.units import Extent

_Offsets = dict[str, tuple[ArrayFacts, int]]


def with_members(inventory: Inventory) -> Inventory:
    offsets: _Offsets = {
        member: (disk.array, offset)
        for disk in inventory.disks
        if disk.array
        for member, offset in disk.array.member_data_offsets
    }
    if not offsets:
        return inventory
    return replace(inventory, disks=tuple(_disk(disk, offsets) for disk in inventory.disks))


def _disk(disk: Disk, offsets: _Offsets) -> Disk:
    if disk.name in offsets and not disk.content_read and disk.size:
        disk = replace(disk, content=(_layer(Extent(0, disk.size), *offsets[disk.name]),))
    if any(part.node in offsets and not part.content_read for part in disk.partitions):
        disk = replace(disk, partitions=tuple(_partition(part, offsets) for part in disk.partitions))
    return disk


def _partition(partition: Partition, offsets: _Offsets) -> Partition:
    if partition.node not in offsets or partition.content_read:
        return partition
    return replace(partition, content=(_layer(partition.extent, *offsets[partition.node]),))


def _layer(extent: Extent, array: ArrayFacts, offset: int) -> Layer:
    return Layer(
        "linux_raid_member", extent, array.metadata, data_start=extent.start + offset,
        raid_level=array.level, raid_chunk=array.chunk or 0, raid_members=len(array.members),
    )  # fmt: skip
