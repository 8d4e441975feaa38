"""The power is cut while an array is made: `resume` completes it or `rollback` undoes it; until then it does not look
finished.

QEMU is killed a number of seconds after a given step began; the step's number seeds it. One array is cut off again in
every resume until it is complete; another is cut off and rolled back.
"""

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from aligntool.units import GIB
from tests.lab.array_cases import BY_ID
from tests.lab.conftest import Debian
from tests.lab.debian_pc import DebianPC, powered
from tests.lab.drives import Nvme
from tests.lab.marks import DEBIAN_PC
from tests.lab.system import arrays, facts
from tests.thorough import when_thorough

pytestmark = [*DEBIAN_PC, when_thorough("starts a PC a dozen times")]
# Steps of a RAID1's plan: 0 and 1 members, 2 array, 3 file system, 4 mdadm.conf, 5 initramfs, 6 a check of it,
# 7 to 9 files of its late start, 10 enabling it, 11 fstab, 12 systemd, 13 folder, 14 mount. Before its line is in
# fstab nothing may mount it.
FSTAB = 10
UNFINISHED = "AT617"
ONWARD = (1, 2, 3, 5, 11)
BACK = (1, 2, 5, 11)
LONGEST_DELAY_S = {1: 3, 2: 2, 3: 2, 5: 20, 11: 1}  # the steps after 11 take longer than a second, too
MADE = "kept"
TAKEN_BACK = "gone"
FILES = "/etc/fstab /etc/mdadm/mdadm.conf"


@dataclass(slots=True)
class Seen:
    """The state after each start that followed a cut, by the step that was cut; and at the end."""

    mounts: dict[int, str] = field(default_factory=dict)
    status: dict[int, dict[str, Any]] = field(default_factory=dict)
    audit: dict[int, str] = field(default_factory=dict)


def _members(name: str) -> tuple[Nvme, ...]:
    return tuple(Nvme(f"{name}{number}", GIB) for number in range(2))


def _create(name: str, *, again: bool = False) -> str:
    """Create the array. `again`: after one was rolled back on these drives, which leaves what mkfs wrote
    in the middle.
    """
    drives = [f"{BY_ID}{drive.serial}" for drive in _members(name)]
    wiped = " ".join(f"--wipe {drive}" for drive in drives if again)
    return f"aligntool raid create --level 1 --name {name} {wiped} {' '.join(drives)} --yes"


def cut_during(pc: DebianPC, command: str, step: int) -> None:
    """Run the command, and cut the power during this step."""
    pid = pc.begin(f"exec {command} --json > /dev/ttyS0 2>&1")
    pc.await_console(re.compile(rf'"step-begun",\s*"index":\s*{step}\b'), pid)
    pc.cut(after_s=random.Random(step).uniform(0, LONGEST_DELAY_S[step]))


def look(pc: DebianPC, name: str, step: int, seen: Seen) -> None:
    seen.mounts[step] = pc.run(f"findmnt -n /srv/{name}", code=None).out
    seen.status[step] = json.loads(pc.run("aligntool status --json").out)
    seen.audit[step] = pc.run("aligntool audit --json", code=None).out


@pytest.fixture(scope="module")
def pc(debian: Debian) -> Iterator[DebianPC]:
    with powered(debian.pc(*_members(MADE), *_members(TAKEN_BACK))) as pc:
        pc.run(f"sha256sum {FILES} > /root/files; sync")
        yield pc


@pytest.fixture(scope="module")
def onward(pc: DebianPC) -> Seen:
    """Cut the power at every step in turn, and finish the array."""
    seen = Seen()
    command = _create(MADE)
    for step in ONWARD:
        cut_during(pc, command, step)
        pc.start()
        look(pc, MADE, step, seen)
        command = "aligntool resume --yes"
    pc.run(command)
    return seen


@pytest.fixture(scope="module")
def back(pc: DebianPC) -> Seen:
    """Cut the power and roll back, once for every step."""
    seen = Seen()
    pc.run(f"sha256sum {FILES} > /root/files; sync")
    for step in BACK:
        cut_during(pc, _create(TAKEN_BACK, again=step != BACK[0]), step)
        pc.start()
        look(pc, TAKEN_BACK, step, seen)
        pc.run("aligntool rollback --yes")
        pc.run("sha256sum -c /root/files")
    return seen


def _check_reported(seen: Seen, name: str, step: int) -> None:
    """Check that nothing mounts it before fstab has its line, and that status and audit report it unfinished until the
    end.
    """
    status = seen.status[step]
    assert step > FSTAB or seen.mounts[step] == ""
    assert (status["state"], status["disk"]) == ("unfinished", f"/dev/md/{name}")
    assert status["index"] >= step  # the delay may have reached into the next step
    assert UNFINISHED in seen.audit[step]


@pytest.mark.parametrize("step", ONWARD)
def test_an_unfinished_array_is_reported_and_not_mounted(onward: Seen, step: int) -> None:
    _check_reported(onward, MADE, step)


@pytest.mark.parametrize("step", BACK)
def test_an_array_being_rolled_back_is_reported_and_not_mounted(back: Seen, step: int) -> None:
    _check_reported(back, TAKEN_BACK, step)


def test_the_last_resume_completes_the_array_and_it_is_present_after_a_reboot(
    pc: DebianPC, onward: Seen, back: Seen
) -> None:
    before = facts(pc, f"/dev/md/{MADE}")
    pc.reboot()
    after = facts(pc, f"/dev/md/{MADE}")
    assert after.lasting == before.lasting and after.detail["MD_NAME"] == f"any:{MADE}"
    assert after.mount and after.mount["target"] == f"/srv/{MADE}"
    assert arrays(pc) == {after.node}
    assert pc.run("ls /var/lib/aligntool/arrays").out == ""
    pc.run(f"umount /srv/{MADE} && xfs_repair -n /dev/md/{MADE} && mount /srv/{MADE}")


def test_the_lines_of_the_array_are_in_the_files_once(pc: DebianPC, onward: Seen) -> None:
    found = facts(pc, f"/dev/md/{MADE}")
    conf = pc.run("cat /etc/mdadm/mdadm.conf").out
    assert conf.count("ARRAY ") == 1 and found.detail["MD_UUID"] in conf
    assert pc.run("cat /etc/fstab").out.count(found.blkid["UUID"]) == 1


def test_a_rolled_back_array_leaves_no_traces_on_its_drives(pc: DebianPC, back: Seen) -> None:
    for drive in _members(TAKEN_BACK):
        path = f"{BY_ID}{drive.serial}"
        assert pc.run(f"wipefs --noheadings {path}").out == ""
        assert pc.run(f"lsblk -n -o NAME {path}").out.count("\n") == 1
        assert pc.run(f"mdadm --examine {path}", code=1).out == ""


def test_a_rolled_back_array_is_not_in_the_initramfs(pc: DebianPC, back: Seen) -> None:
    said = pc.run("unmkinitramfs /initrd.img /tmp/in && cat $(find /tmp/in -path '*etc/mdadm/mdadm.conf')").out
    assert "HOMEHOST" in said and f"/dev/md/{TAKEN_BACK}" not in said
