"""The three tables of a move, which of them a disk has, and how to get from one to the next.

In: the sectors of each, and a Device. Out: a state, or the groups to write. Alone because this is the safety argument,
and it holds for the GPT and the MBR alike.

A GPT is written copy by copy, the backup first. While the backup is written the primary is whole and old; while the
primary is written the backup is whole and new. An MBR is one sector. The EBRs are written before it, while it hides
the container that they belong to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from aligntool.apply.device import Device, Sectors, Writing
from aligntool.apply.partition_tables.gpt_copy import read_copy
from aligntool.errors import Stopped


class TableState(StrEnum):
    BEFORE = "before"
    PARKED = "parked"
    AFTER = "after"
    OTHER = "other"  # none of the three: somebody else has changed the table


@dataclass(frozen=True, slots=True)
class TableImages:
    """Whole sectors. The last group of each is the one that counts: the GPT's primary copy, or the MBR."""

    before: Writing
    parked: Writing
    after: Writing

    def of(self, state: TableState) -> Writing:
        """Raises ValueError for OTHER, of which nothing is known."""
        match state:
            case TableState.BEFORE:
                return self.before
            case TableState.PARKED:
                return self.parked
            case TableState.AFTER:
                return self.after
        raise ValueError("another table has no image")


_KNOWN = (TableState.PARKED, TableState.BEFORE, TableState.AFTER)


def table_state(device: Device, images: TableImages) -> TableState:
    """What a reader of the disk sees now: the GPT's primary copy where it is valid, else its backup; or the MBR.

    Raises OSError where the table cannot be read.
    """
    last_group = images.parked[-1]
    if any(sectors.at == 0 for sectors in last_group):
        return _state_of_mbr(device, images)
    sector_size = min(sectors.at for sectors in last_group)  # the primary header is sector 1
    found = _first_held(device, images, group=-1)
    if found is TableState.OTHER:
        primary = read_copy(device, 1, sector_size)
        if primary is None or not primary.sound:
            found = _first_held(device, images, group=0)
    return found


def way_to(device: Device, images: TableImages, goal: TableState) -> Writing:
    """The groups that bring the table from whatever a cut has left to `goal`, readable at every moment.

    The group that counts is written anew as it is now, for it may be torn: a GPT whose primary copy is torn must not
    have its backup touched. Raises Stopped when the disk has another table, or one that is not a neighbour of `goal`
    (PARKED lies between the other two).
    """
    now = table_state(device, images)
    if now is TableState.OTHER:
        raise Stopped("the partition table was changed by somebody else since the move began")
    if now is not goal and TableState.PARKED not in (now, goal):
        raise Stopped(f"the partition table is the one {now} the move, and cannot become the one {goal} it")
    return (images.of(now)[-1], *images.of(goal))


def _state_of_mbr(device: Device, images: TableImages) -> TableState:
    """In flight the EBRs are out of sight and may be anything; otherwise they are a part of the table."""
    for state in _KNOWN:
        if all(_holds(device, group) for group in images.of(state)):
            return state
    return TableState.OTHER


def _first_held(device: Device, images: TableImages, *, group: int) -> TableState:
    for state in _KNOWN:
        if _holds(device, images.of(state)[group]):
            return state
    return TableState.OTHER


def _holds(device: Device, group: Sequence[Sectors]) -> bool:
    return all(bytes(device.read(sectors.at, len(sectors.data))) == sectors.data for sectors in group)
