"""`aligntool raid plan`, `create` and `persist`: a goal from the options, the plan, its application."""

import sys
import uuid
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from aligntool.audit.wording import shell_word
from aligntool.change import Plan, RaidGoal, Wanted, to_json, with_asked
from aligntool.cli import arrays as acting
from aligntool.cli import options
from aligntool.cli.options import File, Name, Size, place, print_lines, read_text, terminal_width
from aligntool.cli.run_change import Applying, ends_stream, run_change, show_only
from aligntool.errors import Refused, Stopped
from aligntool.linux.look import look
from aligntool.linux.system import find_distribution
from aligntool.raid.boot import SYSTEMS
from aligntool.raid.measured import LONGEST, parse_tuning
from aligntool.raid.planning import needs_of_goal, needs_of_plan, plan_raid
from aligntool.raid.running import PersistGoal, find_array, plan_persist
from aligntool.recipes.goals import recipe
from aligntool.render.lines import Line, plain
from aligntool.render.plan import array_lines, arrays_json

DrivesArgument = Annotated[list[str], "DEV...", "Drives, or one partition of each drive."]
LEVELS = ("0", "1", "10", "5", "6")


def level_word(text: str) -> str:
    """ "10" or "raid10" as the kernel's word."""
    word = text.lower().removeprefix("raid")
    if word not in LEVELS:
        raise typer.BadParameter(f"{text!r} is not a level; there are {', '.join(LEVELS)}")
    return f"raid{word}"


@dataclass(frozen=True, slots=True)
class ArrayOptions:
    """The options of `raid plan` and `raid create`."""

    level: Annotated[str | None, "--level -l", "RAID level.", "0|1|10|5|6", level_word] = None
    recipe: options.RecipeOption = None
    chunk: Annotated[Size, "--chunk", "The chunk [default: as recommended]."] = None
    workload: Annotated[Name, "--workload", "general, boot, database, sequential, lsm, vm [default: general]."] = None
    filesystem: Annotated[Name, "--fs", "File system: xfs, ext4, btrfs, swap, none [default: xfs]."] = None
    layout: Annotated[Name, "--layout", "Layout: RAID10: n2, f2, o2 ...; RAID5, RAID6: left-symmetric ..."] = None
    bitmap: Annotated[str | None, "--bitmap", "The write-intent bitmap.", "internal|none"] = None
    metadata: Annotated[
        str | None, "--metadata", "Metadata version: 1.2, or 1.0 (at the end, RAID1 only) [default: 1.2].", "1.2|1.0"
    ] = None
    name: Annotated[Name, "--name", "The array's name [default: data]."] = None
    mount: Annotated[str | None, "--mount", "Mount point, or none [default: /srv/NAME].", "DIR", place] = None
    database_page: Annotated[Size, "--database-page", "Page size for --workload database [default: 16KiB]."] = None
    spare_room: Annotated[Size, "--spare-room", "Free space to leave at the end of each drive."] = None
    whole: Annotated[bool, "--whole-drives", "Make the drives themselves the members, without tables."] = False
    wipe: Annotated[
        list[str] | None, "--wipe", "Allow the loss of what is on this member; may be given again.", "DEV"
    ] = None
    measured: Annotated[File, "--measured", "Use what `raid tune` measured on these drives."] = None
    system: options.SystemOption = None

    def goal(self) -> RaidGoal:
        """Return what is wanted, with new UUIDs. What is typed beside a recipe comes before the recipe's own.

        Raises Refused.
        """
        goal = _goal(self.level, self.recipe)
        if self.database_page and (self.workload or goal.workload) != "database":
            raise Refused("--database-page needs --workload database", hint="--workload database")
        mount_at = "" if self.mount == "none" else self.mount
        measured = read_text(self.measured, most=LONGEST) if self.measured else goal.measured
        if self.measured:
            parse_tuning(measured)
        system = self.system or find_distribution()
        if system is None:  # the wrong files and commands would make no array come back
            raise Refused("this system's family is not known", hint=f"--system: {', '.join(SYSTEMS)}")
        return replace(
            goal,
            **{name: value for name in _OF_GOAL if (value := getattr(self, name))},
            mount_at=goal.mount_at if mount_at is None else mount_at,
            members="whole-drives" if self.whole else goal.members,
            wipe=tuple(resolved(name) for name in self.wipe or ()),
            system=system,
            measured=measured,
        )


