"""`aligntool explain`: what a finding code means."""

import sys
from typing import Annotated

import typer

from aligntool.cli.options import colored, terminal_width
from aligntool.errors import Refused


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="Such as AT101; none: list every code.")
    ] = None,
    *,
    markdown: Annotated[
        bool, typer.Option("--markdown", hidden=True, help="The page docs/findings.md.")
    ] = False,
) -> None:
    """Tell what a finding means, how it is judged, what it costs, and what to do.

    Example: aligntool explain AT101
    """
    from aligntool.audit import Code
    from aligntool.render.explain import explain_lines, findings_markdown, list_lines
    from aligntool.render.lines import show

    if markdown:
        sys.stdout.write(findings_markdown())
        return
    width = terminal_width()
    if code is None:
        show(list_lines(width=width), sys.stdout, color=colored())
        return
    known = {one.value: one for one in Code}
    if code.upper() not in known:
        from difflib import get_close_matches

        near = get_close_matches(code.upper(), known, n=1, cutoff=0.0)
        raise Refused(
            f"there is no finding {code!r}", hint=f"aligntool explain {near[0] if near else ''}".rstrip()
        )
    show(explain_lines(known[code.upper()], width=width), sys.stdout, color=colored())
