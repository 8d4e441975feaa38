"""A system that is realigned from a live stick, as in docs/install.md, boots afterwards from its own disk alone."""

import re
import sys
from pathlib import Path

import pytest

from tests.boots.bootdisks import bios_disk
from tests.boots.pc import live
from tests.boots.stick import stick
from tests.boots.system import SWAP_UUID
from tests.boots.test_boots import WANTED, booted_from
from tests.boots.test_boots import folder as folder
from tests.boots.test_boots import tree as tree
from tests.conftest import run
from tests.mover.disks import check_table, entries

pytestmark = [*WANTED, pytest.mark.needs_tools("mksquashfs")]
ROOT = Path(__file__).parent.parent.parent
SECTION = (ROOT / "docs" / "install.md").read_text().partition("\n## From a rescue stick\n")[2].partition("\n## ")[0]
PROMPT = r"user@[a-z-]+:\S*\$ "


def commands() -> list[str]:
    """Return the commands in docs/install.md, with the folder of the live medium in front."""
    typed = re.findall(r"^```\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    assert len(typed) == 1 and "`cd /run/live/medium`" in SECTION
    return ["cd /run/live/medium", *typed[0].splitlines()]


def packages(*rows: str) -> tuple[str, ...]:
    """Return the Debian packages that docs/install.md names for these file systems, and Python."""
    found = [re.search(rf"^\| {row} \| `([^`]+)` \|$", SECTION, re.MULTILINE) for row in rows]
    return ("python3", *(name for each in found if each for name in each[1].split()))


@pytest.fixture(scope="module")
def rescue(folder: Path) -> Path:
    run(sys.executable, ROOT / ".ci" / "pyz.py", folder)
    wanted = packages("ext2, ext3, ext4")
    assert wanted == ("python3", "e2fsprogs")
    return stick(folder, folder / "aligntool.pyz", wanted)


def realigned_from(rescue: Path, disk: Path) -> None:
    """Log in to the live system, type the commands of docs/install.md, and check each answer."""
    change, audit, plan, realign, off = commands()
    with live(disk, rescue) as console:
        console.until("[a-z] login: ")
        console.enter("user", "Password: ")  # the user of every Debian live medium, and its password
        console.enter("live", PROMPT)
        console.enter(change, PROMPT)
        audited = console.enter(audit, PROMPT)
        assert "AT101" in audited, audited
        # The stick may be sda; the audit has the name of the other one.
        name = re.search(r"plan realign (/dev/sd[ab])\s", audited)
        assert name, audited
        plan, realign = (command.replace("/dev/sda", name[1]) for command in (plan, realign))
        planned = console.enter(plan, PROMPT)
        assert re.search(r"\b63\b.*\b2048\b", planned) and "is not installed" not in planned, planned
        asked = console.enter(realign, "to continue: ")
        assert f"Type {name[1]} to continue: " in asked, asked
        done = console.enter(name[1], PROMPT)
        assert "partition 1: sector 2048 (1MiB), on the grid" in done, done
        assert "Nothing to do" in console.enter(plan, PROMPT)
        console.enter(off, "")
        console.until_off()


def test_a_system_realigned_from_a_live_stick_boots(folder: Path, tree: Path, rescue: Path) -> None:
    disk = bios_disk(folder, tree)
    assert entries(disk)[1]["start"] == 63
    realigned_from(rescue, disk)
    assert [entry["start"] % 8 for entry in entries(disk).values()] == [0, 0]
    check_table(disk)
    start, told = booted_from(disk)
    assert start == entries(disk)[1]["start"] == 2048
    assert f"swap {SWAP_UUID} failed 0" in told