# Options that are fields of the goal as they are.
_OF_GOAL = (
    "chunk", "workload", "filesystem", "layout", "bitmap", "name", "database_page", "spare_room", "metadata",
)  # fmt: skip


def _goal(level: str | None, name: str | None) -> RaidGoal:
    """From a recipe, or all recommended; with new UUIDs."""
    goal = recipe(name, "raid").goal if name else RaidGoal(level or "")
    if not isinstance(goal, RaidGoal) or not (level or name):
        raise Refused("no RAID level given", hint="--level 1, or --recipe NAME: aligntool recipes list")
    array = uuid.uuid4().hex
    words = (array[at : at + 8] for at in range(0, 32, 8))
    return replace(goal, level=level or goal.level, array_uuid=":".join(words), filesystem_uuid=str(uuid.uuid4()))


def resolved(name: str) -> str:
    """Where a link such as /dev/disk/by-id/... leads; a kernel name as it is."""
    return str(Path(name).resolve()) if "/" in name else name


# `aligntool raid persist`: an array that is there starts at every boot.


@ends_stream
def persist_command(
    array: Annotated[str, "ARRAY", "A running array: md127, /dev/md/data, data."],
    *,
    system: options.SystemOption = None,
    mount: Annotated[str | None, "--mount", "Mount point, used now and at every start.", "DIR", place] = None,
    dry_run: options.DryRunOption = False,
    yes: options.YesOption = False,
    output: options.PlanOutputOption = None,
    json_: options.EventsOption = False,
    sysroot: options.SysrootOption = None,
) -> None:
    """Configure the system to start an existing array at every boot.

    It writes its line in mdadm.conf, every initramfs, fstab and crypttab by UUID.

    Nothing is written to the array, which may be mounted. The plan is shown and confirmed first.

    Example: sudo aligntool raid persist /dev/md127 --mount /srv/data

    Exit code: 0 done or nothing to do, 3 refused and nothing written, 4 stopped before the end, with the record kept.
    """
    operation = Persist(array, PersistGoal(system, mount), sysroot)
    if not (dry_run or output is not None or sysroot is not None):
        return run_change(operation, yes=yes, json_=json_)
    # The arrays of a captured machine are not here.
    show_only(operation, operation.make_plan(), json_=json_, output=output, applicable=sysroot is None)


def find_persist_plan(array: str, goal: PersistGoal, sysroot: str | None = None) -> Plan:
    """Look at the array and at the files of the system, and plan. Raises Refused with every reason."""
    inventory = look((), sysroot=sysroot)
    named = resolved(array) if sysroot is None else array
    disk = find_array(inventory.disks, named, command="sudo aligntool raid persist")
    return plan_persist(disk, inventory, goal)


@dataclass(frozen=True, slots=True)
class Persist:
    """Configure the system to start an existing array at every boot."""

    array: str
    goal: PersistGoal
    sysroot: str | None = None

    def make_plan(self) -> Plan:
        return find_persist_plan(self.array, self.goal, self.sysroot)

    def document(self, plan: Plan) -> str:
        return with_asked(plan, "persist", self.goal) + "\n"

    def lines(self, plan: Plan, type_next: str) -> Iterable[Line]:
        yield from acting.array_plan_lines(plan, type_next)
        if not plan.steps:
            yield plain("Nothing is to be done.")

    def next_command(self) -> str:
        return carried_out("raid persist", sys.argv[3:])

    def refuse_changed(self, plan: Plan) -> None:
        acting.refuse_changed(plan, self.make_plan())

    def held(self, plan: Plan) -> AbstractContextManager[Applying]:
        return acting.held_array(plan, lambda: find_persist_plan(plan.disk.path, self.goal))

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        if find_persist_plan(plan.disk.path, self.goal).steps:
            raise Stopped(
                f"every step is done, but {plan.disk.path} would not start at boot as planned: the initramfs or a file "
                "does not hold what was written",
                hint=f"aligntool raid persist {plan.disk.path} --dry-run",
            )
        acting.tell_array(plan, json_=json_)


# `aligntool raid plan` and `show`.


