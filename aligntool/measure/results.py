"""Results of benchmarks and their conditions as values and JSON."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import linear_regression, median

from aligntool.commands import typed
from aligntool.documents import (
    BOUNDS,
    MOST,
    OPTIONAL,
    as_object,
    check_schema,
    decode,
    decode_shown,
    load_object,
)
from aligntool.errors import Refused
from aligntool.inventory import DiskKind
from aligntool.measure.fio import NEAR_A_CORE
from aligntool.recipes.goals import BenchTest
from aligntool.units import GIB, format_about

# The conditions of a measurement: load, temperature, cache, fill, power.

HOT_C = 70.0  # from here on many SSDs throttle; not all of them report their own threshold
MEMORY = ("tmpfs", "ramfs", "devtmpfs")
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "glusterfs", "sshfs", "vboxsf")
COPY_ON_WRITE = ("btrfs", "zfs", "bcachefs", "nilfs2")
FULL = 0.9
_STACKED = (DiskKind.MD, DiskKind.DM, DiskKind.BCACHE)


@dataclass(frozen=True, slots=True)
class DriveState:
    """A disk below the target. None: unknown."""

    name: str
    model: str | None = None
    firmware: str | None = None
    size: int | None = None
    kind: str | None = None
    rotational: bool | None = None
    link: str | None = None  # "8 GT/s x4"
    link_slowed: bool = False
    scheduler: str | None = None
    queue_depth: int | None = None  # requests that it accepts at once, according to the kernel
    write_cache: str | None = None  # "write back", "write through"
    array_level: str | None = None
    array_action: str | None = None  # "idle", "resync", "recover", "check" ...
    array_degraded: bool = False
    temperature_c: float | None = None
    temperature_after_c: float | None = None


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a measurement. Sizes in bytes. None: unknown, or there is none."""

    kernel: str = ""
    fio: str = ""
    processor: str | None = None
    cores: int | None = None
    governor: str | None = None
    load: float | None = None  # runnable tasks over the minute before the measurement
    on_battery: bool = False
    filesystem: str | None = None
    mount_options: str | None = None
    room: int | None = None  # total size of the file system
    free: int | None = None  # before the measurement
    caches_dropped: bool = False
    hole_share: float | None = None  # of the bytes read from an existing file; cannot be detected on a device
    drives: tuple[DriveState, ...] = ()  # the named one first, then those below it

    @property
    def drive(self) -> str:
        """The model or name of the first drive; "" if unknown."""
        return (self.drives[0].model or self.drives[0].name) if self.drives else ""


def lowest_drives(drives: Sequence[DriveState]) -> Sequence[DriveState]:
    """Return the drives below arrays and volumes, or all of `drives` if none of those is known."""
    return [drive for drive in drives if drive.kind not in _STACKED] or drives


def busy_machine_text(seen: Conditions) -> str:
    """Return why equal rates prove nothing: other programs were waiting for every core. "" if they were
    not.
    """
    if seen.load is None or not seen.cores or seen.load < seen.cores:
        return ""
    return f"busy machine (load {seen.load:g} on {seen.cores} cores before it began)"


def warnings_of(conditions: Conditions, *, direct: bool) -> Iterator[str]:
    """Yield the reasons not to trust the figures, a sentence each."""
    if not direct:
        yield "direct I/O is not possible here: these are figures of the page cache as much as of the drive"
    if conditions.hole_share:
        share = conditions.hole_share
        much = "all" if share >= 1 else f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"
        why = "which were never written: the file system answers those without the drive"
        so = (
            "the figures are the processor's as much as the drive's; name the folder instead, where a file is"
            " made and"
        )
        yield f"{much} of what is read are holes of the file, {why}, so that {so} filled"
    yield from _about_file_system(conditions)
    yield from _about_machine(conditions)
    for drive in conditions.drives:
        yield from _about_drive(drive)


def _about_file_system(seen: Conditions) -> Iterator[str]:
    kind = seen.filesystem or ""
    options = seen.mount_options or ""
    if kind in REMOTE or kind.startswith("fuse"):
        yield f"{kind} is not a local file system: everything between it and the drive is measured, too"
    if kind == "overlay":
        yield "this is an overlay: the file is on the file system of its upper folder"
    if kind in COPY_ON_WRITE:
        yield f"{kind} writes every block to a new place: repeated writes do not go where the first ones went"
    if "compress" in options or kind == "zfs":
        yield "the file system may compress; the data is random, so this gains nothing and costs time"
    if seen.room and seen.free is not None and seen.free < seen.room * (1 - FULL):
        yield (
            f"the file system is {100 - 100 * seen.free // seen.room} % full; a drive without free space is"
            " slower"
        )


