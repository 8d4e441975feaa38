"""The script that starts arrays without their missing drives, on waiting arrays in a guest.

Each array is a RAID1 with one member present; which ones the script starts depends on mdadm.conf alone.
tests/lab/test_degraded.py and test_persist.py test its timer on a machine that boots.
"""

from pathlib import Path

import pytest

from aligntool.raid.boot import system_file_text
from aligntool.units import MIB
from tests.lab.conftest import Lab
from tests.lab.drives import Nvme
from tests.thorough import when_thorough

pytestmark = [
    when_thorough("makes six arrays in an emulated PC"),
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "mdadm", "sfdisk", "udevadm"),
]

# The line of each in mdadm.conf(5), where $uuid is its UUID; `striped` lacks a member that it cannot run without.
LINES = {
    "plain": "ARRAY /dev/md/plain metadata=1.2 UUID=$uuid",
    "odd": "array odd uuid=$(echo $uuid | tr a-f: A-F.)",
    "ignored": "ARRAY <ignore> UUID=$uuid",
    "hidden": "# ARRAY /dev/md/hidden UUID=$uuid",
    "stranger": "",
    "striped": "ARRAY /dev/md/striped UUID=$uuid",
}
LEVEL = {"striped": "0"}
MAKE = "\n".join(
    f"""
printf ',32M,linux-raid\\n,32M,linux-raid\\n' | sed '1i label: gpt' | sfdisk -q /dev/nvme{number}n1
udevadm settle
mdadm --create /dev/md/{name} --run --name={name} --level={LEVEL.get(name, "1")} --raid-devices=2 --metadata=1.2 \\
    /dev/nvme{number}n1p1 /dev/nvme{number}n1p2 > /lab/{name}.made 2>&1
udevadm settle
uuid=$(mdadm --detail --export /dev/md/{name} | sed -n 's/^MD_UUID=//p')
mdadm --stop /dev/md/{name}
mdadm --incremental /dev/nvme{number}n1p1
md=$(basename /sys/block/nvme{number}n1/nvme{number}n1p1/holders/md*)
echo $md > /lab/{name}.node
cat /sys/block/$md/md/array_state > /lab/{name}.before
line="{line}"
echo "$line" >> {"/etc/mdadm/mdadm.conf.d/more.conf" if name == "odd" else "/etc/mdadm/mdadm.conf"}
"""
    for number, (name, line) in enumerate(LINES.items())
)
SAY = "\n".join(f"cat /sys/block/$(cat /lab/{name}.node)/md/array_state > /lab/{name}.after" for name in LINES)
WHOLE = f"""
modprobe -a raid0 raid1
mkdir -p /etc/mdadm/mdadm.conf.d
echo HOMEHOST any > /etc/mdadm/mdadm.conf
{MAKE}
cat > /lab/late.sh << 'END'
{system_file_text("mdadm-late-start.sh")}END
/bin/sh /lab/late.sh > /lab/said 2>&1
echo $? > /lab/code
{SAY}
"""


@pytest.fixture(scope="module")
def said(lab: Lab) -> Path:
    return lab.run(*(Nvme(name, size=128 * MIB) for name in LINES), script=WHOLE, limit_s=1200)


def state(said: Path, name: str, when: str) -> str:
    return (said / f"{name}.{when}").read_text().strip()


@pytest.mark.parametrize("name", LINES)
def test_every_array_is_inactive_before_the_script(said: Path, name: str) -> None:
    assert state(said, name, "before") == "inactive"


@pytest.mark.parametrize("name", ["plain", "odd"])
def test_an_array_in_mdadm_conf_is_started_whatever_the_form_of_its_line(said: Path, name: str) -> None:
    assert state(said, name, "after") in ("clean", "active", "active-idle", "read-auto")


@pytest.mark.parametrize("name", ["ignored", "hidden", "stranger"])
def test_an_array_without_a_line_is_not_started(said: Path, name: str) -> None:
    assert state(said, name, "after") == "inactive"


def test_an_array_with_too_many_missing_drives_is_not_started_and_reported(said: Path) -> None:
    assert state(said, "striped", "after") == "inactive"
    node = (said / "striped.node").read_text().strip()
    assert f"/dev/{node} has too many missing drives" in (said / "said").read_text()
    assert (said / "code").read_text().strip() == "0"
