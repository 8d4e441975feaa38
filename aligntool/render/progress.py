"""Progress, events, status and results of a change, as text and JSON lines."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from aligntool.audit.report import Judged
from aligntool.change import Event, Plan, Progress, Said, StepBegun, StepDone, Waiting, digest, step_name, waiting_words
from aligntool.errors import Refusal
from aligntool.inventory import Partition
from aligntool.realign.move import Status
from aligntool.render.audit import verdict_words
from aligntool.render.json import Value, dumps
from aligntool.render.lines import Line, Style, harmless, paragraph, plain
from aligntool.render.plan import partition_of, sector_words, size_words, step_title, time_words
from aligntool.steps import WriteJournal
from aligntool.units import counted, format_about, format_size

if TYPE_CHECKING:
    import rich.progress

# Progress of a benchmark or a resynchronisation: a bar on a terminal, a line now and then elsewhere.

Tell = Callable[[str, float, float | None], None]


def words_bar(stream: TextIO, *, transient: bool = False, still: bool = False) -> "rich.progress.Progress":
    """Return a bar with text behind it. Its tasks have a field `words`, which is taken literally.

    `transient`: nothing of it stays when it ends. `still`: it is redrawn at each update, and not by a thread.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        BarColumn(bar_width=None), TextColumn("{task.fields[words]}", markup=False),
        console=Console(file=stream, highlight=False), expand=True, transient=transient, auto_refresh=not still,
    )  # fmt: skip


@contextmanager
def bench_lines(stream: TextIO, *, tenths: bool = False) -> Iterator[Tell]:
    """A line whenever another run begins, or a tenth of the whole is done."""
    said: object = None

    def tell(text: str, share: float, left_s: float | None) -> None:
        nonlocal said
        now = int(10 * share) if tenths else text
        if now != said:
            said = now
            stream.write(f"  {harmless(_words(text, left_s))}\n")
            stream.flush()

    yield tell


@contextmanager
def bench_bar(stream: TextIO, *, still: bool = False) -> Iterator[Tell]:
    """`still`: no thread redraws it; it changes only at each call."""
    with words_bar(stream, transient=True, still=still) as bar:
        task = bar.add_task("", total=1.0, words="")

        def tell(text: str, share: float, left_s: float | None) -> None:
            bar.update(task, completed=share, words=harmless(_words(text, left_s)), refresh=still)

        yield tell


def _words(text: str, left_s: float | None) -> str:
    return text if left_s is None or round(left_s) < 1 else f"{text}, {time_words(round(left_s))} left"


def resync_progress(done: int | None, total: int | None, rate: int | None) -> tuple[str, float, float | None]:
    """Return words, the share done and the seconds left; what the kernel does not report is left out."""
    if done is None or not total:
        return "resynchronising: waiting for its turn", 0.0, None
    words = f"resynchronising: {100 * done / total:.1f} %" + (f", {format_about(rate)}/s" if rate else "")
    return words, done / total, max(total - done, 0) / rate if rate else None


# Events as JSON lines for programs: docs/json.md, "Events".

SCHEMA = "aligntool.events"
VERSION = 1


def begin_json(plan: Plan) -> str:
    """The first line: which plan, how many steps."""
    return _line({
        "event": "plan", "schema": SCHEMA, "version": VERSION, "digest": digest(plan), "disk": plan.disk.path,
        "steps": len(plan.steps), "bytes_to_copy": plan.estimate.bytes_to_copy if plan.estimate else None,
    })  # fmt: skip


def event_json(plan: Plan, event: Event) -> str:
    if isinstance(event, Said):
        return _line({"event": "said", "text": event.text})
    if isinstance(event, Waiting):
        return _line({
            "event": "waiting", "disk": event.disk, "request": event.request, "seconds": event.seconds,
            "text": ". ".join(waiting_words(event)),
        })  # fmt: skip
    name = {StepBegun: "step-begun", Progress: "progress", StepDone: "step-done"}[type(event)]
    bytes_ = {"done": event.done, "total": event.total} if isinstance(event, Progress) else {}
    step = plan.steps[event.index] if 0 <= event.index < len(plan.steps) else None
    which: dict[str, Value] = {"index": event.index, "step": step_name(step) if step else None}
    which |= {"partition": partition_of(step) if step else None, "title": step_title(step) if step else ""}
    return _line({"event": name, **which, **bytes_})


