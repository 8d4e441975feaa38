"""A drive that loses a write in spite of the flush: when the work stops, nothing incomplete is recognised."""

from collections.abc import Iterator

import pytest

from aligntool.errors import Refused, Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.move import realign
from tests.mover.crowded_disks import Crowd, make_crowd
from tests.mover.simulated_disk import SimulatedDisk
from tests.mover.test_simulated_cuts import NoKernel, act, check_end, check_nothing_or_whole, final, is_new, recover
from tests.thorough import sample

pytestmark = pytest.mark.needs_tools("sfdisk")


class ForgetfulDisk(SimulatedDisk):
    """A disk that loses the write that is operation `lost`, and reads the old content."""

    def __init__(self, platter: bytes, lost: int) -> None:
        super().__init__(platter)
        self.lost = lost

    def write(self, offset: int, data: bytes | memoryview) -> None:
        if self.operations == self.lost:
            data = self.read(offset, len(data))
        super().write(offset, data)


def moved(crowd: Crowd, lost: int) -> tuple[SimulatedDisk, bool]:
    """Return the disk afterwards, and whether the work was stopped."""
    disk = ForgetfulDisk(crowd.platter, lost)
    try:
        for _ in realign(crowd.plan, MoveContext(disk, NoKernel()), crowd.runs):
            pass
    except (Stopped, Refused):
        return disk, True
    return disk, False


def at_every_flush(crowd: Crowd, disk: SimulatedDisk, lost: int) -> Iterator[bytes]:
    """Yield the disk at each flush from the lost write on."""
    platter = bytearray(crowd.platter)
    for number, entry in enumerate(disk.log):
        if entry:
            platter[entry[0] : entry[0] + len(entry[1])] = entry[1]
        elif number > lost:
            yield bytes(platter)


@sample(2)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_lost_write_is_detected_before_incomplete_content_can_be_recognised(seed: int, label: str) -> None:
    crowd = make_crowd(8000 + seed, label)
    operations = act(crowd, crowd.platter, "realign").operations
    for lost in range(operations):
        disk, stopped = moved(crowd, lost)
        for platter in at_every_flush(crowd, disk, lost):
            check_nothing_or_whole(crowd, platter)
        done = final(recover(crowd, final(disk), "resume")) if stopped else final(disk)
        check_end(crowd, done, new=not stopped or is_new(crowd, done))
