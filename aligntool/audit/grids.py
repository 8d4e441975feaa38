"""List the boundaries that matter on a disk: their sizes, phases and sources."""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from aligntool.audit.report import AuditOptions, Grid, GridKind, Severity
from aligntool.inventory import Disk, DiskKind, Inventory, KnownGeometry, NvmeFacts, Source
from aligntool.units import MIB, TIB, format_size, is_power_of_two

# Whether a reported physical sector of 512 bytes can be believed, because the disk is one rotating drive.
#
# A Linux disk that reports nothing has sectors of 512 bytes and is "rotating" to the kernel
# (block/blk-settings.c, sd.c), so neither is evidence: a LUN of a RAID controller and a virtual disk look
# like an old hard disk.

BELIEVED_UP_TO = 2 * TIB  # rotating drives up to this size may really have 512-byte sectors

_NOT_A_SINGLE_DRIVE = (
    r"(?i)\b(?:qemu|vbox|virtual|vmware|msft|google|xen|parallels|bochs|kvm|nutanix|vdisk"  # hypervisors
    # storage
    r"|lio-org|iet|scst_\w+|iscsi|open-v|lun|symmetrix|netapp|3par\w*|compellent|equallogic|powervault"
    r"|perc|megaraid|mr\d\w*|serveraid|smartraid|smart array|logical vol\w*|logical drive"  # controllers
    r"|raid ?\d*|\w*raid|areca|arc-\d+\w*|adaptec|3ware|amcc|9\d{3}s\w*|dpt|mylex|jmicron|volume)\b"
)


def is_single_drive(disk: Disk) -> bool:
    """Return whether the disk is a single rotating drive, as far as the host can know.

    It is on a port that addresses one drive, it does not have the name of a controller or a hypervisor, and a
    SCSI drive that can be queried for its rotation rate reports one.
    """
    if disk.kind not in (DiskKind.ATA, DiskKind.SCSI) or disk.rotational is not True:
        return False
    if re.search(_NOT_A_SINGLE_DRIVE, f"{disk.vendor or ''} {disk.model or ''}"):
        return False
    return disk.kind is DiskKind.ATA or (disk.drive_port is not None and disk.rotation_rpm != 0)


def single_drive_doubt(disk: Disk) -> str:
    """Return why the disk may not be a single drive, as text."""
    if disk.kind is DiskKind.SCSI or re.search(
        _NOT_A_SINGLE_DRIVE, f"{disk.vendor or ''} {disk.model or ''}"
    ):
        return "it may be a volume of a RAID controller, an array or a hypervisor, not a single drive"
    return "the medium below is not reported"


# Plausibility of the sizes that a device reports, checked before anything is compared with them.
#
# Cases and sources: 33553920 (65535 × 512) from USB bridges, util-linux#1221 and #1224; 16773120 (4095 ×
# 4096) from SAS drivers, linux-block 2025-06; 33554432 (65536 × 512) from NVMe NOWS 65535, azure-vm-utils#99.
# Odd but real stripes such as 196608 (three data disks, util-linux#688) must be accepted.

STACKED = frozenset({DiskKind.MD, DiskKind.DM, DiskKind.BCACHE})
LARGEST_OPTIMAL_IO_OF_A_DRIVE = 4 * MIB
LARGEST_MINIMUM_IO_OF_A_DRIVE = 16 * MIB


class Grade(StrEnum):
    ABSENT = "absent"
    BOGUS = "bogus"
    PLAUSIBLE = "plausible"
    STRIPE = "plausible-stripe"


def grade_optimal_io(disk: Disk) -> tuple[Grade, str]:
    """Return the grade of `optimal_io_size`, and the reason if it is bogus."""
    optimal = disk.limits.optimal_io_size or 0
    if optimal <= 0:
        return Grade.ABSENT, ""
    logical = disk.limits.logical_block_size or 512
    block = max(disk.limits.physical_block_size or 512, believed_minimum_io(disk))
    if optimal == 0xFFFF * logical:
        return Grade.BOGUS, f"it is 65535 sectors of {logical} bytes, which USB bridges report for “no limit”"
    if optimal % block:
        return Grade.BOGUS, f"it is not a multiple of {block} bytes"
    if disk.kind in STACKED:
        return Grade.STRIPE, ""
    if not is_power_of_two(optimal) and optimal % MIB:
        # A RAID controller's strip times an odd number of data disks is a multiple of the minimum I/O size,
        # which is then the strip.
        if disk.kind is DiskKind.SCSI and believed_minimum_io(disk) >= 16 * 1024:
            return Grade.STRIPE, ""
        return Grade.BOGUS, "it is neither a power of two nor a multiple of 1 MiB, and this is a single drive"
    if optimal > LARGEST_OPTIMAL_IO_OF_A_DRIVE:
        return Grade.BOGUS, "it is larger than 4 MiB, and this is a single drive"
    return Grade.PLAUSIBLE, ""


