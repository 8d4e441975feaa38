"""Measure chunk sizes: create test arrays, run loads on them, remove them."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from aligntool import __version__
from aligntool.audit.report import Judged
from aligntool.audit.wording import shell_word, unread_between
from aligntool.change import RaidGoal
from aligntool.commands import ByHand, by_hand, typed
from aligntool.errors import Refused, Stopped
from aligntool.linux.content import sample
from aligntool.linux.device_numbers import sysfs_folder
from aligntool.linux.lock import inhibit_sleep, lock_against_udev, open_exclusively, wait_for_udev
from aligntool.linux.programs import ProgramResult, export_values, run_program
from aligntool.linux.signals import STOPPING
from aligntool.linux.sysfs import live_paths
from aligntool.measure.fio import ENGINE, Job, Pattern, Side, fill_job, run_job
from aligntool.measure.run import Cell, Runs, SweepProgress
from aligntool.raid import measured
from aligntool.raid.commands import make_array, tuning_command
from aligntool.raid.levels import LEVELS, copies_of
from aligntool.raid.members import METADATA
from aligntool.raid.planning import Decided, decide_raid
from aligntool.steps import MakeArray, Subject, subject
from aligntool.units import MIB, Extent, align_down, align_up, format_size

# Create, find and remove test arrays. Superblocks are zeroed here, only those with the name and UUID of a
# test array.

_TIMEOUT_S = 20.0
_RETRY_S = 0.2


@contextmanager
def defer_signals() -> Iterator[None]:
    """Defer signals while a test array is removed; a Ctrl-C meanwhile takes effect afterwards.

    Handlers, not a mask: a mask belongs to one thread, and the kernel would deliver the signal to the thread
    that draws the progress bar.
    """
    deferred: list[int] = []
    handlers = {}
    try:
        for number in STOPPING:
            handlers[number] = signal.signal(number, lambda received, frame: deferred.append(received))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if deferred:
            signal.raise_signal(deferred[0])


def make_tuning_array(step: MakeArray) -> str:
    """Create the array and return its node; only an array with the step's UUID is ever returned. Raises
    Stopped.
    """
    ended = run_program(*tuning_command(step))
    if ended.code:
        raise Stopped(f"mdadm created no array: {ended.output_tail}", hint="")
    wait_for_udev()
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        found = [node for node, values in running_arrays() if values.get("MD_UUID") == step.uuid]
        if len(found) == 1 and Path(found[0]).is_block_device():
            return found[0]
        if time.monotonic() > deadline:
            why = f"mdadm created {step.device}, but no array with UUID {step.uuid} is running"
            raise Stopped(why, hint=clear_hint(step.members))
        time.sleep(_RETRY_S)


def running_arrays() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the node of every array of the kernel, started or not, with its properties from mdadm."""
    for folder in live_paths(Path("/sys/block"), "md*/md"):
        node = f"/dev/{folder.parent.name}"
        if Path(node).is_block_device():
            yield node, export_values(run_program("mdadm", "--detail", "--export", node).output)


def is_test_array(values: dict[str, str]) -> bool:
    """Return whether both name and UUID, from `mdadm --examine --export` or `--detail --export`, are a test
    array's.
    """
    name = values.get("MD_NAME", "").rpartition(":")[2]
    return name == measured.TEST_NAME and values.get("MD_UUID", "").startswith(measured.TEST_UUID)


def examine(device: str) -> dict[str, str]:
    """Return the properties of the md superblock on a device; empty if there is none."""
    return export_values(run_program("mdadm", "--examine", "--export", device).output)


