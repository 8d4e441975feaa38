"""`aligntool raid plan`, `show`, `create`, `persist` and `tune`: from the options to a goal, a plan and the
array.
"""

import os
import re
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from aligntool.audit.report import Judged
from aligntool.audit.wording import shell_word
from aligntool.change import (
    NOT_MOUNTED,
    RAID_WORDS,
    ArrayPlan,
    ArrayRequest,
    Plan,
    RaidGoal,
    array_plan,
    plan_with_request,
    to_json,
)
from aligntool.cli import arrays as acting
from aligntool.cli import options
from aligntool.cli.options import mount_point, one_of, print_lines, resolve_device, terminal_width
from aligntool.cli.pager import page_lines
from aligntool.cli.probe import bench_progress, ended_by_signals
from aligntool.cli.reference import find_recipe
from aligntool.cli.run_change import ChangeInProgress, ends_stream, pipes_may_break, run_change, show_only
from aligntool.commands import ByHand, by_hand, command, typed
from aligntool.errors import Refusal, Refused, Stopped, refuse
from aligntool.inventory import Disk, Inventory, of_system
from aligntool.linux.block import open_read_only
from aligntool.linux.deadline import run_while_progressing
from aligntool.linux.files import read_text
from aligntool.linux.installed import find_installed, has_program, installed_below, version_words
from aligntool.linux.lock import lock_against_udev
from aligntool.linux.look import look, read_manifest
from aligntool.linux.sysfs import LIVE, Tree
from aligntool.linux.system import find_distribution, read_system
from aligntool.linux.systemd_journal import recorded
from aligntool.linux.targets import UserLimits, captured_node, open_sysroot
from aligntool.measure.arrays import (
    Sweep,
    SweepRun,
    clear_hint,
    examine,
    is_test_array,
    plan_sweep,
    remove_test_arrays,
)
from aligntool.measure.run import SweepProgress
from aligntool.measure.settings import SettingsRun, SettingsSweep, plan_settings
from aligntool.measure.targets import find_target
from aligntool.raid import existing, steps_system
from aligntool.raid import measured as tuned
from aligntool.raid import settings as live
from aligntool.raid.boot import LIST_FILE, SYSTEMS, listed_copy_steps
from aligntool.raid.commands import array_device, command_of
from aligntool.raid.current_names import absent_drives
from aligntool.raid.elsewhere import (
    CAPTURE,
    IMAGES,
    captured_refusals,
    unchecked_of_capture,
    unchecked_of_images,
    unchecked_of_system,
)
from aligntool.raid.planning import needs_of_goal, needs_of_plan, plan_raid
from aligntool.raid.running import PersistGoal, find_array, plan_persist, resolve_array
from aligntool.raid.stale import StaleLine, may_have_stale_lines, stale_lines
from aligntool.realign.planning import there
from aligntool.render import plan as shown
from aligntool.render import tuning as sweeps
from aligntool.render.lines import CAPTURED, EMPTY, Line, Style, plain, show
from aligntool.steps import MakeFileSystem
from aligntool.system import Installed, System
from aligntool.units import KIB

WaitOption = Annotated[
    bool, typer.Option("--wait", help="Wait until the first resynchronisation is finished.")
]
DrivesArgument = Annotated[
    list[str],
    typer.Argument(parser=options.path, metavar="DEVICE...", help="Drives, or one partition of each drive."),
]
WORKLOAD = one_of(*RAID_WORDS["workload"])
BitmapOption = Annotated[
    str | None,
    typer.Option(
        "--bitmap",
        parser=one_of(*RAID_WORDS["bitmap"]),
        metavar="internal|none",
        help="The write-intent bitmap.",
    ),
]
LEVELS = ("0", "1", "10", "5", "6")


def level_word(text: str) -> str:
    """Return the kernel's word for a level such as "10" or "raid10", or raise a usage error."""
    word = text.lower().removeprefix("raid")
    if word not in LEVELS:
        raise typer.BadParameter(f"{text!r} is not a RAID level; the levels are {', '.join(LEVELS)}")
    return f"raid{word}"


