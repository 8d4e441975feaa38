"""Kernels with and without Landlock, with and without namespaces: an audit, a plan and a realign by an e2fsck that
fails wherever it can read a file of the machine.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import find_tool
from tests.lab.conftest import Lab
from tests.lab.drives import MIB, Nvme, image
from tests.lab.kernel import ROOT
from tests.mover.disks import entries
from tests.thorough import when_thorough

pytestmark = [
    when_thorough("starts two guests"),
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "sfdisk", "mkfs.ext4", "e2fsck"),
]

DRIVES = (Nvme("first", 64 * MIB), Nvme("second", 64 * MIB))
WITHOUT_LANDLOCK = "lsm=capability,yama"
SCRIPT = (
    f"""
cd '{ROOT}'
python='{sys.executable}'
checker='{find_tool("e2fsck")}'
"""
    + r"""
mountpoint -q /sys/kernel/security || mount -t securityfs none /sys/kernel/security
cat /sys/kernel/security/lsm > /lab/lsm
mkdir -p /opt/careful
cat > /opt/careful/e2fsck <<END
#!/bin/sh
cat /etc/passwd > /dev/null 2>&1 && exit 8
exec $checker "\$@"
END
chmod +x /opt/careful/e2fsck

tool() { # file for the answer, words
    answer=/lab/$1
    shift
    PATH=$path:$PATH "$python" -m aligntool "$@" > "$answer.out" 2> "$answer.err" < /dev/null && code=0 || code=$?
    echo $code > "$answer.code"
}
change() { # name, disk
    path=/opt/careful
    tool "$1-audit" audit "$2"
    tool "$1-plan" plan realign "$2"
    tool "$1-realign" realign --yes "$2"
}
change with-namespaces /dev/nvme0n1
echo 0 > /proc/sys/user/max_mnt_namespaces
change without-namespaces /dev/nvme1n1
tool careful realign --yes --unconfined /dev/nvme1n1
path=/usr/bin
tool unconfined realign --yes --unconfined /dev/nvme1n1
"""
)


@dataclass(frozen=True, slots=True)
class Answers:
    """What the commands in one guest answered, and where its drives started at the end."""

    folder: Path
    starts: tuple[int, int]

    @property
    def modules(self) -> list[str]:
        return (self.folder / "lsm").read_text().split(",")

    def code(self, name: str) -> int:
        return int((self.folder / f"{name}.code").read_text())

    def errors(self, name: str) -> str:
        return (self.folder / f"{name}.err").read_text()


def answers(lab: Lab, *options: str) -> Answers:
    guest = lab.guest(*DRIVES, kernel_options=options)
    for drive in DRIVES:
        path = image(drive, guest.folder)
        table = "label: dos\nstart=63, size=60000, type=83\n"
        subprocess.run(["sfdisk", "-q", path], input=table, text=True, check=True)
        subprocess.run(["mkfs.ext4", "-q", "-E", f"offset={63 * 512}", path, "30000k"], check=True)
    folder = guest.run(SCRIPT)
    first, second = (entries(image(drive, guest.folder))[1]["start"] for drive in DRIVES)
    return Answers(folder, (first, second))


@pytest.fixture(scope="module")
def usual(lab: Lab) -> Answers:
    return answers(lab)


@pytest.fixture(scope="module")
def without_landlock(lab: Lab) -> Answers:
    return answers(lab, WITHOUT_LANDLOCK)


def _works(given: Answers, name: str) -> None:
    codes = [given.code(f"{name}-{command}") for command in ("audit", "plan", "realign")]
    assert codes == [1, 0, 0], given.errors(f"{name}-realign")


def test_both_layers_or_landlock_alone_confine_a_move(usual: Answers) -> None:
    assert "landlock" in usual.modules
    _works(usual, "with-namespaces")
    _works(usual, "without-namespaces")
    assert usual.starts == (2048, 2048)


def test_a_root_folder_alone_confines_where_the_kernel_has_no_landlock(without_landlock: Answers) -> None:
    assert "landlock" not in without_landlock.modules
    _works(without_landlock, "with-namespaces")
    assert without_landlock.starts[0] == 2048


def test_a_kernel_with_neither_moves_nothing_until_the_user_says_unconfined(without_landlock: Answers) -> None:
    name = "without-namespaces-realign"
    assert without_landlock.code(name) == 3
    refusal = without_landlock.errors(name)
    assert refusal.count("it cannot be confined here, neither by Landlock nor by namespaces") == 1
    assert refusal.count("--unconfined") == 1
    assert without_landlock.code("careful") == 3, "the checker of this test runs unconfined"
    assert without_landlock.code("unconfined") == 0, without_landlock.errors("unconfined")
    assert without_landlock.starts[1] == 2048
