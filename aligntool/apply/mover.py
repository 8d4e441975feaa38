"""A plan to move partitions, acted out: first run, resume and rollback are one walk along the plan's steps.

In: a plan, a disk, the runs in use. Out: events, and a disk in its new state. Alone because the order of what is
written is the promise: docs/crash-safety.md says why a cut between any two writes loses nothing.

Every `yield` is a place where the work may stop: whoever stops listening has only cut the power.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aligntool.apply import recovery
from aligntool.apply.boot_fields import patched
from aligntool.apply.device import Device
from aligntool.apply.held import marker, read_held
from aligntool.apply.journal import Journal, new_id
from aligntool.apply.journal_body import Contents, pack
from aligntool.apply.journal_sectors import BODY_AT, Position
from aligntool.apply.partition_tables import TableState, table_images, table_state
from aligntool.apply.partition_tables.leftovers import leftovers, protective
from aligntool.apply.recovery import CHANGED_TABLE, Status, find_journal
from aligntool.apply.standing import Standing, index_of, is_complete, place_of, standing
from aligntool.apply.table_writer import write_table
from aligntool.apply.walk import Kernel, Walk
from aligntool.errors import Refused, Stopped
from aligntool.plan import (
    CopyContent,
    Event,
    HoldContent,
    ParkEntries,
    Plan,
    ReleaseContent,
    RewriteTable,
    Said,
    StepBegun,
    StepDone,
    WriteJournal,
)
from aligntool.units import KIB, Extent

_GAPS = (0, *(64 * KIB << step for step in range(0, 40, 4)))  # between used blocks
RESUME = "aligntool resume DISK; or aligntool rollback DISK, which takes everything back"


@dataclass(frozen=True, slots=True)
class Workshop:
    """What the mover works on. `journal`: the file on another disk, where it does not lie on this one."""

    device: Device
    kernel: Kernel
    journal: Device | None = None

    @property
    def journal_on(self) -> Device:
        return self.journal or self.device


def realign(plan: Plan, workshop: Workshop, runs: Mapping[int, tuple[Extent, ...]]) -> Iterator[Event]:
    """Do the plan's steps from WriteJournal on; those before it are the caller's.

    `runs`: what each partition uses, counted from its start; the planner's CopyContent steps say for which partitions
    they are needed. Raises Refused while nothing of the partitions was touched, Stopped after that.
    """
    place = place_of(plan)
    id_ = new_id()
    at = None if place.file else place.extent.start
    index = index_of(plan, WriteJournal)
    try:
        contents = _contents(plan, workshop, runs, at, id_)
        yield StepBegun(index)
        first = Position(index_of(plan, ParkEntries))
        journal = Journal.create(workshop.journal_on, place, contents, id_, first)
    except OSError as error:
        raise Refused(f"{_sentence(error)}; no partition was touched") from error
    yield StepDone(index)
    yield from _acting(_walk(workshop, journal).forward())


def resume(workshop: Workshop, *, restore_table: bool = False) -> Iterator[Event]:
    """Go on from where the journal says, whoever began and wherever it stopped.

    `restore_table`: write the journal's table over one that another program changed.

    Raises Refused when nothing is in flight, or the journal cannot be had.
    """
    yield from _acting(_resumed(workshop, back=False, restore_table=restore_table))


def rollback(workshop: Workshop, *, restore_table: bool = False) -> Iterator[Event]:
    """Take back whatever was done. Raises Refused when nothing is in flight, and Stopped when the move is complete: it
    is put in order then, and its journal is closed.
    """
    yield from _acting(_resumed(workshop, back=True, restore_table=restore_table))


def status(workshop: Workshop) -> Status:
    """Raises Refused when something is in flight and its journal cannot be had."""
    return recovery.status(workshop.device, workshop.journal)


def _resumed(workshop: Workshop, *, back: bool, restore_table: bool) -> Iterator[Event]:
    device = workshop.device
    journal = find_journal(device, workshop.journal, any_table=restore_table)
    if journal is None:
        raise Refused(
            "nothing is in flight on this disk", hint="aligntool audit DISK shows where things stand"
        )
    walk, images, stands = _walk(workshop, journal), journal.contents.images, standing(device, journal)
    if stands is Standing.CHANGED and not restore_table:
        raise Refused(f"{CHANGED_TABLE}; nothing was written", hint=_restoring(back=back))
    for damage in journal.damage:
        yield Said(damage)
    complete = is_complete(journal) or stands in (Standing.COMPLETE, Standing.LEFT)
    match stands:
        case Standing.NOT_BEGUN:
            write_table(device, images, TableState.BEFORE)
            walk.close()
            yield Said("nothing was in flight: every partition is where it was, and whole")
            return
        case Standing.COMPLETE:
            write_table(device, images, TableState.AFTER, first=() if is_complete(journal) else None)
        case Standing.UNREADABLE | Standing.CHANGED:
            yield Said("the partition table is written anew from the journal")
            journal.restore()
            others = leftovers if stands is Standing.CHANGED else protective
            goal = TableState.AFTER if complete else TableState.PARKED
            write_table(device, images, goal, first=others(device, images))
        case Standing.IN_FLIGHT:
            journal.restore()
            if journal.position.step > index_of(journal.contents.plan, ParkEntries):
                write_table(device, images, TableState.PARKED)
    if complete and (back or stands is Standing.LEFT):
        walk.close()
        raise Stopped("the move is complete, and there is nothing to take back; what was left of it is closed" if back
                      else "the move is complete, and the partition table was changed since; it stays as it is",
                      hint="aligntool plan realign DISK shows where things stand")  # fmt: skip
    yield from walk.back() if back else walk.forward()


def _restoring(*, back: bool) -> str:
    return (
        f"aligntool {'rollback' if back else 'resume'} DISK --restore-table, which shows both tables and asks"
    )


def _walk(workshop: Workshop, journal: Journal) -> Walk:
    contents = journal.contents
    place = place_of(contents.plan)
    sign = marker(contents.plan.disk.sector_size, None if place.file else place.extent.start, journal.id)
    return Walk(workshop.device, workshop.journal_on, workshop.kernel, journal, place, sign)


def _contents(
    plan: Plan, workshop: Workshop, runs: Mapping[int, tuple[Extent, ...]], at: int | None, id_: bytes
) -> Contents:
    """Everything the journal has to remember, checked as far as it can be before the first write."""
    device = workshop.device
    park = next(step for step in plan.steps if isinstance(step, ParkEntries))
    rewrite = next(step for step in plan.steps if isinstance(step, RewriteTable))
    images = table_images(device, park, rewrite, journal_at=at, journal_id=id_)
    if table_state(device, images) is not TableState.BEFORE:
        raise Refused(
            "the partition table is not as it was when the plan was made", hint="make the plan anew"
        )
    held = {step.partition: read_held(device, step.source.start, step.held)
            for step in plan.steps if isinstance(step, HoldContent)}  # fmt: skip
    for step in plan.steps:
        if isinstance(step, ReleaseContent):
            patched(step.held, held[step.partition], step.patches)
    copies = [step for step in plan.steps if isinstance(step, CopyContent)]
    for gap in _GAPS:
        wanted = {step.partition: _without_held(_joined(runs[step.partition], gap), step) for step in copies}
        contents = Contents(plan, images, wanted, held)
        if BODY_AT + len(pack(contents)) <= place_of(plan).copy_length:
            break
    return contents


def _joined(runs: tuple[Extent, ...], gap: int) -> tuple[Extent, ...]:
    """Return the runs with every gap between them filled that is no longer: more to copy, and less to remember."""
    joined: list[Extent] = []
    for run in sorted(runs) if gap else runs:
        if gap and joined and run.start - joined[-1].end <= gap:
            start = joined.pop().start
            run = Extent(start, run.end - start)
        joined.append(run)
    return tuple(joined)


def _without_held(runs: tuple[Extent, ...], step: CopyContent) -> tuple[Extent, ...]:
    """The runs, less what the journal carries to the new place anyway."""
    left = []
    for run in runs:
        start = run.start
        for held in sorted(step.held.ranges):
            if held.start < run.end and held.end > start:
                if held.start > start:
                    left.append(Extent(start, held.start - start))
                start = held.end
        if start < run.end:
            left.append(Extent(start, min(run.end, step.source.length) - start))
    return tuple(left)


def _acting(events: Iterator[Event]) -> Iterator[Event]:
    """An error of the medium is told as a stop, with the way on."""
    try:
        yield from events
    except OSError as error:
        raise Stopped(f"{_sentence(error)}; the journal is kept", hint=RESUME) from error


def _sentence(error: OSError) -> str:
    return f"{error.filename or 'the disk'}: {error.strerror or error}"
