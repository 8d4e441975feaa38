"""A plan's steps in words: what each does, to which bytes.

In: one step. Out: a title, and the details under it. Alone because it is the one place that must know every kind of
step; mypy stops whoever adds one and forgets it here.
"""

from collections.abc import Iterator, Sequence
from typing import assert_never

from aligntool.plan import (
    CheckContent,
    CloseJournal,
    CopyContent,
    EditFile,
    EntryChange,
    Held,
    HoldContent,
    JournalPlace,
    MakeArray,
    MakeFileSystem,
    MakeMember,
    MakeTable,
    NewEntry,
    ParkEntries,
    Patch,
    ReleaseContent,
    RewriteTable,
    RunCommand,
    ShrinkContent,
    Step,
    WriteFile,
    WriteJournal,
)
from aligntool.render.array_steps import array_details, array_title
from aligntool.units import Extent, format_about, format_size

LABELS = {"gpt": "GPT", "dos": "MBR"}
_A = {"dos": "an"}


def span(extent: Extent) -> str:
    """A run of bytes: the first byte that is in, and the first that is not."""
    return f"{extent.start}..{extent.end}"


def size_words(size: int) -> str:
    """For reading, with the exact number beside it when that was rounded: 401.6MiB (421076992B)."""
    about = format_about(size)
    return about if about == format_size(size) else f"{about} ({size}B)"


def step_title(step: Step) -> str:
    """What it does, in a few words."""
    match step:
        case CheckContent():
            return f"check partition {step.partition} ({step.kind}), reading only"
        case ShrinkContent():
            return f"shrink {step.kind} on partition {step.partition} to {size_words(step.length)}"
        case WriteJournal():
            return "write the journal"
        case ParkEntries():
            return f"park {_partitions(step.parked)}: a type that nothing mounts"
        case HoldContent():
            return f"hide partition {step.partition}: its recognisable parts go into the journal"
        case CopyContent():
            return f"copy partition {step.partition}"
        case ReleaseContent():
            return f"put the recognisable parts of partition {step.partition} at the new place"
        case RewriteTable():
            return (
                f"write the {LABELS.get(step.label, step.label)} table: from here on the new places are true"
            )
        case CloseJournal():
            return "wipe the journal's head"
        case MakeTable():
            return f"make {_A.get(step.label, 'a')} {LABELS.get(step.label, step.label)} table"
        case MakeMember() | MakeArray() | MakeFileSystem() | EditFile() | WriteFile() | RunCommand():
            return array_title(step)
        case _:
            assert_never(step)


def step_details(step: Step, *, sector_size: int) -> Iterator[str]:
    """The bytes that it reads and writes, counted from the start of the disk."""
    match step:
        case CheckContent() | ShrinkContent() | HoldContent() | CopyContent() | ReleaseContent():
            yield from _content_details(step)
        case WriteJournal():
            yield from _journal(step.journal)
        case CloseJournal():
            yield f"bytes {_in_file(step.journal)}{span(step.journal.extent)} are free again"
        case ParkEntries() | RewriteTable() | MakeTable():
            yield from _table_details(step, sector_size)
        case MakeMember() | MakeArray() | MakeFileSystem() | EditFile() | WriteFile() | RunCommand():
            yield from array_details(step)
            if isinstance(step, MakeMember):
                yield from (_entry(entry, step.disk.sector_size) for entry in step.entries)
        case _:
            assert_never(step)


ContentStep = CheckContent | ShrinkContent | HoldContent | CopyContent | ReleaseContent
TableStep = ParkEntries | RewriteTable | MakeTable


def _content_details(step: ContentStep) -> Iterator[str]:
    match step:
        case CheckContent():
            yield f"bytes {span(step.extent)}"
        case ShrinkContent():
            yield f"bytes {span(step.extent)}; the last {size_words(step.extent.length - step.length)} become free"
            yield "by its own tool: a power cut while that runs is not covered by the journal"
        case HoldContent():
            yield from _held(step.held, step.source.start)
        case CopyContent():
            yield from _copy(step)
        case ReleaseContent():
            yield from _held(step.held, step.target.start)
            for patch in step.patches:
                yield _patch(patch, step.target.start)


def _table_details(step: TableStep, sector_size: int) -> Iterator[str]:
    match step:
        case ParkEntries():
            hidden = [number for number in step.partitions if number not in step.parked]
            if hidden:
                yield f"with it {_partitions(hidden)}, whose chain is then out of sight"
        case RewriteTable():
            for change in step.changes:
                yield from _change(change, sector_size)
        case MakeTable():
            if step.wipe:
                yield "signatures that lie on the disk are wiped first"
            for entry in step.entries:
                yield _entry(entry, sector_size)


def partition_of(step: Step) -> int | None:
    """The one partition that it is about."""
    match step:
        case CheckContent() | ShrinkContent() | HoldContent() | CopyContent() | ReleaseContent():
            return step.partition
        case _:
            return None


def distance_words(distance: int) -> str:
    """How far and where to: "up by 1016320B" is towards the end of the disk."""
    return f"{'up' if distance > 0 else 'down'} by {format_size(abs(distance))}"


def sector_words(start: int, sector_size: int) -> str:
    """A start in the sectors that a user counts in; "–" where it is no whole number of them."""
    return str(start // sector_size) if start % sector_size == 0 else "–"


def _journal(place: JournalPlace) -> Iterator[str]:
    start, length = place.extent.start, place.copy_length
    where = _in_file(place)
    yield f"bytes {where}{span(Extent(start, length))} and {span(Extent(start + length, length))}: the same twice"
    yield f"bytes {where}{span(place.stash.moved_to(start + place.stash.start))}: the stash"


def _in_file(place: JournalPlace) -> str:
    return f"of {place.file}, " if place.file else ""


def _held(held: Held, start: int) -> Iterator[str]:
    yield "bytes " + ", ".join(span(run.moved_to(start + run.start)) for run in held.ranges)


def _copy(step: CopyContent) -> Iterator[str]:
    yield f"bytes {span(step.source)} to {span(step.target)}, used blocks only where they are known"
    lanes = step.lanes
    how = "all through the stash" if lanes.staged else f"at most {format_size(lanes.window)} at once"
    yield f"{how}; flushed, read back and recorded every {format_size(lanes.batch)}"


def _patch(patch: Patch, start: int) -> str:
    where = f"bytes {span(Extent(start + patch.at, patch.length))}"
    if patch.before is None or patch.after is None:
        return f"{patch.what}, {where}: computed anew"
    return f"{patch.what}, {where}: {patch.before} → {patch.after}"


def _change(change: EntryChange, sector_size: int) -> Iterator[str]:
    before, after = change.before, change.after
    sectors = f"sector {sector_words(before.start, sector_size)} → {sector_words(after.start, sector_size)}"
    yield f"entry {change.number}: {sectors}, bytes {span(before)} → {span(after)}"
    if change.record_after is not None:
        old = "–" if change.record_before is None else change.record_before
        yield f"its extended boot record: byte {old} → {change.record_after}"


def _entry(entry: NewEntry, sector_size: int) -> str:
    name = f" {entry.name}" if entry.name else ""
    boot = ", active" if entry.active else ""
    sector = sector_words(entry.extent.start, sector_size)
    return f"entry {entry.number}{name}: sector {sector}, bytes {span(entry.extent)}, type {entry.type_code}{boot}"


def _partitions(numbers: Sequence[int]) -> str:
    word = "partition" if len(numbers) == 1 else "partitions"
    return f"{word} {', '.join(str(number) for number in numbers)}"
