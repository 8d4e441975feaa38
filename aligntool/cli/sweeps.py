"""`aligntool bench alignment` and `bench span`."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from typing import Annotated

import typer

from aligntool.audit.judge import audit
from aligntool.audit.report import Severity, Wishes
from aligntool.cli.audit import known_of
from aligntool.cli.measuring import (
    Working,
    bench_progress,
    conditions_after,
    ended_by_signals,
    fio_keeper,
    identity_of,
    keep_among_results,
    look_at_disk,
    refuse_to_overwrite,
    setting_of,
    working_on,
)
from aligntool.cli.options import (
    DestructiveOption,
    FioOutputOption,
    JsonOption,
    MeasureTargetArgument,
    YesOption,
    grid,
    keep,
    print_lines,
    seconds,
    size,
    terminal_width,
    whole,
)
from aligntool.errors import ExitCode, Refused
from aligntool.inventory import Disk, Inventory
from aligntool.measure.alignment import (
    BLOCK,
    Load,
    Place,
    Rate,
    between,
    find_knee,
    jobs_of,
    knee_of,
    loads_of,
    not_by_the_arm,
    places_of,
    refuse_too_many,
    refuse_too_small,
    runs_of,
    spans_of,
)
from aligntool.measure.fio import Job
from aligntool.measure.run import Keep, Key, SweepProgress, Swept, run_sweep
from aligntool.measure.schedule import Target
from aligntool.measure.sweeps import Spans, Starts
from aligntool.measure.targets import find_target
from aligntool.render.experiments import alignment_json, alignment_lines, span_json, span_lines
from aligntool.units import GIB, MIB, format_about

# `aligntool bench alignment`: what a start off the boundary costs on this drive.

_LONGEST_S = 3600.0

SizeOption = Annotated[
    int | None, typer.Option("--size", parser=size, metavar="SIZE", help="Of the file that is made in a folder.")
]
RuntimeOption = Annotated[
    float, typer.Option("--runtime", parser=seconds(0.1, _LONGEST_S), metavar="SECONDS", help="Of each run.")
]
RepeatsOption = Annotated[
    int, typer.Option("--repeats", parser=whole(5, 1000), metavar="N", help="How often each run is made.")
]
OutputOption = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Keep the result as JSON.")]


def bench_alignment(
    target: MeasureTargetArgument,
    *,
    unit: Annotated[
        int | None, typer.Option("--unit", parser=grid, metavar="SIZE", help="Of the drive; else as the audit has it.")
    ] = None,
    start: Annotated[
        int | None, typer.Option("--start", parser=grid, metavar="SIZE", help="Try only this one; sector 63 is 32256.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--every", help="Try the place of every sector of the unit, not of each eighth: takes long.")
    ] = False,
    depth: Annotated[int, typer.Option("--depth", parser=whole(1, 1024), metavar="N", help="Requests in flight.")] = 1,
    span: SizeOption = None,
    runtime: RuntimeOption = 1.0,
    repeats: RepeatsOption = 5,
    destructive: DestructiveOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
    fio_output: FioOutputOption = None,
    json_: JsonOption = False,
) -> None:
    """Measure whether the start of a partition matters on this drive.

    The same load is put on sector 63, on 2048 and on every place of a unit.

    Example: aligntool bench alignment /srv --unit 16KiB

    Exit code: 0 measured; 3 refused; 4 fio failed, or it was interrupted, after a device was written to; 130 before.
    """
    if every and start is not None:
        raise typer.BadParameter("--start tries one start, --every all of them: give one of the two")
    refuse_to_overwrite(output)
    found = find_target(target)
    asked = span or 256 * MIB
    if unit is not None:
        refuse_too_small(found.size or asked, unit, found.logical_block, start)
    with (
        ended_by_signals(),
        bench_progress() as tell,
        working_on(found, asked, tell, destructive=destructive, yes=yes) as working,
    ):
        disk = look_at_disk(working.disk)
        wide, by = (unit, "--unit") if unit is not None else _unit_of(disk)
        places = places_of(working.room, wide, found.logical_block, start, every=every)
        swept = _sweep(working, places, depth, runtime, repeats, tell, fio_keeper(fio_output))
        measured = _starts(found, working, swept, (wide, by), disk, runtime, repeats)
    wrote = working.writes and destructive
    if not measured.rates:
        end_of(swept, wrote=wrote)
    _tell_alignment(measured, output, json_=json_)
    end_of(swept, wrote=wrote)


def _starts(
    found: Target, working: Working, swept: Swept[tuple[Load, Place, int]], unit: tuple[int, str],
    disk: Disk | None, runtime_s: float, repeats: int,
) -> Starts:  # fmt: skip
    rates = tuple(
        Rate(load, place, repeat, iops, cpu)
        for ((load, place, repeat), iops), (_, cpu) in zip(swept.rates, swept.cpu, strict=True)
    )
    return Starts(
        now(), found.place, *unit, rates, conditions=conditions_after(working, swept.fio_version),
        setting=setting_of(found, working, runtime_s, repeats), disk=identity_of(disk),
        complete=swept.complete,
    )  # fmt: skip


def _tell_alignment(measured: Starts, output: str | None, *, json_: bool) -> None:
    rows = measured.rows
    text = alignment_json(measured, rows)
    if json_:
        sys.stdout.write(text)
    else:
        print_lines(alignment_lines(measured, rows, width=terminal_width()))
    keep_measured(text, output, measured.when, "alignment")


def _unit_of(disk: Disk | None) -> tuple[int, str]:
    """The largest boundary of the audit that a partition must be on, up to 512 KiB; 4 KiB where it is unknown."""
    if disk is None:
        return 4096, "assumed"
    inventory = Inventory((disk,))
    report = audit(inventory, known_of(inventory), Wishes())
    grids = [grid for grid in report.judged[0].grids if grid.severity is not Severity.INFO and grid.size < MIB]
    widest = max(grids, key=lambda grid: grid.size)
    return widest.size, f"{widest.kind.value}, {widest.source.value}"


def _sweep(
    working: Working, places: tuple[Place, ...], depth: int, runtime_s: float, repeats: int, tell: SweepProgress,
    keep: Keep,
) -> Swept[tuple[Load, Place, int]]:  # fmt: skip
    loads = loads_of(writes=working.writes, depth=depth)
    refuse_too_many(repeats * len(places) * len(loads))
    jobs = (
        ((run.load, run.place, repeat), f"{run.load.title}, {run.place.title}, {repeat + 1} of {repeats}", run.job)
        for repeat in range(repeats)
        for run in runs_of(places, loads, working.room, working.path, working.shift, runtime_s, repeat)
    )
    return run_sweep(jobs, repeats * len(places) * len(loads), tell, keep)


def now() -> str:
    """In UTC, as ISO 8601 has it."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def keep_measured(text: str, output: str | None, when: str, name: str) -> None:
    """After it was shown: what cannot be kept is not lost. In the history, and in the file that was asked for. Raises
    Refused.
    """
    sys.stdout.flush()
    keep_among_results(when, name, text)
    if output is not None:
        keep(output, text)


