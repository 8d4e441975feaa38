"""`aligntool raid reformat`: change the LBA format of the NVMe members of a running array, one at a time."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from aligntool.audit.arrays import members_of
from aligntool.change import Plan, plan_with_request
from aligntool.cli import arrays as acting
from aligntool.cli import options
from aligntool.cli.raid import apply_command, typed_arguments
from aligntool.cli.run_change import ChangeInProgress, ends_stream, run_change, show_only
from aligntool.commands import typed
from aligntool.errors import Refused, Stopped
from aligntool.inventory import Disk
from aligntool.linux.commands import with_health
from aligntool.linux.lock import open_exclusively
from aligntool.raid.planning import needs_of_plan
from aligntool.raid.reformat import ReformatGoal, plan_reformat
from aligntool.raid.steps_reformat import read_array_details


@ends_stream
def reformat(
    array: Annotated[
        str,
        typer.Argument(
            parser=options.path, metavar="ARRAY", help="A running array: md127, /dev/md/data, data."
        ),
    ],
    *,
    lba_size: Annotated[
        int,
        typer.Option(
            "--lba-size",
            parser=options.sector,
            metavar="SIZE",
            help="Logical block size in bytes, such as 4096.",
        ),
    ],
    dry_run: options.DryRunOption = False,
    verbose: options.VerbosePlanOption = False,
    yes: options.YesOption = False,
    kept: options.PlanFile,
    json_: options.EventsOption = False,
) -> None:
    """Change the LBA format of the NVMe members of an array, one at a time.

    Each member is removed, formatted, added again and resynchronised from the others. The content of the
    array stays; content that cannot work with such blocks is refused. The plan is shown and confirmed first.

    Example: sudo aligntool raid reformat /dev/md/data --lba-size 4096

    Exit code: 0 done or nothing to do, 3 refused and nothing written, 4 stopped before the end, with the
    record kept.
    """
    options.refuse_unapplied(yes=yes, shown={"--output": kept.output})
    operation = Reformat(array, ReformatGoal(lba_size))
    if dry_run or kept.output is not None:
        return show_only(operation, json_=json_, kept=kept, verbose=verbose)
    run_change(operation, yes=yes, json_=json_, verbose=verbose)


@dataclass(frozen=True, slots=True)
class Reformat(acting.ArrayOperation):
    """Change the LBA format of the members of an array."""

    array: str
    goal: ReformatGoal

    @property
    def named(self) -> str:
        return self.array

    def make_plan(self) -> Plan:
        report, disk = acting.look_for_array(
            options.resolve_device(self.array), command="sudo aligntool raid reformat"
        )
        acting.refuse_unfinished(acting.find_record(disk.path))  # its members are not as a plan needs them
        disk = replace(disk, taken=acting.users_beside_mounts(disk))
        known = members_of(report.judged)
        names = disk.array.members if disk.array else ()
        members = {
            name: replace(member, judged=replace(member.judged, disk=_with_health(member.disk)))
            for name in names
            if (member := known.get(name))
        }
        details = read_array_details(disk, list(members.values()))
        plan = plan_reformat(disk, members, [member.disk for member in report.judged], self.goal, details)
        acting.refuse_unready(needs_of_plan(plan, here=True))
        return plan

    def document(self, plan: Plan) -> str:
        return plan_with_request(plan, "reformat", self.goal) + "\n"

    def next_command(self) -> str:
        return apply_command("raid reformat", typed_arguments())

    def locked(self, plan: Plan) -> AbstractContextManager[ChangeInProgress]:
        return acting.locked_array(plan, self.make_plan, check=lambda: self._refuse_opened(plan))

    def _refuse_opened(self, plan: Plan) -> None:
        """Raise Refused if a program that neither sysfs nor a mount shows has the array open exclusively."""
        if plan.disk.sector_size < self.goal.block_size:
            with open_exclusively([plan.disk.path]):
                return

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        size = self.goal.block_size
        again = typed("aligntool raid reformat", plan.disk.path, "--lba-size", size, "--dry-run")
        try:
            left = self.make_plan().steps
        except Refused as error:
            raise Stopped(
                f"every step is done, but the result was not verified: {error}", hint=again
            ) from error
        if left:
            raise Stopped(
                f"every step is done, but members of {plan.disk.path} are not as planned", hint=again
            )
        acting.report_array(plan, json_=json_)


def _with_health(disk: Disk) -> Disk:
    return replace(with_health(disk), taken=acting.users_beside_mounts(disk))
