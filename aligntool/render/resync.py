"""How far a resynchronisation is: a bar on a terminal, a line now and then elsewhere.

In: bytes done, bytes in all, bytes per second, as the kernel says them. Out: text on a stream. Alone because the kernel
itself knows the rate here, unlike of a move.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from aligntool.render.bar import words_bar
from aligntool.render.plan import time_words
from aligntool.units import format_about

TellResync = Callable[[int | None, int | None, int | None], None]

LINES = 10
"""So many lines over the whole, where nothing can be redrawn."""


def resync_words(done: int | None, total: int | None, rate: int | None) -> str:
    """ "12.3 %, 48.1MiB/s, 8s left"; what the kernel does not say is left out."""
    if done is None or not total:
        return "waiting for its turn"
    words = f"{100 * done / total:.1f} %"
    if rate:
        words += f", {format_about(rate)}/s, {time_words(max(total - done, 0) // rate)} left"
    return words


@contextmanager
def resync_lines(stream: TextIO) -> Iterator[TellResync]:
    """A line whenever a tenth is done."""
    told = -1

    def tell(done: int | None, total: int | None, rate: int | None) -> None:
        nonlocal told
        part = (done or 0) * LINES // (total or 1)
        if part != told:
            told = part
            stream.write(f"resynchronising: {resync_words(done, total, rate)}\n")
            stream.flush()

    yield tell


@contextmanager
def resync_bar(stream: TextIO) -> Iterator[TellResync]:
    """Redrawn in place."""
    with words_bar(stream, title="resynchronising") as bar:
        task = bar.add_task("", total=None, words="")

        def tell(done: int | None, total: int | None, rate: int | None) -> None:
            bar.update(task, completed=done or 0, total=total, words=resync_words(done, total, rate))

        yield tell
