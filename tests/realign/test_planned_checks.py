"""A plan contains a check if there is a checker, and only then."""

from aligntool.contents.catalogue import KINDS
from aligntool.steps import CheckContent
from aligntool.units import MIB
from tests.realign.movable_disks import movable_disk, plan_for


def test_every_kind_whose_used_blocks_are_read_or_that_is_shrunk_has_a_checker() -> None:
    assert not [kind.name for kind in KINDS if (kind.map_source or kind.shrinkable) and not kind.checker]


def test_content_without_a_checker_gets_no_check_in_the_plan() -> None:
    plan = plan_for(movable_disk("63+40000 ext4; 50001+40000 crypto_LUKS", size=400 * MIB))
    checked = [step.partition for step in plan.steps if isinstance(step, CheckContent)]
    assert checked == [1]
