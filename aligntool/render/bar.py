"""A bar with words behind it, redrawn in place on a terminal.

In: a stream. Out: rich's progress, to which a task is added. Alone because a move, a resynchronisation and a benchmark
draw the same bar and differ only in what they say.
"""

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress


def words_bar(stream: TextIO, *, title: str = "", transient: bool = False, still: bool = False) -> "Progress":
    """Its tasks have a field `words`, which is taken literally. `transient`: nothing of it stays when it ends.
    `still`: it is redrawn when a task says so, and not by a thread.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = [BarColumn(bar_width=None), TextColumn("{task.fields[words]}", markup=False)]
    return Progress(
        *([TextColumn(title)] if title else []), *columns,
        console=Console(file=stream, highlight=False), expand=True, transient=transient,
        auto_refresh=not still,
    )  # fmt: skip
