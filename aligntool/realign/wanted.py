"""Decide which partitions a request names, which shrink, and which warnings apply."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from aligntool.audit.layers import data_places
from aligntool.audit.report import Answer, GridKind, Judged, Verdict
from aligntool.audit.wording import layer_name, next_command, shell_word
from aligntool.change import RealignGoal, Used
from aligntool.errors import Refusal
from aligntool.formats.part_types import EFI_SYSTEM
from aligntool.formats.windows_names import STORES, SYSTEM, Names
from aligntool.inventory import Disk, Fault, Layer, Partition, Role, TableLabel
from aligntool.realign.placing import StartGrid, choices, kind_of, needed, on_grain
from aligntool.realign.refusals import SHUT_DOWN, content_reasons, partition_reasons
from aligntool.realign.search import Found, Patching, named_patches
from aligntool.units import KIB, MIB, align_down, align_up, format_about, format_size, off_by

# Which file system to shrink, and by how little, so that everything fits.
#
# Shrinking is the one thing here that changes more than places.
#
# The last file system that can be shrunk is tried first: what lies behind it moves least. ext2, ext3 and ext4
# are shrunk by resize2fs, NTFS by ntfsresize, btrfs by `btrfs filesystem resize`. XFS cannot be shrunk
# (xfs_growfs(8)).

SHRINKABLE = ("ext2", "ext3", "ext4", "ntfs", "btrfs")
REPAIR = "in Windows: chkdsk /f, and compact /u where it is compressed"
_LEAST = {"btrfs": 256 * MIB}  # btrfs_ioctl_resize() in the kernel's fs/btrfs/ioctl.c


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A partition whose file system is shrunk first."""

    kind: str
    length: int  # bytes that the partition has afterwards


Uses = Mapping[int, Used]
Shrinks = Mapping[int, Shrunk]
Patched = Mapping[int, Patching]
Fits = Callable[[Shrinks], Found | None]


def room_by_shrinking(disk: Disk, used: Uses, fits: Fits) -> tuple[Found, dict[int, Shrunk]] | None:
    """Return the first file system, from the end of the disk, that can give enough; by the least number of MiB."""
    for part in shrinkable(disk):
        most = most_shrinkable(part, used)
        if most < MIB or _try(part, most, fits) is None:
            continue
        low, high = 0, most // MIB  # `low` MiB are too few, `high` are enough
        while high - low > 1:
            middle = (low + high) // 2
            if _try(part, middle * MIB, fits) is None:
                low = middle
            else:
                high = middle
        found = _try(part, high * MIB, fits)
        if found is not None:
            return found, {part.number: _shrunk(part, high * MIB)}
    return None


def what_would_help(disk: Disk, used: Uses, fits: Fits, *, shrink: bool) -> tuple[str, str]:
    """Return the end of a sentence, and the next command; both empty when nothing would help."""
    if shrink:
        kinds = {kind_of(part) for part in disk.partitions if part.role is not Role.EXTENDED}
        only = " (XFS cannot be shrunk)" if "xfs" in kinds else ""
        return f"; no file system here can be shrunk by as much as that takes{only}", ""
    shorter = room_by_shrinking(disk, used, fits)
    if shorter is None:
        return "", ""
    number, one = next(iter(shorter[1].items()))
    by = next(part.extent.length for part in disk.partitions if part.number == number) - one.length
    said = f"; it would fit if the {one.kind} on partition {number} were shrunk by {format_size(by)}"
    return said, next_command(disk, "realign", "--shrink")


def attention_to_shrunk(shrunk: Shrinks) -> Iterator[str]:
    """Yield what remains to do: ntfsresize sets the dirty flag, with which ntfs_fill_super() (Linux, fs/ntfs3/super.c)
    requires `force`.
    """
    for number, one in sorted(shrunk.items()):
        if one.kind == "ntfs":
            until = "until then Linux' ntfs3 does not mount it writable (ntfs-3g does)"
            yield f"partition {number}: Windows checks an NTFS that was shrunk at its next start; {until}"


