"""`aligntool realign DISK --yes` without verification: what was copied is not read back from the medium.

The disk is the same as after the real command. Only the benchmark may do this: it shows what verification costs, and
makes aligntool comparable to tools that do not verify.

    python tests/bench/unverified.py DISK
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from aligntool.change import move_plan
from aligntool.cli.plan import realign_of
from aligntool.cli.run_change import show_plan
from aligntool.device import Device, Job, Jobs
from aligntool.linux.checks import check_content
from aligntool.linux.lock import lock_disk
from aligntool.mover.context import MoveContext
from aligntool.mover.move import realign
from aligntool.realign.request import Request, look_at
from aligntool.realign.stale_plan import verify_plan
from aligntool.steps import CheckContent

SHORTEST = 1 << 16  # shorter writes are table, journal and markers, not the content


class Trusting:
    """A Device that answers the first read of newly written data from memory."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._written: dict[tuple[int, int], bytes | memoryview] = {}

    @property
    def size(self) -> int:
        return self._device.size

    @property
    def sector_size(self) -> int:
        return self._device.sector_size

    def read(self, offset: int, length: int) -> bytes | memoryview:
        written = self._written.pop((offset, length), None)
        return self._device.read(offset, length) if written is None else written

    def write(self, offset: int, data: bytes | memoryview) -> None:
        self._device.write(offset, data)
        if len(data) >= SHORTEST:
            self._written[offset, len(data)] = data

    def is_hole(self, offset: int, length: int) -> bool:
        return self._device.is_hole(offset, length)

    def flush(self) -> None:
        self._device.flush()

    def run_parallel(self, jobs: Jobs, meanwhile: Job | None = None) -> None:
        self._device.run_parallel(jobs, meanwhile)


def main(path: str) -> None:
    asked = Request()
    operation = realign_of(path, asked)
    plan = move_plan(operation.make_plan())
    show_plan(operation, plan, sys.stdout)
    with lock_disk(path, image_sector_size=plan.disk.sector_size) as locked:
        found = verify_plan(plan, asked)
        for step in plan.steps:
            if isinstance(step, CheckContent):
                check_content(path, step.extent, step.kind)
        for event in realign(plan, MoveContext(Trusting(locked.device), locked.kernel), found.runs):
            print(event)
    look_at(path, asked)


if __name__ == "__main__":
    main(sys.argv[1])
