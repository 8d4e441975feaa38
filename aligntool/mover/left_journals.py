"""Find a journal that is left on a disk without a move in flight."""

from aligntool.device import Device
from aligntool.errors import Refused
from aligntool.formats import parked
from aligntool.mover import disk_state
from aligntool.mover.journal import Journal
from aligntool.mover.journal_format import SLOT, Closing, begins_as_own, is_head, read_closing
from aligntool.mover.journal_match import matching, state_of
from aligntool.mover.journal_search import read_unless_hole, usual_places


def find_left(device: Device) -> Closing | Journal | None:
    """Return a journal without a move in flight: one that was not begun, or whose move is complete, or its
    mark. Nothing else may be at its place: no partition is there.

    It is searched where journals are placed.
    """
    for at in usual_places(device):
        if not begins_as_own(read_unless_hole(device, at, device.sector_size)):
            continue
        closing = read_closing(device, at)
        if closing:
            if not disk_state.is_owned(device, closing.extent):
                return closing
        elif is_head(parked.read_or_empty(device, at, SLOT)) and (journal := _left_journal(device, at)):
            return journal
    return None


def _left_journal(device: Device, at: int) -> Journal | None:
    try:
        journal = matching(Journal.open(device, at), device, None)
        is_settled = state_of(device, journal) in (
            disk_state.DiskState.NOT_BEGUN,
            disk_state.DiskState.COMPLETE,
        )
    except (Refused, OSError):
        return None
    is_free = not disk_state.is_owned(device, journal.contents.plan.journal.extent)
    return journal if is_settled and is_free and not journal.lost_slots else None
