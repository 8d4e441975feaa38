"""Apply a plan by consuming its events. Every error states the state of the disk or array and the next
command.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from aligntool.audit.wording import command
from aligntool.change import (
    ArrayPlan,
    ChangeState,
    Event,
    KernelBehind,
    Plan,
    Progress,
    Said,
    StepBegun,
    StepDone,
    TablePlan,
    Waiting,
    planned_by,
)
from aligntool.contents.catalogue import kind_named
from aligntool.errors import CONTINUE, Killed, NothingInFlight, Refused, Stopped
from aligntool.steps import CheckArray, CheckContent, CopyDisk, FormatDrive, ShrinkContent, WriteJournal
from aligntool.units import format_about


@dataclass(frozen=True, slots=True)
class ChangeInProgress:
    """A change in progress: consuming its events applies it."""

    events: Iterator[Event]
    hint: str  # the commands to continue if it stops part-way, one per line
    on_stop: Callable[[], None] = lambda: None  # called as soon as the user wants it to stop
    way: ChangeState = ChangeState.BEGUN  # or RESUMED, UNDOING
    disk: str = ""  # the present path of the disk, if it differs from the plan's
    unanswered: Callable[[], Waiting | None] | None = None  # see MoveContext; None: requests are not timed


def recovery_commands(disk: str, *words: str) -> str:
    """Return the commands to type if a change stopped part-way, one per line."""
    return "\n".join(command(name, disk, *words) for name in ("resume", "rollback"))


_LOGGED = {"raid": "raid create", "persist": "raid persist", "reformat": "raid reformat"}

Reporting = AbstractContextManager[Callable[[Event], object]]
Record = Callable[[str, Sequence[str], ChangeState, str], None]
"""Writes an entry to the system's log: the operation, its disks, the moment, why it stopped."""


def apply_events(
    plan: Plan, applying: ChangeInProgress, reporting: Reporting, record: Record, *, in_flight: bool = False
) -> bool:
    """Apply the plan by consuming the events, report each, and log the first write and the end. Return
    whether the running kernel does not show the result yet.

    `in_flight`: something was written before the first step. Raises Refused or KeyboardInterrupt if nothing
    was written, and Stopped for any other end before completion.
    """
    log = _Log(plan, applying, record)
    if in_flight:
        log.begin()
    try:
        behind = _apply(plan, applying, reporting, log, in_flight=in_flight)
    except BaseException as error:
        log.end(ChangeState.STOPPED, str(error) or type(error).__name__)
        raise
    log.end(ChangeState.UNDONE if applying.way is ChangeState.UNDOING else ChangeState.DONE)
    return behind


class _Log:
    """The log entries of one change. Nothing is logged before something is written."""

    def __init__(self, plan: Plan, applying: ChangeInProgress, record: Record) -> None:
        drives = plan.drives if isinstance(plan, ArrayPlan) else ()
        disks = tuple(dict.fromkeys((applying.disk or plan.disk.path, *(step.disk.path for step in drives))))
        self._send = partial(record, _LOGGED.get(plan.purpose, plan.purpose), disks)
        self._way = applying.way
        file = next((step.journal.file for step in plan.of(WriteJournal)), None)
        # after a power cut, nothing on the disk names it
        self._journal = f"its journal is {file}" if file and self._way is ChangeState.BEGUN else ""
        self._begun = False

    def begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._send(self._way, self._journal)

    def end(self, moment: ChangeState, why: str = "") -> None:
        if self._begun:
            self._send(moment, why)


def _apply(
    plan: Plan, applying: ChangeInProgress, reporting: Reporting, log: _Log, *, in_flight: bool
) -> bool:
    hint = applying.hint
    reached = _Reached(plan, undoes=applying.way is ChangeState.UNDOING)
    writing = False
    try:
        with reporting as on_event, _close_events(applying):
            for event in applying.events:
                if not writing and (reached.has_shrunk(event) or _begins_writing(plan, event)):
                    writing = True
                    log.begin()
                reached.note(event)
                on_event(event)
        return reached.kernel_behind
    except KeyboardInterrupt:
        if not (writing or in_flight or reached.shrinking or reached.journaling):
            raise KeyboardInterrupt(f"interrupted {reached.words()}; nothing was written") from None
        raise Stopped(
            f"interrupted {reached.words()}; {reached.kept()}", hint=reached.commands_to_continue(hint)
        ) from None
    except Refused as error:
        if not writing and not (
            isinstance(error, Killed) and (in_flight or reached.shrunk_only or reached.journaling)
        ):
            # a resume writes before its first step, a shrink before its last event, a journal before it
            # counts
            raise
        raise Stopped(
            str(error), hint=reached.commands_to_continue(hint, error.hint, known=not reached.shrinking)
        ) from error
    except NothingInFlight:
        log.begin()
        raise
    except Stopped as error:
        log.begin()
        raise Stopped(str(error), hint=reached.commands_to_continue(hint, error.hint)) from error
    except (MemoryError, OSError) as error:
        why = "out of memory" if isinstance(error, MemoryError) else error.strerror
        what = f"{plan.disk.path}: {why}"
        wrote = writing or reached.journaling
        raise (Stopped(what, hint=reached.commands_to_continue(hint)) if wrote else Refused(what)) from error
    except Exception as error:
        # notes were added by the process in which it was raised
        if writing and not hasattr(error, "__notes__"):
            commands = reached.commands_to_continue(hint)
            error.add_note(f"aligntool: stopped by a bug {reached.words()}; {reached.kept()}\n  → {commands}")
        raise