@dataclass(frozen=True, slots=True)
class ArrayOptions:
    """The options of `raid plan` and `raid create`."""

    level: Annotated[
        str | None, typer.Option("--level", "-l", parser=level_word, metavar="0|1|10|5|6", help="RAID level.")
    ] = None
    recipe: options.RecipeOption = None
    chunk: Annotated[
        int | None,
        typer.Option(
            "--chunk", metavar="SIZE", parser=options.size, help="Chunk size [default: as recommended]."
        ),
    ] = None
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            parser=WORKLOAD,
            metavar="NAME",
            help="general, boot, database, sequential, lsm, vm [default: general].",
        ),
    ] = None
    filesystem: Annotated[
        str | None,
        typer.Option(
            "--fs",
            parser=one_of(*RAID_WORDS["filesystem"]),
            metavar="NAME",
            help="File system: xfs, ext4, btrfs, swap, none [default: xfs].",
        ),
    ] = None
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            metavar="NAME",
            help="Layout: RAID10: n2, f2, o2 ...; RAID5, RAID6: left-symmetric ...",
        ),
    ] = None
    bitmap: BitmapOption = None
    metadata: Annotated[
        str | None,
        typer.Option(
            "--metadata",
            parser=one_of(*RAID_WORDS["metadata"]),
            metavar="1.2|1.0",
            help="Metadata version: 1.2, or 1.0 (at the end, RAID1 only) [default: 1.2].",
        ),
    ] = None
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The array's name [default: data].")
    ] = None
    mount: Annotated[
        str | None,
        typer.Option(
            "--mount", parser=options.text, metavar="DIR", help="Mount point, or none [default: /srv/NAME]."
        ),
    ] = None
    database_page: Annotated[
        int | None,
        typer.Option(
            "--database-page",
            metavar="SIZE",
            parser=options.size,
            help="Page size for --workload database [default: 16KiB].",
        ),
    ] = None
    spare_room: Annotated[
        int | None,
        typer.Option(
            "--spare-end",
            metavar="SIZE",
            parser=options.size,
            help="Free space to leave at the end of each drive.",
        ),
    ] = None
    lba_size: options.LbaSizeOption = None
    zero_members: Annotated[
        bool,
        typer.Option(
            "--zero-members", help="First zero empty NVMe drives, so that no resynchronisation is needed."
        ),
    ] = False
    fast_sync: Annotated[
        bool,
        typer.Option(
            "--fast-sync",
            help="Lift md's limit for the first resynchronisation, wait for its end, and restore the limit.",
        ),
    ] = False
    whole: Annotated[
        bool, typer.Option("--whole-drives", help="Use whole drives as members, without partition tables.")
    ] = False
    one_drive: Annotated[bool, typer.Option("--one-drive", help="Accept a single drive: a RAID0 of one.")] = (
        False
    )
    wipe: options.WipeOption = None
    measured: Annotated[
        str | None,
        typer.Option("--tuned", metavar="FILE", help="Use the result of `raid tune` on these drives."),
    ] = None
    system: options.SystemOption = None

    def goal(self, captured: Tree | None = None, files: System | None = None) -> RaidGoal:
        """Return the goal, with new UUIDs. Options override the values of a recipe. `captured`: the machine
        that it is for, if not this one; `files`: the installed system, if not the running one.

        Raises Refused.
        """
        goal = _goal(self.level, self.recipe)
        if self.database_page and (self.workload or goal.workload) != "database":
            raise typer.BadParameter("--database-page needs --workload database")
        if self.filesystem not in (None, goal.filesystem):  # the recipe's values are for its own file system
            place = None if self.filesystem in NOT_MOUNTED else goal.mount_at
            goal = replace(
                goal, block_size=None, inode_size=None, log_size=None, mount_options=None, mount_at=place
            )
        mount_at = "" if self.mount == "none" else self.mount
        wiped = tuple(map(resolve_device, self.wipe or ()))
        if captured:
            wiped = tuple(captured_node(captured, name) for name in self.wipe or ())
        elif mount_at and not files:
            mount_at = mount_point(mount_at)
        measured = read_text(self.measured, most=tuned.LONGEST) if self.measured else goal.measured
        if self.measured:
            tuned.parse_tuning(measured, self.measured)
        return replace(
            goal,
            **{name: value for name in _GOAL_FIELDS if (value := getattr(self, name))},
            mount_at=goal.mount_at if mount_at is None else mount_at,
            members="whole-drives" if self.whole else goal.members,
            wipe=wiped,
            system=system_of(self.system, captured or LIVE, files),
            measured=measured,
        )


# Options that are also fields of the goal.
_GOAL_FIELDS = (
    "chunk", "workload", "filesystem", "layout", "bitmap", "name", "database_page", "spare_room", "metadata",
    "one_drive", "lba_size", "zero_members", "fast_sync",
)  # fmt: skip


def _goal(level: str | None, name: str | None) -> RaidGoal:
    """Return the goal of a recipe, or one with the recommended values; with new UUIDs."""
    goal = find_recipe(name, "raid").goal if name else RaidGoal(level or "")
    if not isinstance(goal, RaidGoal) or not (level or name):
        raise typer.BadParameter(
            "no RAID level given: --level 1, or --recipe NAME from aligntool recipes list"
        )
    if level not in (None, goal.level):  # the recipe's values are for its own level
        goal = replace(goal, chunk=None, layout=None, bitmap=None)
    return with_new_uuids(replace(goal, level=level or goal.level))


def with_new_uuids(goal: RaidGoal) -> RaidGoal:
    array = uuid.uuid4().hex
    words = (array[start : start + 8] for start in range(0, 32, 8))
    return replace(goal, array_uuid=":".join(words), filesystem_uuid=str(uuid.uuid4()))


def system_of(word: str | None, tree: Tree = LIVE, files: System | None = None) -> str:
    """Return the family of the system whose files are changed, that of the machine by default. `files`: those
    of an installed system. Raises Refused if it is unknown: with another system's files and commands, no
    array would start.
    """
    system = word or (files.family if files else find_distribution(tree))
    if system is None:
        which = "this system" if tree.live else "the captured system"
        which = f"the system in {files.installed.root}" if files and files.installed else which
        raise Refused(f"the family of {which} is unknown", hint=f"--system: {', '.join(SYSTEMS)}")
    return system


# `--root`: the files and the programs of an installed system in place of those of the running one.


def look_for_system(files: System | None) -> Inventory:
    """Look at every disk, with the files of this system or of an installed one."""
    return look(()) if files is None else of_system(look((), files=False), files)


# `aligntool raid persist`: start an existing array at every boot.


@ends_stream
def persist_command(
    array: Annotated[
        str,
        typer.Argument(
            parser=options.path, metavar="ARRAY", help="A running array: md127, /dev/md/data, data."
        ),
    ],
    *,
    system: options.SystemOption = None,
    mount: Annotated[
        str | None,
        typer.Option(
            "--mount", parser=options.text, metavar="DIR", help="Mount point, now and at every boot."
        ),
    ] = None,
    measured: Annotated[
        str | None,
        typer.Option(
            "--tuned",
            metavar="FILE",
            help="Keep the settings that were faster in this result of `raid tune ARRAY`.",
        ),
    ] = None,
    below: options.RootOption = None,
    dry_run: options.DryRunOption = False,
    verbose: options.VerbosePlanOption = False,
    yes: options.YesOption = False,
    kept: options.PlanFile,
    json_: options.EventsOption = False,
    sysroot: options.SysrootOption = None,
) -> None:
    """Configure the system to start an existing array at every boot.

    It writes the line in mdadm.conf, updates every initramfs, and writes the fstab and crypttab entries by
    UUID.

    Nothing is written to the array, which may be mounted. The plan is shown and confirmed first.

    Example: sudo aligntool raid persist /dev/md127 --mount /srv/data

    Exit code: 0 done or nothing to do, 3 refused and nothing written, 4 stopped before the end, with the
    record kept.
    """
    root = options.one_machine(sysroot)
    options.refuse_unapplied(yes=yes, shown={"--output": kept.output, "--sysroot": root})
    options.refuse_two_systems(below, captured=root is not None)
    place = mount_point(mount) if mount is not None and below is None else mount
    text = ""
    if measured is not None:
        text = read_text(measured, most=tuned.LONGEST)
        live.parse_settings(text, measured)
    operation = Persist(array, PersistGoal(system, place, _root_of(below), text), root)
    if not (dry_run or kept.output is not None or root is not None):
        return run_change(operation, yes=yes, json_=json_, verbose=verbose)
    plan = partial(show_only, operation, json_=json_, kept=kept, inputs=(root, measured), verbose=verbose)
    if root is None:
        return plan()
    plan(where=CAPTURED, not_applied=lambda _: "it is not for `aligntool apply` on this machine")


