"""How a disk's table stands to the journal of a move, which decides what may be written.

In: a Device and its journal. Out: one of a few answers. Alone because `status`, `resume` and `rollback` must give the
same one, and because a table that nobody can read must not be taken for one that was changed on purpose.
"""

import re
from collections.abc import Iterator
from enum import Enum, auto

from aligntool.apply.device import Device, Sectors
from aligntool.apply.journal import Journal
from aligntool.apply.partition_tables import TableImages, TableState, table_state
from aligntool.apply.partition_tables.leftovers import is_shown
from aligntool.apply.partition_tables.mbr import is_readable
from aligntool.apply.table_writer import all_sectors, is_ours
from aligntool.plan import (
    HoldContent,
    JournalPlace,
    ParkEntries,
    Plan,
    ReleaseContent,
    RewriteTable,
    Step,
    WriteJournal,
)

MARKER = re.compile(
    rb"aligntool: .*\njournal ([0-9a-f]{32}) (?:at byte ([0-9]+)|in a file elsewhere)\n", re.DOTALL
)
_MOST_FLIPPED = 16  # bytes of a sector that may differ: it is damaged, and still that sector


class Standing(Enum):
    NOT_BEGUN = auto()  # every partition is at its old place, and whole
    IN_FLIGHT = auto()
    COMPLETE = auto()  # every partition is at its new place, and whole
    LEFT = auto()  # as COMPLETE, and the table was changed since: the user went on working
    UNREADABLE = (
        auto()
    )  # in flight or complete; there is no table, and the disk is still as the journal knows it
    CHANGED = auto()  # in flight, and there is another table, or none and nothing that the journal knows


def standing(device: Device, journal: Journal) -> Standing:
    """Return how the table stands to the journal. Raises OSError."""
    plan, images, step = journal.contents.plan, journal.contents.images, journal.position.step
    table = table_state(device, images)
    complete = is_complete(journal)
    shown = is_shown(device, images)
    if shown and (table is not TableState.OTHER or is_ours(device, images)):
        if table is TableState.BEFORE and step <= index_of(plan, ParkEntries):
            return Standing.NOT_BEGUN
        if table is TableState.OTHER and complete and is_readable(device):
            return Standing.LEFT  # the MBR is as it was left, the chain of EBRs is not
        if complete or (table is TableState.AFTER and step >= index_of(plan, RewriteTable)):
            return Standing.COMPLETE
        return Standing.IN_FLIGHT
    if shown is False or (shown and is_readable(device)):
        return Standing.LEFT if complete else Standing.CHANGED
    return Standing.UNREADABLE if _is_known(device, journal) else Standing.CHANGED


def is_complete(journal: Journal) -> bool:
    """Return whether the new table was durable once, and not taken back since."""
    return journal.position.step > index_of(journal.contents.plan, RewriteTable)


def place_of(plan: Plan) -> JournalPlace:
    """Return where the plan puts its journal."""
    return next(step.journal for step in plan.steps if isinstance(step, WriteJournal))


def has_markers(device: Device, journal: Journal) -> bool:
    """Return whether a marker of this very move stands where its plan puts one."""
    for step in journal.contents.plan.steps:
        if isinstance(step, HoldContent | ReleaseContent):
            start = (step.source if isinstance(step, HoldContent) else step.target).start
            for extent in step.held.ranges:
                found = peek(device, start + extent.start, extent.length)
                for at in range(0, len(found), device.sector_size):
                    marker = MARKER.match(found, at, at + device.sector_size)
                    if marker and marker[1] == journal.id.hex().encode():
                        return True
    return False


def index_of(plan: Plan, kind: type[Step]) -> int:
    """Of the plan's first step of this kind."""
    return next(index for index, step in enumerate(plan.steps) if isinstance(step, kind))


def peek(device: Device, at: int, length: int) -> bytes:
    """Return what is there, nothing where it cannot be read."""
    try:
        return bytes(device.read(at, length))
    except OSError:
        return b""


def _is_known(device: Device, journal: Journal) -> bool:
    """Return whether something shows that the disk is still the one in flight: a sector of a table, or a marker."""
    sectors = _sectors_of(journal.contents.images, device.sector_size)
    return any(_is_nearly(device, one) for one in sectors) or has_markers(device, journal)


def _sectors_of(images: TableImages, size: int) -> Iterator[Sectors]:
    for writing in (images.parked, images.before, images.after):
        for sectors in all_sectors(writing):
            for at in range(0, len(sectors.data), size):
                data = sectors.data[at : at + size]
                if any(data):
                    yield Sectors(sectors.at + at, data)


def _is_nearly(device: Device, sector: Sectors) -> bool:
    found = peek(device, sector.at, len(sector.data))
    differing = sum(one != other for one, other in zip(found, sector.data, strict=False))
    return len(found) == len(sector.data) and any(found) and differing <= _MOST_FLIPPED
