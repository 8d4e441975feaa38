"""MBR and EBR: entries, CHS addresses, chains of logical partitions, the protective MBR."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product

from aligntool.formats.part_types import EXTENDED_TYPES, GPT_PROTECTIVE, mbr_type_name
from aligntool.formats.reader import Reader, read_or_none, unreadable_fault
from aligntool.inventory import LAST_NUMBER, Fault, Partition, Role, TableFault
from aligntool.units import Extent

# CHS addresses (cylinder, head, sector) of moved MBR entries: some boot code still reads them.

_CYLINDERS = 1024  # range of the ten-bit field
_MAXED = b"\xfe\xff\xff"  # 1023/254/63: "beyond the reach of CHS" in all current tools


@dataclass(frozen=True, slots=True)
class Geometry:
    """The CHS geometry that a table was written for."""

    heads: int
    sectors: int  # per track

    def reaches(self, lba: int) -> bool:
        return lba < _CYLINDERS * self.heads * self.sectors

    def address(self, lba: int) -> bytes:
        """Return the three bytes: head; sector, from 1, with the top two bits of the cylinder; cylinder."""
        cylinder, rest = divmod(lba, self.heads * self.sectors)
        head, sector = divmod(rest, self.sectors)
        return bytes((head, sector + 1 | cylinder >> 8 << 6, cylinder & 0xFF))

    def nearest(self, lba: int) -> bytes:
        """Return the address, or the maximum if CHS does not reach the LBA."""
        return self.address(lba) if self.reaches(lba) else _MAXED


USUAL_GEOMETRY = Geometry(255, 63)


def geometry_of(addresses: Sequence[tuple[bytes, int]]) -> Geometry:
    """Return the geometry that fits all usable `addresses` (CHS, LBA); the usual one if it fits or none
    does.
    """
    known = [(chs, lba) for chs, lba in addresses if _is_set(chs)]
    for geometry in chain((USUAL_GEOMETRY,), _geometries(*known[0]) if known else ()):
        if all(geometry.reaches(lba) and geometry.address(lba) == chs for chs, lba in known):
            return geometry
    return USUAL_GEOMETRY


def _geometries(chs: bytes, lba: int) -> Iterator[Geometry]:
    """Yield the geometries in which the address is this LBA, those with the most heads first."""
    head = chs[0]
    sector = chs[1] & 0x3F
    cylinder = chs[2] | (chs[1] & 0xC0) << 2
    for heads, sectors in product(range(256, 0, -1), range(63, 0, -1)):
        if (cylinder * heads + head) * sectors + sector - 1 == lba:
            yield Geometry(heads, sectors)


def moved_address(chs: bytes, old_lba: int, new_lba: int, geometry: Geometry) -> bytes:
    """Return the address for the new LBA; an unset address that CHS could have expressed stays unset."""
    if old_lba == new_lba or (not _is_set(chs) and geometry.reaches(old_lba)):
        return chs
    return geometry.nearest(new_lba) if geometry.reaches(new_lba) or geometry.reaches(old_lba) else chs


def _is_set(chs: bytes) -> bool:
    """Return whether the address is usable: sectors count from 1, and the last cylinder means out of
    reach.
    """
    sector = chs[1] & 0x3F
    cylinder = chs[2] | (chs[1] & 0xC0) << 2
    return sector != 0 and cylinder < _CYLINDERS - 1


# The four entries of a sector: of the MBR, of an EBR, of the table in a Minix partition. Layout: UEFI
# specification 2.10, tables 5-1 and 5-2.

PRIMARY_SLOTS = range(1, 5)
_FIRST_AT = 446
_SIGNATURE_AT = 510
_SIGNATURE = b"\x55\xaa"
_LAYOUT = struct.Struct("<B3sB3sII")
_AIX = b"\xc9\xc2\xd4\xc1"  # "IBMA" in EBCDIC: an AIX disk; its 55 AA means nothing (kernel msdos.c)


@dataclass(frozen=True, slots=True)
class MbrEntry:
    """A 16-byte entry of an MBR or EBR. Places and sizes are in sectors."""

    boot: int
    chs_start: bytes
    code: int
    chs_end: bytes
    start: int  # relative to the disk, the EBR or the extended partition
    sectors: int
    slot: int = 0  # 1 to 4 if it was read from a sector

    @property
    def is_extended(self) -> bool:
        return self.code in EXTENDED_TYPES

    @property
    def end(self) -> int:
        return self.start + self.sectors

    @property
    def at(self) -> int:
        """Return the byte offset of the entry in its sector."""
        return _FIRST_AT + _LAYOUT.size * (self.slot - 1)

    def pack(self) -> bytes:
        return _LAYOUT.pack(self.boot, self.chs_start, self.code, self.chs_end, self.start, self.sectors)

    def extent(self, sector_size: int) -> Extent:
        return Extent(self.start * sector_size, self.sectors * sector_size)


EMPTY_ENTRY = MbrEntry(0, bytes(3), 0, bytes(3), 0, 0)


def entries_of(sector: bytes) -> tuple[MbrEntry, ...] | None:
    """Return all four entries, or None if the sector does not end with 55 AA."""
    if sector[_SIGNATURE_AT : _SIGNATURE_AT + 2] != _SIGNATURE:
        return None
    fields = _LAYOUT.iter_unpack(sector[_FIRST_AT:_SIGNATURE_AT])
    return tuple(
        MbrEntry(boot, first, code, last, start, count, slot)
        for slot, (boot, first, code, last, start, count) in enumerate(fields, start=1)
    )


def with_entries(sector: bytes, changed: Mapping[int, MbrEntry]) -> bytes:
    """Return the sector with these entries, by slot from 1, and 55 AA. Everything else in it is kept."""
    content = bytearray(sector)
    for slot, entry in changed.items():
        at = _FIRST_AT + _LAYOUT.size * (slot - 1)
        content[at : at + _LAYOUT.size] = entry.pack()
    content[_SIGNATURE_AT : _SIGNATURE_AT + 2] = _SIGNATURE
    return bytes(content)


def protective_mbr(sector: bytes, sectors: int) -> bytes:
    """Return the sector with a 0xEE entry for a disk of so many sectors, and no other. Boot code is kept, and
    so is the boot flag of a 0xEE entry or of an empty one beside it, without which some BIOSes start nothing
    from the disk.
    """
    old = entries_of(sector) or ()
    is_protective = any(entry.code == GPT_PROTECTIVE for entry in old)
    boot = max(
        (entry.boot & 0x80 for entry in old if is_protective and entry.code in (0, GPT_PROTECTIVE)), default=0
    )
    # UEFI 2.10, table 5-4
    first = b"\x00\x02\x00"
    last = b"\xff\xff\xff"
    count = min(sectors - 1, 2**32 - 1)
    entry = MbrEntry(boot, first, GPT_PROTECTIVE, last, 1, count)
    return with_entries(sector, {1: entry, 2: EMPTY_ENTRY, 3: EMPTY_ENTRY, 4: EMPTY_ENTRY})


@dataclass(frozen=True, slots=True)
class MbrSector:
    """The table in sector 0 of a disk, or in an EBR."""

    entries: tuple[MbrEntry, ...]  # always four
    disk_signature: int
    aix: bool

    @property
    def used(self) -> tuple[MbrEntry, ...]:
        """Return the entries that Linux uses: all with a size, even without a type (hybrid ISO images have
        type 0).
        """
        return tuple(entry for entry in self.entries if entry.sectors)

    @property
    def protective(self) -> MbrEntry | None:
        """Return the 0xEE entry; of several, the one at sector 1, because the kernel requires only one such
        entry.
        """
        guards = [entry for entry in self.entries if entry.code == GPT_PROTECTIVE]
        return next((entry for entry in guards if entry.start == 1), guards[0] if guards else None)


def parse_sector(sector: bytes | None) -> MbrSector | None:
    """Return the table, or None if the 512 bytes do not end with 55 AA."""
    entries = entries_of(sector or b"")
    if sector is None or entries is None:
        return None
    return MbrSector(entries, int.from_bytes(sector[440:444], "little"), sector.startswith(_AIX))


def moved_entry(
    entry: MbrEntry,
    old: Extent,
    new: Extent,
    *,
    counted_from: int = 0,
    sector_size: int,
    new_size: int = 0,
    geometry: Geometry,
) -> MbrEntry:
    """Return the entry for the extent `new` instead of `old`. Its start is relative to byte `counted_from`;
    `new_size` is the sector size of the new table if it differs.

    The CHS addresses and size of an entry that does not move are kept, even if other tools would write
    others.
    """
    new_size = new_size or sector_size
    start = (new.start - counted_from) // new_size
    if old == new and new_size == sector_size:
        return replace(entry, start=start)

    def chs(address: bytes, before: int, after: int) -> bytes:
        return moved_address(address, before // sector_size, after // new_size, geometry)

    return replace(
        entry,
        chs_start=chs(entry.chs_start, old.start, new.start),
        chs_end=chs(entry.chs_end, old.end - 1, new.end - 1),
        start=start,
        sectors=new.length // new_size,
    )


# The chain of EBRs in an extended partition.
#
# The rules are those of parse_extended() in the kernel's block/partitions/msdos.c: a data entry is relative
# to its EBR, a link to the start of the extended partition, all four entries are used, and links that lead
# outside the extended partition are followed.

_MOST_EMPTY_LINKS = 100  # the kernel follows at most this many EBRs without a partition in a row


@dataclass(slots=True)
class Chains:
    """The logical partitions of all extended partitions of the disk, numbered, and their faults."""

    reader: Reader
    sector_size: int
    disk_signature: int
    next_number: int = 5
    logicals: list[Partition] = field(default_factory=list)
    faults: list[TableFault] = field(default_factory=list)
    # sector of each EBR seen -> slot of its extended partition
    places: dict[int, int] = field(default_factory=dict)
    empty: list[int] = field(default_factory=list)  # offsets of the EBRs that list no partition

    @property
    def full(self) -> bool:
        return self.next_number > LAST_NUMBER

    def follow(self, extended: MbrEntry) -> None:
        """Add the logical partitions of `extended`. Terminates: no EBR is read twice, and empty EBRs are
        limited.
        """
        here = extended.start
        here_sectors = extended.sectors
        empty = 0
        while not self.full:
            table = self._read(here, extended)
            if table is None:
                return
            before = self.next_number
            self._add(table, extended, here, here_sectors)
            empty = 0 if self.next_number > before else empty + 1
            if empty:
                self.empty.append(here * self.sector_size)
            link = next((entry for entry in table.used if entry.is_extended), None)
            if link is None:
                return
            if empty > _MOST_EMPTY_LINKS:
                break
            here = extended.start + link.start
            here_sectors = link.sectors
            if not extended.start <= here < extended.end:
                detail = (
                    f"an EBR of partition {extended.slot} points to sector {here}, outside that partition"
                )
                self._fault(Fault.EBR_BROKEN, detail, here, extended.slot)
        on = (
            f"the chain of EBRs in partition {extended.slot} continues after partition {self.next_number - 1}"
        )
        most = f"number {LAST_NUMBER} or {_MOST_EMPTY_LINKS} empty EBRs"
        detail = f"{on}; Linux stops after {most}, and so does aligntool"
        self._fault(Fault.IMPLAUSIBLE_COUNT, detail, here, extended.slot)

    def _fault(self, fault: Fault, detail: str, sector: int, *numbers: int) -> None:
        self.faults.append(TableFault(fault, detail, sector * self.sector_size, numbers))

    def _read(self, here: int, extended: MbrEntry) -> MbrSector | None:
        if here == 0 or here in self.places:
            what = "the MBR itself" if here == 0 else f"the EBR at sector {here} a second time"
            detail = f"the chain of EBRs in partition {extended.slot} leads to {what}: it is a loop"
            self._fault(Fault.EBR_LOOP, detail, here, extended.slot)
            return None
        self.places[here] = extended.slot
        raw = read_or_none(self.reader, here * self.sector_size, 512)
        if raw is None:
            self.faults.append(
                unreadable_fault(f"the EBR of partition {extended.slot}", here * self.sector_size)
            )
            return None
        table = parse_sector(raw)
        if table is None:
            why = "lies beyond the end of the disk" if len(raw) < 512 else "lacks the signature 55 AA"
            detail = (
                f"the EBR at sector {here}, in partition {extended.slot}, {why}; the logical partitions end"
                " here"
            )
            self._fault(Fault.EBR_BROKEN, detail, here, extended.slot)
        return table

    def _add(self, table: MbrSector, extended: MbrEntry, here: int, here_sectors: int) -> None:
        first = table.entries[0]
        if first.code and not first.sectors:
            detail = f"the EBR at sector {here} names a partition of type 0x{first.code:02x} without sectors"
            self._fault(Fault.BAD_ENTRY, detail, here, extended.slot)
        for entry in table.used:
            start, end = here + entry.start, here + entry.end
            outside = start < extended.start or end > extended.end
            # The kernel uses the third and fourth entry only if they fit: OS/2 kept other data in them.
            garbage = entry.slot > 2 and (outside or entry.end > here_sectors)
            if entry.is_extended or self.full or garbage:
                continue
            number = self.next_number
            extent = Extent(start * self.sector_size, entry.sectors * self.sector_size)
            logical = dos_partition(entry, number, Role.LOGICAL, extent, self.disk_signature)
            self.logicals.append(replace(logical, record_at=here * self.sector_size))
            self.next_number += 1
            if outside:
                its = f"extended partition {extended.slot} at {extended.start} to {extended.end - 1}"
                detail = f"logical partition {number} is at sectors {start} to {end - 1}, but {its}"
                self._fault(Fault.LOGICAL_OUTSIDE_EXTENDED, detail, start, extended.slot, number)


def dos_partition(entry: MbrEntry, number: int, role: Role, extent: Extent, disk_signature: int) -> Partition:
    partuuid = f"{disk_signature:08x}-{number:02x}"  # as the kernel and blkid make it
    code = f"0x{entry.code:02x}"
    flags = ("boot",) if entry.boot & 0x80 else ()
    return Partition(number, extent, role, code, mbr_type_name(entry.code), None, partuuid, flags)


# Sector 0 of a GPT disk: the protective or hybrid MBR.

MOST_SECTORS = 0xFFFFFFFF  # the largest 32-bit number, which is also the last sector that an entry can name
# sectors up to there: a partition may end at 2 TiB, as sfdisk and Linux accept it
ADDRESSABLE = MOST_SECTORS + 1


def hybrid_entries(table: MbrSector | None) -> tuple[MbrEntry, ...]:
    """Return the entries besides the 0xEE entry, which firmware and systems without GPT support see."""
    if table is None or table.protective is None:
        return ()
    return tuple(entry for entry in table.entries if entry.code not in (0, GPT_PROTECTIVE))


def protective_faults(
    table: MbrSector | None, partitions: list[Partition], *, sector_size: int, disk_size: int
) -> list[TableFault]:
    guard = table.protective if table else None
    if guard is None:
        what = "has no 0xEE entry" if table else "is missing"
        detail = (
            f"the protective MBR {what}: Linux ignores this GPT unless it is started with `gpt`, and fdisk"
            " and"
        )
        detail += " parted refuse it; other systems may treat the disk as empty"
        return [TableFault(Fault.PROTECTIVE_MBR, detail, 0, hides=True)]
    others = hybrid_entries(table)
    last = disk_size // sector_size - 1
    faults = [_hybrid_fault(others, partitions, sector_size)] if others else []
    if guard.start != 1:
        detail = (
            f"the 0xEE entry of the protective MBR starts at sector {guard.start}, not 1: Linux ignores this"
            " GPT"
        )
        faults.append(TableFault(Fault.PROTECTIVE_MBR, detail, guard.at, hides=True))
    # UEFI requires the disk's size less one, or 0xFFFFFFFF if that does not fit; many tools always write the
    # latter, and the kernel also accepts the size truncated to 32 bits (is_pmbr_valid).
    if not others and guard.sectors not in (MOST_SECTORS, min(last, MOST_SECTORS), last & MOST_SECTORS):
        covers = "less than the disk" if guard.sectors < last else "more than the disk"
        detail = (
            f"the protective MBR covers {guard.sectors} sectors, {covers}, which has {last} after the first"
        )
        detail += ": the disk was grown, shrunk or copied from a disk of another size"
        faults.append(TableFault(Fault.PROTECTIVE_MBR, detail, guard.at))
    return faults


def _hybrid_fault(others: tuple[MbrEntry, ...], partitions: list[Partition], sector_size: int) -> TableFault:
    """Return the fault of a hybrid MBR: its entries, and whether each matches a GPT partition, as it
    should.
    """
    mirrors = {partition.extent: partition.number for partition in partitions}
    described = []
    numbers = []
    for entry in others:
        number = mirrors.get(entry.extent(sector_size))
        if number is None:
            sectors = f"sectors {entry.start} to {entry.end - 1}"
            described.append(f"entry {entry.slot} (0x{entry.code:02x}, {sectors}) is not a GPT partition")
        else:
            described.append(f"entry {entry.slot} (0x{entry.code:02x}) is GPT partition {number}")
            numbers.append(number)
    why = "Linux uses the GPT, other systems may use these entries, and most tools update only one of the two"
    detail = f"hybrid MBR: {'; '.join(described)}. {why}"
    return TableFault(Fault.HYBRID_MBR, detail, others[0].at, tuple(numbers))
