"""The entries of a GPT: partitions and what is wrong with them.

Comes in: the copy of the table that is believed. Goes out: partitions in bytes, and faults. Alone because choosing a
copy (`gpt`) and reading one (`gpt_copy`) have nothing to do with what an entry means (UEFI specification, 5.3.3).
"""

import struct
import uuid

from aligntool.inventory import Fault, Partition, TableFault
from aligntool.probe.tables.checks import beyond_end, overlaps
from aligntool.probe.tables.gpt_copy import MOST_ENTRY_BYTES, Copy, Header
from aligntool.probe.tables.gpt_types import BASIC_DATA, LDM_TYPES, gpt_type_name
from aligntool.units import Extent

_UNUSED = bytes(16)
_KERNEL_ENTRY_SIZE = 128
_KERNEL_LAST_NUMBER = 255  # DISK_MAX_PARTS
_FLAGS = {0: "required", 1: "no-block-io", 2: "legacy-boot"}
_BASIC_DATA_FLAGS = {60: "read-only", 61: "shadow-copy", 62: "hidden", 63: "no-automount"}
_LINUX_FLAGS = {
    59: "grow-file-system",
    60: "read-only",
    63: "no-automount",
}  # Discoverable Partitions Specification


def read_entries(copy: Copy) -> tuple[list[Partition], list[TableFault]]:
    """Every used entry. One that ends before it starts holds nothing: it becomes a fault and no partition."""
    partitions: list[Partition] = []
    faults: list[TableFault] = []
    header = copy.header
    if header is None or not copy.entries:
        return partitions, faults
    for at in range(0, len(copy.entries), header.entry_size):
        if copy.entries[at : at + 16] == _UNUSED:
            continue
        number = at // header.entry_size + 1
        first, last = struct.unpack_from("<QQ", copy.entries, at + 32)
        if last < first:
            detail = f"partition {number} starts at sector {first} and ends before that, at sector {last}"
            place = header.entries_lba * copy.sector_size + at
            faults.append(TableFault(Fault.BAD_ENTRY, detail, place, (number,)))
            continue
        extent = Extent(first * copy.sector_size, (last - first + 1) * copy.sector_size)
        partitions.append(_partition(copy.entries[at : at + 128], number, extent))
    return partitions, faults


def _partition(entry: bytes, number: int, extent: Extent) -> Partition:
    type_guid = str(uuid.UUID(bytes_le=entry[:16])).upper()
    type_name = gpt_type_name(type_guid)
    attributes = int.from_bytes(entry[48:56], "little")
    # The name ends at its first NUL; half a surrogate pair is possible on disk and becomes a replacement character.
    name = entry[56:128].decode("utf-16-le", "replace").split("\0", 1)[0]
    return Partition(
        number=number,
        extent=extent,
        type_code=type_guid,
        type_name=type_name,
        name=name or None,
        uuid=str(uuid.UUID(bytes_le=entry[16:32])),
        flags=_flags(attributes, type_guid, type_name),
    )


def _flags(attributes: int, type_guid: str, type_name: str) -> tuple[str, ...]:
    """Bits 48 to 63 belong to the type; where nobody says what one means, its number is given, as sfdisk does."""
    words = dict(_FLAGS)
    if type_guid == BASIC_DATA:
        words |= _BASIC_DATA_FLAGS
    elif type_name.startswith("Linux"):
        words |= _LINUX_FLAGS
    return (
        tuple(words.get(bit, f"guid:{bit}") for bit in range(64) if attributes >> bit & 1)
        if attributes
        else ()
    )


def entry_faults(copy: Copy, other: Copy, partitions: list[Partition], disk_size: int) -> list[TableFault]:
    """What the entries and their number are accused of."""
    header = copy.header
    if header is None:
        return []
    faults = _count_faults(copy, header, partitions)
    faults += overlaps(partitions)
    faults += beyond_end(partitions, disk_size)
    faults += _outside_usable(copy, header, partitions)
    faults += _covering(table_places(copy, other, disk_size), copy.sector_size, partitions)
    dynamic = tuple(item.number for item in partitions if item.type_code in LDM_TYPES)
    if dynamic:
        detail = (
            "this is a Windows dynamic disk: the real volumes are in the LDM database of its metadata partition, not "
            "in this table"
        )
        faults.append(TableFault(Fault.DYNAMIC_DISK, detail, copy.at, dynamic))
    return faults


