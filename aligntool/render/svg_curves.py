"""Curves over a sweep: sizes, spans, threads; each with its range, its own dash and its own shape of point.

In: a chart's values. Out: a picture. Alone because only here two axes have to be laid out.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from aligntool.render.svg import Element, Picture, fitting, group, line, path, words, words_width
from aligntool.render.svg_charts import CurveChart, Point, Series, alternative_of

WIDTH = 420
LEFT, RIGHT, TOP, BOTTOM = 58, 408, 42, 242
LETTERS = "abcd"
MOST_SERIES = len(LETTERS)
LEAST_STEP = 44  # pixels between two words under the x axis


def curve_picture(chart: CurveChart) -> Picture:
    """Of more than four series the first four are drawn; the table has all of them."""
    series = [one for one in chart.series if one.points][:MOST_SERIES]
    points = [point for one in series for point in one.points]
    places = _places(points, doubling=chart.doubling)
    most, steps = _round_up(max((max(point.value, point.high or 0) for point in points), default=1))
    elements = [words(2, 14, fitting(chart.y_title, WIDTH, 11.5), "small dim")]
    elements += [*_rows(most, steps), *_columns(points, places)]
    elements.append(words(RIGHT, BOTTOM + 32, fitting(chart.x_title, WIDTH, 11.5), "small dim end"))
    if chart.mark is not None and places:
        elements += _mark(_place(chart.mark.x, places), chart.mark.text)
    for letter, one in zip(LETTERS, series, strict=False):
        elements += _curve(one, letter, places, most)
    legend = list(_legend(series))
    elements += legend
    height = BOTTOM + 44 + 20 * len(legend)
    return Picture(chart.name, chart.title, alternative_of(chart), WIDTH, height, tuple(elements))


def _places(points: Sequence[Point], *, doubling: bool) -> dict[float, float]:
    """x in the chart's unit -> pixels."""
    xs = sorted({point.x for point in points})
    if not xs:
        return {}
    made = [math.log2(x) if doubling and xs[0] > 0 else x for x in xs]
    low, high = made[0], made[-1]
    if low == high:
        return {xs[0]: (LEFT + RIGHT) / 2}
    inner = RIGHT - LEFT - 20
    return {x: LEFT + 10 + (value - low) / (high - low) * inner for x, value in zip(xs, made, strict=True)}


def _place(x: float, places: dict[float, float]) -> float:
    """Of an x that may lie between two points."""
    xs = sorted(places)
    for low, high in pairwise(xs):
        if low <= x <= high:
            return places[low] + (x - low) / (high - low) * (places[high] - places[low])
    return places[xs[0]] if x < xs[0] else places[xs[-1]]


ROUND = ((1, 4), (2, 4), (2.5, 5), (4, 4), (5, 5), (8, 4), (10, 5))
"""Ends of an axis, and the number of steps in which it is easily read."""


def _round_up(most: float) -> tuple[float, int]:
    """The next of those, times a power of ten."""
    if most <= 0:
        return 1, 4
    power = 10.0 ** math.floor(math.log10(most))
    return next(((end * power, steps) for end, steps in ROUND if end * power >= most * 0.9999), (most, 4))


def _height(value: float, most: float) -> float:
    return BOTTOM - max(value, 0) / most * (BOTTOM - TOP)


def _rows(most: float, steps: int) -> Iterator[Element]:
    for step in range(steps + 1):
        value = most * step / steps
        y = _height(value, most)
        yield line(LEFT, y, RIGHT, y, "faint" if step else "axis")
        yield words(LEFT - 6, y + 4, axis_words(value), "small dim end")


def axis_words(value: float) -> str:
    """12500 -> 12.5k: short enough for an axis."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


def _columns(points: Sequence[Point], places: dict[float, float]) -> Iterator[Element]:
    texts = {point.x: point.x_text for point in points}
    last = -math.inf
    for x in sorted(texts):
        at = places[x]
        yield line(at, BOTTOM, at, BOTTOM + 4, "axis")
        if at - last >= max(LEAST_STEP, words_width(texts[x], 11.5)):
            yield words(at, BOTTOM + 17, fitting(texts[x], 80, 11.5), "small dim", anchor="middle")
            last = at


def _mark(at: float, text: str) -> Iterator[Element]:
    """A line up and down, with its words on the side where there is room."""
    yield line(at, TOP, at, BOTTOM, "knee")
    left = at < (LEFT + RIGHT) / 2
    room = RIGHT - at - 8 if left else at - LEFT - 8
    place = (at + 5, "small strong") if left else (at - 5, "small strong end")
    yield words(place[0], TOP - 5, fitting(text, room, 12.5), place[1])


def _curve(series: Series, letter: str, places: dict[float, float], most: float) -> Iterator[Element]:
    style = f"series-{letter}"
    points = sorted(series.points, key=lambda point: point.x)
    if len(points) > 1:
        yield path([(places[point.x], _height(point.value, most)) for point in points], f"{style} curve")
    for point in points:
        x, y = places[point.x], _height(point.value, most)
        if point.low is not None and point.high is not None and point.high > point.low:
            low, high = _height(point.low, most), _height(point.high, most)
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
    for index, (letter, one) in enumerate(zip(LETTERS, series, strict=False)):
        y = BOTTOM + 52 + 20 * index
        yield group(
            (
                path([(LEFT, y), (LEFT + 34, y)], f"series-{letter} curve"),
                _point(LEFT + 17, y, letter),
                words(LEFT + 42, y + 4, fitting(one.label, RIGHT - LEFT - 42, 13)),
            )
        )
