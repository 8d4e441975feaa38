"""Plan a benchmark from its profile: jobs, rounds, time, refusals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from aligntool.audit.wording import contents, shell_word, unfit, uses, where
from aligntool.errors import Refusal, Refused, refuse
from aligntool.inventory import Disk, Partition
from aligntool.measure.fio import ENGINE, Job, Pattern, fill_job
from aligntool.measure.results import Course, Data, Settings
from aligntool.measure.unit_design import LEAST_RUNS
from aligntool.recipes.goals import BenchGoal, BenchTest
from aligntool.units import MIB, align_down, format_about, format_size

# Why a device is not written all over.


def refuse_destruction(disk: Disk, partition: Partition | None) -> None:
    """Of a whole disk, whatever is in any of its partitions counts as well. Raises Refused."""
    unfitness = unfit(disk, partition, where(disk, partition))
    refuse([*unfitness, *_about_use(disk, partition), *_about_content(disk, partition)])


def _about_use(disk: Disk, partition: Partition | None) -> Iterator[Refusal]:
    yield from uses(disk.name, disk.name, disk.mounted_at, disk.holders if partition is None else ())
    for part in disk.partitions if partition is None else (partition,):
        yield from uses(where(disk, part), part.node or disk.name, part.mounted_at, part.holders)


def _about_content(disk: Disk, partition: Partition | None) -> Iterator[Refusal]:
    look = f"sudo aligntool audit {shell_word(disk.path)}"
    on, name = partition or disk, where(disk, partition)
    if not on.content_read or (partition is None and not disk.table_read):
        yield Refusal("not-read", name, f"{name} could not be read and may not be empty", look)
    if partition is None:
        hint = "a benchmark never erases; name an empty disk, or a folder on this one"
        for part in disk.partitions:
            text = f"{name} is not empty: partition {part.number}, {format_about(part.extent.length)}"
            yield Refusal("not-empty", name, text, hint)
        if disk.table and not disk.partitions:
            yield Refusal("not-empty", name, f"{name} has a partition table ({disk.table.label})")
    hint = "a benchmark never erases; name something empty, or a folder on it"
    for what in contents(on):
        yield Refusal("not-empty", name, f"{name} is not empty: {what}", hint)


# Which runs of fio a benchmark is made of, and in which order.

SPAN_OF_PASSES = 64 * MIB  # of each test; a hard disk reads that at random in two minutes
WARM_UP_SPAN = MIB  # beyond what is measured
WARM_UP_S = 1.0
OVERHEAD_S = 0.8  # of one run: fio's start, its end, the pause
_TURNING = (0.008, 150e6)  # seconds of an access, bytes a second: half a turn and half the way of the arm
_FLASH = (0.0001, 400e6)  # a SATA SSD
_OVERLAP = 8  # requests that a drive works on at once
SEED = 20170101
DEEP = 8  # requests in flight from which on a queue is called deep


class TargetKind(StrEnum):
    FOLDER = "folder"  # a file is made in it, and removed again
    FILE = "file"  # one that is there
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class Target:
    """What the user named, as it was found. Sizes in bytes."""

    named: str
    kind: TargetKind
    path: str  # of the file or device; of a file that is to be made, its folder
    size: int | None = None  # of the file or device
    free: int | None = None  # of the file system
    logical_block: int = 512  # of which requests past the page cache must be a multiple
    direct: bool = True  # direct I/O is possible
    name: str | None = None  # of the file to be made; None: aligntool finds one
    place: str = ""  # what was named, as an absolute path: what a result keeps


@dataclass(frozen=True, slots=True)
class Wish:
    """What was typed beside the profile. None: as the profile has it."""

    size: int | None = None
    runtime_s: float | None = None
    repeats: int | None = None
    passes: tuple[int, ...] = ()
    destructive: bool = False
    mix: int | None = None  # percent of reads, of a mixed test beside each
    data: Data = Data.RANDOM
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BenchPlan:
    target: Target
    tests: tuple[BenchTest, ...]
    skipped: tuple[str, ...]
    settings: Settings
    fills: int  # how often everything is written over before
    added: tuple[BenchTest, ...] = ()  # that the profile lacks, and the verdict on command queueing needs

    @property
    def measured(self) -> tuple[BenchTest, ...]:
        return self.tests + self.added

    @property
    def makes_file(self) -> bool:
        return self.target.kind is TargetKind.FOLDER

    @property
    def writes(self) -> bool:
        return self.fills > 0 or any(test.write for test in self.tests)

    @property
    def room(self) -> int:
        """Bytes of the file or device that are worked on. Of passes each test has a stretch of its own, which no other
        one has brought into a cache, and beyond all of them lies what wakes the drive.
        """
        span = self.settings.span
        return len(self.tests) * span + WARM_UP_SPAN if self.settings.passes else span

    @property
    def rounds(self) -> int:
        return max(self.settings.passes, default=self.settings.repeats)

    def seconds(self, *, rotational: bool) -> float:
        """Return how long the runs take: timed ones at most, passes at the rates of a usual drive of the kind."""
        if not self.settings.passes:
            return self.rounds * len(self.measured) * (self.settings.runtime_s + OVERHEAD_S + self.settings.pause_s)
        passes_s = sum(_pass_s(test, self.settings.span, rotational=rotational) for test in self.tests)
        return len(self.tests) * (WARM_UP_S + self.rounds * OVERHEAD_S) + self.rounds * passes_s


def _pass_s(test: BenchTest, span: int, *, rotational: bool) -> float:
    """Of once over the span. A request takes what moving to it takes, and its bytes their share of the rate."""
    access_s, rate = _TURNING if rotational else _FLASH
    moved_s = span / rate
    overlapped = 1 if rotational else min(test.depth * test.threads, _OVERLAP)
    return moved_s + (span // test.block * access_s / overlapped if test.random or test.block < MIB else 0.0)


def plan_bench(profile: str, goal: BenchGoal, target: Target, wish: Wish) -> BenchPlan:
    """Raises Refused when no test is left, or when there is no room for the requests."""
    may_write = target.kind is TargetKind.FOLDER or wish.destructive
    span = _span(goal, target, wish)
    tests, skipped = _fitting((*goal.tests, *_mixed(goal.tests, wish.mix)), target, span, may_write=may_write)
    if not tests:
        hint = "a larger --span"
        if target.kind is not TargetKind.FOLDER:
            hint = "name a folder: a file is made in it and removed again"
        raise Refused(f"no test of {profile} can be run on {target.named}:\n" + "\n".join(skipped), hint=hint)
    fills = 0 if not may_write else 2 if goal.prepare == "twice" else int(target.kind is not TargetKind.DEVICE)
    if goal.prepare == "twice" and not may_write:
        skipped = (*skipped, "overwriting everything twice before: nothing may be written here")
    settings = Settings(
        profile=profile, span=span, runtime_s=goal.runtime_s if wish.runtime_s is None else wish.runtime_s,
        repeats=wish.repeats or goal.repeats, direct=target.direct, engine=ENGINE,
        prepare={0: "none", 1: "file", 2: "twice"}[fills], passes=wish.passes,
        until_steady=goal.until_steady and not wish.passes, score=goal.score, data=wish.data, pause_s=wish.pause_s,
    )  # fmt: skip
    judged = settings.direct and settings.course is Course.REPEATS and settings.repeats >= LEAST_RUNS
    added = depths_between(tests) if judged and not settings.score else ()
    return BenchPlan(target, tests, skipped, settings, fills, added)


def _mixed(tests: Sequence[BenchTest], reads: int | None) -> tuple[BenchTest, ...]:
    """Return each load once more, with that percentage of reads; None: nothing."""
    alike = (replace(each, write=True, reads=reads) for each in tests)
    return () if reads is None else tuple(dict.fromkeys(alike))


def depths_between(tests: Sequence[BenchTest]) -> tuple[BenchTest, ...]:
    """Return the tests with two and four requests in flight that `depth_gains` needs and a profile lacks: of each
    random read that it has at depth 1 and at DEEP or more, with one thread.
    """
    single = {(each.block, each.depth) for each in tests if each.random and not each.write and each.threads == 1}
    deep = {block for block, depth in single if depth >= DEEP}
    blocks = sorted(block for block, depth in single if depth == 1 and block in deep)
    missing = [(block, depth) for block in blocks for depth in (2, 4) if (block, depth) not in single]
    return tuple(BenchTest(True, block, depth, 1, False) for block, depth in missing)


def _span(goal: BenchGoal, target: Target, wish: Wish) -> int:
    """A drive that is to come to rest is written all over: less would leave it free room to work with."""
    usual = SPAN_OF_PASSES if wish.passes else goal.size
    if target.kind is TargetKind.FOLDER:
        span = wish.size or usual
        return align_down(span, max(target.logical_block, 4096)) or span
    size = target.size or 0
    if wish.passes:
        every = (*goal.tests, *_mixed(goal.tests, wish.mix))
        tests = sum(wish.destructive or not test.write for test in every)
        size = max(size - WARM_UP_SPAN, 0) // max(tests, 1)
    if wish.size is not None and wish.size > size:
        each = f", {format_about(size)} for each test" if wish.passes else ""
        has = f"{target.named} has {format_size(target.size or 0)}{each}"
        raise Refused(f"{has}, and --span says {format_size(wish.size)}")
    whole = goal.prepare == "twice" and wish.destructive and not wish.passes
    span = wish.size or (size if whole else min(usual, size))
    return align_down(span, max(target.logical_block, 4096)) or align_down(span, target.logical_block)


def _fitting(
    tests: Sequence[BenchTest], target: Target, span: int, *, may_write: bool
) -> tuple[tuple[BenchTest, ...], tuple[str, ...]]:
    kept, skipped = [], []
    for test in tests:
        if test.write and not may_write:
            way_out = " without --destructive" if target.kind is TargetKind.DEVICE else ""
            skipped.append(f"{test.title}: {target.named} is only read{way_out}")
        elif target.direct and test.block % target.logical_block:
            block = format_size(target.logical_block)
            skipped.append(f"{test.title}: the device takes multiples of its logical blocks of {block} only")
        elif test.block * (1 if test.random else test.threads) > span:
            skipped.append(f"{test.title}: its requests do not fit into {format_size(span)}")
        else:
            kept.append(test)
    return tuple(kept), tuple(skipped)


def rounds_of(plan: BenchPlan) -> Iterator[tuple[int, tuple[BenchTest, ...]]]:
    """Each round has every test once, every other one backwards: a drive that warms up or fills its cache then does so
    at the expense of all tests alike. Passes stay together, so that nothing else comes between them.
    """
    if plan.settings.passes:
        for test in plan.tests:
            yield from ((number, (test,)) for number in range(1, plan.rounds + 1))
        return
    for number in range(1, plan.rounds + 1):
        yield number, plan.measured if number % 2 else plan.measured[::-1]


def job_of(plan: BenchPlan, test: BenchTest, path: str) -> Job:
    """A pass goes once over the stretch of its test, in the same order as the passes before it."""
    passes = bool(plan.settings.passes)
    return Job(
        name=test.title.replace(" ", "-"), path=path, block=test.block,
        pattern=Pattern(("rand" if test.random else "") + ("rw" if test.reads else test.does)),
        read_share=test.reads or 100, together=test.reads is not None, zeros=plan.settings.data is Data.ZERO,
        span=align_down(plan.settings.span, test.block), depth=test.depth, threads=test.threads,
        offset=plan.tests.index(test) * plan.settings.span if passes else 0, direct=plan.settings.direct,
        runtime_s=None if passes else plan.settings.runtime_s, seed=SEED if passes else None,
    )  # fmt: skip


def warm_up(plan: BenchPlan, path: str) -> Job:
    """Before the first pass of a test: a drive that wakes up then is not slower than its cache."""
    return Job(
        name="warm-up", path=path, pattern=Pattern.RANDOM_READ, block=max(4096, plan.target.logical_block),
        span=WARM_UP_SPAN, offset=plan.room - WARM_UP_SPAN, runtime_s=WARM_UP_S, direct=plan.settings.direct,
    )  # fmt: skip


def filling(plan: BenchPlan, path: str) -> Job:
    return fill_job(
        path, plan.room, direct=plan.settings.direct, loops=max(plan.fills, 1), zeros=plan.settings.data is Data.ZERO
    )
