"""`aligntool bench run`, `list`, `show` and `compare`."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

import typer

from aligntool import __version__
from aligntool.cli.measuring import (
    bench_progress,
    ended_by_signals,
    fio_keeper,
    keep_among_results,
    refuse_data,
    refuse_to_overwrite,
)
from aligntool.cli.options import (
    DestructiveOption,
    FioOutputOption,
    JsonOption,
    MeasureTargetArgument,
    YesOption,
    confirm_disk,
    confirm_long,
    print_lines,
    read_text,
    seconds,
    size,
    terminal_width,
    whole,
)
from aligntool.errors import ExitCode, Refused
from aligntool.measure.conditions import Conditions, room_words
from aligntool.measure.results import Result, to_json
from aligntool.measure.run import Ran, held_device, keep_result, made_file, run_bench
from aligntool.measure.schedule import BenchPlan, TargetKind, Wish, plan_bench
from aligntool.measure.sweeps import Spans, Starts
from aligntool.measure.targets import (
    find_target,
    history_folder,
    list_results,
    look_at_conditions,
    read_experiment,
    read_result,
    warmed,
)
from aligntool.recipes.goals import BenchGoal, parse_recipe, recipe
from aligntool.render.bench import (
    command_lines,
    compare_json,
    compare_lines,
    list_json,
    list_lines,
    plan_words,
    result_lines,
)
from aligntool.render.experiments import alignment_lines, span_lines
from aligntool.render.lines import show
from aligntool.render.plan import time_words

# `aligntool bench`: the words that follow it.
#
# `aligntool bench TARGET` and `aligntool bench list` are typed alike: what is not a subcommand is a target, and belongs
# to `bench run`.


# `aligntool bench list`, `show` and `compare`: results that were kept.
#
# Nothing is measured here.


def list_results_command(*, json_: JsonOption = False) -> None:
    """List the results that were kept, oldest first.

    Example: aligntool bench list
    """
    kept = list_results(history_folder(dict(os.environ), root=os.geteuid() == 0))
    if json_:
        sys.stdout.write(list_json(kept))
    else:
        print_lines(list_lines(kept, width=terminal_width()))


def show_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A result, as `aligntool bench list` names it.")],
) -> None:
    """Show a result that was kept.

    Example: aligntool bench show result.json
    """
    width = terminal_width()
    match read_experiment(file):
        case Starts() as found:
            lines = alignment_lines(found, found.rows, width=width)
        case Spans() as found:
            lines = span_lines(found, width=width)
        case None:
            lines = result_lines(read_result(file), width=width)
    print_lines(lines)


def compare_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Results; each is put beside the first.")],
    *,
    json_: JsonOption = False,
) -> None:
    """Compare results: log10 of the ratios, drawn.

    Differences within the noise are marked.

    Example: aligntool bench compare old-drive.json new-drive.json
    """
    if len(files) < 2:
        raise typer.BadParameter("name two results or more")
    results = [read_result(file) for file in files]
    if json_:
        sys.stdout.write(compare_json(results, files))
    else:
        print_lines(compare_lines(results, files, width=terminal_width()))


# `aligntool bench TARGET`: measure, report, keep.
#
# What may be written to, and what becomes of the figures when it ends early, is decided here.

_LONGEST_S = 86400.0
_LONG_S = 3600.0  # from which on a measurement is asked about
_LONG_PASSES_S = 1800.0  # whose time is only estimated


def passes(text: str) -> tuple[int, ...]:
    """ "1,5" or a usage error."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and word.isascii() and 1 <= int(word[:6]) <= 1000 for word in words):
        raise typer.BadParameter(f"{text!r} are not passes; write counts from 1 to 1000, like 1,5")
    return tuple(sorted({int(word) for word in words}))