def _about_machine(seen: Conditions) -> Iterator[str]:
    if seen.governor and seen.governor not in ("performance", "schedutil"):
        yield (
            f"the processor's governor is {seen.governor}: single small requests look slower than the drive"
            " is"
        )
    if seen.load is not None and seen.cores and seen.load > seen.cores / 2:
        yield f"the machine is busy with other work (load {seen.load:g} on {seen.cores} cores)"
    if seen.on_battery:
        yield "the machine runs on its battery, and may save power"


def _about_drive(drive: DriveState) -> Iterator[str]:
    if drive.array_action and drive.array_action not in ("idle", "frozen"):
        yield f"{drive.name} is busy with a {drive.array_action}: measure again when it has finished"
    if drive.array_degraded:
        yield f"{drive.name} is degraded: a member is missing"
    if drive.link_slowed:
        yield f"the link of {drive.name} is slower than it could be: {drive.link}"
    hottest = max(
        (t for t in (drive.temperature_c, drive.temperature_after_c) if t is not None), default=None
    )
    if hottest is not None and hottest >= HOT_C and drive.kind == "nvme":
        yield f"{drive.name} reached {hottest:g} °C: it may have throttled"
    if drive.scheduler and drive.scheduler not in ("none", "mq-deadline") and drive.rotational is False:
        yield f"{drive.name} has the scheduler {drive.scheduler}, which costs time on a fast drive"
    if drive.kind == "loop":
        yield f"{drive.name} is a loop device: its file and the storage below it are measured, too"


