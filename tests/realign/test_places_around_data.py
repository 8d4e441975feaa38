"""Places for partitions between data that no table lists."""

import random

import pytest

from aligntool.change import MovePlan, RealignGoal
from aligntool.claims import Claims
from aligntool.errors import Refused
from aligntool.inventory import Disk
from aligntool.realign.planning import plan_realign
from aligntool.units import KIB, MIB, Extent
from tests.realign.movable_disks import judged, movable_disk, starts
from tests.test_claims import SECTOR, Bytes
from tests.test_claims import disk as bytes_of_disk

SIZE = 32 * MIB
GRAINS = [4 * KIB << power for power in range(9)]


def plan(disk: Disk, content: Bytes, grain: int | None = None) -> MovePlan | None:
    goal = RealignGoal(grain=grain, grain_given=True) if grain else RealignGoal()
    try:
        return plan_realign(judged(disk), goal, {}, Claims(content))
    except Refused:
        return None


@pytest.mark.parametrize(("start", "after"), [(16937, 16936), (16939, 16936), (16951, 16944), (16999, 16944)])
def test_a_sector_of_data_right_behind_a_partition_does_not_keep_it_there(start: int, after: int) -> None:
    disk = movable_disk(f"2048+14888 ext4; {start}+26949 ext4", size=68707 * SECTOR)
    content = bytes_of_disk(68707 * SECTOR, Extent((start + 26949) * SECTOR, SECTOR))
    found = plan(disk, content)
    assert found and starts(found) == [2048, after]


@pytest.mark.parametrize("seed", range(40, 60))
def test_if_a_grain_has_places_they_are_found_without_it(seed: int) -> None:
    """Partitions and data lie anywhere; the plan overwrites none of the data."""
    luck = random.Random(seed)
    at, parts, data = 2048, [], []
    for _ in range(luck.randint(1, 3)):
        at += luck.choice([0, luck.randrange(64), luck.randrange(4000)])
        length = luck.randrange(2000, 16000)
        parts.append(Extent(at * SECTOR, length * SECTOR))
        at += length
    ends = [2048 * SECTOR, *(part.end for part in parts)]
    for end, following in zip(ends, [*(part.start for part in parts), SIZE - 34 * SECTOR], strict=True):
        for _ in range(luck.randint(0, 3)):
            free = (following - end) // SECTOR
            if free > 1:
                first = end + luck.choice([0, luck.randrange(min(free, 300)), luck.randrange(free)]) * SECTOR
                data.append(Extent(first, luck.choice([1, 1, 30]) * SECTOR).clipped(Extent(end, following - end)))
    text = "; ".join(f"{part.start // SECTOR}+{part.length // SECTOR} ext4" for part in parts)
    disk = movable_disk(text, size=SIZE)
    content = bytes_of_disk(SIZE, *data)
    found = plan(disk, content)
    fitting = [grain for grain in GRAINS if plan(disk, content, grain)]
    assert found or not fitting, f"{text}; data at {data}: no plan, but with a grain of {fitting}"
    written = [step.target for step in found.copies] if found else []
    written += [found.journal.extent] if found and found.copies else []
    assert not any(place.overlaps(one) for place in written for one in data)
