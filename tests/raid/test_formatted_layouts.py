"""A new table on an empty NVMe drive that is formatted to another LBA format first: the plan, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Judged
from aligntool.change import LayoutGoal, PartitionRequest, TablePlan, from_json, to_json
from aligntool.errors import Refused
from aligntool.inventory import Disk, Inventory, KnownGeometry, Source
from aligntool.layout.layout import plan_layout, refuse_unsound
from aligntool.raid.formatting import plan_formats, plan_formatted_layout
from aligntool.raid.lba_formats import Namespace
from aligntool.render.lines import text_of
from aligntool.render.plan import summary_lines
from aligntool.steps import FormatDrive, MakeTable
from aligntool.units import MIB
from tests.raid.builders import SIZE
from tests.raid.test_formatting import REFUSED, blank

PARTS = (PartitionRequest(512 * MIB, "esp"), PartitionRequest(None, "linux"))
GOAL = LayoutGoal(PARTS)
OF_MEMBERS = ("locked", "failing", "not readable", "mounted")  # refused of a member in its own words


def as_judged(disk: Disk) -> Judged:
    return audit(Inventory((disk,)), {}).judged[0]


def planned(
    disk: Disk,
    goal: LayoutGoal = GOAL,
    size: int = 4096,
    rows: tuple[KnownGeometry, ...] = (),
    scope: str | None = "namespace",
) -> TablePlan:
    machine = Inventory((disk,))
    namespaces = {disk.name: Namespace(scope, 1)}
    formatting = plan_formats([as_judged(disk)], machine, size, {disk.name: rows}, namespaces, machine.disks)
    return plan_formatted_layout(formatting, goal)


def test_the_drive_is_formatted_before_it_gets_its_table() -> None:
    plan = planned(blank(0, size=SIZE + 2560))
    formatted, table = plan.steps
    assert isinstance(formatted, FormatDrive) and isinstance(table, MakeTable)
    # the better of the two formats of 4096 bytes without metadata, as rated by the drive
    assert (formatted.format_before, formatted.format_after, formatted.block_after) == (0, 3, 4096)
    assert (formatted.disk.size, formatted.disk.sector_size) == (SIZE + 2560, 512)
    # its size is no multiple of 4096 bytes; a GPT ends with 5 sectors of 4096 bytes (UEFI 2.10, 5.3)
    assert (plan.disk.size, plan.disk.sector_size) == ((SIZE + 2560) // 4096 * 4096, 4096)
    assert table.entries[-1].extent.end <= plan.disk.size - 5 * 4096
    assert (
        "nvme0n1: format 0, 512 bytes (good), becomes format 3, 4096 bytes (best), as rated by the drive" in plan.notes
    )
    assert from_json(to_json(plan)) == plan
    refuse_unsound(plan)


def test_the_table_is_that_of_a_drive_with_these_blocks() -> None:
    later = plan_layout(as_judged(blank(0, logical=4096)), GOAL)
    plan = planned(blank(0))
    assert plan.steps[1:] == later.steps and plan.disk == later.disk and plan.places == later.places


def test_a_drive_that_has_these_blocks_is_not_formatted() -> None:
    plan = planned(blank(0, logical=4096))
    assert not plan.of(FormatDrive) and plan.of(MakeTable)
    assert "nvme0n1 already has logical blocks of 4096 bytes" in plan.notes


def test_the_question_names_the_drive_by_its_serial_number() -> None:
    said = "".join(text_of(summary_lines(planned(blank(0)), width=200)))
    assert "A new partition table: 2 partitions." in said
    assert "Formatted first, which erases the whole drive: /dev/nvme0n1 (serial S0000" in said
    assert "Formatted" not in "".join(text_of(summary_lines(planned(blank(0, logical=4096)), width=200)))


@pytest.mark.parametrize("wipe", [False, True])
@pytest.mark.parametrize(
    ("change", "code", "said"),
    [row[1:] for row in REFUSED if row[0] not in OF_MEMBERS],
    ids=[row[0] for row in REFUSED if row[0] not in OF_MEMBERS],
)
def test_a_drive_that_may_not_be_formatted_is_refused(
    change: Callable[[Disk], Disk], code: str, said: str, wipe: bool
) -> None:
    with pytest.raises(Refused) as refused:
        planned(change(blank(0)), replace(GOAL, wipe=wipe))
    found = refused.value.refusals
    assert any(one.code == code and said in one.text for one in found), found
    assert "--wipe" not in refused.value.hint


@pytest.mark.parametrize("wipe", [False, True])
@pytest.mark.parametrize(
    ("change", "code"), [({"mounted_at": ("/srv",)}, "mounted"), ({"content_read": False}, "not-read")]
)
def test_a_drive_that_may_get_no_table_is_not_formatted(change: dict[str, Any], code: str, wipe: bool) -> None:
    with pytest.raises(Refused) as refused:
        planned(replace(blank(0), **change), replace(GOAL, wipe=wipe))
    assert code in [one.code for one in refused.value.refusals]


def test_a_format_that_erases_more_than_the_namespace_is_refused() -> None:
    with pytest.raises(Refused, match="formatting nvme0n1 erases every namespace of its drive"):
        planned(blank(0), scope="drive")


def test_firmware_with_a_known_defect_is_not_asked_to_format() -> None:
    row = KnownGeometry(Source.KNOWN, "ACME", "its maker", "high", defect="it can lock itself", fixed_in="2.0")
    with pytest.raises(Refused, match="has a known defect: it can lock itself"):
        planned(blank(0), rows=(row,))
    assert planned(blank(0, logical=4096), rows=(row,)).steps


def test_every_reason_is_reported_at_once() -> None:
    with pytest.raises(Refused) as refused:
        planned(blank(0), LayoutGoal(()), scope="none")
    assert {one.code for one in refused.value.refusals} == {"lba-format", "invalid-option"}


def test_blocks_that_md_does_not_take_are_refused() -> None:
    with pytest.raises(Refused) as refused:
        planned(blank(0), size=8192)
    assert [one.subject for one in refused.value.refusals] == ["--lba-size"]


def test_a_saved_plan_with_a_format_after_its_table_is_refused() -> None:
    plan = planned(blank(0))
    with pytest.raises(Refused, match="does not make the table that it shows"):
        refuse_unsound(replace(plan, steps=plan.steps[::-1]))
