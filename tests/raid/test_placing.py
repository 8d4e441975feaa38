"""Places of members and data: on the drives' own grids, inside the drives, the same on all, and accepted by sgdisk and
parted.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aligntool.audit.report import Severity
from aligntool.change import Plan, from_json, to_json
from aligntool.inventory import KnownGeometry, Source
from aligntool.raid.commands import command_of
from aligntool.steps import MakeArray, MakeMember
from aligntool.units import GIB, KIB, MIB
from tests.conftest import run
from tests.raid.builders import drive, drives, goal, judged, planned
from tests.thorough import examples


def members_of(plan: Plan) -> list[MakeMember]:
    return [step for step in plan.steps if isinstance(step, MakeMember)]


def option(plan: Plan, name: str) -> str | None:
    """Return the value of an option of mdadm --create."""
    (array,) = [step for step in plan.steps if isinstance(step, MakeArray)]
    found = [word.partition("=")[2] for word in command_of(array) if word.startswith(f"--{name}=")]
    return found[0] if found else None


def kib(text: str | None) -> int:
    assert text is not None and text.endswith("K")
    return int(text[:-1]) * KIB


def test_data_begin_on_a_multiple_of_4_mib_where_mdadm_would_use_130_mib() -> None:
    """mdadm's default offset for large members is 129 MiB; measured on five drives (facts of the research)."""
    plan = planned(goal(), *drives(2))
    (first, _) = members_of(plan)
    assert (first.entries[0].extent.start + kib(option(plan, "data-offset"))) % (4 * MIB) == 0
    assert (first.entries[0].extent.start + 129 * MIB) % (4 * MIB) != 0
    assert kib(option(plan, "data-offset")) >= 128 * MIB


def test_members_are_as_long_as_the_smallest_drive_allows_minus_room_for_a_spare() -> None:
    plan = planned(goal(), drive(0, size=100 * GIB), drive(1, size=101 * GIB))
    extents = {step.entries[0].extent for step in members_of(plan)}
    (extent,) = extents
    assert 100 * MIB <= 100 * GIB - extent.end <= 102 * MIB
    assert planned(goal(), drive(0, size=100 * GIB - 99 * MIB), drive(1, size=101 * GIB)).steps


def test_a_raid0_leaves_no_room_for_a_spare_that_it_cannot_use() -> None:
    (first, _) = members_of(planned(goal("raid0"), *drives(2, size=100 * GIB)))
    assert 100 * GIB - first.entries[0].extent.end < 2 * MIB


def test_existing_partitions_keep_their_table_and_get_one_offset_that_suits_both() -> None:
    disks = (drive(0, parts="2048+40000000"), drive(1, parts="34+2014; 6144+40000000"))
    plan = planned(goal(partitions=(1, 2)), *disks)
    assert [(step.device, step.entries) for step in members_of(plan)] == [
        ("/dev/nvme0n1p1", ()),
        ("/dev/nvme1n1p2", ()),
    ]
    offset = kib(option(plan, "data-offset"))
    starts = [2048 * 512, 6144 * 512]
    assert all((start + offset) % MIB == 0 for start in starts)


def test_a_partition_that_no_offset_can_align_is_reported() -> None:
    plan = planned(goal(partitions=(1, 1)), drive(0, parts="63+40000000"), drive(1, parts="2048+40000000"))
    assert any("/dev/nvme0n1p1" in sentence and "realign" in sentence for sentence in plan.attention)


def test_whole_drives_get_no_table_and_a_warning_is_shown() -> None:
    plan = planned(goal(members="whole-drives"), *drives(2))
    assert all(not step.entries and step.label == "" for step in members_of(plan))
    assert [step.device for step in members_of(plan)] == ["/dev/nvme0n1", "/dev/nvme1n1"]
    assert any("firmware" in sentence for sentence in plan.attention)


def test_whole_drives_leave_the_same_room_by_an_explicit_size() -> None:
    plan = planned(goal(members="whole-drives"), *drives(2, size=100 * GIB))
    used = kib(option(plan, "data-offset")) + kib(option(plan, "size"))
    assert 100 * MIB <= 100 * GIB - used <= 104 * MIB


