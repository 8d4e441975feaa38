"""The shrink of `aligntool partition --shrink`, and the same tools on the disk itself, where a power cut may do damage.

    sudo python -m tests.bench.shrink [--repeats 5] [--gib 1]

An ext4, a third of it files, fills an image without holes that is restored before each run; the two take turns.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.whole_disk import GIB, MIB, make_ext4  # noqa: E402
from tests.conftest import attached, run  # noqa: E402
from tests.run_aligntool import program  # noqa: E402


def shrink_seconds(device: str) -> float:
    """Return how long the step takes, by the events of aligntool."""
    words = program("partition", device, "--shrink", "--yes", "--json")
    moments: list[float] = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        for line in process.stdout or ():
            if json.loads(line).get("step") == "ShrinkContent":
                moments.append(time.monotonic())
    assert process.returncode == 0
    begun, done = moments
    return done - begun


def by_hand_seconds(device: str, size: int) -> float:
    begun = time.monotonic()
    run("e2fsck", "-f", "-p", device)
    run("resize2fs", device, f"{(size - 48 * MIB) // MIB}M")
    run("blockdev", "--flushbufs", device)
    run("sync")
    return time.monotonic() - begun


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gib", type=int, default=1)
    asked = parser.parse_args(words)
    size, ours, hand = asked.gib * GIB, list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="aligntool-bench-", dir="/var/tmp") as name:
        folder = Path(name)
        kept, disk = folder / "kept.img", folder / "disk.img"
        make_ext4(folder, kept, size, size)
        for _ in range(asked.repeats):
            for found, way in ((ours, shrink_seconds), (hand, lambda device: by_hand_seconds(device, size))):
                run("cp", "--sparse=never", kept, disk)
                run("sync")
                with attached(disk) as device:
                    found.append(way(str(device)))
    for title, found in (("aligntool", ours), ("e2fsck, resize2fs", hand)):
        print(f"{title}: {statistics.median(found):.2f} s ({min(found):.2f}-{max(found):.2f})")
    ratios = [after / before for before, after in zip(ours, hand, strict=True)]
    print(f"ratio: {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")


if __name__ == "__main__":
    main()
