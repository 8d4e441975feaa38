"""Decide which partitions must, may or cannot move, which file system is shrunk, and which warnings and notes
apply.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from aligntool.audit.layers import clusters_off, data_starts
from aligntool.audit.report import Answer, Code, GridKind, Judged, Verdict
from aligntool.audit.wording import audit_command, layer_name, next_command, past_words, shell_word
from aligntool.change import RealignGoal, Used
from aligntool.commands import ByHand, by_hand
from aligntool.contents.catalogue import kind_named
from aligntool.contents.kind import has_length
from aligntool.contents.luks import LUKS
from aligntool.contents.md import MD, RESERVED
from aligntool.contents.ntfs import SHUT_DOWN
from aligntool.contents.windows_names import BCD_STORES, SYSTEM_HIVE, StartNames
from aligntool.errors import Refusal
from aligntool.formats.part_types import EFI_SYSTEM
from aligntool.inventory import Disk, Fault, Layer, Partition, Role, TableLabel
from aligntool.mover.old_keys import attention_to_keys
from aligntool.realign.placing import (
    StartGrid,
    choices,
    kind_of,
    kind_or_hint,
    may_label_disk,
    on_grain,
    required_grid,
)
from aligntool.realign.refusals import content_reasons, partition_reasons
from aligntool.realign.search import FoundPlaces, Patching, file_patches
from aligntool.units import GIB, KIB, MIB, align_down, align_up, format_about, format_size, listed, off_by

# Which file system to shrink, and by how little, so that everything fits. Only shrinking changes more than
# positions.
#
# The last file system on the disk that can be shrunk is tried first, as the fewest bytes behind it have to
# move. ext2, ext3 and ext4 are shrunk by resize2fs, NTFS by ntfsresize, btrfs by `btrfs filesystem resize`.
# XFS cannot be shrunk (xfs_growfs(8)).

DELETE_FILES = "delete files on it, and plan again"
MAKE_ROOM = "delete files on it, or use --journal FILE on another disk, and plan again"
REPAIR = "in Windows: chkdsk /f, and compact /u if it is compressed"


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A partition whose file system is shrunk before the move."""

    kind: str
    length: int  # bytes of the partition afterwards


Uses = Mapping[int, Used]
Shrinks = Mapping[int, Shrunk]
Patched = Mapping[int, Patching]
Fits = Callable[[Shrinks], FoundPlaces | None]


def room_by_shrinking(
    disk: Disk, used: Uses, fits: Fits, *, settled: bool = False
) -> tuple[FoundPlaces, dict[int, Shrunk]] | None:
    """Return the places after shrinking the last file system that can make enough room, by as few MiB as
    possible. `settled`: see `shrinkable`.
    """
    for part in shrinkable(disk, settled=settled):
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
        shrunk = _shrunk(part, high * MIB)
        # shrunk, but not moved
        if found is not None and (fills(part) or has_length(part.content[0], shrunk.length)):
            return found, {part.number: shrunk}
    return None


def shrink_hint(disk: Disk, used: Uses, fits: Fits, *, shrink: bool) -> tuple[str, str]:
    """Return the end of a sentence and the next command; both empty if nothing would help. A file system that
    must not be changed now, for a reason that can be settled, helps as well; the command settles that first.
    """
    shorter = shorter_contents(disk)
    if shrink and shorter:
        return f"; {overwriting_text(shorter[-1])}", by_hand(ByHand.GROWING, "its own tool")
    if shrink:
        never = why_not_shrunk(disk)
        only = f": {never}" if never else ""
        whole = (
            f"; all of partition {number} counts as used: {use.why}"
            for number, use in used.items()
            if use.why
        )
        full = [part for part in shrinkable(disk) if fills(part) and part.number in used]
        room = room_by_shrinking(disk, {}, fits)  # as if no bytes there were known to be in use
        needed = room[1] if room else {}
        more = "".join(f"; {_room_left(part, used, needed.get(part.number))}" for part in full)
        return (
            f"; no file system here can be shrunk enough{only}{''.join(whole)}{more}",
            _delete_files(full) if full else "",
        )
    room = room_by_shrinking(disk, used, fits, settled=True)
    if room is None:
        return "", ""
    number, shrunk = next(iter(room[1].items()))
    by = next(part.extent.length for part in disk.partitions if part.number == number) - shrunk.length
    if number in used:
        text = f"; it all fits if the {shrunk.kind} on partition {number} is shrunk by {format_size(by)}"
    else:
        text = f"; it may all fit if the {shrunk.kind} on partition {number} has {format_size(by)} to spare"
    against = partition_reasons(disk, (part for part in disk.partitions if part.number == number))
    if against[number]:
        first = against[number][0]
        return f"{text}, {once_resolved(first)}", first.hint
    return text, next_command(disk, "plan realign", "--shrink")


