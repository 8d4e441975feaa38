"""Build the partition tables of a move (before it, in flight, after it), MBR or GPT, and write them in a safe
order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, combinations, zip_longest

from aligntool.commands import DISK, Hint, command
from aligntool.device import Device, Sectors, Writing
from aligntool.errors import Refused, Stopped
from aligntool.formats import mbr as mbrs
from aligntool.formats.gpt import MOST_ENTRIES, SIGNATURE, GptCopy, GptEntry, Header, read_bytes, read_copy
from aligntool.formats.mbr import (
    EMPTY_ENTRY,
    Geometry,
    MbrEntry,
    entries_of,
    moved_entry,
    protective_mbr,
    with_entries,
)
from aligntool.formats.parked import parked_gpt_entry, parked_mbr_entry, valid_copies
from aligntool.formats.part_types import GPT_PROTECTIVE
from aligntool.inventory import LAST_NUMBER
from aligntool.mover.claimed_room import (
    FULL_MBR,
    NO_CLAIMS,
    FlightClaims,
    entries_in_flight,
    mbr_room,
    unused_slots,
)
from aligntool.steps import EntryChange, ParkEntries, RewriteTable
from aligntool.units import Extent

# Conditions on a table and on the changes to it, for every kind of table.

_PLAN_AGAIN = Hint("make a new plan: ", command("plan realign", DISK, "-o plan.json"))


def stale_plan(reason: str) -> Refused:
    return Refused(reason, hint=_PLAN_AGAIN, code="plan-stale")


def unsound_table(reason: str) -> Refused:
    return Refused(f"the partition table has an error: {reason}", hint=command("audit"), code="table-damaged")


def unusual_gpt(hint: str) -> Refused:
    text = (
        "the GPT does not have 128 entries, or its copies are not in the first and the last sectors of the"
        " disk"
    )
    return Refused(text, hint=hint, code="table-kind")


def check_before(found: Mapping[int, Extent], changes: Mapping[int, EntryChange]) -> None:
    """Raise Refused unless the table is the one that the plan was made for."""
    for number, change in changes.items():
        if found.get(number) != change.before:
            here = describe_extent(found.get(number))
            planned = describe_extent(change.before)
            raise stale_plan(f"partition {number} is {here}, but the plan expects it {planned}")


def check_parked(park: ParkEntries, moving: Set[int]) -> None:
    """Raise Refused unless the plan parks every entry of `moving`, which must be hidden in flight."""
    unparked = sorted(moving - set(park.parked))
    if unparked:
        raise stale_plan(f"the plan moves partition {unparked[0]} but does not park its entry")


def check_after(after: Mapping[int, Extent], changed: Set[int], *, room: Extent, sector_size: int) -> None:
    """Raise Refused unless each changed partition has whole sectors, lies in `room` and overlaps no other
    partition.
    """
    for number in changed:
        place = after[number]
        if place.start % sector_size or place.length % sector_size or place.length <= 0:
            text = (
                f"partition {number} would be {describe_extent(place)}: not in whole sectors of {sector_size}"
                " bytes"
            )
            raise stale_plan(text)
        if not room.contains(place):
            there = describe_extent(place)
            allowed = describe_extent(room)
            raise stale_plan(f"partition {number} would be {there}, but partitions may only be {allowed}")
        for other, taken in after.items():
            if other != number and taken.overlaps(place):
                raise stale_plan(
                    f"partition {number} would be {describe_extent(place)}, overlapping partition {other}"
                )


def describe_extent(extent: Extent | None) -> str:
    return "not there" if extent is None else f"at bytes {extent.start} to {extent.end - 1}"


# The chain of EBRs of an extended partition, read strictly and rebuilt.
#
# A logical partition's start counts from its own EBR, a link from the start of the container
# (parse_extended() in the kernel's block/partitions/msdos.c). Linux numbers logical partitions in the order
# of the chain, so the order is kept. Chains that the kernel would follow but no tool creates (links outside
# the container, entries three and four) are refused.

_MOST_EBRS = 512


@dataclass(frozen=True, slots=True)
class Logical:
    number: int
    at: int  # offset of its EBR
    sector: bytes  # the EBR
    extent: Extent
    link: MbrEntry  # the entry that links to this EBR; EMPTY_ENTRY for the first of the chain


@dataclass(frozen=True, slots=True)
class Chain:
    slot: int  # number of the container
    container: Extent
    sectors: Mapping[int, bytes]  # every EBR by its offset, also EBRs without a partition
    logicals: tuple[Logical, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a logical partition and its EBR in the new chain."""

    logical: Logical
    at: int
    extent: Extent


