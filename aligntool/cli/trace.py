"""`aligntool trace`, `trace record` and `estimate boot`."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from aligntool.audit.judge import audit
from aligntool.audit.report import AuditOptions, Severity
from aligntool.cli.options import (
    ResultFile,
    grid,
    integer,
    path,
    print_lines,
    say,
    size,
    terminal_width,
    text,
)
from aligntool.cli.probe import ended_by_signals
from aligntool.commands import command
from aligntool.errors import ExitCode, Refused
from aligntool.linux.look import look
from aligntool.measure import record_trace
from aligntool.measure import trace as traces
from aligntool.measure.compare import boot_doubts, boot_drive
from aligntool.measure.logs import LogFormat, open_log
from aligntool.measure.targets import read_result
from aligntool.recipes.drives import known_geometries
from aligntool.render.lines import plain
from aligntool.render.trace import Counted, Rated, Source, boot_json, boot_lines, trace_json, trace_lines

# `aligntool estimate boot`: the time of a boot that the storage takes, from the rates of a drive.


def boot(
    results: Annotated[
        list[str] | None,
        typer.Argument(parser=path, metavar="RESULT...", help="One or two results of aligntool bench."),
    ] = None,
    *,
    rate_a: Annotated[
        str | None,
        typer.Option("--rate-a", metavar="MB/s[,MB/s]", help="Random 4 KiB rate at depth 1: reads, writes."),
    ] = None,
    rate_b: Annotated[
        str | None,
        typer.Option("--rate-b", metavar="MB/s[,MB/s]", help="The same for another drive, to compare."),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            "--trace", metavar="LOG", help="Use the commands of this log instead of the built-in boot."
        ),
    ] = None,
    reads: Annotated[
        int | None, typer.Option("--reads", parser=integer(0), metavar="N", help="Number of reads.")
    ] = None,
    writes: Annotated[
        int | None, typer.Option("--writes", parser=integer(0), metavar="N", help="Number of writes.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON; times are in seconds.")] = False,
) -> None:
    """Estimate how long a drive needs for the commands of a boot.

    If two drives are given, they are compared.

    Example: aligntool estimate boot --rate-a 0.6,1.2 --rate-b 60,150
    """
    drives = [_measured(file) for file in results or ()]
    drives += [_rated(text) for text in (rate_a, rate_b) if text is not None]
    if not 1 <= len(drives) <= 2:
        text = "name one or two drives: with --rate-a and --rate-b, or with results of aligntool bench"
        raise typer.BadParameter(text)
    counted = _counted(log, reads, writes)
    print_lines(boot_json(drives, counted) if json_ else boot_lines(drives, counted, width=terminal_width()))


def _rated(text: str) -> Rated:
    """Return the rates of a drive, or raise a usage error."""
    try:
        return Rated(traces.parse_drive(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _measured(file: str) -> Rated:
    """Return the rates of a saved result. Raises Refused if it lacks the figures that a boot needs."""
    hint = "fill in FOLDER: aligntool bench FOLDER --profile boot -o boot.json"
    result = read_result(file)
    if result.settings.passes:
        raise Refused(
            f"{file} has passes over the same data; a boot does not read the same data twice", hint=hint
        )
    drive = boot_drive(result)
    if drive is None:
        raise Refused(f"{file} has no RND4K Q1T1 results for reads and writes", hint=hint)
    return Rated(drive, tuple(boot_doubts(result)))


def _counted(log: str | None, reads: int | None, writes: int | None) -> Counted:
    """Return the counts that were given, else those of the log, else the article's."""
    counts = traces.ARTICLE
    source = Source.ARTICLE
    if log is not None:
        with open_log(log) as opened:
            pattern = traces.read_pattern(opened.events)
        counts = traces.BootCounts(pattern.count(traces.Kind.READ), pattern.count(traces.Kind.WRITE))
        source = Source.TRACE
    counts = traces.BootCounts(
        counts.reads if reads is None else reads, counts.writes if writes is None else writes
    )
    by_reads, by_writes = (source if count is None else Source.GIVEN for count in (reads, writes))
    return Counted(counts, by_reads, by_writes, log or "")


# `aligntool trace LOG`: a log of commands, and its analysis.


