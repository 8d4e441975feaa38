"""Members that are zeroed instead of a first resynchronisation, and when an array is at full speed."""

import json
from dataclasses import replace

import pytest

from aligntool.change import (
    ArrayPlan,
    ArrayRequest,
    RaidGoal,
    from_json,
    plan_with_request,
    request_in_document,
    to_json,
)
from aligntool.errors import Refused
from aligntool.formats.identify import deallocates_zeroed
from aligntool.inventory import Disk, DiskKind, Inventory
from aligntool.raid.commands import command_of
from aligntool.raid.first_sync import READY, Zeroing
from aligntool.raid.planning import needs_of_plan, plan_raid
from aligntool.recipes.goals import parse_recipe
from aligntool.render.lines import text_of
from aligntool.render.plan import raid_plan_lines, summary_lines, undo_title
from aligntool.render.recipes import recipe_lines
from aligntool.steps import MakeArray, MakeFileSystem, Synchronise
from aligntool.system import System
from aligntool.units import KIB
from tests.raid.builders import goal, judged, linked
from tests.raid.test_formatting import BLANK, RECIPE, blank
from tests.schemas import check

ZEROES = Zeroing(2 << 20, True)


def planned(
    wanted: RaidGoal, *disks: Disk, zeroing: Zeroing = ZEROES, limit: int | None = None, system: bool = True
) -> ArrayPlan:
    inventory = Inventory(disks, system=System(sync_limit=limit) if system else None)
    return plan_raid(judged(*disks), inventory, wanted, zeroing={disk.name: zeroing for disk in disks})


def four(speed: int | None = None) -> tuple[Disk, ...]:
    return tuple(linked(blank(number), speed) for number in range(4))


def ready(plan: ArrayPlan) -> str:
    (found,) = [note for note in plan.notes if note.startswith(READY)]
    return found


def refusal(wanted: RaidGoal, *disks: Disk, zeroing: Zeroing = ZEROES) -> list[tuple[str, str]]:
    with pytest.raises(Refused) as refused:
        planned(wanted, *disks, zeroing=zeroing)
    return [(each.code, each.text) for each in refused.value.refusals]


@pytest.mark.parametrize("level", ["raid1", "raid10", "raid5", "raid6"])
def test_only_zeroed_members_are_assumed_to_be_clean(level: str) -> None:
    zeroed = planned(goal(level, zero_members=True), *four())
    plain = planned(goal(level), *four())
    (made,) = zeroed.of(MakeArray)
    words = command_of(made)
    assert made.zeroed and "--assume-clean" in words
    assert command_of(plain.of(MakeArray)[0]) == tuple(word for word in words if word != "--assume-clean")
    assert "fallocate" in needs_of_plan(zeroed, here=False).programs
    assert "fallocate" not in needs_of_plan(plain, here=False).programs
    assert not any("no --assume-clean" in note for note in zeroed.notes)
    assert not any("initial resynchronisation" in line for line in zeroed.attention)
    assert any("initial resynchronisation" in line for line in plain.attention)


def test_documents_have_it_only_if_it_is_wanted() -> None:
    wanted = goal(zero_members=True)
    plan = planned(wanted, *four())
    assert from_json(to_json(plan)) == plan
    document = plan_with_request(plan, "wanted", ArrayRequest(("/dev/nvme0n1",), wanted))
    check(json.loads(document))
    assert request_in_document(document, "wanted", ArrayRequest).goal == wanted
    text = plan_with_request(planned(goal(), *four()), "wanted", ArrayRequest(("/dev/nvme0n1",), goal()))
    assert '"zeroed": true' in document and '"zero_members": true' in document
    assert "zero_members" not in text and '"zeroed": false' not in text


