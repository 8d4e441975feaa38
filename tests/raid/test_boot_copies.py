"""The script that synchronises EFI system partitions, run on real file systems.

They are ext4 instead of FAT, which not every kernel can mount: the script needs only the UUID.
tests/lab/test_system_disk.py runs it on real ones, with firmware.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from aligntool.raid.boot import system_file_text
from aligntool.units import MIB
from tests.conftest import run
from tests.moving.loop_mounts import mounted

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("losetup", "mkfs.ext4", "findmnt", "blkid", "mount")]
LOADER = "EFI/BOOT/BOOTX64.EFI"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two file systems, the first of which has a boot loader."""

    folder: Path
    devices: tuple[Path, Path]
    uuids: tuple[str, str]

    def copy(self, *words: str, on: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run the script while that one is mounted, or none."""
        script, listed = self.folder / "esp-copies.sh", self.folder / "list"
        script.write_text(system_file_text("esp-copies.sh"))
        listed.write_text(f'ESP_COPIES="{" ".join(self.uuids)}"\n')
        with ExitStack() as stack:
            if on is not None:
                stack.enter_context(mounted(self.devices[on], "mount"))
            return subprocess.run(
                ("sh", script, *words),
                env=os.environ | {"ESP_COPIES_FILE": str(listed), "TMPDIR": str(self.folder), "LC_ALL": "C"},
                capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip

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


@pytest.fixture
def pair(tmp_path: Path, sparse: Callable[..., Path], loop: Callable[..., Path]) -> Iterator[Pair]:
    uuids = (str(uuid4()), str(uuid4()))  # blkid also finds those of a test that runs at the same time
    one, two = (loop(sparse(16 * MIB, f"{number}.img")) for number in range(2))
    for device, uuid in zip((one, two), uuids, strict=True):
        run("mkfs.ext4", "-q", "-U", uuid, device)
    found = Pair(tmp_path, (one, two), uuids)
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
