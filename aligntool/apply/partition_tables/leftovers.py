"""What another table leaves beside the one that is written over it.

In: a Device and the images of a move. Out: sectors that make the written table the only one. Alone because a journal
knows its own sectors only: no protective MBR, and no GPT that another program put elsewhere.
"""

import struct

from aligntool.apply.device import Device, Sectors, Writing
from aligntool.apply.partition_tables.images import TableImages
from aligntool.apply.partition_tables.mbr_entry import NO_ENTRY, MbrEntry, entries_of, with_entries
from aligntool.apply.partition_tables.starts import copies_of

_PROTECTIVE = 0xEE
_SIGNATURE_AT = 510
_CHS_FIRST, _CHS_BEYOND = b"\x00\x02\x00", b"\xff\xff\xff"  # UEFI specification 2.10, table 5-4


def leftovers(device: Device, images: TableImages) -> Writing:
    """Return what has to be written before the table: headers of other GPTs erased, a protective MBR added."""
    own = {sectors.at for group in images.parked for sectors in group}
    foreign = {copy.header_extent.start: len(copy.header) for copy in copies_of(device)}
    erased = tuple(Sectors(at, bytes(length)) for at, length in foreign.items() if at not in own)
    return (*((erased,) if erased else ()), *protective(device, images))


def is_shown(device: Device, images: TableImages) -> bool | None:
    """Return whether sector 0 lets a reader see the table of a move: False for an MBR of another program in front of a
    GPT, None where there is no MBR at all.
    """
    if any(sectors.at == 0 for group in images.parked for sectors in group):
        return True
    entries = entries_of(bytes(device.read(0, device.sector_size)))
    return None if entries is None else any(entry.kind == _PROTECTIVE for entry in entries)


def protective(device: Device, images: TableImages) -> Writing:
    """Return the protective MBR where the table is a GPT and has none. Boot code stays."""
    if any(sectors.at == 0 for group in images.parked for sectors in group):
        return ()
    sector = bytes(device.read(0, device.sector_size))
    if any(entry.kind == _PROTECTIVE for entry in entries_of(sector) or ()):
        return ()
    count = min(device.size // device.sector_size - 1, 2**32 - 1)
    whole = MbrEntry(0, _CHS_FIRST, _PROTECTIVE, _CHS_BEYOND, 1, count)
    made = bytearray(with_entries(sector, {0: whole, 1: NO_ENTRY, 2: NO_ENTRY, 3: NO_ENTRY}))
    struct.pack_into("<H", made, _SIGNATURE_AT, 0xAA55)
    return ((Sectors(0, bytes(made)),),)
