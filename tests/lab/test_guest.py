"""The lab itself: a guest's own programs find the drives that were requested, and a failing guest reports why."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import run
from tests.lab.conftest import Lab
from tests.lab.drives import MIB, Nvme, Port, Scsi, Switch
from tests.lab.emulator import started
from tests.lab.guest import INIT
from tests.lab.kernel import debian_kernel
from tests.thorough import when_thorough

pytestmark = pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "udevadm", "lspci", "nvme")

NARROW, WIDE = Port("narrow", speed="8", width=2), Port("wide", speed="16", width=4)
SWITCH = Switch("switch", WIDE)
DRIVES = (
    Nvme("plain", size=64 * MIB),
    Nvme("native", size=96 * MIB, block=4096),
    Nvme("emulated", size=64 * MIB, physical=4096, behind=NARROW),
    Nvme("left", size=64 * MIB, behind=SWITCH),
    Nvme("right", size=64 * MIB, behind=SWITCH),
    Scsi("disk", size=32 * MIB, physical=4096),
)
ASK = """
lsblk --json --bytes --output NAME,SERIAL,SIZE,LOG-SEC,PHY-SEC > /lab/lsblk.json
lspci -t > /lab/tree
touch /etc/written-in-a-guest
ls /etc/written-in-a-guest > /lab/written
echo the last words of the script
exit 3
"""


# The kernel's physical block of an NVMe drive is what the drive writes atomically; QEMU's drives write one block.
SEEN = {drive.serial: drive.physical if isinstance(drive, Scsi) else drive.block for drive in DRIVES}


fails_on_purpose = when_thorough("starts a guest whose script fails")


@pytest.fixture(scope="module")
def failed(lab: Lab) -> tuple[Path, str]:
    """Return (the folder of a guest, the message when its script failed at the end)."""
    guest = lab.guest(*DRIVES)
    with pytest.raises(AssertionError) as error:
        guest.run(ASK)
    return guest.folder / "lab", str(error.value)


@pytest.fixture(scope="module")
def told(failed: tuple[Path, str]) -> Path:
    return failed[0]


@fails_on_purpose
def test_the_requested_drives_are_present(told: Path) -> None:
    disks = json.loads((told / "lsblk.json").read_text())["blockdevices"]
    found = {disk["serial"]: (disk["size"], disk["log-sec"], disk["phy-sec"]) for disk in disks if disk["serial"]}
    assert found == {drive.serial: (drive.size, drive.block, SEEN[drive.serial]) for drive in DRIVES}


@fails_on_purpose
def test_files_that_a_guest_writes_outside_its_folder_do_not_reach_this_machine(told: Path) -> None:
    assert (told / "written").read_text() == "/etc/written-in-a-guest\n"
    assert not Path("/etc/written-in-a-guest").exists()


@fails_on_purpose
def test_two_drives_are_behind_one_switch_and_one_behind_a_port(told: Path) -> None:
    """The brackets of `lspci -t`: below one port there is a drive, below the other a bridge with two bridges."""
    tree = (told / "tree").read_text()
    assert len(re.findall(r"-\[\d\d\]----00\.0$", tree, re.MULTILINE)) == 3, tree
    assert len(re.findall(r"-\[\d\d-\d\d\]----00\.0-\[\d\d-\d\d\]--", tree)) == 1, tree


@fails_on_purpose
def test_a_failed_script_shows_its_output_and_that_of_the_kernel(failed: tuple[Path, str]) -> None:
    assert "exit 3" in failed[1]
    assert "the last words of the script" in failed[1]
    assert "Linux version" in failed[1]


def test_a_pc_that_hangs_shows_its_console_and_is_ended_with_its_child_processes(tmp_path: Path) -> None:
    """Whatever hangs: here it is a shell that waits for a program."""
    console, words = (tmp_path / "console", f"echo the kernel came this far; sh -c 'sleep 1000; true' {tmp_path}; true")
    with started(("sh", "-c", words), console) as pc:
        while "came this far" not in pc.console():
            assert pc.is_on()
        with pytest.raises(AssertionError, match=r"(?s)still not off after 0\.1 s.*the kernel came this far"):
            pc.until_off(0.1)
    assert not list(_running(bytes(tmp_path)))


def _running(word: bytes) -> Iterator[Path]:
    """Return the processes with this in their command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # ended in the meantime
            if word in path.read_bytes():
                yield path


@when_thorough("makes an initramfs twice")
def test_a_guest_can_be_started_again_on_the_same_drives(lab: Lab) -> None:
    """All preparations before a start, twice; the content of a drive remains."""
    guest, kernel = lab.guest(Nvme("kept", size=MIB)), debian_kernel()
    first = guest.command(kernel)
    (guest.folder / "kept.img").write_bytes(b"what was there")
    assert guest.command(kernel) == first
    assert (guest.folder / "kept.img").read_bytes() == b"what was there"


@pytest.mark.needs_tools("shellcheck")
def test_the_init_script_of_a_guest_passes_shellcheck() -> None:
    run("shellcheck", INIT)
