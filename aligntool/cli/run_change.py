"""Apply a plan of a move: lock the disk, plan again, compare, show progress, audit the result."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from types import FrameType
from typing import ParamSpec

from aligntool.audit.wording import shell_word
from aligntool.change import Event, KernelBehind, Plan, Progress, Said, StepBegun, StepDone
from aligntool.cli.options import Asked, colored, command, naming, terminal_width
from aligntool.cli.plan import Found, find_plan, layer_of, look_at, read_map
from aligntool.errors import Refused, Stopped
from aligntool.linux.block import Limited
from aligntool.linux.content import check_content
from aligntool.linux.hold import hold_disk
from aligntool.realign.journal import open_journal
from aligntool.realign.move import Workshop, realign
from aligntool.realign.shrink import refuse_unable, shrink_content
from aligntool.render.lines import EMPTY, show, text_of, wants_color
from aligntool.render.plan import attention_lines
from aligntool.render.progress import (
    OnEvent,
    begin_json,
    end_json,
    progress_bar,
    progress_json,
    progress_lines,
    result_lines,
)
from aligntool.steps import CheckContent, CopyContent, ShrinkContent, WriteJournal, is_same_disk
from aligntool.units import Extent, format_about

# Following a move by its events, and being interrupted.
#
# In: the events of a move. Out: what is told of them, and one clear ending. Alone because from the first
# write on every way to end must say where the disk stands and what to type.

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


def _teller(plan: Plan, *, json_: bool) -> AbstractContextManager[OnEvent]:
    """JSON is data; a bar and its sentences are talk."""
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

    def stop(number: int, frame: FrameType | None) -> None:
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


# The common tail of whatever moves: hold the disk, look again, move, look what came of it.
#
# In: a plan that was confirmed, or a disk in flight. Out: the disk in its new state, or one clear error.
# Alone because the order of these things is what makes a plan safe to apply.


def carry_out(plan: Plan, asked: Asked, *, json_: bool, rate: int | None) -> None:
    """Hold the disk, see that the plan is still true, check, move, and tell what came of it.

    Raises Refused while nothing is written, and Stopped afterwards.
    """
    path, journal_file = plan.disk.path, _journal_file(plan)
    with workshop(
        plan, path, journal_file=journal_file, new_journal=_journal_length(plan), rate=rate
    ) as shop:
        found = still_true(plan, asked)
        events = _events(plan, asked, found, shop)
        hint = ways_on(path, journal_file)
        behind = follow(plan, events, json_=json_, hint=hint, on_stop=hurrying(shop))
    tell_result(plan, path, asked, json_=json_, kernel_behind=behind)


@contextmanager
def workshop(
    plan: Plan,
    path: str,
    *,
    journal_file: str | None,
    new_journal: int | None = None,
    rate: int | None = None,
) -> Iterator[Workshop]:
    """The disk, held against everybody else, and where its journal lies. `new_journal`: make one of so many bytes.

    `path`: where the disk is now, which need not be where it was when the plan was made.

    Raises Refused.
    """
    with naming(path), pipes_may_break(), hold_disk(path, image_sector_size=plan.disk.sector_size) as holding:
        for note in holding.notes:
            print(f"aligntool: {note}", file=sys.stderr)
        device = Limited(holding.device, rate) if rate else holding.device
        opened = open_journal(journal_file, length=new_journal) if journal_file else nullcontext()
        with opened as journal:
            yield Workshop(device, holding.kernel, journal)


def hurrying(shop: Workshop) -> Callable[[], None]:
    """What makes a device that keeps a rate stop waiting."""
    device = shop.device
    return device.hurry if isinstance(device, Limited) else lambda: None


def still_true(plan: Plan, asked: Asked) -> Found:
    """The same disk with the same table, and the same steps thought out for it. Raises Refused, saying what changed."""
    found = find_plan(plan.disk.path, asked)
    now = found.plan
    again = command("plan realign", plan.disk.path, *asked.typed)
    if not is_same_disk(plan.disk, now.disk):
        raise Refused(_what_differs(plan, now), hint=f"make the plan anew: {again}")
    if plan.steps != now.steps:
        raise Refused(
            f"{plan.disk.path}: the same disk now asks for other steps; what lies on it was changed since the plan",
            hint=f"make the plan anew: {again}",
        )
    return found


def _what_differs(plan: Plan, now: Plan) -> str:
    names = {
        "size": "size", "sector_size": "sector size", "label": "kind of table", "disk_id": "disk id",
        "model": "model", "serial": "serial number", "wwn": "WWN", "table_digest": "partition table",
    }  # fmt: skip
    changed = [word for name, word in names.items() if getattr(plan.disk, name) != getattr(now.disk, name)]
    return f"{plan.disk.path} is not as it was when the plan was made: another {', '.join(changed)}"


def _events(plan: Plan, asked: Asked, found: Found, shop: Workshop) -> Iterator[Event]:
    """The whole plan: checks, shrinking, and then the mover's part. Raises Refused or Stopped."""
    shrunk = False
    for index, step in enumerate(plan.steps):
        if isinstance(step, CheckContent):
            yield from _check(plan, index, step)
        elif isinstance(step, ShrinkContent):
            yield from _shrink(plan, index, step)
            shrunk = True
    yield from realign(plan, shop, _runs_anew(plan, asked) if shrunk else found.runs)


