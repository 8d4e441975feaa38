"""Draw charts as SVG: bars, curves, queues."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from xml.etree.ElementTree import Element, tostring

from aligntool.render.lines import cell_width, harmless, wrapped
from aligntool.render.recipes import BUSY_US, COMMANDS, LATENCY_US, TOPIC, Run, simulate_commands

# SVG as values, written by an XML writer. Text in a picture may come from a disk: it is made harmless and
# escaped here.

NAMESPACE = "http://www.w3.org/2000/svg"
LONGEST_WORDS = 120  # most characters of one text in a picture
MARGIN = 14  # pixels around a picture in its own file
MOST_LINES = 4  # of a title, and of each text about a picture
LETTER = 0.58  # average width of a letter, in font sizes; measured on DejaVu Sans and Noto Sans

Number = int | float


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture. `alternative`: its content in words. `fluid`: positions are percentages of the width, so
    that it fills the available width; otherwise it is scaled as a whole. Without a title it only repeats the
    text beside it, and is hidden from screen readers.
    """

    name: str  # the argument of --chart and the id in a page: letters, digits and hyphens
    title: str
    alternative: str
    width: int
    height: int
    elements: tuple[Element, ...]
    fluid: bool = False
    about: tuple[str, ...] = ()  # the text next to it on a page; in its own file it is below the title


def element(
    tag: str, text: str = "", children: Iterable[Element] = (), **attributes: Number | str
) -> Element:
    """Return an element without the attributes that are "". The text may come from a disk."""
    named = ((name.rstrip("_").replace("_", "-"), _number(value)) for name, value in attributes.items())
    made = Element(tag, {name: value for name, value in named if value})
    made.text = harmless(text) or None
    made.extend(children)
    return made


def box(x: Number | str, y: Number, width: Number | str, height: Number | str, style: str) -> Element:
    return element("rect", x=x, y=y, width=width, height=height, class_=style)


def line(x1: Number | str, y1: Number, x2: Number | str, y2: Number, style: str) -> Element:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=style)


def strip(parts: Iterable[tuple[float, str]], height: int) -> Picture:
    """Return a bar of parts beside each other: the share of the width and the style of each."""
    elements: list[Element] = []
    at = 0.0
    for share, style in parts:
        elements.append(box(percent(at), 1, percent(share), height - 2, style))
        at += share
    return Picture("", "", "", 0, height, tuple(elements), fluid=True)


def words(x: Number | str, y: Number, text: str, style: str = "", *, anchor: str = "start") -> Element:
    """Return a text with its baseline at `y`."""
    return element("text", text, x=x, y=y, text_anchor="" if anchor == "start" else anchor, class_=style)


def path(points: Iterable[tuple[Number, Number]], style: str, *, closed: bool = False) -> Element:
    route = "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
    return element("path", d=f"M{route}{'Z' if closed else ''}", class_=style)


def frame(x: str, y: Number, width: str, height: Number, children: Iterable[Element]) -> Element:
    """Return a viewport with its own origin, which clips its children."""
    return element("svg", "", children, x=x, y=y, width=width, height=height)


def percent(share: float) -> str:
    return f"{share * 100:.3f}".rstrip("0").rstrip(".") + "%"


def words_width(text: str, size: Number) -> float:
    """Estimate the width of a text in pixels."""
    return cell_width(harmless(text)) * LETTER * size


def cut_to_width(text: str, width: float, size: Number) -> str:
    """Return the text, cut with an ellipsis if it is too wide, or "" if not even one letter fits."""
    text = harmless(text)[:LONGEST_WORDS]
    if words_width(text, size) <= width:
        return text
    while text and words_width(text + "…", size) > width:
        text = text[:-1]
    return text + "…" if text else ""


def svg_text(picture: Picture, *, alone: bool) -> str:
    """Return a picture as SVG. `alone`: for its own file, with style sheet, size and a title at the top."""
    name = picture.name
    drawn = picture.elements
    head: list[Element] = []
    if picture.title:
        head.append(element("title", picture.title, id=f"{name}-title"))
        head.append(element("desc", picture.alternative, id=f"{name}-desc"))
    width, height = picture.width, picture.height
    if alone:
        top, above = _title_elements(picture)
        drawn = (*above, frame(str(MARGIN), top, str(width), height, drawn))
        width, height = width + 2 * MARGIN, top + height + MARGIN
        style = element("style")
        style.text = report_file("picture.css")  # ours
        head += [style, box(0, 0, width, height, "paper")]
    fluid = picture.fluid and not alone
    root = element(
        "svg",
        "",
        (*head, *drawn),
        xmlns=NAMESPACE if alone else "",
        viewBox="" if fluid else f"0 0 {width} {height}",
        width="100%" if fluid else width if alone else "",
        height=height if fluid or alone else "",
        role="img" if head else "",
        aria_labelledby=f"{name}-title {name}-desc" if head else "",
        aria_hidden="" if head else "true",
        class_="picture",
    )
    return tostring(root, encoding="unicode") + "\n"


