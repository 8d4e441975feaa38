"""`aligntool probe`, and what every measurement shares: targets, signals, files of results."""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from types import FrameType
from typing import Annotated

import typer

from aligntool.audit.wording import shell_word, unread_between
from aligntool.change import Progress
from aligntool.cli import options
from aligntool.cli.options import command, integer, print_lines, remark, say, sector, terminal_width
from aligntool.cli.run_change import pipes_may_break
from aligntool.errors import ExitCode, Killed, Refused, Stopped, failing_as
from aligntool.inventory import Disk
from aligntool.linux.child_process import run_in_child
from aligntool.linux.lock import inhibit_sleep, lock_disk
from aligntool.linux.look import look
from aligntool.linux.outputs import make_folder
from aligntool.linux.signals import STOPPING
from aligntool.linux.targets import UserLimits, hold_targets
from aligntool.measure import targets, timing, unit_design
from aligntool.measure.results import room_words
from aligntool.measure.run import keep_result, save_to_history
from aligntool.measure.schedule import Target, TargetKind, refuse_destruction
from aligntool.measure.unit import ProbedDisk, ProbeResult, infer
from aligntool.mover.unfinished_change import refuse_in_flight
from aligntool.realign.preconditions import find_holders
from aligntool.render.experiments import probe_json, probe_lines
from aligntool.render.lines import can_redraw, plain
from aligntool.render.progress import Pace, bench_progress_bar, bench_progress_lines
from aligntool.units import GIB, MIB, format_size, time_words

# Before a measurement: refuse targets that must not be written to, or have no room.


def refuse_unless_device(target: Target) -> None:
    """Raise Refused if --destructive is given for anything but a device."""
    if target.kind is not TargetKind.DEVICE:
        hint = "in a folder, writes are always measured, in a temporary file"
        raise Refused(f"--destructive is for devices, but {target.named} is a {target.kind}", hint=hint)


def refuse_no_room(target: Target, size: int, option: str = "--size") -> None:
    """Raise Refused if a file of `size` bytes does not fit."""
    if target.free is not None and (words := room_words(size, target.free)):
        raise Refused(f"not enough free space in {target.path}: {words}", hint=f"use a smaller {option}")


def refuse_data(target: Target, *, again: bool = False) -> None:
    """Raise Refused unless the device is empty, or its unrecognised data may be lost. `again`: the user has
    confirmed it, and has been told what of it was not read.
    """
    disk = look((target.path,)).disks[0]
    disk = replace(disk, sampled=targets.foreign_data(target.path, target.size or 0))
    refuse_in_flight(disk.path)
    name = Path(target.path).resolve().name
    if name == disk.name.rpartition("/")[2]:
        refuse_destruction(disk, None, wipe=target.wipe, above=find_holders(disk))
    else:
        part = next((part for part in disk.partitions if (part.node or "").rpartition("/")[2] == name), None)
        if part is None:
            raise Refused(f"{target.path} is a part of {disk.path}, but is not in its partition table")
        refuse_destruction(disk, part, wipe=target.wipe, above=find_holders(disk))
    if not again and (unread := unread_between(disk)):
        remark(f"{target.path}: {unread}")


# Around every measurement: progress, signals, saved results; for `bench`, `probe` and `trace record`.


def bench_progress(
    *, still: bool = False
) -> AbstractContextManager[Callable[[str, float, float | None], None]]:
    """Return a context that shows progress. `still`: redraw only when progress is reported."""
    on_terminal = can_redraw(sys.stderr, os.environ)
    return bench_progress_bar(sys.stderr, still=still) if on_terminal else bench_progress_lines(sys.stderr)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let a closed terminal and `kill` end a measurement as Ctrl-C does: fio ends, and the file is removed.
    The file is also removed if standard error is closed.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # ignored under nohup
    caught = (each for each in STOPPING[1:] if signal.getsignal(each) != signal.SIG_IGN)
    before = {each: signal.signal(each, stop) for each in caught}
    try:
        with pipes_may_break():
            yield
    except BrokenPipeError:  # everything is cleaned up by now
        signal.raise_signal(signal.SIGPIPE)
        raise
    finally:
        for each, action in before.items():
            signal.signal(each, action)


