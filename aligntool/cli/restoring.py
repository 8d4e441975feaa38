"""`--restore-table`: the table of a disk in flight put back after another program changed it.

In: a disk in flight, whose journal knows its table. Out: both tables on the screen, and a yes, or a refusal. Alone
because the entries that go may be of partitions that were made in the meantime.
"""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from aligntool.cli.options import colored
from aligntool.errors import Objection, Refused, refuse
from aligntool.inventory import Partition, Role

if TYPE_CHECKING:
    from aligntool.apply.device import Device
    from aligntool.apply.restoring import Laid
    from aligntool.plan import Plan
    from aligntool.probe.tables import TableReading


def confirm_restoring(disk: str, journal_file: str | None, plan: "Plan", *, yes: bool) -> "TableReading":
    """Show the table found and the one to be written, and ask. Return the one that was shown as found.

    Raises Refused, also where a partition that was added lies where the move reads or writes.
    """
    from aligntool.apply.look_only import look_only
    from aligntool.apply.recovery import find_journal
    from aligntool.apply.restoring import overlay
    from aligntool.cli.confirm import confirm_disk, identity
    from aligntool.render.lines import show
    from aligntool.render.restoring import table_lines

    with look_only(disk) as device, look_only(journal_file) if journal_file else nullcontext() as file:
        journal = find_journal(device, file, any_table=True)
        if journal is None:
            raise Refused(f"{disk}: nothing is in flight on this disk")
        found = read_found(device, plan)
        written = _read(overlay(device, journal), plan)
    show(table_lines("the partition table found", found.partitions), sys.stderr, color=colored())
    show(table_lines("the partition table to be written", written.partitions), sys.stderr, color=colored())
    refuse(_objections(disk, plan, found.partitions, written.partitions))
    confirm_disk(disk, *identity(plan), yes)
    return found


def read_found(device: "Device", plan: "Plan") -> "TableReading":
    from aligntool.apply.restoring import Laid

    return _read(Laid(device, ()), plan)


def refuse_another(device: "Device", plan: "Plan", shown: "TableReading") -> None:
    """Raises Refused when the table is not the one that was shown."""
    if read_found(device, plan) != shown:
        raise Refused("the partition table was changed again since it was shown", hint="type the same again")


def _read(reader: "Laid", plan: "Plan") -> "TableReading":
    from aligntool.probe.tables import read_table

    return read_table(reader, sector_size=plan.disk.sector_size)


def _objections(
    disk: str, plan: "Plan", found: Sequence[Partition], written: Sequence[Partition]
) -> list[Objection]:
    """Of each partition that the table to be written lacks and that lies where the move still reads or writes."""
    from aligntool.apply.restoring import places_in_use
    from aligntool.audit.words import shell_word

    known = {part.extent for part in written}
    known |= {place for place in places_in_use(plan, with_journal=False)}
    return [
        (
            f"partition {part.number}, bytes {part.extent.start} to {part.extent.end - 1}, is not in the journal's"
            " table and lies where the move reads or writes: it would be overwritten",
            f"if nothing in it is needed: sfdisk --delete {shell_word(disk)} {part.number}; then the same again",
        )
        for part in found
        if part.role is not Role.EXTENDED and part.extent not in known
        and any(part.extent.overlaps(place) for place in places_in_use(plan))
    ]  # fmt: skip
