"""What a device says of itself: sizes hidden, assumed, disputed or not to be believed."""

from collections.abc import Iterator, Sequence

from aligntool.audit.codes import Code
from aligntool.audit.cost import REQUEST, predict
from aligntool.audit.limits import Grade, grade_optimal_io, minimum_io_doubt
from aligntool.audit.report import Finding, Grid, GridKind, Severity
from aligntool.inventory import Disk, DiskKind, KnownGeometry, NvmeFacts, Source
from aligntool.units import format_size


def device_findings(disk: Disk, grids: Sequence[Grid], known: Sequence[KnownGeometry]) -> Iterator[Finding]:
    yield from _conflict(disk, grids[0])
    yield from _sector(disk, grids[0])
    yield from _bogus(disk)
    yield from _distrusted(disk, known)
    yield from _table_tells(disk)
    yield from _unit(disk, grids)
    if disk.nvme:
        yield from _formats(disk, disk.nvme)


def told(disk: Disk, code: Code, severity: Severity, sentence: str, **more: str) -> Finding:
    """A finding about the disk itself."""
    return Finding(
        code,
        severity,
        f"{disk.name}: {sentence}",
        disk=disk.name,
        next=more.get("next", f"aligntool explain {code}"),
    )


def _conflict(disk: Disk, physical: Grid) -> Iterator[Finding]:
    offset = disk.limits.alignment_offset or 0
    if physical.phase and offset % physical.size != physical.phase:
        yield told(
            disk, Code.SHIFTED_GRID, Severity.INFO,
            f"its physical sectors of {format_size(physical.size)} start {format_size(physical.phase)} past byte 0,"
            f" where the data of its members lie; the kernel reports an alignment_offset of {offset}",
        )  # fmt: skip
    elif offset < 0:
        members = ", ".join(disk.slaves) or "unknown"
        yield told(disk, Code.STACK_CONFLICT, Severity.WARNING, f"alignment_offset is −1; members: {members}")
    elif offset > 0:
        wide = max(disk.limits.physical_block_size or 512, disk.limits.minimum_io_size or 0)
        units = "physical sectors" if wide == disk.limits.physical_block_size else "minimum I/O units"
        yield told(
            disk, Code.SHIFTED_GRID, Severity.INFO,
            f"its {units} of {format_size(wide)} start {format_size(offset)} past byte 0 (alignment_offset)",
        )  # fmt: skip


def _sector(disk: Disk, physical: Grid) -> Iterator[Finding]:
    """How the physical sector came to be what it is, when it is not what the kernel reports."""
    reported = disk.limits.physical_block_size
    said = f"reports {format_size(reported)}" if reported else "reports nothing"
    size = format_size(physical.size)
    if physical.source is Source.KNOWN and physical.size != reported:
        yield told(
            disk, Code.SECTOR_SIZE_HIDDEN, Severity.INFO, f"{said}, but {physical.by} has {size} sectors"
        )
    elif physical.source is Source.ASSUMED and (
        disk.partitions or disk.content or disk.kind is DiskKind.IMAGE
    ):
        yield told(
            disk,
            Code.SECTOR_SIZE_ASSUMED,
            Severity.INFO,
            f"{said}; {size} sectors are assumed: {physical.by}{_logical(disk)}",
        )
    if disk.ata and disk.ata.physical_sector_size and reported and disk.ata.physical_sector_size > reported:
        drive = format_size(disk.ata.physical_sector_size)
        yield told(
            disk, Code.SECTOR_SIZE_DISPUTED, Severity.INFO,
            f"the drive's IDENTIFY says {drive} a physical sector, the kernel reports {format_size(reported)}",
        )  # fmt: skip


def _logical(disk: Disk) -> str:
    """Which logical sectors the starts were counted in, where the device reports none."""
    if disk.limits.logical_block_size is not None:
        return ""
    size = format_size(disk.sector_size)
    if disk.table is None:
        return f"; logical sectors of {size} are assumed"
    if disk.table.sector_size_assumed:
        return f"; logical sectors of {size} are assumed, too: --sector-size states another size"
    return f"; logical sectors of {size}, as its {disk.table.label} table shows"


