"""Find content that another program has made in a disk in flight, where the change would overwrite it.

A parked entry has a node, so a program can make a file system or a table in it, also in one that only claims
free space, or over whose first sectors a copy lies. There nothing is hidden whose return could be seen. So
what is recognised where such an entry begins must be the change's own: that was there before, or that a copy
brings there. Both are known before the first write, and are in the journal. Once the content of an old place
is hidden, only what a copy brings there is the change's own: its former first bytes, put back from a backup,
are not.

Elsewhere an old or new place is compared byte by byte (mover/in_flight.py): while signatures are hidden one
after the other, inner content can be recognised that was not before, so its name would prove nothing.
"""

from collections.abc import Iterator

from aligntool.change import MovePlan
from aligntool.contents.layers import read_layers
from aligntool.device import Device
from aligntool.formats.mbr import entries_of
from aligntool.formats.tables import read_table
from aligntool.inventory import Layer, with_inner
from aligntool.mover.disk_state import LegibleDisk, places_in_use
from aligntool.mover.in_flight import taken_from
from aligntool.mover.journal import Journal
from aligntool.mover.journal_format import Position
from aligntool.mover.table import TableImages, all_sectors
from aligntool.steps import HoldContent
from aligntool.units import Extent

_TABLE = "a partition table"


def own_content(device: Device, plan: MovePlan, images: TableImages) -> tuple[str, ...]:
    """Return what can be recognised in flight without another program. Called before the first write."""
    found: set[str] = set()
    for place in (*_entries_in_flight(device, plan, images), *_old_places(plan, images)):
        brought = (copy for copy in plan.copies if copy.target.contains(Extent(place.start, 1)))
        for shift in (0, *(copy.source.start - copy.target.start for copy in brought)):
            start = place.start + shift
            found |= _names(device, Extent(start, min(place.length, device.size - start)))
    return tuple(sorted(found))


def brought_content(device: Device, plan: MovePlan) -> dict[int, tuple[str, ...]]:
    """Return what can be recognised where each old place begins once its content is hidden: only what is
    written there. Called before the first write.
    """
    sources = {step.partition: step.source for step in plan.holds}
    found: dict[int, tuple[str, ...]] = {}
    for place in sources.values():
        names: set[str] = set()
        for step in plan.releases:
            if step.target.contains(Extent(place.start, 1)):
                start = place.start + sources[step.partition].start - step.target.start
                names |= _names(device, Extent(start, min(place.length, device.size - start)))
        found[place.start] = tuple(sorted(names))
    return found


def newcomers(device: Device, journal: Journal) -> Iterator[tuple[int, str]]:
    """Yield the offset of each content that is not the change's own, with its kind. Journals of older
    versions do not state what is.
    """
    contents = journal.contents
    position = journal.position
    if contents.recognised is None:
        return
    plan = contents.plan
    brought = contents.brought or {}
    holds = plan.numbered(HoldContent)
    # A step that is hiding leaves a part of its content, so names prove nothing.
    hidden = [
        step.source for index, step in holds if Position(index) == position or not _is_covered(journal, step)
    ]
    unmoved = [place.before for place in plan.places if place.before and _is_unmoved(plan, place.number)]
    old_places = tuple(_old_places(plan, contents.images)) if brought else ()
    left = {
        step.source.start: brought.get(step.source.start) for index, step in holds if index < position.step
    }
    for place in dict.fromkeys((*_entries_in_flight(device, plan, contents.images), *old_places)):
        start = Extent(place.start, 1)
        kept = hidden if place in old_places else [*hidden, *unmoved]  # a container has old places in it
        if any(each.contains(start) for each in kept):
            continue
        own = left.get(place.start)
        for name in sorted(_names(device, place).difference(contents.recognised if own is None else own)):
            yield place.start, name if name == _TABLE else name.partition(" ")[0]


def _old_places(plan: MovePlan, images: TableImages) -> Iterator[Extent]:
    """Yield the old places, which may have no entry of their own in flight, except those where a table
    begins.
    """
    tables = [Extent(sectors.at, len(sectors.data)) for sectors in images.sectors]
    sources = (step.source for step in plan.holds)
    yield from (
        each for each in sources if not any(table.contains(Extent(each.start, 1)) for table in tables)
    )


def _is_covered(journal: Journal, step: HoldContent) -> bool:
    """Return whether data may have been copied over the start of the old place."""
    head = step.held.ranges[0]
    start = Extent(step.source.start + head.start, head.length)
    return any(one.overlaps(start) for one in taken_from(journal, step))


def _is_unmoved(plan: MovePlan, number: int) -> bool:
    return all(step.partition != number for step in plan.holds)


def _entries_in_flight(device: Device, plan: MovePlan, images: TableImages) -> tuple[Extent, ...]:
    """Return the entries of the table in flight that have a byte of a place of the plan."""
    used = places_in_use(plan)
    in_flight = LegibleDisk(device, tuple(all_sectors(images.parked)))
    entries = (each.extent for each in read_table(in_flight, sector_size=plan.disk.sector_size).partitions)
    return tuple(each for each in dict.fromkeys(entries) if any(each.overlaps(place) for place in used))


def _names(device: Device, place: Extent) -> set[str]:
    """Return what is recognised at a place: kind and UUID of each layer, and whether a table begins there."""
    reader = LegibleDisk(device, ())
    layers = with_inner(read_layers(reader, place, sector_size=device.sector_size))
    head = reader.read(place.start, 2 * device.sector_size)
    first = head[: device.sector_size]
    second = head[device.sector_size :]
    has_table = second.startswith(b"EFI PART") or any(entry.sectors for entry in entries_of(first) or ())
    return {*map(_name, layers), *([_TABLE] if has_table else [])}


def _name(layer: Layer) -> str:
    return f"{layer.kind} {layer.uuid or ''}"
