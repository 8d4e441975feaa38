"""`aligntool bench`: run, list, show, compare, alignment and span."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from random import Random
from typing import Annotated, TypeVar

import typer

from aligntool import __version__
from aligntool.audit.judge import audit
from aligntool.audit.report import AuditOptions, Severity
from aligntool.cli import options, probe
from aligntool.cli.options import integer, print_lines, remark, seconds, terminal_width
from aligntool.cli.pager import page_lines
from aligntool.cli.reference import find_recipe
from aligntool.errors import ExitCode, Refused, Stopped
from aligntool.inventory import Disk, Inventory
from aligntool.linux.device_numbers import disk_of
from aligntool.linux.file_extents import file_extents
from aligntool.linux.lock import lock_for_others
from aligntool.linux.look import look, now
from aligntool.measure import alignment, targets
from aligntool.measure import run as fio_runs
from aligntool.measure.fio import ENGINE, fill_job
from aligntool.measure.results import Conditions, Data, Result, to_json, warnings_of
from aligntool.measure.schedule import BenchOptions, BenchPlan, Target, TargetKind, plan_bench
from aligntool.measure.sweeps import Setting, Spans, Starts, piece_words
from aligntool.recipes.drives import known_geometries
from aligntool.recipes.goals import BenchGoal
from aligntool.render import bench as shown
from aligntool.render.experiments import alignment_json, alignment_lines, span_json, span_lines
from aligntool.render.lines import Line, plain, show
from aligntool.units import GIB, MIB, Extent, format_about, time_words

# `aligntool bench list`, `show` and `compare`: saved results; nothing is measured.


def list_results_command(*, json_: options.JsonOption = False) -> None:
    """List saved results, oldest first.

    Example: aligntool bench list
    """
    kept = targets.list_results(targets.history_folder(dict(os.environ), root=os.geteuid() == 0))
    page_lines(shown.list_json(kept) if json_ else shown.list_lines(kept, width=terminal_width()))


def show_command(
    file: Annotated[
        str,
        typer.Argument(
            parser=options.path, metavar="FILE", help="A result listed by `aligntool bench list`."
        ),
    ],
) -> None:
    """Show a saved result.

    Example: aligntool bench show result.json
    """
    width = terminal_width()
    match targets.read_any(file):
        case Starts() as found:
            lines = alignment_lines(found, found.rows, width=width)
        case Spans() as found:
            lines = span_lines(found, width=width)
        case found:
            lines = shown.result_lines(found, width=width)
    page_lines(lines)


def compare_command(
    files: Annotated[
        list[str],
        typer.Argument(
            parser=options.path, metavar="FILE...", help="Results; each is compared with the first."
        ),
    ],
    *,
    json_: options.JsonOption = False,
) -> None:
    """Compare results as a chart of log10 ratios.

    Differences within the noise are marked.

    Example: aligntool bench compare old-drive.json new-drive.json
    """
    if len(files) < 2:
        raise typer.BadParameter("name at least two results")
    results = [targets.read_result(file) for file in files]
    lines = shown.compare_lines(results, files, width=terminal_width())
    page_lines(shown.compare_json(results, files) if json_ else lines)


# `aligntool bench TARGET`: measure, report, save.
#
# This decides what may be written to, and what happens to the figures if the run ends early.

_LONGEST_S = 86400.0
_LONG_S = 3600.0  # a longer measurement has to be confirmed
_LONG_PASSES_S = 1800.0  # the same for passes, because their time is only estimated


def passes(text: str) -> tuple[int, ...]:
    """Return the counts in a text such as "1,5", or raise a usage error."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and word.isascii() and 1 <= int(word[:6]) <= 1000 for word in words):
        raise typer.BadParameter(f"{text!r} is not a list of passes; use counts from 1 to 1000, such as 1,5")
    return tuple(sorted({int(word) for word in words}))


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The settings of CrystalDiskMark other than its tests."""

    mix: Annotated[
        int | None,
        typer.Option(
            "--mix",
            parser=integer(1, 99),
            metavar="PERCENT",
            help="Also run each test mixed, with this percentage of reads.",
        ),
    ] = None
    data: Annotated[
        Data, typer.Option("--data", metavar="random|zero", help="The data to write and read back.")
    ] = Data.RANDOM
    pause: Annotated[
        float,
        typer.Option(
            "--pause", parser=seconds(0.0, 3600.0), metavar="SECONDS", help="Pause before each run."
        ),
    ] = 0.0


def bench_run(
    target: options.MeasureTargetArgument,
    *,
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME", help="A name from `recipes list`, or a file.")
    ] = "crystaldiskmark",
    span: Annotated[
        int | None,
        typer.Option(
            "--span",
            metavar="SIZE",
            parser=options.size,
            help="Range of the requests; in a folder, the size of the file.",
        ),
    ] = None,
    runtime: Annotated[
        float | None,
        typer.Option(
            "--runtime", parser=seconds(0.1, _LONGEST_S), metavar="SECONDS", help="Duration of each run."
        ),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", parser=integer(1, 1000), metavar="N", help="Runs of each test.")
    ] = None,
    passes_: Annotated[
        str | None,
        typer.Option(
            "--passes",
            metavar="N,N",
            help="Numbers of passes over the same data, such as 1,5, to reveal a cache.",
        ),
    ] = None,
    destructive: options.DestructiveOption = False,
    wipe: options.WipeDataOption = None,
    yes: options.YesOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the fio command lines, and stop.")] = False,
    kept: options.ResultFile,
    fio_output: options.FioOutputOption = None,
    json_: options.JsonOption = False,
    load: LoadOptions,
) -> None:
    """Measure a drive with fio, and show medians with their range.

    Latency and processor time are shown with every figure.

    Example: aligntool bench run /srv --profile crystaldiskmark

    Exit code: 0 measured; 3 refused; 4 failed or interrupted after something was written; 130 interrupted
    before that.
    """
    kept.refuse(inputs=(target, profile))
    if passes_ is not None and (repeats is not None or runtime is not None):
        other = "--repeats" if repeats is not None else "--runtime"
        raise typer.BadParameter(f"--passes and {other} are mutually exclusive: a pass covers the data once")
    name, goal = _profile(profile)
    found = _find_target(target, wipe, destructive=destructive)
    counts = passes(passes_) if passes_ is not None else ()
    bench_options = BenchOptions(span, runtime, repeats, counts, destructive, load.mix, load.data, load.pause)
    plan = plan_bench(name, goal, found, bench_options)
    _refuse_target(plan, destructive=destructive)
    seen = targets.look_at_conditions(found, plan.room)
    show(
        shown.bench_plan_lines(plan, seen, width=terminal_width()),
        sys.stderr,
        color=options.colored(sys.stderr),
    )
    if dry_run:
        print_lines(shown.command_lines(plan))
        return
    counted = (repeats, runtime, passes_) != (None, None, None)
    _confirm(plan, seen, destructive=destructive, counted=counted, yes=yes)
    result, ran = _measure(plan, seen, probe.fio_keeper(fio_output))
    probe.save_in_history(result.when, result.settings.profile, to_json(result))
    kept.write(to_json(result))
    print_lines(
        to_json(result) if json_ or kept.piped else shown.result_lines(result, width=terminal_width())
    )
    _raise_incomplete(ran, device=not plan.makes_file)


def _find_target(named: str, wiped: list[str] | None, *, destructive: bool) -> Target:
    """Return the target that the user named. Raises Refused."""
    wipe = options.may_wipe_data(named, wiped, destructive=destructive)
    return replace(targets.find_target(named), wipe=wipe)


def _confirm(plan: BenchPlan, seen: Conditions, *, destructive: bool, counted: bool, yes: bool) -> None:
    """Ask before a device is overwritten, and before the user's own counts take long. Raises Refused."""
    duration_s = plan.seconds(rotational=any(drive.rotational for drive in seen.drives))
    about = f"This takes about {time_words(round(duration_s))}"
    if destructive:
        _confirm_overwriting(plan.target, [plain(f"  {about}.")], yes=yes)
    elif counted and duration_s > (_LONG_PASSES_S if plan.settings.passes else _LONG_S):
        hint = f"{options.ADD_YES}, or use fewer passes or repeats"
        undone = f"this takes about {time_words(round(duration_s))}, and nothing was measured"
        options.confirm(
            plan.target.named,
            [plain(f"{about}, and loses nothing.")],
            yes=yes,
            undone=undone,
            no_terminal=hint,
        )


