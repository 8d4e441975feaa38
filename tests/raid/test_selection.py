"""Which drives `raid ensure` takes, and when it makes nothing of them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from aligntool.change import DriveSelection, EnsureGoal, RaidGoal
from aligntool.errors import Refused
from aligntool.inventory import Disk, DiskKind, Inventory, Layer, LinkHop, Port
from aligntool.raid.selection import Found, find_drives, goal_for, is_gone
from aligntool.units import GIB, Extent
from tests.audit.array_builders import OTHER, UUID, lines, machine, system
from tests.raid.builders import drive, goal, planned

ALL = DriveSelection(unused=True)


def blank(number: int, **words: object) -> Disk:
    disk = replace(drive(number), table_read=True, content_read=True)
    return replace(disk, **words)  # type: ignore[arg-type]


def member(number: int, *, uuid: str = OTHER, label: str = "any:data") -> Disk:
    return blank(number, content=(Layer("linux_raid_member", Extent(0, GIB), uuid=uuid, label=label),))


def found(drives: Sequence[Disk], wanted: DriveSelection = ALL, **names: list[str]) -> list[str]:
    goal = EnsureGoal(RaidGoal("raid0"), wanted)
    paths = {f"/dev/{name}": listed for name, listed in names.items()}
    return [
        disk.name for disk in find_drives(goal, Inventory(tuple(drives), system=system(conf=lines())), paths).drives
    ]


def refused(drives: Sequence[Disk], wanted: DriveSelection = ALL, *conf: str) -> str:
    goal = EnsureGoal(RaidGoal("raid0"), wanted)
    with pytest.raises(Refused) as error:
        find_drives(goal, Inventory(tuple(drives), system=system(conf=lines(*conf))), {})
    assert all(one.hint for one in error.value.refusals)
    return str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"content": (Layer("xfs", Extent(0, GIB)),)},
        {"content_hint": "xfs"},
        {"content_read": False},
        {"table_read": False},
        {"mounted_at": ("/",)},
        {"holders": ("dm-0",)},
        {"read_only": True},
        {"removable": True},
        {"kind": DiskKind.USB},
        {"kind": DiskKind.LOOP},
        {"kind": DiskKind.DM},
        {"size": 0},
        {"size": None},
    ],
)
def test_only_blank_drives_of_this_machine_are_unused(change: dict[str, object]) -> None:
    assert found([blank(0), blank(1, **change)]) == ["nvme0n1"]


def test_a_drive_matches_every_kind_of_pattern_and_one_of_each() -> None:
    hop = LinkHop("0000:01:00.0", Port.ENDPOINT)
    drives = [
        blank(0, model="ACME NV1", links=((hop, LinkHop("0000:00:01.0", Port.ROOT)),)),
        blank(1, model="ACME NV2", size=10 * GIB),
        blank(2, model="Other"),
    ]
    assert found(drives, DriveSelection(models=("acme*",))) == ["nvme0n1", "nvme1n1"]
    assert found(drives, DriveSelection(models=("acme nv?", "oth*"))) == ["nvme0n1", "nvme1n1", "nvme2n1"]
    assert found(drives, DriveSelection(models=("acme*",), least_size=11 * GIB)) == ["nvme0n1"]
    assert found(drives, DriveSelection(models=("acme*",), most_size=11 * GIB)) == ["nvme1n1"]
    assert found(drives, DriveSelection(addresses=("0000:0[1-3]:*",))) == ["nvme0n1"]
    links = ["nvme-ACME_S0001", "nvme-ACME_S0001_1", "nvme-eui.01"]
    assert found(drives, DriveSelection(names=("nvme-ACME_*", "nvme-eui*")), nvme1n1=links) == ["nvme1n1"]
    none = DriveSelection(names=("nvme-x*",), models=("acme*",), may_be_none=True)
    assert found(drives, none, nvme1n1=links) == []


@pytest.mark.parametrize(
    ("model", "is_one"),
    [
        ("Amazon EC2 NVMe Instance Storage", True),
        ("Amazon Elastic Block Store", False),
        ("nvme_card", True),
        ("nvme_card12", True),
        ("nvme_card-pd", False),
        ("Microsoft NVMe Direct Disk v2", True),
        ("MSFT NVMe Accelerator v1.0", False),
    ],
)
def test_the_instance_stores_of_clouds_are_known_by_their_models(model: str, *, is_one: bool) -> None:
    wanted = DriveSelection(instance_store=True, may_be_none=True)
    assert bool(found([blank(0, model=model)], wanted)) is is_one


def test_the_number_of_drives_is_checked_and_each_is_named() -> None:
    drives = [blank(0), blank(1)]
    assert "at least 3 drives are wanted, and 2 are selected: nvme0n1 (serial S0000)" in refused(
        drives, replace(ALL, least=3)
    )
    assert "at most 1 drive is wanted, and 2" in refused(drives, replace(ALL, most=1))
    assert "and 0 are selected: none" in refused([])
    assert found([], replace(ALL, may_be_none=True)) == []
    assert "at least 3" in refused(drives, replace(ALL, least=3, may_be_none=True))


@pytest.mark.parametrize(
    ("there", "conf"),
    [(member(1), ""), (member(1, label="host:data"), ""), (member(1, label="old"), f"ARRAY /dev/md/data UUID={OTHER}")],
)
def test_nothing_is_made_anew_while_a_member_is_there(there: Disk, conf: str) -> None:
    told = refused([blank(0), there], ALL, conf)
    assert "a member of it is on nvme1n1 (serial S0001), and nvme0n1 (serial S0000) has none" in told
    assert "it is not made anew" in told
    listed = replace(ALL, wiped_serials=("S0000", "S0001"))
    assert "it is not made anew" in refused([blank(0), there], listed, conf)


@pytest.mark.parametrize(
    ("level", "members", "here", "words"),
    [
        ("raid0", 2, 1, "1 of 2 members are there, lost: everything"),
        ("raid1", 2, 1, "1 of 2 members are there, kept: everything"),
        ("raid6", 4, 2, "2 of 4 members are there, kept: everything"),
        ("raid5", 4, 2, "2 of 4 members are there, lost: everything"),
        ("raid10", 4, 2, "2 of 4 members are there, kept: everything if each part has a copy here"),
        ("raid1", 2, 2, "2 of 2 members are there, no member is missing"),
    ],
)
def test_the_refusal_says_what_is_kept_or_lost_and_where_to_read_on(
    level: str, members: int, here: int, words: str
) -> None:
    """As md(4) has it."""
    there = [member(number) for number in range(here)]
    layers = [replace(disk.content[0], raid_level=level, raid_members=members) for disk in there]
    there = [replace(disk, content=(layer,)) for disk, layer in zip(there, layers, strict=True)]
    inactive = replace(blank(9, kind=DiskKind.MD), name="md127", path="/dev/md127", slaves=tuple(d.name for d in there))
    goal = EnsureGoal(RaidGoal("raid0"), ALL)
    with pytest.raises(Refused) as error:
        find_drives(goal, Inventory((*there, blank(7), inactive), system=system(conf=lines())), {})
    (reason,) = error.value.refusals
    assert words in reason.text and "nvme7n1 (serial S0007) has none" in reason.text
    look, how = reason.hint.splitlines()
    assert look == "sudo mdadm --detail /dev/md127"
    assert "/dev/nvme0n1" in how and how.endswith("docs/by-hand.md#members-of-an-array")


def test_for_members_of_different_arrays_nothing_is_promised() -> None:
    told = refused([member(0), member(1, uuid=UUID), blank(2)])
    assert "it is not made anew" in told and "kept" not in told


def test_a_member_of_another_array_is_not_unused() -> None:
    assert found([blank(0), member(1, label="any:other")]) == ["nvme0n1"]


def test_a_drive_with_content_is_unused_only_if_its_serial_is_listed() -> None:
    used = blank(1, content=(Layer("xfs", Extent(0, GIB)),))
    wanted = replace(ALL, wiped_serials=("S0001",))
    assert found([blank(0), used], wanted) == ["nvme0n1", "nvme1n1"]
    assert goal_for(EnsureGoal(RaidGoal("raid0"), wanted), [blank(0), used]).wipe == ("/dev/nvme1n1",)
    assert goal_for(EnsureGoal(RaidGoal("raid0"), ALL), [blank(0), used]).wipe == ()
    nameless = replace(used, serial=None)
    assert found([blank(0), nameless], wanted) == ["nvme0n1"]


def test_a_single_drive_becomes_a_raid0_only_if_the_file_allows_it() -> None:
    goal = EnsureGoal(RaidGoal("raid1", bitmap="internal"), replace(ALL, one="raid0"))
    one = goal_for(goal, [blank(0)])
    assert (one.level, one.one_drive, one.bitmap) == ("raid0", True, None)
    assert goal_for(goal, [blank(0), blank(1)]) == goal.array
    assert goal_for(replace(goal, drives=ALL), [blank(0)]) == goal.array


def running(wanted: DriveSelection, *more: Disk, degraded: int = 0) -> Found:
    inventory = machine("raid1", system(conf=lines()), degraded=degraded)
    drives = tuple(
        replace(disk, serial=f"M{number}", table_read=True) if disk.array is None else disk
        for number, disk in enumerate(inventory.disks)
    )
    goal = EnsureGoal(RaidGoal("raid1"), wanted)
    return find_drives(goal, replace(inventory, disks=(*drives, *more)), {})


def test_a_running_array_keeps_its_drives_and_gets_no_more() -> None:
    size = DriveSelection(least_size=GIB)
    there = running(size, blank(7))
    assert there.running is not None and there.running.name == "md127"
    assert [disk.name for disk in there.drives] == ["nvme0n1", "nvme1n1"]
    assert [disk.name for disk in there.more] == ["nvme7n1"]
    with pytest.raises(Refused, match="nvme0n1, on which it has a member, is not selected"):
        running(DriveSelection(models=("other",)))
    with pytest.raises(Refused, match="at most 1 drive is wanted"):
        running(replace(size, most=1))
    with pytest.raises(Refused, match="at least 3 drives are wanted"):
        running(replace(size, least=3))
    assert running(replace(size, least=3), degraded=1).running is not None  # what is missing is compared


def test_each_drive_that_is_not_selected_has_its_reason() -> None:
    drives = [replace(blank(0), read_only=True), replace(blank(1), holders=("dm-0",))]
    said = refused(drives)
    assert "at least 1 drive is wanted" in said
    assert "; not selected: nvme0n1 (serial S0000): read-only; nvme1n1 (serial S0001): in use" in said


def test_too_few_unused_drives_name_those_with_content_first() -> None:
    full = blank(10, content=(Layer("ext4", Extent(0, GIB)),))
    said = refused(
        [blank(0), *(blank(1 + number, model="other") for number in range(9)), full],
        DriveSelection(unused=True, models=("ACME*",), least=2),
    )
    assert "at least 2 drives are wanted, and 1 is selected: nvme0n1" in said
    assert "; not selected: nvme10n1 (serial S0010): has ext4 on the whole disk; nvme1n1" in said


def test_each_drive_is_named_with_the_reason_if_none_is_selected_and_none_is_needed() -> None:
    wanted = replace(ALL, models=("no such model",), may_be_none=True, least=4)
    goal = EnsureGoal(RaidGoal("raid0"), wanted)
    there = find_drives(goal, Inventory((blank(0), blank(1)), system=system(conf=lines())), {})
    assert not there.drives
    assert [text.partition(" (")[0] for text in there.others.split("; ")] == ["nvme0n1", "nvme1n1"]
    assert there.others.count(f'model {blank(0).model or "unknown"}, not "no such model"') == 2
    some = find_drives(replace(goal, drives=ALL), Inventory((blank(0), blank(1)), system=system(conf=lines())), {})
    assert some.others == ""


def is_unfinished_gone(drives: Sequence[Disk], wanted: DriveSelection = ALL) -> bool:
    """Return whether nothing is left of a making on the drives 0 and 1."""
    made_of = planned(goal("raid0"), drive(0), drive(1))
    inventory = Inventory(tuple(drives), system=system(conf=lines()))
    return is_gone(made_of, EnsureGoal(RaidGoal("raid0"), wanted), inventory, {})


@pytest.mark.parametrize(
    ("drives", "is_gone"),
    [
        ((blank(0), blank(1)), True),
        ((blank(2), blank(3)), True),  # others, in place of both
        ((blank(0), blank(2)), True),
        ((), False),
        ((member(0), member(1)), False),
        ((blank(0), member(1)), False),
        ((drive(0, parts="2048"), blank(2), blank(3)), False),  # it has a new table already
        ((blank(0, content_read=False), blank(2), blank(3)), False),
    ],
)
def test_an_interrupted_making_is_gone_once_every_drive_is_blank(drives: Sequence[Disk], *, is_gone: bool) -> None:
    assert is_unfinished_gone(drives, replace(ALL, may_be_none=True)) is is_gone


def test_drives_that_are_selected_with_their_content_are_not_blank() -> None:
    drives = [blank(number, content=(Layer("xfs", Extent(0, GIB)),)) for number in (2, 3)]
    assert not is_unfinished_gone(drives, DriveSelection(models=("ACME*",)))
