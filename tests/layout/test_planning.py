"""New layouts: where partitions are placed, on which grids, and which disks are refused."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.audit.report import Judged
from aligntool.change import LayoutGoal, PartitionRequest, Plan, from_json, to_json
from aligntool.errors import Refused
from aligntool.formats.part_types import ROLES
from aligntool.inventory import Disk, DiskKind, KnownGeometry, Layer, Partition, Source, Table, TableLabel
from aligntool.layout.layout import plan_layout, wiped_ranges
from aligntool.steps import MakeTable
from aligntool.units import GIB, KIB, MIB, TIB, Extent
from tests.audit.builders import judge, made_disk
from tests.conftest import run

ESP = PartitionRequest(512 * MIB, "esp")
REST = PartitionRequest(None, "linux")


def judged(disk: Disk, *known: KnownGeometry) -> Judged:
    return judge(replace(disk, content_read=True), known=known).judged[0]


def empty(*known: KnownGeometry, sector: int = 512, physical: int | None = None, **more: object) -> Judged:
    return judged(made_disk(logical=sector, physical=physical or sector, **more), *known)  # type: ignore[arg-type]


def extents(plan: Plan) -> list[Extent]:
    return [place.after for place in plan.places]


def table(plan: Plan) -> MakeTable:
    (step,) = plan.steps
    assert isinstance(step, MakeTable)
    return step


def known(**sizes: int) -> KnownGeometry:
    return KnownGeometry(Source.KNOWN, "some drive", "its data sheet", "high", **sizes)  # type: ignore[arg-type]


def refusal(disk: Judged, goal: LayoutGoal) -> Refused:
    with pytest.raises(Refused) as refused:
        plan_layout(disk, goal)
    return refused.value


# Places of partitions


def test_a_rest_in_the_middle_gets_all_space_that_the_others_leave() -> None:
    plan = plan_layout(empty(size=500 * GIB), LayoutGoal((ESP, REST, PartitionRequest(8 * GIB, "swap"))))
    esp, rest, swap = extents(plan)
    assert esp == Extent(MIB, 512 * MIB)
    assert rest.start == esp.end and swap.start == rest.end and swap.length == 8 * GIB
    # The last 33 sectors are the backup GPT: the last whole MiB before them ends one MiB before the disk does.
    assert swap.end == 500 * GIB - MIB


@pytest.mark.parametrize(("sector", "size", "backup"), [(512, 10**12, 33 * 512), (4096, 10**12, 5 * 4096)])
def test_the_last_partition_ends_before_the_backup_of_the_gpt(sector: int, size: int, backup: int) -> None:
    (rest,) = extents(plan_layout(empty(sector=sector, size=size), LayoutGoal((REST,), grain=sector)))
    assert rest.end == (size // sector * sector) - backup


def test_an_mbr_disk_may_be_filled_to_its_last_sector() -> None:
    goal = LayoutGoal((REST,), label="dos", grain=512)
    (rest,) = extents(plan_layout(empty(size=10**9 // 512 * 512), goal))
    assert rest.end == 10**9 // 512 * 512


def test_with_an_alignment_offset_every_start_and_end_is_shifted_by_it() -> None:
    disk = empty(physical=4096, offset=3584)
    plan = plan_layout(disk, LayoutGoal((ESP, REST)))
    assert [extent.start % (4 * KIB) for extent in extents(plan)] == [3584, 3584]
    assert extents(plan)[0].start == MIB + 3584
    assert [extent.end % (4 * KIB) for extent in extents(plan)] == [3584, 3584]


def test_an_sd_card_is_laid_out_in_its_allocation_units() -> None:
    card = made_disk(kind=DiskKind.SD, rotational=False, size=32 * GIB)
    plan = plan_layout(judged(replace(card, preferred_erase_size=4 * MIB)), LayoutGoal((ESP, REST)))
    assert [extent.start for extent in extents(plan)] == [4 * MIB, 516 * MIB]
    assert "allocation unit" in " ".join(plan.notes)


def test_a_stripe_of_three_disks_is_respected_although_not_a_power_of_two() -> None:
    disk = empty(kind=DiskKind.MD, minimum=512 * KIB, optimal=3 * 512 * KIB)
    first, second = extents(plan_layout(disk, LayoutGoal((ESP, REST))))
    assert first.start == 3 * MIB  # the first multiple of 1.5 MiB and of 1 MiB
    assert second.start % (1536 * KIB) == 0 and second.start % MIB == 0
    assert first.length == 512 * MIB


def test_an_erase_block_is_used_where_it_costs_little_space_and_ignored_otherwise() -> None:
    flash = known(erase_block=24 * MIB)
    wide = plan_layout(empty(flash, rotational=False, size=500 * GIB), LayoutGoal((ESP, REST)))
    assert all(extent.start % (24 * MIB) == 0 for extent in extents(wide))
    small = plan_layout(empty(flash, rotational=False, size=2 * GIB), LayoutGoal((ESP, REST)))
    assert extents(small)[0].start == MIB
    assert "24MiB" in " ".join(small.notes) and "is not used" in " ".join(small.notes)


def test_an_impossible_optimal_io_size_is_ignored() -> None:
    assert extents(plan_layout(empty(optimal=33553920), LayoutGoal((REST,))))[0].start == MIB


def test_a_unit_with_warning_severity_is_respected_with_any_grain() -> None:
    disk = empty(known(indirection_unit=64 * KIB), rotational=False)
    goal = LayoutGoal((PartitionRequest(100 * KIB, "linux"), REST), grain=4096)
    first, second = extents(plan_layout(disk, goal))
    assert first.length == 100 * KIB and second.start == MIB + 128 * KIB


def test_a_size_off_the_grain_is_rounded_up_and_reported() -> None:
    plan = plan_layout(empty(), LayoutGoal((PartitionRequest(1000 * KIB, "linux"), REST)))
    assert extents(plan)[0].length == MIB
    assert any("partition 1 is 1MiB, not 1000KiB" in note for note in plan.notes)


def test_space_that_was_reserved_stays_free() -> None:
    (rest,) = extents(plan_layout(empty(size=10 * GIB), LayoutGoal((REST,), spare_end=GIB)))
    assert rest.end == 9 * GIB - MIB


def test_the_plan_survives_being_written_and_read() -> None:
    plan = plan_layout(empty(), LayoutGoal((ESP, REST)))
    assert from_json(to_json(plan)) == plan


SIZES = st.integers(min_value=1, max_value=40 * MIB)


@given(
    sector=st.sampled_from([(512, 512), (512, 4096), (4096, 4096)]),
    offset=st.sampled_from([0, 3584]),
    size=st.integers(min_value=300 * MIB, max_value=4 * GIB),
    grain=st.sampled_from([4 * KIB, 64 * KIB, MIB, 4 * MIB]),
    unit=st.sampled_from([None, 16 * KIB, 64 * KIB]),
    before=st.lists(SIZES, max_size=3),
    after=st.lists(SIZES, max_size=2),
    label=st.sampled_from(["gpt", "dos"]),
)
def test_every_start_is_on_every_grid_and_nothing_overlaps(
    sector: tuple[int, int],
    offset: int,
    size: int,
    grain: int,
    unit: int | None,
    before: list[int],
    after: list[int],
    label: str,
) -> None:
    logical, physical = sector
    phase = offset if physical > logical else 0
    rows = (known(indirection_unit=unit),) if unit else ()
    disk = empty(*rows, sector=logical, physical=physical, offset=phase, size=size, rotational=False)
    sizes: list[int | None] = [*before, None, *after]
    goal = LayoutGoal(tuple(PartitionRequest(one, "linux") for one in sizes)[:4], label=label, grain=grain)
    placed = extents(plan_layout(disk, goal))
    for extent, part in zip(placed, goal.parts, strict=True):
        assert all(grid.off_by(extent.start) == 0 for grid in disk.grids if grid.severity != "info")
        assert (extent.start - phase) % grain == 0 and extent.length % grain == 0
        assert extent.length >= (part.size or grain)
        assert extent.start >= MIB
    assert all(one.end <= other.start for one, other in pairwise(placed))
    backup = 16 * KIB + logical if label == "gpt" else 0
    assert placed[-1].end <= size - size % logical - backup


# Types


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_every_type_code_is_recognised_by_sfdisk(label: str) -> None:
    listed = {line.split()[0].upper() for line in run("sfdisk", "-T", "-X", label).splitlines() if line.strip()}
    for role in ROLES.values():
        code = role.gpt if label == "gpt" else role.mbr and role.mbr.removeprefix("0x").upper()
        assert code is None or code.lstrip("0") in {one.lstrip("0") for one in listed}, role.word


def test_only_the_boot_partition_of_an_mbr_is_active() -> None:
    parts = (PartitionRequest(GIB, "boot"), REST)
    dos = table(plan_layout(empty(), LayoutGoal(parts, label="dos")))
    assert [(entry.type_code, entry.active) for entry in dos.entries] == [("0x83", True), ("0x83", False)]
    assert not any(entry.active for entry in table(plan_layout(empty(), LayoutGoal(parts))).entries)


# Refusals


def test_all_reasons_are_reported_together_with_a_hint_for_each() -> None:
    disk = judged(replace(made_disk("2048+4096 ext4"), read_only=True, mounted_at=("/srv",)))
    goal = LayoutGoal((REST, PartitionRequest(None, "efi")), label="gpt")
    said = refusal(disk, goal)
    codes = [one.code for one in said.refusals]
    assert codes == ["read-only", "mounted", "not-empty", "invalid-option", "invalid-option"]
    assert "partition 1, ext4" in said.refusals[2].text and "'efi'" in said.refusals[4].text
    assert "umount /srv" in said.hint and "--wipe" not in said.hint and "bios-boot" in said.hint


@pytest.mark.parametrize(
    "change",
    [
        {"mounted_at": ("/srv",)},
        {"holders": ("md0",)},
        {"read_only": True},
        {"size": None},
        {"table_read": False},
        {"kind": DiskKind.DASD},
        {"zoned": "host-managed"},
    ],
)
def test_wipe_overrides_only_the_reason_that_the_disk_is_not_empty(change: dict[str, object]) -> None:
    goal = LayoutGoal((REST,), wipe=True)
    full = replace(made_disk("2048+4096 ext4"), content_read=True)
    plan_layout(judged(full), goal)
    disk = judged(full)
    refusal(replace(disk, disk=replace(disk.disk, **change)), goal)  # type: ignore[arg-type]


def test_a_partition_in_use_is_a_refusal_even_with_wipe() -> None:
    disk = made_disk("2048+4096 ext4")
    part = replace(disk.partitions[0], mounted_at=("[SWAP]",), node="sda1")
    said = refusal(judged(replace(disk, partitions=(part,))), LayoutGoal((REST,), wipe=True))
    (one,) = said.refusals
    assert (one.code, one.subject, one.hint) == ("mounted", "partition 1 of sda", "sudo swapoff /dev/sda1")


def test_an_existing_identical_table_needs_no_step_even_with_a_partition_in_use() -> None:
    goal = LayoutGoal((ESP, REST))
    wanted = table(plan_layout(empty(size=100 * GIB), goal)).entries
    parts = tuple(
        Partition(one.number, one.extent, type_code=one.type_code, node=f"sda{one.number}", mounted_at=("/srv",))
        for one in wanted
    )
    there = replace(
        made_disk(logical=512, physical=512, size=100 * GIB), table=Table(TableLabel.GPT, 512), partitions=parts
    )
    assert plan_layout(judged(there), goal).steps == ()
    others = {"table": Table(TableLabel.DOS, 512), "partitions": (replace(parts[0], name="other"), parts[1])}
    for change in others.items():
        assert "mounted" in str(refusal(judged(replace(there, **dict([change]))), goal))  # type: ignore[arg-type]


def test_a_file_system_on_the_whole_disk_is_reported() -> None:
    disk = replace(made_disk(), content=(Layer("xfs", Extent(0, 500 * GIB), label="data"),))
    assert 'xfs "data" on the whole disk' in str(refusal(judged(disk), LayoutGoal((REST,))))
    plan = plan_layout(judged(disk), LayoutGoal((REST,), wipe=True))
    assert 'lost: xfs "data" on the whole disk' in plan.attention


def test_the_refusal_of_a_disk_that_is_too_small_states_the_missing_bytes() -> None:
    goal = LayoutGoal((PartitionRequest(GIB, "linux"),))
    said = refusal(empty(size=GIB), goal)
    short = MIB + 33 * 512  # 1 MiB before it, and the backup GPT after it
    assert f"({short}B): " in str(said)
    assert plan_layout(empty(size=GIB + short), goal).places
    assert f"({512}B): " in str(refusal(empty(size=GIB + short - 512), goal))
    assert f"({GIB - MIB - 33 * 512}B) is available for partitions" in str(said)
    assert "--part rest:linux" in said.hint


@pytest.mark.parametrize(("sector", "reach"), [(512, 2 * TIB), (4096, 16 * TIB)])
def test_an_mbr_for_a_disk_that_is_too_large_is_refused_and_a_gpt_suggested(sector: int, reach: int) -> None:
    goal = LayoutGoal((REST,), label="dos")
    said = refusal(empty(sector=sector, size=reach + GIB), goal)
    assert [one.code for one in said.refusals] == ["table-limit"] and said.hint == "--table gpt"
    plan_layout(empty(sector=sector, size=reach), goal)
    plan_layout(empty(sector=sector, size=reach + GIB), replace(goal, label="gpt"))


@pytest.mark.parametrize(
    ("goal", "subject", "evidence", "hint"),
    [
        (LayoutGoal(()), "--part", "", "--part"),
        (LayoutGoal((REST,), label="mbr"), "--table", "'mbr'", "--table dos"),
        (LayoutGoal((ESP,) * 5, label="dos"), "--part", "5 partitions", "--table gpt"),
        (
            LayoutGoal((PartitionRequest(MIB, "bios-boot"), REST), label="dos"),
            "partition 1",
            "BIOS boot",
            "--table gpt",
        ),
        (LayoutGoal((PartitionRequest(0, "linux"),)), "partition 1", "size", ""),
        (LayoutGoal((REST,), grain=1000), "--grain", "512-byte", "--grain 1MiB"),
        (LayoutGoal((PartitionRequest(MIB, "linux", "x" * 37),)), "partition 1", "36", ""),
        (LayoutGoal((PartitionRequest(MIB, "linux", "a\nb"),)), "partition 1", "non-printable", ""),
    ],
)
def test_an_impossible_goal_is_refused(goal: LayoutGoal, subject: str, evidence: str, hint: str) -> None:
    (one,) = refusal(empty(), goal).refusals
    assert one.code == ("table-limit" if "5 partitions" in evidence else "invalid-option")
    assert one.subject == subject and evidence in one.text and hint in one.hint


# Wiping


def test_wiped_ranges_cover_both_ends_of_everything_old_and_new_and_nothing_between() -> None:
    disk = judged(made_disk("63+409600 ext4; 500000+1000000", size=GIB)).disk
    plan = plan_layout(judged(disk), LayoutGoal((PartitionRequest(100 * MIB, "linux"), REST), wipe=True))
    ranges = wiped_ranges(disk, table(plan))
    for extent in [Extent(0, GIB), *(part.extent for part in disk.partitions), *extents(plan)]:
        for edge in (Extent(extent.start, 5 * MIB), Extent(extent.end - 2 * MIB, 2 * MIB)):
            assert any(one.contains(edge) for one in ranges)
    assert sum(one.length for one in ranges) <= 5 * 7 * MIB
    assert all(one.end < other.start for one, other in pairwise(ranges))
