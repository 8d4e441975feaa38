"""The command table and `main`: every way to end becomes the exit code that docs/cli.md documents."""

import signal
import sys
from typing import Annotated

import typer

from aligntool import __version__
from aligntool.cli.audit import audit, drives, explain
from aligntool.cli.bench import bench_app, bench_run, compare_command, list_results_command, show_command
from aligntool.cli.demo import demo
from aligntool.cli.options import prepare_streams
from aligntool.cli.partitions import layout_command, plan_layout_command, realign
from aligntool.cli.plan import plan_app
from aligntool.cli.probe import probe
from aligntool.cli.raid import create_command, persist_command, raid_app
from aligntool.cli.recover import apply, resume, rollback, status
from aligntool.cli.report import recipes_app, report, snapshot
from aligntool.cli.sweeps import bench_alignment, bench_span
from aligntool.cli.trace import estimate_app, record_command, trace_app
from aligntool.cli.tune import tune_command
from aligntool.errors import ExitCode, Refused, Stopped

app = typer.Typer(
    name="aligntool",
    help="Audit disks for misaligned partitions, and move them onto the boundary without losing what is on them; "
    "make arrays that lie on it and come back; measure what a drive is good for.",
    epilog="Example: sudo aligntool audit        Without root it tells what can be seen without.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"aligntool {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the command."""


app.command()(audit)
app.command()(explain)
app.command()(drives)
plan_app.command("layout")(plan_layout_command)
app.add_typer(plan_app)
app.command()(realign)
app.command("layout")(layout_command)
app.command()(apply)
app.command()(status)
app.command()(resume)
app.command()(rollback)
raid_app.command("create")(create_command)
raid_app.command("persist")(persist_command)
raid_app.command("tune")(tune_command)
app.add_typer(raid_app)
app.command()(probe)
bench_app.command("run")(bench_run)
bench_app.command("list")(list_results_command)
bench_app.command("show")(show_command)
bench_app.command("compare")(compare_command)
bench_app.command("alignment")(bench_alignment)
bench_app.command("span")(bench_span)
app.add_typer(bench_app)
trace_app.command("record")(record_command)
app.add_typer(trace_app)
app.add_typer(estimate_app)
app.add_typer(recipes_app)
app.command()(report)
app.command()(snapshot)
app.command()(demo)


def main() -> None:
    """Run, and let every way to end become the exit code that docs/cli.md documents."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that goes (head, less) ends us as it ends cat
    try:
        prepare_streams()
        try:
            app(prog_name="aligntool")
        finally:
            sys.stdout.flush()  # here a full disk still has a name; at exit it would be a trace
    except (Refused, Stopped) as error:
        _say(str(error), error.hint)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except Exception:
        _bug()
        sys.exit(ExitCode.BUG)


def _say(reason: str, hint: str) -> None:
    """One clear error on stderr; names in it may come from a disk or a stranger's path."""
    from aligntool.render.lines import harmless

    for line in reason.split("\n"):
        print(f"aligntool: {harmless(line)}", file=sys.stderr)
    for line in hint.split("\n") if hint else ():
        print(f"  → {harmless(line)}", file=sys.stderr)


def _bug() -> None:
    import traceback

    traceback.print_exc()
    print("aligntool: this is a bug in aligntool. Please report it with the lines above.", file=sys.stderr)
    print("  → aligntool snapshot -o snapshot.tar.xz   captures this machine for the report", file=sys.stderr)