class TraceFormat(StrEnum):
    AUTO = "auto"
    BLKPARSE = "blkparse"
    IOLOG = "iolog"
    CSV = "csv"


def phase(text: str) -> int:
    """Return bytes past zero, usually 0, or raise a usage error."""
    return 0 if text.strip() == "0" else size(text)


_ALIGNMENT = "Alignment"


def trace(
    log: Annotated[
        str,
        typer.Argument(
            parser=path,
            metavar="LOG",
            help="Text of blkparse, a blktrace file, an iolog of fio, CSV; - for stdin.",
        ),
    ],
    *,
    format_: Annotated[
        TraceFormat,
        typer.Option("--log-format", metavar="auto|blkparse|iolog|csv", help="Format of the log."),
    ] = TraceFormat.AUTO,
    grid_: Annotated[
        int | None,
        typer.Option(
            "--grid",
            metavar="SIZE",
            parser=grid,
            rich_help_panel=_ALIGNMENT,
            help="Compare the requests with boundaries of this size, such as 4KiB.",
        ),
    ] = None,
    phase_: Annotated[
        int | None,
        typer.Option(
            "--phase",
            parser=phase,
            rich_help_panel=_ALIGNMENT,
            metavar="N",
            help="Offset of the first boundary of --grid.",
        ),
    ] = None,
    disk: Annotated[
        str | None,
        typer.Option(
            "--disk",
            rich_help_panel=_ALIGNMENT,
            metavar="DISK",
            help="Compare the requests with the boundaries from the audit.",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            "-p",
            parser=integer(1),
            rich_help_panel=_ALIGNMENT,
            metavar="N",
            help="Offsets in the log are relative to this partition.",
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON; sizes are in bytes.")] = False,
) -> None:
    """Analyse a log of commands to a drive.

    The analysis shows sequential and random requests, sizes, queue depth, and the share off the grid.

    Example: aligntool trace read boot.blkparse --grid 4KiB
    """
    boundaries = boundaries_of(grid_, phase_, disk, partition)
    form = None if format_ is TraceFormat.AUTO else LogFormat(format_.value)
    with open_log(log, form) as opened:
        pattern = traces.read_pattern(opened.events, boundaries)
    lines = trace_lines(pattern, opened.name, opened.form, width=terminal_width())
    print_lines(trace_json(pattern, opened.form) if json_ else lines)


def boundaries_of(
    grid_: int | None, phase_: int | None, disk: str | None, partition: int | None
) -> Sequence[traces.Boundary]:
    """Return the given boundaries, those of the audit, or none. A partition's start is subtracted, because
    the log counts from it.

    Raises Refused if there is no such partition.
    """
    if grid_ is not None and disk is not None:
        raise typer.BadParameter("--grid and --disk are mutually exclusive")
    if phase_ is not None and grid_ is None:
        raise typer.BadParameter("--phase needs --grid")
    if partition is not None and disk is None:
        raise typer.BadParameter("--partition needs --disk")
    if grid_ is not None:
        return (traces.Boundary("given", grid_, (phase_ or 0) % grid_),)
    if disk is None:
        return ()

    inventory = look((disk,))
    judged = audit(inventory, known_geometries(inventory), AuditOptions()).judged[0]
    starts = {part.number: part.extent.start for part in judged.disk.partitions}
    if partition is not None and partition not in starts:
        raise Refused(
            f"{judged.disk.name} has no partition {partition}", hint=command("audit", judged.disk.path)
        )
    start = starts[partition] if partition else 0
    return tuple(
        traces.Boundary(f"{one.kind.value}, {one.source.value}", one.size, (one.phase - start) % one.size)
        for one in judged.grids
        if one.severity is not Severity.INFO
    )


# `aligntool trace record DISK -- CMD`: the requests to a disk while a command runs.


@dataclass(frozen=True, slots=True)
class TraceFile(ResultFile):
    """Where the log is written."""

    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Save the log, as text of blkparse; - is standard output."
        ),
    ] = None


