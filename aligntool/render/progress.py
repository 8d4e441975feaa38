"""Show the progress, events, status and result of a change, as text and JSON lines."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING, TextIO

from aligntool.audit.layers import clusters_off
from aligntool.audit.report import Answer, Judged
from aligntool.audit.wording import look_at_table, past_words
from aligntool.change import (
    ArrayPlan,
    Event,
    MovePlan,
    Plan,
    Progress,
    Said,
    StepBegun,
    StepDone,
    Waiting,
    digest,
    step_name,
    waiting_words,
    what_stays_shrunk,
)
from aligntool.commands import commands_in
from aligntool.errors import Refusal
from aligntool.inventory import Partition
from aligntool.mover.status import Status
from aligntool.render.audit import verdict_words
from aligntool.render.json import Value, dumps
from aligntool.render.lines import (
    Line,
    Style,
    command_lines,
    fitted,
    harmless,
    paragraph,
    plain,
    stacked,
    wrapped,
)
from aligntool.render.plan import partition_of, place_words, sector_words, size_words, step_title, undo_title
from aligntool.steps import CloseJournal, WriteJournal
from aligntool.units import MIB, counted, format_about, format_size, time_words

if TYPE_CHECKING:
    import rich.progress

# Progress of a benchmark or a resynchronisation: a bar on a terminal, occasional lines elsewhere.

ReportProgress = Callable[[str, float, float | None], None]


def bar_with_text(
    stream: TextIO, *, transient: bool = False, still: bool = False
) -> "rich.progress.Progress":
    """Return a bar followed by text. Its tasks have a field `words`, shown without markup.

    `transient`: clear the bar when it ends. `still`: redraw it at each update, not from a thread.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        BarColumn(bar_width=None),
        TextColumn("{task.fields[words]}", markup=False),
        console=Console(file=stream, highlight=False),
        expand=True,
        transient=transient,
        auto_refresh=not still,
    )


@contextmanager
def bench_progress_lines(stream: TextIO, *, tenths: bool = False) -> Iterator[ReportProgress]:
    """Write a line at each new run, or with `tenths` at each completed tenth of the whole."""
    last_key: object = None

    def report(text: str, share: float, left_s: float | None) -> None:
        nonlocal last_key
        key = int(10 * share) if tenths else text
        if key != last_key:
            last_key = key
            stream.write(f"  {harmless(_with_time_left(text, left_s))}\n")
            stream.flush()

    yield report


@contextmanager
def bench_progress_bar(stream: TextIO, *, still: bool = False) -> Iterator[ReportProgress]:
    """Draw a bar. `still`: redraw it at each call, not from a thread."""
    with bar_with_text(stream, transient=True, still=still) as bar:
        task = bar.add_task("", total=1.0, words="")

        def report(text: str, share: float, left_s: float | None) -> None:
            bar.update(task, completed=share, words=harmless(_with_time_left(text, left_s)), refresh=still)

        yield report


def _with_time_left(text: str, left_s: float | None) -> str:
    return text if left_s is None or round(left_s) < 1 else f"{text}, {time_words(round(left_s))} left"


def resync_progress(
    done: int | None, total: int | None, rate: int | None, pace: "Pace"
) -> tuple[str, float, float | None]:
    """Return a text, the share done and the seconds left, or None; the text omits what the kernel does not
    report.
    """
    if done is None or not total:
        return "resynchronising: waiting to start", 0.0, None
    words = f"resynchronising: {100 * done / total:.1f} %" + (f", {format_about(rate)}/s" if rate else "")
    return words, done / total, pace.note(Progress(0, done, total))


# Events as JSON lines for programs: docs/json.md, "Events".

SCHEMA = "aligntool.events"
VERSION = 1


def plan_event_json(plan: Plan) -> str:
    """Return the first line: the plan and the number of its steps."""
    return _line(
        {
            "event": "plan",
            "schema": SCHEMA,
            "version": VERSION,
            "digest": digest(plan),
            "disk": plan.disk.path,
            "steps": len(plan.steps),
            "bytes_to_copy": plan.estimate.bytes_to_copy if plan.estimate else None,
        }
    )