class _Reached:
    """How far a change got, according to its events."""

    def __init__(self, plan: Plan, *, undoes: bool) -> None:
        self._plan = plan
        self._where = "at their old place" if undoes else "copied"
        self._steps = len(plan.steps)
        self._step = 0
        self.shrunk_only = False  # something is written, and there is no journal yet
        self.journaling = False  # the journal is being written, and nothing is in flight
        # the shrunk file system is being written, and is in flight until that is complete
        self.shrinking = False
        self._copied = ""
        self.kernel_behind = False

    def note(self, event: Event) -> None:
        match event:
            case StepBegun():
                self._step = event.index + 1
                self._copied = ""
                step = next(iter(self._plan.steps[event.index :]), None)
                waits = self.shrunk_only and isinstance(step, WriteJournal)
                self.shrunk_only = waits or isinstance(step, ShrinkContent)
                self.journaling = isinstance(step, WriteJournal)
            case KernelBehind():  # which is a Said as well
                self.kernel_behind = True
            case Said() | StepDone():
                self.journaling &= isinstance(event, Said)
                self.shrinking = self.shrunk_only and isinstance(event, Said)
            case Progress():
                self._copied = f", {format_about(event.done)} of {format_about(event.total)} {self._where}"

    def has_shrunk(self, event: Event) -> bool:
        """Return whether the event ends a shrink."""
        return isinstance(event, StepDone) and self.shrunk_only

    def words(self) -> str:
        return f"in step {self._step} of {self._steps}{self._copied}"

    def kept(self) -> str:
        if self._plan.of(CopyDisk):
            return "the copy is incomplete and has no partition table"
        if isinstance(self._plan, TablePlan):
            if 0 < self._step <= len(self._plan.of(FormatDrive)):
                return "the drive has its old or its new format, and no table"
            return "the new table may be incomplete"
        if isinstance(self._plan, ArrayPlan):
            return "the record of its progress is kept"
        if self.shrunk_only:
            return "no partition was moved"
        return "no partition was touched" if self.journaling else "the journal is kept"

    def commands_to_continue(self, hint: str, own: str = "", *, known: bool = True) -> str:
        """Return the commands to continue. If there is no journal yet, nothing can be resumed: return the
        error's own hint, or the command that plans again. `known`: whether something is in flight.
        """
        if not known:
            return command("status", self._plan.disk.path)
        if self.shrunk_only:
            return own or command(planned_by(self._plan), self._plan.disk.path, "--shrink")
        if self.journaling:
            return own or command("status", self._plan.disk.path)
        own_lines = [line for line in own.split("\n") if line not in ("", CONTINUE)]
        commands = (*own_lines, *hint.split("\n"))  # the child may have added the hint already
        return "\n".join(dict.fromkeys(commands)) if isinstance(self._plan, ArrayPlan) else hint


def _begins_writing(plan: Plan, event: Event) -> bool:
    """Return whether the event begins a step that writes. Checks do not, and a journal does not count: it is
    written to free space, and takes effect only once the entries are parked. Most of a shrink is done on a
    view.
    """
    if not isinstance(event, StepBegun):
        return False
    step = next(iter(plan.steps[event.index :]), None)
    on_view = isinstance(step, ShrinkContent) and not kind_named(step.kind).is_shrunk_mounted
    return not (on_view or isinstance(step, CheckContent | WriteJournal | CheckArray))


@contextmanager
def _close_events(applying: ChangeInProgress) -> Iterator[None]:
    """Close the events' generator when the block ends, so its cleanup runs at once and not at garbage
    collection.
    """
    try:
        yield
    finally:
        applying.on_stop()
        getattr(applying.events, "close", lambda: None)()
