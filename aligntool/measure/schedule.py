"""Plan a benchmark from its profile: jobs, rounds, duration, refusals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from aligntool.audit import wording
from aligntool.errors import Refusal, Refused, refuse
from aligntool.inventory import Disk, Inventory, Partition
from aligntool.measure.fio import ENGINE, Job, Pattern, fill_job
from aligntool.measure.results import Course, Data, Settings
from aligntool.measure.unit_design import LEAST_RUNS
from aligntool.recipes.goals import BenchGoal, BenchTest
from aligntool.units import MIB, align_down, format_about, format_size

# Reasons to refuse overwriting a device.


def refuse_destruction(
    disk: Disk, partition: Partition | None, *, wipe: bool = False, above: Inventory | None = None
) -> None:
    """Raise Refused unless a partition, or a whole disk (None) with all its partitions, is empty and not in
    use. `wipe`: unrecognised data, which `disk.sampled` shows, may be lost. `above`: see `use_refusals`.
    """
    unfitness = wording.device_refusals(disk, partition, wording.subject_words(disk, partition))
    content = tuple(_about_content(disk, partition)) or (() if wipe else tuple(_about_data(disk, partition)))
    refuse([*unfitness, *_about_use(disk, partition, above), *content])


def _about_use(disk: Disk, partition: Partition | None, above: Inventory | None) -> Iterator[Refusal]:
    holders = disk.holders if partition is None else ()
    uses = [*wording.use_refusals(disk.name, disk.name, disk.mounted_at, holders, above=above)]
    for part in disk.partitions if partition is None else (partition,):
        name = wording.subject_words(disk, part)
        uses += wording.use_refusals(name, part.node or disk.name, part.mounted_at, part.holders, above=above)
    yield from wording.inner_first(uses)


def _about_content(disk: Disk, partition: Partition | None) -> Iterator[Refusal]:
    look = wording.audit_command(disk)
    on = partition or disk
    name = wording.subject_words(disk, partition)
    if not on.content_read or (partition is None and not disk.table_read):
        yield Refusal("not-read", name, f"{name} could not be read, so it is not known to be empty", look)
    if partition is None:
        hint = "a benchmark never erases; name an empty disk, or a folder on this one"
        for part in disk.partitions:
            text = f"{name} is not empty: partition {part.number}, {format_about(part.extent.length)}"
            yield Refusal("not-empty", name, text, hint)
        if disk.table and not disk.partitions:
            yield Refusal(
                "not-empty", name, f"{name} has a partition table ({wording.label_words(disk.table.label)})"
            )
    hint = "a benchmark never erases; name something empty, or a folder on it"
    for content in wording.contents(on):
        yield Refusal("not-empty", name, f"{name} is not empty: {content}", hint)


def _about_data(disk: Disk, partition: Partition | None) -> Iterator[Refusal]:
    sampled = disk.sampled
    name = wording.subject_words(disk, partition)
    path = disk.path if partition is None else f"/dev/{partition.node or disk.name}"
    hint = f"if it is not needed, add: --wipe {wording.shell_word(path)}"
    for data in wording.unrecognised_data(disk):
        yield Refusal("not-empty", name, f"{name} is not empty: {data}", hint)
    if sampled and sampled.unreadable and not sampled.written:
        text = (
            f"{name} cannot be read at {sampled.unreadable} of {sampled.places} places,"
            " so it is not known to be empty"
        )
        yield Refusal("not-read", name, text, hint)
    yield from wording.refuse_sparse((disk, name, path))


# The runs of fio of which a benchmark consists, and their order.

SPAN_OF_PASSES = 64 * MIB  # of each test; a hard disk reads that at random in two minutes
WARM_UP_SPAN = MIB  # beyond the measured range
WARM_UP_S = 1.0
OVERHEAD_S = 0.8  # of one run: fio's start, its end, the pause
_ROTATING = (0.008, 150e6)  # seconds per access, bytes a second: half a turn and half a full seek
_FLASH = (0.0001, 400e6)  # a SATA SSD
_OVERLAP = 8  # requests that a drive works on at once
SEED = 20170101
DEEP = 8  # requests in flight from which on a queue counts as deep


class TargetKind(StrEnum):
    FOLDER = "folder"  # a file is created in it and removed
    FILE = "file"  # an existing one
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class Target:
    """The folder, file or device that the user named. Sizes in bytes."""

    named: str
    kind: TargetKind
    path: str  # of the file or device; for a file that is to be created, its folder
    size: int | None = None  # of the file or device
    free: int | None = None  # of the file system
    logical_block: int = 512  # direct requests must be a multiple of it
    direct: bool = True  # direct I/O is possible
    name: str | None = None  # of the file to create; None: aligntool chooses one
    place: str = ""  # the name as an absolute path, which the result records
    wipe: bool = False  # unrecognised data on the device may be lost


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """The options given with the profile. None: the profile's value."""

    size: int | None = None
    runtime_s: float | None = None
    repeats: int | None = None
    passes: tuple[int, ...] = ()
    destructive: bool = False
    mix: int | None = None  # percent of reads of a mixed test that is added for each test
    data: Data = Data.RANDOM
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BenchPlan:
    target: Target
    tests: tuple[BenchTest, ...]
    skipped: tuple[str, ...]
    settings: Settings
    fills: int  # how often everything is overwritten first
    added: tuple[BenchTest, ...] = ()  # not in the profile; the verdict on command queueing needs them

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
        """Bytes of the file or device that are used. With passes each test has its own range, which no other
        test has brought into a cache; after all of them comes the range of the warm-up.
        """
        span = self.settings.span
        return len(self.tests) * span + WARM_UP_SPAN if self.settings.passes else span

    @property
    def rounds(self) -> int:
        return max(self.settings.passes, default=self.settings.repeats)

    def seconds(self, *, rotational: bool) -> float:
        """Return the duration of the runs: for timed runs the maximum, for passes at the rates of a usual
        drive.
        """
        if not self.settings.passes:
            return (
                self.rounds
                * len(self.measured)
                * (self.settings.runtime_s + OVERHEAD_S + self.settings.pause_s)
            )
        passes_s = sum(_pass_s(test, self.settings.span, rotational=rotational) for test in self.tests)
        return len(self.tests) * (WARM_UP_S + self.rounds * OVERHEAD_S) + self.rounds * passes_s