def remove_test_arrays(members: Sequence[str]) -> None:
    """Stop the test arrays on these members and zero their superblocks. Other arrays are left alone.

    Raises Stopped with what is left.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        left = _remove_once(members)
        if not left:
            return
        if time.monotonic() > deadline:
            raise Stopped(f"a test array remains: {'; '.join(left)}", hint=clear_hint(members))
        time.sleep(_RETRY_S)


def _remove_once(members: Sequence[str]) -> list[str]:
    """Try to stop the test arrays and to zero their superblocks once. Return what is left, with mdadm's
    messages.
    """
    left = [f"{node}: {ended.output_tail}" for node, ended in _stop_test_arrays(members) if ended.code]
    for device in members:
        if not is_test_array(examine(device)):
            continue
        ended = run_program("mdadm", "--zero-superblock", device)
        if ended.code or is_test_array(examine(device)):
            left.append(f"{device}: {ended.output_tail}")
    return left


def _stop_test_arrays(members: Sequence[str]) -> Iterator[tuple[str, ProgramResult]]:
    """Stop each test array on one of the members; yield its node and how mdadm ended."""
    holders = {holder for device in members for holder in _holders(device)}
    for node, values in running_arrays():
        if Path(node).name in holders and is_test_array(values):
            yield node, run_program("mdadm", "--stop", node)


def _holders(device: str) -> list[str]:
    """Return the names of the devices on top; empty for a member that is gone: an array is found by the
    others.
    """
    try:
        folder = sysfs_folder(Path(device).stat().st_rdev) / "holders"
        return [path.name for path in live_paths(folder, "*")]
    except OSError:
        return []


def clear_hint(members: Sequence[str]) -> str:
    return typed("aligntool raid tune --clear", *members)


# Plan a sweep over chunks: which test arrays are created on which members, and the loads on each.
#
# The members are used as they are, whole drives or partitions, without a table: the data begin at the same
# bytes of the drive as in a permanent array, and only the md superblock has to be removed afterwards.

FILL_RATE = 500 * MIB  # bytes a second of each member, for the estimate of the time only
MAKING_S = 4.0  # to create an array, find it and remove it
LONGEST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """The plan of a sweep. Sizes in bytes, times in seconds."""

    level: str
    layout: str
    bitmap: str
    workload: str
    database_page: int
    recommended: int
    chunks: tuple[int, ...]
    order: tuple[tuple[int, int], ...]  # (round, chunk)
    arrays: Mapping[int, MakeArray]  # by chunk
    loads: tuple[measured.Load, ...]
    alone: tuple[measured.Load, ...]  # that each drive runs by itself
    members: tuple[str, ...]  # device nodes
    disks: tuple[Subject, ...]
    identities: tuple[measured.Identity, ...]
    data_offset: int
    span: int  # of the array
    each_span: int  # of a member
    written: tuple[Extent, ...]  # of every member, from its own start
    runtime_s: float
    unread: tuple[str, ...] = ()  # what was not read of members that seem to be empty, a sentence each
    sparse: bool = False  # so little was read of a member that the user has to confirm its name

    @property
    def uuid(self) -> str:
        return self.arrays[self.recommended].uuid

    @property
    def seconds(self) -> float:
        """The estimated duration."""
        fill = self.each_span / FILL_RATE
        arrays = len(self.order) * (len(self.loads) * self.ramped_s + fill + MAKING_S)
        return arrays + len(self.members) * (len(self.alone) * self.ramped_s + fill)

    @property
    def ramped_s(self) -> float:
        return ramped(self.runtime_s)


def plan_sweep(
    members: Sequence[Judged],
    goal: RaidGoal,
    *,
    chunks: Sequence[int] = (),
    repeats: int,
    runtime_s: float,
    span: int = 0,
) -> Sweep:
    """Return the plan of a sweep. Only level, workload, layout, bitmap and partitions of `goal` are used.
    Raises Refused with every reason.
    """
    if not LEVELS[goal.level].striped:
        raise Refused(f"{LEVELS[goal.level].title} has no chunk to measure")
    if repeats < 1 or not 0 < runtime_s <= LONGEST_S:
        raise Refused(
            "at least one round is needed, and loads of at most an hour", hint="--repeats 5 --runtime 5"
        )
    wanted = replace(
        goal,
        name=measured.TEST_NAME,
        filesystem="none",
        mount_at="",
        metadata="1.2",
        wipe=(),
        chunk=None,
        measured="",
        members="partitions" if any(goal.partitions) else "whole-drives",
        esp_size=0,
        member_size=None,
    )
    decided = _decide(members, wanted)
    tried = measured.sweep_chunks(decided.stripes, chunks)
    # The largest chunk first: a reason to refuse an array of one chunk refuses the sweep.
    made = {chunk: _decide(members, replace(wanted, chunk=chunk)) for chunk in reversed(tried)}
    geometry = decided.geometry
    devices = tuple(placed.device for placed in decided.placed)
    room = measured.span_of(min(array.geometry.size for array in made.values()), geometry.data, span)
    if room < MIB:
        raise Refused("the members are too small to measure", hint="--span 64MiB, or larger drives")
    each_span, length = _member_spans(decided, room, max(tried))
    return Sweep(
        level=goal.level,
        layout=geometry.layout,
        bitmap=geometry.bitmap,
        workload=goal.workload,
        database_page=goal.database_page,
        recommended=decided.advice.size or 0,
        chunks=tried,
        order=measured.sweep_order(tried, repeats),
        arrays={chunk: make_array(made[chunk].goal, made[chunk].geometry, devices) for chunk in tried},
        loads=measured.loads_of(goal.workload, goal.database_page),
        alone=measured.DRIVE_LOADS,
        members=devices,
        disks=tuple(subject(placed.member.disk) for placed in decided.placed),
        identities=tuple(measured.identity_of(placed.member.disk) for placed in decided.placed),
        runtime_s=runtime_s,
        data_offset=geometry.offset,
        span=room,
        each_span=each_span,
        written=_written_extents(tuple(made.values()), length),
        unread=tuple(
            f"{placed.device}: {unread}"
            for placed in decided.placed
            if (unread := unread_between(placed.member.disk))
        ),
        sparse=any(judged.disk.sampled and judged.disk.sampled.is_sparse for judged in members),
    )


def _decide(members: Sequence[Judged], goal: RaidGoal) -> Decided:
    """Decide an array as `decide_raid` does, without its hints about --wipe, because a sweep wipes
    nothing.
    """
    try:
        return decide_raid(members, goal)
    except Refused as error:
        hints = [line for line in error.hint.split("\n") if line and "--wipe" not in line]
        if any(refusal.code == "not-empty" for refusal in error.refusals):
            hints.append(
                "only empty drives or partitions are measured: wipefs --no-act DEVICE shows their signatures"
            )
        error.hint = "\n".join(hints)
        raise


def _member_spans(array: Decided, room: int, chunk: int) -> tuple[int, int]:
    """Return the length of the part of a member that holds `room` bytes of the array, and what arrays with
    chunks of up to this size write there. The part has all copies in it, except those of the far layout.
    """
    geometry = array.geometry
    count = len(array.placed)
    copies = 1 if geometry.layout.startswith("f") else copies_of(geometry.level, count, geometry.layout)
    each = align_up(room * copies // (count - geometry.level.parity), MIB)
    return min(each, geometry.each), min(each + copies * chunk, geometry.each)


def _written_extents(arrays: Sequence[Decided], length: int) -> tuple[Extent, ...]:
    """Return where the loads write on a member: `length` bytes from the start of the data, with the other
    copies of the near and offset layouts among them. The far layout has its other copies in other parts of it
    (md(4)), which begin at a multiple of the chunk (raid10.c, calc_sectors), so not at the same byte in every
    array.
    """
    geometry = arrays[0].geometry
    if not geometry.layout.startswith("f"):
        return (Extent(geometry.offset, length),)
    copies = copies_of(geometry.level, len(arrays[0].placed), geometry.layout)
    strides = [align_down(array.geometry.each // copies, array.geometry.chunk or 1) for array in arrays]
    first = min(strides)
    last = max(strides)
    length = min(length, *strides)
    return tuple(
        Extent(geometry.offset + first * number, (last - first) * number + length) for number in range(copies)
    )


# Run a sweep: every test array is created, filled, measured and removed. However the sweep ends, the members
# are as empty as before.

_INTERRUPTED = ("interrupted", "")


class SweepRun:
    """A running sweep, with what it has measured so far."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._samples: list[measured.Sample] = []
        self._alone: dict[tuple[str, bool], int] = {}  # (member, write): bytes per second
        self._fio = ""
        self.wrote = False  # the data on the members are lost
        self._runs: Runs | None = None

    def run(self, tell: SweepProgress, look_again: Callable[[], None]) -> None:
        """Measure everything. If Ctrl-C or an error ends it early, it cleans up first. `look_again` is called
        as soon as no other program can open the members; it raises Refused if they have changed.

        Raises Refused or KeyboardInterrupt before the first write, Stopped after it.
        """
        sweep = self._sweep
        disks = [disk.path for disk in sweep.disks]
        with (
            inhibit_sleep("measuring chunks of an array"),
            lock_against_udev(disks),
            ExitStack() as exclusive,
        ):
            exclusive.enter_context(open_exclusively(sweep.members))
            look_again()
            for device in sweep.members:
                values = examine(device)
                if values:
                    text = (
                        f"{device} has become a member of the array"
                        f" {values.get('MD_UUID', 'of unknown UUID')}"
                    )
                    raise Refused(text)
            count = len(sweep.members) * len(sweep.alone) + len(sweep.order) * len(sweep.loads)
            runs = self._runs = Runs(count, tell, expected_s=sweep.seconds)
            self.wrote = True
            with _members_emptied_afterwards(sweep):
                with exclusive:  # released here: mdadm and blkdiscard open the members exclusively
                    for run in runs.measure(_member_cells(sweep, runs)):
                        self._alone[run.key] = rate_of(run.side)
                        self._fio = run.measured.fio_version
                for array_run in runs.measure(_array_cells(sweep, runs)):
                    rates = (rate_of(array_run.measured.read), rate_of(array_run.measured.write))
                    self._samples.append(
                        measured.Sample(*array_run.key, *rates, array_run.measured.thread_cpu)
                    )

    @property
    def complete(self) -> bool:
        """Whether every load of every round was measured."""
        return self._runs is not None and self._runs.complete

    def tuning(self, *, complete: bool) -> measured.Tuning:
        """Return what was measured, as the value to save."""
        sweep = self._sweep
        members = tuple(
            replace(identity, read=self._alone.get((device, False)), write=self._alone.get((device, True)))
            for identity, device in zip(sweep.identities, sweep.members, strict=True)
        )
        conditions = (("aligntool", __version__), ("kernel", os.uname().release), ("fio", self._fio))
        return measured.Tuning(
            sweep.level,
            sweep.layout,
            sweep.workload,
            sweep.database_page,
            sweep.bitmap,
            members,
            sweep.span,
            sweep.runtime_s,
            complete,
            conditions,
            tuple(self._samples),
        )


