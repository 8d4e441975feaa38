"""Plan a partition table for another sector size: judge whether each content is kept, rebuilt or refused."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from aligntool import steps
from aligntool.audit.judge import start_exemption
from aligntool.audit.report import Judged
from aligntool.audit.wording import (
    LOST,
    audit_command,
    change_by_hand,
    labelled,
    layer_name,
    next_command,
    type_words,
)
from aligntool.change import Estimate, MovePlan, Place, RealignGoal, TablePlan
from aligntool.claims import Claims
from aligntool.commands import ByHand
from aligntool.contents.catalogue import kind_named
from aligntool.contents.kind import Unit
from aligntool.contents.luks import LUKS
from aligntool.errors import Refusal, Refused, refuse
from aligntool.formats.mbr import ADDRESSABLE
from aligntool.inventory import Disk, DiskKind, Fault, Layer, Partition, Role, TableLabel
from aligntool.mover.convert_table import BLOCK, table_places
from aligntool.realign.placing import containers, kind_of, logicals_of
from aligntool.realign.refusals import content_reasons, disk_reasons, unlisted_data
from aligntool.realign.search import STEP, copy_length, free_runs, runs_for_journal
from aligntool.realign.suspended import suspension_attention
from aligntool.units import KIB, MIB, Extent, align_down, align_up, counted, format_about, format_size

_RAW = frozenset(
    {
        "21686148-6449-6E6F-744E-656564454649",  # BIOS boot: a program, not a file system
        "E3C9E316-0B5C-4DB8-817D-F92DF00215AE",  # Microsoft reserved: no content
    }
)
_FAT32_TYPES = ("0x0b", "0x0c")  # of an MBR; hidden ones are not
_BIOS_BOOT = "21686148-6449-6E6F-744E-656564454649"
_IN_PLACE = ("odd-size", "read-only", "zoned")  # reasons that do not apply to a copy
MOST_HELD = 256 * MIB  # bytes of a FAT that is rebuilt: its old and its new bytes are both in memory
_JOURNAL_HEAD = 12 * KIB  # records
_JOURNAL_TABLE = 28 * KIB  # tables and text, compressed
_JOURNAL_PART = 2 * KIB  # for each partition, compressed
_LONGEST_COPY = 1 << 30


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """A FAT that is recreated: whole blocks, counted from the partition's start."""

    runs: tuple[Extent, ...]
    packed: int  # bytes of the new and of the present content together, compressed
    version: str
    files: int
    length: int  # of the new FAT, in bytes
    boot_code: bool = False  # the old FAT has a boot program, which is lost


Sizes = tuple[int, ...]  # of the sectors for which there are tables
Units = Mapping[int, Unit]
Rebuilds = Mapping[int, Rebuilding]


def refuse_unconvertible(
    judged: Judged, sizes: Sizes, units: Units, cut: Collection[int], *, copied_to: int | None = None
) -> None:
    """Raise Refused with every reason why this disk cannot get a table for sectors of these sizes. `cut`: the
    numbers of the partitions with bytes other than zero after their last whole block. `copied_to`: the bytes
    of the target, if a copy of the disk gets the table instead.
    """
    disk = judged.disk
    if not _kernel_sees_table(disk):  # the kernel's partitions, if any, lie elsewhere
        disk = replace(disk, partitions=tuple(replace(part, node=None) for part in disk.partitions))
    in_place = copied_to is None
    size = disk.size or 0 if in_place else copied_to or 0
    of_disk = (reason for reason in _disk_refusals(judged, sizes) if in_place or reason.code not in _IN_PLACE)
    reasons = (
        *of_disk,
        *(reason for part in disk.partitions for reason in _part_refusals(disk, part, sizes, size, units)),
        *_record_refusals(disk),
        *(reason for part in disk.partitions for reason in _end_refusals(disk, part, units, cut)),
    )
    refuse(reasons)


def _kernel_sees_table(disk: Disk) -> bool:
    """Return whether the kernel and the table use the same sector size."""
    return disk.table is not None and disk.table.sector_size == disk.limits.logical_block_size


