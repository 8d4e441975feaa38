"""Runs of fio that stand beside each other: starts, spans.

In: jobs, each with what it stands for. Out: the rate of each, and how it ended. Alone because what was measured before
Ctrl-C or an error is handed on.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from aligntool.apply.fio import run_job
from aligntool.bench.jobs import Job
from aligntool.bench.schedule import OVERHEAD_S
from aligntool.errors import Refused, Stopped

Key = TypeVar("Key")
Tell = Callable[[str, float, float | None], None]
"""What is being done, the share of all that is done, seconds left."""

Keep = Callable[[str, int, str], None]
"""Given fio's own JSON: what was done, the number of the run, the text."""


@dataclass(slots=True)
class Swept(Generic[Key]):
    """Requests a second, in the order of the runs; percent of a core that fio's thread used."""

    rates: list[tuple[Key, float]]
    cpu: list[tuple[Key, float]]
    fio_version: str = ""
    interrupted: bool = False
    failure: Refused | Stopped | None = None

    @property
    def complete(self) -> bool:
        return not self.interrupted and self.failure is None


def run_sweep(
    jobs: Iterable[tuple[Key, str, Job]], total: int, tell: Tell, keep: Keep | None = None
) -> Swept[Key]:
    """`total`: how many there are. Never raises for what fio does, nor for Ctrl-C."""
    swept: Swept[Key] = Swept([], [])
    began = time.monotonic()
    try:
        for done, (key, title, job) in enumerate(jobs):
            each_s = (time.monotonic() - began) / done if done else _meant_s(job)
            told = partial(_tell_share, tell, title, done, total, each_s)
            told(0.0)
            measured = run_job(job, tell=told, keep=partial(keep, title, done + 1) if keep else None)
            swept.fio_version = measured.fio_version
            side = measured.side(write=job.writes)
            if side is not None:
                swept.rates.append((key, side.iops))
                swept.cpu.append((key, measured.thread_cpu))
    except KeyboardInterrupt:  # also while fio ran
        swept.interrupted = True
    except (Refused, Stopped) as failure:
        swept.failure = failure
    return swept


def _meant_s(job: Job) -> float | None:
    """Before one run is over, what each is meant to take is the best guess."""
    return None if job.runtime_s is None else job.runtime_s + job.ramp_s + OVERHEAD_S


def _tell_share(tell: Tell, title: str, done: int, total: int, each_s: float | None, share: float) -> None:
    """Also while fio runs: a bar that stands still looks like a hanging program."""
    tell(title, (done + share) / total, None if each_s is None else (total - done - share) * each_s)