def _title_elements(picture: Picture) -> tuple[int, list[Element]]:
    """Return the y at which the picture begins, and the title and text above it."""
    width = picture.width
    lines = [(text, "strong", 13.0) for text in fold_text(picture.title, width * 0.95, 13)]
    lines += [(text, "small dim", 11.5) for about in picture.about for text in fold_text(about, width, 11.5)]
    y = MARGIN
    elements = []
    for text, style, size in lines:
        y += round(size * 1.4)
        elements.append(words(MARGIN, y - 4, text, style))
    return y + 8, elements


def fold_text(text: str, width: float, size: Number) -> list[str]:
    """Fold a text into at most MOST_LINES lines of `width` pixels; the last ends with an ellipsis if
    necessary.
    """
    rest = " ".join(harmless(text)[: MOST_LINES * LONGEST_WORDS].split())
    lines = list(wrapped(rest, int(width / LETTER / size), "")) if rest else []
    lines[MOST_LINES - 1 :] = [" ".join(lines[MOST_LINES - 1 :])] if lines[MOST_LINES - 1 :] else []
    return [cut_to_width(row, width, size) for row in lines]


def report_file(name: str) -> str:
    """Return a style sheet or a script of the report."""
    return files("aligntool.render.report").joinpath(name).read_text(encoding="utf-8")


def _number(number: Number | str) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".") if isinstance(number, float) else str(number)


# The data of charts: plain values, already in the unit and the words in which they are shown.


@dataclass(frozen=True, slots=True)
class Bar:
    """`value` and the range around it, in the chart's unit; `text` and `range_text`: the same as shown.
    `tick`: a mark across the bar, such as a prediction. `kind` "head": only a heading for the bars that
    follow.
    """

    label: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None
    kind: str = "plain"  # or "read", "write", "good", "bad", "doubt": its style; the text must state the same
    note: str = ""
    range_text: str = ""
    tick: float | None = None


@dataclass(frozen=True, slots=True)
class BarChart:
    name: str
    title: str
    unit: str
    bars: tuple[Bar, ...]
    note: str = ""
    tabled: bool = False  # its figures are already in a table of the result
    quarters: bool = False  # the scale extends to at least 1, with lines at the quarters


