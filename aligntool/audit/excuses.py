"""Starts that do not matter, and starts that the table alone cannot tell.

In: a partition, and the disk it is on. Out: a reason in words, or nothing. Alone because each rule here turns an error
into a note or a question, and so needs a real disk that is in order and looks as if it were not.
"""

from aligntool.audit.cost import REQUEST
from aligntool.inventory import Disk, Partition, Role
from aligntool.units import KIB, MIB, Extent

_PREP = "a PReP boot partition: firmware reads it once at boot"
_BY_TYPE = {
    "21686148-6449-6E6F-744E-656564454649": "a BIOS boot partition: GRUB reads it once at boot and knows its sector",
    "83BD6B9D-7F41-11DC-BE0B-001560B84F0F": "a FreeBSD boot partition: its boot code is read once at boot",
    "9E1A2D38-C612-4316-AA26-8B49521E5A8B": _PREP,
    "0x41": _PREP,
    "0xee": "the entry that protects a GPT: no partition",
    "E3C9E316-0B5C-4DB8-817D-F92DF00215AE": "a Microsoft reserved partition: it holds no file system",
    "5808C8AA-7E8F-42E0-85D2-E1E90434CFB3": "the database of a Windows dynamic disk: written when volumes change",
    "6A945A3B-1DD2-11B2-99A6-080020736631": "a reserved partition of Solaris and ZFS: it holds no data",
}
EFI_SYSTEM = ("C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "0xef")
_EMPTY = ("0x00", "0x0", "")
_VOLUME_DESCRIPTORS = 32 * KIB  # where they begin in an image, ECMA-119 6.2.1
_LDM = "0x42"
_SMALLEST_VOLUME = (
    MIB  # Windows makes none smaller; an entry of 1985 sectors only keeps others out of the gap
)


def unwritten(partition: Partition, image: Extent | None) -> str:
    """Why the start of this partition does not matter; empty when it does. `image`: see `hybrid_image`."""
    if partition.role is Role.MAP:
        return "the partition table's own entry"
    if partition.extent.start == 0 and partition.type_code in _EMPTY:
        return "an empty entry that covers the whole medium, as hybrid ISO images have it"
    if image and image.contains(partition.extent):
        return "a part of the ISO image on this medium: nothing writes to it"
    if partition.type_code == _LDM and partition.extent.length < _SMALLEST_VOLUME:
        return "an entry that fills the gap before a Windows dynamic disk's first volume"
    if partition.extent.length < REQUEST:
        return "a placeholder: too small for one block of 4 KiB"
    if holds_data(partition):
        return ""  # the type alone is no evidence: vendors ship NTFS and FAT in partitions of such types
    return _BY_TYPE.get(partition.type_code, _BY_TYPE.get(partition.type_code.upper(), ""))


def holds_data(partition: Partition) -> bool:
    """Return whether a file system or another layer was recognised, read here or reported by udev."""
    kinds = {layer.kind for layer in partition.content}
    if not partition.content_read and partition.content_hint:
        kinds.add(partition.content_hint)
    return bool(kinds - {"ldm"})  # the database is what a partition of its type is for


def untold(partition: Partition) -> str:
    """Why the data of this partition may begin elsewhere than its entry says; empty when they do not."""
    if partition.type_code == _LDM:
        return (
            "the LDM database of this Windows dynamic disk says where its volumes start; ldmtool shows them"
        )
    return ""


def other_sectors(disk: Disk) -> str:
    """Return why the starts may be other bytes than those that were computed; empty where the sector size is known."""
    if disk.table is None or not disk.table.sector_size_assumed:
        return ""
    return "the table may count in sectors of 512 or of 4096 bytes, and nothing on the disk shows which"


def hybrid_image(disk: Disk) -> Extent | None:
    """The ISO image that was written over the medium, table and all (isohybrid, xorriso).

    An ISO 9660 that is left over from earlier lies below a newer table: then no partition begins where the image does.
    """
    seen = next((layer for layer in disk.content if layer.kind == "iso9660"), None)
    whole = seen is not None or disk.content_hint == "iso9660"
    covering = [part for part in disk.partitions if _covers_the_image(part, whole=whole)]
    if not covering:
        return None
    end = max(part.extent.end for part in covering)
    end = max(end, seen.extent.end) if seen else end
    for part in sorted(disk.partitions, key=lambda part: part.extent.start):
        if part.extent.start == end and _is_appended(part):  # as `xorriso -append_partition` puts it
            end = part.extent.end
    return Extent(0, end)


def _covers_the_image(partition: Partition, *, whole: bool) -> bool:
    """From the first sector on, or from where xorriso's second volume descriptor makes it mountable as a partition."""
    if partition.extent.start == 0:
        return whole or partition.type_code == "0x00"
    if partition.extent.start != _VOLUME_DESCRIPTORS:
        return False
    if partition.content:
        return any(layer.kind == "iso9660" for layer in partition.content)
    return partition.content_hint == "iso9660" or (partition.name or "").startswith("ISO9660")


def _is_appended(partition: Partition) -> bool:
    return partition.type_code in EFI_SYSTEM or partition.extent.length < MIB
