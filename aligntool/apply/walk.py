"""The walk along a plan's steps, forwards and backwards, each step recorded in the journal.

In: the journal, with everything it remembers. Out: events. Alone because here the rules of the record stand together:

- forwards, a step is done from the position that names it, and the next position is recorded when it is durable;
- backwards, the position that names a step is recorded before the step is undone, so that whoever turns round does it
  again from the beginning; only copies are exact, because a batch that is half undone still stands at its new place.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol, assert_never

from aligntool.apply.boot_fields import patched
from aligntool.apply.copier import Places, bytes_arriving, copy_batches
from aligntool.apply.device import Device
from aligntool.apply.held import check_untouched, clear_free, mark, release, take_away
from aligntool.apply.journal import Journal
from aligntool.apply.journal_sectors import Position
from aligntool.apply.partition_tables import TableState
from aligntool.apply.standing import index_of
from aligntool.apply.table_writer import write_table
from aligntool.apply.veil import View
from aligntool.plan import (
    CheckContent,
    CloseJournal,
    CopyContent,
    EditFile,
    Event,
    HoldContent,
    JournalPlace,
    KernelBehind,
    MakeArray,
    MakeFileSystem,
    MakeMember,
    MakeTable,
    ParkEntries,
    Plan,
    Progress,
    ReleaseContent,
    RewriteTable,
    RunCommand,
    ShrinkContent,
    Step,
    StepBegun,
    StepDone,
    WriteFile,
    WriteJournal,
)
from aligntool.plan.lanes import Schedule
from aligntool.units import Extent


class Kernel(Protocol):
    """The running kernel's own list of partitions; nothing for an image file."""

    def forget(self, numbers: tuple[int, ...]) -> None: ...

    def tell(self, partitions: tuple[tuple[int, Extent], ...]) -> None: ...


