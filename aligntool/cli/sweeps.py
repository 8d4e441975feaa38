"""`aligntool bench alignment` and `bench span`."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Annotated, TypeVar

import typer

from aligntool.audit.judge import audit
from aligntool.audit.report import Severity, Wishes
from aligntool.cli import measuring, options
from aligntool.cli.audit import known_of
from aligntool.cli.options import grid, option, print_lines, seconds, size, terminal_width, whole
from aligntool.errors import ExitCode, Refused
from aligntool.inventory import Disk, Inventory
from aligntool.linux.hold import hold_for_others
from aligntool.linux.look import look
from aligntool.linux.users import disk_of, file_extents
from aligntool.measure import alignment
from aligntool.measure.fio import ENGINE, Job, fill_job
from aligntool.measure.results import Conditions, warnings_of
from aligntool.measure.run import FILLING, Keep, Key, Ran, SweepProgress, fill, made_file, run_sweep
from aligntool.measure.schedule import Target, TargetKind
from aligntool.measure.sweeps import Setting, Spans, Starts, piece_words
from aligntool.measure.targets import find_target, look_at_conditions, warmed
from aligntool.render.experiments import alignment_json, alignment_lines, span_json, span_lines
from aligntool.render.lines import Line, harmless
from aligntool.units import GIB, MIB, Extent, format_about

# What both work on: a file that is made, or something that is there.
#
# Starts and spans count from the disk's first byte, whatever the path is.

Result = TypeVar("Result", Starts, Spans)
RuntimeOption = Annotated[float, option("--runtime", "Of each run.", "SECONDS", seconds(0.1, 3600.0))]


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Options of both."""

    span: Annotated[int | None, option("--size", "Of the file that is made in a folder.", "SIZE", size)] = None
    repeats: Annotated[int, option("--repeats", "How often each run is made.", "N", whole(5, 1000))] = 5
    destructive: options.DestructiveOption = False
    yes: options.YesOption = False
    output: Annotated[str | None, option("--output -o", "Keep the result as JSON.", "FILE")] = None
    fio_output: options.FioOutputOption = None
    json_: options.JsonOption = False


@dataclass(frozen=True, slots=True)
class Working:
    """`room`: bytes of the disk; `shift`: the byte of the disk where the file or device begins."""

    target: Target
    path: str
    disk: str  # to be looked at
    size: int  # bytes, of the file or device
    room: Extent
    shift: int
    writes: bool
    seen: Conditions  # before the first run


@dataclass(frozen=True, slots=True)
class Runs:
    """How each run is made, and who hears of it."""

    seconds: float
    repeats: int
    tell: SweepProgress
    keep: Keep


@contextmanager
def _working(target: Target, size: int, runtime_s: float, asked: SweepOptions) -> Iterator[tuple[Working, Runs]]:
    """Make ready for runs, until a signal. Raises Refused."""
    with (
        measuring.ended_by_signals(),
        measuring.bench_progress() as tell,
        _working_on(target, size, tell, asked) as working,
    ):
        yield working, Runs(runtime_s, asked.repeats, tell, measuring.fio_keeper(asked.fio_output))


@contextmanager
def _working_on(target: Target, size: int, tell: SweepProgress, asked: SweepOptions) -> Iterator[Working]:
    """A folder gets a file of `size`, full of random data. Raises Refused."""
    if not target.direct:
        raise Refused(
            f"{target.named} cannot be had past the page cache, so its rates would be the memory's",
            hint="name a disk, or a folder on a file system with direct I/O",
        )
    if asked.destructive:
        measuring.refuse_unless_device(target)
    size = target.size or size
    seen = look_at_conditions(target, size)
    _warn(warnings_of(seen, direct=target.direct))
    match target.kind:
        case TargetKind.FOLDER:
            with _file_in(target, size, tell, seen) as working:
                yield working
        case TargetKind.FILE:
            size = target.size or 0
            yield Working(target, target.path, target.path, size, Extent(0, size), 0, False, seen)
        case TargetKind.DEVICE:
            with _device(target, seen, asked) as working:
                yield working


@contextmanager
def _file_in(target: Target, size: int, tell: SweepProgress, seen: Conditions) -> Iterator[Working]:
    """The longest piece of the file that lies on the disk in one run is worked on."""
    measuring.refuse_no_room(target, size)
    with made_file(target.path, size, name=target.name) as path:
        fill(fill_job(path, size), FILLING, tell)
        with open(path, "rb") as file:  # noqa: PTH123 - a descriptor is wanted
            placed = file_extents(file.fileno(), path)
        longest = max(placed.runs, key=lambda run: run.disk.length)
        shift = longest.disk.start - longest.file_start
        _warn(piece_words(Setting("folder", size, longest.disk.length, 0, 0, True, "")))
        yield Working(target, path, placed.disk, size, longest.disk, shift, True, seen)