def _root_of(below: str | None) -> str:
    return "" if below is None else find_installed(below).root


def find_persist_plan(array: str, goal: PersistGoal, sysroot: str | None = None) -> Plan:
    """Look at the array and at the files of the system, and plan. Raises Refused with every reason."""
    files = installed_below(goal.root or None)
    inventory = look((), sysroot=sysroot) if files is None else look_for_system(files)
    named = resolve_device(array) if sysroot is None else array
    words = "sudo aligntool raid persist"
    if sysroot is not None:
        words = command("raid persist --sysroot", sysroot)
    if goal.root:
        words = typed("aligntool raid persist", "--root", goal.root)
    plan = plan_persist(find_array(inventory.disks, named, command=words), inventory, goal)
    if plan.installed is not None:
        plan = with_boot_copies(plan)
        acting.refuse_unready(needs_of_plan(plan, here=True), plan.steps, paths=steps_system.paths_of(plan))
    return plan


def with_boot_copies(plan: ArrayPlan, here: steps_system.Paths = steps_system.HERE) -> ArrayPlan:
    """Return the plan for an installed system, also with the copies of the EFI system partitions beside the
    array, if the list of this system, which made the array, has them.
    """
    listed = listed_copy_steps(steps_system.text_of(LIST_FILE, here), plan.disk.disk_id or "")
    in_effect = in_effect_in(steps_system.paths_of(plan))
    missing = tuple(step for step in listed if not in_effect(step))
    if not missing:
        return plan
    note = (
        f"the EFI system partitions on its drives are kept in sync, as listed in {LIST_FILE} of this system"
    )
    return replace(plan, steps=(*plan.steps, *missing), notes=(*plan.notes, note))


@dataclass(frozen=True, slots=True)
class Persist(acting.ArrayOperation):
    """Configure the system to start an existing array at every boot."""

    array: str
    goal: PersistGoal
    sysroot: str | None = None

    @property
    def named(self) -> str:
        return self.array

    def make_plan(self) -> Plan:
        return find_persist_plan(self.array, self.goal, self.sysroot)

    def document(self, plan: Plan) -> str:
        return plan_with_request(plan, "persist", self.goal) + "\n"

    def next_command(self) -> str:
        return apply_command("raid persist", typed_arguments(), *_ELSEWHERE)

    def locked(self, plan: Plan) -> AbstractContextManager[ChangeInProgress]:
        return acting.locked_array(plan, lambda: find_persist_plan(plan.disk.path, self.goal))

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        if find_persist_plan(plan.disk.path, self.goal).steps:
            raise Stopped(
                f"every step is done, but {plan.disk.path} would not start at boot as planned: the initramfs"
                " or a file does not contain what was written",
                hint=typed("aligntool raid persist", *root_words(plan), plan.disk.path, "--dry-run"),
            )
        acting.report_array(plan, json_=json_)


def root_words(plan: Plan) -> tuple[str, ...]:
    return ("--root", plan.installed.root) if plan.installed else ()


# `aligntool raid plan` and `show`.


@ends_stream
def plan_command(
    drives: DrivesArgument,
    *,
    chosen: ArrayOptions,
    verbose: options.VerbosePlanOption = False,
    kept: options.PlanFile,
    json_: options.JsonOption = False,
    sysroot: options.SysrootOption = None,
    sector_size: options.SectorOption = None,
    physical_sector_size: options.PhysicalOption = None,
) -> None:
    """Plan an array, and show how it would be created.

    The plan covers partitions, data offset, chunk size, file system, and the configuration to start it at
    every boot.

    Image files stand for drives of their size; with --sysroot, the drives are those of a captured machine.

    Example: sudo aligntool raid plan --recipe nvme-raid0-scratch /dev/nvme0n1 /dev/nvme1n1

    Exit code: 0 planned; 3 refused, with every reason.
    """
    root = options.one_machine(sysroot)
    given = UserLimits(sector_size, physical_sector_size)
    of_images = root is None and all(os.path.isfile(drive) for drive in drives)  # noqa: PTH113
    if given != acting.NOTHING_GIVEN and not of_images:
        raise typer.BadParameter("--sector-size and --physical-sector-size are for image files")
    read = (chosen.recipe, chosen.measured, root, *(drives if of_images else ()))
    plan = partial(show_only, json_=json_, kept=kept, inputs=read, verbose=verbose)
    if root is not None:
        with open_sysroot(root) as tree:
            captured = array_of_capture(drives, chosen, root, tree, saved=json_ or kept.output is not None)
            return plan(captured, where=CAPTURED, not_applied=captured.why_not_applied)
    named = tuple(options.distinct_devices(drives))
    _say_unused(chosen, named)
    if of_images:
        assumed = chosen.system is None
        images = ArrayOfImages(named, chosen.goal(), made_from=IMAGES, given=given, for_this_machine=assumed)
        never = "`aligntool apply` refuses it: image files stand for its drives"
        return plan(images, where="with the drives themselves", not_applied=lambda _: never)
    return plan(CreateArray(named, chosen.goal()))


def _say_unused(chosen: ArrayOptions, drives: Sequence[str]) -> None:
    """Say that an option has no effect. It is accepted: the same command may run on machines with one drive
    or with several.
    """
    if chosen.one_drive and len(drives) > 1:
        options.say(f"--one-drive has no effect here: {len(drives)} drives are named, and all are used")


def typed_arguments() -> list[str]:
    """Return the words typed after `raid plan` or a similar command, also if it was typed as `plan raid`."""
    return sys.argv[next(index for index, word in enumerate(sys.argv) if word in ("raid", "plan")) + 2 :]


# Options with a value that save a plan, or state what is not on the machine of the drives.
_ELSEWHERE = ("-o", "--output", "--sysroot", "--sector-size", "--physical-sector-size")


