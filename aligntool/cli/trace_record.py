"""`aligntool trace record DISK -- CMD`: what a disk is asked while a command runs."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.options import colored, grid, terminal_width
from aligntool.cli.trace import boundaries_of, phase
from aligntool.errors import ExitCode, Refused

if TYPE_CHECKING:
    from pathlib import Path

    from aligntool.apply.trace_record import Recorded
    from aligntool.probe.tracing import Traceable
    from aligntool.trace import Boundary, Pattern


def record_command(
    disk: Annotated[str, typer.Argument(metavar="DISK", help="A disk or partition; all that it is asked is recorded.")],
    cmd: Annotated[
        list[str], typer.Argument(metavar="CMD...", help="What is run meanwhile, with its own words; after --.")
    ],
    *,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Keep the log, as text of blkparse.")
    ] = None,
    grid_: Annotated[
        int | None, typer.Option("--grid", parser=grid, metavar="SIZE",
                                 help="Hold requests against boundaries of this size; else against the audit's.")
    ] = None,
    phase_: Annotated[
        int | None, typer.Option("--phase", parser=phase, metavar="N",
                                 help="How many bytes past zero the boundaries of --grid begin.")
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="As JSON; CMD's standard output then goes to standard error.")
    ] = False,
) -> None:  # fmt: skip
    """Run a command, record with blktrace what the disk is asked meanwhile, and tell what `trace LOG` tells of it.

    Example: sudo aligntool trace record /dev/sda -o build.txt -- make -j4

    Exit code: that of CMD (128 + N when signal N ended it), once it ran; 3 refused, before it did; 130 interrupted.
    """
    import shutil

    from aligntool.probe.tracing import find_traceable

    if not cmd or shutil.which(cmd[0]) is None:
        raise Refused(f"{cmd[0] if cmd else 'nothing'}: there is no such command; nothing was recorded")
    found = find_traceable(disk)
    boundaries = _boundaries(found, grid_, phase_)
    with _log(found, output) as folder:
        recorded = _recorded(found, cmd, folder, json_=json_)
        _tell(found, recorded, boundaries, json_=json_)
    _say(f"{cmd[0]} ended with {recorded.code} after {recorded.seconds:.1f} s")
    raise typer.Exit(ExitCode.INTERRUPTED if recorded.interrupted else recorded.code)


def _boundaries(found: "Traceable", grid_: int | None, phase_: int | None) -> "Sequence[Boundary]":
    """Read before it is recorded. A disk that cannot be audited is no reason not to trace it."""
    if grid_ is not None or phase_ is not None:
        return boundaries_of(grid_, phase_, None, None)
    try:
        return boundaries_of(None, None, found.path, None)
    except Refused as refusal:
        _say(f"without boundaries: {refusal}")
        return ()


@contextmanager
def _log(found: "Traceable", output: str | None) -> "Iterator[Path]":
    """A folder for it; it is said when it lies on the disk that is traced, and kept at the end when it shall be."""
    from aligntool.apply.trace_log import keep_log, log_folder, refuse_name
    from aligntool.cli.measuring import ended_by_signals
    from aligntool.probe.tracing import lies_on

    refuse_name(output)
    with ended_by_signals(), log_folder(output) as folder:
        if lies_on(str(folder), found):
            where = "-o FILE on another disk" if output else "-o FILE, or TMPDIR, on another disk"
            _say(f"the log is written to the disk that is traced, and is in the trace itself; better {where}")
        try:
            yield folder
        finally:
            keep_log(folder, output)


def _recorded(found: "Traceable", cmd: list[str], folder: "Path", *, json_: bool) -> "Recorded":
    from aligntool.apply.trace_record import record

    sys.stdout.flush()
    recorded = record(found.path, found.debugfs, cmd, folder, output=sys.stderr.fileno() if json_ else None)
    if recorded.complaint:
        _say(f"blktrace: {recorded.complaint}")
    if recorded.dropped:
        _say(
            f"{recorded.dropped:,} events were lost: blktrace could not write as fast; the counts are too low"
        )
    return recorded


def _tell(found: "Traceable", recorded: "Recorded", boundaries: "Sequence[Boundary]", *, json_: bool) -> None:
    from aligntool.probe.logs import LogFormat
    from aligntool.render.lines import show
    from aligntool.render.trace import trace_json, trace_lines

    pattern = _pattern(str(recorded.text), boundaries)
    if json_:
        sys.stdout.write(trace_json(pattern, LogFormat.BLKPARSE))
    elif pattern.commands:
        show(
            trace_lines(pattern, found.path, "recorded", width=terminal_width()), sys.stdout, color=colored()
        )
    else:
        print(
            f"{found.path} was asked nothing: what was read came from the cache, what was written is not out yet"
        )
    sys.stdout.flush()


def _pattern(text: str, boundaries: "Sequence[Boundary]") -> "Pattern":
    """An empty one where nothing was asked. Raises Refused."""
    from aligntool.probe.logs import LogFormat, open_log
    from aligntool.trace import Moment, NoCommands, Pattern, read_pattern

    try:
        with open_log(text, LogFormat.BLKPARSE) as opened:
            return read_pattern(opened.events, boundaries)
    except NoCommands:
        return Pattern(Moment.ISSUED, 0, (), None)


def _say(words: str) -> None:
    from aligntool.render.lines import harmless

    print(f"aligntool: {harmless(words)}", file=sys.stderr, flush=True)
