"""Judge partition tables: turn their faults into findings, and compare them with the kernel's partitions."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from aligntool.audit.drives import disk_finding
from aligntool.audit.report import Code, Finding, Severity
from aligntool.audit.wording import change_by_hand, look_at_table, next_command, next_resume
from aligntool.commands import ByHand
from aligntool.contents.catalogue import kind_named
from aligntool.inventory import (
    LAST_NUMBER,
    Disk,
    DiskKind,
    Fault,
    InFlight,
    Role,
    Table,
    TableFault,
    TableLabel,
)
from aligntool.units import Extent, counted, format_size, listed

_EBR_FAULTS = (Fault.EBR_LOOP, Fault.EBR_BROKEN, Fault.EBR_INSIDE_PARTITION, Fault.LOGICAL_OUTSIDE_EXTENDED)
_CODES = dict.fromkeys(_EBR_FAULTS, Code.EBR_CHAIN) | {
    Fault.GPT_PRIMARY_DAMAGED: Code.GPT_PRIMARY_DAMAGED,
    Fault.GPT_BACKUP_DAMAGED: Code.GPT_BACKUP_DAMAGED,
    Fault.GPT_BACKUP_MISPLACED: Code.GPT_BACKUP_MISPLACED,
    Fault.GPT_COPIES_DIFFER: Code.GPT_COPIES_DIFFER,
    Fault.PROTECTIVE_MBR: Code.PROTECTIVE_MBR,
    Fault.HYBRID_MBR: Code.HYBRID_MBR,
    Fault.OVERLAP: Code.OVERLAP,
    Fault.OTHER_SECTOR_SIZE: Code.OTHER_SECTOR_SIZE,
    Fault.BEYOND_END: Code.BEYOND_END,
    Fault.OUTSIDE_USABLE: Code.OUTSIDE_USABLE,
    Fault.COVERS_TABLE: Code.COVERS_TABLE,
    Fault.IMPLAUSIBLE_COUNT: Code.BAD_ENTRY,
    Fault.BAD_ENTRY: Code.BAD_ENTRY,
    Fault.DYNAMIC_DISK: Code.DYNAMIC_DISK,
    Fault.UNREADABLE: Code.TABLE_UNREADABLE,
}
_WARNINGS = (Fault.GPT_BACKUP_DAMAGED, Fault.GPT_BACKUP_MISPLACED, Fault.PROTECTIVE_MBR, Fault.OUTSIDE_USABLE)
_NOTES = (Fault.HYBRID_MBR, Fault.DYNAMIC_DISK)
# else an error
_SEVERITIES = dict.fromkeys(_WARNINGS, Severity.WARNING) | dict.fromkeys(_NOTES, Severity.INFO)

_OF_IMAGES = (Fault.PROTECTIVE_MBR, Fault.GPT_BACKUP_MISPLACED)
# Where the repair begins with what to save: a protective MBR too, if its length only follows the disk's.
_REPAIRED_BY_HAND = (
    Code.GPT_PRIMARY_DAMAGED,
    Code.GPT_BACKUP_DAMAGED,
    Code.GPT_BACKUP_MISPLACED,
    Code.GPT_COPIES_DIFFER,
)
_COPIES_DAMAGED = {Fault.GPT_PRIMARY_DAMAGED, Fault.GPT_BACKUP_DAMAGED}


def array_above(disk: Disk, by_name: Mapping[str, Disk]) -> str:
    """Return why a table on this disk belongs to a device above it, or "" if it is the disk's own."""
    kinds = [layer.kind for layer in disk.content] or [disk.content_hint or ""]
    member = next(filter(None, (kind_named(kind).array_title for kind in kinds)), "")
    if member:
        return f"the whole disk is a member of a {member} array; a table seen on it belongs to the array"
    for holder in disk.holders:
        above = by_name.get(holder)
        if above and above.kind is DiskKind.MD:
            return f"the whole disk is a member of {above.name}; a table seen on it belongs to the array"
        if above and above.kind is DiskKind.DM and (above.mapping or "").startswith("multipath"):
            return f"the disk is one path to {above.name}, which is judged instead"
    return ""


def table_findings(disk: Disk, above: str, *, has_image: bool = False) -> Iterator[Finding]:
    """Yield the findings on a table. `above`: why it belongs to an array; its faults are then not reported.
    `has_image`: an ISO image was written to the disk with its table.
    """
    if above:
        if disk.partitions or disk.table:
            yield disk_finding(disk, Code.FIRMWARE_RAID_MEMBER, Severity.INFO, above)
        return
    if disk.table and disk.table.in_flight:
        # What the table lacks is written from the journal: a fault of its own is found again afterwards.
        yield _in_flight_finding(disk, disk.table, disk.table.in_flight)
        return
    faults = disk.table.faults if disk.table else ()
    lost = gpt_is_lost(disk)
    if lost:
        yield _gpt_lost_finding(disk)
    for fault in faults:
        if fault.fault in _OF_IMAGES and has_image:
            yield _image_finding(disk, fault)
        elif not (lost and fault.fault in _COPIES_DAMAGED):
            yield _fault_finding(disk, fault)
    yield from _number_findings(disk)
    yield from _kernel_findings(disk)


