"""A qcow2 used directly, compared with converting it to raw: audited, and realigned.

    python -m tests.bench.virtual_disks [--size 4] [--repeats 5] [--write docs/benchmarks.md]

The disk has one ext4 from sector 35 with random files that fill a third of it. The ways alternate; what a move has
changed is copied back before the next one, uncounted. Every command ends with a flush.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from aligntool.units import GIB, MIB
from tests.bench.page import put
from tests.bench.timing import aligntool
from tests.conftest import run

START = 35 * 512


def make(folder: Path, size: int) -> Path:
    """Return the qcow2."""
    raw, files = folder / "made.img", folder / "files"
    files.mkdir()
    for number in range(size // 3 // (8 * MIB)):
        (files / f"{number}").write_bytes(os.urandom(8 * MIB))
    with raw.open("wb") as file:
        file.truncate(size)
    length = (size - 64 * MIB) // 512
    run("sfdisk", "-q", raw, stdin=f"label: gpt\nfirst-lba: 34\nstart=35, size={length}\n")
    run("mkfs.ext4", "-q", "-d", files, "-E", f"offset={START}", raw, f"{length // 2}k")
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, folder / "made.qcow2")
    raw.unlink()
    shutil.rmtree(files)
    return folder / "made.qcow2"


def timed(commands: tuple[list[str], ...]) -> float:
    begin = time.perf_counter()
    for words in commands:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):  # 1: findings
            raise SystemExit(f"{' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return time.perf_counter() - begin


def convert(source: Path, target: Path, kind: str) -> list[str]:
    # -t writeback is the default, and it flushes nothing; sync follows.
    return ["sh", "-c", f"qemu-img convert -O {kind} {source} {target} && sync {target}"]


def measured(made: Path, repeats: int) -> str:
    disk, raw, back = (made.with_name(name) for name in ("disk.qcow2", "disk.img", "back.qcow2"))
    audit, move = ["audit", "--json"], ["realign", "--yes"]
    ways: dict[str, tuple[tuple[list[str], ...], tuple[list[str], ...]]] = {
        "`aligntool audit disk.qcow2` | `qemu-img convert -O raw`, `aligntool audit disk.img`": (
            (aligntool(*audit, str(disk)),),
            (convert(disk, raw, "raw"), aligntool(*audit, str(raw))),
        ),
        "`aligntool realign disk.qcow2` | `qemu-img convert -O raw`, `aligntool realign disk.img`, `convert` back": (
            (aligntool(*move, str(disk)),),
            (convert(disk, raw, "raw"), aligntool(*move, str(raw)), convert(raw, back, "qcow2")),
        ),
    }
    return "\n".join(
        _row(name, own, other, repeats, lambda: _afresh(made, disk)) for name, (own, other) in ways.items()
    )


def _afresh(made: Path, disk: Path) -> None:
    shutil.copyfile(made, disk)
    run("sync", disk)


def _row(
    name: str, own: tuple[list[str], ...], other: tuple[list[str], ...], repeats: int, afresh: Callable[[], None]
) -> str:
    pairs = []
    for _ in range(repeats + 1):
        times = []
        for way in (own, other):
            afresh()
            times.append(timed(way))
        pairs.append((times[0], times[1]))
    pairs = pairs[1:]  # the first one is not counted
    ratios = sorted(theirs / ours for ours, theirs in pairs)
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = f"{statistics.median(ratios):.1f} ({ratios[0]:.1f}–{ratios[-1]:.1f})"
    return f"| {name} | {ours:.1f} s | {theirs:.1f} s | {ratio} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4, help="GiB")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aligntool-bench-") as folder:
        rows = measured(make(Path(folder), given.size * GIB), given.repeats)
    text = f"""\
{given.size} GiB, a third used, {given.repeats} interleaved repeats; repeat it with
`python -m tests.bench.virtual_disks --write docs/benchmarks.md`.

| aligntool | compared with | its time | the other's | the other's / aligntool's: median (smallest–largest) |
|---|---|---|---|---|
{rows}"""
    print(text)
    if given.write:
        put(given.write, "virtual", text)


if __name__ == "__main__":
    main()
