"""`aligntool bench run`, `list`, `show` and `compare`."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer

from aligntool import __version__
from aligntool.cli import measuring, options
from aligntool.cli.options import argument, option, print_lines, read_text, seconds, size, terminal_width, whole
from aligntool.errors import ExitCode, Refused
from aligntool.linux.hold import hold_for_others
from aligntool.measure import targets
from aligntool.measure.results import Conditions, Result, to_json
from aligntool.measure.run import Bench, Ran, keep_result, made_file, run_bench, series_of
from aligntool.measure.schedule import BenchPlan, TargetKind, Wish, plan_bench
from aligntool.measure.sweeps import Spans, Starts
from aligntool.recipes.goals import BenchGoal, parse_recipe, recipe
from aligntool.render import bench as shown
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


def list_results_command(*, json_: options.JsonOption = False) -> None:
    """List the results that were kept, oldest first.

    Example: aligntool bench list
    """
    kept = targets.list_results(targets.history_folder(dict(os.environ), root=os.geteuid() == 0))
    if json_:
        sys.stdout.write(shown.list_json(kept))
    else:
        print_lines(shown.list_lines(kept, width=terminal_width()))


def show_command(file: Annotated[str, argument("FILE", "A result, as `aligntool bench list` names it.")]) -> None:
    """Show a result that was kept.

    Example: aligntool bench show result.json
    """
    width = terminal_width()
    match targets.read_experiment(file):
        case Starts() as found:
            lines = alignment_lines(found, found.rows, width=width)
        case Spans() as found:
            lines = span_lines(found, width=width)
        case None:
            lines = shown.result_lines(targets.read_result(file), width=width)
    print_lines(lines)


def compare_command(
    files: Annotated[list[str], argument("FILE...", "Results; each is put beside the first.")],
    *,
    json_: options.JsonOption = False,
) -> None:
    """Compare results: log10 of the ratios, drawn.

    Differences within the noise are marked.

    Example: aligntool bench compare old-drive.json new-drive.json
    """
    if len(files) < 2:
        raise typer.BadParameter("name two results or more")
    results = [targets.read_result(file) for file in files]
    if json_:
        sys.stdout.write(shown.compare_json(results, files))
    else:
        print_lines(shown.compare_lines(results, files, width=terminal_width()))


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
    target: options.MeasureTargetArgument,
    *,
    profile: Annotated[
        str, option("--profile -p", "What is run: see `recipes list`; or a file.", "NAME")
    ] = "crystaldiskmark",
    span: Annotated[int | None, option("--size", "Spread the requests over so much.", "SIZE", size)] = None,
    runtime: Annotated[float | None, option("--runtime", "Of each run.", "SECONDS", seconds(0.1, _LONGEST_S))] = None,
    repeats: Annotated[int | None, option("--repeats", "How often each test is run.", "N", whole(1, 1000))] = None,
    passes_: Annotated[
        str | None, option("--passes", "So often over the same data, as 1,5; a cache shows.", "N,N")
    ] = None,
    destructive: options.DestructiveOption = False,
    yes: options.YesOption = False,
    dry_run: Annotated[bool, option("--dry-run", "Show the fio command lines, and stop.")] = False,
    output: Annotated[str | None, option("--output -o", "Keep the result in this file as well.", "FILE")] = None,
    fio_output: options.FioOutputOption = None,
    json_: options.JsonOption = False,
) -> None:
    """Measure a drive with fio, and show medians with their range.

    Latency and processor time stand beside every figure.

    Example: aligntool bench run /srv --profile crystaldiskmark

    Exit code: 0 measured; 3 refused; 4 fio failed, or it was interrupted, after something was written; 130 before.
    """
    measuring.refuse_to_overwrite(output)
    if passes_ is not None and (repeats is not None or runtime is not None):
        other = "--repeats" if repeats is not None else "--runtime"
        raise typer.BadParameter(f"--passes and {other} contradict each other: a pass goes once over the data")
    name, goal = _profile(profile)
    found = targets.find_target(target)
    counts = passes(passes_) if passes_ is not None else ()
    plan = plan_bench(name, goal, found, Wish(span, runtime, repeats, counts, destructive))
    disk = _refuse(plan, destructive=destructive)
    seen = targets.look_at_conditions(found, plan.room)
    show(shown.plan_words(plan, seen, width=terminal_width()), sys.stderr, color=False)
    if dry_run:
        print_lines(shown.command_lines(plan))
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
        options.confirm_long(time_words(round(taken_s)), yes)
    if disk is not None:
        options.confirm_disk(plan.target.path, disk, "its name", yes)


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
    if target.kind is TargetKind.FOLDER:
        measuring.refuse_no_room(target, plan.room)
    if not destructive:
        return ""
    measuring.refuse_unless_device(target)
    return measuring.refuse_data(target)


def _measured(plan: BenchPlan, seen: Conditions, fio_output: str | None) -> tuple[Result, Ran[Bench]]:
    began = options.now()
    with measuring.ended_by_signals(), _place(plan) as path, measuring.bench_progress() as tell:
        ran = run_bench(plan, path, tell=tell, keep=measuring.fio_keeper(fio_output))
    series = series_of(ran)
    if not series:
        raise ran.failure or KeyboardInterrupt
    after = replace(targets.warmed(seen), fio=ran.fio_version, caches_dropped=ran.caches_dropped)
    result = Result(
        began, __version__, plan.target.place, plan.target.kind.value, plan.settings, after, series,
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
        with hold_for_others(target.path, "a benchmark"):
            measuring.refuse_data(target)  # the question may have waited long for its answer
            yield target.path
    else:
        yield target.path


def _keep(result: Result, output: str | None) -> None:
    """Keep it in the history and in the file that was asked for. Only the file's failure is an error."""
    text = to_json(result)
    measuring.keep_among_results(result.when, result.settings.profile, text)
    if output is not None:
        keep_result(output, text)


def _tell(result: Result, *, json_: bool) -> None:
    if json_:
        sys.stdout.write(to_json(result))
    else:
        print_lines(shown.result_lines(result, width=terminal_width()))
