"""`aligntool fleet` compared with a loop of `aligntool audit`: processor time, elapsed time, memory of the parent.

    python -m tests.bench.fleet [--snapshots 1000] [--loop 50] [--write docs/benchmarks.md]

Every snapshot is the captured machine with one disk of 8 partitions (228 files), with its own starts and counters. The
loop audits only --loop of them, because all would take minutes; the ratio is per snapshot.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.audit.fleet.sample_snapshots import multiplied
from tests.bench.page import put
from tests.bench.timing import aligntool

_PEAK = """
import sys
from aligntool.__main__ import main
try:
    main()
finally:
    (peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(peak, file=sys.stderr)
"""


@dataclass(frozen=True, slots=True)
class Used:
    """`cpu_s`: of the process and its children; `peak`: MiB of the process alone."""

    wall_s: float
    cpu_s: float
    peak: float


def used(command: Sequence[str]) -> Used:
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    words = child.stderr.read().split() if child.stderr else []
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):  # 1: findings
        raise SystemExit(f"{' '.join(command)} ended with {child.returncode}: {words}")
    peak = int(words[-1]) / 1024 if words and words[-1].isdigit() else 0.0
    return Used(time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, peak)


def fleet(folder: Path) -> Used:
    return used([sys.executable, "-c", _PEAK, "fleet", "--json", str(folder)])


def measured(folder: Path, number: int, looped: int) -> str:
    names = list(multiplied(folder / "all", number, suffix=".tar.xz"))
    tenth = folder / "tenth"
    tenth.mkdir()
    for name in names[: number // 10]:
        (tenth / name.name).symlink_to(name)
    small, large = fleet(tenth), fleet(folder / "all")
    loop = [used(aligntool("audit", "--json", "--sysroot", str(name))) for name in names[:looped]]
    alone = sum(each.cpu_s for each in loop) / looped
    each_s = large.cpu_s / number
    rows = "\n".join(
        f"| {count:,} | {one.cpu_s:.1f} s | {one.wall_s:.1f} s | {one.peak:.0f} MiB |"
        for count, one in ((number // 10, small), (number, large))
    )
    where = os.environ.get("TMPDIR", "/tmp")
    return f"""\
{len(os.sched_getaffinity(0))} processors, TMPDIR={where};
repeat it with `python -m tests.bench.fleet --write docs/benchmarks.md`.

| snapshots | processor time | time | peak memory of the parent |
|---|---|---|---|
{rows}

A loop of `aligntool audit --json --sysroot FILE` over {looped} of them takes {alone / each_s:.1f} times the
processor time for each snapshot ({alone:.2f} s against {each_s:.3f} s)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshots", type=int, default=1000)
    parser.add_argument("--loop", type=int, default=50)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aligntool-bench-") as folder:
        text = measured(Path(folder), given.snapshots, given.loop)
    print(text)
    if given.write:
        put(given.write, "fleet", text)


if __name__ == "__main__":
    main()
