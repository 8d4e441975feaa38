"""Old data that would be visible in a new array: reported before the array is created, or overwritten."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.raid.commands import command_of
from aligntool.raid.members import data_area
from aligntool.raid.preflight import refuse_impossible
from aligntool.raid.steps_drives import old_signatures, read_disk
from aligntool.steps import DataArea, MakeArray, MakeMember, Step, recognised_content
from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.raid.applying.builders import made_member, member_step, paths_in, plan_of
from tests.raid.builders import drives, goal, planned

root = pytest.mark.needs_root
tools = pytest.mark.needs_tools("losetup", "sfdisk", "partx", "mkfs.ext4", "blkid", "wipefs", "cmp")
AREA = DataArea(16 * MIB, 64 * MIB)
PART = Extent(MIB, 120 * MIB)


@pytest.fixture
def drive(sparse: Callable[..., Path], loop: Callable[..., Path]) -> Path:
    found = loop(sparse(128 * MIB))
    start, length = PART.start // 512, PART.length // 512
    run("sfdisk", "-q", "--no-tell-kernel", found, stdin=f"label: gpt\nstart={start}, size={length}\n")
    run("partx", "-a", found)
    assert Path(f"{found}p1").is_block_device()
    return found


def taken(folder: Path, drive: Path, *, wipe: bool) -> MakeMember:
    """Return the step for the first partition, used as it is."""
    looked = read_disk(str(drive))
    step = member_step(paths_in(folder), drive, wipe=wipe)
    return replace(step, device=f"{drive}p1", label="", entries=(), holds=recognised_content(looked, 1))


def array(level: str) -> MakeArray:
    (step,) = [step for step in planned(goal(level), *drives(4)).steps if isinstance(step, MakeArray)]
    return step


@pytest.mark.parametrize("level", ["raid0", "raid1", "raid10", "raid5", "raid6"])
def test_the_data_area_matches_the_options_passed_to_mdadm(level: str) -> None:
    """A RAID0 has no --size: it uses all the space of its members."""
    step = array(level)
    words = dict(word.lstrip("-").split("=", 1) for word in command_of(step) if "=" in word)
    found = data_area([step])
    assert f"{found.offset // KIB}K" == words["data-offset"]
    assert (None if found.length is None else f"{found.length // KIB}K") == words.get("size")
    member = Extent(MIB, 1 << 40)
    assert found.of(member).end == (member.end if level == "raid0" else MIB + found.offset + (found.length or 0))


def test_the_zeroed_area_is_the_data_area_of_the_step() -> None:
    step = array("raid1")
    assert data_area([step]) == step.data != DataArea(77 * KIB)
    assert data_area([replace(step, data=AREA)]) == AREA


@root
@tools
@pytest.mark.parametrize("where", ["partition", "drive"])
def test_the_content_of_an_earlier_array_is_reported_before_the_first_write(
    drive: Path, tmp_path: Path, where: str
) -> None:
    at = PART.start + AREA.offset
    run("mkfs.ext4", "-q", "-E", f"offset={at}", drive, "64M")
    step = taken(tmp_path, drive, wipe=False)
    told = f"{drive}p1 holds ext4 at byte {AREA.offset}"
    if where == "drive":
        step, told = member_step(paths_in(tmp_path), drive), f"{drive} holds ext4 at byte {at}"
    assert [one.text for one in old_signatures(step, AREA)] == [f"{told}, where the array's data would begin"]
    assert list(old_signatures(step, DataArea(18 * MIB, 62 * MIB))) == []


@root
@tools
def test_the_apply_run_checks_for_old_content_before_it_begins(drive: Path, tmp_path: Path) -> None:
    run("mkfs.ext4", "-q", "-E", f"offset={PART.start + AREA.offset}", drive, "64M")
    steps: list[Step] = [taken(tmp_path, drive, wipe=False), replace(array("raid1"), data=AREA)]
    with pytest.raises(Refused, match="where the array's data would begin"):
        refuse_impossible(plan_of(steps), paths_in(tmp_path))


@root
@tools
def test_wiped_content_is_zeroed_at_both_ends_of_the_data_area(drive: Path, tmp_path: Path) -> None:
    run("dd", "if=/dev/urandom", f"of={drive}p1", "bs=1M", "count=120", "conv=fsync")
    made_member(taken(tmp_path, drive, wipe=True), area=AREA)
    end = AREA.offset + (AREA.length or 0)
    for at in (0, AREA.offset, end - MIB, PART.length - MIB):
        assert run("cmp", "-n", str(MIB), "-i", f"{at}:0", f"{drive}p1", "/dev/zero") == "", at
    for at in (AREA.offset - MIB, end):
        assert run("cmp", "-n", str(MIB), "-i", f"{at}:0", f"{drive}p1", "/dev/zero", fails=True) != "", at
