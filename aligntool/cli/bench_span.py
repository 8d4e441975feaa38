"""`aligntool bench span`: how far the mapping table of a drive reaches."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.bench_alignment import (
    DestructiveOption,
    FioOutputOption,
    JsonOption,
    OutputOption,
    RepeatsOption,
    RuntimeOption,
    SizeOption,
    TargetArgument,
    YesOption,
    end_of,
    keep_measured,
    now,
)
from aligntool.cli.measuring import bench_progress, ended_by_signals, fio_keeper, refuse_to_overwrite
from aligntool.cli.options import colored, size, terminal_width
from aligntool.errors import Refused
from aligntool.units import GIB, MIB

if TYPE_CHECKING:
    from aligntool.apply.sweep import Keep, Swept, Tell
    from aligntool.bench.jobs import Job
    from aligntool.bench.schedule import Target
    from aligntool.cli.bench_target import Working


def bench_span(
    target: TargetArgument,
    *,
    smallest: Annotated[
        int | None, typer.Option("--from", parser=size, metavar="SIZE", help="The smallest span; 64MiB unless said.")
    ] = None,
    largest: Annotated[
        int | None, typer.Option("--to", parser=size, metavar="SIZE", help="The largest span; all of it unless said.")
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
) -> None:  # fmt: skip
    """Read 4 KiB at random, 32 at once, over spans that double, and find the knee where the cached map ends.

    Example: sudo aligntool bench span /dev/nvme0n1

    Exit code: 0 measured; 3 refused; 4 fio failed, or it was interrupted, after a device was written to; 130 before.
    """
    from aligntool.bench.span import BLOCK
    from aligntool.cli.bench_target import working_on
    from aligntool.probe.bench_targets import find_target

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
            raise Refused(
                f"{found.named} is only read", hint="--destructive for an empty device, or name a folder"
            )
        keep = fio_keeper(fio_output)
        curve, swept = _measured(working, least, largest, runtime, repeats, tell, keep, write=write)
        if curve:
            _tell(found, working, curve, swept, (runtime, repeats), output, write=write, json_=json_)
    end_of(swept, wrote=destructive and write)


def _tell(
    found: "Target", working: "Working", curve: dict[int, list[float]], swept: "Swept[int]", runs: tuple[float, int],
    output: str | None, *, write: bool, json_: bool,
) -> None:  # fmt: skip
    from random import Random

    from aligntool.bench.experiments import Spans
    from aligntool.bench.span import knee_of
    from aligntool.cli.bench_target import conditions_after, identity_of, look_at_disk, setting_of
    from aligntool.render.bench_experiments import span_json, span_lines
    from aligntool.render.lines import show

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
        show(span_lines(measured, width=terminal_width()), sys.stdout, color=colored())
    keep_measured(text, output, measured.when, "span")


def _measured(
    working: "Working", smallest: int, largest: int | None, runtime_s: float, repeats: int, tell: "Tell", keep: "Keep",
    *, write: bool,
) -> "tuple[dict[int, list[float]], Swept[int]]":  # fmt: skip
    """Spans that double, and then the one in the middle of the knee."""
    from random import Random

    from aligntool.apply.sweep import run_sweep
    from aligntool.bench.span import between, find_knee, not_by_the_arm, spans_of

    whole = _whole(working.room.length, smallest, largest)
    spans = spans_of(whole, smallest)
    swept = run_sweep(
        _jobs(spans, working, runtime_s, repeats, write=write), len(spans) * repeats, tell, keep
    )
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
    from aligntool.units import format_about

    whole = room if largest is None else min(largest, room)
    if whole < 2 * smallest:
        raise Refused(
            f"two spans need {format_about(2 * smallest)} in one piece, and there are {format_about(whole)}",
            hint="a smaller --from, or a larger --size",
        )
    return whole


def _jobs(
    spans: tuple[int, ...], working: "Working", runtime_s: float, repeats: int, *, write: bool
) -> "Iterator[tuple[int, str, Job]]":
    from aligntool.bench.span import jobs_of
    from aligntool.units import format_about

    start = working.room.start - working.shift
    for repeat in range(repeats):
        for span, job in jobs_of(spans, working.path, start, write=write, runtime_s=runtime_s, repeat=repeat):
            yield span, f"{format_about(span)}, {repeat + 1} of {repeats}", job


def _by_span(figures: list[tuple[int, float]]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for span, figure in figures:
        found.setdefault(span, []).append(figure)
    return dict(sorted(found.items()))