@dataclass(frozen=True, slots=True)
class Walk:
    device: Device
    journal_on: Device
    kernel: Kernel
    journal: Journal
    place: JournalPlace
    sign: bytes  # the marker

    @property
    def plan(self) -> Plan:
        return self.journal.contents.plan

    def forward(self) -> Iterator[Event]:
        """From the journal's position to the end."""
        position = self.journal.position
        self.kernel.forget(self._moving())
        for index in range(position.step, len(self.plan.steps)):
            yield StepBegun(index)
            first = position.batch if index == position.step else 0
            yield from self._do(index, self.plan.steps[index], first)
            yield StepDone(index)

    def back(self) -> Iterator[Event]:
        """From the journal's position to the beginning."""
        position = self.journal.position
        self.kernel.forget(self._moving())
        for index in range(position.step, index_of(self.plan, ParkEntries) - 1, -1):
            yield StepBegun(index)
            step = self.plan.steps[index]
            if isinstance(step, CopyContent):
                done = position.batch if index == position.step else None
                yield from self._uncopy(index, step, done)
            else:
                self.journal.record(Position(index, 0, forward=False))
                self._undo(step)
            yield StepDone(index)
        self.close()
        yield from self._tell_kernel(before=True)

    def close(self) -> None:
        self.journal.close()

    def _do(self, index: int, step: Step, first_batch: int) -> Iterator[Event]:
        contents = self.journal.contents
        match step:
            case ParkEntries():
                write_table(self.device, contents.images, TableState.PARKED)
            case HoldContent():
                if self.journal.position.forward:  # what was being put back may be half there
                    found = contents.held[step.partition]
                    check_untouched(self.device, step.source.start, step.held, found, self.sign)
                self._clear_target(step)
                mark(self.device, step.source.start, *self._at_source(step))
            case CopyContent():
                yield from self._copy(index, step, first_batch)
            case ReleaseContent():
                release(self.device, step.target.start, *self._at_target(step))
            case RewriteTable():
                write_table(self.device, contents.images, TableState.AFTER)
            case CloseJournal():
                self.close()
                yield from self._tell_kernel(before=False)
                return
            case CheckContent() | ShrinkContent() | WriteJournal() | MakeTable():
                raise ValueError(f"{type(step).__name__} does not come after the journal")
            case MakeMember() | MakeArray() | MakeFileSystem() | EditFile() | WriteFile() | RunCommand():
                raise ValueError(
                    f"{type(step).__name__} belongs to an array, which needs no journal of a move"
                )
            case _:
                assert_never(step)
        self.journal.record(Position(index + 1))

    def _undo(self, step: Step) -> None:
        contents = self.journal.contents
        match step:
            case ParkEntries():
                write_table(self.device, contents.images, TableState.BEFORE)
            case HoldContent():
                release(self.device, step.source.start, *self._at_source(step))
            case ReleaseContent():
                take_away(self.device, step.target.start, *self._at_target(step))
            case RewriteTable():
                write_table(self.device, contents.images, TableState.PARKED)
            case CloseJournal():
                pass
            case CheckContent() | ShrinkContent() | WriteJournal() | MakeTable() | CopyContent():
                raise ValueError(f"{type(step).__name__} is not undone here")
            case MakeMember() | MakeArray() | MakeFileSystem() | EditFile() | WriteFile() | RunCommand():
                raise ValueError(
                    f"{type(step).__name__} belongs to an array, which needs no journal of a move"
                )
            case _:
                assert_never(step)

    def _copy(self, index: int, step: CopyContent, first: int) -> Iterator[Event]:
        done, total = progress(self.journal)
        batches = islice(self._schedule(step).batches(), first, None)
        work = ((Position(index, number), batch) for number, batch in enumerate(batches, first + 1))
        for batch in copy_batches(self._places(step), work, self.journal.record):
            done += bytes_arriving(batch)
            yield Progress(index, done, total)

    def _uncopy(self, index: int, step: CopyContent, done: int | None) -> Iterator[Event]:
        """`done` batches of it were done; None: all."""
        schedule = self._schedule(step)
        if done is None:
            done = sum(1 for _ in schedule.batches())
        left, total = 0, progress(self.journal)[1]
        work = ((Position(index, number, forward=False), batch) for number, batch in schedule.backwards(done))
        for batch in copy_batches(self._places(step), work, self.journal.record, back=True):
            left += bytes_arriving(batch)
            yield Progress(index, left, total)

    def _schedule(self, step: CopyContent) -> Schedule:
        return schedule_of(self.journal, step)

    def _places(self, step: CopyContent) -> Places:
        stash = self.place.extent.start + self.place.stash.start
        return Places(self.device, step.source.start, step.target.start, self.journal_on, stash)

    def _at_source(self, step: HoldContent) -> tuple[View, View]:
        """What is held, as it is seen from the old place and from the new one."""
        view = View(step.held, self.journal.contents.held[step.partition], step.source.length, self.sign)
        return view, replace(view, base=self._ends(step.partition)[1].start - step.source.start)

    def _at_target(self, step: ReleaseContent) -> tuple[View, View]:
        content = patched(step.held, self.journal.contents.held[step.partition], step.patches)
        view = View(step.held, content, step.target.length, self.sign)
        return view, replace(view, base=self._ends(step.partition)[0].start - step.target.start)

    def _clear_target(self, step: HoldContent) -> None:
        """Where the new place is free: what lies in the way there belongs to somebody, and goes when that goes."""
        images = self.journal.contents.images
        occupied = [place.before for place in self.plan.places if place.before]
        occupied += [
            Extent(sectors.at, len(sectors.data))
            for writing in (images.before, images.parked, images.after)
            for group in writing
            for sectors in group
        ]
        if self.place.file is None:
            occupied.append(self.place.extent)
        clear_free(self.device, self._ends(step.partition)[1].start, self._at_source(step)[0], occupied)

    def _ends(self, partition: int) -> tuple[Extent, Extent]:
        return next(
            (step.source, step.target)
            for step in self.plan.steps
            if isinstance(step, CopyContent) and step.partition == partition
        )

    def _moving(self) -> tuple[int, ...]:
        return next(step.partitions for step in self.plan.steps if isinstance(step, ParkEntries))

    def _tell_kernel(self, *, before: bool) -> Iterator[Event]:
        """The disk is done and its journal closed; a kernel that does not take it over is no reason to stop."""
        try:
            self.kernel.tell(self._entries(before=before))
        except OSError as error:
            yield KernelBehind(
                f"the disk is done; only the running kernel does not show its partitions yet: {error.strerror}"
            )

    def _entries(self, *, before: bool) -> tuple[tuple[int, Extent], ...]:
        """Of partitions that moved. A container is left out: the kernel shows its first sectors, which stay."""
        moving = self._moving()
        rewrite = next(step for step in self.plan.steps if isinstance(step, RewriteTable))
        return tuple(
            (change.number, change.before if before else change.after)
            for change in rewrite.changes
            if change.number in moving
        )


def schedule_of(journal: Journal, step: CopyContent) -> Schedule:
    return Schedule(journal.contents.runs[step.partition], step.target.start - step.source.start, step.lanes)


def progress(journal: Journal) -> tuple[int, int]:
    """Bytes at their new place, and bytes in all."""
    done = total = 0
    for index, step in enumerate(journal.contents.plan.steps):
        if not isinstance(step, CopyContent):
            continue
        schedule = schedule_of(journal, step)
        total += schedule.total
        if index < journal.position.step:
            done += schedule.total
        elif index == journal.position.step:
            done += sum(map(bytes_arriving, islice(schedule.batches(), journal.position.batch)))
    return done, total
