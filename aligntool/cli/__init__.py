"""Words in, exit code out: the only folder that knows typer, and the only place that turns errors into exit codes.

Each command imports what it needs when it runs, so that `--version` and `--help` start at once.
"""

import signal
import sys
from typing import Annotated

import typer

from aligntool import __version__
from aligntool.cli.audit import audit
from aligntool.cli.demo import demo
from aligntool.cli.drives import drives
from aligntool.cli.explain import explain
from aligntool.cli.snapshot import snapshot
from aligntool.cli.streams import prepare_streams
from aligntool.errors import ExitCode, Refused, Stopped

__all__ = ["app", "main"]

app = typer.Typer(
    name="aligntool",
    help="Audit disks for misaligned partitions: whole stack, every grid, with its source and its cost.",
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
    if hint:
        print(f"  → {harmless(hint)}", file=sys.stderr)


def _bug() -> None:
    import traceback

    traceback.print_exc()
    print("aligntool: this is a bug in aligntool; nothing was written. Please report it with the lines above.",
          file=sys.stderr)  # fmt: skip
    print("  → aligntool snapshot -o snapshot.tar.xz   captures this machine for the report", file=sys.stderr)