def apply_command(name: str, words: Sequence[str], *without: str) -> str:
    """Return the command that applies a plan that was only shown: `name`, with the `words` typed for the
    plan. `without`: options that are left out, with their values.
    """
    left = iter(words)
    kept = []
    for word in left:
        if word in without:
            next(left, "")
        elif word not in ("--dry-run", "--overwrite") and word.partition("=")[0] not in without:
            kept.append(word)
    return typed(f"aligntool {name}", *kept)


def named_anew(drives: Collection[str]) -> str:
    """Return the command that makes the array where its drives are. They must be named there: the kernel may
    have given their names to other drives, which a --wipe would allow to be lost.
    """
    words = ["DRIVE" if word in drives else word for word in typed_arguments()]
    return apply_command("raid create", words, "--wipe", *_ELSEWHERE)


def find_array_plan(drives: list[str], goal: RaidGoal, root: str | None = None) -> Plan:
    """Look at the drives and plan, for the running system or the one below `root`. Raises Refused with every
    reason.
    """
    files = installed_below(root)
    installed = files.installed if files else None
    paths = steps_system.paths_below(installed)
    if files:
        refuse(_unsuited_to_root(goal, files))
    members, numbers, report, known = acting.look_at_members(drives)
    goal = replace(goal, partitions=numbers)
    array = existing.array_on(members, goal, report.inventory.disks)
    if array is not None:
        acting.refuse_unfinished(acting.find_record(array.path))
        return existing_plan(array, members, goal, look_for_system(files))
    here = goal.system == (files.family if files else find_distribution())
    stale = find_stale_lines(goal, files) if here else ()
    inventory = of_system(report.inventory, files) if files else report.inventory
    try:
        sampled = acting.sampled_members(members, goal)
        formats = goal.lba_size is not None
        plan = plan_raid(
            sampled,
            inventory,
            goal,
            known=known,
            stale=stale,
            namespaces=acting.namespaces_of(sampled) if formats else {},
            disks=look((), arrays=True, files=False).disks if formats else (),
            zeroing=acting.zeroing_of(sampled) if goal.zero_members else {},
        )
    except Refused as refused:
        needs = needs_of_goal(goal, here=here, stale=stale, installed=installed)
        acting.refuse_unready(needs, others=refused, paths=paths)
        raise
    acting.refuse_unready(needs_of_plan(plan, here=here), plan.steps, paths=paths)
    if installed:
        plan = replace(plan, attention=(*plan.attention, *_made_here(plan, installed)))
    return plan if here else replace(plan, unchecked=(unchecked_of_system(goal),))


def _unsuited_to_root(goal: RaidGoal, files: System) -> Iterator[Refusal]:
    """Refuse what is only done for the running system, and an installed one without an initramfs."""
    if goal.binds or goal.owner or goal.group or goal.mode:
        text = "directories of the new file system are only made for the running system, without --root"
        yield Refusal("invalid-option", "--root", text, "omit owner, group, mode and bind from the recipe")
    if files.installed and not files.initramfs:
        text = f"no initramfs is in {files.installed.root}/boot, so none can be made to start the array"
        yield Refusal("not-installed", "initramfs", text, "install a kernel there first")


def _made_here(plan: ArrayPlan, installed: Installed) -> Iterator[str]:
    """Yield what it means that the array and its content are made by programs of another system than the one
    that will use them.
    """
    makers = [command_of(step)[0] for step in plan.of(MakeFileSystem)]
    makers = [maker for maker in dict.fromkeys(makers) if has_program(installed, maker)]
    text = f"the array and what is on it are made by this system: the kernel in {installed.root} has to"
    versions = "; ".join(version_words(installed, ("mdadm", *makers)))
    yield f"{text} support their format{f' ({versions})' if versions else ''}"


def find_stale_lines(goal: RaidGoal, files: System | None = None) -> tuple[StaleLine, ...]:
    """Return the lines of this or an installed system's files that the new array replaces. All disks are read
    only if another one has its name.
    """
    files = files or read_system(Tree(""), images=False)
    if files is None or not may_have_stale_lines(files, goal):
        return ()
    return stale_lines(of_system(look((), files=False), files), goal)


def existing_plan(array: Disk, members: list[Judged], goal: RaidGoal, inventory: Inventory) -> Plan:
    """Return a plan without steps if the array on these drives is the requested one. `inventory`: of every
    disk. Raises Refused with everything in which it differs.
    """
    disk = find_array(inventory.disks, array.path, command="aligntool raid show")
    running, _ = resolve_array(disk, inventory, PersistGoal(goal.system))
    in_effect = in_effect_in(steps_system.paths_below(running.system.installed))
    request = existing.Existing(running, tuple(members), goal, first_bytes(disk.path), in_effect)
    return existing.plan_existing(request)


def first_bytes(path: str) -> bytes:
    """Return the first 4 KiB of a device, b"" if it cannot be read."""
    with suppress(Refused, OSError), open_read_only(path) as device:
        return bytes(device.read(0, 4 * KIB))
    return b""


def in_effect_in(paths: steps_system.Paths = steps_system.HERE) -> existing.InEffect:
    """Return a function that returns whether a step would change nothing in a system."""
    return partial(steps_system.is_in_effect, paths=paths)


def show_command(
    arrays: Annotated[
        list[str] | None,
        typer.Argument(
            parser=options.path, metavar="[ARRAY...]", help="Arrays: md0, /dev/md/data, data [default: all]."
        ),
    ] = None,
    *,
    sysroot: options.SysrootOption = None,
    json_: options.JsonOption = False,
) -> None:
    """Show arrays: members, links, state and data offset.

    The bandwidth of the links and the alignment of all layers of the stack are also shown.

    Example: aligntool raid show

    Exit code: 0 shown; 3 array not found.
    """
    root = options.one_machine(sysroot)
    views = acting.look_at_arrays(
        [resolve_device(name) if root is None else name for name in arrays or ()], root
    )
    page_lines(shown.arrays_json(views) if json_ else shown.array_lines(views, width=terminal_width()))


# `aligntool raid create`: make an array of drives, and configure the system to start it at every boot.


