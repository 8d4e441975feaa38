"""The memory that a plan and a move of a file system of 16 TiB take, programs that they run included."""

from pathlib import Path

import pytest

from aligntool.units import MIB, TIB
from tests.bench.old_disks import make_sparse_disk
from tests.bench.once import aligntool, once
from tests.conftest import run

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("sfdisk", "losetup", "mkfs.xfs", "xfs_db", "xfs_repair")]


def test_an_xfs_of_16_tebibytes_is_planned_and_moved_in_little_memory(tmp_path: Path) -> None:
    disk = make_sparse_disk(tmp_path, 16 * TIB - MIB, "xfs")
    plan, move = (
        once(aligntool(*words))
        for words in (("plan", "realign", str(disk.image)), ("realign", "--yes", str(disk.image)))
    )
    assert max(plan.peak, move.peak) < 150 * MIB
    assert "start=        2048," in run("sfdisk", "-d", disk.image)
    assert disk.image.stat().st_blocks * 512 < 4 * disk.used, "holes were filled"
