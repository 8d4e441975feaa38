"""How far a benchmark is: a bar on a terminal, a line for each run elsewhere.

In: what is being done, its share, seconds left. Out: text on a stream. Alone because it is redrawn while fio runs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from aligntool.render.bar import words_bar
from aligntool.render.lines import harmless
from aligntool.render.plan import time_words

Tell = Callable[[str, float, float | None], None]


@contextmanager
def bench_lines(stream: TextIO) -> Iterator[Tell]:
    """A line whenever another run begins."""
    said = ""

    def tell(text: str, share: float, left_s: float | None) -> None:
        nonlocal said
        if text != said:
            said = text
            stream.write(f"  {harmless(_words(text, left_s))}\n")
            stream.flush()

    yield tell


@contextmanager
def bench_bar(stream: TextIO, *, still: bool = False) -> Iterator[Tell]:
    """`still`: no thread redraws it; it changes only when it is told something."""
    with words_bar(stream, transient=True, still=still) as bar:
        task = bar.add_task("", total=1.0, words="")

        def tell(text: str, share: float, left_s: float | None) -> None:
            bar.update(task, completed=share, words=harmless(_words(text, left_s)), refresh=still)

        yield tell


def _words(text: str, left_s: float | None) -> str:
    return text if left_s is None or round(left_s) < 1 else f"{text}, {time_words(round(left_s))} left"
