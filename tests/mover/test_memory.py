"""The memory for a plan and a move of a file system of 16 TiB, including the programs that they run."""

import sys
from pathlib import Path

import pytest

from aligntool.units import KIB, MIB, TIB
from tests.bench.old_disks import make_sparse_disk
from tests.bench.timing import aligntool
from tests.conftest import run

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("sfdisk", "losetup", "mkfs.xfs", "xfs_db", "xfs_repair")]

# From a small process: a child's peak starts with the memory of its parent.
PEAK = """
import os, resource, sys
code = os.spawnv(os.P_WAIT, sys.argv[1], sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def peak(*words: str) -> int:
    return int(run(sys.executable, "-S", "-c", PEAK, *aligntool(*words)).splitlines()[-1]) * KIB


def test_an_xfs_of_16_tib_is_planned_and_moved_in_little_memory(tmp_path: Path) -> None:
    disk = make_sparse_disk(tmp_path, 16 * TIB - MIB, "xfs")
    image = str(disk.image)
    assert peak("plan", "realign", image) < 80 * MIB
    assert peak("realign", "--yes", image) < 150 * MIB
    assert "start=        2048," in run("sfdisk", "-d", image)
    assert disk.image.stat().st_blocks * 512 < 4 * disk.used, "holes were filled"
