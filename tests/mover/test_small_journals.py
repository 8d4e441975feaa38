"""Full old disks with a few hundred KiB of slack: there is room for a small journal, and nothing is lost."""

import json
import time
from pathlib import Path

import pytest

from aligntool.units import KIB, MIB
from tests.conftest import run
from tests.mover.command_line import aligntool, begin, kill, realign
from tests.mover.conftest import MakeDisk
from tests.mover.disks import Row
from tests.mover.filesystems import FILESYSTEMS
from tests.mover.loop_mounts import mounted
from tests.thorough import sample

pytestmark = pytest.mark.needs_tools("sfdisk", "sgdisk", "parted", "blkid", "mkfs.ext4", "debugfs", "e2fsck")
NAMED = {kind.name: kind for kind in FILESYSTEMS}


@sample(3)
@pytest.mark.parametrize("slack", [256, 640, 1126, 2000])
@pytest.mark.parametrize("label", ["dos", "gpt"])
def test_a_full_disk_with_this_much_slack_is_realigned_completely(
    make: MakeDisk, tmp_path: Path, label: str, slack: int
) -> None:
    disk = make(label, Row(NAMED["ext4"], 63 if label == "dos" else 34), free=2 * slack)
    before, size = disk.seen(), disk.image.stat().st_size
    file = tmp_path / "plan.json"
    aligntool("plan", "realign", disk.image, "-o", file)
    plan = json.loads(file.read_text())["plan"]
    (journal,) = (step["journal"] for step in plan["steps"] if step["step"] == "WriteJournal")
    assert journal["extent"]["length"] < 2 * MIB
    assert any("small" in note for note in plan["notes"]) == (journal["copy_length"] < 512 * KIB)
    realign(disk.image)
    assert disk.seen() == before and disk.image.stat().st_size == size
    assert all(extent.start % 4096 == 0 for extent in disk.extents().values())
    disk.check()


@pytest.mark.needs_tools("mkfs.exfat", "fsck.exfat", "mount.exfat-fuse")
@pytest.mark.needs_root
def test_an_exfat_whose_checksums_change_is_realigned_with_a_small_journal(make: MakeDisk) -> None:
    disk = make("dos", Row(NAMED["exfat"], 63), free=2 * 256)
    before = disk.seen()
    realign(disk.image)
    assert disk.seen() == before
    disk.check()


def test_without_room_for_the_smallest_journal_the_refusal_states_the_missing_bytes(make: MakeDisk) -> None:
    disk = make("dos", Row(NAMED["ext4"], 63), free=100)
    before = disk.image.read_bytes()
    assert "bytes short" in realign(disk.image, code=3)
    assert disk.image.read_bytes() == before


@pytest.mark.needs_root
@pytest.mark.parametrize("way", ["", "resume", "rollback"])
@pytest.mark.parametrize("size_mib", [1, 8])
def test_a_journal_in_a_file_is_as_large_as_there_is_room_for(
    make: MakeDisk, tmp_path: Path, size_mib: int, way: str
) -> None:
    """The file system of the file is much smaller than a journal with the preferred sizes."""
    disk = make("dos", Row(NAMED["ext4"], 63), free=100)
    before, content = disk.seen(), tmp_path / "small"
    run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", content, f"{size_mib}m")
    with mounted(content, "mount", "-o", "loop") as folder:
        file, log = folder / "journal", tmp_path / "log"
        saved = tmp_path / "plan.json"
        aligntool("plan", "realign", disk.image, "--journal", file, "-o", saved)
        (length,) = (
            step["journal"]["extent"]["length"]
            for step in json.loads(saved.read_text())["plan"]["steps"]
            if step["step"] == "WriteJournal"
        )
        assert length < size_mib * MIB
        if not way:
            aligntool("apply", saved, "--yes")
        else:
            with log.open("wb") as errors:
                process = begin("realign", disk.image, "--yes", "--rate", "2MiB", "--journal", file, errors=errors)
                while b"copy partition" not in log.read_bytes() and process.poll() is None:
                    time.sleep(0.05)
                kill(process)
            assert file.stat().st_size == length
            aligntool(way, disk.image, "--yes", "--journal", file)
    assert disk.seen() == before
    assert all(extent.start % 4096 == 0 for extent in disk.extents().values()) == (way != "rollback")
    disk.check()
