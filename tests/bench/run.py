"""`make bench`: aligntool compared with the closest tools, interleaved in one run, as ratios.

The moving part takes 10 GiB of the temporary folder's disk (TMPDIR) and most of the time. As root it also moves on a
loop device.

Machines are noisy and differ, so only ratios within one run are quoted: the median of the pairs, with the smallest and
largest. Every command is timed as a whole process by the operating system's own accounting (wait4).

    python tests/bench/run.py [--repeats 9] [--write docs/benchmarks.md] [--quick]
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.moving import growing, moving, nearly_empty  # noqa: E402
from tests.bench.old_disks import CONTENTS  # noqa: E402
from tests.bench.page import put  # noqa: E402
from tests.bench.timing import Run, aligntool, once  # noqa: E402
from tests.conftest import find_tool  # noqa: E402
from tests.linux.trees import MadeDisk, MadePartition, make_tree  # noqa: E402

GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Pair:
    """Two commands measured alternately."""

    ours: tuple[Run, ...]
    theirs: tuple[Run, ...]

    @property
    def ratios(self) -> list[float]:
        return [a.wall / b.wall for a, b in zip(self.ours, self.theirs, strict=True)]

    def words(self) -> str:
        ratios = self.ratios
        return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def in_turn(ours: Sequence[str], theirs: Sequence[str], repeats: int) -> Pair:
    """Measure A B A B …, after one uncounted run of each."""
    once(ours)
    once(theirs)
    pairs = [(once(ours), once(theirs)) for _ in range(repeats)]
    return Pair(tuple(a for a, _ in pairs), tuple(b for _, b in pairs))


def start_up(repeats: int) -> list[str]:
    pair = in_turn(aligntool("--version"), [sys.executable, "-c", "import typer, rich"], repeats)
    return [f'| `aligntool --version` | `python -c "import typer, rich"` | {pair.words()} | at most 1.1 |']


def one_image(folder: Path, repeats: int) -> list[str]:
    tools = {name: find_tool(name) for name in ("parted", "sfdisk", "lsblk")}
    missing = [name for name, path in tools.items() if path is None]
    if missing:
        return [f"| audit of one image | {', '.join(missing)} not installed | – | |"]
    image = folder / "disk.img"
    with image.open("wb") as file:
        file.truncate(64 * GIB)
    script = "label: gpt\n" + "".join(f"start={2048 + index * 2097152}, size=2097152\n" for index in range(8))
    subprocess.run([str(tools["sfdisk"]), "-q", str(image)], input=script, text=True, check=True)
    theirs = f"{tools['parted']} -s {image} unit B print; {tools['sfdisk']} -J {image}; {tools['lsblk']} -J -O"
    pair = in_turn(aligntool("audit", "--json", str(image)), ["sh", "-c", theirs], repeats)
    return [f"| `aligntool audit --json IMG` | `parted -s IMG print; sfdisk -J IMG; lsblk -J -O` | {pair.words()} | |"]


def fleet(folder: Path, repeats: int, sizes: Sequence[int]) -> list[str]:
    """Audit captured trees: seconds per disk must not grow with the number of disks."""
    rows, per_disk = [], []
    for size in sizes:
        tree = folder / f"tree-{size}"
        make_tree(tree, [_disk(index) for index in range(size)])
        runs = [once(aligntool("audit", "--sysroot", str(tree))) for _ in range(repeats)]
        wall = statistics.median(run.wall for run in runs)
        per_disk.append(wall / size)
        ratio = per_disk[-1] / per_disk[0]
        peak = max(run.peak for run in runs) / MIB
        rows.append(f"| {size:,} × 8 | {wall:.2f} s | {ratio:.2f} | {peak:.0f} MiB |")
    return rows


def _disk(index: int) -> MadeDisk:
    """Return one of many rotating drives; every third has an old first partition."""
    first = 63 * 512 if index % 3 == 0 else MIB
    parts = [MadePartition(1, first, GIB - first)]
    parts += [MadePartition(number, (number - 1) * 8 * GIB, 8 * GIB) for number in range(2, 9)]
    return MadeDisk(f"sd{_letters(index)}", 1 << 40, parts, physical=4096, rotational=True,
                    model=f"ST1000DM{index % 40:03d}")  # fmt: skip


def _letters(index: int) -> str:
    """sda … sdz, sdaa …, as the kernel counts (drivers/scsi/sd.c)."""
    letters = ""
    while index >= 0:
        letters = chr(ord("a") + index % 26) + letters
        index = index // 26 - 1
    return letters


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes, and how often the small and the large commands are repeated."""

    repeats: int
    rounds: int
    fleet: tuple[int, ...]  # disks
    moved: int  # bytes of the disk that all movers move
    contents: tuple[str, ...]
    grown: tuple[int, ...]
    sparse: int


QUICK = Sizes(1, 1, (5, 10), 128 * MIB, CONTENTS[:1], (128 * MIB,), 64 * GIB)


def full(repeats: int) -> Sizes:
    # A file on ext4 is at most a block shorter than 16 TiB.
    return Sizes(
        repeats, max(repeats // 2, 1), (250, 500, 1000), 4 * GIB, CONTENTS, (GIB, 2 * GIB, 4 * GIB), (16 << 40) - MIB
    )


def report(sizes: Sizes) -> str:
    with tempfile.TemporaryDirectory(prefix="aligntool-bench-") as name:
        folder = Path(name)
        lines = [
            f"{sizes.repeats} interleaved repeats, Python {platform.python_version()}, {os.cpu_count()} processors.",
            "",
            "| aligntool | compared with | time, ratio: median (smallest–largest) | aim |",
            "|---|---|---|---|",
            *start_up(sizes.repeats),
            *one_image(folder, sizes.repeats),
            "",
            "| captured tree, disks × partitions | median | time a disk, against the first row | peak memory |",
            "|---|---|---|---|",
            *fleet(folder, max(sizes.repeats // 3, 1), sizes.fleet),
            "",
            *moving(folder, sizes.moved, sizes.contents, sizes.rounds),
            "",
            *growing(folder, sizes.grown, sizes.rounds),
            "",
            *nearly_empty(folder, sizes.sparse),
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--write", type=Path, help="put the results into this page, between its markers")
    parser.add_argument("--quick", action="store_true", help="everything small and once: does it still run?")
    options = parser.parse_args()
    text = report(QUICK if options.quick else full(options.repeats))
    print(text)
    if options.write:
        put(options.write, "results", text)


if __name__ == "__main__":
    main()