def event_json(plan: Plan, event: Event) -> str:
    if isinstance(event, Said):
        return _line({"event": "said", "text": event.text})
    if isinstance(event, Waiting):
        return _line(
            {
                "event": "waiting",
                "disk": event.disk,
                "request": event.request,
                "seconds": event.seconds,
                "text": ". ".join(waiting_words(event)),
            }
        )
    name = {StepBegun: "step-begun", Progress: "progress", StepDone: "step-done"}[type(event)]
    copied = {"done": event.done, "total": event.total} if isinstance(event, Progress) else {}
    step = plan.steps[event.index] if 0 <= event.index < len(plan.steps) else None
    details: dict[str, Value] = {"index": event.index, "number": event.index + 1}
    details |= {"step": step_name(step) if step else None}
    title = place_words(plan, step) + step_title(step) if step else ""
    details |= {"partition": partition_of(step) if step else None, "title": title}
    return _line({"event": name, **details, **copied})


def end_json(
    *, state: str, changed: bool, sentences: tuple[str, ...], hint: str, refusals: tuple[Refusal, ...] = ()
) -> str:
    """Return the last line: the state "new", "old", "refused" or "interrupted", whether anything was written,
    and the next command. It names its schema too, because it is the only line if a command refuses before it
    has a plan.
    """
    line: dict[str, Value] = {
        "event": "end",
        "schema": SCHEMA,
        "version": VERSION,
        "state": state,
        "changed": changed,
        "sentences": list(sentences),
        "next": hint,
        "commands": commands_in(hint.split("\n")),
    }
    if refusals:
        line["refusals"] = [
            {
                "code": refusal.code,
                "subject": refusal.subject,
                "text": refusal.text,
                "hint": refusal.hint,
                "commands": commands_in(refusal.hint.split("\n")),
            }
            for refusal in refusals
        ]
    return _line(line)


def _line(value: Value) -> str:
    return dumps(value) + "\n"


# Progress of a move: a bar on a terminal, occasional lines elsewhere, JSON for programs.

Clock = Callable[[], float]
"""Returns seconds since an arbitrary moment."""

OnEvent = Callable[[Event], None]
_Show = Callable[[str], None]

LINES_OF_PROGRESS = 20
"""Number of progress lines, evenly spread over the bytes, on a stream that cannot be redrawn."""


