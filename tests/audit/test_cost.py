"""The cost model against the figures in the article."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.audit.report import cost_at, predict, units_touched
from aligntool.units import KIB


@pytest.mark.parametrize(
    ("unit", "rate"), [(4 * KIB, (1, 2)), (16 * KIB, (4, 5)), (32 * KIB, (8, 9)), (64 * KIB, (16, 17))]
)
def test_a_misaligned_4_kib_write_has_the_share_of_the_rate_in_the_article(unit: int, rate: tuple[int, int]) -> None:
    assert predict(unit).write_rate == float(Fraction(*rate))


def test_a_misaligned_4_kib_write_reads_8_kib_and_writes_8_kib() -> None:
    cost = predict(4 * KIB)
    assert (cost.straddling_read, cost.straddling_written) == (8 * KIB, 8 * KIB)


def test_a_4_kib_write_into_a_16_kib_unit_is_amplified_4_times_even_when_aligned() -> None:
    assert predict(16 * KIB).write_amplification == 4


def test_a_misaligned_read_touches_one_sector_more() -> None:
    aligned, shifted = (units_touched(16 * KIB, 4 * KIB, 2048 * 512), units_touched(16 * KIB, 4 * KIB, 63 * 512))
    assert shifted - aligned == 1
    assert predict(4 * KIB).extra_read == 4 * KIB


@given(request=st.integers(1, 1 << 16), factor=st.integers(1, 64))
def test_the_straddle_probability_equals_a_count_over_every_start(request: int, factor: int) -> None:
    unit = request * factor
    cost = predict(unit, request=request)
    assert cost.straddle_probability == float(Fraction(1, factor))
    rate = 1 / (1 + Fraction(1, factor))
    assert (cost.write_rate, Fraction(cost.write_share)) == (float(rate), rate)


def test_a_request_larger_than_the_unit_touches_one_unit_more_than_it_needs() -> None:
    cost = predict(4 * KIB, request=16 * KIB)
    assert (cost.straddling_read, cost.straddling_written) == (5 * 4 * KIB, 5 * 4 * KIB)
    assert predict(16 * KIB, request=16 * KIB).straddling_written == 2 * 16 * KIB


@pytest.mark.parametrize("sector", range(2048, 2080))
def test_a_start_has_a_cost_where_a_4kib_request_crosses_a_boundary_of_a_16kib_page(sector: int) -> None:
    """Counted request by request."""
    start = sector * 512
    first_and_last = [(start + at, start + at + 4095) for at in range(0, 64 * KIB, 4 * KIB)]
    crossing = sum(first // (16 * KIB) != last // (16 * KIB) for first, last in first_and_last)
    cost = cost_at(start % (16 * KIB), 16 * KIB)
    assert (cost.straddle_probability if cost else 0.0) == crossing / len(first_and_last)
