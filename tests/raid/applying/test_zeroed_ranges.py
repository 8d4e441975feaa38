"""`--wipe` zeroes exactly what the plan shows: every byte of a drive is compared before and after."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.change import Plan
from aligntool.cli.arrays import look_at_members, sampled_members
from aligntool.raid.members import data_area
from aligntool.raid.planning import plan_raid
from aligntool.steps import MakeMember
from aligntool.units import MIB, Extent
from tests.conftest import run
from tests.raid.applying.builders import made_member
from tests.raid.builders import goal

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("losetup", "sfdisk", "partx", "blkid")]
SIZE = 48 * MIB
PART = Extent(2 * MIB, 44 * MIB)
TABLE = 34 * 512  # a protective MBR, a header and 128 entries; the copy at the end is one sector shorter


@pytest.fixture
def images(sparse: Callable[..., Path]) -> list[Path]:
    """Make images full of unrecognised bytes."""
    found = [sparse(SIZE, f"{name}.img") for name in "ab"]
    for image in found:
        image.write_bytes(b"\x5a" * SIZE)
    return found


@pytest.fixture
def drives(images: list[Path], loop: Callable[..., Path]) -> list[Path]:
    return [loop(image) for image in images]


def with_partitions(drives: list[Path]) -> list[Path]:
    line = f"start={PART.start // 512}, size={PART.length // 512}"
    for drive in drives:
        run("sfdisk", "-q", "--wipe=never", "--no-tell-kernel", drive, stdin=f"label: gpt\n{line}\n")
        run("partx", "-a", drive)
    return [Path(f"{drive}p1") for drive in drives]


def wipe_plan(names: list[Path], how: str) -> Plan:
    members, numbers, report, _ = look_at_members([str(name) for name in names])
    wanted = goal("raid1", filesystem="none", members=how, partitions=numbers)
    wanted = replace(wanted, wipe=tuple(map(str, names)), spare_room=None if how == "partitions" else MIB)
    return plan_raid(sampled_members(members, wanted), report.inventory, wanted)


@pytest.mark.parametrize("how", ["new-partitions", "whole-drives", "partitions"])
def test_exactly_the_bytes_that_the_plan_shows_are_zeroed(
    how: str, images: list[Path], drives: list[Path], tmp_path: Path
) -> None:
    names = with_partitions(drives) if how == "partitions" else drives
    before = images[0].read_bytes()
    plan = wipe_plan(names, how)
    step = plan.steps[0]
    assert isinstance(step, MakeMember) and step.zeroed
    made_member(step, area=data_area(plan.steps))
    run("blockdev", "--flushbufs", drives[0])
    after, expected = images[0].read_bytes(), bytearray(before)
    for each in step.zeroed:
        expected[each.start : each.end] = bytes(each.length)
    if step.entries:  # the new table, written by libparted
        expected[:TABLE], expected[512 - TABLE :] = after[:TABLE], after[512 - TABLE :]
        assert after[512:520] == b"EFI PART"
    changed = [at for at in range(0, SIZE, 4096) if after[at : at + 4096] != expected[at : at + 4096]]
    assert changed == []
