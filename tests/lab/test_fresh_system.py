"""A system that debootstrap installs on RAID1 starts with either drive removed, by three commands of README.md.

The commands are those of the document, verbatim. What debootstrap installs here is unpacked in the PC, which has no
network; what the test itself needs in the new system is added after them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aligntool.units import GIB
from tests.lab.conftest import Debian
from tests.lab.debian import TOOL, UNWANTED
from tests.lab.debian_pc import powered
from tests.lab.debian_variants import KERNELS, KEYRING, PACKAGES_OF_NEW, disk_for_installing
from tests.lab.drives import Nvme
from tests.lab.kernel import ROOT
from tests.lab.marks import DEBIAN_PC
from tests.lab.test_system_disk import MENU, Machine, Started, look, typed
from tests.thorough import when_thorough

pytestmark = [*DEBIAN_PC, pytest.mark.needs_tools("unshare"), when_thorough("installs a system, and starts it thrice")]
LEFT, RIGHT = (Nvme(name, 4 * GIB) for name in ("left", "right"))
SCRIPT = "docs/examples/debootstrap-raid1.sh"
# For the test alone: what it types and reads, a boot loader that speaks to its console, fewer services.
SETTLED = f"""{MENU.replace("/etc", "/mnt/etc")}
mkdir /mnt/opt/aligntool && ln -s /opt/aligntool/bin/aligntool /mnt/usr/local/bin/aligntool
cat > /mnt/etc/systemd/system/aligntool-mounted.service <<'END'
{TOOL}END
chroot /mnt systemctl enable aligntool-mounted.service
chroot /mnt systemctl mask {" ".join(UNWANTED)}
chroot /mnt update-grub
seq 100000 > /mnt/root/numbers; cd /mnt; sha256sum root/numbers | sed s,root,/root, > root/sums
"""


@dataclass(frozen=True, slots=True)
class Observed:
    plan: str
    again: str
    both: Started
    left_pulled: Started
    right_pulled: Started


def commands() -> list[str]:
    """Return the three commands of README.md."""
    text = (ROOT / "README.md").read_text()
    (block,) = (found for found in re.findall(r"^```\n(.*?)^```", text, re.M | re.S) if "raid1-system" in found)
    return [line.partition("#")[0].strip().removeprefix("sudo ") for line in block.splitlines()]


@pytest.fixture(scope="module", params=KERNELS)
def observed(debian: Debian, request: pytest.FixtureRequest) -> Iterator[Observed]:
    suite = request.param
    if suite == "noble" and not Path(KEYRING).exists():
        pytest.skip(f"no {KEYRING}: apt-get install ubuntu-keyring, or set UBUNTU_KEYRING")
    machine = Machine(debian)
    create, install, persist = commands()
    assert install == f"sh {SCRIPT} bookworm"
    with powered(machine.with_drives(LEFT, RIGHT, base=disk_for_installing(suite))) as pc:
        pc.run(f"mkdir -p docs/examples && cat > {SCRIPT} <<'SCRIPT'\n{(ROOT / SCRIPT).read_text()}SCRIPT")
        typed(pc, create.replace("create", "create --yes"))
        typed(pc, f"KERNEL={KERNELS[suite]} sh {SCRIPT} {suite} {PACKAGES_OF_NEW}")
        plan = pc.run(f"{persist} --yes", 3600).out
        again = pc.run(f"{persist} --dry-run", code=None).out
        typed(pc, SETTLED)
        pc.run("umount -R /mnt; mdadm --wait /dev/md/system", code=None)
        pc.off()
    with powered(machine.with_drives(LEFT, RIGHT)) as pc:
        both = look(pc)
        pc.off()
    with powered(machine.with_drives(RIGHT)) as pc:
        left_pulled = look(pc)
        pc.off()
    with powered(machine.with_drives(LEFT)) as pc:
        yield Observed(plan, again, both, left_pulled, look(pc))


def test_the_plan_names_what_it_writes_there(observed: Observed) -> None:
    for file in ("etc/mdadm/mdadm.conf", "etc/default/esp-copies", "usr/local/lib/esp-copies.sh"):
        assert file in observed.plan, observed.plan
    assert "Nothing to do." in observed.again


@pytest.mark.parametrize(("name", "drives"), [("both", 2), ("left_pulled", 1), ("right_pulled", 1)])
def test_the_system_starts_from_the_array(observed: Observed, name: str, drives: int) -> None:
    started: Started = getattr(observed, name)
    assert started.root.split()[0] == f"/dev/{started.array.node}" and started.state == "running"
    assert len(started.array.examine) == drives and started.files == "/root/numbers: OK\n"
    assert len(started.loaders) == drives
    assert all("BOOTX64.EFI" in what for _, what in started.loaders.values())


def test_its_own_unit_keeps_the_boot_loaders_in_sync(observed: Observed) -> None:
    assert "is a copy of" in observed.both.copies
    assert len({digest for digest, _ in observed.both.loaders.values()}) == 1
    assert observed.both.audit[0] == 0, observed.both.audit[1]
