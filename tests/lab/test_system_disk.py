"""A system moved to RAID1 as in docs/by-hand.md starts with both drives and with either one removed.

The commands are those of the document, verbatim; the drives have its names. What a start wrote is kept in the images of
its drives, which the next one gets as copies: a drive that is removed keeps its content.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aligntool.commands import PAGE
from aligntool.units import GIB
from tests.conftest import run
from tests.lab.conftest import Debian
from tests.lab.debian_pc import DebianPC, powered
from tests.lab.debian_variants import disk_with_grub_at_hand
from tests.lab.drives import Nvme, image
from tests.lab.guest import KERNEL_OPTIONS
from tests.lab.kernel import ROOT
from tests.lab.marks import DEBIAN_PC
from tests.lab.system import Facts, facts
from tests.thorough import when_thorough

pytestmark = [*DEBIAN_PC, pytest.mark.needs_tools("unshare"), when_thorough("starts a PC five times")]
LEFT, RIGHT, FRESH = (Nvme(name, 2 * GIB) for name in ("left", "right", "fresh"))
ARRAY = "/dev/md/system"
DEGRADED = "AT601"
# A user's /etc/default/grub: here with a console that the test reads.
MENU = f"""mkdir -p /etc/default/grub.d && cat > /etc/default/grub.d/console.cfg <<END
GRUB_TIMEOUT=0
GRUB_TERMINAL=console
GRUB_CMDLINE_LINUX="console=ttyS0 {" ".join(KERNEL_OPTIONS)}"
END
"""
# aligntool's own rollback of its last step, and the step again: another test rolls back the whole array.
ENABLED_AND_BACK = """cat > /root/undo.py <<'END'
from aligntool.raid.steps_system import find_system_trace, apply_system, undo_system
from aligntool.steps import EnableUnit
step = EnableUnit("esp-copies.service")
print([said.text for said in undo_system(step, {"before": "there"})], find_system_trace(step))
print([said.text for said in undo_system(step, {})], find_system_trace(step))
print([said.text for said in apply_system(step)], find_system_trace(step))
END
PYTHONPATH=/opt/aligntool/python python3 /root/undo.py
"""
# The driver of its disk is no longer in this initramfs, so the disk appears later than the unit looks for it.
TOOL = "udevadm settle; mountpoint -q /opt/aligntool || systemctl restart aligntool-mounted"
LOADERS = """for device in /dev/nvme*n1p1; do
    mkdir -p /tmp/esp && mount $device /tmp/esp
    echo "$(blkid -s UUID -o value $device) $(cd /tmp/esp && find . -type f -exec sha256sum {} + | sort | sha256sum)" \\
        "$(cat /tmp/esp/EFI/note 2>/dev/null)" $(ls /tmp/esp/EFI/BOOT)
    umount /tmp/esp