def read_chain(
    device: Device, slot: int, container: Extent, first_number: int, sector_size: int | None = None
) -> Chain:
    """Return the chain. `sector_size`: of the table. Raises Refused if the chain cannot be rebuilt, OSError
    if it is unreadable.
    """
    sectors: dict[int, bytes] = {}
    logicals: list[Logical] = []
    size = sector_size or device.sector_size
    at = container.start
    link = EMPTY_ENTRY
    while True:
        if not container.contains(Extent(at, size)) or at + size > device.size:
            raise unsound_table(f"the chain of EBRs in partition {slot} leads out of it, to byte {at}")
        if at in sectors or len(sectors) >= _MOST_EBRS:
            raise unsound_table(f"the chain of EBRs in partition {slot} has no end")
        sectors[at] = read_bytes(device, at, size) or b""
        data, following = _partition_and_link(sectors[at], slot, at)
        if data.sectors:
            extent = Extent(at + data.start * size, data.sectors * size)
            number = first_number + len(logicals)
            logicals.append(Logical(number, at, sectors[at], extent, link))
            if number > LAST_NUMBER or not data.start or not container.contains(extent):
                raise unsound_table(
                    f"logical partition {number} is {describe_extent(extent)}, where none is allowed"
                )
        if not following.sectors:
            return Chain(slot, container, sectors, tuple(logicals))
        at = container.start + following.start * size
        link = following


def _partition_and_link(sector: bytes, slot: int, at: int) -> tuple[MbrEntry, MbrEntry]:
    """Return the entries of the partition and of the link. Raises Refused if the EBR has anything else."""
    entries = entries_of(sector)
    if entries is None:
        raise unsound_table(f"the EBR at byte {at}, in partition {slot}, does not end in 55 AA")
    data, link, *rest = entries
    odd = (data.sectors and data.is_extended) or (link.sectors and not link.is_extended)
    if odd or any(entry.sectors for entry in rest):
        raise unsound_table(f"the EBR at byte {at}, in partition {slot}, has entries in an unusual order")
    return data, link


def new_chain(
    chain: Chain, changes: Mapping[int, EntryChange], sector_size: int, geometry: Geometry, new_size: int = 0
) -> Iterator[Sectors]:
    """Yield the EBRs after the move, in the order of the chain. `new_size`: the sector size of the new table,
    if it differs from that of the old one.

    Other content of the EBR of a logical partition (labels of boot managers) moves with it. An EBR without a
    partition is omitted. Raises Refused if the plan has an EBR at an impossible place.
    """
    change = changes.get(chain.slot)
    container = change.after if change else chain.container
    places = [_new_place(logical, changes.get(logical.number)) for logical in chain.logicals]
    _check_places(places, container, chain.slot, new_size or sector_size)
    for place, following in zip_longest(places, places[1:]):
        logical = place.logical
        data, link = _partition_and_link(logical.sector, chain.slot, logical.at)
        data = moved_entry(
            data,
            logical.extent,
            place.extent,
            counted_from=place.at,
            sector_size=sector_size,
            new_size=new_size,
            geometry=geometry,
        )
        if following is not None:
            link = moved_entry(
                following.logical.link,
                _linked_extent(following.logical),
                _linked_extent(following),
                counted_from=container.start,
                sector_size=sector_size,
                new_size=new_size,
                geometry=geometry,
            )
        elif link.sectors:
            link = EMPTY_ENTRY  # the old link led to EBRs without a partition
        yield Sectors(place.at, with_entries(logical.sector, {1: data, 2: link}))


