"""While partitions move, other programs find no free space where the journal is, or where partitions will be."""

import json
import random
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from aligntool.change import MovePlan, RealignGoal
from aligntool.claims import ALL_FREE
from aligntool.errors import Refused
from aligntool.mover.claimed_room import FULL_MBR, FlightClaims, claims_of, entries_in_flight
from aligntool.mover.context import MoveContext
from aligntool.mover.move import realign, resume, rollback
from aligntool.realign.found_plan import find_plan
from aligntool.realign.planning import plan_realign
from aligntool.realign.request import Request, look_at
from aligntool.steps import CopyContent, CopyStrips, HoldContent, ParkEntries, ReleaseContent, SavedRanges, WriteJournal
from aligntool.units import KIB, MIB, Extent
from tests.conftest import attached, run
from tests.mover.entries import entries
from tests.mover.planned_disks import Planned
from tests.mover.simulated_disk import SimulatedDisk, crashes
from tests.mover.test_planned_cuts import act, drawn, journal_fits
from tests.mover.test_simulated_cuts import NoKernel, act_on, leads_to_new
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.needs_tools("sfdisk")

SEEDS = range(40 if THOROUGH else 3)
LOOKS = 12 if THOROUGH else 4


@pytest.mark.needs_root
@pytest.mark.needs_tools("parted", "losetup")
@sample(4)
@pytest.mark.parametrize("sector", [512, 4096])
@pytest.mark.parametrize("label", ["gpt", "dos"])
@pytest.mark.parametrize("seed", SEEDS)
def test_other_programs_find_no_room_in_flight(seed: int, label: str, sector: int, tmp_path: Path) -> None:
    planned = next(each for each in drawn(seed, label, sector) if journal_fits(each))
    luck, image = random.Random(seed), tmp_path / "disk.img"
    flying = drawn_from((platter for platter in cuts(planned, luck) if is_in_flight(planned, platter)), LOOKS)
    assert flying
    for platter in flying:
        image.write_bytes(platter)
        with attached(image, "-b", str(sector)) as device:
            places = claims_of(planned.plan.steps).places
            assert not overlapping(free_for_sfdisk(device, sector), places)
            # A full MBR has no entry for the first sector of a new place directly behind a partition that stays.
            left = overlapping(free_for_parted(device), places)
            assert all(free.length == sector for free in left)
            assert label == "dos" or not left
        for how in ("resume", "rollback"):
            done, _ = act(planned, how, platter, None, luck, None)
            image.write_bytes(done)
            is_new = leads_to_new(platter, resumed=how == "resume", sector=sector)
            goal = moved(planned) if is_new else planned.platter
            assert table_of_sfdisk(image, sector, tmp_path, done) == table_of_sfdisk(image, sector, tmp_path, goal)


def drawn_from(platters: Iterable[bytes], most: int) -> list[bytes]:
    """Return so many of them, each as likely as any other: all of them would need gigabytes."""
    luck, kept = random.Random(0), list[bytes]()
    for number, platter in enumerate(platters):
        if number < most:
            kept.append(platter)
        elif (place := luck.randrange(number + 1)) < most:
            kept[place] = platter
    return kept


def cuts(planned: Planned, luck: random.Random) -> Iterator[bytes]:
    disk = SimulatedDisk(planned.platter, sector=planned.sector)
    for _ in realign(planned.plan, MoveContext(disk, NoKernel()), planned.runs):
        pass
    return iter(crashes(planned.platter, disk.log, luck, torn=False, sector=planned.sector))


def moved(planned: Planned) -> bytes:
    disk = SimulatedDisk(planned.platter, sector=planned.sector)
    for _ in realign(planned.plan, MoveContext(disk, NoKernel()), planned.runs):
        pass
    return disk.after_the_cut(random.Random(0), torn=False)


def is_in_flight(planned: Planned, platter: bytes) -> bool:
    return any(entry.parked for entry in entries(platter, planned.sector).values())


def overlapping(free: list[Extent], places: tuple[Extent, ...]) -> list[Extent]:
    """Return what is free of these places."""
    return [
        Extent(max(one.start, place.start), min(one.end, place.end) - max(one.start, place.start))
        for one in free
        for place in places
        if one.overlaps(place)
    ]


def free_for_sfdisk(device: Path, sector: int) -> list[Extent]:
    rows = [line.split() for line in run("sfdisk", "--list-free", device).splitlines()]
    found = [(int(row[0]), int(row[1])) for row in rows if len(row) == 4 and row[0].isdigit()]
    return [Extent(first * sector, (last - first + 1) * sector) for first, last in found]


def free_for_parted(device: Path) -> list[Extent]:
    rows = [line.split(":") for line in run("parted", "-sm", device, "unit", "B", "print", "free").splitlines()]
    return [Extent(int(row[1][:-1]), int(row[3][:-1])) for row in rows if row[-1] == "free;"]


