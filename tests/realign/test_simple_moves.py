"""The usual disks: one or several partitions, a gap, everything moves to the nearest boundary."""

import pytest

from aligntool.change import from_json, to_json
from aligntool.inventory import TableLabel
from aligntool.realign.planning import find_repairs
from aligntool.render.lines import text_of
from aligntool.render.plan import plan_lines
from tests.realign.movable_disks import judged, movable_disk, plan_for, starts


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("63+100000 ext4", [2048]),
        ("34+100000 xfs", [2048]),
        ("2047+100000 vfat", [2048]),
        ("2049+100000 ntfs", [2048]),
        ("63+100000 ext4; 100063+200000 xfs", [2048, 102400]),
        ("2048+100000 ext4; 102049+100000 xfs", [2048, 102400]),
        ("2048+100000 ext4; 103423+100000 xfs", [2048, 102400]),
        ("2048+100000 ext4; 103425+100000 xfs", [2048, 104448]),
        ("2048+100000", [2048]),
    ],
)
@pytest.mark.parametrize("label", [TableLabel.GPT, TableLabel.DOS])
def test_a_start_off_the_grid_is_moved_to_the_nearest_whole_mib(text: str, after: list[int], label: TableLabel) -> None:
    plan = plan_for(movable_disk(text, label=label))
    assert starts(plan) == after
    assert from_json(to_json(plan)) == plan


def test_an_aligned_disk_needs_no_step() -> None:
    disk = movable_disk("2048+100000 ext4; 200000+4 ext4")
    assert plan_for(disk).steps == ()
    assert find_repairs(judged(disk)) == ()


def test_a_plan_for_several_windows_partitions_says_once_what_to_do_afterwards() -> None:
    plan = plan_for(movable_disk("63+100000 ntfs; 100063+200000 ntfs", label=TableLabel.DOS))
    assert sum("Disk Management" in sentence for sentence in plan.attention) == 2
    text = "".join(text_of(plan_lines(plan, width=1000)))
    assert text.count("Disk Management") == 1 and "partition 1, partition 2: Windows remembers drive letters" in text