def minimum_io_doubt(disk: Disk) -> str:
    """Return why `minimum_io_size` is not used, or "" if it is."""
    minimum = disk.limits.minimum_io_size or 0
    logical = disk.limits.logical_block_size or 512
    if minimum <= 0:
        return ""
    if minimum % logical:
        return f"it is not a multiple of the logical sector of {logical} bytes"
    if disk.kind in STACKED:
        return ""
    if not is_power_of_two(minimum) and disk.kind is not DiskKind.SCSI:
        return "it is not a power of two, and this is a single drive"
    if minimum > LARGEST_MINIMUM_IO_OF_A_DRIVE:
        return "it is larger than 16 MiB"
    if (disk.limits.physical_block_size or 0) > minimum or minimum % (
        disk.limits.physical_block_size or 512
    ) == 0:
        return ""
    return f"it is not a multiple of the physical sector of {disk.limits.physical_block_size} bytes"


def believed_minimum_io(disk: Disk) -> int:
    """Return `minimum_io_size` in bytes, or 0 if it is absent or implausible."""
    minimum = disk.limits.minimum_io_size or 0
    return 0 if minimum <= 0 or minimum_io_doubt(disk) else minimum


# The grids that the partitions of a disk are compared with, and their sources.
#
# The physical grid comes first, then the others by importance. Implausible sizes never become a grid.

Sized = tuple[int, Source, str]
"""A size in bytes, its source, and the name of the value or row."""

Sectors = Mapping[str, Sized]

ASSUMED_SECTOR = 4096
FLOPPY_SIZES = frozenset(kib * 1024 for kib in (160, 180, 320, 360, 640, 720, 1200, 1440, 1680, 1720, 2880))

_HIDING_KINDS = frozenset({DiskKind.VIRTIO, DiskKind.NETWORK, DiskKind.LOOP, DiskKind.USB, DiskKind.OTHER})

_ASSUMED_BECAUSE = {
    DiskKind.IMAGE: "an image file reports nothing",
    DiskKind.VIRTIO: "a virtual disk hides the drive below it",
    DiskKind.LOOP: "a loop device hides the drive below it",
    DiskKind.NETWORK: "a network disk hides the drive below it",
    DiskKind.USB: "USB bridges often report 512 bytes wrongly",
}


def grids_of(
    disk: Disk,
    known: Sequence[KnownGeometry],
    options: AuditOptions,
    sectors: Sectors,
    shifts: Mapping[str, int],
) -> tuple[Grid, ...]:
    """Return the grids of a disk. `sectors`: the physical sector of every disk, by name.

    `shifts`: the phase of the members' sectors on arrays for which the kernel does not report it. Chunks are
    still counted from the array's byte 0.
    """
    size, source, by = sectors[disk.name]
    phase = max(disk.limits.alignment_offset or 0, 0)
    shift = shifts.get(disk.name, phase % size)
    if disk.name in shifts:
        by = f"{by}; {format_size(size - shift)} past a sector, the data of every member begin"
    grids = [Grid(GridKind.PHYSICAL, size, shift, source, by, Severity.ERROR)]
    wider = (
        *_minimum_io_grids(disk, known),
        *_page_grids(disk, known, options),
        *_unit_grids(disk, known),
        *_measured_grids(disk, options),
    )
    more = (*_allocation_grids(disk, known), *_informational_grids(disk, known))
    for kind, (wide, its_source, its_by), severity in (*wider, *more):
        if wide > size:
            grids.append(Grid(kind, wide, phase % wide, its_source, its_by, severity))
    if options.grain > size:
        source = Source.ASSUMED if options.grain == MIB else Source.GIVEN
        grids.append(
            Grid(GridKind.GRAIN, options.grain, phase % options.grain, source, "good practice", Severity.INFO)
        )
    return tuple(grids)


