"""The test tools themselves: the readers find every file that was written, and the checkers find damage.

sfdisk's own mover is used instead of ours, so that these tests do not depend on aligntool.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.units import MIB, Extent
from tests.conftest import run
from tests.mover import fileset
from tests.mover.conftest import Contents, MakeDisk
from tests.mover.containers import CONTAINERS
from tests.mover.disks import Disk, Row, blkid, entries, hidden_sectors
from tests.mover.filesystems import FILESYSTEMS, SECTOR, Kind, read_folder
from tests.thorough import sample

pytestmark = pytest.mark.needs_tools("sfdisk", "sgdisk", "parted", "blkid")

ALL = [kind.parameter() for kind in (*FILESYSTEMS, *CONTAINERS)]
FILES = [kind.parameter() for kind in FILESYSTEMS]
Loop = Callable[..., Path]


def flip(image: Path, at: int) -> None:
    with image.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes((byte ^ 0x55,)))


def find(image: Path, extent: Extent, what: bytes) -> int:
    with image.open("rb") as file:
        file.seek(extent.start)
        return extent.start + file.read(extent.length).index(what)


@pytest.mark.parametrize("kind", FILES)
def test_the_files_that_were_written_are_read_back(kind: Kind, contents: Contents) -> None:
    content = contents(kind)
    assert kind.read(content) == read_folder(fileset.fill)
    kind.check(content)


@sample(8)
@pytest.mark.parametrize("kind", ALL)
def test_reading_and_checking_change_nothing(kind: Kind, contents: Contents, tmp_path: Path) -> None:
    content = tmp_path / "content"
    run("cp", "--sparse=always", contents(kind), content)
    kind.read(content)
    kind.check(content)
    run("cmp", content, contents(kind))


@sample(8)
@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("name", ["photograph", "fragmented"])
def test_one_wrong_bit_in_a_file_changes_the_hash(kind: Kind, name: str, make: MakeDisk) -> None:
    disk = make("dos", Row(kind, 63), free=0)
    before = disk.seen()
    flip(disk.image, find(disk.image, disk.extents()[1], fileset.noise(name, 2000)) + 700)
    after = disk.seen()[1].hashes
    assert [path for path in after if after[path] != before[1].hashes[path]] == [
        {"photograph": "one/two/three/Fotos – été/größer als gedacht.jpg", "fragmented": fileset.FRAGMENTED}[name]
    ]


@pytest.mark.parametrize("kind", [kind.parameter() for kind in CONTAINERS if kind.name != "swap"])
def test_a_wrong_bit_in_the_last_sector_changes_the_hash(kind: Kind, make: MakeDisk) -> None:
    disk = make("dos", Row(kind, 63), free=0)
    before, extent = disk.seen(), disk.extents()[1]
    flip(disk.image, extent.start + extent.length - 1)
    assert disk.seen()[1].hashes != before[1].hashes


@sample(8)
@pytest.mark.parametrize("kind", [kind.parameter() for kind in (*FILESYSTEMS, *CONTAINERS) if kind.name != "unknown"])
def test_truncated_ends_are_found_by_the_checker_and_by_blkid(kind: Kind, make: MakeDisk) -> None:
    disk = make("dos", Row(kind, 63), free=0)
    before, extent = disk.seen()[1].blkid, disk.extents()[1]
    assert before["ID_FS_TYPE"]
    with disk.image.open("r+b") as file:
        for at in (extent.start, extent.start + extent.length - MIB):
            file.seek(at)
            file.write(bytes(MIB))
    assert blkid(disk.image, extent) == {}
    with pytest.raises(AssertionError):
        disk.check()


@pytest.mark.needs_root
@pytest.mark.parametrize("kind", [kind.parameter() for kind in FILESYSTEMS if kind.name in {"ext3", "fat16", "ntfs"}])
def test_another_mover_that_copies_everything_loses_nothing(kind: Kind, make: MakeDisk, loop: Loop) -> None:
    disk = make("dos", Row(kind, 63), free=4096)
    before = disk.seen()
    _move_by_sfdisk(disk, "2048", loop)
    assert disk.extents()[1].start == 2048 * SECTOR
    assert disk.seen() == before
    disk.check()
    # sfdisk does not update boot sectors; aligntool has to.
    assert {*hidden_sectors(disk.image, 2048 * SECTOR, kind)} <= {63}


def _move_by_sfdisk(disk: Disk, start: str, loop: Loop) -> None:
    device = loop(disk.image)
    run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", "--move-data", "-N", "1", device, stdin=f"{start},\n")


@pytest.mark.parametrize("label", ["dos", "gpt"])
def test_the_table_has_the_requested_partitions(label: str, make: MakeDisk) -> None:
    one, two = FILESYSTEMS[0], FILESYSTEMS[6]
    disk = make(label, Row(one, 63), Row(two, 40001))
    table = entries(disk.image)
    assert [entry["start"] for entry in table.values()] == [63, 40001]
    assert [entry["size"] * SECTOR for entry in table.values()] == [one.length, two.length]
    disk.check()
    if label == "gpt":
        flip(disk.image, 512 + 90)
        with pytest.raises(AssertionError):
            disk.check()


def test_logical_partitions_begin_one_track_behind_their_ebrs(make: MakeDisk) -> None:
    one, two = FILESYSTEMS[0], FILESYSTEMS[6]
    disk = make("dos", Row(one, 63), Row(two, 40001, logical=True), Row(one, 70001, logical=True))
    assert {number: extent.start // SECTOR for number, extent in disk.extents().items()} == {1: 63, 5: 40001, 6: 70001}
    assert hidden_sectors(disk.image, 40001 * SECTOR, two) == [63]
    disk.check()


@pytest.mark.needs_tools("fsck.exfat", "mkfs.exfat", "mount.exfat-fuse")
@pytest.mark.needs_root
def test_a_wrong_exfat_checksum_is_found(make: MakeDisk) -> None:
    (kind,) = [kind for kind in FILESYSTEMS if kind.name == "exfat"]
    disk = make("dos", Row(kind, 63))
    disk.check()
    assert hidden_sectors(disk.image, 63 * SECTOR, kind) == [63, 63]
    flip(disk.image, 63 * SECTOR + 0x40)
    with pytest.raises(AssertionError):
        disk.check()
