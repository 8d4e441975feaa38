"""Which bytes of a drive are zeroed when what is on it is given up for an array.

In: a drive, what becomes of it, and where the array's data will lie on it. Out: runs of bytes. Alone because the plan
shows them and applying zeroes them: both ask here.
"""

from collections.abc import Sequence

from aligntool.inventory import Disk
from aligntool.plan import DataArea, MakeArray, NewEntry, Step
from aligntool.plan.wiping import wiped_ends
from aligntool.units import Extent


def data_area(steps: Sequence[Step]) -> DataArea:
    """Return where the array that these steps make has its data on each member."""
    return next((step.data for step in steps if isinstance(step, MakeArray)), DataArea())


def zeroed(
    disk: Disk, entries: Sequence[NewEntry], taken: Extent | None, area: DataArea
) -> tuple[Extent, ...]:
    """Bytes of the drive: a MiB at both ends of it, of each partition that it has or gets, and of the array's data.

    `entries`: of the new table, the member last. `taken`: the partition that is taken as it is; nothing beside it is
    zeroed then. Sorted, and no two of them overlap.
    """
    sector_size = disk.limits.logical_block_size or disk.sector_size
    if taken is not None:
        return wiped_ends((taken, area.of(taken)), taken, sector_size)
    whole = Extent(0, disk.size or 0)
    member = entries[-1].extent if entries else whole
    parts = [part.extent for part in disk.partitions] + [entry.extent for entry in entries]
    return wiped_ends((whole, *parts, area.of(member)), whole, sector_size)
