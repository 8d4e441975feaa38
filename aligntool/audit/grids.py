"""Disk -> the grids that its partitions are compared with, each with who asks for it.

Order: the physical grid first, then by how much it matters. Sizes that cannot be believed never become a grid.
"""

from collections.abc import Iterator, Mapping, Sequence

from aligntool.audit.believed import BELIEVED_UP_TO, is_one_drive, why_not_one_drive
from aligntool.audit.limits import STACKED, Grade, believed_minimum_io, grade_optimal_io
from aligntool.audit.report import Grid, GridKind, Severity
from aligntool.audit.wishes import Wishes
from aligntool.inventory import Disk, DiskKind, KnownGeometry, Source
from aligntool.units import MIB, format_size, is_power_of_two

Sized = tuple[int, Source, str]
"""A size in bytes, where it comes from, and who says so."""

ASSUMED_SECTOR = 4096
FLOPPY_SIZES = frozenset(kib * 1024 for kib in (160, 180, 320, 360, 640, 720, 1200, 1440, 1680, 1720, 2880))

_MADE_OF_OTHERS = frozenset({DiskKind.VIRTIO, DiskKind.NETWORK, DiskKind.LOOP, DiskKind.USB, DiskKind.OTHER})

_WHY_ASSUMED = {
    DiskKind.IMAGE: "an image file reports nothing",
    DiskKind.VIRTIO: "a virtual disk hides the drive below it",
    DiskKind.LOOP: "a loop device hides the drive below it",
    DiskKind.NETWORK: "a network disk hides the drive below it",
    DiskKind.USB: "USB bridges often report 512 bytes wrongly",
}


def grids_of(
    disk: Disk,
    known: Sequence[KnownGeometry],
    wishes: Wishes,
    sectors: Mapping[str, Sized],
    shifts: Mapping[str, int],
) -> tuple[Grid, ...]:
    """`sectors` has the physical sector already settled for every disk, so that a stack can ask its members.

    `shifts`: where the sectors of the members begin on an array of which the kernel cannot say it. Chunks are counted
    from the array's byte 0 all the same.
    """
    size, source, by = sectors[disk.name]
    phase = max(disk.limits.alignment_offset or 0, 0)
    if disk.name in shifts:
        by = f"{by}; {format_size(size - shifts[disk.name])} past one is where the data of every member begin"
        grids = [Grid(GridKind.PHYSICAL, size, shifts[disk.name], source, by, Severity.ERROR)]
    else:
        grids = [Grid(GridKind.PHYSICAL, size, phase % size, source, by, Severity.ERROR)]
    wider = (
        *_minimum_io(disk, known),
        *_page(disk, known, wishes),
        *_unit(disk, known),
        *_measured(disk, wishes),
        *_allocation(disk, known),
    )
    for kind, (wide, its_source, its_by), severity in (*wider, *_for_information(disk, known)):
        if wide > size:
            grids.append(Grid(kind, wide, phase % wide, its_source, its_by, severity))
    if wishes.grain > size:
        source = Source.ASSUMED if wishes.grain == MIB else Source.GIVEN
        grids.append(
            Grid(GridKind.GRAIN, wishes.grain, phase % wishes.grain, source, "good practice", Severity.INFO)
        )
    return tuple(grids)


def physical_sector(disk: Disk, known: Sequence[KnownGeometry], below: Sequence[Sized]) -> Sized:
    """The physical sector to judge by. `below`: what was settled for the members of a stacked device."""
    reported = disk.limits.physical_block_size or 0
    if "physical_block_size" in disk.limits_given:
        # No drive has physical sectors smaller than its logical ones.
        return max(reported, disk.limits.logical_block_size or 0), Source.GIVEN, "--physical-sector-size"
    if disk.size in FLOPPY_SIZES and disk.table is None:
        return 512, Source.ASSUMED, "a floppy disk of this size has sectors of 512 bytes"
    if reported <= 0 or not is_power_of_two(reported):
        reported = 0
    best: Sized = (reported, Source.REPORTED, "physical_block_size")
    if disk.ata and (disk.ata.physical_sector_size or 0) > best[0]:
        best = (disk.ata.physical_sector_size or 0, Source.REPORTED, "ATA IDENTIFY word 106")
    for row in known:
        if row.source is Source.KNOWN and (row.physical_block_size or 0) > best[0]:
            best = (row.physical_block_size or 0, Source.KNOWN, row.row)
    if any(row.source is Source.KNOWN and row.physical_block_size == best[0] for row in known):
        return best[0], Source.KNOWN, next(row.row for row in known if row.physical_block_size == best[0])
    for member in below:
        if member[0] > best[0]:
            best = member
    if best[0] >= ASSUMED_SECTOR or (_believes_512(disk, below) and best[0]):
        return best
    logical = disk.limits.logical_block_size or 0
    return max(ASSUMED_SECTOR, logical), Source.ASSUMED, _why_assumed(disk)


def distrusted(known: Sequence[KnownGeometry], limit: str) -> bool:
    """The database says that what this model reports as that limit is no grid."""
    return any(limit in row.distrust for row in known)


def _believes_512(disk: Disk, below: Sequence[Sized]) -> bool:
    if disk.kind in STACKED:
        return bool(below)
    if disk.kind in (DiskKind.MEMORY, DiskKind.DASD):
        return True
    return is_one_drive(disk) and (disk.size or 0) <= BELIEVED_UP_TO


