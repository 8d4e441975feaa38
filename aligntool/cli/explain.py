"""`aligntool explain`, `drives` and `recipes`: what aligntool knows before it looks at any disk."""

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from aligntool.audit.explanations import findings_markdown
from aligntool.audit.report import Code
from aligntool.cli.options import JsonOption, colored, terminal_width
from aligntool.errors import Refused
from aligntool.recipes.drives import load_drives
from aligntool.recipes.goals import Recipe, load_recipes, parse_recipe, recipe
from aligntool.render.lines import show
from aligntool.render.recipes import (
    TOPIC,
    drive_lines,
    explain_lines,
    explain_topic,
    list_lines,
    recipe_lines,
    recipe_rows,
    recipes_json,
    row_lines,
)

# `aligntool drives`: what the drive database knows of a model.


def drives(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="As the kernel or the label prints it; none: list every row."),
    ] = None,
    *,
    firmware: Annotated[
        str | None, typer.Option("--firmware", help="Firmware revision, where it decides.")
    ] = None,
) -> None:
    """Show what is known of a drive, with the source of every fact.

    Example: aligntool drives WD20EARS
    """
    database = load_drives()
    if model is None:
        show(row_lines([row.geometry for row in database.rows]), sys.stdout, color=colored())
        return
    found = database.search(model, firmware=firmware)
    if not found:
        raise Refused(f"the drive database has no row for {model!r}", hint="aligntool drives lists every row")
    show(drive_lines(found, width=terminal_width()), sys.stdout, color=colored())


# `aligntool explain`: what a finding code means, and what stands behind some of the figures.


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="Such as AT101, or queue-depth; none: list them all.")
    ] = None,
    *,
    markdown: Annotated[
        bool, typer.Option("--markdown", hidden=True, help="The page docs/findings.md.")
    ] = False,
) -> None:
    """Explain a finding: what it means, what it costs, and what to do.

    queue-depth draws why latency hides behind concurrency.

    Example: aligntool explain AT101
    """
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
        near = get_close_matches(code.upper(), known, n=1, cutoff=0.7)
        raise Refused(
            f"there is no finding {code!r}",
            hint=f"aligntool explain {near[0]}" if near else "aligntool explain lists them",
        )
    show(explain_lines(known[code.upper()], width=width), sys.stdout, color=colored())


# `aligntool recipes`: the goals that come with aligntool, and a check for one's own.


def list_recipes(*, json_: JsonOption = False) -> None:
    """List the recipes, and the command that takes each.

    Example: aligntool recipes list
    """
    found = load_recipes()
    if json_:
        sys.stdout.write(recipes_json(found))
    else:
        show(recipe_rows(found, width=terminal_width()), sys.stdout, color=colored())


def show_recipe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `aligntool recipes list` names it.")],
    *,
    json_: JsonOption = False,
) -> None:
    """Show the goal of a recipe, and the sources of its numbers.

    Example: aligntool recipes show desktop-uefi
    """
    found = tuple(each for each in load_recipes() if each.name == name) or (recipe(name),)
    _show(found, json_=json_)


def check_recipe(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A recipe of your own, in TOML.")],
    *,
    json_: JsonOption = False,
) -> None:
    """Check a recipe of your own, and show it.

    Every key and value must be understood.

    Example: aligntool recipes check my-layout.toml

    Exit code: 0 it is good, 3 it is not.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text file"
        raise Refused(f"{file}: {why}", hint="aligntool recipes list") from error
    _show((parse_recipe(file, text),), json_=json_)


def _show(found: tuple[Recipe, ...], *, json_: bool) -> None:
    if json_:
        sys.stdout.write(recipes_json(found))
    else:
        show(recipe_lines(found, width=terminal_width()), sys.stdout, color=colored())
