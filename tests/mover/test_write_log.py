"""Power cuts with a cache in the disk: every write and flush of a real move is recorded, and replayed as crashes.

What was written before a flush is there after it. What was written since the last flush may be there or not, sector by
sector. The guarantee applies to every resulting disk. By default one crash in each of some epochs, drawn with a
seed; ALIGNTOOL_THOROUGH=1 tests every epoch, several times.
"""

import os
import random
from pathlib import Path

import pytest

from aligntool.linux.block import open_read_only
from aligntool.mover.status import journal_status
from tests.mover.command_line import aligntool, realign, resume, rollback
from tests.mover.conftest import MakeDisk
from tests.mover.containers import CONTAINERS
from tests.mover.disks import Disk, Row
from tests.mover.filesystems import FILESYSTEMS, SECTOR
from tests.mover.invariants import Journey, arrived, check_signatures, copy, recover_and_check, trial
from tests.mover.media import Write, medium, needs_media
from tests.thorough import SEED, THOROUGH, sample

pytestmark = [
    needs_media,
    pytest.mark.needs_tools("sfdisk", "sgdisk", "parted", "blkid", "mkfs.ext4", "debugfs", "e2fsck"),
    pytest.mark.needs_tools("mkfs.fat", "fsck.fat", "mcopy", "mdel", "mkswap", "swaplabel", "mdadm"),
]
NAMED = {kind.name: kind for kind in (*FILESYSTEMS, *CONTAINERS)}
CRASHES = 5  # of each recording
Epochs = list[list[Write]]


def mbr_disk(make: MakeDisk) -> Disk:
    return make("dos", Row(NAMED["ext2"], 63), free=6 * 2048)


def gpt_disk(make: MakeDisk) -> Disk:
    """Make a GPT disk; the second partition moves a sector, all of it through the stash."""
    first = Row(NAMED["fat12"], 34)
    return make("gpt", first, Row(NAMED["swap"], first.end + 3000 // 8 * 8 + 1), free=9 * 2048)


def logical_disk(make: MakeDisk) -> Disk:
    first = Row(NAMED["swap"], 2048)
    second = Row(NAMED["fat12"], first.end + 64, logical=True)
    return make("dos", first, second, Row(NAMED["unknown"], second.end + 63, logical=True), free=9 * 2048)


def large_disk(make: MakeDisk) -> Disk:
    """Make a disk where all of it is copied, in more than one batch."""
    return make("dos", Row(NAMED["zfs"], 63), free=12 * 2048)


def large_near_disk(make: MakeDisk) -> Disk:
    """Make one a third as large, all of it through the stash, batch by batch."""
    return make("gpt", Row(NAMED["md 1.0"], 2047), free=12 * 2048)


LARGE = (large_disk, large_near_disk) if THOROUGH else ()


@sample(2)
@pytest.mark.parametrize("kind", [mbr_disk, gpt_disk, logical_disk, *LARGE])
def test_a_power_cut_anywhere_in_a_move_loses_nothing(kind: object, make: MakeDisk, tmp_path: Path) -> None:
    assert callable(kind)
    disk: Disk = kind(make)
    with medium(copy(disk.image, trial(disk))) as recorder:
        realign(recorder.disk, "--no-lease")
        epochs = recorder.epochs()
    trip = arrived(disk)
    crashes(trip, disk.image, epochs, tmp_path)


@sample(1)
@pytest.mark.parametrize("finish", [resume, rollback], ids=["resume", "rollback"])
def test_a_power_cut_during_the_recovery_loses_nothing(finish: object, make: MakeDisk, tmp_path: Path) -> None:
    assert callable(finish)
    disk = mbr_disk(make)
    with medium(copy(disk.image, trial(disk))) as recorder:
        realign(recorder.disk, "--no-lease")
        epochs = recorder.epochs()
    trip = arrived(disk)
    cut = cut_in_the_middle(disk.image, epochs, tmp_path / "cut.img")
    with medium(copy(cut, tmp_path / "finished.img")) as recorder:
        finish(recorder.disk, "--no-lease")
        epochs = recorder.epochs()
    crashes(trip, cut, epochs, tmp_path)


def cut_in_the_middle(image: Path, epochs: Epochs, cut: Path) -> Path:
    """Make the disk as it is after two thirds of the epochs, or before: nothing is visible, so either way is open."""
    for count in range(len(epochs) * 2 // 3, 0, -1):
        replay(copy(image, cut), epochs[:count])
        with open_read_only(str(cut)) as device:
            if journal_status(device, None).ways == ("resume", "rollback"):
                return cut
    raise AssertionError


def crashes(trip: Journey, start: Path, epochs: Epochs, tmp_path: Path) -> None:
    """Replay crashes of the disk `start` in these epochs, and recover each."""
    chance = random.Random(SEED)
    assert len(epochs) > 10, "there are flushes between the steps"
    assert epochs[-1] == [], "everything was flushed before the end"
    taken = range(len(epochs)) if THOROUGH else sorted(chance.sample(range(len(epochs)), CRASHES))
    ends = set()
    for number in taken:
        for _ in range(3 if THOROUGH else 1):
            crashed = copy(start, tmp_path / "crashed.img")
            replay(crashed, epochs[:number])
            replay(crashed, [survivors(epochs[number], chance)])
            try:
                check_signatures(trip, crashed)
                ends.add(recover_and_check(trip, crashed, crashed, back=chance.random() < 0.3))
            except BaseException as error:
                error.add_note(f"ALIGNTOOL_SEED={SEED}, cut in epoch {number} of {len(epochs)}")
                raise
    assert ends <= {"old", "new"}


def replay(image: Path, epochs: Epochs) -> None:
    with image.open("r+b") as file:
        for write in (write for epoch in epochs for write in epoch):
            file.seek(write.at)
            file.write(write.content)


def survivors(epoch: list[Write], chance: random.Random) -> list[Write]:
    """Return what a disk's cache had written when the power was cut: any number of whole sectors."""
    pieces = [
        Write(write.at + at, write.content[at : at + SECTOR])
        for write in epoch
        for at in range(0, len(write.content), SECTOR)
    ]
    share = chance.choice((0.0, 0.02, 0.5, 0.98, 1.0))
    return [piece for piece in pieces if chance.random() < share]


def test_the_surviving_sectors_are_a_part_of_those_written() -> None:
    epoch = [Write(0, bytes(10 * SECTOR)), Write(1 << 20, b"x" * 5 * SECTOR)]
    chance = random.Random(1)
    kept = [survivors(epoch, chance) for _ in range(50)]
    assert {len(pieces) for pieces in kept} >= {0, 15}
    assert all(piece.at // SECTOR < 10 or piece.content == b"x" * SECTOR for pieces in kept for piece in pieces)


def test_the_recorder_records_every_write_and_flush(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(1 << 20))
    with medium(image) as recorder:
        descriptor = os.open(recorder.disk, os.O_RDWR)
        os.pwrite(descriptor, b"one", 5)
        os.fsync(descriptor)
        os.pwrite(descriptor, b"two", 100)
        os.close(descriptor)
        assert recorder.epochs() == [[Write(5, b"one")], [Write(100, b"two")]]
    assert image.read_bytes()[100:103] == b"two"
    assert "nothing is in flight" in aligntool("status", image, code=None)