def _linked_extent(place: Logical | _Place) -> Extent:
    """Return the extent that a link states: from the EBR to the end of its partition."""
    return Extent(place.at, place.extent.end - place.at)


def _new_place(logical: Logical, change: EntryChange | None) -> _Place:
    if change is None:
        return _Place(logical, logical.at, logical.extent)
    if change.record_before not in (None, logical.at):
        planned = f"the plan was made for one at byte {change.record_before}"
        raise stale_plan(f"the EBR of partition {logical.number} is at byte {logical.at}, but {planned}")
    at = logical.at if change.record_after is None else change.record_after
    return _Place(logical, at, change.after)


def _check_places(places: list[_Place], container: Extent, slot: int, sector_size: int) -> None:
    """Raise Refused unless Linux reads the chain as planned and no EBR overlaps a partition."""
    if places and places[0].at != container.start:
        raise stale_plan(
            f"the first EBR of partition {slot} would not be at its start, byte {container.start}"
        )
    records = [Extent(place.at, sector_size) for place in places]
    for place, record in zip(places, records, strict=True):
        number = place.logical.number
        if not container.contains(record) or not container.contains(place.extent):
            raise stale_plan(f"logical partition {number} or its EBR would be outside of partition {slot}")
        if record.start % sector_size or record.end > place.extent.start:
            raise stale_plan(
                f"the EBR at byte {record.start} would not be a whole sector before partition {number}"
            )
        if any(record.overlaps(other.extent) for other in places):
            raise stale_plan(
                f"the EBR of partition {number}, at byte {record.start}, would be inside a partition"
            )
    if len(set(records)) < len(records):
        raise stale_plan(f"two EBRs of partition {slot} would be at the same place")


# The three tables of a move, which of them a disk has, and the writes that lead from one to the next.
#
# A GPT is written copy by copy, the backup first. While the backup is written, the primary is whole and old;
# while the primary is written, the backup is whole and new. An MBR is one sector. The EBRs are written before
# it, while the old MBR still hides their container.


class TableState(StrEnum):
    BEFORE = "before"
    PARKED = "parked"
    AFTER = "after"
    OTHER = "other"  # none of the three: another program has changed the table


@dataclass(frozen=True, slots=True)
class TableImages:
    """The sectors of the three tables. The last group of each decides what is read: the primary GPT, or the
    MBR.
    """

    before: Writing
    parked: Writing
    after: Writing

    def of(self, state: TableState) -> Writing:
        """Return the image of a state. Raises KeyError for OTHER, which has none."""
        return {TableState.BEFORE: self.before, TableState.PARKED: self.parked, TableState.AFTER: self.after}[
            state
        ]

    @property
    def sectors(self) -> Iterator[Sectors]:
        """Yield the sectors of all three tables."""
        return chain.from_iterable(chain(self.before, self.parked, self.after))

    def has_table(self, state: TableState) -> bool:
        """Return whether the image of a state includes sector 0."""
        return any(sectors.at == 0 for sectors in all_sectors(self.of(state)))

    @property
    def of_whole_disk(self) -> bool:
        """Return whether the disk has a table only before or only after the move: mover/whole_disk.py."""
        return self.has_table(TableState.BEFORE) != self.has_table(TableState.AFTER)

    def without_sector_0(self, state: TableState) -> "TableImages":
        """Return the images for a disk with content at its start, if the table of `state` does not include
        sector 0.
        """
        return self if self.has_table(state) else replace(self, parked=self.parked[:1])


_KNOWN = (TableState.PARKED, TableState.BEFORE, TableState.AFTER)


