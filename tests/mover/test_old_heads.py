"""The first bytes of content that are put back where it was, when a new place has that place already.

A backup of the first bytes of a partition is often kept. In flight its old place may lie in a new one, also in that of
another partition, so that what is put back there would be a hole in moved data.
"""

import random
from collections.abc import Callable, Iterator

import pytest

from aligntool.change import Event, StepBegun
from aligntool.errors import NothingInFlight, Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.move import realign, resume, rollback
from aligntool.steps import CopyContent, HoldContent, ReleaseContent, RewriteTable
from aligntool.units import Extent
from tests.mover.libblkid import ProbedImage
from tests.mover.planned_disks import Planned
from tests.mover.simulated_disk import SimulatedDisk
from tests.mover.test_planned_cuts import drawn, journal_fits
from tests.mover.test_simulated_cuts import NoKernel, final, leads_to_new
from tests.thorough import THOROUGH

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs", "mkfs.fat")
Way = Callable[[MoveContext], Iterator[Event]]
LENGTHS = (4096, 65536, 1 << 20)


def old_places(planned: Planned) -> Iterator[HoldContent]:
    yield from (step for step in planned.plan.steps if isinstance(step, HoldContent))


def cuts(planned: Planned, count: int) -> Iterator[bytes]:
    """Yield what cuts from the first copy to the new table leave on the disk."""
    disk, luck = SimulatedDisk(planned.platter, sector=planned.sector), random.Random(1)
    first, last = (next(index for index, step in enumerate(planned.plan.steps) if isinstance(step, kind))
                   for kind in (CopyContent, RewriteTable))  # fmt: skip
    begins: dict[int, int] = {}
    for event in begun(planned, disk):
        if isinstance(event, StepBegun):
            begins[event.index] = disk.operations
    moments = range(begins[first], begins[last])
    for cut in sorted(luck.sample(moments, min(count, len(moments)))):
        yield disk.before(cut).after_the_cut(luck)


def begun(planned: Planned, disk: SimulatedDisk) -> Iterator[Event]:
    return realign(planned.plan, MoveContext(disk, NoKernel()), planned.runs)


def is_whole(planned: Planned, platter: bytes, way: Way) -> bool:
    """Return whether every partition that moves is whole where it should be."""
    ends = {step.partition: step.target.start for step in planned.plan.steps if isinstance(step, ReleaseContent)}
    for step in old_places(planned):
        start = ends[step.partition] if way is resume else step.source.start
        if planned.content(platter, step, start) != planned.content(planned.platter, step, step.source.start):
            return False
    return True


def covered(planned: Planned) -> list[HoldContent]:
    """Return the partitions whose old start lies in a new place."""
    targets = [step.target for step in planned.plan.steps if isinstance(step, ReleaseContent)]
    sources = [step for step in planned.plan.steps if isinstance(step, HoldContent)]
    return [step for step in sources if any(target.contains(Extent(step.source.start, 1)) for target in targets)]


def seen(platter: bytes, place: Extent) -> dict[str, str]:
    with ProbedImage(platter) as witness:
        return witness.see(place.start, place.length)


@pytest.mark.parametrize("way", [resume, rollback])
def test_first_bytes_put_back_into_a_new_place_stop_both_ways_or_do_no_harm(way: Way) -> None:
    """What is recognised there, or lies where markers are left, always stops them."""
    stopped = 0
    for seed in range(60 if THOROUGH else 5):
        luck = random.Random(seed)
        disks = drawn(seed, luck.choice(("gpt", "dos")), 512)
        planned = next(each for each in disks if journal_fits(each) and covered(each))
        for platter in cuts(planned, 20 if THOROUGH else 6):
            step, length = luck.choice(covered(planned)), luck.choice(LENGTHS)
            at, length = step.source.start, min(length, step.source.length)
            put_back = platter[:at] + planned.platter[at : at + length] + platter[at + length :]
            disk = SimulatedDisk(put_back, sector=planned.sector)
            try:
                list(way(MoveContext(disk, NoKernel())))
            except NothingInFlight:
                assert leads_to_new(put_back, resumed=False)
            except Stopped as stop:
                assert disk.operations == 0 and "another program has written" in str(stop)
                stopped += 1
                continue
            if "TYPE" in seen(put_back, step.source):
                ended = resume if leads_to_new(put_back, resumed=way is resume) else rollback
                assert is_whole(planned, final(disk), ended), f"{length} bytes at {step.source}"
    assert stopped