@ends_stream
def create_command(
    drives: DrivesArgument,
    *,
    chosen: ArrayOptions,
    below: options.RootOption = None,
    dry_run: options.DryRunOption = False,
    verbose: options.VerbosePlanOption = False,
    yes: options.YesOption = False,
    wait: WaitOption = False,
    json_: options.EventsOption = False,
) -> None:
    """Create an array, and configure the system to start it at every boot.

    The plan is shown and confirmed first.

    Example: sudo aligntool raid create --level 1 /dev/nvme0n1 /dev/nvme1n1

    Exit code: 0 done, 3 refused and nothing written, 4 stopped before the end, with the record kept.
    """
    named = tuple(options.distinct_devices(drives))
    _say_unused(chosen, named)
    goal = chosen.goal(files=installed_below(below, images=False))
    operation = CreateArray(named, goal, with_goal=False, wait=wait, root=below)
    run_change(operation, yes=yes, json_=json_, dry_run=dry_run, verbose=verbose)
    if wait and not dry_run:
        acting.wait_for_resync(array_device(operation.goal))


@dataclass(frozen=True, slots=True)
class CreateArray(acting.ArrayOperation):
    """Create an array of drives, and configure the system to start it at every boot."""

    drives: tuple[str, ...]
    goal: RaidGoal
    with_goal: bool = True  # in the plan's document, for `apply`
    wait: bool = False
    made_from: str = ""  # see `ArrayRequest`
    root: str | None = None  # the folder of an installed system that is configured in place of this one

    @property
    def named(self) -> str:
        return " ".join(self.drives)

    def make_plan(self) -> Plan:
        return find_array_plan(list(self.drives), self.goal, self.root)

    def document(self, plan: Plan) -> str:
        if not self.with_goal:
            return to_json(plan) + "\n"
        request = ArrayRequest(self.drives, self.goal, self.made_from)
        return plan_with_request(plan, "wanted", request) + "\n"

    def shown(self, plan: Plan) -> Plan:
        """Return a plan that was made elsewhere with what a plan that is made here says beside its steps."""
        if not self.made_from:
            return plan
        here = run_while_progressing(self.make_plan)
        return replace(plan, attention=here.attention, notes=here.notes, unchecked=here.unchecked)

    def next_command(self) -> str:
        return apply_command("raid create", typed_arguments())

    def refuse_changed(self, plan: Plan) -> None:
        if self.made_from:
            refuse_elsewhere(array_plan(plan), self.goal, self.made_from)
        try:
            acting.ArrayOperation.refuse_changed(self, plan)
        except Refused as refused:
            reasons = (acting.since_planned(each, seen=not self.made_from) for each in refused.refusals)
            refuse(reasons)

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        if self.wait:
            acting.wait_for_resync(plan.disk.path)
        acting.report_array(plan, json_=json_)
        if not (self.wait or json_):
            acting.report_resync(plan.disk.path)


def refuse_elsewhere(plan: ArrayPlan, goal: RaidGoal, made_from: str) -> None:
    """Raise Refused, with a single reason, if a plan is for image files, or for another machine."""
    if made_from == IMAGES:
        text = "the plan is for image files in place of drives; md works on block devices"
        raise Refused(text, hint="name the drives: aligntool raid create --help", code="file")
    absent = absent_drives(plan, look((), arrays=True, files=False).disks)
    if absent:
        text = f"the plan is for drives that are not on this machine: {'; '.join(absent)}"
        hint = "apply it on the machine that was captured; its capture must have serial numbers: --serials"
        raise Refused(text, hint=hint, code="plan-stale")
    here = find_distribution()
    if goal.system != here:
        planned, found = (
            SYSTEMS[word].title if word in SYSTEMS else "an unknown system" for word in (goal.system, here)
        )
        text = f"the plan is for the files and commands of {planned}, and this is {found}"
        raise Refused(text, hint=f"make a new plan: --system {here}" if here else "", code="plan-stale")
    unknown = shown.unidentified(plan)
    if unknown:
        text = f"the plan was made from a capture, and {unknown}"
        hint = "make a new plan on the machine itself, or from a capture with serial numbers: --serials"
        raise Refused(text, hint=hint, code="plan-stale")


# `aligntool raid plan` for drives that are not here. Nothing is known of them beyond what a capture shows.


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedArray(CreateArray):
    """Plan an array of the drives of a captured machine."""

    sysroot: str  # as it was typed
    tree: Tree
    nodes: Mapping[str, str]  # the kernel's paths of the drives
    saved: bool

    @property
    def has_serials(self) -> bool:
        return bool(read_manifest(self.tree).serials)

    def shown(self, plan: Plan) -> Plan:
        return plan

    def next_command(self) -> str:
        return named_anew(self.nodes)

    def why_not_applied(self, plan: Plan) -> str:
        """Return why `aligntool apply` refuses the saved plan on every machine, or ""."""
        never = "`aligntool apply` refuses it on every machine: "
        if not self.has_serials:
            return f"{never}the capture has no serial numbers (aligntool snapshot --serials)"
        unknown = shown.unidentified(plan)
        return unknown and f"{never}{unknown}"

    def make_plan(self) -> Plan:
        """Plan from what the capture shows. Raises Refused with every reason."""
        try:
            return self._plan()
        except Refused as refused:
            refused.change_hints(self._hint_there)
            raise

    def _plan(self) -> Plan:
        root = self.tree.root
        if self.goal.lba_size is not None:
            text = "a capture shows neither whether a drive is empty nor what formatting it erases"
            raise Refused(text, hint="omit --lba-size", code="not-read", subject="--lba-size")
        if self.goal.zero_members:
            text = "a capture shows neither whether a drive is empty nor how it can be zeroed"
            raise Refused(text, hint="omit --zero-members", code="not-read", subject="--zero-members")
        nodes = [self.nodes[drive] for drive in self.drives]
        members, numbers, report, known = acting.look_at_captured(nodes, root)
        goal = replace(self.goal, partitions=numbers)
        array = existing.array_on(members, goal, report.inventory.disks)
        if array is not None:
            text = f"{array.path} exists on these drives; a capture does not show whether it is as requested"
            hint = typed("aligntool raid show --sysroot", self.sysroot, array.name, sudo=False)
            raise Refused(text, hint=hint, code="held", subject=array.path)
        machine = look((), sysroot=root, files=False)
        files = read_system(self.tree, images=False)
        needs = needs_of_goal(goal, here=True)
        try:
            plan = plan_raid(members, report.inventory, goal, known=known)
        except Refused as refused:
            refuse([*refused.refusals, *captured_refusals(needs, machine, files)])
            raise
        refuse(captured_refusals(needs_of_plan(plan, here=True), machine, files, plan.array))
        applied = self.saved and not self.why_not_applied(plan)
        unchecked = unchecked_of_capture(members, goal, serials=self.has_serials, applied=applied)
        if self.saved and self.has_serials and not applied:
            text = f"{shown.unidentified(plan)}, so `aligntool apply` refuses the saved plan"
            unchecked = (*unchecked, text)
        return replace(plan, unchecked=unchecked)

    def _hint_there(self, hint: str) -> str:
        return "\n".join(
            there(line, self.sysroot) if line.startswith(("sudo ", "by hand")) else line
            for line in hint.split("\n")
        )


