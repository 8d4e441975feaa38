"""Bars with their words above them, so that they are read on a phone: plain ones, and logarithms of ratios.

In: a chart's values. Out: a picture. Alone because both lay their rows out alike, and only where zero stands differs.
"""

import math
from collections.abc import Iterator

from aligntool.render.svg import Element, Picture, box, fitting, line, words, words_width
from aligntool.render.svg_charts import Bar, BarChart, RatioChart, alternative_of

WIDTH = 420
LEFT, RIGHT = 2, 418
ROW = 42
LARGEST_RATIO = 4.0  # ten thousand times; what is beyond is drawn at the edge, and its words say the number


def bar_picture(chart: BarChart) -> Picture:
    """From zero to the right, with the range as a whisker."""
    most = max([*(bar.value for bar in chart.bars), *(bar.high or 0 for bar in chart.bars)], default=0) or 1
    scale = (RIGHT - LEFT) / most
    elements: list[Element] = []
    for index, bar in enumerate(chart.bars):
        top = index * ROW
        elements += _row_words(bar, top)
        elements.append(box(LEFT, top + 20, max(bar.value, 0) * scale, 14, bar.kind))
        elements += _whisker(bar, top + 27, LEFT, scale)
    bottom = len(chart.bars) * ROW
    elements.append(line(LEFT, 18, LEFT, bottom, "axis"))
    elements.append(words(LEFT, bottom + 14, fitting(chart.unit, RIGHT - LEFT, 11.5), "small dim"))
    return Picture(chart.name, chart.title, alternative_of(chart), WIDTH, bottom + 20, tuple(elements))


def ratio_picture(chart: RatioChart) -> Picture:
    """Zero, where both are equal, in the middle; slower to the left, faster to the right."""
    values = [abs(end) for bar in chart.bars for end in (bar.value, bar.low, bar.high) if end is not None]
    most = min(max([*values, 0.5]), LARGEST_RATIO)
    middle, scale = (LEFT + RIGHT) / 2, (RIGHT - LEFT) / 2 / (most * 1.05)
    bottom = len(chart.bars) * ROW
    elements = list(_grid(most, middle, scale, bottom))
    for index, bar in enumerate(chart.bars):
        top = index * ROW
        elements += _row_words(bar, top)
        shown = min(max(bar.value, -most), most)
        left = middle + min(shown, 0) * scale
        elements.append(box(left, top + 20, max(abs(shown) * scale, 1), 14, bar.kind))
        elements += _whisker(bar, top + 27, middle, scale, most)
    elements.append(words(LEFT, bottom + 30, "← slower", "small dim"))
    elements.append(words(RIGHT, bottom + 30, "faster →", "small dim end"))
    for index, text in enumerate((f"{chart.second} over", chart.first)):
        text = fitting(text, RIGHT - LEFT - 130, 11.5)
        elements.append(words(middle, bottom + 30 + 15 * index, text, "small dim", anchor="middle"))
    return Picture(chart.name, chart.title, alternative_of(chart), WIDTH, bottom + 52, tuple(elements))


def _row_words(bar: Bar, top: int) -> Iterator[Element]:
    said = f"{bar.text} · {bar.note}" if bar.note else bar.text
    said = fitting(said, (RIGHT - LEFT) * 0.7, 13)
    room = RIGHT - LEFT - words_width(said, 13) - 10
    yield words(LEFT, top + 14, fitting(bar.label, room, 13), "strong")
    yield words(RIGHT, top + 14, said, "end")


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
            yield words(
                x,
                bottom + 12,
                f"{index * step:+g}".replace("-", "−") if index else "0",
                "small dim",
                anchor="middle",
            )
