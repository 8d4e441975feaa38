"""`raid persist` on a Debian that boots: arrays made by hand reappear wrongly, and correctly once they are persisted.

The PC's array is made like that of the article of 2015: `mdadm --create`, a file system, a line in fstab, no more.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from aligntool.units import GIB
from tests.lab.array_cases import BY_ID
from tests.lab.conftest import Debian
from tests.lab.debian_pc import DebianPC, powered
from tests.lab.drives import Nvme
from tests.lab.marks import DEBIAN_PC
from tests.lab.system import CIRCUMSTANCES, Facts, arrays, facts
from tests.thorough import when_thorough

pytestmark = [*DEBIAN_PC, when_thorough("starts a PC three times")]

SCRATCH, MIRROR = ("left", "right"), ("first", "second")
# Drives without a table, as in the article, and an mdadm with as few options; next to its RAID0 a RAID1, which loses a
# drive after it was repaired.
BY_HAND = """set -e
mdadm --create /dev/md0 --run --level=0 --raid-devices=2 --chunk=256 {scratch}
mkfs.xfs -q -L scratch /dev/md0
mdadm --create /dev/md1 --run --level=1 --raid-devices=2 {mirror}
mkfs.ext4 -q -L mirror /dev/md1
mkdir /srv/scratch /srv/mirror
echo '/dev/md0 /srv/scratch xfs noatime,logbufs=8,nofail,x-systemd.device-timeout=45s 0 0' >> /etc/fstab
echo '/dev/md1 /srv/mirror ext4 nofail,x-systemd.device-timeout=45s 0 2' >> /etc/fstab
mount -a
for place in /srv/scratch /srv/mirror; do
    head -c 3000000 /dev/urandom > $place/file
    sha256sum $place/file >> /root/sums
done
mdadm --wait /dev/md1 || true
sync
"""


@dataclass(frozen=True, slots=True)
class Observed:
    """The state at each start; `lost`: after the first reboot. At the last one the RAID1 lacks a drive."""

    lost: set[str]
    lost_mounts: str
    before: dict[str, Facts]
    unpersisted: str
    persisted: list[str]
    again: list[str]
    names: set[str]
    after: dict[str, Facts]
    sums: str
    state: str
    circumstances: str


@pytest.fixture(scope="module")
def observed(debian: Debian) -> Iterator[Observed]:
    drives = tuple(Nvme(name, GIB) for name in (*SCRATCH, *MIRROR))
    with powered(debian.pc(*drives)) as pc:
        yield _observe(pc, tuple(drive for drive in drives if drive.serial != "first"))


def _observe(pc: DebianPC, left: tuple[Nvme, ...]) -> Observed:
    nodes = {
        key: " ".join(f"{BY_ID}{name}" for name in names) for key, names in (("scratch", SCRATCH), ("mirror", MIRROR))
    }
    pc.run(BY_HAND.format(**nodes))
    pc.reboot()
    lost = arrays(pc)
    lost_mounts = pc.run("findmnt --noheadings --type xfs,ext4 --output TARGET | grep /srv", code=None).out
    before = {name: facts(pc, f"/dev/disk/by-label/{name}") for name in nodes}
    unpersisted = pc.run("aligntool audit --verbose", code=None).out
    persisted, again = (
        [pc.run(f"aligntool raid persist /dev/{each.node} --yes").out for each in before.values()] for _ in range(2)
    )
    # Short so far, because the previous boot waits until it expires; an emulated PC takes longer under other load.
    pc.run("sed -i s/device-timeout=45s/device-timeout=10min/ /etc/fstab")
    pc.off()
    pc.drives = left
    pc.start()
    after = {name: facts(pc, f"/dev/disk/by-uuid/{each.blkid['UUID']}") for name, each in before.items()}
    return Observed(
        lost=lost,
        lost_mounts=lost_mounts,
        before=before,
        unpersisted=unpersisted,
        persisted=persisted,
        again=again,
        names=set(pc.run("ls /dev/md", code=None).out.split()),
        after=after,
        sums=pc.run("sha256sum -c /root/sums", code=None).out,
        state=pc.run("systemctl is-system-running", code=None).out.strip(),
        circumstances=pc.run(CIRCUMSTANCES, code=None).out,
    )


def test_arrays_made_by_hand_reappear_under_other_numbers_and_are_not_mounted(observed: Observed) -> None:
    """The control: without this, the other tests here would prove nothing."""
    assert observed.lost == {"md126", "md127"}
    assert observed.lost_mounts == ""


def test_persisted_arrays_reappear_with_their_uuids_and_files_and_are_mounted(observed: Observed) -> None:
    for name, before in observed.before.items():
        after = observed.after[name]
        assert after.detail["MD_UUID"] == before.detail["MD_UUID"], observed.circumstances
        assert after.blkid["UUID"] == before.blkid["UUID"]
        assert after.mount and after.mount["target"] == f"/srv/{name}", observed.circumstances
    scratch = observed.after["scratch"].mount
    assert scratch and {"noatime", "logbufs=8"} <= set(scratch["options"].split(","))
    assert observed.sums == "/srv/scratch/file: OK\n/srv/mirror/file: OK\n"
    assert observed.state == "running", observed.circumstances


def test_the_mirror_that_lost_a_drive_was_started_without_it(observed: Observed) -> None:
    """The audit had warned that it would not be started, and the suggested command repaired that."""
    assert len(observed.after["mirror"].examine) == 1, observed.circumstances
    mirror = observed.before["mirror"].node
    assert f"{mirror}: raid1 with a drive missing at boot stays inactive" in " ".join(observed.unpersisted.split())
    assert "systemctl enable mdadm-late-start.timer" in "".join(observed.persisted)


def test_persisted_arrays_reappear_under_their_names_in_mdadm_conf(observed: Observed) -> None:
    for number, name in enumerate(observed.before):
        assert observed.names & {f"{number}", f"md{number}"} or observed.after[name].node == f"md{number}"


def test_a_second_persist_has_nothing_to_do(observed: Observed) -> None:
    assert all("Nothing to do." not in each for each in observed.persisted)
    assert all("Nothing to do." in each for each in observed.again)
