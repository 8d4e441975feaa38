"""What aligntool knows beforehand, as data: the drive database, the table of chipsets, and goals for usual cases.

In: the TOML files under `recipes/`, which are a part of the program. Out: frozen values. Nothing here looks at a
machine.
"""

from aligntool.recipe.chipsets import (
    ChipsetTable,
    PortFamily,
    Side,
    lane_bandwidth,
    load_chipsets,
    parse_chipsets,
)
from aligntool.recipe.drives import DriveDatabase, load_drives, parse_drives
from aligntool.recipe.goals import Recipe, load_recipes, parse_part, parse_recipe, recipe
from aligntool.recipe.menu import menu
from aligntool.recipe.profiles import BenchGoal, BenchTest
from aligntool.recipe.rows import DriveRow

__all__ = [
    "BenchGoal",
    "BenchTest",
    "ChipsetTable",
    "DriveDatabase",
    "DriveRow",
    "PortFamily",
    "Recipe",
    "Side",
    "lane_bandwidth",
    "load_chipsets",
    "load_drives",
    "load_recipes",
    "menu",
    "parse_chipsets",
    "parse_drives",
    "parse_part",
    "parse_recipe",
    "recipe",
]
