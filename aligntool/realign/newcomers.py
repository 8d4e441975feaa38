"""Find content that another program has made in a disk in flight, where the change would overwrite it.

A parked entry has a node, so a program can make a file system in it, also in one that only claims free space. Markers
and saved bytes show that only where they are. So what is recognised where an entry in flight or a place of the plan
begins must be the change's own: that was there before, or that a copy brings there. Both are known before the first
write, and are in the journal.
"""

from collections.abc import Iterator

from aligntool import steps
from aligntool.change import Plan
from aligntool.device import Device
from aligntool.formats.layers import read_layers
from aligntool.formats.tables import read_table
from aligntool.inventory import Layer
from aligntool.realign.disk_state import LegibleDisk, OverlaidDisk, places_in_use
from aligntool.realign.journal import Journal
from aligntool.realign.table import TableImages, all_sectors
from aligntool.units import Extent


def own_content(device: Device, plan: Plan, images: TableImages) -> tuple[str, ...]:
    """Return what can be recognised in flight without another program. Called before the first write."""
    copies = [step for step in plan.steps if isinstance(step, steps.CopyContent)]
    found: set[str] = set()
    for place in _places(device, plan, images):
        brought = (copy for copy in copies if copy.target.contains(Extent(place.start, 1)))
        for shift in (0, *(copy.source.start - copy.target.start for copy in brought)):
            start = place.start + shift
            found.update(map(_name, _layers(device, Extent(start, min(place.length, device.size - start)))))
    return tuple(sorted(found))


def newcomers(device: Device, journal: Journal) -> Iterator[tuple[int, Layer]]:
    """Yield the offset of each content that is not the change's own, with what it is. Journals of older versions do not
    state what is.
    """
    own = journal.contents.recognised
    if own is None:
        return
    for place in _places(device, journal.contents.plan, journal.contents.images):
        yield from ((place.start, layer) for layer in _layers(device, place) if _name(layer) not in own)


def _places(device: Device, plan: Plan, images: TableImages) -> tuple[Extent, ...]:
    """Return the places of the plan, and the entries in flight that have a byte of them."""
    used = places_in_use(plan)
    in_flight = OverlaidDisk(device, tuple(all_sectors(images.parked)))
    entries = read_table(in_flight, sector_size=plan.disk.sector_size).partitions
    touched = [each.extent for each in entries if any(each.extent.overlaps(place) for place in used)]
    return tuple(dict.fromkeys((*used, *touched)))


def _layers(device: Device, place: Extent) -> tuple[Layer, ...]:
    return read_layers(LegibleDisk(device, ()), place, sector_size=device.sector_size)


def _name(layer: Layer) -> str:
    return f"{layer.kind} {layer.uuid or ''}"
