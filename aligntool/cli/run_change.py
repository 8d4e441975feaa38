"""Change a machine: show a plan, confirm it, lock what it needs, check that it is still valid, apply and
verify it.

Every command that applies a plan (realign, layout, raid create, persist, reformat, apply) is an `Operation`
that goes through `run_change`. resume and rollback continue a plan that was confirmed (cli/recover.py).
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from types import FrameType
from typing import ParamSpec, Protocol, TextIO

from aligntool.change import ChangeState, Event, Plan, Progress, StepBegun, to_json
from aligntool.cli.options import (
    PlanFile,
    colored,
    confirm,
    print_lines,
    remark,
    say,
    suggest,
    target_lines,
    terminal_width,
)
from aligntool.cli.pager import page_lines
from aligntool.commands import Command, is_node
from aligntool.errors import Refusal, Refused, Stopped, refuse
from aligntool.layout.layout import require_libparted
from aligntool.linux.applying import ChangeInProgress as ChangeInProgress
from aligntool.linux.applying import apply_events
from aligntool.linux.applying import recovery_commands as recovery_commands
from aligntool.linux.change_process import Locked, apply_in_child
from aligntool.linux.deadline import run_while_progressing
from aligntool.linux.signals import STOPPING
from aligntool.linux.systemd_journal import record
from aligntool.linux.targets import writable_copy
from aligntool.realign.suspended import suspension_refusals
from aligntool.render.lines import EMPTY, Line, can_redraw, paragraph, show, text_of
from aligntool.render.plan import attention_lines, summary_lines
from aligntool.render.progress import (
    Left,
    OnEvent,
    Pace,
    about_ways,
    end_json,
    plan_event_json,
    progress_bar,
    progress_json,
    progress_lines,
)
from aligntool.steps import DriveStep, FileStep
from aligntool.units import time_words


class Operation(Protocol):
    """One kind of change, from the request to a verified result."""

    @property
    def named(self) -> str:
        """Return what is written to, as the user named it."""

    def make_plan(self) -> Plan:
        """Look and plan. Raises Refused with every reason."""

    def document(self, plan: Plan) -> str:
        """Return the plan as JSON, with the request."""
        return to_json(plan) + "\n"

    def lines(self, plan: Plan, type_next: str, *, verbose: bool = False) -> Iterable[Line]:
        """Return the plan as text. `type_next`: the command that applies it, if it is only shown. `verbose`:
        with every byte range and command.
        """

    def shown(self, plan: Plan) -> Plan:
        """Return the plan with the duration under the options of this run, which the journal does not
        record.
        """
        return plan

    def next_command(self) -> str:
        """Return the command that makes and applies this plan."""

    def refuse_changed(self, plan: Plan) -> None:
        """Raise Refused if a plan that was saved in a file is no longer valid."""
        return

    def locked(self, plan: Plan) -> AbstractContextManager[ChangeInProgress]:
        """Lock what is written to, and check that the plan is still valid. Raises Refused while nothing is
        written.
        """

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        """Look at the result and report it. Raises Stopped if it cannot be read, or is not as planned."""


NOT_SAVED = PlanFile()


def run_change(
    operation: Operation,
    *,
    yes: bool,
    json_: bool,
    dry_run: bool = False,
    not_suspended: bool = False,
    kept: Plan | None = None,
    verbose: bool = False,
) -> None:
    """Apply a plan that is made now, or the saved plan `kept`. `not_suspended`: the user states that no
    system is suspended where that cannot be seen; without --yes, the question states it. `verbose`: show
    every byte range and command. Raises Refused and Stopped.
    """
    if dry_run:
        return show_only(operation, json_=json_, verbose=verbose)
    if kept is not None:
        require_libparted(kept)
        run_while_progressing(lambda: operation.refuse_changed(kept))
    plan = kept or _possible_plan(operation)
    shown = operation.shown(plan)
    show_plan(operation, shown, sys.stderr if json_ else sys.stdout, verbose=verbose)
    if not plan.steps:
        if json_:
            sys.stdout.write(plan_event_json(plan))
            write_end("new", changed=False, sentences=(plan.goal, "nothing to do"))
        return
    if yes and not not_suspended:
        refuse(suspension_refusals(plan))
    confirm(operation.named, question_lines(shown, width=terminal_width()), yes=yes)
    with timed():
        apply_plan(operation, plan, json_=json_)


def _possible_plan(operation: Operation) -> Plan:
    """Return the plan. Raises Refused also for what applying it would lack, so that a plan that is only
    shown, as in Ansible's check mode, reports it as well.
    """
    plan = run_while_progressing(operation.make_plan)
    require_libparted(plan)
    return plan


def apply_plan(operation: Operation, plan: Plan, *, json_: bool) -> None:
    """Lock, check the plan again, apply, verify. Raises Refused before the first write, Stopped after it."""
    with operation.locked(plan) as applying:
        behind = apply_and_report(plan, applying, json_=json_)
    operation.verify(plan, json_=json_, kernel_behind=behind)


@contextmanager
def timed() -> Iterator[None]:
    """Report how long a change took, at its end."""
    began_s = time.monotonic()
    yield
    remark(f"Done in {time_words(round(time.monotonic() - began_s))}")


def show_only(
    operation: Operation,
    *,
    json_: bool,
    kept: PlanFile = NOT_SAVED,
    inputs: Iterable[str | None] = (),
    verbose: bool = False,
    where: str = "",
    not_applied: Callable[[Plan], str] = lambda plan: "",
) -> None:
    """Show a plan without applying it, and save it if requested. `inputs`: the files that it is made from,
    besides the disk. `verbose`: show every byte range and command. `where`: on which machine, if it is not
    for this one. `not_applied`: why the saved plan is not for `aligntool apply`, or "".
    """
    plan = _possible_plan(operation)
    kept.refuse("nothing was written", (plan.disk.path, *inputs))
    kept.write(operation.document(plan))
    never = not_applied(plan)
    applied = kept.file if not never else None
    if applied:
        remark(f"the plan is saved in {applied}")
        where = where and f"{where}, with a copy of {applied}"
    begin = where and f"{where}: "
    apply = begin + str(Command("aligntool", ("apply", applied or ""), is_node(plan.disk.path)))
    if json_ or kept.piped:
        sys.stdout.write(operation.document(plan))
        if applied:
            suggest(apply)
        return
    # Root may be needed for the disk, not for the file.
    copy = writable_copy(plan.disk.path)
    type_next = begin + copy if copy else apply if applied else begin + operation.next_command()
    lines = list(operation.lines(operation.shown(plan), type_next, verbose=verbose))
    if kept.file and never:  # before the last line, which is the next command
        lines[-1:-1] = (*paragraph(f"{kept.file} is written; {never}", terminal_width()), EMPTY)
    page_lines(lines)


def show_plan(operation: Operation, plan: Plan, stream: TextIO, *, verbose: bool = False) -> None:
    """Write the plan as text."""
    show(operation.lines(plan, "", verbose=verbose), stream, color=colored(stream))
    stream.flush()


def question_lines(plan: Plan, *, width: int) -> Iterator[Line]:
    """Yield the facts of the question about a plan: the plan itself may have scrolled off the screen."""
    return target_lines(_written_to(plan), summary_lines(plan, width=width))


def _written_to(plan: Plan) -> str:
    """Return what is written to: the disk, or the drives of an array and files of the system."""
    drives = dict.fromkeys(step.disk.path for step in plan.steps if isinstance(step, DriveStep))
    root = plan.installed.root if plan.installed else ""
    files = dict.fromkeys(f"{root}{step.path}" for step in plan.steps if isinstance(step, FileStep))
    return ", ".join((*drives, *files)) or plan.disk.path


def end_change(
    plan: Plan,
    look: Callable[[], Iterable[Line]],
    *,
    again: str,
    json_: bool,
    back: bool = False,
    hint: str = "",
    repeats: bool = True,
) -> None:
    """Look at the result and report it, and what has to be done afterwards. `back`: the plan was undone.
    `repeats`: also if the plan, which was shown before, has it.

    Raises Stopped if it cannot be looked at. `again`: the command that looks at it; `hint`: the next command.
    """
    try:
        lines = list(look())
    except (Refused, KeyboardInterrupt) as error:
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        raise Stopped(f"finished, but the result was not verified: {why}", hint=again) from error
    if json_:
        sentences = tuple(text.rstrip("\n") for text in text_of(lines) if text.strip())
        return write_end("old" if back else "new", changed=True, sentences=sentences, hint=hint)
    is_due = plan.attention and repeats and not back
    attention = attention_lines(plan, width=terminal_width()) if is_due else ()
    with _after_change(again):
        print_lines([*lines, *([EMPTY] if attention else []), *attention])
        sys.stdout.flush()


@contextmanager
def _after_change(hint: str) -> Iterator[None]:
    """Raise Stopped if the result cannot be printed: a refusal would state that nothing was written."""
    try:
        yield
    except Refused as error:
        raise Stopped(f"finished, but the result was not reported: {error}", hint=hint) from error


# Follow the events of a change, and interrupt it. From the first write on, whatever ends a change reports the
# state of the disk or array, and the next command.


def apply_and_report(plan: Plan, applying: ChangeInProgress, *, json_: bool, in_flight: bool = False) -> bool:
    """Apply by consuming the events, and report them: see `apply_events`."""
    seen = _Seen(plan, back=applying.way is ChangeState.UNDOING)
    try:
        reporting = _reporting(seen, applying.on_stop, json_=json_)
        return apply_events(plan, applying, reporting, record, in_flight=in_flight)
    except Stopped as error:
        if seen.begun:
            error.about = about_ways(error.hint.split("\n"), plan, seen.left())
        raise
    except KeyboardInterrupt as error:  # of which Typer keeps only the exit code
        say(str(error) or "interrupted")
        raise


class _Seen:
    """How far a change got, by its events. `back`: it undoes the plan."""

    def __init__(self, plan: Plan, *, back: bool) -> None:
        self.plan = plan
        self.back = back
        self._step = 0
        self.begun = False
        self._pace = Pace(time.monotonic)

    def note(self, event: Event) -> None:
        if isinstance(event, StepBegun):
            self._step = event.index
            self.begun = True
        if isinstance(event, Progress):
            self._pace.note(event)

    def left(self) -> Left:
        last = self._pace.event
        if last is None:
            return Left(self._step, 0, 0)
        moved = last.total - last.done if self.back else last.done
        return Left(self._step, moved, last.total, self._pace.rate)


@contextmanager
def _reporting(seen: _Seen, on_stop: Callable[[], None], *, json_: bool) -> Iterator[OnEvent]:
    with _stopping(on_stop), _reporter(seen.plan, json_=json_, back=seen.back) as report:

        def on_event(event: Event) -> None:
            seen.note(event)
            report(event)

        yield on_event


def _reporter(plan: Plan, *, json_: bool, back: bool) -> AbstractContextManager[OnEvent]:
    """Return the reporter: JSON goes to standard output, a bar or lines to standard error."""
    if json_:
        return progress_json(plan, sys.stdout)
    if can_redraw(sys.stderr, os.environ):
        return progress_bar(plan, sys.stderr, time.monotonic, back=back)
    return progress_lines(plan, sys.stderr, time.monotonic, back=back)


@contextmanager
def _stopping(on_stop: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C, a closed terminal and a shutdown interrupt a move at any point, as a power cut might.

    Only once: the cleanup is not interrupted again. Signals that the caller ignores (nohup) stay ignored.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for each in STOPPING:
            signal.signal(each, signal.SIG_IGN)
        on_stop()
        raise KeyboardInterrupt

    handlers = {
        each: signal.signal(each, stop) for each in STOPPING if signal.getsignal(each) != signal.SIG_IGN
    }
    try:
        with pipes_may_break():
            yield
    finally:
        for each, handler in handlers.items():
            # else it was interrupted: signals stay ignored, to keep the exit code
            if signal.getsignal(each) == stop:
                signal.signal(each, handler)


@contextmanager
def pipes_may_break() -> Iterator[None]:
    """Make a write to a closed pipe an error like any other, instead of the end of the process."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


