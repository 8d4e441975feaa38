"""Targets of measurements: a file that is made, or a device; signals; files of results."""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from types import FrameType

from aligntool.audit.wording import shell_word
from aligntool.cli.options import command, confirm_disk
from aligntool.cli.plan import refuse_in_flight
from aligntool.cli.run_change import pipes_may_break
from aligntool.errors import Refused
from aligntool.inventory import Disk
from aligntool.linux.look import look
from aligntool.linux.users import disk_of, file_extents
from aligntool.measure.conditions import Conditions, room_words, warnings_of
from aligntool.measure.fio import ENGINE, fill_job
from aligntool.measure.run import FILLING, SweepProgress, fill, held_device, keep_in_history, keep_result, made_file
from aligntool.measure.schedule import Target, TargetKind, refuse_destruction
from aligntool.measure.sweeps import Setting, piece_words
from aligntool.measure.targets import history_folder, look_at_conditions, warmed
from aligntool.measure.unit import Probed
from aligntool.render.lines import harmless, wants_color
from aligntool.render.progress import bench_bar, bench_lines
from aligntool.units import Extent

# What an experiment of `aligntool bench` works on: a file that is made, or something that is there.
#
# Starts and spans count from the disk's first byte, whatever the path is.


@dataclass(frozen=True, slots=True)
class Working:
    """`room`: bytes of the disk; `shift`: the byte of the disk where the file or device begins."""

    path: str
    disk: str  # to be looked at
    size: int  # bytes, of the file or device
    room: Extent
    shift: int
    writes: bool
    seen: Conditions  # before the first run


@contextmanager
def working_on(target: Target, size: int, tell: SweepProgress, *, destructive: bool, yes: bool) -> Iterator[Working]:
    """A folder gets a file of `size`, full of random data. Raises Refused."""
    if not target.direct:
        raise Refused(
            f"{target.named} cannot be had past the page cache, so its rates would be the memory's",
            hint="name a disk, or a folder on a file system with direct I/O",
        )
    if destructive and target.kind is not TargetKind.DEVICE:
        raise Refused(
            f"--destructive is for devices, and {target.named} is a {target.kind}",
            hint="in a folder writes are measured anyway, in a file of their own",
        )
    seen = _look_at_conditions(target, size)
    match target.kind:
        case TargetKind.FOLDER:
            with _file_in(target, size, tell, seen) as working:
                yield working
        case TargetKind.FILE:
            size = target.size or 0
            yield Working(target.path, target.path, size, Extent(0, size), 0, False, seen)
        case TargetKind.DEVICE:
            with _device(target, seen, destructive=destructive, yes=yes) as working:
                yield working


def _look_at_conditions(target: Target, size: int) -> Conditions:
    """Look, and warn of what spoils the measurement."""
    seen = look_at_conditions(target, target.size or size)
    for sentence in warnings_of(seen, direct=target.direct):
        print(f"warning: {harmless(sentence)}", file=sys.stderr)
    return seen


def conditions_after(working: Working, fio_version: str) -> Conditions:
    """For the result: how warm it got, and by which fio."""
    return replace(warmed(working.seen), fio=fio_version)


@contextmanager
def _file_in(target: Target, size: int, tell: SweepProgress, seen: Conditions) -> Iterator[Working]:
    """The longest piece of the file that lies on the disk in one run is worked on."""
    words = room_words(size, target.free) if target.free is not None else ""
    if words:
        raise Refused(f"there is too little room in {target.path}: {words}", hint="--size with less")
    with made_file(target.path, size, name=target.name) as path:
        fill(fill_job(path, size), FILLING, tell)
        with open(path, "rb") as file:  # noqa: PTH123 - a descriptor is wanted
            placed = file_extents(file.fileno(), path)
        longest = max(placed.runs, key=lambda run: run.disk.length)
        shift = longest.disk.start - longest.file_start
        working = Working(path, placed.disk, size, longest.disk, shift, True, seen)
        _say_piece(working)
        yield working


def setting_of(target: Target, working: Working, runtime_s: float, repeats: int) -> Setting:
    kind, piece = target.kind.value, working.room.length
    return Setting(kind, working.size, piece, runtime_s, repeats, target.direct, ENGINE)


def _say_piece(working: Working) -> None:
    setting = Setting("folder", working.size, working.room.length, 0, 0, True, "")
    for sentence in piece_words(setting):
        print(f"warning: {sentence}", file=sys.stderr)


@contextmanager
def _device(target: Target, seen: Conditions, *, destructive: bool, yes: bool) -> Iterator[Working]:
    name, start = disk_of(os.stat(target.path).st_rdev)  # noqa: PTH116 - its number is wanted
    size = target.size or 0
    working = Working(target.path, name, size, Extent(start, size), start, destructive, seen)
    if not destructive:
        yield working
        return

    confirm_disk(target.path, refuse_data(target), "its name", yes)
    with held_device(target.path):
        refuse_data(target)
        yield working


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


def look_at_disk(name: str) -> Disk | None:
    """Return the disk, for the facts beside the figures; None: it could not be looked at."""
    try:
        return look((name,), known=False).disks[0]
    except Refused:
        return None


def identity_of(disk: Disk | None) -> Probed | None:
    """For a reader who asks whether it is the same disk."""
    return identity(disk) if disk else None


# A disk that is overwritten to be measured: only an empty one, and only after its identity was typed.
#
# Measuring is no reason to lose data, so that no option makes it one.


def refuse_unless_empty(disk: Disk) -> None:
    """As for a benchmark. Raises Refused for a disk with a table, a file system or a signature, that fails, is in use,
    or could not be looked at.
    """
    try:
        refuse_destruction(disk, None)
    except Refused as refusal:
        only = f"without --destructive it is only read: {command('probe', disk.path)}"
        refusal.hint = f"{refusal.hint}\n{only}".strip()
        raise


def confirm_given_up(disk: Disk, yes: bool) -> None:
    """Returns when the user typed the serial number, or the name of a disk that has none. Raises Refused."""
    serial = (disk.serial or "").strip()
    word, what = (serial, "the disk's serial number") if serial else (PurePath(disk.path).name, "its name")
    confirm_disk(disk.path, word, what, yes)


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
