"""Student's t-test and Holm's correction, compared with printed tables and counted permutations."""

import random
from itertools import combinations
from math import log
from statistics import mean, stdev

import pytest

from aligntool.measure.unit_design import holm, loss_p_value, student_tails, welch_p_value


@pytest.mark.parametrize(
    ("freedom", "five_percent", "one_in_a_thousand"),
    [
        (1, 12.706, 636.619), (2, 4.303, 31.599), (3, 3.182, 12.924), (4, 2.776, 8.610), (5, 2.571, 6.869),
        (8, 2.306, 5.041), (9, 2.262, 4.781), (30, 2.042, 3.646),
    ],
)  # fmt: skip
def test_student_s_distribution_matches_printed_tables(
    freedom: int, five_percent: float, one_in_a_thousand: float
) -> None:
    """Two-sided critical values as NIST's e-Handbook of Statistical Methods (1.3.6.7.2) prints them."""
    assert student_tails(five_percent, freedom) == pytest.approx(0.05, rel=1e-3)
    assert student_tails(one_in_a_thousand, freedom) == pytest.approx(0.001, rel=1e-3)
    assert student_tails(0, freedom) == 1


def test_holm_s_correction_matches_an_example_computed_by_hand() -> None:
    """4 × 0.005, 3 × 0.01, then 2 × 0.03, and none is smaller than the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == (1.0, 1.0) and holm([]) == ()


def test_the_p_value_of_two_samples_is_close_to_counted_permutations() -> None:
    rng = random.Random(1)
    for factor in (1.0, 1.02, 1.05):
        one, other = ([rng.gauss(100, 4) * each for _ in range(8)] for each in (1, factor))
        apart = abs(mean(map(log, one)) - mean(map(log, other)))
        both = [log(rate) for rate in (*one, *other)]
        splits = list(combinations(range(16), 8))
        as_far = sum(
            abs(2 * sum(both[place] for place in chosen) - sum(both)) / 8 >= apart - 1e-12 for chosen in splits
        )
        assert welch_p_value(one, other) == pytest.approx(as_far / len(splits), abs=0.02)


def test_equal_runs_have_a_p_value_of_one_and_different_runs_of_zero() -> None:
    assert welch_p_value([5, 5, 5], [5, 5, 5]) == 1 and welch_p_value([5, 5, 5], [6, 6, 6]) == 0
    assert loss_p_value([1, 1]) == 1 and loss_p_value([0.5, 0.5]) == 0
    assert loss_p_value([0.0, 0.5, 0.5]) > 0.1  # a run that did nothing proves nothing


def test_a_loss_is_a_one_sided_test() -> None:
    ratios = [0.9, 0.95, 0.92, 0.97, 0.91]
    logs = [log(each) for each in ratios]
    t = abs(mean(logs)) / (stdev(logs) / 5**0.5)
    assert loss_p_value(ratios) == pytest.approx(student_tails(t, 4) / 2)
    assert loss_p_value([1 / each for each in ratios]) == pytest.approx(1 - student_tails(t, 4) / 2)