def table_of_sfdisk(image: Path, sector: int, folder: Path, platter: bytes) -> tuple[object, str]:
    """Return the table as sfdisk and parted read it."""
    image.write_bytes(platter)
    with attached(image, "-b", str(sector)) as device:
        table = json.loads(run("sfdisk", "--json", device))["partitiontable"]
        name = str(device)
        found = [{**each, "node": each["node"].removeprefix(name)} for each in table["partitions"]]
        printed = run("parted", "-sm", device, "unit", "B", "print", "free").replace(name, "DISK")
    return (table["label"], table.get("id"), found), printed


def planned_for(image: Path, *rows: str, label: str = "gpt", journal_file: str | None = None) -> MovePlan:
    """Make a disk with these partitions, and plan to align them."""
    image.write_bytes(bytes(24 * MIB))
    lines = "\n".join((f"label: {label}", "unit: sectors", "grain: 512", *rows))
    run("sfdisk", "--quiet", image, stdin=lines + "\n")
    for row in rows:
        start, size = (int(word) for word in re.findall(r"(?:start|size)=(\d+)", row))
        if "type=5" not in row:
            run("mke2fs", "-q", "-F", "-E", f"offset={start * 512}", image, f"{size * 512 // KIB}k")
    chosen = RealignGoal(journal_file=journal_file)
    return plan_realign(look_at(str(image), Request(goal=chosen))[0], chosen, {}, ALL_FREE)


