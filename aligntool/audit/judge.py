"""Audit an inventory: judge every start against the grids of its disk, and collect all findings in a
Report.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from aligntool.audit import drives, report, wording
from aligntool.audit.absent_arrays import absent_array_findings
from aligntool.audit.array_boot import array_number_findings, late_start_findings, system_findings
from aligntool.audit.arrays import array_findings, members_of, whole_member_findings, with_members
from aligntool.audit.grids import Sized, grids_of, physical_sector, shifted_arrays
from aligntool.audit.inactive_arrays import inactive_array_findings
from aligntool.audit.layers import data_starts, layer_findings
from aligntool.audit.report import Answer, Code, Finding, Grid, GridKind, Judged, Severity, Verdict
from aligntool.audit.tables import array_above, gpt_is_lost, table_findings
from aligntool.contents.catalogue import kind_named
from aligntool.contents.ldm import LDM
from aligntool.contents.md import MD
from aligntool.formats.parked import parked_numbers
from aligntool.formats.part_types import EFI_SYSTEM
from aligntool.inventory import Disk, DiskKind, Inventory, KnownGeometry, Layer, Partition, Role, TableLabel
from aligntool.units import KIB, MIB, Extent, format_size

Known = Mapping[str, Sequence[KnownGeometry]]
"""The rows of the drive database for each disk, by the disk's name."""

MOST_FINDINGS_A_PARTITION_TABLE = 2000
PARKED = "parked by a move in flight"
LOST = "both copies of the GPT are damaged, and Linux reads none of its entries"


def audit(inventory: Inventory, known: Known, options: report.AuditOptions | None = None) -> report.Report:
    """Return the report on every disk. `known`: the rows of the drive database; a disk may have none."""
    options = options or report.AuditOptions()
    reported = len(inventory.disks)
    everything = with_members(replace(inventory, disks=(*inventory.disks, *inventory.below)))
    inventory = replace(everything, disks=everything.disks[:reported])
    sectors = _settle_sectors(everything, known)
    shifts = shifted_arrays(everything, sectors)
    by_name = {disk.name: disk for disk in everything.disks}
    judged: list[Judged] = []
    findings: list[Finding] = []
    for disk in everything.disks:
        rows = known.get(disk.name, ())
        grids = grids_of(disk, rows, options, sectors, shifts)
        above = array_above(disk, by_name)
        judged_disk = Judged(
            disk, grids, tuple(drives.unknown_if_no_answer(disk, _verdicts(disk, grids, above)))
        )
        judged.append(judged_disk)
        if len(judged) <= reported:
            findings += _findings(judged_disk, rows, above)
    findings += drives.machine_findings(inventory)
    members = members_of(judged)
    judged = judged[:reported]
    for judged_disk in judged:
        findings += array_findings(judged_disk.disk, members, inventory.system)
        findings += whole_member_findings(judged_disk.disk)
    findings += inactive_array_findings(tuple(judged))
    for find in (system_findings, array_number_findings, late_start_findings, absent_array_findings):
        findings += find(inventory)
    # Stable: within a severity, in the order of the disks.
    findings.sort(key=lambda finding: finding.severity.rank)
    return report.Report(inventory, tuple(judged), tuple(findings))


def _settle_sectors(inventory: Inventory, known: Known) -> dict[str, Sized]:
    """Return the physical sector of every disk, by name, members before the devices above. A loop of slaves
    is cut.
    """
    by_name = {disk.name: disk for disk in inventory.disks}
    by_partition = {part.node: disk.name for disk in inventory.disks for part in disk.partitions if part.node}
    settled: dict[str, Sized] = {}

    def settle(disk: Disk, above: frozenset[str]) -> Sized:
        if disk.name not in settled:
            names = (by_partition.get(slave, slave) for slave in disk.slaves)
            members = [
                by_name[name] for name in names if name in by_name and name not in above and name != disk.name
            ]
            below = [settle(member, above | {disk.name}) for member in members]
            settled[disk.name] = physical_sector(disk, known.get(disk.name, ()), below)
        return settled[disk.name]

    for disk in inventory.disks:
        settle(disk, frozenset())
    return settled


