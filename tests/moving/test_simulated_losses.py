"""A drive that loses a write in spite of the flush: nothing is recognised that is not whole when the work stops."""

import pytest

from aligntool.apply.mover import Workshop, realign
from aligntool.errors import Refused, Stopped
from tests.moving.crowded import Crowd, make_crowd
from tests.moving.simulated import SimulatedDisk
from tests.moving.test_simulated_cuts import (
    NoKernel,
    act,
    check_end,
    check_nothing_or_whole,
    final,
    is_new,
    recover,
)

pytestmark = pytest.mark.needs_tools("sfdisk")


class ForgetfulDisk(SimulatedDisk):
    """Loses the write that is operation `lost`, and reads what was there."""

    def __init__(self, platter: bytes, lost: int) -> None:
        super().__init__(platter)
        self.lost = lost

    def write(self, offset: int, data: bytes | memoryview) -> None:
        if self.operations == self.lost:
            data = self.read(offset, len(data))
        super().write(offset, data)


def moved(crowd: Crowd, lost: int) -> tuple[bytes, bool]:
    """The disk afterwards, and whether the work was stopped."""
    disk = ForgetfulDisk(crowd.platter, lost)
    try:
        for _ in realign(crowd.plan, Workshop(disk, NoKernel()), crowd.runs):
            pass
    except (Stopped, Refused):
        return final(disk), True
    return final(disk), False


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_lost_write_is_noticed_before_anything_is_recognised(seed: int, label: str) -> None:
    crowd = make_crowd(8000 + seed, label)
    operations = act(crowd, crowd.platter, "realign").operations
    for lost in range(operations):
        platter, stopped = moved(crowd, lost)
        if stopped:
            check_nothing_or_whole(crowd, platter)
            done = final(recover(crowd, platter, "resume"))
            check_end(crowd, done, new=is_new(crowd, done))
