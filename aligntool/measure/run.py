"""Run a benchmark plan: rounds of jobs, progress, what is kept."""

import errno
import fcntl
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from aligntool.errors import Refused, Stopped, refuse_folder_name
from aligntool.linux.hold import awake
from aligntool.linux.users import occupants
from aligntool.measure.fio import FioInterrupted, Job, run_job
from aligntool.measure.results import Sample, Series, sample_of, steadiness
from aligntool.measure.schedule import OVERHEAD_S, BenchPlan, filling, job_of, rounds_of, warm_up
from aligntool.recipes.goals import BenchTest
from aligntool.units import format_about

# The file that a benchmark works on: made, and removed again whatever happens.
#
# In: a folder and a size. Out: a path, inside a `with`. Alone because nothing of a benchmark may be left
# behind, and nothing that was there may be touched.

PREFIX = ".aligntool-bench-"


@contextmanager
def made_file(folder: str, size: int, *, name: str | None = None) -> Iterator[str]:
    """Room for all of it is taken at once, so that a file system that is too full says so now. Raises Refused."""
    path = str(Path(folder, name or f"{PREFIX}{secrets.token_hex(4)}"))
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        hint = "name a folder that you may write to" if error.errno in (errno.EACCES, errno.EPERM) else ""
        raise Refused(f"{path} cannot be made: {error.strerror}", hint=hint) from error
    try:
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            raise Refused(f"{format_about(size)} cannot be taken in {folder}: {error.strerror}") from error
        finally:
            os.close(descriptor)
        yield path
    finally:
        with suppress(FileNotFoundError):
            Path(path).unlink()


def drop_caches() -> bool:
    """The kernel forgets what it has read of files (Documentation/admin-guide/sysctl/vm.rst). False: it may not, for
    want of root.
    """
    try:
        with Path("/proc/sys/vm/drop_caches").open("w") as file:
            file.write("1\n")
    except OSError:
        return False
    return True


# Keeping the results of benchmarks.
#
# In: a result's text, and where it goes. Out: a file that is whole or not there. Alone because a benchmark
# that took an hour must not be lost to a folder that cannot be written.


def keep_in_history(folder: Path, when: str, profile: str, text: str) -> str:
    """The file's name; sorted by it, results stand in the order of their time. Raises Refused."""
    stem = re.sub(r"[^A-Za-z0-9-]", "", when.replace(":", "")) + "-" + re.sub(r"[^A-Za-z0-9_-]", "_", profile)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{folder} cannot be made: {error.strerror}") from error
    for number in range(1, 1000):
        path = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
        if not path.exists():
            return keep_result(str(path), text)
    raise Refused(f"{folder} has too many results of {when}")


def keep_result(file: str, text: str) -> str:
    """Whole or not at all: written beside it, then renamed. Raises Refused."""
    refuse_folder_name(file)
    path = Path(file)
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=".", delete=False, encoding="utf-8"
        ) as made:
            temporary = made.name
            made.write(text)
            made.flush()
            os.fsync(made.fileno())
            os.fchmod(made.fileno(), 0o644)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                Path(temporary).unlink()
        raise Refused(f"{file} cannot be written: {error.strerror}") from error
    return file


# A device taken for a benchmark that writes to it, and given back.
#
# In: its path. Out: nothing, inside a `with`. Alone because the device may be a partition, which no other
# part of aligntool writes to as a whole.


@contextmanager
def held_device(path: str) -> Iterator[None]:
    """Opened exclusively: nothing that is mounted or stacked, and nothing may be from now on; locked, so that udev does
    not look at it meanwhile. Raises Refused.
    """
    with ExitStack() as stack:
        try:
            status = os.stat(path)  # noqa: PTH116 - the same call as the fstat below
            if not stat.S_ISBLK(status.st_mode):
                raise Refused(f"{path} is no block device")
            found = occupants(status)
            if found:
                reasons = "; ".join(one.what for one in found)
                raise Refused(f"{path} is in use: {reasons}", hint=" && ".join(one.end for one in found))
            descriptor = os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC | os.O_NOCTTY)
            stack.callback(os.close, descriptor)
            if not os.path.samestat(status, os.fstat(descriptor)):
                raise Refused(f"{path} became another device while it was opened", hint="try again")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            hint = (
                "type the same after sudo" if isinstance(error, PermissionError) else f"sudo fuser -v {path}"
            )
            raise Refused(f"{path} cannot be had for itself: {error.strerror}", hint=hint) from error
        stack.enter_context(awake(f"a benchmark of {path}"))
        yield


