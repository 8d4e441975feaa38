"""`raid create --zero-members` and `--fast-sync` on real md and NVMe drives: md itself reads copies and parity back and
compares them.

Each drive has random bytes where an empty drive is not read, which only zeroing removes.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import Lab
from tests.lab.drives import Drive, Nvme, Scsi
from tests.lab.first_sync import EMPTY, LEVELS, LIMIT_KIB, SCSI, SIZE
from tests.lab.kernel import ROOT
from tests.thorough import when_thorough

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "mdadm", "udevadm", "fallocate"),
    pytest.mark.needs_tools("mkfs.xfs", "mkfs.ext4", "wipefs", "blkdiscard", "blockdev"),
    when_thorough("makes a dozen arrays in an emulated PC"),
]
LIMIT_S = 3600.0
NAMES = (*(f"raid{level}" for level in LEVELS), "control", "refused", "resumed", "undone", "reused")
FAST = ("fast", "killed", "fast-undone")
CLEAN = {"sync_action": "idle", "resync_start": "none", "mismatches": 0, "hidden": [False] * 4, "records": []}


@pytest.fixture(scope="module")
def observed(lab: Lab) -> dict[str, dict[str, Any]]:
    drives: list[Drive] = [*(Nvme(serial, size=SIZE) for serial in EMPTY), Scsi(SCSI, size=SIZE)]
    script = f"cd '{ROOT}'\n'{sys.executable}' -m tests.lab.first_sync {' '.join((*NAMES, *FAST))}"
    shared = lab.run(*drives, script=script, limit_s=LIMIT_S)
    return {name: _read(shared, name) for name in (*NAMES, *FAST)}


def _read(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


def _is_clean(said: dict[str, Any]) -> None:
    """Check that md has nothing to synchronise, finds no difference, and has all members."""
    code, out, err = said["done"]
    assert code == 0, out + err
    assert {key: said[key] for key in CLEAN} == CLEAN
    assert "Active Devices : 4" in said["detail"] and "degraded" not in said["detail"]


@pytest.mark.parametrize("level", LEVELS)
def test_copies_and_parity_of_zeroed_members_are_right(observed: dict[str, dict[str, Any]], level: str) -> None:
    said = observed[f"raid{level}"]
    assert said["kept"] == [True] * 4
    assert "At full speed: as soon as it is made" in said["dry"][1]
    _is_clean(said)
    assert said["again"][0] == 0 and '"changed": false' in said["again"][1]
    assert said["later"] == 0 and said["degraded"]


def test_md_finds_the_differences_of_members_that_were_not_zeroed(observed: dict[str, dict[str, Any]]) -> None:
    assert observed["control"]["mismatches"] > 0


def test_only_empty_nvme_drives_of_a_redundant_level_are_zeroed(observed: dict[str, dict[str, Any]]) -> None:
    said = observed["refused"]
    for name, code in (("other", "write-zeroes"), ("striped", "invalid-option"), ("held", "not-empty")):
        assert said[name][0] == 3 and f'"{code}"' in said[name][1], said[name]
    assert said["wiped"][0] == 3 and "only empty drives are" in said["wiped"][1], said["wiped"]
    assert said["kept"]


def test_a_resume_zeroes_the_members_again(observed: dict[str, dict[str, Any]]) -> None:
    cuts = observed["resumed"]["cuts"]
    assert "StepBegun" in cuts[0]["event"] and "StepDone" in cuts[-1]["event"], [cut["event"] for cut in cuts]
    for cut in cuts:
        _is_clean(cut)


def test_a_rollback_leaves_no_array_and_no_table(observed: dict[str, dict[str, Any]]) -> None:
    for cut in observed["undone"]["cuts"]:
        assert cut["done"][0] == 0 and cut["records"] == [], cut
        assert cut["tables"] == [""] * 4, cut


def test_a_member_that_was_used_meanwhile_is_not_zeroed(observed: dict[str, dict[str, Any]]) -> None:
    said = observed["reused"]
    code, out, err = said["stopped"]
    assert code == 4 and "it is not overwritten" in out + err
    assert said["kept"] and said["undone"][0] == 0 and said["records"] == [], said["undone"]


def test_the_limit_is_lifted_until_the_array_is_in_sync(observed: dict[str, dict[str, Any]]) -> None:
    said = observed["fast"]
    _is_synchronised(said)
    assert "is in sync, and md's limit is restored" in said["done"][1]


def test_a_resume_synchronises_on_and_restores_the_limit(observed: dict[str, dict[str, Any]]) -> None:
    said = observed["killed"]
    assert said["lifted"] == "100000000 (local)"
    _is_synchronised(said)


def test_a_rollback_ends_the_synchronisation_with_the_array(observed: dict[str, dict[str, Any]]) -> None:
    said = observed["fast-undone"]
    assert said["lifted"] == "100000000 (local)"
    assert said["done"][0] == 0 and said["records"] == [] and said["arrays"] == [], said["done"]


def _is_synchronised(said: dict[str, Any]) -> None:
    """Check that md has synchronised all members, finds no difference, and has the limit of all arrays again."""
    code, out, err = said["done"]
    assert code == 0, out + err
    assert (said["sync_action"], said["resync_start"], said["mismatches"]) == ("idle", "none", 0)
    assert "Active Devices : 4" in said["detail"] and said["records"] == []
    assert said["limit"] == f"{LIMIT_KIB} (system)"
