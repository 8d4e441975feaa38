"""Write a file system that was shrunk on a view to its partition, as a change of its own under a journal.

What is written is in the journal before and after, so a cut at any moment is resumed or rolled back like that
of a move. The journal is in blocks that are free in both states: docs/decisions/0046.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from aligntool import steps
from aligntool.audit.wording import shell_word
from aligntool.change import Event, MovePlan, Said
from aligntool.device import Device, Sectors
from aligntool.errors import JournalUnwritten, Refused, Stopped
from aligntool.formats import mbr
from aligntool.formats.parked import PARKED_MBR, parked_mbr_entry
from aligntool.formats.reader import Reader, read_pieces
from aligntool.linux.applying import recovery_commands
from aligntool.mover import hidden_signatures, newcomers, table
from aligntool.mover.claimed_room import claims_of
from aligntool.mover.context import MoveContext
from aligntool.mover.hidden_signatures import with_signatures
from aligntool.mover.journal import Contents, new_id, pack
from aligntool.mover.journal_format import BODY_AT
from aligntool.mover.move import begin
from aligntool.realign.partition_selection import DELETE_FILES, MAKE_ROOM
from aligntool.realign.search import STEP, copy_length, free_runs
from aligntool.units import KIB, MIB, Extent, align_down, format_size

_MOST = 256 * MIB  # bytes to write: what is there now and what will be are both in memory
_HEAD = Extent(0, 4 * KIB)  # with the decisive signatures of ext2, ext3, ext4 and NTFS
_CONTINUE = "no partition was moved yet: the same command with --shrink continues"
_ROOM = 4 * KIB  # the address of the journal is in its contents, which are compressed


@dataclass(frozen=True, slots=True)
class Prepared:
    """The contents of the journal, and its id."""

    contents: Contents
    id: bytes


def prepare(
    plan: MovePlan,
    step: steps.ShrinkContent,
    context: MoveContext,
    view: Reader,
    changed: Sequence[Extent],
    used: Iterable[Extent],
) -> Prepared:
    """Return what replaces the file system by the shrunk one, which `view` shows. Writes nothing.

    `changed`: what was written to the view; `used`: the blocks in use before and after that; both counted
    from the start of the partition. Raises Refused if it is too much, or there is no room for the journal.
    """
    # content on the whole disk: its head is written like a table
    head = _HEAD.length if step.extent.start == 0 else 0
    written = with_signatures(
        context.device, step.extent.start, step.extent.length, changed, plan.disk.sector_size
    )
    ranges = [
        Extent(max(one.start, head), one.end - max(one.start, head)) for one in written if one.end > head
    ]
    size = sum(one.length for one in ranges)
    if size > _MOST:
        text = f"shrinking the {step.kind} on partition {step.partition} would write {format_size(size)}"
        raise Refused(
            f"{text}; at most {format_size(_MOST)} can be written at once; nothing was written",
            hint="shrink it by its own tool, after a backup, and plan again",
        )
    held = steps.SavedRanges(tuple(ranges))
    id_ = new_id()
    before = hidden_signatures.read_saved(context.device, step.extent.start, held)
    blobs = (*before, *(b"".join(read_pieces(view, one)) for one in ranges))
    if [len(blob) for blob in blobs] != 2 * [one.length for one in ranges]:
        raise Refused(f"the {step.kind} on partition {step.partition} cannot be read; nothing was written")

    def contents(place: steps.JournalPlace) -> Contents:
        at = None if place.file else place.extent.start
        park, rewrite = _table_steps(plan, step, whole=bool(head))
        if head:
            images = _head_images(context.device, view, at)
        else:
            claims = claims_of((steps.WriteJournal(place), park, rewrite))
            images = table.table_images(
                context.device, park, rewrite, journal_at=at, journal_id=id_, claims=claims
            )
        rebuild = steps.RebuildContent(step.partition, step.kind, step.extent, 0, held)
        places = tuple(replace(place, after=place.before) for place in plan.places if place.before)
        goal = f"{step.kind} on partition {step.partition} shrunk to {format_size(step.length)}"
        own = (steps.WriteJournal(place), park, rebuild, rewrite, steps.CloseJournal(place))
        own_plan = MovePlan("realign", plan.disk, goal, places, own, (_CONTINUE,))
        own_content = newcomers.own_content(context.device, own_plan, images)
        return Contents(own_plan, images, {}, {step.partition: blobs}, recognised=own_content)

    needed = BODY_AT + len(pack(contents(steps.JournalPlace(Extent(0, 0), 0, Extent(0, 0))))) + _ROOM
    return Prepared(
        contents(_journal_place(plan, step, 2 * copy_length(needed), context, (*used, *ranges))), id_
    )


def _table_steps(
    plan: MovePlan, step: steps.ShrinkContent, *, whole: bool
) -> tuple[steps.ParkEntries, steps.RewriteTable]:
    """Return the steps that hide the partition, and that show it again at the same place."""
    if whole:
        return steps.ParkEntries((step.partition,), (step.partition,)), steps.RewriteTable("dos", ())
    return plan.park, steps.RewriteTable(plan.rewrite.label, ())


def _head_images(device: Device, view: Reader, journal_at: int | None) -> table.TableImages:
    """Return the head of content on a whole disk before, in flight and after. In flight it is an MBR with one
    parked entry, so the disk is not taken for empty, and nothing recognises the content.
    """
    first = _HEAD.length // device.sector_size
    sectors = min(device.size // device.sector_size - first, mbr.MOST_SECTORS)
    entry = parked_mbr_entry(mbr.MbrEntry(0, b"", PARKED_MBR, b"", first, sectors), journal_at)
    boot = bytes(440) + secrets.token_bytes(4) + bytes(_HEAD.length - 444)
    states = (
        bytes(device.read(0, _HEAD.length)),
        mbr.with_entries(boot, {1: entry}),
        bytes(view.read(0, _HEAD.length)),
    )
    return table.TableImages(*(((Sectors(0, state),),) for state in states))


def _journal_place(
    plan: MovePlan, step: steps.ShrinkContent, length: int, context: MoveContext, used: Iterable[Extent]
) -> steps.JournalPlace:
    """Return a place in the journal file, or in blocks that are free before and after. Raises Refused if none
    fits.
    """
    start = step.extent.start
    parts = (length // 2, Extent(length, 0))
    if context.journal is not None and length <= context.journal.size:
        return steps.JournalPlace(Extent(0, length), *parts, plan.journal.file)
    taken = [Extent(start + run.start, run.length) for run in used]
    room = Extent(start + _HEAD.length, step.length - _HEAD.length)
    runs = [run for run in free_runs(taken, room) if run.length >= length]
    if runs:  # the last one: a search looks before the end of each partition (mover/journal_search.py)
        return steps.JournalPlace(Extent(align_down(runs[-1].end - length, STEP), length), *parts)
    text = (
        f"the journal of the shrink needs {format_size(length)} in one piece, free on partition"
        f" {step.partition}"
    )
    raise Refused(f"{text}; nothing was written", hint=DELETE_FILES if context.journal else MAKE_ROOM)


def write(plan: MovePlan, context: MoveContext, prepared: Prepared) -> Iterator[Event]:
    """Write the shrunk file system. Yields what the user should know. Raises Refused if nothing was written,
    JournalUnwritten if nothing is in flight, and Stopped with the commands to continue if it is.
    """
    try:
        yield from (
            event for event in begin(context, prepared.contents, prepared.id) if isinstance(event, Said)
        )
    except JournalUnwritten:
        raise
    except Stopped as error:
        file = prepared.contents.plan.journal.file
        hint = recovery_commands(plan.disk.path, *((f"--journal {shell_word(file)}",) if file else ()))
        raise Stopped(str(error), hint=hint) from error
