"""Judge drives and their links: formats, firmware, wear, PCIe, unseen disks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from aligntool import inventory as facts
from aligntool.audit.grids import Grade, grade_optimal_io, minimum_io_doubt
from aligntool.audit.report import (
    REQUEST,
    Answer,
    Code,
    Finding,
    Grid,
    GridKind,
    Report,
    Severity,
    Verdict,
    predict,
)
from aligntool.audit.wording import change_by_hand, label_words
from aligntool.commands import ByHand, command
from aligntool.inventory import Disk, DiskKind, Gap, Inventory, KnownGeometry, Source, Unseen
from aligntool.units import format_about, format_rate, format_size

# The sizes that a device reports: hidden, assumed, disputed or implausible.


def device_findings(disk: Disk, grids: Sequence[Grid], known: Sequence[KnownGeometry]) -> Iterator[Finding]:
    yield from _alignment_offset_findings(disk, grids[0])
    yield from _physical_sector_findings(disk, grids[0])
    yield from _ignored_size_findings(disk, known)
    yield from _table_sector_findings(disk)
    yield from _large_unit_findings(disk, grids)
    if disk.nvme:
        yield from _lba_format_findings(disk, disk.nvme)


def disk_finding(
    disk: Disk, code: Code, severity: Severity, sentence: str, *evidence: str, next_: str = ""
) -> Finding:
    """Return a finding on the disk as a whole. `next_` is the next command [default: aligntool explain
    CODE].
    """
    hint = next_ or f"aligntool explain {code}"
    return Finding(code, severity, f"{disk.name}: {sentence}", disk=disk.name, evidence=evidence, next=hint)


def disk_note(disk: Disk, code: Code, sentence: str, *evidence: str, next_: str = "") -> Finding:
    return disk_finding(disk, code, Severity.INFO, sentence, *evidence, next_=next_)


def _alignment_offset_findings(disk: Disk, physical: Grid) -> Iterator[Finding]:
    offset = disk.limits.alignment_offset or 0
    if physical.phase and offset % physical.size != physical.phase:
        yield disk_note(
            disk,
            Code.SHIFTED_GRID,
            f"its physical sectors of {format_size(physical.size)} start {format_size(physical.phase)} past"
            " byte 0, according to the data offsets of its members; the kernel reports an alignment_offset"
            f" of {offset}",
        )
    elif offset < 0:
        members = ", ".join(disk.slaves) or "unknown"
        yield disk_finding(
            disk, Code.STACK_CONFLICT, Severity.WARNING, f"alignment_offset is −1; members: {members}"
        )
    elif offset > 0:
        wide = max(disk.limits.physical_block_size or 512, disk.limits.minimum_io_size or 0)
        units = "physical sectors" if wide == disk.limits.physical_block_size else "minimum I/O units"
        text = (
            f"its {units} of {format_size(wide)} start {format_size(offset)} past byte 0 (alignment_offset)"
        )
        yield disk_note(disk, Code.SHIFTED_GRID, text)


def _physical_sector_findings(disk: Disk, physical: Grid) -> Iterator[Finding]:
    """Yield a note if the physical sector size is not the kernel's value, or if the drive contradicts the
    kernel.
    """
    reported = disk.limits.physical_block_size
    report = f"reports {format_size(reported)}" if reported else "reports nothing"
    size = format_size(physical.size)
    if physical.source is Source.KNOWN and physical.size != reported:
        yield disk_note(disk, Code.SECTOR_SIZE_HIDDEN, f"{report}, but {physical.by} has {size} sectors")
    elif physical.source is Source.ASSUMED and (
        disk.partitions or disk.content or disk.kind is DiskKind.IMAGE
    ):
        text = f"{report}; {size} sectors are assumed: {physical.by}{_logical_sector_clause(disk)}"
        yield disk_note(disk, Code.SECTOR_SIZE_ASSUMED, text)
    if disk.ata and disk.ata.physical_sector_size and reported and disk.ata.physical_sector_size > reported:
        drive = format_size(disk.ata.physical_sector_size)
        text = f"the drive's IDENTIFY reports physical sectors of {drive}, the kernel {format_size(reported)}"
        yield disk_note(disk, Code.SECTOR_SIZE_DISPUTED, text)


def _logical_sector_clause(disk: Disk) -> str:
    """Return a clause on the logical sector size that the starts are computed with, or "" if the device
    reports it.
    """
    if disk.limits.logical_block_size is not None:
        return ""
    size = format_size(disk.sector_size)
    table = disk.table
    if table and not table.sector_size_assumed:
        return f"; logical sectors of {size}, as its {label_words(table.label)} table shows"
    return (
        f"; logical sectors of {size} are"
        f" assumed{', too: set another size with --sector-size' if table else ''}"
    )


def _ignored_size_findings(disk: Disk, known: Sequence[KnownGeometry]) -> Iterator[Finding]:
    """Yield a note for each reported size that is not used: implausible, or distrusted by the database."""
    grade, reason = grade_optimal_io(disk)
    is_bogus = grade is Grade.BOGUS
    limits = (
        ("optimal_io_size", Code.BOGUS_OPTIMAL_IO, reason if is_bogus else ""),
        ("minimum_io_size", Code.BOGUS_MINIMUM_IO, minimum_io_doubt(disk)),
    )
    for limit, code, doubt in limits if is_bogus else limits[::-1]:
        size: int = getattr(disk.limits, limit) or 0
        row = next((row for row in known if limit in row.distrust), None)
        why = doubt or (f"{row.row} reports it but does not need it" if row and size else "")
        if why:
            yield disk_note(disk, code, f"{limit} {size} ({format_size(size)}) is ignored: {why}")


def _table_sector_findings(disk: Disk) -> Iterator[Finding]:
    table = disk.table if disk.kind is DiskKind.IMAGE and disk.limits.logical_block_size is None else None
    if table and table.sector_size != 512:
        text = f"its {label_words(table.label)} table is written in sectors of {table.sector_size} bytes"
        attach = change_by_hand(disk, ByHand.ATTACHING, "losetup")
        yield disk_note(
            disk, Code.TABLE_TELLS_SECTOR_SIZE, f"{text}; to attach it with such sectors: {attach}"
        )


def _large_unit_findings(disk: Disk, grids: Sequence[Grid]) -> Iterator[Finding]:
    large = [
        grid for grid in grids if grid.kind in (GridKind.UNIT, GridKind.MINIMUM_IO) and grid.size > REQUEST
    ]
    unit = max(large, key=lambda grid: grid.size, default=None)
    if (
        unit is None
        or disk.kind not in (DiskKind.NVME, DiskKind.ATA, DiskKind.SCSI)
        or disk.rotational is True
    ):
        return
    factor = predict(unit.size).write_amplification
    text = f"works in units of {format_size(unit.size)} ({unit.source}: {unit.by}); a 4 KiB write costs"
    found = disk_note(disk, Code.LARGE_UNIT, f"{text} {factor:g} times its size even when aligned")
    yield replace(found, grid=unit, cost=predict(unit.size))


def _lba_format_findings(disk: Disk, nvme: facts.NvmeFacts) -> Iterator[Finding]:
    current = next((form for form in nvme.formats if form.index == nvme.format_in_use), None)
    plain = [form for form in nvme.formats if form.metadata_size == 0 and form.data_size >= 512]
    best = min(plain, key=lambda form: (form.relative_performance, -form.data_size), default=None)
    if current and best and best.relative_performance < current.relative_performance:
        yield disk_note(
            disk,
            Code.BETTER_LBA_FORMAT,
            f"uses LBA format {current.index} ({current.data_size} bytes, relative performance"
            f" {current.relative_performance}); format {best.index} ({best.data_size} bytes) is rated"
            f" {best.relative_performance}, which is better",
        )


# Disks that could not be judged, in whole or in part. An audit must never omit them: that would look like
# success.

_GAP_FINDINGS = {
    Gap.PART: (Code.NOT_SEEN, Severity.INFO),
    Gap.EMPTY: (Code.NOT_SEEN, Severity.INFO),
    Gap.DISK: (Code.DISK_NOT_JUDGED, Severity.WARNING),
    Gap.NO_ANSWER: (Code.NO_ANSWER, Severity.ERROR),
}
_DISK_GAPS = (Gap.DISK, Gap.NO_ANSWER)


def worst_gap(disk: Disk) -> Unseen | None:
    """Return the gap that prevents a verdict on the disk, the worst of several, or None if it was judged."""
    found = [unseen for unseen in disk.unseen if unseen.gap in _DISK_GAPS]
    return max(found, key=lambda unseen: _DISK_GAPS.index(unseen.gap), default=None)


def targets_not_judged(report: Report) -> tuple[Unseen, ...]:
    """Return the targets and disks that were not judged; `what` is their name."""
    disks = tuple(
        Unseen(disk.name, f"{unseen.what}: {unseen.why}", unseen.hint, unseen.gap)
        for disk in report.inventory.disks
        for unseen in disk.unseen
        if unseen.gap in _DISK_GAPS
    )
    return report.inventory.unseen + disks


def is_nothing_judged(report: Report) -> bool:
    """Return whether there is something to judge, and all of it is unknown."""
    judged = report.count_answers(Answer.ON) or report.count_answers(Answer.OFF)
    return not judged and bool(report.count_answers(Answer.UNKNOWN) or targets_not_judged(report))


def unknown_if_no_answer(disk: Disk, verdicts: Iterator[Verdict]) -> Iterator[Verdict]:
    """Yield the verdicts on a disk, all of them changed to unknown if it did not answer."""
    gap = worst_gap(disk)
    for verdict in verdicts:
        if gap and gap.gap is Gap.NO_ANSWER:
            verdict = replace(verdict, answer=Answer.UNKNOWN, matters=True, why=f"{gap.what}: {gap.why}")
        yield verdict


def whole_disk_gap(disk: Disk) -> Unseen | None:
    """Return the gap if the disk itself needs a verdict, "unknown", besides those on its partitions; else
    None.
    """
    gap = worst_gap(disk)
    if gap is None or (disk.partitions and disk.size is not None and gap.what not in ("size", "partitions")):
        return None
    return gap


def unseen_findings(unseen: tuple[Unseen, ...], disk: Disk | None = None) -> Iterator[Finding]:
    """Yield one finding for each gap of a disk, or of the machine if `disk` is None."""
    for gap in unseen:
        code, severity = _GAP_FINDINGS[gap.gap]
        verb = "unknown" if gap.what in ("size", "partitions") else "not seen"
        said = gap.is_named or (disk is not None and gap.gap is Gap.NO_ANSWER)
        text = gap.why if said else f"{gap.what} {verb}: {gap.why}"
        if disk:
            yield disk_finding(disk, code, severity, text, next_=gap.hint)
        else:
            yield Finding(code, severity, text, next=gap.hint)


# Drives and their PCIe links: what slows them down, and what could not be read.

MAP_SHARE = 1024
"""A mapping table takes 4 bytes for each 4 KiB, so capacity / 1024 (the HMB article's "about a
thousandth").
"""


def drive_findings(disk: Disk, known: Sequence[KnownGeometry]) -> Iterator[Finding]:
    for path in disk.links:
        yield from _link_findings(disk, path)
    if disk.nvme:
        yield from _memory_buffer_findings(disk, disk.nvme)
    if disk.queue_depth == 1 and disk.kind is DiskKind.ATA:
        yield disk_note(disk, Code.NO_QUEUE, "offers a queue depth of 1: NCQ is off or missing")
    for row in known:
        if row.note and row.source is Source.KNOWN:
            yield disk_note(disk, Code.DRIVE_NOTE, f"{row.row}: {row.note}", next_=command("drives", row.row))
        if row.defect:
            fixed = f"; firmware {row.fixed_in} corrects it" if row.fixed_in else ""
            text = f"its firmware {disk.firmware} has a known defect: {row.defect}{fixed}"
            yield disk_finding(disk, Code.FIRMWARE_DEFECT, Severity.WARNING, text, row.citation)
    yield from unseen_findings(disk.unseen, disk)


def machine_findings(inventory: Inventory) -> Iterator[Finding]:
    by_name = {disk.name: disk for disk in inventory.disks}
    for uplink in inventory.uplinks:
        yield from _uplink_findings(uplink, by_name)
    for adapter in inventory.adapters:
        name = f"{adapter.name or 'controller'} at {adapter.address}"
        if adapter.remapped_nvme:
            text = f"{name} hides {adapter.remapped_nvme} NVMe drive(s): the firmware is in RAID mode"
            yield _machine_finding(Code.REMAPPED_NVME, Severity.WARNING, text)
        if adapter.vmd:
            text = f"{name} is a VMD controller; its drives are in a separate PCI domain"
            yield _machine_finding(Code.BEHIND_VMD, Severity.INFO, text)
    yield from unseen_findings(inventory.unseen)


def _machine_finding(code: Code, severity: Severity, text: str) -> Finding:
    return Finding(code, severity, text, next=f"aligntool explain {code}")


def _link_findings(disk: Disk, path: Sequence[facts.LinkHop]) -> Iterator[Finding]:
    if not path:
        return
    drive = path[0]
    most = facts.link_maximum(drive, facts.port_above(path))
    can = f"{most.speed_gts or 0:g} GT/s x{most.width or 0}"
    if facts.runs_below(drive, most):
        yield _slow_link_finding(disk, drive, most, can)
    elif most.both_ends and (
        (drive.max_speed_gts or 0) > (most.speed_gts or 0) or (drive.max_width or 0) > (most.width or 0)
    ):  # the drive supports more than its link can ever run at
        capable = f"{drive.max_speed_gts or 0:g} GT/s x{drive.max_width or 0}"
        yield disk_note(disk, Code.SLOW_SLOT, f"it supports {capable}, but its slot only {can}")
    if disk.kind is DiskKind.NVME and any(hop.port is facts.Port.CHIPSET_ROOT for hop in path):
        yield disk_note(
            disk, Code.BEHIND_CHIPSET, "is attached to the chipset and shares its link to the processor"
        )


def _slow_link_finding(disk: Disk, drive: facts.LinkHop, most: facts.LinkMaximum, can: str) -> Finding:
    """Return a warning on a slow link, or a note if the port reports nothing: the port may be the limit."""
    rate, most_rate = (
        f", {format_rate(bandwidth)}" if bandwidth else "" for bandwidth in (drive.bandwidth, most.bandwidth)
    )
    runs = f"its link at {drive.address} runs at {drive.speed_gts or 0:g} GT/s x{drive.width or 0}{rate}"
    if most.both_ends:
        text = f"{runs}, but drive and port support {can}{most_rate}"
        return disk_finding(disk, Code.LINK_DEGRADED, Severity.WARNING, text)
    text = f"{runs}; the drive supports {can}{most_rate}, the port above it reports no maximum"
    return disk_note(disk, Code.LINK_DEGRADED, text)


def _uplink_findings(uplink: facts.Uplink, by_name: dict[str, Disk]) -> Iterator[Finding]:
    """Yield a warning if the members of a shared uplink can carry more than it. Only NVMe drives count: each
    has its own link of known bandwidth.
    """
    total = 0
    names = []
    for name in uplink.members:
        disk = by_name.get(name)
        link = disk.links[0][0].bandwidth if disk and disk.links and disk.kind is DiskKind.NVME else None
        if link:
            total += link
            names.append(name)
    if uplink.bandwidth is None or len(names) < 2 or total <= uplink.bandwidth:
        return
    shared = f"share {uplink.name} ({format_rate(uplink.bandwidth)}, {uplink.source})"
    text = f"{', '.join(names)} {shared}, but their own links carry {format_rate(total)} in total"
    yield _machine_finding(Code.SHARED_UPLINK, Severity.WARNING, text)


def _memory_buffer_findings(disk: Disk, nvme: facts.NvmeFacts) -> Iterator[Finding]:
    """Yield findings on the HMB. A drive that requests one has no DRAM of its own, or too little."""
    if not nvme.hmb_preferred:
        return
    granted = nvme.hmb_granted
    if granted is None and nvme.hmb_enabled is False:
        granted = 0
    if granted is not None and granted < nvme.hmb_preferred:
        least = f", at least {format_about(nvme.hmb_minimum)}" if nvme.hmb_minimum else ""
        given = format_about(granted) if granted else "nothing"
        text = (
            f"requests {format_about(nvme.hmb_preferred)} of host memory (HMB){least}; the host granted"
            f" {given}"
        )
        yield disk_note(disk, Code.HMB_SHORT, text)
    if disk.size:
        buffer = nvme.hmb_preferred if granted is None else granted
        word = "would map" if granted is None else "maps"
        covered = min(buffer * MAP_SHARE, disk.size)
        yield disk_note(
            disk,
            Code.HMB_COVERAGE,
            f"DRAM-less; a buffer of {format_about(buffer)} {word} at most {format_about(covered)} of its"
            f" {format_about(disk.size)}; the whole map takes {format_about(disk.size // MAP_SHARE)}",
        )
