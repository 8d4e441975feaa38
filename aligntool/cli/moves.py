"""Realign partitions: the operation behind `realign` and `apply`, and what `resume` and `rollback` share with it."""

import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from aligntool.audit.wording import shell_word
from aligntool.change import Event, Plan, Said, StepBegun, StepDone
from aligntool.cli.options import command, naming, print_lines, terminal_width
from aligntool.cli.plan import Found, Request, commands_of, find_plan, layer_of, look_at, plan_text, read_map
from aligntool.cli.run_change import STOPPING, Applying, pipes_may_break, write_end
from aligntool.errors import Refused, Stopped
from aligntool.linux.block import Limited
from aligntool.linux.content import check_content
from aligntool.linux.hold import hold_disk
from aligntool.realign import move
from aligntool.realign.journal import open_journal
from aligntool.realign.move import MoveContext
from aligntool.realign.shrink import refuse_unable, shrink_content
from aligntool.render.lines import EMPTY, Line, text_of
from aligntool.render.plan import attention_lines, plan_lines
from aligntool.render.progress import result_lines
from aligntool.steps import CheckContent, CopyContent, ShrinkContent, WriteJournal, is_same_disk
from aligntool.units import Extent


@dataclass(frozen=True, slots=True)
class Realign:
    """Move partitions onto their grids."""

    disk: str
    asked: Request
    rate: int | None = None  # bytes a second at most

    def make_plan(self) -> Plan:
        return find_plan(self.disk, self.asked).plan

    def document(self, plan: Plan) -> str:
        return plan_text(plan, self.asked)

    def lines(self, plan: Plan, type_next: str) -> Iterable[Line]:
        return disk_plan_lines(plan, type_next)

    def next_command(self) -> str:
        return command("realign", self.disk, *self.asked.typed)

    def refuse_changed(self, plan: Plan) -> None:
        still_true(plan, self.asked)

    @contextmanager
    def held(self, plan: Plan) -> Iterator[Applying]:
        path, journal_file = plan.disk.path, _journal_file(plan)
        with held_disk(
            plan, path, journal_file=journal_file, new_journal=_journal_length(plan), rate=self.rate
        ) as context:
            found = still_true(plan, self.asked)
            events = _events(plan, self.asked, found, context)
            yield Applying(events, ways_on(path, journal_file), hurrying(context))

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        report_result(plan, plan.disk.path, self.asked, json_=json_, kernel_behind=kernel_behind)


def disk_plan_lines(plan: Plan, type_next: str) -> Iterable[Line]:
    """Return a plan of a disk as text, with the command lines that it runs."""
    return plan_lines(plan, width=terminal_width(), commands=commands_of(plan), type_next=type_next)


@contextmanager
def held_disk(
    plan: Plan, path: str, *, journal_file: str | None, new_journal: int | None = None, rate: int | None = None
) -> Iterator[MoveContext]:
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
            yield MoveContext(device, holding.kernel, journal)


def hurrying(context: MoveContext) -> Callable[[], None]:
    """What makes a device that keeps a rate stop waiting."""
    device = context.device
    return device.hurry if isinstance(device, Limited) else lambda: None


def still_true(plan: Plan, asked: Request) -> Found:
    """Plan again: the same disk, table and steps. Raises Refused with what changed."""
    found = find_plan(plan.disk.path, asked)
    now = found.plan
    again = command("plan realign", plan.disk.path, *asked.typed)
    if not is_same_disk(plan.disk, now.disk):
        raise Refused(_what_differs(plan, now), hint=f"make the plan anew: {again}", code="plan-stale")
    if plan.steps != now.steps:
        raise Refused(
            f"{plan.disk.path}: the same disk now asks for other steps; what lies on it was changed since the plan",
            hint=f"make the plan anew: {again}",
            code="plan-stale",
        )
    return found


def _what_differs(plan: Plan, now: Plan) -> str:
    names = {
        "size": "size", "sector_size": "sector size", "label": "kind of table", "disk_id": "disk id",
        "model": "model", "serial": "serial number", "wwn": "WWN", "table_digest": "partition table",
    }  # fmt: skip
    changed = [word for name, word in names.items() if getattr(plan.disk, name) != getattr(now.disk, name)]
    return f"{plan.disk.path} is not as it was when the plan was made: another {', '.join(changed)}"


def _events(plan: Plan, asked: Request, found: Found, context: MoveContext) -> Iterator[Event]:
    """The whole plan: checks, shrinking, and then the mover's part. Raises Refused or Stopped."""
    shrunk = False
    for index, step in enumerate(plan.steps):
        if isinstance(step, CheckContent):
            yield from _check(plan, index, step)
        elif isinstance(step, ShrinkContent):
            yield from _shrink(plan, index, step)
            shrunk = True
    yield from move.realign(plan, context, _runs_anew(plan, asked) if shrunk else found.runs)


def _check(plan: Plan, index: int, step: CheckContent) -> Iterator[Event]:
    """The file system's own checker, which writes nothing. Raises Refused with its words."""
    yield StepBegun(index)
    result = check_content(plan.disk.path, step.extent, step.kind)
    if result.problem:
        raise Refused(
            f"partition {step.partition} ({step.kind}) failed the check by {result.by}: {result.problem}",
            hint="repair it with its own tool first",
            code="content-damaged",
            subject=f"partition {step.partition}",
        )
    yield Said(f"checked by {result.by}" if result.checked else f"not checked: {result.by}")
    yield StepDone(index)


def _shrink(plan: Plan, index: int, step: ShrinkContent) -> Iterator[Event]:
    refuse_unable(plan.disk.path, step)
    yield StepBegun(index)
    with undisturbed():
        shrink_content(plan.disk.path, step)
    yield StepDone(index)


def _runs_anew(plan: Plan, asked: Request) -> dict[int, tuple[Extent, ...]]:
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


def report_result(
    plan: Plan, disk: str, asked: Request, *, json_: bool, back: bool = False, kernel_behind: bool = False
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
        print_lines(lines)
        if plan.attention and not back:
            print_lines([EMPTY, *attention_lines(plan, width=terminal_width())])
    sys.stdout.flush()
    if following:
        print(f"aligntool: the running kernel has to read the new table\n  → {following}", file=sys.stderr)


def _for_the_kernel(disk: str) -> str:
    return f"sudo partprobe {shell_word(disk)}, or restart the machine"


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C waits meanwhile, for us and for the programs that are run: another tool may not be as easily cut."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
