"""Fuzz one target in one process: by coverage if atheris is installed, otherwise by the shapes of the results.

It counts the inputs and new results, and writes a file for each place in the program that failed. It is a process of
its own, started by `run.py`, because atheris requires one.
"""

import argparse
import hashlib
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from aligntool.units import MIB

if TYPE_CHECKING:
    from types import FrameType

    from tests.fuzz.targets import Target

SECONDS_AN_INPUT = 5.0  # of processor time; two orders of magnitude above the slowest real disk
MEMORY_AN_INPUT = 110 * MIB  # of address space: what a command may take, without the program itself
MOST_KEPT = 500  # inputs with a new shape, kept for mutation
FOUND = Path(__file__).parent / "found"


class TooSlow(Exception):
    """The input took longer than any disk may."""


@dataclass(frozen=True, slots=True)
class Failure:
    target: str
    place: str  # where in the program, and what: the same fault is reported once
    told: str  # the end of the trace
    data: bytes


@contextmanager
def limited(seconds: float, memory: int = MEMORY_AN_INPUT) -> Iterator[None]:
    """Limit the processor time, so that a busy machine is not taken for a slow parser, and the address space beyond
    what this process has: Python then raises MemoryError.
    """
    usual = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + memory, usual[1]))

    def stop(_number: int, _frame: "FrameType | None") -> None:
        raise TooSlow(f"more than {seconds:g} seconds of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, usual)


def try_input(
    name: str, run: Callable[[bytes], str], data: bytes, *, seconds: float = SECONDS_AN_INPUT
) -> str | Failure:
    """Return the shape of the result, or the failure. Every exception is a failure: parsers report bad disks in their
    results.
    """
    try:
        with limited(seconds):
            return run(data)
    except Exception as error:
        return Failure(name, _place(error), "".join(traceback.format_exception(error)[-4:]), data)


def _place(error: Exception) -> str:
    """Return the deepest line of aligntool in the trace; for a property, its message without the numbers."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/aligntool/" in frame.filename]
    at = f" at {frames[-1].filename.rpartition('/aligntool/')[2]}:{frames[-1].lineno}" if frames else ""
    if not frames or isinstance(error, AssertionError):
        return f"{type(error).__name__}: {re.sub(r'[0-9]+', 'N', str(error))[:60]}"
    return f"{type(error).__name__}{at}"


@dataclass(slots=True)
class Record:
    """The results so far."""

    folder: Path | None = None
    tried: int = 0
    shapes: set[str] = field(default_factory=set)
    failures: dict[str, Failure] = field(default_factory=dict)
    slowest: float = 0.0  # seconds of processor time of one input

    def try_next(self, target: "Target", data: bytes) -> bool:
        """Try an input, and record the result and its cost; return whether the result was new."""
        began = time.process_time()
        outcome = try_input(target.name, target.run, data)
        self.slowest = max(self.slowest, time.process_time() - began)
        return self.add(outcome)

    def cost(self) -> str:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return f"SLOWEST {self.slowest:.2f} s PEAK {peak // MIB} MiB"

    def add(self, outcome: str | Failure) -> bool:
        """Record a result; return whether it was new."""
        self.tried += 1
        if isinstance(outcome, str):
            fresh = outcome not in self.shapes
            self.shapes.add(outcome)
            return fresh
        if outcome.place not in self.failures:
            self.failures[outcome.place] = outcome
            self._keep(outcome)
        return False

    def _keep(self, failure: Failure) -> None:
        place = "not kept"
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{failure.target}-{hashlib.sha256(failure.data).hexdigest()[:12]}.bin"
            path.write_bytes(failure.data)
            place = str(path)
        print(f"FAILURE {failure.target}: {failure.place}\n{failure.told}  kept as {place}", flush=True)


def fuzz_blindly(target: "Target", record: Record, *, runs: int, seconds: float, seed: int) -> None:
    """Run the seeds first, then mutations of every input that had a new shape. The same seed gives the same inputs."""
    from tests.fuzz.mutation import Mutator, any_bytes

    random = Random(seed)
    mutator = Mutator(random, any_bytes(random))
    with tempfile.TemporaryDirectory(prefix="aligntool-fuzz-") as folder:
        pool = target.seeds(Path(folder))
    for data in pool:
        record.try_next(target, data)
    end = time.monotonic() + seconds
    while record.tried < runs and time.monotonic() < end:
        data = target.mutate(mutator, random.choice(pool), target.longest)
        if record.try_next(target, data) and len(pool) < MOST_KEPT:
            pool.append(data)


def fuzz_guided(name: str, record: Record, *, work: Path, runs: int, seconds: float, seed: int) -> None:
    """Run libFuzzer. This does not return: libFuzzer ends the process and prints its numbers on standard error, so the
    parent has to remove `work`.
    """
    import atheris

    with atheris.instrument_imports(include=["aligntool"]):
        from tests.fuzz.targets import target_named
    from tests.fuzz.mutation import Mutator

    target = target_named(name)

    def mutate(data: bytes, most: int, number: int) -> bytes:
        return target.mutate(Mutator(Random(number), atheris.Mutate), data, min(most, target.longest))

    def one_input(data: bytes) -> None:
        before = record.slowest
        record.try_next(target, data)
        if record.slowest > 1.1 * before:  # libFuzzer ends the process, so there is no later moment for it
            print(record.cost(), flush=True)

    seeds, corpus = target.seeds(work), work / "corpus"
    corpus.mkdir()
    for index, data in enumerate(seeds):
        (corpus / f"seed-{index}").write_bytes(data)
    words = [f"-runs={runs}", f"-max_total_time={max(int(seconds), 1)}", f"-seed={seed}", "-print_final_stats=1",
             f"-max_len={target.longest}", "-len_control=0", "-timeout=60", "-rss_limit_mb=1024", "-verbosity=1",
             f"-artifact_prefix={record.folder}/", str(corpus)]  # fmt: skip
    atheris.Setup([name, *words], one_input, custom_mutator=mutate)
    atheris.Fuzz()


def repeat(name: str, path: Path) -> int:
    """Run one stored input again, with the whole trace."""
    from tests.fuzz.targets import target_named

    print(target_named(name).run(path.read_bytes()))
    return 0


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m tests.fuzz.campaign", description=__doc__)
    words.add_argument("target")
    words.add_argument("--engine", choices=("guided", "blind"), default="guided")
    words.add_argument("--runs", type=int, default=(1 << 31) - 1)
    words.add_argument("--seconds", type=float, default=60)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--work", type=Path, help="an empty folder that somebody else throws away")
    words.add_argument("--repeat", type=Path, metavar="FILE", help="try one kept input and show the trace")
    given = words.parse_args()
    if given.engine == "guided" and not given.work and not given.repeat:
        words.error("--engine guided needs --work; `python tests/fuzz/run.py TARGET` gives it one")
    if given.repeat:
        return repeat(given.target, given.repeat)
    FOUND.mkdir(exist_ok=True)
    record = Record(FOUND)
    if given.engine == "guided":
        tempfile.tempdir = str(given.work)
        fuzz_guided(given.target, record, work=given.work, runs=given.runs, seconds=given.seconds, seed=given.seed)
    from tests.fuzz.targets import target_named

    fuzz_blindly(target_named(given.target), record, runs=given.runs, seconds=given.seconds, seed=given.seed)
    print(f"TRIED {record.tried} SHAPES {len(record.shapes)} {record.cost()}", flush=True)
    return 1 if record.failures else 0


if __name__ == "__main__":
    sys.exit(main())