def end_json(
    *, state: str, changed: bool, sentences: tuple[str, ...], hint: str, refusals: tuple[Refusal, ...] = ()
) -> str:
    """Return the last line: "new", "old", "refused" or "interrupted", whether anything was written, and what to type
    next. It is the only line where a command refuses before it has a plan, so it names its schema, too.
    """
    line: dict[str, Value] = {
        "event": "end", "schema": SCHEMA, "version": VERSION, "state": state, "changed": changed,
        "sentences": list(sentences), "next": hint,
    }  # fmt: skip
    if refusals:
        line["refusals"] = [
            {"code": one.code, "subject": one.subject, "text": one.text, "hint": one.hint} for one in refusals
        ]
    return _line(line)


def _line(value: Value) -> str:
    return dumps(value) + "\n"


# Progress of a move: a bar on a terminal, a line now and then elsewhere, JSON for programs.

Clock = Callable[[], float]
"""Seconds since some moment."""

OnEvent = Callable[[Event], None]

LINES_OF_PROGRESS = 20
"""So many lines, evenly spread over the bytes, where nothing can be redrawn."""


class Pace:
    """Bytes a second since the first progress, and what that means for the rest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first: tuple[float, int] | None = None

    def words(self, event: Progress) -> str:
        """ "12MiB of 400MiB, 48.1MiB/s, 8s left"; rate and time as soon as they are known."""
        text = f"{format_about(event.done)} of {format_about(event.total)}"
        now = self._clock()
        if self._first is None:
            self._first = (now, event.done)
            return text
        since, done = now - self._first[0], event.done - self._first[1]
        if since <= 0 or done <= 0:
            return text
        left = round((event.total - event.done) * since / done)
        rest = f", {time_words(left)} left" if left >= 1 else ""
        return f"{text}, {format_about(int(done / since))}/s{rest}"


@contextmanager
def progress_json(plan: Plan, stream: TextIO) -> Iterator[OnEvent]:
    stream.write(begin_json(plan))
    stream.flush()

    def tell(event: Event) -> None:
        stream.write(event_json(plan, event))
        stream.flush()

    yield tell


@contextmanager
def progress_lines(plan: Plan, stream: TextIO, clock: Clock) -> Iterator[OnEvent]:
    """A line for each step, and one whenever a twentieth of the bytes is done."""
    told = 0

    def write(text: str) -> None:
        stream.write(f"{text}\n")
        stream.flush()

    def copied(event: Progress, words: str) -> None:
        nonlocal told
        part = event.done * LINES_OF_PROGRESS // max(event.total, 1)
        if part != told:
            told = part
            write(f"  {words}")

    yield _teller(plan, clock, write, copied, lambda words: None)


@contextmanager
def progress_bar(plan: Plan, stream: TextIO, clock: Clock) -> Iterator[OnEvent]:
    """One bar for all bytes of the plan; the steps and sentences scroll by above it."""
    from rich.text import Text

    with words_bar(stream) as bar:
        task = bar.add_task("", total=None, words="")

        def copied(event: Progress, words: str) -> None:
            bar.update(task, completed=event.done, total=event.total, words=words)

        def waits(words: str) -> None:
            bar.update(task, words=words)

        yield _teller(plan, clock, lambda text: bar.console.print(Text(text), soft_wrap=True), copied, waits)


def _teller(
    plan: Plan,
    clock: Clock,
    write: Callable[[str], None],
    copied: Callable[[Progress, str], None],
    waits: Callable[[str], None],
) -> OnEvent:
    pace = Pace(clock)
    silent = 0  # seconds that were last reported

    def tell(event: Event) -> None:
        nonlocal silent
        match event:
            case StepBegun():
                index = event.index
                title = step_title(plan.steps[index]) if 0 <= index < len(plan.steps) else "step"
                write(f"{index + 1}/{len(plan.steps)} {harmless(title)}")
            case Said():
                write(f"  {harmless(event.text)}")
            case Progress():
                copied(event, pace.words(event))
            case Waiting():
                if not silent <= event.seconds < 2 * silent:  # of a long stall ever fewer lines
                    silent = event.seconds
                    for words in waiting_words(event):
                        write(f"  {harmless(words)}")
                waits(harmless(f"no answer for {event.seconds} s"))

    return tell


# A partition table in a few lines, where one is about to be written over another.


def table_lines(title: str, partitions: Sequence[Partition]) -> Iterator[Line]:
    yield ((f"{title}:", Style.TITLE),)
    if not partitions:
        yield plain("  no partitions")
    for part in partitions:
        what = part.name or part.type_name or part.type_code
        yield plain(f"  {part.number}: bytes {part.extent.start} to {part.extent.end - 1}, {what}")


# The result of a plan: the partitions that moved, as the table on the disk has them now.


def result_lines(plan: Plan, judged: Judged) -> Iterator[Line]:
    parts = {partition.number: partition for partition in judged.disk.partitions}
    verdicts = judged.by_partition()
    for place in plan.places:
        if place.before == place.after:
            continue
        part = parts.get(place.number)
        if not parts and judged.disk.content:
            yield (("the whole disk, without a table: ", Style.PLAIN), *verdict_words(verdicts.get(None)))
            continue
        if part is None:
            yield ((f"partition {place.number} is not in the table", Style.BAD),)
            continue
        start, sector_size = part.extent.start, judged.disk.sector_size
        words = f"partition {place.number}: sector {sector_words(start, sector_size)} ({format_size(start)}), "
        yield ((words, Style.PLAIN), *verdict_words(verdicts.get(place.number)))


# The state of a disk after an interruption: nothing in flight, in flight, an unfinished array.


_STATES = {
    "old": ("nothing is in flight", Style.GOOD),
    "in-flight": ("in flight: do not mount, repair or partition this disk", Style.BAD),
    "unfinished": ("unfinished", Style.BAD),
}


def status_lines(disk: str, found: Status, *, width: int, type_next: Sequence[str] = ()) -> Iterator[Line]:
    """Return the state of a disk or an array. `type_next`: the commands that make sense now."""
    words, style = _STATES.get(found.state, (found.state, Style.DOUBT))
    yield ((f"{disk}: ", Style.TITLE), (words, style))
    plan = found.plan
    if found.state in ("in-flight", "unfinished") and plan is not None:
        yield plain(f"  goal: {plan.goal}")
        if 0 <= found.step < len(plan.steps):
            title, way = step_title(plan.steps[found.step]), "next" if found.forward else "rollback at"
            yield from paragraph(f"  {way}: step {found.step + 1} of {len(plan.steps)}, {title}", width)
    if found.state == "in-flight" and plan is not None and found.total:
        yield plain(f"  at their new place: {size_words(found.done)} of {size_words(found.total)}")
    for sentence in found.sentences if plan is not None else ():
        yield from paragraph(f"  - {sentence}", width)
    for command in type_next:
        yield (("  → ", Style.DIM), (command, Style.TYPE))


def steps_left(found: Status, *, back: bool) -> Iterator[Line]:
    """Return the steps that resuming or rolling back takes, in their order, by the plan's numbers."""
    plan = found.plan
    if plan is None:
        return
    first = next((number + 1 for number, step in enumerate(plan.steps) if isinstance(step, WriteJournal)), 0)
    last = len(plan.steps)
    numbers = range(min(found.step, last - 1), first - 1, -1) if back else range(found.step, last)
    yield plain(f"  {counted(len(numbers), 'step')} to {'undo' if back else 'take'}:")
    yield from (plain(f"  {number + 1:3}. {step_title(plan.steps[number])}") for number in numbers)


def status_json(disk: str | None, found: Status, *, type_next: Sequence[str] = ()) -> str:
    """`disk` None: no array is unfinished. An array has no bytes that are moved."""
    plan = found.plan
    step = plan.steps[found.step] if plan and 0 <= found.step < len(plan.steps) else None
    moves = plan is not None and found.state != "unfinished"
    document: Value = {
        "schema": "aligntool.status", "version": 1, "disk": disk, "state": found.state,
        "goal": plan.goal if plan else None, "direction": ("forward" if found.forward else "back") if plan else None,
        "step": step_name(step) if step else None, "partition": partition_of(step) if step else None,
        "index": found.step if step else None, "done": found.done if moves else None,
        "total": found.total if moves else None, "sentences": list(found.sentences), "next": list(type_next),
    }  # fmt: skip
    return _line(document)