def _check(plan: Plan, index: int, step: CheckContent) -> Iterator[Event]:
    """The file system's own checker, which writes nothing. Raises Refused with its words."""
    yield StepBegun(index)
    result = check_content(plan.disk.path, step.extent, step.kind)
    if result.problem:
        raise Refused(
            f"partition {step.partition} ({step.kind}) is not whole, says {result.by}: {result.problem}",
            hint="mend it with its own tool first",
        )
    yield Said(f"whole, says {result.by}" if result.checked else f"not checked: {result.by}")
    yield StepDone(index)


def _shrink(plan: Plan, index: int, step: ShrinkContent) -> Iterator[Event]:
    refuse_unable(plan.disk.path, step)
    yield StepBegun(index)
    with undisturbed():
        shrink_content(plan.disk.path, step)
    yield StepDone(index)


def _runs_anew(plan: Plan, asked: Asked) -> dict[int, tuple[Extent, ...]]:
    """A file system that was shrunk has its blocks elsewhere. Raises Stopped where it is longer than was asked for:
    what lies behind the new end would be left out.
    """
    judged, _ = look_at(plan.disk.path, asked)
    for step in plan.steps:
        if isinstance(step, ShrinkContent):
            layer = layer_of(judged.disk, step.partition)
            claims = None if layer is None else layer.claims_size
            if claims is None or claims > step.length:
                raise Stopped(
                    f"partition {step.partition} was to be shrunk to {step.length} bytes, and its {step.kind} has"
                    f" {'an unknown number' if claims is None else claims}; no partition was moved",
                    hint=command("audit", plan.disk.path),
                )
    copies = [step for step in plan.steps if isinstance(step, CopyContent)]
    return {step.partition: read_map(judged.disk, step.partition, step.source).runs for step in copies}


def _journal_file(plan: Plan) -> str | None:
    return next((step.journal.file for step in plan.steps if isinstance(step, WriteJournal)), None)


def _journal_length(plan: Plan) -> int | None:
    return next((step.journal.extent.end for step in plan.steps if isinstance(step, WriteJournal)), None)


def ways_on(disk: str, journal_file: str | None) -> str:
    """What can be typed when a move stopped part-way, a line each."""
    names = ("resume", "rollback")
    return "\n".join(command(name, disk, *journal_words(journal_file)) for name in names)


def journal_words(file: str | None) -> list[str]:
    return [f"--journal {shell_word(file)}"] if file else []


def tell_result(
    plan: Plan, disk: str, asked: Asked, *, json_: bool, back: bool = False, kernel_behind: bool = False
) -> None:
    """The disk, looked at and judged anew; `back`: the plan was undone. Raises Stopped.

    `kernel_behind`: what is left to do is to make the kernel read the table, and nothing can be resumed.
    """
    try:
        judged, _ = look_at(disk, asked)
    except (Refused, KeyboardInterrupt) as error:
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        raise Stopped(f"it is done, but was not looked at: {why}", hint=command("audit", disk)) from error
    lines = list(result_lines(plan, judged))
    following = _for_the_kernel(disk) if kernel_behind else ""
    if json_:
        sentences = tuple(line.rstrip("\n") for line in text_of(lines))
        write_end("old" if back else "new", changed=True, sentences=sentences, hint=following)
    else:
        show(lines, sys.stdout, color=colored())
        if plan.attention and not back:
            show([EMPTY, *attention_lines(plan, width=terminal_width())], sys.stdout, color=colored())
    sys.stdout.flush()
    if following:
        print(f"aligntool: the running kernel has to read the new table\n  → {following}", file=sys.stderr)


def _for_the_kernel(disk: str) -> str:
    return f"sudo partprobe {shell_word(disk)}, or restart the machine"


# The last line of a stream of events, where nothing was changed: a refusal, an interruption, nothing to do.

_Words = ParamSpec("_Words")


def ends_stream(run: Callable[_Words, None]) -> Callable[_Words, None]:
    """Return a command whose `--json` ends with an `end` event also where it refuses or is interrupted before the
    first write. With `--dry-run` its JSON is a plan, and a refusal has none.
    """

    @wraps(run)
    def ended(*args: _Words.args, **kwargs: _Words.kwargs) -> None:
        if not kwargs.get("json_") or kwargs.get("dry_run"):
            return run(*args, **kwargs)
        try:
            return run(*args, **kwargs)
        except Refused as error:
            write_end("refused", changed=False, sentences=tuple(str(error).split("\n")), hint=error.hint)
            raise
        except KeyboardInterrupt:
            write_end("interrupted", changed=False, sentences=("nothing was written",))
            raise

    return ended


def write_end(state: str, *, changed: bool, sentences: tuple[str, ...] = (), hint: str = "") -> None:
    """Write the `end` event to standard output."""
    sys.stdout.write(end_json(state=state, changed=changed, sentences=sentences, hint=hint))
    sys.stdout.flush()


def write_nothing_to_do(plan: Plan, state: str = "new") -> None:
    """Write the whole stream of a plan without steps."""
    sys.stdout.write(begin_json(plan))
    write_end(state, changed=False, sentences=("nothing to do",))