def table_state(device: Device, images: TableImages) -> TableState:
    """Return which table a reader of the disk sees now: the GPT's primary copy if it is valid, otherwise its
    backup; or the MBR. Raises OSError if it is unreadable.
    """
    last_group = images.parked[-1]
    # a state with a table is recognised by its sector 0, the others by the end of the disk
    if images.of_whole_disk:
        if any(sectors.at == 0 and _matches(device, (sectors,)) for sectors in all_sectors(images.parked)):
            # a rollback restores the end of the disk first, which an MBR leaves blank
            return TableState.PARKED
        states = sorted(_KNOWN, key=lambda state: images.of(state)[-1][-1].at != 0)
        return next((state for state in states if _matches(device, images.of(state)[-1])), TableState.OTHER)
    if any(sectors.at == 0 for sectors in last_group):
        return _state_of_mbr(device, images)
    sector_size = min(sectors.at for sectors in last_group)  # the primary header is sector 1
    found = _first_matching(device, images, group=-1)
    if found is TableState.OTHER:
        primary = read_copy(device, 1, sector_size)
        if primary is None or not primary.sound:
            found = _first_matching(device, images, group=0)
    return found


def groups_leading_to(device: Device, images: TableImages, goal: TableState) -> Writing:
    """Return the groups to write, in order, to bring the table from its state after a cut to `goal`, readable
    at every moment.

    First the group that decides what is read is rewritten in its present state, because it may be torn: while
    the primary copy of a GPT is torn, its backup must not be touched. Raises Stopped if the disk has another
    table, or one that is not a neighbour of `goal` (PARKED lies between the other two).
    """
    state = table_state(device, images)
    if state is TableState.OTHER:
        raise Stopped("the partition table has been changed by another program since the move began")
    if images.of(state) != images.of(goal) and TableState.PARKED not in (state, goal):
        raise Stopped(
            f"the partition table is in state {state} and cannot be changed directly to state {goal}"
        )
    return (images.of(state)[-1], *images.of(goal))


def _state_of_mbr(device: Device, images: TableImages) -> TableState:
    """Return the state of an MBR. In flight its EBRs are hidden and may hold any bytes; otherwise they must
    match.
    """
    whole = (state for state in _KNOWN if all(_matches(device, group) for group in images.of(state)))
    return next(whole, TableState.OTHER)


def _first_matching(device: Device, images: TableImages, *, group: int) -> TableState:
    return next((state for state in _KNOWN if _matches(device, images.of(state)[group])), TableState.OTHER)


def _matches(device: Device, group: Sequence[Sectors]) -> bool:
    return all(bytes(device.read(sectors.at, len(sectors.data))) == sectors.data for sectors in group)


# The MBR of a move: sector 0 before, in flight and after, and the EBRs if logical partitions move.
#
# Boot code, disk signature and every entry without a change are kept.

_FIRST_LOGICAL = 5

Changes = Mapping[int, EntryChange]


@dataclass(frozen=True, slots=True)
class Mbr:
    """An MBR that can be rebuilt."""

    sector: bytes
    entries: Mapping[int, MbrEntry]  # by number; entries with a length, as Linux counts them
    chains: tuple[Chain, ...]

    @property
    def sector_size(self) -> int:
        return len(self.sector)

    @property
    def primaries(self) -> dict[int, Extent]:
        """Return the extents of the primary entries, including containers."""
        size = self.sector_size
        return {number: entry.extent(size) for number, entry in self.entries.items()}

    @property
    def logicals(self) -> dict[int, Extent]:
        return {logical.number: logical.extent for chain in self.chains for logical in chain.logicals}

    @property
    def geometry(self) -> Geometry:
        starts = [(entry.chs_start, entry.start) for entry in self.entries.values()]
        ends = [(entry.chs_end, entry.start + entry.sectors - 1) for entry in self.entries.values()]
        return mbrs.geometry_of(starts + ends)