def test_members_contain_whole_chunks_of_any_size() -> None:
    plan = planned(goal("raid5", chunk=48 * MIB // 3), *drives(3, size=10 * GIB))
    assert kib(option(plan, "size")) % (16 * MIB) == 0


@pytest.mark.parametrize(("size", "headroom"), [(20 * GIB, 16 * MIB), (100 * GIB, 64 * MIB), (300 * GIB, 128 * MIB)])
def test_the_offset_of_small_members_does_not_exceed_that_of_mdadm(size: int, headroom: int) -> None:
    """super1.c, validate_geometry1: 128 MiB, halved while a 1024th of the member is less; and the metadata."""
    offset = kib(option(planned(goal(), *drives(2, size=size)), "data-offset"))
    assert headroom < offset <= headroom + 8 * MIB


def test_the_bitmap_chunk_is_limited_by_the_size_of_the_array() -> None:
    assert option(planned(goal("raid5"), *drives(3, size=GIB)), "bitmap-chunk") == "512M"
    assert option(planned(goal("raid5"), *drives(3)), "bitmap-chunk") == "1024M"
    assert option(planned(goal("raid1"), *drives(2)), "bitmap-chunk") == "64M"


@settings(max_examples=examples(60))
@given(
    level=st.sampled_from(["raid0", "raid1", "raid10", "raid5", "raid6"]),
    sizes=st.lists(st.integers(2 * GIB // 4096, 20_000 * GIB // 4096), min_size=4, max_size=7),
    logical=st.sampled_from([512, 4096]),
    phase=st.sampled_from([0, 3584]),
    unit=st.sampled_from([4 * KIB, 16 * KIB, 64 * KIB, MIB]),
    chunk=st.sampled_from([None, 16 * KIB, 64 * KIB, 512 * KIB, MIB]),
    esp=st.sampled_from([0, 512 * MIB]),
)
def test_on_any_drives_the_members_fit_and_their_data_are_on_the_grids(
    level: str, sizes: list[int], logical: int, phase: int, unit: int, chunk: int | None, esp: int
) -> None:
    phase = phase if logical == 512 else 0
    disks = [drive(n, size=size * 4096, logical=logical, phase=phase) for n, size in enumerate(sizes)]
    known = (KnownGeometry(Source.KNOWN, "row", "made up", "high", indirection_unit=unit),)
    wanted = goal(level, chunk=chunk if level != "raid1" else None, esp_size=esp, filesystem="none")
    plan = planned(wanted, *disks, known=known)
    assert plan == planned(wanted, *disks, known=known)
    assert from_json(to_json(plan)) == plan
    offset = kib(option(plan, "data-offset"))
    for step, disk, one in zip(members_of(plan), disks, judged(*disks, known=known), strict=True):
        *before, member = step.entries
        assert (disk.size or 0) - member.extent.end >= 16 * KIB + logical  # the backup GPT
        assert all(entry.extent.end <= member.extent.start for entry in before)
        for at in (*(entry.extent.start for entry in step.entries), member.extent.start + offset):
            assert at >= MIB and at % logical == 0
            assert not [grid for grid in one.grids if grid.severity is not Severity.INFO and grid.off_by(at)]
        size = option(plan, "size")
        assert offset + (kib(size) if size else 0) <= member.extent.length
        if size and level != "raid1":
            assert kib(size) % kib(option(plan, "chunk")) == 0


@pytest.mark.needs_tools("sgdisk", "parted")
def test_sgdisk_and_parted_find_no_fault_in_the_tables_of_a_system(sparse: Callable[..., Path]) -> None:
    plan = planned(goal(esp_size=512 * MIB), *drives(2, size=20 * GIB))
    image = sparse(20 * GIB)
    words: list[str] = []
    for entry in members_of(plan)[0].entries:
        last = entry.extent.end // 512 - 1
        words += [f"--new={entry.number}:{entry.extent.start // 512}:{last}"]
        words += [f"--typecode={entry.number}:{entry.type_code}"]
    run("sgdisk", "--set-alignment=1", *words, image)
    assert "No problems found" in run("sgdisk", "--verify", image)
    listed = run("sgdisk", "--print", image).splitlines()
    assert [line.split()[5] for line in listed if line.split()[:1] in (["1"], ["2"])] == ["EF00", "FD00"]
    for number in (1, 2):
        run("parted", "-s", image, "align-check", "optimal", str(number))  # the exit code is the result
