"""Parked entries: how an entry says "in flight, and here is the journal", and how that is found again.

In: an entry and where the journal lies; or a Device nobody knows. Out: the parked entry; the mark that was found. Alone
because writing and reading the mark must agree, on any machine and in any later version.

In a GPT: the type GUID below; as unique GUID the journal's id with the entry's number XORed in; a name that people can
read; the attributes with those bits added that keep firmware and Windows away. In an MBR: type 0x7F, which nothing
mounts, and in place of the two CHS addresses the journal's byte divided by 512, 48 bits little-endian; all ones when
the journal is elsewhere. Start and length stay, so that nobody takes the place for free.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from aligntool.apply.device import Device
from aligntool.apply.partition_tables.gpt_copy import GptCopy, read_bytes, read_copy
from aligntool.apply.partition_tables.mbr_entry import MbrEntry, entries_of
from aligntool.inventory.parked import (
    MBR_ELSEWHERE,
    MBR_UNIT,
    PARKED_GPT,
    PARKED_MBR,
    journal_in_addresses,
    journal_in_name,
)
from aligntool.units import align_down

GPT_TYPE, MBR_TYPE = PARKED_GPT, PARKED_MBR

_SECTOR_SIZES = (512, 4096)
_ATTRIBUTES_AT = 48
_NAME_AT = 56
_NAME_LENGTH = 72  # 36 UTF-16 units
# UEFI specification 2.10, table 5-8, bit 1: not for firmware. Microsoft data partitions, bit 62: hidden, 63: no letter.
_LEAVE_ALONE = 1 << 1 | 1 << 62 | 1 << 63
_RAW = 64 * 1024  # bytes at either end of a disk that have the usual arrays of entries
_NAME_ELSEWHERE = "aligntool resume --journal FILE"


@dataclass(frozen=True, slots=True)
class ParkedMark:
    """What a parked entry says."""

    journal_at: int | None  # byte of the disk; None: elsewhere, or a name that somebody has changed
    journal_id: bytes | None  # 16 bytes; None: an MBR has no room for it
    sound: bool = True  # the checksum over the entries is right, where there is one
    only_backup: bool = False  # a valid primary GPT has no parked entry: not in flight, or not any more


def find_parked(device: Device) -> ParkedMark | None:
    """The mark of a move that has begun, whatever sectors the table counts in. None: no table says so.

    What is torn is looked at last. Raises OSError where the device cannot be read, nothing for what is there.
    """
    mark = _in_mbr(device)
    return mark or next((found for size in _SECTOR_SIZES if (found := _in_gpt(device, size))), None)


def places_in_torn_entries(device: Device) -> Iterator[int | None]:
    """Yield where parked GPT entries state that the journal is, whatever became of the headers before them.

    None: in a file elsewhere.
    """
    length = min(_RAW, align_down(device.size, max(_SECTOR_SIZES)))
    for start in (0, align_down(device.size - length, max(_SECTOR_SIZES))):
        raw = _or_nothing(device, start, min(length + max(_SECTOR_SIZES), device.size - start))
        at = raw.find(GPT_TYPE.bytes_le)
        while at >= 0:
            name = raw[at + _NAME_AT : at + _NAME_AT + _NAME_LENGTH].decode("utf-16-le", "replace")
            name = name.rstrip("\0")
            place = journal_in_name(name)
            if place is not None or name == _NAME_ELSEWHERE:
                yield place
            at = raw.find(GPT_TYPE.bytes_le, at + 1)


def _or_nothing(device: Device, at: int, length: int) -> bytes:
    try:
        return bytes(device.read(at, length))
    except OSError:
        return b""


def parked_gpt_entry(entry: bytes, number: int, journal_at: int | None, journal_id: bytes) -> bytes:
    name = _NAME_ELSEWHERE if journal_at is None else f"aligntool resume @{journal_at}"
    parked = bytearray(entry)
    parked[:16] = GPT_TYPE.bytes_le
    parked[16:32] = _with_number(journal_id, number)
    (attributes,) = struct.unpack_from("<Q", entry, _ATTRIBUTES_AT)
    struct.pack_into("<Q", parked, _ATTRIBUTES_AT, attributes | _LEAVE_ALONE)
    parked[_NAME_AT : _NAME_AT + _NAME_LENGTH] = name.encode("utf-16-le").ljust(_NAME_LENGTH, b"\0")
    return bytes(parked)


def parked_mbr_entry(entry: MbrEntry, journal_at: int | None) -> MbrEntry:
    address = MBR_ELSEWHERE if journal_at is None else journal_at // MBR_UNIT
    told = address.to_bytes(6, "little")
    return replace(entry, status=0, kind=MBR_TYPE, chs_start=told[:3], chs_end=told[3:])


def _with_number(journal_id: bytes, number: int) -> bytes:
    """Its own inverse."""
    return (int.from_bytes(journal_id, "little") ^ number).to_bytes(16, "little")


def _in_mbr(device: Device) -> ParkedMark | None:
    entries = entries_of(read_bytes(device, 0, MBR_UNIT) or b"") or ()
    for entry in entries:
        if entry.kind != MBR_TYPE or entry.status or not entry.sectors:
            continue
        parked = journal_in_addresses(entry.chs_start + entry.chs_end, device.size)
        if parked is not None:
            return ParkedMark(parked.journal_at, None)
    return None


def _in_gpt(device: Device, sector_size: int) -> ParkedMark | None:
    primary = read_copy(device, 1, sector_size)
    ends = {device.size // sector_size - 1: None}
    if primary is not None:
        ends[primary.other_lba] = None
    backups = [read_copy(device, lba, sector_size) for lba in ends if lba > 1]
    copies = [copy for copy in (primary, *backups) if copy is not None]
    for copy in sorted(copies, key=lambda copy: not copy.sound):
        mark = _mark_of(copy)
        if mark is not None:
            only_backup = primary is not None and primary.sound and copy is not primary
            return replace(mark, sound=copy.sound, only_backup=only_backup)
    return None


def _mark_of(copy: GptCopy) -> ParkedMark | None:
    for number, entry in copy.numbered():
        if entry[:16] == GPT_TYPE.bytes_le:
            name = entry[_NAME_AT : _NAME_AT + _NAME_LENGTH].decode("utf-16-le", "replace").rstrip("\0")
            return ParkedMark(journal_in_name(name), _with_number(entry[16:32], number))
    return None
