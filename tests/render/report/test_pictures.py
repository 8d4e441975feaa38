"""Pictures: well-formed XML, in proportion, and drawable by librsvg; queue depth by Little's law."""

import json
import struct
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.audit.judge import audit
from aligntool.audit.report import predict
from aligntool.inventory import Inventory, Layer
from aligntool.linux.files import png_of
from aligntool.linux.look import look
from aligntool.measure.results import DriveState
from aligntool.render.lines import harmless, text_of
from aligntool.render.recipes import BUSY_US, LATENCY_US, explain_topic, simulate_commands
from aligntool.render.report.disks import chart_picture, pictures_of
from aligntool.render.report.maps import LEAST_SHARE, cost_picture, disk_picture, row_shares
from aligntool.render.report.page import show_measurements
from aligntool.render.svg import (
    LEFT,
    MOST_LINES,
    RIGHT,
    Bar,
    BarChart,
    CurveChart,
    Picture,
    RatioChart,
    fold_text,
    queue_picture,
    svg_text,
    table_of,
    words_width,
)
from aligntool.units import Extent
from tests.conftest import run
from tests.measure.bench.sample_results import result, series
from tests.render.report.pages import HOSTILE, array_machine, charts, content_of, named_machine
from tests.thorough import when_thorough

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).parent.parent.parent.parent


def boxes(picture: Picture, style: str) -> list[ElementTree.Element]:
    tree = ElementTree.fromstring(svg_text(picture, alone=True))
    return [one for one in tree.iter(f"{SVG}rect") if one.attrib.get("class") == style]


