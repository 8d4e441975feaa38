"""Where partitions start and end: the verdict on each, and its finding.

One finding for a start, the worst; the other grids it is off stand in the verdict's checks.
"""

from collections.abc import Iterator, Sequence

from aligntool.audit.causes import likely_cause
from aligntool.audit.codes import Code
from aligntool.audit.cost import predict
from aligntool.audit.excuses import other_sectors
from aligntool.audit.report import Answer, Check, Finding, Grid, GridKind, Severity, Verdict
from aligntool.audit.words import asked_by, layer_name, next_command, next_look, next_realign, spot, where
from aligntool.inventory import Disk, DiskKind, Layer, Partition, TableLabel
from aligntool.units import format_size

CODES = {
    GridKind.PHYSICAL: Code.OFF_PHYSICAL,
    GridKind.MINIMUM_IO: Code.OFF_PHYSICAL,
    GridKind.PAGE: Code.OFF_PAGE,
    GridKind.UNIT: Code.OFF_PAGE,
    GridKind.ALLOCATION: Code.OFF_ALLOCATION_UNIT,
    GridKind.CHUNK: Code.OFF_CHUNK,
    GridKind.ERASE: Code.OFF_ERASE_BLOCK,
    GridKind.OPTIMAL_IO: Code.OFF_OPTIMAL_IO,
    GridKind.GRAIN: Code.OFF_GRAIN,
}


def judge_start(
    disk: Disk,
    number: int | None,
    start: int,
    grids: Sequence[Grid],
    *,
    excuse: str = "",
    doubt: str = "",
) -> Verdict:
    """Off the grid means off one whose severity is error or warning. `excuse`: why that does not matter; `doubt`:
    why it may not be so.
    """
    checks = tuple(Check(grid, grid.off_by(start)) for grid in grids)
    if (disk.limits.alignment_offset or 0) < 0 and not grids[0].phase:  # nor do the members tell it
        why = (
            "the kernel reports alignment_offset −1: the members of this stacked device contradict each other"
        )
        return Verdict(disk.name, number, start, Answer.UNKNOWN, checks, why=why)
    off = any(not check.on and check.grid.severity is not Severity.INFO for check in checks)
    if off and doubt and not excuse:
        return Verdict(disk.name, number, start, Answer.UNKNOWN, checks, why=doubt)
    return Verdict(
        disk.name, number, start, Answer.OFF if off else Answer.ON, checks, matters=not excuse, why=excuse
    )


def start_findings(
    disk: Disk, partition: Partition | None, verdict: Verdict, sector_size: int
) -> Iterator[Finding]:
    if verdict.answer is Answer.UNKNOWN:
        yield Finding(
            Code.UNKNOWN_ALIGNMENT, Severity.WARNING,
            f"{where(disk, partition)}: alignment cannot be judged: {verdict.why}",
            disk=disk.name, partition=verdict.partition, start=verdict.start, sector_size=sector_size,
            next=next_command(disk, "audit", "--sector-size 4096") if other_sectors(disk) else next_look(disk),
        )  # fmt: skip
        return
    worst = _worst(verdict.checks)
    if worst is None:
        return
    if not verdict.matters:
        if worst.grid.severity is not Severity.INFO:
            yield _not_judged(disk, partition, verdict, worst, sector_size)
        return
    code = CODES[worst.grid.kind]
    if code is Code.OFF_GRAIN and _grain_is_moot(disk, partition, verdict):
        return
    severity = worst.grid.severity
    factory = _data_on_the_grid(partition, worst.grid, _FILES)
    if factory and severity is Severity.ERROR:
        severity = Severity.WARNING
    yield Finding(
        code, severity, _start_summary(disk, partition, verdict, worst, sector_size),
        disk=disk.name, partition=verdict.partition, start=verdict.start, sector_size=sector_size,
        grid=worst.grid, off_by=worst.off_by,
        cause=likely_cause(partition, sector_size, disk.partitions, worst.grid) if partition else None,
        cost=predict(worst.grid.size) if severity is not Severity.INFO and not factory else None,
        evidence=tuple(_evidence(partition, verdict, worst)),
        next=next_realign(disk) if severity is not Severity.INFO else f"aligntool explain {code}",
    )  # fmt: skip