# mkfs.xfs(8), -K; mke2fs(8), -E nodiscard; mkfs.btrfs(8), --nodiscard. mkswap(8) discards nothing.
@pytest.mark.parametrize(
    ("kind", "words"), [("xfs", ("-K",)), ("ext4", ("nodiscard",)), ("btrfs", ("--nodiscard",)), ("swap", ())]
)
def test_what_was_zeroed_is_not_discarded_by_mkfs(kind: str, words: tuple[str, ...]) -> None:
    zeroed = planned(goal(filesystem=kind, zero_members=True), *four()).of(MakeFileSystem)[0].options
    plain = planned(goal(filesystem=kind), *four()).of(MakeFileSystem)[0].options
    assert all(any(word in option.split(",") for option in zeroed) for word in words)
    assert not any(word in option.split(",") for option in plain for word in words)


def test_every_doubt_about_a_member_refuses_it() -> None:
    wanted = goal(zero_members=True)
    disks = four()
    for zeroing in (Zeroing(), Zeroing(0, True)):
        assert {code for code, _ in refusal(wanted, *disks, zeroing=zeroing)} == {"write-zeroes"}
    ata = replace(disks[3], kind=DiskKind.ATA)
    assert [code for code, _ in refusal(wanted, *disks[:3], ata)] == ["write-zeroes"]
    unread = replace(disks[3], sampled=None)
    assert ("not-read", "nvme3n1 was not read, so it is not known to be empty; it is not zeroed") in refusal(
        wanted, *disks[:3], unread
    )
    full = replace(disks[3], sampled=replace(BLANK, written=1))
    assert "not-empty" in [code for code, _ in refusal(wanted, *disks[:3], full)]
    assert "not-empty" in [code for code, _ in refusal(replace(wanted, wipe=("nvme3n1",)), *disks[:3], full)]
    # also if it turns out to be empty: nothing that may be wiped is zeroed
    assert "not-empty" in [code for code, _ in refusal(replace(wanted, wipe=("nvme3n1",)), *disks)]
    assert [code for code, _ in refusal(goal("raid0", zero_members=True), *disks)] == ["invalid-option"]


def test_the_hint_for_a_member_with_data_does_not_suggest_to_wipe_it() -> None:
    full = replace(blank(3), sampled=replace(BLANK, written=1))
    with pytest.raises(Refused) as refused:
        planned(goal(zero_members=True), *four()[:3], full)
    assert not any("--wipe" in each.hint for each in refused.value.refusals)


def test_the_first_lines_say_when_it_is_at_full_speed() -> None:
    # 959,953,502,208 bytes of each member at 204.8 MB/s, which md counts for each member, and of the whole RAID10
    assert "in at least 78 min" in ready(planned(goal(), *four()))
    assert "in at least 2 h 36 min" in ready(planned(goal("raid10"), *four()))
    assert "md's default limit of 205 MB/s" in ready(planned(goal("raid5"), *four()))
    assert "without the limit" not in ready(planned(goal(), *four()))
    linked_text = ready(planned(goal(), *four(3_940_000_000)))
    assert "in at least 78 min" in linked_text and linked_text.endswith("; without the limit at least 4 min")
    # another limit of this machine; then the links bind, 3.94 GB/s for each member: 244 s
    assert "in at least 16 min" in ready(planned(goal("raid5"), *four(), limit=1_000_000 * KIB))
    text = ready(planned(goal("raid5"), *four(3_940_000_000), limit=10_000_000 * KIB))
    assert "in at least 4 min" in text and "the link of nvme0n1" in text
    # of a RAID6 md reads all four members: at the same links
    assert "3.5TiB at 15.76 GB/s" in ready(planned(goal("raid6", fast_sync=True), *four(3_940_000_000)))
    assert "nothing to synchronise" in ready(planned(goal("raid0"), *four()))
    assert "md's default limit" in ready(planned(goal(), *four(), system=False))
    plan = planned(goal("raid5", zero_members=True), *four(3_940_000_000))
    # all four are read at once: 244 s
    assert "every byte is read back, which takes at least 4 min" in ready(plan)
    assert "announce" in ready(plan)
    assert "announce" not in ready(planned(goal(zero_members=True), *four(), zeroing=Zeroing(4096, None)))
    lines = "".join(text_of(raid_plan_lines(plan, width=400, verbose=True)))
    assert 0 < lines.index(READY) < lines.index("member ") and lines.count(READY) == 1
    commands = [line.strip() for line in lines.splitlines() if "fallocate" in line]
    assert commands[0] == "$ fallocate --punch-hole --offset 137363456 --length 959953502208 /dev/nvme0n1p1"
    assert len(commands) == 4


