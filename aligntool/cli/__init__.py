"""Words in, exit code out: the only folder that knows typer, and the only place that turns errors into exit codes.

Each command imports what it needs when it runs, so that `--version` and `--help` start at once.
"""

import signal
import sys
from typing import Annotated

import typer

from aligntool import __version__
from aligntool.cli.apply import apply
from aligntool.cli.audit import audit
from aligntool.cli.demo import demo
from aligntool.cli.drives import drives
from aligntool.cli.estimate import estimate_app
from aligntool.cli.explain import explain
from aligntool.cli.layout import layout_command, plan_layout_command
from aligntool.cli.plan import plan_app
from aligntool.cli.raid import raid_app
from aligntool.cli.realign import realign
from aligntool.cli.recipes import recipes_app
from aligntool.cli.recover import resume, rollback, status
from aligntool.cli.snapshot import snapshot
from aligntool.cli.streams import prepare_streams
from aligntool.cli.trace import trace
from aligntool.errors import ExitCode, Refused, Stopped

__all__ = ["app", "main"]

app = typer.Typer(
    name="aligntool",
    help="Audit disks for misaligned partitions, and move them onto the boundary without losing what is on them.",
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
app.add_typer(raid_app)
app.command()(trace)
app.add_typer(estimate_app)
app.add_typer(recipes_app)
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
