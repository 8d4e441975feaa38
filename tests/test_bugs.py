"""Tests of the tests: with a deliberate bug, the named test fails."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bugs import BUGS, Bug
from tests.thorough import when_thorough

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "aligntool"
NAMES = [bug.consequence for bug in BUGS]
COPIED = ("aligntool", "tests", "recipes", "docs", "po", "pyproject.toml", "README.md", "Makefile")


@pytest.mark.parametrize("bug", BUGS, ids=NAMES)
def test_a_deliberate_bug_is_in_one_place_of_the_source(bug: Bug) -> None:
    assert (PACKAGE / bug.file).read_text().count(bug.right) == 1
    assert (ROOT / "tests" / bug.noticed_by.partition("::")[0]).is_file()


def test_every_package_has_a_deliberate_bug() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    with_bugs = {Path(bug.file).parts[0] for bug in BUGS}
    # Those of the mover are in a list of their own; the others plan what the mover does, or call what has bugs here.
    assert packages - with_bugs == {"cli", "mover", "whole_disk"}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("bugs")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    yield folder
    shutil.rmtree(folder)


@when_thorough("makes 41 bugs, each with a run of its test")
@pytest.mark.parametrize("bug", BUGS, ids=NAMES)
def test_a_deliberate_bug_is_noticed(bug: Bug, copy: Path) -> None:
    source = copy / "aligntool" / bug.file
    right = source.read_text()
    words = [sys.executable, "-B", "-m", "pytest", "-x", "-p", "no:cacheprovider", f"tests/{bug.noticed_by}"]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ALIGNTOOL_"))}
    source.write_text(right.replace(bug.right, bug.wrong))
    try:
        done = subprocess.run(
            words, cwd=copy, env=env | {"PYTHONPATH": str(copy)}, capture_output=True, text=True, check=False
        )
    finally:
        source.write_text(right)
    assert done.returncode in (1, 2) and ("FAILED" in done.stdout or "ERROR" in done.stdout), done.stdout
