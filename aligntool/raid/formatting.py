"""Plan the formats of empty NVMe drives that become members of a new array."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aligntool.audit.judge import audit
from aligntool.audit.report import Judged
from aligntool.audit.wording import audit_command, contents_or_data, unread_between
from aligntool.errors import Refusal
from aligntool.inventory import Disk, Inventory, KnownGeometry
from aligntool.raid.lba_formats import (
    Namespace,
    as_formatted,
    change_words,
    format_of,
    format_refusals,
    is_possible,
)
from aligntool.raid.members import Known
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
) -> Formatting:
    """Plan the formats of all drives with other logical blocks than `size`. None: no drive is formatted, nor
    for a size that is refused as a part of the goal. `namespaces`: of each drive, by its name; `disks`: all
    of the machine.
    """
    if size is None or not is_possible(size):
        return Formatting(tuple(drives))
    refusals: list[Refusal] = []
    steps: list[FormatDrive] = []
    notes: list[str] = []
    for disk in (judged.disk for judged in drives):
        if disk.limits.logical_block_size == size:
            notes.append(f"{disk.name} already has logical blocks of {size} bytes")
            continue
        namespace = namespaces.get(disk.name, Namespace())
        refusals += format_refusals(disk, disk.name, size, namespace, disks)
        refusals += _refuse_defects(disk, known.get(disk.name, ()))
        refusals += _refuse_unless_blank(disk)
        notes.append(f"{disk.name}: {change_words(disk, size)}")
        steps += _format_steps(disk, size, namespace)
    formatted = _judged_again(drives, inventory, size, known)
    return Formatting(formatted, tuple(steps), tuple(refusals), tuple(notes))


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
    drives: Sequence[Judged], inventory: Inventory, size: int, known: Known
) -> tuple[Judged, ...]:
    """Return the drives with the grids that they have with logical blocks of `size` bytes."""
    disks = {judged.disk.name: as_formatted(judged.disk, size) for judged in drives}
    machine = replace(inventory, disks=tuple(disks.get(disk.name, disk) for disk in inventory.disks))
    found = {judged.disk.name: judged for judged in audit(machine, known).judged}
    return tuple(
        replace(judged, disk=disks[judged.disk.name], grids=found[judged.disk.name].grids)
        for judged in drives
    )
