"""What must be true of a table and of the changes to it, whichever kind of table it is.

In: partitions by number, and the plan's changes. Out: nothing, or Refused. Alone because the GPT and the MBR ask the
same questions.
"""

from collections.abc import Mapping, Set

from aligntool.errors import Refused
from aligntool.plan import EntryChange, ParkEntries
from aligntool.units import Extent

_ANEW = "make the plan anew: aligntool plan realign DISK -o plan.json"


def refused(reason: str) -> Refused:
    return Refused(reason, hint=_ANEW)


def unsound(reason: str) -> Refused:
    return Refused(f"the partition table is not sound: {reason}", hint="aligntool audit DISK")


def check_before(found: Mapping[int, Extent], changes: Mapping[int, EntryChange]) -> None:
    """The table is the one that the plan was made for."""
    for number, change in changes.items():
        if found.get(number) != change.before:
            raise refused(
                f"partition {number} is {told(found.get(number))}, and the plan was made for one {told(change.before)}"
            )


def check_parked(park: ParkEntries, moving: Set[int]) -> None:
    """Nothing moves in the sight of others. `moving`: the entries that must be hidden."""
    open_to_all = sorted(moving - set(park.parked))
    if open_to_all:
        raise refused(f"the plan moves partition {open_to_all[0]} and does not park its entry")


def check_after(after: Mapping[int, Extent], changed: Set[int], *, room: Extent, sector_size: int) -> None:
    """Where the changed ones come to lie: whole sectors in `room`, on no other partition."""
    for number in changed:
        place = after[number]
        if place.start % sector_size or place.length % sector_size or place.length <= 0:
            raise refused(
                f"partition {number} would be {told(place)}: no whole sectors of {sector_size} bytes"
            )
        if not room.contains(place):
            raise refused(
                f"partition {number} would be {told(place)}, but partitions may only be {told(room)}"
            )
        for other, taken in after.items():
            if other != number and taken.overlaps(place):
                raise refused(f"partition {number} would be {told(place)}, on partition {other}")


def told(extent: Extent | None) -> str:
    return "not there" if extent is None else f"at bytes {extent.start} to {extent.end - 1}"
