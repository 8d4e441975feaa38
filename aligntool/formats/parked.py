"""Parked entries, which mark a move in flight in a table: types, names, journal address."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from aligntool.device import Device
from aligntool.formats.gpt import CheckedCopy, GptCopy, GptEntry, read_bytes, read_copy, read_entries
from aligntool.formats.mbr import MbrEntry, MbrSector, entries_of
from aligntool.formats.part_types import GPT_PROTECTIVE
from aligntool.inventory import Disk, InFlight, Partition
from aligntool.units import align_down

# Parked entries: the partition types and fields that mark a move in flight.

PARKED_GPT = UUID("49d6adeb-b2c3-4691-8fa8-bfbac209865b")  # random, generated for this purpose
PARKED_MBR = 0x7F  # "reserved for local or experimental use": no system uses this type byte

MBR_UNIT = 512  # whatever the disk's sector size
MBR_ELSEWHERE = (1 << 48) - 1
# journals start at its multiples: 0x7F with another address is another program's partition
_JOURNAL_GRID = 64 * 1024
# The least address that two CHS addresses can be read as: sectors count from 1. Below it, an entry is parked
# even if the disk ends before its journal: behind an adapter that hides its end, or because it was copied in
# part.
_LEAST_CHS = (1 << 32) * MBR_UNIT
_NAME = "aligntool resume @([0-9]+)"
_TYPES = (str(PARKED_GPT).upper(), f"0x{PARKED_MBR:02x}")


def journal_in_name(name: str) -> int | None:
    """Return the offset of the journal from the name of a parked GPT entry, or None if the journal is
    elsewhere or the name was changed.
    """
    found = re.fullmatch(_NAME, name)
    return int(found[1]) if found else None


def _mbr_mark(entry: MbrEntry, disk_size: int) -> InFlight | None:
    """Return the mark in the CHS addresses of an MBR entry of type 0x7F, or None if another program wrote the
    entry.
    """
    if entry.code != PARKED_MBR or entry.boot or not entry.sectors:
        return None
    address = int.from_bytes(entry.chs_start + entry.chs_end, "little")
    if address == MBR_ELSEWHERE:
        return InFlight((), None)
    at = address * MBR_UNIT
    return InFlight((), at) if at and at % _JOURNAL_GRID == 0 and at < max(disk_size, _LEAST_CHS) else None


def parked_by_type(partitions: Sequence[Partition]) -> InFlight | None:
    """Return the marks from the partition types and names alone, for a table of which nothing else could be
    read.
    """
    parked = [part for part in partitions if part.type_code in _TYPES]
    if not parked:
        return None
    places = (journal_in_name(part.name or "") for part in parked)
    return InFlight(
        tuple(part.number for part in parked), next((at for at in places if at is not None), None)
    )


def parked_numbers(disk: Disk) -> frozenset[int]:
    """Return the numbers of the partitions that a move in flight has parked; all, if another program has
    replaced the table of the move.
    """
    flight = disk.table.in_flight if disk.table else None
    if flight and not flight.partitions:
        return frozenset(part.number for part in disk.partitions)
    return frozenset(flight.partitions if flight else ())


def is_marked_in_flight(disk: Disk) -> bool:
    """Return whether the table marks a move in flight; `aligntool status` also looks for the journal."""
    return disk.table is not None and disk.table.in_flight is not None


# Parked entries: how they are encoded, and how they are found on a disk.
#
# In a GPT: the type GUID above; as unique GUID the journal's id XORed with the entry's number; a readable
# name; the attributes plus the bits that keep firmware and Windows away. In an MBR: type 0x7F, which nothing
# mounts, and instead of the two CHS addresses the journal's offset divided by 512, 48 bits little-endian; all
# ones if the journal is elsewhere. Start and length stay, so that no program treats the place as free.

_SECTOR_SIZES = (512, 4096, 2048, 1024)
_NAME_AT = 56
_NAME_LENGTH = 72  # 36 UTF-16 units
# UEFI specification 2.10, table 5-8, bit 1: no block I/O. Microsoft data partitions, bit 62: hidden, 63: no
# automount.
_KEEP_AWAY_BITS = 1 << 1 | 1 << 62 | 1 << 63
_SEARCHED = 64 * 1024  # bytes at either end of a disk that contain the usual arrays of entries
_NAME_ELSEWHERE = "aligntool resume --journal FILE"


@dataclass(frozen=True, slots=True)
class ParkedMark:
    """The content of a parked entry."""

    journal_at: int | None  # offset on the disk; None: elsewhere, or the name was changed
    journal_id: bytes | None  # 16 bytes; None: an MBR has no space for it
    sound: bool = True  # the checksum over the entries is valid, or there is none
    only_backup: bool = False  # a valid primary GPT has no parked entry: not in flight, or no longer


def find_parked(device: Device) -> ParkedMark | None:
    """Return the mark of a move in flight, for any sector size of the table, or None if no table has one.

    Torn copies are read last. Raises OSError if the device cannot be read; no content of the disk raises
    anything.
    """
    mark = _in_mbr(device)
    return mark or next((found for size in _SECTOR_SIZES if (found := _in_gpt(device, size))), None)


def journals_in_torn_entries(device: Device) -> Iterator[int | None]:
    """Yield the journal offsets in parked GPT entries, whatever the state of the headers before them.

    None: the journal is in a file elsewhere.
    """
    length = min(_SEARCHED, align_down(device.size, max(_SECTOR_SIZES)))
    for start in (0, align_down(device.size - length, max(_SECTOR_SIZES))):
        raw = read_or_empty(device, start, min(length + max(_SECTOR_SIZES), device.size - start))
        at = raw.find(PARKED_GPT.bytes_le)
        while at >= 0:
            name = raw[at + _NAME_AT : at + _NAME_AT + _NAME_LENGTH].decode("utf-16-le", "replace")
            name = name.rstrip("\0")
            place = journal_in_name(name)
            if place is not None or name == _NAME_ELSEWHERE:
                yield place
            at = raw.find(PARKED_GPT.bytes_le, at + 1)


def read_or_empty(device: Device, at: int, length: int) -> bytes:
    """Return the bytes, or b"" if the medium is unreadable."""
    try:
        return bytes(device.read(at, length))
    except OSError:
        return b""


def parked_gpt_entry(entry: GptEntry, journal_at: int | None, journal_id: bytes) -> GptEntry:
    name = _NAME_ELSEWHERE if journal_at is None else f"aligntool resume @{journal_at}"
    return replace(
        entry,
        type_guid=PARKED_GPT.bytes_le,
        unique_guid=_xor_number(journal_id, entry.number),
        attributes=entry.attributes | _KEEP_AWAY_BITS,
        raw_name=name.encode("utf-16-le"),
    )


def parked_mbr_entry(entry: MbrEntry, journal_at: int | None) -> MbrEntry:
    address = MBR_ELSEWHERE if journal_at is None else journal_at // MBR_UNIT
    raw = address.to_bytes(6, "little")
    return replace(entry, boot=0, code=PARKED_MBR, chs_start=raw[:3], chs_end=raw[3:])


def _xor_number(journal_id: bytes, number: int) -> bytes:
    """Return the journal's id XORed with the number of an entry; its own inverse."""
    return (int.from_bytes(journal_id, "little") ^ number).to_bytes(16, "little")


