"""The cases that `make test` skips: always the same ones, and `make test-all` runs all of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CASES = """
import pytest
from tests.thorough import sample, when_thorough

@sample(3)
@pytest.mark.parametrize("one", range(4))
@pytest.mark.parametrize("other", range(5))
def test_many(one: int, other: int) -> None: ...

@sample(3)
@pytest.mark.parametrize("one", range(2))
def test_few(one: int) -> None: ...

@sample(1)
@pytest.mark.parametrize("one", [*(pytest.param(one, marks=when_thorough("takes long")) for one in range(9)), 9])
def test_nine_are_long(one: int) -> None: ...

@when_thorough("takes an hour")
def test_long() -> None: ...
"""


def _ran(folder: Path, *words: str, thorough: str = "") -> list[str]:
    """Return the names of the tests that passed."""
    for name in ("__init__.py", "conftest.py", "thorough.py", "run_aligntool.py", "suggested.py"):
        name = f"tests/{name}"
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    (folder / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    (folder / "tests/test_cases.py").write_text(CASES)
    command = (sys.executable, "-m", "pytest", "-vv", "--color=no", "-p", "no:cacheprovider", *words)
    environment = os.environ | {"ALIGNTOOL_THOROUGH": thorough, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"::(\S+) PASSED", done.stdout)


def test_a_sample_is_reproducible_and_make_test_all_runs_every_case(tmp_path: Path) -> None:
    some = _ran(tmp_path)
    assert some == _ran(tmp_path) and len(set(some)) == 3 + 2 + 1
    assert len(set(_ran(tmp_path, thorough="1"))) == 20 + 2 + 10 + 1


@pytest.mark.parametrize("words", [("-k", "[1-3]"), ("tests/test_cases.py::test_many[1-3]",)])
def test_a_case_that_is_selected_by_its_name_runs(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert _ran(tmp_path, *words) == ["test_many[1-3]"]
