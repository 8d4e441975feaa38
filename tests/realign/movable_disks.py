"""Disks whose partitions can be moved, in the notation of tests/audit/builders.py, with space for their table.

"1e 63+100000; 5l 126+1000"   the container starts with the first EBR; every other EBR lies 63 sectors before its
logical partition, or as many as there are.
"""

from dataclasses import replace

from aligntool.audit.report import Judged
from aligntool.change import MovePlan, RealignGoal, Used
from aligntool.claims import ALL_FREE
from aligntool.contents.windows_names import StartNames
from aligntool.inventory import Disk, DiskKind, Partition, Role, TableLabel
from aligntool.realign.planning import plan_realign
from aligntool.units import MIB, Extent
from tests.audit.builders import judge, made_disk

TRACK = 63


def movable_disk(
    text: str,
    *,
    label: TableLabel = TableLabel.GPT,
    size: int = 500 * MIB,
    logical: int = 512,
    physical: int = 4096,
    offset: int = 0,
    kind: DiskKind = DiskKind.ATA,
) -> Disk:
    disk = made_disk(text, label=label, size=size, logical=logical, physical=physical, offset=offset, kind=kind)
    return with_records(with_room(disk))


def with_room(disk: Disk) -> Disk:
    """Return the disk with a GPT of 128 entries, which takes the first 34 sectors of 512 bytes and the last 33, or 6
    and 5 of 4096.
    """
    size, sector = disk.size or 0, disk.sector_size
    first, last = (1, 0)
    if disk.table and disk.table.label is TableLabel.GPT:
        first, last = (34, 33) if sector == 512 else (6, 5)
    usable = Extent(first * sector, size - (first + last) * sector)
    return replace(disk, table=replace(disk.table, usable=usable) if disk.table else None)


def with_records(disk: Disk) -> Disk:
    container = next((part for part in disk.partitions if part.role is Role.EXTENDED), None)
    if container is None:
        return disk
    parts: list[Partition] = []
    end = 0
    for part in disk.partitions:
        if part.role is Role.LOGICAL:
            first = not end
            lead = min(TRACK * disk.sector_size, part.extent.start - end)
            record = container.extent.start if first else part.extent.start - lead
            end = part.extent.end
            part = replace(part, record_at=record, type_code="0x83")
        parts.append(part)
    return replace(disk, partitions=tuple(parts))


def judged(disk: Disk) -> Judged:
    return judge(disk).judged[0]


def plan_for(
    disk: Disk,
    goal: RealignGoal | None = None,
    used: dict[int, Used] | None = None,
    names: dict[int, StartNames] | None = None,
) -> MovePlan:
    return plan_realign(judged(disk), goal or RealignGoal(), used or {}, ALL_FREE, names=names)


def starts(plan: MovePlan) -> list[int]:
    """Return the starts in the sectors of the disk's table."""
    return [place.after.start // plan.disk.sector_size for place in plan.places]
