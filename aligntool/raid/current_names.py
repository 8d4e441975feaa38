"""The current names of a plan's drives: kernel names change from boot to boot.

A resume that trusted the old names would write to the drives that have them now.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aligntool import steps
from aligntool.audit.arrays import partition_node
from aligntool.change import ArrayPlan
from aligntool.errors import Refused
from aligntool.inventory import Disk
from aligntool.raid import steps_drives, steps_luks
from aligntool.steps import MakeArray, MakeFileSystem, MakeMember, Step


def is_same_drive(disk: Disk, was: steps.Subject) -> bool:
    """Compare by WWN; if one has none, by model, serial number and size."""
    if disk.wwn and was.wwn:
        return disk.wwn == was.wwn
    return bool(disk.serial) and (disk.model, disk.serial, disk.size) == (was.model, was.serial, was.size)


NUMBERS = range(1, 129)


def with_current_names(plan: ArrayPlan, disks: Sequence[Disk]) -> ArrayPlan:
    """Return the plan with the current names of its drives. Raises Refused if a drive is missing or
    ambiguous, and names every such drive.
    """
    if plan.changes_layers:
        return steps_luks.with_current_path(plan, disks)
    names: dict[str, str] = {}
    reasons = []
    for step in plan.drives:
        if step.disk.path in names:
            continue  # found by the step that formats it, before which its size may be another
        found = _find_drives(step, disks)
        if len(found) == 1:
            old = step.disk.path
            new = found[0].path
            names |= {old: new, **{partition_node(old, part): partition_node(new, part) for part in NUMBERS}}
        else:
            reasons.append(_not_found_text(step, found))
    if len(set(names.values())) < len(names):
        reasons.append("two drives of the plan are now the same drive")
    if reasons:
        raise Refused(
            "\n".join(dict.fromkeys(reasons)),
            hint="attach every drive of the array; lsblk -o NAME,MODEL,SERIAL,SIZE",
        )
    return replace(plan, steps=tuple(_step_here(step, names) for step in plan.steps))


def absent_drives(plan: ArrayPlan, disks: Sequence[Disk]) -> list[str]:
    """Return each drive of a plan that none of the disks is, in words."""
    absent = [
        step.disk for step in plan.drives if not any(steps_drives.is_same_drive(disk, step) for disk in disks)
    ]
    words = (f"{disk.model or 'a drive'}, serial {disk.serial or 'unknown'}" for disk in absent)
    return list(dict.fromkeys(words))


def _find_drives(step: steps.DriveStep, disks: Sequence[Disk]) -> list[Disk]:
    """Return the disks that match by serial number or WWN. A drive that has neither is found by its new table
    once that is made, else by its name.
    """
    alike = [disk for disk in disks if steps_drives.is_same_drive(disk, step)]
    if step.disk.serial or step.disk.wwn:
        return alike
    made = []
    if isinstance(step, MakeMember) and step.entries:
        made = [disk for disk in alike if steps_drives.has_new_table(disk, step)]
    named = [disk for disk in alike if disk.path == step.disk.path]
    return named if not made or (named and named[0] in made) else made


def _not_found_text(step: steps.DriveStep, found: Sequence[Disk]) -> str:
    serial = f", serial {step.disk.serial}" if step.disk.serial else ""
    names = ", ".join(disk.path for disk in found)
    others = f"cannot be distinguished from others: {names}" if found else "is missing"
    return f"{step.disk.model or 'a drive'}{serial}, which was {step.disk.path}, {others}"


def _step_here(step: Step, names: Mapping[str, str]) -> Step:
    """Return the step with the current names. Only whole names are replaced, and all at once, because two
    drives may have swapped their names.
    """
    match step:
        case steps.FormatDrive():
            return replace(step, disk=replace(step.disk, path=names[step.disk.path]))
        case MakeMember() | steps.FormatMember():
            disk = replace(step.disk, path=names[step.disk.path])
            return replace(step, disk=disk, device=names.get(step.device, step.device))
        case steps.TakeOutMember(_, _, device, spare):
            return replace(step, device=names.get(device, device), spare=names.get(spare, spare))
        case steps.PutBackMember(_, _, device):
            return replace(step, device=names.get(device, device))
        case MakeArray():
            return replace(step, members=tuple(names.get(member, member) for member in step.members))
        case MakeFileSystem(device):
            return replace(step, device=names.get(device, device))
        case steps.SetPartitionType(path):
            return replace(step, disk=names.get(path, path))
    return step
