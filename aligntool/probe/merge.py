"""The table on the disk and the partitions of the kernel, brought together.

In: partitions as the table has them and as the kernel has them. Out: one list. Alone because the two can differ: a
table changed and not read again, slices that one side knows, an extended partition of which the kernel shows a stump.
"""

from collections.abc import Sequence
from dataclasses import replace

from aligntool.inventory import Partition, Role, TableLabel
from aligntool.probe.partitions import KernelPartition, told_partition, with_kernel

Either = Partition | KernelPartition


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
