"""Ranges in no partition that the user names with --overwrite-bytes: check, describe and save them."""

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from aligntool.audit.wording import LOST, audit_command, layer_name
from aligntool.claims import Claims, format_range
from aligntool.commands import ByHand, by_hand
from aligntool.contents.layers import read_layers
from aligntool.errors import Refusal, Refused, failing_as, refuse, refuse_folder_name
from aligntool.formats.gpt import ends_of_table
from aligntool.formats.reader import Reader, read_pieces
from aligntool.inventory import Disk, Role
from aligntool.linux.file_reader import fresh_reader
from aligntool.linux.outputs import new_file, open_place
from aligntool.units import KIB, MIB, Extent, align_down, align_up

_SHOWN = 16  # bytes of what begins in a range
# How far a superblock is behind the first byte of its content: LVM; ext2, F2FS and HFS+; md and bcache; UFS;
# ISO 9660 and JFS; btrfs.
_SUPERBLOCKS_AT = (0, KIB // 2, KIB, 4 * KIB, 8 * KIB, 32 * KIB, 64 * KIB)
_MOST_STARTS = 4096
_SAVE_HINT = "--save FILE names a new file"


def refuse_named(disk: Disk, reader: Reader, ranges: Sequence[Extent]) -> None:
    """Raise Refused if a range is not outside of the partitions and the table, or if anything is recognised
    in it. Raises OSError.
    """
    refuse(reason for extent in ranges for reason in _refusals(disk, reader, extent))


def _refusals(disk: Disk, reader: Reader, extent: Extent) -> Iterator[Refusal]:
    where = f"bytes {format_range(extent)}"
    option = "--overwrite-bytes"
    for part in disk.partitions:
        if part.role is not Role.EXTENDED and part.extent.overlaps(extent):
            yield Refusal("invalid-option", option, f"{where} overlap partition {part.number}")
    head, tail = ends_of_table(disk.table.label if disk.table else None, disk.sector_size)
    if not Extent(head, (disk.size or 0) - tail - head).contains(extent):
        yield Refusal(
            "invalid-option", option, f"{where} are not between the table and the end of {disk.name}"
        )
        return
    ends = [part.extent.end for part in disk.partitions if part.role is not Role.EXTENDED]
    ends += [layer.extent.start + (layer.claims_size or 0) for layer in disk.content]
    lowest = max([head, *(end for end in ends if end <= extent.start)])
    for start in _possible_starts(reader, extent, lowest):
        layers = read_layers(reader, Extent(start, extent.end - start), sector_size=disk.sector_size)
        if layers:
            place = "in" if extent.start <= start else "before"
            text = (
                f"{layer_name(layers[0])} is recognised at byte {start}, {place} the range"
                f" {format_range(extent)}"
            )
            yield Refusal("ambiguous", disk.name, text, audit_command(disk))
            return


def _possible_starts(reader: Reader, extent: Extent, lowest: int) -> Iterator[int]:
    """Yield the bytes where content may begin: before each run of data, as far as a superblock may be behind
    it, and each MiB. Content may begin in the zeros before the range, which a refusal does not name, down to
    byte `lowest`.
    """
    runs = Claims(reader).kept_in(extent)
    starts = [run.start - behind for run in runs[:_MOST_STARTS] for behind in _SUPERBLOCKS_AT]
    starts += [align_down(run.start, MIB) for run in runs]
    starts += [at for run in runs for at in range(align_up(run.start, MIB), run.end, MIB)][:_MOST_STARTS]
    yield from sorted({extent.start, *(at for at in starts if lowest <= at < extent.end)})


def described(reader: Reader, ranges: Iterable[Extent], save_to: str | None) -> Iterator[str]:
    """Yield a sentence for each range, with its first bytes. Raises OSError."""
    saved = f", after a copy to {save_to}" if save_to else " without a copy"
    for extent in ranges:
        first = reader.read(extent.start, _SHOWN)
        found = Claims(reader).kept_in(extent)
        if found:
            first = reader.read(found[0].start, _SHOWN)
            begin = f"the data there begin at byte {found[0].start} with {first.hex(' ')}"
        else:
            begin = "they read as zero"
        yield f"{LOST}bytes {format_range(extent)} may be overwritten, as requested{saved}: {begin}"
    if save_to:
        back = f"to put them back after a rollback: {by_hand(ByHand.SAVING, 'dd')}"
        yield f"{save_to} has these bytes, at the same offsets as on the disk, and holes elsewhere; {back}"


def refuse_unsaved(file: str) -> None:
    """Raise Refused if `save` could not create this file. What only root can see is not looked at."""
    refuse_folder_name(file)
    with failing_as(Refused, file, hint=_SAVE_HINT), suppress(PermissionError), open_place(file) as place:
        if place.status() is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def save(path: str, ranges: Sequence[Extent], file: str) -> None:
    """Copy the ranges to a new file, at the offsets that they have on the disk; the rest of it is a hole.

    Raises Refused if the file exists, or cannot be written; then nothing is left of it.
    """
    refuse_folder_name(file)
    with failing_as(Refused, file, hint=_SAVE_HINT), open_place(file) as place:
        with new_file(place) as descriptor, fresh_reader(path) as reader:
            for extent in ranges:
                at = extent.start
                for piece in read_pieces(reader, extent):
                    _write_all(descriptor, piece, at)
                    at += len(piece)
        place.sync()


def _write_all(descriptor: int, content: bytes, at: int) -> None:
    while content:
        written = os.pwrite(descriptor, content, at)
        content = content[written:]
        at += written