def _count_faults(copy: Copy, header: Header, partitions: list[Partition]) -> list[TableFault]:
    faults = []
    if header.entry_bytes > MOST_ENTRY_BYTES:
        detail = (
            f"the {copy.name} GPT claims {header.entry_count} entries of {header.entry_size} bytes, more than the "
            f"{MOST_ENTRY_BYTES} bytes that are read; their checksum was not tried"
        )
        faults.append(TableFault(Fault.IMPLAUSIBLE_COUNT, detail, copy.at))
    elif header.entry_size != _KERNEL_ENTRY_SIZE:
        detail = (
            f"the entries of this GPT have {header.entry_size} bytes: UEFI allows it, but Linux reads only tables with "
            f"entries of {_KERNEL_ENTRY_SIZE}"
        )
        faults.append(TableFault(Fault.IMPLAUSIBLE_COUNT, detail, copy.at))
    hidden = tuple(item.number for item in partitions if item.number > _KERNEL_LAST_NUMBER)
    if hidden:
        detail = (
            f"{len(hidden)} partitions have numbers above {_KERNEL_LAST_NUMBER}, which Linux does not show"
        )
        faults.append(TableFault(Fault.IMPLAUSIBLE_COUNT, detail, copy.at, hidden))
    return faults


def _outside_usable(copy: Copy, header: Header, partitions: list[Partition]) -> list[TableFault]:
    if header.last_usable < header.first_usable:
        return []
    size = copy.sector_size
    usable = Extent(header.first_usable * size, (header.last_usable - header.first_usable + 1) * size)
    why = f"this GPT has its usable sectors from {header.first_usable} to {header.last_usable}"
    return [
        TableFault(
            Fault.OUTSIDE_USABLE, f"{_sectors(item, size)}, but {why}", item.extent.start, (item.number,)
        )
        for item in partitions
        if not usable.contains(item.extent)
    ]


def table_places(copy: Copy, other: Copy, disk_size: int) -> tuple[tuple[str, Extent], ...]:
    """Return where both copies of the table are, and where the backup belongs: the end of the disk.

    A header can call these places usable. `copy`: the one that is believed.
    """
    size, header = copy.sector_size, copy.header
    if header is None:
        return ()
    entry_bytes = -(-header.entry_bytes // size) * size
    places = [("the start of the partition table", Extent(0, 2 * size))]
    for one in (copy, other):
        if one.header is not None:
            places.append((f"the {one.name} GPT", Extent(one.at, size)))
            places.append(
                (f"the {one.name} GPT", Extent(one.header.entries_lba * size, one.header.entry_bytes))
            )
    end = disk_size // size * size
    if entry_bytes <= MOST_ENTRY_BYTES and end > entry_bytes + size:
        places.append(("the place of the backup GPT", Extent(end - size - entry_bytes, entry_bytes + size)))
    return tuple(places)


def _covering(
    places: tuple[tuple[str, Extent], ...], size: int, partitions: list[Partition]
) -> list[TableFault]:
    faults = []
    for item in partitions:
        covered = [(what, place) for what, place in places if place.length and item.extent.overlaps(place)]
        if not covered:
            continue
        what, place = max(covered, key=lambda one: one[1].length)
        first, last = place.start // size, place.end // size - 1
        there = f"{what} is at sectors {first} to {last}"
        detail = f"{_sectors(item, size)}, and {there}: a write to either destroys the other"
        faults.append(TableFault(Fault.COVERS_TABLE, detail, place.start, (item.number,)))
    return faults


def _sectors(item: Partition, size: int) -> str:
    first, last = item.extent.start // size, item.extent.end // size - 1
    return f"partition {item.number} is at sectors {first} to {last}"
