"""A benchmark, run by run.

In: a BenchPlan and the path to work on. Out: the samples of each test, and how it ended. Alone because whatever ends it
early (Ctrl-C, an error of fio), what was measured until then is handed on.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from aligntool.apply.bench_file import drop_caches
from aligntool.apply.busy import Looks
from aligntool.apply.fio import FioInterrupted, run_job
from aligntool.bench.results import Sample, Series, sample_of
from aligntool.bench.schedule import OVERHEAD_S, BenchPlan, filling, job_of, rounds_of, warm_up
from aligntool.bench.steady import steadiness
from aligntool.errors import Refused, Stopped
from aligntool.recipe import BenchTest


@dataclass(frozen=True, slots=True)
class Told:
    """How far it is."""

    text: str  # "RND4K Q1T1 read, 3 of 5"
    share: float  # of what is being done: of the filling, then of all runs
    left_s: float | None  # None: nobody knows yet


Tell = Callable[[Told], None]
Keep = Callable[[str, int, str], None]
"""Given fio's own JSON: the test's title, the round, the text."""


@dataclass(slots=True)
class Ran:
    samples: dict[BenchTest, list[Sample]] = field(default_factory=dict)
    fio_version: str = ""
    caches_dropped: bool = False
    interrupted: bool = False
    failure: Refused | Stopped | None = None

    @property
    def series(self) -> tuple[Series, ...]:
        return tuple(Series(test, tuple(samples)) for test, samples in self.samples.items() if samples)

    @property
    def complete(self) -> bool:
        return not self.interrupted and self.failure is None


def run_bench(plan: BenchPlan, path: str, *, tell: Tell, keep: Keep) -> Ran:
    """Never raises for what fio does, nor for Ctrl-C."""
    ran = Ran({test: [] for test in plan.measured})
    try:
        if plan.fills:
            _fill(plan, path, tell)
        _measure(plan, path, ran, tell, keep)
    except FioInterrupted:
        ran.interrupted = (
            True  # what fio had of the run that was cut short is too little to stand beside the others
        )
    except KeyboardInterrupt:
        ran.interrupted = True
    except (Refused, Stopped) as failure:
        ran.failure = failure
    return ran


def _fill(plan: BenchPlan, path: str, tell: Tell) -> None:
    began = time.monotonic()
    text = "writing everything twice" if plan.fills > 1 else "filling the file with random data"

    def told(share: float) -> None:
        spent = time.monotonic() - began
        tell(Told(text, share, spent / share - spent if share > 0.02 else None))

    run_job(filling(plan, path), tell=told)


def _measure(plan: BenchPlan, path: str, ran: Ran, tell: Tell, keep: Keep) -> None:
    done, total = 0, plan.rounds * len(plan.measured)
    began = time.monotonic()
    for number, tests in rounds_of(plan):
        ran.caches_dropped = drop_caches() if number == 1 or not plan.settings.passes else ran.caches_dropped
        if plan.settings.passes and number == 1:
            title = f"warm-up of {tests[0].title}"
            run_job(warm_up(plan, path), keep=partial(keep, title, number))
        for test in tests:
            text = f"{test.title}, {number} of {plan.rounds}"
            each_s = (time.monotonic() - began) / done if done else None
            told = _share_of(plan, text, done, total, each_s, tell)
            sample = _run(plan, test, number, path, ran, told, keep)
            if sample is not None:
                ran.samples[test].append(sample)
            done += 1
        if plan.settings.until_steady and _all_steady(ran):
            return


def _run(
    plan: BenchPlan, test: BenchTest, number: int, path: str, ran: Ran, tell: Callable[[float], None], keep: Keep
) -> Sample | None:  # fmt: skip
    """None: fio did nothing of this kind."""
    looks = Looks()
    looks.take()
    measured = run_job(
        job_of(plan, test, path),
        tell=looks.beside(tell),
        keep=partial(keep, test.title, number),
    )
    looks.take()
    ran.fio_version = measured.fio_version
    side = measured.side(write=test.write)
    cores = looks.cores(side.runtime_s) if side else None
    return sample_of(measured, number, write=test.write, busy_cores=cores)


def _share_of(
    plan: BenchPlan, text: str, done: int, total: int, each_s: float | None, tell: Tell
) -> Callable[[float], None]:
    """Of the time left, the runs that are over tell best (`each_s`); before them, what they are meant to take."""
    meant_s = None if plan.settings.passes else plan.settings.runtime_s + OVERHEAD_S

    def told(share: float) -> None:
        one_s = meant_s if each_s is None else each_s
        left = None if one_s is None else (total - done - share) * one_s
        tell(Told(text, (done + share) / total, left))

    return told


def _all_steady(ran: Ran) -> bool:
    found = [steadiness([sample.iops for sample in samples]) for samples in ran.samples.values()]
    return all(each is not None and each.steady for each in found)