def _verdicts(disk: Disk, grids: Sequence[Grid], above: str) -> Iterator[Verdict]:
    """Yield the verdicts. `above`: why the table is not the disk's own (see `array_above`), "" if it is."""
    image = hybrid_image(disk)
    parked = parked_numbers(disk)
    # Linux does not read this GPT; its entries are those that could still be read.
    lost = not above and disk.table is not None and disk.table.label is TableLabel.GPT and gpt_is_lost(disk)
    for partition in disk.partitions:
        if partition.role is Role.EXTENDED:
            continue
        if partition.number in parked or lost:
            why = PARKED if partition.number in parked else LOST
            yield Verdict(disk.name, partition.number, partition.extent.start, Answer.UNKNOWN, (), why=why)
            continue
        exemption = start_exemption(partition, image) or aligned_data_exemption(partition, grids)
        doubt = data_start_doubt(partition) or sector_size_doubt(disk)
        verdict = judge_start(
            disk, partition.number, partition.extent.start, grids, exemption=exemption, doubt=doubt
        )
        if above:
            verdict = replace(verdict, answer=Answer.UNKNOWN, matters=False, why=above)
        elif (unread := unread_reason(disk, partition)) and not exemption:
            verdict = replace(verdict, answer=Answer.UNKNOWN, why=unread)
        yield verdict
    gap = drives.whole_disk_gap(disk)
    if gap:
        checks = judge_start(disk, None, 0, grids).checks
        yield Verdict(disk.name, None, 0, Answer.UNKNOWN, checks, why=f"{gap.what}: {gap.why}")
    elif not disk.partitions and (disk.content or disk.mounted_at or disk.content_hint):
        yield judge_start(disk, None, 0, grids)


def _findings(judged: Judged, rows: Sequence[KnownGeometry], above: str) -> Iterator[Finding]:
    disk = judged.disk
    grids = judged.grids
    sector_size = disk.sector_size
    yield from table_findings(disk, above, has_image=hybrid_image(disk) is not None)
    parked = parked_numbers(disk)
    parts: dict[int | None, Partition] = {partition.number: partition for partition in disk.partitions}
    # The data of a whole-disk member are judged like those of a member partition, whether they were read or
    # not.
    if not above or not disk.partitions:
        reported = drives.worst_gap(disk)  # has one finding for the disk, not one for each partition
        for verdict in judged.verdicts[:MOST_FINDINGS_A_PARTITION_TABLE]:
            if (
                verdict.partition in parked
                or verdict.why == LOST
                or (reported and verdict.answer is Answer.UNKNOWN)
            ):
                continue  # AT317 and AT319 cover all of them
            partition = parts.get(verdict.partition)
            yield from start_findings(disk, partition, verdict, sector_size)
            if verdict.matters and (end := end_finding(disk, partition, grids[0], sector_size)):
                yield end
    if not above or (not disk.partitions and any(layer.kind == MD.name for layer in disk.content)):
        yield from layer_findings(judged, sector_size)
    yield from drives.device_findings(disk, grids, rows)
    yield from drives.drive_findings(disk, rows)


# The probable cause of an odd start sector.
#
# Fingerprints, and where each was seen: 63 DOS to Windows XP (first track of a 255/63 geometry);
# 34 first usable sector of a GPT (CasaOS#1933, ceph-csi); 40 macOS and FreeBSD; 1953 one decimal megabyte
# (mintstick#139); 2049 off by one (calamares#1008); multiples of 65535 the bogus optimal size of USB bridges
# (util-linux#1221); 32760 the same from the kernel's 16773120; 1 directly after the MBR (qubes-issues#5151).

CYLINDER = 255 * 63
# twice as many as Linux shows of one disk; a hostile table has thousands, each with thousands
MOST_NEIGHBOURS = 512

_CAUSE_BY_SECTOR = {
    1: "placed directly after the MBR, without alignment (old cloud-init and VM images)",
    34: "the first usable sector of a GPT: the tool did not align the start",
    40: "the first 4 KiB boundary after a GPT, where macOS and FreeBSD begin: right for 4 KiB sectors, not"
    " for pages",
    63: "the second track of the DOS geometry (63 sectors each): DOS to Windows XP, or a clone of such a"
    " disk",
    1953: "one decimal megabyte (1,000,000 bytes) instead of 1 MiB",
    2049: "one sector past the 1 MiB boundary: an off-by-one in the partitioning tool",
}