def shrinkable(disk: Disk) -> tuple[Partition, ...]:
    """Return them from the end of the disk to its start."""
    found = [part for part in disk.partitions if kind_of(part) in SHRINKABLE]
    against = partition_reasons(disk, found)
    found = [part for part in found if part.role in (Role.PRIMARY, Role.LOGICAL) and not against[part.number]]
    return tuple(sorted(found, key=lambda part: -part.extent.start))


def most_shrinkable(part: Partition, used: Uses) -> int:
    """Return the bytes that can be removed: the used part stays, an eighth more and 1 MiB, for tables and fragments.

    Half of it where nobody asked what is used; the file system's own tool refuses when that is too much.
    """
    stays = used[part.number].bytes if part.number in used else part.extent.length // 2
    stays = max(align_up(stays + stays // 8 + MIB, MIB), _LEAST.get(kind_of(part), 0))
    return align_down(part.extent.length - stays, MIB)


def _try(part: Partition, by: int, fits: Fits) -> Found | None:
    found = fits({part.number: _shrunk(part, by)})
    return found if found is not None and found.journal is not None else None


def _shrunk(part: Partition, by: int) -> Shrunk:
    return Shrunk(kind_of(part), part.extent.length - by)


# Which partitions have to move, which may, and which stay: before anybody has looked for room.
#
# This is where the user's wish, the verdicts and the exceptions meet.


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which partitions must move, may move and stay, and why."""

    start_grids: tuple[StartGrid, ...]  # best first
    must: dict[int, str]  # number -> why it moves
    may: list[int]  # on the grid, but could make room
    stays: dict[int, str]  # number -> why it stays
    reasons: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    names: Mapping[int, Names] = field(default_factory=dict)  # starts that files on a partition name
    inside: dict[int, int] = field(default_factory=dict)  # number -> bytes from its start to the data to be aligned

    def grids_of(self, number: int) -> tuple[StartGrid, ...]:
        """Return where this partition may begin: its data are then on the grids of the disk."""
        return tuple(_before(grid, self.inside.get(number, 0)) for grid in self.start_grids)


def _before(grid: StartGrid, distance: int) -> StartGrid:
    return StartGrid(grid.size, (grid.phase - distance) % grid.size)


def _inside(sorting: "Wanted", judged: Judged, part: Partition, need: StartGrid) -> int:
    """Return the bytes from the start of a partition to the data in its uppermost container, where they have to be on
    the grids in place of the start; 0 where that makes no difference, or cannot be.
    """
    start, sector_size = part.extent.start, judged.disk.sector_size
    places = [place - start for place in data_places(part)]
    if not any(place % need.size for place in places):
        return 0
    name, first = layer_name(part.content[0]), places[0]
    physical = max((grid.size for grid in judged.grids if grid.kind is GridKind.PHYSICAL), default=sector_size)
    least = physical if part.content[0].kind == "linux_raid_member" else sector_size
    if any((place - first) % need.size for place in places):
        apart = f"segments of {name} begin at several distances from a boundary of {format_size(need.size)}"
        sorting.notes.append(f"partition {part.number}: {apart}; a move puts its start there, and not all of them")
        sorting.notes.extend(_pvmoves(part, need))
    elif first % least:
        odd = f"the data of {name} begin {format_size(first)} into it, which is not a multiple of {format_size(least)}"
        sorting.notes.append(f"partition {part.number}: {odd}: its start and not they are put on the boundary")
    else:
        return first
    return 0


LARGEST_SECTOR = 4 * KIB  # that LUKS2 has: cryptsetup(8), --sector-size


def small_sectors(judged: Judged, partitions: Collection[int]) -> tuple[int, tuple[tuple[Partition, Layer], ...]]:
    """Return the bytes that the sectors of a LUKS should have here, and every one on these partitions (none: on all)
    whose sectors are smaller.
    """
    sizes = (grid.size for grid in judged.grids if grid.kind is GridKind.PHYSICAL)
    size = min(max(sizes, default=judged.disk.sector_size), LARGEST_SECTOR)
    tops = ((part, part.content[0]) for part in judged.disk.partitions if part.content)
    named = (pair for pair in tops if pair[0].number in partitions or not partitions)
    return size, tuple(pair for pair in named if pair[1].kind == "crypto_LUKS" and (pair[1].data_unit or size) < size)


def _about_sectors(judged: Judged, goal: RealignGoal) -> Iterator[str]:
    """Yield what no move changes, and the command that does."""
    size, small = small_sectors(judged, goal.partitions)
    found = [(part.number, layer.data_unit) for part, layer in small if layer.version == "LUKS2" and layer.data_unit]
    if found:
        numbers, units = zip(*found, strict=True)
        named = (f"-p {number}" for number in numbers if goal.partitions)
        larger = next_command(judged.disk, "plan realign", "--layers", *named)
        sectors = f"LUKS2 in sectors of {format_size(min(units))} on a drive of {format_size(size)}"
        who = f"{'partition' if len(numbers) == 1 else 'partitions'} {', '.join(map(str, numbers))}"
        yield f"{who}: {sectors}; larger ones afterwards: {larger}"


def _pvmoves(part: Partition, need: StartGrid) -> list[str]:
    """Return a sentence with the commands for the volumes that no move of their partition puts right."""
    first = part.content[0].data_start or 0
    off = {one.volume for one in part.content[0].segments if not need.has(one.extent.start - first + need.phase)}
    if not off:
        return []
    group, node = min(off).partition("/")[0], f"/dev/{part.node}" if part.node else "PV"
    moves = "; ".join(f"sudo pvmove -n {shell_word(one.partition('/')[2])} {node}" for one in sorted(off))
    kept = f"sudo vgcfgbackup {shell_word(group)}; {moves}"
    return [
        f"partition {part.number}: extents smaller than the boundary are moved by LVM, to others of the group: {kept}"
    ]


def wanted(judged: Judged, goal: RealignGoal) -> Wanted:
    """Sort all partitions. Off the grid moves; on the grid stays, unless the user names it or requires a grain."""
    disk = judged.disk
    need, audit = needed(judged.grids, disk.sector_size), next_command(disk, "audit")
    if need is None:
        sizes = ", ".join(f"{grid.kind} {format_size(grid.size)} + {format_size(grid.phase)}" for grid in judged.grids)
        text = f"no place is on all the grids at once: {sizes}"
        return Wanted((), {}, [], {}, [Refusal("grids-exclude", disk.name, text, audit)])
    sorting = Wanted(choices(need, goal.grain, only_grain=goal.grain_given), {}, [], {})
    sorting.reasons.extend(_unknown_names(judged, goal))
    verdicts = judged.by_partition()
    for part in disk.partitions:
        verdict = verdicts.get(part.number)
        if part.role is Role.EXTENDED:
            sorting.stays[part.number] = "a container of logical partitions needs no boundary"
        elif verdict is not None:
            if inside := _inside(sorting, judged, part, need):
                sorting.inside[part.number] = inside
            _sort(sorting, part, verdict, goal, (need, on_grain(need, goal.grain)), audit)
    sorting.notes.extend(_about_sectors(judged, goal))
    return sorting


def off_words(verdict: Verdict) -> str:
    """Return "off 4KiB by 3584B", for the worst grid it is off."""
    worst = min((check for check in verdict.checks if not check.on), key=lambda check: check.grid.severity.rank)
    return f"off {format_size(worst.grid.size)} by {format_size(worst.off_by)}"


def _unknown_names(judged: Judged, goal: RealignGoal) -> Iterator[Refusal]:
    there = [part.number for part in judged.disk.partitions]
    for number in goal.partitions:
        if number not in there:
            numbers = ", ".join(map(str, there)) or "none"
            text = f"there is no partition {number} on {judged.disk.name}; there are {numbers}"
            yield Refusal("no-partition", f"partition {number}", text, next_command(judged.disk, "audit"))


_Grids = tuple[StartGrid, StartGrid]
"""What the disk needs, and the grain on it."""


def _sort(sorting: Wanted, part: Partition, verdict: Verdict, goal: RealignGoal, grids: _Grids, audit: str) -> None:
    number, named, what = part.number, part.number in goal.partitions, f"partition {part.number}"
    chosen = named or not goal.partitions
    if not verdict.matters:
        sorting.stays[number] = verdict.why
        if named:
            text, hint = f"{what} is not moved: {verdict.why}", f"name another partition; {number} stays"
            sorting.reasons.append(Refusal("stays", what, text, hint))
    elif verdict.answer is Answer.UNKNOWN:
        sorting.stays[number] = "unknown whether it is on the grid"
        if chosen:
            text = f"{what}: alignment cannot be judged: {verdict.why}"
            sorting.reasons.append(Refusal("not-judged", what, text, audit))
    elif not chosen:
        off = verdict.answer is Answer.OFF
        sorting.stays[number] = "not named" if off else "on the grid"
        if off:
            sorting.notes.append(f"partition {number} is {off_words(verdict)} as well and stays: it was not named")
    else:
        _sort_by_place(sorting, part, verdict, goal, grids)


def _sort_by_place(sorting: Wanted, part: Partition, verdict: Verdict, goal: RealignGoal, grids: _Grids) -> None:
    number, named = part.number, part.number in goal.partitions
    (need, grain), inside = grids, sorting.inside.get(number, 0)
    past = off_by(part.extent.start + inside, grain.size, grain.phase)
    if verdict.answer is Answer.OFF:
        sorting.must[number] = off_words(verdict)
    elif inside and (by := off_by(part.extent.start + inside, need.size, need.phase)):
        name = layer_name(part.content[0])
        sorting.must[number] = f"data of {name} off {format_size(need.size)} by {format_size(by)}"
    elif part.extent.start < goal.least_start:
        sorting.must[number] = f"begins before {format_size(goal.least_start)}"
    elif (named or goal.grain_given) and past:
        sorting.must[number] = f"off the grain of {format_size(grain.size)} by {format_size(past)}"
    else:
        sorting.stays[number] = "on the grid"
        if named:
            sorting.notes.append(f"partition {number} was named and is on the grid: it stays")
        elif not goal.partitions:
            sorting.may.append(number)


# What needs the user after a move, and what was decided on the way, in sentences.
#
# It is prose about other people's boot loaders.
#
# Sources: BCD and MountedDevices of an MBR Windows hold disk signature and byte offset; firmware boot entries
# hold a HD() device path with partition number, start, size and GUID (UEFI 10.3.5.1); syslinux and LILO keep
# lists of sectors.

_ACTIVE = ("active", "boot")
_OF_WINDOWS = ("ntfs", "vfat", "exfat", "ReFS", "BitLocker")
_EXTLINUX = ("ext2", "ext3", "ext4", "btrfs", "xfs")  # it installs itself there, as does LILO


def attention_to(disk: Disk, moving: Collection[int], patched: Patched, names: Mapping[int, Names]) -> Iterator[str]:
    """Yield what the user may have to do afterwards."""
    with_windows = any(SYSTEM in one.files for one in names.values())
    dos = disk.table is not None and disk.table.label is TableLabel.DOS
    yield from _boot_sector(disk, moving)
    for part in disk.partitions:
        if part.number not in moving:
            continue
        if part.number in patched and patched[part.number].attention:
            yield patched[part.number].attention
        if part.type_code in EFI_SYSTEM:
            lost = "firmware entries that name its start may not find it any more; `efibootmgr -v` shows them, and"
            yield f"partition {part.number} is the EFI system partition: {lost} \\EFI\\BOOT is found in any case"
        if dos and (kind_of(part) == "ntfs" or (with_windows and _is_active(part) and kind_of(part) == "vfat")):
            yield from _windows(disk, part, names)
        if dos and _is_active(part) and _may_start_from(disk, part):
            lists = "syslinux, extlinux, LILO or GRUB4DOS start from it, their lists of sectors must be written anew"
            name = layer_name(part.content[0])
            yield f"partition {part.number} is the active one, with {name}: if {lists} (extlinux --install, lilo)"


def _boot_sector(disk: Disk, moving: Collection[int]) -> Iterator[str]:
    """Yield what sector 0 names by an absolute sector. GRUB's core image in the gap or in a BIOS boot partition
    stays.
    """
    for code in disk.table.boot_code if disk.table else ():
        if code.kind == "LILO" and moving:
            yield "LILO in sector 0 keeps a list of absolute sectors: start another system and type lilo afterwards"
        moved = [part for part in disk.partitions if part.number in moving and part.role is not Role.EXTENDED]
        for part in moved if code.kind.startswith("GRUB") else ():
            if part.extent.start <= code.at < part.extent.end:
                until = "the disk does not start until grub-install is run from another system"
                stage = f"reads its next stage from byte {code.at}, inside partition {part.number}"
                yield f"{code.kind} in sector 0 {stage}: {until}"


def _may_start_from(disk: Disk, part: Partition) -> bool:
    """Return whether a boot program may start from it: FAT always; Linux's file systems where the boot code of sector 0
    is not GRUB's, which does not read them.
    """
    grub = any(code.kind.startswith("GRUB") for code in (disk.table.boot_code if disk.table else ()))
    return kind_of(part) == "vfat" or (kind_of(part) in _EXTLINUX and not grub)


def _windows(disk: Disk, part: Partition, names: Mapping[int, Names]) -> Iterator[str]:
    """Yield what to do for Windows where its files are not on this disk, and so were not changed with the move: for a
    data partition only the drive letter can be lost, for others the start.
    """
    files = {file for one in names.values() for file in one.files}
    active = _is_active(part) or any(_is_active(one) and kind_of(one) == "ntfs" for one in disk.partitions)
    if (active or SYSTEM in files) and not files & set(STORES):
        yield (
            f"partition {part.number} may hold a Windows that starts by the MBR: its boot entries (BCD) name the disk's"
            " signature and the old start. If it does not start, start Windows' repair medium and type:"
            " bootrec /rebuildbcd, then bcdboot C:\\Windows /s C:"
        )
    elif SYSTEM not in files:
        where = "by the disk's signature and the partition's start"
        letter = "it may get another letter, which Disk Management changes back"
        yield f"partition {part.number}: Windows remembers drive letters {where}; {letter}"
    if any(part.extent.start in one.recovery for one in names.values()):
        again = "if reagentc /info in Windows says Disabled, type: reagentc /disable, then reagentc /enable"
        yield f"partition {part.number} has Windows' recovery environment, whose list names the old start; {again}"


def letters_taken(disk: Disk, names: Mapping[int, Names], found: Found | None) -> Iterator[str]:
    """Yield a warning for each letter that Windows remembers for a place where nothing begins, and soon something."""
    present = {part.extent.start for part in disk.partitions}
    coming = {found.after[number].start: number for number in found.order} if found else {}
    for letter in (each for one in names.values() for each in one.starts if "\\DosDevices\\" in each.what):
        if letter.start in coming.keys() - present:
            by = f"{letter.what} names its new start already, for a partition that is gone"
            yield f"partition {coming[letter.start]}: {by}; Windows may give it that letter"


def naming_reasons(disk: Disk, names: Mapping[int, Names], found: Found, shrunk: Shrinks) -> Iterator[Refusal]:
    """Yield why files that name a start cannot be changed with the move."""
    parts = {part.number: part for part in disk.partitions}
    windows = any(kind_of(parts[number]) in _OF_WINDOWS for number in found.order)
    for number, one in names.items():
        what = f"partition {number}"
        if one.unclear and windows:
            text = f"{what}: {one.unclear}; it may name a partition that moves"
            yield Refusal("content-damaged", what, text, REPAIR)
        if not (patches := named_patches(one, found.moved)):
            continue
        for file in one.dirty:
            text = f"{what}: {file} names a partition that moves, and has changes that are in its log only"
            yield Refusal("unclean", what, text, SHUT_DOWN, lasting=False)
        if number not in found.order:
            yield from content_reasons(disk, parts[number], f"partition {number}")
        if number in shrunk and any(patch.at + patch.length > shrunk[number].length for patch in patches):
            text = f"{what}: shrinking it would move a file that names a partition that moves"
            yield Refusal("no-room", what, text, "shrink it in Windows first: diskmgmt.msc", lasting=False)


def _is_active(part: Partition) -> bool:
    return any(flag in _ACTIVE for flag in part.flags)


def notes_on(disk: Disk, wish: Wanted, found: Found | None, shrunk: Shrinks, patched: Patched) -> Iterator[str]:
    """Yield the decisions and their reasons."""
    if found is None:
        return
    for number in sorted(found.order):
        yield from _where_to(wish, found, number)
    if not _same_order(disk, found):
        yield "the partitions lie in another order on the disk afterwards; their numbers stay"
    for change in found.chain:
        if change.record_before is None and change.record_after is None:
            more = format_size(change.after.length - change.before.length)
            yield f"the extended partition {change.number} grows by {more} into free space behind it"
    if found.chain:
        yield "the whole chain of EBRs is written anew; the numbers of the logical partitions stay"
    for part in disk.partitions:
        if one := shrunk.get(part.number):
            by = format_size(part.extent.length - one.length)
            yield f"partition {part.number}: its {one.kind} is shrunk by {by}, for nothing fits otherwise"
    yield from (each.note for each in patched.values() if each.note)
    yield from _about_windows(disk, wish, found)
    yield from _about_the_table(disk, found)


def _about_windows(disk: Disk, wish: Wanted, found: Found) -> Iterator[str]:
    if disk.table and disk.table.label is TableLabel.GPT:
        if any(kind_of(part) == "ntfs" for part in disk.partitions if part.number in found.order):
            yield "Windows finds the partitions of a GPT by their GUIDs: its boot entries and drive letters stay valid"
        return
    for number, one in wish.names.items():
        for prefix, words in (("BCD", "boot entries (BCD)"), ("MountedDevices", "drive letters (MountedDevices)")):
            count = sum(each.start in found.moved for each in one.starts if each.what.startswith(prefix))
            if count:
                named = f"Windows' {words} name starts that change, and follow them"
                yield f"partition {number}: {named}; values changed: {count}"


def _where_to(wish: Wanted, found: Found, number: int) -> Iterator[str]:
    start = found.after[number].start
    if number not in wish.must:
        yield f"partition {number} is on the grid and moves all the same: there is no room without"
    liked, *finer = wish.grids_of(number)
    if inside := wish.inside.get(number):
        yield f"partition {number} begins {format_size(inside)} before a boundary, so that the data inside are on it"
    if not liked.has(start):
        got = format_size(next(grid.size for grid in finer if grid.has(start)))
        room = f"no room on a boundary of {format_size(liked.size)}"
        yield f"partition {number}: {room}; {got} is the coarsest that fits and satisfies the disk"


def _same_order(disk: Disk, found: Found) -> bool:
    numbers = [part.number for part in disk.partitions if part.number in found.after]
    return sorted(numbers, key=lambda one: found.before[one]) == sorted(numbers, key=lambda one: found.after[one])


def _about_the_table(disk: Disk, found: Found) -> Iterator[str]:
    table = disk.table
    if table is None:
        return
    if any(fault.fault is Fault.GPT_BACKUP_MISPLACED for fault in table.faults):
        yield "the backup GPT stays where the primary one says, which is not the end of the disk"
    primary = [part for part in disk.partitions if part.role in (Role.PRIMARY, Role.EXTENDED)]
    first = min(min(part.extent.start, found.after[part.number].start) for part in primary)
    if table.label is TableLabel.DOS:
        gap = "GRUB in the MBR gap stays whole; PARTUUIDs (disk signature and number) stay"
        yield f"the {format_about(first)} before the first partition are not touched: {gap}"
    else:
        yield "PARTUUIDs, names, types and attributes stay: fstab, crypttab and boot loaders that go by them find them"
    if found.journal is not None and found.journal.file is None:
        size, start = format_about(found.journal.extent.length), format_size(found.journal.extent.start)
        yield f"the journal takes {size} of free space at {start} until all is done"
        if found.spots_only:
            yield "the journal is small: it holds only the sectors of signatures; more flushes are slower, and as safe"
