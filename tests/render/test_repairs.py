"""Whether a misaligned partition can be repaired, as text and in the JSON."""

import json
import re
from dataclasses import replace

import pytest

from aligntool.audit.report import Repair, Report
from aligntool.change import RealignGoal
from aligntool.claims import ALL_FREE
from aligntool.errors import Refused
from aligntool.inventory import TableLabel
from aligntool.realign.planning import find_repairs, plan_realign, with_repair_commands
from aligntool.render.audit import MOST_ANSWERS, audit_lines, repair_lines
from aligntool.render.json import audit_json
from aligntool.render.lines import cell_width, text_of
from aligntool.render.report.rows import next_steps
from tests.audit.builders import judge, made_disk
from tests.realign.movable_disks import movable_disk
from tests.schemas import check


def answers(report: Report) -> dict[str, tuple[Repair, ...]]:
    return {judged.disk.name: find_repairs(judged) for judged in report.judged}


def text(*found: Repair) -> str:
    return "".join(text_of(repair_lines(found, width=80)))


def test_the_audit_shows_how_each_misaligned_partition_can_be_repaired() -> None:
    report = judge(made_disk("63+80000 ntfs; 2097152+90000 ext4", physical=4096))
    said = "".join(text_of(audit_lines(report, width=80, verbose=False, quiet=False, repairs=answers(report))))
    assert "partition 1 can be realigned in place" in said
    assert "partition 2" not in said.split("AT101")[0]


def test_the_json_has_an_answer_for_misaligned_partitions_and_null_for_others() -> None:
    report = judge(made_disk("63+80000 ntfs; 2097152+90000 ext4", physical=4096))
    document = json.loads("".join(audit_json(report, answers(report))))
    check(document)
    first, second = document["disks"][0]["partitions"]
    assert first["mend"]["answer"] == "in-place"
    assert first["mend"]["why"].endswith(", if the space between the partitions is empty")
    assert second["mend"] is None


FREE = "63+80000 ext4"
CROWDED = "34+2097029 ext4; 2097063+4192903 ntfs"


@pytest.mark.parametrize(
    ("spec", "mounted", "hybrid", "planned"),
    [(FREE, "", False, True), (FREE, "/srv", False, False), (CROWDED, "", False, False), (FREE, "", True, False)],
)
def test_a_finding_suggests_a_plan_only_if_it_is_possible(
    spec: str, mounted: str, *, hybrid: bool, planned: bool
) -> None:
    disk = made_disk(spec, physical=4096, size=6290000 * 512)
    first = replace(disk.partitions[0], mounted_at=(mounted,) if mounted else ())
    disk = replace(disk, partitions=(first, *disk.partitions[1:]))
    if hybrid and disk.table:
        disk = replace(disk, table=replace(disk.table, hybrid=True))
    report = judge(disk)
    told = with_repair_commands(report, answers(report))
    (before,) = {one.next for one in report.findings if one.code == "AT101"}
    (after,) = {one.next for one in told.findings if one.code == "AT101"}
    assert before == "sudo aligntool plan realign /dev/sda"
    try:
        plan_realign(report.judged[0], RealignGoal(), {}, ALL_FREE)
    except Refused as refused:
        said, told_so = (text.replace("plan realign", "realign") for text in (refused.hint, after))
        assert not planned and after != before and told_so in said
    else:
        assert planned and after == before


BETWEEN = "2048+50001 BitLocker; 52049+400015 xfs; 452064+50000 BitLocker; 552065+50000 xfs; 652065+50000 xfs"


def test_partitions_that_fit_are_named_where_another_one_has_no_room() -> None:
    report = judge(movable_disk(BETWEEN))
    told = with_repair_commands(report, answers(report))
    after = {one.partition: one.next for one in told.findings if one.code == "AT101"}
    named = "sudo aligntool plan realign /dev/sda -p 4 -p 5"
    assert after == {2: "by hand, with rsync on /dev/sda: docs/by-hand.md#make-a-file-system-anew", 4: named, 5: named}
    assert plan_realign(report.judged[0], RealignGoal(partitions=(4, 5)), {}, ALL_FREE).steps
    with pytest.raises(Refused, match="to put partition 2 on a boundary; there is for partitions 4, 5") as found:
        plan_realign(report.judged[0], RealignGoal(), {}, ALL_FREE)
    assert found.value.hint == named


TIGHT = "63+399999 xfs; 400064+50001 BitLocker; 450065+400015 xfs; 850080+50000 BitLocker"


def test_a_partition_that_lacks_only_room_for_a_journal_is_named_with_its_option() -> None:
    judged = judge(movable_disk(TIGHT, size=900080 * 512, label=TableLabel.DOS)).judged[0]
    only_by_file = r"partition 3 on a boundary \(the MBR .*\); there is for partition 1 with the journal in a file$"
    with pytest.raises(Refused, match=only_by_file) as found:
        plan_realign(judged, RealignGoal(), {}, ALL_FREE)
    assert found.value.hint == "fill in FILE: sudo aligntool plan realign /dev/sda -p 1 --journal FILE"


FULL_TABLES = {
    r"\(the MBR has no unused entry, .*\)": ("1+200000; 200001+200000; 400001+200000; 600001+199999", TableLabel.DOS),
    r"\(nothing is moved below 16MiB: .*\)": ("32761+767206", TableLabel.GPT),
}