def no_result_error(device: str, why: str = "") -> Stopped:
    """Return the error of a measurement with writes that ended without a result."""
    text = f"there is no result, and parts of {device} may have been overwritten{f': {why}' if why else ''}"
    return Stopped(text, hint="")


def fio_keeper(folder: str | None) -> Callable[[str, int, str], None]:
    """Return a function that saves fio's output of each run in a folder. Raises Refused if it cannot be
    created.
    """
    if folder is None:
        return lambda title, number, text: None

    with failing_as(Refused, f"{folder} cannot be created"):
        make_folder(Path(folder))

    def keep(title: str, number: int, text: str) -> None:
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", title)
        keep_result(str(Path(folder, f"{plain}-{number}.json")), text)

    return keep


def save_in_history(when: str, name: str, text: str) -> None:
    """Save a result in the history. A failure is reported, and is not an error."""
    folder = targets.history_folder(dict(os.environ), root=os.geteuid() == 0)
    try:
        remark(f"saved as {save_to_history(folder, when, name, text)}")
    except Refused as refusal:
        remark(f"not saved in the history: {refusal}")


def identity(disk: Disk) -> ProbedDisk:
    return ProbedDisk(
        name=Path(disk.path).name,
        path=str(Path(disk.path).absolute()),
        size=disk.size or 0,
        model=disk.model,
        serial=disk.serial,
        wwn=disk.wwn,
        firmware=disk.firmware,
    )


@dataclass(frozen=True, slots=True)
class ProbeFile(options.ResultFile):
    """Where the result is written."""

    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Save the result, for `audit --measured FILE`; - is standard output.",
        ),
    ] = None


