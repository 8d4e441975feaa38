"""Print the list of `recipes/` that is in recipes/README.md: python -m tests.recipes.menu > recipes/README.md"""

import sys
from collections.abc import Sequence
from itertools import groupby

from aligntool.inventory import KnownGeometry
from aligntool.recipes.drives import ChipsetTable, DriveDatabase, DriveRow, load_chipsets, load_drives
from aligntool.recipes.goals import FOLDERS, Recipe, load_recipes
from aligntool.units import format_size

_HEAD = """\
# Recipes

Data that is a part of aligntool, one file a subject, in TOML.
What the keys mean and how to add a row: [docs/recipes.md](../docs/recipes.md).

This list is made from the files: `python -m tests.recipes.menu > recipes/README.md`.
A test fails when it is not current.
"""
_TITLES = {"realign": "Realign", "layouts": "Layouts", "raid": "Arrays", "bench": "Benchmarks"}
COMMANDS = {
    "realign": "aligntool realign DISK",
    "layouts": "aligntool layout DISK",
    "raid": "aligntool raid plan DEVICE...",
    "bench": "aligntool bench TARGET",
}
OPTIONS = {"bench": "--profile"}


def menu(recipes: Sequence[Recipe], drives: DriveDatabase, chipsets: ChipsetTable) -> str:
    parts = [_HEAD]
    for folder in FOLDERS:
        option = OPTIONS.get(folder, "--recipe")
        parts.append(f"## {_TITLES[folder]}: `{COMMANDS[folder]} {option} NAME`\n")
        parts.append("| recipe | for |\n|---|---|")
        parts.extend(_recipe_line(each) for each in recipes if f"/{folder}/" in each.file)
        parts.append("")
    parts.append("## Drives\n")
    for file, rows in groupby((*drives.rows, *drives.classes), key=lambda row: row.file):
        short = file.removeprefix("recipes/")
        parts.append(f"### {short}\n\n[{short}]({short}):\n")
        parts.append("| drive | known | confidence |\n|---|---|---|")
        parts.extend(_line(row) for row in rows)
        parts.append("")
    families = {family.name: family for *_, family in chipsets.ranges}
    parts.append("## Chipsets\n\n[chipsets.toml](chipsets.toml):\n")
    parts.append("| PCI devices of | side | link to the processor |\n|---|---|---|")
    parts.extend(f"| {each.name} | {each.side} | {each.uplink or '–'} |" for each in families.values())
    return "\n".join(parts) + "\n"


def _recipe_line(recipe: Recipe) -> str:
    short = recipe.file.removeprefix("recipes/")
    return f"| [{recipe.name}]({short}) | {_cell(recipe.summary)} |"


def _line(row: DriveRow) -> str:
    name = f"{row.name}, firmware {', '.join(row.firmware)}" if row.firmware else row.name
    return f"| {_cell(name)} | {_cell(summary(row.geometry))} | {row.geometry.confidence} |"


def summary(known: KnownGeometry) -> str:
    """Return the facts of the row in a few words."""
    sizes = (
        ("physical sector", known.physical_block_size),
        ("page", known.page_size),
        ("indirection unit", known.indirection_unit),
        ("erase block", known.erase_block),
    )
    words = [f"{name} {format_size(size)}" for name, size in sizes if size is not None]
    if known.dram is not None:
        words.append("DRAM" if known.dram else "no DRAM, HMB" if known.hmb else "no DRAM")
    if known.hybrid:
        words.append("hybrid")
    if known.defect:
        words.append(known.defect + (f"; fixed in {known.fixed_in}" if known.fixed_in else ""))
    words.extend(f"{limit} misleads" for limit in known.distrust)
    return ", ".join(words) or known.note or ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(menu(load_recipes(), load_drives(), load_chipsets()))
