"""Read which bytes of a partition are in use, and decide whether the others may be left out."""

from aligntool.contents.catalogue import kind_named
from aligntool.inventory import Disk, Layer
from aligntool.linux.checks import missing_checker
from aligntool.linux.content import UsedMap, is_free_behind, read_used, whole_partition_map
from aligntool.linux.file_reader import fresh_reader
from aligntool.realign.trusted_maps import why_free_blocks_may_be_needed
from aligntool.units import Extent, format_about


def read_map(disk: Disk, number: int, extent: Extent, *, used_only: bool, shrunk: bool = False) -> UsedMap:
    """Return the used bytes of the partition of this number at `extent`; all of it if it has no map, if it
    cannot be checked, or if something else may need its free blocks, unless the user requests `used_only`.
    `shrunk`: its file system has just been shrunk, and checked.
    """
    layer = layer_of(disk, number)
    if layer and kind_named(layer.kind).is_map_checked and (missing := missing_checker(layer.kind)):
        return whole_partition_map(extent.length, missing)
    used = read_used(disk.path, extent, layer, sector_size=disk.sector_size, shrunk=shrunk)
    free = extent.length - used.bytes
    why = _why_needed(disk, extent, layer, shrunk=shrunk) if layer and free else ""
    if not why:
        return used
    if used_only:
        return UsedMap(used.runs, f"{used.by}, by --used-only, although {why}")
    skipped = f"{why}. {format_about(free)} of it is free ({used.by}); --used-only skips that"
    return whole_partition_map(extent.length, skipped)


def _why_needed(disk: Disk, extent: Extent, layer: Layer, *, shrunk: bool) -> str:
    """Return why something else may need the free blocks of a file system, or "" if nothing does."""
    try:
        with fresh_reader(disk.path) as reader:
            free = shrunk or is_free_behind(reader, extent, layer)
            return why_free_blocks_may_be_needed(disk, reader, extent, layer, free_behind=free)
    except OSError as error:
        return f"the disk cannot be read: {error.strerror}"


def layer_of(disk: Disk, number: int) -> Layer | None:
    """Return the content of a partition, or of the whole disk if there is no such partition; None if nothing
    or more than one layer was recognised.
    """
    content = next((part.content for part in disk.partitions if part.number == number), disk.content)
    return content[0] if len(content) == 1 else None