def array_of_capture(
    drives: list[str], chosen: ArrayOptions, sysroot: str, tree: Tree, *, saved: bool
) -> CapturedArray:
    """Return the operation for drives as they were named on the captured machine. Raises Refused."""
    nodes = {name: captured_node(tree, name) for name in drives}
    named = tuple(options.distinct_devices(drives, nodes.__getitem__))
    _say_unused(chosen, named)
    goal = chosen.goal(tree)
    return CapturedArray(named, goal, made_from=CAPTURE, sysroot=sysroot, tree=tree, nodes=nodes, saved=saved)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayOfImages(CreateArray):
    """Plan an array of drives for which image files stand."""

    given: UserLimits
    for_this_machine: bool  # --system was not given

    def shown(self, plan: Plan) -> Plan:
        return plan

    def next_command(self) -> str:
        return named_anew(self.drives)

    def make_plan(self) -> Plan:
        """Plan for drives of these sizes, with what the files contain. Raises Refused with every reason."""
        members, report, known = acting.look_at_stand_ins(self.drives, self.given)
        sampled = acting.sampled_members(members, self.goal)
        plan = plan_raid(sampled, report.inventory, self.goal, known=known)
        return replace(plan, unchecked=self._unchecked(members))

    def _unchecked(self, members: Sequence[Judged]) -> tuple[str, ...]:
        return unchecked_of_images(members, self.goal, for_this_machine=self.for_this_machine)


# `aligntool raid tune`: which chunk size is fastest on these drives, measured while they are still empty; or
# which settings of a running array are.


def _sizes(text: str | None) -> tuple[int, ...]:
    """Return the sizes in a text such as "64KiB,128KiB", in bytes."""
    return tuple(options.size(word) for word in text.split(",")) if text else ()


@dataclass(frozen=True, slots=True)
class TuningFile(options.ResultFile):
    """Where the result of a sweep is written."""

    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Save the result, for `raid plan` or `raid persist --tuned FILE`; - is standard output.",
        ),
    ] = None


def tune_command(
    drives: Annotated[
        list[str],
        typer.Argument(
            parser=options.path,
            metavar="DEVICE...|ARRAY",
            help="Empty drives, or one empty partition of each; or a running array: md127, /dev/md/data.",
        ),
    ],
    *,
    level: Annotated[
        str | None, typer.Option("--level", "-l", parser=level_word, metavar="0|10|5|6", help="RAID level.")
    ] = None,
    workload: Annotated[
        str, typer.Option("--workload", parser=WORKLOAD, metavar="NAME", help="As for `raid plan`.")
    ] = "general",
    chunks: Annotated[
        str | None,
        typer.Option("--chunks", metavar="SIZE,...", help="Chunk sizes to try, such as 64KiB,128KiB."),
    ] = None,
    layout: Annotated[
        str | None, typer.Option("--layout", metavar="NAME", help="As for `raid plan`.")
    ] = None,
    bitmap: BitmapOption = None,
    page: Annotated[
        int | None,
        typer.Option(
            "--database-page",
            metavar="SIZE",
            parser=options.size,
            help="Page size of the database [default: 16KiB].",
        ),
    ] = None,
    span: Annotated[
        int | None,
        typer.Option("--span", metavar="SIZE", parser=options.size, help="How much of each array to use."),
    ] = None,
    runtime: Annotated[
        float,
        typer.Option(
            "--runtime", parser=options.seconds(0.1, 86400), metavar="SECONDS", help="Duration of each load."
        ),
    ] = 5.0,
    repeats: Annotated[
        int,
        typer.Option(
            "--repeats", parser=options.integer(1, 1000), metavar="N", help="Rounds over all chunk sizes."
        ),
    ] = 5,
    settings: Annotated[
        str | None,
        typer.Option(
            "--settings",
            metavar="NAME,...",
            help="Settings of an array to try, such as read_ahead_kb,stripe_cache_size [default: all].",
        ),
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option(
            "--write-in",
            parser=options.path,
            metavar="DIR",
            help="Also measure writes to an array, in a temporary file in this folder on it; needed for"
            " group_thread_cnt and stripe_cache_size.",
        ),
    ] = None,
    kept: TuningFile,
    clear: Annotated[
        bool, typer.Option("--clear", help="Only remove test arrays of an earlier sweep from these members.")
    ] = False,
    dry_run: options.DryRunOption = False,
    yes: options.YesOption = False,
) -> None:
    """Measure which chunk size or settings are fastest.

    Of empty drives, test arrays are made, loaded by fio in turn, and removed.

    A running array keeps its data: fio only reads it, or writes to a temporary file. One setting at a time
    gets other values, and all are restored at the end: group_thread_cnt, stripe_cache_size, scheduler,
    nr_requests, read_ahead_kb.

    Example: sudo aligntool raid tune --level 5 /dev/nvme[0-3]n1 -o chunks.json

    Example: sudo aligntool raid tune /dev/md127 --write-in /srv/data -o settings.json

    Exit code: 0 measured; 3 refused, nothing was written; 4 ended early, the drives are empty again or the
    settings restored, and the measurements are saved.
    """
    if not clear and (array := _running_array(drives)):
        given = {"--level": level, "--chunks": chunks, "--layout": layout, "--bitmap": bitmap}
        _refuse_given(given, "is for empty drives, not for an array")
        names = settings.split(",") if settings else []
        chosen = SettingsOptions(workload, page, _setting_names(names), folder, repeats, runtime, span)
        return _tune_array(array, chosen, kept, dry_run=dry_run)
    _refuse_given({"--settings": settings, "--write-in": folder}, "is for a running array")
    drives = options.distinct_devices(drives)
    if clear:
        clear_members(drives, yes=yes)
        return
    if level is None:
        raise typer.BadParameter("no RAID level given: --level 0, 10, 5 or 6")
    _refuse_unsaved(kept, dry_run=dry_run)
    goal = _test_goal(level, workload, layout, bitmap, page)
    find = partial(_find_sweep, drives, goal, _sizes(chunks), repeats, runtime, span)
    sweep = run_while_progressing(find)
    _show_sweep(sweeps.sweep_lines(sweep, width=terminal_width()), kept)
    if dry_run:
        return
    kept.refuse()
    for line in sweep.unread:
        options.remark(line)
    if yes and sweep.sparse:
        text = "a member is not known to be empty: so little of it was read that its name has to be typed"
        raise Refused(text, hint="omit --yes", code="not-confirmed", subject=", ".join(sweep.members))
    _confirm(drives, sweep.members, "everything on the members, which are empty again afterwards", yes)

    def look_again() -> None:
        if find() != sweep:  # in this process, which has the drives locked
            raise Refused(
                "the drives have changed since they were read; nothing was written", hint="try again"
            )

    measuring = SweepRun(sweep)

    def save(errors: list[str]) -> list[str]:
        tuning = measuring.tuning(complete=measuring.complete)
        return save_and_report(tuning, sweep, goal, kept, errors) if tuning.samples else errors

    _run(measuring, sweep.members, partial(measuring.run, look_again=look_again), save)