def physical_sector(disk: Disk, known: Sequence[KnownGeometry], below: Sequence[Sized]) -> Sized:
    """Return the physical sector to judge by. `below`: those of the members of a stacked device."""
    reported = disk.limits.physical_block_size or 0
    if "physical_block_size" in disk.limits_given:
        # No drive has physical sectors smaller than its logical ones.
        return max(reported, disk.limits.logical_block_size or 0), Source.GIVEN, "--physical-sector-size"
    if disk.size in FLOPPY_SIZES and disk.table is None:
        return 512, Source.ASSUMED, "a floppy disk of this size has sectors of 512 bytes"
    if reported <= 0 or not is_power_of_two(reported) or reported > LARGEST_MINIMUM_IO_OF_A_DRIVE:
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
    return max(ASSUMED_SECTOR, logical), Source.ASSUMED, _assumption(disk)


def distrusted(known: Sequence[KnownGeometry], limit: str) -> bool:
    """Return whether the database states that this limit, as the model reports it, is not a grid."""
    return any(limit in row.distrust for row in known)


def _believes_512(disk: Disk, below: Sequence[Sized]) -> bool:
    if disk.kind in STACKED:
        return bool(below)
    if disk.kind in (DiskKind.MEMORY, DiskKind.DASD):
        return True
    return is_single_drive(disk) and (disk.size or 0) <= BELIEVED_UP_TO


def _assumption(disk: Disk) -> str:
    if disk.kind in _ASSUMED_BECAUSE:
        return _ASSUMED_BECAUSE[disk.kind]
    if disk.rotational is False:
        return "flash is mapped in units of 4 KiB or more, whatever the interface reports"
    if disk.kind in STACKED:
        return "the drives below were not examined"
    if is_single_drive(disk) and (disk.size or 0) > BELIEVED_UP_TO:
        return "drives over 2 TiB have 4 KiB sectors"
    if is_single_drive(disk):
        return "no plausible sector size is reported"
    return single_drive_doubt(disk)


Wide = tuple[GridKind, Sized, Severity]


def _minimum_io_grids(disk: Disk, known: Sequence[KnownGeometry]) -> Iterator[Wide]:
    minimum = 0 if distrusted(known, "minimum_io_size") else believed_minimum_io(disk)
    sized: Sized = (minimum, Source.REPORTED, "minimum_io_size")
    if disk.kind in STACKED and disk.array and disk.array.chunk:
        yield GridKind.CHUNK, (disk.array.chunk, Source.REPORTED, "md chunk_size"), Severity.WARNING
    elif minimum and (disk.kind in STACKED or _hides_drives(disk)):
        # A RAID controller or an array reports its strip here: like an md chunk, a start off it is a warning.
        yield GridKind.CHUNK, sized, Severity.WARNING
    elif minimum:
        # The kernel's own rule: granularity = max(physical_block_size, minimum_io_size),
        # block/blk-settings.c.
        yield GridKind.MINIMUM_IO, sized, Severity.ERROR


def _hides_drives(disk: Disk) -> bool:
    """Return whether the disk may consist of several drives: sizes beyond the sector are then not a drive's
    unit.
    """
    return disk.kind in _HIDING_KINDS or (disk.kind is DiskKind.SCSI and not is_single_drive(disk))


def _known_size(known: Sequence[KnownGeometry], field: str) -> Sized | None:
    """Return the size in `field` of the first row that has one."""
    return next(((size, row.source, row.row) for row in known if (size := getattr(row, field))), None)


def _page_grids(disk: Disk, known: Sequence[KnownGeometry], options: AuditOptions) -> Iterator[Wide]:
    if options.page_size:
        yield GridKind.PAGE, (options.page_size, Source.GIVEN, "--page-size"), Severity.WARNING
    elif disk.kind not in STACKED and (sized := _known_size(known, "page_size")):
        yield GridKind.PAGE, sized, Severity.WARNING


def _unit_grids(disk: Disk, known: Sequence[KnownGeometry]) -> Iterator[Wide]:
    nvme = disk.nvme or NvmeFacts()
    for name, value in (("NPWG", nvme.preferred_write_granularity), ("NPWA", nvme.preferred_write_alignment)):
        if value and is_power_of_two(value) and value <= MIB:
            yield GridKind.UNIT, (value, Source.REPORTED, f"NVMe {name}"), Severity.WARNING
    if disk.kind not in STACKED and (sized := _known_size(known, "indirection_unit")):
        yield GridKind.UNIT, sized, Severity.WARNING


