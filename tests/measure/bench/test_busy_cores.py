"""The cores that were busy while fio measured, compared with a known load."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aligntool.measure.results import Conditions, Result, Series
from aligntool.measure.run import CpuTicks, busy_cores, run_bench, series_of
from aligntool.measure.schedule import BenchOptions, Target, TargetKind, plan_bench
from aligntool.recipes.goals import BenchGoal, BenchTest
from aligntool.units import KIB, MIB
from tests.measure.unit.right_or_unknown import Answer, right_or_unknown
from tests.thorough import when_thorough

CORES = os.cpu_count() or 1


def looks(*busy: float, every_s: float = 0.1, cores: int = 2) -> list[CpuTicks]:
    """Return samples; `busy`: cores in each step. A core has a hundred ticks per second."""
    made = [CpuTicks(50.0, 7000, 9000, cores)]
    for number, each in enumerate(busy, 1):
        before, ticks = made[-1], 100 * every_s
        at_s = 50.0 + number * every_s
        made.append(CpuTicks(at_s, before.busy + round(ticks * each), before.passed + round(ticks * cores), cores))
    return made


@pytest.mark.parametrize(
    ("busy", "runtime_s", "cores"),
    [
        # A tenth of a second before, two after, a second between: from 0.3 until 1.0 it was certainly measuring.
        ((0, *[2] * 10, 0, 0), 1.0, 2.0),
        ((0, 0, 0, *[2] * 10), 1.0, 2.0),  # all of it before
        ((*[2] * 10, 0, 0, 0), 1.0, 2.0),  # all of it after
        ((2, 2, 2, *[1] * 7, 2, 2, 2), 1.0, 1.0),  # other programs' time before and after does not count
        ((0, *[1, 2] * 5, 0), 1.0, 1.5),
        ((0, 0, 0, 0, 2, 2, 2, 0), 0.3, None),  # shorter than start and end: unknown which samples are inside
        ((2,), 0.1, 2.0),
        ((), 1.0, None),
    ],
)
def test_only_samples_certainly_inside_the_run_are_counted(
    busy: tuple[float, ...], runtime_s: float, cores: float | None
) -> None:
    assert busy_cores(looks(*busy), runtime_s) == cores


def test_a_machine_without_processor_counters_is_not_reported_as_full() -> None:
    """As some containers show it."""
    assert busy_cores([CpuTicks(at / 10, 0, 0, 2) for at in range(20)], 1.5) is None


def measured(file: Path, threads: int) -> Series:
    """Run 1.5 seconds of reads."""
    goal = BenchGoal(tests=(BenchTest(True, 4 * KIB, 1, threads, False),), size=8 * MIB, repeats=1)
    target = Target(str(file), TargetKind.FILE, str(file), size=8 * MIB, direct=False)
    plan = plan_bench("made", goal, target, BenchOptions(runtime_s=1.5))
    ran = run_bench(plan, str(file), tell=lambda *_: None, keep=lambda *_: None)
    assert ran.complete
    seen = Conditions(cores=CORES)
    return Result("", "", "", "file", plan.settings, seen, series_of(ran)).series[0]


def kernel_s() -> tuple[float, float]:
    """Return the busy and total seconds of the machine's cores (proc_stat(5)), read by the test itself."""
    words = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(words) - words[3] - words[4], sum(words)


@contextmanager
def spinning(count: int) -> Iterator[None]:
    children = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


@pytest.fixture
def file() -> Iterator[Path]:
    """Return a file in memory: reads of it wait for nothing, and cost only processor time."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no file system in memory here")
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as made:
        made.write(os.urandom(8 * MIB))
        made.flush()
        yield Path(made.name)


def full_machine(made: Series) -> Answer:
    """Judge whether the machine was full; unknown for a run that started too slowly."""
    if made.machine_full:
        return Answer.RIGHT
    return Answer.UNKNOWN if made.middle("busy_cores") is None else Answer.WRONG


@when_thorough("nothing else may run meanwhile")
@pytest.mark.needs_tools("fio")
def test_a_full_load_of_fio_on_every_core_is_recognised_as_a_full_machine(file: Path) -> None:
    """fio's own threads, which work while it measures and neither before nor after."""

    def by_itself(made: Series) -> Answer:
        """Other programs may have taken most of the processor: then the machine is full because of them."""
        return Answer.UNKNOWN if made.busy_machine else full_machine(made)

    made = right_or_unknown(lambda: measured(file, CORES + 1), by_itself)
    assert not made.thread_full and made.cpu_bound


@when_thorough("nothing else may run meanwhile")
@pytest.mark.needs_tools("fio")
def test_other_programs_on_every_core_are_recognised_as_a_full_machine(file: Path) -> None:
    with spinning(2 * CORES):
        right_or_unknown(lambda: measured(file, 1), full_machine)


@pytest.mark.needs_tools("fio")
@pytest.mark.skipif(CORES < 2, reason="one thread fills the one core that this machine has")
def test_one_thread_is_not_recognised_as_a_full_machine(file: Path) -> None:
    before = kernel_s()
    made = measured(file, 1)
    after = kernel_s()
    if (after[0] - before[0]) / (after[1] - before[1]) > 0.8:
        pytest.skip("the machine is full with other things")
    assert not made.machine_full
