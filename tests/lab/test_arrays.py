"""Arrays of every level: planned, made, filled, and present after a real reboot, according to mdadm and the kernel.

One PC makes five of them, so one reboot tests five: every level, on drives of both block sizes.
"""

from dataclasses import dataclass

import pytest

from tests.lab.array_cases import Case, Planned, cases, in_bytes
from tests.lab.conftest import Debian
from tests.lab.debian_pc import DebianPC, powered
from tests.lab.marks import DEBIAN_PC
from tests.lab.system import Facts, arrays, facts
from tests.thorough import when_thorough

pytestmark = [when_thorough("starts PCs of their own twice"), *DEBIAN_PC]
CASES = (*cases(), *cases(swapped=True))
FILL = """set -e
cd {place} && mkdir -p deep/er
head -c 5000000 /dev/urandom > deep/er/random
seq 100000 > numbers
cd / && find {place} -type f -exec sha256sum {{}} + >> /root/sums
"""


@dataclass(frozen=True, slots=True)
class Observed:
    """One array: its plan, and its state before and after the reboot."""

    planned: Planned
    before: Facts
    after: Facts
    geometry: str


@dataclass(frozen=True, slots=True)
class Machine:
    """One PC: its arrays after the reboot, and facts about all of them."""

    observed: dict[Case, Observed]
    arrays: set[str]
    sums: str
    state: str
    audit: tuple[int, str]
    status: str


def _make(pc: DebianPC, case: Case) -> tuple[Planned, Facts]:
    planned = pc.run(f"aligntool raid plan {case.command} -o /root/{case.name}.json >&2; cat /root/{case.name}.json")
    if case.applied:
        pc.run(f"aligntool apply /root/{case.name}.json --yes")
    else:
        pc.run(f"aligntool raid create {case.command} --yes")
    pc.run(FILL.format(place=case.place))
    return Planned(planned.out), facts(pc, case.device)


def _geometry(pc: DebianPC, case: Case) -> str:
    command = f"xfs_info {case.place}" if case.kind == "xfs" else f"dumpe2fs -h {case.device}"
    return pc.run(command).out


def _machine(pc: DebianPC, some: tuple[Case, ...]) -> Machine:
    made = {case: _make(pc, case) for case in some}
    pc.run("mdadm --wait /dev/md/*", code=None)
    pc.reboot()
    observed = {
        case: Observed(planned, before, facts(pc, case.device), _geometry(pc, case))
        for case, (planned, before) in made.items()
    }
    audit = pc.run("aligntool audit --fail-on warning", code=None)
    return Machine(
        observed=observed,
        arrays=arrays(pc),
        sums=pc.run("sha256sum -c /root/sums", code=None).out,
        state=pc.run("systemctl is-system-running", code=None).out.strip(),
        audit=(audit.code, audit.out + audit.err),
        status=pc.run("ls /var/lib/aligntool/arrays").out,
    )


GROUPS = tuple(CASES[first : first + 5] for first in range(0, len(CASES), 5))


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case.name}-{case.block}")
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture(scope="module")
def made() -> dict[tuple[Case, ...], Machine]:
    """Make the arrays of a group on one PC: the first test of the group starts it."""
    return {}


@pytest.fixture(scope="module")
def machine(debian: Debian, case: Case, made: dict[tuple[Case, ...], Machine]) -> Machine:
    group = next(each for each in GROUPS if case in each)
    if group not in made:
        with powered(debian.pc(*(drive for each in group for drive in each.drives))) as pc:
            made[group] = _machine(pc, group)
    return made[group]


@pytest.fixture
def observed(machine: Machine, case: Case) -> Observed:
    return machine.observed[case]


def test_the_array_is_assembled_after_a_reboot_with_its_name_and_uuids(observed: Observed, case: Case) -> None:
    assert observed.after.lasting == observed.before.lasting
    assert observed.after.blkid == observed.before.blkid
    assert observed.after.detail["MD_NAME"] == f"any:{case.name}"
    assert observed.after.detail["MD_DEVNAME"] == case.name


def test_the_file_system_is_mounted_as_planned(observed: Observed, case: Case) -> None:
    assert observed.after.mount and observed.after.mount["target"] == case.place
    line = observed.planned.files["/etc/fstab"][0].split()
    wanted = set(line[3].split(",")) - {"nofail", "defaults", "x-systemd.device-timeout=2min"}
    assert wanted <= set(observed.after.mount["options"].split(","))
    assert observed.after.mount["fstype"] == case.kind


def test_mdadm_prints_the_properties_of_the_planned_array(observed: Observed, case: Case) -> None:
    words, detail = observed.planned.words, observed.after.detail
    assert detail["MD_LEVEL"] == f"raid{words['level']}"
    assert detail["MD_DEVICES"] == words["raid-devices"] == str(case.members)
    assert detail["MD_METADATA"] == words["metadata"]
    if case.applied:
        assert detail["MD_UUID"] == observed.planned.array["uuid"]


def test_every_superblock_has_the_planned_geometry(observed: Observed, case: Case) -> None:
    words = observed.planned.words
    assert len(observed.after.examine) == case.members
    for member in observed.after.examine:
        assert member["Data Offset"] == f"{observed.planned.size('data-offset') // 512} sectors"
        assert in_bytes(member.get("Chunk Size", "0")) == in_bytes(words.get("chunk", "0"))
        assert ("Internal Bitmap" in member) == (words.get("bitmap") == "internal")
        assert member["State"] in ("clean", "active")
    assert len({member["Device UUID"] for member in observed.after.examine}) == case.members


def test_the_kernel_limits_follow_from_the_chunk(observed: Observed, case: Case) -> None:
    """drivers/md: io_min is the chunk, io_opt the stripe; a RAID1 has neither."""
    limits = observed.after.limits
    assert limits["logical_block_size"] == case.block
    if "chunk" in observed.planned.words:
        assert limits["minimum_io_size"] == observed.planned.size("chunk")
        assert limits["optimal_io_size"] == observed.planned.size("chunk") * case.data_members
    else:
        assert limits["minimum_io_size"] == case.block


def test_the_file_system_fits_the_stripe(observed: Observed, case: Case) -> None:
    """Compared with the array itself, not with the options of mkfs."""
    chunk = observed.planned.size("chunk") if "chunk" in observed.planned.words else 0
    if case.kind == "xfs":
        assert f"sunit={chunk // 4096}  " in observed.geometry
        assert f"swidth={chunk * case.data_members // 4096} blks" in observed.geometry
    else:
        lines = dict(line.split(":", 1) for line in observed.geometry.splitlines() if ":" in line)
        assert int(lines.get("RAID stride", "0")) * int(lines["Block size"]) == chunk
        assert int(lines.get("RAID stripe width", "0")) == observed.planned.mkfs("stripe_width")


def test_no_other_array_is_assembled_after_the_reboot(machine: Machine, case: Case) -> None:
    assert machine.arrays == {observed.after.node for observed in machine.observed.values()}
    assert machine.state == "running"
    assert machine.status == "", "a record of something unfinished"


def test_every_file_is_unchanged(machine: Machine, case: Case) -> None:
    lines = [line for line in machine.sums.splitlines() if line.startswith(f"{case.place}/")]
    assert lines == [line.rpartition(":")[0] + ": OK" for line in lines] and len(lines) == 2


def test_the_audit_of_the_machine_is_clean(machine: Machine, case: Case) -> None:
    code, said = machine.audit
    assert code == 0, said
