"""`aligntool recipes`: the goals that come with aligntool, and a check for one's own."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.options import colored, terminal_width
from aligntool.errors import Refused

if TYPE_CHECKING:
    from aligntool.recipe import Recipe

recipes_app = typer.Typer(
    name="recipes",
    help="Goals for usual cases, as data: list them, show one, check one of your own.\n\n"
    "Example: aligntool recipes list",
    no_args_is_help=True,
)


@recipes_app.command("list")
def list_recipes(
    *, json_: Annotated[bool, typer.Option("--json", help="The recipes as JSON.")] = False
) -> None:
    """List the recipes, and the command that takes each.

    Example: aligntool recipes list
    """
    from aligntool.recipe import load_recipes
    from aligntool.render.lines import show
    from aligntool.render.recipes import recipe_rows, recipes_json

    found = load_recipes()
    if json_:
        sys.stdout.write(recipes_json(found))
    else:
        show(recipe_rows(found, width=terminal_width()), sys.stdout, color=colored())


@recipes_app.command("show")
def show_recipe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `aligntool recipes list` names it.")],
    *,
    json_: Annotated[bool, typer.Option("--json", help="The recipe as JSON.")] = False,
) -> None:
    """Show what a recipe wants, why, and where its numbers come from.

    Example: aligntool recipes show desktop-uefi
    """
    from aligntool.recipe import load_recipes, recipe

    found = tuple(each for each in load_recipes() if each.name == name) or (recipe(name),)
    _tell(found, json_=json_)


@recipes_app.command("check")
def check_recipe(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A recipe of your own, in TOML.")],
    *,
    json_: Annotated[bool, typer.Option("--json", help="The recipe as JSON.")] = False,
) -> None:
    """Check a recipe of your own: every key and value must be understood. Then it is shown.

    Example: aligntool recipes check my-layout.toml

    Exit code: 0 it is good, 3 it is not.
    """
    from pathlib import Path

    from aligntool.recipe import parse_recipe

    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "this is no text"
        raise Refused(f"{file}: {why}", hint="aligntool recipes list") from error
    _tell((parse_recipe(file, text),), json_=json_)


def _tell(found: "tuple[Recipe, ...]", *, json_: bool) -> None:
    from aligntool.render.lines import show
    from aligntool.render.recipes import recipe_lines, recipes_json

    if json_:
        sys.stdout.write(recipes_json(found))
    else:
        show(recipe_lines(found, width=terminal_width()), sys.stdout, color=colored())