@pytest.mark.parametrize("why", FULL_TABLES)
def test_audit_and_refusal_state_why_free_space_cannot_be_used(why: str) -> None:
    spec, label = FULL_TABLES[why]
    disk = movable_disk(spec, size=800000 * 512, label=label)
    table = replace(disk.table, gap_used_to=16 << 20 if label is TableLabel.GPT else None) if disk.table else None
    judged = judge(replace(disk, table=table)).judged[0]
    with pytest.raises(Refused, match=why):
        plan_realign(judged, RealignGoal(), {}, ALL_FREE)
    for repair in find_repairs(judged):
        assert repair.answer == "not" and re.search(why, repair.why), repair


CLONE = "63+204800; 204863+2000001 ext4; 3e 2204864+860000; 5l 2204927+400000 ext4; 6l 2604990+400000 ext4"


def test_audit_page_and_refusal_say_the_same_where_only_a_shrink_moves_all() -> None:
    report = judge(movable_disk(CLONE, size=3072000 * 512, label=TableLabel.DOS))
    told = with_repair_commands(report, answers(report))
    with pytest.raises(Refused, match="partitions 1, 2 on a boundary; there is for partitions 5, 6; ") as found:
        plan_realign(report.judged[0], RealignGoal(), {}, ALL_FREE)
    named, shrunk = found.value.hint.splitlines()
    assert named == "sudo aligntool plan realign /dev/sda -p 5 -p 6"
    assert shrunk == "sudo aligntool plan realign /dev/sda --shrink"
    after = {one.partition: one.next for one in told.findings if one.code == "AT101"}
    assert after == {1: shrunk, 2: shrunk, 5: named, 6: named}
    assert next_steps(told).steps == (("", named),)
    for repair in find_repairs(report.judged[0])[:2]:
        assert str(found.value).endswith(repair.why.removeprefix("there is not enough room"))
        assert repair.why.endswith("ext4 on partition 2 has 1MiB to spare")


def test_the_other_partitions_are_named_where_one_can_never_be_moved() -> None:
    report = judge(movable_disk("2049+50000 BitLocker; 200001+50000 xfs"))
    told = with_repair_commands(report, answers(report))
    after = {one.partition: one.next for one in told.findings if one.code == "AT101"}
    assert after[2] == "sudo aligntool plan realign /dev/sda -p 2" != after[1]
    assert plan_realign(report.judged[0], RealignGoal(partitions=(2,)), {}, ALL_FREE).steps


def test_only_those_others_are_named_that_fit_if_it_is_not_moved() -> None:
    """Partition 1 would have room if partition 2 moved."""
    (judged,) = judge(movable_disk("63+800000 xfs; 800063+50000 BitLocker; 900001+50000 xfs")).judged
    with pytest.raises(Refused, match="BitLocker") as found:
        plan_realign(judged, RealignGoal(), {}, ALL_FREE)
    assert found.value.hint == "sudo aligntool plan realign /dev/sda -p 3"
    assert plan_realign(judged, RealignGoal(partitions=(3,)), {}, ALL_FREE).steps


def test_the_goal_of_a_plan_that_moves_nothing_does_not_state_1mib() -> None:
    (judged,) = judge(movable_disk("2048+50000 ext4; 200008+50000 ext4")).judged
    assert plan_realign(judged, RealignGoal(), {}, ALL_FREE).goal == "every start on its boundary"
    assert plan_realign(judged, RealignGoal(grain_given=True), {}, ALL_FREE).goal == "every start on 1MiB"
    assert plan_realign(judged, RealignGoal(partitions=(1, 2)), {}, ALL_FREE).goal == "partitions 1, 2 on 1MiB"


def test_a_mounted_partition_is_reported_with_its_mount_point() -> None:
    disk = made_disk("63+80000 ext4", physical=4096)
    disk = replace(disk, partitions=(replace(disk.partitions[0], mounted_at=("/srv",)),))
    report = judge(disk)
    assert "/srv" in "".join(text_of(repair_lines(find_repairs(report.judged[0]), width=200)))


def test_partitions_with_the_same_answer_are_reported_in_one_line() -> None:
    said = text(*(Repair(number, "not", "it is mounted", "umount /srv") for number in (1, 2, 5)))
    assert said.startswith("  partitions 1, 2, 5 cannot be realigned: it is mounted\n")
    assert said.count("umount /srv") == 1


def test_a_table_with_a_thousand_problems_stays_readable() -> None:
    said = text(*(Repair(number, "not", f"reason {number}", "") for number in range(1000)))
    assert len(said.splitlines()) <= 2 * MOST_ANSWERS + 1 and "988 more" in said
    alike = text(*(Repair(number, "not", "all alike", "") for number in range(1000)))
    assert len(alike.splitlines()) <= 4 and "988 more" in alike


def test_text_from_a_disk_is_escaped_and_wrapped_at_80_columns() -> None:
    said = text(Repair(1, "with-shrink", "the label \x1b[31m is " + "long " * 40, "\x1b]0;"))
    assert "\x1b" not in said
    assert max(cell_width(line) for line in said.splitlines()) <= 80