def _disk_refusals(judged: Judged, sizes: Sizes) -> Iterator[Refusal]:
    disk = judged.disk
    table = judged.disk.table
    if table is not None and not _kernel_sees_table(disk):  # the other sector size is not a fault here
        faults = tuple(fault for fault in table.faults if fault.fault is not Fault.OTHER_SECTOR_SIZE)
        seen = replace(disk, table=replace(table, faults=faults), kernel_partitions=())
        judged = replace(judged, disk=seen)
    yield from disk_reasons(judged)
    audit = audit_command(disk)
    if table is None or not disk.partitions:
        text = (
            f"{disk.name} has no partitions, so there is nothing to convert: a new table replaces an empty"
            " one"
        )
        layout = next_command(disk, "plan layout", "--part rest:linux")
        yield Refusal("no-partition", disk.name, text, audit if table is None else layout)
    elif table.label is TableLabel.DOS and len(sizes) > 1:
        text = f"{disk.name} has an MBR, and two MBRs do not fit in one sector"
        yield Refusal("table-kind", disk.name, text, change_by_hand(disk, ByHand.TABLE_KIND, "sgdisk"))
    elif sizes == (table.sector_size,):
        text = f"the table of {disk.name} is already for sectors of {table.sector_size} bytes"
        yield Refusal("same-size", disk.name, text, audit)
    if table is not None:
        for code in table.boot_code:
            if code.at and code.kind != "GRUB" and code.partition is None:
                text = f"{code.kind} was recognised at byte {code.at}: it is found by its offset on the disk"
                yield Refusal("bound", disk.name, text, audit)
    # a longer file would hide metadata at the end of an array
    if (disk.size or 0) % BLOCK and not disk.content:
        text = f"{disk.name} is {disk.size} bytes long, which is not a multiple of {BLOCK}"
        longer = change_by_hand(disk, ByHand.TABLE_KIND, "truncate")
        yield Refusal("odd-size", disk.name, text, longer if disk.kind is DiskKind.IMAGE else audit)


def _part_refusals(disk: Disk, part: Partition, sizes: Sizes, size: int, units: Units) -> Iterator[Refusal]:
    what = f"partition {part.number}"
    extent = _new_place(disk, part)
    largest = max(sizes)
    label = label_of(disk)
    head, tail = table_places(label, size, sizes)
    unneeded = _deletion(disk, part)
    is_known = len(part.content) == 1
    contents = tuple(_content_refusals(disk, part, largest, units[part.number])) if is_known else ()
    realigned = "" if contents else next_command(disk, "plan realign", "--grain 1MiB")
    moved = unneeded if start_exemption(part, None) else realigned  # a realign does not move those
    if part.role is Role.EXTENDED:  # nor this: it is empty, or there is no free block for its EBR
        moved = audit_command(disk) if logicals_of(disk, part) else unneeded
    if part.role is not Role.EXTENDED:  # first, because a realign does not help where they stay
        yield from content_reasons(disk, part, what)
        if part.role is Role.NESTED:
            text = f"{what} is in a table nested inside another partition, which stores sector numbers"
            yield Refusal("nested-label", what, text, audit_command(disk))
        yield from contents
        if _is_unknown(part):
            text = f"nothing is recognised on {what}, so the sector size that it needs is unknown"
            yield Refusal("no-content", what, text, unneeded)
    if extent.start % BLOCK:
        text = f"{what} begins at byte {extent.start}, which is not a multiple of {format_size(BLOCK)}"
        yield Refusal("off-grid", what, text, moved)
    elif extent.start < head.end:
        text = f"{what} begins at byte {extent.start}, but the new table extends to byte {head.end}"
        yield Refusal("no-room", what, text, moved)
    end = new_extent(part).end
    if label == TableLabel.DOS and end > ADDRESSABLE * min(sizes):
        text = (
            f"{what} ends at {format_size(end)}, but an MBR for sectors of {min(sizes)} bytes reaches only to"
            " 2TiB"
        )
        gpt = change_by_hand(disk, ByHand.TABLE_KIND, "sgdisk")
        yield Refusal(
            "table-limit", what, text, f"make it a GPT where the disk has {BLOCK}-byte sectors: {gpt}"
        )
    if end > tail.start:
        there = "the disk ends there" if end > size else "the backup of the new table is there"
        text = f"{what} extends {end - tail.start} bytes too far: {there}"
        yield Refusal(
            "no-room", what, text, next_command(disk, "convert", *sector_size_options(sizes), "-o NEW")
        )


