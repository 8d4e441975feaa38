"""Tests of the tests of power cuts: with a deliberate bug they must fail."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tests.mover.mutations import MUTATIONS, Mutation
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.needs_tools("sfdisk")

ROOT = Path(__file__).parents[2]
CUTS = (
    "tests/mover/test_simulated_copies.py",
    "tests/mover/test_simulated_cuts.py",
    "tests/mover/test_lost_writes.py",
    "tests/mover/test_damaged_records.py",
    "tests/mover/test_joint_faults.py",
    "tests/mover/test_lost_tables.py",
    "tests/mover/test_old_copies.py",
    "tests/mover/test_whole_disk_cuts.py",
    "tests/mover/test_visible_content.py",
)


CHOSEN = tuple(sorted({f"tests/mover/{mutation.caught_by}" for mutation in MUTATIONS}))


RunCuts = Callable[[Path, Sequence[str]], tuple[int, str]]


@pytest.fixture(scope="module")
def run_cuts() -> Iterator[RunCuts]:
    """Run tests in a folder; return exit code and output.

    As many disks and cuts as in `make test`: a bug that needs hundreds would be noticed too late.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ALIGNTOOL_"))}
    with subprocess.Popen(
        [sys.executable, "-B", Path(__file__).with_name("pytest_server.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    ) as warmed:  # fmt: skip

        def run(folder: Path, tests: Sequence[str]) -> tuple[int, str]:
            assert warmed.stdin and warmed.stdout
            print(
                json.dumps((str(folder), ["-q", "-x", "-p", "no:cacheprovider", *tests])), file=warmed.stdin, flush=True
            )
            code, output = json.loads(warmed.stdout.readline())
            return code, output

        yield run


def copy_to(folder: Path) -> None:
    """Copy the program, with its bytecode, and the modules that its tests need; the copy is imported there."""
    unfinished = shutil.ignore_patterns("*.pyc.*")
    shutil.copytree(ROOT / "aligntool", folder / "aligntool", ignore=unfinished)
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "tests" / "mover").mkdir(parents=True)
    names = ("__init__.py", "conftest.py", "run_aligntool.py", "suggested.py", "thorough.py", "mover/__init__.py")
    for name in names:
        shutil.copy(ROOT / "tests" / name, folder / "tests" / name)
    for name in (
        "simulated_disk.py",
        "crowded_disks.py",
        "entries.py",
        "test_simulated_copies.py",
        "test_simulated_cuts.py",
        "test_damaged_records.py",
        "test_joint_faults.py",
        "test_lost_tables.py",
        "test_other_journals.py",
        "test_simulated_media.py",
        "test_lost_writes.py",
        "test_old_copies.py",
        "test_visible_content.py",
        "test_whole_disk_cuts.py",
        "libblkid.py",
    ):
        shutil.copy(ROOT / "tests" / "mover" / name, folder / "tests" / "mover" / name)


@sample(4)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name.replace(" ", "-"))
def test_each_mutation_makes_a_test_of_cuts_fail(mutation: Mutation, tmp_path: Path, run_cuts: RunCuts) -> None:
    """By the test named next to the bug, or by any of them."""
    copy_to(tmp_path)
    source = tmp_path / mutation.file
    text = source.read_text()
    assert text.count(mutation.right) == 1, f"{mutation.file} has changed; say the mutation anew"
    source.write_text(text.replace(mutation.right, mutation.wrong))
    Path(cache_from_source(source)).unlink(missing_ok=True)
    code, output = run_cuts(tmp_path, CUTS if THOROUGH else (f"tests/mover/{mutation.caught_by}",))
    assert code == 1, f"{mutation.name}: not noticed\n{output[-3000:]}"
    assert "= FAILURES =" in output


def test_the_tests_of_cuts_pass_without_a_bug(tmp_path: Path, run_cuts: RunCuts) -> None:
    """Some of them; `make test` runs all of them on the program itself."""
    copy_to(tmp_path)
    code, output = run_cuts(tmp_path, CUTS if THOROUGH else CHOSEN[::8])
    assert code == 0, output[-3000:]


def test_the_docs_state_the_number_of_mutations() -> None:
    text = (ROOT / "docs" / "crash-safety.md").read_text()
    assert f"`tests/mover/mutations.py` has {len(MUTATIONS)} bugs" in text
