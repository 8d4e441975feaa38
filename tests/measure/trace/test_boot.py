"""The estimate of a boot, compared with the numbers of the article."""

from fractions import Fraction

import pytest

from aligntool.measure.trace import ARTICLE, BootCounts, Drive, parse_drive


@pytest.mark.parametrize(("rate", "micro"), [(100, 40), (300, 13)])
def test_the_time_for_a_command_is_that_of_the_article(rate: int, micro: int) -> None:
    drive = parse_drive(str(rate))
    assert int(drive.read_s * 10**6) == int(drive.write_s * 10**6) == micro


def _drive(read_micro: int, write_micro: int) -> Drive:
    """Return a drive by its time for a 4 KiB command."""
    return Drive(Fraction(4096, read_micro), Fraction(4096, write_micro))


def test_the_difference_in_the_article_is_2_2_seconds() -> None:
    slow, fast = _drive(43, 250), _drive(13, 50)  # 30 µs and 200 µs apart
    round_numbers = BootCounts(40_000, 5_000)
    assert slow.boot_s(round_numbers) - fast.boot_s(round_numbers) == Fraction("2.2")
    assert round(float(slow.boot_s(ARTICLE) - fast.boot_s(ARTICLE)), 1) == 2.2


def test_the_time_for_a_boot_is_the_sum_of_its_commands() -> None:
    assert _drive(100, 1000).boot_s(BootCounts(3, 2)) == Fraction("0.0023")


def test_rates_are_read_exactly() -> None:
    assert parse_drive("41.5,120") == Drive(Fraction("41.5"), Fraction(120))
    assert parse_drive(".5") == Drive(Fraction(1, 2), Fraction(1, 2))


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1,2,3", "1,", ",1", "fast", "1e9", "nan", "1.2.3", ".", "١", "1" * 30, "1,0"]
)
def test_an_invalid_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="MB/s of reads"):
        parse_drive(text)
