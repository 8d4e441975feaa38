"""`aligntool raid persist`: an array that somebody made comes back after every reboot from now on."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.options import place
from aligntool.cli.plan import keep
from aligntool.cli.raid_goal import resolved
from aligntool.cli.realign import EventsOption, YesOption
from aligntool.cli.stream_end import ends_stream, write_nothing_to_do
from aligntool.errors import Refused, Stopped

if TYPE_CHECKING:
    from aligntool.plan import Plan
    from aligntool.raid.persisting import PersistGoal


@ends_stream
def persist_command(
    array: Annotated[str, typer.Argument(metavar="ARRAY", help="An array that runs: md127, /dev/md/data, data.")],
    *,
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            metavar="NAME",
            help="debian, debian-dracut, fedora, opensuse or arch; this machine's unless said.",
        ),
    ] = None,
    mount: Annotated[
        str | None,
        typer.Option("--mount", parser=place, metavar="DIR", help="Mount it there, now and at every start."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    yes: YesOption = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Keep the plan in a file and stop.")
    ] = None,
    json_: EventsOption = False,
    sysroot: Annotated[
        str | None,
        typer.Option("--sysroot", metavar="DIR", help="Show the plan for a captured machine and stop."),
    ] = None,
) -> None:  # fmt: skip
    """Make an array that is there come back: its line in mdadm.conf, every initramfs, fstab and crypttab by UUID.

    Nothing is written to the array, which may be mounted. The plan is shown first, and you are asked.

    Example: sudo aligntool raid persist /dev/md127 --mount /srv/data

    Exit code: 0 done or nothing to do, 3 refused and nothing written, 4 stopped part-way with the record kept.
    """
    from aligntool.cli.raid import carried_out
    from aligntool.raid.persisting import PersistGoal

    goal = PersistGoal(system, mount)
    plan = find_persist_plan(array, goal, sysroot)
    if output is not None:
        keep(output, persist_text(plan, goal))
    stop = dry_run or output is not None or sysroot is not None
    if stop and json_:
        sys.stdout.write(persist_text(plan, goal))
        return
    # The arrays of a captured machine are not here.
    next_ = carried_out("raid persist", sys.argv[3:], output) if stop and sysroot is None else ""
    _show(plan, next_, to_stderr=json_)
    if plan.steps and not stop:
        carry_out_persist(plan, goal, yes=yes, json_=json_)
    elif json_:
        write_nothing_to_do(plan)


def find_persist_plan(array: str, goal: "PersistGoal", sysroot: str | None = None) -> "Plan":
    """Look at the array and at the files of the system, and think. Raises Refused with every reason."""
    from aligntool.probe.look import look
    from aligntool.raid.naming import find_array
    from aligntool.raid.persisting import plan_persist

    inventory = look((), sysroot=sysroot)
    named = resolved(array) if sysroot is None else array
    disk = find_array(inventory.disks, named, command="sudo aligntool raid persist")
    return plan_persist(disk, inventory, goal)


def carry_out_persist(plan: "Plan", goal: "PersistGoal", *, yes: bool, json_: bool) -> None:
    """Ask, do it, and look whether nothing is left to do. Raises Refused, and Stopped once something is written."""
    from aligntool.cli.arrays import carry_out_array, tell_array
    from aligntool.cli.confirm import confirm

    confirm(plan, yes)
    carry_out_array(plan, lambda: find_persist_plan(plan.disk.path, goal), json_=json_)
    left = find_persist_plan(plan.disk.path, goal)
    if left.steps:
        raise Stopped(
            f"all is done, and yet {plan.disk.path} would not come back as it should: the initramfs or a file does "
            "not hold what was written",
            hint=f"aligntool raid persist {plan.disk.path} --dry-run",
        )
    tell_array(plan, json_=json_)


def apply_persist(text: str, *, yes: bool, json_: bool) -> None:
    """A plan that was kept, thought out again from the same wishes. Raises Refused where it is another one now."""
    from aligntool.cli.arrays import refuse_changed

    plan, goal = read_persist_text(text)
    refuse_changed(plan, find_persist_plan(plan.disk.path, goal))
    _show(plan, "", to_stderr=json_)
    if plan.steps:
        carry_out_persist(plan, goal, yes=yes, json_=json_)
    elif json_:
        write_nothing_to_do(plan)


def persist_text(plan: "Plan", goal: "PersistGoal") -> str:
    """Return the plan's document with what was asked for in it."""
    from aligntool.plan import to_json
    from aligntool.strict_json import as_object

    return json.dumps(json.loads(to_json(plan)) | {"persist": as_object(goal)}, indent=2) + "\n"


def read_persist_text(text: str) -> tuple["Plan", "PersistGoal"]:
    """Return the plan and what was asked for. Raises Refused."""
    from aligntool.cli.asked import command
    from aligntool.plan import from_json
    from aligntool.raid.persisting import PersistGoal
    from aligntool.strict_json import by_field

    plan = from_json(text)
    try:
        wishes = json.loads(text)["persist"]
        goal = PersistGoal(**by_field(PersistGoal, wishes))
        if not all(each is None or isinstance(each, str) for each in wishes.values()):
            raise ValueError("a wish that is no text")
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise Refused(f"the plan does not say what was asked for: {error}",
                      hint=command("raid persist", plan.disk.path)) from error  # fmt: skip
    return plan, goal


def _show(plan: "Plan", type_next: str, *, to_stderr: bool) -> None:
    from aligntool.cli.arrays import show_array_plan

    stream = sys.stderr if to_stderr else sys.stdout
    show_array_plan(plan, stream, type_next=type_next)
    if not plan.steps:
        print("Nothing is to be done.", file=stream)
