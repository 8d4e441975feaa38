"""`aligntool raid ensure`: an array that a file describes exists, is left as it is, or is made of blank
drives.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from aligntool.audit.judge import audit
from aligntool.change import ArrayPlan, EnsureGoal, Plan, RaidGoal
from aligntool.cli import arrays as acting
from aligntool.cli import options
from aligntool.cli.raid import (
    CreateArray,
    WaitOption,
    apply_command,
    existing_plan,
    find_stale_lines,
    first_bytes,
    in_effect_in,
    system_of,
    typed_arguments,
    with_new_uuids,
)
from aligntool.cli.run_change import ends_stream, run_change
from aligntool.commands import typed
from aligntool.errors import Refused
from aligntool.inventory import Disk, Inventory
from aligntool.linux.files import read_text
from aligntool.linux.look import look
from aligntool.linux.sysfs import Tree
from aligntool.linux.system import find_distribution, read_system
from aligntool.raid import one_drive
from aligntool.raid.commands import array_device
from aligntool.raid.planning import needs_of_plan
from aligntool.raid.record import set_aside
from aligntool.raid.selection import Found, find_drives, goal_for, is_gone, is_plain
from aligntool.raid.steps_system import wait_for_mounts
from aligntool.recipes.goals import SETTINGS, parse_recipe, text_of_settings
from aligntool.steps import Subject

FOLDER = "/etc/aligntool/arrays.d"
_BY_ID = Path("/dev/disk/by-id")


@ends_stream
def ensure_command(
    file: Annotated[
        str,
        typer.Argument(
            parser=options.path,
            metavar="NAME",
            help="Name of a file in /etc/aligntool/arrays.d, without .toml; or the path of one.",
        ),
    ],
    *,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of such a file, which is not read then: level=raid0, drives.select=all-unused.",
        ),
    ] = None,
    dry_run: options.DryRunOption = False,
    verbose: options.VerbosePlanOption = False,
    yes: options.YesOption = False,
    wait: WaitOption = False,
    json_: options.EventsOption = False,
) -> None:
    """Let the array of a file exist: leave it as it is, or make it of blank drives.

    The file describes the array and how its drives are found. An array that is as described is left as it is;
    an array of which every drive came back blank is made anew; nothing else is made or overwritten.

    Example: sudo aligntool raid ensure data --yes

    Exit code: 0 done or nothing to do, 3 refused and nothing written, 4 stopped before the end, with the
    record kept.
    """
    goal = _read_goal(file, settings or ())
    device = array_device(goal.array)
    record = acting.find_record(device) or acting.find_record(one_drive.device_of(goal.array))
    if record is not None and record.plan.purpose == "raid" and yes and not dry_run:
        if not is_gone(record.plan, goal, _look_at_drives(), _names_by_id()):
            return acting.recover_array(record, json_=json_, back=False)
        options.remark(f"nothing is left of an interrupted making: its record is {set_aside(record)} now")
        record = None
    acting.refuse_unfinished(record)
    try:
        run_change(_find_operation(goal, wait=wait), yes=yes, json_=json_, dry_run=dry_run, verbose=verbose)
    except Refused as refused:
        refused.change_hints(in_the_file)
        raise
    if wait and not dry_run and os.path.lexists(device):
        acting.wait_for_resync(device)


def in_the_file(hint: str) -> str:
    """Return a hint with the keys of the file in place of --wipe and --mount, options of `raid create`."""
    lines = (_MAY_BE_LOST if "--wipe" in line else line for line in hint.split("\n"))
    keyed = (re.sub("^--mount (/.*)", r'mount_at = "\1", in the file', line) for line in lines)
    return "\n".join(dict.fromkeys(keyed))


_MAY_BE_LOST = (
    'if nothing on a drive is needed: wipe = "foreign" and its serial number, in the file (docs/recipes.md)'
)


def _read_goal(name: str, settings: Sequence[str]) -> EnsureGoal:
    """Return the goal of a file, or of settings instead of one. Raises Refused if it is of another kind, or
    not valid.
    """
    is_path = "/" in name or name.endswith(".toml")
    if settings and is_path:
        raise typer.BadParameter("--set replaces the file: NAME is that of the array")
    file = name if is_path else f"{FOLDER}/{name}.toml"
    if settings:
        goal = parse_recipe(SETTINGS, text_of_settings(name, settings)).goal
    else:
        hint = typed("ls", FOLDER if not is_path else os.path.dirname(name) or ".")  # noqa: PTH120
        goal = parse_recipe(file, read_text(file, hint=hint)).goal
    if not isinstance(goal, EnsureGoal):
        raise Refused(f'{file} does not have kind = "ensure"', hint=options.command("recipes check", file))
    return replace(goal, array=replace(with_new_uuids(goal.array), system=system_of(None)))


def _find_operation(goal: EnsureGoal, *, wait: bool) -> acting.ArrayOperation:
    """Look at every drive, and return what is to be done. Raises Refused."""
    inventory, found = _look(goal)
    is_there = found.running is not None or found.is_plain
    if is_there and wait_for_mounts([goal.array.place, *(bind.path for bind in goal.array.binds)]):
        inventory, found = _look(goal)
    if found.running is not None:
        goal = replace(goal, drives=replace(goal.drives, one=_one_of_array(goal)))
    array = goal_for(goal, found.drives)
    paths = tuple(disk.path for disk in found.drives)
    if found.running is not None:
        if found.more:
            listed = ", ".join(disk.name for disk in found.more)
            options.remark(f"{listed}: selected, but not in the array, which stays as it is")
        return Ensured(_plan_running(found.running, found.drives, inventory, replace(goal, array=array)))
    if not found.drives:
        return Ensured(_plan_of_none(goal, found.others))
    if found.is_plain:
        return Ensured(_plan_kept(found.drives[0], array, inventory))
    if is_plain(goal, found.drives):
        return EnsuredOnOne(paths[0], array)
    return EnsuredAnew(paths, array, with_goal=False, wait=wait)


def _look(goal: EnsureGoal) -> tuple[Inventory, Found]:
    """Look at every drive, and find what there is for the array. Raises Refused."""
    inventory = _look_at_drives()
    return inventory, find_drives(goal, inventory, _names_by_id())


def _look_at_drives() -> Inventory:
    return replace(look((), files=False), system=read_system(Tree(""), images=False))


def _one_of_array(goal: EnsureGoal) -> str:
    """Return what a single drive becomes, for the comparison with an array that runs, maybe on one drive of
    several.
    """
    return "error" if goal.drives.one == "filesystem" else goal.drives.one


def _plan_kept(disk: Disk, goal: RaidGoal, inventory: Inventory) -> Plan:
    """Return a plan without steps for the plain file system of a drive. Raises Refused."""
    judged = next(one for one in audit(inventory, {}).judged if one.disk.path == disk.path)
    part = one_drive.find_file_system(disk, goal)
    head = first_bytes(f"/dev/{part.node}") if part and part.node else b""
    return one_drive.plan_existing_one(judged, goal, inventory, head, in_effect_in())


def _plan_running(running: Disk, drives: Sequence[Disk], inventory: Inventory, goal: EnsureGoal) -> Plan:
    """Return a plan without steps. The images in /boot are not unpacked, which takes seconds at every boot:
    no member of such an array has to be there before the file systems of the machine.
    """
    judged = {one.disk.path: one for one in audit(inventory, {}).judged}
    return existing_plan(running, [judged[disk.path] for disk in drives], goal.array, inventory)


def _plan_of_none(goal: EnsureGoal, others: str) -> ArrayPlan:
    subject = Subject(array_device(goal.array), 0, 512, None, None, None, None, None, "")
    note = f"drives that are not selected: {others}" if others else "no drive was seen"
    return ArrayPlan("raid", subject, "no drive is selected, which the file allows", (), (), notes=(note,))


def _names_by_id() -> dict[str, list[str]]:
    """Return the names of each drive in /dev/disk/by-id, by its path."""
    found: dict[str, list[str]] = {}
    with suppress(OSError):
        for link in sorted(_BY_ID.iterdir()):
            found.setdefault(os.path.realpath(link), []).append(link.name)
    return found


@dataclass(frozen=True, slots=True)
class Ensured(acting.ArrayOperation):
    """There is nothing to do."""

    plan: Plan

    @property
    def named(self) -> str:
        return self.plan.disk.path

    def make_plan(self) -> Plan:
        return self.plan

    def next_command(self) -> str:
        return apply_command("raid ensure", typed_arguments())

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        return


@dataclass(frozen=True, slots=True)
class EnsuredOnOne(acting.ArrayOperation):
    """A single drive gets a partition with a file system."""

    drive: str
    goal: RaidGoal

    @property
    def named(self) -> str:
        return self.drive

    def make_plan(self) -> Plan:
        """Look at the drive and plan. Raises Refused with every reason."""
        drives, _, _, _ = acting.look_at_members([self.drive])
        here = self.goal.system == find_distribution()
        stale = find_stale_lines(self.goal) if here else ()
        (drive,) = acting.sampled_members(drives, self.goal)
        plan = one_drive.plan_one_drive(drive, self.goal, stale)
        acting.refuse_unready(needs_of_plan(plan, here=here), plan.steps)
        return plan

    def next_command(self) -> str:
        return apply_command("raid ensure", typed_arguments())

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        acting.report_array(plan, json_=json_)


@dataclass(frozen=True, slots=True)
class EnsuredAnew(CreateArray):
    """The array is made of the drives that were found."""

    def next_command(self) -> str:
        return apply_command("raid ensure", typed_arguments())
