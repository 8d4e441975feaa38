"""Parked entries: the partition types and fields that mark a move in flight.

Here because `apply` writes them, `probe` reads them, and both must agree: docs/crash-safety.md, "In flight".
"""

import re
from collections.abc import Sequence
from uuid import UUID

from aligntool.inventory.machine import Disk
from aligntool.inventory.tables import InFlight, Partition

PARKED_GPT = UUID("49d6adeb-b2c3-4691-8fa8-bfbac209865b")  # drawn for this purpose; nobody else has it
PARKED_MBR = 0x7F  # "reserved for local or experimental use": the type byte no system claims

MBR_UNIT = 512  # whatever the disk's sectors are
MBR_ELSEWHERE = (1 << 48) - 1
_JOURNAL_GRID = 64 * 1024  # where journals begin: 0x7F with another address is somebody else's partition
_NAME = re.compile("aligntool resume @([0-9]+)")
_TYPES = (str(PARKED_GPT).upper(), f"0x{PARKED_MBR:02x}")


def journal_in_name(name: str) -> int | None:
    """Return the journal's byte that the name of a parked GPT entry states, or None: elsewhere, or a changed name."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def journal_in_addresses(addresses: bytes, disk_size: int) -> InFlight | None:
    """Return what the six bytes of CHS in an MBR entry of type 0x7F state, or None where another program wrote it."""
    address = int.from_bytes(addresses, "little")
    if address == MBR_ELSEWHERE:
        return InFlight((), None)
    at = address * MBR_UNIT
    return InFlight((), at) if at and at % _JOURNAL_GRID == 0 and at < disk_size else None


def parked_by_type(partitions: Sequence[Partition]) -> InFlight | None:
    """Return what the types alone state, where nothing else of the table could be read."""
    parked = [part for part in partitions if part.type_code in _TYPES]
    if not parked:
        return None
    places = (journal_in_name(part.name or "") for part in parked)
    return InFlight(
        tuple(part.number for part in parked), next((at for at in places if at is not None), None)
    )


def parked_numbers(disk: Disk) -> frozenset[int]:
    """Return the numbers of the partitions that a move in flight has parked."""
    return frozenset(disk.table.in_flight.partitions if disk.table and disk.table.in_flight else ())


def seems_in_flight(disk: Disk) -> bool:
    """Return whether the table marks a move in flight; `aligntool status` also looks for the journal."""
    return disk.table is not None and disk.table.in_flight is not None