def _member_cells(sweep: Sweep, runs: Runs) -> Iterator[Cell[tuple[str, bool]]]:
    """Yield the runs on each member alone, after filling it: a drive answers reads of unwritten blocks
    without an access to its medium.
    """
    for device in sweep.members:
        runs.say(f"{device} alone: filled")
        run_job(fill_job(device, sweep.each_span, offset=sweep.data_offset))
        for load in sweep.alone:
            job = replace(job_of(load, device, sweep.each_span, sweep.runtime_s), offset=sweep.data_offset)
            yield Cell((device, job.writes), f"{device} alone: {load.name}", job)


def _array_cells(sweep: Sweep, runs: Runs) -> Iterator[Cell[tuple[int, int, str]]]:
    for number, chunk in sweep.order:
        words = f"round {number + 1}, chunk {format_size(chunk)}"
        runs.say(f"{words}: created and filled")
        array = make_tuning_array(sweep.arrays[chunk])
        run_job(fill_job(array, sweep.span))
        for load in sweep.loads:
            job = job_of(load, array, sweep.span, sweep.runtime_s)
            yield Cell((number, chunk, load.name), f"{words}: {load.name}", job)
        with defer_signals():
            remove_test_arrays(sweep.members)


def ramped(runtime_s: float) -> float:
    """Return how long a load runs with the time before it is measured."""
    return runtime_s + min(1.0, runtime_s / 5)


