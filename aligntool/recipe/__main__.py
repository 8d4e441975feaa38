"""`python -m aligntool.recipe` prints recipes/README.md."""

import sys

from aligntool.recipe import load_chipsets, load_drives, load_recipes, menu

if __name__ == "__main__":
    sys.stdout.write(menu(load_recipes(), load_drives(), load_chipsets()))
