"""Where partitions go on difficult disks: crowded ones, shifted ones, and with restrictions by the user."""

import re
from dataclasses import replace

import pytest

from aligntool.audit.report import AuditOptions
from aligntool.change import RealignGoal, Used
from aligntool.claims import ALL_FREE
from aligntool.errors import Refused
from aligntool.inventory import Disk, DiskKind, TableLabel
from aligntool.realign.planning import find_repairs, plan_realign
from aligntool.steps import CopyContent, ReleaseContent, RewriteTable, ShrinkContent, WriteJournal
from aligntool.units import GIB, KIB, MIB, Extent
from tests.audit.builders import judge
from tests.realign.movable_disks import judged, movable_disk, plan_for, starts

ANY_JOURNAL = RealignGoal(journal_file="journal.bin")


@pytest.mark.parametrize(
    ("text", "sectors", "after"),
    [
        # No whole MiB between 63 and the next partition: the coarsest boundary available.
        ("63+2000; 2064+40000", 43000, [64, 2064]),
        ("63+1900; 2048+40000", 43000, [128, 2048]),
        ("63+1024; 2048+40000", 43000, [1024, 2048]),
        # Into the gap on the left, because there is none on the right.
        ("2048+2048; 8001+8191; 16192+40000", 60000, [2048, 6144, 16192]),
        # To the right, because there is less on the left.
        ("2048+2048; 4097+2000; 20480+40000", 61440, [2048, 4096, 20480]),
        ("2048+2049; 4097+2000; 20480+40000", 61440, [2048, 6144, 20480]),
        # Nothing moves left into the first MiB: right by a sector is possible, left by seven is not.
        ("63+8193; 8264+40000", 49000, [64, 8264]),
    ],
)
def test_a_crowded_disk_gets_the_coarsest_boundary_for_which_it_has_room(
    text: str, sectors: int, after: list[int]
) -> None:
    assert starts(plan_for(movable_disk(text, size=sectors * 512), ANY_JOURNAL)) == after


def test_an_aligned_partition_makes_room_only_if_nothing_cheaper_is_possible() -> None:
    disk = movable_disk("63+2001 ext4; 2064+2000 swap; 20480+40000 xfs", size=61440 * 512)
    plan = plan_for(disk, ANY_JOURNAL, {2: Used(2, 128 * KIB, "the header")})
    assert starts(plan) == [4096, 2064, 20480]  # it moves past its neighbour, which costs less than moving both
    assert any("the order of the partitions on the disk changes" in note for note in plan.notes)


def test_an_aligned_neighbour_is_moved_if_nothing_else_is_possible() -> None:
    """The 32 sectors behind the second one are the only free ones; the first needs one of them."""
    disk = movable_disk("63+2001 ext4; 2064+2000 swap; 4096+57344 xfs", size=61440 * 512, label=TableLabel.DOS)
    plan = plan_for(disk, ANY_JOURNAL)
    assert starts(plan) == [64, 2080, 4096]
    assert any("partition 2 is on the grid but moves anyway" in note for note in plan.notes)
    assert [step.partition for step in plan.steps if isinstance(step, CopyContent)] == [2, 1]


def test_a_neighbour_that_must_not_be_moved_makes_no_room() -> None:
    disk = movable_disk("63+2001 ext4; 2064+2000 BitLocker; 4096+57344 xfs", size=61440 * 512, label=TableLabel.DOS)
    with pytest.raises(Refused, match="no room to put partition 1"):
        plan_for(disk, ANY_JOURNAL)


def test_on_a_disk_of_many_partitions_an_enclosed_one_is_moved_to_the_free_end() -> None:
    """As with an MBR of 15 logical partitions whose first partition ends at the extended one."""
    wedge = "63+20001 ext4; 20064+8192 BitLocker"
    others = "; ".join(f"{28672 + 8192 * number}+8192 swap" for number in range(16))
    plan = plan_for(movable_disk(f"{wedge}; {others}", size=GIB, label=TableLabel.GPT))
    assert starts(plan)[0] >= 28672 + 8192 * 16 and starts(plan)[0] % 8 == 0
    assert [step.partition for step in plan.steps if isinstance(step, CopyContent)] == [1]


def test_a_missing_partition_is_the_only_reported_reason() -> None:
    with pytest.raises(Refused) as refused:
        plan_for(movable_disk("2048+20000 ext4"), RealignGoal(partitions=(9,)))
    assert len(str(refused.value).splitlines()) == 1 and "no partition 9" in str(refused.value)


def test_an_xp_jumper_puts_1mib_at_sector_2055() -> None:
    disk = movable_disk("64+100000 ntfs", offset=3584)
    assert starts(plan_for(disk)) == [2055]


