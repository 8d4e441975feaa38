"""Experiments on the page: predictions with measurements, the knee, and files that are not results."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from aligntool.errors import Refused
from aligntool.measure.alignment import Row
from aligntool.measure.sweeps import Spans, Starts, experiment_from_json
from aligntool.render.experiments import alignment_lines, span_lines
from aligntool.render.lines import text_of
from aligntool.render.report.disks import Measured
from aligntool.render.report.page import page_html, show_experiment
from aligntool.render.svg import BarChart, CurveChart, picture_of, svg_text, table_of
from aligntool.units import GIB
from tests.render.report.pages import HOSTILE, array_machine, content_of
from tests.render.report.test_page import parsed, words_of
from tests.thorough import sample

Document = dict[str, object]
ALIGNED = (1000, 990, 1010, 1005, 995, 1000)
HALF = (520, 500, 550, 515, 505, 525)  # of the first of these: 0.52 in the middle


def alignment(word: str = "/srv") -> Document:
    """Return the article's case: half of the random writes remain at sector 63. The stored verdicts are wrong."""
    load = {"pattern": "randwrite", "block": 4096, "depth": 1}
    aligned = {"title": "aligned", "start": 1 << 20, "residue": 0, "control": False}
    rates = [
        {"load": load, "place": place, "repeat": repeat, "iops": rate}
        for place, iops in (
            (aligned, ALIGNED),
            (aligned | {"title": "as well", "start": 2 << 20, "control": True}, ALIGNED),
            (aligned | {"title": word or "old", "start": (1 << 20) + 32256, "residue": 3584}, HALF),
        )
        for repeat, rate in enumerate(iops)
    ]
    row = {
        "load": load, "place": rates[-1]["place"], "predicted": 1, "ratio": 1, "low": 1, "high": 1,
        "noise": [0.98, 1.01], "word": "does not matter here", "why": word,
    }  # fmt: skip
    return {
        "schema": "aligntool.bench.alignment", "version": 1, "target": word, "unit": 4096, "unit_by": word,
        "verdict": "does not matter here", "rows": [row], "rates": rates,
    }  # fmt: skip


def span(word: str = "/srv") -> Document:
    """BG4 of the article of 2019: the map ends at about 1 GiB."""
    rates = {1: 100_000, 2: 40_000, 4: 39_000}
    curve = [{"span": size * GIB, "iops": [rate - 100, rate, rate + 200]} for size, rate in rates.items()]
    knee = {"below": GIB, "above": 2 * GIB, "share": 0.4, "confidence": 0.97, "why": ""}
    memory = {"preferred": 64 << 20, "minimum": 16 << 20, "granted": 0, "enabled": False}
    return {
        "schema": "aligntool.bench.span", "version": 1, "target": word, "model": word, "write": False,
        "knee": knee, "host_memory_buffer": memory, "curve": curve,
    }  # fmt: skip


def found_rows(found: Starts) -> tuple[Row, ...]:
    return found.rows


def read(document: Document) -> Starts | Spans:
    found = experiment_from_json(json.dumps(document), "x.json")
    assert found is not None
    return found


def drawn(document: Document) -> Measured:
    return show_experiment(read(document), 1)


def test_the_prediction_is_shown_next_to_the_measurement() -> None:
    found = drawn(alignment())
    (chart,) = found.charts
    assert isinstance(chart, BarChart)
    load, measured = chart.bars
    assert (load.kind, load.label, load.text) == ("head", "random write, 4KiB QD1", "two aligned starts: 1.00–1.00")
    assert (measured.label, measured.tick) == ("/srv", 0.5)
    # By hand: 520/1000, 500/990, 550/1010, 515/1005, 505/995, 525/1000
    assert (measured.value, measured.low, measured.high) == pytest.approx((0.5163, 0.5050, 0.5446), abs=1e-4)
    assert ("/srv", "0.52 (predicted 0.50)", "0.51–0.54", "matters here") in table_of(chart)
    assert measured.kind == "bad" and chart.name == "bench-1-alignment"
    assert found.summary == "alignment matters here: random write, 4KiB QD1, unit of 4KiB (/srv)"