def room_words(needed: int, free: int) -> str | None:
    """Return why the file does not fit, or None if it does. A part of the file system must stay free."""
    spare = min(GIB, free // 20)
    if needed + spare <= free:
        return None
    return (
        f"{format_about(needed)} are needed and {format_about(spare)} to spare, but {format_about(free)} are"
        " free"
    )


# Whether an SSD has reached its steady state: SNIA's test.

WINDOW = 5
MOST_EXCURSION = 0.20
MOST_SLOPE = 0.10


@dataclass(frozen=True, slots=True)
class Steadiness:
    """The state over the last WINDOW rounds. `excursion` and `slope` are shares of their average."""

    steady: bool
    rounds: int  # in total
    average: float
    excursion: float  # highest less lowest
    slope: float  # absolute rise of the fitted line from the first round of the window to the last


def steadiness(values: Sequence[float]) -> Steadiness | None:
    """Return whether the values are steady: within a window of five rounds they differ by at most 20 % of
    their average, and the line that fits them best (least squares) rises or falls by at most 10 % (SNIA Solid
    State Storage Performance Test Specification 2.0.2).

    Return None if there are fewer rounds than the window.
    """
    if len(values) < WINDOW:
        return None
    window = values[-WINDOW:]
    average = sum(window) / WINDOW
    if average <= 0:
        return Steadiness(False, len(values), average, 0.0, 0.0)
    slope = abs(linear_regression(range(WINDOW), window).slope * (WINDOW - 1)) / average
    excursion = (max(window) - min(window)) / average
    return Steadiness(
        excursion <= MOST_EXCURSION and slope <= MOST_SLOPE, len(values), average, excursion, slope
    )


# Figures of a benchmark: the runs of each test, and the figures computed from them.


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one test. Latencies are completion latencies in µs; `cpu` is percent of a core per
    thread.
    """

    number: int  # of the repeat, round or pass, from 1 on
    bytes_per_s: int
    iops: float
    moved: int  # bytes
    runtime_s: float
    mean_us: float
    cpu: float
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    busy_cores: float | None = None  # of the whole machine meanwhile, including threads of the kernel (md)


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several runs, with their range."""

    median: float
    low: float
    high: float
    count: int

    @property
    def share(self) -> float:
        """The difference between the highest and the lowest run, as a share of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


NEAR_ALL = 0.95
"""The share of the machine's cores from which on the machine counts as full."""


OWN_SHARE = 0.5
"""The share of the busy cores from which on a full machine is due to this load."""


class Course(StrEnum):
    """How the runs of a test relate to each other."""

    REPEATS = "repeats"
    PASSES = "passes"  # over the same data: a cache may have answered all but the first
    ROUNDS = "rounds"  # until it is steady: the last WINDOW are the steady state


@dataclass(frozen=True, slots=True)
class Series:
    """All runs of one test, in order. A Result sets `machine_cores`, by which a full machine is recognised,
    and `course`. Figures are those of the `counted` runs.
    """

    test: BenchTest
    samples: tuple[Sample, ...]
    machine_cores: int | None = field(default=None, compare=False)
    course: Course = field(default=Course.REPEATS, compare=False)

    @property
    def counted(self) -> tuple[Sample, ...]:
        """All repeats, or the first pass, or the last WINDOW rounds, from which SNIA takes a steady drive's
        figures.
        """
        match self.course:
            case Course.PASSES:
                return self.samples[:1]
            case Course.ROUNDS:
                return self.samples[-WINDOW:]
        return self.samples

    @property
    def steady(self) -> bool | None:
        """Whether the rounds are steady; fewer than WINDOW are not. None: the runs are not rounds until
        steady.
        """
        if self.course is not Course.ROUNDS:
            return None
        found = steadiness([sample.iops for sample in self.samples])
        return found is not None and found.steady

    @property
    def rates(self) -> tuple[int, ...]:
        """Bytes per second of each counted run."""
        return tuple(sample.bytes_per_s for sample in self.counted)

    @property
    def rate(self) -> Spread:
        """Bytes per second."""
        return self._spread(lambda sample: sample.bytes_per_s)

    @property
    def iops(self) -> Spread:
        return self._spread(lambda sample: sample.iops)

    @property
    def cpu(self) -> float:
        """Percent of a core per thread."""
        return median(sample.cpu for sample in self.counted)

    @property
    def cores(self) -> float:
        """The number of cores that all threads together kept busy."""
        return self.cpu * self.test.threads / 100

    @property
    def thread_full(self) -> bool:
        """Whether a thread had no time left: it could not submit more requests then."""
        return self.cpu >= NEAR_A_CORE

    @property
    def machine_full(self) -> bool:
        """Whether all cores were busy. Threads share the cores, so none of them needs to be full for that."""
        cores = self.machine_cores or 0
        busy = self.middle("busy_cores") or 0
        return cores > 0 and busy >= cores * NEAR_ALL

    @property
    def cpu_bound(self) -> bool:
        """Whether the figure is limited by the processor: a thread was full, or the threads together took
        most of the time of a full machine.
        """
        return self.thread_full or (
            self.machine_full and self.cores >= OWN_SHARE * (self.middle("busy_cores") or 0)
        )

    @property
    def busy_machine(self) -> bool:
        """Whether all cores were busy, mostly with something other than this load."""
        return self.machine_full and not self.cpu_bound

    @property
    def held_back(self) -> str:
        """What limited the figure other than the drive, in two words; "" if nothing did."""
        return "CPU-bound" if self.cpu_bound else "busy machine" if self.busy_machine else ""

    def middle(self, name: str) -> float | None:
        """Return the median over the runs of "p50_us", "p99_us", "p999_us", "mean_us" or "busy_cores"."""
        found = [value for sample in self.counted if (value := getattr(sample, name)) is not None]
        return median(found) if found else None

    def of_passes(self, count: int) -> float | None:
        """Return the bytes per second over the first `count` passes together, or None if there were fewer."""
        passes = self.samples[:count]
        spent_s = sum(sample.runtime_s for sample in passes)
        return sum(sample.moved for sample in passes) / spent_s if len(passes) == count and spent_s else None

    def _spread(self, key: Callable[[Sample], float]) -> Spread:
        values = [key(sample) for sample in self.counted]
        return Spread(median(values), min(values), max(values), len(values))


class Data(StrEnum):
    """The data that are written, and read again."""

    RANDOM = "random"
    ZERO = "zero"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a benchmark. Sizes in bytes."""

    profile: str
    span: int
    runtime_s: float
    repeats: int
    direct: bool  # bypassing the page cache
    engine: str
    prepare: str  # "none", "file" (written full once), "twice"
    # Instead of repeats: numbers of passes over the same data.
    passes: tuple[int, ...] = field(default=(), metadata={OPTIONAL: True, BOUNDS: (1, MOST)})
    until_steady: bool = False
    score: str | None = None
    data: Data = field(default=Data.RANDOM, metadata={OPTIONAL: True})
    pause_s: float = field(default=0.0, metadata={OPTIONAL: True})  # before each run

    @property
    def course(self) -> Course:
        """How the runs relate to each other; `passes` override `until_steady`."""
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
    skipped: tuple[str, ...] = ()  # omitted tests, with the reason
    complete: bool = True  # False: interrupted, or fio failed

    def __post_init__(self) -> None:
        cores = self.conditions.cores
        course = self.settings.course
        series = tuple(replace(each, machine_cores=cores, course=course) for each in self.series)
        object.__setattr__(self, "series", series)  # frozen, but not in use before this returns

    def find(self, *, random: bool, block: int, depth: int, threads: int, write: bool) -> Series | None:
        wanted = BenchTest(random, block, depth, threads, write)
        return next((each for each in self.series if each.test == wanted), None)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A file of the history. `when` is None if it is not a result."""

    file: str
    complaint: str | None = None
    when: str | None = None
    profile: str | None = None  # of an experiment: "alignment", "span"
    target: str | None = None
    said: str | None = None  # of an experiment: its verdict
    drive: str | None = None
    complete: bool | None = None
    figure: str = ""  # of a benchmark: the first one


def as_ssd_score(series: Sequence[Series]) -> tuple[float, float, float] | None:
    """Return AS SSD's scores for reads, writes and in total, from rates in MB/s. The weights are those of
    Tom's Hardware, "Three PCI Express-Based SSDs" (2011), and of ssd-tester.com, which agree. Return None if
    one of the six figures is missing.

    >>> # read = seq x 0.1 + 4K + 4K-64; write likewise; total = seq w x 0.15 + seq r x 0.1 + 4K r x 2 + ...
    """
    rates = {
        f"{('64' if test.threads == 64 else '4k') if test.random else 'seq'}"
        f" {'w' if test.write else 'r'}": rate / 1e6
        for test, rate in ((side.test, side.rate.median) for side in series if side.test.reads is None)
    }
    if set(rates) != {f"{which} {side}" for which in ("seq", "4k", "64") for side in ("r", "w")}:
        return None
    read, write = (
        rates[f"seq {side}"] * 0.1 + rates[f"4k {side}"] + rates[f"64 {side}"] for side in ("r", "w")
    )
    total = rates["seq w"] * 0.15 + rates["seq r"] * 0.1 + rates["4k r"] * 2 + rates["4k w"]
    return read, write, total + rates["64 w"] + rates["64 r"] * 1.5


# Convert a result to the text of a file, and back.

SCHEMA = "aligntool.bench"
VERSION = 1
EXPERIMENTS = ("aligntool.bench.alignment", "aligntool.bench.span")
"""Results of another format, which `measure.sweeps` reads."""
LARGEST = 32 << 20  # bytes of a file; a long sweep has some hundred KiB


def to_json(result: Result) -> str:
    """Return a result as JSON: sizes in bytes, rates in bytes per second, latencies in microseconds."""
    document = {"schema": SCHEMA, "version": VERSION, **as_object(result)}
    document["series"] = [
        {
            "title": each.test.title,
            **as_object(each.test),
            "samples": [as_object(sample) for sample in each.samples],
        }
        for each in result.series
    ]
    text = json.dumps(document, ensure_ascii=False)  # bytes of a path that are not UTF-8 become U+FFFD
    plain = json.loads(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
    return json.dumps(plain, indent=1, allow_nan=False) + "\n"


def from_json(text: str, name: str) -> Result:
    """Return the result in a text; `name` is the file in messages. Raises Refused."""
    try:
        document = load_object(text)
        schema = document.get("schema")
        if schema in EXPERIMENTS:
            kind = f"a result of bench {str(schema).rpartition('.')[2]}"
            hint = typed("aligntool bench show", name, sudo=False)
            raise Refused(f"{name} is {kind}, and has no tests to compare", hint=hint)
        check_schema(document, SCHEMA, VERSION)
        return _result(document)
    except (ValueError, OverflowError) as error:
        raise Refused(f"{name} is not a result: {error}", hint="aligntool bench list") from error


def _result(document: dict[str, object]) -> Result:
    series = []
    for row in decode(tuple[dict[str, object], ...], document.get("series"), "series"):
        test = decode(BenchTest, row, "series")
        samples = decode(tuple[Sample, ...], row.get("samples"), "samples")
        if not (test.block and test.depth and test.threads and samples):
            raise ValueError("series: a test without requests, or without samples")
        series.append(Series(test, samples))
    if len({each.test for each in series}) != len(series):
        raise ValueError("it has the same test twice")
    conditions = conditions_of(document.get("conditions"))
    plain = decode(Result, document | {"series": [], "conditions": as_object(Conditions())})
    return replace(plain, series=tuple(series), conditions=conditions)


def conditions_of(value: object) -> Conditions:
    """Return the conditions in a JSON value. Fields of the wrong type are dropped: they are only shown."""
    table = decode(dict[str, object], value, "conditions")
    rows = decode(tuple[dict[str, object], ...], table.pop("drives", None), "drives")
    drives = tuple(
        decode_shown(DriveState(decode(str, row.get("name"), "name")), row, "drives") for row in rows
    )
    return decode_shown(Conditions(drives=drives), table, "conditions")
