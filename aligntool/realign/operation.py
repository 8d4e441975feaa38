"""Realign one disk as requested: lock it, verify the plan, apply it. Shared by the command line and the
Python API.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from aligntool.audit.wording import command
from aligntool.change import Event, MovePlan, Plan, Said
from aligntool.errors import Refused
from aligntool.linux.applying import ChangeInProgress, recovery_commands
from aligntool.linux.change_process import apply_in_child
from aligntool.linux.child_process import OnNote
from aligntool.linux.lock import refuse_disturbed, written_at
from aligntool.mover.context import MoveContext
from aligntool.mover.locked_disk import journal_options, locked_disk, unthrottle_function
from aligntool.mover.move import realign
from aligntool.realign.found_plan import Finder, FoundPlan, find_plan
from aligntool.realign.named_ranges import save
from aligntool.realign.planned_checks import run_checks
from aligntool.realign.request import Request
from aligntool.realign.shrink_step import runs_after_shrink, shrink_content
from aligntool.realign.stale_plan import verify_plan
from aligntool.steps import ShrinkContent, WriteJournal
from aligntool.units import Extent


def locked_realign(
    plan: Plan,
    request: Request,
    *,
    rate: int | None,
    on_note: OnNote,
    find: Finder = find_plan,
    no_lease: bool = False,
) -> AbstractContextManager[ChangeInProgress]:
    """Lock the disk and check in a child process that the plan is still valid. `no_lease`: see `Lease`.
    Raises Refused.
    """
    path = plan.disk.path
    if not isinstance(plan, MovePlan):
        raise Refused(f"{path}: this plan moves nothing", hint=command("audit", path), code="plan-stale")
    journal = next((step.journal for step in plan.of(WriteJournal)), None)
    file, length = (journal.file, journal.extent.end) if journal else (None, None)

    @contextmanager
    def locked(note: OnNote) -> Iterator[ChangeInProgress]:
        opening = locked_disk(
            plan, path, on_note=note, journal_file=file, new_journal=length, rate=rate, no_lease=no_lease
        )
        with opening as context:
            since = written_at(path)
            events = _events(plan, request, verify_plan(plan, request, find), context, since)
            hint = recovery_commands(path, *journal_options(file))
            yield ChangeInProgress(events, hint, unthrottle_function(context), unanswered=context.unanswered)

    return apply_in_child(locked, plan, path, on_note)


def _events(
    plan: MovePlan, request: Request, found: FoundPlan, context: MoveContext, since: int | None
) -> Iterator[Event]:
    """Apply the whole plan: checks, shrinking, then the move. `since`: see `refuse_disturbed`. Raises Refused
    or Stopped.
    """
    whole = yield from run_checks(plan)
    refuse_disturbed(plan.disk.path, since)
    if request.goal.save_to:
        save(plan.disk.path, request.goal.overwrite, request.goal.save_to)
        yield Said(f"saved to {request.goal.save_to}, at the same offsets as on the disk")
    shrinks = plan.numbered(ShrinkContent)
    for index, step in shrinks:
        since = yield from shrink_content(plan, index, step, request, context, since)
    runs = runs_after_shrink(plan, request) if shrinks else found.runs
    runs |= {
        copy.partition: (Extent(0, copy.source.length),) for copy in plan.copies if copy.partition in whole
    }
    with context.alone():
        refuse_disturbed(plan.disk.path, since)
        yield from realign(plan, context, runs, found.rebuilt)