# the table that these starts belong to
_TABLE_OF_CAUSE = {1: TableLabel.DOS, 34: TableLabel.GPT, 40: TableLabel.GPT, 63: TableLabel.DOS}


def likely_cause(
    partition: Partition,
    sector_size: int,
    partitions: Sequence[Partition],
    grid: Grid,
    label: TableLabel = TableLabel.UNKNOWN,
) -> str | None:
    """Return the probable cause of an odd start as a sentence, or None if unknown. `label`: of the table."""
    lba, rest = divmod(partition.extent.start, sector_size)
    if rest:
        return None
    if lba in _CAUSE_BY_SECTOR:
        its = _TABLE_OF_CAUSE.get(lba, label)
        known = label not in (its, TableLabel.UNKNOWN)
        before = f", as if the table had been {wording.label_words(its)} before" if known else ""
        return f"{_CAUSE_BY_SECTOR[lba]}{before}"
    for step, size, who in (
        (65535, 33553920, "USB bridges report"),
        (32760, 16773120, "some kernels derive for SAS"),
    ):
        if lba and lba % step == 0:
            return f"{lba // step} × {step} sectors: the implausible optimal I/O size {size} that {who}"
    return _neighbour(partition, partitions, grid) or _geometry(lba, partition)


def _neighbour(partition: Partition, partitions: Sequence[Partition], grid: Grid) -> str | None:
    start = partition.extent.start
    for other in partitions[:MOST_NEIGHBOURS]:
        if other.role is Role.EXTENDED or other.number == partition.number or other.extent.end != start:
            continue
        if grid.off_by(other.extent.start) == grid.off_by(start):
            return f"it begins where partition {other.number} ends, and is off by the same amount"
        size = format_size(grid.size)
        return (
            f"it begins where partition {other.number} ends; the size of that partition is not a multiple of"
            f" {size}"
        )
    return None


def _geometry(lba: int, partition: Partition) -> str | None:
    if lba % CYLINDER == 0:
        return "a cylinder boundary of the DOS geometry (255 heads, 63 sectors)"
    if partition.role is Role.LOGICAL and (lba - 63) % CYLINDER == 0:
        return "63 sectors after its extended boot record, on a cylinder boundary of the DOS geometry"
    return (
        "one sector past a 1 MiB boundary: an off-by-one in the partitioning tool"
        if lba % 2048 == 1
        else None
    )


# Starts that do not matter, and starts that the table alone does not determine. Each rule turns an error into
# a note or into unknown, so each needs evidence: a real disk that is in order but looks misaligned.

_PREP = "a PReP boot partition: firmware reads it once at boot"
_SIFIVE = "a boot partition of a SiFive or StarFive board: U-Boot may read it from a fixed sector"
_UNWRITTEN_TYPES = {
    "21686148-6449-6E6F-744E-656564454649": "a BIOS boot partition: GRUB reads it once at boot and knows its"
    " sector",
    "83BD6B9D-7F41-11DC-BE0B-001560B84F0F": "a FreeBSD boot partition: its boot code is read once at boot",
    "9E1A2D38-C612-4316-AA26-8B49521E5A8B": _PREP,
    "0x41": _PREP,
    "5B193300-FC78-40CD-8002-E86C45580B47": _SIFIVE,
    "2E54B353-1271-4842-806F-E436D6AF6985": _SIFIVE,
    "0x53": "a boot partition of i.MX23 or i.MX28: its control block contains the sector of the program",
    "0xee": "the protective entry of a GPT, not a partition",
    "E3C9E316-0B5C-4DB8-817D-F92DF00215AE": "a Microsoft reserved partition: it holds no file system",
    "5808C8AA-7E8F-42E0-85D2-E1E90434CFB3": "the database of a Windows dynamic disk: written when volumes"
    " change",
    "6A945A3B-1DD2-11B2-99A6-080020736631": "a reserved partition of Solaris and ZFS: it holds no data",
}
_EMPTY = ("0x00", "0x0", "")
_VOLUME_DESCRIPTORS = 32 * KIB  # their offset in an image, ECMA-119 6.2.1
_LDM = "0x42"
_SMALLEST_VOLUME = MIB  # Windows creates none smaller; an entry of 1985 sectors only reserves the gap