def bench_run(
    target: MeasureTargetArgument,
    *,
    profile: Annotated[
        str, typer.Option("--profile", "-p", metavar="NAME", help="What is run: see `recipes list`; or a file.")
    ] = "crystaldiskmark",
    span: Annotated[
        int | None, typer.Option("--size", parser=size, metavar="SIZE", help="Spread the requests over so much.")
    ] = None,
    runtime: Annotated[
        float | None, typer.Option("--runtime", parser=seconds(0.1, _LONGEST_S), metavar="SECONDS", help="Of each run.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", parser=whole(1, 1000), metavar="N", help="How often each test is run.")
    ] = None,
    passes_: Annotated[
        str | None, typer.Option("--passes", metavar="N,N", help="So often over the same data, as 1,5; a cache shows.")
    ] = None,
    destructive: DestructiveOption = False,
    yes: YesOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the fio command lines, and stop.")] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Keep the result in this file as well.")
    ] = None,
    fio_output: FioOutputOption = None,
    json_: JsonOption = False,
) -> None:
    """Measure a drive with fio, and show medians with their range.

    Latency and processor time stand beside every figure.

    Example: aligntool bench run /srv --profile crystaldiskmark

    Exit code: 0 measured; 3 refused; 4 fio failed, or it was interrupted, after something was written; 130 before.
    """
    refuse_to_overwrite(output)
    if passes_ is not None and (repeats is not None or runtime is not None):
        other = "--repeats" if repeats is not None else "--runtime"
        raise typer.BadParameter(f"--passes and {other} contradict each other: a pass goes once over the data")
    name, goal = _profile(profile)
    found = find_target(target)
    counts = passes(passes_) if passes_ is not None else ()
    plan = plan_bench(name, goal, found, Wish(span, runtime, repeats, counts, destructive))
    disk = _refuse(plan, destructive=destructive)
    seen = look_at_conditions(found, plan.room)
    show(plan_words(plan, seen, width=terminal_width()), sys.stderr, color=False)
    if dry_run:
        print_lines(command_lines(plan))
        return
    counted = (repeats, runtime, passes_) != (None, None, None)
    _confirm(plan, seen, disk if destructive else None, counted=counted, yes=yes)
    result, ran = _measured(plan, seen, fio_output)
    _keep(result, output)
    _tell(result, json_=json_)
    if ran.failure is not None:
        raise ran.failure
    if ran.interrupted:
        raise typer.Exit(ExitCode.STOPPED if plan.writes and not plan.makes_file else ExitCode.INTERRUPTED)


def _confirm(plan: BenchPlan, seen: Conditions, disk: str | None, *, counted: bool, yes: bool) -> None:
    """Ask about what is overwritten, and about counts of the user's own that take long. Raises Refused."""
    taken_s = plan.seconds(rotational=any(drive.rotational for drive in seen.drives))
    if counted and taken_s > (_LONG_PASSES_S if plan.settings.passes else _LONG_S):
        confirm_long(time_words(round(taken_s)), yes)
    if disk is not None:
        confirm_disk(plan.target.path, disk, "its name", yes)


def _profile(name: str) -> tuple[str, BenchGoal]:
    """Raises Refused."""
    if "/" in name or name.endswith(".toml"):
        found = parse_recipe(name, read_text(name, hint="aligntool recipes list"))
    else:
        found = recipe(name, "bench")
    if not isinstance(found.goal, BenchGoal):
        raise Refused(f"{name} is a recipe for a {found.kind}", hint="aligntool recipes list")
    return found.name, found.goal


def _refuse(plan: BenchPlan, *, destructive: bool) -> str:
    """Return the name of the device that is overwritten. Raise Refused where there is no room, or data."""
    target = plan.target
    if target.kind is TargetKind.FOLDER and target.free is not None:
        words = room_words(plan.room, target.free)
        if words:
            raise Refused(f"there is too little room in {target.path}: {words}", hint="--size with less")
    if not destructive:
        return ""
    if target.kind is not TargetKind.DEVICE:
        raise Refused(
            f"--destructive is for devices, and {target.named} is a {target.kind}",
            hint="in a folder the tests write anyway, into a file of their own",
        )
    return refuse_data(target)


def _measured(plan: BenchPlan, seen: Conditions, fio_output: str | None) -> tuple[Result, Ran]:
    began = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    with ended_by_signals(), _place(plan) as path, bench_progress() as tell:
        ran = run_bench(plan, path, tell=tell, keep=fio_keeper(fio_output))
    if not ran.series and ran.failure is not None:
        raise ran.failure
    if not ran.series:
        raise KeyboardInterrupt
    after = replace(warmed(seen), fio=ran.fio_version, caches_dropped=ran.caches_dropped)
    result = Result(
        began, __version__, plan.target.place, plan.target.kind.value, plan.settings, after, ran.series,
        plan.skipped, ran.complete,
    )  # fmt: skip
    return result, ran


@contextmanager
def _place(plan: BenchPlan) -> Iterator[str]:
    """A file that is made and removed; a device that is held; or just what is only read."""
    target = plan.target
    if plan.makes_file:
        with made_file(target.path, plan.room, name=target.name) as path:
            yield path
    elif plan.writes:
        with held_device(target.path):
            refuse_data(target)  # the question may have waited long for its answer
            yield target.path
    else:
        yield target.path


def _keep(result: Result, output: str | None) -> None:
    """Keep it in the history and in the file that was asked for. Only the file's failure is an error."""
    text = to_json(result)
    keep_among_results(result.when, result.settings.profile, text)
    if output is not None:
        keep_result(output, text)


def _tell(result: Result, *, json_: bool) -> None:
    if json_:
        sys.stdout.write(to_json(result))
    else:
        print_lines(result_lines(result, width=terminal_width()))
