"""Other programs act on a disk in flight, between the runs and in spite of the lock: no command loses a byte silently.

A resume or a rollback that ends without an error leaves every partition whole, also those that were made or grown
meanwhile. Otherwise it stops, and states why.
"""

import random
import struct
from collections.abc import Iterator

import pytest

from aligntool.change import StepBegun
from aligntool.errors import Refused, Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.journal_format import SLOT
from aligntool.mover.journal_search import find_journal
from aligntool.mover.move import realign, resume, rollback
from aligntool.mover.newcomers import newcomers
from aligntool.steps import CloseJournal, HoldContent, ParkEntries, RewriteTable
from aligntool.units import Extent
from tests.mover.crowded_disks import Crowd, make_crowd
from tests.mover.entries import entries
from tests.mover.other_programs import (
    ACTIONS,
    Action,
    SharedDisk,
    World,
    delete_a_partition,
    grow_a_neighbour,
    make_a_partition,
    use,
    write_to_free_space,
)
from tests.mover.simulated_disk import SECTOR, SimulatedDisk
from tests.mover.test_other_journals import until
from tests.mover.test_simulated_cuts import NoKernel, act, final, whole_at
from tests.mover.test_simulated_media import place_of
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.needs_tools("sfdisk")

SEEDS = range(60 if THOROUGH else 4)
MOMENTS = 6 if THOROUGH else 3
WAYS = {"resume": resume, "rollback": rollback}


def places_of(crowd: Crowd) -> tuple[Extent, ...]:
    """Return where the move writes besides the table, the old places and the two copies of the journal."""
    place = place_of(crowd)
    stash = Extent(place.extent.start + place.stash.start, place.stash.length)
    return (*(part.new for part in crowd.parts if part.moves), stash)


def check_kept(world: World, platter: bytes) -> None:
    """Check every partition that another program did not delete, and everything that it wrote to one."""
    world.platter = platter
    for part in world.crowd.parts:
        if part.number not in world.deleted:
            seen = world.entries[part.number]
            assert not seen.parked
            assert whole_at(world.crowd, platter, part, seen.extent.start), f"partition {part.number}"
    for number, (room, data) in world.grown.items():
        if number not in world.deleted:
            assert world.entries[number].extent.contains(room)
            assert platter[room.start : room.end] == data, f"what was written to partition {number} is lost"


def ended(world: World, way: str) -> str:
    """Resume or roll back; return how it ended, checked."""
    disk = SimulatedDisk(world.platter)
    try:
        list(WAYS[way](MoveContext(disk, NoKernel())))
    except Refused as refusal:
        assert disk.operations == 0, "a refusal after a write"
        if "nothing is in flight" in str(refusal):
            check_kept(world, final(disk))
            return "nothing"
        return "refused"
    except Stopped as stop:
        assert "the move is complete" in str(stop)
        check_kept(world, final(disk))
        return "nothing"
    check_kept(world, final(disk))
    return "done"


def worlds(seed: int, action: Action) -> Iterator[World]:
    """Yield disks on which the action took place after a cut."""
    luck = random.Random(f"{seed} {action.__name__}")
    crowd = make_crowd(11000 + seed, "gpt" if seed % 2 else "dos")
    operations = act(crowd, crowd.platter, "realign").operations
    for _ in range(MOMENTS):
        cut = luck.randrange(operations)
        past = tuple(act(crowd, crowd.platter, "realign", luck.randrange(cut + 1)) for _ in range(2))
        platter = act(crowd, crowd.platter, "realign", cut).after_the_cut(luck)
        copies = (crowd.platter, *(disk.after_the_cut(luck) for disk in past))
        world = World(crowd, platter, copies, places_of(crowd))
        action(world, luck)
        if world.acted:
            yield world


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_what_other_programs_did_between_two_runs_is_kept_or_the_work_stops(action: Action) -> None:
    ends = [ended(world, way) for seed in SEEDS for world in worlds(seed, action) for way in WAYS]
    assert len(ends) > 1


@sample(2)
@pytest.mark.parametrize("seed", range(30 if THOROUGH else 6))
@pytest.mark.parametrize("action", [grow_a_neighbour, make_a_partition])
def test_a_table_that_is_restored_over_a_changed_one_overwrites_no_other_byte(action: Action, seed: int) -> None:
    """What was made outside of the places of the move keeps its bytes, although its entry goes."""
    for world in worlds(seed, action):
        (((room, data),)) = world.grown.values()
        if find_journal(SimulatedDisk(world.platter), None) is None:
            continue
        if any(room.overlaps(place) for place in (*places_of(world.crowd), place_of(world.crowd).extent)):
            continue
        disk = SimulatedDisk(world.platter)
        list(resume(MoveContext(disk, NoKernel()), restore_table=True))
        assert final(disk)[room.start : room.end] == data
        world.grown.clear()
        check_kept(world, final(disk))


def begins(crowd: Crowd, kind: type) -> int:
    """Return the operation with which a step of a move begins."""
    disk = SimulatedDisk(crowd.platter)
    index = next(index for index, step in enumerate(crowd.plan.steps) if isinstance(step, kind))
    for event in realign(crowd.plan, MoveContext(disk, NoKernel()), crowd.runs):
        if event == StepBegun(index):
            return disk.operations
    raise AssertionError


