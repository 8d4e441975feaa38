"""Disks that count on where their partitions lie: boot media, boards whose boot ROM reads fixed places, disklabels.

In: a disk. Out: sentences that say why it, or one of its partitions, is not moved. Alone because it is a list of facts
about other people's boot programs, each with its source; docs/boot-layouts.md has the whole table.
"""

from collections.abc import Iterator

from aligntool.inventory import BootCode, Disk, Partition, Role
from aligntool.units import MIB

BOOT_LOADERS = 16 * MIB  # Rockchip's U-Boot, the largest known, ends there
_SECTOR_0 = frozenset({"GRUB", "GRUB Legacy", "LILO", "Ventoy"})  # no boot ROM's
_VTOYEFI = 32 * MIB  # VENTOY_PART_SIZE
_ISO = "iso9660"
_DISKLABEL = "may hold a BSD disklabel, whose entries count from the start of the disk"
_OWN_LABEL = {
    "0xa5": _DISKLABEL,  # FreeBSD, and NetBSD before 1.3.3
    "0xa6": _DISKLABEL,  # OpenBSD
    "0xa9": _DISKLABEL,  # NetBSD
    "0x63": "may hold slices of UnixWare, which count from the start of the disk",
    "516E7CB4-6ECF-11D6-8FF8-00022D09712B": _DISKLABEL,  # FreeBSD's container, gpart(8)
    "824CC7A0-36A8-11E3-890A-952519AD3F61": _DISKLABEL,  # OpenBSD
}
_BEHIND_A_LABEL = frozenset({"ufs", "zfs_member"})  # these leave the sectors of a label free


def boot_rom_code(disk: Disk) -> tuple[BootCode, ...]:
    """Return what a boot ROM finds by its place; the boot programs of a PC's sector 0 are not among it."""
    found = disk.table.boot_code if disk.table else ()
    return tuple(code for code in found if code.kind not in _SECTOR_0 and not code.encrypts)


def whole_layout(disk: Disk) -> Iterator[str]:
    """Yield why no partition of the disk can be moved."""
    if _is_ventoy(disk):
        yield f"{disk.name} is a Ventoy medium: its second partition must directly follow the first"
    if any(layer.kind == _ISO for layer in disk.content):
        yield (
            f"{disk.name} holds an ISO 9660 image from its first byte (isohybrid): its partitions are places in the"
            " image, and what no partition covers may be a part of it"
        )


def bound_to_its_place(disk: Disk, part: Partition) -> Iterator[str]:
    """Yield why this partition cannot be moved, or moved by changing nothing but its entry."""
    why = _OWN_LABEL.get(part.type_code) or _OWN_LABEL.get(part.type_code.upper())
    if why and part.role is not Role.NESTED and {layer.kind for layer in part.content} <= _BEHIND_A_LABEL:
        yield f"partition {part.number} {why}"
    for code in disk.table.boot_code if disk.table else ():
        if code.encrypts and not part.content:
            yield (
                f"partition {part.number} may be encrypted by {code.kind}, which counts in sectors from the start of"
                " the disk"
            )
    for code in boot_rom_code(disk):
        begins_there = part.extent.start <= code.at < part.extent.end
        if begins_there or (part.extent.start < BOOT_LOADERS and not part.content):
            yield (
                f"partition {part.number} may hold a boot program that is read from fixed sectors: {code.kind} at byte"
                f" {code.at}"
            )
            return


def _is_ventoy(disk: Disk) -> bool:
    """By the marks that Ventoy itself asks for at boot: the label, or its code in sector 0 and the place and length of
    the second partition (grub-core/ventoy/ventoy_cmd.c, ventoy_check_official_device).
    """
    if any(layer.label == "VTOYEFI" for part in disk.partitions for layer in part.content):
        return True
    parts = {part.number: part.extent for part in disk.partitions}
    marked = disk.table is not None and any(code.kind == "Ventoy" for code in disk.table.boot_code)
    return marked and {1, 2} <= set(parts) and parts[2].start == parts[1].end and parts[2].length == _VTOYEFI