def _confirm_overwriting(target: Target, more: Iterable[Line], *, yes: bool) -> None:
    """Ask before a device is overwritten. `more`: what the user should know besides. Raises Refused."""
    lost = plain("  lost: everything on it")
    options.confirm(target.named, options.target_lines(target.path, [lost, *more]), yes=yes)


def _profile(name: str) -> tuple[str, BenchGoal]:
    """Return a profile by its name or file. Raises Refused."""
    found = find_recipe(name, "bench")
    if not isinstance(found.goal, BenchGoal):
        raise TypeError(found.kind)
    return found.name, found.goal


def _refuse_target(plan: BenchPlan, *, destructive: bool) -> None:
    """Raise Refused if there is no room, or if the device to be overwritten has data."""
    if plan.target.kind is TargetKind.FOLDER:
        probe.refuse_no_room(plan.target, plan.room, "--span")
    if destructive:
        probe.refuse_unless_device(plan.target)
        probe.refuse_data(plan.target)


def _measure(
    plan: BenchPlan, seen: Conditions, keep: Callable[[str, int, str], None]
) -> tuple[Result, fio_runs.RunResults[fio_runs.Bench]]:
    started = now()
    with probe.ended_by_signals(), _measured_path(plan) as path, probe.bench_progress() as progress:
        ran = fio_runs.run_bench(plan, path, tell=progress, keep=keep)
    series = fio_runs.series_of(ran)
    if not series:
        device = not plan.makes_file
        if ran.failure is not None:
            _raise_incomplete(ran, device=device)
        raise probe.no_result_error(plan.target.path) if device and ran.wrote else KeyboardInterrupt
    after = replace(
        targets.with_final_temperatures(seen), fio=ran.fio_version, caches_dropped=ran.caches_dropped
    )
    result = Result(
        started,
        __version__,
        plan.target.place,
        plan.target.kind.value,
        plan.settings,
        after,
        series,
        plan.skipped,
        ran.complete,
    )
    return result, ran


