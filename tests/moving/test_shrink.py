"""Disks without any free space: a file system is shrunk by its own tool, everything moves, and nothing is lost.

What is expected comes from the file systems' own checkers and readers, blkid and sfdisk.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.units import MIB, Extent
from tests.moving.conftest import MakeDisk
from tests.moving.disks import Disk, Row, Seen
from tests.moving.filesystems import FILESYSTEMS, SECTOR, Kind
from tests.moving.mover import THOROUGH, realign

Loop = Callable[..., Path]
pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("sfdisk", "sgdisk", "parted", "blkid", "losetup", "resize2fs", "ntfsresize"),
]

NAMED = {kind.name: kind for kind in FILESYSTEMS}
BTRFS = replace(NAMED["btrfs"], name="long btrfs", length=300 * MIB + 9 * SECTOR)  # 256 MiB always stay
KINDS = [kind.parameter() for kind in (NAMED["ext4"], NAMED["ntfs"], BTRFS)]
OF_ITS_LENGTH = ("ID_FS_SIZE", "ID_FS_LASTBLOCK")  # newer blkid tells them


def full(make: MakeDisk, label: str, *rows: Row) -> Disk:
    """The last partition ends where the disk, or its backup table, does not let it go on."""
    return make(label, *rows, free=33 if label == "gpt" else 0)


def seen(disk: Disk) -> dict[int, Seen]:
    """What stays when a file system becomes shorter."""
    return {
        number: Seen(
            {key: value for key, value in one.blkid.items() if key not in OF_ITS_LENGTH},
            {key: value for key, value in one.entry.items() if key != "size"},
            one.hashes,
        )
        for number, one in disk.seen().items()
    }


def shrunk(disk: Disk, target: Path) -> dict[int, Extent]:
    """Realign it, and look at everything that has to stay. The places afterwards."""
    before, old = seen(disk), disk.extents()
    assert "--shrink" in realign(target, code=3)
    realign(target, "--shrink")
    assert seen(disk) == before
    disk.check()
    new = disk.extents()
    assert all(extent.start % MIB == 0 for extent in new.values())
    assert sum(new[number].length < old[number].length for number in old) == 1
    return new


@pytest.mark.parametrize(("label", "start"), [("dos", 63), ("gpt", 34)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_system_on_a_full_disk_is_shrunk_and_moved_with_every_file(
    kind: Kind, label: str, start: int, make: MakeDisk, loop: Loop
) -> None:
    disk = full(make, label, Row(kind, start))
    shrunk(disk, loop(disk.image) if label == "dos" or THOROUGH else disk.image)


def test_an_ntfs_has_the_copy_of_its_boot_sector_in_its_last_sector_afterwards(make: MakeDisk) -> None:
    disk = full(make, "dos", Row(NAMED["ntfs"], 63))
    place = shrunk(disk, disk.image)[1]
    with disk.image.open("rb") as file:
        file.seek(place.start)
        first = file.read(SECTOR)
        file.seek(place.end - SECTOR)
        last = file.read(SECTOR)
    assert int.from_bytes(first[28:32], "little") == place.start // SECTOR
    assert (int.from_bytes(first[40:48], "little") + 1) * SECTOR <= place.length
    assert last == first
