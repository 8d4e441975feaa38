"""Empty drives, and what is wanted of them -> the plan of an array that comes back after every reboot.

In: judged disks, the inventory they are of, and a RaidGoal. Out: a Plan whose steps hold every command line and every
line of a file, or Refused with all reasons at once. Alone because it only puts together what the other files decide.
"""

from collections.abc import Iterator, Sequence

from aligntool.audit import Judged
from aligntool.errors import Objection, refuse
from aligntool.inventory import Inventory
from aligntool.plan import DataArea, MakeArray, MakeFileSystem, MakeMember, Plan, RaidGoal, Step, Subject
from aligntool.plan.subject import held_by, subject, superblocks_on
from aligntool.raid.array_lines import lines_from_now_on
from aligntool.raid.boot_partitions import boot_copy_steps, boot_partition_steps
from aligntool.raid.chunks import Stripes, member_units, recommend_chunk
from aligntool.raid.creating import Shape, create_command, make_array, shape_of
from aligntool.raid.filesystems import Stripe, fstab_line, make_command
from aligntool.raid.late_start import late_start_steps
from aligntool.raid.levels import LEVELS, Level, data_members, layouts_of
from aligntool.raid.measured import measured_here
from aligntool.raid.members import Known, Member, is_flash
from aligntool.raid.part_types import type_steps
from aligntool.raid.placing import Placed, data_offset, place_members
from aligntool.raid.refusals import unfit, unrecognised, wiped
from aligntool.raid.systems import SYSTEMS, mount_steps, persistence_steps
from aligntool.raid.telling import Decided, attention_of, notes_of
from aligntool.raid.unmakeable import unmakeable
from aligntool.raid.wiping import zeroed
from aligntool.units import MIB, format_about, format_size

LEAST_MEMBER = 16 * MIB


def plan_raid(
    members: Sequence[Judged], inventory: Inventory, goal: RaidGoal, *, known: Known | None = None
) -> Plan:
    """`known`: what the drive database says of each disk. Raises Refused with every reason."""
    decided = decide_raid(members, goal)
    refuse(tuple(unmakeable(goal, decided.placed, decided.shape, decided.stripe)))
    named = tuple(each.member for each in decided.placed)
    steps = tuple(_steps(decided, inventory))
    shape, level = decided.shape, decided.shape.level
    return Plan(
        purpose="raid",
        disk=_array(shape, named, goal),
        goal=f"{level.title} of {len(named)} members, {format_about(shape.size)}",
        places=(),
        steps=steps,
        attention=attention_of(decided, inventory, known or {}),
        notes=notes_of(decided, inventory, known or {}),
    )


def steps_of_goal(goal: RaidGoal) -> Iterator[Step]:
    """As far as they are known of the goal alone, whatever becomes of the members: whoever asks what stands in the way
    of an array can ask about its name, its files and its mount as well.
    """
    device, kind = f"/dev/md/{goal.name}", goal.filesystem
    if goal.system not in SYSTEMS:
        return
    yield MakeArray(device, goal.array_uuid, (), ("mdadm",), goal.level, None, DataArea())
    if kind != "none":
        program = "mkswap" if kind == "swap" else f"mkfs.{kind}"
        yield MakeFileSystem(device, kind, goal.filesystem_uuid, (program, device))
    yield from persistence_steps(goal, SYSTEMS[goal.system], device)
    if kind == "swap" or goal.place:
        yield from mount_steps(goal, f"UUID={goal.filesystem_uuid} {goal.place} {kind}", goal.place)


def decide_raid(members: Sequence[Judged], goal: RaidGoal) -> Decided:
    """Everything that an array is, without its steps. Raises Refused with every reason."""
    found = _found(members, goal)
    named = tuple(each for each in found if each is not None)
    reasons = [*_about_missing(members, goal), *unfit(named, goal, count=len(members))]
    level = LEVELS.get(goal.level)
    if level and named and len(named) == len(members) and all(member.disk.size for member in named):
        reasons += _about_room(place_members(named, goal, level))
    refuse(reasons)
    return _decide(named, goal, LEVELS[goal.level])


def named_members(members: Sequence[Judged], goal: RaidGoal) -> tuple[Member, ...]:
    """Each drive with the partition of it that is meant. Raises Refused for a partition that is not there."""
    refuse(tuple(_about_missing(members, goal)))
    return tuple(each for each in _found(members, goal) if each is not None)


