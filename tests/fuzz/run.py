"""`make fuzz`: every target for its share of the time, one after the other, with a summary.

    python tests/fuzz/run.py [--seconds 120] [--seed 1] [TARGET ...]

Guided by coverage if atheris can be imported (pyproject.toml lists the machines it is built for); otherwise by the
shapes of the results, which is reported. Exit 1 if anything failed; failing inputs are stored next to this file, in
`found/`.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GRACE_S = 120  # for start-up, the seeds and a last long input

_TRIED = re.compile(r"^stat::number_of_executed_units: (\d+)$|^TRIED (\d+) SHAPES", re.MULTILINE)
_COVERED = re.compile(r" cov: (\d+) ")
_COST = re.compile(r"SLOWEST .*MiB")
_SHAPES = re.compile(r"SHAPES (\d+)")


@dataclass(frozen=True, slots=True)
class Outcome:
    target: str
    tried: int
    reached: str
    failures: tuple[str, ...]
    ended_well: bool
    cost: str  # the slowest input, and the peak of memory of the process
    told: str  # the whole output of the process, if it printed no numbers

    @property
    def failed(self) -> int:
        return len(self.failures) + (not self.ended_well)


def engine() -> str:
    return "guided" if importlib.util.find_spec("atheris") else "blind"


def fuzz(target: str, *, engine: str, seconds: float, runs: int | None = None, seed: int = 1) -> Outcome:
    """Fuzz in a separate process; its folder for seeds and trees is removed with it."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="aligntool-fuzz-", dir=memory) as work:
        words = [sys.executable, "-m", "tests.fuzz.campaign", target, "--engine", engine, "--work", work,
                 "--seconds", str(seconds), "--seed", str(seed)]  # fmt: skip
        words += ["--runs", str(runs)] if runs else []
        try:
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", cwd=ROOT,
                                  check=False, timeout=seconds + GRACE_S)  # fmt: skip
        except subprocess.TimeoutExpired as late:
            return Outcome(target, 0, "nothing", (), False, "", f"{target} did not end: {late}")
    return _read(target, done.stdout, done.stderr)


def _read(target: str, said: str, talked: str) -> Outcome:
    found = _TRIED.search(talked) or _TRIED.search(said)
    tried = int(next(filter(None, found.groups()))) if found else 0
    covered, shapes = _COVERED.findall(talked), _SHAPES.search(said)
    reached = f"{covered[-1]} branches" if covered else f"{shapes.group(1)} shapes" if shapes else "nothing"
    failures = tuple(line for line in said.splitlines() if line.startswith("FAILURE "))
    cost = _COST.findall(said)
    return Outcome(target, tried, reached, failures, found is not None, cost[-1] if cost else "", said + talked)


def names() -> tuple[str, ...]:
    from tests.fuzz.targets import TARGETS

    return tuple(target.name for target in TARGETS)


def print_outcome(outcome: Outcome, elapsed_s: float) -> None:
    print(f"{outcome.target:<14} {outcome.tried:>8} inputs  {outcome.reached:>14}  {elapsed_s:>5.0f} s  "
          f"{outcome.failed or 'no'} failures  {outcome.cost.lower()}", flush=True)  # fmt: skip
    if outcome.failed:
        kept = outcome.told if outcome.failures else outcome.told[-3000:]
        wanted = [line for line in kept.splitlines() if not line.startswith(("#", "INFO", "stat::"))]
        print("\n".join(f"    {line}" for line in wanted), flush=True)
        print(f"    repeat: {sys.executable} -m tests.fuzz.campaign {outcome.target} --repeat FILE", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    words = argparse.ArgumentParser(description="Feed damaged disks to every parser.")
    words.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of: {', '.join(names())}")
    words.add_argument("--seconds", type=float, default=120, help="for all targets together")
    words.add_argument("--seed", type=int, default=1, help="another seed tries other inputs")
    given = words.parse_args(arguments)
    unknown = set(given.targets) - set(names())
    if unknown:
        words.error(f"no such target: {', '.join(sorted(unknown))}")
    chosen, how = given.targets or names(), engine()
    if how == "blind":
        print("atheris is not here (it has no build for this machine or this Python): "
              "inputs are changed blindly, and kept by the shape of what comes out")  # fmt: skip
    outcomes = []
    for target in chosen:
        began = time.monotonic()
        outcomes.append(fuzz(target, engine=how, seconds=given.seconds / len(chosen), seed=given.seed))
        print_outcome(outcomes[-1], time.monotonic() - began)
    failures = sum(outcome.failed for outcome in outcomes)
    print(f"{sum(outcome.tried for outcome in outcomes)} inputs tried, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
