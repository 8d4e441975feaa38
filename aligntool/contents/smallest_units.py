"""Determine the smallest unit in which content is read and written: content cannot be used on larger sectors."""

from dataclasses import dataclass, replace

from aligntool.formats.numbers import be16, le16
from aligntool.formats.reader import Reader
from aligntool.inventory import Layer
from aligntool.units import MIB

_WHOLE_BLOCKS_ONLY = ("ext2", "ext3", "ext4", "btrfs", "swap")  # all their requests are whole blocks or pages
_XFS_SECTORS = (102, 194)  # struct xfs_dsb, xfs_format.h: sb_sectsize and sb_logsectsize
_BYTES_PER_SECTOR = 11  # of the boot sector of FAT and NTFS
_EXFAT_SHIFT = 108  # of the boot sector: the binary logarithm of bytes per sector
_LUKS_HEADER = 4 * MIB  # the longest
_LARGEST_SECTOR = 4096


@dataclass(frozen=True, slots=True)
class Unit:
    """The smallest unit of some content.

    `size` is in bytes; None: not known, or it varies. `words` describe the unit in a message, after a name. `exact`:
    the content works only on sectors of this size.
    """

    size: int | None
    words: str
    exact: bool = False

    def fits(self, sector: int) -> bool:
        """Return whether the content works on sectors of `sector` bytes."""
        if self.size is None or self.exact:
            return self.size == sector
        return self.size >= sector and self.size % sector == 0


NOT_READ = Unit(None, "could not be read")


def smallest_unit(reader: Reader, layer: Layer) -> Unit:
    """Return the unit of a layer that was found on the disk of `reader`. Raises OSError."""
    head = reader.read(layer.extent.start, 512)
    if layer.problems:
        return Unit(None, f"is damaged ({layer.problems[0]})")
    match layer.kind:
        case "xfs":
            sizes = [size for at in _XFS_SECTORS if (size := be16(head, at))]
            return _unit_of(min(sizes, default=None))
        case "ntfs" | "vfat":
            return replace(_unit_of(le16(head, _BYTES_PER_SECTOR)), exact=True)
        case "exfat":
            return replace(_unit_of(1 << min(int.from_bytes(head[_EXFAT_SHIFT : _EXFAT_SHIFT + 1]), 16)), exact=True)
        case "crypto_LUKS":  # dm-crypt's sectors: the content already has none smaller
            header = reader.read(layer.extent.start, _LUKS_HEADER)
            odd = any(word in header for word in (b"online-reencrypt", b'"integrity":'))
            if odd or (layer.data_start or 1) % _LARGEST_SECTOR:
                return Unit(None, "is being re-encrypted, has integrity tags, or has its data off a 4096-byte boundary")
        case "LVM2_member" if layer.data_unit is None:  # the metadata of its group is on other physical volumes
            return Unit(None, "does not list the volumes on it")
        case "LVM2_member":
            return _unit_of_volumes(reader, layer)
        case kind if kind not in _WHOLE_BLOCKS_ONLY:
            return Unit(None, "is not known to work on sectors of another size")
    return _unit_of(layer.data_unit)


def _unit_of(size: int | None) -> Unit:
    return Unit(size, f"uses blocks of {size} bytes" if size else "does not record its block size")


def _unit_of_volumes(reader: Reader, layer: Layer) -> Unit:
    """Return the smallest unit of the volumes and their offsets. The unit of a volume is known only if its content is
    recognised and begins on this physical volume.
    """
    places = [layer.data_start or 1]
    places += [number for segment in layer.segments for number in (segment.extent.start, segment.extent.length)]
    places += [segment.stripe_size for segment in layer.segments if segment.stripe_size]
    units = [_unit_of(min(place & -place for place in places))]  # the largest power of two that divides it
    for volume in sorted({segment.volume for segment in layer.segments}):
        firsts = [part.extent for part in layer.segments if part.volume == volume and part.volume_offset == 0]
        found = [inner for inner in layer.inner if inner.extent.start in [first.start for first in firsts]]
        is_cut = found and found[0].kind == "crypto_LUKS" and firsts[0].length < _LUKS_HEADER
        if len(firsts) != 1 or len(found) != 1 or is_cut or found[0].kind == "LVM2_member":
            units.append(Unit(None, f"has the volume {volume}, whose content is not recognised"))
            continue
        unit = smallest_unit(reader, found[0])
        if unit.exact:
            unit = Unit(None, "is not known to work on sectors of another size")
        units.append(replace(unit, words=f"has the volume {volume}, whose {found[0].kind} {unit.words}"))
    return min(units, key=lambda unit: unit.size or 0)
