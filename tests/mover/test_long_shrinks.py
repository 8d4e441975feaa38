"""A shrink that has to move many blocks in one piece writes all of them."""

import hashlib
import os
from pathlib import Path

import pytest

from aligntool.units import MIB, Extent
from tests.conftest import run
from tests.mover.command_line import aligntool
from tests.mover.disks import content_of, entries

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("sfdisk", "mke2fs", "debugfs", "e2fsck", "resize2fs")]

SECTOR = 512
LENGTH = 320 * MIB


def test_a_run_of_blocks_longer_than_one_read_is_moved_whole(tmp_path: Path) -> None:
    """A file of 20 MiB lies at the end, behind one that was deleted."""
    content, image, first, last = (tmp_path / name for name in ("content", "disk.img", "first", "last"))
    first.write_bytes(b"deleted " * (240 * MIB // 8))
    last.write_bytes(os.urandom(20 * MIB))
    with content.open("wb") as file:
        file.truncate(LENGTH)
    run("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-E", "lazy_itable_init=0", content)
    for name in (first, last):
        run("debugfs", "-w", "-R", f"write {name} {name.name}", content)
    run("debugfs", "-w", "-R", "rm first", content)
    run("e2fsck", "-fy", content)
    with image.open("wb") as file:
        file.truncate(34 * SECTOR + LENGTH + 33 * SECTOR)
        file.seek(34 * SECTOR)
        file.write(content.read_bytes())
    table = f"label: gpt\nfirst-lba: 34\nstart=34, size={LENGTH // SECTOR}, type=L\n"
    run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", "--wipe", "never", image, stdin=table)
    aligntool("realign", image, "--yes", "--not-suspended", "--shrink", "--grain", "64MiB")
    place = entries(image)[1]
    with content_of(image, Extent(place["start"] * SECTOR, place["size"] * SECTOR)) as moved:
        run("e2fsck", "-fn", moved)
        run("debugfs", "-R", f"dump /last {tmp_path / 'again'}", moved)
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (last, tmp_path / "again")]
    assert digests[0] == digests[1]