def test_a_prediction_is_a_tick_on_a_scale_from_0_to_1() -> None:
    (chart,) = drawn(alignment()).charts
    tree = ElementTree.fromstring(svg_text(picture_of(chart), alone=False))
    (bar,) = (one for one in tree.iter() if one.attrib.get("class") == "bad")
    (tick,) = (one for one in tree.iter() if one.attrib.get("class") == "tick")
    whole = float(bar.attrib["width"]) / 0.5163
    assert whole == pytest.approx(416, rel=0.001)  # of 420 pixels, 2 on each side
    assert float(tick.attrib["x1"]) - float(bar.attrib["x"]) == pytest.approx(whole / 2, rel=0.001)
    assert {"0", "0.25", "0.5", "0.75", "1"} <= {one.text for one in tree.iter()}


def test_the_page_has_the_verdict_of_bench_show_instead_of_the_stored_one() -> None:
    found = read(alignment())
    assert isinstance(found, Starts)
    page = words_of(parsed(page_html(content_of(array_machine(), (show_experiment(found, 1),)))))
    (row,) = found_rows(found)
    told = " ".join(text_of(alignment_lines(found, (row,), width=80)))
    assert "matters here" in told and "does not matter here" not in told
    assert "matters here" in page and "does not matter here" not in page
    assert row.why in page


def of_a_disk(misplaced: int, **other: object) -> str:
    """Return the page of a disk with one partition there, and of a measurement of it; `other`: fields of the file."""
    disk = array_machine().disks[1]
    part = replace(disk.partitions[0], extent=replace(disk.partitions[0].extent, start=misplaced))
    machine = replace(array_machine(), disks=(replace(disk, partitions=(part,)),))
    told = {"name": disk.name, "path": disk.path, "size": disk.size, "wwn": disk.wwn, "serial": disk.serial}
    found = drawn(alignment() | {"disk": told | other})
    return words_of(parsed(page_html(content_of(machine, (found,)))))


MEASURED = "nvme1n1 partition 1: 0.52 (0.51–0.54), matters here (/srv), on /srv"


def test_a_finding_shows_the_measurement_on_that_disk_from_such_a_start() -> None:
    assert MEASURED in of_a_disk(32256)
    assert MEASURED in of_a_disk(32256 + (1 << 20))
    assert MEASURED not in of_a_disk(32256 + 512)  # off by an amount that was not measured


@pytest.mark.parametrize(
    "other", [{"wwn": "eui.1"}, {"wwn": None, "serial": "S1"}, {"wwn": None, "serial": None}, {"size": 1 << 30}]
)
def test_a_measurement_on_another_disk_is_shown_only_under_benchmarks(other: dict[str, object]) -> None:
    page = of_a_disk(32256, **other)
    assert "AT101" in page and "1. bench alignment on /srv" in page
    assert MEASURED not in page and "Measured, as a share" not in page


def test_cpu_use_and_conditions_are_shown_next_to_the_figures() -> None:
    document = alignment()
    rates = document["rates"]
    assert isinstance(rates, list)
    for rate in rates:
        rate["cpu"] = 99 if rate["place"]["residue"] else 12
    conditions = {"drives": [{"name": "sda", "model": "Made Up 1", "kind": "loop"}], "kernel": "6.1", "fio": "fio-3.33"}
    found = drawn(document | {"conditions": conditions})
    heads, load, *rows = found.figures
    assert load == ("random write, 4KiB QD1",)
    shown = {row[0]: dict(zip(heads, row, strict=True)) for row in rows}
    aligned = shown["aligned"]
    assert (aligned["IOPS"], aligned["range of IOPS"], aligned["CPU of a core"]) == ("1,000", "990–1,010", "12%")
    old = shown["/srv"]
    assert (old["IOPS"], old["CPU of a core"], old["measured"]) == ("518", "99%", "0.52")
    assert old["note"].endswith("CPU-bound")
    assert ("kernel", "6.1") in found.conditions and ("sda", "Made Up 1") in found.conditions
    assert any("loop device" in note for note in found.notes)
    assert found.about[0] == "bench alignment on /srv, Made Up 1"