def test_starts_are_in_sectors_of_4096_bytes_on_such_a_disk() -> None:
    disk = movable_disk("7+20000 ext4", logical=4096, physical=16384, size=GIB)
    assert starts(plan_for(disk)) == [256]


def test_an_allocation_unit_of_4mib_is_a_grid_and_not_a_preference() -> None:
    disk = replace(movable_disk("2048+100000 vfat", kind=DiskKind.SD), preferred_erase_size=4 * MIB)
    assert starts(plan_for(disk)) == [8192]


def test_a_given_grain_is_used_or_refused() -> None:
    roomy = movable_disk("64+100000 ext4")
    assert plan_for(roomy).steps == ()
    insisted = RealignGoal(grain=MIB, grain_given=True)
    assert starts(plan_for(roomy, insisted)) == [2048]
    crowded = movable_disk("63+2000; 2064+40000", size=42500 * 512)
    with pytest.raises(Refused, match="of the requested grain"):
        plan_for(crowded, RealignGoal(grain=MIB, grain_given=True, journal_file="journal.bin", partitions=(1,)))


def test_nothing_begins_before_the_least_start() -> None:
    disk = movable_disk("2048+100000 vfat")
    goal = RealignGoal(grain=4 * MIB, grain_given=True, least_start=4 * MIB)
    report = judge(disk, wishes=AuditOptions(grain=4 * MIB))
    assert starts(plan_realign(report.judged[0], goal, {}, ALL_FREE)) == [8192]


def test_a_partition_before_the_least_start_is_moved_even_if_it_is_on_the_grid() -> None:
    goal = RealignGoal(least_start=4 * MIB)
    assert starts(plan_for(movable_disk("2048+100000 vfat"), goal)) == [8192]
    assert starts(plan_for(movable_disk("63+100000 vfat; 204800+1000"), goal)) == [8192, 204800]


def test_only_the_named_partition_is_moved() -> None:
    plan = plan_for(movable_disk("63+1000; 10001+1000; 20001+1000"), RealignGoal(partitions=(2,)))
    assert starts(plan) == [63, 10240, 20001]
    assert any("partition 3" in note and "not named" in note for note in plan.notes)


def test_a_bios_boot_partition_is_not_moved_from_where_boot_img_reads_it() -> None:
    disk = movable_disk("34+2014; 2049+100000 ext4")
    boot = replace(disk.partitions[0], type_code="21686148-6449-6E6F-744E-656564454649")
    disk = replace(disk, partitions=(boot, disk.partitions[1]))
    assert starts(plan_for(disk)) == [34, 2048]
    with pytest.raises(Refused, match="BIOS boot partition"):
        plan_for(disk, RealignGoal(partitions=(1, 2)))


def test_a_file_system_in_a_partition_of_a_reserved_type_is_moved() -> None:
    disk = movable_disk("63+100000 ntfs")
    part = replace(disk.partitions[0], type_code="E3C9E316-0B5C-4DB8-817D-F92DF00215AE")
    assert starts(plan_for(replace(disk, partitions=(part,)))) == [2048]


def test_the_cheaper_of_two_solutions_is_chosen() -> None:
    """Both neighbours could make room; the one with less data does."""
    text = "2048+2048 ext4; 4097+8191 ntfs; 12288+2048 xfs"
    disk = movable_disk(text, size=(14336 + 8 + 33) * 512)
    little_in_3 = {1: Used(1, MIB, "a map"), 3: Used(3, KIB, "a map")}
    plan = plan_for(disk, ANY_JOURNAL, little_in_3)
    assert plan.places[0].before == plan.places[0].after


def test_a_named_partition_on_the_grid_is_not_moved_without_room_for_a_whole_mib() -> None:
    disk = movable_disk("63+60001 ext4; 60064+71008 ext4", size=131072 * 512, label=TableLabel.DOS)
    for shrink in (False, True):
        plan = plan_for(disk, RealignGoal(partitions=(2,), shrink=shrink))
        assert starts(plan) == [63, 60064] and not plan.steps


# Shrinking


def test_a_full_disk_is_refused_with_the_shrink_that_would_suffice() -> None:
    disk = movable_disk("34+102400 ext4; 102434+400000 ext4", size=(502434 + 33) * 512)
    with pytest.raises(Refused, match=r"ext4 on partition 2 has \d+MiB to spare") as refusal:
        plan_for(disk)
    assert refusal.value.hint.endswith("--shrink")
    assert {mend.answer for mend in find_repairs(judged(disk))} == {"with-shrink"}