@dataclass(frozen=True, slots=True)
class RatioChart:
    """Ratios of the second to the first as log10: 0 is equal, -1 ten times slower. `value`, `low` and `high`
    of a bar are these logarithms.
    """

    name: str
    title: str
    first: str
    second: str
    bars: tuple[Bar, ...]
    tabled: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """A point: `x` in the chart's unit and as shown; the value with its range."""

    x: float
    x_text: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None
    range_text: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """A curve. `write`: False for reads and True for writes, which have their own colours; None for anything
    else.
    """

    label: str
    points: tuple[Point, ...]
    write: bool | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked place on the x axis: the knee of a sweep."""

    x: float
    text: str


@dataclass(frozen=True, slots=True)
class CurveChart:
    name: str
    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    doubling: bool = True  # each step on the x axis doubles
    decades: bool = False  # each step on the y axis is ten times the one below
    mark: Mark | None = None
    note: str = ""
    tabled: bool = False


Chart = BarChart | RatioChart | CurveChart
Rows = tuple[tuple[str, ...], ...]


def table_of(chart: Chart) -> Rows:
    """Return the chart as rows of text, the header first."""
    match chart:
        case BarChart():
            return _bar_rows(chart.unit, chart.bars)
        case RatioChart():
            return _bar_rows(f"log10 of {chart.second} / {chart.first}", chart.bars)
        case CurveChart():
            return tuple(_curve_rows(chart))


def _bar_rows(unit: str, bars: tuple[Bar, ...]) -> Rows:
    """Return rows without empty columns."""
    rows = [("", unit, "range", "note"), *((bar.label, bar.text, bar.range_text, bar.note) for bar in bars)]
    used = [at for at in range(4) if at < 2 or any(row[at] for row in rows[1:])]
    return tuple(tuple(row[at] for at in used) for row in rows)


def _curve_rows(chart: CurveChart) -> Iterator[tuple[str, ...]]:
    yield (chart.x_title, *(f"{series.label}, {chart.y_title}" for series in chart.series))
    texts = {point.x: point.x_text for series in chart.series for point in series.points}
    known = [
        {point.x: point.text + _in_parentheses(point.range_text) for point in series.points}
        for series in chart.series
    ]
    for x in sorted(texts):
        yield (texts[x], *(column.get(x, "–") for column in known))


def alternative_of(chart: Chart) -> str:
    """Summarise a chart in a sentence or two; the table has the rest."""
    match chart:
        case BarChart() | RatioChart():
            summary = "; ".join(
                f"{bar.label}: {bar.text}{_in_parentheses(bar.note)}" for bar in chart.bars[:20]
            )
            return summary + ("; …" if len(chart.bars) > 20 else "")
        case CurveChart():
            ends = [
                (series.label, series.points[0], series.points[-1])
                for series in chart.series
                if series.points
            ]
            summary = "; ".join(
                f"{label}: {a.text} at {a.x_text} to {b.text} at {b.x_text}" for label, a, b in ends
            )
            return f"{chart.y_title} over {chart.x_title}. {summary}" + (
                f". {chart.mark.text}" if chart.mark else ""
            )


def _in_parentheses(note: str) -> str:
    return f" ({note})" if note else ""


# Bars with their text above them, so that it is readable on a phone: plain bars, and logarithms of ratios.

WIDTH = 420
LEFT, RIGHT = 2, 418
ROW = 42
LARGEST_RATIO = 4.0  # ten thousand times; larger ratios are drawn at the edge, and the text states them


def bar_picture(chart: BarChart) -> Picture:
    """Draw bars from zero to the right, with the range as a whisker."""
    ends = [end for bar in chart.bars for end in (bar.value, bar.high, bar.tick) if end is not None]
    most = max([*ends, 1.0 if chart.quarters else 0.0]) or 1
    scale = (RIGHT - LEFT) / most
    elements = list[Element]()
    top = 0
    for bar in chart.bars:
        elements += _bar_words(bar, top)
        if bar.kind != "head":
            elements += _bar(bar, top + 20, scale, quarters=chart.quarters)
        top += ROW if bar.kind != "head" else 22
    if not chart.quarters:
        elements.append(line(LEFT, 18, LEFT, top, "axis"))
    else:
        for quarter in range(5):
            anchor = {0: "start", most * 4: "end"}.get(quarter, "middle")
            elements.append(
                words(LEFT + quarter / 4 * scale, top + 12, f"{quarter / 4:g}", "small dim", anchor=anchor)
            )
        top += 16
    elements.append(words(LEFT, top + 14, cut_to_width(chart.unit, RIGHT - LEFT, 11.5), "small dim"))
    return Picture(chart.name, chart.title, alternative_of(chart), WIDTH, top + 20, tuple(elements))


def _bar(bar: Bar, top: int, scale: float, *, quarters: bool) -> Iterator[Element]:
    if quarters:
        for quarter in range(5):
            x = LEFT + quarter / 4 * scale
            yield line(x, top - 2, x, top + 16, "faint" if quarter else "axis")
    yield box(LEFT, top, max(bar.value, 0) * scale, 14, bar.kind)
    yield from _whisker(bar, top + 7, LEFT, scale)
    if bar.tick is not None:
        yield line(LEFT + bar.tick * scale, top - 4, LEFT + bar.tick * scale, top + 18, "tick")


def ratio_picture(chart: RatioChart) -> Picture:
    """Draw ratios around zero (equal) in the middle: slower to the left, faster to the right."""
    values = [abs(end) for bar in chart.bars for end in (bar.value, bar.low, bar.high) if end is not None]
    most = min(max([*values, 0.5]), LARGEST_RATIO)
    middle = (LEFT + RIGHT) / 2
    scale = (RIGHT - LEFT) / 2 / (most * 1.05)
    bottom = len(chart.bars) * ROW
    elements = list(_grid(most, middle, scale, bottom))
    for index, bar in enumerate(chart.bars):
        top = index * ROW
        elements += _bar_words(bar, top)
        shown = min(max(bar.value, -most), most)
        left = middle + min(shown, 0) * scale
        elements.append(box(left, top + 20, max(abs(shown) * scale, 1), 14, bar.kind))
        elements += _whisker(bar, top + 27, middle, scale, most)
    elements.append(words(LEFT, bottom + 30, "← slower", "small dim"))
    elements.append(words(RIGHT, bottom + 30, "faster →", "small dim end"))
    for index, text in enumerate((f"{chart.second} over", chart.first)):
        text = cut_to_width(text, RIGHT - LEFT - 130, 11.5)
        elements.append(words(middle, bottom + 30 + 15 * index, text, "small dim", anchor="middle"))
    return Picture(chart.name, chart.title, alternative_of(chart), WIDTH, bottom + 52, tuple(elements))


def picture_of(chart: Chart) -> Picture:
    match chart:
        case BarChart():
            return bar_picture(chart)
        case RatioChart():
            return ratio_picture(chart)
        case CurveChart():
            return curve_picture(chart)


def _bar_words(bar: Bar, top: int) -> Iterator[Element]:
    text = f"{bar.text} · {bar.note}" if bar.note else bar.text
    text = cut_to_width(text, (RIGHT - LEFT) * 0.7, 13)
    room = RIGHT - LEFT - words_width(text, 13) - 10
    yield words(LEFT, top + 14, cut_to_width(bar.label, room, 13), "strong")
    yield words(RIGHT, top + 14, text, "end")


def _whisker(bar: Bar, y: int, zero: float, scale: float, most: float = math.inf) -> Iterator[Element]:
    if bar.low is None or bar.high is None or bar.high <= bar.low:
        return
    low, high = (zero + min(max(end, -most), most) * scale for end in (bar.low, bar.high))
    yield line(low, y, high, y, "whisker")
    for end in (low, high):
        yield line(end, y - 4, end, y + 4, "whisker")


def _grid(most: float, middle: float, scale: float, bottom: int) -> Iterator[Element]:
    step = 1 if most >= 1 else 0.25 if most >= 0.5 else 0.1
    count = int(most / step + 1e-9)
    for index in range(-count, count + 1):
        x = middle + index * step * scale
        for top in range(18, bottom, ROW):
            yield line(x, top, x, top + 18, "faint" if index else "axis")
        if count <= 4 or index % 2 == 0:
            text = f"{index * step:+g}".replace("-", "−") if index else "0"
            yield words(x, bottom + 12, text, "small dim", anchor="middle")


# Curves over a sweep of sizes, spans or threads; each has its range, and its own dash and shape of points.

CURVES_LEFT, CURVES_RIGHT, TOP, BOTTOM = 58, 408, 42, 242
LETTERS = "abcd"
MOST_SERIES = len(LETTERS)
LEAST_STEP = 44  # pixels between two labels of the x axis


def curve_picture(chart: CurveChart) -> Picture:
    """Draw the first MOST_SERIES series; the table has all of them."""
    series = [curve for curve in chart.series if curve.points][:MOST_SERIES]
    points = [point for curve in series for point in curve.points]
    places = _x_positions(points, doubling=chart.doubling)
    scale = _y_scale(points, decades=chart.decades)
    elements = [words(2, 14, cut_to_width(chart.y_title, WIDTH, 11.5), "small dim")]
    elements += [*_y_axis(scale), *_x_axis(points, places)]
    elements.append(
        words(CURVES_RIGHT, BOTTOM + 32, cut_to_width(chart.x_title, WIDTH, 11.5), "small dim end")
    )
    if chart.mark is not None and chart.mark.x in places:
        elements += _mark(places[chart.mark.x], chart.mark.text)
    for letter, curve in _lettered(series):
        elements += _curve(curve, letter, places, scale)
    legend = list(_legend(series))
    elements += legend
    height = BOTTOM + 44 + 20 * len(legend)
    return Picture(chart.name, chart.title, alternative_of(chart), WIDTH, height, tuple(elements))


def _x_positions(points: Sequence[Point], *, doubling: bool) -> dict[float, float]:
    """Map x in the chart's unit to pixels."""
    xs = sorted({point.x for point in points})
    if not xs:
        return {}
    positions = [math.log2(x) if doubling and xs[0] > 0 else x for x in xs]
    low, high = positions[0], positions[-1]
    if low == high:
        return {xs[0]: (CURVES_LEFT + CURVES_RIGHT) / 2}
    inner = CURVES_RIGHT - CURVES_LEFT - 20
    return {
        x: CURVES_LEFT + 10 + (value - low) / (high - low) * inner
        for x, value in zip(xs, positions, strict=True)
    }


