"""After a cut, content may be visible although its entry is parked. A system uses it by its UUID, and allocates what
the journal's map calls free: neither way loses that.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from aligntool.errors import NothingInFlight, Refused, Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.journal_search import find_journal
from aligntool.mover.move import resume, rollback
from aligntool.units import Extent
from tests.mover.crowded_disks import Crowd, Part, make_crowd
from tests.mover.entries import entries
from tests.mover.simulated_disk import SECTOR, SimulatedDisk
from tests.mover.test_simulated_cuts import NoKernel, act, final, signs_at
from tests.thorough import THOROUGH

Way = Callable[[MoveContext], Iterator[object]]


def free_sector(part: Part) -> int | None:
    """Return the offset of a sector that no map has and that the journal does not save."""
    taken = (*part.runs, *part.held.ranges)
    places = (Extent(at, SECTOR) for at in range(0, part.old.length, SECTOR))
    return next((one.start for one in places if not any(one.overlaps(other) for other in taken)), None)


def visible(crowd: Crowd, platter: bytes) -> Iterator[tuple[Part, int, int]]:
    """Yield what is recognised in flight, its start, and the offset of a free sector of it."""
    for part in crowd.parts:
        at = free_sector(part)
        for start in {part.old.start, part.new.start} if part.moves and part.signs and at is not None else ():
            if all(signs_at(platter, part, start)):
                yield part, start, at or 0


@pytest.mark.parametrize("way", [resume, rollback])
@pytest.mark.parametrize("label", ["dos", "gpt"])
def test_what_a_system_allocates_in_visible_content_is_kept(label: str, way: Way) -> None:
    tried = 0
    for seed in range(9700, 9760 if THOROUGH else 9706):
        crowd = make_crowd(seed, label)
        whole = act(crowd, crowd.platter, "realign")
        begun = final(whole.before(whole.operations // 2))
        logs = [whole]
        with suppress(NothingInFlight):
            logs.append(act(crowd, begun, "rollback"))
        for log in logs:
            for cut in range(log.operations):
                left = final(log.before(cut))
                if find_journal(SimulatedDisk(left), None) is None:
                    continue
                for part, start, at in visible(crowd, left):
                    data = random.Random(cut).randbytes(SECTOR)
                    used = left[: start + at] + data + left[start + at + SECTOR :]
                    disk = SimulatedDisk(used)
                    with suppress(Refused, Stopped):
                        list(way(MoveContext(disk, NoKernel())))
                    result = final(disk)
                    listed = entries(result).get(part.number)
                    if listed is None or listed.parked:
                        assert result == used, "refused after a write"
                        continue
                    place = listed.extent.start + at
                    assert result[place : place + SECTOR] == data, f"seed {seed}, cut {cut}"
                    tried += 1
    assert tried
