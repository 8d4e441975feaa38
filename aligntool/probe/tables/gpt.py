"""The GPT: which sector size it was written for, which of its copies to believe, what the two disagree about.

Comes in: a reader and its sector 0. Goes out: the table with both copies' state, or None where there is no GPT worth
the name. Alone because this is where the decisions are taken; reading a copy, its entries and the protective MBR have
their own modules. The rules are those of find_valid_gpt() in the kernel's block/partitions/efi.c, except that a damaged
primary copy does not make the partitions vanish here.
"""

import uuid
from dataclasses import dataclass

from aligntool.inventory import Fault, Table, TableFault, TableLabel
from aligntool.probe.reader import Reader
from aligntool.probe.tables.gpt_copy import SIGNATURE, Copy, Header, header_crc_is_good, read_copy
from aligntool.probe.tables.gpt_entries import entry_faults, read_entries
from aligntool.probe.tables.in_flight import parked_in_gpt
from aligntool.probe.tables.mbr_sector import MbrSector
from aligntool.probe.tables.protective import hybrid_entries, protective_faults
from aligntool.probe.tables.reading import TableReading, peek, thin_out
from aligntool.units import Extent

_SECTOR_SIZES = (512, 4096, 2048, 1024)
_UNREPORTED_ORDER = (4096, 512, 2048, 1024)