@sample(3)
@pytest.mark.parametrize("seed", range(40 if THOROUGH else 8))
@pytest.mark.parametrize("action", [grow_a_neighbour, make_a_partition, delete_a_partition, write_to_free_space])
def test_what_other_programs_do_during_a_run_is_kept_or_it_stops(action: Action, seed: int) -> None:
    """From the first write to the table until the new one is written: the journal is read back before, and is closed
    within milliseconds after that.
    """
    luck = random.Random(seed)
    crowd = make_crowd(11000 + seed, "gpt" if seed % 2 else "dos")
    first, last = begins(crowd, ParkEntries), begins(crowd, CloseJournal) - 7  # a record is 6 operations
    tables = (*range(first, begins(crowd, HoldContent)), *range(begins(crowd, RewriteTable), last))
    for after in range(first, last) if THOROUGH else {*tables, *luck.sample(range(first, last), 4)}:
        world = World(crowd, crowd.platter, claimed=places_of(crowd))
        disk = SharedDisk(world, action, luck, after=after)
        try:
            list(realign(crowd.plan, MoveContext(disk, NoKernel()), crowd.runs))
        except Stopped:
            continue
        check_kept(world, final(disk))


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("way", WAYS)
def test_a_partition_grown_over_the_journal_of_a_complete_move_keeps_its_bytes(way: str, copy: int) -> None:
    """It has been used since, but not all of it: a head of the journal is still there, the other one is overwritten."""
    crowd = make_crowd(11003, "gpt")
    platter = until(crowd, crowd.platter, CloseJournal)[0]
    world = World(crowd, platter)
    number, seen = max(world.entries.items(), key=lambda entry: entry[1].extent.end)
    last = (len(platter) - 34 * SECTOR) // SECTOR
    world.edit_table("-N", str(number), lines=f"{seen.extent.start // SECTOR}, {last - seen.extent.start // SECTOR}\n")
    place = place_of(crowd)
    assert world.entries[number].extent.contains(place.extent)
    use(world, random.Random(1), number, Extent(place.extent.start + copy * place.copy_length, SLOT))
    assert find_journal(SimulatedDisk(world.platter), None) is not None
    assert ended(world, way) == ("nothing" if way == "rollback" else "done")
    assert find_journal(SimulatedDisk(world.platter), None) is None


@pytest.mark.parametrize("restore_table", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_data_at_the_place_of_an_old_ebr_is_kept(way: str, restore_table: bool) -> None:
    """In flight nothing shows that an EBR was there; a rollback would write it again."""
    found = 0
    for seed in range(11000, 11040, 2):
        crowd = make_crowd(seed, "dos")
        places = [place for part in crowd.parts for place in (part.old, part.new)]
        records = [Extent(part.record_old, SECTOR) for part in crowd.parts if part.moves and part.record_old]
        for record in records:
            if any(record.overlaps(place) for place in places):
                continue
            platter = until(crowd, crowd.platter, RewriteTable)[0]
            world = World(crowd, platter, claimed=places_of(crowd))
            data = random.Random(seed).randbytes(SECTOR)
            world.write(record.start, data)
            disk = SimulatedDisk(world.platter)
            with pytest.raises(Stopped, match=f"an EBR .byte {record.start}."):
                list(WAYS[way](MoveContext(disk, NoKernel()), restore_table=restore_table))
            assert disk.operations == 0
            found += 1
    assert found


PAGE = 4096


def swap_header(length: int, luck: random.Random) -> bytes:
    """Return the first page of a swap, as mkswap writes it to at least ten pages, with a random UUID."""
    page = bytearray(PAGE)
    page[1024:1036] = struct.pack("<III", 1, length // PAGE - 1, 0)
    page[1036:1052] = luck.randbytes(16)
    page[4086:] = b"SWAPSPACE2"
    return bytes(page)


@sample(3)
@pytest.mark.parametrize("seed", range(200 if THOROUGH else 40))
def test_content_made_in_an_entry_in_flight_is_kept_or_both_ways_stop(seed: int) -> None:
    """Also in an entry that only claims free space, and in one over which content is copied."""
    luck, stopped = random.Random(seed), 0
    crowd = make_crowd(12000 + seed, "gpt" if seed % 2 else "dos", longest=300)
    cut = luck.randrange(begins(crowd, HoldContent), begins(crowd, RewriteTable))
    platter = act(crowd, crowd.platter, "realign", cut).after_the_cut(luck)
    for seen in entries(platter).values():
        if not seen.parked or seen.extent.length < 10 * PAGE:
            continue
        for way in WAYS.values():
            world = World(crowd, platter)
            header = swap_header(seen.extent.length, luck)
            world.write(seen.extent.start, header)
            disk = SimulatedDisk(world.platter)
            try:
                list(way(MoveContext(disk, NoKernel())))
            except Stopped:
                stopped += 1
            assert final(disk)[seen.extent.start : seen.extent.start + len(header)] == header
    assert stopped


def test_an_unreadable_old_ebr_does_not_stop_a_resume() -> None:
    """A disk that fails has to be brought to one of its states."""
    found = 0
    for seed in range(11000, 11040, 2):
        crowd = make_crowd(seed, "dos")
        kept = {part.record_new for part in crowd.parts}
        places = [place for part in crowd.parts for place in (part.old, part.new)]
        for part in crowd.parts:
            record = Extent(part.record_old or 0, SECTOR)
            if not part.moves or not record.start or record.start in kept or any(map(record.overlaps, places)):
                continue
            platter = until(crowd, crowd.platter, RewriteTable)[0]
            disk = SimulatedDisk(platter, bad={record.start})
            list(resume(MoveContext(disk, NoKernel())))
            assert whole_at(crowd, final(disk), part, part.new.start)
            found += 1
    assert found


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_an_unreadable_start_of_an_entry_counts_as_empty(label: str) -> None:
    crowd = make_crowd(12001, label, longest=300)
    platter = until(crowd, crowd.platter, RewriteTable)[0]
    for seen in entries(platter).values():
        disk = SimulatedDisk(platter, bad={seen.extent.start})
        journal = find_journal(disk, None)
        assert journal is not None
        assert list(newcomers(disk, journal)) == []
