"""`aligntool raid` as it is typed: what it prints, what it keeps, what it refuses."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from aligntool.plan import to_json
from aligntool.units import GIB
from tests.conftest import run
from tests.raid.golden_plans import RECIPES, golden_plan

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).parent / "aligntool"
MACHINE = ROOT / "tests" / "machines" / "md-on-misaligned-partitions.tar.xz"


def typed(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(PROGRAM), *(str(word) for word in words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_plan_of_an_array_is_not_applied_yet_and_that_is_said_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(to_json(golden_plan(RECIPES[0])))
    done = typed("apply", "--yes", file)
    assert done.returncode == 3
    assert done.stderr.startswith("aligntool: arrays are planned, and not made yet") and done.stdout == ""


def test_every_golden_plan_is_valid_by_the_published_schema() -> None:
    schema = json.loads((ROOT / "docs" / "plan.schema.json").read_text())
    for each in RECIPES:
        jsonschema.validate(json.loads(to_json(golden_plan(each))), schema)


def test_image_files_are_refused_with_the_way_to_make_them_devices(sparse: Callable[..., Path]) -> None:
    done = typed("raid", "plan", "--level", "1", sparse(GIB, "a.img"), sparse(GIB, "b.img"))
    assert done.returncode == 3
    assert done.stderr.count("losetup -f --show") == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--level", "3", "x"], 2, "no level"),
        (["x", "y"], 3, "which RAID is it to be?"),
        (["--recipe", "raid1-dta", "x"], 3, "did you mean 'raid1-data'?"),
        (["--level", "1", "/nowhere/a", "/nowhere/b"], 3, "/nowhere/b: No such file"),
    ],
)
def test_what_cannot_be_understood_says_what_to_type(words: list[str], code: int, said: str) -> None:
    done = typed("raid", "plan", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_arrays_of_a_captured_machine_are_shown_as_json() -> None:
    """mdadm --detail --scan listed these on it."""
    shown = typed("raid", "show", "--json", "--sysroot", MACHINE, "md2", "md4")
    listed = json.loads(shown.stdout)
    assert [each["name"] for each in listed] == ["md2", "md4"]
    assert [member["data_at"] for member in listed[0]["members"]] == [631242752] * 3


def test_recipes_for_arrays_are_listed_shown_and_checked() -> None:
    listed = typed("recipes", "list").stdout
    assert "aligntool raid plan DEV... --recipe NAME" in listed and "raid6-archive" in listed
    shown = typed("recipes", "show", "nvme-raid0-scratch").stdout
    assert "chunk 256KiB" in shown and "mounted noatime,logbufs=8" in shown
    assert typed("recipes", "check", ROOT / "recipes" / "raid" / "raid1-system.toml").returncode == 0


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk", "mkfs.ext4")
def test_drives_that_are_there_are_looked_at_refused_when_full_and_left_as_they_are(
    sparse: Callable[..., Path], loop: Callable[..., Path], tmp_path: Path
) -> None:
    one, two = loop(sparse(GIB, "a.img")), loop(sparse(GIB, "b.img"))
    kept = tmp_path / "plan.json"
    done = typed("raid", "plan", "--level", "1", "--system", "debian", "-o", kept, one, two)
    assert done.returncode == 0, done.stderr
    assert "--raid-devices=2" in done.stdout and f"{one}p1 {two}p1" in " ".join(done.stdout.split())
    assert json.loads(kept.read_text())["plan"]["purpose"] == "raid"
    assert run("sfdisk", "--json", one, fails=True) == ""
    run("mkfs.ext4", "-q", two)
    full = typed("raid", "plan", "--level", "1", one, two)
    assert full.returncode == 3 and f"{two.name} is not empty: ext4" in full.stderr
    assert typed("raid", "plan", "--level", "1", "--wipe", two, one, two).returncode == 0
