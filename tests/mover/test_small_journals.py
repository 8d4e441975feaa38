"""Full old disks with a few hundred KiB of slack: there is room for a small journal, and nothing is lost."""

import json
from pathlib import Path

import pytest

from aligntool.units import KIB, MIB
from tests.mover.command_line import aligntool, realign
from tests.mover.conftest import MakeDisk
from tests.mover.disks import Row
from tests.mover.filesystems import FILESYSTEMS
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