def record_command(
    disk: Annotated[
        str, typer.Argument(parser=path, metavar="DISK", help="The disk or partition to record.")
    ],
    cmd: Annotated[
        list[str],
        typer.Argument(
            parser=text, metavar="CMD...", help="The command to run, with its arguments; after --."
        ),
    ],
    *,
    kept: TraceFile,
    grid_: Annotated[
        int | None,
        typer.Option(
            "--grid",
            metavar="SIZE",
            parser=grid,
            help="Compare the requests with boundaries of this size [default: from the audit].",
        ),
    ] = None,
    phase_: Annotated[
        int | None,
        typer.Option("--phase", parser=phase, metavar="N", help="Offset of the first boundary of --grid."),
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print JSON; CMD's standard output goes to standard error.")
    ] = False,
) -> None:
    """Analyse the requests to a disk while a command runs.

    The requests are recorded with blktrace.

    Example: sudo aligntool trace record /dev/sda -o build.txt -- make -j4

    Exit code: that of CMD (128 + N if signal N ended it); 3 refused before CMD was run; 130 interrupted.
    """
    if json_ and kept.piped:
        raise typer.BadParameter("--json and -o - are mutually exclusive: both write to standard output")
    if not cmd or shutil.which(cmd[0]) is None:
        raise Refused(f"{cmd[0] if cmd else 'nothing'}: command not found; nothing was recorded")
    kept.refuse("nothing was recorded", cmd)
    found = record_trace.find_traceable(disk)
    boundaries = _boundaries(found, grid_, phase_)
    with _log_folder(found, kept.file, overwrite=kept.overwrite) as folder:
        recorded = _record(found, cmd, folder, piped=json_ or kept.piped)
        try:
            with open_log(str(recorded.text), LogFormat.BLKPARSE) as opened:
                pattern = traces.read_pattern(opened.events, boundaries)
        except traces.NoCommands:
            pattern = traces.Pattern(traces.Moment.ISSUED, 0, (), None)
        if kept.piped:
            sys.stdout.write(recorded.text.read_text())
        else:
            _report(found.path, pattern, json_=json_)
    say(f"{cmd[0]} exited with {recorded.code} after {recorded.seconds:.1f} s")
    raise typer.Exit(ExitCode.INTERRUPTED if recorded.interrupted else recorded.code)


def _boundaries(
    found: record_trace.Traceable, grid_: int | None, phase_: int | None
) -> Sequence[traces.Boundary]:
    """Return the boundaries, read before the recording. A disk that cannot be audited is traced without
    them.
    """
    if grid_ is not None or phase_ is not None:
        return boundaries_of(grid_, phase_, None, None)
    try:
        return boundaries_of(None, None, found.path, None)
    except Refused as refusal:
        say(f"recording without boundaries: {refusal}")
        return ()


@contextmanager
def _log_folder(found: record_trace.Traceable, output: str | None, *, overwrite: bool) -> Iterator[Path]:
    """Yield a folder for the log; warn if it is on the traced disk; save the log at the end if requested."""
    with ended_by_signals(), record_trace.log_folder(output) as folder:
        if record_trace.lies_on(str(folder), found):
            where = "-o FILE on another disk" if output else "-o FILE, or TMPDIR, on another disk"
            say(
                "the log is written to the traced disk, so the trace includes these writes; better use"
                f" {where}"
            )
        try:
            yield folder
        finally:
            record_trace.save_log(folder, output, overwrite=overwrite)


def _record(
    found: record_trace.Traceable, cmd: list[str], folder: Path, *, piped: bool
) -> record_trace.Recorded:
    sys.stdout.flush()
    output = sys.stderr.fileno() if piped else None
    recorded = record_trace.record(found.path, found.debugfs, cmd, folder, output=output)
    if recorded.complaint:
        say(f"blktrace: {recorded.complaint}")
    if recorded.dropped:
        say(
            f"{recorded.dropped:,} events were lost because blktrace could not keep up; the counts are too"
            " low"
        )
    return recorded


def _report(path: str, pattern: traces.Pattern, *, json_: bool) -> None:
    if json_:
        sys.stdout.write(trace_json(pattern, LogFormat.BLKPARSE))
    elif pattern.commands:
        print_lines(trace_lines(pattern, path, "recorded", width=terminal_width()))
    else:
        text = (
            f"{path} received no requests: reads were served from the page cache, and writes are not yet"
            " flushed"
        )
        print_lines([plain(text)])
    sys.stdout.flush()
