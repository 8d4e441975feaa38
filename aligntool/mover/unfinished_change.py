"""Detect that a change is in flight on a disk, and refuse to begin another one."""

from aligntool.audit.wording import command
from aligntool.errors import Refusal, Refused, failing_as, refuse
from aligntool.formats.parked import find_parked, read_or_empty
from aligntool.inventory import Disk, Role
from aligntool.linux.block import ReadOnlyDevice, open_read_only
from aligntool.mover import disk_state, journal_format
from aligntool.mover.journal import Journal
from aligntool.mover.journal_search import journal_in_flight


def refuse_in_flight(path: str) -> None:
    """Raise Refused if the disk is in flight: its content must not be treated as complete, or as empty."""
    with (
        failing_as(Refused, f"{path} cannot be read", hint=command("audit", path)),
        open_read_only(path) as device,
    ):
        parked = find_parked(device)
    if parked is not None:
        text = f"{path}: partitions of this disk are in flight"
        ways = ("status", "resume", "rollback") if parked.journal_at is not None else ("status",)
        hint = "\n".join(command(name, path) for name in ways)
        raise Refused(text, hint=hint, code="in-flight", subject=path)


def shows_change(path: str) -> bool:
    """Return whether a change is in flight on a disk, by its table or a journal in the usual places.

    Raises OSError, and Refused if the disk cannot be opened.
    """
    with open_read_only(path) as device:
        try:
            return find_parked(device) is not None or journal_in_flight(device) is not None
        except Refused:  # several journals qualify
            return True


def refuse_marked(disk: Disk) -> None:
    """Raise Refused if a partition holds a marker of a move in flight although its entry is not parked:
    another program has changed the table, and a new move would overwrite the journal.

    An extended partition has no content that is marked: what is in its last sector may be a marker that the
    last move of a logical partition left behind.
    """
    found = []
    path = disk.path
    with (
        failing_as(Refused, f"{path} cannot be read", hint=command("audit", path)),
        open_read_only(path) as device,
    ):
        for part in disk.partitions:
            if part.role is Role.EXTENDED:
                continue
            ends = (part.extent.start, part.extent.end - disk.sector_size) if not part.content else ()
            sectors = (read_or_empty(device, at, disk.sector_size) for at in ends)
            marker = next(filter(None, map(disk_state.MARKER.match, sectors)), None)
            if marker and (marker[2] is None or _has_journal(device, int(marker[2]))):
                text = (
                    f"partition {part.number} is in flight: another program has changed the partition table"
                )
                file = () if marker[2] else ("--journal FILE",)
                found.append(Refusal("in-flight", disk.name, text, command("status", path, *file)))
    refuse(found)


def refuse_changed_table(disk: Disk) -> None:
    """Raise Refused if the disk has the journal of a change in flight, although its table shows none: an
    older table may have been put back.
    """
    with (
        failing_as(Refused, f"{disk.path} cannot be read", hint=command("audit", disk.path)),
        open_read_only(disk.path) as device,
    ):
        if journal_in_flight(device) is not None:
            text = f"{disk.path} is in flight: another program has changed the partition table"
            raise Refused(text, hint=command("status", disk.path), code="in-flight", subject=disk.path)


def _has_journal(device: ReadOnlyDevice, at: int) -> bool:
    """Return whether there is a journal, even if it is damaged or of another version."""
    try:
        Journal.open(device, at)
    except journal_format.NoJournal:
        return False
    except Refused:
        return True
    return True