class Pace:
    """The rate of a change and the remaining time, which do not jump: bytes that arrive in bursts, a short
    pause or a first measurement change them little.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: tuple[float, int] | None = None
        self._seconds = self._bytes = 0.0  # older ones count less
        self._end: float | None = None  # when the change will end, by the clock
        self.event: Progress | None = None  # the last one

    @property
    def rate(self) -> float | None:
        """Return bytes per second, or None until enough is measured."""
        known = self._seconds >= _LEAST_S and self._bytes > 0
        return self._bytes / self._seconds if known else None

    def note(self, event: Progress) -> float | None:
        """Return the seconds left, or None until enough is measured."""
        now = self._clock()
        self.event = event
        if self._last is None or event.done < self._last[1]:  # the first event, or another member of an array
            self._last = (now, event.done)
            self._seconds = 0.0
            self._bytes = 0.0
            self._end = None
            return None
        elapsed = now - self._last[0]
        copied = event.done - self._last[1]
        self._last = (now, event.done)
        kept = exp(-elapsed / _MEMORY_S)
        self._seconds = self._seconds * kept + elapsed
        self._bytes = self._bytes * kept + copied
        rate = self.rate
        if rate is None:
            return None
        left = (event.total - event.done) / rate
        before = now + left if self._end is None else self._end
        # The nearer the end, the faster a wrong estimate is corrected, but never at once.
        share = min(elapsed / min(_SETTLING_S, max(left / 4, 1.0)), _MOST_CORRECTED)
        self._end = max(before + (now + left - before) * share, now)
        return self._end - now

    def words(self, event: Progress) -> str:
        """Return "12MiB of 400MiB, 48.5MiB/s, 8 s left", with rate and time as soon as they are known: the
        rest takes that time at this rate.
        """
        left = self.note(event)
        text = f"{format_about(event.done)} of {format_about(event.total)}"
        if left is None or self.rate is None:
            return text
        if event.done == event.total or left < 1:
            return f"{text}, {format_about(int(self.rate))}/s"
        rate = int((event.total - event.done) / left)
        return _with_time_left(f"{text}, {format_about(rate)}/s", left)


_LEAST_S = 2.0  # a rate of a shorter time says nothing: the first blocks go into a cache
_MEMORY_S = 30.0
_SETTLING_S = 10.0
_MOST_CORRECTED = 0.2


@contextmanager
def progress_json(plan: Plan, stream: TextIO) -> Iterator[OnEvent]:
    stream.write(plan_event_json(plan))
    stream.flush()

    def report(event: Event) -> None:
        stream.write(event_json(plan, event))
        stream.flush()

    yield report


@contextmanager
def progress_lines(plan: Plan, stream: TextIO, clock: Clock, *, back: bool = False) -> Iterator[OnEvent]:
    """Write a line for each step, and one for each completed twentieth of the bytes. `back`: the plan is
    undone.
    """
    last_part = 0

    def write(text: str) -> None:
        stream.write(f"{fitted(text, stream)}\n")
        stream.flush()

    def show_copied(event: Progress, words: str) -> None:
        nonlocal last_part
        part = event.done * LINES_OF_PROGRESS // max(event.total, 1)
        if part != last_part:
            last_part = part
            write(f"  {words}")

    yield _event_reporter(plan, clock, write, show_copied, lambda words: None, back=back)


@contextmanager
def progress_bar(plan: Plan, stream: TextIO, clock: Clock, *, back: bool = False) -> Iterator[OnEvent]:
    """Draw one bar for all bytes of the plan; steps and messages scroll above it. `back`: the plan is
    undone.
    """
    from rich.text import Text

    with bar_with_text(stream) as bar:
        task = bar.add_task("", total=None, words="")

        def show_copied(event: Progress, words: str) -> None:
            bar.update(task, completed=event.done, total=event.total, words=words)

        def show_waiting(words: str) -> None:
            bar.update(task, words=words)

        def write(text: str) -> None:
            for line in wrapped(text, bar.console.width, "    "):
                bar.console.print(Text(line), soft_wrap=True)

        yield _event_reporter(plan, clock, write, show_copied, show_waiting, back=back)


def _event_reporter(
    plan: Plan,
    clock: Clock,
    write: _Show,
    show_copied: Callable[[Progress, str], None],
    show_waiting: _Show,
    *,
    back: bool,
) -> OnEvent:
    title_of = undo_title if back else step_title
    pace = Pace(clock)
    where = "at the old place: " if back and isinstance(plan, MovePlan) else ""
    reported_s = 0  # seconds without a response, as last reported

    def report(event: Event) -> None:
        nonlocal reported_s
        match event:
            case StepBegun():
                index = event.index
                title = "step"
                if 0 <= index < len(plan.steps):
                    title = place_words(plan, plan.steps[index]) + title_of(plan.steps[index])
                place = f"{index + 1}/{len(plan.steps)}"
                if back:
                    place = f"{len(_remaining_steps(plan, index, back=True))} left: step {index + 1},"
                write(f"{place} {harmless(title)}")
            case Said():
                write(f"  {harmless(event.text)}")
            case Progress():
                show_copied(event, f"{where}{pace.words(event)}")
            case Waiting():
                if not reported_s <= event.seconds < 2 * reported_s:  # report at doubling intervals
                    reported_s = event.seconds
                    for words in waiting_words(event):
                        write(f"  {harmless(words)}")
                show_waiting(harmless(f"no response for {event.seconds} s"))

    return report


# A partition table in a few lines, shown before another one overwrites it.


def table_lines(title: str, partitions: Sequence[Partition]) -> Iterator[Line]:
    yield ((f"{title}:", Style.TITLE),)
    if not partitions:
        yield plain("  no partitions")
    for part in partitions:
        what = part.name or part.type_name or part.type_code
        yield plain(f"  {part.number}: bytes {part.extent.start} to {part.extent.end - 1}, {what}")


# The result of a plan: the partitions that changed, as they are in the table on the disk now.


def result_lines(plan: Plan, judged: Judged, *, back: bool, width: int) -> Iterator[Line]:
    """Yield the state of each partition that moved, or after a rollback (`back`) is where it was, and what is
    shorter than before.
    """
    if back:
        yield plain("The table and the content are where they were before.")
    yield from _place_lines(plan, judged)
    if not back:
        yield from _parted_lines(plan, judged, width)
    shorter = what_stays_shrunk(plan, ended=True, back=back)
    if shorter:
        yield from paragraph(shorter, width)


def _place_lines(plan: Plan, judged: Judged) -> Iterator[Line]:
    parts = {partition.number: partition for partition in judged.disk.partitions}
    verdicts = judged.by_partition()
    for place in plan.places:
        if place.before == place.after:
            continue
        part = parts.get(place.number)
        if not parts and judged.disk.content:
            yield (
                ("the whole disk, without a partition table: ", Style.PLAIN),
                *verdict_words(verdicts.get(None)),
            )
            continue
        if part is None:
            yield ((f"partition {place.number} is not in the table", Style.BAD),)
            continue
        start = part.extent.start
        sector_size = judged.disk.sector_size
        words = f"partition {place.number}: sector {sector_words(start, sector_size)} ({format_size(start)})"
        if place.number not in verdicts:  # an extended partition is not judged
            yield ((words, Style.PLAIN),)
            continue
        missed = [check for _, check in clusters_off(judged, part, start)]
        inside = f"; clusters {past_words(missed[0].off_by, missed[0].grid.size)}" if missed else ""
        verdict = verdict_words(verdicts.get(place.number))
        starts = ("its start is ", Style.PLAIN) if missed else ("", Style.PLAIN)
        yield ((f"{words}, ", Style.PLAIN), starts, *verdict, (inside, Style.DOUBT))


def _parted_lines(plan: Plan, judged: Judged, width: int) -> Iterator[Line]:
    """Yield which boundary was reached where a start is on no multiple of 1 MiB, which parted expects, and
    how to check it with another tool.
    """
    disk = judged.disk
    moved = {place.number: place.after.start for place in plan.places if place.before != place.after}
    verdicts = judged.by_partition()
    found = [number for number, start in moved.items() if start % MIB and number in verdicts]
    checks = [verdicts[number].checks for number in found if verdicts[number].answer is Answer.ON]
    # that of a start is the largest boundary, that of all starts the smallest
    reached = [
        max((check.grid.size for check in each if check.on and not check.grid.phase), default=0)
        for each in checks
    ]
    if not any(reached):
        return
    size = min(filter(None, reached))
    yield from paragraph(
        f"On multiples of {format_size(size)}, not of 1MiB, which `parted align-check opt` expects by"
        " default: it reports such a start as not aligned.",
        width,
    )
    numbers = f"start × {disk.sector_size} is a multiple of {size}"
    yield from paragraph(f"To check it: {look_at_table(disk, 'sfdisk --dump')}; {numbers}", width)


# The state of a disk after an interruption: nothing in flight, in flight, an unfinished array.


_STATES = {
    "old": ("nothing is in flight", Style.GOOD),
    "in-flight": ("in flight: do not mount, repair or partition this disk", Style.BAD),
    "unfinished": ("unfinished", Style.BAD),
}


def status_lines(disk: str, found: Status, *, width: int, type_next: Sequence[str] = ()) -> Iterator[Line]:
    """Yield the state of a disk or an array. `type_next`: the commands to offer next."""
    words, style = _STATES.get(found.state, (found.state, Style.DOUBT))
    if found.complete:
        words = "complete, but its journal is still open"
        style = Style.DOUBT
    elif not found.begun:
        words = "prepared but not begun, and its journal is still open"
        style = Style.DOUBT
    yield from stacked(((f"{disk}: ", Style.TITLE), (words, style)), width)
    plan = found.plan
    if found.state in ("in-flight", "unfinished") and plan is not None:
        yield plain(f"  goal: {plan.goal}")
        if 0 <= found.step < len(plan.steps):
            title_of, way = (step_title, "next") if found.forward else (undo_title, "next of the rollback")
            left = len(_remaining_steps(plan, found.step, back=True))
            still = "" if found.forward else f" ({counted(left, 'step')} left)"
            step = f"step {found.step + 1} of {len(plan.steps)}{still}"
            title = place_words(plan, plan.steps[found.step]) + title_of(plan.steps[found.step])
            yield from paragraph(f"  {way}: {step}, {title}", width)
    if found.state == "in-flight" and plan is not None and found.total:
        place = "at their new place" if found.forward else "at their old place again"
        moved = found.done if found.forward else found.total - found.done
        yield from paragraph(f"  {place}: {size_words(moved)} of {size_words(found.total)}", width)
    told = _status_sentences(found)
    if plan is None and found.state != "in-flight":
        told = found.sentences[1:] if found.is_marked else ()
    for sentence in told:
        yield from paragraph(f"  - {sentence}", width)
    yield from command_lines(
        type_next, width, () if plan is None else about_ways(type_next, plan, Left.of(found))
    )


def _status_sentences(found: Status) -> tuple[str, ...]:
    """Return the sentences of a status, with what a rollback does not undo as long as one is possible."""
    shorter = "" if found.plan is None or found.complete else what_stays_shrunk(found.plan)
    return (*found.sentences, shorter) if shorter else found.sentences


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a change that stopped part-way."""

    step: int  # index of the next one
    moved: int  # bytes at their new place
    total: int  # 0: the change copies nothing
    rate: float | None = None  # bytes per second, if it was measured
    begun: bool = True  # False: nothing was moved

    @classmethod
    def of(cls, found: Status) -> "Left":
        return cls(found.step, found.done, found.total, begun=found.begun)


