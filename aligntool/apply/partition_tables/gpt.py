"""The GPT of a move: both copies before, in flight and after.

In: the GPT on a Device and the changes to it. Out: its images, the backup copy before the primary one. Alone because a
GPT has checksums, two copies, and an entry with room for a name. What no change speaks of stays as it is, to the bit:
the protective MBR is not even a part of the images.
"""

import struct
from collections.abc import Iterable
from itertools import combinations

from aligntool.apply.device import Device, Writing
from aligntool.apply.partition_tables.checks import check_after, check_before, check_parked, refused, unsound
from aligntool.apply.partition_tables.gpt_copy import GptCopy, read_copy
from aligntool.apply.partition_tables.images import TableImages
from aligntool.apply.partition_tables.mbr_entry import MbrEntry, entries_of
from aligntool.apply.partition_tables.parked import parked_gpt_entry
from aligntool.plan import ParkEntries, RewriteTable
from aligntool.units import Extent

_PRIMARY_LBA = 1
_PROTECTIVE = 0xEE
_FIRST_LBA_AT = (
    32  # and the last one, which still belongs to it, after it: UEFI specification 2.10, table 5-6
)


def gpt_images(
    device: Device, park: ParkEntries, rewrite: RewriteTable, *, journal_at: int | None, journal_id: bytes
) -> TableImages:
    """As `table_images`."""
    pair = _sound_pair(device)
    sector_size = device.sector_size
    old = dict(pair[0].numbered())
    found = {number: _extent(entry, sector_size) for number, entry in old.items()}
    changes = {change.number: change for change in rewrite.changes}
    moving = {number for number, change in changes.items() if change.before != change.after}
    after = found | {number: change.after for number, change in changes.items()}
    check_before(found, changes)
    check_parked(park, moving)
    check_after(after, moving, room=pair[0].usable, sector_size=sector_size)
    unknown = sorted(set(park.parked) - set(old))
    if unknown:
        raise refused(f"the plan parks partition {unknown[0]}, which is not there")
    parked = {number: parked_gpt_entry(old[number], number, journal_at, journal_id) for number in park.parked}
    moved = {number: _moved(old[number], after[number], sector_size) for number in changes}
    return TableImages(
        before=_writing(pair),
        parked=_writing(copy.with_entries(parked) for copy in pair),
        after=_writing(copy.with_entries(moved) for copy in pair),
    )


def _writing(pair: Iterable[GptCopy]) -> Writing:
    primary, backup = pair
    return backup.group, primary.group


def _extent(entry: bytes, sector_size: int) -> Extent:
    first, last = struct.unpack_from("<QQ", entry, _FIRST_LBA_AT)
    return Extent(first * sector_size, (last - first + 1) * sector_size)


def _moved(entry: bytes, place: Extent, sector_size: int) -> bytes:
    changed = bytearray(entry)
    struct.pack_into("<QQ", changed, _FIRST_LBA_AT, place.start // sector_size, place.end // sector_size - 1)
    return bytes(changed)


def _sound_pair(device: Device) -> tuple[GptCopy, GptCopy]:
    """Both copies, whole and of one mind; raises Refused otherwise."""
    sector_size = device.sector_size
    _check_protective(entries_of(bytes(device.read(0, sector_size))))
    primary = read_copy(device, _PRIMARY_LBA, sector_size)
    if primary is None or not primary.sound:
        raise unsound(f"the primary GPT for sectors of {sector_size} bytes is damaged or missing")
    backup = read_copy(device, primary.other_lba, sector_size)
    if backup is None or not backup.sound:
        raise unsound(f"the backup GPT, which should be at sector {primary.other_lba}, is damaged or missing")
    if not _agree(primary, backup):
        raise unsound("the two copies of the GPT are valid, and they disagree")
    places = [Extent(0, sector_size), primary.usable]
    for copy in (primary, backup):
        places += [copy.header_extent, copy.entries_extent]
    if any(one.overlaps(other) for one, other in combinations(places, 2)):
        raise unsound("the GPT lies on itself, or where partitions may lie")
    return primary, backup


def _agree(primary: GptCopy, backup: GptCopy) -> bool:
    def shared(copy: GptCopy) -> tuple[object, ...]:
        return copy.usable, copy.disk_guid, copy.entry_count, copy.entry_size, copy.used_bytes

    return backup.other_lba == _PRIMARY_LBA and shared(primary) == shared(backup)


def _check_protective(entries: tuple[MbrEntry, ...] | None) -> None:
    """A GPT counts behind a 0xEE entry only, and beside one nothing else may stand: a hybrid MBR would go stale."""
    used = [entry for entry in entries or () if entry.sectors or entry.kind]
    if all(entry.kind != _PROTECTIVE for entry in used):
        raise unsound("no protective MBR stands before the GPT, so Linux does not use it")
    if len(used) > 1:
        raise unsound("a hybrid MBR stands before the GPT and lists partitions of its own")