def in_the_middle(image: Path, plan: MovePlan) -> bytes:
    """Return the disk after a cut in the middle of the move."""
    park = next(step for step in plan.steps if isinstance(step, ParkEntries))
    runs = {number: (Extent(0, MIB),) for number in park.partitions}
    whole = act_on(SimulatedDisk(image.read_bytes()), plan, runs, "realign")
    disk = act_on(SimulatedDisk(image.read_bytes(), cut=whole.operations // 2), plan, runs, "realign")
    return disk.after_the_cut(random.Random(0), torn=False)


def grow(image: Path, number: int) -> str:
    done = subprocess.run(("growpart", image, str(number)), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.needs_tools("growpart")
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_growpart_changes_nothing_in_flight(label: str, tmp_path: Path) -> None:
    """A partition before free space stays; the next one moves, and the journal is at the end of the disk."""
    image = tmp_path / "disk.img"
    plan = planned_for(image, "start=2048, size=8192", "start=30751, size=8192", label=label)
    flying = in_the_middle(image, plan)
    assert "CHANGED" in grow(image, 2)
    for number in (1, 2):
        image.write_bytes(flying)
        said = grow(image, number)
        assert "NOCHANGE" in said
        assert image.read_bytes() == flying


def test_a_full_mbr_needs_a_journal_in_a_file(tmp_path: Path) -> None:
    """All free space is behind a partition that stays, and no entry is unused."""
    rows = ("start=63, size=3900", "start=4096, size=2048", "start=6144, size=2048", "start=8192, size=2048")
    image = tmp_path / "disk.img"
    with pytest.raises(Refused) as refused:
        planned_for(image, *rows, label="dos")
    assert FULL_MBR in str(refused.value)
    assert "--journal FILE" in str(refused.value.refusals[0].hint)
    assert planned_for(image, *rows, label="dos", journal_file="journal").steps
    assert planned_for(image, *rows[:3], label="dos").steps


def test_the_kernel_forgets_what_claimed_free_space(tmp_path: Path) -> None:
    """After a cut the kernel shows the entries in flight as partitions; afterwards it must not."""

    class Kernel(NoKernel):
        shown = frozenset(range(1, 129))

        def forget(self, numbers: tuple[int, ...]) -> None:
            self.shown -= set(numbers)

    image = tmp_path / "disk.img"
    plan = planned_for(image, "start=2048, size=8192", "start=30751, size=8192")
    flying = in_the_middle(image, plan)
    parked = {number for number, entry in entries(flying).items() if entry.parked}
    assert len(parked) > 1
    for recover in (resume, rollback):
        kernel = Kernel()
        for _ in recover(MoveContext(SimulatedDisk(flying), kernel)):
            pass
        assert parked.isdisjoint(kernel.shown)
        assert 1 in kernel.shown


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_without_its_journal_a_disk_stays_as_it_is(label: str, tmp_path: Path) -> None:
    """No next step names a partition: nothing but the entries in flight says where content is."""
    image = tmp_path / "disk.img"
    plan = planned_for(image, "start=2048, size=8192", "start=30751, size=8192", label=label)
    flying = bytearray(in_the_middle(image, plan))
    place = next(step.journal.extent for step in plan.steps if isinstance(step, WriteJournal))
    flying[place.start : place.end] = bytes(place.length)
    for recover in (resume, rollback):
        disk = SimulatedDisk(bytes(flying))
        with pytest.raises(Refused) as refused:
            list(recover(MoveContext(disk, NoKernel())))
        assert "in flight" in str(refused.value)
        assert "leave the disk as it is" in (refused.value.hint or "")
        assert not disk.log


ROOM = Extent(512, 32 * MIB - 512), 512


def test_an_entry_in_flight_does_not_begin_behind_a_partition_that_stays() -> None:
    target, others = Extent(8 * MIB, MIB), [Extent(6 * MIB, MIB), Extent(10 * MIB, 22 * MIB)]
    found = entries_in_flight(FlightClaims((target,)), {1: Extent(0, 6 * MIB)}, others, [2, 3], ROOM)
    assert found == {1: Extent(0, 6 * MIB), 2: Extent(7 * MIB + 512, 3 * MIB - 512)}


def test_the_first_sector_of_a_new_place_has_an_entry_of_its_own() -> None:
    target, others = Extent(7 * MIB, MIB), [Extent(6 * MIB, MIB), Extent(10 * MIB, 22 * MIB)]
    found = entries_in_flight(FlightClaims((target,)), {1: Extent(0, 6 * MIB)}, others, [2, 3], ROOM)
    assert found == {1: Extent(0, 6 * MIB), 2: Extent(7 * MIB, 512), 3: Extent(7 * MIB + 512, 3 * MIB - 512)}


def test_short_of_unused_entries_a_parked_one_is_extended() -> None:
    parked, stays = {1: Extent(0, 6 * MIB)}, [Extent(20 * MIB, 12 * MIB)]
    claims = FlightClaims((Extent(10 * MIB, MIB),))
    assert entries_in_flight(claims, parked, stays, [], ROOM) == {1: Extent(0, 20 * MIB)}
    found = entries_in_flight(claims, parked, stays, [2], ROOM)
    assert found == {**parked, 2: Extent(6 * MIB + 512, 14 * MIB - 512)}


def test_free_space_that_is_not_needed_gets_the_entries_that_are_left() -> None:
    parked, stays = {1: Extent(0, 6 * MIB)}, [Extent(6 * MIB, MIB), Extent(8 * MIB, MIB)]
    journal = Extent(30 * MIB, MIB)
    behind = Extent(9 * MIB + 512, 23 * MIB - 512)
    assert entries_in_flight(FlightClaims((journal,)), parked, stays, [2], ROOM) == {**parked, 2: behind}
    found = entries_in_flight(FlightClaims((journal,)), parked, stays, [2, 3], ROOM)
    assert found == {**parked, 2: behind, 3: Extent(7 * MIB + 512, MIB - 512)}


def test_short_of_unused_entries_the_start_of_a_parked_one_moves() -> None:
    parked, others = {1: Extent(8 * MIB, MIB)}, [Extent(0, 3 * MIB), Extent(9 * MIB, MIB)]
    target, journal = Extent(6 * MIB, MIB), Extent(30 * MIB, MIB)
    grown = Extent(3 * MIB + 512, 6 * MIB - 512)
    assert entries_in_flight(FlightClaims((target,)), parked, others, [], ROOM) == {1: grown}
    found = entries_in_flight(FlightClaims((target, journal)), parked, others, [2], ROOM)
    assert found == {1: grown, 2: Extent(10 * MIB + 512, 22 * MIB - 512)}
    assert entries_in_flight(FlightClaims((target, journal)), parked, others, [], ROOM) is None


def test_an_entry_whose_content_stays_visible_is_not_extended() -> None:
    """Its file system would be grown to the end of the entry, over what is claimed."""
    parked, others, journal = {1: Extent(0, 6 * MIB)}, [Extent(20 * MIB, 12 * MIB)], Extent(10 * MIB, MIB)
    claims = FlightClaims((journal,), frozenset({1}))
    found = entries_in_flight(claims, parked, others, [2], ROOM)
    assert found == {**parked, 2: Extent(6 * MIB + 512, 14 * MIB - 512)}
    assert entries_in_flight(claims, parked, others, [], ROOM) is None


@pytest.mark.needs_tools("mke2fs")
def test_a_plan_is_refused_if_the_move_could_not_begin(tmp_path: Path) -> None:
    """All entries of the GPT are used: none can claim the place of the journal."""
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(128 * MIB)
    others = "".join(f"start={40960 + 256 * number}, size=128\n" for number in range(127))
    run("sfdisk", "-q", image, stdin=f"label: gpt\nfirst-lba: 34\nstart=63, size=20480\n{others}")
    run("mke2fs", "-q", "-F", "-t", "ext2", "-E", f"offset={63 * 512}", image, "10240")
    with pytest.raises(Refused, match="no unused entry"):
        find_plan(str(image), Request(RealignGoal(), sector_size=512))


@pytest.mark.parametrize("kind", ["crypto_LUKS", "unknown", "ext4"])
def test_the_entry_of_content_that_is_as_long_as_its_partition_is_not_extended(kind: str) -> None:
    """A system opens it at its full length, and may write behind the old end."""
    place, target, held = Extent(MIB, 4 * MIB), Extent(2 * MIB, 4 * MIB), SavedRanges(())
    steps = (
        ParkEntries((1,), (1,)),
        HoldContent(1, place, held),
        CopyContent(1, kind, place, target, held, CopyStrips(MIB, MIB, MIB, 0)),
        ReleaseContent(1, kind, target, held, ()),
    )
    found = entries_in_flight(claims_of(steps), {1: place}, [], [2, 3, 4], ROOM)
    assert found and (found[1] == place)
    alone = entries_in_flight(claims_of(steps), {1: place}, [], [], ROOM)
    assert (alone is None) is (kind != "ext4")
