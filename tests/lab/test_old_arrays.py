"""`raid create --wipe` over drives of an earlier array, under a real udev, which assembles what it finds.

`old_arrays` runs in the guest: every kind of old array but with one level each, also with a cut, and drives that were
put into another array after a cut.
"""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.lab import old_arrays
from tests.lab.conftest import Part
from tests.lab.drives import Nvme
from tests.lab.old_arrays import Case
from tests.thorough import THOROUGH, when_thorough

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "mdadm", "sfdisk", "udevadm"),
    when_thorough("makes and overwrites arrays in an emulated PC, each for a minute"),
]
# mdadm 4.2 makes no RAID0 with superblocks of 0.90, which cannot store its layout (super0.c, validate_geometry0).
LEVELS = {"0.90": ("10", "1", "5"), "1.0": ("0", "1", "5"), "1.2": ("0", "1", "5")}
PLACES = (("whole", "partitions"), ("whole", "whole"), ("same", "partitions"), ("same", "taken"), ("other", "whole"))
HOW = ("", "backwards", "cut")
# Each metadata with each place in each way; the levels alternate, so that each meets each of the others.
EVERY = [
    Case(levels[(m + p + h) % len(levels)], metadata, *place, how)
    for (m, (metadata, levels)), (p, place), (h, how) in product(
        enumerate(LEVELS.items()), enumerate(PLACES), enumerate(HOW)
    )
]
ANOTHER = Case("1", "1.0", "same", "partitions", "another")
CASES = [*EVERY, ANOTHER]
LIMIT_S = 300.0  # for each case; a minute on a quiet machine
if THOROUGH:
    PART = Part(
        "old_arrays",
        tuple(Nvme(serial, size=old_arrays.SIZE) for serial in old_arrays.SERIALS),
        tuple(case.name for case in CASES),
        LIMIT_S * (1 + len(CASES)),
    )


def read(said: Path, case: Case) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((said / f"{case.name}.json").read_text())
    return found


def arrays(mdstat: str) -> list[str]:
    return [line for line in mdstat.splitlines() if line.startswith("md")]


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_the_new_array_is_created_and_the_old_one_does_not_reappear(said: Path, case: Case) -> None:
    told = read(said, case)
    assert told["code"] == 0 and told["records"] == [], told["err"]
    (array,) = arrays(told["mdstat"])
    assert " active " in array and "raid1" in array and "3/3" in told["mdstat"]
    old = dict(line.split("=", 1) for line in told["old"].splitlines() if "=" in line)["MD_UUID"]
    assert len(set(told["examined"].values()) - {""}) == 1 and old not in told["examined"].values()


@pytest.mark.parametrize("case", [case for case in EVERY if case.how == "cut"], ids=lambda case: case.name)
def test_the_cut_left_an_array_that_the_resume_must_stop(said: Path, case: Case) -> None:
    """Otherwise the test above would prove nothing."""
    assert len(arrays(read(said, case)["left"])) == 1


def test_an_array_that_the_plan_does_not_overwrite_is_never_stopped(said: Path) -> None:
    told = read(said, ANOTHER)
    (array,) = arrays(told["mdstat"])
    assert told["code"] != 0 and " active " in array and "2/3" not in array
    assert len(told["records"]) == 1