def about_ways(commands: Sequence[str], plan: Plan, left: Left) -> list[str]:
    """Return what each of the commands does, and what is left of it: "finishes the move: 8 steps, 24MiB,
    about 5 s".
    """
    what = "move" if isinstance(plan, MovePlan) and not plan.conversion else "change"
    old = "places" if what_stays_shrunk(plan) else "state"
    words = {
        "resume": f"finishes the {what}: {_amount(plan, left, left.total - left.moved, back=False)}",
        "rollback": f"restores the old {old}: {_amount(plan, left, left.moved, back=True)}",
    }
    if not left.begun:
        words = dict.fromkeys(words, "closes the journal: nothing was moved yet")
    elif isinstance(plan.steps[left.step], CloseJournal):
        words["resume"] = "closes the journal: everything is at its new place"
        words["rollback"] = "no longer possible: everything is at its new place"
    elif isinstance(plan, MovePlan) and plan.commit_at < left.step:
        words["rollback"] = "no longer possible: everything is at its new place"
    elif isinstance(plan, ArrayPlan) and plan.changes_layers:
        words["rollback"] = "restores the old state, if nothing is encrypted yet"
    return [
        next((text for way, text in words.items() if f"aligntool {way} " in f"{line} "), "")
        for line in commands
    ]


