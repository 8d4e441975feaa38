"""Bytes that no table lists hold random data, except where the journal and the targets are: zeros.

The random data stay at every cut. The zeros are zeros again at the end, forwards and backwards; only a cut while the
journal is written or erased, after which no command finds one, leaves parts of it there.
"""

import itertools
import random
from collections.abc import Iterable

import pytest

from aligntool.mover.journal_search import find_journal
from tests.mover.crowded_disks import Crowd, make_noisy
from tests.mover.simulated_disk import SECTOR, SimulatedDisk, crashes
from tests.mover.test_simulated_cuts import act, check_end, final, is_new, recover
from tests.mover.test_simulated_media import place_of
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.needs_tools("sfdisk")

SEEDS = range(60 if THOROUGH else 4)
STRIDE = 1 if THOROUGH else 4


def sectors_of_table(crowd: Crowd) -> set[int]:
    size = len(crowd.platter)
    gpt = (*range(34 * SECTOR)[::SECTOR], *range(size - 33 * SECTOR, size, SECTOR))
    records = [at for part in crowd.parts for at in (part.record_old, part.record_new) if at is not None]
    return {0, *records, *(gpt if crowd.label == "gpt" else ())}


def unlisted(crowd: Crowd, starts: Iterable[str]) -> list[int]:
    """Return the sectors outside of the table and of the partitions at these places: "old", "new"."""
    listed = sectors_of_table(crowd)
    for part, name in itertools.product(crowd.parts, starts):
        place = part.old if name == "old" else part.new
        listed.update(range(place.start, place.end, SECTOR))
    return [at for at in range(0, len(crowd.platter), SECTOR) if at not in listed]


def changed(crowd: Crowd, platter: bytes, sectors: list[int]) -> list[int]:
    return [at // SECTOR for at in sectors if platter[at : at + SECTOR] != crowd.platter[at : at + SECTOR]]


def kept(crowd: Crowd, platter: bytes) -> list[int]:
    """Return the sectors that must be as before when the work on this disk is finished."""
    is_in_flight = find_journal(SimulatedDisk(platter), None) is not None
    return unlisted(crowd, ("old", "new")) if is_in_flight else outside_of_islands(crowd)


def outside_of_islands(crowd: Crowd) -> list[int]:
    place = place_of(crowd).extent
    return [at for at in unlisted(crowd, ("old", "new")) if not place.start <= at < place.end]


@sample(3)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_unlisted_bytes_are_as_before_after_every_cut_and_its_recovery(label: str, seed: int) -> None:
    crowd, luck = make_noisy(14000 + seed, label), random.Random(seed)
    whole = act(crowd, crowd.platter, "realign")
    noise = outside_of_islands(crowd)
    assert any(crowd.platter[at] for at in noise)
    assert changed(crowd, final(whole), unlisted(crowd, ("old", "new"))) == []
    for number, platter in enumerate(itertools.islice(crashes(crowd.platter, whole.log, luck), seed, None, STRIDE)):
        assert changed(crowd, platter, noise) == []
        done = final(recover(crowd, platter, ("resume", "rollback")[number % 2]))
        check_end(crowd, done, new=is_new(crowd, done))
        assert changed(crowd, done, kept(crowd, platter)) == []


@sample(2)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_unlisted_bytes_are_as_before_after_cuts_in_a_row(label: str, seed: int) -> None:
    crowd, luck = make_noisy(14500 + seed, label), random.Random(seed)
    operations = act(crowd, crowd.platter, "realign").operations
    noise = outside_of_islands(crowd)
    for _ in range(20):
        platter = act(crowd, crowd.platter, "realign", luck.randrange(operations)).after_the_cut(luck)
        for _ in range(luck.randint(1, 4)):
            how = luck.choice(("resume", "rollback"))
            platter = recover(crowd, platter, how, luck.randint(0, 60)).after_the_cut(luck)
            assert changed(crowd, platter, noise) == []
        done = final(recover(crowd, platter, luck.choice(("resume", "rollback"))))
        check_end(crowd, done, new=is_new(crowd, done))
        assert changed(crowd, done, kept(crowd, platter)) == []


@sample(2)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_the_zeros_of_the_new_places_are_zeros_again_after_a_rollback(label: str, seed: int) -> None:
    crowd, luck = make_noisy(14800 + seed, label), random.Random(seed)
    operations = act(crowd, crowd.platter, "realign").operations
    for _ in range(6):
        platter = act(crowd, crowd.platter, "realign", luck.randrange(operations * 4 // 5)).after_the_cut(luck)
        done = final(recover(crowd, platter, "rollback"))
        if not is_new(crowd, done) and find_journal(SimulatedDisk(platter), None) is not None:
            assert changed(crowd, done, unlisted(crowd, ("old",))) == []
