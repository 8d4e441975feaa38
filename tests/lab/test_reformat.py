"""`raid reformat` on real md and on NVMe drives with formats of 512 and 4096 bytes, with power cuts in the middle.

One guest makes, fills and reformats an array of each level, and rolls one back; the last one, a RAID5, is cut off by
killing QEMU while the first member is being rebuilt. A second guest resumes, and is cut off while the second member is
formatted. A third one resumes to the end, and begins a RAID10 that is cut off; a fourth one resumes that, and begins a
RAID6 that is cut off when two of its members are complete again. QEMU forgets the format of a drive when it ends, so a
guest gets each drive with the blocks that its table counts in.
"""

import json
import random
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import Lab
from tests.lab.drives import Nvme
from tests.lab.emulator import started
from tests.lab.guest import SCRIPT, Guest
from tests.lab.kernel import ROOT, debian_kernel
from tests.lab.reformat_cases import CASES, SERIALS, SIZE, Case
from tests.thorough import when_thorough

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "mdadm", "sfdisk", "udevadm", "nvme"),
    pytest.mark.needs_tools("mkfs.xfs", "mkfs.ext4", "cryptsetup"),
    when_thorough("reformats arrays in five emulated PCs, which takes twenty minutes"),
]
LIMIT_S = 4 * 3600.0  # twenty minutes on a quiet machine; an hour was too short on a busy one
FORWARD = tuple(case for case in CASES if case.name not in ("old", "ten"))
BACK = ("old-out", "old-back", "old-leaving", "spared-leaving")
RETURNED = ("six-returned", "spared-returned")
RETURNED_BACK = "mirror-returned-back"
HALF = ("mirror-half", "five-half")
DIFFERING = "mirror-differing"
# Step 0 compares; 1, 2, 3 remove, format and re-add the first member; 4, 5, 6 the second one, and so on.
PUT_BACK, FORMAT, FORMAT_THIRD = 3, 5, 8
CUT = {"five": "FormatMember", "ten": "PutBackMember", "six": "FormatMember"}  # and the step of the last cut


@dataclass(frozen=True, slots=True)
class Observed:
    """`cut`: the arrays whose power was cut, twice for the RAID5."""

    of: dict[str, dict[str, Any]]
    cut: dict[str, dict[str, Any]]


def _script(*names: str) -> str:
    return f"cd '{ROOT}'\n'{sys.executable}' -m tests.lab.reformat_cases {' '.join(names)}"


def _guest(lab_guest: Guest) -> Guest:
    """Return a guest with the same drives, each with the blocks that its table counts in; one without a table was just
    formatted.
    """

    def block(serial: str) -> int:
        with (lab_guest.folder / f"{serial}.img").open("rb") as image:
            return 512 if image.read(520)[512:] == b"EFI PART" else 4096

    drives = tuple(Nvme(serial, size=SIZE, block=block(serial)) for serial in SERIALS)
    return Guest(lab_guest.folder, drives, lab_guest.memory_mib)


def _cut(guest: Guest, step: int, *names: str) -> None:
    """Run these, and kill QEMU within two seconds after this step of the last one began."""
    (guest.folder / "lab").mkdir(exist_ok=True)
    (guest.folder / "lab" / SCRIPT).write_text(f"set -eu\nexport LC_ALL=C\n{_script(*names)}\n")
    command = guest.command(debian_kernel(), "--show-boot-console", "--script-sh", f"bash /lab/{SCRIPT}")
    with started(command, guest.folder / "console") as pc:
        deadline = time.monotonic() + LIMIT_S
        while not re.search(rf'"step-begun",\s*"index":\s*{step}\b', pc.console()):
            assert pc.is_on() and time.monotonic() < deadline, pc.console()
            time.sleep(0.1)
        time.sleep(random.Random(step).uniform(0, 2))
        pc.cut()


@pytest.fixture(scope="module")
def observed(lab: Lab) -> Observed:
    first = lab.guest(*(Nvme(serial, size=SIZE) for serial in SERIALS))
    _cut(
        first, PUT_BACK, *(case.name for case in FORWARD), *BACK, *RETURNED, RETURNED_BACK, *HALF, DIFFERING, "five-cut"
    )
    _cut(_guest(first), FORMAT, "five-resume+cut")
    _cut(_guest(first), PUT_BACK, "five-resume", "ten-cut")
    _cut(_guest(first), FORMAT_THIRD, "ten-resume", "six-cut")
    shared = _guest(first).run(_script("six-resume"), limit_s=LIMIT_S)
    names = [*(case.name for case in FORWARD), *BACK, *RETURNED, RETURNED_BACK, *HALF, DIFFERING]
    return Observed(
        {name: _read(shared, name) for name in names}, {name: _read(shared, f"{name}-resume") for name in CUT}
    )