def shorter_contents(disk: Disk) -> list[Partition]:
    """Return the partitions that are longer than the file system that could be shrunk there."""
    return [part for part in disk.partitions if kind_of(part).shrinkable and not fills(part)]


def why_not_shrunk(disk: Disk) -> str:
    """Return why partitions of the disk can never be shrunk, each reason once, or "" if all can."""
    parts = [part for part in disk.partitions if part.role is not Role.EXTENDED]
    against = partition_reasons(disk, parts)
    found: dict[str, list[int]] = {}
    for part in parts:
        kind = kind_or_hint(part)
        lasting = next((reason.text for reason in against[part.number] if reason.lasting), "")
        # what follows a semicolon is what to do instead
        why = kind.why_not_shrinkable.partition(";")[0]
        if not part.content and (kind.shrinkable or not part.content_hint):
            why = "unknown content"
        elif kind.shrinkable:
            why = lasting
        elif not why:
            why = f"no tool here shrinks {kind.short_title(part.content[0]) if part.content else kind.name}"
        if why:
            found.setdefault(why, []).append(part.number)
    return "; ".join(
        f"partition{'s' * (len(numbers) > 1)} {listed(numbers)}: {why}" for why, numbers in found.items()
    )


def once_resolved(reason: Refusal) -> str:
    return f"once this is resolved: {reason.text}"


def _delete_files(full: Collection[Partition]) -> str:
    where = partition_words([part.number for part in full])
    return f"delete files on {where}, or copy the disk to a larger one, and plan again"


def _room_left(part: Partition, used: Uses, needed: Shrunk | None) -> str:
    """Return how much is used, and how short the partition can and has to become. `needed`: the latter, if
    that would be enough.
    """
    use = used[part.number]
    found = f"{format_about(use.bytes)} of the {format_size(part.extent.length)}"
    text = f"the {kind_of(part).name} on partition {part.number} uses {found}"
    if use.least:
        text += f", its own tool leaves at least {format_size(use.least)}"
    if needed:
        least = _least_shrunk(part, used)
        text += f"; the partition has to become {format_size(needed.length)}, but "
        is_longer = least >= part.extent.length
        text += "cannot be made shorter" if is_longer else f"can only become {format_size(least)}"
    return text


def overwriting_text(part: Partition) -> str:
    """Return a sentence on a file system that is shorter than its partition."""
    rest = part.extent.length - (part.content[0].claims_size or 0)
    kind = kind_of(part).name
    return (
        f"the {kind} on partition {part.number} is {format_about(rest)} shorter than its partition, and"
        " shrinking would overwrite the bytes after it: first resize one of them to the length of the other"
    )


def attention_to_shrunk(shrunk: Shrinks) -> Iterator[str]:
    """Yield what happens after a shrink."""
    for number, shrink in sorted(shrunk.items()):
        then = kind_named(shrink.kind).after_shrink
        if then:
            yield f"partition {number}: {then}"


def shrinkable(disk: Disk, *, settled: bool = False) -> tuple[Partition, ...]:
    """Return the partitions that can be shrunk, from the end of the disk to its start. `settled`: as if every
    reason that can be settled were.
    """
    found = [part for part in disk.partitions if kind_of(part).shrinkable]
    against = partition_reasons(disk, found)
    found = [
        part
        for part in found
        if part.role in (Role.PRIMARY, Role.LOGICAL) and not _bars(against[part.number], settled=settled)
    ]
    return tuple(sorted(found, key=lambda part: -part.extent.start))