def plan_command(
    drives: DrivesArgument,
    *,
    asked: ArrayOptions,
    output: options.PlanOutputOption = None,
    json_: options.JsonOption = False,
) -> None:
    """Plan an array, and show how it would be made.

    The plan has partitions, data offset, chunk, file system, and the configuration to start it at every boot.

    Example: sudo aligntool raid plan --recipe nvme-raid0-scratch /dev/nvme0n1 /dev/nvme1n1

    Exit code: 0 planned; 3 refused, with every reason.
    """
    operation = CreateArray(tuple(drives), asked.goal())
    show_only(operation, operation.make_plan(), json_=json_, output=output)


def carried_out(name: str, words: Sequence[str]) -> str:
    """What carries out a plan that was only shown: the command `name` with the `words` that asked for the plan."""
    return " ".join((f"sudo aligntool {name}", *(shell_word(word) for word in words if word != "--dry-run")))


def find_array_plan(drives: list[str], goal: RaidGoal) -> Plan:
    """Look at the drives and plan. Raises Refused with every reason."""
    members, numbers, report, known = acting.look_at_members(drives)
    goal = replace(goal, partitions=numbers)
    here = goal.system == find_distribution()
    try:
        plan = plan_raid(acting.sampled_members(members, goal), report.inventory, goal, known=known)
    except Refused as refused:
        acting.refuse_unready(needs_of_goal(goal, here=here), others=refused)
        raise
    acting.refuse_unready(needs_of_plan(plan, here=here), plan.steps)
    return plan


def show_command(
    arrays: Annotated[list[str] | None, "[ARRAY...]", "Arrays: md0, /dev/md/data, data [default: all]."] = None,
    *,
    sysroot: options.SysrootOption = None,
    json_: options.JsonOption = False,
) -> None:
    """Show arrays: members, links, state, and the offset of the data.

    It shows the bandwidth of the links, and the alignment of all layers of the stack.

    Example: aligntool raid show

    Exit code: 0 shown; 3 array not found.
    """
    views = acting.look_at_arrays([resolved(name) if sysroot is None else name for name in arrays or ()], sysroot)
    print_lines(arrays_json(views) if json_ else array_lines(views, width=terminal_width()))


# `aligntool raid create`: an array made of drives, with everything that makes it come back after a reboot.


@ends_stream
def create_command(
    drives: DrivesArgument,
    *,
    asked: ArrayOptions,
    dry_run: options.DryRunOption = False,
    yes: options.YesOption = False,
    wait: Annotated[bool, "--wait", "Return when the first resynchronisation is done."] = False,
    json_: options.EventsOption = False,
) -> None:
    """Make an array, and configure the system to start it at every boot.

    The plan is shown and confirmed first.

    Example: sudo aligntool raid create --level 1 /dev/nvme0n1 /dev/nvme1n1

    Exit code: 0 done, 3 refused and nothing written, 4 stopped before the end, with the record kept.
    """
    operation = CreateArray(tuple(drives), asked.goal(), with_goal=False, wait=wait)
    run_change(operation, yes=yes, json_=json_, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class CreateArray:
    """Make an array of drives, with everything that makes it start at every boot."""

    drives: tuple[str, ...]
    goal: RaidGoal
    with_goal: bool = True  # in the plan's document, for `apply`
    wait: bool = False

    def make_plan(self) -> Plan:
        return find_array_plan(list(self.drives), self.goal)

    def document(self, plan: Plan) -> str:
        text = with_asked(plan, "wanted", Wanted(self.drives, self.goal)) if self.with_goal else to_json(plan)
        return text + "\n"

    def lines(self, plan: Plan, type_next: str) -> Iterable[Line]:
        return acting.array_plan_lines(plan, type_next)

    def next_command(self) -> str:
        return carried_out("raid create", sys.argv[3:])

    def refuse_changed(self, plan: Plan) -> None:
        acting.refuse_changed(plan, self.make_plan())

    def held(self, plan: Plan) -> AbstractContextManager[Applying]:
        return acting.held_array(plan, self.make_plan)

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        if self.wait:
            acting.wait_for_resync(plan.disk.path)
        acting.tell_array(plan, json_=json_)
        if not (self.wait or json_):
            acting.tell_resync(plan.disk.path)
