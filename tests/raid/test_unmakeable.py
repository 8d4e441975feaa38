"""What mkfs and md stop at, or make otherwise than it was planned, is refused before anything is written."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.plan import MakeArray, MakeFileSystem, Plan, RaidGoal
from aligntool.units import GIB, KIB, MIB
from tests.conftest import find_tool, run
from tests.raid.made import drive, drives, goal, planned


def refused(wanted: RaidGoal, *disks: object) -> str:
    with pytest.raises(Refused) as caught:
        planned(wanted, *disks)  # type: ignore[arg-type]
    return str(caught.value)


def mkfs(plan: Plan) -> tuple[str, ...]:
    """Without the device."""
    (step,) = [step for step in plan.steps if isinstance(step, MakeFileSystem)]
    return step.command[:-1]


# What the array of drives of this size has, and what it is to hold. Before its size was asked for, each was planned,
# and mkfs 6.1 stopped after the array was made.
SMALL = [
    (goal("raid10"), 4, 201 * MIB),
    (goal("raid1"), 2, 390 * MIB),
    (goal("raid0"), 2, 240 * MIB),
    (goal("raid5"), 3, 300 * MIB),
    (goal("raid1", filesystem="btrfs"), 2, 200 * MIB),
]
ENOUGH = [
    (goal("raid10"), 4, 420 * MIB),
    (goal("raid1"), 2, 410 * MIB),
    (goal("raid0"), 2, 270 * MIB),
    (goal("raid5"), 3, 400 * MIB),
    (goal("raid1", filesystem="btrfs"), 2, 214 * MIB),
]


@pytest.mark.needs_tools("mkfs.xfs", "mkfs.btrfs")
@pytest.mark.parametrize(("wanted", "count", "size"), SMALL)
def test_an_array_too_small_for_its_file_system_is_refused_as_mkfs_would(
    sparse: Callable[..., Path], wanted: RaidGoal, count: int, size: int
) -> None:
    said = refused(wanted, *drives(count, size=size))
    assert f"{wanted.filesystem} needs" in said and "and the array has" in said
    made = planned(replace(wanted, filesystem="none"), *drives(count, size=size)).disk.size
    large = mkfs(planned(wanted, *drives(count)))
    assert subprocess.run(
        [find_tool(large[0]) or "", *large[1:], str(sparse(made))],
        capture_output=True,
        check=False,
        timeout=60,
    ).returncode


@pytest.mark.needs_tools("mkfs.xfs", "mkfs.btrfs")
@pytest.mark.parametrize(("wanted", "count", "size"), ENOUGH)
def test_an_array_that_is_planned_is_large_enough_for_mkfs(
    sparse: Callable[..., Path], wanted: RaidGoal, count: int, size: int
) -> None:
    plan = planned(wanted, *drives(count, size=size))
    assert plan.disk.size < 640 * MIB
    run(*mkfs(plan), sparse(plan.disk.size))


@pytest.mark.needs_tools("mkfs.xfs")
def test_a_stripe_too_wide_for_xfs_is_refused_as_mkfs_would(sparse: Callable[..., Path]) -> None:
    wide, narrow = (goal("raid0", chunk=size) for size in (512 * MIB, 256 * MIB))
    assert "too wide for xfs" in refused(wide, *drives(4))
    command = mkfs(planned(narrow, *drives(4)))
    image = str(sparse(200 * GIB))
    run(command[0], "-N", *command[1:], image)
    words = [word.replace(f"su={256 * MIB}", f"su={512 * MIB}") for word in command]
    done = subprocess.run(
        [find_tool(words[0]) or "", "-N", *words[1:], image], capture_output=True, check=False
    )
    assert done.returncode and b"too large" in done.stderr


@pytest.mark.needs_tools("mkfs.ext4", "dumpe2fs")
def test_a_chunk_too_large_for_the_stride_of_ext4_is_refused(sparse: Callable[..., Path]) -> None:
    """mke2fs takes 65536 blocks without a word, and writes 0."""
    wanted = goal("raid0", chunk=256 * MIB, filesystem="ext4")
    assert "too large for the stride" in refused(wanted, *drives(4))
    image = sparse(GIB)
    run("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "stride=65536", image)
    assert "RAID stride" not in run("dumpe2fs", "-h", image)


def test_members_of_a_raid0_that_are_used_whole_are_of_one_length() -> None:
    """md takes all of each, and makes a second zone of what is longer: raid0.c, create_strip_zones."""
    unequal = (drive(0), drive(1, size=2 * 960_197_124_096))
    said = refused(goal("raid0", members="whole-drives"), *unequal)
    assert "differ in length (nvme0n1 894.3GiB, nvme1n1 1.7TiB)" in said
    parts = (drive(0, parts="2048+40000000"), drive(1, parts="2048+48000000"))
    assert "differ in length" in refused(goal("raid0", partitions=(1, 1)), *parts)
    assert planned(goal("raid0"), *unequal).disk.size == planned(goal("raid0"), *drives(2)).disk.size
    for level in ("raid1", "raid10"):
        for plan in (
            planned(goal(level, members="whole-drives"), *unequal),
            planned(goal(level, partitions=(1, 1)), *parts),
        ):
            assert any("the rest of larger ones stays free" in note for note in plan.notes)


def test_what_a_raid0_uses_whole_is_told_as_large_as_md_makes_it() -> None:
    """Whole chunks behind the data offset, and no size in the command: raid0.c rounds down to the chunk alone."""
    parts = [drive(number, parts="2048+40001000") for number in range(2)]
    plan = planned(goal("raid0", chunk=64 * KIB, partitions=(1, 1)), *parts)
    (step,) = [step for step in plan.steps if isinstance(step, MakeArray)]
    (word,) = [word for word in step.command if word.startswith("--data-offset=")]
    offset = int(word.removeprefix("--data-offset=").removesuffix("K")) * KIB
    assert plan.disk.size == 2 * ((40001000 * 512 - offset) // (64 * KIB)) * 64 * KIB


def test_room_that_cannot_be_left_free_is_refused() -> None:
    assert "no room can be left" in refused(goal("raid0", members="whole-drives", spare_room=GIB), *drives(2))
    parts = [drive(number, parts="2048+40000000") for number in range(2)]
    assert "no room can be left" in refused(goal("raid1", partitions=(1, 1), spare_room=GIB), *parts)
    planned(goal("raid1", members="whole-drives", spare_room=GIB), *drives(2))


def test_superblocks_at_the_end_are_for_members_that_are_read_alone() -> None:
    assert "metadata 1.0" in refused(goal("raid10", metadata="1.0"), *drives(4))
    planned(goal("raid1", metadata="1.0"), *drives(2))
