"""Run benchmark jobs in rounds, report their progress and save the results."""

import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from math import log2
from pathlib import Path
from typing import Generic, TypeVar

from aligntool.errors import Refused, Stopped, failing_as
from aligntool.linux.files import write_file
from aligntool.linux.outputs import make_folder, open_place
from aligntool.measure.fio import Job, Measured, Side, name_of, run_job
from aligntool.measure.results import Sample, Series, steadiness
from aligntool.measure.schedule import OVERHEAD_S, BenchPlan, filling, job_of, rounds_of, warm_up
from aligntool.recipes.goals import BenchTest
from aligntool.units import format_about

# The file that a benchmark works on. It is removed however the benchmark ends.

PREFIX = ".aligntool-bench-"
_OVERDUE_S = 10  # without progress; a timed run ends within a second of its time
_SLOWEST_S = 300  # without progress, of a run over a number of bytes: fio shows its progress in thousandths


@contextmanager
def made_file(folder: str, size: int, *, name: str | None = None) -> Iterator[str]:
    """Create a file, yield a path, and remove it. It is allocated completely first, so that a full file
    system is noticed at once. Raises Refused.

    The path is that of the descriptor: the owner of the folder could put a link to a disk in place of the
    file.
    """
    path = str(Path(folder, name or f"{PREFIX}{secrets.token_hex(4)}"))
    denied = "name a folder that you may write to"
    with failing_as(Refused, f"{path} cannot be created", denied=denied), open_place(path) as place:
        descriptor = place.open(os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        with failing_as(Refused, f"{format_about(size)} cannot be allocated in {folder}"):
            os.posix_fallocate(descriptor, 0, size)
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        with suppress(FileNotFoundError), open_place(path) as place:
            os.unlink(place.name, dir_fd=place.folder)
        os.close(descriptor)


def drop_caches() -> bool:
    """Drop the kernel's page cache (Documentation/admin-guide/sysctl/vm.rst). Return False if that is not
    permitted, because it requires root.
    """
    with suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("1\n")
        return True
    return False


# Save the results of benchmarks.


def save_to_history(folder: Path, when: str, profile: str, text: str) -> str:
    """Save a result in the history and return the name of its file; sorted by name, results are in the order
    of time. Raises Refused.
    """
    stem = re.sub(r"[^A-Za-z0-9-]", "", when.replace(":", "")) + "-" + re.sub(r"[^A-Za-z0-9_-]", "_", profile)
    with failing_as(Refused, f"{folder} cannot be created"):
        make_folder(folder)
    for number in range(1, 1000):
        path = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
        if not path.exists():
            return keep_result(str(path), text)
    raise Refused(f"{folder} has too many results of {when}")


def keep_result(file: str, text: str) -> str:
    """Write or replace a result. Raises Refused."""
    write_file(file, text.encode(), overwrite=True, mode=0o644)
    return file


# Count the cores of the whole machine that were busy while fio measured. fio's start and end are not counted:
# half a second in which little is done.

SHORTEST_S = 0.1
"""The shortest usable time: the kernel's ticks are hundredths of a second, too coarse for less."""


@dataclass(frozen=True, slots=True)
class CpuTicks:
    """Ticks of all cores together since the boot (proc_stat(5)). `passed` includes the idle ticks."""

    at_s: float  # on the monotonic clock
    busy: int
    passed: int
    cores: int


def busy_cores(looks: Sequence[CpuTicks], runtime_s: float) -> float | None:
    """Return the average number of busy cores while fio measured. `looks` are in order, the first before the
    start of fio and the last after its end; `runtime_s` is the time that fio measured.

    Start and end took the rest of the time together, however it was divided. fio was therefore certainly
    measuring from that rest after the first look until that rest before the last one, and only looks between
    these two moments count. Return None if there are fewer than two, or if they are less than SHORTEST_S
    apart.
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


def _current_ticks() -> tuple[CpuTicks, ...]:
    """Return the current ticks; empty if the kernel has no figures."""
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines() if line[:3] == "cpu"]
        ticks = [int(word) for word in lines[0][1:9]]
    except (OSError, ValueError, IndexError):
        return ()
    idle = sum(ticks[3:5])  # including iowait
    return (CpuTicks(time.monotonic(), sum(ticks) - idle, sum(ticks), len(lines) - 1 or os.cpu_count() or 1),)


# Run fio repeatedly: the tests of a benchmark, starts, spans, the loads on test arrays.

Key = TypeVar("Key")
SweepProgress = Callable[[str, float, float | None], None]
"""Called with the current activity, the finished share of all, and the remaining seconds or None."""
Keep = Callable[[str, int, str], None]
"""Called with the title of a run, its number, and fio's own JSON."""


@dataclass(frozen=True, slots=True)
class Cell(Generic[Key]):
    """A planned run. `text` is for the progress, `title` and `number` are for `Keep`."""

    key: Key
    text: str
    job: Job
    title: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Finished(Generic[Key]):
    key: Key
    measured: Measured
    side: Side | None  # reads, or writes if the job writes
    busy_cores: float | None  # of the whole machine

    @property
    def iops(self) -> float:
        return self.side.iops if self.side else 0.0


class Runs:
    """Run fio `total` times and report the progress over all runs.

    `expected_s`: seconds of all runs, if the time of one run is a poor estimate.
    """

    def __init__(
        self, total: int, tell: SweepProgress, keep: Keep | None = None, *, expected_s: float | None = None
    ) -> None:
        self._total = total
        self._tell = tell
        self._keep = keep
        self._expected_each_s = None if expected_s is None else expected_s / total
        self._began = time.monotonic()
        self._done = 0

    @property
    def complete(self) -> bool:
        return self._done == self._total

    def measure(self, cells: Iterable[Cell[Key]]) -> Iterator[Finished[Key]]:
        """Run each cell. The next cell is fetched only after the previous one was measured and its result
        used.

        Raises Refused, Stopped or KeyboardInterrupt, as `run_job` does.
        """
        for cell in cells:
            yield self._run(cell)
            self._done += 1

    def _run(self, cell: Cell[Key]) -> Finished[Key]:
        looks: list[CpuTicks] = []
        each_s = self._each_s(cell.job)

        def report(share: float, silence: str) -> None:
            looks.extend(_current_ticks())
            self.say(cell.text + silence, each_s, share)

        tell = _with_stall_message(cell.job, report)
        tell(0.0)
        keep = partial(self._keep, cell.title, cell.number) if self._keep else None
        measured = run_job(cell.job, tell=tell, keep=keep)
        looks.extend(_current_ticks())
        side = measured.side(write=cell.job.writes)
        return Finished(cell.key, measured, side, busy_cores(looks, side.runtime_s) if side else None)

    def skip(self, count: int) -> None:
        """Count runs as done that turned out to be impossible."""
        self._done += count

    def say(self, text: str, each_s: float | None = None, share: float = 0.0) -> None:
        """Report `text` and the finished share of the current run."""
        each_s = self._each_s() if each_s is None else each_s
        left_s = None if each_s is None else (self._total - self._done - share) * each_s
        self._tell(text, (self._done + share) / self._total, left_s)

    def _each_s(self, job: Job | None = None) -> float | None:
        """Return the seconds of a run: measured, or expected until the first run has ended. None: unknown."""
        if self._done:
            return (time.monotonic() - self._began) / self._done
        if self._expected_each_s is not None or job is None or job.runtime_s is None:
            return self._expected_each_s
        return job.runtime_s + job.ramp_s + OVERHEAD_S


@dataclass(slots=True)
class RunResults(Generic[Key]):
    """The runs that gave figures, in order, and how the sequence ended."""

    runs: list[Finished[Key]] = field(default_factory=list)
    caches_dropped: bool = False
    writes: bool = False  # the load that was started last writes; if it is refused, it has written nothing
    wrote: bool = False  # an earlier load wrote, or the last one did until it was interrupted
    interrupted: bool = False
    failure: Refused | Stopped | None = None

    @property
    def fio_version(self) -> str:
        return self.runs[-1].measured.fio_version if self.runs else ""

    @property
    def complete(self) -> bool:
        return not self.interrupted and self.failure is None

    @contextmanager
    def ended_early(self) -> Iterator[None]:
        """Record what ends the block early; runs that were measured until then are used. fio's figures of the
        interrupted run are dropped.
        """
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
            self.wrote |= self.writes
        except (Refused, Stopped) as failure:
            self.failure = failure

    def measure(self, runs: Runs, cells: Iterable[Cell[Key]]) -> None:
        for run in runs.measure(self._recording_writes(cells)):
            if run.side is not None:
                self.runs.append(run)

    def _recording_writes(self, cells: Iterable[Cell[Key]]) -> Iterator[Cell[Key]]:
        for cell in cells:
            self.writes = cell.job.writes
            yield cell
            self.wrote |= self.writes


def run_sweep(
    jobs: Iterable[tuple[Key, str, Job]], total: int, tell: SweepProgress, keep: Keep | None = None
) -> RunResults[Key]:
    """Run `total` jobs. Failures of fio and Ctrl-C are recorded in the result, not raised."""
    ran: RunResults[Key] = RunResults()
    with ran.ended_early():
        cells = (Cell(key, title, job, title, number) for number, (key, title, job) in enumerate(jobs, 1))
        ran.measure(Runs(total, tell, keep), cells)
    return ran


Bench = tuple[BenchTest, int]
"""A test of a benchmark, and the number of its repeat, round or pass."""


def run_bench(plan: BenchPlan, path: str, *, tell: SweepProgress, keep: Keep) -> RunResults[Bench]:
    """Run the tests of a benchmark. Failures of fio and Ctrl-C are recorded in the result, not raised."""
    ran: RunResults[Bench] = RunResults()
    with ran.ended_early():
        if plan.fills:
            text = "writing everything twice" if plan.fills > 1 else FILLING
            ran.writes = True
            fill(filling(plan, path), text, tell)
            ran.wrote = True
        ran.measure(Runs(plan.rounds * len(plan.measured), tell, keep), _bench_cells(plan, path, ran, keep))
    return ran


def series_of(ran: RunResults[Bench]) -> tuple[Series, ...]:
    """Return the runs of a benchmark, grouped by test."""
    found: dict[BenchTest, list[Sample]] = {}
    for run in ran.runs:
        test, number = run.key
        if run.side is not None:
            sample = Sample(
                number=number, cpu=run.measured.thread_cpu, busy_cores=run.busy_cores, **asdict(run.side)
            )
            found.setdefault(test, []).append(sample)
    return tuple(Series(test, tuple(samples)) for test, samples in found.items())


def _bench_cells(plan: BenchPlan, path: str, ran: RunResults[Bench], keep: Keep) -> Iterator[Cell[Bench]]:
    for number, tests in rounds_of(plan):
        if number == 1 or not plan.settings.passes:
            ran.caches_dropped = drop_caches()
        if plan.settings.passes and number == 1:
            run_job(warm_up(plan, path), keep=partial(keep, f"warm-up of {tests[0].title}", number))
        for test in tests:
            if plan.settings.pause_s and (number == 1 or not plan.settings.passes):  # no pause between passes
                time.sleep(plan.settings.pause_s)
            text = f"{test.title}, {number} of {plan.rounds}"
            yield Cell((test, number), text, job_of(plan, test, path), test.title, number)
        found = [steadiness([sample.iops for sample in series.samples]) for series in series_of(ran)]
        if plan.settings.until_steady and all(state is not None and state.steady for state in found):
            return


FILLING = "filling the file with random data"


def fill(job: Job, text: str, tell: SweepProgress) -> None:
    """Run a job that fills a file or device, and report its progress."""
    began = time.monotonic()

    def report(share: float, silence: str) -> None:
        spent = time.monotonic() - began
        tell(text + silence, share, spent / share - spent if share > 0.02 else None)

    run_job(job, tell=_with_stall_message(job, report))


def _with_stall_message(job: Job, report: Callable[[float, str], None]) -> Callable[[float], None]:
    """Return a callback that passes the share of a run to `report`, with a message if there is no progress
    for long: fio waits for a disk without a message.
    """
    latest = -1.0
    since = 0.0
    least_s = _OVERDUE_S if job.runtime_s is not None else _SLOWEST_S

    def tell(share: float) -> None:
        nonlocal latest, since
        now = time.monotonic()
        if share != latest:
            latest = share
            since = now
        report(share, silence_words(name_of(job.path), now - since, least_s))

    return tell


def silence_words(path: str, seconds: float, least_s: int) -> str:
    """Return the message on a run without progress, or "" for less than `least_s`. The seconds in it double,
    because each change is a line of output if there is no terminal.
    """
    if seconds < least_s:
        return ""
    shown = least_s * 2 ** int(log2(seconds / least_s))
    return f". No progress for {shown} s: {path} may not respond; Ctrl-C does not wait for it"
