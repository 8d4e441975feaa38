"""What `--wipe` zeroes on a member, told byte for byte."""

from aligntool.plan import MakeMember, Plan, from_json, to_json
from aligntool.render.lines import text_of
from aligntool.render.raid import raid_plan_lines
from aligntool.units import GIB, Extent
from tests.raid.made import drive, goal, planned

SIZE = 20 * GIB  # 21474836480 bytes


def member(plan: Plan) -> MakeMember:
    return next(step for step in plan.steps if isinstance(step, MakeMember))


def spans(step: MakeMember) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in step.zeroed]


def test_both_ends_of_the_drive_of_old_and_new_partitions_and_of_the_data_are_zeroed() -> None:
    """Two old partitions of 512-byte sectors; the new one of 20378 MiB begins at 1 MiB, its data 19 MiB into it."""
    full = drive(0, size=SIZE, parts="2048+409600 ext4; 500000+1000000")
    plan = planned(goal("raid1", wipe=("nvme0n1",)), full, drive(1, size=SIZE))
    step = member(plan)
    assert step.entries[0].extent == Extent(1048576, 21367881728)
    assert spans(step) == [
        (0, 2097152),
        (20971520, 22020096),
        (209715200, 210763776),
        (256000000, 257048576),
        (766951424, 768000000),
        (21367881728, 21368930304),
        (21473787904, 21474836480),
    ]


def test_beside_a_partition_that_is_taken_nothing_is_zeroed() -> None:
    """10 GiB from byte 210763776, which is 201 MiB; the data 11 MiB into it."""
    full = drive(0, size=SIZE, parts="2048+409600 ext4; 411648+20971520 xfs")
    other = drive(1, size=SIZE, parts="2048+409600; 411648+20971520")
    wanted = goal("raid1", members="partitions", partitions=(2, 2), wipe=("nvme0n1p2", "nvme1n1p2"))
    for step in planned(wanted, full, other).steps[:2]:
        assert isinstance(step, MakeMember)
        assert spans(step) == [
            (210763776, 211812352),
            (222298112, 223346688),
            (10947133440, 10948182016),
        ]


def test_the_bytes_stand_below_the_step_and_below_no_other() -> None:
    full = drive(0, size=SIZE, parts="2048+409600 ext4")
    plan = planned(goal("raid1", wipe=("nvme0n1",)), full, drive(1, size=SIZE))
    said = " ".join("".join(text_of(raid_plan_lines(plan, width=100))).split())
    told = (
        "zeroed first, so that no old signature comes back: bytes 0..2097152, 20971520..22020096, "
        "209715200..210763776, 21367881728..21368930304, 21473787904..21474836480"
    )
    assert said.count("zeroed first") == 1 and told in said
    assert said.index("1. make a table") < said.index(told) < said.index("2. make a table")
    assert from_json(to_json(plan)) == plan