@dataclass(frozen=True, slots=True)
class GptPair:
    """What was found of a GPT, good or not."""

    primary: Copy
    backup: Copy
    protective_end: int | None  # the last sector that the 0xEE entry covers

    @property
    def believed(self) -> Copy | None:
        """The primary when it is good, else the backup when it is; else what is left of either, if it looks sane."""
        pair = (self.primary, self.backup)
        good = next((copy for copy in pair if copy.is_good), None)
        return good or next((copy for copy in pair if _looks_sane(copy)), None)

    @classmethod
    def of_nothing(cls, reader: Reader, sector_size: int) -> "GptPair":
        """For a disk whose MBR announces a GPT of which nothing is left."""
        last = max(2, reader.size // sector_size - 1)
        return cls(
            read_copy(reader, "primary", 1, sector_size), read_copy(reader, "backup", last, sector_size), None
        )

    @property
    def has_header(self) -> bool:
        return self.primary.header_crc_good or self.backup.header_crc_good


def find_gpt(reader: Reader, table: MbrSector | None, sector_size: int | None) -> GptPair | None:
    """Both copies, for the sector size that the table itself shows; None when no header's signature is anywhere."""
    size = _written_for(reader, sector_size)
    if size is None:
        return None
    guard = table.protective if table else None
    end = guard.end - 1 if guard and 1 < guard.end <= 0xFFFFFFFF else None
    primary = read_copy(reader, "primary", 1, size)
    return GptPair(primary, _find_backup(reader, primary, end), end)


def _written_for(reader: Reader, reported: int | None) -> int | None:
    """Where a header is, its sector size is. The reported size comes first; a right checksum beats a mere signature,
    the start of the disk beats its end."""
    order = tuple(dict.fromkeys((reported, *_SECTOR_SIZES))) if reported else _UNREPORTED_ORDER
    sizes = [size for size in order if size]
    start = peek(reader, 0, 2 * max(sizes)) or b""
    sectors = [(size, start[size : 2 * size]) for size in sizes]
    ends = [(size, peek(reader, (reader.size // size - 1) * size, size) or b"") for size in sizes]
    if reported and any(header_crc_is_good(sector) for size, sector in (*sectors, *ends) if size == reported):
        return reported
    for size, sector in (*sectors, *ends):
        if header_crc_is_good(sector):
            return size
    return next((size for size, sector in (*sectors, *ends) if sector.startswith(SIGNATURE)), None)


def _find_backup(reader: Reader, primary: Copy, protective_end: int | None) -> Copy:
    """Where the primary says, and in the last sector; after a copy to a larger disk, where the 0xEE entry ends."""
    size = primary.sector_size
    last = reader.size // size - 1
    named = primary.header.other_lba if primary.header else None
    places = [named, last] if primary.header_crc_good else [last, named, protective_end]
    on_disk = [lba for lba in dict.fromkeys(places) if lba is not None and 1 < lba <= last]
    copies = [read_copy(reader, "backup", lba, size) for lba in on_disk]
    mine = [copy for copy in copies if _same_disk(primary, copy)]
    found = next((copy for copy in mine if copy.is_good), None)
    found = found or next((copy for copy in mine if copy.header), None)
    return found or next(iter(copies), None) or read_copy(reader, "backup", max(last, 2), size)


def _same_disk(primary: Copy, backup: Copy) -> bool:
    """A good primary is not mended by an older table's leftover: that one is in the last sector, with another GUID."""
    if not primary.header_crc_good or primary.header is None or backup.header is None:
        return True
    return backup.header.disk_guid == primary.header.disk_guid or backup.lba == primary.header.other_lba


def _looks_sane(copy: Copy) -> bool:
    """Checksums wrong, but entries that could be partitions: at least one, and none that ends before it starts."""
    partitions, faults = read_entries(copy)
    return bool(partitions) and not faults and copy.header is not None


def read_gpt(
    reader: Reader, pair: GptPair, table: MbrSector | None, sector_size: int | None
) -> TableReading | None:
    """None when neither copy can be believed."""
    copy = pair.believed
    if copy is None or copy.header is None:
        return None
    other = pair.backup if copy is pair.primary else pair.primary
    partitions, faults = read_entries(copy)
    faults = [
        *_sector_size_fault(copy, sector_size),
        *copy_faults(pair, reader.size // copy.sector_size - 1),
        *protective_faults(table, partitions, sector_size=copy.sector_size, disk_size=reader.size),
        *faults,
        *entry_faults(copy, other, partitions, reader.size),
    ]
    return TableReading(
        Table(
            TableLabel.GPT,
            copy.sector_size,
            disk_id=str(uuid.UUID(bytes_le=copy.header.disk_guid)),
            hybrid=bool(hybrid_entries(table)),
            usable=_usable(copy.header, copy.sector_size),
            copies=(pair.primary.told(), pair.backup.told()),
            faults=thin_out(faults),
            in_flight=parked_in_gpt(copy, other),
        ),
        tuple(partitions),
    )


def _usable(header: Header, sector_size: int) -> Extent | None:
    if header.last_usable < header.first_usable:
        return None
    count = header.last_usable - header.first_usable + 1
    return Extent(header.first_usable * sector_size, count * sector_size)


def _sector_size_fault(copy: Copy, reported: int | None) -> list[TableFault]:
    if reported is None or reported == copy.sector_size:
        return []
    detail = (
        f"this GPT was written for sectors of {copy.sector_size} bytes, but the disk has sectors of {reported}: Linux "
        "does not see its partitions here"
    )
    return [TableFault(Fault.OTHER_SECTOR_SIZE, detail, copy.at)]


def copy_faults(pair: GptPair, last_lba: int) -> list[TableFault]:
    """What is wrong with the two copies, each and together."""
    primary, backup, faults = pair.primary, pair.backup, []
    if not primary.is_good:
        then = "; Linux then reads none of its partitions" + (
            " unless it is started with `gpt`" if backup.is_good else ""
        )
        detail = f"the primary GPT header at sector {primary.lba} {primary.why}{then}"
        faults.append(TableFault(Fault.GPT_PRIMARY_DAMAGED, detail, primary.at))
    if not backup.is_good:
        detail = f"the backup GPT header at sector {backup.lba} {backup.why}"
        faults.append(TableFault(Fault.GPT_BACKUP_DAMAGED, detail, backup.at))
    faults += _misplaced(primary, backup, last_lba)
    if primary.is_good and backup.is_good and primary.header and backup.header:
        faults += _differences(primary, backup, primary.header, backup.header)
    return faults


def _misplaced(primary: Copy, backup: Copy, last_lba: int) -> list[TableFault]:
    named = primary.header.other_lba if primary.header and primary.header_crc_good else backup.lba
    if named == last_lba and (backup.lba == last_lba or not backup.header):
        return []
    if named > last_lba:
        why = "beyond the end of the disk, which has shrunk or was copied from a larger one"
    elif named == last_lba:
        why = f"in the last sector, but it was found at sector {backup.lba}"
    elif backup.lba == last_lba and backup.header:
        why = f"short of the last sector {last_lba}, where it was found all the same"
    else:
        why = (
            f"not in the last sector {last_lba}: the disk has grown or was copied from a smaller one, and the "
            f"{(last_lba - named) * primary.sector_size} bytes after it cannot be used"
        )
    detail = f"the backup GPT should be at sector {named}, {why}"
    return [TableFault(Fault.GPT_BACKUP_MISPLACED, detail, named * primary.sector_size)]


def _differences(primary: Copy, backup: Copy, one: Header, two: Header) -> list[TableFault]:
    """What compare_gpts() of the kernel warns of."""
    wrong = []
    if two.other_lba != primary.lba:
        wrong.append(f"the backup names sector {two.other_lba} as the other copy, not {primary.lba}")
    for what in ("first_usable", "last_usable", "entry_count", "entry_size"):
        if getattr(one, what) != getattr(two, what):
            told = what.replace("_", " ")
            wrong.append(
                f"{told} is {getattr(one, what)} in the primary and {getattr(two, what)} in the backup"
            )
    if one.disk_guid != two.disk_guid:
        wrong.append("the disk GUIDs differ")
    if primary.entries != backup.entries:
        wrong.append("the entries differ")
    if not wrong:
        return []
    detail = f"both copies of the GPT are valid, and they disagree: {'; '.join(wrong)}. The primary is used"
    numbers = tuple(_differing_numbers(primary, backup))
    return [TableFault(Fault.GPT_COPIES_DIFFER, detail, backup.at, numbers)]


def _differing_numbers(primary: Copy, backup: Copy) -> list[int]:
    if (
        primary.header is None
        or backup.header is None
        or primary.header.entry_size != backup.header.entry_size
    ):
        return []
    step = primary.header.entry_size
    longest = max(len(primary.entries), len(backup.entries))
    pairs = (
        (at, primary.entries[at : at + step], backup.entries[at : at + step])
        for at in range(0, longest, step)
    )
    return [at // step + 1 for at, one, two in pairs if one != two and (any(one) or any(two))]