def probe(
    target: Annotated[
        str,
        typer.Argument(
            parser=options.path,
            metavar="TARGET",
            help="A disk or image file, which is only read; or a folder, for a temporary file.",
        ),
    ],
    *,
    destructive: Annotated[
        bool, typer.Option("--destructive", help="Also write to the disk itself, which must be empty.")
    ] = False,
    wipe: options.WipeDataOption = None,
    yes: options.YesOption = False,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            parser=integer(1, 86400),
            metavar="SECONDS",
            help="Time requests for at most this long.",
        ),
    ] = 120,
    most: Annotated[
        int | None,
        typer.Option(
            "--most",
            metavar="SIZE",
            parser=options.size,
            help="Read and write at most this much; one round must fit [default: 1GiB].",
        ),
    ] = None,
    file_size: Annotated[
        int | None,
        typer.Option(
            "--size",
            metavar="SIZE",
            parser=options.size,
            help="Size of the file in a folder [default: 512MiB].",
        ),
    ] = None,
    largest: Annotated[
        int | None,
        typer.Option(
            "--largest",
            metavar="SIZE",
            parser=options.size,
            help="The largest unit to look for [default: 8MiB].",
        ),
    ] = None,
    sector_size: Annotated[
        int | None,
        typer.Option("--sector-size", parser=sector, metavar="SIZE", help="The smallest request to time."),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", parser=integer(0), metavar="N", help="Seed for the random offsets and their order."
        ),
    ] = 1,
    kept: ProbeFile,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the penalty of every size.")] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print JSON; sizes are in bytes, times in µs.")
    ] = False,
) -> None:
    """Find the internal unit of a drive by timing requests.

    A unit that cannot be found is reported as unknown.

    Existing data are only read. Writes go to a temporary file in a folder, or to an empty disk with
    --destructive.

    Example: sudo aligntool probe /dev/nvme0n1 -o measured.json

    Exit code: 0 measured, even if the unit is unknown; 3 refused; 4 ended early after a disk was written to;
    130 interrupted before that.
    """
    kept.refuse(inputs=(target,))
    may_wipe = options.may_wipe_data(target, wipe, destructive=destructive)
    settings = _Settings(limit, most or GIB, largest or 8 * MIB, sector_size, seed)
    if os.path.isdir(target):  # noqa: PTH112 - Path.is_dir fails without permission
        if destructive:
            raise typer.BadParameter(
                "--destructive is for disks; in a folder, only the temporary file is written"
            )
        job = partial(_in_folder, target, file_size or GIB // 2, settings)
    else:
        hold_targets((target,))
        disk = _look(target, settings.sector_size)
        if destructive:
            _confirm(target, disk, wipe=may_wipe, yes=yes)
        job = partial(_on_disk, disk, settings, destructive, may_wipe)
    began: dict[str, float] = {}
    try:
        with (
            ended_by_signals(),
            _awake(disk.path) if destructive else nullcontext(),
            _progress(began) as report,
        ):
            result = run_in_child(job, target, report, remark)
    except (KeyboardInterrupt, Killed) as end:
        if destructive and began:
            raise no_result_error(disk.path, str(end)) from end
        raise
    _report(result, kept, verbose=verbose, json_=json_ or kept.piped)
    if result.interrupted:
        raise typer.Exit(ExitCode.STOPPED if destructive and result.written else ExitCode.INTERRUPTED)


class _Settings:
    """Options that apply to a disk and to a folder."""

    def __init__(self, limit_s: int, most: int, largest: int, sector_size: int | None, seed: int) -> None:
        self.limit_s = limit_s
        self.most = most
        self.largest = largest
        self.sector_size = sector_size
        self.seed = seed
        self.rng = Random(seed)  # the same seed, the same experiment


_PARTS = 1_000_000  # of an activity whose progress is a share

Report = Callable[..., None]
"""Reports progress from the child: as `timing.Tell`, with the activity as first argument."""


def _on_disk(disk: Disk, settings: _Settings, destructive: bool, wipe: bool, report: Report) -> ProbeResult:
    """Measure a disk, in the child. It is locked and checked only if it is written to."""
    with (
        lock_disk(disk.path, keep_posix=True, no_lease=True) if destructive else nullcontext(),
        ExitStack() as stack,
    ):
        if destructive:
            _refuse_unless_empty(_look(disk.path, None), wipe=wipe, again=True)
            stack.enter_context(targets.recorded_test_data(disk.path, disk.size or 0, remark))
        with timing.opened_disk(disk.path, write=destructive) as target:
            least = settings.sector_size or disk.limits.logical_block_size or 512
            smallest = timing.smallest_request(target.reading, least)
            places = unit_design.windows(disk.size or 0)
            shares = (
                tuple(0.0 for _ in places) if destructive else timing.written_shares(target, places, smallest)
            )
            parts = unit_design.regions_with_most_data(places, shares)
            return _run(disk, target, parts, smallest, settings, report)


def _in_folder(folder: str, file_size: int, settings: _Settings, report: Report) -> ProbeResult:
    """Measure a temporary file in a folder, in the child."""
    with timing.made_file(folder, file_size, partial(report, "filling")) as made:
        disk = _look(made.disk, settings.sector_size)
        least = settings.sector_size or disk.limits.logical_block_size or 512
        smallest = timing.smallest_request(made.target.reading, least)
        return _run(disk, made.target, unit_design.regions_among(made.extents), smallest, settings, report)


def _look(path: str, sector_size: int | None) -> Disk:
    disk = look((path,), given=UserLimits(sector_size=sector_size), known=False).disks[0]
    if not disk.size:
        raise Refused(f"{disk.name}: size unknown")
    return disk


def _confirm(named: str, disk: Disk, *, wipe: bool, yes: bool) -> None:
    """Have the user confirm the disk that is written to. Raises Refused."""
    _refuse_unless_empty(disk, wipe=wipe)
    lost = plain("  lost: small parts all over it, which are overwritten and not restored")
    options.confirm(named, options.target_lines(disk.path, [lost]), yes=yes)


def _refuse_unless_empty(disk: Disk, *, wipe: bool, again: bool = False) -> None:
    """Raise Refused, as for a benchmark, for a disk that has a table, a file system, a signature or
    unrecognised data, that fails, is in use, or could not be looked at.
    """
    try:
        sampled = replace(disk, sampled=targets.foreign_data(disk.path, disk.size or 0))
        refuse_destruction(sampled, None, wipe=wipe, above=find_holders(disk))
        if not again and (unread := unread_between(sampled)):
            remark(f"{disk.path}: {unread}")
    except Refused as refusal:
        only = f"without --destructive it is only read: {command('probe', disk.path)}"
        refusal.hint = f"{refusal.hint}\n{only}".strip()
        raise


def _run(
    disk: Disk,
    target: timing.Target,
    parts: unit_design.Regions,
    smallest: int,
    settings: _Settings,
    report: Report,
) -> ProbeResult:
    least = smallest << unit_design.LEAST_LEVELS - 1
    if settings.largest < least:
        text = (
            f"no unit up to {format_size(settings.largest)} can be found by requests from"
            f" {format_size(smallest)} on"
        )
        raise Refused(text, hint=f"--largest {format_size(least)}")
    if len(unit_design.levels(smallest, parts, settings.largest)) < unit_design.LEAST_LEVELS:
        text = f"not enough space to find a unit: two regions of {format_size(parts[1].length)}"
        raise Refused(text, hint="use a larger --size, or a larger disk")
    kinds = tuple(unit_design.Kind) if target.writing is not None else (unit_design.Kind.READ,)
    rounds = unit_design.design(parts, smallest, kinds, settings.rng, most=settings.largest)
    report_round = partial(report, f"timing for at most {time_words(settings.limit_s)}")
    timed = timing.time_rounds(
        rounds, target, limit_s=settings.limit_s, most_bytes=settings.most, tell=report_round
    )
    if not timed.rounds:
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from here on, SIGTERM must not lose the measurement
    inference = infer(timed.samples, settings.rng)
    return ProbeResult(
        disk=identity(disk),
        inference=inference,
        sector=smallest,
        regions=parts,
        rounds=timed.rounds,
        read=timed.read,
        written=timed.written,
        zeros=timed.zeros,
        elapsed_s=timed.elapsed_s,
        seed=settings.seed,
        interrupted=timed.interrupted,
        file=target.path if target.place else None,
    )


@contextmanager
def _awake(disk: str) -> Iterator[None]:
    """Inhibit sleep in this process, not in the child, where the inhibiting program would count as part of
    its work.
    """
    with inhibit_sleep(f"timing writes: {disk}") if Path(disk).is_block_device() else nullcontext("") as note:
        if note:
            remark(note)
        yield


@contextmanager
def _progress(began: dict[str, float]) -> Iterator[Callable[[str, float], None]]:
    """Yield a benchmark's progress bar. It is redrawn only on request, between two rounds: a thread that
    redraws would also be timed. `began`: gets the time at which each activity was first reported.
    """
    pace = Pace(monotonic)
    with bench_progress(still=True) as bar:

        def report(activity: str, share: float) -> None:
            began.setdefault(activity, monotonic())
            bar(activity, share, pace.note(Progress(0, round(share * _PARTS), _PARTS)))

        yield report


def _report(result: ProbeResult, kept: options.ResultFile, *, verbose: bool, json_: bool) -> None:
    print_lines(probe_json(result) if json_ else probe_lines(result, width=terminal_width(), verbose=verbose))
    if kept.file is None:
        return

    sys.stdout.flush()
    kept.write(probe_json(result))
    if result.inference.boundaries:
        say(command("audit", result.disk.path, "--measured", shell_word(kept.file)))
