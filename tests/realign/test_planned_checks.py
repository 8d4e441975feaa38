"""A plan contains a check if there is a checker, and only then."""

from aligntool.contents.file_systems import FILE_SYSTEMS
from aligntool.steps import CheckContent
from aligntool.units import MIB
from tests.realign.movable_disks import movable_disk, plan_for


def test_every_file_system_that_a_plan_checks_has_a_checker() -> None:
    assert not [kind for kind, each in FILE_SYSTEMS.items() if not each.checker]


def test_content_without_a_checker_gets_no_check_in_the_plan() -> None:
    plan = plan_for(movable_disk("63+40000 ext4; 50001+40000 crypto_LUKS", size=400 * MIB))
    checked = [step.partition for step in plan.steps if isinstance(step, CheckContent)]
    assert checked == [1]