def end_of(swept: Swept[Key], *, wrote: bool) -> None:
    """The exit code of what was measured only in part."""
    if swept.failure is not None:
        raise swept.failure
    if swept.interrupted:
        raise typer.Exit(ExitCode.STOPPED if wrote else ExitCode.INTERRUPTED)


# `aligntool bench span`: how far the mapping table of a drive reaches.


def bench_span(
    target: MeasureTargetArgument,
    *,
    smallest: Annotated[
        int | None, typer.Option("--from", parser=size, metavar="SIZE", help="The smallest span [default: 64MiB].")
    ] = None,
    largest: Annotated[
        int | None, typer.Option("--to", parser=size, metavar="SIZE", help="The largest span [default: all of it].")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write instead of reading; in a file, or on an empty device.")
    ] = False,
    span: SizeOption = None,
    runtime: RuntimeOption = 2.0,
    repeats: RepeatsOption = 5,
    destructive: DestructiveOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
    fio_output: FioOutputOption = None,
    json_: JsonOption = False,
) -> None:
    """Measure how far the cached mapping table of a drive reaches.

    Reads of 4 KiB at random, 32 in flight, over spans that double, show the knee.

    Example: sudo aligntool bench span /dev/nvme0n1

    Exit code: 0 measured; 3 refused; 4 fio failed, or it was interrupted, after a device was written to; 130 before.
    """
    if (smallest or 64 * MIB) < BLOCK:
        raise typer.BadParameter("--from is less than a request of 4KiB")
    refuse_to_overwrite(output)
    found = find_target(target)
    least = smallest or 64 * MIB
    _whole(found.size or span or 4 * GIB, least, largest)
    with (
        ended_by_signals(),
        bench_progress() as tell,
        working_on(found, span or 4 * GIB, tell, destructive=destructive, yes=yes) as working,
    ):
        if write and not working.writes:
            raise Refused(f"{found.named} is only read", hint="--destructive for an empty device, or name a folder")
        keep = fio_keeper(fio_output)
        curve, swept = _measured(working, least, largest, runtime, repeats, tell, keep, write=write)
        if curve:
            _tell_span(found, working, curve, swept, (runtime, repeats), output, write=write, json_=json_)
    end_of(swept, wrote=destructive and write)


