"""Fields in boot sectors that say where their partition begins, and what they will have to say.

In: a partition before and after. Out: patches, and sentences where a field is left alone. Alone because it is a table
of byte positions.

NTFS and FAT: "hidden sectors", 4 bytes at 0x1C, in the boot sector and in its copy (FAT: fatgen103; NTFS: ntfs3/ntfs.h,
struct NTFS_BOOT). exFAT: "PartitionOffset", 8 bytes at 0x40, in both boot regions, each of which ends with a sector of
checksums (exFAT specification 3.1 and 3.4). Linux reads none of them; boot code of DOS and Windows does.
"""

from dataclasses import dataclass

from aligntool.inventory import Layer, Partition, Role
from aligntool.plan import Patch
from aligntool.units import Extent

_HIDDEN = 0x1C
_EXFAT_OFFSET = 0x40
_CHECKSUM = 11  # the sector of checksums in an exFAT boot region
_REGION = 12  # sectors of one region
_NAMES = {"ntfs": "NTFS hidden sectors", "vfat": "FAT hidden sectors"}
_LARGEST = {"ntfs": 0xFFFFFFFF, "vfat": 0xFFFFFFFF, "exfat": 0xFFFFFFFFFFFFFFFF}


@dataclass(frozen=True, slots=True)
class Patching:
    patches: tuple[Patch, ...] = ()
    attention: str = ""
    note: str = ""


def patching(partition: Partition, after: Extent, record_after: int | None, sector_size: int) -> Patching:
    """`record_after`: the byte of a logical partition's EBR when all is done."""
    layer = next((one for one in partition.content if one.kind in _LARGEST), None)
    if layer is None or layer.hidden_sectors is None:
        return Patching()
    said, number = layer.hidden_sectors, partition.number
    if said == 0:
        return Patching(
            note=f"partition {number}: its boot sector names no start of the partition; that stays so"
        )
    new = _new_value(partition, said, after, record_after, sector_size)
    if new is None:
        return Patching(
            attention=f"partition {number}: its boot sector says that {said} sectors lie before it, which is not where"
            " it starts; that field is left as it is, and a DOS or Windows that boots from it may not like it"
        )
    note = ""
    if new > _LARGEST[layer.kind]:
        new = 0
        note = f"partition {number}: its new start does not fit into the boot sector's field, which becomes 0"
    return Patching(_patches(layer, said, new) if new != said else (), note=note)


def needed_for(patch: Patch) -> Extent:
    """Return what of the partition must be held to make this patch: of a checksum everything that it is made from."""
    if patch.before is None:
        return Extent(patch.at - _CHECKSUM * patch.length, (_CHECKSUM + 1) * patch.length)
    return Extent(patch.at, patch.length)


def _new_value(
    partition: Partition, said: int, after: Extent, record_after: int | None, sector_size: int
) -> int | None:
    if said == partition.extent.start // sector_size:
        return after.start // sector_size
    if partition.role is not Role.LOGICAL or partition.record_at is None or record_after is None:
        return None
    # DOS and Windows count a logical partition's from its EBR.
    if said != (partition.extent.start - partition.record_at) // sector_size:
        return None
    return (after.start - record_after) // sector_size


def _patches(layer: Layer, before: int, after: int) -> tuple[Patch, ...]:
    if layer.kind == "exfat":
        return _exfat(layer, before, after)
    boots = (0,) if layer.backup_boot is None else (0, layer.backup_boot)
    name = _NAMES[layer.kind]
    return tuple(
        Patch(name if boot == 0 else f"{name} (copy)", boot + _HIDDEN, 4, before, after) for boot in boots
    )


def _exfat(layer: Layer, before: int, after: int) -> tuple[Patch, ...]:
    """The copy's place tells the size of the volume's sectors; without it no checksum could be placed."""
    if not layer.backup_boot:
        return ()
    sector = layer.backup_boot // _REGION
    return tuple(
        patch
        for region, copy in ((0, ""), (layer.backup_boot, " (copy)"))
        for patch in (
            Patch(f"exFAT partition offset{copy}", region + _EXFAT_OFFSET, 8, before, after),
            Patch(f"exFAT boot checksum{copy}", region + _CHECKSUM * sector, sector),
        )
    )