@contextmanager
def _device(target: Target, seen: Conditions, asked: SweepOptions) -> Iterator[Working]:
    name, start = disk_of(os.stat(target.path).st_rdev)  # noqa: PTH116 - its number is wanted
    size = target.size or 0
    working = Working(target, target.path, name, size, Extent(start, size), start, asked.destructive, seen)
    if not asked.destructive:
        yield working
        return
    options.confirm_disk(target.path, measuring.refuse_data(target), "its name", asked.yes)
    with hold_for_others(target.path, "a benchmark"):
        measuring.refuse_data(target)
        yield working


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        print(f"warning: {harmless(sentence)}", file=sys.stderr)


def _look_at_disk(name: str) -> Disk | None:
    """Return the disk, for the facts beside the figures; None: it could not be looked at."""
    try:
        return look((name,), known=False).disks[0]
    except Refused:
        return None


def _described(result: Result, working: Working, runs: Runs, swept: Ran[Key], disk: Disk | None) -> Result:
    """Return the result with what it has beside the figures."""
    target, piece = working.target, working.room.length
    return replace(
        result,
        conditions=replace(warmed(working.seen), fio=swept.fio_version),  # how warm it got, and by which fio
        setting=Setting(target.kind.value, working.size, piece, runs.seconds, runs.repeats, target.direct, ENGINE),
        disk=measuring.identity(disk) if disk else None,  # for a reader who asks whether it is the same disk
        complete=swept.complete,
    )


def _report(text: str, lines: Iterator[Line], asked: SweepOptions, when: str, name: str) -> None:
    """Show the result, then keep it in the history and in the file that was asked for: what cannot be kept is not lost.

    Raises Refused.
    """
    print_lines(text if asked.json_ else lines)
    sys.stdout.flush()
    measuring.keep_among_results(when, name, text)
    if asked.output is not None:
        options.keep(asked.output, text)


def _end(swept: Ran[Key], *, wrote: bool) -> None:
    """The exit code of what was measured only in part."""
    if swept.failure is not None:
        raise swept.failure
    if swept.interrupted:
        raise typer.Exit(ExitCode.STOPPED if wrote else ExitCode.INTERRUPTED)


# `aligntool bench alignment`: what a start off the boundary costs on this drive.

StartKey = tuple[alignment.Load, alignment.Place, int]


def bench_alignment(
    target: options.MeasureTargetArgument,
    *,
    unit: Annotated[int | None, option("--unit", "Of the drive; else as the audit has it.", "SIZE", grid)] = None,
    start: Annotated[int | None, option("--start", "Try only this one; sector 63 is 32256.", "SIZE", grid)] = None,
    every: Annotated[
        bool, option("--every", "Try the place of every sector of the unit, not of each eighth: takes long.")
    ] = False,
    depth: Annotated[int, option("--depth", "Requests in flight.", "N", whole(1, 1024))] = 1,
    runtime: RuntimeOption = 1.0,
    asked: SweepOptions,
) -> None:
    """Measure whether the start of a partition matters on this drive.

    The same load is put on sector 63, on 2048 and on every place of a unit.

    Example: aligntool bench alignment /srv --unit 16KiB

    Exit code: 0 measured; 3 refused; 4 fio failed, or it was interrupted, after a device was written to; 130 before.
    """
    if every and start is not None:
        raise typer.BadParameter("--start tries one start, --every all of them: give one of the two")
    measuring.refuse_to_overwrite(asked.output)
    found = find_target(target)
    span = asked.span or 256 * MIB
    if unit is not None:
        alignment.refuse_too_small(found.size or span, unit, found.logical_block, start)
    with _working(found, span, runtime, asked) as (working, runs):
        disk = _look_at_disk(working.disk)
        wide, by = (unit, "--unit") if unit is not None else _unit_of(disk)
        places = alignment.places_of(working.room, wide, found.logical_block, start, every=every)
        swept = _sweep(working, places, depth, runs)
        rates = tuple(alignment.Rate(*run.key, run.iops, run.measured.thread_cpu) for run in swept.runs)
        measured = Starts(options.now(), found.place, wide, by, rates)
        measured = _described(measured, working, runs, swept, disk)
    wrote = working.writes and asked.destructive
    if not measured.rates:
        _end(swept, wrote=wrote)
    rows = measured.rows
    lines = alignment_lines(measured, rows, width=terminal_width())
    _report(alignment_json(measured, rows), lines, asked, measured.when, "alignment")
    _end(swept, wrote=wrote)


def _unit_of(disk: Disk | None) -> tuple[int, str]:
    """The largest boundary of the audit that a partition must be on, up to 512 KiB; 4 KiB where it is unknown."""
    if disk is None:
        return 4096, "assumed"
    inventory = Inventory((disk,))
    report = audit(inventory, known_of(inventory), Wishes())
    grids = [grid for grid in report.judged[0].grids if grid.severity is not Severity.INFO and grid.size < MIB]
    widest = max(grids, key=lambda grid: grid.size)
    return widest.size, f"{widest.kind.value}, {widest.source.value}"


