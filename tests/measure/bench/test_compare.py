"""Two results compared: known ratios are found, and noise is reported as noise."""

import json
import random
from collections.abc import Callable
from functools import cache

import pytest

from aligntool.measure.compare import Ratio, Verdict, compare, compare_all, unmatched
from aligntool.measure.results import Result
from aligntool.measure.unit_design import FALSE_LINE_RATE
from aligntool.recipes.goals import BenchGoal, recipe
from aligntool.render.bench import bar, compare_json, compare_lines, picture
from aligntool.render.lines import text_of
from aligntool.render.report.disks import Measured
from aligntool.render.report.page import show_measurements
from aligntool.render.svg import Bar, RatioChart
from tests.measure.bench.sample_results import result, series
from tests.thorough import sample, seeds


def only(before: tuple[float, ...], after: tuple[float, ...], *, cpu: tuple[float, float] = (10, 10)) -> Ratio:
    found = compare(result(series(*before, cpu=cpu[0])), result(series(*after, cpu=cpu[1])))
    assert len(found) == 1
    return found[0]


def around(rate: float) -> tuple[float, ...]:
    """Return five runs within two percent of each other."""
    return tuple(rate * share for share in (0.99, 0.995, 1, 1.005, 1.01))


@pytest.mark.parametrize(("factor", "log"), [(1, 0), (10, 1), (0.1, -1), (100, 2), (0.01, -2), (2, 0.30103)])
def test_the_ratio_is_log10(factor: float, log: float) -> None:
    found = only(around(100e6), around(factor * 100e6))
    assert found.log_ratio == pytest.approx(log, abs=1e-5) and found.times == pytest.approx(factor)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (around(100e6), around(103e6), Verdict.FASTER),
        (around(100e6), around(97e6), Verdict.SLOWER),
        (around(100e6), (101e6, 103e6, 104e6, 105e6, 106e6), Verdict.NOISE),  # they touch
        ((90e6, 91e6, 92e6, 93e6, 300e6), around(200e6), Verdict.NOISE),  # one inside the other
        ((50e6, 60e6, 70e6, 80e6, 100e6), (101e6, 101e6, 101e6, 102e6, 400e6), Verdict.NOISE),
        ((100e6,) * 5, (100e6,) * 5, Verdict.NOISE),
        (around(100e6)[:4], around(900e6), Verdict.SINGLE),
        ((100e6,), (900e6,), Verdict.SINGLE),
    ],
)
def test_ranges_that_overlap_are_noise(before: tuple[float, ...], after: tuple[float, ...], verdict: Verdict) -> None:
    assert only(before, after).verdict is verdict


def test_passes_over_the_same_data_do_not_count_as_repeats() -> None:
    (found,) = compare(result(series(*around(100e6)), passes=(1, 5)), result(series(*around(900e6)), passes=(1, 5)))
    assert found.verdict is Verdict.SINGLE


@cache
def goal_of(profile: str) -> BenchGoal:
    goal = recipe(profile, "bench").goal
    assert isinstance(goal, BenchGoal)
    return goal


def measured_again(profile: str, seed: int, noise: Callable[[random.Random], float], *, faster: float = 1) -> Result:
    """Return the whole profile on a drive of 100 MB/s, with one test scaled by a factor."""
    goal, rng = goal_of(profile), random.Random(seed)
    found = []
    for place, test in enumerate(goal.tests):
        rates = [1e8 * noise(rng) * (1 if place else faster) for _ in range(goal.repeats)]
        found.append(
            series(
                *rates, random=test.random, block=test.block, depth=test.depth, threads=test.threads, write=test.write
            )
        )
    return result(*found)


def gauss(rng: random.Random) -> float:
    return max(0.05, rng.gauss(1, 0.05))


def skewed(rng: random.Random) -> float:
    return rng.lognormvariate(0, 0.3)


def disturbed(rng: random.Random) -> float:
    """Return runs of which one in five is slowed down by something else."""
    return rng.gauss(1, 0.01) if rng.random() > 0.2 else rng.uniform(0.05, 0.9)


@sample(2)
@pytest.mark.parametrize("noise", [gauss, skewed, disturbed])
@pytest.mark.parametrize("profile", ["atto", "iometer", "threads", "crystaldiskmark"])
def test_a_drive_compared_with_itself_keeps_to_the_false_line_rate(
    profile: str, noise: Callable[[random.Random], float]
) -> None:
    """With three repeats and ranges alone, 98 of 100 comparisons of Atto's 42 lines had a false line."""
    false = 0
    for seed in (drawn := seeds(200)):
        one, other = (measured_again(profile, 2 * seed + side, noise) for side in (0, 1))
        assert len(one.series[0].samples) == 5
        false += any(each.verdict is not Verdict.NOISE for each in compare(one, other))
    assert false <= FALSE_LINE_RATE * len(drawn)


@sample(1)
@pytest.mark.parametrize("noise", [gauss, skewed])
def test_a_drive_compared_with_itself_many_times_keeps_to_the_false_line_rate(
    noise: Callable[[random.Random], float],
) -> None:
    """Eleven files of one drive. Corrected for each pair separately, one command in seven had a false line."""
    false = 0
    for seed in (drawn := seeds(200)):
        first, *others = (measured_again("real-world", 11 * seed + file, noise) for file in range(11))
        found = compare_all([(first, other) for other in others])
        assert [len(ratios) for ratios in found] == [4] * 10
        false += any(each.verdict is not Verdict.NOISE for ratios in found for each in ratios)
    assert false <= FALSE_LINE_RATE * len(drawn)


