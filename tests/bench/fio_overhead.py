"""Measure the overhead of `aligntool bench` over fio alone, with the same jobs, on a drive in memory.

    sudo python -m tests.bench.fio_overhead [--repeats 9] [--runtime 5] [--write docs/benchmarks.md]

The drive is a loop device over a file in /dev/shm, the fastest available here, so that any delay of a request shows.
The jobs are those that `aligntool bench --dry-run` prints; the two alternate. Two ratios: the time from the command to
the prompt, and the requests per second of each job, as fio counts them.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from aligntool.units import MIB  # noqa: E402
from tests.bench.page import put  # noqa: E402
from tests.bench.timing import aligntool  # noqa: E402
from tests.conftest import attached  # noqa: E402

COMMAND = "sudo python -m tests.bench.fio_overhead --write docs/benchmarks.md"
MEMORY = Path("/dev/shm")
SIZE = 256 * MIB
PROFILE = """\
format = 1
kind = "bench"
summary = "compared with fio alone"
source = "tests/bench/fio_overhead.py"
repeats = 1
[[test]]
access = "random"
block = "4KiB"
depth = [1, 32]
do = "read"
[[test]]
access = "sequential"
block = "1MiB"
depth = 8
do = "read"
"""


@dataclass(frozen=True, slots=True)
class Once:
    """Seconds from the command to the prompt; requests per second, by job."""

    wall: float
    iops: dict[str, float]


@contextmanager
def memory_drive(size: int) -> Iterator[str]:
    with tempfile.NamedTemporaryFile(dir=MEMORY, prefix="aligntool-beside-fio-") as file:
        file.write(os.urandom(size))
        file.flush()
        with attached(file.name, "--direct-io=off") as device:
            yield str(device)


def with_aligntool(words: Sequence[str], folder: Path) -> Once:
    out = folder / "out.json"
    out.unlink(missing_ok=True)
    begin = time.perf_counter()
    subprocess.run(
        aligntool("bench", *words, "-o", str(out)), check=True, capture_output=True, env=_environment(folder)
    )
    wall = time.perf_counter() - begin
    series = json.loads(out.read_text())["series"]
    return Once(wall, {row["title"].replace(" ", "-"): row["samples"][0]["iops"] for row in series})


def with_fio_alone(jobs: Sequence[str]) -> Once:
    found = {}
    begin = time.perf_counter()
    said = [
        subprocess.run([*shlex.split(job), "--output-format=json"], check=True, capture_output=True, text=True)
        for job in jobs
    ]
    wall = time.perf_counter() - begin
    for each in said:
        job = json.loads(each.stdout[each.stdout.index("{") :])["jobs"][0]
        found[job["jobname"]] = job["read"]["iops"]
    return Once(wall, found)


def jobs_of(words: Sequence[str], folder: Path) -> list[str]:
    """Return the jobs as commands that can be typed."""
    done = subprocess.run(
        aligntool("bench", *words, "--dry-run"), check=True, capture_output=True, text=True, env=_environment(folder)
    )
    return [line for line in done.stdout.splitlines() if line.startswith("fio ")]


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment with its own history and without line wrapping."""
    return os.environ | {"XDG_STATE_HOME": str(folder / "state"), "COLUMNS": "1000", "NO_COLOR": "1"}


def measured(repeats: int, runtime_s: float, size: int = SIZE) -> list[tuple[Once, Once]]:
    """Measure aligntool and fio alternately, after one uncounted run of each."""
    with tempfile.TemporaryDirectory(prefix="aligntool-beside-fio-") as name, memory_drive(size) as device:
        folder = Path(name)
        (folder / "beside.toml").write_text(PROFILE)
        words = [device, "--profile", str(folder / "beside.toml"), "--runtime", str(runtime_s)]
        jobs = jobs_of(words, folder)
        pairs = [(with_aligntool(words, folder), with_fio_alone(jobs)) for _ in range(repeats + 1)]
    return pairs[1:]


def table(pairs: Sequence[tuple[Once, Once]], runtime_s: float) -> str:
    count = len(pairs[0][1].iops)
    more = statistics.median((ours.wall - theirs.wall) / count for ours, theirs in pairs)
    rows = [
        f"{len(pairs)} interleaved repeats, {count} jobs of {runtime_s:g} s; repeat it with `{COMMAND}`.",
        "",
        "| `aligntool bench run` compared with fio alone | ratio: median (smallest–largest) |",
        "|---|---|",
        f"| time, from the command to the prompt | {_ratio([a.wall / b.wall for a, b in pairs])} |",
    ]
    rows += [
        f"| IOPS of {name} | {_ratio([a.iops[name] / b.iops[name] for a, b in pairs])} |" for name in pairs[0][1].iops
    ]
    return "\n".join((*rows, "", f"A job takes {more:.2f} s more than with fio alone."))


def _ratio(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--runtime", type=float, default=5.0, help="seconds of each job")
    parser.add_argument("--write", type=Path, help="put the results into this page, between its markers")
    given = parser.parse_args(words)
    text = table(measured(given.repeats, given.runtime), given.runtime)
    print(text)
    if given.write:
        put(given.write, "beside-fio", text)


if __name__ == "__main__":
    main()
