"""The benchmark still runs; how fast anything is, is never a test."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.run import Pair, Run


@pytest.mark.needs_tools("parted", "sfdisk", "lsblk")
def test_the_benchmark_runs_and_fills_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- results begin -->\nold\n<!-- results end -->\nafter\n")
    command = [sys.executable, str(Path(__file__).with_name("run.py")), "--quick", "--write", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    written = page.read_text()
    assert done.stdout.strip() in written
    assert "before" in written and "after" in written and "old" not in written
    assert written.count("| `aligntool") == 2 and "| 10 × 8 |" in written


def test_a_ratio_is_taken_pair_by_pair() -> None:
    pair = Pair((Run(2.0, 0), Run(9.0, 0), Run(4.0, 0)), (Run(1.0, 0), Run(3.0, 0), Run(4.0, 0)))
    assert pair.ratios == [2.0, 3.0, 1.0]
    assert pair.words() == "2.00 (1.00–3.00)"