def mbr_images(
    device: Device,
    park: ParkEntries,
    rewrite: RewriteTable,
    *,
    journal_at: int | None,
    claims: FlightClaims = NO_CLAIMS,
) -> TableImages:
    """Return the images of an MBR; see `table_images`."""
    changes = {change.number: change for change in rewrite.changes}
    mbr = sound_mbr(device, with_chains=any(number >= _FIRST_LOGICAL for number in changes))
    check_before(mbr.primaries | mbr.logicals, changes)
    _check_mbr(mbr, park, changes, device.size)
    unknown = sorted(set(park.parked) - set(mbr.entries))
    if unknown:
        raise stale_plan(f"the plan parks entry {unknown[0]}, which the MBR does not have")
    parked = parked_mbr_entries(mbr, park, journal_at=journal_at, claims=claims, disk_size=device.size)
    geometry = mbr.geometry
    size = mbr.sector_size
    moved = {}
    for number, entry in mbr.entries.items():
        change = changes.get(number)
        if change:
            moved[number] = moved_entry(
                entry, change.before, change.after, sector_size=size, geometry=geometry
            )
    chains = [chain for chain in mbr.chains if any(logical.number in changes for logical in chain.logicals)]
    old_ebrs = tuple(Sectors(at, sector) for chain in chains for at, sector in chain.sectors.items())
    new_ebrs = tuple(ebr for chain in chains for ebr in new_chain(chain, changes, mbr.sector_size, geometry))
    return TableImages(
        before=mbr_writing(old_ebrs, mbr.sector),
        parked=mbr_writing((), with_entries(mbr.sector, parked)),
        after=mbr_writing(new_ebrs, with_entries(mbr.sector, moved)),
    )


def parked_mbr_entries(
    mbr: Mbr, park: ParkEntries, *, journal_at: int | None, claims: FlightClaims, disk_size: int
) -> dict[int, MbrEntry]:
    """Return the entries of an MBR in flight that are not as before: those that are parked, and those that
    claim free space. Raises Refused if the MBR has too few unused entries for that.
    """
    extents = mbr.primaries
    size = mbr.sector_size
    found = entries_in_flight(
        claims,
        {number: extents[number] for number in park.parked},
        [extent for number, extent in extents.items() if number not in park.parked],
        unused_slots(extents),
        (mbr_room(disk_size, size), size),
    )
    if found is None:
        text = f"{FULL_MBR}; a file on another disk also works"
        raise Refused(text, hint="add --journal FILE", code="no-journal-room")
    parked = {}
    for number, extent in found.items():
        entry = replace(
            mbr.entries.get(number, EMPTY_ENTRY), start=extent.start // size, sectors=extent.length // size
        )
        parked[number] = parked_mbr_entry(entry, journal_at)
    return parked


def is_readable(device: Device) -> bool:
    """Return whether a program would read a table on the disk: one copy of a GPT, or an MBR with its chains
    of EBRs.

    A protective MBR alone is not a table, unless it also lists another partition. Raises OSError.
    """
    if any(copy.sound for copy in valid_copies(device)):
        return True
    kinds = {
        entry.code for entry in entries_of(bytes(device.read(0, device.sector_size))) or () if entry.sectors
    }
    if GPT_PROTECTIVE in kinds:
        return len(kinds - {0}) > 1
    try:
        sound_mbr(device, with_chains=True)
    except Refused:
        return False
    return True


def mbr_writing(ebrs: tuple[Sectors, ...], sector: bytes) -> Writing:
    """Return the groups to write: the EBRs, then sector 0, which hides them until it is written."""
    last = (Sectors(0, sector),)
    return (ebrs, last) if ebrs else (last,)


def sound_mbr(device: Device, *, with_chains: bool, sector_size: int | None = None) -> Mbr:
    """Return the MBR. `sector_size`: of the table. Raises Refused if it cannot be rebuilt, OSError if
    unreadable.
    """
    size = sector_size or device.sector_size
    sector = read_bytes(device, 0, size) or b""
    found = entries_of(sector)
    if found is None:
        raise unsound_table("sector 0 does not end in 55 AA")
    if any(entry.code == GPT_PROTECTIVE for entry in found):
        raise unsound_table("this MBR belongs to a GPT")
    entries = {entry.slot: entry for entry in found if entry.sectors}
    chains: list[Chain] = []
    number = _FIRST_LOGICAL
    for slot, entry in entries.items():
        if with_chains and entry.is_extended:
            chains.append(read_chain(device, slot, entry.extent(size), number, size))
            number += len(chains[-1].logicals)
    return Mbr(sector, entries, tuple(chains))


