"""Write partition tables in a safe order: images of a GPT, foreign headers removed."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

from aligntool.device import Device, Sectors, Writing
from aligntool.errors import Refused, Stopped
from aligntool.formats.gpt import GptCopy, read_copy
from aligntool.formats.mbr import NO_ENTRY, MbrEntry, entries_of, with_entries
from aligntool.formats.parked import copies_of, parked_gpt_entry
from aligntool.formats.part_types import GPT_PROTECTIVE
from aligntool.realign.mbr_images import (
    TableImages,
    TableState,
    check_after,
    check_before,
    check_parked,
    mbr_images,
    refused,
    table_state,
    unsound,
    way_to,
)
from aligntool.steps import ParkEntries, RewriteTable
from aligntool.units import Extent

# The GPT of a move: both copies before, in flight and after. What no change names stays as it is, to the bit:
# the protective MBR is not even a part of the images.

_PRIMARY_LBA = 1


def gpt_images(
    device: Device, park: ParkEntries, rewrite: RewriteTable, *, journal_at: int | None, journal_id: bytes
) -> TableImages:
    """As `table_images`."""
    pair = _sound_pair(device)
    sector_size = device.sector_size
    old = {entry.number: entry for entry in pair[0].used_entries()}
    found = {number: entry.extent(sector_size) for number, entry in old.items()}
    changes = {change.number: change for change in rewrite.changes}
    moving = {number for number, change in changes.items() if change.before != change.after}
    after = found | {number: change.after for number, change in changes.items()}
    check_before(found, changes)
    check_parked(park, moving)
    check_after(after, moving, room=pair[0].usable, sector_size=sector_size)
    unknown = sorted(set(park.parked) - set(old))
    if unknown:
        raise refused(f"the plan parks partition {unknown[0]}, which is not there")
    parked = {number: parked_gpt_entry(old[number], journal_at, journal_id) for number in park.parked}
    moved = {
        number: replace(old[number], first=place.start // sector_size, last=place.end // sector_size - 1)
        for number, change in changes.items()
        for place in (change.after,)
    }
    return TableImages(
        before=_writing(pair),
        parked=_writing(copy.with_entries(parked) for copy in pair),
        after=_writing(copy.with_entries(moved) for copy in pair),
    )


def _writing(pair: Iterable[GptCopy]) -> Writing:
    primary, backup = pair
    return backup.group, primary.group


def _sound_pair(device: Device) -> tuple[GptCopy, GptCopy]:
    """Both copies, whole and of one mind; raises Refused otherwise."""
    sector_size = device.sector_size
    _check_protective(entries_of(bytes(device.read(0, sector_size))))
    primary = read_copy(device, _PRIMARY_LBA, sector_size)
    if primary is None or not primary.sound:
        raise unsound(f"the primary GPT for sectors of {sector_size} bytes is damaged or missing")
    backup = read_copy(device, primary.header.other_lba, sector_size)
    if backup is None or not backup.sound:
        raise unsound(f"the backup GPT, which should be at sector {primary.header.other_lba}, is damaged or missing")
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
        header = copy.header
        return copy.usable, header.disk_guid, header.entry_count, header.entry_size, copy.used_bytes

    return backup.header.other_lba == _PRIMARY_LBA and shared(primary) == shared(backup)


def _check_protective(entries: tuple[MbrEntry, ...] | None) -> None:
    """A GPT counts behind a 0xEE entry only, and beside one nothing else may stand: a hybrid MBR would go stale."""
    used = [entry for entry in entries or () if entry.sectors or entry.code]
    if all(entry.code != GPT_PROTECTIVE for entry in used):
        raise unsound("no protective MBR stands before the GPT, so Linux does not use it")
    if len(used) > 1:
        raise unsound("a hybrid MBR stands before the GPT and lists partitions of its own")


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


# What another table leaves beside the one that is written over it.

_CHS_FIRST, _CHS_BEYOND = b"\x00\x02\x00", b"\xff\xff\xff"  # UEFI specification 2.10, table 5-4


def leftovers(device: Device, images: TableImages) -> Writing:
    """Return what has to be written before the table: headers of other GPTs erased, a protective MBR added."""
    own = {sectors.at for group in images.parked for sectors in group}
    foreign = {copy.header_extent.start: len(copy.sector) for copy in copies_of(device)}
    erased = tuple(Sectors(at, bytes(length)) for at, length in foreign.items() if at not in own)
    return (*((erased,) if erased else ()), *protective(device, images))


def is_shown(device: Device, images: TableImages) -> bool | None:
    """Return whether sector 0 lets a reader see the table of a move: False for an MBR of another program in front of a
    GPT, None where there is no MBR at all.
    """
    if any(sectors.at == 0 for group in images.parked for sectors in group):
        return True
    entries = entries_of(bytes(device.read(0, device.sector_size)))
    return None if entries is None else any(entry.code == GPT_PROTECTIVE for entry in entries)


def protective(device: Device, images: TableImages) -> Writing:
    """Return the protective MBR where the table is a GPT and has none. Boot code stays."""
    if any(sectors.at == 0 for group in images.parked for sectors in group):
        return ()
    sector = bytes(device.read(0, device.sector_size))
    if any(entry.code == GPT_PROTECTIVE for entry in entries_of(sector) or ()):
        return ()
    count = min(device.size // device.sector_size - 1, 2**32 - 1)
    whole = MbrEntry(0, _CHS_FIRST, GPT_PROTECTIVE, _CHS_BEYOND, 1, count)
    made = with_entries(sector, {1: whole, 2: NO_ENTRY, 3: NO_ENTRY, 4: NO_ENTRY})
    return ((Sectors(0, made),),)


# Partition tables onto the disk, in the order that is the argument for their safety.


def write_table(device: Device, images: TableImages, goal: TableState, *, first: Writing | None = None) -> None:
    """From whatever a cut has left to `goal`: group by group, each durable and read back before the next begins.

    `first`: groups to write before it, over any other table. Raises Stopped when what is read back differs, or, without
    them, when the table is another program's.
    """
    anew = first is not None or _torn(device, images)
    writing = (*(first or ()), *(images.of(goal) if anew else way_to(device, images, goal)))
    for group in writing:
        for sectors in group:
            device.write(sectors.at, sectors.data)
        device.flush()
        for sectors in group:
            if device.read(sectors.at, len(sectors.data)) != sectors.data:
                raise Stopped(f"the partition table at byte {sectors.at} reads back as something else",
                              hint="the disk is failing; aligntool resume DISK writes it again")  # fmt: skip


def _torn(device: Device, images: TableImages) -> bool:
    return table_state(device, images) is TableState.OTHER and is_ours(device, images)


def is_ours(device: Device, images: TableImages) -> bool:
    """Whether every byte of the table's own sectors is that of one of its three states: a torn mix, and not
    somebody else's table.

    EBRs do not count: in flight, their sectors may lie under data.
    """
    states: dict[int, list[bytes]] = {}
    for writing in (images.before, images.parked, images.after):
        for sectors in all_sectors(writing):
            states.setdefault(sectors.at, []).append(sectors.data)
    for sectors in all_sectors(images.parked):
        found = bytes(device.read(sectors.at, len(sectors.data)))
        known = states[sectors.at]
        if found not in known and not all(byte in set(those) for byte, *those in zip(found, *known, strict=True)):
            return False
    return True


def all_sectors(writing: Writing) -> Iterable[Sectors]:
    return (sectors for group in writing for sectors in group)
