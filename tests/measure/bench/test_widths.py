"""What a benchmark prints fits the width of the terminal."""

from dataclasses import replace
from itertools import product

import pytest

from aligntool.measure.alignment import Load, Rate, places_of
from aligntool.measure.compare import compare
from aligntool.measure.fio import Pattern
from aligntool.measure.results import Conditions, DriveState, HistoryEntry, Result, Sample, Series
from aligntool.measure.sweeps import Spans, Starts
from aligntool.recipes.goals import BenchTest
from aligntool.render.bench import (
    LEAST_BAR,
    MOST_BAR,
    bench_plan_lines,
    figure_lines,
    list_lines,
    picture,
    result_lines,
)
from aligntool.render.experiments import alignment_lines, span_lines
from aligntool.render.lines import Style, text_of
from aligntool.units import GIB, KIB, MIB, Extent
from tests.measure.bench.sample_results import result, series
from tests.measure.bench.test_profiles import plan_of


def wide(scale: float, *, threads: int = 16, cpu: float = 99, busy: float = 63.9, random: bool = True) -> Series:
    """Return figures with many digits, on a machine of 64 cores."""
    test = BenchTest(random, 512 * KIB if random else MIB, 128, threads, True)
    late = 99999.9 * scale / 1e9
    runs = tuple(
        Sample(number, round(scale * rate), scale * rate / 4096, MIB, 1.0, 1234567.8, cpu, late, late, late, busy)
        for number, rate in enumerate((0.9, 1.1, 1.05, 1.0, 1.02), 1)
    )
    return Series(test, runs)


def made(scale: float) -> Result:
    drive = DriveState(
        "nvme0n1", "SAMSUNG MZVL21T0HCLR-00BL7 with a long name", "GXA7401Q", 1000 * GIB, "nvme", False, "16 GT/s x4",
        scheduler="mq-deadline", queue_depth=1023, temperature_c=45, temperature_after_c=71,
    )  # fmt: skip
    seen = Conditions(
        "6.1.0-18-amd64-with-a-long-name", "fio-3.33", cores=64, governor="powersave", filesystem="xfs",
        free=900 * GIB, drives=(drive,),
    )  # fmt: skip
    return replace(result(wide(scale), wide(scale, threads=1, random=False)), conditions=seen)


@pytest.mark.parametrize(("scale", "width"), list(product((1e5, 61e6, 3.4e9, 14e9, 250e9), (72, 80, 100, 120))))
def test_no_line_of_a_result_is_wider_than_the_terminal(scale: float, width: int) -> None:
    lines = list(text_of(result_lines(made(scale), width=width)))
    assert [line for line in lines if len(line.rstrip("\n")) > width] == []
    table = "".join(text_of(figure_lines(made(scale).series, width=width)))
    for words in ("MB/s", "range", "IOPS", "p50 µs", "p99 µs", "p99.9 µs", "CPU", "busy"):
        assert words in table
    assert table.count("CPU-bound") == 2


def test_the_length_of_a_rate_bar_is_proportional_to_the_logarithm() -> None:
    """From 0.1 MB/s to 20 GB/s: half of the bar is the geometric mean. The colour distinguishes reads and writes."""
    half = (LEAST_BAR * MOST_BAR) ** 0.5
    found = [series(rate, rate, depth=depth) for depth, rate in ((1, LEAST_BAR / 2), (2, half), (4, MOST_BAR * 2))]
    mixed = Series(replace(found[1].test, write=True, reads=70), found[1].samples)
    lines = list(figure_lines([*found, series(half, half, write=True), mixed], width=120))[1:]
    bars = [
        next((len(text), style) for text, style in line if style in (Style.READ, Style.WRITE, Style.MIXED))
        for line in lines
    ]
    assert [style for _, style in bars] == [Style.READ, Style.READ, Style.READ, Style.WRITE, Style.MIXED]
    none, middle, whole, *others = (cells for cells, _ in bars)
    assert none == 0 and whole > 10 and abs(middle - whole / 2) <= 0.5 and others == [middle, middle]
    columns = {sum(len(text) for text, _ in line[:1]) for line in lines}
    assert len(columns) == 1, "all begin in one column"
    texts = list(text_of(lines))
    assert max(map(len, texts)) <= 121 and "\x1b" not in "".join(texts)


def test_a_table_with_mixed_tests_fits_80_columns() -> None:
    found = [series(9e8, 9.1e8, 9.2e8, depth=depth, write=True) for depth in (1, 32)]
    found += [Series(replace(each.test, reads=70), each.samples) for each in found]
    texts = list(text_of(figure_lines(found, width=80)))
    assert max(map(len, texts)) <= 81 and any("RND4K Q32T1 mix70" in text for text in texts)


@pytest.mark.parametrize("profile", ["crystaldiskmark", "steady", "atto"])
def test_no_line_of_a_plan_is_wider_than_the_terminal(profile: str) -> None:
    lines = text_of(bench_plan_lines(plan_of(profile), made(1e9).conditions, width=80))
    assert [line for line in lines if len(line.rstrip("\n")) > 80] == []


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_chart_of_two_results_fits_the_terminal(width: int) -> None:
    for before, after in ((made(1e5), made(250e9)), (made(1e9), made(1e9))):
        lines = text_of(picture(compare(before, after), width=width))
        assert [line for line in lines if len(line.rstrip("\n")) > width] == []


def test_the_curve_of_a_span_fits_the_terminal() -> None:
    from aligntool.measure.alignment import Knee

    curve = {MIB << at: [1234567.0] * 5 for at in range(8)}
    cpu = {span: [99.0] * 5 for span in curve}
    knee = Knee(None, None, 1.0, 0.0, "can't tell")
    found = Spans(
        "2026-01-02T03:04:05Z", "/dev/nvme0n1", False, knee, curve, None, cpu, conditions=made(1e9).conditions
    )
    lines = text_of(span_lines(found, width=80))
    assert [line for line in lines if len(line.rstrip("\n")) > 80] == []


@pytest.mark.parametrize("cpu", [10.0, 99.0])
def test_the_alignment_rows_and_the_list_fit_the_terminal(cpu: float) -> None:
    rates = tuple(
        Rate(Load(Pattern.RANDOM_WRITE, 4096, 1024), place, repeat, 1234567.0 / (1 + place.residue % 2), cpu)
        for place in places_of(Extent(0, 1 << 30), 16384, 512)
        for repeat in range(5)
    )
    found = Starts(
        "2026-01-02T03:04:05Z", "/srv/a/folder/of/some/length/on/a/drive", 16384, "flash page, assumed", rates,
        conditions=made(1e9).conditions, complete=False,
    )  # fmt: skip
    facts = (found.when, "alignment", found.target, found.summary, "A Drive With A Name 1 TB", False)
    kept = [
        HistoryEntry("a.json", None, *facts),
        HistoryEntry("b.json", None, *facts[:3], None, *facts[4:], "seq r 1.00 GB/s"),
    ]
    lines = [*text_of(alignment_lines(found, found.rows, width=80)), *text_of(list_lines(kept, width=80))]
    assert len(lines) > 20
    assert [line for line in lines if len(line.rstrip("\n")) > 80] == []
