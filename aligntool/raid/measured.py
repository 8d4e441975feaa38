"""Chunk measurements: their loads and statistics, the result file, and whether it applies to an array."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import exp, log
from statistics import fmean, median
from typing import Generic, Protocol, TypeVar

from aligntool.change import RaidGoal
from aligntool.contents.md import MD
from aligntool.documents import BOUNDS, POSITIVE, WIRE, as_object, check_schema, decode, load_object
from aligntool.errors import Refused
from aligntool.inventory import Disk
from aligntool.raid import chunks as rules
from aligntool.raid.ceilings import DriveRate, Rates
from aligntool.raid.chunks import LARGEST, ChunkAdvice, Evidence, Stripes
from aligntool.raid.levels import LEVELS, WORKLOADS
from aligntool.units import GIB, KIB, MIB, align_down, format_size

# Choosing a chunk, or another value, from the samples of a sweep.
#
# `choose` is a pure function, tested on synthetic samples with a known answer.
#
# The score of a cell is the geometric mean of the rates of its loads, so every load has the same weight,
# whatever its unit. Two values are apart if the ranges of their scores over all rounds do not overlap and
# their medians differ by 3 % at least. If there is no true difference, the ranges of n rounds lie apart in 2
# of C(2n, n) cases: 10 % with three rounds, 0.8 % with five.

FEWEST = 3  # rounds needed to compare two ranges
LEAST_GAIN = 1.03  # a smaller ratio does not justify another value than the usual one

Value = TypeVar("Value", int, str)
Value_co = TypeVar("Value_co", int, str, covariant=True)


class Measurement(Protocol[Value_co]):
    """The result of one load with one of the values that are compared."""

    @property
    def round(self) -> int: ...
    @property
    def value(self) -> Value_co: ...
    @property
    def load(self) -> str: ...
    @property
    def rate(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """The result of one load on one array. Rates in bytes per second."""

    round: int
    chunk: int = field(metadata={BOUNDS: POSITIVE})
    load: str = field(metadata={WIRE: "shape"})
    read: int
    write: int
    cpu: float = 0.0  # per cent of one core for each thread of fio

    @property
    def value(self) -> int:
        return self.chunk

    @property
    def rate(self) -> int:
        return self.read + self.write


@dataclass(frozen=True, slots=True)
class Identity:
    """A drive, identified by what stays the same when its kernel name changes."""

    name: str
    model: str | None
    serial: str | None
    wwn: str | None
    size: int | None
    firmware: str | None = None
    read: int | None = None  # its rate alone, bytes per second
    write: int | None = None

    @property
    def key(self) -> tuple[str | None, ...]:
        return (self.wwn,) if self.wwn else (self.model, self.serial)


@dataclass(frozen=True, slots=True)
class Tuning:
    """The samples of a sweep, with the array and the conditions under which they were taken."""

    level: str
    layout: str
    workload: str
    database_page: int
    bitmap: str
    members: tuple[Identity, ...]
    span: int  # bytes at the start of the array that the loads were confined to
    runtime_s: float
    complete: bool
    conditions: tuple[tuple[str, str], ...]  # "kernel", "fio", "aligntool" ...
    samples: tuple[Sample, ...]


class Verdict(StrEnum):
    KEPT = "kept"  # no value was clearly faster than the usual one
    CHANGED = "changed"
    UNKNOWN = "unknown"  # too few complete rounds


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of a value's score to another's, over the rounds."""

    middle: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.least:.2f}–{self.most:.2f})"


@dataclass(frozen=True, slots=True)
class Choice(Generic[Value]):
    """The chosen value; None if the samples do not suffice."""

    verdict: Verdict
    value: Value | None
    reason: str
    rounds: int
    against: Mapping[Value, Ratio]  # of each value to the usual one
    apart: frozenset[Value]  # values that differ from the usual one by more than noise

    @property
    def faster(self) -> Value | None:
        """The value if it is clearly faster than the usual one, otherwise None."""
        return self.value if self.verdict is Verdict.CHANGED else None


def value_words(value: int | str) -> str:
    """Return a chunk as a size, and a value of a setting as it is."""
    return format_size(value) if isinstance(value, int) else value


