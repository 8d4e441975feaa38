"""Partition tables onto the disk, in the order that is the argument for their safety.

In: groups of sectors. Out: a disk that has them. Alone because a table is written in one way only, wherever it is
written from.
"""

from collections.abc import Iterable

from aligntool.apply.device import Device, Sectors, Writing
from aligntool.apply.partition_tables import TableImages, TableState, table_state, way_to
from aligntool.errors import Stopped


def write_table(
    device: Device, images: TableImages, goal: TableState, *, first: Writing | None = None
) -> None:
    """From whatever a cut has left to `goal`: group by group, each durable and read back before the next begins.

    `first`: groups to write before it, over any other table. Raises Stopped when what is read back differs, or, without
    them, when the table is another program's.
    """
    anew = first is not None or _torn(device, images)
    writing = (*(first or ()), *(images.of(goal) if anew else way_to(device, images, goal)))
    for group in writing:
        for sectors in group:
            device.write(sectors.at, sectors.data)
        device.flush()
        for sectors in group:
            if device.read(sectors.at, len(sectors.data)) != sectors.data:
                raise Stopped(f"the partition table at byte {sectors.at} reads back as something else",
                              hint="the disk is failing; aligntool resume DISK writes it again")  # fmt: skip


def _torn(device: Device, images: TableImages) -> bool:
    return table_state(device, images) is TableState.OTHER and is_ours(device, images)


def is_ours(device: Device, images: TableImages) -> bool:
    """Whether every byte of the table's own sectors is that of one of its three states: a torn mix, and not
    somebody else's table.

    EBRs do not count: in flight, their sectors may lie under data.
    """
    states: dict[int, list[bytes]] = {}
    for writing in (images.before, images.parked, images.after):
        for sectors in all_sectors(writing):
            states.setdefault(sectors.at, []).append(sectors.data)
    for sectors in all_sectors(images.parked):
        found = bytes(device.read(sectors.at, len(sectors.data)))
        known = states[sectors.at]
        if found not in known and not all(
            byte in set(those) for byte, *those in zip(found, *known, strict=True)
        ):
            return False
    return True


def all_sectors(writing: Writing) -> Iterable[Sectors]:
    return (sectors for group in writing for sectors in group)
