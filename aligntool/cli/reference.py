"""`aligntool explain`, `drives`, `recipes` and `schema`: what aligntool knows without looking at a disk."""

import json
import re
import sys
from difflib import get_close_matches
from typing import Annotated

import typer

from aligntool.audit.report import Code, findings_markdown
from aligntool.change import EnsureGoal, RaidGoal
from aligntool.cli.options import JsonOption, path, terminal_width, text
from aligntool.cli.pager import page_lines
from aligntool.commands import command
from aligntool.documents import schema_texts
from aligntool.errors import Refused, refuse
from aligntool.linux.files import read_text
from aligntool.raid.refusals import ensure_problems, goal_problems
from aligntool.recipes.drives import load_drives
from aligntool.recipes.goals import Goal, Recipe, load_recipes, parse_recipe, recipe
from aligntool.render import recipes as shown
from aligntool.render.lines import EMPTY, Line

# `aligntool drives`: what the drive database knows about a model.


def drives(
    model: Annotated[
        str | None,
        typer.Argument(
            parser=text,
            metavar="MODEL",
            help="Model as printed by the kernel or on the label [default: every row].",
        ),
    ] = None,
    *,
    firmware: Annotated[
        str | None,
        typer.Option(
            "--firmware", metavar="REVISION", help="Show only rows that match this firmware revision."
        ),
    ] = None,
) -> None:
    """Show what is known about a drive, with the source of every fact.

    Example: aligntool drives WD20EARS
    """
    database = load_drives()
    if model is None:
        page_lines(shown.drive_summary_lines([row.geometry for row in database.rows]))
        return
    found = database.search(model, firmware=firmware)
    if not found:
        raise Refused(f"the drive database has no row for {model!r}", hint="every row: aligntool drives")
    page_lines(shown.drive_lines(found, width=terminal_width()))


# `aligntool explain`: what a finding code means, and the reasoning behind some of the figures.


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            parser=text,
            metavar="CODE",
            help="A code such as AT101 or in-use, a word such as grain, or queue-depth [default: list all].",
        ),
    ] = None,
    *,
    markdown: Annotated[
        bool, typer.Option("--markdown", hidden=True, help="Print the page docs/findings.md.")
    ] = False,
) -> None:
    """Explain a finding: what it means, what it costs, and what to do.

    The code of a refusal and a word of the glossary are explained as well. queue-depth
    explains with a chart how concurrency hides latency.

    Example: aligntool explain AT101
    """
    if markdown:
        sys.stdout.write(findings_markdown())
        return
    width = terminal_width()
    if code is None:
        page_lines(shown.list_lines(width=width))
        return
    if code.lower() == shown.TOPIC:
        page_lines(shown.explain_topic(width=width))
        return
    lines: list[Line] = []
    if shown.term_key(code) in shown.glossary():
        lines += shown.term_lines(code, width=width)
    if code.lower() in shown.refusals():
        lines += [*([EMPTY] if lines else []), *shown.refusal_lines(code.lower(), width=width)]
    if lines:
        page_lines(lines)
        return
    known = {listed.value: listed for listed in Code}
    if code.upper() not in known:
        near = get_close_matches(code.upper(), known, n=1, cutoff=0.7)
        near += get_close_matches(shown.term_key(code), shown.glossary(), cutoff=0.7)
        near += get_close_matches(code.lower(), shown.refusals(), cutoff=0.7)
        hint = f"the closest: {', '.join(dict.fromkeys(near))}" if near else "all of them: aligntool explain"
        raise typer.BadParameter(f"there is no finding, no refusal and no word {code!r}; {hint}")
    page_lines(shown.explain_lines(known[code.upper()], width=width))


# `aligntool recipes`: the recipes that come with aligntool, and those of the user.

_LIST_RECIPES = "aligntool recipes list"


def list_recipes(*, json_: JsonOption = False) -> None:
    """List the recipes, and the command for each.

    Example: aligntool recipes list
    """
    found = load_recipes()
    page_lines(shown.recipes_json(found) if json_ else shown.recipe_rows(found, width=terminal_width()))


def show_recipe(
    name: Annotated[
        str, typer.Argument(parser=text, metavar="NAME", help="A name from `aligntool recipes list`.")
    ],
    *,
    json_: JsonOption = False,
) -> None:
    """Show the goal of a recipe, and the sources of its numbers.

    Example: aligntool recipes show desktop-uefi
    """
    _show_recipes(tuple(each for each in load_recipes() if each.name == name) or (recipe(name),), json_=json_)


def check_recipe(
    file: Annotated[str, typer.Argument(parser=path, metavar="FILE", help="A recipe of your own, in TOML.")],
    *,
    json_: JsonOption = False,
) -> None:
    """Check a recipe of your own, and show it.

    Unknown keys and values are errors.

    Example: aligntool recipes check my-layout.toml

    Exit code: 0 valid, 3 invalid.
    """
    found = (parse_recipe(file, read_text(file, hint=_LIST_RECIPES)),)
    _refuse_impossible(found[0].goal)
    _show_recipes(found, json_=json_, typed=file if _is_recipe_file(file) else f"./{file}")


def _refuse_impossible(goal: Goal) -> None:
    """Raise Refused if an array can never be as the file says, whatever the drives."""
    try:
        if isinstance(goal, EnsureGoal):
            refuse(ensure_problems(goal))
        elif isinstance(goal, RaidGoal):
            refuse(goal_problems(goal))
    except Refused as refused:
        refused.change_hints(_as_key)
        raise


_KEYS = {"mount": "mount_at", "fs": "filesystem"}  # of options with another name


def _as_key(hint: str) -> str:
    """Return a hint with the keys of a file in place of the options of a command."""
    lines = (re.sub(r"^--(\S+) (\S+)$", r'--\1 = "\2"', line) for line in hint.split("\n"))
    text = "\n".join(lines)
    return re.sub("--([a-z-]+)", lambda found: _KEYS.get(found[1], found[1].replace("-", "_")), text)


def _show_recipes(found: tuple[Recipe, ...], *, json_: bool, typed: str = "") -> None:
    lines = shown.recipe_lines(found, width=terminal_width(), typed=typed)
    page_lines(shown.recipes_json(found) if json_ else lines)


def find_recipe(name: str, kind: str) -> Recipe:
    """Return the recipe of a kind by its name, or by its file if it is the user's own. Raises Refused."""
    if not _is_recipe_file(name):
        return recipe(name, kind)
    found = parse_recipe(name, read_text(name, hint=_LIST_RECIPES))
    if found.kind == "ensure":
        raise Refused(f"{name} is a file of raid ensure", hint=command("raid ensure", name, "--dry-run"))
    if found.kind != kind:
        raise Refused(f"{name} is a recipe for a {found.kind}", hint=_LIST_RECIPES)
    return found


def _is_recipe_file(name: str) -> bool:
    """Return whether an option that takes a recipe names a file."""
    return "/" in name or name.endswith(".toml")


# `aligntool schema`: the schemas of the JSON documents.


def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            parser=text, metavar="NAME", help="A document, such as audit or events [default: list all]."
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of a document that aligntool writes.

    Example: aligntool schema audit
    """
    texts = schema_texts()
    if name is None:
        sys.stdout.writelines(f"{each:<16}{json.loads(text)['title']}\n" for each, text in texts.items())
        return
    text = texts.get(name.removeprefix("aligntool."))
    if text is None:
        near = get_close_matches(name, texts, cutoff=0.4) or texts
        raise typer.BadParameter(
            f"{name!r} is not one of aligntool's documents; the closest are {', '.join(near)}"
        )
    sys.stdout.write(text)