def _in_flight_finding(disk: Disk, table: Table, flight: InFlight) -> Finding:
    """Return the finding on a move in flight, with the faults of the table as its evidence."""
    parked = f"{'entry' if len(flight.partitions) == 1 else 'entries'} {listed(flight.partitions)} parked"
    shown = "" if flight.partitions else ": its journal shows it, but no table does"
    journal = ["the table names no journal on this disk; it is the file that was given with --journal"]
    if flight.journal_at is not None:
        shown_by = f"{next_command(disk, 'status')} shows how far the move got"
        journal = [f"the journal is at byte {flight.journal_at} of this disk", shown_by]
    resume = next_resume(disk)
    text = f"a move of partitions is in flight{shown}; do not mount, repair or partition the disk"
    kept = "their partitions, and others that this table lacks, are shown again when it is finished or undone"
    parked = f"{parked}: {kept}"
    now = (f"the table now: {fault.detail}" for fault in table.faults)
    evidence = (*([parked] if flight.partitions else []), *now, *journal)
    found = disk_finding(disk, Code.IN_FLIGHT, Severity.ERROR, text, *evidence, next_=resume)
    return replace(found, sector_size=disk.sector_size, start=flight.journal_at)


def gpt_is_lost(disk: Disk) -> bool:
    """Return whether both copies of the GPT are damaged, so that Linux reads none of its entries."""
    return _faults(disk) >= _COPIES_DAMAGED


def _faults(disk: Disk) -> set[Fault]:
    return {fault.fault for fault in disk.table.faults} if disk.table else set()


def repair_of_gpt(disk: Disk) -> str:
    """Return how to repair a GPT of which Linux reads no entry. sgdisk stops if the protective MBR is wrong,
    and begins with an empty table if no header is valid.
    """
    faults = _faults(disk)
    only_primary = Fault.GPT_PRIMARY_DAMAGED in faults and Fault.GPT_BACKUP_DAMAGED not in faults
    program = "sgdisk" if only_primary and Fault.PROTECTIVE_MBR not in faults else "gdisk"
    return change_by_hand(disk, ByHand.TABLE, program)


# The kinds of disks on which Linux always searches for partitions: not on a loop device without partition
# scanning, for example.
_SCANNED = frozenset(
    {
        DiskKind.NVME,
        DiskKind.ATA,
        DiskKind.SCSI,
        DiskKind.USB,
        DiskKind.UFS,
        DiskKind.SD,
        DiskKind.EMMC,
        DiskKind.VIRTIO,
        DiskKind.MD,
    }
)
_READ_BY_LINUX = (TableLabel.GPT, TableLabel.DOS)  # by every kernel; the others depend on its configuration


def hiding_codes(disk: Disk) -> frozenset[Code]:
    """Return the codes of the findings on why Linux shows none of the partitions of this disk, or wrong
    ones.
    """
    found = {_CODES[fault.fault] for fault in (disk.table.faults if disk.table else ()) if fault.hides}
    if gpt_is_lost(disk):
        found.add(Code.GPT_LOST)
    if not disk.kernel_partitions:
        found.add(Code.KERNEL_DISAGREES)
    return frozenset(found)


def is_in_kernel(disk: Disk) -> bool:
    """Return whether the kernel still has partitions of the table."""
    extents = {part.extent for part in disk.partitions}
    return any(extent in extents for _, extent in disk.kernel_partitions)


def _gpt_lost_finding(disk: Disk) -> Finding:
    damaged = [fault for fault in (disk.table.faults if disk.table else ()) if fault.fault in _COPIES_DAMAGED]
    listed = disk.table is not None and disk.table.label is TableLabel.GPT
    shown = "; only the entries that could still be read are listed" if listed else ""
    text = f"both copies of the GPT are damaged: Linux reads none of its entries{shown}"
    details = (fault.detail for fault in damaged)
    next_ = _next_step(disk, Code.GPT_LOST)
    found = disk_finding(disk, Code.GPT_LOST, Severity.ERROR, text, *details, next_=next_)
    return replace(found, start=damaged[0].at, sector_size=disk.sector_size)


def _fault_finding(disk: Disk, fault: TableFault) -> Finding:
    code = _CODES[fault.fault]
    severity = _SEVERITIES.get(fault.fault, Severity.ERROR)
    if fault.fault is Fault.BAD_ENTRY and disk.table and disk.table.label is TableLabel.DOS:
        # For example a type without sectors: the kernel omits the entry and nothing is lost.
        severity = Severity.WARNING
    covering = (
        part for part in disk.partitions if part.number in fault.partitions and part.extent.start == 0
    )
    kinds = [layer.kind for layer in disk.content]
    image = any(kind_named(name).is_disc_image for name in (disk.content_hint or "", *kinds))
    other = disk.table is not None and disk.table.label is not TableLabel.DOS
    if fault.fault is Fault.OVERLAP and any(image or other or part.type_code == "0x00" for part in covering):
        # intended in hybrid ISO images; of other tables, the entry of the whole disk
        severity = Severity.INFO
    copies = (
        f"{copy.name} GPT at byte {copy.at}: {copy.state}"
        for copy in (disk.table.copies if disk.table else ())
    )
    found = disk_finding(disk, code, severity, fault.detail, *copies, next_=_next_step(disk, code))
    number = fault.partitions[0] if len(fault.partitions) == 1 else None
    size = disk.table.sector_size if disk.table else None
    return replace(found, partition=number, start=fault.at, sector_size=size)


