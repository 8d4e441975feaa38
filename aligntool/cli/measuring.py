"""Around every measurement: where its result is kept, what is shown meanwhile, and how it is ended.

In: what the user asked for. Out: a result that has a place, or Refused before anything is measured. Alone because
`bench`, `probe` and `trace record` share it.
"""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from aligntool.errors import Refused

if TYPE_CHECKING:
    from types import FrameType

    from aligntool.bench.inference_file import Probed
    from aligntool.inventory import Disk


def refuse_to_overwrite(output: str | None) -> None:
    """Also where it could not be kept at all: said before anything is measured. Raises Refused."""
    from aligntool.audit.words import shell_word

    if output is None:
        return
    folder = os.path.dirname(output) or "."  # noqa: PTH120 - the user's own spelling
    if os.path.isdir(output):  # noqa: PTH112
        raise Refused(f"{output} is a folder; nothing was measured", hint="-o with the name of a file")
    if os.path.lexists(output):
        raise Refused(
            f"{output} is there already; nothing was measured",
            hint=f"another name for -o, or rm {shell_word(output)}",
        )
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):  # noqa: PTH112
        why = "may not be written to" if os.path.isdir(folder) else "is no folder"  # noqa: PTH112
        raise Refused(f"{folder} {why}, so {output} cannot be kept; nothing was measured")


def bench_progress(
    *, still: bool = False
) -> "AbstractContextManager[Callable[[str, float, float | None], None]]":
    """`still`: redrawn only when it is told something."""
    from aligntool.render.bench_progress import bench_bar, bench_lines
    from aligntool.render.lines import wants_color

    on_terminal = wants_color(sys.stderr, dict(os.environ))
    return bench_bar(sys.stderr, still=still) if on_terminal else bench_lines(sys.stderr)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A closed terminal and `kill` end it as Ctrl-C does: fio with it, and the file goes. It goes, too, where nobody
    reads any more what is told.
    """
    from aligntool.cli.follow import pipes_may_break

    def stop(number: int, frame: "FrameType | None") -> None:
        raise KeyboardInterrupt

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with pipes_may_break():
            yield
    except BrokenPipeError:  # everything is put away by now
        signal.raise_signal(signal.SIGPIPE)
        raise
    finally:
        for each, action in before.items():
            signal.signal(each, action)


def fio_keeper(folder: str | None) -> Callable[[str, int, str], None]:
    """fio's own words, run by run. Raises Refused when the folder cannot be made."""
    if folder is None:
        return lambda title, number, text: None
    from pathlib import Path

    from aligntool.apply.bench_history import keep_result

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{folder} cannot be made: {error.strerror}") from error

    def keep(title: str, number: int, text: str) -> None:
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", title)
        keep_result(str(Path(folder, f"{plain}-{number}.json")), text)

    return keep


def keep_among_results(when: str, name: str, text: str) -> None:
    """In the history. One that cannot be written is said, and no error."""
    from aligntool.apply.bench_history import keep_in_history
    from aligntool.probe.bench_history import history_folder

    folder = history_folder(dict(os.environ), root=os.geteuid() == 0)
    try:
        print(f"kept in {keep_in_history(folder, when, name, text)}", file=sys.stderr)
    except Refused as refusal:
        print(f"not kept in the history: {refusal}", file=sys.stderr)


def identity(disk: "Disk") -> "Probed":
    from pathlib import Path

    from aligntool.bench.inference_file import Probed

    return Probed(
        name=Path(disk.path).name, path=str(Path(disk.path).absolute()), size=disk.size or 0, model=disk.model,
        serial=disk.serial, wwn=disk.wwn, firmware=disk.firmware,
    )  # fmt: skip
