"""How much of a partition is used, so that a move copies no more.

In: a disk or an image, a partition's place and what lies on it. Out: the runs of bytes that must be copied, and who
says so. Whenever an answer is in doubt it is "everything", with the reason: copying too much costs time, copying too
little costs data.
"""

from aligntool.inventory import Layer
from aligntool.probe.layers.area import be64
from aligntool.probe.loops import NoLoop, fresh_reader, read_only_loop
from aligntool.probe.reader import Reader
from aligntool.probe.usage import btrfs
from aligntool.probe.usage.ext import PROGRAM as DUMPE2FS
from aligntool.probe.usage.ext import read_ext
from aligntool.probe.usage.fat import read_fat
from aligntool.probe.usage.partclone import PROGRAMS, read_partclone
from aligntool.probe.usage.used_map import NoMap, UsedMap, everything, with_edges
from aligntool.units import Extent

__all__ = ["UsedMap", "read_used"]

EXT = ("ext2", "ext3", "ext4")
XFS_FREE_AT = 144  # sb_fdblocks, struct xfs_dsb


def read_used(path: str, extent: Extent, layer: Layer | None, *, sector_size: int) -> UsedMap:
    """What must be copied of the partition at `extent` of the disk or image `path`. `layer`: what lies on it.

    Never raises for what a tool does: then it is everything. Nothing may write to the partition meanwhile.
    """
    if layer is None:
        return everything(extent.length, "nobody knows what lies here")
    if layer.kind == "swap" and layer.unclean is None:
        return UsedMap((), "swap: header only")
    doubt = _doubt(extent, layer)
    if doubt:
        return everything(extent.length, doubt)
    try:
        with fresh_reader(path) as reader:
            runs, known, by = _ask(path, reader, extent, layer)
        return with_edges(runs, extent.length, known=known, sector_size=sector_size, by=by)
    except (NoMap, NoLoop) as reason:
        return everything(extent.length, str(reason))
    except OSError as error:
        return everything(extent.length, f"it cannot be read: {error.strerror}")


def _doubt(extent: Extent, layer: Layer) -> str | None:
    """Why no map of this would be believed."""
    if layer.kind not in (*EXT, "vfat", *PROGRAMS):
        return f"no map for {layer.kind}"
    if layer.unclean:
        return f"the {layer.kind} is unclean: {layer.unclean}"
    if layer.problems:
        return f"the {layer.kind} is in doubt: {layer.problems[0]}"
    if layer.extent.start != extent.start or not layer.claims_size:
        return f"the {layer.kind} does not say how long it is"
    return None


def _ask(path: str, reader: Reader, extent: Extent, layer: Layer) -> tuple[tuple[Extent, ...], int, str]:
    """The used runs, the length that they speak of, and who says so. Raises NoMap, NoLoop, OSError."""
    claims = layer.claims_size or 0
    if layer.kind in EXT:
        return read_ext(path, extent.start, claims), claims, DUMPE2FS
    if layer.kind == "vfat":
        return read_fat(reader, extent.start), claims, "the allocation table"
    if layer.kind == "btrfs":
        btrfs.check_devices(reader, extent.start)
    program = PROGRAMS[layer.kind]
    trees: tuple[Extent, ...] = ()
    with read_only_loop(path, extent) as device:
        if layer.kind == "btrfs":
            trees = btrfs.tree_chunks(device)
        runs, known = read_partclone(program, device)
    if not claims - 2 * (layer.data_unit or 0) <= known <= claims:
        raise NoMap(f"{program} maps {known} bytes, the superblock says {claims}")
    least, mapped = _least(layer, reader), sum(run.length for run in runs)
    if mapped < least:
        raise NoMap(f"{program} finds {mapped} used bytes, the superblock {least}")
    mirrors = btrfs.mirrors(extent.length) if layer.kind == "btrfs" else ()
    return (*runs, *trees, *mirrors), known, program


def _least(layer: Layer, reader: Reader) -> int:
    """Bytes that must be used by the superblock's own count; 0 where it has none."""
    match layer.kind:
        case "btrfs":
            return btrfs.bytes_used(reader, layer.extent.start)
        case "xfs":
            free = be64(reader.read(layer.extent.start + XFS_FREE_AT, 8), 0)
            return (layer.claims_size or 0) - free * (layer.data_unit or 0)
        case _:
            return 0