# How many cores of the whole machine were busy while fio measured.
#
# In: looks at /proc/stat, from before fio is started until it has ended. Out: cores. Alone because fio's
# start and its end, half a second in which little is done, must not count: beside them a second of work never
# looks like a full machine.

SHORTEST_S = 0.1
"""Of fewer seconds the kernel's ticks, a hundredth each, tell too little."""


@dataclass(frozen=True, slots=True)
class Look:
    """Ticks of all cores together since the machine's start (proc_stat(5)). `passed` has the idle ones as well."""

    at_s: float  # by the monotonic clock
    busy: int
    passed: int
    cores: int


def busy_cores(looks: Sequence[Look], runtime_s: float) -> float | None:
    """`looks` are in order, the first before fio was started and the last after its end; `runtime_s` is what fio says
    that it measured for.

    Start and end took the rest of the time together, whatever each of them took. So fio was measuring from that rest
    after the first look on until that rest before the last one, and only looks between those two moments count. None:
    there are no two, or they are less than SHORTEST_S apart.
    """
    if len(looks) < 2:
        return None
    began, ended = looks[0].at_s, looks[-1].at_s
    rest = max(ended - began - runtime_s, 0.0)
    inside = [look for look in looks if began + rest <= look.at_s <= ended - rest]
    if len(inside) < 2 or inside[-1].at_s - inside[0].at_s < SHORTEST_S:
        return None
    passed = inside[-1].passed - inside[0].passed
    busy = inside[-1].busy - inside[0].busy
    return round(inside[0].cores * min(max(busy, 0) / passed, 1.0), 2) if passed > 0 else None


class Looks:
    """Those of one run."""

    def __init__(self) -> None:
        self._taken: list[Look] = []

    def take(self) -> None:
        found = _look()
        if found is not None:
            self._taken.append(found)

    def beside(self, tell: Callable[[float], None]) -> Callable[[float], None]:
        """One more whenever it is told how far fio is, a few times a second."""

        def told(share: float) -> None:
            self.take()
            tell(share)

        return told

    def cores(self, runtime_s: float) -> float | None:
        """None: too short to tell, or the kernel says nothing."""
        return busy_cores(self._taken, runtime_s)


def _look() -> Look | None:
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines() if line[:3] == "cpu"]
        ticks = [int(word) for word in lines[0][1:9]]
    except (OSError, ValueError, IndexError):
        return None
    idle = sum(ticks[3:5])  # with the time in which a disk was waited for
    return Look(time.monotonic(), sum(ticks) - idle, sum(ticks), len(lines) - 1 or os.cpu_count() or 1)


# A benchmark, run by run.
#
# In: a BenchPlan and the path to work on. Out: the samples of each test, and how it ended. Alone because
# whatever ends it early (Ctrl-C, an error of fio), what was measured until then is handed on.


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


# Runs of fio that stand beside each other: starts, spans.
#
# In: jobs, each with what it stands for. Out: the rate of each, and how it ended. Alone because what was
# measured before Ctrl-C or an error is handed on.

Key = TypeVar("Key")
SweepProgress = Callable[[str, float, float | None], None]
"""What is being done, the share of all that is done, seconds left."""


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
    jobs: Iterable[tuple[Key, str, Job]], total: int, tell: SweepProgress, keep: Keep | None = None
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


def _tell_share(
    tell: SweepProgress, title: str, done: int, total: int, each_s: float | None, share: float
) -> None:
    """Also while fio runs: a bar that stands still looks like a hanging program."""
    tell(title, (done + share) / total, None if each_s is None else (total - done - share) * each_s)
