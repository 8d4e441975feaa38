"""Partition tables: the bytes of a disk in, its table and partitions out.

One of the two places in aligntool where sectors exist; what leaves here is in bytes. The rest of the package knows
`read_table` and `TableReading` only. Alone because many formats claim the same sector 0, and the order in which they
are believed has to stand in one place. It is the kernel's order (block/partitions/core.c), with two additions: labels
with a checksum go first, and a GPT is looked for even where Linux would not.
"""

from dataclasses import replace

from aligntool.inventory import Fault, Table, TableCopyState, TableLabel
from aligntool.probe.reader import Reader
from aligntool.probe.tables.apm import read_apm
from aligntool.probe.tables.atari import read_atari
from aligntool.probe.tables.boot_code import with_boot_code
from aligntool.probe.tables.bsd import read_bsd
from aligntool.probe.tables.content import boot_sector, starts_at
from aligntool.probe.tables.dasd import read_dasd
from aligntool.probe.tables.gpt import GptPair, copy_faults, find_gpt, read_gpt
from aligntool.probe.tables.mbr import is_partition_table, read_mbr
from aligntool.probe.tables.mbr_sector import MbrSector, parse_sector
from aligntool.probe.tables.reading import TableReading, peek, unreadable
from aligntool.probe.tables.stale import leftover_gpt
from aligntool.probe.tables.sun_sgi import read_sgi, read_sun

__all__ = ["TableReading", "is_backup_alone", "read_table", "with_boot_code"]

_NOTHING = TableReading(None, ())


def read_table(reader: Reader, *, sector_size: int | None) -> TableReading:
    """The partition table of a disk. `sector_size` None: nobody reports it, so the table itself tells.

    Never raises for what is on the disk, nor where the medium cannot be read: that becomes a fault.
    """
    sector = peek(reader, 0, 512)
    if sector is None:
        return _without_sector_0(reader, sector_size)
    checked = read_sgi(reader, sector) or read_sun(reader, sector)
    if checked:
        return checked
    table = parse_sector(sector)
    gpt = find_gpt(reader, table, sector_size)
    announced = (
        _behind_protective(reader, sector, table, gpt, sector_size) if table and table.protective else None
    )
    if announced:
        return announced
    if table and table.used and is_partition_table(reader, sector, table):
        return read_mbr(reader, table, sector_size=sector_size, more_faults=leftover_gpt(gpt))
    found = _unprotected(reader, sector, gpt, table, sector_size) or read_apm(reader, sector)
    if found:
        return found
    if table and is_partition_table(reader, sector, table):
        return read_mbr(reader, table, sector_size=sector_size, more_faults=leftover_gpt(gpt))
    return (
        read_bsd(reader)
        or read_dasd(reader, sector_size)
        or _atari(reader, sector, sector_size)
        or _backup_alone(reader, sector, gpt, table, sector_size)
        or _NOTHING
    )


def _behind_protective(
    reader: Reader, sector: bytes, table: MbrSector, gpt: GptPair | None, sector_size: int | None
) -> TableReading | None:
    """0xEE in the MBR: a GPT, or the ruins of one. Linux reads no MBR with 0xEE, so its entries are only shown."""
    reading = read_gpt(reader, gpt, table, sector_size) if gpt else None
    if reading or not is_partition_table(reader, sector, table):
        return reading
    lost = gpt or GptPair.of_nothing(reader, sector_size or 512)
    return read_mbr(
        reader,
        table,
        sector_size=lost.primary.sector_size,
        more_faults=tuple(copy_faults(lost, reader.size // lost.primary.sector_size - 1)),
        copies=(lost.primary.told(), lost.backup.told()),
    )


def _unprotected(
    reader: Reader, sector: bytes, gpt: GptPair | None, table: MbrSector | None, sector_size: int | None
) -> TableReading | None:
    """A GPT without 0xEE in front. It is shown when its primary copy is whole and no file system took sector 0 over."""
    if gpt is None or not gpt.primary.header_crc_good or boot_sector(sector):
        return None
    return read_gpt(reader, gpt, table, sector_size)


def _backup_alone(
    reader: Reader, sector: bytes, gpt: GptPair | None, table: MbrSector | None, sector_size: int | None
) -> TableReading | None:
    """Return what a whole backup copy lists on a disk that begins with nothing known: its start was overwritten.

    Where something else begins, the backup copy is what an older table left behind; see also `is_backup_alone`.
    """
    if gpt is None or not gpt.backup.is_good or boot_sector(sector) or starts_at(reader, 0):
        return None
    return read_gpt(reader, gpt, table, sector_size)


def is_backup_alone(table: Table) -> bool:
    """Return whether nothing but the backup copy of a GPT shows that there is a table.

    The caller, who can read the superblocks of the whole disk, decides whether the disk is used without a table.
    """
    faults = {fault.fault for fault in table.faults}
    return (
        bool(table.copies)
        and table.copies[0].state is TableCopyState.MISSING
        and Fault.PROTECTIVE_MBR in faults
        and Fault.UNREADABLE not in faults
    )


def _atari(reader: Reader, sector: bytes, sector_size: int | None) -> TableReading | None:
    """Without a magic of its own it is looked for last, and not where something else is known to start."""
    if sector_size not in (None, 512) or starts_at(reader, 0):
        return None
    return read_atari(reader, sector)


def _without_sector_0(reader: Reader, sector_size: int | None) -> TableReading:
    fault = unreadable("the disk's first sector", 0)
    gpt = find_gpt(reader, None, sector_size)
    reading = read_gpt(reader, gpt, None, sector_size) if gpt else None
    if reading and reading.table:
        table = replace(reading.table, faults=(fault, *reading.table.faults))
        return TableReading(table, reading.partitions)
    return TableReading(Table(TableLabel.UNKNOWN, sector_size or 512, faults=(fault,)), ())
