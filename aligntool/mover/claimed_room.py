"""Choose the entries of a table in flight that claim free space: the place of the journal, and the new
places.

What no entry covers looks free to other programs: growpart grows the neighbour over it, at every start of a
machine in a cloud. So in flight every byte that a plan still needs is in a parked entry.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aligntool import steps
from aligntool.claims import outside
from aligntool.contents.catalogue import kind_named
from aligntool.formats import mbr
from aligntool.units import MIB, Extent, align_down

_LEAST = MIB  # free runs that are shorter are not used by other programs, which place partitions on 1 MiB

Room = tuple[Extent, int]
"""The bytes that entries of the table can name, and its sector size."""

FULL_MBR = (
    "the MBR has no unused entry to claim the place of the journal, which other programs would take for free"
    " space while partitions move"
)


def mbr_room(disk_size: int, sector_size: int) -> Extent:
    """Return the bytes that the entries of an MBR may name."""
    end = align_down(min(disk_size, mbr.ADDRESSABLE * sector_size), sector_size)
    return Extent(sector_size, end - sector_size)


def unused_slots(used: Container[int]) -> list[int]:
    """Return the numbers of the unused entries of an MBR."""
    return [slot for slot in mbr.PRIMARY_SLOTS if slot not in used]


@dataclass(frozen=True, slots=True)
class FlightClaims:
    """What a plan needs in flight. `fixed`: partitions whose entry is not extended, as the rest of it would
    be used: their content stays recognisable although they are parked, and would be grown, or it states no
    length and is as long as its partition.
    """

    places: tuple[Extent, ...] = ()
    fixed: frozenset[int] = frozenset()


NO_CLAIMS = FlightClaims()


def claims_of(plan_steps: Iterable[steps.Step]) -> FlightClaims:
    """Return the new places, also of containers, the place of the journal, and the partitions whose entries
    keep their length.
    """
    places: list[Extent] = []
    parked: set[int] = set()
    hidden: set[int] = set()
    endless: set[int] = set()
    for step in plan_steps:
        match step:
            case steps.WriteJournal() if not step.journal.file:
                places.append(step.journal.extent)
            case steps.ParkEntries():
                parked.update(step.partitions)
            case steps.HoldContent():
                hidden.add(step.partition)
            case steps.CopyContent() | steps.ReleaseContent():
                places.append(step.target)
                if not kind_named(step.kind).states_length:
                    endless.add(step.partition)
            case steps.RewriteTable() | steps.ConvertTable():
                places += (change.after for change in step.changes)
            case _:
                pass
    return FlightClaims(tuple(dict.fromkeys(places)), frozenset((parked - hidden) | endless))


def entries_in_flight(
    claims: FlightClaims,
    parked: Mapping[int, Extent],
    others: Collection[Extent],
    unused: Sequence[int],
    room: Room,
) -> dict[int, Extent] | None:
    """Return the extents of the parked entries and of `unused` ones that together cover the claims, by
    number; None if there are too few. `others`: the entries that are neither parked nor unused.

    Free runs are covered as a whole, and those without a claimed byte too, as long as there are unused
    entries: if a neighbour grew, the table would not be that of the journal any more. If unused entries are
    short, a parked entry is extended over the run behind it; its start moves only if nothing else helps,
    because it leads a user to the content.

    No entry begins where something may begin that a program would recognise: a new place, or the remains of a
    deleted partition behind another one. So the first sector of a free run is left out; if it is claimed, it
    has an entry of its own, too short for any content, as long as there are unused ones.
    """
    within, sector_size = room
    entries = dict(parked)
    left = list(unused)
    hidden = {number: extent for number, extent in parked.items() if number not in claims.fixed}
    number_before = {extent.end: number for number, extent in hidden.items()}
    number_behind = {extent.start: number for number, extent in hidden.items()}
    runs = list(outside((within,), (*parked.values(), *others)))
    needed = [run for run in runs if any(run.overlaps(place) for place in claims.places)]
    optional = [run for run in runs if run not in needed and run.length >= _LEAST]
    heads: dict[int, Extent] = {}
    for run in sorted(needed, key=lambda run: (run.start in number_before, run.end in number_behind)):
        head = Extent(run.start, sector_size)
        rest = Extent(head.end, run.end - head.end)
        if left and rest.length > sector_size:
            unused_one = left.pop(0)
            entries[unused_one] = rest
            if any(head.overlaps(place) for place in claims.places):
                heads[unused_one] = head
        elif (number := number_before.get(run.start)) is not None:
            entries[number] = Extent(entries[number].start, run.end - entries[number].start)
        elif rest.length and (number := number_behind.get(run.end)) is not None:
            entries[number] = Extent(rest.start, entries[number].end - rest.start)
        elif rest.length > sector_size:
            return None
    # libparted 3.5 refuses a table ("overlapping") in which a later entry fills a gap of one sector.
    for behind, head in heads.items():
        if left:
            lower, higher = sorted((behind, left.pop(0)))
            entries[higher] = entries[behind]
            entries[lower] = head
    for run in sorted(optional, key=lambda run: run.start in number_before):
        if left:
            entries[left.pop(0)] = Extent(run.start + sector_size, run.length - sector_size)
        elif (number := number_before.get(run.start)) is not None:
            entries[number] = Extent(entries[number].start, run.end - entries[number].start)
    return entries
