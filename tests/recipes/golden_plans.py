"""The plan that each recipe gives for a made-up disk. `python -m tests.recipes.golden_plans` writes the plans to
tests/recipes/golden/; review the diff.
"""

from dataclasses import replace
from pathlib import Path

from aligntool.audit.report import AuditOptions, Judged
from aligntool.change import EnsureGoal, LayoutGoal, Plan, RaidGoal, RealignGoal, Used, to_json
from aligntool.claims import ALL_FREE
from aligntool.inventory import Disk, DiskKind, TableLabel
from aligntool.layout.layout import plan_layout
from aligntool.realign.planning import plan_realign
from aligntool.recipes.goals import BenchGoal, Recipe, load_recipes
from aligntool.units import GIB, MIB
from tests.audit.builders import judge, made_disk
from tests.realign.movable_disks import movable_disk

GOLDEN = Path(__file__).parent / "golden"
RENEW = "read what changed, then: python -m tests.recipes.golden_plans"


def _empty(size: int, *, kind: DiskKind = DiskKind.ATA, sector: int = 512, physical: int = 4096) -> Disk:
    rotational = kind is DiskKind.ATA
    disk = made_disk(kind=kind, logical=sector, physical=physical, rotational=rotational, size=size)
    return replace(disk, content_read=True)


RECIPES = tuple(each for each in load_recipes() if each.kind in ("realign", "layout"))

# A disk of the kind that the recipe is for; starts and lengths in its sectors.
DISKS: dict[str, Disk] = {
    "realign/sector-63": movable_disk("63+409600 ntfs; 409663+204800 ext4", label=TableLabel.DOS, size=400 * MIB),
    "realign/gpt-34-40": movable_disk("34+409600 ext4; 409634+204800 xfs", size=400 * MIB),
    "realign/cloned-ssd": replace(
        movable_disk("63+401562 ext4; 401625+208845 swap", label=TableLabel.DOS, size=400 * MIB), rotational=False
    ),
    "realign/sd-card": replace(
        movable_disk("2048+131072 vfat; 133120+409600 ext4", label=TableLabel.DOS, size=400 * MIB, kind=DiskKind.SD),
        preferred_erase_size=4 * MIB,
        rotational=False,
    ),
    "realign/large-unit-qlc": replace(
        movable_disk("40+409600 ext4; 409640+204800 xfs", size=400 * MIB, kind=DiskKind.NVME), rotational=False
    ),
    "layouts/server-nvme-raid": _empty(1_920_383_410_176, kind=DiskKind.NVME),
    "layouts/desktop-uefi": _empty(1_000_204_886_016, kind=DiskKind.NVME),
    "layouts/desktop-bios": _empty(500_107_862_016),
    "layouts/data-disk": _empty(4_000_787_030_016, sector=4096),
    "layouts/sd-card": replace(_empty(32 * GIB, kind=DiskKind.SD), preferred_erase_size=4 * MIB),
}


def key(recipe: Recipe) -> str:
    return recipe.file.removeprefix("recipes/").removesuffix(".toml")


def goal_of(recipe: Recipe) -> RealignGoal | LayoutGoal:
    """Return the goal, except of arrays, which have several disks and golden plans in tests/raid, and benchmarks, which
    have no plan.
    """
    if isinstance(recipe.goal, RaidGoal | BenchGoal | EnsureGoal):
        raise TypeError(f"{recipe.name} is for no single disk")
    return recipe.goal


def golden_plan(recipe: Recipe) -> tuple[Plan, Judged]:
    goal = goal_of(recipe)
    judged = judge(DISKS[key(recipe)], wishes=AuditOptions(grain=goal.grain)).judged[0]
    if isinstance(goal, LayoutGoal):
        return plan_layout(judged, goal), judged
    half = {part.number: Used(part.number, part.extent.length // 2, "half of it") for part in judged.disk.partitions}
    return plan_realign(judged, goal, half, ALL_FREE), judged


def golden_file(recipe: Recipe) -> Path:
    return GOLDEN / f"{key(recipe)}.json"


if __name__ == "__main__":
    for each in RECIPES:
        golden_file(each).parent.mkdir(parents=True, exist_ok=True)
        golden_file(each).write_text(to_json(golden_plan(each)[0]) + "\n")