def _read(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


def _case(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def _is_whole(said: dict[str, Any], case: Case, blocks: Sequence[int]) -> None:
    """Check it with mdadm, the kernel, sfdisk and the file system's own checker, which ran before the files were read
    again.
    """
    code, _, err = said["done"]
    assert code == 0, err
    assert said["after"] == said["sums"] and len(said["sums"]) == 12
    assert said["mismatches"] == "0" and said["records"] == []
    assert said["blocks"] == list(blocks)
    assert said["tables"] == said["tables_before"]
    assert len(said["tables"]) == (0 if case.whole else case.members)
    active = case.members - case.spare
    assert f"[{active}/{active}]" in said["mdstat"], said["mdstat"]
    assert ("(S)" in said["mdstat"]) == case.spare


@pytest.mark.parametrize("case", FORWARD, ids=lambda case: case.name)
def test_every_member_has_the_new_sector_size_and_every_file_is_unchanged(observed: Observed, case: Case) -> None:
    said = observed.of[case.name]
    _is_whole(said, case, [4096] * case.members)
    assert said["array_block"] == 4096
    assert said["dry"][0] == 0 and "--lba-size 4096" in said["dry"][1]


@pytest.mark.parametrize("case", FORWARD, ids=lambda case: case.name)
def test_a_mounted_array_is_refused(observed: Observed, case: Case) -> None:
    code, out, _ = observed.of[case.name]["refused"]["mounted"]
    assert code == 3 and '"in-use"' in out


@pytest.mark.parametrize("name", BACK)
def test_a_rolled_back_array_has_the_old_sector_size_and_the_old_files(observed: Observed, name: str) -> None:
    said, case = observed.of[name], _case(name.partition("-")[0])
    assert any(mark in said["before"] for mark in ("[2/1]", "(R)", "(F)"))  # or nothing was rolled back
    _is_whole(said, case, [512] * case.members)


@pytest.mark.parametrize("name", RETURNED)
def test_a_removed_member_that_mdadm_re_added_is_removed_before_its_format(observed: Observed, name: str) -> None:
    said, case = observed.of[name], _case(name.partition("-")[0])
    member = re.escape(said["member"])
    assert re.search(rf"\b{member}\[", said["before"]), said["before"]
    _is_whole(said, case, [4096] * case.members)


def test_a_removed_member_that_was_re_added_stays_in_the_array_in_a_rollback(observed: Observed) -> None:
    said, case = observed.of[RETURNED_BACK], _case(RETURNED_BACK.partition("-")[0])
    assert re.search(rf"\b{re.escape(said['member'])}\[", said["before"]), said["before"]
    _is_whole(said, case, [512] * case.members)
    assert f"{said['member']} is removed" not in said["done"][1]


@pytest.mark.parametrize("name", HALF)
def test_a_member_that_was_removed_during_its_recovery_is_rebuilt(observed: Observed, name: str) -> None:
    said, case = observed.of[name], _case(name.partition("-")[0])
    assert "recovery =" in said["before"] and "Recovery Offset" in said["superblock"], said["before"]
    _is_whole(said, case, [4096] * case.members)


def test_members_that_differ_before_an_interrupted_comparison_are_not_formatted(observed: Observed) -> None:
    code, out, _ = observed.of[DIFFERING]["done"]
    assert code == 3 and "of its members differ" in out


@pytest.mark.parametrize("name", CUT)
def test_a_resume_after_power_cuts_completes_the_reformat(observed: Observed, name: str) -> None:
    said, case = observed.cut[name], _case(name)
    missing = f"[{case.members}/{case.members - 1}]"
    assert missing in said["before"] or "inactive" in said["before"], said["before"]
    status = json.loads(said["status"][1])
    assert (status["state"], status["step"]) == ("unfinished", CUT[name])
    _is_whole(said, case, [4096] * case.members)
    assert said["array_block"] == 4096
