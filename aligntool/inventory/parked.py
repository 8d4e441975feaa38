"""The partition types that say: a move is in flight.

In: a disk. Out: whether an entry of its table is parked. Alone because the audit must know such a disk, and those who
park its entries must write the same types.
"""

from uuid import UUID

from aligntool.inventory.machine import Disk

PARKED_GPT = UUID("49d6adeb-b2c3-4691-8fa8-bfbac209865b")  # drawn for this purpose; nobody else has it
PARKED_MBR = 0x7F  # "reserved for local or experimental use": the type byte no system claims


def seems_in_flight(disk: Disk) -> bool:
    """By the types alone: somebody else may use the MBR's, and only `aligntool status` looks for the journal."""
    return any(part.type_code in _TYPES for part in disk.partitions)


_TYPES = (str(PARKED_GPT).upper(), f"0x{PARKED_MBR:02x}")