@contextmanager
def _measured_path(plan: BenchPlan) -> Iterator[str]:
    """Yield the path to measure: a temporary file, a locked device, or a target that is only read."""
    target = plan.target
    if plan.makes_file:
        with fio_runs.made_file(target.path, plan.room, name=target.name) as path:
            yield path
    else:
        with _locked_device(target) if plan.writes else nullcontext():
            yield target.path


@contextmanager
def _locked_device(target: Target) -> Iterator[None]:
    with lock_for_others(target.path, "a benchmark"):
        probe.refuse_data(target, again=True)  # the confirmation may have taken long
        with targets.recorded_test_data(target.path, target.size or 0, remark):
            yield


# The target of `aligntool bench alignment` and `bench span`: a temporary file, or an existing file or device.
#
# Starts and spans are counted from the disk's first byte, whatever the path is.

Sweep = TypeVar("Sweep", Starts, Spans)
RuntimeOption = Annotated[
    float,
    typer.Option("--runtime", parser=seconds(0.1, 3600.0), metavar="SECONDS", help="Duration of each run."),
]


@dataclass(frozen=True, slots=True)
class SweepOptions(options.ResultFile):
    """Options of `bench alignment` and `bench span`."""

    span: Annotated[
        int | None,
        typer.Option("--size", metavar="SIZE", parser=options.size, help="Size of the file in a folder."),
    ] = None
    repeats: Annotated[
        int, typer.Option("--repeats", parser=integer(5, 1000), metavar="N", help="Number of runs.")
    ] = 5
    destructive: options.DestructiveOption = False
    wipe: options.WipeDataOption = None
    yes: options.YesOption = False
    fio_output: options.FioOutputOption = None
    json_: options.JsonOption = False


@dataclass(frozen=True, slots=True)
class RunTarget:
    """The target of runs, and their settings. `room`: the extent of the disk that they use; `shift`: the byte
    of the disk where the file or device begins.
    """

    target: Target
    path: str
    disk: str  # whose facts are read
    size: int  # bytes, of the file or device
    room: Extent
    shift: int
    writes: bool
    seen: Conditions  # before the first run
    seconds: float
    repeats: int
    tell: fio_runs.SweepProgress
    keep: fio_runs.Keep