def _record_refusals(disk: Disk) -> Iterator[Refusal]:
    """Yield the reason why an EBR cannot be where it would go: another partition or EBR goes there."""
    records = {number: Extent(at, BLOCK) for number, at in new_records(disk).items()}
    taken = [new_extent(part) for part in disk.partitions if part.role is Role.LOGICAL]
    for part in (part for part in disk.partitions if part.number in records):
        others = (extent for number, extent in records.items() if number != part.number)
        if any(records[part.number].overlaps(extent) for extent in (*taken, *others)):
            what = f"partition {part.number}"
            text = (
                f"{what} has its EBR at byte {part.record_at}, but there is no room for one of {BLOCK} bytes"
            )
            yield Refusal("off-grid", what, text, next_command(disk, "plan realign", "--grain 1MiB"))


def _deletion(disk: Disk, part: Partition) -> str:
    """Return how the user deletes an unneeded partition; for a logical one, all such: sfdisk then gives those
    that follow other numbers, so a second command would delete another partition. Hence also the last one
    first.
    """
    logical = [each for each in disk.partitions if each.role is Role.LOGICAL and _is_unknown(each)]
    parts = sorted(logical, key=lambda each: -each.number) if part in logical else [part]
    numbers = ", ".join(str(each.number) for each in parts)
    words = f"partition{'s' * (len(parts) > 1)} {numbers}"
    return f"if nothing needs {words}: {change_by_hand(disk, ByHand.DELETING, 'sfdisk')}"


def _is_unknown(part: Partition) -> bool:
    return not part.content and part.content_read and part.type_code not in _RAW


def sector_size_options(sizes: Sizes) -> tuple[str, ...]:
    """Return the options of the command line for these sizes."""
    return ("--both",) if len(sizes) > 1 else (f"--sector-size {sizes[0]}",)


def new_extent(part: Partition) -> Extent:
    """Return the extent of a partition after the conversion: whole blocks."""
    return Extent(part.extent.start, align_down(part.extent.length, BLOCK))


def _new_place(disk: Disk, part: Partition) -> Extent:
    """Return the extent of a partition after the conversion. An extended one that begins off a block starts
    at the next block, or the one before, as a realign does not move it; its start is unchanged if neither
    block is free, and if it is empty: then it has no EBR to write there.
    """
    extent = new_extent(part)
    if part.role is Role.EXTENDED and extent.start % BLOCK and logicals_of(disk, part):
        end = align_down(part.extent.end, BLOCK)
        others = [other.extent for other in disk.partitions if other is not part]
        for start in (align_up(extent.start, BLOCK), align_down(extent.start, BLOCK)):
            if BLOCK <= start < end and not any(Extent(start, BLOCK).overlaps(other) for other in others):
                return Extent(start, end - start)
    return extent


def new_records(disk: Disk) -> dict[int, int]:
    """Return the byte of the EBR of each logical partition after the conversion: for the first one, the start
    of the extended partition; for others, the block where it is now, or the last one before the partition if
    another partition or EBR is there.
    """
    logicals = {part.number: part for part in disk.partitions if part.role is Role.LOGICAL}
    now = {number: part.record_at for number, part in logicals.items() if part.record_at is not None}
    records = {number: align_down(at, BLOCK) for number, at in now.items()}
    for container in containers(disk):
        chain = [part for part in logicals_of(disk, container) if part.number in now]
        for part in chain:
            block = Extent(records[part.number], BLOCK)
            at = now[part.number]
            is_behind_other = any(block.start <= now[other.number] < at for other in chain)
            if is_behind_other or any(block.overlaps(new_extent(other)) for other in chain):
                records[part.number] = part.extent.start - BLOCK
        if chain and chain[0] == logicals_of(disk, container)[0]:
            records[chain[0].number] = _new_place(disk, container).start
    return records


