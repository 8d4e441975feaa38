"""A member that stops answering while an array is made or reformatted: the command ends when it is interrupted, the
record is kept, and the suggested command finishes the work when the drive answers again.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import Lab
from tests.lab.drives import Nvme
from tests.lab.kernel import ROOT
from tests.lab.reformat_cases import SERIALS, SIZE
from tests.lab.stalled_members import CASES, Case
from tests.mover.command_line import REFUSED, STOPPED
from tests.thorough import when_thorough

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "mdadm", "sfdisk", "udevadm", "nvme"),
    pytest.mark.needs_tools("mkfs.ext4", "e2fsck", "wipefs"),
    when_thorough("interrupts commands in an emulated PC, which takes minutes"),
]
LIMIT_S = 3600.0


@pytest.fixture(scope="module")
def observed(lab: Lab) -> Path:
    names = " ".join(case.name for case in CASES)
    script = f"cd '{ROOT}'\n'{sys.executable}' -m tests.lab.stalled_members {names}"
    return lab.run(*(Nvme(serial, size=SIZE) for serial in SERIALS), script=script, limit_s=LIMIT_S)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_command_on_an_unresponsive_member_can_be_interrupted_and_finished(observed: Path, case: Case) -> None:
    said: dict[str, Any] = json.loads((observed / f"{case.name}.json").read_text())
    waiting = said["waiting"]
    assert waiting["event"] == "waiting" and waiting["seconds"] >= 5
    assert waiting["disk"].startswith((said["silent"], "/dev/md"))
    assert said["took"] < 11 and said["code"] == STOPPED, said["said"]
    assert "the record of its progress is kept" in said["said"] and f"aligntool {case.way} /dev/md/data" in said["said"]
    assert said["held"][0] in (REFUSED, STOPPED), said["held"]
    if case.name == "table":  # aligntool itself waits, and has the records locked
        assert re.search(r"process \d+ was interrupted, but still waits for a read or write", said["held"][1])
    for words in (said["said"], said["held"][1]):
        ways = [line for line in words.splitlines() if line.startswith("  →")]
        assert ways and len(ways) == len(set(ways))
    assert said["status"][0] == 0 and said["done"][0] == 0, said["done"]
    if case.reformats:
        assert said["after"] == said["sums"] and len(said["sums"]) == 12
        assert said["blocks"] == [4096 if case.way == "resume" else 512] * 2
        assert "[2/2]" in said["mdstat"]
    elif case.way == "resume":
        assert "[2/2]" in said["mdstat"]
    else:
        assert said["mdstat"].count("md") == 0 and not said["signatures"]
