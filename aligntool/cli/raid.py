"""`aligntool raid`: how an array would be made of these drives, and what those that run are worth."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.options import colored, terminal_width
from aligntool.cli.plan import keep
from aligntool.cli.raid_goal import resolved, takes_goal
from aligntool.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aligntool.plan import Plan, RaidGoal

raid_app = typer.Typer(
    name="raid",
    help="Arrays: think one out on the boundaries of its drives, make it so that it comes back, show them.\n\n"
    "Example: sudo aligntool raid create --level 1 /dev/nvme0n1 /dev/nvme1n1",
    no_args_is_help=True,
)


@raid_app.command("plan")
@takes_goal
def plan_command(
    drives: list[str],
    goal: "RaidGoal",
    *,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Keep the plan in a file.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="The plan as JSON.")] = False,
) -> None:
    """Think out an array: partitions, data offset, chunk, file system, and what makes it come back after a reboot.

    Example: sudo aligntool raid plan --recipe nvme-raid0-scratch /dev/nvme0n1 /dev/nvme1n1

    Exit code: 0 there is a plan; 3 refused, with every reason.
    """
    from aligntool.cli.arrays import show_array_plan
    from aligntool.plan import to_json, with_wanted

    plan = find_array_plan(drives, goal)
    text = with_wanted(to_json(plan), tuple(drives), goal)
    if output is not None:
        keep(output, text + "\n")
    if json_:
        sys.stdout.write(text + "\n")
    else:
        next_ = carried_out("raid create", sys.argv[3:], output)
        show_array_plan(plan, sys.stdout, type_next=next_)


def carried_out(name: str, words: "Sequence[str]", kept: str | None) -> str:
    """What is to be typed to carry out a plan that was only shown: `apply` where it is kept in a file, else the
    command `name` with the `words` that asked for the plan.
    """
    from aligntool.audit.words import shell_word

    if kept is not None:
        return f"sudo aligntool apply {shell_word(kept)}"
    return " ".join((f"sudo aligntool {name}", *(shell_word(word) for word in words if word != "--dry-run")))


def find_array_plan(drives: list[str], goal: "RaidGoal") -> "Plan":
    """Look at the drives and think. Raises Refused with every reason."""
    from aligntool.cli.beforehand import refuse_beforehand
    from aligntool.cli.raid_members import look_at_members, sampled_members
    from aligntool.raid import plan_raid
    from aligntool.raid.planning import steps_of_goal

    members, numbers, report, known = look_at_members(drives)
    goal = replace(goal, partitions=numbers)
    try:
        plan = plan_raid(sampled_members(members, goal), report.inventory, goal, known=known)
    except Refused as refused:
        refuse_beforehand(tuple(steps_of_goal(goal)), goal.system, refused)
        raise
    refuse_beforehand(plan.steps, goal.system)
    return plan


@raid_app.command("show")
def show_command(
    arrays: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARRAY...]", help="Arrays: md0, /dev/md/data, data; all unless said."),
    ] = None,
    *,
    sysroot: Annotated[
        str | None,
        typer.Option("--sysroot", metavar="DIR", help="A captured machine, from `aligntool snapshot`."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="The arrays as JSON.")] = False,
) -> None:
    """Show arrays: members, links and what they let through, state, and where the data lie up to the top of the stack.

    Example: aligntool raid show

    Exit code: 0 shown; 3 there is no such array.
    """

    from aligntool.cli.raid_members import look_at_arrays
    from aligntool.render.lines import show
    from aligntool.render.raid import array_lines, arrays_json

    views = look_at_arrays([resolved(name) if sysroot is None else name for name in arrays or ()], sysroot)
    if json_:
        sys.stdout.write(arrays_json(views))
    else:
        show(array_lines(views, width=terminal_width()), sys.stdout, color=colored())
