"""The arguments of `mdadm --create`, compared with what mdadm itself would use."""

import subprocess
from dataclasses import replace

import pytest

from aligntool.change import Plan, RaidGoal
from aligntool.errors import Refused
from aligntool.raid.commands import command_of
from aligntool.steps import MakeArray
from aligntool.units import GIB
from tests.conftest import find_tool
from tests.raid.builders import drives, goal, planned


def words(plan: Plan) -> dict[str, str]:
    """Return the options of the command."""
    (step,) = [step for step in plan.steps if isinstance(step, MakeArray)]
    return dict(word.split("=", 1) for word in command_of(step) if word.startswith("--") and "=" in word)


# add_internal_bitmap1 of mdadm 4.6 (super1.c), compiled and called with --size and with what Create.c makes of it for a
# RAID10: the smallest chunk of a bitmap that it accepts, in MiB. It returns -EINVAL below that.
LARGE = [
    (goal("raid10"), 12, 15_360_950_534_144, 128),
    (goal("raid10"), 8, 15_360_950_534_144, 64),
    (goal("raid10", layout="f2"), 12, 15_360_950_534_144, 128),
    (goal("raid10", layout="n3"), 9, 15_360_950_534_144, 64),
    (goal("raid10"), 24, 30_720_000_000_000, 512),
    (goal("raid1"), 2, 61_440_000_000_000, 64),
    (goal("raid1"), 2, 122_880_000_000_000, 128),
]


@pytest.mark.parametrize(("wanted", "count", "size", "mib"), LARGE)
def test_the_bitmap_of_a_large_array_fits_the_space_that_mdadm_reserves(
    wanted: RaidGoal, count: int, size: int, mib: int
) -> None:
    plan = planned(wanted, *drives(count, size=size))
    assert words(plan)["--bitmap-chunk"] == f"{mib}M"
    assert any(f"one bit per {mib}MiB" in note for note in plan.notes)


def test_an_array_name_leaves_space_for_the_host_name() -> None:
    """init_super1 of super1.c: strlen("any") + 1 + strlen(name) < 32, or the name is used without the host."""
    assert words(planned(goal(name="x" * 27), *drives(2)))["--homehost"] == "any"
    with pytest.raises(Refused, match="not a valid array name"):
        planned(goal(name="x" * 28), *drives(2))


def test_the_intended_bitmap_chunk_is_used_where_it_fits() -> None:
    """The same function accepts 128 MiB for these RAID5, and 8 MiB for this RAID10 of 40 small members."""
    plan = planned(goal("raid5"), *drives(4, size=122_880_000_000_000))
    assert words(plan)["--bitmap-chunk"] == "1024M"
    plan = planned(goal("raid10"), *drives(40, size=7 * GIB))
    assert words(plan)["--bitmap-chunk"] == "64M"


@pytest.mark.needs_tools("mdadm")
def test_mdadm_accepts_the_number_of_members_of_a_raid0_of_one() -> None:
    """mdadm.c refuses one member unless --force comes first; what it says next is about the members."""
    (step,) = planned(goal("raid0", one_drive=True), *drives(1)).of(MakeArray)
    tool, *words = command_of(replace(step, members=("/dev/null",)))
    accepted = subprocess.run([find_tool(tool) or tool, *words], capture_output=True, text=True)
    words.remove("--force")
    refused = subprocess.run([find_tool(tool) or tool, *words], capture_output=True, text=True)
    assert "is not a block device" in accepted.stderr and "unusual number" not in accepted.stderr
    assert "is an unusual number of drives" in refused.stderr