def _pass_s(test: BenchTest, span: int, *, rotational: bool) -> float:
    """Return the seconds of one pass over the span: the access time of each request, and the time to transfer
    it.
    """
    access_s, rate = _ROTATING if rotational else _FLASH
    transfer_s = span / rate
    overlapped = 1 if rotational else min(test.depth * test.threads, _OVERLAP)
    return transfer_s + (
        span // test.block * access_s / overlapped if test.random or test.block < MIB else 0.0
    )


def plan_bench(profile: str, goal: BenchGoal, target: Target, options: BenchOptions) -> BenchPlan:
    """Return the plan of a benchmark. Raises Refused if no test is left, or if the requests do not fit."""
    may_write = target.kind is TargetKind.FOLDER or options.destructive
    span = _span(goal, target, options)
    tests, skipped = _runnable(
        (*goal.tests, *_mixed(goal.tests, options.mix)), target, span, may_write=may_write
    )
    if not tests:
        hint = "a larger --span"
        if target.kind is not TargetKind.FOLDER:
            hint = "name a folder: a file is created in it and removed again"
        raise Refused(f"no test of {profile} can be run on {target.named}:\n" + "\n".join(skipped), hint=hint)
    fills = (
        0 if not may_write else 2 if goal.prepare == "twice" else int(target.kind is not TargetKind.DEVICE)
    )
    if goal.prepare == "twice" and not may_write:
        skipped = (*skipped, "overwriting everything twice first: nothing may be written here")
    settings = Settings(
        profile=profile,
        span=span,
        runtime_s=goal.runtime_s if options.runtime_s is None else options.runtime_s,
        repeats=options.repeats or goal.repeats,
        direct=target.direct,
        engine=ENGINE,
        prepare={0: "none", 1: "file", 2: "twice"}[fills],
        passes=options.passes,
        until_steady=goal.until_steady and not options.passes,
        score=goal.score,
        data=options.data,
        pause_s=options.pause_s,
    )
    judges_depth = settings.direct and settings.course is Course.REPEATS and settings.repeats >= LEAST_RUNS
    added = depths_between(tests) if judges_depth and not settings.score else ()
    return BenchPlan(target, tests, skipped, settings, fills, added)


def _mixed(tests: Sequence[BenchTest], reads: int | None) -> tuple[BenchTest, ...]:
    """Return a mixed version of each test with `reads` percent of reads; empty if that is None."""
    mixed = (replace(test, write=True, reads=reads) for test in tests)
    return () if reads is None else tuple(dict.fromkeys(mixed))


def depths_between(tests: Sequence[BenchTest]) -> tuple[BenchTest, ...]:
    """Return the tests with two and four requests in flight that `depth_gains` needs and a profile lacks: for
    each random read with one thread that it has at depth 1 and at DEEP or more.
    """
    single = {
        (test.block, test.depth) for test in tests if test.random and not test.write and test.threads == 1
    }
    deep = {block for block, depth in single if depth >= DEEP}
    blocks = sorted(block for block, depth in single if depth == 1 and block in deep)
    missing = [(block, depth) for block in blocks for depth in (2, 4) if (block, depth) not in single]
    return tuple(BenchTest(True, block, depth, 1, False) for block, depth in missing)


