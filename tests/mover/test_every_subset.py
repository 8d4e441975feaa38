"""On tiny disks every subset of the writes between two flushes survives a cut, not some of them."""

import itertools
import math
import random

import pytest

from tests.mover.crowded_disks import Crowd, Part, make_tiny
from tests.mover.simulated_disk import SECTOR, Log, epochs, every_crash, possible_contents
from tests.mover.test_simulated_cuts import act, check_end, check_nothing_or_whole, check_table, final, is_new, recover
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.needs_tools("sfdisk")

SEEDS = range(40 if THOROUGH else 4)
MOST = 1 << 12 if THOROUGH else 1 << 6  # of one epoch; only while the journal is written there are more


def tiny(seed: int, label: str) -> Crowd:
    """Return a disk with at least three sectors that are copied, and not only saved in the journal."""
    for number in itertools.count(13000 + 100 * seed):
        crowd = make_tiny(number, label)
        if sum(map(copied_sectors, crowd.parts)) >= 3:
            return crowd
    raise AssertionError


def copied_sectors(part: Part) -> int:
    used = {at for run in part.runs for at in range(run.start, run.end, SECTOR)}
    saved = {at for run in part.held.ranges for at in range(run.start, run.end, SECTOR)}
    return len(used - saved) if part.moves else 0


@sample(2)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_every_subset_of_the_writes_of_a_move_may_survive(label: str, seed: int) -> None:
    crowd = tiny(seed, label)
    whole = act(crowd, crowd.platter, "realign")
    check_end(crowd, final(whole), new=True)
    subsets = number_of_subsets(crowd.platter, whole.log)[len(("heads", "mark", "body")) :]
    assert all(choices <= MOST for choices in subsets)
    check_every_crash(crowd, crowd.platter, whole.log, seed)


@sample(1)
@pytest.mark.parametrize("how", ["resume", "rollback"])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_every_subset_of_the_writes_of_a_recovery_may_survive(label: str, seed: int, how: str) -> None:
    crowd, luck = tiny(seed, label), random.Random(seed)
    operations = act(crowd, crowd.platter, "realign").operations
    cut = luck.randrange(operations // 3, operations * 4 // 5)
    start = act(crowd, crowd.platter, "realign", cut).after_the_cut(luck)
    check_every_crash(crowd, start, recover(crowd, start, how).log, seed)


def number_of_subsets(start: bytes, log: Log) -> list[int]:
    """Return how many disks a cut in each epoch can leave; 1 for one that only zeros what is not needed any more."""
    platter, found = bytearray(start), []
    for epoch in epochs(log):
        contents = possible_contents(bytes(platter), epoch, random.Random(0), torn=THOROUGH)
        is_zeroing = not any(any(raw) for _, raw in epoch)
        found.append(1 if is_zeroing else math.prod(len(each) for each in contents.values()))
        for offset, raw in epoch:
            platter[offset : offset + len(raw)] = raw
    return found


def check_every_crash(crowd: Crowd, start: bytes, log: Log, seed: int) -> None:
    ways = itertools.cycle(("resume", "rollback", "resume"))
    for platter in every_crash(start, log, random.Random(seed), most=MOST, torn=THOROUGH):
        check_nothing_or_whole(crowd, platter)
        check_table(crowd, platter)
        done = final(recover(crowd, platter, next(ways)))
        check_end(crowd, done, new=is_new(crowd, done))
