"""The inference on simulated drives whose answer is known. A false answer is the worst outcome: there is none."""

import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

from aligntool.audit.report import CONFIDENT
from aligntool.measure.unit import infer
from aligntool.measure.unit_design import ROUNDS, Kind, Pair, RandomSource, design, levels, regions
from aligntool.units import GIB, KIB, MIB, Extent
from tests.measure.unit.drives import LOUD, QUIET, USUAL, Drive, population
from tests.measure.unit.study import Outcome, judge, probe_simulated
from tests.thorough import THOROUGH, sample

SIZES = [4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB]


@sample(3)
@pytest.mark.parametrize("noise", [QUIET, USUAL])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_of_a_drive_that_is_only_read_is_found(size: int, noise: object) -> None:
    drive = Drive(seed=size, page=size, noise=noise)  # type: ignore[arg-type]
    assert probe_simulated(drive, 4, 20).unit == size


@sample(2)
@pytest.mark.parametrize("size", SIZES)
def test_a_unit_that_only_writes_reveal_is_found_by_both_kinds_of_writes(size: int) -> None:
    found = probe_simulated(Drive(seed=size, unit=size, writes=True, noise=USUAL), 4, 20)
    assert [boundary.size for boundary in found.boundaries] == [size]
    assert {one.kind for one in found.boundaries[0].evidence} == {Kind.WRITE, Kind.PART}


def test_an_sd_card_shows_its_page_and_its_allocation_unit() -> None:
    card = Drive(page=16 * KIB, allocation=4 * MIB, base_us=600, page_us=200, allocation_us=900, noise=USUAL)
    assert [boundary.size for boundary in probe_simulated(card).boundaries] == [16 * KIB, 4 * MIB]


def test_the_reported_penalty_is_that_of_the_drive() -> None:
    steady = replace(QUIET, drift=0.0)
    found = probe_simulated(Drive(page=16 * KIB, page_us=40, noise=steady))
    (evidence,) = found.boundaries[0].evidence
    assert evidence.interval_us[0] < evidence.penalty_us < evidence.interval_us[1]
    assert 39 < evidence.penalty_us < 41
    assert evidence.confidence >= CONFIDENT


@sample(6)
@pytest.mark.parametrize("noise", [QUIET, USUAL, LOUD])
@pytest.mark.parametrize(
    "drive",
    [
        pytest.param(Drive(), id="nothing to see"),
        pytest.param(Drive(base_us=4000, rotation_us=8300), id="a disk that turns, only read"),
        pytest.param(Drive(page=24 * KIB, unit=24 * KIB, writes=True), id="units of 24 KiB"),
        pytest.param(Drive(page=4096, unit=4096, phase=3584, writes=True), id="shifted by 3584 bytes"),
        pytest.param(Drive(unit=16 * KIB, writes=True, flushes=False), id="a cache takes every write"),
        pytest.param(Drive(page=16 * KIB, second_region=Drive()), id="a page in one half only"),
        pytest.param(Drive(page=16 * KIB, second_region=Drive(page=32 * KIB)), id="another page in each half"),
    ],
)
def test_a_drive_without_a_single_pattern_is_reported_as_unknown_with_a_reason(drive: Drive, noise: object) -> None:
    found = probe_simulated(replace(drive, seed=7, noise=noise), 4, 20)  # type: ignore[arg-type]
    assert found.unit is None
    assert found.why_unknown


def test_an_effect_that_is_smaller_than_the_noise_is_not_reported() -> None:
    assert probe_simulated(Drive(page=16 * KIB, page_us=1, noise=LOUD), resamples=20).unit is None


def _of_a_short_experiment(drive: Drive) -> Outcome:
    return judge(drive, probe_simulated(drive, 2, 20))


def test_simulated_drives_give_no_false_answer() -> None:
    """Every kind and noise of the study, 200 drives or an eighth of them; short experiments, which are harder.
    docs/probing.md has the long ones.
    """
    drives = [drive for _, drive in population(1)]
    again = [replace(drive, seed=drive.seed + 10_000) for drive in drives[::6]]
    with ProcessPoolExecutor() as pool:
        outcomes = Counter(pool.map(_of_a_short_experiment, (drives + again)[:: 1 if THOROUGH else 8], chunksize=8))
    assert outcomes.total() >= (200 if THOROUGH else 25)
    assert outcomes[Outcome.FALSE] == 0
    assert outcomes[Outcome.HIT] > outcomes.total() / 3