def start_exemption(partition: Partition, image: Extent | None) -> str:
    """Return why the start of this partition does not matter, or "" if it does. `image`: see
    `hybrid_image`.
    """
    if partition.role is Role.MAP:
        return "the partition table's own entry"
    if partition.extent.start == 0 and partition.type_code in _EMPTY:
        return "an empty entry that covers the whole medium, as in hybrid ISO images"
    if image and image.contains(partition.extent):
        return "a part of the ISO image on this medium: nothing writes to it"
    if partition.type_code == _LDM and partition.extent.length < _SMALLEST_VOLUME:
        return "an entry that fills the gap before a Windows dynamic disk's first volume"
    if partition.extent.length < report.REQUEST:
        return "a placeholder: too small for one block of 4 KiB"
    if holds_data(partition):
        return ""  # the type alone is not evidence: vendors ship NTFS and FAT in partitions of these types
    return _UNWRITTEN_TYPES.get(partition.type_code, _UNWRITTEN_TYPES.get(partition.type_code.upper(), ""))


def holds_data(partition: Partition) -> bool:
    """Return whether a file system or another layer was recognised, read here or reported by udev."""
    kinds = {layer.kind for layer in partition.content}
    if not partition.content_read and partition.content_hint:
        kinds.add(partition.content_hint)
    return bool(kinds - {LDM.name})  # the LDM database is expected in a partition of its type


def data_start_doubt(partition: Partition) -> str:
    """Return why the data of this partition may not begin at the start in its entry, or "" if they do."""
    if partition.type_code == _LDM:
        return (
            "the starts of its volumes are in the LDM database of this Windows dynamic disk; ldmtool shows"
            " them"
        )
    return ""


def unread_reason(disk: Disk, partition: Partition) -> str:
    """Return why the content of the partition was not looked at, though the disk can be read, or ""."""
    gap = drives.worst_gap(disk)
    return f"{gap.what}: {gap.why}" if gap and disk.table_read and not partition.content_read else ""


def sector_size_doubt(disk: Disk) -> str:
    """Return why the computed starts may be wrong, or "" if the sector size of the table is known."""
    if disk.table is None or not disk.table.sector_size_assumed:
        return ""
    return "the table may use sectors of 512 or of 4096 bytes, and nothing on the disk shows which"


def hybrid_image(disk: Disk) -> Extent | None:
    """Return the extent of the ISO image that was written to the medium with its table (isohybrid, xorriso),
    or None.

    An older ISO 9660 below a newer table does not count: no partition begins where such an image does.
    """
    seen = next((layer for layer in disk.content if kind_named(layer.kind).is_disc_image), None)
    whole = seen is not None or kind_named(disk.content_hint or "").is_disc_image
    covering = [part for part in disk.partitions if _covers_the_image(part, whole=whole)]
    if not covering or (not whole and any(_contradicts_an_image(part) for part in disk.partitions)):
        return None
    end = max(*(part.extent.end for part in covering), seen.extent.end if seen else 0)
    for part in sorted(disk.partitions, key=lambda part: part.extent.start):
        small = part.type_code in EFI_SYSTEM or part.extent.length < MIB
        if part.extent.start == end and small:  # as placed by `xorriso -append_partition`
            end = part.extent.end
    return Extent(0, end)


def _contradicts_an_image(partition: Partition) -> bool:
    """Return whether the content of the partition contradicts an ISO image of which only the entry was
    seen.
    """
    kinds = {layer.kind for layer in partition.content if not kind_named(layer.kind).is_disc_image}
    return bool(kinds) and partition.extent.start > 0 and partition.type_code not in EFI_SYSTEM


def _covers_the_image(partition: Partition, *, whole: bool) -> bool:
    """Return whether the partition starts at the first sector, or where xorriso's second volume descriptor
    makes the image mountable as a partition. `whole`: an ISO 9660 was recognised on the whole medium.
    """
    if partition.extent.start == 0:
        return whole or partition.type_code == "0x00"
    if partition.extent.start != _VOLUME_DESCRIPTORS:
        return False
    if partition.content:
        return any(kind_named(layer.kind).is_disc_image for layer in partition.content)
    return kind_named(partition.content_hint or "").is_disc_image or (partition.name or "").startswith(
        "ISO9660"
    )


