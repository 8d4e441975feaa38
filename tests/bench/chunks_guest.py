"""The part of `chunks.py` that runs in the emulated PC: one sweep per level, with the loads of all workloads.

Arguments: a folder, levels, repeats, seconds, bytes. It writes the result of each sweep and the recommended chunks to
the folder.
"""

import sys
from dataclasses import replace
from pathlib import Path

from aligntool.change import RaidGoal
from aligntool.cli.arrays import look_at_members
from aligntool.measure.arrays import Sweep, SweepRun, plan_sweep
from aligntool.raid.levels import WORKLOADS
from aligntool.raid.measured import DEFAULT_CHUNK, TEST_UUID, loads_of, tuning_text

DEVICES = [f"/dev/nvme{number}n1" for number in range(4)]


def main() -> None:
    folder, levels = Path(sys.argv[1]), sys.argv[2].split(",")
    repeats, runtime_s, span = int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
    for level in levels:
        sweep, recommended = _sweep(level, repeats, runtime_s, span)
        measuring = SweepRun(sweep)
        measuring.run(_print_progress, lambda: None)
        (folder / f"{level}.json").write_text(tuning_text(measuring.tuning(complete=True)))
        (folder / f"{level}.recommended").write_text("".join(f"{name}={size}\n" for name, size in recommended.items()))


def _print_progress(words: str, share: float, left_s: float | None) -> None:
    print(f"{share:4.0%} {words}", flush=True)


def _sweep(level: str, repeats: int, runtime_s: float, span: int) -> tuple[Sweep, dict[str, int]]:
    members, _, _, _ = look_at_members(DEVICES)
    goal = RaidGoal(level, array_uuid=f"{TEST_UUID}:00000000:00000001")
    recommended = {
        workload: plan_sweep(members, replace(goal, workload=workload), repeats=1, runtime_s=runtime_s).recommended
        for workload in WORKLOADS
    }
    chunks = sorted({DEFAULT_CHUNK, *recommended.values()})
    sweep = plan_sweep(members, goal, chunks=chunks, repeats=repeats, runtime_s=runtime_s, span=span)
    shapes = [shape for workload in WORKLOADS for shape in loads_of(workload, goal.database_page)]
    return replace(sweep, loads=tuple(dict.fromkeys(shapes)), alone=()), recommended


if __name__ == "__main__":
    main()
