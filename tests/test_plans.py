"""A plan is read back as it was written, and a modified one is refused."""

import json

import pytest

from aligntool.change import Place, Plan, from_json, to_json
from aligntool.errors import Refused
from aligntool.steps import CloseJournal, CopyContent, CopyStrips, JournalPlace, SavedRanges, Subject
from aligntool.units import MIB, Extent

HELD = SavedRanges((Extent(0, 131072),))
PLACE = JournalPlace(Extent(900 * MIB, 4 * MIB), MIB, Extent(2 * MIB, 2 * MIB))
PLAN = Plan(
    "realign",
    Subject("disk.img", 1 << 30, 512, "gpt", "ABC", None, None, None, "00"),
    "every start on 1MiB",
    (Place(1, Extent(32256, 4096), Extent(MIB, 4096), 'ext4 "root"'),),
    (CopyContent(1, "ext4", Extent(32256, 4096), Extent(MIB, 4096), HELD, CopyStrips(1, 2, 3, 4)), CloseJournal(PLACE)),
)


def test_a_plan_survives_being_written_and_read() -> None:
    assert from_json(to_json(PLAN)) == PLAN


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
