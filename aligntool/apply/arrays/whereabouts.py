"""Where the drives of a plan are now: kernel names change from boot to boot.

In: a plan, and the disks of the machine. Out: the same plan with the names that its drives have now. Alone because a
resume that believed old names would write to whatever drive got them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aligntool.apply.arrays.members import is_made, is_same_drive
from aligntool.errors import Refused
from aligntool.inventory import Disk
from aligntool.plan import MakeArray, MakeFileSystem, MakeMember, Plan, RunCommand, Step
from aligntool.raid.members import partition_node

_NUMBERS = range(1, 129)


def plan_here(plan: Plan, disks: Sequence[Disk]) -> Plan:
    """Raises Refused, naming every drive that is missing or cannot be told from another."""
    steps = [step for step in plan.steps if isinstance(step, MakeMember)]
    names: dict[str, str] = {}
    reasons = []
    for step in steps:
        found = _drive(step, disks)
        if len(found) == 1:
            names |= _renamed(step.disk.path, found[0].path)
        else:
            reasons.append(_sentence(step, found))
    if len(set(names.values())) < len(names):
        reasons.append("two drives of the plan are the same drive now")
    if reasons:
        raise Refused(
            "\n".join(reasons), hint="attach every drive of the array; lsblk -o NAME,MODEL,SERIAL,SIZE"
        )
    return replace(plan, steps=tuple(_step_here(step, names) for step in plan.steps))


def _drive(step: MakeMember, disks: Sequence[Disk]) -> list[Disk]:
    """By serial number or WWN; a drive that has neither by its table once it was made, else by its name."""
    alike = [disk for disk in disks if is_same_drive(disk, step)]
    if step.disk.serial or step.disk.wwn:
        return alike
    made = [disk for disk in alike if step.entries and is_made(disk, step)]
    named = [disk for disk in alike if disk.path == step.disk.path]
    return named if not made or (named and named[0] in made) else made


def _sentence(step: MakeMember, found: Sequence[Disk]) -> str:
    words = [step.disk.model or "a drive", f"serial {step.disk.serial}" if step.disk.serial else ""]
    drive = f"{', '.join(word for word in words if word)}, which was {step.disk.path}"
    if found:
        return f"{drive}, cannot be told from others: {', '.join(disk.path for disk in found)}"
    return f"{drive}, is not there"


def _renamed(before: str, now: str) -> dict[str, str]:
    parts = {partition_node(before, number): partition_node(now, number) for number in _NUMBERS}
    return {before: now, **parts}


def _step_here(step: Step, names: Mapping[str, str]) -> Step:
    """Only whole words are replaced, and all at once, so that two drives may have swapped their names."""
    match step:
        case MakeMember():
            disk = replace(step.disk, path=names[step.disk.path])
            return replace(step, disk=disk, device=names.get(step.device, step.device))
        case MakeArray():
            members = tuple(names.get(each, each) for each in step.members)
            return replace(step, members=members, command=_words_here(step.command, names))
        case MakeFileSystem():
            device = names.get(step.device, step.device)
            return replace(step, device=device, command=_words_here(step.command, names))
        case RunCommand():
            return replace(step, command=_words_here(step.command, names))
    return step


def _words_here(words: Sequence[str], names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(names.get(word, word) for word in words)