def _end_refusals(disk: Disk, part: Partition, units: Units, cut: Collection[int]) -> Iterator[Refusal]:
    """Yield the reason why a partition that does not end on a block cannot lose the bytes after its last
    block.
    """
    rest = part.extent.end - new_extent(part).end
    if len(part.content) != 1 or part.role is Role.EXTENDED or not rest:
        return
    layer = part.content[0]
    unit = units[part.number]
    recreated = kind_named(layer.kind).is_recreated
    fits = bool(layer.claims_size) and (layer.claims_size or 0) <= new_extent(part).length
    text = f"partition {part.number} ends {rest} bytes after a multiple of {BLOCK}"
    if part.number in cut and (fits or not recreated):  # a FAT that uses them is recreated shorter
        text += ", which are not blank and would be outside of it"
    elif recreated or (unit.size and not unit.exact and fits):
        return
    else:
        text += f", and its {layer_name(layer)} may use them"
    yield Refusal("off-grid", f"partition {part.number}", text, audit_command(disk))


def _content_refusals(disk: Disk, part: Partition, size: int, unit: Unit) -> Iterator[Refusal]:
    layer = part.content[0]
    what = f"partition {part.number}"
    kind = kind_named(layer.kind)
    way = _content_hint(disk, part, layer, size)
    if unit.fits(size) or kind.is_recreated or (kind.counts_in_512 and size == min(size, 512)):
        return
    if unit.exact:
        text = (
            f"{what} holds {layer_name(layer)} with sectors of {unit.size} bytes, "
            "which Windows mounts only on a disk with the same sector size"
        )
        yield Refusal("sector-size", what, text, way)
    elif unit.size or kind.is_container:
        text = f"{what}: its {layer.kind} {unit.words}, and sectors of {size} bytes cannot be read in parts"
        yield Refusal("sector-size", what, text, way)
    else:
        yield Refusal("content-kind", what, f"{what} holds {layer_name(layer)}, which {unit.words}", way)


def _content_hint(disk: Disk, part: Partition, layer: Layer, size: int) -> str:
    """Return how the user can make this content fit sectors of `size` bytes."""
    if layer.kind == LUKS.name:
        return _how_to_reencrypt(disk, part, layer)
    kind = kind_named(layer.kind)
    if kind.recreating:
        return kind.recreating
    if kind.recreator:
        how = change_by_hand(disk, ByHand.RECREATING, kind.recreator, part)
        return f"recreate it for sectors of {size} bytes and copy its files into it: {how}"
    return audit_command(disk)


def _how_to_reencrypt(disk: Disk, part: Partition, layer: Layer) -> str:
    """Return how the user gives a LUKS volume larger sectors. A header without its data must not be changed
    so.
    """
    if layer.unclean or layer.data_start is None:
        return audit_command(disk)
    return change_by_hand(disk, ByHand.LUKS, "cryptsetup", part)


# From the judged disk to the plan.


def plan_conversion(
    judged: Judged, goal: RealignGoal, sizes: Sizes, units: Units, rebuilding: Rebuilds, claims: Claims
) -> MovePlan:
    """Return the plan for a disk that passed `refuse_unconvertible`. Raises Refused without room for the
    journal.
    """
    disk = judged.disk
    journal = _journal(disk, goal, sizes, rebuilding, claims)
    places = _places(disk, units, rebuilding)
    plan_steps = tuple(_steps(disk, sizes, journal, rebuilding))
    notes = tuple(_notes(disk, journal, rebuilding))
    attention = (
        *suspension_attention(disk),
        *_attention(disk, sizes),
        *_other_fats(disk, rebuilding),
        *_lost_boot_code(rebuilding),
    )
    return MovePlan("convert", steps.subject(disk), _goal(sizes), places, plan_steps, attention, notes)


def plan_copy(
    disk: Disk,
    target: steps.Subject,
    sizes: Sizes,
    units: Units,
    rebuilding: Rebuilds,
    mapped: Collection[int],
    used: int,
) -> TablePlan:
    """Return the plan that copies a disk that passed `refuse_unconvertible` to `target`. `mapped`: the
    partitions that are copied according to a map of their used blocks. `used`: the bytes to copy.
    """
    copying = steps.CopyDisk(steps.subject(disk), used)
    plan_steps = (*_checks(disk, {*rebuilding, *mapped}), copying, *_rewrite_steps(disk, sizes, rebuilding))
    words = f"a copy of {disk.path} with {_goal(sizes)}"
    both = f"{disk.path} and its copy have the same GUIDs and UUIDs: attach only one at a time"
    smaller = _left_out(disk, target, sizes)
    attention = (
        both,
        *smaller,
        *_attention(disk, sizes, copied=True),
        *_other_fats(disk, rebuilding),
        *_lost_boot_code(rebuilding),
    )
    notes = (
        *_notes(disk, None, rebuilding),
        "what is in no partition is copied, too, unless it reads as zero",
    )
    places = _places(disk, units, rebuilding)
    cost = Estimate(used, None)  # the rate of the slower one of two devices
    return TablePlan("convert-copy", target, words, places, plan_steps, attention, notes, cost)