@contextmanager
def _prepared(target: Target, size: int, runtime_s: float, chosen: SweepOptions) -> Iterator[RunTarget]:
    """Prepare a target for runs, which a signal ends. In a folder, make a file of `size` bytes of random
    data, and use the longest piece of it that is contiguous on the disk. Raises Refused.
    """
    with probe.ended_by_signals(), probe.bench_progress() as progress, ExitStack() as stack:
        if not target.direct:
            text = (
                f"{target.named} does not support direct I/O: the page cache would be measured, not the drive"
            )
            raise Refused(text, hint="name a disk, or a folder on a file system with direct I/O")
        if chosen.destructive:
            probe.refuse_unless_device(target)
        size = size if target.kind is TargetKind.FOLDER else target.size or 0
        seen = targets.look_at_conditions(target, size)
        _warn(warnings_of(seen, direct=target.direct))
        path = disk = target.path
        room = Extent(0, size)
        shift = 0
        writes = chosen.destructive
        keep = probe.fio_keeper(chosen.fio_output)  # refused before a file is filled
        if target.kind is TargetKind.FOLDER:
            probe.refuse_no_room(target, size)
            path = stack.enter_context(fio_runs.made_file(path, size, name=target.name))
            fio_runs.fill(fill_job(path, size), fio_runs.FILLING, progress)
            with open(path, "rb") as file:  # noqa: PTH123 - for its descriptor
                placed = file_extents(file.fileno(), target.path)
            longest = max(placed.runs, key=lambda run: run.disk.length)
            disk = placed.disk
            room = longest.disk
            shift = longest.disk.start - longest.file_start
            writes = True
            _warn(piece_words(Setting("folder", size, room.length, 0, 0, True, "")))
        elif target.kind is TargetKind.DEVICE:
            disk, shift = disk_of(os.stat(path).st_rdev)  # noqa: PTH116 - for its device number
            room = Extent(shift, size)
            if chosen.destructive:
                probe.refuse_data(target)
                _confirm_overwriting(target, (), yes=chosen.yes)
                stack.enter_context(_locked_device(target))
        yield RunTarget(
            target, path, disk, size, room, shift, writes, seen, runtime_s, chosen.repeats, progress, keep
        )


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        remark(f"warning: {sentence}")


def _look_at_disk(name: str) -> Disk | None:
    """Return the disk with its facts, or None if it could not be read."""
    try:
        return look((name,), known=False).disks[0]
    except Refused:
        return None


def _with_conditions(
    result: Sweep, working: RunTarget, swept: fio_runs.RunResults[fio_runs.Key], disk: Disk | None
) -> Sweep:
    """Return the result with its conditions, settings and disk."""
    kind = working.target.kind.value
    direct = working.target.direct
    piece = working.room.length
    return replace(
        result,
        conditions=replace(targets.with_final_temperatures(working.seen), fio=swept.fio_version),
        setting=Setting(kind, working.size, piece, working.seconds, working.repeats, direct, ENGINE),
        disk=probe.identity(disk) if disk else None,  # shows a reader whether it is the same disk
        complete=swept.complete,
    )


def _report(text: str, lines: Iterator[Line], chosen: SweepOptions, when: str, name: str) -> None:
    """Show the result, then save it in the history and in the requested file, so that it is not lost if
    that fails.

    Raises Refused.
    """
    print_lines(text if chosen.json_ or chosen.piped else lines)
    sys.stdout.flush()
    probe.save_in_history(when, name, text)
    chosen.write(text)


def _raise_incomplete(swept: fio_runs.RunResults[fio_runs.Key], *, device: bool) -> None:
    """Raise the error or exit code of an incomplete measurement. `device`: a device was measured, not a
    file.
    """
    wrote = device and swept.wrote
    if swept.failure is not None:
        raise Stopped(str(swept.failure), hint=swept.failure.hint) if wrote else swept.failure
    if swept.interrupted:
        raise typer.Exit(ExitCode.STOPPED if wrote else ExitCode.INTERRUPTED)