def _sweep(working: Working, places: tuple[alignment.Place, ...], depth: int, runs: Runs) -> Ran[StartKey]:
    loads = alignment.loads_of(writes=working.writes, depth=depth)
    count = runs.repeats * len(places) * len(loads)
    alignment.refuse_too_many(count)
    jobs = (
        ((run.load, run.place, repeat), f"{run.load.title}, {run.place.title}, {repeat + 1} of {runs.repeats}", run.job)
        for repeat in range(runs.repeats)
        for run in alignment.runs_of(places, loads, working.room, working.path, working.shift, runs.seconds, repeat)
    )
    return run_sweep(jobs, count, runs.tell, runs.keep)


# `aligntool bench span`: how far the mapping table of a drive reaches.


def bench_span(
    target: options.MeasureTargetArgument,
    *,
    smallest: Annotated[int | None, option("--from", "The smallest span [default: 64MiB].", "SIZE", size)] = None,
    largest: Annotated[int | None, option("--to", "The largest span [default: all of it].", "SIZE", size)] = None,
    write: Annotated[bool, option("--write", "Write instead of reading; in a file, or on an empty device.")] = False,
    runtime: RuntimeOption = 2.0,
    asked: SweepOptions,
) -> None:
    """Measure how far the cached mapping table of a drive reaches.

    Reads of 4 KiB at random, 32 in flight, over spans that double, show the knee.

    Example: sudo aligntool bench span /dev/nvme0n1

    Exit code: 0 measured; 3 refused; 4 fio failed, or it was interrupted, after a device was written to; 130 before.
    """
    least = smallest or 64 * MIB
    if least < alignment.BLOCK:
        raise typer.BadParameter("--from is less than a request of 4KiB")
    measuring.refuse_to_overwrite(asked.output)
    found = find_target(target)
    span = asked.span or 4 * GIB
    _whole(found.size or span, least, largest)
    with _working(found, span, runtime, asked) as (working, runs):
        if write and not working.writes:
            raise Refused(f"{found.named} is only read", hint="--destructive for an empty device, or name a folder")
        curve, swept = _measured(working, least, largest, runs, write=write)
        if curve:
            _report_span(working, curve, swept, runs, asked, write=write)
    _end(swept, wrote=asked.destructive and write)


def _report_span(
    working: Working, curve: dict[int, list[float]], swept: Ran[int], runs: Runs, asked: SweepOptions, *, write: bool
) -> None:
    disk = _look_at_disk(working.disk)
    by_span = _by_span((run.key, run.measured.thread_cpu) for run in swept.runs)
    cpu = {span: shares for span, shares in by_span.items() if span in curve}
    knee = alignment.knee_of(curve, cpu, working.seen, Random(1))
    nvme = disk.nvme if disk else None
    measured = Spans(options.now(), working.target.place, write, knee, curve, nvme, cpu)
    measured = _described(measured, working, runs, swept, disk)
    lines = span_lines(measured, width=terminal_width())
    _report(span_json(measured, disk), lines, asked, measured.when, "span")


def _measured(
    working: Working, smallest: int, largest: int | None, runs: Runs, *, write: bool
) -> tuple[dict[int, list[float]], Ran[int]]:
    """Spans that double, and then the one in the middle of the knee."""
    spans = alignment.spans_of(_whole(working.room.length, smallest, largest), smallest)
    swept = _sweep_spans(spans, working, runs, write=write)
    curve = _by_span((run.key, run.iops) for run in swept.runs)
    knee = alignment.not_by_the_arm(alignment.find_knee(curve, Random(1)), working.seen)
    middle = None if swept.interrupted or swept.failure else alignment.between(knee)
    if middle is not None:
        more = _sweep_spans((middle,), working, runs, write=write)
        if len(more.runs) == runs.repeats:
            curve |= _by_span((run.key, run.iops) for run in more.runs)
        more.runs[:0] = swept.runs
        return dict(sorted(curve.items())), more
    return curve, swept


def _whole(room: int, smallest: int, largest: int | None) -> int:
    """The largest span. Raises Refused, also before a file is filled in vain."""
    whole = room if largest is None else min(largest, room)
    if whole < 2 * smallest:
        raise Refused(
            f"two spans need {format_about(2 * smallest)} in one piece, and there are {format_about(whole)}",
            hint="a smaller --from, or a larger --size",
        )
    return whole


def _sweep_spans(spans: tuple[int, ...], working: Working, runs: Runs, *, write: bool) -> Ran[int]:
    start = working.room.start - working.shift

    def jobs() -> Iterator[tuple[int, str, Job]]:
        for repeat in range(runs.repeats):
            made = alignment.jobs_of(spans, working.path, start, write=write, runtime_s=runs.seconds, repeat=repeat)
            for span, job in made:
                yield span, f"{format_about(span)}, {repeat + 1} of {runs.repeats}", job

    return run_sweep(jobs(), len(spans) * runs.repeats, runs.tell, runs.keep)


def _by_span(figures: Iterable[tuple[int, float]]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for span, figure in figures:
        found.setdefault(span, []).append(figure)
    return dict(sorted(found.items()))