def _left_out(disk: Disk, target: steps.Subject, sizes: Sizes) -> Iterator[str]:
    """Yield what a smaller target has no room for."""
    end = table_places(label_of(disk), target.size, sizes)[1].start
    if target.size < (disk.size or 0):
        yield f"{target.path} is smaller: what is in no partition from byte {end} on is not copied"


def _goal(sizes: Sizes) -> str:
    return f"a table for sectors of {' and of '.join(map(str, sizes))} bytes"


def _places(disk: Disk, units: Units, rebuilding: Rebuilds) -> tuple[Place, ...]:
    return tuple(
        Place(
            part.number,
            part.extent,
            _new_place(disk, part),
            _content_name(part),
            _outcome(part, units, rebuilding),
        )
        for part in disk.partitions
    )


def _steps(
    disk: Disk, sizes: Sizes, journal: steps.JournalPlace, rebuilding: Rebuilds
) -> Iterator[steps.Step]:
    numbers = tuple(part.number for part in disk.partitions)
    parked = tuple(part.number for part in disk.partitions if part.role is not Role.LOGICAL)
    yield from _checks(disk, rebuilding)
    yield steps.WriteJournal(journal)
    yield steps.ParkEntries(numbers, parked)
    yield from _rewrite_steps(disk, sizes, rebuilding)
    yield steps.CloseJournal(journal)


def _checks(disk: Disk, numbers: Collection[int]) -> Iterator[steps.CheckContent]:
    for part in disk.partitions:
        if part.number in numbers and kind_of(part).checker:
            yield steps.CheckContent(part.number, part.extent, kind_of(part).name)


def _rewrite_steps(
    disk: Disk, sizes: Sizes, rebuilding: Rebuilds
) -> Iterator[steps.RebuildContent | steps.ConvertTable]:
    for part in disk.partitions:
        if part.number in rebuilding:
            held = steps.SavedRanges(rebuilding[part.number].runs)
            yield steps.RebuildContent(part.number, kind_of(part).name, new_extent(part), max(sizes), held)
    records = new_records(disk)
    changes = tuple(
        steps.EntryChange(
            part.number, part.extent, _new_place(disk, part), part.record_at, records.get(part.number)
        )
        for part in disk.partitions
    )
    yield steps.ConvertTable(label_of(disk), changes, sizes)


def label_of(disk: Disk) -> str:
    """Return the kind of the partition table."""
    return disk.table.label.value if disk.table else ""


