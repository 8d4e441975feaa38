"""The power is cut at every step of an array that `aligntool-ensure@.service` makes anew at boot: the next boot goes on
by itself, also with drives that came back blank meanwhile, and the last one ends with the array mounted.

The program cuts the power itself, at the moment when a step begins: the record says so, and of what the steps before it
wrote is kept what was flushed. The next boot does this step, and is cut at the next one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from aligntool.units import GIB
from tests.lab.conftest import Debian
from tests.lab.debian_pc import DebianPC, powered
from tests.lab.drives import Nvme
from tests.lab.ensured_pc import OTHER, UNIT, blank, look, set_up, value
from tests.lab.marks import DEBIAN_PC
from tests.thorough import when_thorough

pytestmark = [*DEBIAN_PC, when_thorough("starts a PC 22 times")]

SERIALS = ("store0", "store1")
NEW = ("store2", "store3")
STEPS = 19
REPLACED = 13  # a step after the lines in fstab: after this cut the drives are blank ones with other serial numbers
# It runs aligntool. The number of the step to cut at is in a file, and is one larger after each start.
CUT = """import os
from pathlib import Path
from aligntool.__main__ import main
from aligntool.raid import apply

FILE = Path("/var/lib/cut")
CUT_AT = int(FILE.read_text())
BEGUN = apply.StepBegun

def begun(index):
    if index == CUT_AT:
        Path("/dev/kmsg").write_text("<0>cut at step %d" % index)
        Path("/proc/sysrq-trigger").write_text("b")
    return BEGUN(index)

apply.StepBegun = begun
with FILE.open("r+") as file:
    file.write("%d  " % (CUT_AT + 1))
    file.flush()
    os.fsync(file.fileno())
main()
"""
NEVER = 99
SET_UP = f"""set -e
cat > /usr/local/lib/cut.py << 'END'
{CUT}
END
systemctl start {UNIT}
echo {NEVER} > /var/lib/cut
sed -i 's:-m aligntool:/usr/local/lib/cut.py:' /usr/bin/aligntool
echo kept > /srv/scratch/file
"""
SAID = re.compile(r"cut at step (\d+)$", re.MULTILINE)


@dataclass(slots=True)
class Cut:
    """What there was before the cuts and after them. `at`: the step at which each boot in between was cut."""

    before: str
    after: str = ""
    at: list[int] = field(default_factory=list)


def _drives(*serials: str) -> tuple[Nvme, ...]:
    return tuple(Nvme(serial, GIB) for serial in serials)


@pytest.fixture(scope="module")
def pc(debian: Debian) -> Iterator[DebianPC]:
    with powered(debian.pc(*_drives(*SERIALS))) as pc:
        set_up(pc)
        pc.run(SET_UP)
        yield pc


@pytest.fixture(scope="module")
def cut(pc: DebianPC) -> Cut:
    """Cut the power at every step of the plan in turn. After the first cut the drives are still blank."""
    found = Cut(look(pc))
    pc.run("echo '0 ' > /var/lib/cut; sync")
    pc.off()
    blank(pc, *SERIALS)
    while said := pc.start_or_reset():
        found.at += map(int, SAID.findall(said))
        if found.at[-1:] == [REPLACED]:
            pc.drives = _drives(*NEW)
    found.after = look(pc)
    return found


def test_every_boot_continues_at_the_step_of_the_last_cut(cut: Cut) -> None:
    assert cut.at == [*range(STEPS)]
    said = cut.after
    assert (value(said, "unit"), value(said, "local-fs")) == ("success", "active"), said
    assert value(said, "records").count(".json.old") == value(said, "records").count(".json") == 2, said


def test_after_the_cuts_it_is_mounted_and_only_its_own_lines_are_replaced(cut: Cut) -> None:
    said = cut.after
    kind, uuid = value(said, "mounted").split()
    assert kind == "xfs" and value(said, "line").startswith(f"UUID={uuid} /srv/scratch xfs"), said
    assert (value(said, "access"), value(said, "bound")) == ("12 2770", "[/pods]"), said
    assert f"# replaced by aligntool: {value(cut.before, 'line')}" in said
    assert len(re.findall(r"^# replaced by aligntool: UUID=.* /srv/scratch xfs", said, re.MULTILINE)) == 2, said
    assert OTHER in said.splitlines() and sum(line.startswith("ARRAY ") for line in said.splitlines()) == 1, said
    assert "file kept" not in said.splitlines()
    assert {value(said, name) for name in ("nvme0", "nvme1")} == {*NEW}


def test_the_next_boot_has_nothing_to_do(pc: DebianPC, cut: Cut) -> None:
    pc.reboot()
    said = look(pc)
    assert value(said, "unit") == "success" and "already as requested" in said, said
    assert [value(said, name) for name in ("mounted", "tables")] == [
        value(cut.after, name) for name in ("mounted", "tables")
    ]
