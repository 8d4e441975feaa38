"""What the entries of a table state about a move in flight."""

from collections.abc import Sequence
from dataclasses import replace

from aligntool.inventory import InFlight
from aligntool.inventory.parked import PARKED_MBR, journal_in_addresses, parked_by_type
from aligntool.probe.tables.gpt_copy import Copy
from aligntool.probe.tables.gpt_entries import read_entries
from aligntool.probe.tables.mbr_sector import MbrSector


def parked_in_mbr(table: MbrSector, disk_size: int) -> InFlight | None:
    """Return the parked entries of an MBR; type 0x7F without the mover's fields is another program's partition."""
    marks = {
        entry.slot: mark
        for entry in table.used
        if entry.code == PARKED_MBR
        and not entry.boot
        and (mark := journal_in_addresses(entry.addresses, disk_size)) is not None
    }
    return replace(next(iter(marks.values())), partitions=tuple(marks)) if marks else None


def parked_in_gpt(believed: Copy, other: Copy) -> InFlight | None:
    """Return the parked entries of the copy that is believed, else those of the other copy.

    The mover writes the backup copy first: a cut between the two leaves parked entries in the backup copy alone.
    """
    return next((found for copy in _same_disk(believed, other) if (found := _parked(copy))), None)


def _parked(copy: Copy) -> InFlight | None:
    return parked_by_type(read_entries(copy)[0])


def _same_disk(believed: Copy, other: Copy) -> Sequence[Copy]:
    if believed.header is None or other.header is None or believed.header.disk_guid != other.header.disk_guid:
        return (believed,)
    return believed, other
