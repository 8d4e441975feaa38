"""Logical partitions: the chain of EBRs is rewritten, and sfdisk accepts the places."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.change import Plan, RealignGoal
from aligntool.claims import ALL_FREE
from aligntool.errors import Refused
from aligntool.inventory import Disk, Role, TableLabel
from aligntool.realign.planning import plan_realign
from aligntool.steps import CopyContent, EntryChange, ParkEntries, RewriteTable
from aligntool.units import Extent
from tests.conftest import run
from tests.mover.command_line import REFUSED, aligntool
from tests.mover.entries import write_records
from tests.realign.movable_disks import judged, movable_disk, plan_for, starts

SECTOR = 512
CYLINDERS = "63+100000 ntfs; 2e 112455+305235; 5l 112518+100359 ntfs; 6l 212940+100359 ntfs; 7l 313362+104328 ext4"


def old_disk(text: str = CYLINDERS, sectors: int = 600000) -> Disk:
    return movable_disk(text, label=TableLabel.DOS, size=sectors * SECTOR)


def changes(plan: Plan) -> dict[int, EntryChange]:
    (step,) = (step for step in plan.steps if isinstance(step, RewriteTable))
    return {change.number: change for change in step.changes}


def test_the_whole_chain_is_rewritten_and_the_first_ebr_stays_in_place() -> None:
    plan = plan_for(old_disk())
    assert starts(plan) == [2048, 112455, 112640, 215040, 317440]
    told = changes(plan)
    assert set(told) >= {1, 5, 6, 7}
    assert told[5].record_after == 112455 * SECTOR
    for number in (6, 7):
        record = told[number].record_after
        assert record is not None
        assert told[number].after.start - record == 63 * SECTOR  # as far before it as before


def test_the_container_is_parked_instead_of_its_logicals() -> None:
    (park,) = (step for step in plan_for(old_disk()).steps if isinstance(step, ParkEntries))
    assert (park.partitions, park.parked) == ((1, 5, 6, 7), (1, 2))


def test_the_container_grows_into_free_space_if_necessary() -> None:
    told = changes(plan_for(old_disk()))
    assert told[2].after.start == told[2].before.start
    assert told[2].after.end == told[7].after.end > told[2].before.end
    assert told[2].record_before is told[2].record_after is None


def test_a_container_whose_logicals_are_aligned_is_not_changed() -> None:
    plan = plan_for(old_disk("63+100000; 2e 102400+300000; 5l 104448+100000; 6l 206848+100000"))
    assert set(changes(plan)) == {1}


def test_with_a_single_free_sector_the_ebr_is_directly_before_its_partition() -> None:
    text = "2048+2048; 2e 4096+8207; 5l 4104+4095; 6l 8201+4102"
    plan = plan_for(old_disk(text, 12312), RealignGoal(journal_file="journal.bin"))
    told = changes(plan)
    assert told[6].after.start == 8208 * SECTOR
    assert told[6].record_after is not None
    assert told[5].after.end <= told[6].record_after < told[6].after.start


def test_an_ebr_is_placed_nearer_where_its_distance_does_not_fit() -> None:
    """Partition 6 can only go left, and 63 sectors are not available between the two."""
    text = "2048+2048; 2e 4096+8269; 5l 4104+4095; 6l 8263+4102"
    told = changes(plan_for(old_disk(text, 12365), RealignGoal(journal_file="journal.bin")))
    assert told[6].after.start == 8256 * SECTOR
    assert told[6].record_after == told[5].after.end == 8199 * SECTOR


def test_an_ebr_keeps_its_distance_where_it_fits() -> None:
    """Directly behind partition 5 there is a boundary too, but only one sector before it."""
    plan = plan_for(old_disk("2048+2048; 2e 4096+40000; 5l 4159+4095; 6l 10319+4102"))
    told = changes(plan)
    assert (told[5].after.start, told[6].after.start) == (6144 * SECTOR, 12288 * SECTOR)
    assert told[6].record_after == (12288 - 63) * SECTOR


def test_logicals_keep_their_order() -> None:
    plan = plan_for(old_disk("63+1000; 2e 2048+400000; 5l 2111+100001; 6l 102175+100001; 7l 204869+9999"))
    logicals = [place.after.start for place in plan.places if place.number >= 5]
    assert logicals == sorted(logicals)


def test_an_unknown_ebr_is_refused() -> None:
    disk = old_disk()
    parts = tuple(replace(part, record_at=None) if part.number == 6 else part for part in disk.partitions)
    with pytest.raises(Refused, match="the position of the EBR of partition 6 is unknown"):
        plan_realign(judged(replace(disk, partitions=parts)), RealignGoal(), {}, ALL_FREE)


def test_a_chain_in_another_order_than_the_disk_is_refused() -> None:
    disk = old_disk()
    by_number = {part.number: part for part in disk.partitions}
    swapped = (
        by_number[1], by_number[2],
        replace(by_number[6], number=5), replace(by_number[5], number=6), by_number[7],
    )  # fmt: skip
    with pytest.raises(Refused, match="not the first on the disk"):
        plan_realign(judged(replace(disk, partitions=swapped)), RealignGoal(), {}, ALL_FREE)


def test_copies_of_logicals_do_not_overwrite_each_other() -> None:
    copies = [step for step in plan_for(old_disk()).steps if isinstance(step, CopyContent)]
    assert [step.partition for step in copies if step.partition >= 5] == [7, 6, 5]


# sfdisk's reading of such a table


def write_with_sfdisk(image: Path, disk: Disk, places: dict[int, Extent]) -> dict[int, tuple[int, int]]:
    """Make the table with sfdisk, which places its own EBRs, and read it back: number -> start, sectors."""
    lines = ["label: dos", "unit: sectors"]
    for part in sorted(disk.partitions, key=lambda part: part.number):
        kind = "5" if part.role is Role.EXTENDED else "83"
        extent = places[part.number]
        lines.append(f"{part.number} : start={extent.start // SECTOR}, size={extent.length // SECTOR}, type={kind}")
    run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", image, stdin="\n".join(lines) + "\n")
    table = json.loads(run("sfdisk", "--json", image))["partitiontable"]
    return {
        int(str(entry["node"]).removeprefix(str(image))): (entry["start"], entry["size"])
        for entry in table["partitions"]
    }


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize(
    "text",
    [
        CYLINDERS,
        "63+100000; 2e 102400+300000; 5l 102463+100001; 6l 206848+100000",
        "2048+2048; 2e 4096+40000; 5l 4159+4095; 6l 10319+4102",
    ],
)
def test_sfdisk_accepts_the_places_of_a_plan(text: str, tmp_path: Path) -> None:
    disk = old_disk(text)
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(disk.size or 0)
    places = {place.number: place.after for place in plan_for(disk).places}
    assert write_with_sfdisk(image, disk, places) == {
        number: (extent.start // SECTOR, extent.length // SECTOR) for number, extent in places.items()
    }


def test_an_ebr_with_its_link_first_is_refused_by_the_planner(tmp_path: Path) -> None:
    """Not only by the mover, after the confirmation: Linux reads it, but the new chain would be in the usual order."""
    disk = tmp_path / "disk.img"
    chain = {0: ((5, 2048, 60000),), 2048: ((5, 30000, 20063), (0x83, 63, 20000)), 32048: ((0x83, 63, 20000),)}
    write_records(disk, 64 << 20, chain)
    assert "entries in an unusual order" in " ".join(aligntool("plan", "realign", disk, code=REFUSED).split())


def test_the_journal_leaves_the_ebrs_without_a_partition_intact(tmp_path: Path) -> None:
    """They link to the logical partitions behind them, which Linux does not find without them."""
    disk = tmp_path / "disk.img"
    first, step, last = 40960, 1024, 131072
    records = [first, *range(first + 8192, last, step), last]
    listed = {first: (0x83, 2048, 4096), last: (0x83, 2048, 4096)}
    chain = {0: ((0x83, 63, 20000), (5, first, 163840))}
    for at, following in zip(records, [*records[1:], 0], strict=True):
        chain[at] = (listed.get(at, (0, 0, 0)), (5, following - first, 8192) if following else (0, 0, 0))
    write_records(disk, 100 << 20, chain)
    before = disk.read_bytes()
    assert "partition 1" in aligntool("realign", "--yes", disk)
    after = disk.read_bytes()
    assert after[:SECTOR] != before[:SECTOR]
    assert [at for at in records if after[at * SECTOR :][:SECTOR] != before[at * SECTOR :][:SECTOR]] == []
