"""One drive instead of several: a plain file system on an aligned partition, planned and compared with what
is there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from aligntool.audit.arrays import Member
from aligntool.audit.report import Judged
from aligntool.audit.wording import LOST, audit_command
from aligntool.change import ArrayPlan, RaidGoal
from aligntool.commands import ByHand, by_hand, typed
from aligntool.contents.catalogue import kind_named
from aligntool.errors import Refusal, refuse
from aligntool.formats.part_types import ROLES
from aligntool.inventory import Disk, Inventory, Partition
from aligntool.raid import boot, commands, members, planning, refusals
from aligntool.raid.existing import InEffect, directory_differences, size_differences
from aligntool.raid.levels import LEVELS
from aligntool.raid.stale import StaleLine
from aligntool.steps import Step, Subject
from aligntool.units import format_about

_LEVEL = LEVELS["raid0"]


def device_of(goal: RaidGoal) -> str:
    """Return the node that leads to the partition, whatever name the drive has."""
    return f"/dev/disk/by-partlabel/{goal.name}"


def goal_of(goal: RaidGoal) -> RaidGoal:
    """Return the goal of a plain file system. Its line in fstab gets a mark, by which it is replaced once its
    file system is gone: no line of mdadm.conf names it.
    """
    given = kind_named(goal.filesystem).mount_options if goal.mount_options is None else goal.mount_options
    options = (*given, boot.mark_of_drive(goal))
    made = replace(goal, level=_LEVEL.word, one_drive=True, bitmap=None, metadata="1.2", chunk=None)
    return replace(made, mount_options=options)


def plan_one_drive(drive: Judged, goal: RaidGoal, stale: Sequence[StaleLine] = ()) -> ArrayPlan:
    """Plan a partition with a file system. `goal`: of `goal_of`. Raises Refused with every reason."""
    member = Member(drive)
    refuse(refusals.member_problems([member], goal, count=1))
    (placed,) = members.place_members([member], goal, _LEVEL)
    entry = replace(placed.entries[-1], type_code=ROLES["linux"].gpt)
    placed = replace(placed, entries=(entry,))
    refuse(planning.refuse_small([placed], members.spare_room(goal, _LEVEL)))
    geometry = commands.geometry_of(goal, _LEVEL, "", None, [placed], 0)
    geometry = replace(geometry, device=placed.device, each=entry.extent.length, size=entry.extent.length)
    refuse(refusals.geometry_problems(goal, [placed], geometry))
    disk = drive.disk
    sector = disk.limits.logical_block_size or disk.sector_size
    uuid = goal.filesystem_uuid
    subject = Subject(device_of(goal), geometry.size, sector, None, uuid, None, None, None, "")
    title = f"{goal.filesystem} on one drive, {format_about(geometry.size)}"
    lost = refusals.member_holdings(member) if refusals.is_wiped(member, goal) else ()
    attention = [f"{LOST}{holding}, on {member.name}" for holding in lost]
    attention += ["no array: if the drive fails, all data is lost; keep copies elsewhere"]
    attention += [line.words for line in stale]
    notes = (f"the partition begins at byte {entry.extent.start} of {disk.name}, on its grid",)
    planned: list[Step] = [planning.make_member(placed, goal)]
    file_system = commands.file_system_step(goal, geometry)
    planned += [file_system] if file_system else []
    planned += [*(line.edit for line in stale), *boot.mount_steps_of_goal(goal)]
    return ArrayPlan("raid", subject, title, (), tuple(planned), tuple(attention), notes)


# What is there already.


def find_file_system(disk: Disk, goal: RaidGoal) -> Partition | None:
    """Return the only partition of the drive if it has the name, and its content the label, of the goal."""
    label = commands.label_of(goal)
    for part in disk.partitions if len(disk.partitions) == 1 else ():
        kinds = [layer.kind for layer in part.content]
        if kinds == [goal.filesystem] and part.name == goal.name and part.content[0].label == label:
            return part
    return None


def plan_existing_one(
    drive: Judged, goal: RaidGoal, inventory: Inventory, head: bytes, is_in_effect: InEffect
) -> ArrayPlan:
    """Return a plan without steps if the file system on the drive is as requested. `goal`: of `goal_of`;
    `head`: the first bytes of its content. Raises Refused with everything in which it differs.
    """
    disk = drive.disk
    part = find_file_system(disk, goal)
    if part is None:
        raise ValueError(f"{disk.name} does not have the file system")
    node = part.node or f"partition {part.number} of {disk.name}"
    refuse(
        Refusal("array-differs", subject, f"{node} has the file system {goal.name}, and {text}", hint)
        for subject, text, hint in _differences(drive, part, goal, inventory, head, is_in_effect)
    )
    sector = disk.limits.logical_block_size or disk.sector_size
    uuid = part.content[0].uuid
    subject = Subject(device_of(goal), part.extent.length, sector, None, uuid, None, None, None, "")
    title = f"{goal.filesystem} on one drive, {format_about(part.extent.length)}"
    notes = (f"it is on {node}",)
    return ArrayPlan("raid", subject, f"{title}: already as requested", (), (), (), notes)


def _differences(
    drive: Judged, part: Partition, goal: RaidGoal, inventory: Inventory, head: bytes, is_in_effect: InEffect
) -> Iterator[tuple[str, str, str]]:
    """Yield what differs: its subject, a phrase, and what to do."""
    node = part.node or drive.disk.name
    look = typed("blkid -p", f"/dev/{node}")
    off = [grid for grid in Member(drive).grids if grid.off_by(part.extent.start)]
    if off:
        yield node, f"it begins at byte {part.extent.start}, off its grid", audit_command(drive.disk)
    for key, text in size_differences(part.content[0], goal, head):
        yield key, text, look
    if not goal.place:
        return
    edit = by_hand(ByHand.SYSTEM_FILES, "an editor", boot.FSTAB)
    uuid = (part.content[0].uuid or "").lower()
    lines = inventory.system.fstab if inventory.system else ()
    own = [line for line in lines if uuid and line.spec.lower() == f"uuid={uuid}"]
    if not any(line.place == goal.place for line in own):
        yield boot.FSTAB, f"{boot.FSTAB} does not mount it at {goal.place}", edit
    for line in own:
        missing = [word for word in goal.mount_options or () if word not in line.options]
        if missing:
            yield boot.FSTAB, f"its line in fstab lacks the option {', '.join(missing)}", edit
    if goal.place not in part.mounted_at:
        mount = by_hand(ByHand.SYSTEM_FILES, "mount", goal.place)
        yield goal.place, f"it is not mounted at {goal.place}", mount
    yield from directory_differences(goal, is_in_effect)
