"""Plans of arrays for drives or a system that are not here: of a captured machine, of image files in place of
drives. What could not be checked, and what refuses them all the same.
"""

from collections.abc import Iterator, Sequence

from aligntool.audit.array_boot import kernel_node, mount_points_of, running_nodes
from aligntool.audit.report import Judged
from aligntool.audit.wording import NOT_READ
from aligntool.change import RaidGoal
from aligntool.commands import ByHand, by_hand
from aligntool.errors import Refusal
from aligntool.inventory import Inventory
from aligntool.raid.boot import SYSTEMS, refuse_array_lines, refuse_device_lines, taken_places
from aligntool.raid.members import without_health
from aligntool.raid.planning import Needs
from aligntool.raid.running import free_mount_point
from aligntool.steps import EditFile, MakeArray, MountStep
from aligntool.system import System

CAPTURE = "capture"
IMAGES = "images"


_NAMED_THERE = (
    "DRIVE stands for each drive's name on the captured machine (an audit there shows it), where a kernel"
    " name from the capture may be that of another drive; --wipe is given there, too"
)
_NEW_UUIDS = "UUIDs: `aligntool raid create` makes new ones, also for the kernel command line"


def _of_system(goal: RaidGoal, more: str = "", *, assumed: bool = False) -> str:
    title = SYSTEMS[goal.system].title
    title += ": that of this machine; --system for another" if assumed else ""
    return (
        f"the system ({title}): whether its programs are installed{more}, its files can be replaced, and the"
        " name and the mount point are free"
    )


def unchecked_of_system(goal: RaidGoal) -> str:
    """Return what is not checked for files and commands of another system than this machine's."""
    return _of_system(goal, " where the array is made")


def unchecked_of_capture(
    members: Sequence[Judged], goal: RaidGoal, *, serials: bool, applied: bool
) -> tuple[str, ...]:
    """Return what a captured machine does not show. `serials`: it was captured with serial numbers.
    `applied`: the plan is saved, for `aligntool apply`.
    """
    unhealthy = without_health([judged.disk for judged in members])
    last = f"`aligntool {'apply' if applied else 'raid create'}` checks all of that on the captured machine"
    last += " before it writes"
    if not serials:
        last = (
            "which drives these are: `aligntool raid create` on the captured machine checks all of that; for"
            " `aligntool apply`, plan from a capture with serial numbers (aligntool snapshot --serials)"
        )
    return (
        f"{NOT_READ}, beside partitions, mounts and what was recognised: they are not known to be empty",
        "which programs and virtual machines use the drives",
        _of_system(goal, ", and in which versions"),
        *([f"the health of {', '.join(unhealthy)}"] if unhealthy else []),
        last,
        *([] if applied else [_NAMED_THERE]),
        _NEW_UUIDS + ("; `aligntool apply` of the saved plan keeps those shown" if applied else ""),
    )


def unchecked_of_images(
    members: Sequence[Judged], goal: RaidGoal, *, for_this_machine: bool
) -> tuple[str, ...]:
    """Return what image files do not show of the drives that they stand for. `for_this_machine`: the system
    was not named, so this machine's is assumed.
    """
    disks = [judged.disk for judged in members]
    names = ", ".join(disk.name for disk in disks)
    assumed = not all(disk.limits.logical_block_size for disk in disks)
    return (
        f"the drives that these files stand for, {names}: model, health, links, content",
        *(["their sectors, for which 512 bytes are assumed: --sector-size 4096"] if assumed else []),
        _of_system(goal, assumed=for_this_machine),
        "`aligntool raid create` with the drives themselves checks all of that before it writes",
        _NEW_UUIDS,
    )


def captured_refusals(
    needs: Needs, machine: Inventory, files: System | None, made: MakeArray | None = None
) -> Iterator[Refusal]:
    """Yield what a captured machine shows against an array: its name or its mount point is taken, or a line
    of mdadm.conf matches it, too. `machine`: all disks; `made`: the step that makes the array.
    """
    node = kernel_node(needs.device)
    for disk in machine.disks:
        if disk.array and node in map(kernel_node, running_nodes(disk)):
            text = f"an array named {needs.device} is already running"
            yield Refusal("name-taken", needs.device, text, "--name another")
    places = [place for disk in machine.disks for place in mount_points_of(disk)]
    fstab = files.fstab if files else ()
    named = {*places, *(line.place for line in fstab)}
    for step in needs.steps:
        if isinstance(step, MountStep) and step.path in places:
            text = f"something is already mounted at {step.path}"
            yield Refusal("mount-point", step.path, text, _free(step.path, named))
        if isinstance(step, EditFile) and files:
            if any(line.startswith("ARRAY ") for line in step.lines):
                yield from refuse_array_lines(files.mdadm, step, made)
                yield from refuse_device_lines(files.mdadm, step.path, made.members if made else ())
            for wanted, spec in taken_places(step, fstab):
                text = f"{step.path} already mounts {spec} at {wanted.place}"
                hint = _free(wanted.place, named)
                if "bind" in wanted.options:
                    hint = by_hand(ByHand.SYSTEM_FILES, "an editor", step.path)
                yield Refusal("mount-point", wanted.place, text, hint)


def _free(place: str, named: set[str]) -> str:
    return f"--mount {free_mount_point(place, named.__contains__)}"
