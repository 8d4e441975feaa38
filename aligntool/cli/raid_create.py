"""`aligntool raid create`: an array made of drives, with everything that makes it come back after a reboot."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.raid_goal import takes_goal
from aligntool.cli.realign import EventsOption, YesOption
from aligntool.cli.stream_end import ends_stream

if TYPE_CHECKING:
    from aligntool.plan import RaidGoal


@ends_stream
@takes_goal
def create_command(
    drives: list[str],
    goal: "RaidGoal",
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and stop, as `raid plan`.")
    ] = False,
    yes: YesOption = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when the first resynchronisation is done.")
    ] = False,
    json_: EventsOption = False,
) -> None:
    """Make an array: partitions, array, file system, mount, and what makes it come back after a reboot.

    The plan is shown first, and you are asked.

    Example: sudo aligntool raid create --level 1 /dev/nvme0n1 /dev/nvme1n1

    Exit code: 0 done, 3 refused and nothing written, 4 stopped part-way with the record kept.
    """
    from aligntool.cli.arrays import carry_out_array, show_array_plan, tell_array
    from aligntool.cli.confirm import confirm
    from aligntool.cli.raid import find_array_plan
    from aligntool.cli.resync import tell_resync, wait_for_resync
    from aligntool.plan import to_json

    plan = find_array_plan(drives, goal)
    if dry_run and json_:
        sys.stdout.write(to_json(plan) + "\n")
        return
    show_array_plan(plan, sys.stderr if json_ else sys.stdout)
    if dry_run:
        return
    confirm(plan, yes)
    carry_out_array(plan, lambda: find_array_plan(drives, goal), json_=json_)
    if wait:
        wait_for_resync(plan.disk.path)
    tell_array(plan, json_=json_)
    if not (wait or json_):
        tell_resync(plan.disk.path)
