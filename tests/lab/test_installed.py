"""`raid create --root`: a Debian on a disk of its own gets an array while another Debian runs, and then boots.

A copy of the PC's disk gets a file system with another UUID, and is configured from outside. The PC that boots from it
afterwards has never seen the array, at last with one of its drives missing.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aligntool.units import GIB
from tests.boots.system import ROOT_UUID
from tests.conftest import run
from tests.lab.array_cases import BY_ID
from tests.lab.conftest import Debian
from tests.lab.debian import DISK_LENGTH
from tests.lab.debian_pc import DebianPC, powered
from tests.lab.drives import Nvme
from tests.lab.marks import DEBIAN_PC
from tests.lab.system import CIRCUMSTANCES, Facts, arrays, facts
from tests.mover.loop_mounts import mounted, partitioned
from tests.thorough import when_thorough

pytestmark = [*DEBIAN_PC, pytest.mark.needs_tools("tune2fs", "e2fsck"), when_thorough("starts a PC three times")]
LEFT, RIGHT, TARGET = Nvme("left", GIB), Nvme("right", GIB), Nvme("target", DISK_LENGTH)
OTHER_UUID = "7a4cf4ee-0c1a-4f0e-9c55-2f5a0a3d1c11"
ROOT = "/mnt"
CREATE = f"aligntool raid create --yes --root {ROOT} --level 1 --fs ext4 --name mirror {BY_ID}left {BY_ID}right"
FILL = f"head -c 3000000 /dev/urandom > {ROOT}/srv/mirror/file; cd {ROOT}; sha256sum srv/mirror/file > root/sums; sync"
AUDIT = f"aligntool audit --json --root {ROOT}"
CONF = f"{ROOT}/etc/mdadm/mdadm.conf"
FILES = "cat /etc/fstab /etc/mdadm/mdadm.conf; find /boot /etc/systemd /usr/local -type f | xargs sha256sum"


@dataclass(frozen=True, slots=True)
class Booted:
    """The state after a start of the system that was configured from outside."""

    array: Facts
    names: str
    arrays: set[str]
    sums: str
    state: str
    circumstances: str


@dataclass(frozen=True, slots=True)
class Observed:
    before: str
    after: str
    mounts: str
    again: str
    audited: str
    unlisted: str  # an audit while its mdadm.conf does not name the array
    whole: Booted
    degraded: Booted


def _copy_system(base: Path, folder: Path) -> Path:
    """Copy the PC's disk to the drive TARGET, and give its file system another UUID; return the image."""
    image = folder / f"{TARGET.serial}.img"
    run("cp", "--sparse=always", base, image)
    with partitioned(image) as device:
        run("e2fsck", "-fy", f"{device}p1")
        run("tune2fs", "-U", OTHER_UUID, f"{device}p1")
        with mounted(Path(f"{device}p1"), "mount") as root:
            run("sed", "-i", f"s/{ROOT_UUID}/{OTHER_UUID}/", root / "boot/grub/grub.cfg", root / "etc/fstab")
            # It will be attached in another way than now, so the modules of this machine would not suffice.
            (root / "etc/initramfs-tools/conf.d/quick").write_text("COMPRESS=lz4\nMODULES=list\n")
            (root / "etc/initramfs-tools/modules").write_text("virtio_pci\nvirtio_blk\next4\nnvme\n")
    return image


@pytest.fixture(scope="module")
def observed(debian: Debian) -> Iterator[Observed]:
    pc = debian.pc(LEFT, RIGHT, TARGET)
    target = _copy_system(debian.base, pc.folder)
    with powered(pc):
        pc.run(f"mount /dev/disk/by-uuid/{OTHER_UUID} {ROOT}")
        before = pc.run(FILES).out
        pc.run(CREATE)
        pc.run(f"mdadm --wait /dev/md/mirror; {FILL}", code=None)
        after = pc.run(FILES).out
        mounts = pc.run(f"findmnt -n -r -o TARGET -R {ROOT}").out
        again = pc.run(CREATE).out
        audited = pc.run(AUDIT).out
        unlisted = pc.run(f"sed -i.kept /^ARRAY/d {CONF} && {AUDIT}; mv {CONF}.kept {CONF}", code=None).out
        pc.off()
    installed = DebianPC(pc.folder, target, pc.tool, (LEFT, RIGHT))
    with powered(installed):
        whole = _booted(installed)
        installed.off()
        installed.drives = (RIGHT,)
        installed.start()
        yield Observed(before, after, mounts, again, audited, unlisted, whole, _booted(installed))


def _booted(pc: DebianPC) -> Booted:
    return Booted(
        array=facts(pc, "/dev/md/mirror"),
        names=pc.run("ls /dev/md").out,
        arrays=arrays(pc),
        sums=pc.run("cd /; sha256sum -c /root/sums", code=None).out,
        state=pc.run("systemctl is-system-running", code=None).out.strip(),
        circumstances=pc.run(CIRCUMSTANCES, code=None).out,
    )


def test_the_running_system_keeps_its_files_and_gets_only_the_mount(observed: Observed) -> None:
    assert observed.before == observed.after
    assert observed.mounts.split() == [ROOT, f"{ROOT}/srv/mirror"]
    assert "already as requested" in observed.again


def test_an_audit_judges_the_array_by_the_files_of_that_system(observed: Observed) -> None:
    def findings(text: str) -> dict[str, str]:
        found = json.loads(text)["findings"]
        return {finding["code"]: finding["next"] for finding in found if finding["code"].startswith("AT61")}

    assert findings(observed.audited) == {}
    command = findings(observed.unlisted)["AT611"]
    assert command.startswith(f"sudo aligntool raid persist --root {ROOT} /dev/md")


@pytest.mark.parametrize("kind", ["whole", "degraded"])
def test_the_configured_system_boots_with_the_array_in_place(observed: Observed, kind: str) -> None:
    booted: Booted = getattr(observed, kind)
    assert booted.names.split() == ["mirror"] and len(booted.arrays) == 1, booted.circumstances
    assert booted.array.mount and booted.array.mount["target"] == "/srv/mirror", booted.circumstances
    assert booted.sums == "srv/mirror/file: OK\n"
    assert booted.state == "running", booted.circumstances


def test_the_array_that_lacks_a_drive_runs_without_it(observed: Observed) -> None:
    assert len(observed.whole.array.examine) == 2 and len(observed.degraded.array.examine) == 1
    assert observed.whole.array.detail["MD_UUID"] == observed.degraded.array.detail["MD_UUID"]
