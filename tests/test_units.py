"""Bytes, extents and the arithmetic of grids, compared with an exhaustive search."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.units import Extent, align_down, align_up, format_size, listed, mb_s, off_by, parse_size, significant

OFFSETS = st.integers(0, 10_000)
GRIDS = st.integers(1, 300)


@given(offset=OFFSETS, grid=GRIDS, phase=st.integers(0, 600))
def test_aligning_gives_the_nearest_points_of_an_exhaustive_search(offset: int, grid: int, phase: int) -> None:
    points = [point for point in range(-1000, 11_000) if (point - phase) % grid == 0]
    assert align_down(offset, grid, phase) == max(point for point in points if point <= offset)
    assert align_up(offset, grid, phase) == min(point for point in points if point >= offset)
    assert off_by(offset, grid, phase) == offset - align_down(offset, grid, phase)


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("512B", 512), ("4KiB", 4096), ("1 MiB", 1 << 20), ("2gib", 2 << 30), ("1TiB", 1 << 40)],
)
def test_sizes_are_read_in_binary_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["1M", "1MB", "1.5MiB", "-1", "", "KiB", "٤KiB", "4 096"])
def test_an_ambiguous_or_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="binary units"):
        parse_size(text)


@given(st.integers(0, 1 << 60))
def test_a_formatted_size_can_be_parsed_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(OFFSETS, GRIDS, OFFSETS, GRIDS)
def test_extents_overlap_and_contain_like_sets_of_bytes(start: int, length: int, other: int, more: int) -> None:
    one, two = Extent(start, length), Extent(other, more)
    ours, theirs = set(range(one.start, one.end)), set(range(two.start, two.end))
    assert one.overlaps(two) == bool(ours & theirs)
    assert one.contains(two) == (theirs <= ours)
    assert one.moved_to(other).length == length


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.312, "0.312"), (0.0312, "0.0312"), (3.12, "3.12"), (31.24, "31.2"), (312.4, "312"), (1520, "1,520"),
     (15200.4, "15,200"), (0, "0"), (-0.5, "-0.500"), (1e6, "1,000,000")],
)  # fmt: skip
def test_a_figure_has_three_significant_digits_and_no_exponent(value: float, text: str) -> None:
    assert significant(value) == text


def test_a_rate_has_one_decimal_from_ten_up_and_three_digits_below() -> None:
    assert [mb_s(rate * 1e6) for rate in (0.3, 5, 61.04, 3400.16, 12000.4)] == [
        "0.300", "5.00", "61.0", "3400.2", "12000",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((3,), "3"), ((1, 2), "1, 2"), ((1, 2, 3, 5, 7, 8, 9), "1–3, 5, 7–9"), ((3, 2, 1), "3, 2, 1")],
)
def test_three_or_more_numbers_that_follow_one_another_are_a_range(numbers: tuple[int, ...], text: str) -> None:
    assert listed(numbers) == text