def _journal(
    disk: Disk, goal: RealignGoal, sizes: Sizes, rebuilding: Rebuilds, claims: Claims
) -> steps.JournalPlace:
    packed = sum(fat.packed + fat.packed // 16 + 64 * len(fat.runs) for fat in rebuilding.values())
    body = _JOURNAL_HEAD + _JOURNAL_TABLE + packed + _JOURNAL_PART * len(disk.partitions)
    copy = copy_length(body)
    total = 2 * copy + STEP
    stash = Extent(2 * copy, STEP)
    if goal.journal_file and copy <= _LONGEST_COPY:
        return steps.JournalPlace(Extent(0, total), copy, stash, goal.journal_file)
    head, tail = table_places(label_of(disk), disk.size or 0, sizes)
    usable = disk.table.usable if disk.table and disk.table.usable else Extent(0, 0)
    first = max(head.end, usable.start)
    # the backup of the old table may lie behind it, wherever the disk ends
    last = min(tail.start, usable.end)
    gaps = [*free_runs((part.extent for part in disk.partitions), Extent(first, max(last - first, 0)))]
    runs = runs_for_journal(disk, gaps, (total, total), claims)
    place = next((run for run in sorted(runs, reverse=True) if run.length >= total), None)
    if place is None and claims.in_the_way and any(gap.length >= total for gap in gaps):
        refuse((unlisted_data(disk, claims, "plan convert", for_journal=True),))
    if place is None or copy > _LONGEST_COPY:
        most = max((run.length for run in runs), default=0)
        text = (
            f"there is no room for the journal: it needs {format_about(total)},"
            f" and the largest free area is {format_about(most)}; a file on another disk also works"
        )
        hint = next_command(disk, "convert", *sector_size_options(sizes), "--journal FILE")
        raise Refused(text, hint=hint, code="no-journal-room", subject=disk.name)
    return steps.JournalPlace(Extent(align_down(place.end - total, STEP), total), copy, stash)


def _content_name(part: Partition) -> str:
    return labelled(part.content[0]) if part.content else type_words(part)


def _outcome(part: Partition, units: Units, rebuilding: Rebuilds) -> str:
    fat = rebuilding.get(part.number)
    if fat:
        return f"recreated as a {fat.version} with {counted(fat.files, 'file')}"
    unit = units.get(part.number)
    return f"stays as it is; its unit is {format_size(unit.size)}" if unit and unit.size else "stays as it is"


def _notes(disk: Disk, journal: steps.JournalPlace | None, rebuilding: Rebuilds) -> Iterator[str]:
    for part in disk.partitions:
        cut = part.extent.length - _new_place(disk, part).length
        fat = rebuilding.get(part.number)
        if cut > 0:
            yield f"partition {part.number} becomes {cut} bytes shorter; its content does not use them"
        if fat and fat.length < new_extent(part).length:
            at = part.extent.start + fat.length
            yield (
                f"partition {part.number}: its {fat.version} ends at byte {at}, because other bytes follow it"
            )
    yield (
        "identifiers, names, types and flags of the partitions are kept, and so are UUIDs and labels of their"
        " content"
    )
    if journal and journal.file is None:
        size = format_about(journal.extent.length)
        start = format_size(journal.extent.start)
        yield f"the journal takes {size} of free space at {start} until the change is complete"


def _attention(disk: Disk, sizes: Sizes, *, copied: bool = False) -> Iterator[str]:
    shown = disk.limits.logical_block_size
    if not copied and disk.kind is not DiskKind.IMAGE and shown not in sizes:
        text = f"{disk.name} has sectors of {shown} bytes here, so this kernel does not see the new table"
        yield f"{text}: it is for a system that shows this disk with sectors of {max(sizes)} bytes"
        yield from reformatting(disk, max(sizes))
    if len(sizes) > 1:
        text = "a program that writes one of the two tables leaves the other unchanged or cuts off its end"
        yield f"{text}: partition copies of this image, not the image itself"
    if max(sizes) == BLOCK and any(part.type_code == _BIOS_BOOT for part in disk.partitions):
        yield "no BIOS boots from sectors of 4096 bytes; UEFI does, from the EFI system partition"


def _other_fats(disk: Disk, rebuilding: Rebuilds) -> Iterator[str]:
    for part in disk.partitions:
        fat = rebuilding.get(part.number)
        if fat and part.content[0].version != fat.version:
            was = part.content[0].version
            typed = f", while its type stays {part.type_code}" if part.type_code in _FAT32_TYPES else ""
            yield (
                f"partition {part.number}: its {was} becomes a {fat.version}{typed}, because of the number of"
                " its clusters; a conversion back does not change that"
            )


def _lost_boot_code(rebuilding: Rebuilds) -> Iterator[str]:
    for number, fat in rebuilding.items():
        if fat.boot_code:
            yield (
                f"{LOST}the boot program in the FAT of partition {number}: no BIOS starts from it; UEFI still"
                " does"
            )


def reformatting(disk: Disk, size: int) -> Iterator[str]:
    """Yield that the drive can be formatted to this sector size. It is never done here, as it erases the
    drive.
    """
    for lba_format in disk.nvme.formats if disk.nvme else ():
        if lba_format.data_size == size and lba_format.metadata_size == 0:
            how = change_by_hand(disk, ByHand.SECTOR_SIZE, "nvme")
            form = f"sectors of {size} bytes, its format {lba_format.index}"
            yield f"the drive itself can be formatted to {form}, which erases it: {how}"
            return
    if disk.kind is DiskKind.ATA:
        how = change_by_hand(disk, ByHand.SECTOR_SIZE, "hdparm")
        yield (
            "a drive that lists this size (hdparm -I) can be reformatted to it, which erases the drive:"
            f" {how}"
        )
