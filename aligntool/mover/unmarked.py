"""Find changes in flight that the table does not show, because another program replaced it: for an audit."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from aligntool.audit.wording import command
from aligntool.errors import Refused
from aligntool.formats.parked import is_marked_in_flight
from aligntool.inventory import Disk, Gap, InFlight, Inventory, Table, TableLabel, Unseen
from aligntool.linux.block import open_read_only
from aligntool.linux.deadline import SILENCE_S, Pulse, results_in_children
from aligntool.mover.journal_search import journal_in_flight


def with_unmarked_changes(inventory: Inventory, silence_s: float = SILENCE_S) -> Inventory:
    """Return the inventory with every change in flight that only its journal shows, as `aligntool status`
    finds it. A captured machine has no journal to read. A disk that does not answer within `silence_s`
    seconds stays as it is.
    """
    if inventory.captured:
        return inventory
    paths = [disk.path for disk in inventory.disks if disk.table_read and not is_marked_in_flight(disk)]
    # images without a known content
    files = [unseen.what for unseen in inventory.unseen if unseen.gap is Gap.DISK]
    jobs = [
        *(partial(_journal_at, path) for path in paths),
        *(partial(_journal_in_image, path) for path in files),
    ]
    paths += files
    found = {paths[number]: at for number, at in results_in_children(jobs, silence_s)}
    return replace(
        inventory,
        disks=tuple(_marked(disk, found) for disk in inventory.disks),
        unseen=tuple(
            unseen if found.get(unseen.what) is None else _in_flight(unseen) for unseen in inventory.unseen
        ),
    )


def _journal_at(path: str, _: Pulse) -> int | None:
    try:
        with open_read_only(path) as device:
            return journal_in_flight(device)
    # in use by a change at this moment, or gone: the audit reports what it could read
    except (OSError, Refused):
        return None


def _in_flight(unseen: Unseen) -> Unseen:
    """Return why a disk cannot be judged, of which nothing but the journal of a change is recognised."""
    path = unseen.what
    return replace(
        unseen, why=f"{path} cannot be judged: a change is in flight on it", hint=command("status", path)
    )


def _journal_in_image(path: str, pulse: Pulse) -> int | None:
    # Path.is_file fails if the name is too long
    return _journal_at(path, pulse) if os.path.isfile(path) else None  # noqa: PTH113


def _marked(disk: Disk, found: Mapping[str, int | None]) -> Disk:
    at = found.get(disk.path)
    if at is None:
        return disk
    table = disk.table or Table(TableLabel.UNKNOWN, disk.sector_size)
    return replace(disk, table=replace(table, in_flight=InFlight((), at)))
