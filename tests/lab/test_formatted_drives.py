"""`raid create --lba-size` and `layout --lba-size` on real md and NVMe drives with formats of 512 and 4096 bytes, with
a power cut between two formats.

QEMU forgets the format of a drive when it ends, so the second guest gets the first drive with the blocks of its new
format.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import Lab
from tests.lab.drives import Nvme
from tests.lab.formatted_drives import SERIALS, SIZE
from tests.lab.guest import Guest
from tests.lab.kernel import ROOT
from tests.thorough import when_thorough

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "mdadm", "sfdisk", "udevadm", "nvme"),
    pytest.mark.needs_tools("mkfs.xfs", "mkfs.ext4", "xfs_db"),
    when_thorough("formats drives in two emulated PCs"),
]
LIMIT_S = 3600.0
NAMES = ("made", "refused", "undone", "continued", "reused", "table")
OLD, BETWEEN, NEW = [512, 512, 512], [4096, 512, 512], [4096, 4096, 512]


@dataclass(frozen=True, slots=True)
class Observed:
    of: dict[str, dict[str, Any]]
    between: list[int]  # the blocks of the drives before the power cut


def _script(*names: str) -> str:
    return f"cd '{ROOT}'\n'{sys.executable}' -m tests.lab.formatted_drives {' '.join(names)}"


@pytest.fixture(scope="module")
def observed(lab: Lab) -> Observed:
    first = lab.guest(*(Nvme(serial, size=SIZE) for serial in SERIALS))
    shared = first.cut_off(_script(*NAMES, "cut"), limit_s=LIMIT_S)
    drives = tuple(Nvme(serial, size=SIZE, block=block) for serial, block in zip(SERIALS, BETWEEN, strict=True))
    Guest(first.folder, drives, first.memory_mib).run(_script("after-cut"), limit_s=LIMIT_S)
    of = {name: _read(shared, name) for name in (*NAMES, "after-cut")}
    return Observed(of, json.loads((shared / "between.json").read_text()))


def _read(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


def _is_made(said: dict[str, Any]) -> None:
    """Check it with the kernel, mdadm, sfdisk and xfs_info."""
    code, _, err = said["done"]
    assert code == 0, err
    assert said["blocks"] == NEW and said["array_block"] == 4096
    assert said["sectors"] == [4096, 4096]
    # the backup of a GPT takes 5 sectors of 4096 bytes (UEFI 2.10, 5.3)
    assert said["ends"] == [SIZE // 4096 - 6] * 2
    assert "MD_DEVICES=2" in said["detail"] and "sectsz=4096" in said["xfs"] and "/dev/md" in said["mount"]
    assert said["records"] == []


def test_empty_drives_are_formatted_and_become_an_array(observed: Observed) -> None:
    said = observed.of["made"]
    assert said["untouched"] == OLD
    assert "nvme admin-passthru" in said["dry"][1]
    _is_made(said)


def test_the_same_request_again_has_nothing_to_do(observed: Observed) -> None:
    said = observed.of["made"]
    assert said["again"][0] == 0 and '"changed": false' in said["again"][1].splitlines()[-1], said["again"]
    code, out, _ = said["other"]
    assert code == 3 and "its logical blocks have 4096 bytes, not the requested 512" in out


def test_a_drive_with_data_is_refused_and_no_drive_is_formatted(observed: Observed) -> None:
    said = observed.of["refused"]
    for code, out, err in said["said"]:
        assert code == 3 and '"not-empty"' in out, err
    assert said["kept"] and said["blocks"] == OLD


def test_a_rollback_leaves_the_format_that_a_drive_has(observed: Observed) -> None:
    said = observed.of["undone"]
    assert said["between"] == BETWEEN == said["blocks"]
    assert said["done"][0] == 0 and said["records"] == [], said["done"]
    assert "keeps its logical blocks of 4096 bytes" in said["done"][1]


def test_a_resume_formats_the_other_drive(observed: Observed) -> None:
    assert observed.of["continued"]["between"] == BETWEEN
    _is_made(observed.of["continued"])


def test_a_drive_that_was_used_meanwhile_is_not_formatted(observed: Observed) -> None:
    said = observed.of["reused"]
    code, out, err = said["stopped"]
    assert code == 4 and "it is not formatted" in out + err
    assert said["between"] == BETWEEN and said["kept"]
    assert said["undone"][0] == 0 and said["records"] == [], said["undone"]


def test_a_drive_with_data_is_not_formatted_for_a_table(observed: Observed) -> None:
    said = observed.of["table"]
    for code, out, err in said["refusals"]:
        assert code == 3 and '"not-empty"' in out and "whole drive" in out, err
    code, out, err = said["stale"]
    assert code == 3 and "unrecognised data" in out, err
    assert said["kept"] and said["untouched"] == OLD


def test_an_empty_drive_is_formatted_and_gets_its_table(observed: Observed) -> None:
    """Check it with the kernel and sfdisk, after an interruption between format and table."""
    said = observed.of["table"]
    assert said["plan"][0] == 0 and "nvme admin-passthru" in said["plan"][1], said["plan"]
    assert said["between"] == BETWEEN
    code, out, err = said["again"]
    assert code == 3 and "requires another format than the plan" in out, err
    assert said["done"][0] == said["applied"][0] == 0, (said["done"], said["applied"])
    assert said["repeated"][0] == 0 and '"changed": false' in said["repeated"][1].splitlines()[-1]
    assert said["blocks"] == NEW
    table = said["table"]
    assert (table["label"], table["sectorsize"], len(table["partitions"])) == ("gpt", 4096, 2)
    assert all(part["start"] % 256 == 0 for part in table["partitions"])  # 1 MiB


def test_a_resume_after_a_power_cut_between_two_formats_completes_it(observed: Observed) -> None:
    said = observed.of["after-cut"]
    assert observed.between == BETWEEN == said["between"]
    status = json.loads(said["status"][1])
    assert (status["state"], status["disk"]) == ("unfinished", "/dev/md/made")
    _is_made(said)
