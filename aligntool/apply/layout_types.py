"""Types, names and the active mark, put into a table that libparted has just written.

In: a Device with the new table, and its entries. Out: the same table with the type of each entry. Alone because
libparted before 3.6 can set neither a type GUID nor a type byte (docs/decisions/0009-types-after-libparted.md), and
because this is all that aligntool writes of a new table itself.
"""

import struct
import zlib
from collections.abc import Sequence
from uuid import UUID

from aligntool.apply.device import Device
from aligntool.errors import Stopped
from aligntool.plan import MakeMember, MakeTable, NewEntry
from aligntool.units import align_up

# UEFI specification 5.3.2, table "GPT Header"; bytes from the header's start.
_SIGNATURE = b"EFI PART"
_HEADER_SIZE_AT = 12
_HEADER_CRC_AT = 16
_ALTERNATE_LBA_AT = 32
_ENTRIES_LBA_AT = 72
_COUNT_AT = 80  # number of entries, then bytes in each
_ENTRIES_CRC_AT = 88
# 5.3.3, "GPT Partition Entry".
_NAME_AT = 56
_NAME_LENGTH = 72

_MBR_ENTRIES_AT = 446
_MBR_ENTRY = 16
_MBR_TYPE_AT = 4
_ACTIVE = 0x80


def set_types(device: Device, step: MakeTable | MakeMember) -> None:
    """Flushed when it returns. Raises OSError; Stopped when what libparted wrote is not there."""
    if step.label == "gpt":
        primary = device.sector_size
        (alternate,) = struct.unpack_from("<Q", _header(device, primary), _ALTERNATE_LBA_AT)
        for at in (alternate * device.sector_size, primary):  # one copy is good at every moment
            _set_in_gpt(device, at, step.entries)
    else:
        _set_in_mbr(device, step.entries)


def _set_in_gpt(device: Device, header_at: int, entries: Sequence[NewEntry]) -> None:
    header = _header(device, header_at)
    (first_lba,) = struct.unpack_from("<Q", header, _ENTRIES_LBA_AT)
    count, each = struct.unpack_from("<II", header, _COUNT_AT)
    at = first_lba * device.sector_size
    table = bytearray(device.read(at, align_up(count * each, device.sector_size)))
    for entry in entries:
        start = (entry.number - 1) * each
        table[start : start + 16] = UUID(entry.type_code).bytes_le
        name = entry.name.encode("utf-16-le").ljust(_NAME_LENGTH, b"\0")
        table[start + _NAME_AT : start + _NAME_AT + _NAME_LENGTH] = name
    struct.pack_into("<I", header, _ENTRIES_CRC_AT, zlib.crc32(table[: count * each]))
    (size,) = struct.unpack_from("<I", header, _HEADER_SIZE_AT)
    struct.pack_into("<I", header, _HEADER_CRC_AT, 0)
    struct.pack_into("<I", header, _HEADER_CRC_AT, zlib.crc32(header[:size]))
    device.write(at, bytes(table))
    device.write(header_at, bytes(header))
    device.flush()


def _header(device: Device, at: int) -> bytearray:
    header = bytearray(device.read(at, device.sector_size))
    if not header.startswith(_SIGNATURE):
        raise Stopped(
            f"byte {at} should hold the new GPT's header, and does not", hint="aligntool audit DISK"
        )
    return header


def _set_in_mbr(device: Device, entries: Sequence[NewEntry]) -> None:
    sector = bytearray(device.read(0, device.sector_size))
    for entry in entries:
        start = _MBR_ENTRIES_AT + (entry.number - 1) * _MBR_ENTRY
        sector[start] = _ACTIVE if entry.active else 0
        sector[start + _MBR_TYPE_AT] = int(entry.type_code, 16)
    device.write(0, bytes(sector))
    device.flush()
