"""The cost model against the figures that the article prints."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.audit.report import misaligned_write_rate, predict, read_modify_write, units_touched, write_amplification
from aligntool.units import KIB


@pytest.mark.parametrize(
    ("unit", "rate"), [(4 * KIB, (1, 2)), (16 * KIB, (4, 5)), (32 * KIB, (8, 9)), (64 * KIB, (16, 17))]
)
def test_a_misaligned_4_kib_write_keeps_the_share_of_the_rate_that_the_article_gives(
    unit: int, rate: tuple[int, int]
) -> None:
    assert misaligned_write_rate(4 * KIB, unit) == Fraction(*rate)


def test_a_misaligned_4_kib_write_reads_8_kib_and_writes_8_kib() -> None:
    assert read_modify_write(63 * 512, 4 * KIB, 4 * KIB) == (8 * KIB, 8 * KIB)
    cost = predict(4 * KIB)
    assert (cost.straddling_read, cost.straddling_written) == (8 * KIB, 8 * KIB)


def test_an_aligned_write_of_whole_sectors_reads_nothing() -> None:
    assert read_modify_write(2048 * 512, 8 * KIB, 4 * KIB) == (0, 8 * KIB)


def test_a_4_kib_write_into_a_16_kib_unit_is_amplified_4_times_even_when_aligned() -> None:
    assert write_amplification(4 * KIB, 16 * KIB) == 4
    assert read_modify_write(0, 4 * KIB, 16 * KIB) == (16 * KIB, 16 * KIB)


def test_a_misaligned_read_takes_one_sector_more() -> None:
    aligned, shifted = (units_touched(16 * KIB, 4 * KIB, 2048 * 512), units_touched(16 * KIB, 4 * KIB, 63 * 512))
    assert shifted - aligned == 1
    assert predict(4 * KIB).extra_read == 4 * KIB


@given(start=st.integers(0, 1 << 40), length=st.integers(1, 1 << 20), power=st.integers(9, 22))
def test_read_modify_write_counts_what_a_drive_would_touch(start: int, length: int, power: int) -> None:
    unit = 1 << power
    first, last = start // unit, (start + length - 1) // unit
    if last - first > 5000:
        return
    partly = sum(
        1 for index in range(first, last + 1) if not (start <= index * unit and (index + 1) * unit <= start + length)
    )
    assert read_modify_write(start, length, unit) == (partly * unit, (last - first + 1) * unit)


@given(request=st.integers(1, 1 << 16), factor=st.integers(1, 64))
def test_the_straddle_probability_is_what_counting_every_start_gives(request: int, factor: int) -> None:
    unit = request * factor
    cost = predict(unit, request=request)
    assert cost.straddle_probability == Fraction(1, factor)
    assert cost.write_rate == 1 / (1 + Fraction(1, factor))


def test_a_request_larger_than_the_unit_touches_one_unit_more_than_it_needs() -> None:
    cost = predict(4 * KIB, request=16 * KIB)
    assert (cost.straddling_read, cost.straddling_written) == (5 * 4 * KIB, 5 * 4 * KIB)
    assert predict(16 * KIB, request=16 * KIB).straddling_written == 2 * 16 * KIB
