"""The arrays that every recipe's plan would make are audited: no error and no warning.

The array is derived from the commands of the plan, as mdadm and the kernel would report it afterwards.
"""

from dataclasses import replace

import pytest

from aligntool.audit.judge import audit
from aligntool.change import Plan
from aligntool.inventory import ArrayFacts, Disk, DiskKind, Inventory, Layer, Partition
from aligntool.raid.commands import command_of
from aligntool.raid.running import PersistGoal, plan_persist
from aligntool.recipes.goals import Recipe
from aligntool.steps import EditFile, MakeArray, MakeFileSystem, MakeMember, WriteFile
from aligntool.system import System, parse_fstab, parse_mdadm_conf
from aligntool.units import KIB, MIB, Extent
from tests.audit.array_builders import image
from tests.audit.builders import made_disk
from tests.raid.builders import ARRAY_UUID
from tests.raid.golden_plans import DISKS, RECIPES, golden_plan

PARITY = {"5": 1, "6": 2}


def words(command: tuple[str, ...]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in command if word.startswith("--") and "=" in word)


def kib(text: str | None) -> int:
    return int((text or "0K").removesuffix("K")) * KIB


def made(recipe: Recipe) -> Inventory:
    """Return the machine after the plan of this recipe."""
    plan = golden_plan(recipe)
    (step,) = [one for one in plan.steps if isinstance(one, MakeArray)]
    offset = kib(words(command_of(step)).get("--data-offset"))
    drives = tuple(_member(disk, plan, offset) for disk in DISKS[recipe.name])
    return Inventory((*drives, _array(plan, step, drives, offset)), system=_system(plan))


def _member(disk: Disk, plan: Plan, offset: int) -> Disk:
    """Return the drive with the plan's table, and md's superblock where the array's data begin at this offset."""
    (step,) = [one for one in plan.steps if isinstance(one, MakeMember) and one.disk.path == disk.path]
    parts = disk.partitions
    if step.entries:
        parts = tuple(
            Partition(one.number, one.extent, type_code=one.type_code, node=f"{disk.name}p{one.number}")
            for one in step.entries
        )
    member = next(part for part in parts if f"/dev/{part.node}" == step.device)
    layer = Layer("linux_raid_member", member.extent, "1.2", data_start=member.extent.start + offset)
    parts = tuple(replace(part, content=(layer,), content_read=True) if part is member else part for part in parts)
    return replace(disk, partitions=parts, limits=replace(disk.limits, discard_max=2 << 40))


def _array(plan: Plan, step: MakeArray, drives: tuple[Disk, ...], offset: int) -> Disk:
    given = words(command_of(step))
    number, count = given["--level"], len(step.members)
    chunk = kib(given.get("--chunk")) or None
    nodes = tuple(member.removeprefix("/dev/") for member in step.members)
    facts = ArrayFacts(
        f"raid{number}", chunk, nodes, tuple((node, offset) for node in nodes), given["--metadata"], 0,
        layout=given.get("--layout"), devices=count, each=kib(given.get("--size")), uuid=given["--uuid"],
        name=f"any:{given['--name']}", links=(f"md/{given['--name']}",), state="clean",
        sync_action="resync" if number != "0" else None,
        policy=given.get("--consistency-policy", "none"), bitmap=given.get("--bitmap", "none"),
        bitmap_chunk=int(given.get("--bitmap-chunk", "0M").removesuffix("M")) * MIB,
    )  # fmt: skip
    data = count // 2 if number == "10" else count - PARITY.get(number, 0)
    optimal = (chunk or 0) * data
    disk = made_disk(
        name="md127", kind=DiskKind.MD, physical=4096, minimum=chunk or 4096, optimal=optimal,
        logical=drives[0].limits.logical_block_size, rotational=False, size=plan.disk.size,
    )  # fmt: skip
    limits = replace(disk.limits, discard_max=0 if number in PARITY else 2 << 40)
    content = tuple(
        _content(one, plan.disk.size) for one in plan.steps if isinstance(one, MakeFileSystem) and one.kind != "vfat"
    )
    return replace(disk, array=facts, slaves=nodes, content=content, content_read=True, limits=limits)


def _content(step: MakeFileSystem, size: int) -> Layer:
    """Return the stripe settings of the command: "su=...,sw=..." of XFS; of ext4 stride and stripe_width, in blocks."""
    words = reversed(command_of(step))  # "-d su=" comes before "-l su=", which is that of the log
    said = dict(pair.split("=") for word in words for pair in word.split(",") if pair.count("=") == 1)
    unit = int(said.get("su", 0)) or int(said.get("stride", 0)) * 4096
    width = unit * int(said.get("sw", 0)) or int(said.get("stripe_width", 0)) * 4096
    striped = step.kind in ("xfs", "ext4")
    return Layer(
        step.kind, Extent(0, size), uuid=step.uuid, stripe_unit=unit if striped else None,
        stripe_width=(width or None) if striped else None,
    )  # fmt: skip


def _system(plan: Plan) -> System:
    files = {one.path: "\n".join(one.lines) for one in plan.steps if isinstance(one, EditFile | WriteFile)}
    conf = files.get("/etc/mdadm/mdadm.conf", "")
    return System(
        "debian", "here", parse_mdadm_conf(conf, "/etc/mdadm/mdadm.conf"), parse_fstab(files.get("/etc/fstab", "")), (),
        (image(*conf.splitlines()),), late_start=any("mdadm-late-start.timer" in path for path in files),
    )  # fmt: skip


def name(recipe: Recipe) -> str:
    return recipe.name


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_a_planned_array_gives_no_error_and_no_warning(recipe: Recipe) -> None:
    inventory = made(recipe)
    assert inventory.disks[-1].array and inventory.disks[-1].array.uuid == ARRAY_UUID
    found = audit(inventory, {}).findings
    assert [(one.code.value, one.summary) for one in found if one.severity.value != "info"] == []
    notes = {one.code.value for one in found if one.code.value.startswith("AT6")}
    assert notes <= {"AT602", "AT607"}, notes  # the first resync, and discards on parity: the plan mentions both


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_raid_persist_has_nothing_to_do_for_a_planned_array(recipe: Recipe) -> None:
    inventory = made(recipe)
    assert plan_persist(inventory.disks[-1], inventory, PersistGoal()).steps == ()


def test_the_audit_detects_a_difference() -> None:
    """The same machine with mdadm's default offset and the article's missing line: not clean."""
    inventory = made(next(one for one in RECIPES if one.name == "raid5-archive"))
    array = inventory.disks[-1]
    assert array.array is not None
    fine = replace(array, array=replace(array.array, bitmap_chunk=64 * MIB))
    found = audit(replace(inventory, disks=(*inventory.disks[:-1], fine)), {}).findings
    assert "AT606" in {one.code.value for one in found}
    assert "AT611" in {one.code.value for one in audit(replace(inventory, system=System("debian")), {}).findings}