def choose(
    samples: Sequence[Measurement[Value]],
    usual: Value,
    *,
    what: str = "chunk",
    known_as: str = "the usual recommendation",
) -> Choice[Value]:
    """Return the usual value, unless another one is clearly faster. `what`: the kind of value, and `known_as`
    the usual one, in words.
    """
    scores = scores_of(samples)
    rounds = len(next(iter(scores.values()), ()))
    if usual not in scores or rounds < FEWEST:
        why = (
            f"at least {FEWEST} complete rounds are needed to tell a difference from noise, and there are"
            f" {rounds}"
        )
        if rounds >= FEWEST:
            why = f"{value_words(usual)}, {known_as}, was not among the {what}s measured"
        return Choice(Verdict.UNKNOWN, None, why, rounds, {}, frozenset())
    before = scores[usual]
    against = {value: ratio_of(scores[value], before) for value in scores}
    apart = frozenset(
        value for value, own in scores.items() if is_apart(own, before) or is_apart(before, own)
    )
    best = max(scores, key=lambda value: median(scores[value]))
    alike = [value for value in scores if not is_apart(scores[best], scores[value])]
    if usual in alike:
        reason = _reason_to_keep(usual, against, apart, rounds, what)
        return Choice(Verdict.KEPT, usual, reason, rounds, against, apart)
    # Of the faster values that cannot be distinguished from the best, the nearest to the usual one.
    alike = [value for value in alike if is_apart(scores[value], before)]
    order = list(scores)
    distances = {value: abs(order.index(value) - order.index(usual)) for value in alike}
    value = min(alike, key=lambda one: (distances[one], -median(scores[one])))
    work = f"{value_words(value)} had {against[value]} times the throughput of {value_words(usual)}"
    return Choice(Verdict.CHANGED, value, f"{work}, {known_as}, in {rounds} rounds", rounds, against, apart)


def _reason_to_keep(
    usual: Value, against: Mapping[Value, Ratio], apart: frozenset[Value], rounds: int, what: str
) -> str:
    if not apart:
        return f"no {what} differed from {value_words(usual)} by more than the noise of {rounds} rounds"
    slower = ", ".join(
        f"{value_words(value)} {ratio}"
        for value, ratio in against.items()
        if value in apart and ratio.middle < 1
    )
    return (
        f"none was clearly faster than {value_words(usual)} in {rounds} rounds; these were slower: {slower}"
    )


def in_order(values: Iterable[Value]) -> list[Value]:
    """Return the values ascending; words such as "kyber" after all numbers."""
    return sorted(set(values), key=lambda value: (not str(value).isdecimal(), len(str(value)), str(value)))


def scores_of(samples: Sequence[Measurement[Value]]) -> dict[Value, tuple[float, ...]]:
    """Return the scores of each value in all complete rounds, in which all loads ran with all values. Scores
    are geometric means of bytes per second.
    """
    values = in_order(sample.value for sample in samples)
    loads = {sample.load for sample in samples}
    cells: dict[tuple[int, Value], dict[str, int]] = {}
    for sample in samples:
        if sample.rate > 0:
            cells.setdefault((sample.round, sample.value), {})[sample.load] = sample.rate
    rounds = sorted({sample.round for sample in samples})
    complete = [
        number for number in rounds if all(cells.get((number, value), {}).keys() == loads for value in values)
    ]
    return {
        value: tuple(exp(fmean(map(log, cells[index, value].values()))) for index in complete)
        for value in values
    }


def ratio_of(scores: Sequence[float], others: Sequence[float]) -> Ratio:
    ratios = [score / other for score, other in zip(scores, others, strict=True)]
    return Ratio(median(ratios), min(ratios), max(ratios))


def is_apart(faster: Sequence[float], slower: Sequence[float]) -> bool:
    """Return whether the first scores are clearly higher: by more than noise, and at least by LEAST_GAIN."""
    if min(len(faster), len(slower)) < FEWEST:
        return False
    return min(faster) > max(slower) and median(faster) >= LEAST_GAIN * median(slower)


# The result file of a sweep, and whether it applies to an array.
#
# A measurement on other drives, for another level or another workload, is not evidence.
#
# The file is JSON, described by schemas/raid-tune.json.

SCHEMA = "aligntool.raid-tune"
VERSION = 1
LONGEST = 4 << 20  # bytes of a result file


def tuning_text(tuning: Tuning, verdict: Mapping[str, object] | None = None) -> str:
    """Return the result file. `verdict` is for its readers; aligntool itself evaluates the samples again."""
    body = as_object(tuning) | {"conditions": dict(tuning.conditions)}
    return json.dumps({"schema": SCHEMA, "version": VERSION, **body, "verdict": verdict}, indent=1) + "\n"


def parse_tuning(text: str, name: str = "the measurement") -> Tuning:
    """Read a result. `name`: that of its file. Raises Refused with what is wrong in it."""
    try:
        document = load_object(text)
        check_schema(document, SCHEMA, VERSION)
        conditions = decode(dict[str, object], document.get("conditions"), "conditions")
        tuning = decode(
            Tuning, document | {"conditions": [[name, str(value)] for name, value in conditions.items()]}
        )
        _check_tuning(tuning)
        return tuning
    except ValueError as error:
        raise Refused(
            f"{name} is not a result of raid tune: {error}", hint="aligntool raid tune -h"
        ) from None


