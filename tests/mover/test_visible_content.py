"""After a cut, content may be visible although its entry is parked. A system uses it by its UUID, and allocates what
the journal's map calls free: neither way loses that.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from aligntool.errors import NothingInFlight, Refused, Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.hidden_signatures import View, marker, restore_signatures, signature_bytes, with_markers
from aligntool.mover.journal_search import find_journal
from aligntool.mover.move import resume, rollback
from aligntool.mover.status import journal_status
from aligntool.steps import SavedRanges
from aligntool.units import Extent
from tests.mover.crowded_disks import PATCH_AT, Crowd, Part, make_crowd
from tests.mover.entries import entries
from tests.mover.simulated_disk import SECTOR, SimulatedDisk
from tests.mover.test_simulated_cuts import NoKernel, act, final, signs_at
from tests.thorough import THOROUGH

Way = Callable[[MoveContext], Iterator[object]]
ENOUGH = 40  # cuts at which content is visible


def free_sectors(part: Part) -> list[int]:
    taken = (*part.runs, *part.held.ranges)
    places = (Extent(at, SECTOR) for at in range(0, part.old.length, SECTOR))
    return [one.start for one in places if not any(one.overlaps(other) for other in taken)]


def free_sector(part: Part) -> int | None:
    """Return the offset of a sector that no map has and that the journal does not save."""
    return next(iter(free_sectors(part)), None)


def sector_of_a_marker(part: Part) -> int | None:
    """Return the offset of a free sector that has, at the new place, a marker of the old one."""
    shift = part.old.start - part.new.start
    left = {shift + at for extent in part.held.ranges for at in range(extent.start, extent.end, SECTOR)}
    return next((at for at in free_sectors(part) if at in left), None)


def saved_sector(part: Part) -> int | None:
    """Return the offset of a sector that the journal saves, without a signature and a field that a move changes."""
    places = (at for extent in part.held.ranges for at in range(extent.start, extent.end, SECTOR))
    signs = {at // SECTOR for at, _ in part.signs}
    return next((at for at in places if at // SECTOR not in {*signs, PATCH_AT // SECTOR}), None)


def visible(crowd: Crowd, platter: bytes, where: Callable[[Part], int | None]) -> Iterator[tuple[Part, int, int]]:
    """Yield what is recognised in flight, its start, and the offset of a sector of it."""
    for part in crowd.parts:
        at = where(part)
        for start in {part.old.start, part.new.start} if part.moves and part.signs and at is not None else ():
            if all(signs_at(platter, part, start)):
                yield part, start, at or 0


@pytest.mark.parametrize("where", [free_sector, saved_sector, sector_of_a_marker])
@pytest.mark.parametrize("way", [resume, rollback])
@pytest.mark.parametrize("label", ["dos", "gpt"])
def test_what_a_system_writes_to_visible_content_is_kept(
    label: str, way: Way, where: Callable[[Part], int | None]
) -> None:
    """At its old place, its new one, or shown again by a rollback; in the sectors that the journal saves as well."""
    tried = 0
    for seed in range(9700, 9760 if THOROUGH else 9706):
        if tried > ENOUGH and not THOROUGH:
            break
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
                for part, start, at in visible(crowd, left, where):
                    was = left[start + at : start + at + SECTOR]
                    # Zeros behind the content are what a torn marker would leave, too.
                    data = was[: SECTOR // 2].ljust(SECTOR, b"\0") if cut % 2 else random.Random(cut).randbytes(SECTOR)
                    used = left[: start + at] + data + left[start + at + SECTOR :]
                    disk = SimulatedDisk(used)
                    assert journal_status(disk, None).ways, f"stuck: seed {seed}, cut {cut}"
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


@pytest.mark.parametrize("is_used", [False, True])
def test_a_signature_is_restored_only_in_a_sector_that_is_as_it_was_hidden(is_used: bool) -> None:
    """A new file system in a mirror may have, at the byte of the old signature, what a marker has there."""
    content = bytearray(random.Random(1).randbytes(4096))
    content[1080:1082] = b"\x53\xef"
    sign = marker(SECTOR, 0, bytes(16))
    view = View(SavedRanges((Extent(0, 4096),)), (bytes(content),), 1 << 20, sign)
    (level,) = signature_bytes(view).last
    (hidden,) = with_markers(view, frozenset(), level)
    used = bytearray(hidden)
    used[2 * SECTOR + 300] ^= is_used
    disk = SimulatedDisk(bytes(used))
    restore_signatures(disk, 0, view)
    assert final(disk) == (bytes(used) if is_used else bytes(content))
