"""Judge an inventory: every disk, partition and layer, into one Report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from aligntool.audit.array_boot import array_number_findings, late_start_findings, system_findings
from aligntool.audit.arrays import array_findings, members_of, whole_member_findings, with_members
from aligntool.audit.drives import device_findings, drive_findings, gap_of, lacks_verdict, machine_findings, with_doubt
from aligntool.audit.grids import Sized, grids_of, physical_sector, shifted_arrays
from aligntool.audit.layers import array_above, gpt_is_lost, layer_findings, table_findings
from aligntool.audit.report import Answer, Finding, Grid, Judged, Report, Verdict, Wishes
from aligntool.audit.starts import (
    end_finding,
    hybrid_image,
    judge_start,
    other_sectors,
    start_findings,
    untold,
    unwritten,
)
from aligntool.formats.parked import parked_numbers
from aligntool.inventory import Disk, Inventory, KnownGeometry, Partition, Role, TableLabel

Known = Mapping[str, Sequence[KnownGeometry]]
"""What the drive database has on each disk, by the disk's name."""

MOST_FINDINGS_A_PARTITION_TABLE = 2000
PARKED = "parked by a move in flight"
LOST = "both copies of the GPT are damaged, and Linux reads none of its entries"


def audit(inventory: Inventory, known: Known, wishes: Wishes | None = None) -> Report:
    """Judge every disk. `known` comes from the drive database; disks that it lacks are judged without."""
    wishes = wishes or Wishes()
    inventory = with_members(inventory)
    sectors = _settle_sectors(inventory, known)
    shifts = shifted_arrays(inventory, sectors)
    by_name = {disk.name: disk for disk in inventory.disks}
    judged: list[Judged] = []
    findings: list[Finding] = []
    for disk in inventory.disks:
        rows = known.get(disk.name, ())
        grids = grids_of(disk, rows, wishes, sectors, shifts)
        above = array_above(disk, by_name)
        one = Judged(disk, grids, tuple(with_doubt(disk, _verdicts(disk, grids, above))))
        judged.append(one)
        findings += _findings(one, rows, above)
    findings += machine_findings(inventory)
    members = members_of(judged)
    for one in judged:
        findings += array_findings(one.disk, members, inventory.system)
        findings += whole_member_findings(one.disk)
    for of_system in (system_findings, array_number_findings, late_start_findings):
        findings += of_system(inventory)
    # Stable: within a severity, in the order of the disks.
    findings.sort(key=lambda finding: finding.severity.rank)
    return Report(inventory, tuple(judged), tuple(findings))


def _settle_sectors(inventory: Inventory, known: Known) -> dict[str, Sized]:
    """Return the physical sector of every disk, members before the devices above them; a loop of slaves is cut."""
    by_name = {disk.name: disk for disk in inventory.disks}
    by_partition = {part.node: disk.name for disk in inventory.disks for part in disk.partitions if part.node}
    settled: dict[str, Sized] = {}

    def settle(disk: Disk, above: frozenset[str]) -> Sized:
        if disk.name not in settled:
            names = (by_partition.get(slave, slave) for slave in disk.slaves)
            members = [by_name[name] for name in names if name in by_name and name not in above and name != disk.name]
            below = [settle(member, above | {disk.name}) for member in members]
            settled[disk.name] = physical_sector(disk, known.get(disk.name, ()), below)
        return settled[disk.name]

    for disk in inventory.disks:
        settle(disk, frozenset())
    return settled


def _verdicts(disk: Disk, grids: Sequence[Grid], above: str) -> Iterator[Verdict]:
    """Yield the verdicts. `above`: why the table is not the disk's own (see `array_above`); empty when it is."""
    image, parked = hybrid_image(disk), parked_numbers(disk)
    # What is listed could still be read of a GPT that Linux does not read.
    lost = not above and disk.table is not None and disk.table.label is TableLabel.GPT and gpt_is_lost(disk)
    for partition in disk.partitions:
        if partition.role is Role.EXTENDED:
            continue
        if partition.number in parked or lost:
            why = PARKED if partition.number in parked else LOST
            yield Verdict(disk.name, partition.number, partition.extent.start, Answer.UNKNOWN, (), why=why)
            continue
        excuse, doubt = unwritten(partition, image), untold(partition) or other_sectors(disk)
        verdict = judge_start(disk, partition.number, partition.extent.start, grids, excuse=excuse, doubt=doubt)
        yield replace(verdict, answer=Answer.UNKNOWN, matters=False, why=above) if above else verdict
    if gap := lacks_verdict(disk):
        checks = judge_start(disk, None, 0, grids).checks
        yield Verdict(disk.name, None, 0, Answer.UNKNOWN, checks, why=f"{gap.what}: {gap.why}")
    elif not disk.partitions and (disk.content or disk.mounted_at or disk.content_hint):
        yield judge_start(disk, None, 0, grids)


def _findings(judged: Judged, rows: Sequence[KnownGeometry], above: str) -> Iterator[Finding]:
    disk, grids = judged.disk, judged.grids
    sector_size = disk.sector_size
    yield from table_findings(disk, above)
    parked = parked_numbers(disk)
    parts: dict[int | None, Partition] = {partition.number: partition for partition in disk.partitions}
    # The data of a member without a partition are judged like those of a member partition.
    if not above or (not disk.partitions and any(one.kind == "linux_raid_member" for one in disk.content)):
        told = gap_of(disk)  # one finding of its own, not one for each partition
        for verdict in judged.verdicts[:MOST_FINDINGS_A_PARTITION_TABLE]:
            if verdict.partition in parked or verdict.why == LOST or (told and verdict.answer is Answer.UNKNOWN):
                continue  # AT317 and AT319 are about all of them
            partition = parts.get(verdict.partition)
            yield from start_findings(disk, partition, verdict, sector_size)
            if partition and verdict.matters and (end := end_finding(disk, partition, grids[0], sector_size)):
                yield end
        yield from layer_findings(judged, sector_size)
    yield from device_findings(disk, grids, rows)
    yield from drive_findings(disk, rows)
