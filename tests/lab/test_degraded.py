"""Data arrays with a missing drive: started degraded, mounted by the planned line, and reported as degraded.

A RAID1 and a RAID5 are made on one PC, which is started again without one drive of each.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from aligntool.units import GIB
from tests.lab.array_cases import BY_ID
from tests.lab.conftest import Debian
from tests.lab.debian_pc import DebianPC, powered
from tests.lab.drives import Nvme
from tests.lab.marks import DEBIAN_PC
from tests.lab.system import CIRCUMSTANCES, Facts, facts
from tests.thorough import when_thorough

pytestmark = [*DEBIAN_PC, when_thorough("starts a PC twice")]
ARRAYS = {"mirror": ("1", "ext4", 2), "archive": ("5", "xfs", 3)}  # level, file system, members
FILL = """set -e
head -c 3000000 /dev/urandom > /srv/{name}/file
sha256sum /srv/{name}/file >> /root/sums
"""


@dataclass(frozen=True, slots=True)
class Observed:
    """`before`: with all drives; the rest with one drive of each array removed."""

    before: dict[str, Facts]
    after: dict[str, Facts]
    degraded: dict[str, str]
    sums: str
    state: str
    audit: tuple[int, str]
    circumstances: str


def _drives(name: str) -> tuple[Nvme, ...]:
    return tuple(Nvme(f"{name}{number}", GIB) for number in range(ARRAYS[name][2]))


def _make(pc: DebianPC, name: str) -> Facts:
    level, kind, _ = ARRAYS[name]
    members = " ".join(f"{BY_ID}{drive.serial}" for drive in _drives(name))
    pc.run(f"aligntool raid create --level {level} --fs {kind} --name {name} {members} --yes --wait")
    pc.run(FILL.format(name=name))
    return facts(pc, f"/dev/md/{name}")


def _observe(pc: DebianPC) -> Observed:
    before = {name: _make(pc, name) for name in ARRAYS}
    pc.off()
    pc.drives = tuple(drive for name in ARRAYS for drive in _drives(name)[1:])
    pc.start()
    audit = pc.run("aligntool audit --fail-on error --format json", code=None)
    degraded = "cat /sys/block/$(basename $(readlink -f /dev/md/{}))/md/degraded"
    return Observed(
        before=before,
        after={name: facts(pc, f"/dev/md/{name}") for name in ARRAYS},
        degraded={name: pc.run(degraded.format(name), code=None).out.strip() for name in ARRAYS},
        sums=pc.run("sha256sum -c /root/sums", code=None).out,
        state=pc.run("systemctl is-system-running", code=None).out.strip(),
        audit=(audit.code, audit.out),
        circumstances=pc.run(CIRCUMSTANCES, code=None).out,
    )


@pytest.fixture(scope="module")
def observed(debian: Debian) -> Iterator[Observed]:
    with powered(debian.pc(*(drive for name in ARRAYS for drive in _drives(name)))) as pc:
        yield _observe(pc)


@pytest.mark.parametrize("name", ARRAYS)
def test_the_array_runs_without_the_drive_and_is_mounted_as_before(observed: Observed, name: str) -> None:
    assert observed.degraded[name] == "1", observed.circumstances
    before, after = observed.before[name], observed.after[name]
    assert before.mount and after.mount, observed.circumstances
    assert after.mount["target"] == before.mount["target"] == f"/srv/{name}"
    assert after.mount["uuid"] == before.mount["uuid"]
    assert after.detail["MD_UUID"] == before.detail["MD_UUID"]


def test_the_files_are_unchanged_and_no_unit_failed(observed: Observed) -> None:
    assert observed.sums.count(": OK") == len(ARRAYS), observed.circumstances
    assert observed.state == "running", observed.circumstances


def test_the_audit_reports_the_missing_member(observed: Observed) -> None:
    code, said = observed.audit
    assert code == 1
    found = {(each["disk"], each["severity"]) for each in json.loads(said)["findings"] if each["code"] == "AT601"}
    assert found == {(observed.after[name].node, "error") for name in ARRAYS}