# `aligntool bench alignment`: what a start off the boundary costs on this drive.

StartKey = tuple[alignment.Load, alignment.Place, int]


def bench_alignment(
    target: options.MeasureTargetArgument,
    *,
    unit: Annotated[
        int | None,
        typer.Option(
            "--unit", metavar="SIZE", parser=options.grid, help="The drive's unit [default: from the audit]."
        ),
    ] = None,
    start: Annotated[
        int | None,
        typer.Option(
            "--start", metavar="SIZE", parser=options.grid, help="Test only this start; sector 63 is 32256."
        ),
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--every", help="Test every sector of the unit, not every eighth of it; takes a long time."
        ),
    ] = False,
    depth: Annotated[
        int, typer.Option("--depth", parser=integer(1, 1024), metavar="N", help="Requests in flight.")
    ] = 1,
    runtime: RuntimeOption = 1.0,
    chosen: SweepOptions,
) -> None:
    """Measure whether the start of a partition matters on this drive.

    The same load runs from sector 63, from sector 2048 and from several offsets in a unit.

    Example: aligntool bench alignment /srv --unit 16KiB

    Exit code: 0 measured; 3 refused; 4 failed or interrupted after a device was written to; 130
    interrupted before that.
    """
    if every and start is not None:
        raise typer.BadParameter("--start and --every are mutually exclusive")
    chosen.refuse(inputs=(target,))
    found = _find_target(target, chosen.wipe, destructive=chosen.destructive)
    span = chosen.span or 256 * MIB
    if unit is not None:
        alignment.refuse_too_small(found.size or span, unit, found.logical_block, start)
    with _prepared(found, span, runtime, chosen) as working:
        disk = _look_at_disk(working.disk)
        unit_size, source = (unit, "--unit") if unit is not None else _unit_of(disk)
        places = alignment.places_of(working.room, unit_size, found.logical_block, start, every=every)
        swept = _sweep(working, places, depth)
        rates = tuple(alignment.Rate(*run.key, run.iops, run.measured.thread_cpu) for run in swept.runs)
        measured = Starts(now(), found.place, unit_size, source, rates)
        measured = _with_conditions(measured, working, swept, disk)
    if not measured.rates:
        _raise_incomplete(swept, device=chosen.destructive)
    rows = measured.rows
    lines = alignment_lines(measured, rows, width=terminal_width())
    _report(alignment_json(measured, rows), lines, chosen, measured.when, "alignment")
    _raise_incomplete(swept, device=chosen.destructive)


def _unit_of(disk: Disk | None) -> tuple[int, str]:
    """Return the largest boundary that the audit requires, up to 512 KiB, and its source; 4 KiB if it is
    unknown.
    """
    if disk is None:
        return 4096, "assumed"
    inventory = Inventory((disk,))
    report = audit(inventory, known_geometries(inventory), AuditOptions())
    grids = [
        grid for grid in report.judged[0].grids if grid.severity is not Severity.INFO and grid.size < MIB
    ]
    widest = max(grids, key=lambda grid: grid.size)
    return widest.size, f"{widest.kind.value}, {widest.source.value}"


def _sweep(
    working: RunTarget, places: tuple[alignment.Place, ...], depth: int
) -> fio_runs.RunResults[StartKey]:
    loads = alignment.loads_of(writes=working.writes, depth=depth)
    room = working.room
    path = working.path
    shift = working.shift
    repeats = working.repeats
    count = repeats * len(places) * len(loads)
    alignment.refuse_too_many(count)
    jobs = (
        (
            (run.load, run.place, repeat),
            f"{run.load.title}, {run.place.title}, {repeat + 1} of {repeats}",
            run.job,
        )
        for repeat in range(repeats)
        for run in alignment.runs_of(places, loads, room, path, shift, working.seconds, repeat)
    )
    return fio_runs.run_sweep(jobs, count, working.tell, working.keep)


# `aligntool bench span`: how far the mapping table of a drive reaches.