def _check_mbr(mbr: Mbr, park: ParkEntries, changes: Changes, disk_size: int) -> None:
    """Raise Refused unless every partition that moves is parked and its new place is free."""
    moving = {number for number, change in changes.items() if change.before != change.after}
    container_of = {logical.number: chain.slot for chain in mbr.chains for logical in chain.logicals}
    check_parked(park, {container_of.get(number, number) for number in moving})
    size = mbr.sector_size
    room = mbr_room(disk_size, size)
    after = {number: change.after for number, change in changes.items()}
    primaries = {number: after.get(number, extent) for number, extent in mbr.primaries.items()}
    partitions = primaries | {number: after.get(number, extent) for number, extent in mbr.logicals.items()}
    for number, entry in mbr.entries.items():
        if entry.is_extended:
            if primaries[number].start != mbr.primaries[number].start:
                raise stale_plan(f"extended partition {number} would start elsewhere; it may only grow")
            del partitions[number]
    check_after(primaries, moving & set(primaries), room=room, sector_size=size)
    check_after(partitions, moving & set(partitions), room=room, sector_size=size)


# The GPT of a move: both copies before, in flight and after. Everything that does not change is kept bit for
# bit;
# the images do not include the protective MBR.

_PRIMARY_LBA = 1


def gpt_images(
    device: Device,
    park: ParkEntries,
    rewrite: RewriteTable,
    *,
    journal_at: int | None,
    journal_id: bytes,
    claims: FlightClaims = NO_CLAIMS,
) -> TableImages:
    """Return the images of a GPT; see `table_images`."""
    pair = sound_pair(device)
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
        raise stale_plan(f"the plan parks partition {unknown[0]}, which does not exist")
    parked = parked_gpt_entries(pair[0], park, journal_at=journal_at, journal_id=journal_id, claims=claims)
    moved = {}
    for number, change in changes.items():
        first, last = change.after.start // sector_size, change.after.end // sector_size - 1
        moved[number] = replace(old[number], first=first, last=last)
    hidden, new = ([copy.with_entries(entries) for copy in pair] for entries in (parked, moved))
    return TableImages(_backup_first(pair), _backup_first(hidden), _backup_first(new))


