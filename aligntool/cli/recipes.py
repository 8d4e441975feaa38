"""`aligntool recipes`: the recipes that come with aligntool, and those of the user."""

from typing import Annotated

from aligntool.cli.options import JsonOption, terminal_width
from aligntool.cli.pager import page_lines
from aligntool.errors import Refused
from aligntool.linux.files import read_text
from aligntool.recipes.goals import Recipe, load_recipes, parse_recipe, recipe
from aligntool.render import recipes as shown

_LIST = "aligntool recipes list"


def list_recipes(*, json_: JsonOption = False) -> None:
    """List the recipes, and the command for each.

    Example: aligntool recipes list
    """
    found = load_recipes()
    page_lines(shown.recipes_json(found) if json_ else shown.recipe_rows(found, width=terminal_width()))


def show_recipe(
    name: Annotated[str, "NAME", "A name from `aligntool recipes list`."], *, json_: JsonOption = False
) -> None:
    """Show the goal of a recipe, and the sources of its numbers.

    Example: aligntool recipes show desktop-uefi
    """
    _show(tuple(each for each in load_recipes() if each.name == name) or (recipe(name),), json_=json_)


def check_recipe(file: Annotated[str, "FILE", "A recipe of your own, in TOML."], *, json_: JsonOption = False) -> None:
    """Check a recipe of your own, and show it.

    Unknown keys and values are errors.

    Example: aligntool recipes check my-layout.toml

    Exit code: 0 valid, 3 invalid.
    """
    found = (parse_recipe(file, read_text(file, hint=_LIST)),)
    _show(found, json_=json_, typed=file if _is_file(file) else f"./{file}")


def _show(found: tuple[Recipe, ...], *, json_: bool, typed: str = "") -> None:
    lines = shown.recipe_lines(found, width=terminal_width(), typed=typed)
    page_lines(shown.recipes_json(found) if json_ else lines)


def find_recipe(name: str, kind: str) -> Recipe:
    """Return the recipe of a kind by its name, or by its file if it is the user's own. Raises Refused."""
    if not _is_file(name):
        return recipe(name, kind)
    found = parse_recipe(name, read_text(name, hint=_LIST))
    if found.kind != kind:
        raise Refused(f"{name} is a recipe for a {found.kind}", hint=_LIST)
    return found


def _is_file(name: str) -> bool:
    """Return whether an option that takes a recipe names a file."""
    return "/" in name or name.endswith(".toml")
