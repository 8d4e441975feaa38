"""Targets of measurements: a file that is made, or a device; signals; files of results."""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType

from aligntool.audit.wording import shell_word
from aligntool.cli.plan import refuse_in_flight
from aligntool.cli.run_change import pipes_may_break
from aligntool.errors import Refused
from aligntool.inventory import Disk
from aligntool.linux.look import look
from aligntool.measure.results import room_words
from aligntool.measure.run import keep_in_history, keep_result
from aligntool.measure.schedule import Target, TargetKind, refuse_destruction
from aligntool.measure.targets import history_folder
from aligntool.measure.unit import Probed
from aligntool.render.lines import wants_color
from aligntool.render.progress import bench_bar, bench_lines

# Before a measurement: what must not be written to, and what has no room.


def refuse_unless_device(target: Target) -> None:
    """Raise Refused where --destructive is given for anything else."""
    if target.kind is not TargetKind.DEVICE:
        raise Refused(
            f"--destructive is for devices, and {target.named} is a {target.kind}",
            hint="in a folder writes are measured anyway, in a file of their own",
        )


def refuse_no_room(target: Target, size: int) -> None:
    """Raise Refused where a file of `size` does not fit."""
    words = room_words(size, target.free) if target.free is not None else ""
    if words:
        raise Refused(f"there is too little room in {target.path}: {words}", hint="--size with less")


def refuse_data(target: Target) -> str:
    """The name of the device, which holds nothing. Raises Refused."""
    disk = look((target.path,)).disks[0]
    refuse_in_flight(disk.path)
    name = Path(target.path).resolve().name
    if name == disk.name.rpartition("/")[2]:
        refuse_destruction(disk, None)
    else:
        part = next((part for part in disk.partitions if (part.node or "").rpartition("/")[2] == name), None)
        if part is None:
            raise Refused(f"{target.path} is a part of {disk.path}, and is not in its partition table")
        refuse_destruction(disk, part)
    return name


# Around every measurement: where its result is kept, what is shown meanwhile, and how it is ended.
#
# `bench`, `probe` and `trace record` share it.


def refuse_to_overwrite(output: str | None) -> None:
    """Raise Refused, before anything is measured, where the result could not be kept."""
    if output is None:
        return
    folder = os.path.dirname(output) or "."  # noqa: PTH120 - the user's own spelling
    if os.path.isdir(output):  # noqa: PTH112
        raise Refused(f"{output} is a folder; nothing was measured", hint="-o with the name of a file")
    if os.path.lexists(output):
        raise Refused(
            f"{output} is there already; nothing was measured", hint=f"another name for -o, or rm {shell_word(output)}"
        )
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):  # noqa: PTH112
        why = "may not be written to" if os.path.isdir(folder) else "is not a folder"  # noqa: PTH112
        raise Refused(f"{folder} {why}, so {output} cannot be kept; nothing was measured")


def bench_progress(*, still: bool = False) -> AbstractContextManager[Callable[[str, float, float | None], None]]:
    """`still`: redrawn only when progress is reported."""
    on_terminal = wants_color(sys.stderr, dict(os.environ))
    return bench_bar(sys.stderr, still=still) if on_terminal else bench_lines(sys.stderr)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A closed terminal and `kill` end it as Ctrl-C does: fio with it, and the file goes. It goes, too, where
    standard error is closed.
    """

    def stop(number: int, frame: FrameType | None) -> None:
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

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{folder} cannot be made: {error.strerror}") from error

    def keep(title: str, number: int, text: str) -> None:
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", title)
        keep_result(str(Path(folder, f"{plain}-{number}.json")), text)

    return keep


def keep_among_results(when: str, name: str, text: str) -> None:
    """In the history. One that cannot be written is reported, and not an error."""
    folder = history_folder(dict(os.environ), root=os.geteuid() == 0)
    try:
        print(f"kept in {keep_in_history(folder, when, name, text)}", file=sys.stderr)
    except Refused as refusal:
        print(f"not kept in the history: {refusal}", file=sys.stderr)


def identity(disk: Disk) -> Probed:
    return Probed(
        name=Path(disk.path).name, path=str(Path(disk.path).absolute()), size=disk.size or 0, model=disk.model,
        serial=disk.serial, wwn=disk.wwn, firmware=disk.firmware,
    )  # fmt: skip
