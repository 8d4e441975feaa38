"""`aligntool estimate boot`: what the storage's part of a boot takes, from the rates of a drive."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.options import colored, terminal_width, whole
from aligntool.errors import Refused

if TYPE_CHECKING:
    from aligntool.render.boot import Counted, Rated

estimate_app = typer.Typer(
    name="estimate",
    help="Reckon what is to be expected of a drive.  Example: aligntool estimate boot --rate-a 30,90",
    no_args_is_help=True,
)


@estimate_app.command("boot")
def boot(
    results: Annotated[
        list[str] | None, typer.Argument(metavar="RESULT...", help="One or two results of aligntool bench.")
    ] = None,
    *,
    rate_a: Annotated[
        str | None, typer.Option("--rate-a", metavar="MB/s[,MB/s]",
                                 help="Random 4 KiB rate of a drive at queue depth 1, in MB/s: reads, writes.")
    ] = None,
    rate_b: Annotated[
        str | None, typer.Option("--rate-b", metavar="MB/s[,MB/s]", help="Of another drive, to compare.")
    ] = None,
    log: Annotated[
        str | None, typer.Option("--trace", metavar="LOG", help="Count the commands of this log, not the article's.")
    ] = None,
    reads: Annotated[
        int | None, typer.Option("--reads", parser=whole(0), metavar="N", help="So many reads.")
    ] = None,
    writes: Annotated[
        int | None, typer.Option("--writes", parser=whole(0), metavar="N", help="So many writes.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="As JSON; times in seconds.")] = False,
) -> None:  # fmt: skip
    """Estimate how long a drive is busy with the commands of a boot, and how far two drives are apart.

    Example: aligntool estimate boot --rate-a 0.6,1.2 --rate-b 60,150
    """
    drives = [_measured(file) for file in results or ()]
    drives += [_rated(text) for text in (rate_a, rate_b) if text is not None]
    if not 1 <= len(drives) <= 2:
        raise typer.BadParameter(
            "name one drive or two: by --rate-a and --rate-b, or by results of aligntool bench"
        )
    counted = _counted(log, reads, writes)
    if json_:
        from aligntool.render.boot import boot_json

        sys.stdout.write(boot_json(drives, counted))
        return
    from aligntool.render.boot import boot_lines
    from aligntool.render.lines import show

    show(boot_lines(drives, counted, width=terminal_width()), sys.stdout, color=colored())


def _rated(text: str) -> "Rated":
    """Or a usage error."""
    from aligntool.render.boot import Rated
    from aligntool.trace import parse_drive

    try:
        return Rated(parse_drive(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _measured(file: str) -> "Rated":
    """Raises Refused for a result without the figures that a boot is made of."""
    from aligntool.bench.meaning import boot_doubts, boot_drive
    from aligntool.probe.bench_history import read_result
    from aligntool.render.boot import Rated

    hint = "aligntool bench FOLDER --profile boot -o boot.json"
    result = read_result(file)
    if result.settings.passes:
        raise Refused(
            f"{file} has passes over the same data, and a boot does not read the same twice", hint=hint
        )
    drive = boot_drive(result)
    if drive is None:
        raise Refused(f"{file} has no RND4K Q1T1 of reads and writes", hint=hint)
    return Rated(drive, tuple(boot_doubts(result)))


def _counted(log: str | None, reads: int | None, writes: int | None) -> "Counted":
    """What is given, else what the log has, else the article's."""
    from aligntool.render.boot import Counted, Source
    from aligntool.trace import ARTICLE, BootCounts, Kind, read_pattern

    counts, source = ARTICLE, Source.ARTICLE
    if log is not None:
        from aligntool.probe.logs import open_log

        with open_log(log) as opened:
            pattern = read_pattern(opened.events)
        counts, source = BootCounts(pattern.count(Kind.READ), pattern.count(Kind.WRITE)), Source.TRACE
    return Counted(
        BootCounts(counts.reads if reads is None else reads, counts.writes if writes is None else writes),
        source if reads is None else Source.GIVEN,
        source if writes is None else Source.GIVEN,
        log or "",
    )
