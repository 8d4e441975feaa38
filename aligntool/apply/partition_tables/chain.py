"""The chain of EBRs of an extended partition, read strictly and built anew.

In: a container on a Device; the changes to its logical partitions. Out: what the chain holds; the EBRs of the new one.
Alone because this table is a linked list whose links lie between the partitions that move.

A logical partition's start counts from its own EBR, a link from the start of the container (parse_extended() in the
kernel's block/partitions/msdos.c). Linux numbers them in the order of the chain, so that order is kept. What the kernel
would follow and no tool makes (links outside the container, entries three and four) is refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from aligntool.apply.device import Device, Sectors
from aligntool.apply.partition_tables.checks import refused, told, unsound
from aligntool.apply.partition_tables.chs import Geometry
from aligntool.apply.partition_tables.mbr_entry import (
    NO_ENTRY,
    MbrEntry,
    entries_of,
    moved_entry,
    with_entries,
)
from aligntool.plan import EntryChange
from aligntool.units import Extent

_LAST_NUMBER = 255  # of a partition; the kernel's DISK_MAX_PARTS less one
_MOST_EBRS = 512


@dataclass(frozen=True, slots=True)
class Logical:
    number: int
    at: int  # byte of its EBR
    sector: bytes  # that EBR
    extent: Extent
    link: MbrEntry  # the entry that leads to this EBR; NO_ENTRY for the first of the chain


@dataclass(frozen=True, slots=True)
class Chain:
    slot: int  # number of the container
    container: Extent
    sectors: Mapping[int, bytes]  # every EBR by its byte, those without a partition too
    logicals: tuple[Logical, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """A logical partition in the new chain."""

    logical: Logical
    at: int
    extent: Extent


def read_chain(device: Device, slot: int, container: Extent, first_number: int) -> Chain:
    """Raises Refused for a chain that cannot be built anew, OSError where it cannot be read."""
    sectors: dict[int, bytes] = {}
    logicals: list[Logical] = []
    size = device.sector_size
    at, link = container.start, NO_ENTRY
    while True:
        if not container.contains(Extent(at, size)) or at + size > device.size:
            raise unsound(f"the chain of EBRs in partition {slot} leads out of it, to byte {at}")
        if at in sectors or len(sectors) >= _MOST_EBRS:
            raise unsound(f"the chain of EBRs in partition {slot} has no end")
        sectors[at] = bytes(device.read(at, size))
        data, following = _entries(sectors[at], slot, at)
        if data.sectors:
            extent = Extent(at + data.start * size, data.sectors * size)
            number = first_number + len(logicals)
            logicals.append(Logical(number, at, sectors[at], extent, link))
            if number > _LAST_NUMBER or not data.start or not container.contains(extent):
                raise unsound(f"logical partition {number} is {told(extent)}, where none may be")
        if not following.sectors:
            return Chain(slot, container, sectors, tuple(logicals))
        at, link = container.start + following.start * size, following


def _entries(sector: bytes, slot: int, at: int) -> tuple[MbrEntry, MbrEntry]:
    """The partition and the link; raises Refused for anything else."""
    entries = entries_of(sector)
    if entries is None:
        raise unsound(f"the EBR at byte {at}, in partition {slot}, does not end in 55 AA")
    data, link, *rest = entries
    odd = (data.sectors and data.is_extended) or (link.sectors and not link.is_extended)
    if odd or any(entry.sectors for entry in rest):
        raise unsound(f"the EBR at byte {at}, in partition {slot}, has entries in an unusual order")
    return data, link


def new_chain(
    chain: Chain, changes: Mapping[int, EntryChange], sector_size: int, geometry: Geometry
) -> Iterator[Sectors]:
    """The EBRs after the move, in the order of the chain.

    What else stands in the EBR of a logical partition (labels of boot managers) goes with it. An EBR without a
    partition is left out. Raises Refused where the plan puts an EBR that cannot be there.
    """
    change = changes.get(chain.slot)
    container = change.after if change else chain.container
    places = [_place(logical, changes.get(logical.number)) for logical in chain.logicals]
    _check_places(places, container, chain.slot, sector_size)
    for place, following in zip_longest(places, places[1:]):
        logical = place.logical
        data, link = _entries(logical.sector, chain.slot, logical.at)
        data = moved_entry(
            data, logical.extent, place.extent,
            counted_from=place.at, sector_size=sector_size, geometry=geometry,
        )  # fmt: skip
        if following is not None:
            link = moved_entry(
                following.logical.link, _linked(following.logical), _linked(following),
                counted_from=container.start, sector_size=sector_size, geometry=geometry,
            )  # fmt: skip
        elif link.sectors:
            link = NO_ENTRY  # it led to EBRs without a partition
        yield Sectors(place.at, with_entries(logical.sector, {0: data, 1: link}))


def _linked(place: Logical | _Place) -> Extent:
    """What a link names: from the EBR to the end of its partition."""
    return Extent(place.at, place.extent.end - place.at)


def _place(logical: Logical, change: EntryChange | None) -> _Place:
    if change is None:
        return _Place(logical, logical.at, logical.extent)
    if change.record_before not in (None, logical.at):
        raise refused(
            f"the EBR of partition {logical.number} is at byte {logical.at}, and the plan was made for one at "
            f"byte {change.record_before}"
        )
    at = logical.at if change.record_after is None else change.record_after
    return _Place(logical, at, change.after)


def _check_places(places: list[_Place], container: Extent, slot: int, sector_size: int) -> None:
    """A chain that Linux reads as meant, and no part of it on another."""
    if places and places[0].at != container.start:
        raise refused(f"the first EBR of partition {slot} would not be at its start, byte {container.start}")
    records = [Extent(place.at, sector_size) for place in places]
    for place, record in zip(places, records, strict=True):
        number = place.logical.number
        if not container.contains(record) or not container.contains(place.extent):
            raise refused(f"logical partition {number} or its EBR would be outside of partition {slot}")
        if record.start % sector_size or record.end > place.extent.start:
            raise refused(f"the EBR at byte {record.start} would not be a sector before partition {number}")
        if any(record.overlaps(other.extent) for other in places):
            raise refused(
                f"the EBR of partition {number}, at byte {record.start}, would be inside a partition"
            )
    if len(set(records)) < len(records):
        raise refused(f"two EBRs of partition {slot} would be at one place")
