"""The chunk that aligntool recommends compared with mdadm's default of 512 KiB, per workload, on emulated drives.

    python -m tests.bench.chunks [--levels raid5,raid0] [--repeats 5] [--runtime 1] [--write docs/benchmarks.md]

One emulated PC with four NVMe drives; for each level one sweep of `aligntool raid tune` over all chunks that are
recommended for any workload, with the loads of all workloads, alternating. The results are ratios: the processor and
the drives are emulated, so they show what splitting requests costs the host, and nothing about flash, links or caches.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from aligntool.raid.levels import LEVELS, WORKLOADS  # noqa: E402
from aligntool.raid.measured import DEFAULT_CHUNK, Tuning, choose, loads_of, parse_tuning  # noqa: E402  # noqa: E402
from aligntool.units import KIB, MIB, format_size  # noqa: E402
from tests.bench.page import put  # noqa: E402

DRIVES = 4
PAGE = 16 * KIB
COMMAND = "python -m tests.bench.chunks --levels {} --repeats {} --runtime {:g} --write docs/benchmarks.md"


@dataclass(frozen=True, slots=True)
class Asked:
    levels: tuple[str, ...]
    repeats: int
    runtime_s: float
    span: int
    limit_s: float


def measured(asked: Asked) -> dict[str, tuple[Tuning, dict[str, int]]]:
    """Return, by level, what was measured, and the chunk that is recommended for each workload."""
    from tests.lab.drives import Nvme, Port
    from tests.lab.guest import Guest

    words = f"{','.join(asked.levels)} {asked.repeats} {asked.runtime_s} {asked.span}"
    script = f"cd {ROOT}\n{sys.executable} -m tests.bench.chunks_guest /lab {words}"
    with tempfile.TemporaryDirectory(prefix="aligntool-chunks-") as folder:
        drives = [Nvme(f"bench{each}", size=512 * MIB, behind=Port(f"port{each}")) for each in range(DRIVES)]
        said = Guest(Path(folder), drives).run(script, limit_s=asked.limit_s)
        return {level: _read(said, level) for level in asked.levels}


def _read(said: Path, level: str) -> tuple[Tuning, dict[str, int]]:
    lines = (said / f"{level}.recommended").read_text().split()
    pairs = (word.split("=") for word in lines)
    return parse_tuning((said / f"{level}.json").read_text()), {name: int(size) for name, size in pairs}


def rows(level: str, tuning: Tuning, recommended: dict[str, int]) -> Iterator[str]:
    """Return a row for each workload: its own loads only, compared with 512 KiB."""
    for workload in WORKLOADS:
        names = {shape.name for shape in loads_of(workload, PAGE)}
        chunk = recommended[workload]
        title = f"| {LEVELS[level].title} | `{workload}` | {format_size(chunk)} |"
        if chunk == DEFAULT_CHUNK:
            yield f"{title} the same chunk | |"
            continue
        samples = [each for each in tuning.samples if each.load in names and each.chunk in (chunk, DEFAULT_CHUNK)]
        found = choose(samples, DEFAULT_CHUNK)
        if not found.against:
            yield f"{title} – | {found.reason} |"
            continue
        ratio = found.against[chunk]
        words = "within the noise" if chunk not in found.apart else "faster" if ratio.middle > 1 else "slower"
        yield f"{title} {ratio} | {words} |"


def table(found: dict[str, tuple[Tuning, dict[str, int]]], asked: Asked) -> str:
    command = COMMAND.format(",".join(found), asked.repeats, asked.runtime_s)
    about = (
        f"{DRIVES} emulated NVMe drives, {asked.repeats} interleaved rounds, loads of {asked.runtime_s:g} s, "
        f"software emulation; repeat it with `{command}`."
    )
    lines = [
        about,
        "",
        "| level | workload | recommended | work done, ratio to 512KiB: median (smallest–largest) | |",
        "|---|---|---|---|---|",
    ]
    for level, (tuning, recommended) in found.items():
        lines += rows(level, tuning, recommended)
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", default="raid5,raid0")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--runtime", type=float, default=1.0)
    parser.add_argument("--span", type=int, default=48, help="MiB of each array")
    parser.add_argument("--limit", type=float, default=3600, help="seconds until the PC is turned off")
    parser.add_argument("--write", type=Path, help="put the results into this page, between its markers")
    given = parser.parse_args(words)
    asked = Asked(tuple(given.levels.split(",")), given.repeats, given.runtime, given.span * MIB, given.limit)
    for level, found in measured(asked).items():
        text = table({level: found}, asked)
        print(text)
        if given.write:
            put(given.write, f"chunks {level}", text)


if __name__ == "__main__":
    main()
