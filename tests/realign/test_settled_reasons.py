"""A reason that follows only from another one, which can be settled, is not given."""

from dataclasses import replace

import pytest

from aligntool.audit.report import Judged
from aligntool.change import RealignGoal
from aligntool.claims import ALL_FREE
from aligntool.errors import Refused
from aligntool.inventory import Layer, TableLabel
from aligntool.realign.planning import find_repairs, plan_realign
from aligntool.units import MIB
from tests.audit.builders import judge, made_disk

DIRTY = "was not unmounted cleanly"


def full_disk(*, unclean: str | None) -> Judged:
    """Return a disk without free space: an NTFS, and an ext4 that is shorter than its partition."""
    disk = made_disk("63+204700; 204863+204736", physical=4096, label=TableLabel.DOS)
    ntfs, ext = disk.partitions
    home = ntfs.extent
    volume = Layer("ntfs", home, unclean=unclean, claims_size=home.length, data_unit=4096)
    files = Layer("ext4", ext.extent, claims_size=ext.extent.length - 184 * 1024, data_unit=4096)
    parts = (replace(ntfs, content=(volume,)), replace(ext, content=(files,)))
    return judge(replace(disk, size=200 * MIB, partitions=parts)).judged[0]


def test_room_that_a_clean_file_system_would_have_is_not_missed() -> None:
    plan = plan_realign(full_disk(unclean=None), RealignGoal(shrink=True), {}, ALL_FREE)
    assert [place.number for place in plan.places if place.before != place.after] == [1, 2]
    with pytest.raises(Refused) as refused:
        plan_realign(full_disk(unclean=DIRTY), RealignGoal(shrink=True), {}, ALL_FREE)
    assert [reason.code for reason in refused.value.refusals] == ["unclean"]


def test_a_file_system_that_only_makes_room_is_settled_first() -> None:
    judged = full_disk(unclean=DIRTY)
    goal = RealignGoal(shrink=True, partitions=(2,))
    with pytest.raises(Refused) as refused:
        plan_realign(judged, goal, {}, ALL_FREE)
    assert str(refused.value) == f"partition 1: {DIRTY}"


def test_an_audit_names_what_refuses_the_shrink_first() -> None:
    for repair in find_repairs(full_disk(unclean=DIRTY)):
        assert repair.why.endswith(f"once this is resolved: partition 1: {DIRTY}")
        assert "plan realign" not in repair.next
    assert {"plan realign" in repair.next for repair in find_repairs(full_disk(unclean=None))} == {True}