def _refuse_given(given: Mapping[str, str | None], why: str) -> None:
    for option in (option for option, value in given.items() if value is not None):
        raise typer.BadParameter(f"{option} {why}")


def _refuse_unsaved(kept: TuningFile, *, dry_run: bool) -> None:
    """Raise a usage error without a file: a result that is lost would be minutes of wear for nothing."""
    if kept.output is None and not dry_run:
        raise typer.BadParameter("no file given for the result: -o chunks.json")


def _show_sweep(lines: Iterable[Line], kept: TuningFile) -> None:
    on_screen = sys.stderr if kept.piped else sys.stdout
    show(lines, on_screen, color=options.colored(on_screen))
    sys.stdout.flush()


def _test_goal(
    level: str, workload: str, layout: str | None, bitmap: str | None, page: int | None
) -> RaidGoal:
    word = uuid.uuid4().hex
    goal = RaidGoal(level, workload=workload, layout=layout, bitmap=bitmap)
    array_uuid = f"{tuned.TEST_UUID}:{word[:8]}:{word[8:16]}"
    return replace(goal, database_page=page or goal.database_page, array_uuid=array_uuid)


def _find_sweep(
    drives: list[str], goal: RaidGoal, chunks: tuple[int, ...], repeats: int, runtime: float, span: int | None
) -> Sweep:
    """Look at the drives and plan. Raises Refused with every reason."""
    members, numbers, _, _ = acting.look_at_members(drives)
    _refuse_leftovers(drives, members)
    goal = replace(goal, partitions=numbers)
    members = acting.sampled_members(members, goal)
    return plan_sweep(members, goal, chunks=chunks, repeats=repeats, runtime_s=runtime, span=span or 0)


def _refuse_leftovers(drives: list[str], members: Sequence[Judged]) -> None:
    """Raise Refused, with --clear as the hint, if an interrupted sweep has left test arrays."""
    found = [judged.disk.name for judged in members if tuned.has_test_array(judged.disk)]
    if found:
        text = f"{', '.join(found)} still contain a test array of an interrupted sweep"
        raise Refused(text, hint=clear_hint(drives))


def _confirm(drives: Sequence[str], devices: Sequence[str], lost: str, yes: bool) -> None:
    facts = options.target_lines(", ".join(devices), [plain(f"  lost: {lost}")])
    options.confirm(" ".join(drives), facts, yes=yes)


def _run(
    measuring: SweepRun | SettingsRun,
    devices: Sequence[str],
    run: Callable[[SweepProgress], None],
    save: Callable[[list[str]], list[str]],
) -> None:
    """Measure, save, report, even if the sweep ends early. Raises Stopped then."""
    errors = []
    hint = ""
    with pipes_may_break():
        try:
            with ended_by_signals(), _stop_if_closed() as progress, recorded("raid tune", devices):
                run(progress)
        except Stopped as error:
            errors = [str(error)]
            hint = error.hint
        except KeyboardInterrupt:
            if not measuring.wrote:
                raise
            errors = ["interrupted"]
        errors += ["the sweep ended early"] if errors and not measuring.complete else []
        errors = save(errors)
    if errors:
        raise Stopped("; ".join(errors), hint=hint)


@contextmanager
def _stop_if_closed() -> Iterator[Callable[[str, float, float | None], None]]:
    """Yield a function that shows progress. It raises Stopped if stderr is closed, and discards later
    output.
    """

    def report(words: str, share: float, left_s: float | None) -> None:
        try:
            progress(words, share, left_s)
        except OSError as error:
            options.discard_stderr()
            raise Stopped(f"standard error cannot be written: {error.strerror}", hint="") from error

    with ExitStack() as bar:
        progress = bar.enter_context(bench_progress())
        try:
            yield report
        finally:
            try:
                bar.close()
            except OSError:
                options.discard_stderr()


def save_and_report(
    tuning: tuned.Tuning, sweep: Sweep, goal: RaidGoal, kept: options.ResultFile, errors: list[str]
) -> list[str]:
    """Save the result, then show it, because the pipe may be closed. Return the `errors` with new ones and
    the place of the result, or nothing if there are none.
    """
    choice = tuned.choose(tuning.samples, sweep.recommended)
    text = tuned.tuning_text(tuning, _verdict(choice, sweep.recommended))
    lines = sweeps.tuning_lines(tuning, choice, sweep.recommended, width=terminal_width())
    following = sweeps.plan_command(sweep, goal, kept.file or "")
    return _save(text, lines, ("To plan an array with it:", following), kept, errors)


