"""This checkout of aligntool as a read-only image that the emulated Debian mounts at /opt/aligntool.

The checkout and its environment become a squashfs. Compiled packages (parted) and those that Debian has in a recent
version (pyudev) come from Debian. It is separate from `debian` because it changes with every line of aligntool.
"""

import compileall
import os
import shutil
from importlib.metadata import distribution, requires
from pathlib import Path
from py_compile import PycInvalidationMode

from packaging.requirements import Requirement

from tests.conftest import run

CHECKOUT = Path(__file__).parent.parent.parent
OF_DEBIAN = {"pyparted", "pyudev"}
START = """#!/bin/sh
PYTHONPATH=/opt/aligntool/python exec python3 -m aligntool "$@"
"""


def image(folder: Path) -> Path:
    """Return the squashfs, recreated in `folder` (some seconds)."""
    tree = folder / "tool"
    python = tree / "python"
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("aligntool", "recipes"):
        shutil.copytree(CHECKOUT / name, python / name, ignore=ignore)
    for name in sorted(_needed("aligntool") - {"aligntool"}):
        _copy_distribution(name, python)
    compileall.compile_dir(python, quiet=2, workers=1, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    (tree / "bin").mkdir()
    start = tree / "bin" / "aligntool"
    start.write_text(START)
    start.chmod(0o755)
    made = folder / "tool.squashfs"
    run("mksquashfs", tree, made, "-quiet", "-no-progress", "-all-root", "-comp", "lz4")
    shutil.rmtree(tree)
    return made


def _needed(name: str) -> set[str]:
    """Return a distribution and its dependencies, without those in Debian."""
    found = {name}
    for line in requires(name) or ():
        need = Requirement(line)
        if need.name not in OF_DEBIAN and (need.marker is None or need.marker.evaluate({"extra": ""})):
            found |= _needed(need.name)
    return found


def _copy_distribution(name: str, python: Path) -> None:
    for file in distribution(name).files or ():
        source = Path(os.fspath(file.locate()))
        if file.parts[0] not in ("..", "__pycache__") and "__pycache__" not in file.parts:
            target = python.joinpath(*file.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