def test_the_last_file_system_is_shrunk_by_as_little_as_necessary() -> None:
    disk = movable_disk("34+102400 ext4; 102434+400000 ext4", size=(502434 + 33) * 512)
    plan = plan_for(disk, RealignGoal(shrink=True))
    (shrink,) = (step for step in plan.steps if isinstance(step, ShrinkContent))
    assert (shrink.partition, shrink.extent) == (2, Extent(102434 * 512, 400000 * 512))
    by = shrink.extent.length - shrink.length
    assert by % MIB == 0
    (journal,) = (step.journal.extent for step in plan.steps if isinstance(step, WriteJournal))
    assert journal.end <= (502434 * 512)
    # The same disk with this much free space from the beginning is planned without shrinking; with a MiB less it is
    # not.
    grain = RealignGoal(grain_given=True)
    assert plan_for(with_free_space(by), grain).steps
    with pytest.raises(Refused):
        plan_for(with_free_space(by - MIB), grain)
    (table,) = (step for step in plan.steps if isinstance(step, RewriteTable))
    assert table.changes[1].before.length - table.changes[1].after.length == by
    assert plan.places[1].after.length == shrink.length


def with_free_space(free: int) -> Disk:
    return movable_disk(f"34+102400 ext4; 102434+{400000 - free // 512} xfs", size=(502434 + 33) * 512)


def test_that_xfs_cannot_be_shrunk_is_reported() -> None:
    disk = movable_disk("34+102400 xfs; 102434+400000 xfs", size=(502434 + 33) * 512)
    with pytest.raises(Refused, match="XFS cannot be shrunk"):
        plan_for(disk, RealignGoal(shrink=True))
    assert {mend.answer for mend in find_repairs(judged(disk))} == {"not"}


def test_a_file_system_that_is_shorter_than_its_partition_is_not_shrunk() -> None:
    """Its tool would make it as long as the shorter partition, over what follows it."""
    disk = movable_disk("34+102400 ext4; 102434+400000 xfs", size=(502434 + 33) * 512)
    part = disk.partitions[0]
    layer = replace(part.content[0], claims_size=30 * MIB, data_unit=4096)
    disk = replace(disk, partitions=(replace(part, content=(layer,)), disk.partitions[1]))
    with pytest.raises(Refused, match="is 20MiB shorter than its partition"):
        plan_for(disk, RealignGoal(shrink=True))
    for repair in find_repairs(judged(disk)):
        assert repair.answer == "not" and "is 20MiB shorter than its partition" in repair.why
        assert "docs/by-hand.md#make-a-partition-longer" in repair.next
    filled = replace(layer, claims_size=part.extent.length - 3584)
    disk = replace(disk, partitions=(replace(part, content=(filled,)), disk.partitions[1]))
    assert plan_for(disk, RealignGoal(shrink=True)).steps


def test_a_full_file_system_is_not_shrunk() -> None:
    disk = movable_disk("34+102400 ext4; 102434+400000 xfs", size=(502434 + 33) * 512)
    full = {1: Used(1, 102400 * 512, "a map")}
    with pytest.raises(Refused, match="no file system here can be shrunk"):
        plan_for(disk, RealignGoal(shrink=True), full)


def test_where_nothing_can_be_shrunk_the_files_are_copied_away_by_hand() -> None:
    disk = movable_disk("63+102400 fat", size=102463 * 512)
    for shrink in (False, True):
        with pytest.raises(Refused, match="no room to put partition 1 on a boundary") as found:
            plan_for(disk, RealignGoal(shrink=shrink))
        assert found.value.hint == "by hand, with rsync on /dev/sda: docs/by-hand.md#make-a-file-system-anew"


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ("34+102400 vfat; 102434+400000 vfat", "partitions 1, 2: no tool here shrinks a FAT"),
        ("34+102400 xfs; 102434+400000", "partition 1: XFS cannot be shrunk (xfs_growfs(8)); partition 2: unknown"),
        ("34+102400 crypto_LUKS; 102434+400000 swap", "partition 1: no tool here shrinks LUKS; partition 2: no tool"),
    ],
)  # fmt: skip
def test_where_nothing_can_be_shrunk_each_reason_is_stated(parts: str, why: str) -> None:
    disk = movable_disk(parts, size=(502434 + 33) * 512)
    for repair in find_repairs(judged(disk)):
        assert repair.answer == "not" and f"and nothing here can be shrunk: {why}" in repair.why
    with pytest.raises(Refused, match="no room") as found:
        plan_for(disk, RealignGoal(shrink=True))
    assert f"no file system here can be shrunk enough: {why}" in str(found.value)


def test_data_behind_a_file_system_are_not_taken_for_those_of_an_interrupted_shrink() -> None:
    """Nothing shows what they are: hashes of dm-verity, or what the user hid there. They count as used."""
    disk = movable_disk("34+102400 ext4", size=(102434 + 33) * 512)
    part, used = disk.partitions[0], Used(1, 41 * MIB, "a map")
    plan = plan_for(disk, RealignGoal(shrink=True), {1: used})
    (shrink,) = (step for step in plan.steps if isinstance(step, ShrinkContent))
    by = part.extent.length - shrink.length
    layer = replace(part.content[0], claims_size=shrink.length, data_unit=4096)
    disk = replace(disk, partitions=(replace(part, content=(layer,)),))
    for length in (used.bytes + by, part.extent.length):
        with pytest.raises(Refused, match="shorter than its partition, and shrinking would overwrite the bytes after"):
            plan_for(disk, RealignGoal(shrink=True), {1: replace(used, bytes=length)})


