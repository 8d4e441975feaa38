"""`raid persist` on a Debian that boots: arrays made by hand come back wrong, and after it they come back right.

The PC's array is made as the article of 2015 made its own: `mdadm --create`, a file system, a line in fstab, no more.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from aligntool.units import GIB
from tests.lab.conftest import Debian
from tests.lab.debian_pc import DebianPC, powered
from tests.lab.drives import Nvme
from tests.lab.system import Facts, arrays, facts
from tests.lab.wanted import DEBIAN_PC, when_thorough

pytestmark = [
    *DEBIAN_PC,
    when_thorough("starts a PC three times"),
]

# Two drives without a table each, as the article had them, and an mdadm that is told as little as it was.
BY_HAND = """set -e
mdadm --create /dev/md0 --run --level=0 --raid-devices=2 --chunk=256 /dev/nvme0n1 /dev/nvme1n1
mkfs.xfs -q -L scratch /dev/md0
mkdir /srv/scratch
echo '/dev/md0 /srv/scratch xfs noatime,logbufs=8,nofail,x-systemd.device-timeout=45s 0 0' >> /etc/fstab
mount /srv/scratch
head -c 3000000 /dev/urandom > /srv/scratch/file
sha256sum /srv/scratch/file > /root/sums
sync
"""


@dataclass(frozen=True, slots=True)
class Told:
    """What was seen at each start; `lost`: after the first reboot."""

    lost: set[str]
    lost_mount: str
    before: Facts
    persisted: str
    again: str
    names: set[str]
    after: Facts
    sums: str
    state: str


@pytest.fixture(scope="module")
def told(debian: Debian) -> Iterator[Told]:
    with powered(debian.pc(Nvme("left", GIB), Nvme("right", GIB, block=512))) as pc:
        yield _told(pc)


def _told(pc: DebianPC) -> Told:
    pc.run(BY_HAND)
    pc.reboot()
    lost = arrays(pc)
    lost_mount = pc.run("findmnt /srv/scratch", code=None).out
    before = facts(pc, f"/dev/{min(lost)}")
    done = pc.run(f"aligntool raid persist /dev/{before.node} --yes")
    again = pc.run(f"aligntool raid persist /dev/{before.node} --yes")
    pc.reboot()
    after = facts(pc, f"/dev/disk/by-uuid/{before.blkid['UUID']}")
    return Told(
        lost=lost,
        lost_mount=lost_mount,
        before=before,
        persisted=done.out,
        again=again.out,
        names=set(pc.run("ls /dev/md", code=None).out.split()),
        after=after,
        sums=pc.run("sha256sum -c /root/sums").out,
        state=pc.run("systemctl is-system-running", code=None).out.strip(),
    )


def test_an_array_made_by_hand_comes_back_as_md127_and_is_not_mounted(told: Told) -> None:
    """The control: without this, the other tests here would prove nothing."""
    assert told.lost == {"md127"}
    assert told.lost_mount == ""


def test_afterwards_it_comes_back_with_its_uuid_and_is_mounted_with_its_files(told: Told) -> None:
    assert told.after.detail["MD_UUID"] == told.before.detail["MD_UUID"]
    assert told.after.blkid["UUID"] == told.before.blkid["UUID"]
    assert told.after.mount and told.after.mount["target"] == "/srv/scratch"
    assert {"noatime", "logbufs=8"} <= set(told.after.mount["options"].split(","))
    assert told.sums == "/srv/scratch/file: OK\n"
    assert told.state == "running"


def test_it_comes_back_under_the_name_that_its_line_in_mdadm_conf_gives(told: Told) -> None:
    assert told.names & {"0", "md0"} or told.after.node == "md0"


def test_a_second_persist_finds_nothing_to_do(told: Told) -> None:
    assert "Nothing is to be done." not in told.persisted
    assert "Nothing is to be done." in told.again