def _tell_span(
    found: Target, working: Working, curve: dict[int, list[float]], swept: Swept[int], runs: tuple[float, int],
    output: str | None, *, write: bool, json_: bool,
) -> None:  # fmt: skip
    disk = look_at_disk(working.disk)
    cpu = {span: shares for span, shares in _by_span(swept.cpu).items() if span in curve}
    knee = knee_of(curve, cpu, working.seen, Random(1))
    measured = Spans(
        now(), found.place, write, knee, curve, disk.nvme if disk else None, cpu,
        conditions=conditions_after(working, swept.fio_version), setting=setting_of(found, working, *runs),
        disk=identity_of(disk), complete=swept.complete,
    )  # fmt: skip
    text = span_json(measured, disk)
    if json_:
        sys.stdout.write(text)
    else:
        print_lines(span_lines(measured, width=terminal_width()))
    keep_measured(text, output, measured.when, "span")


def _measured(
    working: Working, smallest: int, largest: int | None, runtime_s: float, repeats: int, tell: SweepProgress,
    keep: Keep, *, write: bool,
) -> tuple[dict[int, list[float]], Swept[int]]:  # fmt: skip
    """Spans that double, and then the one in the middle of the knee."""
    whole = _whole(working.room.length, smallest, largest)
    spans = spans_of(whole, smallest)
    swept = run_sweep(_jobs(spans, working, runtime_s, repeats, write=write), len(spans) * repeats, tell, keep)
    curve = _by_span(swept.rates)
    knee = not_by_the_arm(find_knee(curve, Random(1)), working.seen)
    middle = None if swept.interrupted or swept.failure else between(knee)
    if middle is not None:
        more = run_sweep(_jobs((middle,), working, runtime_s, repeats, write=write), repeats, tell, keep)
        if len(more.rates) == repeats:
            curve |= _by_span(more.rates)
        more.rates, more.cpu = swept.rates + more.rates, swept.cpu + more.cpu
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


def _jobs(
    spans: tuple[int, ...], working: Working, runtime_s: float, repeats: int, *, write: bool
) -> Iterator[tuple[int, str, Job]]:
    start = working.room.start - working.shift
    for repeat in range(repeats):
        for span, job in jobs_of(spans, working.path, start, write=write, runtime_s=runtime_s, repeat=repeat):
            yield span, f"{format_about(span)}, {repeat + 1} of {repeats}", job


def _by_span(figures: list[tuple[int, float]]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for span, figure in figures:
        found.setdefault(span, []).append(figure)
    return dict(sorted(found.items()))
