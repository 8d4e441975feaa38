"""Find the keys of encrypted content that a move leaves at an old place.

An old header and a passphrase of it are enough to decrypt the content, also if that passphrase was removed
from the header since. So what the new place does not cover of it is overwritten before the new table is
written, or once everything is copied where a table is made or removed: until then a cut repeats that, nothing
else may use these bytes, and a rollback has them at the new place.
"""

from collections.abc import Iterator

from aligntool.claims import outside
from aligntool.contents.layers import read_layers
from aligntool.contents.luks import LUKS
from aligntool.device import Device, Sectors
from aligntool.inventory import Layer, with_inner
from aligntool.mover.disk_state import LegibleDisk
from aligntool.mover.journal import Journal
from aligntool.mover.table import all_sectors
from aligntool.units import Extent, align_down, align_up, merged


def keys_at_old_places(device: Device, journal: Journal, occupied: tuple[Extent, ...]) -> Iterator[Extent]:
    """Yield the extents of the disk that have keys of content that is at its new place, and there may still
    be hidden. Every byte of them was copied from there. `occupied`: what must not be overwritten; neither are
    the markers, which have no keys.
    """
    contents = journal.contents
    size = device.sector_size
    released = (
        Sectors(step.target.start + extent.start, content)
        for step in contents.plan.releases
        for extent, content in zip(step.held.ranges, contents.held[step.partition], strict=True)
    )
    reader = LegibleDisk(device, (*all_sectors(contents.images.after), *released))
    for step in contents.plan.copies:
        layers = read_layers(reader, step.target, sector_size=contents.plan.disk.sector_size)
        for header in map(header_of, (layer for layer in with_inner(layers) if layer.kind == LUKS.name)):
            start = align_down(header.start - step.target.start, size)
            inside = Extent(start, align_up(header.end - step.target.start, size) - start)
            copied = merged(contents.runs[step.partition], inside, size)
            places = (Extent(step.source.start + run.start, run.length) for run in copied)
            held = tuple(Extent(step.source.start + each.start, each.length) for each in step.held.ranges)
            yield from outside(places, (*occupied, *held))


def header_of(luks: Layer) -> Extent:
    """Return everything in front of the encrypted data; the whole layer, if it is unknown where they
    begin.
    """
    end = luks.extent.end if luks.data_start is None else luks.data_start
    return Extent(luks.extent.start, end - luks.extent.start)


def attention_to_keys(what: str, layers: tuple[Layer, ...]) -> Iterator[str]:
    """Yield what a user should know who has removed a passphrase, or is going to."""
    if any(layer.kind == LUKS.name for layer in with_inner(layers)):
        yield (
            f"{what}: what is left of its LUKS header at the old place is overwritten with zeros; flash may"
            " keep a copy, which a passphrase that is removed later still opens"
        )
