"""`python -m aligntool.recipes` prints recipes/README.md."""

import sys

from aligntool.recipes.drives import load_chipsets, load_drives
from aligntool.recipes.goals import load_recipes, menu

if __name__ == "__main__":
    sys.stdout.write(menu(load_recipes(), load_drives(), load_chipsets()))
