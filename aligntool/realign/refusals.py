"""Every reason why a disk or a partition is not moved."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from aligntool.audit.report import Judged
from aligntool.audit.wording import as_root, layer_name, next_command, next_look, shell_word, where
from aligntool.change import LayoutGoal, PartWish
from aligntool.errors import Objection, refuse
from aligntool.formats.part_types import ROLES, role_list
from aligntool.inventory import Disk, DiskKind, Fault, Inventory, Layer, Partition, Role, TableLabel
from aligntool.realign.placing import bound_to_its_place, containers, logicals_of, whole_layout
from aligntool.realign.search import irregular
from aligntool.units import format_about, format_size

# Why a disk gets no new table: because of what is on it, or because of what is wanted.
#
# These checks stand between a typing error and lost data.

TABLE_NAMES = {"gpt": "GPT", "dos": "MBR"}
MOST_ENTRIES = {"gpt": 128, "dos": 4}  # no logical partitions: who needs more than four takes a GPT
LONGEST_NAME = 36  # UTF-16 code units, UEFI 5.3.3


def refuse_impossible(disk: Disk, goal: LayoutGoal) -> None:
    """Raises Refused for a disk that must not get a table, and for a goal that no disk could satisfy."""
    reasons = [*_about_disk(disk, wipe=goal.wipe), *_about_goal(disk, goal)]
    for number, part in enumerate(goal.parts, 1):
        reasons += [(f"partition {number}: {why}", hint) for why, hint in _about_part(part, goal.label)]
    refuse(reasons)


def refuse_unfit(disk: Disk, *, wipe: bool) -> None:
    """The same for the disk alone, asked once more just before the first write."""
    refuse(_about_disk(disk, wipe=wipe))


def holdings(disk: Disk) -> tuple[str, ...]:
    """What is on the disk, a phrase each: "partition 2, ext4 "root", 20GiB"."""
    found = [f"partition {part.number}, {_content(part)}" for part in disk.partitions]
    found += [f"{_layer(layer)} on the whole disk" for layer in disk.content]
    if disk.content_hint and not disk.content:
        found.append(f"{disk.content_hint} on the whole disk")
    if disk.table and not disk.partitions:
        found.append(f"a partition table ({disk.table.label}) without partitions")
    if disk.table is None:
        found += [f"what is left of a GPT, its {copy.name} copy at byte {copy.at}" for copy in disk.gpt_headers]
    return tuple(found)


def _content(part: Partition) -> str:
    layers = ", ".join(_layer(layer) for layer in part.content)
    return f"{layers or part.content_hint or part.type_name or 'no known content'}, {format_about(part.extent.length)}"


def _layer(layer: Layer) -> str:
    return f'{layer_name(layer)} "{layer.label}"' if layer.label else layer_name(layer)


def _about_disk(disk: Disk, *, wipe: bool) -> Iterator[Objection]:
    if not disk.size:
        yield f"{disk.name}: size unknown", ""
    if disk.read_only:
        yield f"{disk.name} is read-only", ""
    if disk.kind is DiskKind.DASD:
        yield f"{disk.name} is a DASD, whose tables are made by its own tool", "fdasd"
    yield from _about_use(disk)
    if not disk.table_read or not disk.content_read:
        yield (f"{disk.name}: content not readable, so it may not be empty", next_command(disk, "audit"))
    elif not wipe and (held := holdings(disk)):
        yield from ((f"{disk.name} is not empty: {each}", _way_on(disk)) for each in held)


def _way_on(disk: Disk) -> str:
    """Return what keeps the content. A hint is pasted without a second thought: --wipe is named only for a disk on
    which nothing but an empty table was recognised.
    """
    if disk.partitions:
        return next_command(disk, "plan realign")
    if disk.content or disk.content_hint or disk.gpt_headers:
        return next_command(disk, "audit")
    return "--wipe overwrites the empty table"


def _about_use(disk: Disk) -> Iterator[Objection]:
    uses: list[tuple[Partition | None, tuple[str, ...], tuple[str, ...]]] = [
        (None, disk.mounted_at, disk.holders),
        *((part, part.mounted_at, part.holders) for part in disk.partitions),
    ]
    for part, places, holders in uses:
        for place in places:
            hint = (
                f"sudo swapoff /dev/{part.node if part else disk.name}"
                if place == "[SWAP]"
                else f"sudo umount {shell_word(place)}"
            )
            yield f"{where(disk, part)} is mounted at {place}", hint
        for holder in holders:
            yield f"{where(disk, part)} is a part of {holder}, which is running", f"aligntool audit {holder}"


def _about_goal(disk: Disk, goal: LayoutGoal) -> Iterator[Objection]:
    if goal.label not in TABLE_NAMES:
        yield f"{goal.label!r} is not a table that is made here", "--label gpt, or --label dos for an MBR"
        return
    if not goal.parts:
        yield "a layout needs partitions", "--part 512MiB:esp --part rest:linux, or --recipe NAME"
    if len(goal.parts) > (most := MOST_ENTRIES[goal.label]):
        yield f"{len(goal.parts)} partitions are more than the {most} of this table", "--label gpt"
    if sum(part.size is None for part in goal.parts) > 1:
        yield "only one partition can take the rest", ""
    sector_size = disk.limits.logical_block_size or disk.sector_size
    if goal.grain <= 0 or goal.grain % sector_size:
        yield (
            f"a grain of {format_size(goal.grain)} is not a multiple of the {sector_size}-byte sectors",
            "--grain 1MiB",
        )
    if goal.spare_end < 0:
        yield "the space left free cannot be negative", ""


def _about_part(part: PartWish, label: str) -> Iterator[Objection]:
    role = ROLES.get(part.role)
    if role is None:
        yield f"{part.role!r} is not a role", role_list()
    elif label == "dos" and role.mbr is None:
        yield f"an MBR has no type for {role.title}", "leave it out, or --label gpt"
    if part.size is not None and part.size <= 0:
        yield "a partition needs a size", ""
    if len(part.name.encode("utf-16-le", "surrogatepass")) > 2 * LONGEST_NAME:
        yield f"its name is longer than {LONGEST_NAME} characters", ""
    if not part.name.isprintable():
        yield "its name has characters that cannot be printed", ""


# Why a disk or a partition is not touched: every reason, with evidence and the next thing to type.
#
# A reason that is missing here costs data.

MOVED_LABELS = (TableLabel.DOS, TableLabel.GPT)
# The table is whole all the same: its backup stays where the primary says, and the size in the 0xEE entry is no place.
_TOLERATED = (Fault.GPT_BACKUP_MISPLACED, Fault.PROTECTIVE_MBR, Fault.HYBRID_MBR)
_GPT_FAULTS = (Fault.GPT_PRIMARY_DAMAGED, Fault.GPT_BACKUP_DAMAGED, Fault.GPT_COPIES_DIFFER)
_SWAP = "[SWAP]"


@dataclass(frozen=True, slots=True)
class Reason:
    text: str
    hint: str
    lasting: bool = True  # False: doing what the hint says takes it away


def disk_reasons(judged: Judged, machine: Inventory | None) -> tuple[Reason, ...]:
    """What stands against writing to this disk at all."""
    disk = judged.disk
    return (*_of_the_disk(disk), *_of_the_table(disk), *_of_boot_media(disk), *_in_use(disk, machine))


def _of_the_disk(disk: Disk) -> Iterator[Reason]:
    path = shell_word(disk.path)
    audit = next_command(disk, "audit")
    if disk.size is None:
        yield Reason(f"the size of {disk.name} is not known", audit, lasting=False)
    if not disk.table_read:
        text = f"the partition table of {disk.name} was not read"
        yield Reason(text, next_command(disk, "plan realign"), lasting=False)
    if disk.kind is DiskKind.DM:
        below = f": it lies on {', '.join(disk.slaves)}" if disk.slaves else ""
        yield Reason(f"{disk.name} is made by the device mapper{below}", audit)
    if disk.kind is DiskKind.DASD:
        tracks = f"{disk.name} is a DASD: its partitions lie on tracks, not on bytes"
        yield Reason(tracks, as_root(disk, f"fdasd -p {path}"))
    if disk.read_only:
        writable = "chmod u+w" if disk.kind is DiskKind.IMAGE else "sudo blockdev --setrw"
        yield Reason(f"{disk.name} is read-only", f"{writable} {path}", lasting=False)
    if disk.failing:
        yield Reason(f"{disk.name} may be failing: {disk.failing}", as_root(disk, f"smartctl -a {path}"))
    for layer in disk.content:
        if layer.kind.endswith("_raid_member") or layer.kind == "mpath_member":
            yield Reason(f"{disk.name} as a whole is a {layer.kind}: the table belongs to the array", audit)


def _of_boot_media(disk: Disk) -> Iterator[Reason]:
    for text in whole_layout(disk):
        yield Reason(text, next_look(disk))


def _of_the_table(disk: Disk) -> Iterator[Reason]:
    path, table = shell_word(disk.path), disk.table
    if table is None:
        return
    if table.label not in MOVED_LABELS:
        yield Reason(f"{disk.name} has a table of kind {table.label}; only dos and gpt are rewritten",
                     next_command(disk, "audit"))  # fmt: skip
        return
    if table.hybrid or any(fault.fault is Fault.HYBRID_MBR for fault in table.faults):
        text = f"{disk.name} has a hybrid MBR: two tables name the same partitions, and systems believe different ones"
        yield Reason(text, "aligntool explain AT307")
    for fault in table.faults:
        if fault.fault not in _TOLERATED:
            hint = f"sgdisk -v {path}" if fault.fault in _GPT_FAULTS else f"sfdisk --verify {path}"
            yield Reason(f"the partition table is not in order: {fault.detail}", as_root(disk, hint))
    yield from _kernel_differs(disk)


def _kernel_differs(disk: Disk) -> Iterator[Reason]:
    """Then what is mounted according to the kernel may lie elsewhere than the table says."""
    kernel = dict(disk.kernel_partitions)
    for part in disk.partitions:
        seen = kernel.get(part.number, part.extent)
        if part.role is not Role.EXTENDED and seen != part.extent:
            text = f"partition {part.number}: the kernel has it at byte {seen.start}, the table at {part.extent.start}"
            yield Reason(text, f"sudo partprobe {shell_word(disk.path)}", lasting=False)


def _in_use(disk: Disk, machine: Inventory | None) -> Iterator[Reason]:
    """Of any partition: the disk is opened for ourselves alone, which the kernel grants only when nobody has it."""
    for place in disk.mounted_at:
        yield _mounted(disk.name, place, shell_word(disk.path))
    for holder in disk.holders:
        yield _held(disk.name, holder, machine)
    for part in disk.partitions:
        node = f"/dev/{part.node}" if part.node else f"partition {part.number}"
        for place in part.mounted_at:
            yield _mounted(f"partition {part.number}", place, node)
        for holder in part.holders:
            yield _held(f"partition {part.number}", holder, machine)


def _mounted(what: str, place: str, node: str) -> Reason:
    if place == _SWAP:
        return Reason(f"{what} is in use as swap", f"sudo swapoff {node}", lasting=False)
    if place == "/":
        return Reason(f"{what} is mounted at /: this system runs from it",
                      "start from another medium, a live system for one, and run it there", lasting=False)  # fmt: skip
    return Reason(f"{what} is mounted at {place}", f"sudo umount {shell_word(place)}", lasting=False)


def _held(what: str, holder: str, machine: Inventory | None) -> Reason:
    above = machine.disk(holder) if machine else None
    mapping = (above.mapping if above else None) or ""
    name = mapping.rpartition(" ")[2]
    hint = f"sudo dmsetup remove {holder}"
    if holder.startswith("md"):
        hint = f"sudo mdadm --stop /dev/{holder}"
    elif mapping.startswith("lvm"):
        hint = f"sudo vgchange -an {name.partition('/')[0]}"
    elif mapping.startswith("crypt"):
        hint = f"sudo cryptsetup close {name}"
    elif holder.startswith("bcache"):
        hint = f"echo 1 | sudo tee /sys/block/{holder}/bcache/stop"
    by = f"{holder} ({mapping})" if mapping else holder
    return Reason(f"{what} is held by {by}", hint, lasting=False)


def partition_reasons(disk: Disk, parts: Iterable[Partition]) -> dict[int, tuple[Reason, ...]]:
    """What stands against moving each of these partitions, by number."""
    nested = tuple(part for part in disk.partitions if part.role is Role.NESTED)
    found = {}
    for part in parts:
        in_chain = _of_the_chain(disk, part) if part.role is Role.LOGICAL else ()
        place = (*_of_the_place(disk, part, nested), *_of_boot_code(disk, part))
        found[part.number] = (*place, *_of_the_content(disk, part), *in_chain)
    return found


def _of_the_chain(disk: Disk, part: Partition) -> Iterator[Reason]:
    for container in containers(disk):
        chain = logicals_of(disk, container)
        why = irregular(container, chain) if part in chain else ""
        if why:
            text = f"partition {part.number} cannot be moved: {why}"
            yield Reason(text, as_root(disk, f"sfdisk --dump {shell_word(disk.path)}"))


def _of_the_place(disk: Disk, part: Partition, nested: Sequence[Partition]) -> Iterator[Reason]:
    audit = next_look(disk)
    if part.role is Role.NESTED:
        yield Reason(f"partition {part.number} lies in a label of its own inside another partition", audit)
        return
    inside = [one.number for one in nested if part.extent.contains(one.extent)]
    if inside:
        numbers = ", ".join(str(number) for number in inside)
        yield Reason(f"partition {part.number} has a label of its own inside, which counts from the start of the disk"
                     f" (partitions {numbers})", audit)  # fmt: skip


def _of_boot_code(disk: Disk, part: Partition) -> Iterator[Reason]:
    for text in bound_to_its_place(disk, part):
        yield Reason(text, next_look(disk))


def _of_the_content(disk: Disk, part: Partition) -> Iterator[Reason]:
    what = f"partition {part.number}"
    if not part.content_read:
        text = f"what lies on {what} could not be read"
        yield Reason(text, next_command(disk, "plan realign"), lasting=False)
    if len(part.content) > 1:
        kinds = " and ".join(layer.kind for layer in part.content)
        yield Reason(f"{what} is ambiguous: {kinds} are both there", _typed_on(disk, part, "wipefs --no-act"))
        return
    for layer in part.content:
        if layer.kind == "BitLocker":
            yield Reason(f"{what} is encrypted by BitLocker: its inner boot sector names its place and cannot be"
                         " changed from outside", "decrypt it in Windows: manage-bde -off C:")  # fmt: skip
        if layer.kind == "swsuspend":
            yield Reason(f"{what} holds the image of a suspended system",
                         "start that system and shut it down", lasting=False)  # fmt: skip
        for problem in layer.problems:
            if not problem.startswith(_HARMLESS):
                yield Reason(f"{what}: {problem}", _checker(disk, part, layer.kind))
        if not layer.problems and (layer.claims_size or 0) > part.extent.length:
            yield Reason(f"{what} has {part.extent.length} bytes, its {layer.kind} claims {layer.claims_size}",
                         _checker(disk, part, layer.kind))  # fmt: skip
        if layer.unclean:
            yield Reason(f"{what}: {layer.unclean}", _cleaner(disk, part, layer), lasting=False)


_SHARED = "at its old place (MMP)"  # the protection is taken off when no other machine has the disk
_HARMLESS = "a FAT32 of "  # few clusters: some systems take it for a FAT16, wherever it lies


_CHECKERS = {
    "ext2": "e2fsck -fn",
    "ext3": "e2fsck -fn",
    "ext4": "e2fsck -fn",
    "xfs": "xfs_repair -n",
    "btrfs": "btrfs check --readonly",
    "ntfs": "ntfsfix --no-action",
    "vfat": "fsck.fat -n",
    "exfat": "fsck.exfat -n",
    "f2fs": "fsck.f2fs --dry-run",
    "linux_raid_member": "mdadm --examine",
    "crypto_LUKS": "cryptsetup luksDump",
}
"""They look and write nothing."""

_CLEANERS = {
    "ext2": "e2fsck -f",
    "ext3": "e2fsck -f",
    "ext4": "e2fsck -f",
    "vfat": "fsck.fat -a",
    "exfat": "fsck.exfat -y",
}

_DEEDS = {
    "ntfs": "start Windows and shut it down with: shutdown /s /f /t 0",
    "swap": "start the suspended system and shut it down",
}
"""What only another system can clean."""


def _checker(disk: Disk, part: Partition, kind: str) -> str:
    return _typed_on(disk, part, _CHECKERS.get(kind, "blkid -p"))


def _cleaner(disk: Disk, part: Partition, layer: Layer) -> str:
    """The command, or the deed, after which it is clean."""
    kind = layer.kind
    if (layer.unclean or "").endswith(_SHARED):
        return _typed_on(disk, part, "tune2fs -O ^mmp")
    if kind in _DEEDS:
        return _DEEDS[kind]
    if kind in _CLEANERS:
        return _typed_on(disk, part, _CLEANERS[kind])
    return _typed_on(disk, part, "mount", " /mnt && sudo umount /mnt")


def _typed_on(disk: Disk, part: Partition, words: str, more: str = "") -> str:
    """A command on one partition, as it can be typed; where the kernel has no node for it, on its bytes."""
    if part.node:
        return f"sudo {words} /dev/{part.node}{more}"
    start, length = part.extent.start, part.extent.length
    if words.startswith("e2fsck"):  # it can be told an offset
        return as_root(disk, f"{words} {shell_word(f'{disk.path}?offset={start}')}")
    return (
        f"loop=$(sudo losetup -f --show -o {start} --sizelimit {length} {shell_word(disk.path)})"
        f' && sudo {words} "$loop"{more}; sudo losetup -d "$loop"'
    )
