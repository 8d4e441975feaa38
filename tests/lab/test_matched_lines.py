"""Which ARRAY lines mdadm matches with an array: it starts the array under its name only if exactly one matches.

`mdadm --incremental` adds the members, as udev does at boot; the audit's verdict on each mdadm.conf is compared with
what happened.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.audit.array_boot import running_arrays
from aligntool.system import parse_mdadm_conf
from aligntool.units import MIB
from tests.audit.array_builders import OTHER, machine, system
from tests.lab.conftest import Lab
from tests.lab.drives import Nvme
from tests.thorough import when_thorough

pytestmark = [
    when_thorough("starts an array in an emulated PC"),
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "mdadm", "udevadm"),
]

UUID = "01234567:89abcdef:01234567:89abcdef"
RIGHT = f"ARRAY /dev/md/data metadata=1.2 UUID={UUID}"
# Lines of an mdadm.conf, and whether the array "any:data" is started as /dev/md/data.
CONFS = {
    "one": (RIGHT, True),
    "another": (f"{RIGHT}\nARRAY /dev/md/data UUID={OTHER}", True),
    "twice": (f"{RIGHT}\n{RIGHT}", False),
    "ignored-too": (f"{RIGHT}\nARRAY <IGNORE> UUID={UUID}", False),
    "ignored": (f"ARRAY <Ignore> UUID={UUID}", False),
    "members-too": (f"{RIGHT}\nARRAY /dev/md/data devices=/dev/nvme0n1,/dev/nvme1n1", False),
    "its-members": (f"AUTO -all\n{RIGHT} devices=/dev/nvme*", True),
    "other-members": (f"AUTO -all\n{RIGHT} devices=/dev/sda,/dev/sdb", False),
    "number": (f"AUTO -all\n{RIGHT} super-minor=127", False),
    "without-identity": (f"{RIGHT}\nARRAY /dev/md/data", True),
}
MAKE = f"""
modprobe raid1
mkdir -p /etc/mdadm
echo HOMEHOST any > /etc/mdadm/mdadm.conf
mdadm --create /dev/md/data --run --name=data --homehost=any --uuid={UUID} --level=1 --raid-devices=2 --metadata=1.2 \\
    --assume-clean /dev/nvme0n1 /dev/nvme1n1 > /lab/made 2>&1
udevadm settle
"""
EACH = "\n".join(
    f"""
mdadm --stop --scan > /dev/null 2>&1 || true
udevadm settle
printf 'HOMEHOST any\\n{text.replace(chr(10), chr(92) + "n")}\\n' > /etc/mdadm/mdadm.conf
for drive in /dev/nvme0n1 /dev/nvme1n1; do mdadm --incremental $drive || true; done > /lab/{name}.said 2>&1
udevadm settle
if grep -q ' active ' /proc/mdstat && [ -e /dev/md/data ]; then echo started; fi > /lab/{name}.state
"""
    for name, (text, _) in CONFS.items()
)


@pytest.fixture(scope="module")
def said(lab: Lab) -> Path:
    return lab.run(*(Nvme(name, size=128 * MIB) for name in ("a", "b")), script=MAKE + EACH, limit_s=1200)


@pytest.mark.parametrize("name", CONFS)
def test_mdadm_starts_an_array_that_exactly_one_line_matches(said: Path, name: str) -> None:
    text, is_started = CONFS[name]
    assert (said / f"{name}.state").read_text().strip() == "started" * is_started, (said / f"{name}.said").read_text()
    conf = parse_mdadm_conf(text, "/etc/mdadm/mdadm.conf")
    (array,) = running_arrays(machine("raid1", replace(system(), mdadm=conf)))
    assert (bool(array.lines_in(conf.arrays)) and not array.surplus_lines()) is is_started