def end_finding(disk: Disk, partition: Partition, physical: Grid, sector_size: int) -> Finding | None:
    """The end off the physical sector, for information; the last sector of the disk itself does not count."""
    past = physical.off_by(partition.extent.end)
    if not past or (disk.size is not None and partition.extent.end >= disk.size - physical.size):
        return None
    return Finding(
        Code.END_UNALIGNED, Severity.INFO,
        f"{where(disk, partition)} ends {format_size(past)} past a boundary of {format_size(physical.size)}",
        disk=disk.name, partition=partition.number, start=partition.extent.start, sector_size=sector_size,
        grid=physical, off_by=past, next=f"aligntool explain {Code.END_UNALIGNED}",
    )  # fmt: skip


def _worst(checks: Sequence[Check]) -> Check | None:
    """The failed check that matters most; among equals the first, and the grids stand in order."""
    failed = [check for check in checks if not check.on]
    return min(failed, key=lambda check: check.grid.severity.rank) if failed else None


def _grain_is_moot(disk: Disk, partition: Partition | None, verdict: Verdict) -> bool:
    """A whole MiB is no aim on DASD tracks, on tables with their own rules, or for a disk used whole."""
    if partition is None or disk.kind is DiskKind.DASD:
        return True
    return disk.table is not None and disk.table.label is TableLabel.DASD


def _start_summary(
    disk: Disk, partition: Partition | None, verdict: Verdict, worst: Check, sector_size: int
) -> str:
    grid = worst.grid
    past = format_size(worst.off_by)
    return (
        f"{where(disk, partition)} starts at {spot(verdict.start, sector_size)},"
        f" {past} past a boundary of {format_size(grid.size)} ({asked_by(grid)})"
    )


def _not_judged(
    disk: Disk, partition: Partition | None, verdict: Verdict, worst: Check, sector_size: int
) -> Finding:
    return Finding(
        Code.NOT_JUDGED, Severity.INFO,
        f"{_start_summary(disk, partition, verdict, worst, sector_size)}, which does not matter: {verdict.why}",
        disk=disk.name, partition=verdict.partition, start=verdict.start, sector_size=sector_size,
        grid=worst.grid, off_by=worst.off_by, next=f"aligntool explain {Code.NOT_JUDGED}",
    )  # fmt: skip


def _evidence(partition: Partition | None, verdict: Verdict, worst: Check) -> Iterator[str]:
    for check in verdict.checks:
        if not check.on and check is not worst:
            grid = check.grid
            yield f"also {format_size(check.off_by)} off {grid.kind} {format_size(grid.size)} ({grid.source})"
    if partition is None:
        return
    if (partition.kernel_alignment_offset or 0) > 0:
        yield f"the kernel agrees: the partition's alignment_offset is {partition.kernel_alignment_offset}"
    for layer in _data_on_the_grid(partition, worst.grid, _FILES | _CONTAINERS):
        yield f"the data of {layer_name(layer)} inside begin on the boundary all the same"


_FILES = frozenset({"vfat", "exfat"})
_CONTAINERS = frozenset({"crypto_LUKS", "LVM2_member", "linux_raid_member"})


def _data_on_the_grid(partition: Partition | None, grid: Grid, kinds: frozenset[str]) -> tuple[Layer, ...]:
    """Layers that make up for the partition's start. SD cards leave the factory with the partition off and the
    clusters on the boundary (SD Part 2, File System); cryptsetup and pvcreate correct what the kernel tells them.
    """
    layers = partition.content if partition else ()
    return tuple(
        layer
        for layer in layers
        if layer.kind in kinds and layer.data_start is not None and grid.off_by(layer.data_start) == 0
    )
