"""Where the entries of a disk's tables begin, and whether a table is whole; for whoever looks for a lost journal.

In: a Device nobody knows. Out: bytes where a partition may begin. Alone because it believes everything and proves
nothing: the marker at that place has to.
"""

import struct
from collections.abc import Iterator

from aligntool.apply.device import Device
from aligntool.apply.partition_tables.gpt_copy import GptCopy, read_copy
from aligntool.apply.partition_tables.mbr_entry import entries_of
from aligntool.apply.partition_tables.parked import MBR_TYPE

_FIRST_LBA_AT = 32
_SECTOR_SIZES = (512, 4096)


def entry_starts(device: Device) -> Iterator[int]:
    """Of primary partitions in the MBR and of every GPT entry in either copy. Raises OSError."""
    sector = device.sector_size
    for entry in entries_of(bytes(device.read(0, sector))) or ():
        if entry.sectors:
            yield entry.start * sector
    for copy in copies_of(device):
        for _, raw in copy.numbered():
            (first,) = struct.unpack_from("<Q", raw, _FIRST_LBA_AT)
            yield first * copy.sector_size


def is_sound(device: Device) -> bool:
    """Whether nothing of the table is damaged: an MBR that is one, and both copies of a GPT where it announces one.

    An entry of the type of parked ones may be one that was torn where it says where the journal is.
    """
    entries = entries_of(bytes(device.read(0, device.sector_size)))
    if entries is None or any(entry.kind == MBR_TYPE and entry.sectors for entry in entries):
        return False
    if all(entry.kind != 0xEE for entry in entries):
        return True
    copies = copies_of(device)
    return len(copies) == 2 and all(copy.sound for copy in copies)


def copies_of(device: Device) -> list[GptCopy]:
    """Return the copies of a GPT whose header is whole.

    For sectors of the size that has most of them: an image does not state its own.
    """
    found: list[GptCopy] = []
    for sector in dict.fromkeys((device.sector_size, *_SECTOR_SIZES)):
        primary = read_copy(device, 1, sector)
        backup = read_copy(device, primary.other_lba if primary else device.size // sector - 1, sector)
        copies = [copy for copy in (primary, backup) if copy is not None]
        if len(copies) > len(found):
            found = copies
    return found
