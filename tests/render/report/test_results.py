"""Benchmark results on the page: the figures of fio's own JSON, and which figures become which chart."""

import json
from dataclasses import replace
from math import log10
from pathlib import Path
from statistics import median
from xml.etree import ElementTree

import pytest

from aligntool.measure.results import DriveState, Result
from aligntool.render.report.page import page_html, show_measurements
from aligntool.render.svg import BarChart, Chart, CurveChart, RatioChart, table_of
from aligntool.units import KIB, MIB, mb_s
from tests.measure.bench.sample_results import result, series
from tests.render.report.pages import HOSTILE, array_machine, content_of
from tests.render.report.test_page import parsed, words_of
from tests.run_aligntool import run_aligntool
from tests.thorough import sample, when_thorough


def charts_of(*results: Result) -> list[Chart]:
    made = show_measurements(results)
    return [chart for one in made for chart in one.charts]


def aligntool(folder: Path, *words: str | Path) -> None:
    run_aligntool(*words, code=0, cwd=folder, env={"XDG_STATE_HOME": str(folder / "state")})


@when_thorough("a whole benchmark")
@pytest.mark.needs_tools("fio")
@pytest.mark.on_disk
def test_the_figures_on_the_page_are_those_of_fio(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    words = ("--profile", "real-world", "--span", "8MiB", "--runtime", "0.1", "--repeats", "3")
    aligntool(tmp_path, "bench", "target", *words, "-o", "result.json", "--fio-output", "fio")
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(MIB))
    aligntool(tmp_path, "report", "disk.img", "--bench", "result.json", "-o", "report.html")
    runs: dict[str, list[dict[str, float]]] = {}
    for file in sorted((tmp_path / "fio").glob("*.json")):
        job = json.loads(file.read_text())["jobs"][0]
        for side in ("read", "write"):
            if job[side]["total_ios"]:
                block = {"1048576": "SEQ1M", "4096": "RND4K"}[job["job options"]["bs"]]
                late = {f"p{float(key):g}": at / 1000 for key, at in job[side]["clat_ns"]["percentile"].items()}
                found = late | {"rate": job[side]["bw_bytes"] / 1e6, "iops": job[side]["iops"]}
                runs.setdefault(f"{block} Q1T1 {side}", []).append(found | {"cpu": job["usr_cpu"] + job["sys_cpu"]})
    assert len(runs) == 4 and {len(each) for each in runs.values()} == {3}
    tree = parsed((tmp_path / "report.html").read_text())
    (table,) = (one for one in tree.iter("table") if one.attrib.get("class") == "figures")
    heads = [words_of(head) for head in table.iter("th") if head.attrib["scope"] == "col"]
    assert {"IOPS", "p50 µs", "p99 µs", "p99.9 µs", "CPU of a core"} <= set(heads)
    shown = {words_of(row[0]): dict(zip(heads, map(words_of, row), strict=True)) for row in table.iter("tr")}
    for title, each_run in runs.items():
        row = shown[title]
        rates = [one["rate"] for one in each_run]
        assert row["MB/s"] == mb_s(1e6 * median(rates))
        assert row["range of MB/s"] == f"{mb_s(1e6 * min(rates))}–{mb_s(1e6 * max(rates))}"
        assert row["IOPS"] == f"{median(one['iops'] for one in each_run):,.0f}"
        for name in ("p50", "p99", "p99.9"):
            told = row[f"{name} µs"].replace(",", "")
            assert float(told) == pytest.approx(median(one[name] for one in each_run), abs=0.51)
        assert row["CPU of a core"] == f"{median(one['cpu'] for one in each_run):.0f}%"


def test_three_sizes_or_thread_counts_are_drawn_as_curves() -> None:
    sizes = [
        series(block * 1e3, block * 2e3, random=False, block=block, depth=4, write=write)
        for block in (KIB, 2 * KIB, 4 * KIB)
        for write in (False, True)
    ]
    threads = [series(count * 4096e3, block=4 * KIB, depth=32, threads=count) for count in (1, 2, 4)]
    other = series(5e6, 7e6, 9e6, depth=1)
    sweep, curve, bars = charts_of(result(*sizes, *threads, other))
    assert isinstance(sweep, CurveChart) and isinstance(curve, CurveChart) and isinstance(bars, BarChart)
    assert [[point.x for point in one.points] for one in sweep.series] == [[1024, 2048, 4096]] * 2
    first = sweep.series[0].points[0]  # of 1.024 and 2.048 MB/s
    assert (first.value, first.low, first.high) == pytest.approx((1.536, 1.024, 2.048))
    assert table_of(sweep)[1][1] == "1.54 MB/s (1.02–2.05)"
    assert [(point.x, point.value) for point in curve.series[0].points] == [(1, 1000), (2, 2000), (4, 4000)]
    assert [bar.label for bar in bars.bars] == ["RND4K Q1T1 read"]
    assert bars.bars[0].text == "1,709 IOPS"  # 7,000,000 / 4096


def test_a_cpu_bound_figure_is_marked() -> None:
    (chart,) = charts_of(result(series(5e6, 5e6, 5e6, cpu=99)))
    assert isinstance(chart, BarChart)
    assert chart.bars[0].note == "CPU-bound"
    (shown,) = show_measurements((result(series(5e6, 5e6, 5e6, cpu=99)),))
    assert shown.figures[0][-1] == "note" and shown.figures[1][-1] == "CPU-bound"


def test_passes_are_drawn_individually() -> None:
    (chart,) = charts_of(result(series(1e6, 30e6, 31e6), passes=(1, 3)))
    assert isinstance(chart, CurveChart) and not chart.doubling
    assert [point.value for point in chart.series[0].points] == [1, 30, 31]


def test_two_results_of_a_profile_are_compared_as_log10_ratios() -> None:
    slow = result(series(9e6, 9e6, 10e6, 11e6, 11e6), series(90e6, 90e6, 100e6, 110e6, 110e6, random=False))
    fast = result(
        series(90e6, 90e6, 100e6, 110e6, 110e6),
        series(95e6, 95e6, 101e6, 107e6, 107e6, random=False),
        drive=DriveState("nvme0n1", "Other"),
    )
    ratios = [chart for chart in charts_of(slow, fast) if isinstance(chart, RatioChart)]
    assert [(one.first, one.second) for one in ratios] == [("1. Made Up 1", "2. Other")]
    first, second = ratios[0].bars
    assert (first.value, first.kind, first.note) == (1, "good", "faster")
    assert (first.low, first.high) == pytest.approx((log10(90 / 11), log10(110 / 9)))
    assert (second.kind, second.note) == ("unknown", "within the noise")


@sample(3)
@pytest.mark.parametrize("word", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_result_is_rendered_as_text_only(word: str) -> None:
    drive = DriveState(word, word, word, link=word, scheduler=word, kind=word)
    made = replace(result(series(1e6, 2e6, 3e6), drive=drive), target=word, when=word, skipped=(word,))
    page = page_html(content_of(array_machine(), show_measurements((made, made))))
    tree = parsed(page)
    assert not [element for element in tree.iter() if element.tag in ("img", "iframe")]
    assert len(list(tree.iter("script"))) == 1  # the page's own
    for picture in tree.iter("{http://www.w3.org/2000/svg}svg"):
        ElementTree.tostring(picture)