def _check_tuning(tuning: Tuning) -> None:
    if tuning.level not in LEVELS or tuning.workload not in WORKLOADS:
        raise ValueError(f"unknown level {tuning.level!r:.40} or workload {tuning.workload!r:.40}")
    if len({(sample.round, sample.chunk, sample.load) for sample in tuning.samples}) != len(tuning.samples):
        raise ValueError("it has the same load twice for one array in one round")


def tuning_mismatches(
    tuning: Tuning, disks: Sequence[Disk], goal: RaidGoal, layout: str, bitmap: str
) -> tuple[str, ...]:
    """Return every reason why a measurement does not apply to an array; () if it does."""
    conditions = (
        ("level", LEVELS[tuning.level].title, LEVELS[goal.level].title),
        ("layout", tuning.layout or "none", layout or "none"),
        ("workload", tuning.workload, goal.workload),
        ("bitmap", tuning.bitmap, bitmap),
    )
    reasons = [
        f"its {name} was {then}, but here it is {now}" for name, then, now in conditions if then != now
    ]
    if tuning.workload == "database" and tuning.database_page != goal.database_page:
        reasons.append(
            f"its database pages had {tuning.database_page} bytes, but here they have {goal.database_page}"
        )
    then = {member.key: member.name for member in tuning.members}
    now = {identity_of(disk).key: disk.name for disk in disks}
    added = [name for key, name in now.items() if key not in then or not any(key)]
    missing = [name for key, name in then.items() if key not in now]
    reasons += [f"not measured: {', '.join(added)}"] if added else []
    reasons += [f"measured, but not a member here: {', '.join(missing)} (former name)"] if missing else []
    return tuple(reasons)


def identity_of(disk: Disk) -> Identity:
    return Identity(disk.name, disk.model, disk.serial, disk.wwn, disk.size, disk.firmware)


# The effect of a measurement on the plan of an array.


@dataclass(frozen=True, slots=True)
class MeasuredAdvice:
    """The advice after a measurement, if there is one; `notes` state its result, or why it is not used."""

    advice: ChunkAdvice
    notes: tuple[str, ...] = ()
    rates: Rates = field(default_factory=dict)
    used: bool = False


def apply_measurement(
    goal: RaidGoal, stripes: Stripes, advice: ChunkAdvice, disks: Sequence[Disk], layout: str, bitmap: str
) -> MeasuredAdvice:
    """Return the advice after the goal's measurement. Raises Refused if that is not a result of `raid
    tune`.
    """
    if not goal.measured:
        return MeasuredAdvice(advice)
    tuning = parse_tuning(goal.measured)
    rates = _rates(tuning, disks)
    if advice.size is None:
        return MeasuredAdvice(advice, ("the measurement does not apply: this level has no chunk",), rates)
    choice = choose(tuning.samples, advice.size)
    reasons = tuning_mismatches(tuning, disks, goal, layout, bitmap)
    if reasons or choice.value is None:
        why = "; ".join(reasons) or choice.reason
        return MeasuredAdvice(advice, (f"the measurement is not used for the chunk: {why}",), rates)
    chosen = ChunkAdvice(choice.value, choice.reason, Evidence.MEASURED)
    return MeasuredAdvice(chosen, tuple(_result_notes(tuning, choice, advice.size)), rates, True)


def _result_notes(tuning: Tuning, choice: Choice[int], recommended: int) -> Iterator[str]:
    ratios = {
        chunk: f"{format_size(chunk)} {ratio}"
        for chunk, ratio in choice.against.items()
        if chunk != recommended
    }
    listed = [
        text if chunk in choice.apart else f"{text}, within the noise" for chunk, text in ratios.items()
    ]
    how = (
        f"work done relative to {format_size(recommended)}, median (smallest–largest) of {choice.rounds}"
        " rounds"
    )
    yield f"measured on these drives: {how}: {'; '.join(listed) or 'no other chunk was tried'}"
    if choice.verdict is Verdict.KEPT and not choice.apart:
        yield "the chunk makes no measurable difference here"
    if not tuning.complete:
        yield "the measurement ended early; only its complete rounds count"


def _rates(tuning: Tuning, disks: Sequence[Disk]) -> dict[str, DriveRate]:
    """Return the rates of each drive alone; they apply to any level."""
    by_key = {
        member.key: member for member in tuning.members if any(member.key) and (member.read or member.write)
    }
    pairs = ((disk.name, by_key.get(identity_of(disk).key)) for disk in disks)
    return {name: DriveRate(found.read, found.write, "measured here") for name, found in pairs if found}