def test_the_limit_is_lifted_in_the_last_step() -> None:
    wanted = goal("raid10", fast_sync=True)
    plan = planned(wanted, *four(3_940_000_000))
    assert plan.steps == (*planned(goal("raid10"), *four(3_940_000_000)).steps, Synchronise("/dev/md/data"))
    assert "in at least 4 min" in ready(plan) and "limit is lifted" in ready(plan)
    assert "the rates of the members are unknown" in ready(planned(wanted, *four()))
    assert not any("initial resynchronisation" in line for line in plan.attention)
    document = plan_with_request(plan, "wanted", ArrayRequest(("/dev/nvme0n1",), wanted))
    check(json.loads(document))
    assert from_json(document) == plan
    lines = "".join(text_of(raid_plan_lines(plan, width=400, verbose=True)))
    assert "synchronise /dev/md/data without md's limit" in lines and "sync_speed_max" in lines
    assert undo_title(plan.steps[-1]) == "restore md's limit for /dev/md/data"


def test_nothing_is_synchronised_where_all_is_right_from_the_beginning() -> None:
    both = refusal(goal(zero_members=True, fast_sync=True), *four())
    assert both == [("invalid-option", "an array of zeroed members has nothing to synchronise")]
    assert [code for code, _ in refusal(goal("raid0", fast_sync=True), *four())] == ["invalid-option"]


def test_the_question_names_the_drives_that_are_zeroed() -> None:
    said = "".join(text_of(summary_lines(planned(goal(zero_members=True), *four()), width=400)))
    assert "Zeroed first" in said and all(f"serial S000{number}" in said for number in range(4))
    plain = "".join(text_of(summary_lines(planned(goal(), *four()), width=400)))
    assert "Zeroed" not in plain


def test_a_recipe_may_ask_for_it_but_not_at_boot() -> None:
    recipe = parse_recipe("mine.toml", f"{RECIPE}zero_members = true\n")
    assert isinstance(recipe.goal, RaidGoal) and recipe.goal.zero_members and not recipe.goal.fast_sync
    fast = parse_recipe("mine.toml", f"{RECIPE}fast_sync = true\n")
    assert isinstance(fast.goal, RaidGoal) and fast.goal.fast_sync
    assert "limit is lifted" in "".join(text_of(recipe_lines((fast,), width=100)))
    assert "zeroed first" in "".join(text_of(recipe_lines((recipe,), width=100)))
    with pytest.raises(Refused, match="zero_members"):
        parse_recipe("mine.toml", f"{RECIPE}zero_members = 1\n")
    text = RECIPE.replace('"raid"', '"ensure"') + 'zero_members = true\n[drives]\nselect = "all-unused"\n'
    with pytest.raises(Refused, match="unknown key 'zero_members'"):
        parse_recipe("scratch.toml", text)


@pytest.mark.parametrize(
    ("dlfeat", "expected"), [(0b1001, True), (0b11001, True), (0b0001, False), (0b1000, False), (0b1010, False)]
)
def test_a_drive_announces_that_it_deallocates_what_is_zeroed(dlfeat: int, expected: bool) -> None:
    """NVM command set specification, Identify Namespace, DLFEAT: bits 2:0 are 001b if deallocated blocks read as zeros,
    and bit 3 is set if Write Zeroes may deallocate.
    """
    page = bytearray(4096)
    page[0], page[33] = 1, dlfeat
    assert deallocates_zeroed(bytes(page)) is expected
    assert deallocates_zeroed(bytes(4096)) is None and deallocates_zeroed(b"") is None