def _save(
    text: str, lines: Iterable[Line], following: tuple[str, str], kept: options.ResultFile, errors: list[str]
) -> list[str]:
    """Save the result, then show it, as `save_and_report` does. `following`: what can be done with the file,
    and the command for that.
    """
    where = f"the measurements are in {kept.file}" if kept.file else ""
    try:
        kept.write(text)
    except Refused as error:  # a full disk does not discard minutes of measuring
        errors = [*errors, str(error)]
        where = ""
    try:
        if not kept.piped:
            print_lines(lines)
        if where and kept.file:
            done = (("→ ", Style.DIM), (following[1], Style.TYPE)) if following[1] else EMPTY
            print_lines([plain(f"Saved in {kept.file}. {following[0]}"), done])
        else:
            sys.stdout.write(text)
        sys.stdout.flush()
    except Refused as error:
        return [*errors, str(error), where or "the result is lost"]
    return errors and [*errors, where or "the result is printed above instead"]


def _verdict(choice: tuned.Choice[int], recommended: int) -> dict[str, object]:
    return {
        "verdict": choice.verdict.value,
        "chunk": choice.value,
        "recommended": recommended,
        "rounds": choice.rounds,
        "reason": choice.reason,
        "ratios": {
            str(chunk): [each.middle, each.least, each.most] for chunk, each in choice.against.items()
        },
    }


# `aligntool raid tune ARRAY`: which settings of a running array are fastest.


@dataclass(frozen=True, slots=True)
class SettingsOptions:
    workload: str
    page: int | None
    names: tuple[str, ...]
    folder: str | None
    repeats: int
    runtime: float
    span: int | None


def _running_array(names: Sequence[str]) -> str | None:
    """Return the array if it is all that is named: the kernel's name, a node, or the name that mdadm gave.
    Raises Refused for a name that only an array has.
    """
    if len(names) != 1:
        return None
    words = "sudo aligntool raid tune"
    try:
        disks = look((), arrays=True, files=False).disks
        return find_array(disks, resolve_device(names[0]), command=words).name
    except Refused as error:
        is_of_array = re.match(r"(/dev/)?md(\d|/|_d)", names[0])
        if error.refusals[0].code == "no-array" and not is_of_array:
            return None
        raise


def _setting_names(words: Sequence[str]) -> tuple[str, ...]:
    known = {name.rpartition("/")[2]: name for name in live.TRIED}
    unknown = [word for word in words if word not in known]
    if unknown:
        raise typer.BadParameter(f"--settings: {unknown[0]!r} is none of {', '.join(known)}")
    return tuple(known[word] for word in words)


def _tune_array(array: str, chosen: SettingsOptions, kept: TuningFile, *, dry_run: bool) -> None:
    _refuse_unsaved(kept, dry_run=dry_run)
    sweep = run_while_progressing(partial(_find_settings_sweep, array, chosen))
    _show_sweep(sweeps.settings_sweep_lines(sweep, width=terminal_width()), kept)
    if dry_run:
        return
    kept.refuse()
    measuring = SettingsRun(sweep)

    def save(errors: list[str]) -> list[str]:
        tuning = measuring.tuning()
        if not tuning.samples:
            return errors
        lines = sweeps.settings_lines(tuning, width=terminal_width())
        keeping = typed("aligntool raid persist", sweep.path, "--tuned", kept.file or "")
        following = ("To keep what is faster, now and at every boot:", keeping)
        if not live.faster(tuning):
            following = ("Nothing is clearly faster than it was.", "")
        return _save(live.settings_text(tuning), lines, following, kept, errors)

    _run(measuring, [sweep.path], measuring.run, save)


def _find_settings_sweep(array: str, chosen: SettingsOptions) -> SettingsSweep:
    """Look at the array and plan. Raises Refused."""
    report, disk = acting.look_for_array(array, command="sudo aligntool raid tune")
    return plan_settings(
        report,
        disk,
        workload=chosen.workload,
        database_page=chosen.page or RaidGoal("").database_page,
        target=find_target(chosen.folder) if chosen.folder else None,
        wanted=chosen.names,
        repeats=chosen.repeats,
        runtime_s=chosen.runtime,
        span=chosen.span,
    )


# `aligntool raid tune --clear`: remove test arrays that a sweep left behind after a power cut or a kill.
#
# It reads only superblocks, and writes only to the superblocks of test arrays.


def clear_members(drives: list[str], *, yes: bool) -> None:
    """Remove test arrays. Raises Refused if a member has another array, or if there is none; Stopped if one
    is left.
    """
    members, _, _, _ = acting.look_at_members(drives)
    devices = [str(Path(name if "/" in name else f"/dev/{name}").resolve()) for name in drives]
    found = {device: examine(device) for device in devices}
    others = [device for device, values in found.items() if values and not is_test_array(values)]
    if others:
        raise Refused(
            f"{', '.join(others)}: not a test array of aligntool, but another array; nothing was written"
        )
    test_devices = [device for device in devices if found[device]]
    if not test_devices:
        raise Refused(f"there is no test array on {', '.join(devices)}; nothing was written")
    _confirm(drives, test_devices, "the test arrays", yes)
    with (
        lock_against_udev([judged.disk.path for judged in members]),
        recorded("raid tune --clear", test_devices),
    ):
        remove_test_arrays(test_devices)
    wiped = " ".join(f"--wipe {shell_word(device)}" for device in test_devices)
    sys.stdout.write(
        f"Removed the test arrays on {', '.join(test_devices)}.\n"
        "The data that their loads wrote is still there: aligntool raid create accepts these members with"
        f" {wiped}; to empty one for another sweep: {by_hand(ByHand.EMPTYING, 'blkdiscard')}.\n"
    )


def clear_hint_of(disk: str) -> str:
    """Return the command that removes a test array that a sweep left on this disk, or ""."""
    try:
        found = look((disk,)).disks
    except Refused:
        return ""
    return clear_hint([disk]) if any(map(tuned.has_test_array, found)) else ""
