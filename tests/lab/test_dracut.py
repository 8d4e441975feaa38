"""Arrays on a Debian with dracut: present after a reboot, assembled by the running system or by dracut.

The image is first as Debian's package makes it, which assembles nothing; then as on Fedora: for this machine alone
(hostonly), with mdraid and one array in rd.md.uuid, so that this one is up before the root is mounted. dracut puts its
own options into /etc/cmdline.d of the image, which count like the kernel's: dracut.conf(5), kernel_cmdline.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.lab.array_cases import Case
from tests.lab.conftest import Debian
from tests.lab.debian_pc import DebianPC, powered
from tests.lab.debian_variants import disk_with_dracut
from tests.lab.marks import DEBIAN_PC
from tests.lab.system import Facts, arrays, facts
from tests.thorough import when_thorough

pytestmark = [*DEBIAN_PC, pytest.mark.needs_tools("unshare", "lsinitrd"), when_thorough("starts a PC three times")]
MIRROR = Case("mirror", "--level 1 --fs ext4", 2, 512, "ext4", 1)
SCRATCH = Case("scratch", "--recipe nvme-raid0-scratch", 2, 512, "xfs", 2)
FEDORA = """cat > /etc/dracut.conf.d/machine.conf <<END
hostonly="yes"
add_dracutmodules+=" mdraid "
kernel_cmdline="rd.md.uuid={uuid}"
END
"""
FILL = "seq 300000 > {place}/numbers && sha256sum {place}/numbers >> /root/sums"
# In the order of the kernel's own messages: when an array started, and when the root was mounted.
MESSAGES = r"md/raid1:md\d+: active|EXT4-fs \(vda1\): mounted"


@dataclass(frozen=True, slots=True)
class Started:
    """The state after a start."""

    facts: dict[str, Facts]
    arrays: set[str]
    messages: tuple[str, ...]
    modules: set[str]
    conf: str
    sums: str
    state: str
    audit: tuple[int, str]


@dataclass(frozen=True, slots=True)
class Observed:
    """`plain`: with Debian's own image; `early`: with one as on Fedora."""

    made: dict[str, Facts]
    plan: str
    plain: Started
    early: Started


def _make(pc: DebianPC, case: Case) -> Facts:
    pc.run(f"aligntool raid create {case.command} --yes", 3600)
    pc.run(FILL.format(place=case.place))
    return facts(pc, case.device)


def _look(pc: DebianPC, *cases: Case) -> Started:
    audit = pc.run("aligntool audit --fail-on warning", code=None)
    return Started(
        facts={case.name: facts(pc, case.device) for case in cases},
        arrays=arrays(pc),
        messages=tuple(re.findall(MESSAGES, pc.run("dmesg").out)),
        modules=set(pc.run("lsinitrd -m").out.split()),
        conf=pc.run("lsinitrd -f etc/mdadm.conf").out,
        sums=pc.run("sha256sum -c /root/sums", code=None).out,
        state=pc.run("systemctl is-system-running", code=None).out.strip(),
        audit=(audit.code, audit.out + audit.err),
    )


@pytest.fixture(scope="module")
def observed(debian: Debian) -> Iterator[Observed]:
    drives = (*MIRROR.drives, *SCRATCH.drives)
    pc = DebianPC(debian.folders.mktemp("dracut"), disk_with_dracut(), debian.tool, drives)
    with powered(pc):
        plan = pc.run(f"aligntool raid plan {MIRROR.command}").out
        made = {"mirror": _make(pc, MIRROR)}
        pc.run(f"mdadm --wait {MIRROR.device}", code=None)
        pc.reboot()
        plain = _look(pc, MIRROR)
        pc.run(FEDORA.format(uuid=made["mirror"].detail["MD_UUID"]))
        made["scratch"] = _make(pc, SCRATCH)
        pc.reboot()
        yield Observed(made, plan, plain, _look(pc, MIRROR, SCRATCH))


def test_the_plan_uses_dracut_and_the_mdadm_conf_of_debian(observed: Observed) -> None:
    assert "dracut -f --regenerate-all" in observed.plan and "update-initramfs" not in observed.plan
    assert "edit /etc/mdadm/mdadm.conf" in observed.plan


def _comes_back(made: Facts, found: Facts, case: Case) -> None:
    assert found.lasting == made.lasting
    assert (found.detail["MD_NAME"], found.detail["MD_DEVNAME"]) == (f"any:{case.name}", case.name)
    assert found.blkid == made.blkid
    assert found.mount and found.mount["target"] == case.place


def _is_whole(started: Started, places: int) -> None:
    assert started.arrays == {found.node for found in started.facts.values()}
    assert len(started.sums.splitlines()) == started.sums.count(": OK") == places
    assert started.state == "running"
    assert started.audit[0] == 0, started.audit[1]


def test_with_the_image_of_debian_the_running_system_assembles_the_array(observed: Observed) -> None:
    """The image has mdraid, for any machine, and so no mdadm.conf; no option requests an array."""
    assert "mdraid" in observed.plain.modules and observed.plain.conf == ""
    assert [message[:4] for message in observed.plain.messages] == ["EXT4", "md/r"]
    _comes_back(observed.made["mirror"], observed.plain.facts["mirror"], MIRROR)
    _is_whole(observed.plain, 1)


def test_as_on_fedora_the_array_is_started_before_the_root_is_mounted(observed: Observed) -> None:
    assert "mdraid" in observed.early.modules
    assert [message[:4] for message in observed.early.messages] == ["md/r", "EXT4"]
    _comes_back(observed.made["mirror"], observed.early.facts["mirror"], MIRROR)
    _is_whole(observed.early, 2)


def test_the_array_line_is_in_the_mdadm_conf_that_dracut_includes(observed: Observed) -> None:
    uuids = re.findall(r"^ARRAY .*UUID=(\S+)", observed.early.conf, re.MULTILINE)
    assert uuids == [observed.made[name].detail["MD_UUID"] for name in ("mirror", "scratch")]


def test_an_array_that_dracut_was_not_configured_for_is_assembled_later(observed: Observed) -> None:
    _comes_back(observed.made["scratch"], observed.early.facts["scratch"], SCRATCH)