# How the test array of a sweep is recognised: by its md name and its UUID together.
#
# Every check of a member has to recognise a test array, and no other array may be mistaken for one.

TEST_NAME = "aligntool-tune"
TEST_UUID = "616c6967:6e74756e"  # "aligntun": the first half of every test array's UUID


def has_test_array(disk: Disk) -> bool:
    """Return whether a sweep left a test array on the disk or on a partition of it, by md's name and UUID
    together.
    """
    layers = [*disk.content, *(layer for part in disk.partitions for layer in part.content)]
    named = [layer for layer in layers if (layer.label or "").rpartition(":")[2] == TEST_NAME]
    uuids = [(layer.uuid or "").replace("-", "") for layer in named if layer.kind == MD.name]
    return any(uuid.startswith(TEST_UUID.replace(":", "")) for uuid in uuids)


# The design of a sweep: the loads of each workload, the chunks to try, and their order.
#
# docs/raid.md, "Measuring the chunk", gives the reason for each choice.

DEFAULT_CHUNK = MIB // 2  # mdadm's default (mdadm.h, DEFAULT_CHUNK)
SPAN_OF_MEMBER = 4 * GIB  # of each data member, unless the user gives another span
_STRIPED = (64 * KIB, 128 * KIB, 256 * KIB, MIB // 2, MIB)
_PARITY = (32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, MIB // 2)


@dataclass(frozen=True, slots=True)
class Load:
    """A load of fio. `pattern`: the value of its option rw; `sync_every`: fsync after this many writes, 0 for
    never.
    """

    pattern: str
    block: int  # bytes
    depth: int
    threads: int = 1
    read_share: int = 100  # per cent, of a mixed pattern only
    sync_every: int = 0
    cached: bool = False  # reads through the page cache, which reads ahead

    @property
    def writes(self) -> bool:
        return "read" not in self.pattern

    @property
    def name(self) -> str:
        """Return, for example, "randrw 16KiB QD16, 70 % reads"."""
        words = f"{self.pattern} {format_size(self.block)} QD{self.depth}"
        words += f" x{self.threads}" if self.threads > 1 else ""
        words += f", {self.read_share} % reads" if self.pattern == "randrw" else ""
        return words + (", synced" if self.sync_every else "") + (", cached" if self.cached else "")


def loads_of(workload: str, database_page: int) -> tuple[Load, ...]:
    """Return the loads that represent a workload; all have the same weight."""
    page = database_page
    by_workload = {
        "general": (Load("read", MIB, 8), Load("write", MIB, 8), Load("randrw", 16 * KIB, 16, read_share=70)),
        "boot": (Load("randread", 4 * KIB, 1), Load("randwrite", 4 * KIB, 1)),
        "database": (
            Load("randrw", page, 16, read_share=70),
            Load("randwrite", page, 1, threads=4, sync_every=1),
        ),
        "sequential": (Load("read", MIB, 8), Load("write", MIB, 8), Load("read", MIB, 1)),
        "lsm": (Load("write", MIB, 4), Load("read", MIB, 4), Load("randread", 16 * KIB, 32)),
        "vm": (Load("randrw", 4 * KIB, 32, read_share=70), Load("randrw", 64 * KIB, 8, read_share=70)),
    }
    return by_workload[workload]


DRIVE_LOADS = (Load("write", MIB, 8), Load("read", MIB, 8))
"""The loads of each drive alone, for the ceiling: large sequential requests, written before they are read."""


def sweep_chunks(stripes: Stripes, requested: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the chunks to try, ascending: the requested ones, else a usual range and mdadm's default; the
    recommended chunk is always among them.

    Chunks below the members' page or unit are tried only on request: they wear the drives, and the result is
    known.
    """
    usual = _PARITY if stripes.level.parity else _STRIPED
    floor = rules.least_chunk(stripes)
    wanted = set(requested) or {size for size in (*usual, DEFAULT_CHUNK) if size >= floor}
    recommended = rules.recommend_chunk(stripes).size
    return tuple(sorted(wanted | ({recommended} if recommended else set())))


def sweep_order(values: Sequence[Value], repeats: int) -> tuple[tuple[int, Value], ...]:
    """Return the cells (round, value) in the order A B C, C B A, A B C ...: drift then affects all values
    alike.
    """
    return tuple(
        (index, value) for index in range(repeats) for value in (values[::-1] if index % 2 else values)
    )


def span_of(size: int, data: int, requested: int | None) -> int:
    """Return how many bytes of the array the loads are confined to: the requested span, else 4 GiB of each
    data member, and at most the array. A multiple of the largest chunk.
    """
    return align_down(min(requested or SPAN_OF_MEMBER * data, size), LARGEST)