def test_the_same_seed_makes_the_same_experiment_and_the_same_answer() -> None:
    first, second = (probe_simulated(Drive(page=16 * KIB, noise=USUAL), 2) for _ in "ab")
    assert first == second


def test_with_too_few_rounds_the_unit_is_unknown() -> None:
    found = probe_simulated(Drive(page=16 * KIB), rounds=1)
    assert found.unit is None
    assert "too few samples" in found.why_unknown[0]


def test_without_samples_the_unit_is_unknown() -> None:
    assert infer((), random.Random(1)).unit is None


# The design


def _pairs(kinds: tuple[Kind, ...], size: int = GIB, sector: int = 512) -> list[Pair]:
    return [pair for one in design(regions(Extent(0, size)), sector, kinds, random.Random(3), rounds=2) for pair in one]


@pytest.mark.parametrize("sector", [512, 4096])
def test_a_pair_differs_only_in_the_boundary(sector: int) -> None:
    pairs = _pairs((Kind.READ, Kind.WRITE), sector=sector)
    assert pairs
    for pair in pairs:
        assert pair.slower.length == pair.faster.length == 2 * sector
        for size in (2 * sector << power for power in range(12)):
            crossed = [extent.start // size != (extent.end - 1) // size for extent in (pair.slower, pair.faster)]
            assert crossed == [pair.level > sector and size <= pair.level, False]


def test_a_partial_write_is_inside_one_unit_of_every_size_from_its_level_up() -> None:
    for pair in (one for one in _pairs((Kind.PART,)) if one.kind is Kind.PART):
        assert pair.slower.length * 2 == pair.faster.length == pair.level
        for extent in (pair.slower, pair.faster):
            assert all(extent.start // size == (extent.end - 1) // size for size in (pair.level, 2 * pair.level))


@pytest.mark.parametrize("size", [40 * MIB, GIB, 10_000_000_000])
def test_every_request_is_inside_its_region_and_in_whole_sectors(size: int) -> None:
    parts = regions(Extent(0, size))
    assert not parts[0].overlaps(parts[1])
    for pair in _pairs(tuple(Kind), size=size):
        for extent in (pair.slower, pair.faster):
            assert parts[pair.quarter % 2].contains(extent)
            assert extent.start % 512 == extent.length % 512 == 0


def test_the_second_half_of_a_round_is_the_first_half_reversed() -> None:
    (one,) = design(regions(Extent(0, GIB)), 512, (Kind.READ,), random.Random(5), rounds=1)
    half = len(one) // 2
    forward, back = one[:half], one[half:][::-1]
    for there, again in zip(forward, back, strict=True):
        # The second bit of the quarter is the order of the two requests.
        assert (there.kind, there.level, there.quarter ^ 2) == (again.kind, again.level, again.quarter)
        assert there.slower_first is not again.slower_first
        assert there.slower != again.slower or there.level >= MIB


def test_every_cell_has_the_same_number_of_pairs_in_every_stratum() -> None:
    """Region, order and side; a write shifted by half has no side."""
    counts = Counter((pair.kind, pair.level, pair.quarter) for pair in _pairs(tuple(Kind)))
    assert len(set(counts.values())) == 1
    for kind in Kind:
        strata = {stratum for of, _, stratum in counts if of is kind}
        assert strata == set(range(4 if kind is Kind.SHIFT else 8))


def test_the_stratum_encodes_the_order_and_the_side() -> None:
    for pair in _pairs((Kind.READ,)):
        assert bool(pair.quarter & 2) is pair.slower_first
        if pair.level > 1024:  # of which a request next to it has another boundary at its other end
            assert (pair.faster.end % pair.level == 0) is bool(pair.quarter & 4)
            assert (pair.faster.start % pair.level == 0) is not bool(pair.quarter & 4)


def test_small_disks_are_tested_for_small_boundaries_only() -> None:
    assert max(levels(512, regions(Extent(0, 16 * MIB)))) < max(levels(512, regions(Extent(0, GIB)))) == 8 * MIB


def test_the_random_generator_of_python_is_a_random_source() -> None:
    rng: RandomSource = random.Random(ROUNDS)
    assert rng.choices([1.0], k=2) == [1.0, 1.0]
