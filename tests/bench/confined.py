"""What it costs that programs are confined: aligntool, `aligntool --unconfined`, and another version.

    python -m tests.bench.confined [--before FOLDER] [--write docs/benchmarks.md]

--before: a checkout of the other version, such as the last one without confinement. All commands alternate in each
round, so ratios are taken per round.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.moving import GIB
from tests.bench.old_disks import CONTENTS, MIB, make_disk, reset, write_out
from tests.bench.page import put
from tests.bench.timing import Run, once

ROOT = Path(__file__).parents[2]
NOW, UNCONFINED, BEFORE = "confined", "`aligntool --unconfined`", "the version before confinement"
COMMANDS = (("audit",), ("plan", "realign"), ("realign", "--yes"))


def aligntool_of(tree: Path, *words: str) -> list[str]:
    """Return the command line of the aligntool of a checkout, with this Python and its libraries."""
    return ["env", f"PYTHONPATH={tree}", sys.executable, "-P", "-m", "aligntool", *words]


def measured(folder: Path, size: int, repeats: int, before: Path | None) -> dict[str, dict[str, list[Run]]]:
    """Return the runs of each command, by version. An audit or plan changes nothing; a move gets its disk again."""
    disk = make_disk(folder, size, CONTENTS[0])
    work = folder / "disk.img"
    write_out(work, size)
    trees = {NOW: ROOT, UNCONFINED: ROOT} | ({BEFORE: before} if before else {})
    runs: dict[str, dict[str, list[Run]]] = {" ".join(words): {name: [] for name in trees} for words in COMMANDS}
    for number in range(-1, repeats):
        for words in COMMANDS:
            for name in trees if number % 2 == 0 else reversed(trees):
                reset(disk, work)
                unconfined = ("--unconfined",) if name == UNCONFINED else ()
                run = once(aligntool_of(trees[name], *unconfined, *words, str(work)))
                if number >= 0:  # the first round loads the programs
                    runs[" ".join(words)][name].append(run)
    return runs


def table(runs: dict[str, dict[str, list[Run]]], size: int, repeats: int) -> Iterator[str]:
    yield f"{size / GIB:.3g} GiB, ext4, a third used, {repeats} interleaved rounds; repeat it with"
    yield "`python -m tests.bench.confined --before FOLDER --write docs/benchmarks.md`."
    yield ""
    yield "| `aligntool` | time | compared with | its time / the other's: median (smallest–largest) |"
    yield "|---|---|---|---|"
    for words, found in runs.items():
        wall = statistics.median(run.wall for run in found[NOW])
        for name in found:
            if name != NOW:
                yield f"| `{words}` | {wall:.2f} s | {name} | {_ratio(found[NOW], found[name])} |"


def _ratio(ours: Sequence[Run], theirs: Sequence[Run]) -> str:
    ratios = [our.wall / their.wall for our, their in zip(ours, theirs, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="MiB")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aligntool-bench-", dir=os.environ.get("TMPDIR")) as folder:
        before = given.before.resolve() if given.before else None
        runs = measured(Path(folder), given.size * MIB, given.repeats, before)
    text = "\n".join(table(runs, given.size * MIB, given.repeats))
    print(text)
    if given.write:
        put(given.write, "confined", text)


if __name__ == "__main__":
    main()
