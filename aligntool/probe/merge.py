"""The table on the disk and the partitions of the kernel, brought together.

In: partitions as the table has them and as the kernel has them. Out: one list. Alone because the two can differ: a
table changed and not read again, slices that one side knows, an extended partition of which the kernel shows a stump.
"""

from collections.abc import Sequence
from dataclasses import replace

from aligntool.inventory import Fault, Partition, Role, Table, TableLabel
from aligntool.inventory.parked import parked_by_type
from aligntool.probe.contents import Contents
from aligntool.probe.partitions import (
    KernelPartition,
    told_partition,
    told_partitions,
    told_table,
    with_kernel,
)
from aligntool.probe.udev import Record

Either = Partition | KernelPartition


def bring_together(
    seen: Contents, kernel: Sequence[KernelPartition], record: Record, sector_size: int | None
) -> tuple[Table | None, tuple[Partition, ...]]:
    """The table and the partitions of a disk. Where the medium gives an I/O error in place of a table, the kernel and
    udev still know what they read when the sector was good.
    """
    if not seen.table_read:
        return _reported(told_table(record, kernel, sector_size), kernel, sector_size)
    if _are_volumes(seen, kernel):
        return seen.table, told_partitions(None, kernel, sector_size)
    if seen.table is None or seen.table.label is not TableLabel.UNKNOWN or seen.partitions:
        label = seen.table.label if seen.table else TableLabel.UNKNOWN
        return seen.table, merge(label, seen.partitions, kernel)
    told = told_table(record, kernel, sector_size) or seen.table
    return _reported(replace(told, faults=seen.table.faults), kernel, sector_size)


def _reported(
    table: Table | None, kernel: Sequence[KernelPartition], sector_size: int | None
) -> tuple[Table | None, tuple[Partition, ...]]:
    """Return the kernel's partitions, and the table with what their types state of a move in flight."""
    partitions = told_partitions(table, kernel, sector_size)
    return table and replace(table, in_flight=parked_by_type(partitions)), partitions


def _are_volumes(seen: Contents, kernel: Sequence[KernelPartition]) -> bool:
    """Of a Windows dynamic disk with an MBR the kernel shows the volumes in its database (block/partitions/ldm.c); the
    table only keeps others away from them.
    """
    if not kernel or seen.table is None or seen.table.label is not TableLabel.DOS:
        return False
    if all(fault.fault is not Fault.DYNAMIC_DISK for fault in seen.table.faults):
        return False
    return {part.extent for part in kernel} != {part.extent for part in seen.partitions}


def merge(
    label: TableLabel, partitions: Sequence[Partition], kernel: Sequence[KernelPartition]
) -> tuple[Partition, ...]:
    """Each of the kernel's partitions goes to the table's entry of its number and start, else to the one of its place,
    else to the one of its number. What the table does not have comes last.
    """
    left = {part.node: part for part in kernel}
    chosen: dict[int, KernelPartition] = {}
    for key in (_entry, _place, _number):
        waiting = {key(part): part for part in left.values()}
        for index, partition in enumerate(partitions):
            if index not in chosen and (found := waiting.pop(key(partition), None)):
                chosen[index] = left.pop(found.node)
    merged = [
        with_kernel(partition, chosen[index]) if index in chosen else partition
        for index, partition in enumerate(partitions)
    ]
    numbers = {partition.number for partition in partitions}
    merged += [_only_kernel(label, partitions, part) for part in left.values() if part.number not in numbers]
    return tuple(merged)


def _entry(one: Either) -> tuple[int, int]:
    return one.number, one.extent.start


def _place(one: Either) -> tuple[int, int]:
    return one.extent.start, one.extent.length


def _number(one: Either) -> tuple[int, int]:
    return one.number, 0


def _only_kernel(label: TableLabel, partitions: Sequence[Partition], part: KernelPartition) -> Partition:
    told = told_partition(label, part)
    inside = any(
        other.role is not Role.EXTENDED and other.extent != part.extent and other.extent.contains(part.extent)
        for other in partitions
    )
    return replace(told, role=Role.NESTED if inside else Role.PRIMARY)
