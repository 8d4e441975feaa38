"""Partition tables on disks that are in use: the few sectors that a move writes, computed before the first write.

In: a Device and the steps that park and rewrite entries. Out: the sectors of the table before, in flight and after,
and which of the three a disk has. Alone because the order of these writes is the argument that a table is whole at
every moment; libparted, which writes all other tables, promises no order. With `probe/tables` and `apply/tables.py`
this is where sectors are counted.
"""

from aligntool.apply.device import Device
from aligntool.apply.partition_tables.gpt import gpt_images
from aligntool.apply.partition_tables.images import TableImages, TableState, table_state, way_to
from aligntool.apply.partition_tables.mbr import mbr_images
from aligntool.apply.partition_tables.parked import ParkedMark, find_parked
from aligntool.errors import Refused
from aligntool.plan import ParkEntries, RewriteTable

__all__ = ["ParkedMark", "TableImages", "TableState", "find_parked", "table_images", "table_state", "way_to"]


def table_images(
    device: Device, park: ParkEntries, rewrite: RewriteTable, *, journal_at: int | None, journal_id: bytes
) -> TableImages:
    """The three tables. `journal_at` is a byte of the disk, None where the journal lies elsewhere; `journal_id` has 16
    bytes. Nothing is written.

    Raises Refused when the table on the device is not the one that the changes begin with, when it is not sound, or
    when what would come out is not. Raises OSError where it cannot be read.
    """
    match rewrite.label:
        case "gpt":
            return gpt_images(device, park, rewrite, journal_at=journal_at, journal_id=journal_id)
        case "dos":
            return mbr_images(device, park, rewrite, journal_at=journal_at)
        case label:
            raise Refused(f"partitions of a {label} table are not moved; only those of GPT and MBR are")