ROUND_ENDS = ((1, 4), (2, 4), (2.5, 5), (4, 4), (5, 5), (8, 4), (10, 5))
"""Ends of an axis, and the number of steps that gives round labels."""


def _round_up(most: float) -> tuple[float, int]:
    """Return the next of ROUND_ENDS times a power of ten, and its number of steps."""
    if most <= 0:
        return 1, 4
    power = 10.0 ** math.floor(math.log10(most))
    return next(
        ((end * power, steps) for end, steps in ROUND_ENDS if end * power >= most * 0.9999), (most, 4)
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    """The y axis: linear if `least` is 0, otherwise logarithmic from `least`."""

    least: float
    most: float
    steps: tuple[float, ...]

    def height(self, value: float) -> float:
        if self.least:
            share = math.log(max(value, self.least) / self.least) / math.log(self.most / self.least)
        else:
            share = max(value, 0) / self.most
        return BOTTOM - share * (BOTTOM - TOP)


def _y_scale(points: Sequence[Point], *, decades: bool) -> _Scale:
    most = max((max(point.value, point.high or 0) for point in points), default=1)
    least = min((point.value for point in points), default=1)
    if decades and least > 0:
        low, high = math.floor(math.log10(least)), math.ceil(math.log10(most * 0.9999))
        exponents = range(low, max(high, low + 1) + 1)
        return _Scale(10.0**low, 10.0 ** exponents[-1], tuple(10.0**each for each in exponents))
    most, steps = _round_up(most)
    return _Scale(0, most, tuple(most * step / steps for step in range(steps + 1)))


def _lettered(series: Sequence[Series]) -> Iterator[tuple[str, Series]]:
    """Yield each series with a letter for its colour, dash and shape: reads have the first, writes the
    second.
    """
    distinct = len({curve.write for curve in series}) == len(series)
    for letter, curve in zip(LETTERS, series, strict=False):
        yield letter if curve.write is None or not distinct else LETTERS[curve.write], curve


def _y_axis(scale: _Scale) -> Iterator[Element]:
    for at, value in enumerate(scale.steps):
        y = scale.height(value)
        yield line(CURVES_LEFT, y, CURVES_RIGHT, y, "faint" if at else "axis")
        yield words(CURVES_LEFT - 6, y + 4, axis_words(value), "small dim end")


def axis_words(value: float) -> str:
    """Return a number short enough for an axis: "12.5k" for 12500."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


def _x_axis(points: Sequence[Point], places: dict[float, float]) -> Iterator[Element]:
    texts = {point.x: point.x_text for point in points}
    last = -math.inf
    for x in sorted(texts):
        at = places[x]
        yield line(at, BOTTOM, at, BOTTOM + 4, "axis")
        if at - last >= max(LEAST_STEP, words_width(texts[x], 11.5)):
            yield words(at, BOTTOM + 17, cut_to_width(texts[x], 80, 11.5), "small dim", anchor="middle")
            last = at


def _mark(at: float, text: str) -> Iterator[Element]:
    """Draw a vertical line, with its text on the side that has more room."""
    yield line(at, TOP, at, BOTTOM, "knee")
    left = at < (CURVES_LEFT + CURVES_RIGHT) / 2
    room = CURVES_RIGHT - at - 8 if left else at - CURVES_LEFT - 8
    place = (at + 5, "small strong") if left else (at - 5, "small strong end")
    yield words(place[0], TOP - 5, cut_to_width(text, room, 12.5), place[1])


def _curve(series: Series, letter: str, places: dict[float, float], scale: _Scale) -> Iterator[Element]:
    style = f"series-{letter}"
    points = sorted(series.points, key=lambda point: point.x)
    if len(points) > 1:
        yield path([(places[point.x], scale.height(point.value)) for point in points], f"{style} curve")
    for point in points:
        x, y = places[point.x], scale.height(point.value)
        if point.low is not None and point.high is not None and point.high > point.low:
            low, high = scale.height(point.low), scale.height(point.high)
            yield line(x, low, x, high, f"{style} range")
            for end in (low, high):
                yield line(x - 4, end, x + 4, end, f"{style} range")
        yield _point(x, y, letter)


def _point(x: float, y: float, letter: str) -> Element:
    style = f"series-{letter} point"
    shapes: dict[str, list[tuple[float, float]]] = {
        "a": [(-4, 0), (0, -4), (4, 0), (0, 4)],
        "b": [(-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)],
        "c": [(0, -4.5), (4.5, 4), (-4.5, 4)],
        "d": [(0, 4.5), (4.5, -4), (-4.5, -4)],
    }
    return path([(x + dx, y + dy) for dx, dy in shapes[letter]], style, closed=True)


def _legend(series: Sequence[Series]) -> Iterator[Element]:
    for index, (letter, curve) in enumerate(_lettered(series)):
        y = BOTTOM + 52 + 20 * index
        dash = path([(CURVES_LEFT, y), (CURVES_LEFT + 34, y)], f"series-{letter} curve")
        label = words(CURVES_LEFT + 42, y + 4, cut_to_width(curve.label, CURVES_RIGHT - CURVES_LEFT - 42, 13))
        yield element("g", "", (dash, _point(CURVES_LEFT + 17, y, letter), label))


# QD1 compared with QD4 as a picture.

QUEUE_LEFT, QUEUE_RIGHT = 2, 418
READS = 8
SPAN = READS * LATENCY_US
QUEUE_ROW = 20


def queue_picture() -> Picture:
    """Draw eight reads, one at a time and four at a time, on the same time axis."""
    single = simulate_commands(1, READS)
    parallel = simulate_commands(COMMANDS, READS)
    ends = [max(run.answered for run in group) for group in (single, parallel)]
    bottom = 66 + 22 + COMMANDS * QUEUE_ROW
    blocks = [*_block("QD1: each read waits for the one before it", single, 0)]
    blocks += _block("QD4: four reads wait at the same time", parallel, 66)
    elements = (*blocks, *_axis(bottom + 34), *_key(bottom + 66))
    alternative = (
        f"Eight reads of {LATENCY_US} µs each. One at a time they take {ends[0]} µs; with four in flight they"
        f" overlap and take {ends[1]} µs, though no single read is faster: only the last {BUSY_US} µs of"
        " each, in the shared controller and link, do not overlap."
    )
    return Picture(TOPIC, "Queue depth 1 compared with queue depth 4", alternative, WIDTH, 250, elements)


def _block(title: str, done: tuple[Run, ...], top: int) -> Iterator[Element]:
    end = max(run.answered for run in done)
    rows = max(run.row for run in done) + 1
    yield words(QUEUE_LEFT, top + 13, title, "strong")
    for number, run in enumerate(done, 1):
        y = top + 20 + run.row * QUEUE_ROW
        waiting = run.answered - BUSY_US
        yield box(_x(run.sent), y, _x(waiting) - _x(run.sent), QUEUE_ROW - 5, "read")
        yield box(_x(waiting), y, _x(run.answered) - _x(waiting), QUEUE_ROW - 5, "doubt")
        yield words(_x(run.sent) + 4, y + 12, str(number), "small")
    result = f"{READS} reads in {end} µs: {READS * 1_000_000 // end:,} a second"
    yield words(QUEUE_RIGHT, top + 20 + rows * QUEUE_ROW + 12, result, "end")


def _axis(y: int) -> Iterator[Element]:
    yield line(QUEUE_LEFT, y, QUEUE_RIGHT, y, "axis")
    for at in range(0, SPAN + 1, 2 * LATENCY_US):
        anchor = "start" if at == 0 else "end" if at == SPAN else "middle"
        yield line(_x(at), y, _x(at), y + 4, "axis")
        yield words(_x(at), y + 16, f"{at} µs" if at else "0", "small dim", anchor=anchor)


def _key(y: int) -> Iterator[Element]:
    yield box(QUEUE_LEFT, y, 14, 12, "read")
    yield words(QUEUE_LEFT + 20, y + 11, "waits for its flash", "small")
    yield box(QUEUE_LEFT + 170, y, 14, 12, "doubt")
    yield words(QUEUE_LEFT + 190, y + 11, "in the shared controller and link", "small")


def _x(at_us: int) -> float:
    return QUEUE_LEFT + at_us * (QUEUE_RIGHT - QUEUE_LEFT) / SPAN
