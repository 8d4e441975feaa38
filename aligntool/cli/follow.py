"""Following a move by its events, and being interrupted.

In: the events of a move. Out: what is told of them, and one clear ending. Alone because from the first write on every
way to end must say where the disk stands and what to type.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aligntool.cli.asked import command
from aligntool.errors import Refused, Stopped
from aligntool.plan import Event, KernelBehind, Plan, Progress, ShrinkContent, StepBegun, WriteJournal
from aligntool.units import format_about

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import FrameType

    from aligntool.render.progress import Tell

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def follow(
    plan: Plan,
    events: Iterator[Event],
    *,
    json_: bool,
    hint: str,
    on_stop: Callable[[], None] = lambda: None,
    in_flight: bool = False,
) -> bool:
    """Do it, by asking for its events, and tell them. `hint`: the command that goes on when it stops part-way.

    `in_flight`: so it is already, and an interruption does not undo what was written before the first step.

    Return whether the running kernel does not show yet what was done.

    `on_stop` is called as soon as the user wants it to stop. Raises Refused or KeyboardInterrupt while nothing is
    written, and Stopped for every way to end after that.
    """
    far = _Reached(plan)
    writing = False
    try:
        with _stop_when_told(on_stop), _closing(events), _teller(plan, json_=json_) as tell:
            for event in events:
                writing = writing or _begins_writing(plan, event)
                far.note(event)
                tell(event)
        return far.kernel_behind
    except KeyboardInterrupt:
        if not writing and not in_flight:
            raise
        raise Stopped(f"interrupted {far.words()}; {far.kept()}", hint=far.way_on(hint)) from None
    except Refused as error:
        if not writing:
            raise
        raise Stopped(str(error), hint=far.way_on(hint, error.hint)) from error
    except Stopped as error:
        raise Stopped(str(error), hint=far.way_on(hint, error.hint)) from error
    except OSError as error:
        what = f"{plan.disk.path}: {error.strerror}"
        raise (Stopped(what, hint=far.way_on(hint)) if writing else Refused(what)) from error
    except Exception:
        if writing:
            print(
                f"aligntool: a bug stopped it {far.words()}; {far.kept()}\n  → {far.way_on(hint)}",
                file=sys.stderr,
            )
        raise


class _Reached:
    """The last that was heard of a move."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._steps = len(plan.steps)
        self._step = 0
        self._shrunk_only = False  # something is written, and there is no journal yet
        self._copied = ""
        self.kernel_behind = False

    def note(self, event: Event) -> None:
        match event:
            case StepBegun():
                self._step = event.index + 1
                step = next(iter(self._plan.steps[event.index :]), None)
                waits = self._shrunk_only and isinstance(step, WriteJournal)
                self._shrunk_only = waits or isinstance(step, ShrinkContent)
            case KernelBehind():
                self.kernel_behind = True
            case Progress():
                self._copied = f", {format_about(event.done)} of {format_about(event.total)} copied"

    def words(self) -> str:
        return f"in step {self._step} of {self._steps}{self._copied}"

    def kept(self) -> str:
        if self._plan.purpose in ("raid", "persist"):
            return "the record of how far it came is kept"
        return "no partition was moved" if self._shrunk_only else "the journal is kept"

    def way_on(self, hint: str, own: str = "") -> str:
        """Without a journal there is nothing to resume: what the error itself hints at, or all from the beginning."""
        again = command("plan realign", self._plan.disk.path, "--shrink")
        return own or again if self._shrunk_only else hint


def _begins_writing(plan: Plan, event: Event) -> bool:
    """A journal is written to free space, and nobody heeds it before the entries are parked."""
    if not isinstance(event, StepBegun) or event.index >= len(plan.steps):
        return isinstance(event, StepBegun)
    step = plan.steps[event.index]
    return step.writes and not isinstance(step, WriteJournal)


def _teller(plan: Plan, *, json_: bool) -> "AbstractContextManager[Tell]":
    """JSON is data; a bar and its sentences are talk."""
    import os

    from aligntool.render.lines import wants_color
    from aligntool.render.progress import progress_bar, progress_json, progress_lines

    if json_:
        return progress_json(plan, sys.stdout)
    if wants_color(sys.stderr, dict(os.environ)):
        return progress_bar(plan, sys.stderr, time.monotonic)
    return progress_lines(plan, sys.stderr, time.monotonic)


@contextmanager
def _closing(events: Iterator[Event]) -> Iterator[None]:
    """A generator that is left half-way puts things in order at once, and not when Python gets to it."""
    try:
        yield
    finally:
        close = getattr(events, "close", None)
        if close is not None:
            close()


@contextmanager
def _stop_when_told(on_stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C, a closed terminal and a shutdown interrupt wherever the move is: the power may cut it there, too.

    Once: what puts things in order afterwards is not interrupted again.
    """

    def stop(number: int, frame: "FrameType | None") -> None:
        for one in _STOPPING:
            signal.signal(one, signal.SIG_IGN)
        on_stop()
        raise KeyboardInterrupt

    handlers = {one: signal.signal(one, stop) for one in _STOPPING}
    try:
        with pipes_may_break():
            yield
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)


@contextmanager
def pipes_may_break() -> Iterator[None]:
    """A reader that goes away is an error like any other, and does not end the process on the spot."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C waits meanwhile, for us and for the programs that are run: another tool may not be as easily cut."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
