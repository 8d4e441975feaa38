"""A member that an array loses while it is created, and that comes back: in a guest with a real md."""

import json
import sys
from typing import Any

import pytest

from tests.lab.conftest import Lab
from tests.lab.drives import Nvme
from tests.lab.kernel import ROOT
from tests.thorough import when_thorough

pytestmark = [
    when_thorough("makes two arrays in an emulated PC"),
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "depmod", "mdadm", "udevadm"),
]

DRIVES = tuple(Nvme(name) for name in ("a", "b", "c", "d"))
# As `resume` finds it: the array was made, it lost a member, and the rest of it was written to.
INSIDE = """
import json, subprocess
from aligntool.errors import Stopped
from aligntool.raid.commands import command_of
from aligntool.raid.steps_md import start_array
from aligntool.steps import DataArea, MakeArray

def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout + done.stderr

def resume(step):
    try:
        return [said.text for said in start_array(step, named=True, whole=True)], ""
    except Stopped as error:
        return [str(error)], error.hint

def lose(step, stopped):
    run("mdadm", step.device, "--fail", step.members[1])
    run("udevadm", "settle")
    run("mdadm", step.device, "--remove", step.members[1])
    run("dd", "if=/dev/urandom", f"of={step.device}", "bs=1M", "count=4", "conv=fsync")
    if stopped:
        run("mdadm", "--stop", step.device)
        run("udevadm", "settle")
    before = run("mdadm", "--detail", step.device)
    said, hint = resume(step)
    run("mdadm", "--wait", step.device)
    return {"before": before, "said": said, "hint": hint, "after": run("mdadm", "--detail", step.device)}

found = {}
for name, number, bitmap in (("mapped", 0, 1 << 26), ("plain", 2, None)):
    uuid = f"01234567:89abcdef:01234567:0000000{number}"
    members = (f"/dev/nvme{number}n1", f"/dev/nvme{number + 1}n1")
    area = DataArea(4 << 20, 128 << 20)
    step = MakeArray(f"/dev/md/{name}", uuid, name, members, "raid1", "", None, "1.2", bitmap, area)
    print(run(*command_of(step)))
    run("mdadm", "--wait", step.device)
    found[name] = lose(step, stopped=False)
    if name == "mapped":
        found["stopped"] = lose(step, stopped=True)
        run("mdadm", "--stop", step.device)
        run("mdadm", "--assemble", step.device, *members)
        first, second = (open(member, "rb") for member in members)
        first.seek(4 << 20), second.seek(4 << 20)
        found["same"] = first.read(128 << 20) == second.read(128 << 20)
json.dump(found, open("/lab/found.json", "w"), indent=1)
"""


@pytest.fixture(scope="module")
def said(lab: Lab) -> dict[str, Any]:
    script = f"modprobe raid1\ncd {ROOT}\n{sys.executable} - <<'END'\n{INSIDE}\nEND"
    found: dict[str, Any] = json.loads((lab.run(*DRIVES, script=script, limit_s=1800) / "found.json").read_text())
    return found


def test_a_lost_member_that_is_there_again_is_added_to_its_array(said: dict[str, Any]) -> None:
    assert "degraded" in said["mapped"]["before"]
    assert said["mapped"]["said"] == ["/dev/nvme1n1 is a member of /dev/md/mapped again"]
    for case in ("mapped", "stopped"):
        assert "Active Devices : 2" in said[case]["after"]
    assert said["same"]


def test_a_member_that_md_refuses_to_add_again_is_named_with_its_answer(said: dict[str, Any]) -> None:
    """Without a bitmap md cannot know what was written meanwhile."""
    (sentence,) = said["plain"]["said"]
    assert "lost /dev/nvme3n1, which is there again, and md does not take it: mdadm: --re-add" in sentence
    assert "docs/by-hand.md#members-of-an-array" in said["plain"]["hint"]
    assert "Active Devices : 1" in said["plain"]["after"]
