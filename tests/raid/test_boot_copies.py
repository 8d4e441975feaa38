"""The script that synchronises EFI system partitions, run on real file systems.

They are ext4 instead of FAT, which not every kernel can mount: the script needs only the UUID.
tests/lab/test_system_disk.py runs it on real ones, with firmware.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from aligntool.raid.boot import system_file_text
from aligntool.units import MIB
from tests.conftest import run
from tests.fuzz.handmade_layers import md
from tests.mover.loop_mounts import mounted

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("losetup", "partx", "sfdisk", "mkfs.ext4", "findmnt", "blkid", "mount"),
]
LOADER = "EFI/BOOT/BOOTX64.EFI"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two file systems, the first of which has a boot loader, on two drives of an array. It is not running: no test can
    rely on md, so what sysfs shows of it is made up.
    """

    folder: Path
    devices: tuple[Path, Path]
    uuids: tuple[str, str]
    array: str

    def copy(self, *words: str, on: int | None = 0, path: str = "") -> subprocess.CompletedProcess[str]:
        """Run the script while that one is mounted, or none. `path`: for its programs."""
        script, listed = self.folder / "esp-copies.sh", self.folder / "list"
        script.write_text(system_file_text("esp-copies.sh"))
        listed.write_text(f'ESP_COPIES="{" ".join(self.uuids)}" ESP_ARRAY={self.array}\n')
        with ExitStack() as stack:
            if on is not None:
                stack.enter_context(mounted(self.devices[on], "mount"))
            return subprocess.run(
                ("sh", script, *words),
                env=os.environ | {
                    "ESP_COPIES_FILE": str(listed), "ESP_COPIES_SYS": str(self.folder), "ESP_COPIES_TYPE": "ext4",
                    "TMPDIR": str(self.folder), "LC_ALL": "C", "PATH": path or os.environ["PATH"],
                },
                capture_output=True, text=True, check=False, timeout=300,
            )  # fmt: skip

    def run_array(self, *on: int) -> None:
        """Make the array run on the members that are on these drives."""
        for at, device in enumerate(self.devices):
            holder = self.folder / "class/block" / member_beside(device).name / "holders/md127"
            holder.parent.mkdir(parents=True, exist_ok=True)
            if at in on:
                holder.touch()
            else:
                holder.unlink(missing_ok=True)

    def write(self, at: int, name: str, text: str | None, *, time: int = 1_700_000_000) -> None:
        """Write a file; with None, remove it."""
        with mounted(self.devices[at], "mount") as place:
            file = place / name
            if text is None:
                file.unlink()
                return
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            os.utime(file, (time, time))

    def files(self, at: int) -> dict[str, tuple[str, float]]:
        with mounted(self.devices[at], "mount", "-o", "ro") as place:
            found = (path for path in place.rglob("*") if path.is_file())
            return {str(path.relative_to(place)): (path.read_text(), path.stat().st_mtime) for path in found}


def member_beside(device: Path) -> Path:
    return device.with_name(f"{device.name[:-1]}2")


@pytest.fixture
def drive(sparse: Callable[..., Path], loop: Callable[..., Path]) -> Callable[..., Path]:
    """Make a drive with a file system and a member of an array, and return the file system's device."""

    def make(name: str, uuid: str, array: str | None) -> Path:
        image = sparse(24 * MIB, name)
        run("sfdisk", "-q", image, stdin="label: gpt\nsize=16MiB\nsize=4MiB\n")
        if array:
            at, raw = md("1.2", size=4 * MIB, uuid=UUID(array).bytes)
            with image.open("r+b") as file:
                file.seek(17 * MIB + at)
                file.write(raw)
        disk = loop(image)
        run("partx", "-a", disk)
        device = Path(f"{disk}p1")
        assert device.is_block_device()
        run("mkfs.ext4", "-q", "-F", "-U", uuid, device)
        return device

    return make


@pytest.fixture
def pair(tmp_path: Path, drive: Callable[..., Path]) -> Iterator[Pair]:
    uuids = (str(uuid4()), str(uuid4()))  # blkid also finds those of a test that runs at the same time
    array = str(uuid4())
    one, two = (drive(f"{number}.img", uuid, array) for number, uuid in enumerate(uuids))
    found = Pair(tmp_path, (one, two), uuids, array)
    found.run_array(0, 1)
    found.write(0, LOADER, "loader 1")
    yield found
    assert not [name for name in run("findmnt", "-n", "-o", "TARGET").split() if str(tmp_path) in name]


def test_the_mounted_one_is_mirrored_with_its_times_and_its_deletions(pair: Pair) -> None:
    pair.write(0, "EFI/debian/grub cfg", "search")
    pair.write(1, "EFI/old/old.efi", "old")
    done = pair.copy()
    assert done.returncode == 0, done.stderr
    assert f"{pair.uuids[1]} is a copy of {pair.uuids[0]}" in done.stdout
    assert pair.files(1) == pair.files(0) and set(pair.files(0)) == {LOADER, "EFI/debian/grub cfg"}


def test_identical_files_are_not_written(pair: Pair) -> None:
    assert pair.copy().returncode == 0
    done = pair.copy()
    assert (done.returncode, done.stdout) == (0, f"{pair.uuids[1]} is the same as {pair.uuids[0]}\n")