def test_the_knee_is_marked_and_reported_with_its_confidence() -> None:
    found = drawn(span())
    (chart,) = found.charts
    assert isinstance(chart, CurveChart) and chart.mark
    assert (chart.mark.x, chart.mark.text) == (GIB, "knee: 1GiB–2GiB")
    assert [point.value for point in chart.series[0].points] == [100_000, 40_000, 39_000]
    assert found.summary == "knee between 1GiB and 2GiB; drops to 40% of the rate before; confidence 97%"
    (note,) = found.notes
    assert "64MiB requested" in note and "none granted" in note


@pytest.mark.parametrize(("confidence", "before"), [(0.95, ""), (0.94, "perhaps ")])
def test_a_knee_of_low_confidence_is_reported_as_possible_and_not_marked(confidence: float, before: str) -> None:
    knee = {"below": GIB, "above": 2 * GIB, "share": 0.4, "confidence": confidence, "why": ""}
    found = read(span() | {"knee": knee})
    assert isinstance(found, Spans)
    shown = show_experiment(found, 1)
    page = words_of(parsed(page_html(content_of(array_machine(), (shown,)))))
    words = f"{before and 'perhaps a '}knee between 1GiB and 2GiB"
    assert shown.summary.startswith(f"{words}; drops to 40%") and words in page
    assert words in " ".join(text_of(span_lines(found, width=100)))
    (chart,) = shown.charts
    assert isinstance(chart, CurveChart) and (chart.mark is None) is bool(before)
    assert ("knee: 1GiB–2GiB" in page) is (not before)


@pytest.mark.parametrize(("confidence", "before"), [(0.95, ""), (0.9, "perhaps ")])
def test_the_absence_of_a_knee_is_reported_with_its_confidence_and_its_span(confidence: float, before: str) -> None:
    knee = {"below": None, "above": None, "share": 1.0, "confidence": confidence, "why": "no knee up to 4GiB"}
    size = {"drives": [{"name": "sda", "size": 48 * GIB}]}
    found = drawn(span() | {"knee": knee, "conditions": size})
    (chart,) = found.charts
    assert isinstance(chart, CurveChart) and chart.mark is None
    assert found.summary == f"{before}no knee up to 4GiB of 48GiB; confidence {confidence:.0%}"
    assert "the drive has 48GiB: --size or --to for more" in found.notes


def test_an_undecided_result_is_shown_without_a_confidence() -> None:
    knee = {"below": None, "above": None, "share": 1.0, "confidence": 0.0, "why": "can't tell: it is hot"}
    assert drawn(span() | {"knee": knee}).summary == "can't tell: it is hot"


BROKEN: list[Document] = [
    alignment() | {"version": 2},
    alignment() | {"rates": [1]},
    alignment() | {"unit": -1},
    alignment() | {"unit": float("nan")},
    alignment() | {"target": 5},
    span() | {"curve": [{"span": 1, "iops": []}]},
    span() | {"curve": [{"span": 1, "iops": [True]}]},
    span() | {"curve": [{"span": 1, "iops": [1e300]}]},
    span() | {"knee": None},
]


@pytest.mark.parametrize("document", BROKEN, ids=range(len(BROKEN)))
def test_a_damaged_file_is_refused_by_name(document: Document) -> None:
    with pytest.raises(Refused, match=r"^x\.json is not a result: "):
        read(document)


@sample(3)
@pytest.mark.parametrize("word", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_experiment_is_rendered_as_text_only(word: str) -> None:
    page = page_html(
        content_of(array_machine(), (drawn(alignment(word[:4096])), replace(drawn(span(word[:4096])), title="2")))
    )
    tree = parsed(page)
    assert not [element for element in tree.iter() if element.tag in ("img", "iframe")]
    assert len(list(tree.iter("script"))) == 1  # the page's own
