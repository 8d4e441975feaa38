"""Misleading drives: what is reported about them is true, or nothing is reported."""

import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest

from aligntool.audit.report import CONFIDENT
from aligntool.measure.unit import MOST_CONFIDENT, infer
from aligntool.measure.unit_design import Kind, Sample, design, regions
from aligntool.units import GIB, KIB, Extent
from tests.measure.unit import blind
from tests.measure.unit.held_out import (
    HashedDies,
    OddLengthsSlow,
    SecondIsFaster,
    SlowPlane,
    SomeBoundariesCost,
    UnitAmongDecoys,
)
from tests.measure.unit.hostile import (
    Hostile,
    MixedPages,
    NaturallyAlignedFast,
    OddStartsSlow,
    Paged,
    SlowDie,
    SmallWritesSlow,
    SmallWritesSlowOverAPage,
    SmallWritesSlowOverAUnit,
    TwoThresholds,
    UnlikeDies,
)
from tests.measure.unit.study import KINDS, Outcome, Probed, judge, kinds_of, probe_kind, probe_simulated
from tests.thorough import sample, when_thorough

SEEDS = range(4)


@pytest.mark.parametrize("seed", range(8))
def test_a_drive_with_slow_small_writes_has_no_unit_and_the_reason_is_given(seed: int) -> None:
    found = probe_simulated(SmallWritesSlow(seed), 3, 20)
    assert found.unit is None and not found.doubtful
    (why,) = [one for one in found.why_unknown if one.startswith(Kind.PART)]
    assert "threshold of size" in why or "only the largest size" in why


@pytest.mark.parametrize("kind", blind.KINDS.values())
def test_a_hostile_drive_designed_without_knowledge_of_the_rules_has_no_unit(kind: type[Hostile]) -> None:
    assert judge(kind(1), probe_simulated(kind(1), 3, 20)) is Outcome.RIGHTLY_UNKNOWN


@sample(8)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "kind",
    [
        TwoThresholds, NaturallyAlignedFast, OddLengthsSlow, SlowDie, UnlikeDies, SlowPlane, HashedDies, MixedPages,
        SomeBoundariesCost, OddStartsSlow,
    ],
)  # fmt: skip
def test_effects_of_request_size_or_position_are_not_a_unit(kind: type[Hostile], seed: int) -> None:
    assert judge(kind(seed), probe_simulated(kind(seed), 3, 20)) in (Outcome.RIGHTLY_UNKNOWN, Outcome.MISS)


@sample(4)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "kind", [Paged, SmallWritesSlowOverAPage, SmallWritesSlowOverAUnit, UnitAmongDecoys, SecondIsFaster]
)
def test_the_unit_is_found_despite_a_threshold_or_a_slower_first_request(kind: type[Hostile], seed: int) -> None:
    assert judge(kind(seed), probe_simulated(kind(seed), 4, 20)) is Outcome.HIT


def test_partial_writes_are_not_evidence_without_their_control() -> None:
    drive = Hostile(1)
    rng = random.Random(1)
    pairs = [pair for one in design(regions(Extent(0, drive.size)), 512, (Kind.PART,), rng, rounds=4) for pair in one]
    assert {pair.kind for pair in pairs} == {Kind.PART, Kind.SHIFT}
    samples = [
        Sample(pair.kind, pair.level, pair.quarter, 900.0 if pair.level == 16 * KIB else 100.0, 100.0) for pair in pairs
    ]
    assert infer(samples, rng, resamples=20).unit == 16 * KIB
    assert infer([one for one in samples if one.kind is Kind.PART], rng, resamples=20).unit is None


def test_a_shifted_write_covers_whole_units_of_smaller_sizes_only() -> None:
    rounds = design(regions(Extent(0, GIB)), 512, (Kind.PART,), random.Random(2), rounds=1)
    pairs = [pair for one in rounds for pair in one if pair.kind is Kind.SHIFT]
    assert pairs
    for pair in pairs:
        assert pair.slower.length == pair.faster.length == pair.level
        assert pair.faster.start % pair.level == 0
        assert pair.slower.start % pair.level == pair.level // 2
        # Inside one unit of every larger size, like the other one: there they do not differ.
        assert pair.slower.start // (2 * pair.level) == (pair.slower.end - 1) // (2 * pair.level)


def test_the_stated_confidence_does_not_exceed_that_of_the_simulation_study() -> None:
    found = probe_simulated(Paged(1), 4, 40)
    assert found.boundaries
    assert all(CONFIDENT <= one.confidence <= MOST_CONFIDENT < 1 for one in found.boundaries)


def test_the_same_seed_makes_the_same_hostile_drive() -> None:
    one, other = (probe_simulated(UnitAmongDecoys(5), 2, 10) for _ in "ab")
    assert one == other


def _probed(each: int, rounds: int, resamples: int, *sets: str) -> list[Probed]:
    tasks = [task for which in sets for task in kinds_of(which, each, rounds, resamples)]
    with ProcessPoolExecutor() as pool:
        return list(pool.map(probe_kind, tasks, chunksize=4))


@when_thorough("experiments with a drive of every kind")
def test_one_drive_of_every_hostile_kind_gives_no_false_answer() -> None:
    """Short experiments. docs/probing.md has the long ones."""
    found = _probed(1, 3, 20, *KINDS)
    assert len(found) == len({one.family for one in found}) >= 90
    assert [one for one in found if one.outcome is Outcome.FALSE] == []
    assert sum(one.outcome is Outcome.HIT for one in found) >= 20


@when_thorough("takes minutes")
def test_five_hundred_held_out_drives_give_no_false_answer() -> None:
    found = _probed(12, 8, 100, "held-out")
    outcomes = Counter(one.outcome for one in found)
    assert len(found) >= 500 and len({one.family for one in found}) >= 25
    assert outcomes[Outcome.FALSE] == 0
    assert outcomes[Outcome.HIT] >= 100
