"""The state of a disk, as `aligntool status` reports it."""

from dataclasses import dataclass

from aligntool.change import Plan
from aligntool.device import Device
from aligntool.mover import disk_state, whole_disk
from aligntool.mover.changed_disk import (
    CHANGED_TABLE,
    UNFINISHED,
    changed_sentence,
    content_changes,
    goes_back,
)
from aligntool.mover.in_flight import CHOOSE
from aligntool.mover.journal import Journal
from aligntool.mover.journal_match import state_of
from aligntool.mover.journal_places import AROUND_DAMAGE, MOST_PARTITIONS
from aligntool.mover.journal_search import content_starts, find_journal
from aligntool.mover.left_journals import find_left
from aligntool.mover.steps import progress
from aligntool.mover.table import is_readable
from aligntool.units import GIB

_WAYS = ("resume", "rollback")


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a disk: "old" (nothing is in flight) or "in-flight"; the other fields describe the
    move.
    """

    state: str
    sentences: tuple[str, ...]
    plan: Plan | None = None
    step: int = 0  # index of the next one
    done: int = 0  # bytes at their new place
    total: int = 0
    forward: bool = True  # False: a rollback was in progress
    restore_table: bool = False  # another program changed the table
    begun: bool = True  # False: nothing was moved, and a resume only closes the journal
    complete: bool = False  # every partition is at its new place: only the journal is still open
    is_marked: bool = False  # nothing is in flight, and a resume zeroes what a cut has left of the journal
    ways: tuple[str, ...] = _WAYS  # those that do not stop at what another program has written


def journal_status(device: Device, file: Device | None, *, any_table: bool = False) -> Status:
    """Return the state of the move. Raises Refused like `find_journal`."""
    journal = find_journal(device, file, any_table=any_table)
    left = find_left(device) if journal is None and file is None else None
    if isinstance(left, Journal):
        journal = left
    if journal is None:
        marked = (
            ("a change has ended or was not begun, and a part of its journal is left, which nothing needs",)
            if left
            else ()
        )
        sentences = ("nothing is in flight on this disk", *marked, *_unsearched_sentences(device))
        return Status("old", sentences, is_marked=left is not None)
    position = journal.position
    plan = journal.contents.plan
    state = state_of(device, journal)
    is_shown = whole_disk.is_left_without_table(device, journal, state)
    if state is disk_state.DiskState.LEFT and not is_shown:
        ended = "nothing is in flight" if disk_state.is_undone(journal) else "the move is complete"
        sentences = (f"{ended}, and the partition table has been changed since", *(() if file else (_OPEN,)))
        return Status("old", sentences, is_marked=file is None)
    done, total = progress(journal)
    ways = "partitions of this disk are being moved", "a move of partitions was being rolled back"
    if plan.conversion:
        ways = "the table is being converted", "a conversion of the table was being rolled back"
    if disk_state.is_shrink(plan):
        ways = "a file system is being shrunk", "a shrink of a file system was being rolled back"
    unfinished = f"{ways[not position.forward]}; the work is not complete"
    unread = "the partition table cannot be read; it will be rewritten from the journal"
    used = state is disk_state.DiskState.CHANGED and disk_state.is_used(device, plan)
    back = goes_back(device, journal, state, back=False)
    changed = tuple(content_changes(device, journal, back=back)) if state in UNFINISHED else ()
    open_ways = _open_ways(device, journal, state)
    on_table = {"UNREADABLE": (unread,), "CHANGED": (disk_state.USED if used else CHANGED_TABLE,)}.get(
        state.name, ()
    )
    choice = "" if open_ways else f"; {CHOOSE}"
    on_content = (f"{changed_sentence(changed)}{choice}",) if changed else ()
    is_hidden = state is disk_state.DiskState.CHANGED and disk_state.is_complete(journal)
    complete = is_hidden or is_shown or state is disk_state.DiskState.COMPLETE
    first = _AT_NEW_PLACES if is_hidden else _SENTENCES.get(state, (unfinished,))
    sentences = (*first, *on_table, *on_content, *journal.damage)
    restore = state is disk_state.DiskState.CHANGED and not used
    if state in UNFINISHED and not (complete or changed or used or journal.damage):
        sentences = (*sentences, *filter(None, (_NOTHING_LOST.get(open_ways),)))
    return Status(
        "in-flight",
        sentences,
        plan,
        position.step,
        done,
        total,
        position.forward,
        restore,
        begun=state is not disk_state.DiskState.NOT_BEGUN,
        complete=complete,
        ways=open_ways,
    )


def _open_ways(device: Device, journal: Journal, state: disk_state.DiskState) -> tuple[str, ...]:
    """Return the commands that go the way that they are named for, and would not stop; where another program
    has changed the table, with --restore-table.
    """
    restores = state is disk_state.DiskState.CHANGED
    covered = restores and journal.contents.images.of_whole_disk and whole_disk.is_covered(device, journal)

    def stops(*, back: bool) -> bool:
        changes = content_changes(device, journal, back=back, restore_table=restores, covered=covered)
        return state in UNFINISHED and any(changes)

    return tuple(
        way
        for way, back in zip(_WAYS, (False, True), strict=True)
        if goes_back(device, journal, state, back=back) is back and not stops(back=back)
    )


_OPEN = "its journal is still open, which nothing needs: no other change begins before it is closed"
_VISIBLE = "nothing is lost, and what moves is visible at its {} place, where it may have been used since"
_NOTHING_LOST = {
    _WAYS: "nothing is lost: resume makes everything valid at the new places, rollback at the old ones",
    ("rollback",): f"{_VISIBLE.format('old')}: only a rollback is possible",
    ("resume",): f"{_VISIBLE.format('new')}: only a resume is possible",
}
_AT_NEW_PLACES = (
    "every partition is intact at its new place, which the table does not list: do not use the old ones",
)
_ONLY_JOURNAL = ("every partition is intact at its new place; only the journal must still be closed",)
_SENTENCES = {
    disk_state.DiskState.NOT_BEGUN: (
        "a move was prepared but not begun: every partition is intact at its old place",
    ),
    disk_state.DiskState.COMPLETE: _ONLY_JOURNAL,
    disk_state.DiskState.LEFT: _ONLY_JOURNAL,
}


def _unsearched_sentences(device: Device) -> tuple[str, ...]:
    """Return a sentence if a journal may be in a part of the disk that was not searched."""
    if len(content_starts(device, device.sector_size)) > MOST_PARTITIONS:
        text = f"the table has more than {MOST_PARTITIONS} partitions"
        return (f"{text}; beside the others, nothing was searched",)
    if device.size <= 2 * AROUND_DAMAGE or is_readable(device):
        return ()
    searched = f"the first and last {AROUND_DAMAGE // GIB} GiB; the space between was not searched"
    return (f"no partition table is readable, and no journal is in {searched}",)