def _found(members: Sequence[Judged], goal: RaidGoal) -> tuple[Member | None, ...]:
    """None: the drive has no such partition."""
    numbers = goal.partitions or (None,) * len(members)
    found: list[Member | None] = []
    for judged, number in zip(members, numbers, strict=True):
        part = next((part for part in judged.disk.partitions if part.number == number), None)
        found.append(None if number is not None and part is None else Member(judged, part))
    return tuple(found)


def _about_missing(members: Sequence[Judged], goal: RaidGoal) -> Iterator[Objection]:
    numbers = goal.partitions or (None,) * len(members)
    for judged, number, found in zip(members, numbers, _found(members, goal), strict=True):
        if found is None:
            yield f"{judged.disk.name} has no partition {number}", f"aligntool audit {judged.disk.path}"


def _decide(members: Sequence[Member], goal: RaidGoal, level: Level) -> Decided:
    layout = goal.layout or (layouts_of(level, len(members)) or ("",))[0]
    placed = place_members(members, goal, level)
    offset = data_offset(placed, goal)
    data = data_members(level, len(members), layout)
    units = member_units(tuple(grid for member in members for grid in member.grids))
    stripes = Stripes(level, data, goal.workload, goal.database_page, units)
    bitmap = goal.bitmap or ("internal" if level.redundant else "none")
    advice = recommend_chunk(stripes)
    measured = measured_here(goal, stripes, advice, [member.disk for member in members], layout, bitmap)
    advice = measured.advice
    chunk = goal.chunk if goal.chunk is not None else advice.size
    shape = shape_of(goal, level, layout, chunk, placed, offset.size)
    if shape.each < max(chunk or 0, LEAST_MEMBER):
        refuse(tuple(_about_room(placed, least=offset.size + max(chunk or 0, LEAST_MEMBER))))
    flash = all(is_flash(member.disk) for member in members)
    stripe = Stripe(chunk, data, bool(level.parity), flash)
    return Decided(goal, placed, offset, stripes, advice, shape, stripe, measured)


def _about_room(placed: Sequence[Placed], least: int = LEAST_MEMBER) -> Iterator[Objection]:
    small = [each for each in placed if each.extent.length < least]
    if small:
        told = ", ".join(
            f"{each.member.name} has {format_about(max(each.extent.length, 0))}" for each in small
        )
        yield f"members need at least {format_size(least)}, and {told}", "take larger drives"


def _array(shape: Shape, members: Sequence[Member], goal: RaidGoal) -> Subject:
    """The array to be. Its sectors are its members'."""
    sector = members[0].disk.limits.logical_block_size or 512
    return Subject(shape.device, shape.size, sector, None, goal.array_uuid, None, None, None, "")


def _make_member(placed: Placed, goal: RaidGoal, area: DataArea) -> MakeMember:
    disk, part = placed.member.disk, placed.member.partition
    number = part.number if part else None
    holds = held_by(disk, number) + unrecognised(placed.member)
    wipe = wiped(placed.member, goal)
    return MakeMember(
        disk=subject(disk),
        device=placed.device,
        label="gpt" if placed.entries else "",
        entries=placed.entries,
        wipe=wipe,
        holds=holds,
        zeroed=zeroed(disk, placed.entries, part.extent if part else None, area) if wipe else (),
        old_arrays=superblocks_on(disk, number) if wipe else (),
    )


def _steps(decided: Decided, inventory: Inventory) -> Iterator[Step]:
    goal, shape, placed = decided.goal, decided.shape, decided.placed
    devices = tuple(each.device for each in placed)
    made = make_array(goal, shape, devices, create_command(goal, shape, placed))
    yield from (_make_member(each, goal, made.data) for each in placed)
    yield made
    yield from type_steps(placed)
    yield from boot_partition_steps(goal, placed)
    command = make_command(goal, decided.stripe, shape.device)
    if command:
        yield MakeFileSystem(shape.device, goal.filesystem, goal.filesystem_uuid, command)
    others = lines_from_now_on(inventory, SYSTEMS[goal.system], shape.device)
    yield from persistence_steps(goal, SYSTEMS[goal.system], shape.device, others)
    yield from late_start_steps(goal, SYSTEMS[goal.system])
    yield from boot_copy_steps(goal, placed)
    if command and (goal.filesystem == "swap" or decided.place):
        yield from mount_steps(goal, fstab_line(goal, decided.place, decided.options), decided.place)
