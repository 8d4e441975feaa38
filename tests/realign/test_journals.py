"""The place of the journal: in space that is unused before, during and after the move."""

from dataclasses import replace

import pytest

from aligntool.change import Plan, RealignGoal
from aligntool.errors import Refused
from aligntool.inventory import TableLabel
from aligntool.realign.search import JournalNeeds, free_runs, holds_all, least_journal_length, place_journal
from aligntool.steps import JournalPlace, RewriteTable, WriteJournal
from aligntool.units import GIB, KIB, MIB, Extent
from tests.realign.movable_disks import movable_disk, plan_for

ONE = JournalNeeds(held=256 * KIB, table=33 * KIB, partitions=1, distances=(992 * KIB,))
SHORT = JournalNeeds(held=256 * KIB, table=33 * KIB, partitions=1, distances=(512,))


def journal_of(plan: Plan) -> JournalPlace:
    (step,) = (step for step in plan.steps if isinstance(step, WriteJournal))
    return step.journal


def test_with_enough_room_the_journal_has_its_full_size_near_the_end_of_the_disk() -> None:
    place = place_journal([Extent(MIB, GIB), Extent(3 * GIB, GIB), Extent(5 * GIB, MIB)], ONE)
    assert place is not None
    assert (place.copy_length, place.stash) == (4 * MIB, Extent(8 * MIB, 40 * MIB))
    assert place.extent == Extent(4 * GIB - 48 * MIB, 48 * MIB)


def test_a_short_move_which_uses_the_stash_for_everything_has_one_of_32_mib() -> None:
    place = place_journal([Extent(MIB, GIB)], SHORT)
    assert place is not None
    assert place.stash.length == 32 * MIB


@pytest.mark.parametrize("needs", [ONE, SHORT])
def test_with_less_room_the_journal_is_smaller_down_to_a_minimum(needs: JournalNeeds) -> None:
    lengths = [needed for needed in range(0, 20 * MIB, 64 * KIB) if place_journal([Extent(MIB, needed)], needs)]
    assert lengths[0] == least_journal_length(needs)
    assert lengths == list(range(least_journal_length(needs), 20 * MIB, 64 * KIB))
    for length in lengths:
        place = place_journal([Extent(MIB, length)], needs)
        assert place is not None and Extent(MIB, length).contains(place.extent)
        assert place.stash.length >= 64 * KIB
        if length >= 2 * MIB:
            assert place.copy_length >= needs.held + 3 * needs.table + 64 * KIB
            assert place.stash.length >= (256 * KIB if needs is SHORT else 992 * KIB)
        assert holds_all(place, needs) == (place.copy_length >= 512 * KIB)


def test_192_kib_suffice_for_a_partition_of_which_only_signature_sectors_are_held() -> None:
    needs = replace(ONE, spots=26 * KIB)
    assert least_journal_length(needs) == 192 * KIB
    place = place_journal([Extent(MIB, 256 * KIB)], needs)
    assert place is not None and (place.copy_length, holds_all(place, needs)) == (64 * KIB, False)


@pytest.mark.parametrize("slack", [256, 300, 512, 1000, 1126, 2047])
@pytest.mark.parametrize("label", [TableLabel.DOS, TableLabel.GPT])
def test_a_full_old_disk_with_little_slack_gets_a_journal_in_it(slack: int, label: TableLabel) -> None:
    """A distance of 63 sectors leaves room where one of 1 MiB does not."""
    start, table = (63, 0) if label is TableLabel.DOS else (35, 33)
    end = start + 400_000
    size = (end + 2 * slack + table) * 512
    plan = plan_for(movable_disk(f"{start}+400000 ext4", label=label, size=size))
    place = journal_of(plan)
    after = plan.places[0].after
    assert after.start % 4096 == 0 and after.end <= place.extent.start
    assert place.extent.end <= size - table * 512
    assert place.extent.start % (64 * KIB) == 0 and place.copy_length >= 64 * KIB


def test_free_runs_begin_where_a_journal_is_searched_for() -> None:
    taken = [Extent(0, 100), Extent(200 * KIB, 1), Extent(300 * KIB, MIB), Extent(310 * KIB, KIB)]
    room = Extent(0, 2 * MIB)
    assert list(free_runs(taken, room)) == [
        Extent(64 * KIB, 136 * KIB),
        Extent(256 * KIB, 44 * KIB),
        Extent(1344 * KIB, 704 * KIB),
    ]


def test_on_an_mbr_disk_the_gap_before_the_first_partition_is_kept_for_boot_loaders() -> None:
    text = "300001+100000 ext4; 400384+300000 xfs"
    with pytest.raises(Refused, match="no room for the journal"):
        plan_for(movable_disk(text, label=TableLabel.DOS, size=700384 * 512))
    gpt = journal_of(plan_for(movable_disk(text, size=(700384 + 33) * 512)))
    assert 16 * MIB <= gpt.extent.start < gpt.extent.end <= 299008 * 512


def test_the_journal_is_never_in_the_first_16_mib_before_a_partition() -> None:
    """16.1 MiB are free from sector 34 on, of which 0.1 count: boot loaders of ARM boards are before them."""
    text = "33001+100000 ext4; 133002+300000 xfs"
    with pytest.raises(Refused, match="no room for the journal"):
        plan_for(movable_disk(text, size=(433009 + 33) * 512))


def test_the_journal_does_not_overwrite_the_first_ebr_of_an_empty_container() -> None:
    """Behind it there is room; a place around it would also be large enough."""
    text = "2048+2048; 2e 8000+4000; 12001+100000 ext4"
    disk = movable_disk(text, label=TableLabel.DOS, size=112008 * 512)
    place = journal_of(plan_for(disk))
    assert not place.extent.overlaps(Extent(8000 * 512, 512))


@pytest.mark.parametrize("sixth", [24065, 25001])
def test_the_journal_overwrites_neither_the_old_nor_the_new_ebr_in_free_space(sixth: int) -> None:
    """The only free space is inside the container, and ends with the EBR of partition 6: the old or the new one."""
    end = max(sixth, 24576) + 20000
    text = f"2048+2048; 2e 4096+{end - 4096}; 5l 4159+4000; 6l {sixth}+20000"
    plan = plan_for(movable_disk(text, label=TableLabel.DOS, size=end * 512))
    records = [
        record
        for step in plan.steps
        if isinstance(step, RewriteTable)
        for change in step.changes
        for record in (change.record_before, change.record_after)
        if record is not None
    ]
    assert (sixth - 63) * 512 in records
    assert (24576 - 63) * 512 in records
    assert not any(journal_of(plan).extent.overlaps(Extent(record, 512)) for record in records)


def test_without_room_the_refusal_states_what_is_missing_and_a_file_is_accepted() -> None:
    disk = movable_disk("2049+100000 ext4; 102400+300000 xfs", size=(402400 + 33) * 512)
    with pytest.raises(
        Refused, match=r"it needs 192KiB in one piece, but the largest free one has .* \d+ bytes short"
    ) as refusal:
        plan_for(disk)
    assert refusal.value.hint == "fill in FILE: sudo aligntool realign /dev/sda --journal FILE"
    place = journal_of(plan_for(disk, RealignGoal(journal_file="/mnt/usb/journal")))
    assert (place.file, place.extent.start) == ("/mnt/usb/journal", 0)


def test_a_given_journal_file_is_used_even_if_the_disk_has_room() -> None:
    disk = movable_disk("63+100000 ext4")
    assert journal_of(plan_for(disk, RealignGoal(journal_file="journal.bin"))).file == "journal.bin"