def _bogus(disk: Disk) -> Iterator[Finding]:
    grade, reason = grade_optimal_io(disk)
    if grade is Grade.BOGUS:
        size = disk.limits.optimal_io_size or 0
        yield told(
            disk,
            Code.BOGUS_OPTIMAL_IO,
            Severity.INFO,
            f"optimal_io_size {size} ({format_size(size)}) is ignored: {reason}",
        )
    doubt = minimum_io_doubt(disk)
    if doubt:
        size = disk.limits.minimum_io_size or 0
        yield told(
            disk,
            Code.BOGUS_MINIMUM_IO,
            Severity.INFO,
            f"minimum_io_size {size} ({format_size(size)}) is ignored: {doubt}",
        )


def _distrusted(disk: Disk, known: Sequence[KnownGeometry]) -> Iterator[Finding]:
    """What the database alone knows to mislead; what can be seen by itself is told already."""
    doubted = {
        "minimum_io_size": bool(minimum_io_doubt(disk)),
        "optimal_io_size": grade_optimal_io(disk)[0] is Grade.BOGUS,
    }
    for limit, code in (
        ("minimum_io_size", Code.BOGUS_MINIMUM_IO),
        ("optimal_io_size", Code.BOGUS_OPTIMAL_IO),
    ):
        size: int | None = getattr(disk.limits, limit)
        row = next((row for row in known if limit in row.distrust), None)
        if row and size and not doubted[limit]:
            sentence = (
                f"{limit} {size} ({format_size(size)}) is ignored: {row.row} reports it without needing it"
            )
            yield told(disk, code, Severity.INFO, sentence)


def _table_tells(disk: Disk) -> Iterator[Finding]:
    if disk.kind is not DiskKind.IMAGE or disk.table is None or disk.limits.logical_block_size is not None:
        return
    if disk.table.sector_size != 512:
        size = disk.table.sector_size
        yield told(
            disk, Code.TABLE_TELLS_SECTOR_SIZE, Severity.INFO,
            f"its {disk.table.label} table is written in sectors of {size} bytes;"
            f" attach it with losetup --sector-size {size}",
        )  # fmt: skip


def _unit(disk: Disk, grids: Sequence[Grid]) -> Iterator[Finding]:
    asked = [
        grid for grid in grids if grid.kind in (GridKind.UNIT, GridKind.MINIMUM_IO) and grid.size > REQUEST
    ]
    unit = max(asked, key=lambda grid: grid.size, default=None)
    if (
        unit is None
        or disk.kind not in (DiskKind.NVME, DiskKind.ATA, DiskKind.SCSI)
        or disk.rotational is True
    ):
        return
    times = predict(unit.size).write_amplification
    yield Finding(
        Code.LARGE_UNIT, Severity.INFO,
        f"{disk.name}: works in units of {format_size(unit.size)} ({unit.source}: {unit.by});"
        f" a 4 KiB write costs {float(times):g} times its size even when aligned",
        disk=disk.name, grid=unit, cost=predict(unit.size), next=f"aligntool explain {Code.LARGE_UNIT}",
    )  # fmt: skip


def _formats(disk: Disk, nvme: NvmeFacts) -> Iterator[Finding]:
    current = next((form for form in nvme.formats if form.index == nvme.format_in_use), None)
    if current is None:
        return
    better = [
        form for form in nvme.formats
        if form.metadata_size == 0 and form.data_size >= 512
        and form.relative_performance < current.relative_performance
    ]  # fmt: skip
    best = min(better, key=lambda form: (form.relative_performance, -form.data_size), default=None)
    if best:
        yield told(
            disk, Code.BETTER_LBA_FORMAT, Severity.INFO,
            f"uses LBA format {current.index} ({current.data_size} bytes, relative performance"
            f" {current.relative_performance}); format {best.index} ({best.data_size} bytes) is rated"
            f" {best.relative_performance}, which is better",
        )  # fmt: skip