def _measured_grids(disk: Disk, options: AuditOptions) -> Iterator[Wide]:
    """Yield the measured grids. A boundary of 1 MiB or more matters on cards and sticks, which manage their
    flash in such units; elsewhere it may result from the distribution of data over the flash.
    """
    for measured in options.measured:
        for unit in measured.units if measured.is_of(disk) else ():
            by = f"aligntool probe, confidence {unit.confidence:.0%}"
            sized: Sized = (unit.size, Source.MEASURED, by)
            if unit.size < MIB:
                yield GridKind.UNIT, sized, Severity.WARNING
            else:
                card = disk.kind in (DiskKind.SD, DiskKind.EMMC, DiskKind.USB)
                yield GridKind.ALLOCATION, sized, Severity.WARNING if card else Severity.INFO


def _allocation_grids(disk: Disk, known: Sequence[KnownGeometry]) -> Iterator[Wide]:
    if disk.kind not in (DiskKind.SD, DiskKind.EMMC, DiskKind.USB):
        return
    unit = disk.preferred_erase_size or 0
    sized = _known_size(known, "erase_block")
    if unit and unit % ASSUMED_SECTOR == 0 and unit <= 64 * MIB:
        sized = (unit, Source.REPORTED, "preferred_erase_size")
        if disk.kind is not DiskKind.SD or disk.allocation_unit == 0:
            # mmc_init_erase() in drivers/mmc/core/core.c derives it from the capacity, except for an SD card
            # with AU_SIZE.
            sized = (unit, Source.ASSUMED, "preferred_erase_size, which the kernel derives from the capacity")
    elif disk.rotational is True:
        return
    if sized:  # an assumption does not justify a warning
        yield GridKind.ALLOCATION, sized, Severity.INFO if sized[1] is Source.ASSUMED else Severity.WARNING


def _informational_grids(disk: Disk, known: Sequence[KnownGeometry]) -> Iterator[Wide]:
    is_flash_or_drive = disk.kind not in (DiskKind.SD, DiskKind.EMMC, DiskKind.USB, *STACKED)
    if is_flash_or_drive and (sized := _known_size(known, "erase_block")):
        yield GridKind.ERASE, sized, Severity.INFO
    grade, _ = grade_optimal_io(disk)
    if grade in (Grade.PLAUSIBLE, Grade.STRIPE) and not distrusted(known, "optimal_io_size"):
        sized = (disk.limits.optimal_io_size or 0, Source.REPORTED, "optimal_io_size")
        yield GridKind.OPTIMAL_IO, sized, Severity.INFO


# The phase of the members' sectors on an md array, if the kernel does not report it. For members that start
# off their sectors the kernel reports −1 if there is a chunk (blk_stack_limits: chunk and shift do not fit
# into one number), and sector sizes that are known or assumed do not enter its computation.

_SHIFTED_LEVELS = ("raid0", "raid1", "raid4", "raid5", "raid6", "raid10")  # a byte keeps its place in a chunk


def shifted_arrays(inventory: Inventory, sectors: Sectors) -> dict[str, int]:
    """Return the phase of each array by name, without arrays that the kernel reports correctly and those
    whose members contradict each other.
    """
    starts = _start_of_nodes(inventory)
    found = {}
    for disk in inventory.disks:
        wider = sectors[disk.name][0] > (disk.limits.physical_block_size or 0)
        if disk.array and (wider or (disk.limits.alignment_offset or 0) < 0):
            found[disk.name] = _shift(disk, sectors, starts)
    return {name: shift for name, shift in found.items() if shift}


def _start_of_nodes(inventory: Inventory) -> dict[str, tuple[Disk, int]]:
    """Return the disk and the first byte on it, by kernel name of a disk or partition."""
    places = {disk.name: (disk, 0) for disk in inventory.disks}
    for disk in inventory.disks:
        places.update((part.node, (disk, part.extent.start)) for part in disk.partitions if part.node)
    return places


def _shift(array: Disk, sectors: Sectors, starts: Mapping[str, tuple[Disk, int]]) -> int | None:
    """Return the phase that all members with data agree on, or None. Ignore members with smaller sectors than
    the array's.
    """
    facts = array.array
    size = sectors[array.name][0]
    if facts is None or facts.level not in _SHIFTED_LEVELS or (facts.chunk or 0) % size:
        return None
    offsets = {name: offset for name, offset in facts.member_data_offsets if name not in facts.spares}
    if not offsets or set(offsets) != set(facts.members) - set(facts.spares):
        return None
    shifts: set[int] = set()
    for name, offset in offsets.items():
        if name not in starts:
            return None
        disk, start = starts[name]
        phase = disk.limits.alignment_offset or 0
        if phase < 0:
            return None
        if sectors[disk.name][0] == size:
            shifts.add((phase - start - offset) % size)
    return shifts.pop() if len(shifts) == 1 else None