# Verdicts and findings on the start and end of each partition.
#
# A start has one finding, for the worst grid. The other grids that it is off are in the verdict's checks.

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
    disk: Disk, number: int | None, start: int, grids: Sequence[Grid], *, exemption: str = "", doubt: str = ""
) -> Verdict:
    """Return the verdict on a start: it is off if it is off a grid whose severity is error or warning.
    `exemption`: why that does not matter; `doubt`: why the start may be wrong.
    """
    checks = tuple(report.Check(grid, grid.off_by(start)) for grid in grids)
    if (disk.limits.alignment_offset or 0) < 0 and not grids[0].phase:  # unknown from the members, too
        why = (
            "the kernel reports alignment_offset −1: the members of this stacked device contradict each other"
        )
        return Verdict(disk.name, number, start, Answer.UNKNOWN, checks, why=why)
    off = any(not check.on and check.grid.severity is not Severity.INFO for check in checks)
    if off and doubt and not exemption:
        return Verdict(disk.name, number, start, Answer.UNKNOWN, checks, why=doubt)
    return Verdict(
        disk.name,
        number,
        start,
        Answer.OFF if off else Answer.ON,
        checks,
        matters=not exemption,
        why=exemption,
    )


def start_findings(
    disk: Disk, partition: Partition | None, verdict: Verdict, sector_size: int
) -> Iterator[Finding]:
    finding = partial(
        Finding, disk=disk.name, partition=verdict.partition, start=verdict.start, sector_size=sector_size
    )
    if verdict.answer is Answer.UNKNOWN:
        text = f"{wording.subject_words(disk, partition)}: alignment cannot be judged: {verdict.why}"
        look = (
            wording.next_command(disk, "audit", "--sector-size 4096")
            if sector_size_doubt(disk)
            else wording.next_look(disk)
        )
        yield finding(Code.UNKNOWN_ALIGNMENT, Severity.WARNING, text, next=look)
        return
    failed = [check for check in verdict.checks if not check.on]
    worst = min(failed, key=lambda check: check.grid.severity.rank, default=None)
    if worst is None:
        return
    grid = worst.grid
    severity = worst.grid.severity
    finding = partial(finding, grid=grid, off_by=worst.off_by)
    boundary = (
        f"{format_size(worst.off_by)} past a boundary of {format_size(grid.size)}"
        f" ({wording.grid_words(grid)})"
    )
    subject = wording.subject_words(disk, partition)
    start = wording.offset_words(verdict.start, sector_size)
    text = f"{subject} starts at {start}, {boundary}"
    if not verdict.matters:
        text = f"{text}, which does not matter: {verdict.why}"
        explain = f"aligntool explain {Code.NOT_JUDGED}"
        if severity is not Severity.INFO:
            yield finding(Code.NOT_JUDGED, Severity.INFO, text, next=explain)
        return
    code = CODES[grid.kind]
    is_dasd = disk.kind is DiskKind.DASD or (disk.table and disk.table.label is TableLabel.DASD)
    if code is Code.OFF_GRAIN and (partition is None or is_dasd):
        return  # a whole MiB is not the goal for a disk used whole, nor on DASD, where the goal is a track
    label = disk.table.label if disk.table else TableLabel.UNKNOWN
    compensating = _clusters_on_the_grid(partition, grid)
    if compensating and severity is Severity.ERROR:
        severity = Severity.WARNING
    is_costly = severity is not Severity.INFO and not compensating
    yield finding(
        code,
        severity,
        text,
        cause=likely_cause(partition, sector_size, disk.partitions, grid, label) if partition else None,
        cost=report.cost_at(worst.off_by, grid.size) if is_costly else None,
        evidence=tuple(_evidence(partition, verdict, worst)),
        next=wording.next_realign(disk) if severity is not Severity.INFO else f"aligntool explain {code}",
    )


