"""Which bytes of a drive are zeroed when what is on it is given up for an array.

In: a drive, what becomes of it, and where the array's data will lie on it. Out: runs of bytes. Alone because the plan
shows them and applying zeroes them: both ask here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aligntool.inventory import Disk
from aligntool.plan import MakeArray, NewEntry, Step
from aligntool.plan.wiping import wiped_ends
from aligntool.units import KIB, Extent


@dataclass(frozen=True, slots=True)
class DataArea:
    """Where on each member an array's data will lie: `offset` bytes from its start, `length` long; None: as long as
    there is room.
    """

    offset: int = 0
    length: int | None = None

    def of(self, member: Extent) -> Extent:
        room = max(member.length - self.offset, 0)
        return Extent(member.start + self.offset, room if self.length is None else min(self.length, room))


def data_area(steps: Sequence[Step]) -> DataArea:
    """By the command that makes the array."""
    for step in steps:
        if isinstance(step, MakeArray):
            return DataArea(planned_size(step, "--data-offset") or 0, planned_size(step, "--size"))
    return DataArea()


def planned_size(step: MakeArray, option: str) -> int | None:
    """Of an option of the command that is in KiB, such as --chunk=512K, in bytes; None: it is not given."""
    words = (word.removeprefix(f"{option}=") for word in step.command if word.startswith(f"{option}="))
    number = next(words, "").removesuffix("K")
    return int(number) * KIB if number.isdigit() else None


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
