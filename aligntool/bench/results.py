"""Figures of a benchmark: runs, gathered by test, and what they amount to.

In: what fio measured, run by run. Out: medians with their range, ratios, scores. Alone because every printed figure is
made here, from values that are kept, so that a result that is read back says the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import median

from aligntool.bench.conditions import Conditions
from aligntool.bench.measured import NEAR_A_CORE, Measured
from aligntool.bench.steady import WINDOW, steadiness
from aligntool.recipe import BenchTest


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one test. Latencies are of completion, in microseconds; `cpu` is percent of a core, of each thread."""

    number: int  # which repeat, round or pass, from 1 on
    bytes_per_s: int
    iops: float
    moved: int  # bytes
    runtime_s: float
    mean_us: float
    cpu: float
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    busy_cores: float | None = None  # of the whole machine meanwhile: the kernel's threads (md's) count here


def sample_of(
    measured: Measured, number: int, *, write: bool, busy_cores: float | None = None
) -> Sample | None:
    """None: fio did nothing of this kind."""
    side = measured.side(write=write)
    if side is None:
        return None
    return Sample(
        number, side.bytes_per_s, side.iops, side.moved, side.runtime_s, side.mean_us, measured.thread_cpu,
        side.p50_us, side.p99_us, side.p999_us, busy_cores,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several runs, and how far they lie apart."""

    median: float
    low: float
    high: float
    count: int

    @property
    def share(self) -> float:
        """Of the median, by which the runs differ."""
        return (self.high - self.low) / self.median if self.median else 0.0


NEAR_ALL = 0.95
"""Of the machine's cores, from which on it is said to have no time left."""


OWN_SHARE = 0.5
"""Of the busy cores, from which on this load is what filled the machine."""


class Course(StrEnum):
    """What the runs of a test are to each other."""

    REPEATS = "repeats"
    PASSES = "passes"  # over the same data: of all but the first a cache may have answered
    ROUNDS = "rounds"  # until it is steady: the last WINDOW are what it came to


@dataclass(frozen=True, slots=True)
class Series:
    """All runs of one test, in their order. A Result sets `machine_cores`, that there are, so that a full machine is
    known as one, and `course`. Figures are those of the runs that are `counted`.
    """

    test: BenchTest
    samples: tuple[Sample, ...]
    machine_cores: int | None = field(default=None, compare=False)
    course: Course = field(default=Course.REPEATS, compare=False)

    @property
    def counted(self) -> tuple[Sample, ...]:
        """All repeats; the first of passes; the last WINDOW rounds, of which SNIA has a steady drive's figures."""
        match self.course:
            case Course.PASSES:
                return self.samples[:1]
            case Course.ROUNDS:
                return self.samples[-WINDOW:]
        return self.samples

    @property
    def steady(self) -> bool | None:
        """None: these are no rounds until it is. Fewer than WINDOW are not steady."""
        if self.course is not Course.ROUNDS:
            return None
        found = steadiness([sample.iops for sample in self.samples])
        return found is not None and found.steady

    @property
    def rates(self) -> tuple[int, ...]:
        """Bytes a second, of each run that counts."""
        return tuple(sample.bytes_per_s for sample in self.counted)

    @property
    def rate(self) -> Spread:
        """Bytes a second."""
        return self._spread(lambda sample: sample.bytes_per_s)

    @property
    def iops(self) -> Spread:
        return self._spread(lambda sample: sample.iops)

    @property
    def cpu(self) -> float:
        """Percent of a core, of each thread."""
        return median(sample.cpu for sample in self.counted)

    @property
    def cores(self) -> float:
        """That all threads together kept busy."""
        return self.cpu * self.test.threads / 100

    @property
    def thread_full(self) -> bool:
        """A thread that has no time left cannot ask the drive for more."""
        return self.cpu >= NEAR_A_CORE

    @property
    def machine_full(self) -> bool:
        """Several threads share what cores there are, and none of them need be full when all cores are."""
        cores, busy = self.machine_cores or 0, self.middle("busy_cores") or 0
        return cores > 0 and busy >= cores * NEAR_ALL

    @property
    def cpu_bound(self) -> bool:
        """The figure is then the processor's as much as the drive's: a thread was full, or the threads together took
        most of what a full machine did.
        """
        return self.thread_full or (
            self.machine_full and self.cores >= OWN_SHARE * (self.middle("busy_cores") or 0)
        )

    @property
    def busy_machine(self) -> bool:
        """Whether all cores were busy, and most of that with something else than this load."""
        return self.machine_full and not self.cpu_bound

    @property
    def held_back(self) -> str:
        """Return in two words what else than the drive the figure shows; "": nothing."""
        return "CPU-bound" if self.cpu_bound else "busy machine" if self.busy_machine else ""

    def middle(self, name: str) -> float | None:
        """The median over the runs of "p50_us", "p99_us", "p999_us", "mean_us" or "busy_cores"."""
        found = [value for sample in self.counted if (value := getattr(sample, name)) is not None]
        return median(found) if found else None

    def of_passes(self, count: int) -> float | None:
        """Bytes a second over the first so many passes together; None: there were fewer."""
        passes = self.samples[:count]
        spent = sum(sample.runtime_s for sample in passes)
        return sum(sample.moved for sample in passes) / spent if len(passes) == count and spent else None

    def _spread(self, key: Callable[[Sample], float]) -> Spread:
        values = [key(sample) for sample in self.counted]
        return Spread(median(values), min(values), max(values), len(values))


@dataclass(frozen=True, slots=True)
class Settings:
    """How it was measured. Sizes in bytes."""

    profile: str
    span: int
    runtime_s: float
    repeats: int
    direct: bool  # past the page cache
    engine: str
    prepare: str  # "none", "file" (written full once), "twice"
    passes: tuple[int, ...] = ()  # instead of repeats: so many times over the same data
    until_steady: bool = False
    score: str | None = None

    @property
    def course(self) -> Course:
        """`passes` come before `until_steady`."""
        return Course.PASSES if self.passes else Course.ROUNDS if self.until_steady else Course.REPEATS


@dataclass(frozen=True, slots=True)
class Result:
    when: str  # ISO 8601, UTC
    aligntool: str
    target: str  # as the user named it
    kind: str  # "folder", "file", "device"
    settings: Settings
    conditions: Conditions
    series: tuple[Series, ...]
    skipped: tuple[str, ...] = ()  # tests that were left out, and why
    complete: bool = True  # False: interrupted, or fio failed

    def __post_init__(self) -> None:
        cores, course = self.conditions.cores, self.settings.course
        series = tuple(replace(each, machine_cores=cores, course=course) for each in self.series)
        object.__setattr__(self, "series", series)  # frozen: nobody has it yet

    def find(self, *, random: bool, block: int, depth: int, threads: int, write: bool) -> Series | None:
        wanted = BenchTest(random, block, depth, threads, write)
        return next((each for each in self.series if each.test == wanted), None)


@dataclass(frozen=True, slots=True)
class Brief:
    """What a list says of an experiment."""

    when: str
    name: str  # "alignment", "span"
    target: str
    said: str
    drive: str = ""
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of the history."""

    file: str
    result: Result | None  # None: it is none
    complaint: str = ""
    experiment: Brief | None = None


@dataclass(frozen=True, slots=True)
class Score:
    read: float
    write: float
    total: float


def as_ssd_score(series: Sequence[Series]) -> Score | None:
    """AS SSD's, of rates in MB/s. Weights: Tom's Hardware, "Three PCI Express-Based SSDs" (2011), and ssd-tester.com,
    which agree. None where one of the six figures is missing.

    >>> # read = seq x 0.1 + 4K + 4K-64; write alike; total = seq w x 0.15 + seq r x 0.1 + 4K r x 2 + ...
    """
    rates = {_as_ssd_key(each.test): each.rate.median / 1e6 for each in series}
    if set(rates) != {f"{which} {side}" for which in ("seq", "4k", "64") for side in ("r", "w")}:
        return None
    return Score(
        read=rates["seq r"] * 0.1 + rates["4k r"] + rates["64 r"],
        write=rates["seq w"] * 0.1 + rates["4k w"] + rates["64 w"],
        total=rates["seq w"] * 0.15 + rates["seq r"] * 0.1 + rates["4k r"] * 2 + rates["4k w"]
        + rates["64 w"] + rates["64 r"] * 1.5,
    )  # fmt: skip


def _as_ssd_key(test: BenchTest) -> str:
    which = ("64" if test.threads == 64 else "4k") if test.random else "seq"
    return f"{which} {'w' if test.write else 'r'}"