def bench_span(
    target: options.MeasureTargetArgument,
    *,
    smallest: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="SIZE", parser=options.size, help="The smallest span [default: 64MiB]."
        ),
    ] = None,
    largest: Annotated[
        int | None,
        typer.Option(
            "--to", metavar="SIZE", parser=options.size, help="The largest span [default: the whole target]."
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write instead of reading: to a file, or to an empty device.")
    ] = False,
    runtime: RuntimeOption = 2.0,
    chosen: SweepOptions,
) -> None:
    """Measure how much of a drive its cached mapping table covers.

    Random reads of 4 KiB, 32 in flight, cover spans that double in size.

    Example: sudo aligntool bench span /dev/nvme0n1

    Exit code: 0 measured; 3 refused; 4 failed or interrupted after a device was written to; 130
    interrupted before that.
    """
    least = smallest or 64 * MIB
    if least < alignment.BLOCK:
        raise typer.BadParameter("--from must be at least one request of 4KiB")
    chosen.refuse(inputs=(target,))
    found = _find_target(target, chosen.wipe, destructive=chosen.destructive)
    span = chosen.span or 4 * GIB
    _largest_span(found.size or span, least, largest)
    with _prepared(found, span, runtime, chosen) as working:
        if write and not working.writes:
            text = f"{found.named} is only read: --write cannot be used"
            raise Refused(text, hint="--destructive for an empty device, or a folder")
        curve, swept = _measure_spans(working, least, largest, write=write)
        if curve:
            disk = _look_at_disk(working.disk)
            by_span = _by_span((run.key, run.measured.thread_cpu) for run in swept.runs)
            cpu = {span: shares for span, shares in by_span.items() if span in curve}
            knee = alignment.knee_of(curve, cpu, working.seen, Random(1))
            measured = Spans(now(), found.place, write, knee, curve, disk.nvme if disk else None, cpu)
            measured = _with_conditions(measured, working, swept, disk)
            lines = span_lines(measured, width=terminal_width())
            _report(span_json(measured, disk), lines, chosen, measured.when, "span")
    _raise_incomplete(swept, device=chosen.destructive)


def _measure_spans(
    working: RunTarget, smallest: int, largest: int | None, *, write: bool
) -> tuple[dict[int, list[float]], fio_runs.RunResults[int]]:
    """Measure spans that double, then one in the middle of the knee. Return the rates by span, and the
    runs.
    """
    spans = alignment.spans_of(_largest_span(working.room.length, smallest, largest), smallest)
    swept = _sweep_spans(spans, working, write=write)
    curve = _by_span((run.key, run.iops) for run in swept.runs)
    knee = alignment.doubt_rotating(alignment.find_knee(curve, Random(1)), working.seen)
    middle = None if swept.interrupted or swept.failure else alignment.span_within_knee(knee)
    if middle is not None:
        more = _sweep_spans((middle,), working, write=write)
        if len(more.runs) == working.repeats:
            curve |= _by_span((run.key, run.iops) for run in more.runs)
        more.runs[:0] = swept.runs
        return dict(sorted(curve.items())), more
    return curve, swept


def _largest_span(room: int, smallest: int, largest: int | None) -> int:
    """Return the largest span. Raises Refused if there is no room for two; called also before a file is
    filled.
    """
    whole = room if largest is None else min(largest, room)
    if whole < 2 * smallest:
        text = (
            f"two spans need {format_about(2 * smallest)} in one piece, but only {format_about(whole)} are"
            " available"
        )
        raise Refused(text, hint="use a smaller --from, or a larger --size")
    return whole


def _sweep_spans(spans: tuple[int, ...], working: RunTarget, *, write: bool) -> fio_runs.RunResults[int]:
    path = working.path
    start = working.room.start - working.shift
    repeats = working.repeats
    jobs = (
        (span, f"{format_about(span)}, {repeat + 1} of {repeats}", job)
        for repeat in range(repeats)
        for span, job in alignment.jobs_of(
            spans, path, start, write=write, runtime_s=working.seconds, repeat=repeat
        )
    )
    return fio_runs.run_sweep(jobs, len(spans) * repeats, working.tell, working.keep)


def _by_span(figures: Iterable[tuple[int, float]]) -> dict[int, list[float]]:
    by_span: dict[int, list[float]] = {}
    for span, figure in figures:
        by_span.setdefault(span, []).append(figure)
    return dict(sorted(by_span.items()))
