"""A plan is read back as it was written, and a modified one is refused."""

import json

import pytest

from aligntool.change import ArrayPlan, MovePlan, Place, Plan, TablePlan, array_plan, from_json, move_plan, to_json
from aligntool.errors import Refused
from aligntool.steps import CloseJournal, CopyContent, CopyStrips, JournalPlace, SavedRanges, Subject
from aligntool.units import MIB, Extent

HELD = SavedRanges((Extent(0, 131072),))
PLACE = JournalPlace(Extent(900 * MIB, 4 * MIB), MIB, Extent(2 * MIB, 2 * MIB))
PLAN = MovePlan(
    "realign",
    Subject("disk.img", 1 << 30, 512, "gpt", "ABC", None, None, None, "00"),
    "every start on 1MiB",
    (Place(1, Extent(32256, 4096), Extent(MIB, 4096), 'ext4 "root"'),),
    (CopyContent(1, "ext4", Extent(32256, 4096), Extent(MIB, 4096), HELD, CopyStrips(1, 2, 3, 4)), CloseJournal(PLACE)),
)
PURPOSES: dict[type[Plan], tuple[str, ...]] = {
    MovePlan: ("realign", "partition", "unpartition", "convert"),
    TablePlan: ("layout", "convert-copy"),
    ArrayPlan: ("raid", "persist", "reformat", "layers"),
}


def test_a_plan_survives_being_written_and_read() -> None:
    assert from_json(to_json(PLAN)) == PLAN


@pytest.mark.parametrize("kind", [MovePlan, TablePlan, ArrayPlan])
def test_a_plan_that_was_read_has_the_type_of_the_plan_that_was_written(kind: type[Plan]) -> None:
    for purpose in PURPOSES[kind]:
        plan = kind(purpose, PLAN.disk, PLAN.goal, PLAN.places, PLAN.steps)
        assert from_json(to_json(plan)) == plan


def test_only_a_plan_that_a_journal_or_a_record_can_have_is_taken_from_it() -> None:
    for kind, purposes in PURPOSES.items():
        plan = kind(purposes[0], PLAN.disk, PLAN.goal, PLAN.places, PLAN.steps)
        for narrowed, to in ((move_plan, MovePlan), (array_plan, ArrayPlan)):
            if kind is to:
                assert narrowed(plan) is plan
            else:
                with pytest.raises(ValueError, match=purposes[0]):
                    narrowed(plan)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "nonsense",
        '{"schema": "aligntool.plan", "version": 99}',
        '{"schema": "aligntool.plan", "version": 1, "plan": {"steps": 3}}',
        '{"schema": "aligntool.plan", "version": 1, "plan": null}',
    ],
)
def test_text_that_is_not_a_plan_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        from_json(text)


def test_an_edited_plan_is_refused() -> None:
    document = json.loads(to_json(PLAN))
    document["plan"]["places"][0]["after"]["start"] += 512
    with pytest.raises(Refused, match="changed"):
        from_json(json.dumps(document))
