"""The geometry that md created against the plan, read from sysfs as the kernel writes it."""

from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.raid.steps_md import array_differences
from aligntool.steps import MakeArray
from aligntool.units import MIB
from tests.raid.builders import drives, goal, planned

# A RAID0 that mdadm created on four emulated drives of 20 GiB, as in tests/raid/test_plans.py: 2 members, 42905632768
# bytes, data offset 38912 sectors.
SIZE, OFFSET = 42905632768, 38912


def made() -> MakeArray:
    plan = planned(goal("raid0", chunk=256 * 1024), *drives(2, size=20 << 30))
    (step,) = [step for step in plan.steps if isinstance(step, MakeArray)]
    return step


def sysfs(folder: Path, *, size: int = SIZE, chunk: int = 262144, offset: int = OFFSET) -> Path:
    for number in range(2):
        (folder / "md" / f"dev-nvme{number}n1p1").mkdir(parents=True)
        (folder / "md" / f"dev-nvme{number}n1p1" / "offset").write_text(f"{offset if number else OFFSET}\n")
    (folder / "md" / "chunk_size").write_text(f"{chunk}\n")
    (folder / "size").write_text(f"{size // 512}\n")
    return folder


def test_an_array_that_matches_the_plan_has_no_differences(tmp_path: Path) -> None:
    assert list(array_differences(made(), sysfs(tmp_path), SIZE)) == []
    assert list(array_differences(made(), sysfs(tmp_path / "rounded", size=SIZE - 262144), SIZE)) == []
    assert list(array_differences(made(), tmp_path / "nowhere", SIZE)) == []


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"size": SIZE * 3 // 2}, "its size is 61377MiB, not 40918MiB"),
        ({"size": SIZE - 4 * MIB}, ", not "),
        ({"chunk": 524288}, "its chunk is 512KiB, not 256KiB"),
        ({"offset": 264192}, "its data begin 129MiB into nvme1n1p1, not 19MiB"),
    ],
)
def test_each_difference_from_the_plan_is_reported(tmp_path: Path, other: dict[str, int], said: str) -> None:
    (found,) = array_differences(made(), sysfs(tmp_path, **other), SIZE)
    assert said in found


def test_a_chunk_that_differs_from_the_step_is_reported(tmp_path: Path) -> None:
    (found,) = array_differences(replace(made(), chunk=4096), sysfs(tmp_path), SIZE)
    assert "its chunk is 256KiB, not 4KiB" in found


def test_the_size_is_compared_only_if_it_is_known(tmp_path: Path) -> None:
    assert list(array_differences(made(), sysfs(tmp_path, size=SIZE * 2))) == []
