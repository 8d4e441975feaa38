"""Plan the formats of empty NVMe drives that become members of a new array, or get a new table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aligntool.audit.judge import audit
from aligntool.audit.report import AuditOptions, Judged
from aligntool.audit.wording import audit_command, contents_or_data, unread_between
from aligntool.change import LayoutGoal, TablePlan
from aligntool.commands import is_node
from aligntool.errors import Refusal, Refused, refuse
from aligntool.inventory import Disk, DiskKind, Inventory, KnownGeometry
from aligntool.layout.layout import plan_layout
from aligntool.raid.lba_formats import (
    LARGEST,
    Namespace,
    as_formatted,
    change_words,
    format_of,
    format_refusals,
    is_possible,
)
from aligntool.raid.members import Known
from aligntool.raid.refusals import refuse_unreadable
from aligntool.steps import FormatDrive, subject


@dataclass(frozen=True, slots=True)
class Formatting:
    """`drives`: as they are afterwards, which everything else is planned for."""

    drives: tuple[Judged, ...]
    steps: tuple[FormatDrive, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()


def plan_formats(
    drives: Sequence[Judged],
    inventory: Inventory,
    size: int | None,
    known: Known,
    namespaces: Mapping[str, Namespace],
    disks: Sequence[Disk],
    options: AuditOptions | None = None,
) -> Formatting:
    """Plan the formats of all drives with other logical blocks than `size`. None: no drive is formatted.
    `namespaces`: of each drive, by its name; `disks`: all of the machine; `options`: of the audit that judged
    the drives.
    """
    if size is None:
        return Formatting(tuple(drives))
    if not is_possible(size):
        text = f"logical blocks of {size} bytes are not supported"
        why = Refusal("invalid-option", "--lba-size", text, f"--lba-size {LARGEST}")
        return Formatting(tuple(drives), refusals=(why,))
    refusals: list[Refusal] = []
    steps: list[FormatDrive] = []
    notes: list[str] = []
    for disk in (judged.disk for judged in drives):
        if disk.limits.logical_block_size == size:
            notes.append(f"{disk.name} already has logical blocks of {size} bytes")
            continue
        namespace = namespaces.get(disk.name, Namespace())
        found = format_refusals(disk, disk.name, size, namespace, disks)
        if disk.kind is not DiskKind.NVME and is_node(disk.path):
            found = (replace(each, hint=f"omit --lba-size\n{each.hint}") for each in found)
        refusals += found
        refusals += _refuse_defects(disk, known.get(disk.name, ()))
        refusals += _refuse_unless_blank(disk)
        notes.append(f"{disk.name}: {change_words(disk, size)}")
        steps += _format_steps(disk, size, namespace)
    formatted = _judged_again(drives, inventory, size, known, options)
    return Formatting(formatted, tuple(steps), tuple(refusals), tuple(notes))


def plan_formatted_layout(formatting: Formatting, goal: LayoutGoal) -> TablePlan:
    """Return the plan of a new table on a single drive as it is after it was formatted. Raises Refused with
    every reason.
    """
    try:
        plan = plan_layout(formatting.drives[0], goal)
    except Refused as refused:
        found = {(reason.code, reason.subject) for reason in formatting.refusals}  # without the hint to wipe
        others = (reason for reason in refused.refusals if (reason.code, reason.subject) not in found)
        refuse((*formatting.refusals, *others))
        raise
    refuse(formatting.refusals)
    steps = (*formatting.steps, *plan.steps)
    return replace(plan, steps=steps, notes=(*formatting.notes, *plan.notes))


def _refuse_defects(disk: Disk, rows: Sequence[KnownGeometry]) -> Iterator[Refusal]:
    for row in rows:
        if row.defect:
            text = f"{disk.name} is not formatted, because its firmware {disk.firmware} has a known defect"
            hint = f"install firmware {row.fixed_in} first" if row.fixed_in else "omit --lba-size"
            yield Refusal("firmware-defect", disk.name, f"{text}: {row.defect}", hint)


def _refuse_unless_blank(disk: Disk) -> Iterator[Refusal]:
    """Refuse a drive that is not proven blank, also if the user names it with --wipe: a format erases all of
    it. A drive that could not be read is refused as any member is.
    """
    look = audit_command(disk)
    for holding in contents_or_data(disk, "whole drive"):
        yield Refusal("not-empty", disk.name, f"{disk.name} is not empty: {holding}", look)
    if disk.sampled is None:
        text = f"{disk.name} was not read, so it is not known to be empty; it is not formatted"
        yield Refusal("not-read", disk.name, text, "run the same command with sudo")
    elif disk.sampled.unreadable:
        yield from refuse_unreadable(disk.name, disk, disk.sampled)
    elif disk.sampled.is_sparse:
        text = f"{disk.name} is not known to be empty, so it is not formatted: {unread_between(disk)}"
        yield Refusal("not-read", disk.name, text, look)


def _format_steps(disk: Disk, size: int, namespace: Namespace) -> Iterator[FormatDrive]:
    """Yield the step, or nothing for a drive that is refused."""
    form = format_of(disk, size)
    before = disk.nvme.format_in_use if disk.nvme else None
    if form is not None and before is not None and namespace.number is not None:
        block = disk.limits.logical_block_size or 512
        yield FormatDrive(subject(disk), namespace.number, before, block, form.index, size)


def _judged_again(
    drives: Sequence[Judged], inventory: Inventory, size: int, known: Known, options: AuditOptions | None
) -> tuple[Judged, ...]:
    """Return the drives with the grids that they have with logical blocks of `size` bytes."""
    disks = {judged.disk.name: as_formatted(judged.disk, size) for judged in drives}
    machine = replace(inventory, disks=tuple(disks.get(disk.name, disk) for disk in inventory.disks))
    found = {judged.disk.name: judged for judged in audit(machine, known, options).judged}
    return tuple(
        replace(judged, disk=disks[judged.disk.name], grids=found[judged.disk.name].grids)
        for judged in drives
    )
