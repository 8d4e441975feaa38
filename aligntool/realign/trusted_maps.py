"""Judge whether a move may skip the blocks that a file system calls free, or whether something else may need
them.

A hash tree of dm-verity covers free blocks, a shadow copy of Windows reads old data from them, and what is
not recognised may be anything, such as a hash tree without a superblock. So they are skipped only if the
content of every partition is known. docs/crash-safety.md, "Free blocks".
"""

from collections.abc import Iterator

from aligntool.contents.catalogue import kind_named
from aligntool.formats.part_types import WITHOUT_SUPERBLOCK, gpt_type_name
from aligntool.formats.reader import Reader, is_blank
from aligntool.inventory import Disk, Layer, Partition, Role, layers_on
from aligntool.units import GIB, KIB, Extent, align_up

_LONGEST_READ = GIB  # bytes that are read to find that a partition, or the rest of one, holds nothing
_BLOCK = 4 * KIB  # a file system may end before the end of the last one


def why_free_blocks_may_be_needed(
    disk: Disk, reader: Reader, extent: Extent, layer: Layer, *, free_behind: bool
) -> str:
    """Return why something else may need the free blocks of the file system `layer` at `extent`, or "" if the
    content of every partition is known and does not. `free_behind`: what follows it in its partition belonged
    to it. Content on the whole disk is followed by the rest of the disk.

    Raises OSError.
    """
    return next(_reasons(disk, reader, extent, layer, free_behind), "")


def _reasons(disk: Disk, reader: Reader, extent: Extent, layer: Layer, free_behind: bool) -> Iterator[str]:
    """Yield the reasons, those that take the least reading first."""
    for other in layers_on(disk, None):
        if kind_named(other.kind).describes_others:
            yield f"{other.kind} on this disk may belong to free blocks, too"
    for part in disk.partitions:
        name = gpt_type_name(part.type_code)
        if " verity" in name:
            yield f"partition {part.number} has the type {name}, and its hashes may cover free blocks, too"
    found = kind_named(layer.kind).why_free_blocks_matter(reader, extent)
    if found:
        yield f"the {layer.kind.upper()} {found}, and they need free clusters, too"
    end = extent.start + min(align_up(layer.claims_size or 0, _BLOCK), extent.length)
    last = extent.end if disk.partitions else max(disk.size or 0, end)  # of content on the whole disk
    behind = Extent(end, last - end)
    if not free_behind and _may_have_data(reader, behind):
        yield f"dm-verity hashes after the {layer.kind} may cover its free blocks, too"
    for part in disk.partitions:
        why = _why_unknown(part, reader)
        if why:
            yield f"{why}, and may need free blocks, too"


def _why_unknown(part: Partition, reader: Reader) -> str:
    """Return why the bytes of a partition are not understood, or "" if they are."""
    kinds = {layer.kind for layer in part.content}
    if part.role in (Role.EXTENDED, Role.MAP) or part.type_code in WITHOUT_SUPERBLOCK:
        return ""
    if len(kinds) == 1 or (kinds and all(kind_named(kind).coexists for kind in kinds)):
        return ""
    if kinds:
        return f"the content of partition {part.number} is ambiguous"
    return f"the content of partition {part.number} is unknown" if _may_have_data(reader, part.extent) else ""


def _may_have_data(reader: Reader, extent: Extent) -> bool:
    """Return whether an extent has bytes other than zero, or cannot be read as a whole."""
    return extent.length > _LONGEST_READ or extent.end > reader.size or not is_blank(reader, extent)
