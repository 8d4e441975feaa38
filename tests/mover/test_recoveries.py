"""What a resume or a rollback handles beyond a power cut: journals inside images, other sectors, a step done again."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from aligntool.change import StepBegun
from aligntool.mover.context import MoveContext
from aligntool.mover.hidden_signatures import marker
from aligntool.mover.journal_search import find_journal
from aligntool.mover.move import realign, resume, rollback, status
from aligntool.steps import CopyContent, HoldContent, ParkEntries, ReleaseContent, RewriteTable
from aligntool.units import MIB, Extent
from tests.mover.crowded_disks import JOURNAL, Crowd, make_crowd
from tests.mover.libblkid import find_library
from tests.mover.planned_disks import Planned, make_planned
from tests.mover.recognition import (
    Log,
    Shift,
    Trip,
    check_every_state,
    make_trip,
    move_log,
    rollback_log,
    state_before_commit,
)
from tests.mover.simulated_disk import SECTOR, SimulatedDisk
from tests.mover.specimens import SPECIMENS
from tests.mover.test_damaged_records import SLOTS, damaged, slot_at
from tests.mover.test_lost_tables import copying, ended, without_table
from tests.mover.test_other_journals import until, with_place
from tests.mover.test_planned_cuts import check, check_what_stays
from tests.mover.test_simulated_cuts import NoKernel, act, check_end, final, leads_to_new
from tests.thorough import sample

pytestmark = pytest.mark.needs_tools("sfdisk")

Way = Callable[..., Iterator[object]]
GRID = 1 << 16
DOWNWARDS = (9719, 9728)  # no marker remains where a partition began, once the first is at its new place


def with_an_image_inside(outer: bytes, inner: Crowd) -> bytes:
    """Return a larger disk whose last part contains the image of another disk in flight."""
    return outer + bytes(-len(outer) % GRID) + copying(inner) + bytes(MIB)


@pytest.mark.parametrize("label", ["gpt", "dos"])
@pytest.mark.parametrize("way", [resume, rollback])
@pytest.mark.parametrize("restore_table", [False, True])
def test_the_journal_of_an_image_inside_the_disk_is_not_used_for_the_disk(
    label: str, way: Way, *, restore_table: bool
) -> None:
    crowd, inner = make_crowd(9601, label), make_crowd(9602, label)
    host = with_an_image_inside(without_table(crowd, copying(crowd)), inner)
    check_end(crowd, ended(host, way, restore_table=restore_table), new=way is resume)


def test_an_image_in_flight_inside_a_disk_without_a_table_is_not_the_disk_in_flight() -> None:
    inner = make_crowd(9602, "gpt")
    host = with_an_image_inside(bytes(MIB), inner)
    for any_table in (False, True):
        assert find_journal(SimulatedDisk(host), None, any_table=any_table) is None
    assert status(MoveContext(SimulatedDisk(host), NoKernel())).state == "old"


@pytest.mark.parametrize("seed", DOWNWARDS)
@pytest.mark.parametrize("kind", [HoldContent, CopyContent, ReleaseContent, RewriteTable])
@pytest.mark.parametrize("way", [resume, rollback])
def test_the_journal_of_a_move_that_never_began_is_not_used_for_the_one_in_flight(
    seed: int, kind: type, way: Way
) -> None:
    """A search finds it first, and no table leads to the other one."""
    crowd = make_crowd(seed, "dos")
    larger = crowd.platter + bytes(-len(crowd.platter) % GRID + 8 * GRID)
    beyond = Extent(len(larger) - 7 * GRID, JOURNAL)
    stale, _ = until(with_place(crowd, extent=beyond), larger, ParkEntries)
    cut, _ = until(crowd, stale, kind)
    left = without_table(crowd, cut)
    check_end(crowd, ended(left, way), new=leads_to_new(left, resumed=way is resume))


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("way", ["resume", "rollback"])
def test_a_record_that_one_copy_has_lost_is_written_again_before_the_move_continues(copy: int, way: str) -> None:
    """Both slots, not only the one for the next record; then the other copy loses its records."""
    crowd = make_crowd(9603, "gpt")
    lost = (slot_at(crowd, copy, slot) for slot in SLOTS)
    platter = damaged(copying(crowd), lost, b"\xff" * SECTOR)
    cut = act(crowd, platter, way, 10).after_the_cut(random.Random(1), torn=False)
    lost = (slot_at(crowd, 1 - copy, slot) for slot in SLOTS)
    check_end(crowd, final(act(crowd, damaged(cut, lost, b"\xff" * SECTOR), way)), new=way == "resume")


@sample(1)
@pytest.mark.needs_tools("mke2fs", "mkfs.fat")
@pytest.mark.parametrize("way", [resume, rollback])
def test_a_move_begun_with_large_sectors_is_continued_where_the_disk_has_small_ones(way: Way) -> None:
    """As behind another USB adapter. Cut while markers are written, and when the first batches are copied."""
    planned = make_planned(9604, "dos", 4096)
    first, last = (operations_before(planned, kind) for kind in (HoldContent, CopyContent))
    whole = SimulatedDisk(planned.platter, sector=planned.sector)
    list(realign(planned.plan, MoveContext(whole, NoKernel()), planned.runs))
    for cut in range(first, last + 8, 3):
        left = whole.before(cut).after_the_cut(random.Random(cut), torn=False)
        disk = SimulatedDisk(left)
        list(way(MoveContext(disk, NoKernel())))
        check(planned, final(disk), new=leads_to_new(left, resumed=way is resume))
        check_what_stays(planned, final(disk))


def operations_before(planned: Planned, kind: type) -> int:
    """Count the operations before the first step of that kind."""
    disk = SimulatedDisk(planned.platter, sector=planned.sector)
    first = next(index for index, step in enumerate(planned.plan.steps) if isinstance(step, kind))
    for event in realign(planned.plan, MoveContext(disk, NoKernel()), planned.runs):
        if event == StepBegun(first):
            break
    return disk.operations


@pytest.mark.skipif(find_library() is None, reason="libblkid.so.1 is not here")
@pytest.mark.parametrize("name", ["ext4", "luks2 16K"])
@pytest.mark.parametrize("way", ["resume", "rollback"])
def test_content_that_is_restored_a_second_time_is_hidden_first(name: str, way: str) -> None:
    """Cut when all of it was restored and no record showed it: torn sectors show nothing that is not complete."""
    trip = make_trip(next(one for one in SPECIMENS if one.name == name), Shift(63, 2048))
    trip = replace(trip, runs=(Extent(0, trip.old.length),))  # according to a map, it would not be copied back
    start, log = trip.platter, move_log(trip)
    place = trip.new
    if way == "rollback":
        start, place = state_before_commit(trip, log), trip.old
        log = rollback_log(start)
    platter = _put_back(trip, start, log, place.start, place.end)
    journal = find_journal(SimulatedDisk(platter), None)
    assert journal is not None
    disk = SimulatedDisk(platter)
    list({"resume": resume, "rollback": rollback}[way](MoveContext(disk, NoKernel())))
    sign = marker(SECTOR, journal.at, journal.id)
    assert check_every_state(trip, platter, disk.log, random.Random(name), most=40, marker=sign)


def _put_back(trip: Trip, start: bytes, log: Log, first: int, end: int) -> bytes:
    """Return the disk when the last write to these bytes was flushed."""
    last = max(index for index, entry in enumerate(log) if entry and first <= entry[0] < end)
    platter = bytearray(start)
    for entry in log[: last + 1]:
        if entry:
            platter[entry[0] : entry[0] + len(entry[1])] = entry[1]
    return bytes(platter)
