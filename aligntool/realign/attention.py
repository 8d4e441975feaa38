"""What needs the user after a move, and what was decided on the way, in sentences.

In: a disk, who moves, how far. Out: sentences. Alone because it is prose about other people's boot loaders.

Sources: BCD and MountedDevices of an MBR Windows hold disk signature and byte offset; firmware boot entries hold a
HD() device path with partition number, start, size and GUID (UEFI 10.3.5.1); syslinux and LILO keep lists of sectors.
"""

from collections.abc import Collection, Iterator, Mapping

from aligntool.audit.excuses import EFI_SYSTEM
from aligntool.audit.words import layer_name
from aligntool.inventory import Disk, Fault, Partition, Role, TableLabel
from aligntool.plan import RealignGoal
from aligntool.realign.holds import kind_of
from aligntool.realign.patches import Patching
from aligntool.realign.search import Found
from aligntool.realign.shrinking import Shrunk
from aligntool.realign.wanted import Wanted
from aligntool.units import format_about, format_size

_ACTIVE = ("active", "boot")
_EXTLINUX = ("ext2", "ext3", "ext4", "btrfs", "xfs")  # it installs itself there, as does LILO


def attention_to(disk: Disk, moving: Collection[int], patched: Mapping[int, Patching]) -> Iterator[str]:
    """What may need the user once it is done."""
    dos = disk.table is not None and disk.table.label is TableLabel.DOS
    yield from _boot_sector(disk, moving)
    for part in disk.partitions:
        if part.number not in moving:
            continue
        if part.number in patched and patched[part.number].attention:
            yield patched[part.number].attention
        if part.type_code in EFI_SYSTEM:
            yield (
                f"partition {part.number} is the EFI system partition: firmware entries that name its start may not"
                " find it any more; `efibootmgr -v` shows them, and \\EFI\\BOOT is found in any case"
            )
        if dos and kind_of(part) == "ntfs":
            yield from _windows(disk, part)
        if dos and _is_active(part) and _may_start_from(disk, part):
            yield (
                f"partition {part.number} is the active partition with {layer_name(part.content[0])}: if syslinux,"
                " extlinux, LILO or GRUB4DOS start from it, their lists of sectors must be written anew"
                " (extlinux --install, lilo)"
            )


def _boot_sector(disk: Disk, moving: Collection[int]) -> Iterator[str]:
    """What sector 0 names by an absolute sector. GRUB's core image in the gap or in a BIOS boot partition stays."""
    for code in disk.table.boot_code if disk.table else ():
        if code.kind == "LILO" and moving:
            yield "LILO in sector 0 keeps a list of absolute sectors: start another system and type lilo afterwards"
        hit = [part for part in disk.partitions if part.number in moving and _is_in(part, code.at)]
        for part in hit if code.kind.startswith("GRUB") else ():
            yield (
                f"{code.kind} in sector 0 reads its next stage from byte {code.at}, inside partition {part.number}: the"
                " disk does not start until grub-install is run from another system"
            )


def _is_in(part: Partition, at: int) -> bool:
    return part.role is not Role.EXTENDED and part.extent.start <= at < part.extent.end


def _may_start_from(disk: Disk, part: Partition) -> bool:
    """FAT in any case; Linux's file systems where the boot code of sector 0 is not GRUB's, which does not read them."""
    grub = any(code.kind.startswith("GRUB") for code in (disk.table.boot_code if disk.table else ()))
    return kind_of(part) == "vfat" or (kind_of(part) in _EXTLINUX and not grub)


def _windows(disk: Disk, part: Partition) -> Iterator[str]:
    """Of a data partition only the drive letter can be lost; of the others, the way to start."""
    starts = _is_active(part) or any(_is_active(one) and kind_of(one) == "ntfs" for one in disk.partitions)
    if starts:
        yield (
            f"partition {part.number} may hold a Windows that starts by the MBR: its boot entries (BCD) name the disk's"
            " signature and the old start. If it does not start, start Windows' repair medium and type:"
            " bootrec /rebuildbcd, then bcdboot C:\\Windows /s C:"
        )
    else:
        yield (
            f"partition {part.number}: Windows remembers drive letters by the disk's signature and the partition's"
            " start; it may get another letter, which Disk Management changes back"
        )


def _is_active(part: Partition) -> bool:
    return any(flag in _ACTIVE for flag in part.flags)


def notes_on(
    disk: Disk,
    goal: RealignGoal,
    wish: Wanted,
    found: Found | None,
    shrunk: Mapping[int, Shrunk],
    patched: Mapping[int, Patching],
) -> Iterator[str]:
    """What was decided and why."""
    if found is None:
        return
    for number in sorted(found.order):
        yield from _where_to(goal, wish, found, number)
    if not _same_order(disk, found):
        yield "the partitions lie in another order on the disk afterwards; their numbers stay"
    for change in found.chain:
        if change.record_before is None and change.record_after is None:
            more = format_size(change.after.length - change.before.length)
            yield f"the extended partition {change.number} grows by {more} into free space behind it"
    if found.chain:
        yield "the whole chain of EBRs is written anew; the numbers of the logical partitions stay"
    parts = {part.number: part for part in disk.partitions}
    for number, one in sorted(shrunk.items()):
        by = parts[number].extent.length - one.length
        yield f"partition {number}: its {one.kind} is shrunk by {format_size(by)}, for nothing fits otherwise"
    for one_patched in patched.values():
        if one_patched.note:
            yield one_patched.note
    yield from _about_the_table(disk, found)


def _where_to(goal: RealignGoal, wish: Wanted, found: Found, number: int) -> Iterator[str]:
    start = found.after[number].start
    if number not in wish.must:
        yield f"partition {number} is on the grid and moves all the same: there is no room without"
    liked = wish.lattices[0]
    if not liked.has(start):
        got = next(lattice for lattice in wish.lattices if lattice.has(start))
        yield (
            f"partition {number}: no room on a boundary of {format_size(liked.size)}; {format_size(got.size)}"
            " is the coarsest that fits and satisfies the disk"
        )


def _same_order(disk: Disk, found: Found) -> bool:
    numbers = [part.number for part in disk.partitions if part.number in found.after]
    return sorted(numbers, key=lambda one: found.before[one]) == sorted(
        numbers, key=lambda one: found.after[one]
    )


def _about_the_table(disk: Disk, found: Found) -> Iterator[str]:
    table = disk.table
    if table is None:
        return
    if any(fault.fault is Fault.GPT_BACKUP_MISPLACED for fault in table.faults):
        yield "the backup GPT stays where the primary one says, which is not the end of the disk"
    primary = [part for part in disk.partitions if part.role in (Role.PRIMARY, Role.EXTENDED)]
    first = min(min(part.extent.start, found.after[part.number].start) for part in primary)
    if table.label is TableLabel.DOS:
        yield (
            f"the {format_about(first)} before the first partition are not touched: GRUB in the MBR gap stays whole;"
            " PARTUUIDs (disk signature and number) stay"
        )
    else:
        yield "PARTUUIDs, names, types and attributes stay: fstab, crypttab and boot loaders that go by them find them"
    if found.journal is not None and found.journal.file is None:
        size, start = format_about(found.journal.extent.length), format_size(found.journal.extent.start)
        yield f"the journal takes {size} of free space at {start} until all is done"
        if found.spots_only:
            yield (
                "the journal is small: it holds the sectors of signatures only, and the copy flushes more often, which"
                " is slower and as safe"
            )