done"""


@dataclass(frozen=True, slots=True)
class Started:
    """The state after a start. `loaders`: for each EFI system partition, by its UUID, a digest of all files, the
    content of a note, and the files in EFI/BOOT.
    """

    root: str
    array: Facts
    files: str
    loaders: dict[str, tuple[str, str]]
    audit: tuple[int, str]
    state: str
    copies: str


@dataclass(frozen=True, slots=True)
class Observed:
    undone: list[str]
    filesystem: str
    both: Started
    left_pulled: Started
    back: Started
    resynced: Started
    right_pulled: Started
    replaced: Started


def blocks() -> dict[str, str]:
    """Return the commands of docs/raid.md under "A system on RAID1" and of the sections that it names, each block by
    its first word.
    """
    raid = (ROOT / "docs" / "raid.md").read_text().partition("\n## A system on RAID1\n")[2].partition("\n## ")[0]
    text = raid.replace("sudo ", "") + (ROOT / PAGE).read_text()
    return {block.split()[0]: block for block in re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)}


def typed(pc: DebianPC, commands: str) -> str:
    """Type the commands as a user does: from a file, because some of them read the next input."""
    pc.run(f"cat > /root/typed <<'TYPED'\nset -e\n{commands}\nTYPED")
    return pc.run("DEBIAN_FRONTEND=noninteractive sh -x /root/typed < /dev/null", 3600).out


def look(pc: DebianPC) -> Started:
    pc.run(TOOL)
    audit = pc.run("aligntool audit --fail-on warning", code=None)
    lines = [line.split(maxsplit=2) for line in pc.run(LOADERS).out.splitlines()]
    return Started(
        root=pc.run("findmnt -n -o SOURCE,UUID /").out.strip(),
        array=facts(pc, ARRAY),
        files=pc.run("sha256sum -c /root/sums", code=None).out,
        loaders={uuid: (digest, rest.removeprefix("- ").strip()) for uuid, digest, rest in lines},
        audit=(audit.code, audit.out + audit.err),
        state=pc.run("systemctl is-system-running", code=None).out.strip(),
        copies=pc.run("journalctl -b -u esp-copies --no-pager -o cat", code=None).out,
    )


class Machine:
    """The drives, and a PC for each set of them that is plugged in."""

    def __init__(self, debian: Debian) -> None:
        self.debian = debian
        self.now: dict[str, Path] = {}  # where the latest image of each drive is

    def with_drives(self, *drives: Nvme, base: Path | None = None) -> DebianPC:
        folder = self.debian.folders.mktemp("system")
        for drive in drives:
            if drive.serial in self.now:
                run("cp", "--sparse=always", self.now[drive.serial], folder)
            self.now[drive.serial] = image(drive, folder)
        return DebianPC(folder, base, self.debian.tool, drives)


@pytest.fixture(scope="module")
def observed(debian: Debian) -> Iterator[Observed]:
    machine, steps = Machine(debian), blocks()
    with powered(machine.with_drives(LEFT, RIGHT, base=disk_with_grub_at_hand())) as pc:
        pc.run(MENU)
        typed(pc, steps["aligntool"].replace("create", "create --yes"))
        undone = pc.run(ENABLED_AND_BACK).out.splitlines()
        pc.run("cd /root && seq 100000 > numbers && sha256sum /root/numbers > sums")
        typed(pc, steps["mount"] + steps["cat"])
        filesystem = pc.run(f"blkid -s UUID -o value {ARRAY}").out.strip()
        pc.run(f"mdadm --wait {ARRAY}", code=None)
        pc.off()
    yield Observed(undone, filesystem, *_started(machine, steps))


def _started(machine: Machine, steps: dict[str, str]) -> Iterator[Started]:
    with powered(machine.with_drives(LEFT, RIGHT)) as pc:
        yield look(pc)
        pc.run("echo upgraded > /boot/efi/EFI/note")
        pc.off()
    with powered(machine.with_drives(RIGHT)) as pc:
        yield look(pc)
        pc.run("seq 200000 > /root/more && sha256sum /root/more >> /root/sums")
        pc.off()
    with powered(machine.with_drives(LEFT, RIGHT)) as pc:
        back = look(pc)
        yield back
        if len(back.array.examine) == 1:  # the kernel found the drive that had been away first
            pc.run(f"mdadm {ARRAY} --re-add /dev/nvme0n1p2")
        yield synced(pc)
        pc.off()
    with powered(machine.with_drives(LEFT, FRESH)) as pc:
        yield look(pc)
        gone = pc.run(". /etc/default/esp-copies; echo ${ESP_COPIES#* }").out.strip()
        typed(pc, steps["sfdisk"].replace("1111AAAB", gone.replace("-", "")))
        yield synced(pc)
        pc.off()


def synced(pc: DebianPC) -> Started:
    pc.run(f"udevadm settle; mdadm --wait {ARRAY}", code=None)
    return look(pc)


def test_enabling_the_unit_can_be_undone(observed: Observed) -> None:
    there, gone, again = observed.undone
    assert there == "[] {'before': 'there'}"
    assert gone.endswith(" {}") and "esp-copies.service is disabled" in gone
    assert again == "[] {'before': 'there'}"


def _is_up(started: Started, observed: Observed, *, drives: int, files: int) -> None:
    source, uuid = started.root.split()
    assert source == f"/dev/{started.array.node}" and uuid == observed.filesystem
    assert len(started.files.splitlines()) == started.files.count(": OK") == files
    assert started.state == "running"
    assert len(started.array.examine) == drives
    assert all("BOOTX64.EFI" in what for _, what in started.loaders.values())


def test_the_system_boots_from_the_array_without_the_old_disk(observed: Observed) -> None:
    _is_up(observed.both, observed, drives=2, files=1)
    assert observed.both.audit[0] == 0, observed.both.audit[1]
    assert "is the same as" in observed.both.copies


def test_the_boot_loaders_on_both_efi_system_partitions_are_identical(observed: Observed) -> None:
    assert len(observed.both.loaders) == 2
    assert len({digest for digest, _ in observed.both.loaders.values()}) == 1


def test_the_system_boots_without_the_left_drive_and_reports_it(observed: Observed) -> None:
    _is_up(observed.left_pulled, observed, drives=1, files=1)
    assert observed.left_pulled.audit[0] != 0 and DEGRADED in observed.left_pulled.audit[1]


def test_a_file_added_next_to_the_boot_loader_was_copied_at_shutdown(observed: Observed) -> None:
    assert [what.split()[0] for _, what in observed.left_pulled.loaders.values()] == ["upgraded"]


def test_a_drive_that_is_plugged_in_again_is_re_added_and_synchronised(observed: Observed) -> None:
    members = len(observed.back.array.examine)
    _is_up(observed.back, observed, drives=members, files=2)
    assert members == 2 or DEGRADED in observed.back.audit[1]
    _is_up(observed.resynced, observed, drives=2, files=2)
    assert observed.resynced.audit[0] == 0, observed.resynced.audit[1]


def test_the_system_boots_without_the_right_drive_with_all_later_changes(observed: Observed) -> None:
    _is_up_but_for_a_blank_drive(observed)
    assert DEGRADED in observed.right_pulled.audit[1]


def _is_up_but_for_a_blank_drive(observed: Observed) -> None:
    assert observed.right_pulled.root.split()[1] == observed.filesystem
    assert observed.right_pulled.files.count(": OK") == 2
    assert len(observed.right_pulled.array.examine) == 1
    assert observed.right_pulled.state == "running"


def test_a_new_drive_replaces_the_missing_one(observed: Observed) -> None:
    _is_up(observed.replaced, observed, drives=2, files=2)
    assert observed.replaced.audit[0] == 0, observed.replaced.audit[1]
    assert observed.replaced.loaders == observed.resynced.loaders