def _bars(reasons: Collection[Refusal], *, settled: bool) -> bool:
    return any(reason.lasting or not settled for reason in reasons)


def allowed(against: Mapping[int, Collection[Refusal]], *, settled: bool) -> Iterator[int]:
    """Yield the partitions with no reason against them. `settled`: see `shrinkable`."""
    return (number for number, reasons in against.items() if not _bars(reasons, settled=settled))


def fills(part: Partition) -> bool:
    """Return whether the file system takes its partition up to the last block. Otherwise its own tool would
    make it longer, over what lies behind it, where the partition is to keep more than the file system has.
    """
    layer = part.content[0]
    length = part.extent.length
    return not layer.claims_size or layer.claims_size > length or has_length(layer, length)


def most_shrinkable(part: Partition, used: Uses) -> int:
    """Return by how many bytes the partition can be shrunk, in whole MiB."""
    return align_down(part.extent.length - _least_shrunk(part, used), MIB)


def _least_shrunk(part: Partition, used: Uses) -> int:
    """Return the bytes that a partition keeps at least: an eighth of the used bytes and 1 MiB stay free, for
    tables and fragments; of a large one less, but always more than resize2fs demands: 500 of 32,768 blocks
    (resize2fs.c).

    It demands more of a small one, which `used` states. If the used bytes were not read, half of the length;
    the file system's own tool refuses if that is too much.
    """
    use = used.get(part.number, Used(part.number, part.extent.length // 2, "half of it"))
    stays = max(use.bytes + min(use.bytes // 8, GIB + use.bytes // 64) + MIB, use.least)
    return max(align_up(stays, MIB), kind_of(part).least_size)


def _try(part: Partition, by: int, fits: Fits) -> FoundPlaces | None:
    found = fits({part.number: _shrunk(part, by)})
    return found if found is not None and found.journal is not None else None


def _shrunk(part: Partition, by: int) -> Shrunk:
    return Shrunk(kind_of(part).name, part.extent.length - by)


# Which partitions must move, which may, and which stay, by the request, the verdicts and the exceptions;
# independent of the free space.


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions must move, may move and stay, and why."""

    start_grids: tuple[StartGrid, ...]  # best first
    must: dict[int, str]  # number -> why it moves
    may: list[int]  # on the grid, but may move to make room
    stays: dict[int, str]  # number -> why it stays
    reasons: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    names: Mapping[int, StartNames] = field(default_factory=dict)  # starts recorded in files on a partition
    # number -> bytes from its start to the data to be aligned
    inside: dict[int, int] = field(default_factory=dict)

    def grids_of(self, number: int) -> tuple[StartGrid, ...]:
        """Return the grids for the start of this partition that put its data on the grids of the disk."""
        return tuple(_shifted_down(grid, self.inside.get(number, 0)) for grid in self.start_grids)


def _shifted_down(grid: StartGrid, distance: int) -> StartGrid:
    return StartGrid(grid.size, (grid.phase - distance) % grid.size)


def _data_offset(selection: "Selection", judged: Judged, part: Partition, need: StartGrid) -> int:
    """Return the bytes from the start of a partition to the data of its outermost container, if the data must
    be on the grids instead of the start; 0 if that makes no difference or is impossible.
    """
    start = part.extent.start
    sector_size = judged.disk.sector_size
    offsets = [place - start for place in data_starts(part)]
    if not any(place % need.size for place in offsets):
        return 0
    name = layer_name(part.content[0])
    first = offsets[0]
    physical = max(
        (grid.size for grid in judged.grids if grid.kind is GridKind.PHYSICAL), default=sector_size
    )
    unit = physical if kind_named(part.content[0].kind).updates_superblock else sector_size
    if any((place - first) % need.size for place in offsets):
        apart = f"segments of {name} begin at different distances from a boundary of {format_size(need.size)}"
        selection.notes.append(
            f"partition {part.number}: {apart}; a move aligns its start, but not all of them"
        )
        selection.notes.extend(_pvmove_notes(part, need))
    elif first % unit:
        odd = (
            f"the data of {name} begins {format_size(first)} into it, which is not a multiple of"
            f" {format_size(unit)}"
        )
        selection.notes.append(f"partition {part.number}: {odd}: its start is aligned, not the data")
    else:
        return first
    return 0


LARGEST_SECTOR = 4 * KIB  # of LUKS2: cryptsetup(8), --sector-size


def small_sectors(
    judged: Judged, partitions: Collection[int]
) -> tuple[int, tuple[tuple[Partition, Layer], ...]]:
    """Return the preferred sector size of LUKS on this disk, and every LUKS volume on these partitions with
    smaller sectors. `partitions` empty: all of the disk.
    """
    sizes = (grid.size for grid in judged.grids if grid.kind is GridKind.PHYSICAL)
    size = min(max(sizes, default=judged.disk.sector_size), LARGEST_SECTOR)
    outermost = ((part, part.content[0]) for part in judged.disk.partitions if part.content)
    named = (pair for pair in outermost if pair[0].number in partitions or not partitions)
    return size, tuple(
        pair for pair in named if pair[1].kind == LUKS.name and (pair[1].data_unit or size) < size
    )


def _sector_notes(judged: Judged, goal: RealignGoal) -> Iterator[str]:
    """Yield a note on LUKS2 volumes with small sectors, which a move does not change, with the command that
    does.
    """
    size, small = small_sectors(judged, goal.partitions)
    found = [
        (part.number, layer.data_unit)
        for part, layer in small
        if layer.version == "LUKS2" and layer.data_unit and layer.data_start
    ]
    if found:
        numbers, units = zip(*found, strict=True)
        named = (f"-p {number}" for number in numbers if goal.partitions)
        larger = next_command(judged.disk, "plan realign", "--layers", *named)
        sectors = f"LUKS2 with {format_size(min(units))} sectors on a drive with {format_size(size)} sectors"
        yield f"{partition_words(numbers)}: {sectors}; to enlarge them afterwards: {larger}"


def partition_words(numbers: Collection[int]) -> str:
    return f"{'partition' if len(numbers) == 1 else 'partitions'} {listed(numbers)}"


def _pvmove_notes(part: Partition, need: StartGrid) -> list[str]:
    """Return a sentence on the volumes that stay misaligned wherever their partition is."""
    first = part.content[0].data_start or 0
    off = {
        segment.volume
        for segment in part.content[0].segments
        if not need.has(segment.extent.start - first + need.phase)
    }
    if not off:
        return []
    moving = by_hand(ByHand.VOLUMES, "pvmove", ", ".join(map(shell_word, sorted(off))))
    return [
        f"partition {part.number}: LVM can move extents smaller than the boundary to others of the group:"
        f" {moving}"
    ]


def select_partitions(judged: Judged, goal: RealignGoal) -> Selection:
    """Return which partitions must move, may move and stay. A partition off the grid moves; one on the grid
    stays unless the user names it or requires a grain.
    """
    disk = judged.disk
    need = required_grid(judged.grids, disk.sector_size)
    audit = audit_command(disk)
    if need is None:
        sizes = ", ".join(
            f"{grid.kind} {format_size(grid.size)} + {format_size(grid.phase)}" for grid in judged.grids
        )
        text = f"no offset is on all grids at once: {sizes}"
        return Selection((), {}, [], {}, [Refusal("grids-exclude", disk.name, text, audit)])
    selection = Selection(choices(need, goal.grain, only_grain=goal.grain_given), {}, [], {})
    selection.reasons.extend(_unknown_partitions(judged, goal))
    verdicts = judged.by_partition()
    for part in disk.partitions:
        verdict = verdicts.get(part.number)
        if part.role is Role.EXTENDED:
            selection.stays[part.number] = "a container of logical partitions needs no alignment"
        elif verdict is not None:
            inside = _data_offset(selection, judged, part, need)
            if inside:
                selection.inside[part.number] = inside
            _sort_partition(selection, part, verdict, goal, (need, on_grain(need, goal.grain)), audit)
    selection.notes.extend(_sector_notes(judged, goal))
    return selection


def off_words(verdict: Verdict) -> str:
    """Return text such as "3584B past a 4KiB boundary", for the most severe grid that the start misses."""
    worst = min(
        (check for check in verdict.checks if not check.on), key=lambda check: check.grid.severity.rank
    )
    return past_words(worst.off_by, worst.grid.size)


def _unknown_partitions(judged: Judged, goal: RealignGoal) -> Iterator[Refusal]:
    there = [part.number for part in judged.disk.partitions]
    for number in goal.partitions:
        if number not in there:
            numbers = ", ".join(map(str, there)) or "none"
            text = f"there is no partition {number} on {judged.disk.name}; there are {numbers}"
            yield Refusal("no-partition", f"partition {number}", text, audit_command(judged.disk))


_Grids = tuple[StartGrid, StartGrid]
"""The grid that the disk requires, and the grain on it."""


def _sort_partition(
    selection: Selection, part: Partition, verdict: Verdict, goal: RealignGoal, grids: _Grids, audit: str
) -> None:
    number = part.number
    named = part.number in goal.partitions
    what = f"partition {part.number}"
    chosen = named or not goal.partitions
    if not verdict.matters:
        selection.stays[number] = verdict.why
        if named:
            text = f"{what} is not moved: {verdict.why}"
            hint = f"name another partition; {number} stays"
            selection.reasons.append(Refusal("stays", what, text, hint))
    elif verdict.answer is Answer.UNKNOWN:
        selection.stays[number] = "unknown whether it is on the grid"
        if chosen:
            text = f"{what}: alignment cannot be judged: {verdict.why}"
            selection.reasons.append(Refusal("not-judged", what, text, audit))
    elif not chosen:
        off = verdict.answer is Answer.OFF
        selection.stays[number] = "not named" if off else "on the grid"
        if off:
            selection.notes.append(
                f"partition {number} is also {off_words(verdict)} but stays: it was not named"
            )
    else:
        _sort_by_start(selection, part, verdict, goal, grids)


def _sort_by_start(
    selection: Selection, part: Partition, verdict: Verdict, goal: RealignGoal, grids: _Grids
) -> None:
    number = part.number
    named = part.number in goal.partitions
    (need, grain) = grids
    inside = selection.inside.get(number, 0)
    past = off_by(part.extent.start + inside, grain.size, grain.phase)
    if verdict.answer is Answer.OFF:
        selection.must[number] = off_words(verdict)
    elif inside and (by := off_by(part.extent.start + inside, need.size, need.phase)):
        name = layer_name(part.content[0])
        selection.must[number] = f"data of {name} {past_words(by, need.size)}"
    elif part.extent.start < goal.least_start:
        selection.must[number] = f"begins before {format_size(goal.least_start)}"
    elif (named or goal.grain_given) and past:
        off = f"off the grain of {format_size(grain.size)} by {format_size(past)}"
        selection.must[number] = f"already aligned for the drive; {off}: moved as asked"
    else:
        selection.stays[number] = "on the grid"
        if named:
            selection.notes.append(f"partition {number} was named but is on the grid: it stays")
        elif not goal.partitions:
            selection.may.append(number)


# What the user must do after a move, mostly for boot loaders, and what was decided, in sentences.
#
# Sources: BCD and MountedDevices of Windows on an MBR disk contain the disk signature and a byte offset;
# firmware boot entries contain a HD() device path with partition number, start, size and GUID (UEFI
# 10.3.5.1); syslinux and LILO keep lists of sectors.

_ACTIVE = ("active", "boot")


def attention_to(
    disk: Disk,
    moving: Collection[int],
    patched: Patched,
    names: Mapping[int, StartNames],
    shrunk: Collection[int],
) -> Iterator[str]:
    """Yield what the user may have to do after the move. A shrink moves blocks of files, too."""
    with_windows = any(SYSTEM_HIVE in volume.files for volume in names.values())
    dos = disk.table is not None and disk.table.label is TableLabel.DOS
    yield from _boot_code_attention(disk, {*moving, *shrunk})
    for part in disk.partitions:
        for number in sorted({*moving, *shrunk} - {part.number}) if may_label_disk(part) else ():
            edit = by_hand(ByHand.BOOT_PROGRAMS, "disklabel")
            then = f"if it lists partition {number}, correct place and size there {edit}"
            yield f"the disklabel in partition {part.number} may list the whole disk: {then}"
        if dos and part.number in {*moving, *shrunk} and _is_active(part) and _may_start_from(disk, part):
            lists = (
                "syslinux, extlinux, LILO or GRUB4DOS start from it, their lists of sectors must be rewritten"
            )
            name = layer_name(part.content[0])
            again = by_hand(ByHand.BOOT_PROGRAMS, "extlinux or lilo")
            yield f"partition {part.number} is the active partition, with {name}: if {lists} {again}"
        if part.number not in moving:
            continue
        yield from attention_to_keys(f"partition {part.number}", part.content)
        if part.number in patched and patched[part.number].attention:
            yield patched[part.number].attention
        if part.type_code in EFI_SYSTEM:
            lost = (
                "firmware entries that name its start may no longer find it; `efibootmgr -v` shows them, and"
            )
            yield (
                f"partition {part.number} is the EFI system partition: {lost} \\EFI\\BOOT is found in any"
                " case"
            )
        kind = kind_of(part)
        if dos and (kind.holds_windows or (with_windows and _is_active(part) and kind.starts_windows)):
            yield from _windows_attention(disk, part, names)


def _boot_code_attention(disk: Disk, changing: Collection[int]) -> Iterator[str]:
    """Yield which boot code depends on an absolute sector that moves. GRUB's core image in the gap or in a
    BIOS boot partition does not move.
    """
    for code in disk.table.boot_code if disk.table else ():
        own = code.partition is not None
        where = f"the boot sector of partition {code.partition}" if own else "sector 0"
        if code.kind in ("LILO", "zipl", "Haiku Boot Manager") and changing:
            again = by_hand(ByHand.BOOT_PROGRAMS, code.kind)
            yield (
                f"{code.kind} in {where} keeps a list of absolute sectors: run it again from another system"
                f" {again}"
            )
        if code.kind == "syslinux" and code.partition in changing:
            how = by_hand(ByHand.BOOT_PROGRAMS, "extlinux")
            again = f"if it does not start, rewrite the list from another system {how}"
            yield f"{code.kind} in {where} keeps a list of sectors: {again}"
        changed = [
            part for part in disk.partitions if part.number in changing and part.role is not Role.EXTENDED
        ]
        for part in changed if code.kind.startswith("GRUB") else ():
            if part.extent.start <= code.at < part.extent.end:
                again = by_hand(ByHand.BOOT_PROGRAMS, "grub-install", "that partition" if own else "the disk")
                until = f"it does not start until GRUB is installed again from another system {again}"
                stage = f"reads its next stage from byte {code.at}, inside partition {part.number}"
                yield f"{code.kind} in {where} {stage}: {until}"


def _may_start_from(disk: Disk, part: Partition) -> bool:
    """Return whether a boot program that keeps a list of sectors may start from this partition: from FAT
    always; from Linux file systems unless the boot code in sector 0 is GRUB's, which does not start such a
    program; never if its own boot code is known.
    """
    codes = disk.table.boot_code if disk.table else ()
    grub = any(code.kind.startswith("GRUB") and code.partition is None for code in codes)
    known = any(code.partition == part.number for code in codes)
    kind = kind_of(part)
    return not known and (kind.starts_syslinux or (kind.starts_extlinux and not grub))


def _windows_attention(disk: Disk, part: Partition, names: Mapping[int, StartNames]) -> Iterator[str]:
    """Yield what to do for a Windows whose files are not on this disk and so are not changed with the move: a
    data partition can only lose its drive letter, another may no longer boot.
    """
    files = {file for volume in names.values() for file in volume.files}
    active = _is_active(part) or any(
        _is_active(other) and kind_of(other).holds_windows for other in disk.partitions
    )
    if (active or SYSTEM_HIVE in files) and not files & set(BCD_STORES):
        yield (
            f"partition {part.number}: a Windows that starts from the MBR may be there. Windows XP and older"
            " have no boot entries that name a start. From Vista on they (BCD) name the disk signature and"
            " the old start: if such a Windows does not start, start the Windows repair medium and run:"
            " bootrec /rebuildbcd, then bcdboot C:\\Windows /s C:"
        )
    elif SYSTEM_HIVE not in files:
        where = "by the disk signature and the start of the partition"
        letter = "it may get another letter, which can be changed back in Disk Management"
        yield f"partition {part.number}: Windows remembers drive letters {where}; {letter}"
    if any(part.extent.start in volume.recovery for volume in names.values()):
        again = "if reagentc /info in Windows reports Disabled, run: reagentc /disable, then reagentc /enable"
        yield (
            f"partition {part.number} has the Windows recovery environment, configured for the old start;"
            f" {again}"
        )


def attention_to_clusters(judged: Judged, starts: Mapping[int, int]) -> Iterator[str]:
    """Yield each file system whose clusters are off the physical sectors at these starts, by number."""
    for part in judged.disk.partitions:
        if part.number not in starts:
            continue
        now = [layer for layer, _ in clusters_off(judged, part, part.extent.start)]
        for layer, check in clusters_off(judged, part, starts[part.number]):
            stay = "stay" if layer in now else "will be"
            past = past_words(check.off_by, check.grid.size)
            yield (
                f"partition {part.number}: the clusters of its {layer_name(layer)} {stay} off the grid,"
                f" {past}: a move cannot align them, only a new file system: aligntool explain"
                f" {Code.CLUSTERS_OFF}"
            )


def letters_taken(disk: Disk, names: Mapping[int, StartNames], found: FoundPlaces | None) -> Iterator[str]:
    """Yield a warning for each drive letter that Windows remembers for an unused start where a partition will
    begin.
    """
    present = {part.extent.start for part in disk.partitions}
    new_numbers = {found.after[number].start: number for number in found.order} if found else {}
    for letter in (
        start for volume in names.values() for start in volume.starts if "\\DosDevices\\" in start.what
    ):
        if letter.start in new_numbers.keys() - present:
            by = f"{letter.what} already names its new start, for a partition that no longer exists"
            yield f"partition {new_numbers[letter.start]}: {by}; Windows may give it that letter"


def unpatchable_reasons(
    disk: Disk, names: Mapping[int, StartNames], found: FoundPlaces, shrunk: Shrinks
) -> Iterator[Refusal]:
    """Yield the reasons why files that name a start cannot be changed with the move."""
    parts = {part.number: part for part in disk.partitions}
    windows = any(kind_of(parts[number]).used_by_windows for number in found.order)
    for number, volume in names.items():
        what = f"partition {number}"
        if volume.unclear and windows:
            text = f"{what}: {volume.unclear}; it may name a partition that moves"
            yield Refusal("content-damaged", what, text, REPAIR)
        patches = file_patches(volume, found.moved)
        if not patches:
            continue
        for file in volume.dirty:
            text = f"{what}: {file} names a partition that moves, and has changes that are only in its log"
            yield Refusal("unclean", what, text, SHUT_DOWN, lasting=False)
        if number not in found.order:
            yield from content_reasons(disk, parts[number], f"partition {number}")
        if number in shrunk and any(patch.at + patch.length > shrunk[number].length for patch in patches):
            text = f"{what}: shrinking it would move a file that names a partition that moves"
            yield Refusal("no-room", what, text, "shrink it in Windows first: diskmgmt.msc", lasting=False)


def ambiguous_superblocks(disk: Disk, found: FoundPlaces) -> Iterator[Refusal]:
    """Refuse a place at which the md superblock of a partition would also be where that of the whole disk is:
    `mdadm --assemble` then finds two similar members, and starts the array with neither (Assemble.c,
    select_devices).
    """
    end = align_down(disk.size or 0, RESERVED)
    for part in (part for part in disk.partitions if part.number in found.order):
        place = found.after[part.number]
        kinds = {(layer.kind, (layer.version or "")[:2]) for layer in part.content}
        same = place.start % RESERVED == 0 and place.start + align_down(place.length, RESERVED) == end
        if same and (MD.name, "0.") in kinds:
            what = f"partition {part.number}"
            other = next_command(disk, "plan realign", "--grain 4KiB")
            text = f"{what}: at its new place, its md superblock would count for all of {disk.name}, too"
            yield Refusal("ambiguous", what, text, other)


def _is_active(part: Partition) -> bool:
    return any(flag in _ACTIVE for flag in part.flags)


def notes_on(
    disk: Disk, selection: Selection, found: FoundPlaces | None, shrunk: Shrinks, patched: Patched
) -> Iterator[str]:
    """Yield notes on the decisions and their reasons."""
    if found is None:
        return
    for number in sorted(found.order):
        yield from _placement_notes(selection, found, number)
    if not same_order(disk, found):
        yield "the order of the partitions on the disk changes; their numbers stay"
    for change in found.chain:
        if change.record_before is None and change.record_after is None:
            more = format_size(change.after.length - change.before.length)
            yield f"the extended partition {change.number} grows by {more} into free space after it"
    if found.chain:
        yield "the whole chain of EBRs is rewritten; the numbers of the logical partitions stay"
    for part in disk.partitions:
        shrink = shrunk.get(part.number)
        if shrink:
            by = format_size(part.extent.length - shrink.length)
            yield (
                f"partition {part.number}: its {shrink.kind} is shrunk by {by}, because nothing fits"
                " otherwise"
            )
    yield from (patching.note for patching in patched.values() if patching.note)
    yield from _windows_notes(disk, selection, found)
    yield from _table_notes(disk, found)


def _windows_notes(disk: Disk, selection: Selection, found: FoundPlaces) -> Iterator[str]:
    if disk.table and disk.table.label is TableLabel.GPT:
        if any(kind_of(part).holds_windows for part in disk.partitions if part.number in found.order):
            yield (
                "Windows finds the partitions of a GPT by their GUIDs: its boot entries and drive letters"
                " stay valid"
            )
        return
    for number, volume in selection.names.items():
        for prefix, words in (
            ("BCD", "boot entries (BCD)"),
            ("MountedDevices", "drive letters (MountedDevices)"),
        ):
            count = sum(
                named.start in found.moved for named in volume.starts if named.what.startswith(prefix)
            )
            if count:
                named = f"Windows {words} contain starts that change; they will be updated"
                yield f"partition {number}: {named}; values changed: {count}"


def _placement_notes(selection: Selection, found: FoundPlaces, number: int) -> Iterator[str]:
    start = found.after[number].start
    if number not in selection.must:
        yield f"partition {number} is on the grid but moves anyway, to make room"
    preferred, *finer = selection.grids_of(number)
    inside = selection.inside.get(number)
    if inside:
        yield (
            f"partition {number} begins {format_size(inside)} before a boundary, so that the data inside is"
            " aligned"
        )
    if not preferred.has(start):
        got = format_size(next(grid.size for grid in finer if grid.has(start)))
        room = f"no room on a boundary of {format_size(preferred.size)}"
        yield f"partition {number}: {room}; {got} is the coarsest that fits and satisfies the disk"


def same_order(disk: Disk, found: FoundPlaces) -> bool:
    numbers = [part.number for part in disk.partitions if part.number in found.after]
    before, after = (sorted(numbers, key=places.__getitem__) for places in (found.before, found.after))
    return before == after


def _table_notes(disk: Disk, found: FoundPlaces) -> Iterator[str]:
    table = disk.table
    if table is None:
        return
    if any(fault.fault is Fault.GPT_BACKUP_MISPLACED for fault in table.faults):
        yield "the backup GPT stays where the primary one states, which is not the end of the disk"
    primary = [part for part in disk.partitions if part.role in (Role.PRIMARY, Role.EXTENDED)]
    first = min(min(part.extent.start, found.after[part.number].start) for part in primary)
    if table.label is TableLabel.DOS:
        gap = "GRUB in the MBR gap stays intact; PARTUUIDs (disk signature and number) stay"
        yield f"the {format_about(first)} before the first partition is not touched: {gap}"
    else:
        yield (
            "PARTUUIDs, names, types and attributes stay: fstab, crypttab and boot loaders still find the"
            " partitions"
        )
    if found.journal is not None and found.journal.file is None:
        size = format_about(found.journal.extent.length)
        start = format_size(found.journal.extent.start)
        yield f"the journal takes {size} of free space at {start} until the change is complete"
        if found.signatures_only:
            yield (
                "the journal is small (signature sectors only): more frequent flushes are slower, but just as"
                " safe"
            )
