"""`aligntool explain`: what a finding code means, and what stands behind some of the figures."""

import sys
from typing import Annotated

import typer

from aligntool.cli.options import colored, terminal_width
from aligntool.errors import Refused


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="Such as AT101, or queue-depth; none: list them all.")
    ] = None,
    *,
    markdown: Annotated[
        bool, typer.Option("--markdown", hidden=True, help="The page docs/findings.md.")
    ] = False,
) -> None:
    """Tell what a finding means, how it is judged, what it costs, and what to do.

    queue-depth draws why latency hides behind concurrency.

    Example: aligntool explain AT101
    """
    from aligntool.audit import Code
    from aligntool.render.explain import explain_lines, findings_markdown, list_lines
    from aligntool.render.lines import show
    from aligntool.render.queue_depth import TOPIC, explain_topic

    if markdown:
        sys.stdout.write(findings_markdown())
        return
    width = terminal_width()
    if code is None:
        show(list_lines(width=width), sys.stdout, color=colored())
        return
    if code.lower() == TOPIC:
        show(explain_topic(width=width), sys.stdout, color=colored())
        return
    known = {one.value: one for one in Code}
    if code.upper() not in known:
        from difflib import get_close_matches

        near = get_close_matches(code.upper(), known, n=1, cutoff=0.7)
        raise Refused(
            f"there is no finding {code!r}",
            hint=f"aligntool explain {near[0]}" if near else "aligntool explain lists them",
        )
    show(explain_lines(known[code.upper()], width=width), sys.stdout, color=colored())