def test_a_difference_is_still_found_among_the_42_lines_of_a_sweep() -> None:
    found = 0
    for seed in range(100):
        ratios = compare(
            measured_again("atto", 2 * seed, gauss), measured_again("atto", 2 * seed + 1, gauss, faster=1.5)
        )
        found += ratios[0].verdict is Verdict.FASTER
    assert found > 95


def test_the_significance_of_a_line_decreases_with_the_number_of_lines() -> None:
    """With a chance of 0.004 the same line is a difference alone, and not among 20."""
    quiet = [series(*around(1e8), depth=depth) for depth in range(2, 21)]
    one, other = (
        series(*(1e8 * x for x in (1, 1.02, 1.04, 1.06, 1.08))),
        series(*(1.12e8 * x for x in (1, 1.02, 1.04, 1.06, 1.08))),
    )
    (alone,) = compare(result(one), result(other))
    among = compare(result(one, *quiet), result(other, *quiet))[0]
    assert alone.verdict is Verdict.FASTER
    assert alone.chance and among.chance == pytest.approx(20 * alone.chance)
    assert (
        Verdict.NOISE
        is compare(
            result(one, *quiet, *(series(*around(1e8), depth=d, write=True) for d in range(1, 200))),
            result(other, *quiet, *(series(*around(1e8), depth=d, write=True) for d in range(1, 200))),
        )[0].verdict
    )


def test_the_correction_covers_every_pair_of_a_command_and_of_a_page() -> None:
    """By hand: forty times the chance of one pair, which turns a difference into noise."""
    one = result(series(*(1e8 * x for x in (1, 1.02, 1.04, 1.06, 1.08))))
    other = result(series(*(1.09e8 * x for x in (1, 1.02, 1.04, 1.06, 1.08))))
    (alone,) = compare(one, other)
    assert alone.verdict is Verdict.FASTER and alone.chance
    files = [one, other, *[one] * 39]
    (among,), *_ = compare_all([(one, each) for each in files[1:]])
    assert among.verdict is Verdict.NOISE and among.chance == pytest.approx(40 * alone.chance)
    names = [f"{place}.json" for place in range(41)]
    first, *_ = json.loads(compare_json(files, names))["others"]
    assert (first["tests"][0]["chance"], first["tests"][0]["verdict"]) == (among.chance, among.verdict.value)
    told = " ".join(" ".join(text_of(compare_lines(files, names, width=90))).split())
    assert "among 40 lines" in told and "1.09 faster" not in told and "1.09 noise" in told
    beside = show_measurements(files)[41:]
    assert all(any("for 40 lines" in note for note in shown.notes) for shown in beside)
    assert [bar.note for bar in bars_of(beside[0])] == [among.verdict.value]


def bars_of(shown: Measured) -> tuple[Bar, ...]:
    (chart,) = shown.charts
    assert isinstance(chart, RatioChart)
    return chart.bars


def test_a_cpu_bound_result_is_not_reported_as_slower() -> None:
    fast, slow = around(900e6), around(100e6)
    assert only(fast, slow, cpu=(10, 99)).verdict is Verdict.CPU
    assert only(slow, fast, cpu=(99, 10)).verdict is Verdict.CPU
    assert only(slow, fast, cpu=(10, 99)).verdict is Verdict.FASTER  # at least this fast


def test_bars_begin_in_the_middle_and_have_the_length_of_the_ratio() -> None:
    assert bar(0, 1) == " " * 16 + "│" + " " * 16
    assert bar(-1, 1) == "█" * 16 + "│" + " " * 16
    assert bar(1, 2) == " " * 16 + "│" + "█" * 8 + " " * 8
    for log in (-2.0, -0.3, 0.0, 0.7, 2.0):
        assert len(bar(log, 2)) == 33


def test_the_chart_has_a_line_for_each_test_in_both_results() -> None:
    before = result(series(*around(100e6)), series(*around(50e6), write=True), series(1e6, depth=32))
    after = result(series(*around(10e6)), series(*around(50e6), write=True))
    lines = list(text_of(picture(compare(before, after))))
    assert lines[0].split() == ["-1", "0", "1", "log10", "times"]
    assert lines[1].split() == ["RND4K", "Q1T1", "read", "█" * 16 + "│", "-1.00", "0.100", "slower"]
    assert lines[2].split()[-2:] == ["1.00", "noise"] and len(lines) == 3
    told = "".join(text_of(compare_lines([before, after], ["a.json", "b.json"], width=80)))
    assert "in one result only: RND4K Q32T1 read" in told and "b.json compared with a.json" in told


def test_missing_common_tests_are_reported_and_zero_rates_omitted() -> None:
    assert "no test in common" in "".join(text_of(picture(compare(result(series(1e6)), result(series(1e6, depth=2))))))
    assert compare(result(series(0, 0, 0)), result(series(1e6, 1e6, 1e6))) == ()


def test_different_settings_are_reported() -> None:
    said = unmatched([result(series(1e6)), result(series(1e6), span=1 << 30, passes=(1, 5))])
    assert any("differ in size" in each for each in said) and any("passes" in each for each in said)
    assert unmatched([result(series(1e6)), result(series(2e6))]) == ()


def test_control_characters_in_file_names_are_escaped() -> None:
    text = "".join(
        text_of(compare_lines([result(series(1e6)), result(series(1e6))], ["\x1b[2Ja", "b\u202e"], width=80))
    )
    assert "\x1b" not in text and "\u202e" not in text
    assert "\\x1b" in compare_json([result(), result()], ["\x1b[2Ja", "b"]).replace("\\\\", "\\")