def _span(goal: BenchGoal, target: Target, options: BenchOptions) -> int:
    """Return the span in bytes. For a steady state it is the whole device: less would leave the drive free
    space to work with. Raises Refused if the target is smaller than the requested span.
    """
    usual = SPAN_OF_PASSES if options.passes else goal.size
    if target.kind is TargetKind.FOLDER:
        span = options.size or usual
        return align_down(span, max(target.logical_block, 4096)) or span
    size = target.size or 0
    if options.passes:
        tests = (*goal.tests, *_mixed(goal.tests, options.mix))
        count = sum(options.destructive or not test.write for test in tests)
        size = max(size - WARM_UP_SPAN, 0) // max(count, 1)
    if options.size is not None and options.size > size:
        per_test = f", {format_about(size)} for each test" if options.passes else ""
        has = f"{target.named} has {format_size(target.size or 0)}{per_test}"
        raise Refused(f"{has}, but --span is {format_size(options.size)}")
    whole = goal.prepare == "twice" and options.destructive and not options.passes
    span = options.size or (size if whole else min(usual, size))
    return align_down(span, max(target.logical_block, 4096)) or align_down(span, target.logical_block)


def _runnable(
    tests: Sequence[BenchTest], target: Target, span: int, *, may_write: bool
) -> tuple[tuple[BenchTest, ...], tuple[str, ...]]:
    """Return the tests that can be run on the target, and a sentence for each skipped one."""
    kept = []
    skipped = []
    for test in tests:
        if test.write and not may_write:
            way_out = " without --destructive" if target.kind is TargetKind.DEVICE else ""
            skipped.append(f"{test.title}: {target.named} is only read{way_out}")
        elif target.direct and test.block % target.logical_block:
            block = format_size(target.logical_block)
            skipped.append(
                f"{test.title}: the device accepts only multiples of its logical blocks of {block}"
            )
        elif test.block * (1 if test.random else test.threads) > span:
            skipped.append(f"{test.title}: its requests do not fit into {format_size(span)}")
        else:
            kept.append(test)
    return tuple(kept), tuple(skipped)


def rounds_of(plan: BenchPlan) -> Iterator[tuple[int, tuple[BenchTest, ...]]]:
    """Yield each round with its tests. A round has every test once, every other round in reverse order, so
    that a drive that warms up or fills its cache affects all tests equally. The passes of a test are
    consecutive, so that nothing comes between them.
    """
    if plan.settings.passes:
        for test in plan.tests:
            yield from ((number, (test,)) for number in range(1, plan.rounds + 1))
        return
    for number in range(1, plan.rounds + 1):
        yield number, plan.measured if number % 2 else plan.measured[::-1]


def job_of(plan: BenchPlan, test: BenchTest, path: str) -> Job:
    """Return the job of a test. A pass goes once over the range of its test, in the order of the passes
    before it.
    """
    passes = bool(plan.settings.passes)
    return Job(
        name=test.title.replace(" ", "-"),
        path=path,
        block=test.block,
        pattern=Pattern(("rand" if test.random else "") + ("rw" if test.reads else test.does)),
        read_share=test.reads or 100,
        together=test.reads is not None,
        zeros=plan.settings.data is Data.ZERO,
        span=align_down(plan.settings.span, test.block),
        depth=test.depth,
        threads=test.threads,
        offset=plan.tests.index(test) * plan.settings.span if passes else 0,
        direct=plan.settings.direct,
        runtime_s=None if passes else plan.settings.runtime_s,
        seed=SEED if passes else None,
    )


def warm_up(plan: BenchPlan, path: str) -> Job:
    """Return the job that runs before the first pass of a test, so that a drive that has to wake up does not
    look slower than its cache.
    """
    return Job(
        name="warm-up",
        path=path,
        pattern=Pattern.RANDOM_READ,
        block=max(4096, plan.target.logical_block),
        span=WARM_UP_SPAN,
        offset=plan.room - WARM_UP_SPAN,
        runtime_s=WARM_UP_S,
        direct=plan.settings.direct,
    )


def filling(plan: BenchPlan, path: str) -> Job:
    return fill_job(
        path,
        plan.room,
        direct=plan.settings.direct,
        loops=max(plan.fills, 1),
        zeros=plan.settings.data is Data.ZERO,
    )
