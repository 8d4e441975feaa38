"""`python -m tests.raid.golden_plans` writes the golden plans of the recipes; review the diff."""

from dataclasses import replace
from pathlib import Path

from aligntool.change import ArrayPlan, RaidGoal
from aligntool.inventory import Disk, Source, Uplink
from aligntool.recipes.goals import Recipe, load_recipes
from aligntool.render.lines import text_of
from aligntool.render.plan import raid_plan_lines
from tests.raid.builders import ARRAY_UUID, FS_UUID, drive, drives, linked, planned

GOLDEN = Path(__file__).parent / "golden"
RENEW = "python -m tests.raid.golden_plans"
WIDTH = 120

RECIPES = tuple(each for each in load_recipes() if each.kind == "raid")
X4 = 3_938_000_000
DMI = Uplink("DMI 3.0 x4", X4, Source.KNOWN, ("nvme0n1", "nvme1n1"))

# The article: two of 400 GB behind the chipset. Otherwise four of 960 GB, or six with 4096-byte blocks, each on a link.
_ARTICLE = tuple(linked(disk, X4, hidden=X4) for disk in drives(2, size=400_088_457_216))
_FOUR = tuple(linked(disk, X4) for disk in drives(4))
_SIX = tuple(linked(disk, 2 * X4, gts=16) for disk in drives(6, size=7_681_501_126_656, logical=4096))
_SHARED = tuple(
    linked(drive(number, parts="2048+1048576 vfat; 1050624+209715200 ext4; 210765824+1600000000"), X4)
    for number in range(2)
)
DISKS: dict[str, tuple[Disk, ...]] = {
    "nvme-raid0-scratch": _ARTICLE,
    "raid1-data": _FOUR[:2],
    "raid1-system": _FOUR[:2],
    "raid10-database": _FOUR,
    "raid5-archive": _FOUR,
    "raid6-archive": _SIX,
    "partition-level": _SHARED,
}


def golden_plan(recipe: Recipe) -> ArrayPlan:
    if not isinstance(recipe.goal, RaidGoal):
        raise TypeError(f"{recipe.name} is for no array")
    disks = DISKS[recipe.name]
    goal = replace(recipe.goal, array_uuid=ARRAY_UUID, filesystem_uuid=FS_UUID)
    if goal.members == "partitions":
        goal = replace(goal, partitions=(3,) * len(disks))
    return planned(goal, *disks, uplinks=(DMI,) if disks is _ARTICLE else ())


def golden_text(recipe: Recipe) -> str:
    return "".join(text_of(raid_plan_lines(golden_plan(recipe), width=WIDTH, verbose=True)))


def golden_file(recipe: Recipe) -> Path:
    return GOLDEN / f"{recipe.name}.txt"


if __name__ == "__main__":
    for each in RECIPES:
        golden_file(each).write_text(golden_text(each))