def test_a_large_file_system_is_shrunk_where_its_tool_allows_it() -> None:
    """resize2fs 1.47.0 demands 500 free blocks for each group of 32,768, which is less than an eighth."""
    disk = movable_disk(f"34+{1 << 31} ext4", size=((1 << 31) + 34 + 33) * 512)
    assert plan_for(disk, RealignGoal(shrink=True), {1: Used(1, 1000 * GIB, "a map")}).steps
    with pytest.raises(Refused, match="no file system here can be shrunk"):
        plan_for(disk, RealignGoal(shrink=True), {1: Used(1, 1015 * GIB, "a map")})


def test_a_file_system_that_is_too_full_names_the_size_that_it_must_have() -> None:
    """With 1 KiB blocks, resize2fs -P of a 70 MiB ext4 printed 71648 blocks with 50 MiB in use."""
    length = 70 * MIB // 512
    disk = movable_disk(f"34+{length} ext4", size=(length + 34 + 33) * 512)
    with pytest.raises(Refused, match="no file system here can be shrunk") as found:
        plan_for(disk, RealignGoal(shrink=True), {1: Used(1, 50 * MIB, "a map", least=71648 * KIB)})
    said = str(found.value)
    assert "uses 50MiB of the 70MiB, its own tool leaves at least 71648KiB" in said
    allowed = re.search(r"; the partition has to become (\d+)MiB, but cannot be made shorter", said)
    assert allowed
    fits = Used(1, 1 * MIB, "a map", least=int(allowed[1]) * MIB)
    assert plan_for(disk, RealignGoal(shrink=True), {1: fits}).steps
    with pytest.raises(Refused, match="can be shrunk"):
        plan_for(disk, RealignGoal(shrink=True), {1: replace(fits, least=fits.least + 1)})


# Steps


def test_a_short_move_uses_the_stash_and_a_long_one_windows_up_to_its_distance() -> None:
    short = plan_for(movable_disk("2047+100000"))
    (copy,) = (step for step in short.steps if isinstance(step, CopyContent))
    assert copy.lanes.staged
    assert copy.lanes.window == 32 * MIB
    long = plan_for(movable_disk("63+100000"))
    (copy,) = (step for step in long.steps if isinstance(step, CopyContent))
    assert not copy.lanes.staged
    assert copy.lanes.window == (2048 - 63) * 512 // 4096 * 4096
    assert isinstance(long.steps[-3], ReleaseContent)


def test_the_estimate_counts_used_bytes_and_gives_no_time_for_an_image() -> None:
    used = {1: Used(1, 3 * MIB, "a map")}
    image = plan_for(movable_disk("63+100000 ext4", kind=DiskKind.IMAGE), used=used).estimate
    assert image and (image.bytes_to_copy, image.seconds) == (3 * MIB, None)
    drive = plan_for(movable_disk("63+100000 ext4"), used=used).estimate
    assert drive and drive.seconds == 1


def test_the_estimate_of_a_full_disk_includes_the_flushes_of_a_small_journal() -> None:
    """192 KiB: 64 KiB for the stash, twice for each of them three flushes of 10 ms; and 60 MB per second."""
    disk = movable_disk("63+200000 ext4", label=TableLabel.DOS, size=(200063 + 2 * 300) * 512)
    plan = plan_for(disk)
    (copy,) = (step for step in plan.steps if isinstance(step, CopyContent))
    assert copy.lanes.staged and copy.lanes.stash == 64 * KIB and plan.estimate
    size = 200_000 * 512
    assert plan.estimate.seconds == pytest.approx(size / 60e6 + size / (64 * KIB) * 2 * 3 * 0.01, abs=2)
    roomy = plan_for(movable_disk("63+200000 ext4", label=TableLabel.DOS)).estimate
    assert roomy and roomy.seconds in (2, 3)


def test_a_full_file_system_is_named_with_what_it_uses() -> None:
    disk = movable_disk("34+102400 ext4", size=(102434 + 33) * 512)
    full = {1: Used(1, 102400 * 512, "a test")}
    with pytest.raises(Refused, match=r"ext4 on partition 1 uses 50MiB of the 50MiB") as refusal:
        plan_realign(judged(disk), RealignGoal(shrink=True), full, ALL_FREE)
    assert refusal.value.hint.startswith("delete files on partition 1, or")
