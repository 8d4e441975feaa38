"""Finding the packaged `recipes/` folder, and reading the files in it.

In a wheel it lies inside the package, in a checkout (or an editable install of one) beside it.
"""

from typing import TYPE_CHECKING

from aligntool.errors import Refused

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PACKAGE = "aligntool"


def read_recipes(folder: str) -> tuple[tuple[str, str], ...]:
    """(name, content) of the TOML files of `recipes/FOLDER`, in the order of their names.

    Raises Refused when this installation has no recipes.
    """
    for place in _places(folder):
        if place.is_dir():
            found = {file.name: file for file in place.iterdir() if file.name.endswith(".toml")}
            return tuple(
                (f"recipes/{folder}/{name}", found[name].read_text("utf-8")) for name in sorted(found)
            )
    raise Refused(
        f"this installation of aligntool lacks its recipes/{folder} folder", hint="install aligntool again"
    )


def read_recipe(name: str) -> tuple[str, str]:
    """(name, content) of one file of `recipes/`."""
    for place in _places(name):
        if place.is_file():
            return f"recipes/{name}", place.read_text("utf-8")
    raise Refused(f"this installation of aligntool lacks recipes/{name}", hint="install aligntool again")


def _places(name: str) -> "tuple[Traversable, ...]":
    from importlib.resources import files  # slow to import, and an audit of an image file needs none of it

    package = files(PACKAGE)
    return package / "recipes" / name, package / ".." / "recipes" / name