def _amount(plan: Plan, left: Left, size: int, *, back: bool) -> str:
    """Return the steps and bytes that are left in one direction, and the time if it can be estimated."""
    text = f"{counted(len(_remaining_steps(plan, left.step, back=back)), 'step')}"
    if not size:
        return text
    rate = left.rate
    planned = plan.estimate
    if rate is None and planned and planned.seconds:
        rate = planned.bytes_to_copy / planned.seconds
    return f"{text}, {format_about(size)}{f', about {time_words(round(size / rate))}' if rate else ''}"


def _remaining_steps(plan: Plan, step: int, *, back: bool) -> range:
    """Return the indices of the steps that a resume or a rollback will run, in order."""
    first = next((number + 1 for number, _ in plan.numbered(WriteJournal)), 0)
    last = len(plan.steps)
    return range(min(step, last - 1), first - 1, -1) if back else range(step, last)


def remaining_step_lines(found: Status, *, back: bool, width: int) -> Iterator[Line]:
    """Yield the steps that a resume or a rollback will run, in order, numbered as in the plan; none if the
    move was not begun, or if it is complete and cannot be undone.
    """
    plan = found.plan
    if plan is None or not found.begun or (back and found.complete):
        return
    numbers = _remaining_steps(plan, found.step, back=back)
    yield plain(f"  {counted(len(numbers), 'step')} to {'undo' if back else 'take'}:")
    title_of = undo_title if back else step_title
    for number in numbers:
        title = place_words(plan, plan.steps[number]) + title_of(plan.steps[number])
        yield from paragraph(f"  {number + 1:3}. {title}", width, "       ")


def status_json(disk: str | None, found: Status, *, type_next: Sequence[str] = ()) -> str:
    """Return the status as JSON. `disk` None: no array is unfinished. `done` and `total` are null for an
    array.
    """
    plan = found.plan
    step = plan.steps[found.step] if plan and 0 <= found.step < len(plan.steps) else None
    moves = plan is not None and found.state != "unfinished"
    document: Value = {
        "schema": "aligntool.status",
        "version": 1,
        "disk": disk,
        "state": found.state,
        "goal": plan.goal if plan else None,
        "direction": ("forward" if found.forward else "back") if plan else None,
        "step": step_name(step) if step else None,
        "partition": partition_of(step) if step else None,
        "index": found.step if step else None,
        "number": found.step + 1 if step else None,
        "steps": len(plan.steps) if plan else None,
        "done": found.done if moves else None,
        "total": found.total if moves else None,
        "sentences": list(_status_sentences(found)),
        "next": list(type_next),
        "commands": commands_in(type_next),
    }
    return _line(document)