def job_of(load: measured.Load, device: str, span: int, runtime_s: float) -> Job:
    """Return the fio job of a load on a device, over `span` bytes from its start."""
    return Job(
        name="aligntool-tune",
        path=device,
        pattern=Pattern(load.pattern),
        block=load.block,
        span=span,
        depth=load.depth,
        threads=load.threads,
        runtime_s=runtime_s,
        ramp_s=0.0 if load.cached else ramped(runtime_s) - runtime_s,
        read_share=load.read_share,
        sync_every=load.sync_every,
        direct=not load.cached,
        engine="psync" if load.cached else ENGINE,
        once=load.cached,
    )


def rate_of(side: Side | None) -> int:
    return side.bytes_per_s if side else 0


@contextmanager
def _members_emptied_afterwards(sweep: Sweep) -> Iterator[None]:
    """Remove all test arrays and empty every member afterwards, as far as possible, however the block ends.
    Raises Stopped with what ended it early, and with what is left to do.
    """
    failures: list[tuple[str, str]] = []
    try:
        yield
    except KeyboardInterrupt:
        failures.append(_INTERRUPTED)
    except (Refused, Stopped, OSError) as error:
        failures.append(_reason(error))
    finally:
        done = False
        while not done:
            try:
                with defer_signals():
                    failures += _attempt(partial(remove_test_arrays, sweep.members))
                    for device in sweep.members:
                        failures += _attempt(partial(_empty, device, sweep))
                    done = True
            except KeyboardInterrupt:  # another one, during the cleanup or just before it
                failures.append(_INTERRUPTED)
    if failures:
        hints = dict.fromkeys(line for _, hint in failures for line in hint.split("\n") if line)
        raise Stopped("; ".join(dict.fromkeys(why for why, _ in failures)), hint="\n".join(hints))


