"""Refuse changes to one of two tables: an MBR beside another table whose partitions it does not list, so that
their bytes look free, and a GPT beside one for sectors of another size, which would keep the old places.
"""

from collections.abc import Iterator

from aligntool.audit.wording import audit_command, layer_name, next_command
from aligntool.contents.layers import read_layers
from aligntool.errors import Refusal, Refused, refuse
from aligntool.formats.gpt import check_copy
from aligntool.formats.other_tables import read_apm
from aligntool.formats.reader import Reader, TableReading
from aligntool.formats.tables import find_gpt, read_gpt
from aligntool.formats.unix_tables import read_bsd
from aligntool.inventory import Disk, Partition, Role, Table, TableCopyState, TableLabel
from aligntool.linux.content import sample
from aligntool.linux.file_reader import fresh_reader
from aligntool.realign.placing import LABELS_DISK

# Linux uses the MBR of such a disk, whereas firmware, macOS and partition tools may use the other table. A
# GPT without a protective MBR is often a remnant, and so may be its partitions: without recognised content,
# only those count that share no byte with a partition of the MBR, are written, and are listed by a primary
# copy without damage.

_WHICH_TABLE = "aligntool explain AT310"
_NAMES = {TableLabel.GPT: "GPT", TableLabel.APM: "Apple partition map", TableLabel.BSD: "BSD disklabel"}


def refuse_second_table(disk: Disk) -> None:
    """Raise Refused if a GPT, an Apple partition map or a BSD disklabel beside the MBR lists a partition with
    content that is not within a partition of the MBR, or if there are GPTs for both sector sizes.
    """
    if disk.table is None or disk.table.label not in _FINDERS:
        return
    try:
        with fresh_reader(disk.path) as reader:
            refuse(list(_FINDERS[disk.table.label](reader, disk)))
    except OSError as error:
        text = f"{disk.path} cannot be read: {error.strerror}"
        raise Refused(text, hint=audit_command(disk), code="not-read", subject=disk.name) from error


def _two_gpts(reader: Reader, disk: Disk) -> Iterator[Refusal]:
    own = disk.sector_size
    for size in (512, 4096):
        if size != own and check_copy(reader, "primary", 1, size).is_good:
            text = (
                f"{disk.name} has two GPTs, for sectors of {own} and of {size} bytes, as convert --both"
                " writes them: a change of one would leave the old places in the other"
            )
            hint = "change the image that has one table, then use aligntool convert --both again"
            yield Refusal("hybrid-mbr", disk.name, text, hint)


def _unlisted_partitions(reader: Reader, disk: Disk) -> Iterator[Refusal]:
    known = [part.extent for part in disk.partitions if part.role is not Role.EXTENDED]
    for part, table in _partitions_of_others(reader, disk):
        if part.extent.end > reader.size or any(extent.contains(part.extent) for extent in known):
            continue
        layers = read_layers(reader, part.extent, sector_size=disk.sector_size)
        if not layers:
            is_whole = any(
                copy.name == "primary" and copy.state is TableCopyState.GOOD for copy in table.copies
            )
            if not is_whole or any(extent.overlaps(part.extent) for extent in known) or _is_blank(disk, part):
                continue
        text = (
            f"{disk.name} also has a {_NAMES[table.label]}, whose partition {part.number} with"
            f" {layer_name(layers[0]) if layers else 'unrecognised data'}, at byte {part.extent.start}, is"
            " not in the MBR: what is free in one table is used in the other"
        )
        yield Refusal(
            "hybrid-mbr", disk.name, text, next_command(disk, "audit --map") if layers else _WHICH_TABLE
        )


def _is_blank(disk: Disk, part: Partition) -> bool:
    sampled = sample(disk.path, part.extent)
    return not sampled.written + sampled.unreadable and not sampled.is_sparse


def _partitions_of_others(reader: Reader, disk: Disk) -> Iterator[tuple[Partition, Table]]:
    sector = bytes(reader.read(0, 512))
    pair = find_gpt(reader, None, disk.sector_size)
    gpt = None
    if pair and (pair.primary.is_good or pair.backup.is_good):
        gpt = read_gpt(reader, pair, None, disk.sector_size)
    labels = [part.extent.start + 512 for part in disk.partitions if part.type_code in LABELS_DISK]
    found: tuple[TableReading | None, ...] = (gpt, read_apm(reader, sector), read_bsd(reader, labels))
    for reading in found:
        if reading and reading.table:
            table = reading.table
            yield from ((part, table) for part in reading.partitions if part.role is Role.PRIMARY)


_FINDERS = {TableLabel.DOS: _unlisted_partitions, TableLabel.GPT: _two_gpts}