def test_a_newer_loader_on_the_mounted_one_is_copied_in_either_direction(pair: Pair) -> None:
    pair.copy()
    pair.write(1, LOADER, "loader 2", time=1_700_000_100)
    assert pair.copy(on=1).returncode == 0
    assert pair.files(0)[LOADER] == ("loader 2", 1_700_000_100)


def test_newer_files_are_never_overwritten_automatically(pair: Pair) -> None:
    """The first drive was removed for a while, and returns unchanged."""
    pair.copy()
    pair.write(1, LOADER, "loader 2", time=1_700_000_100)
    before = pair.files(1)
    done = pair.copy()
    assert done.returncode == 1 and "has newer files" in done.stderr
    assert pair.files(1) == before
    assert pair.copy(pair.uuids[1]).returncode == 0
    assert pair.files(0) == before


def test_an_empty_partition_is_never_copied_over_a_boot_loader(pair: Pair) -> None:
    """A new drive in place of the first."""
    pair.copy()
    run("mkfs.ext4", "-q", "-F", "-U", pair.uuids[0], pair.devices[0])
    before = pair.files(1)
    done = pair.copy()
    assert done.returncode == 1 and "has no boot loader" in done.stderr
    assert pair.files(1) == before
    assert pair.copy(pair.uuids[1], on=None).returncode == 0
    assert pair.files(0) == before


def test_an_interrupted_copy_is_repeated_and_never_copied(pair: Pair) -> None:
    pair.write(1, "unfinished-copy", "")
    pair.write(1, LOADER, "half", time=1_700_000_100)
    done = pair.copy(on=1)
    assert done.returncode == 1 and "unfinished copy" in done.stderr
    assert pair.copy().returncode == 0
    assert pair.files(1) == pair.files(0)


def test_nothing_is_copied_if_none_is_mounted(pair: Pair) -> None:
    done = pair.copy(on=None)
    assert (done.returncode, pair.files(1)) == (0, {})
    assert "nothing is copied" in done.stdout


def test_nothing_is_copied_if_both_are_mounted(pair: Pair) -> None:
    with mounted(pair.devices[1], "mount"):
        done = pair.copy()
    assert done.returncode == 1 and "both mounted" in done.stderr
    assert pair.files(1) == {}


def test_a_missing_drive_does_not_prevent_the_start(pair: Pair) -> None:
    run("wipefs", "--all", pair.devices[1])
    done = pair.copy()
    assert (done.returncode, done.stdout) == (0, f"{pair.uuids[1]} not found\n")


def test_a_clone_of_a_drive_stops_every_copy(pair: Pair, drive: Callable[..., Path]) -> None:
    """A clone of a whole drive has the UUID of the array, too."""
    clone = drive("clone.img", pair.uuids[0], pair.array)
    for on in (0, 1):
        done = pair.copy(on=on)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith(f"{pair.uuids[0]} is on ") and str(clone) in done.stderr
    done = pair.copy(pair.uuids[0])
    assert done.returncode == 1 and "detach all but the one of the array" in done.stderr
    assert pair.files(1) == {}


def test_a_device_that_has_only_the_id_is_neither_read_nor_written(pair: Pair, drive: Callable[..., Path]) -> None:
    """The first drive is away, and something else has the id of its boot partition and is mounted in its place."""
    pair.copy()
    before = pair.files(1)
    run("wipefs", "--all", pair.devices[0])
    for array in (None, str(uuid4())):
        device = drive(f"{array}.img", pair.uuids[0], array)
        other = replace(pair, devices=(device, pair.devices[1]))
        other.write(0, LOADER, "of a stranger", time=1_800_000_000)
        done = other.copy()
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 1) and "nothing is copied" in done.stdout
        assert other.copy(pair.uuids[0]).returncode == 1
        done = other.copy(on=1)
        assert done.returncode == 0 and "not on a drive of the array" in done.stdout
        assert pair.files(1) == before and other.files(0)[LOADER][0] == "of a stranger"
        run("wipefs", "--all", device)


def test_a_drive_that_the_array_runs_without_is_not_copied_from(pair: Pair) -> None:
    """A clone of the drive that is away is one as well."""
    pair.copy()
    pair.write(0, LOADER, "older", time=1_800_000_000)
    before = pair.files(1)
    pair.run_array(1)
    done = pair.copy()
    assert done.returncode == 0 and "not on a drive of the running array: nothing is copied" in done.stdout
    assert pair.files(1) == before
    assert pair.copy(on=1).returncode == 1  # the other one has newer files, and the administrator chooses
    assert pair.copy(pair.uuids[0]).returncode == 0


def test_both_are_mounted_without_programs_devices_and_rights(pair: Pair) -> None:
    """As the kernel lists them while files are copied, when the script runs `sync`."""
    listed, program = pair.folder / "mounts", pair.folder / "bin/sync"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\ncat /proc/self/mountinfo > "{listed}"\n')
    program.chmod(0o755)
    assert pair.copy(path=f"{program.parent}:{os.environ['PATH']}").returncode == 0
    lines = [line.split() for line in listed.read_text().splitlines() if str(pair.folder) in line]
    source, target = sorted(lines, key=lambda words: words[4])
    assert source[5].startswith("ro,nosuid,nodev,noexec") and target[5].startswith("rw,nosuid,nodev,noexec")


def test_a_list_without_the_array_is_refused(pair: Pair) -> None:
    done = replace(pair, array="").copy()
    assert done.returncode == 1 and done.stderr.startswith("ESP_ARRAY is missing")
