"""A disk in flight that has changed since the move began: copied to a larger one, or ending within a sector."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.mover.context import MoveContext
from aligntool.mover.move import realign, resume, rollback, status
from aligntool.steps import HoldContent
from aligntool.units import MIB
from tests.mover.crowded_disks import Crowd, make_crowd
from tests.mover.simulated_disk import SimulatedDisk, crashes
from tests.mover.test_simulated_cuts import NoKernel, act, check_end, final, is_new, recover
from tests.run_aligntool import run_aligntool

pytestmark = pytest.mark.needs_tools("sfdisk")


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_disk_in_flight_may_be_copied_to_a_larger_one(label: str) -> None:
    """The backup GPT is then in the middle of the copy."""
    crowd = make_crowd(8000, label)
    whole = act(crowd, crowd.platter, "realign")
    for number, platter in enumerate(crashes(crowd.platter, whole.log, random.Random(8))):
        copied = platter + bytes(MIB)
        done = final(recover(crowd, copied, "rollback" if number % 2 else "resume"))
        check_end(crowd, done, new=is_new(crowd, done))


def test_a_smaller_disk_is_refused() -> None:
    crowd = make_crowd(8000, "dos")
    disk = SimulatedDisk(_half_way(crowd)[: -32 * 1024])
    with pytest.raises(Refused, match="belongs to a disk of"):
        list(resume(MoveContext(disk, NoKernel())))
    assert disk.operations == 0


@pytest.mark.parametrize("way", [resume, rollback])
def test_an_image_that_ends_within_a_sector_can_be_recovered(way: type) -> None:
    """Its size is that of the file; a Device has whole sectors."""
    crowd = make_crowd(8002, "dos")
    subject = replace(crowd.plan.disk, size=len(crowd.platter) + 100)
    crowd = replace(crowd, plan=replace(crowd.plan, disk=subject))
    disk = SimulatedDisk(_half_way(crowd))
    for _ in way(MoveContext(disk, NoKernel())):
        pass
    check_end(crowd, final(disk), new=way is resume)


def test_an_old_table_restored_by_hand_does_not_hide_that_the_disk_is_in_flight() -> None:
    """The status reports the move; resume continues and finishes it."""
    crowd = make_crowd(8004, "gpt")
    cut = _half_way(crowd)
    by_hand = crowd.platter[: 34 * 512] + cut[34 * 512 : -33 * 512] + crowd.platter[-33 * 512 :]
    told = status(MoveContext(SimulatedDisk(by_hand), NoKernel()))
    assert told.state == "in-flight"
    assert not any("whole" in sentence for sentence in told.sentences)
    check_end(crowd, final(act(crowd, by_hand, "resume")), new=True)


def _half_way(crowd: Crowd) -> bytes:
    """Return a disk with the markers written and a part of the content copied."""
    disk = SimulatedDisk(crowd.platter)
    marked = max(index for index, step in enumerate(crowd.plan.steps) if isinstance(step, HoldContent))
    for event in realign(crowd.plan, MoveContext(disk, NoKernel()), crowd.runs):
        if getattr(event, "index", 0) > marked + 1:
            break
    return final(disk)


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_the_audit_of_a_disk_in_flight_suggests_no_second_move(label: str, tmp_path: Path) -> None:
    """The suggested command is `status`, which names the two ways to continue."""
    image = tmp_path / "disk.img"
    image.write_bytes(_half_way(make_crowd(8000, label)))
    said = run_aligntool("audit", "--fail-on", "never", image, code=0).stdout
    assert f"aligntool status {image}" in " ".join(said.split())
    ways = [line.strip() for line in said.splitlines() if line.startswith("    → ")]
    assert [way.split()[2] for way in ways[:2]] == ["resume", "rollback"]
    assert "plan realign" not in said