def end_finding(disk: Disk, partition: Partition | None, physical: Grid, sector_size: int) -> Finding | None:
    """Return a note on an end off the physical sector, or None; an error if a LUKS inside, or on the whole
    disk, does not open because of its end. The last sector of the disk is otherwise exempt.
    """
    size = disk.size or 0
    extent = partition.extent if partition else Extent(0, size - size % sector_size)
    past = physical.off_by(extent.end)
    subject = wording.subject_words(disk, partition)
    text = f"{subject} ends {format_size(past)} past a boundary of {format_size(physical.size)}"
    severity = Severity.INFO
    odd = _odd_luks(partition.content if partition else disk.content, extent.end)
    if odd:
        text = f"{subject}: {odd}"
        severity = Severity.ERROR
    elif partition is None or not past or (disk.size is not None and extent.end >= disk.size - physical.size):
        return None
    return Finding(
        Code.END_UNALIGNED,
        severity,
        text,
        disk=disk.name,
        partition=partition.number if partition else None,
        start=extent.start,
        sector_size=sector_size,
        grid=physical,
        off_by=past,
        next=f"aligntool explain {Code.END_UNALIGNED}",
    )


def _odd_luks(content: Sequence[Layer], end: int) -> str:
    """Return why a LUKS that extends to the end of its partition or disk does not open, or "" if it does:
    dm-crypt requires whole sectors of its own size (drivers/md/dm-crypt.c, crypt_ctr()).
    """
    for layer in content:
        unit = layer.data_unit or 1
        length = max(0, end - (layer.data_start or end))
        to_end = kind_named(layer.kind).fills_device and not layer.claims_size and not layer.has_tags
        if to_end and (rest := length % unit):
            name = wording.layer_name(layer)
            return (
                f"{name} does not open: its data are {rest} bytes longer than a multiple of its sectors of"
                f" {unit} bytes"
            )
    return ""


def _evidence(partition: Partition | None, verdict: Verdict, worst: report.Check) -> Iterator[str]:
    for check in verdict.checks:
        # what is off the boundaries of 4 KiB is off those of 1 MiB, too
        is_implied = not (worst.grid.off_by(check.grid.phase) or check.grid.size % worst.grid.size)
        if not check.on and not is_implied:
            grid = check.grid
            yield (
                f"also {format_size(check.off_by)} off the {grid.kind} of {format_size(grid.size)}"
                f" ({grid.source})"
            )
    if partition is None:
        return
    if (partition.kernel_alignment_offset or 0) > 0:
        yield f"the kernel agrees: the partition's alignment_offset is {partition.kernel_alignment_offset}"
    for layer in _data_on_the_grid(partition, worst.grid):
        yield f"the data of {wording.layer_name(layer)} inside begin on the boundary nevertheless"


def aligned_data_exemption(partition: Partition, grids: Sequence[Grid]) -> str:
    """Return why a start off the grids does not matter: all data inside begin on them. Return "" if they do
    not.

    The superblock and the bitmap of an array are written as often as its data, so they must be on physical
    sectors.
    """
    required = [grid for grid in grids if grid.severity is not Severity.INFO]
    places = data_starts(partition)
    missed = [grid for grid in required if grid.off_by(partition.extent.start)]
    if not places or not missed or any(grid.off_by(place) for grid in required for place in places):
        return ""
    if kind_named(partition.content[0].kind).updates_superblock and any(
        grid.kind is GridKind.PHYSICAL for grid in missed
    ):
        return ""
    return f"the data of {wording.layer_name(partition.content[0])} inside begin on the boundary"


def _clusters_on_the_grid(partition: Partition | None, grid: Grid) -> tuple[Layer, ...]:
    """Return the file systems whose clusters are on the grid although the partition's start is not: SD cards
    are formatted so (SD Part 2, File System).
    """
    return tuple(layer for layer in _data_on_the_grid(partition, grid) if kind_named(layer.kind).has_clusters)


def _data_on_the_grid(partition: Partition | None, grid: Grid) -> tuple[Layer, ...]:
    """Return the layers whose data are on the grid although the partition's start is not: cryptsetup and
    pvcreate compensate for the offset that the kernel reports, and some file systems have clusters on the
    boundary.
    """
    named = ((layer, kind_named(layer.kind)) for layer in (partition.content if partition else ()))
    layers = [layer for layer, kind in named if kind.has_clusters or kind.is_container]
    return tuple(
        layer for layer in layers if layer.data_start is not None and grid.off_by(layer.data_start) == 0
    )
