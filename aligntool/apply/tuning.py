"""Running a sweep: every test array made, filled, measured, and taken away again.

In: a Sweep. Out: figures, one after the other; the members as empty as they were, however it ends. Alone because it is
where a sweep writes.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from aligntool import __version__
from aligntool.apply.arrays.running import Said, ask
from aligntool.apply.awake import awake
from aligntool.apply.fio import run_job
from aligntool.apply.tuning_array import alone, examine, locked, make_array, take_away, undisturbed
from aligntool.audit.words import shell_word
from aligntool.bench import Job, Measured, Pattern
from aligntool.bench.jobs import fill_job
from aligntool.errors import Objection, Refused, Stopped
from aligntool.raid.placing import METADATA
from aligntool.raid.tuning import Sample, Tuning
from aligntool.raid.tuning_shapes import Shape
from aligntool.raid.tuning_sweep import Sweep
from aligntool.units import KIB, Extent, format_size

_LOOKS = 64
_LOOK = 4 * KIB
_INTERRUPTED: Objection = ("interrupted", "")
Tell = Callable[[str, float, float | None], None]
"""Told what is being done, the share that is behind it, and the seconds that are left."""


class Measuring:
    """A sweep while it runs, and what it found so far."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._samples: list[Sample] = []
        self._read: dict[str, int] = {}  # what each member did alone, bytes per second
        self._written: dict[str, int] = {}
        self._fio = ""
        self.wrote = False  # the members are given up
        self._done = 0
        self._loads = len(sweep.members) * len(sweep.alone) + len(sweep.order) * len(sweep.shapes)
        self._began = time.monotonic()

    def run(self, tell: Tell, look_again: Callable[[], None]) -> None:
        """To its end. Ended early, by Ctrl-C or an error, it cleans up first. `look_again` is called once nobody else
        can take the members any more; it raises Refused where they are not as they were.

        Raises Refused or KeyboardInterrupt before the first write, Stopped after it.
        """
        sweep = self._sweep
        disks = [disk.path for disk in sweep.disks]
        with awake("measuring chunks of an array"), locked(disks), ExitStack() as held:
            held.enter_context(alone(sweep.members))
            look_again()
            for device in sweep.members:
                if values := examine(device):
                    raise Refused(
                        f"{device} has become a member of the array {values.get('MD_UUID', 'of another')}"
                    )
            self._began = time.monotonic()
            self.wrote = True
            with _given_back(sweep):
                with held:  # mdadm and blkdiscard want the members for themselves
                    self._measure_members(tell)
                self._measure_arrays(tell)

    @property
    def complete(self) -> bool:
        """Every load of every round was measured."""
        return self._done == self._loads

    def tuning(self, *, complete: bool) -> Tuning:
        """What was measured, as it is kept."""
        sweep = self._sweep
        members = tuple(
            replace(identity, read=self._read.get(device), write=self._written.get(device))
            for identity, device in zip(sweep.identities, sweep.members, strict=True)
        )
        conditions = (("aligntool", __version__), ("kernel", os.uname().release), ("fio", self._fio))
        return Tuning(
            sweep.level, sweep.layout, sweep.workload, sweep.database_page, sweep.bitmap, members, sweep.span,
            sweep.runtime_s, complete, conditions, tuple(self._samples),
        )  # fmt: skip

    def _measure_members(self, tell: Tell) -> None:
        """Once over each first: a drive answers reads of what was never written without looking."""
        sweep = self._sweep
        for device in sweep.members:
            self._say(tell, f"{device} alone: filled")
            run_job(fill_job(device, sweep.each_span, offset=sweep.data_offset))
            for shape in sweep.alone:
                self._say(tell, f"{device} alone: {shape.name}")
                job = replace(job_of(shape, device, sweep.each_span, sweep), offset=sweep.data_offset)
                found = run_job(job)
                (self._written if job.writes else self._read)[device] = _rate(found, write=job.writes)
                self._fio = found.fio_version
                self._done += 1

    def _measure_arrays(self, tell: Tell) -> None:
        sweep = self._sweep
        for number, chunk in sweep.order:
            words = f"round {number + 1}, chunk {format_size(chunk)}"
            self._say(tell, f"{words}: made and filled")
            array = make_array(sweep.arrays[chunk])
            run_job(fill_job(array, sweep.span))
            for shape in sweep.shapes:
                self._say(tell, f"{words}: {shape.name}")
                found = run_job(job_of(shape, array, sweep.span, sweep))
                read, write = _rate(found, write=False), _rate(found, write=True)
                self._samples.append(Sample(number, chunk, shape.name, read, write, found.thread_cpu))
                self._done += 1
            with undisturbed():
                take_away(sweep.members)

    def _say(self, tell: Tell, words: str) -> None:
        sweep = self._sweep
        passed = time.monotonic() - self._began
        left = passed / self._done * (self._loads - self._done) if self._done else sweep.seconds
        tell(words, self._done / self._loads, left)


