"""Empty drives, and what is wanted of them -> the plan of an array that comes back after every reboot.

In: judged disks, the inventory they are of, and a RaidGoal. Out: a Plan whose steps hold every command line and every
line of a file, or Refused with all reasons at once. Alone because it only puts together what the other files decide.
"""

from collections.abc import Iterator, Sequence

from aligntool.audit import Judged
from aligntool.errors import Refused
from aligntool.inventory import Inventory
from aligntool.plan import MakeArray, MakeFileSystem, MakeMember, Plan, RaidGoal, Step, Subject
from aligntool.plan.subject import subject
from aligntool.raid.chunks import Stripes, member_units, recommend_chunk
from aligntool.raid.creating import Shape, create_command, shape_of
from aligntool.raid.filesystems import Stripe, fstab_line, make_command
from aligntool.raid.levels import LEVELS, Level, data_members, layouts_of
from aligntool.raid.members import Known, Member, is_flash, partition_node
from aligntool.raid.placing import Placed, data_offset, place_members
from aligntool.raid.refusals import refuse_unfit, wiped
from aligntool.raid.systems import SYSTEMS, mount_steps, persistence_steps
from aligntool.raid.telling import Decided, attention_of, notes_of
from aligntool.units import MIB, format_about, format_size

LEAST_MEMBER = 16 * MIB


def plan_raid(
    members: Sequence[Judged], inventory: Inventory, goal: RaidGoal, *, known: Known | None = None
) -> Plan:
    """`known`: what the drive database says of each disk. Raises Refused with every reason."""
    named = _named(members, goal)
    refuse_unfit(named, goal)
    if goal.system not in SYSTEMS:
        raise Refused(
            f"{goal.system!r} is no system whose files are known", hint=f"--system: {', '.join(SYSTEMS)}"
        )
    level = LEVELS[goal.level]
    decided = _decide(named, goal, level)
    steps = tuple(_steps(decided))
    shape = decided.shape
    return Plan(
        purpose="raid",
        disk=_array(shape, named, goal),
        goal=f"{level.title} of {len(named)} members, {format_about(shape.size)}",
        places=(),
        steps=steps,
        attention=attention_of(decided, inventory, known or {}),
        notes=notes_of(decided, inventory, known or {}),
    )


def _named(members: Sequence[Judged], goal: RaidGoal) -> tuple[Member, ...]:
    """Each drive with the partition of it that is meant. Raises Refused for a partition that is not there."""
    numbers = goal.partitions or (None,) * len(members)
    found = []
    for judged, number in zip(members, numbers, strict=True):
        part = next((part for part in judged.disk.partitions if part.number == number), None)
        if number is not None and part is None:
            raise Refused(
                f"{judged.disk.name} has no partition {number}", hint=f"aligntool audit {judged.disk.path}"
            )
        found.append(Member(judged, part))
    return tuple(found)


def _decide(members: Sequence[Member], goal: RaidGoal, level: Level) -> Decided:
    layout = goal.layout or (layouts_of(level, len(members)) or ("",))[0]
    placed = place_members(members, goal, level)
    _refuse_small(placed)
    offset = data_offset(placed, goal)
    data = data_members(level, len(members), layout)
    units = member_units(tuple(grid for member in members for grid in member.grids))
    stripes = Stripes(level, data, goal.workload, goal.database_page, units)
    advice = recommend_chunk(stripes)
    chunk = goal.chunk if goal.chunk is not None else advice.size
    shape = shape_of(goal, level, layout, chunk, placed, offset.size)
    if shape.each < max(chunk or 0, LEAST_MEMBER):
        _refuse_small(placed, least=offset.size + max(chunk or 0, LEAST_MEMBER))
    flash = all(is_flash(member.disk) for member in members)
    stripe = Stripe(chunk, data, bool(level.parity), flash)
    return Decided(goal, placed, offset, stripes, advice, shape, stripe)


def _refuse_small(placed: Sequence[Placed], least: int = LEAST_MEMBER) -> None:
    small = [each for each in placed if each.extent.length < least]
    if small:
        told = ", ".join(
            f"{each.member.name} has {format_about(max(each.extent.length, 0))}" for each in small
        )
        raise Refused(f"members need at least {format_size(least)}, and {told}", hint="take larger drives")


def _array(shape: Shape, members: Sequence[Member], goal: RaidGoal) -> Subject:
    """The array to be. Its sectors are its members'."""
    sector = members[0].disk.limits.logical_block_size or 512
    return Subject(shape.device, shape.size, sector, None, goal.array_uuid, None, None, None, "")


def _steps(decided: Decided) -> Iterator[Step]:
    goal, shape, placed = decided.goal, decided.shape, decided.placed
    for each in placed:
        label = "gpt" if each.entries else ""
        yield MakeMember(
            subject(each.member.disk), each.device, label, each.entries, wiped(each.member, goal)
        )
    devices = tuple(each.device for each in placed)
    yield MakeArray(shape.device, goal.array_uuid, devices, create_command(goal, shape, placed))
    yield from _boot_partitions(decided)
    command = make_command(goal, decided.stripe, shape.device)
    if command:
        yield MakeFileSystem(shape.device, goal.filesystem, goal.filesystem_uuid, command)
    yield from persistence_steps(goal, SYSTEMS[goal.system], shape.device)
    if command and (goal.filesystem == "swap" or decided.place):
        yield from mount_steps(goal, fstab_line(goal, decided.place, decided.options), decided.place)


def _boot_partitions(decided: Decided) -> Iterator[MakeFileSystem]:
    """An EFI system partition on every drive, each a file system of its own with an id of its own."""
    goal = decided.goal
    if not goal.esp_size or not decided.placed[0].entries:
        return
    first = int(goal.filesystem_uuid[:8], 16)
    for index, each in enumerate(decided.placed):
        device = partition_node(each.member.disk.path, 1)
        volume = f"{(first + index) % 2**32:08x}"
        command = ("mkfs.fat", "-F", "32", "-n", "EFI", "-i", volume, device)
        yield MakeFileSystem(device, "vfat", f"{volume[:4]}-{volume[4:]}".upper(), command)
