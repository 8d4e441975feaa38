"""A plan contains a check if there is a checker, and only then."""

from aligntool.linux.checks import CHECKERS
from aligntool.realign.planning import CHECKED
from aligntool.steps import CheckContent
from aligntool.units import MIB
from tests.realign.movable_disks import movable_disk, plan_for


def test_the_planner_and_the_checkers_know_the_same_kinds() -> None:
    assert {*CHECKERS} == CHECKED


def test_what_nobody_can_check_is_not_promised_to_be_checked() -> None:
    plan = plan_for(movable_disk("63+40000 ext4; 50001+40000 crypto_LUKS", size=400 * MIB))
    checked = [step.partition for step in plan.steps if isinstance(step, CheckContent)]
    assert checked == [1]
