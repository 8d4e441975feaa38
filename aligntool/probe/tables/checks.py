"""What can be wrong between the partitions of any table: they overlap, or they leave the disk.

Comes in: partitions, as the table's own parser made them. Goes out: faults with the numbers of the partitions.
Alone because MBR, GPT and the old labels share it.
"""

from collections.abc import Iterable

from aligntool.inventory import Fault, Partition, TableFault


def overlaps(partitions: Iterable[Partition]) -> list[TableFault]:
    """One fault for each partition that starts before an earlier one has ended.

    A sweep in order of the start: it names every partition that lies in another, and it costs n log n, not n²,
    because a hostile GPT can have thousands of entries on the same place.
    """
    faults = []
    reaching: Partition | None = None  # of those seen, the one that ends last
    for partition in sorted(partitions, key=lambda item: (item.extent.start, item.number)):
        if not partition.extent.length:
            continue
        if reaching is not None and partition.extent.start < reaching.extent.end:
            faults.append(_overlap(reaching, partition))
        if reaching is None or partition.extent.end > reaching.extent.end:
            reaching = partition
    return faults


def _overlap(first: Partition, second: Partition) -> TableFault:
    shared = min(first.extent.end, second.extent.end) - second.extent.start
    return TableFault(
        Fault.OVERLAP,
        f"partition {second.number} starts at byte {second.extent.start}, inside partition {first.number}, which "
        f"ends at byte {first.extent.end}; they share {shared} bytes",
        second.extent.start,
        tuple(sorted((first.number, second.number))),
    )


def beyond_end(partitions: Iterable[Partition], disk_size: int) -> list[TableFault]:
    return [_beyond(partition, disk_size) for partition in partitions if partition.extent.end > disk_size]


def _beyond(partition: Partition, disk_size: int) -> TableFault:
    start, end = partition.extent.start, partition.extent.end
    if start >= disk_size:
        detail = (
            f"partition {partition.number} starts at byte {start}, but the disk ends at byte {disk_size}; "
            "Linux leaves it out"
        )
    else:
        detail = (
            f"partition {partition.number} ends at byte {end}, {end - disk_size} bytes beyond the disk's end at "
            f"byte {disk_size}; Linux cuts it short"
        )
    return TableFault(Fault.BEYOND_END, detail, start, (partition.number,))