@contextmanager
def lock_in_child(locked: Locked, plan: Plan, path: str) -> Iterator[ChangeInProgress]:
    """Lock what `locked` locks, in a child process (see `apply_in_child`) whose notes go to standard
    error.
    """
    with pipes_may_break(), apply_in_child(locked, plan, path, say) as applying:
        yield applying


# The last line of a stream of events, if nothing was changed: a refusal, an interruption, nothing to do.

_Words = ParamSpec("_Words")


def ends_stream(run: Callable[_Words, None]) -> Callable[_Words, None]:
    """Return a command whose JSON on standard output ends with an `end` event even if it refuses or is
    interrupted before the first write; where it would print a plan, instead of the plan.
    """

    @wraps(run)
    def ended(*args: _Words.args, **kwargs: _Words.kwargs) -> None:
        kept = kwargs.get("kept")
        is_piped = isinstance(kept, PlanFile) and kept.piped
        if not kwargs.get("json_") and not is_piped:
            return run(*args, **kwargs)
        try:
            return run(*args, **kwargs)
        except Refused as error:
            sentences = tuple(str(error).split("\n"))
            write_end("refused", changed=False, sentences=sentences, hint=error.hint, refusals=error.refusals)
            raise
        except KeyboardInterrupt as error:
            write_end("interrupted", changed=False, sentences=(str(error) or "nothing was written",))
            raise

    return ended


def write_end(
    state: str,
    *,
    changed: bool,
    sentences: tuple[str, ...] = (),
    hint: str = "",
    refusals: tuple[Refusal, ...] = (),
) -> None:
    """Write the `end` event to standard output."""
    with _after_change(hint) if changed else nullcontext():
        sys.stdout.write(
            end_json(state=state, changed=changed, sentences=sentences, hint=hint, refusals=refusals)
        )
        sys.stdout.flush()
