"""The MBR of a move: sector 0 before, in flight and after, and the EBRs where logical partitions move.

In: the MBR on a Device and the changes to it. Out: its images. Alone because an MBR has neither checksum nor copy, and
its addresses come twice. Boot code, disk signature and every entry that no change speaks of stay as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aligntool.apply.device import Device, Sectors, Writing
from aligntool.apply.partition_tables.chain import Chain, new_chain, read_chain
from aligntool.apply.partition_tables.checks import check_after, check_before, check_parked, refused, unsound
from aligntool.apply.partition_tables.chs import Geometry, geometry_of
from aligntool.apply.partition_tables.images import TableImages
from aligntool.apply.partition_tables.mbr_entry import MbrEntry, entries_of, moved_entry, with_entries
from aligntool.apply.partition_tables.parked import parked_mbr_entry
from aligntool.apply.partition_tables.starts import copies_of
from aligntool.errors import Refused
from aligntool.plan import EntryChange, ParkEntries, RewriteTable
from aligntool.units import Extent

_MOST_SECTORS = 2**32 - 1  # what 32 bits count
_PROTECTIVE = 0xEE
_FIRST_LOGICAL = 5

Changes = Mapping[int, EntryChange]


@dataclass(frozen=True, slots=True)
class _Mbr:
    sector: bytes
    entries: Mapping[int, MbrEntry]  # by number; those with a length, as Linux counts them
    chains: tuple[Chain, ...]

    @property
    def sector_size(self) -> int:
        return len(self.sector)

    @property
    def primaries(self) -> dict[int, Extent]:
        """Containers too."""
        size = self.sector_size
        return {
            number: Extent(entry.start * size, entry.sectors * size) for number, entry in self.entries.items()
        }

    @property
    def logicals(self) -> dict[int, Extent]:
        return {one.number: one.extent for chain in self.chains for one in chain.logicals}


def mbr_images(
    device: Device, park: ParkEntries, rewrite: RewriteTable, *, journal_at: int | None
) -> TableImages:
    """As `table_images`."""
    changes = {change.number: change for change in rewrite.changes}
    mbr = _read(device, with_chains=any(number >= _FIRST_LOGICAL for number in changes))
    check_before(mbr.primaries | mbr.logicals, changes)
    _check(mbr, park, changes, device.size)
    unknown = sorted(set(park.parked) - set(mbr.entries))
    if unknown:
        raise refused(f"the plan parks entry {unknown[0]}, which the MBR does not have")
    parked = {number - 1: parked_mbr_entry(mbr.entries[number], journal_at) for number in park.parked}
    geometry = _geometry(mbr)
    moved = {
        number - 1: moved_entry(
            entry, changes[number].before, changes[number].after,
            sector_size=mbr.sector_size, geometry=geometry,
        )
        for number, entry in mbr.entries.items()
        if number in changes
    }  # fmt: skip
    chains = [chain for chain in mbr.chains if any(one.number in changes for one in chain.logicals)]
    old_ebrs = tuple(Sectors(at, sector) for chain in chains for at, sector in chain.sectors.items())
    new_ebrs = tuple(ebr for chain in chains for ebr in new_chain(chain, changes, mbr.sector_size, geometry))
    return TableImages(
        before=_writing(old_ebrs, mbr.sector),
        parked=_writing((), with_entries(mbr.sector, parked)),
        after=_writing(new_ebrs, with_entries(mbr.sector, moved)),
    )


def is_readable(device: Device) -> bool:
    """Return whether any program would read a table there: one copy of a GPT, or an MBR with its chains of EBRs.

    A protective MBR is none by itself, unless it lists another partition, too.

    Raises OSError.
    """
    if any(copy.sound for copy in copies_of(device)):
        return True
    kinds = {
        entry.kind for entry in entries_of(bytes(device.read(0, device.sector_size))) or () if entry.sectors
    }
    if _PROTECTIVE in kinds:
        return len(kinds) > 1
    try:
        _read(device, with_chains=True)
    except Refused:
        return False
    return True


def _writing(ebrs: tuple[Sectors, ...], sector: bytes) -> Writing:
    last = (Sectors(0, sector),)
    return (ebrs, last) if ebrs else (last,)


def _read(device: Device, *, with_chains: bool) -> _Mbr:
    size = device.sector_size
    sector = bytes(device.read(0, size))
    found = entries_of(sector)
    if found is None:
        raise unsound("sector 0 does not end in 55 AA")
    if any(entry.kind == _PROTECTIVE for entry in found):
        raise unsound("this MBR stands before a GPT")
    entries = {number: entry for number, entry in enumerate(found, 1) if entry.sectors}
    chains: list[Chain] = []
    number = _FIRST_LOGICAL
    for slot, entry in entries.items():
        if with_chains and entry.is_extended:
            container = Extent(entry.start * size, entry.sectors * size)
            chains.append(read_chain(device, slot, container, number))
            number += len(chains[-1].logicals)
    return _Mbr(sector, entries, tuple(chains))


def _check(mbr: _Mbr, park: ParkEntries, changes: Changes, disk_size: int) -> None:
    """Refused unless everything that moves is hidden and finds its place."""
    moving = {number for number, change in changes.items() if change.before != change.after}
    container_of = {one.number: chain.slot for chain in mbr.chains for one in chain.logicals}
    check_parked(park, {container_of.get(number, number) for number in moving})
    size = mbr.sector_size
    room = Extent(size, min(disk_size, _MOST_SECTORS * size) - size)
    after = {number: change.after for number, change in changes.items()}
    primaries = {number: after.get(number, extent) for number, extent in mbr.primaries.items()}
    holding = primaries | {number: after.get(number, extent) for number, extent in mbr.logicals.items()}
    for number, entry in mbr.entries.items():
        if entry.is_extended:
            if primaries[number].start != mbr.primaries[number].start:
                raise refused(f"extended partition {number} would begin elsewhere; it may only become longer")
            del holding[number]
    check_after(primaries, moving & set(primaries), room=room, sector_size=size)
    check_after(holding, moving & set(holding), room=room, sector_size=size)


def _geometry(mbr: _Mbr) -> Geometry:
    starts = [(entry.chs_start, entry.start) for entry in mbr.entries.values()]
    ends = [(entry.chs_end, entry.start + entry.sectors - 1) for entry in mbr.entries.values()]
    return geometry_of(starts + ends)
