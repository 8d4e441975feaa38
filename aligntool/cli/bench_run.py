"""`aligntool bench TARGET`: measured, told, kept.

In: a target and a profile. Out: a table, or JSON; a file of the history. Alone because what may be written to, and what
becomes of the figures when it ends early, is decided here.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.measuring import (
    bench_progress,
    ended_by_signals,
    fio_keeper,
    keep_among_results,
    refuse_to_overwrite,
)
from aligntool.cli.options import colored, seconds, size, terminal_width, whole
from aligntool.errors import ExitCode, Refused

if TYPE_CHECKING:
    from aligntool.apply.bench_run import Ran
    from aligntool.bench.conditions import Conditions
    from aligntool.bench.results import Result
    from aligntool.bench.schedule import BenchPlan
    from aligntool.recipe import BenchGoal

_LONGEST_S = 86400.0
_LONG_S = 3600.0  # from which on a measurement is asked about
_LONG_PASSES_S = 1800.0  # whose time is only estimated


def passes(text: str) -> tuple[int, ...]:
    """ "1,5" or a usage error."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and word.isascii() and 1 <= int(word[:6]) <= 1000 for word in words):
        raise typer.BadParameter(f"{text!r} are no passes; write counts from 1 to 1000, like 1,5")
    return tuple(sorted({int(word) for word in words}))


def bench_run(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A folder (a file is made in it and removed), a file, a device.")
    ],
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
    destructive: Annotated[
        bool, typer.Option("--destructive", help="Write on the device itself; only if it is empty. You are asked.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask. It overrides no refusal.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what fio would be told, and stop.")] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Keep the result in this file as well.")
    ] = None,
    fio_output: Annotated[
        str | None, typer.Option("--fio-output", metavar="DIR", help="Keep fio's own JSON of every run in this folder.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:  # fmt: skip
    """Measure a drive with fio: medians with their range, latency, and the processor's part beside every figure.

    Example: aligntool bench run /srv --profile crystaldiskmark

    Exit code: 0 measured; 3 refused; 4 fio failed, or it was interrupted, after something was written; 130 before.
    """
    from aligntool.bench.schedule import Wish, plan_bench
    from aligntool.probe.bench_targets import find_target
    from aligntool.probe.conditions import look_at_conditions
    from aligntool.render.bench import command_lines, plan_words
    from aligntool.render.lines import show

    refuse_to_overwrite(output)
    if passes_ is not None and (repeats is not None or runtime is not None):
        other = "--repeats" if repeats is not None else "--runtime"
        raise typer.BadParameter(
            f"--passes and {other} contradict each other: a pass goes once over the data"
        )
    name, goal = _profile(profile)
    found = find_target(target)
    counts = passes(passes_) if passes_ is not None else ()
    plan = plan_bench(name, goal, found, Wish(span, runtime, repeats, counts, destructive))
    disk = _refuse(plan, destructive=destructive)
    seen = look_at_conditions(found, plan.room)
    show(plan_words(plan, seen, width=terminal_width()), sys.stderr, color=False)
    if dry_run:
        show(command_lines(plan), sys.stdout, color=colored())
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


def _confirm(plan: "BenchPlan", seen: "Conditions", disk: str | None, *, counted: bool, yes: bool) -> None:
    """Ask about what is overwritten, and about counts of the user's own that take long. Raises Refused."""
    from aligntool.cli.confirm import confirm_disk, confirm_long
    from aligntool.render.plan import time_words

    taken_s = plan.seconds(rotational=any(drive.rotational for drive in seen.drives))
    if counted and taken_s > (_LONG_PASSES_S if plan.settings.passes else _LONG_S):
        confirm_long(time_words(round(taken_s)), yes)
    if disk is not None:
        confirm_disk(plan.target.path, disk, "its name", yes)


def _profile(name: str) -> "tuple[str, BenchGoal]":
    """Raises Refused."""
    from pathlib import Path

    from aligntool.recipe import BenchGoal, parse_recipe, recipe

    if "/" in name or name.endswith(".toml"):
        try:
            found = parse_recipe(name, Path(name).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "this is no text"
            raise Refused(f"{name}: {why}", hint="aligntool recipes list") from error
    else:
        found = recipe(name, "bench")
    if not isinstance(found.goal, BenchGoal):
        raise Refused(f"{name} is a recipe for a {found.kind}", hint="aligntool recipes list")
    return found.name, found.goal


def _refuse(plan: "BenchPlan", *, destructive: bool) -> str:
    """Raises Refused where there is no room, or somebody's data. The name of the device that is given up."""
    from aligntool.bench.conditions import room_words
    from aligntool.bench.schedule import TargetKind
    from aligntool.cli.bench_target import refuse_data

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


def _measured(plan: "BenchPlan", seen: "Conditions", fio_output: str | None) -> "tuple[Result, Ran]":
    from dataclasses import replace
    from datetime import UTC, datetime

    from aligntool import __version__
    from aligntool.apply.bench_run import run_bench
    from aligntool.bench.results import Result
    from aligntool.probe.conditions import warmed

    began = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    with ended_by_signals(), _place(plan) as path, bench_progress() as tell:
        ran = run_bench(
            plan,
            path,
            tell=lambda told: tell(told.text, told.share, told.left_s),
            keep=fio_keeper(fio_output),
        )
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
def _place(plan: "BenchPlan") -> Iterator[str]:
    """A file that is made and removed; a device that is held; or just what is only read."""
    from aligntool.apply.bench_file import made_file
    from aligntool.apply.bench_hold import held_device
    from aligntool.cli.bench_target import refuse_data

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


def _keep(result: "Result", output: str | None) -> None:
    """In the history, and in the file that was asked for. A history that cannot be written is said, and no error."""
    from aligntool.apply.bench_history import keep_result
    from aligntool.bench.document import to_json

    text = to_json(result)
    keep_among_results(result.when, result.settings.profile, text)
    if output is not None:
        keep_result(output, text)


def _tell(result: "Result", *, json_: bool) -> None:
    from aligntool.bench.document import to_json
    from aligntool.render.bench import result_lines
    from aligntool.render.lines import show

    if json_:
        sys.stdout.write(to_json(result))
    else:
        show(result_lines(result, width=terminal_width()), sys.stdout, color=colored())
