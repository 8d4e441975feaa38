"""Why a disk or a partition is not touched: every reason, with evidence and the next thing to type.

In: a disk and what else is known of the machine. Out: reasons. Alone because it is a list that is read when somebody
asks "why not?", and because a reason that is forgotten here costs somebody's data.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from aligntool.audit import Judged
from aligntool.audit.words import shell_word
from aligntool.inventory import Disk, DiskKind, Fault, Inventory, Partition, Role, TableLabel
from aligntool.realign.chain import irregular
from aligntool.realign.row import containers, logicals_of

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
    return (*_of_the_disk(disk), *_of_the_table(disk), *_in_use(disk, machine))


def _of_the_disk(disk: Disk) -> Iterator[Reason]:
    path = shell_word(disk.path)
    audit = f"aligntool audit {path}"
    if disk.size is None:
        yield Reason(f"the size of {disk.name} is not known", f"sudo {audit}", lasting=False)
    if not disk.table_read:
        text = f"the partition table of {disk.name} was not read"
        yield Reason(text, f"sudo aligntool plan realign {path}", lasting=False)
    if disk.kind is DiskKind.DM:
        below = f": it lies on {', '.join(disk.slaves)}" if disk.slaves else ""
        yield Reason(f"{disk.name} is made by the device mapper{below}", f"aligntool audit {path}")
    if disk.kind is DiskKind.DASD:
        yield Reason(f"{disk.name} is a DASD: its partitions lie on tracks, not on bytes", f"fdasd -p {path}")
    if disk.read_only:
        yield Reason(f"{disk.name} is read-only", f"blockdev --setrw {path}", lasting=False)
    if disk.failing:
        yield Reason(f"{disk.name} may be failing: {disk.failing}", f"smartctl -a {path}")
    for layer in disk.content:
        if layer.kind.endswith("_raid_member") or layer.kind == "mpath_member":
            yield Reason(f"{disk.name} as a whole is a {layer.kind}: the table belongs to the array", audit)


def _of_the_table(disk: Disk) -> Iterator[Reason]:
    path, table = shell_word(disk.path), disk.table
    if table is None:
        return
    if table.label not in MOVED_LABELS:
        yield Reason(f"{disk.name} has a table of kind {table.label}; only dos and gpt are rewritten",
                     f"aligntool audit {path}")  # fmt: skip
        return
    if table.hybrid or any(fault.fault is Fault.HYBRID_MBR for fault in table.faults):
        text = f"{disk.name} has a hybrid MBR: two tables name the same partitions, and systems believe different ones"
        yield Reason(text, "aligntool explain AT307")
    for fault in table.faults:
        if fault.fault not in _TOLERATED:
            hint = f"sgdisk -v {path}" if fault.fault in _GPT_FAULTS else f"sfdisk --verify {path}"
            yield Reason(f"the partition table is not in order: {fault.detail}", hint)
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
        place = _of_the_place(disk, part, nested)
        found[part.number] = (*place, *_of_the_content(disk, part), *in_chain)
    return found


def _of_the_chain(disk: Disk, part: Partition) -> Iterator[Reason]:
    for container in containers(disk):
        chain = logicals_of(disk, container)
        why = irregular(container, chain) if part in chain else ""
        if why:
            text = f"partition {part.number} cannot be moved: {why}"
            yield Reason(text, f"sfdisk --dump {shell_word(disk.path)}")


def _of_the_place(disk: Disk, part: Partition, nested: Sequence[Partition]) -> Iterator[Reason]:
    audit = f"aligntool audit --map {shell_word(disk.path)}"
    if part.role is Role.NESTED:
        yield Reason(f"partition {part.number} lies in a label of its own inside another partition", audit)
        return
    inside = [one.number for one in nested if part.extent.contains(one.extent)]
    if inside:
        numbers = ", ".join(str(number) for number in inside)
        yield Reason(f"partition {part.number} has a label of its own inside, which counts from the start of the disk"
                     f" (partitions {numbers})", audit)  # fmt: skip


def _of_the_content(disk: Disk, part: Partition) -> Iterator[Reason]:
    path, what = shell_word(disk.path), f"partition {part.number}"
    node = f"/dev/{part.node}" if part.node else path
    if not part.content_read:
        text = f"what lies on {what} could not be read"
        yield Reason(text, f"sudo aligntool plan realign {path}", lasting=False)
    if len(part.content) > 1:
        kinds = " and ".join(layer.kind for layer in part.content)
        yield Reason(f"{what} is ambiguous: {kinds} are both there", f"wipefs --no-act {node}")
        return
    for layer in part.content:
        if layer.kind == "BitLocker":
            yield Reason(f"{what} is encrypted by BitLocker: its inner boot sector names its place and cannot be"
                         " changed from outside", "decrypt it in Windows: manage-bde -off C:")  # fmt: skip
        if layer.kind == "swsuspend":
            yield Reason(f"{what} holds the image of a suspended system",
                         "start that system and shut it down, or give the image up: mkswap", lasting=False)  # fmt: skip
        for problem in layer.problems:
            if not problem.startswith(_HARMLESS):
                yield Reason(f"{what}: {problem}", _checker(layer.kind, node))
        if not layer.problems and (layer.claims_size or 0) > part.extent.length:
            yield Reason(f"{what} has {part.extent.length} bytes, its {layer.kind} claims {layer.claims_size}",
                         _checker(layer.kind, node))  # fmt: skip
        if layer.unclean:
            yield Reason(f"{what}: {layer.unclean}", _cleaner(layer.kind, node), lasting=False)


_HARMLESS = "a FAT32 of "  # few clusters: some systems take it for a FAT16, wherever it lies


def _checker(kind: str, node: str) -> str:
    """The command that looks and writes nothing."""
    match kind:
        case "ext2" | "ext3" | "ext4":
            return f"e2fsck -fn {node}"
        case "xfs":
            return f"xfs_repair -n {node}"
        case "btrfs":
            return f"btrfs check --readonly {node}"
        case "ntfs":
            return f"ntfsfix --no-action {node}"
        case "vfat":
            return f"fsck.fat -n {node}"
        case "exfat":
            return f"fsck.exfat -n {node}"
        case "f2fs":
            return f"fsck.f2fs --dry-run {node}"
        case "linux_raid_member":
            return f"mdadm --examine {node}"
        case "crypto_LUKS":
            return f"cryptsetup luksDump {node}"
        case _:
            return f"blkid -p {node}"


def _cleaner(kind: str, node: str) -> str:
    """The command, or the deed, after which it is clean."""
    match kind:
        case "ext2" | "ext3" | "ext4":
            return f"e2fsck -f {node}"
        case "xfs":
            return f"mount {node} /mnt && umount /mnt"
        case "ntfs":
            return "start Windows and shut it down with: shutdown /s /f /t 0"
        case "vfat":
            return f"fsck.fat -a {node}"
        case "exfat":
            return f"fsck.exfat -y {node}"
        case "swap":
            return "start the suspended system and shut it down, or give its image up: mkswap"
        case _:
            return f"mount {node} /mnt && umount /mnt"