def _in_mbr(device: Device) -> ParkedMark | None:
    entries = entries_of(read_bytes(device, 0, MBR_UNIT) or b"") or ()
    parked = next((found for entry in entries if (found := _mbr_mark(entry, device.size))), None)
    return ParkedMark(parked.journal_at, None) if parked else None


def _in_gpt(device: Device, sector_size: int) -> ParkedMark | None:
    primary = read_copy(device, 1, sector_size)
    ends = {device.size // sector_size - 1: None}
    if primary is not None:
        ends[primary.header.other_lba] = None
    backups = [read_copy(device, lba, sector_size) for lba in ends if lba > 1]
    copies = [copy for copy in (primary, *backups) if copy is not None]
    for copy in sorted(copies, key=lambda copy: not copy.sound):
        mark = _gpt_mark(copy)
        if mark is not None:
            only_backup = primary is not None and primary.sound and copy is not primary
            return replace(mark, sound=copy.sound, only_backup=only_backup)
    return None


def _gpt_mark(copy: GptCopy) -> ParkedMark | None:
    for entry in copy.used_entries():
        if entry.type_guid == PARKED_GPT.bytes_le:
            return ParkedMark(journal_in_name(entry.name), _xor_number(entry.unique_guid, entry.number))
    return None


# The starts of a disk's partitions, and whether its table is intact, for the search for a lost journal.


def partition_starts(device: Device, sector_sizes: Sequence[int]) -> Iterator[int]:
    """Yield the starts of primary partitions in an MBR for each of these sector sizes, and of every GPT entry
    in either copy. Raises OSError.
    """
    for entry in entries_of(bytes(device.read(0, device.sector_size))) or ():
        if entry.sectors:
            yield from (entry.start * size for size in sector_sizes)
    for copy in valid_copies(device):
        yield from (entry.first * copy.sector_size for entry in copy.used_entries())


def is_table_intact(device: Device) -> bool:
    """Return whether the table is undamaged: a valid MBR, and both copies of a GPT if the MBR has a 0xEE
    entry.

    An entry of the parked type can be a parked entry whose journal address is torn, so it counts as damage.
    """
    entries = entries_of(bytes(device.read(0, device.sector_size)))
    if entries is None or any(entry.code == PARKED_MBR and entry.sectors for entry in entries):
        return False
    if all(entry.code != GPT_PROTECTIVE for entry in entries):
        return True
    copies = valid_copies(device)
    return len(copies) == 2 and all(copy.sound for copy in copies)


def valid_copies(device: Device) -> list[GptCopy]:
    """Return the copies of a GPT with a valid header.

    An image does not state its sector size, so the size with the most such copies is used.
    """
    found: list[GptCopy] = []
    for sector in dict.fromkeys((device.sector_size, *_SECTOR_SIZES)):
        primary = read_copy(device, 1, sector)
        backup = read_copy(device, primary.header.other_lba if primary else device.size // sector - 1, sector)
        copies = [copy for copy in (primary, backup) if copy is not None]
        if len(copies) > len(found):
            found = copies
    return found


# The marks of a move in flight in a table that was read for the audit.


def parked_in_mbr(table: MbrSector, disk_size: int) -> InFlight | None:
    """Return the parked entries of an MBR; type 0x7F without a journal address is another program's
    partition.
    """
    marks = {entry.slot: mark for entry in table.used if (mark := _mbr_mark(entry, disk_size))}
    return replace(next(iter(marks.values())), partitions=tuple(marks)) if marks else None


def parked_in_gpt(in_use: CheckedCopy, other: CheckedCopy) -> InFlight | None:
    """Return the parked entries of the copy in use, or else those of the other copy.

    The mover writes the backup copy first: a power cut between the two leaves parked entries only in the
    backup copy.
    """
    same_disk = in_use.header and other.header and in_use.header.disk_guid == other.header.disk_guid
    copies = (in_use, other) if same_disk else (in_use,)
    return next((found for copy in copies if (found := parked_by_type(read_entries(copy)[0]))), None)