def parked_gpt_entries(
    copy: GptCopy, park: ParkEntries, *, journal_at: int | None, journal_id: bytes, claims: FlightClaims
) -> dict[int, GptEntry]:
    """Return the entries of a GPT in flight that are not as before: those that are parked, and those that
    claim free space. Raises Refused if the GPT has too few unused entries for that.
    """
    old = {entry.number: entry for entry in copy.used_entries()}
    size = copy.sector_size
    found = entries_in_flight(
        claims,
        {number: old[number].extent(size) for number in park.parked},
        [entry.extent(size) for number, entry in old.items() if number not in park.parked],
        _unused_numbers(copy, max(old, default=0)),
        (copy.usable, size),
    )
    if found is None:
        text = (
            "the GPT has no unused entry to claim free space in flight, which other programs would take;"
            " a file on another disk also works"
        )
        raise Refused(text, hint="add --journal FILE", code="no-journal-room")
    parked = {}
    for number, extent in found.items():
        entry = old.get(number) or GptEntry.unpack(number, bytes(copy.header.entry_size))
        placed = replace(entry, first=extent.start // size, last=extent.end // size - 1)
        parked[number] = parked_gpt_entry(placed, journal_at, journal_id)
    return parked


def _unused_numbers(copy: GptCopy, last: int) -> list[int]:
    """Return the numbers of unused entries, those behind the last used one first: no node of a partition that
    was removed is named again.
    """
    count = min(copy.header.entry_count, MOST_ENTRIES)
    used = {entry.number for entry in copy.used_entries()}
    return [number for number in (*range(last + 1, count + 1), *range(1, last)) if number not in used]


def _backup_first(pair: Iterable[GptCopy]) -> Writing:
    primary, backup = pair
    return backup.write_order, primary.write_order


def sound_pair(device: Device, sector_size: int | None = None) -> tuple[GptCopy, GptCopy]:
    """Return both copies of the GPT. `sector_size`: of the table. Raises Refused unless they are valid and
    agree.
    """
    sector_size = sector_size or device.sector_size
    _check_protective(entries_of(read_bytes(device, 0, sector_size) or b""))
    primary = read_copy(device, _PRIMARY_LBA, sector_size)
    if primary is None or not primary.sound:
        raise unsound_table(f"the primary GPT for sectors of {sector_size} bytes is damaged or missing")
    backup = read_copy(device, primary.header.other_lba, sector_size)
    if backup is None or not backup.sound:
        at = primary.header.other_lba
        raise unsound_table(f"the backup GPT, which should be at sector {at}, is damaged or missing")
    if not _agree(primary, backup):
        raise unsound_table("both copies of the GPT are valid, but they disagree")
    places = [Extent(0, sector_size), primary.usable]
    for copy in (primary, backup):
        places += [copy.header_extent, copy.entries_extent]
    if any(place.overlaps(other) for place, other in combinations(places, 2)):
        raise unsound_table("parts of the GPT overlap each other or the space for partitions")
    return primary, backup


def _agree(primary: GptCopy, backup: GptCopy) -> bool:
    def shared(copy: GptCopy) -> tuple[object, ...]:
        header = copy.header
        return copy.usable, header.disk_guid, header.entry_count, header.entry_size, copy.used_bytes

    return backup.header.other_lba == _PRIMARY_LBA and shared(primary) == shared(backup)


def _check_protective(entries: tuple[MbrEntry, ...] | None) -> None:
    """Raise Refused if the MBR lacks the 0xEE entry that a GPT requires, or has another entry: a hybrid MBR
    would become stale. An entry of type 0 is unused (UEFI 2.10, table 5-2); an active one is added for some
    BIOSes.
    """
    used = {entry.code for entry in entries or ()} - {0}
    if GPT_PROTECTIVE not in used:
        raise unsound_table("the GPT has no protective MBR, so Linux does not use it")
    if used != {GPT_PROTECTIVE}:
        raise unsound_table("the MBR of the GPT is a hybrid that lists partitions of its own")


def table_images(
    device: Device,
    park: ParkEntries,
    rewrite: RewriteTable,
    *,
    journal_at: int | None,
    journal_id: bytes,
    claims: FlightClaims = NO_CLAIMS,
) -> TableImages:
    """Return the three tables. Writes nothing. `journal_at`: a byte of the disk, or None if the journal is in
    a file elsewhere; `journal_id`: 16 bytes; `claims`: what entries must cover in flight.

    Raises Refused if the table on the device is not the one that the changes start from, or if it or the new
    table is not sound. Raises OSError if it is unreadable.
    """
    match rewrite.label:
        case "gpt":
            return gpt_images(
                device, park, rewrite, journal_at=journal_at, journal_id=journal_id, claims=claims
            )
        case "dos":
            return mbr_images(device, park, rewrite, journal_at=journal_at, claims=claims)
        case label:
            raise Refused(f"partitions of a {label} table cannot be moved, only those of a GPT or MBR")


def claiming_numbers(images: TableImages) -> frozenset[int]:
    """Return the numbers of the entries that only the table in flight has: they claim free space."""
    return _numbers(images.parked[-1]) - _numbers(images.before[-1])


def _numbers(group: Sequence[Sectors]) -> frozenset[int]:
    """Return the numbers of the used entries of an MBR or of a copy of a GPT."""
    headers = [sectors.data for sectors in group if sectors.data.startswith(SIGNATURE)]
    if len(headers) == 1 and len(group) > 1:
        entries = next(sectors.data for sectors in group if sectors.data is not headers[0])
        copy = GptCopy(len(headers[0]), headers[0], entries, Header.unpack(headers[0]))
        return frozenset(entry.number for entry in copy.used_entries())
    mbr = next((entries_of(sectors.data) for sectors in group if sectors.at == 0), None)
    return frozenset(entry.slot for entry in mbr or () if entry.sectors)


# Remains of another program's table that must be removed before the journal's table is written.


def leftovers(device: Device, images: TableImages) -> Writing:
    """Return the groups to write before the table: zeros over the headers of other GPTs, and a protective
    MBR.
    """
    own = {sectors.at for group in images.parked for sectors in group}
    foreign = {copy.header_extent.start: len(copy.sector) for copy in valid_copies(device)}
    erased = tuple(Sectors(at, bytes(length)) for at, length in foreign.items() if at not in own)
    return (*((erased,) if erased else ()), *missing_protective_mbr(device, images))


def shows_table(device: Device, images: TableImages) -> bool | None:
    """Return whether sector 0 lets a reader see the table of a move: False if another program's MBR stands
    before the GPT, None if there is no MBR.
    """
    if any(sectors.at == 0 for group in images.parked for sectors in group):
        return True
    entries = entries_of(bytes(device.read(0, device.sector_size)))
    return None if entries is None else any(entry.code == GPT_PROTECTIVE for entry in entries)


def missing_protective_mbr(device: Device, images: TableImages) -> Writing:
    """Return the protective MBR to write, if the table is a GPT and has none. Boot code is kept."""
    if any(sectors.at == 0 for group in images.parked for sectors in group):
        return ()
    sector = bytes(device.read(0, device.sector_size))
    if any(entry.code == GPT_PROTECTIVE for entry in entries_of(sector) or ()):
        return ()
    return ((Sectors(0, protective_mbr(sector, device.size // device.sector_size)),),)


# Writing partition tables. Their safety rests on the order of the writes.


def write_table(
    device: Device, images: TableImages, goal: TableState, *, first: Writing | None = None
) -> None:
    """Write the table `goal`, whatever state a cut left: group by group, each durable and read back before
    the next.

    `first`: groups to write before it; with them, any other table is overwritten. Raises Stopped if a group
    reads back differently, or, if `first` is None, if the table is another program's.
    """
    is_rewrite = first is not None or _is_torn(device, images)
    writing = (*(first or ()), *(images.of(goal) if is_rewrite else groups_leading_to(device, images, goal)))
    # what is on the disk, of the sectors that are still to be written or were written
    seen: dict[int, bytes] = {}
    size = device.sector_size
    for sectors in all_sectors(writing):
        for at in range(sectors.at, sectors.at + len(sectors.data), size):
            seen[at] = bytes(device.read(at, size))
    for group in writing:
        _check_unchanged(device, seen)
        for sectors in group:
            device.write(sectors.at, sectors.data)
        device.flush()
        for sectors in group:
            if device.read(sectors.at, len(sectors.data)) != sectors.data:
                raise Stopped(f"the partition table at byte {sectors.at} reads back differently")
            seen |= {
                sectors.at + at: sectors.data[at : at + size] for at in range(0, len(sectors.data), size)
            }
    _check_unchanged(device, seen)


def _check_unchanged(device: Device, seen: Mapping[int, bytes]) -> None:
    """Raise Stopped if another program writes its own table at the same time: both of its copies, or between
    two of these groups.
    """
    for at, data in seen.items():
        if device.read(at, len(data)) != data:
            text = f"another program has changed the partition table at byte {at} while it was written"
            raise Stopped(text)


def _is_torn(device: Device, images: TableImages) -> bool:
    return table_state(device, images) is TableState.OTHER and is_own_table(device, images)


def is_own_table(device: Device, images: TableImages) -> bool:
    """Return whether every byte of the table's sectors is that of one of its three states: a torn mix of
    them, and not another program's table.

    EBRs are not compared: in flight, their sectors may hold data.
    """
    states: dict[int, list[bytes]] = {}
    for sectors in images.sectors:
        states.setdefault(sectors.at, []).append(sectors.data)
    for sectors in all_sectors(images.parked):
        found = bytes(device.read(sectors.at, len(sectors.data)))
        known = states[sectors.at]
        if found not in known and not all(byte in set(own) for byte, *own in zip(found, *known, strict=True)):
            return False
    return True


def all_sectors(writing: Writing) -> Iterable[Sectors]:
    return (sectors for group in writing for sectors in group)