def _attempt(undo: Callable[[], None]) -> list[tuple[str, str]]:
    """Call `undo` and return its failure, if any, so that the rest of the cleanup still runs."""
    try:
        undo()
    except (Refused, Stopped, OSError) as error:
        return [_reason(error)]
    return []


def _reason(error: Refused | Stopped | OSError) -> tuple[str, str]:
    if isinstance(error, OSError):
        return (f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)), ""
    return str(error), error.hint


def _empty(device: str, sweep: Sweep) -> None:
    """Discard what the sweep wrote to a member, so that it is as empty as before. Extents that still have
    data after the discard are zeroed; so is the space of the metadata, because a bitmap remains when its
    superblock is removed. Raises Stopped.
    """
    ended = [_discard(device, Extent(0, METADATA), "--zeroout")]
    for extent in sweep.written:
        found = None if _discard(device, extent).code else sample(device, extent)
        if found is None or found.written or found.unreadable:
            ended.append(_discard(device, extent, "--zeroout"))
    failed = next((program for program in ended if program.code), None)
    if failed:
        hint = f"{clear_hint([device])}\n{by_hand(ByHand.EMPTYING, 'blkdiscard', shell_word(device))}"
        raise Stopped(
            f"{device} was not emptied ({failed.output_tail}), and may hold a test array", hint=hint
        )


def _discard(device: str, extent: Extent, *options: str) -> ProgramResult:
    return run_program(
        "blkdiscard", *options, "--offset", str(extent.start), "--length", str(extent.length), device
    )
