"""`aligntool bench list`, `show` and `compare`: results that were kept.

In: files. Out: lines, or JSON. Alone because nothing is measured here.
"""

import os
import sys
from typing import Annotated

import typer

from aligntool.cli.options import colored, terminal_width


def list_results_command(
    *, json_: Annotated[bool, typer.Option("--json", help="The list as JSON.")] = False
) -> None:
    """List the results that were kept, oldest first.

    Example: aligntool bench list
    """
    from aligntool.probe.bench_history import history_folder, list_results
    from aligntool.render.bench_compare import list_json, list_lines
    from aligntool.render.lines import show

    kept = list_results(history_folder(dict(os.environ), root=os.geteuid() == 0))
    if json_:
        sys.stdout.write(list_json(kept))
    else:
        show(list_lines(kept, width=terminal_width()), sys.stdout, color=colored())


def show_command(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A result, as `aligntool bench list` names it.")
    ],
) -> None:
    """Show a result that was kept.

    Example: aligntool bench show result.json
    """
    from aligntool.bench.experiments import Spans, Starts
    from aligntool.probe.bench_history import read_experiment, read_result
    from aligntool.render.bench import result_lines
    from aligntool.render.bench_experiments import alignment_lines, span_lines
    from aligntool.render.lines import show

    width = terminal_width()
    match read_experiment(file):
        case Starts() as found:
            lines = alignment_lines(found, found.rows, width=width)
        case Spans() as found:
            lines = span_lines(found, width=width)
        case None:
            lines = result_lines(read_result(file), width=width)
    show(lines, sys.stdout, color=colored())


def compare_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Results; each is put beside the first.")],
    *,
    json_: Annotated[bool, typer.Option("--json", help="The ratios as JSON.")] = False,
) -> None:  # fmt: skip
    """Put results side by side: log10 of the ratios, drawn; what is within the noise is called that.

    Example: aligntool bench compare old-drive.json new-drive.json
    """
    from aligntool.probe.bench_history import read_result
    from aligntool.render.bench_compare import compare_json, compare_lines
    from aligntool.render.lines import show

    if len(files) < 2:
        raise typer.BadParameter("name two results or more")
    results = [read_result(file) for file in files]
    if json_:
        sys.stdout.write(compare_json(results, files))
    else:
        show(compare_lines(results, files, width=terminal_width()), sys.stdout, color=colored())
