"""A kernel that cannot update its partitions: the disk is finished, nothing is left to resume, and partprobe is
suggested.
"""

import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from aligntool.change import MovePlan, Place
from aligntool.errors import Refused
from aligntool.mover.steps import hidden_from
from aligntool.steps import ParkEntries, Subject
from aligntool.units import GIB, MIB, Extent
from tests.cli.old_disks import assert_whole, first_start, make_old_disk
from tests.cli.test_restore_table import kill_while_copying
from tests.conftest import add_partition, run
from tests.mover.loop_mounts import looped
from tests.run_aligntool import run_aligntool
from tests.thorough import sample

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("losetup", "sfdisk", "mke2fs", "e2fsck", "debugfs")]


@sample(1)
@pytest.mark.parametrize("way", ["text", "json"])
def test_resume_is_not_suggested_for_a_complete_disk_that_the_kernel_cannot_show(
    tmp_path: Path, loop: Callable[..., Path], way: str
) -> None:
    image = make_old_disk(tmp_path / "old.img", size=40 * MIB, length=24 * MIB)
    kill_while_copying(image)
    device = loop(image)
    add_partition(device, 9, Extent(20 * MIB, MIB))  # an open partition of the kernel blocks partition 1: EBUSY
    done = run_aligntool("resume", "--yes", *(["--json"] if way == "json" else []), device)
    assert done.returncode == 0, done.stderr
    assert f"partprobe on {device}: docs/by-hand.md#the-kernel-has-an-older-table" in done.stderr
    assert "aligntool resume" not in done.stderr and "aligntool rollback" not in done.stderr
    if way == "json":
        end = json.loads(done.stdout.splitlines()[-1])
        assert (end["event"], end["state"]) == ("end", "new") and "partprobe" in end["next"]
    assert run_aligntool("resume", device).returncode == 3, "nothing was left to resume"
    assert first_start(image) == 2048
    assert_whole(image)


def test_resume_is_not_suggested_for_a_disk_with_longer_sectors_than_the_move(tmp_path: Path) -> None:
    image = make_old_disk(tmp_path / "old.img", size=40 * MIB, length=24 * MIB)
    kill_while_copying(image)
    with looped(image, sector_size=4096) as device:
        for words in (("status",), ("status", "--json"), ("resume", "--dry-run"), ("rollback", "--dry-run")):
            said = run_aligntool(*words, device, code=3).stderr
            assert "begun with sectors of 512 bytes; the disk now has 4096" in said and "attach the disk as" in said
            assert "aligntool resume" not in said
    with looped(image) as device:
        assert "aligntool resume" in run_aligntool("status", device).stdout
        run_aligntool("resume", "--yes", device, code=0)
    assert_whole(image)


def test_an_open_partition_is_refused_before_anything_is_written(tmp_path: Path, loop: Callable[..., Path]) -> None:
    """Another program may open a partition after the last look and before its node is removed."""
    image = make_old_disk(tmp_path / "old.img", size=40 * MIB, length=24 * MIB)
    before = image.read_bytes()
    device = loop(image)
    run("partx", "-a", device)
    with Path(f"{device}p1").open("rb"):
        done = run_aligntool("realign", "--yes", "--json", device, code=3)
    assert "partition 1 is in use" in done.stderr
    end = json.loads(done.stdout.splitlines()[-1])
    assert (end["state"], end["changed"]) == ("refused", False)
    assert image.read_bytes() == before
    assert Path(f"{device}p1").is_block_device()
    run_aligntool("realign", "--yes", device, code=0)
    assert first_start(image) == 2048
    assert_whole(image)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Refused("short"), KeyboardInterrupt()])
def test_partitions_are_shown_again_if_the_journal_cannot_be_written(error: BaseException) -> None:
    plan = MovePlan(
        "realign", Subject("/d", GIB, 512, None, None, None, None, None, ""), "",
        (Place(1, Extent(512, MIB), Extent(MIB, MIB), ""), Place(2, Extent(4 * MIB, MIB), Extent(4 * MIB, MIB), "")),
        (ParkEntries((1,), (1,)),), (), (),
    )  # fmt: skip
    kernel = Mock()
    with pytest.raises(type(error)), hidden_from(kernel, plan):
        raise error
    kernel.forget.assert_called_once_with((1,))
    kernel.add_absent.assert_called_once_with(((1, Extent(512, MIB)),))