def _why_assumed(disk: Disk) -> str:
    if disk.kind in _WHY_ASSUMED:
        return _WHY_ASSUMED[disk.kind]
    if disk.rotational is False:
        return "flash is mapped in units of 4 KiB or more, whatever the interface reports"
    if disk.kind in STACKED:
        return "the drives below were not looked at"
    if is_one_drive(disk):
        return "drives over 2 TiB have 4 KiB sectors"
    return why_not_one_drive(disk)


Wide = tuple[GridKind, Sized, Severity]


def _minimum_io(disk: Disk, known: Sequence[KnownGeometry]) -> Iterator[Wide]:
    minimum = 0 if distrusted(known, "minimum_io_size") else believed_minimum_io(disk)
    if disk.kind in STACKED:
        if disk.array and disk.array.chunk:
            yield GridKind.CHUNK, (disk.array.chunk, Source.REPORTED, "md chunk_size"), Severity.WARNING
        elif minimum:
            yield GridKind.CHUNK, (minimum, Source.REPORTED, "minimum_io_size"), Severity.WARNING
    elif minimum and _hides_drives(disk):
        # What a RAID controller or an array reports here is its strip: as a chunk of md's, off it is a warning.
        yield GridKind.CHUNK, (minimum, Source.REPORTED, "minimum_io_size"), Severity.WARNING
    elif minimum:
        # The kernel's own rule: granularity = max(physical_block_size, minimum_io_size), block/blk-settings.c.
        yield GridKind.MINIMUM_IO, (minimum, Source.REPORTED, "minimum_io_size"), Severity.ERROR


def _hides_drives(disk: Disk) -> bool:
    """Whether it may be made of several drives: what it reports beyond a sector is then no drive's own unit."""
    return disk.kind in _MADE_OF_OTHERS or (disk.kind is DiskKind.SCSI and not is_one_drive(disk))


def _page(disk: Disk, known: Sequence[KnownGeometry], wishes: Wishes) -> Iterator[Wide]:
    if wishes.page_size:
        yield GridKind.PAGE, (wishes.page_size, Source.GIVEN, "--page-size"), Severity.WARNING
        return
    if disk.kind in STACKED:
        return
    row = next((row for row in known if row.page_size), None)
    if row and row.page_size:
        yield GridKind.PAGE, (row.page_size, row.source, row.row), Severity.WARNING


def _unit(disk: Disk, known: Sequence[KnownGeometry]) -> Iterator[Wide]:
    nvme = disk.nvme
    for name, value in (
        ("NPWG", nvme.preferred_write_granularity if nvme else None),
        ("NPWA", nvme.preferred_write_alignment if nvme else None),
    ):
        if value and is_power_of_two(value) and value <= MIB:
            yield GridKind.UNIT, (value, Source.REPORTED, f"NVMe {name}"), Severity.WARNING
    row = next((row for row in known if row.indirection_unit), None)
    if row and row.indirection_unit and disk.kind not in STACKED:
        yield GridKind.UNIT, (row.indirection_unit, row.source, row.row), Severity.WARNING


def _measured(disk: Disk, wishes: Wishes) -> Iterator[Wide]:
    """A boundary of a mebibyte or more matters on cards and sticks, which manage their flash in such units; elsewhere
    it may as well be how a drive spreads its data over its flash.
    """
    for measured in wishes.measured:
        for unit in measured.units if measured.is_of(disk) else ():
            by = f"aligntool probe, confidence {unit.confidence:.0%}"
            sized: Sized = (unit.size, Source.MEASURED, by)
            if unit.size < MIB:
                yield GridKind.UNIT, sized, Severity.WARNING
            else:
                card = disk.kind in (DiskKind.SD, DiskKind.EMMC, DiskKind.USB)
                yield GridKind.ALLOCATION, sized, Severity.WARNING if card else Severity.INFO


def _allocation(disk: Disk, known: Sequence[KnownGeometry]) -> Iterator[Wide]:
    if disk.kind not in (DiskKind.SD, DiskKind.EMMC, DiskKind.USB):
        return
    unit = disk.preferred_erase_size or 0
    row = next((row for row in known if row.erase_block), None)
    if unit and unit % ASSUMED_SECTOR == 0 and unit <= 64 * MIB:
        sized: Sized = (unit, Source.REPORTED, "preferred_erase_size")
        if disk.kind is not DiskKind.SD or disk.allocation_unit == 0:
            # mmc_init_erase() in drivers/mmc/core/core.c: but for the AU_SIZE of an SD card it goes by the capacity.
            sized = (unit, Source.ASSUMED, "preferred_erase_size, which the kernel derives from the capacity")
    elif row and row.erase_block and disk.rotational is not True:
        sized = (row.erase_block, row.source, row.row)
    else:
        return
    # An assumption is no reason to warn.
    yield GridKind.ALLOCATION, sized, Severity.INFO if sized[1] is Source.ASSUMED else Severity.WARNING


def _for_information(disk: Disk, known: Sequence[KnownGeometry]) -> Iterator[Wide]:
    if disk.kind not in (DiskKind.SD, DiskKind.EMMC, DiskKind.USB, *STACKED):
        row = next((row for row in known if row.erase_block), None)
        if row and row.erase_block:
            yield GridKind.ERASE, (row.erase_block, row.source, row.row), Severity.INFO
    grade, _ = grade_optimal_io(disk)
    if distrusted(known, "optimal_io_size"):
        return
    if grade in (Grade.PLAUSIBLE, Grade.STRIPE):
        yield (
            GridKind.OPTIMAL_IO,
            (disk.limits.optimal_io_size or 0, Source.REPORTED, "optimal_io_size"),
            Severity.INFO,
        )