def _image_finding(disk: Disk, fault: TableFault) -> Finding:
    """Return the note on a hybrid ISO image: it has an MBR and a GPT on purpose, and was made for a medium of
    its own length.
    """
    code = _CODES[fault.fault]
    why = "an ISO image was written to this medium with its table: nothing needs repair"
    found = disk_finding(disk, code, Severity.INFO, fault.detail, why, next_=f"aligntool explain {code}")
    return replace(found, start=fault.at, sector_size=disk.table.sector_size if disk.table else None)


def _next_step(disk: Disk, code: Code) -> str:
    if code in hiding_codes(disk) and code in (Code.GPT_LOST, Code.GPT_PRIMARY_DAMAGED, Code.PROTECTIVE_MBR):
        return repair_of_gpt(disk)
    if code in _REPAIRED_BY_HAND or (
        code is Code.PROTECTIVE_MBR and Fault.GPT_BACKUP_MISPLACED in _faults(disk)
    ):
        return change_by_hand(disk, ByHand.TABLE, "sgdisk")
    shown = disk.limits.logical_block_size
    if code is Code.OTHER_SECTOR_SIZE and shown in (512, 4096):
        return next_command(disk, "plan convert", f"--sector-size {shown}")
    if code is Code.COVERS_TABLE:
        return look_at_table(disk, "sgdisk -v")
    if code in (Code.EBR_CHAIN, Code.OVERLAP, Code.BAD_ENTRY, Code.BEYOND_END):
        return look_at_table(disk, "sfdisk --dump")
    return f"aligntool explain {code}"


def _number_findings(disk: Disk) -> Iterator[Finding]:
    """Yield a finding on entries that are valid, but that Linux does not show."""
    hidden = [str(part.number) for part in disk.partitions if part.number > LAST_NUMBER and part.type_code]
    if hidden:
        text = (
            f"{counted(len(hidden), 'partition')} with a number above {LAST_NUMBER}, which Linux does not"
            " show"
        )
        next_ = _next_step(disk, Code.BAD_ENTRY)
        yield disk_finding(disk, Code.BAD_ENTRY, Severity.WARNING, text, ", ".join(hidden), next_=next_)


def _kernel_findings(disk: Disk) -> Iterator[Finding]:
    """Yield a finding if the kernel's partitions differ from the table, if both were read."""
    label = disk.table.label if disk.table else None
    # On a dynamic disk with an MBR the kernel shows the volumes, not the entries (block/partitions/ldm.c).
    shows_volumes = label is TableLabel.DOS and Fault.DYNAMIC_DISK in _faults(disk)
    if not disk.table_read or label is TableLabel.UNKNOWN or shows_volumes:
        return
    compared = (
        label in _READ_BY_LINUX and disk.kind in _SCANNED and not hiding_codes(disk) - {Code.KERNEL_DISAGREES}
    )
    if not disk.kernel_partitions and not compared:
        return
    shown = (part for part in disk.partitions if part.number <= LAST_NUMBER)
    on_disk = {
        part.number: part.extent for part in shown if part.role is not Role.EXTENDED and part.type_code
    }
    in_kernel = dict(disk.kernel_partitions)
    differing = sorted(
        number for number in on_disk.keys() & in_kernel.keys() if on_disk[number] != in_kernel[number]
    )
    extended = {part.number for part in disk.partitions if part.role is Role.EXTENDED}
    missing = sorted(on_disk.keys() - in_kernel.keys())
    extra = sorted(in_kernel.keys() - on_disk.keys() - extended)
    differences = [
        f"partition {number}: the kernel has {_length_at(in_kernel[number])}, the table"
        f" {_length_at(on_disk[number])}"
        for number in differing
    ]
    differences += [f"partition {number} is in the table but not in the kernel" for number in missing]
    differences += [f"partition {number} is in the kernel but not in the table" for number in extra]
    if differences:
        text = "the kernel's partitions differ from the table"
        if not disk.kernel_partitions:
            text = "the kernel shows no partition of this disk, although its table lists some"
        probe = change_by_hand(disk, ByHand.KERNEL_TABLE, "partprobe")
        yield disk_finding(disk, Code.KERNEL_DISAGREES, Severity.WARNING, text, *differences, next_=probe)


def _length_at(extent: Extent) -> str:
    return f"{format_size(extent.length)} at {format_size(extent.start)}"