def job_of(shape: Shape, device: str, span: int, sweep: Sweep) -> Job:
    """A load as fio is to make it on this device, over `span` bytes from its start."""
    return Job(
        name="aligntool-tune", path=device, pattern=Pattern(shape.pattern), block=shape.block, span=span,
        depth=shape.depth, threads=shape.threads, runtime_s=sweep.runtime_s, ramp_s=sweep.ramp_s,
        read_share=shape.read_share, sync_every=shape.sync_every,
    )  # fmt: skip


def _rate(found: Measured, *, write: bool) -> int:
    side = found.side(write=write)
    return side.bytes_per_s if side else 0


@contextmanager
def _given_back(sweep: Sweep) -> Iterator[None]:
    """However it ends, no test array is left and every member is emptied that can be. Raises Stopped with what ended it
    early, and with what is left to do.
    """
    found: list[Objection] = []
    try:
        yield
    except KeyboardInterrupt:
        found.append(_INTERRUPTED)
    except (Refused, Stopped, OSError) as error:
        found.append(_reason(error))
    finally:
        done = False
        while not done:
            try:
                with undisturbed():
                    found += _tried(partial(take_away, sweep.members))
                    for device in sweep.members:
                        found += _tried(partial(_empty, device, sweep))
                    done = True
            except KeyboardInterrupt:  # once more, while or just before it was cleaned up
                found.append(_INTERRUPTED)
    if found:
        hints = dict.fromkeys(line for _, hint in found for line in hint.split("\n") if line)
        raise Stopped("; ".join(dict.fromkeys(why for why, _ in found)), hint="\n".join(hints))


def _tried(undo: Callable[[], None]) -> list[Objection]:
    """What fails here is told, and keeps nothing else from being undone."""
    try:
        undo()
    except (Refused, Stopped, OSError) as error:
        return [_reason(error)]
    return []


def _reason(error: Refused | Stopped | OSError) -> Objection:
    if isinstance(error, OSError):
        return (f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)), ""
    return str(error), error.hint


def _empty(device: str, sweep: Sweep) -> None:
    """The drive may forget what was written to it, so that it is as empty as it was. What it does not forget by a
    discard is zeroed, and so is the room of the metadata: a bitmap stays when a superblock goes. Raises Stopped.
    """
    said = [_zero_out(device, Extent(0, METADATA))]
    said += [_zero_out(device, extent) for extent in sweep.written if not _forgets(device, extent)]
    failed = next((each for each in said if each.code), None)
    if failed:
        name = shell_word(device)
        raise Stopped(
            f"{device} is not empty again ({failed.last_words}), and may hold a test array",
            hint=f"sudo aligntool raid tune --clear {name}\nsudo blkdiscard --zeroout {name}",
        )


def _forgets(device: str, extent: Extent) -> bool:
    place = ("--offset", str(extent.start), "--length", str(extent.length))
    return not ask("blkdiscard", *place, device).code and _is_blank(device, extent)


def _zero_out(device: str, extent: Extent) -> Said:
    return ask(
        "blkdiscard", "--zeroout", "--offset", str(extent.start), "--length", str(extent.length), device
    )


def _is_blank(device: str, extent: Extent) -> bool:
    """By a few looks, past the page cache of whoever looked before. What cannot be read is not."""
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.posix_fadvise(descriptor, extent.start, extent.length, os.POSIX_FADV_DONTNEED)
        steps = range(extent.start, extent.end - _LOOK + 1, max(extent.length // _LOOKS, _LOOK))
        return not any(any(os.pread(descriptor, _LOOK, at)) for at in steps)
    except OSError:
        return False
    finally:
        os.close(descriptor)
