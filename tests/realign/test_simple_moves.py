"""The usual disks: one or several partitions, one gap, everybody to the next boundary."""

from dataclasses import replace

import pytest

from aligntool.audit import Judged
from aligntool.inventory import Disk, DiskKind, TableLabel
from aligntool.plan import RealignGoal, from_json, to_json
from aligntool.realign import mends, plan_realign
from aligntool.units import MIB, Extent
from tests.audit.made import judge, made_disk


def whole(disk: Disk) -> Disk:
    """With the room that its label leaves for partitions: a GPT takes 34 sectors at the start and 33 at the end."""
    size, sector = disk.size or 0, disk.sector_size
    first, last = (34, 33) if disk.table and disk.table.label is TableLabel.GPT else (1, 0)
    usable = Extent(first * sector, size - (first + last) * sector)
    return replace(disk, table=replace(disk.table, usable=usable) if disk.table else None)


def judged(
    text: str, *, label: TableLabel = TableLabel.GPT, size: int = 500 * MIB, physical: int = 4096
) -> Judged:
    disk = made_disk(text, label=label, size=size, physical=physical, kind=DiskKind.IMAGE)
    return judge(whole(disk)).judged[0]


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("63+100000 ext4", [2048]),
        ("34+100000 xfs", [2048]),
        ("2047+100000 vfat", [2048]),
        ("2049+100000 ntfs", [2048]),
        ("63+100000 ext4; 100063+200000 xfs", [2048, 102400]),
        ("2048+100000 ext4; 102049+100000 xfs", [2048, 102400]),
        ("2048+100000", [2048]),
    ],
)
@pytest.mark.parametrize("label", [TableLabel.GPT, TableLabel.DOS])
def test_a_start_off_the_grid_goes_to_the_nearest_whole_mebibyte(
    text: str, starts: list[int], label: TableLabel
) -> None:
    plan = plan_realign(judged(text, label=label), RealignGoal(), {})
    assert [place.after.start // 512 for place in plan.places] == starts
    assert from_json(to_json(plan)) == plan


def test_an_aligned_disk_needs_no_step() -> None:
    plan = plan_realign(judged("2048+100000 ext4; 200000+4 ext4"), RealignGoal(), {})
    assert plan.steps == ()
    assert mends(judged("2048+100000 ext4")) == ()
