"""How far a move is: a bar on a terminal, a line now and then elsewhere, JSON for programs.

In: events. Out: text on a stream. Alone because it is the only thing that is redrawn. No clock is read here; whoever
has one hands it in, so that rate and time left can be tested.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from aligntool.plan import Event, Plan, Progress, Said, StepBegun, StepDone
from aligntool.render.bar import words_bar
from aligntool.render.events import begin_json, event_json
from aligntool.render.lines import harmless
from aligntool.render.plan import time_words
from aligntool.render.steps import step_title
from aligntool.units import format_about

Clock = Callable[[], float]
"""Seconds since some moment."""

Tell = Callable[[Event], None]

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
def progress_json(plan: Plan, stream: TextIO) -> Iterator[Tell]:
    stream.write(begin_json(plan))
    stream.flush()

    def tell(event: Event) -> None:
        stream.write(event_json(plan, event))
        stream.flush()

    yield tell


@contextmanager
def progress_lines(plan: Plan, stream: TextIO, clock: Clock) -> Iterator[Tell]:
    """A line for each step, and one whenever a twentieth of the bytes is done."""
    pace = Pace(clock)
    told = 0

    def tell(event: Event) -> None:
        nonlocal told
        match event:
            case StepBegun():
                stream.write(f"{_step_words(plan, event.index)}\n")
            case Progress():
                words = pace.words(event)
                part = event.done * LINES_OF_PROGRESS // max(event.total, 1)
                if part != told:
                    told = part
                    stream.write(f"  {words}\n")
            case Said():
                stream.write(f"  {harmless(event.text)}\n")
            case StepDone():
                return
        stream.flush()

    yield tell


@contextmanager
def progress_bar(plan: Plan, stream: TextIO, clock: Clock) -> Iterator[Tell]:
    """One bar for all bytes of the plan; the steps and sentences scroll by above it."""
    from rich.text import Text

    pace = Pace(clock)
    with words_bar(stream) as bar:
        task = bar.add_task("", total=None, words="")

        def tell(event: Event) -> None:
            match event:
                case StepBegun():
                    bar.console.print(Text(_step_words(plan, event.index)), soft_wrap=True)
                case Progress():
                    bar.update(task, completed=event.done, total=event.total, words=pace.words(event))
                case Said():
                    bar.console.print(Text(f"  {harmless(event.text)}"), soft_wrap=True)
                case StepDone():
                    return

        yield tell


def _step_words(plan: Plan, index: int) -> str:
    """ "3/9 park partitions 1, 2 ..."."""
    title = step_title(plan.steps[index]) if 0 <= index < len(plan.steps) else "step"
    return harmless(f"{index + 1}/{len(plan.steps)} {title}")
