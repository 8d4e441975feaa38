"""The benchmark runs; its speed is never tested."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.linux.block import DiskDevice
from aligntool.units import MIB
from tests.bench.run import Pair
from tests.bench.timing import Run
from tests.bench.unverified import Trusting
from tests.thorough import when_thorough


@when_thorough("times every program for half a minute")
@pytest.mark.needs_tools("parted", "sfdisk", "lsblk", "e2image", "mkfs.ext4", "debugfs", "e2fsck", "dumpe2fs")
def test_the_benchmark_runs_and_fills_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- results begin -->\nold\n<!-- results end -->\nafter\n")
    command = [sys.executable, str(Path(__file__).with_name("run.py")), "--quick", "--write", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    written = page.read_text()
    assert done.stdout.strip() in written
    assert "before" in written and "after" in written and "old" not in written
    assert written.count("| `aligntool") == 2 and "| 10 × 8 |" in written
    for beside in ("sfdisk --move-data", "sfdisk --move-data --move-use-fsync", "e2image -ra -p", "dd, direct"):
        assert f"| ext4, a third used | file | `{beside}" in written
    assert "| 0.125 GiB |" in written and "| 64 GiB |" in written


def test_the_unverified_mover_writes_the_same_bytes(sparse: Callable[[int], Path]) -> None:
    """The mover is timed without verification, and must still write the same."""
    image = sparse(4 * MIB)
    with image.open("r+b") as file, DiskDevice(file.fileno()) as device:
        trusting = Trusting(device)
        data = b"x" * MIB
        trusting.write(MIB, data)
        assert trusting.read(MIB, MIB) is data
        device.write(MIB, b"y" * MIB)
        assert trusting.read(MIB, MIB) == b"y" * MIB, "what it answers from memory, it answers once"
        trusting.write(0, b"z" * 512)
        device.write(0, b"a" * 512)
        assert trusting.read(0, 512) == b"a" * 512, "tables and records are read back all the same"


def test_ratios_are_computed_pair_by_pair() -> None:
    pair = Pair((Run(2.0, 0), Run(9.0, 0), Run(4.0, 0)), (Run(1.0, 0), Run(3.0, 0), Run(4.0, 0)))
    assert pair.ratios == [2.0, 3.0, 1.0]
    assert pair.words() == "2.00 (1.00–3.00)"
