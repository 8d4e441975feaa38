"""Read what a plan needs from the disk besides its inventory."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice

from aligntool.change import RealignGoal, Used
from aligntool.claims import Claims, Copies
from aligntool.contents.catalogue import kind_named
from aligntool.contents.windows_names import StartNames, read_names
from aligntool.errors import Refused, refuse
from aligntool.formats.gpt import check_copy, former_backups
from aligntool.formats.reader import open_area
from aligntool.inventory import Disk, Partition, TableLabel
from aligntool.linux.content import UsedMap, is_free_behind, open_medium
from aligntool.linux.file_reader import FileReader, fresh_reader
from aligntool.realign.named_ranges import described, refuse_named
from aligntool.realign.placing import kind_of
from aligntool.realign.refusals import bad_blocks_refusal
from aligntool.units import KIB, Extent, align_down, align_up


@contextmanager
def open_claims(disk: Disk, goal: RealignGoal) -> Iterator[tuple[Claims, tuple[str, ...]]]:
    """Yield what a change of the disk may overwrite, and a sentence on each range that the user named. What a
    shrink of content on the whole disk freed before it was interrupted belongs to that content. Raises
    Refused if a range must not be overwritten, and OSError.
    """
    with fresh_reader(disk.path) as reader:
        refuse_named(disk, reader, goal.overwrite)
        named = (*goal.overwrite, *_freed_by_shrink(disk, reader))
        yield (
            Claims(reader, named, _copies_on(disk, reader)),
            tuple(described(reader, goal.overwrite, goal.save_to)),
        )


def _copies_on(disk: Disk, reader: FileReader) -> Copies | None:
    """Return what finds copies of the disk's own table that are not in use."""
    if disk.table is None or disk.table.label is not TableLabel.GPT:
        return None
    primary = check_copy(reader, "primary", 1, disk.sector_size)
    return lambda content, at: former_backups(reader, content, at, primary)


_LONGEST_BLOCK = 64 * KIB  # of an ext4 or NTFS


def _freed_by_shrink(disk: Disk, reader: FileReader) -> Iterator[Extent]:
    """Yield what a shrink of content on the whole disk has freed: up to the mark at the end of its former
    extent, which is less than a block before the end of the disk.
    """
    if disk.table is not None or len(disk.content) != 1 or not disk.content[0].claims_size:
        return
    (layer,) = disk.content
    sector_size = disk.sector_size
    start = align_up(layer.claims_size or 0, sector_size)
    last = align_down(reader.size, sector_size)
    ends = range(last, max(last - _LONGEST_BLOCK, start), -sector_size)
    marked = (end for end in ends if is_free_behind(reader, Extent(0, end), layer))
    yield from (Extent(start, end - start) for end in islice(marked, 1))


def least_lengths(disk: Disk, parts: Iterable[Partition]) -> dict[int, int]:
    """Return the bytes below which the file system on each partition is not shrunk, where its resizer states
    them.
    """
    found = {}
    for part in parts:
        least_length = kind_of(part).least_length
        if least_length:
            try:
                with open_medium(disk.path, part.extent) as medium:
                    found[part.number] = least_length(medium)
            except OSError:
                found[part.number] = 0
    return found


def uses_of(maps: Mapping[int, UsedMap], least: Mapping[int, int]) -> dict[int, Used]:
    return {
        number: Used(number, found.bytes, found.by, least.get(number, 0)) for number, found in maps.items()
    }


def refuse_bad_blocks(disk: Disk, parts: Iterable[Partition], moved: Collection[int]) -> None:
    """Raise Refused if the content of a partition that moves lists bad blocks of the medium.

    The list would name other places, and the bad ones would hold data. Read here, and not for an audit,
    because the list of a FAT is its whole allocation table.
    """
    found = []
    for part in parts:
        layer = part.content[0] if len(part.content) == 1 and part.number in moved else None
        if layer is None:
            continue
        try:
            with fresh_reader(disk.path) as reader:
                area = open_area(reader, part.extent, disk.sector_size, lambda *_: ())
                count = kind_named(layer.kind).bad_blocks(area)
        except OSError as error:
            text = f"{disk.path} cannot be read: {error.strerror}"
            raise Refused(text, code="not-read", subject=disk.name) from error
        if count:
            what = f"partition {part.number}" if disk.partitions else disk.name
            found.append(bad_blocks_refusal(disk, part, what, layer, count))
    refuse(found)


def names_on(disk: Disk) -> dict[int, StartNames]:
    """Return the partition starts recorded in files of Windows, by the number of the partition with the
    files. Empty for a GPT, whose partitions Windows identifies by GUIDs, and for an MBR without a disk
    signature, which no file can name.
    """
    table = disk.table
    if table is None or table.label is not TableLabel.DOS or not (signature := int(table.disk_id or "0", 16)):
        return {}
    found = {}
    for part in disk.partitions:
        if kind_of(part).holds_windows:
            try:
                with fresh_reader(disk.path) as reader:
                    area = open_area(reader, part.extent, disk.sector_size, lambda *_: ())
                    found[part.number] = read_names(area, signature.to_bytes(4, "little"))
            except OSError as error:
                found[part.number] = StartNames(unclear=f"cannot be read: {error.strerror}")
    return found