@pytest.mark.needs_tools("rsvg-convert")
def test_every_picture_is_drawn_by_librsvg_at_twice_its_size() -> None:
    pictures = [*pictures_of(content_of(array_machine())), *map(chart_picture, charts())]
    assert {"map-nvme1n1", "start-nvme1n1-1", "links-1", "queue-depth", "span"} <= {one.name for one in pictures}
    for picture in pictures:
        text = svg_text(picture, alone=True)
        size = [int(ElementTree.fromstring(text).attrib[name]) for name in ("width", "height")]
        assert size[0] > picture.width and size[1] > picture.height
        drawn = png_of(text)
        assert drawn[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", drawn[16:24]) == (2 * size[0], 2 * size[1])


def drawn_words(picture: Picture) -> str:
    """Return the readable text of a picture; not its title and description, which are not drawn."""
    tree = ElementTree.fromstring(svg_text(picture, alone=True))
    return " ".join(text.text or "" for text in tree.iter(f"{SVG}text"))


def test_a_standalone_picture_states_what_was_measured_on_which_drive() -> None:
    slow = result(*(series(*(9e6 + step for step in range(5)), depth=depth) for depth in (1, 32)))
    fast = replace(
        result(series(*(9e7 + step for step in range(5))), drive=DriveState("nvme0n1", "Other 2")), target="/home"
    )
    content = content_of(array_machine(), show_measurements((slow, fast)))
    made = {picture.name: drawn_words(picture) for picture in pictures_of(content)}
    for said in ("Random, IOPS", "made-up on /srv", "Made Up 1", "RND4K Q1T1 read", "2026-01-02 03:04 UTC", "IOPS"):
        assert said in made["bench-1-random"], said
    for said in ("1. made-up on /srv, Made Up 1", "2. made-up on /home, Other 2", "2. Other 2 over", "1. Made Up 1"):
        assert said in made["ratio-2"], said
    assert "Map of nvme1n1" in made["map-nvme1n1"] and "physical sector" in made["map-nvme1n1"]
    assert "md0, raid0 of nvme0n1p1, nvme1n1p1, nvme2n1" in made["links-1"] and "GB/s" in made["links-1"]


@given(st.text(st.characters(), max_size=900), st.integers(20, 800))
def test_folded_lines_are_few_and_fit(text: str, width: int) -> None:
    lines = fold_text(text, width, 13)
    assert len(lines) <= MOST_LINES
    assert all(words_width(line, 13) <= width for line in lines)
    if len(harmless(text)) * 13 <= width:
        assert " ".join(lines) == " ".join(harmless(text).split())


def test_pictures_of_hostile_names_are_well_formed_and_have_alphanumeric_file_names() -> None:
    for word in HOSTILE:
        for picture in pictures_of(content_of(named_machine(word))):
            tree = ElementTree.fromstring(svg_text(picture, alone=True))
            assert {one.tag.removeprefix(SVG) for one in tree.iter()} <= {
                "svg", "title", "desc", "style", "rect", "line", "path", "text", "g",
            }  # fmt: skip
            assert picture.name.replace("-", "").isalnum() and picture.name.isascii()


@pytest.mark.needs_tools("sfdisk")
def test_a_map_is_to_scale_with_the_table_of_sfdisk(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(1 << 30)
    run(
        "sfdisk",
        "-q",
        image,
        stdin="label: gpt\nfirst-lba: 34\nstart=34, size=400000\nstart=400434, size=800000\nstart=1300480\n",
    )
    table = json.loads(run("sfdisk", "--json", image))["partitiontable"]
    (judged,) = audit(look((str(image),)), {}).judged
    picture = disk_picture(judged, "map")
    assert picture is not None
    drawn = [one for style in ("bad", "doubt", "good") for one in boxes(picture, style)]
    widths = {float(one.attrib["x"][:-1]): float(one.attrib["width"][:-1]) for one in drawn}
    sizes = [part["size"] for part in table["partitions"]]
    assert len(widths) == len(sizes) == 3
    for size, (_, width) in zip(sizes, sorted(widths.items()), strict=True):
        assert width / widths[min(widths)] == pytest.approx(size / sizes[0], rel=0.01)
    off = [part for part in table["partitions"] if part["start"] % 8]
    assert len(boxes(picture, "bad")) == len(off) == 2


@pytest.mark.needs_tools("sfdisk")
def test_a_small_partition_is_drawn_to_scale_or_reported_as_wider(tmp_path: Path) -> None:
    """An ESP of 200 MiB next to 7.8 GiB on 20 GiB, a logical of 5 GiB, and one of 100 MiB, half a percent."""
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(20 << 30)
    run(
        "sfdisk", "-q", image,
        stdin="label: dos\nstart=63, size=409537, type=ef\nstart=411648, size=16357376, type=7\n"
        "start=16771072, size=25000000, type=5\nstart=16773120, size=10485760\nstart=27260928, size=204800\n",
    )  # fmt: skip
    (judged,) = audit(look((str(image),)), {}).judged
    picture = disk_picture(judged, "map")
    assert picture is not None
    drawn = [one for style in ("bad", "good") for one in boxes(picture, style)]
    widths = [float(one.attrib["width"][:-1]) for one in sorted(drawn, key=lambda one: float(one.attrib["x"][:-1]))]
    esp, windows, linux, small = widths
    assert esp / windows == pytest.approx(409537 / 16357376, rel=0.02)
    assert linux == pytest.approx(100 * 10485760 / 41943040, rel=0.02)
    assert small == pytest.approx(100 * LEAST_SHARE)
    assert "drawn wider than to scale: 6" in drawn_words(picture)
    assert "3 extended 11.9GiB" in drawn_words(picture) and "7.8GiB" in drawn_words(picture)
    tree = ElementTree.fromstring(svg_text(picture, alone=True))
    ticks = {one.text: float(one.attrib["x"].rstrip("%")) for one in tree.iter(f"{SVG}text") if "x" in one.attrib}
    assert ticks["8GiB"] == pytest.approx(40, abs=1) and ticks["0"] == 0 and ticks["20GiB"] == 100


@given(st.lists(st.integers(1, 1 << 50), min_size=1, max_size=10))
def test_shares_fill_the_row_and_have_a_minimum_width(lengths: list[int]) -> None:
    found = row_shares(lengths, LEAST_SHARE)
    assert sum(found) == pytest.approx(1)
    assert min(found) >= LEAST_SHARE - 1e-9
    large = [(length, share) for length, share in zip(lengths, found, strict=True) if share > LEAST_SHARE + 1e-9]
    for length, share in large:
        assert share / large[0][1] == pytest.approx(length / large[0][0])


def start_pictures_of(parts: dict[int, int]) -> dict[str, Picture]:
    """Return the pictures of the starts of partitions: number to sector."""
    disk = array_machine().disks[1]
    made = tuple(
        replace(disk.partitions[0], number=number, extent=Extent(sector * 512, 8192), content=(), holders=())
        for number, sector in parts.items()
    )
    machine = Inventory((replace(disk, partitions=made, links=(), holders=()),))
    found = pictures_of(content_of(machine))
    return {picture.name: picture for picture in found if picture.name.startswith("start-")}


def test_every_offset_is_drawn_once_with_its_boundary_and_distance() -> None:
    made = start_pictures_of({1: 63, 2: 2049, 3: 4096, 4: 8199, 5: 16385})  # 7, 1, 0, 7 and 1 sectors off
    assert list(made) == ["start-nvme1n1-1", "start-nvme1n1-2"]
    assert "partitions 1, 4" in drawn_words(made["start-nvme1n1-1"])
    assert "starts 3584B past it" in drawn_words(made["start-nvme1n1-1"])
    for picture, past in zip(made.values(), (3584, 512), strict=True):
        tree = ElementTree.fromstring(svg_text(picture, alone=True))
        lines = {one.attrib["class"]: one.attrib for one in tree.iter(f"{SVG}line")}
        length = float(lines["distance"]["x2"]) - float(lines["distance"]["x1"])
        assert lines["boundary"]["x1"] == lines["boundary"]["x2"] == lines["distance"]["x1"]
        assert length == pytest.approx(past * (RIGHT - LEFT) / 4 / 4096, abs=0.1)


def test_a_start_that_no_block_suffers_from_is_not_drawn_as_harmless() -> None:
    """mke2fs makes blocks of 1 KiB on a small partition; at sector 2050 none crosses a boundary of 4 KiB."""
    disk = array_machine().disks[1]
    extent = Extent(2050 * 512, 8 << 20)
    small = Layer("ext4", extent, data_unit=1024)
    made = replace(disk.partitions[0], extent=extent, content=(small,), holders=())
    machine = Inventory((replace(disk, partitions=(made,), links=(), holders=()),))
    (picture,) = (found for found in pictures_of(content_of(machine)) if found.name.startswith("start-"))
    assert "blocks of 1KiB straddle no boundary, larger requests do" in drawn_words(picture)


@when_thorough("a picture of the documentation follows later")
def test_the_picture_of_a_start_in_the_docs_is_current() -> None:
    """It is partition 1 of nvme1n1 of `array_machine`, which starts at sector 63."""
    made = {picture.name: picture for picture in pictures_of(content_of(array_machine()))}
    text = svg_text(made["start-nvme1n1-1"], alone=True)
    assert (ROOT / "docs" / "pictures" / "start.svg").read_text() == text, (
        "write that text into docs/pictures/start.svg"
    )


def test_the_cost_is_drawn_as_two_bars_of_its_share() -> None:
    for unit, share in ((4096, 1 / 2), (16384, 4 / 5)):
        picture = cost_picture(predict(unit), "cost")
        (aligned,), (here,) = boxes(picture, "good"), boxes(picture, "bad")
        assert float(here.attrib["width"]) / float(aligned.attrib["width"]) == pytest.approx(share)
        assert predict(unit).write_share in drawn_words(picture)


def test_bars_are_proportional_to_their_values_and_ratios_to_their_logarithms() -> None:
    bars = BarChart("b", "B", "MB/s", (Bar("a", 100, "100"), Bar("b", 25, "25")))
    first, second = (float(one.attrib["width"]) for one in boxes(chart_picture(bars), "plain"))
    assert first / second == pytest.approx(4)
    ratios = RatioChart("r", "R", "A", "B", (Bar("a", 1, "+1"), Bar("b", -0.5, "−0.5")))
    (up, down) = boxes(chart_picture(ratios), "plain")
    assert float(up.attrib["width"]) == pytest.approx(2 * float(down.attrib["width"]), abs=0.02)
    zero = float(up.attrib["x"])  # faster extends to the right of it, slower ends at it
    assert float(down.attrib["x"]) + float(down.attrib["width"]) == pytest.approx(zero, abs=0.02)


def test_a_chart_and_its_table_have_the_same_words() -> None:
    for chart in charts():
        said = "".join(ElementTree.fromstring(svg_text(chart_picture(chart), alone=True)).itertext())
        rows = table_of(chart)
        if isinstance(chart, CurveChart):
            assert [row[0] for row in rows[1:]] == [f"{2**step}GiB" for step in range(7)]
            assert rows[4][1] == "200,500" and chart.mark and chart.mark.text in said
        else:
            assert all(row[0] in said and row[1] in said for row in rows[1:])


@given(st.integers(1, 8), st.integers(1, 60))
def test_a_simulated_queue_obeys_littles_law_and_serves_one_transfer_at_a_time(depth: int, count: int) -> None:
    done = simulate_commands(depth, count)
    end = max(run.answered for run in done)
    in_flight = Fraction(sum(run.answered - run.sent for run in done), end)
    mean = Fraction(sum(run.answered - run.sent for run in done), count)
    assert in_flight == Fraction(count, end) * mean and in_flight <= depth
    ways = sorted(run.answered for run in done)
    assert all(later - before >= BUSY_US for before, later in pairwise(ways))
    assert all(run.answered - run.sent >= LATENCY_US for run in done)
    if depth == 1:
        assert end == count * LATENCY_US


def test_text_and_picture_of_queue_depth_have_equal_figures_and_the_docs_are_current() -> None:
    # Eight reads of 100 µs: 800 µs one by one; four at a time 200 µs, and 25 µs more for each of three that wait.
    picture = svg_text(queue_picture(), alone=True)
    text = "".join(text_of(explain_topic(width=80)))
    for said in (picture, text):
        assert "8 reads in 800 µs: 10,000 a second" in said
        assert "8 reads in 275 µs: 29,090 a second" in said
    assert (ROOT / "docs" / "pictures" / "queue-depth.svg").read_text() == picture, (
        "run: aligntool report --chart queue-depth --svg docs/pictures/queue-depth.svg --overwrite"
    )
