"""What charts are drawn from: plain values, already in the unit and the words in which they are to be read.

In: nothing. Out: charts, and each as a table for whoever cannot see it. Alone because whatever measures something
makes these, and whatever draws needs nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """`value` and the range around it, in the chart's unit; `text` and `range_text`: the same as they are read."""

    label: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None
    kind: str = "plain"  # "good", "bad", "doubt": how it is drawn; `note` must say the same in words
    note: str = ""
    range_text: str = ""


@dataclass(frozen=True, slots=True)
class BarChart:
    name: str
    title: str
    unit: str
    bars: tuple[Bar, ...]
    note: str = ""
    tabled: bool = False  # its figures stand in a table of the result already


@dataclass(frozen=True, slots=True)
class RatioChart:
    """log10 of the second over the first: 0 is equal, -1 ten times slower. A bar's `value`, `low` and `high` are
    those logarithms."""

    name: str
    title: str
    first: str
    second: str
    bars: tuple[Bar, ...]
    tabled: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """`x` in the chart's unit, and as it is read; the value with its range."""

    x: float
    x_text: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None
    range_text: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on the x axis that means something: the knee of a sweep."""

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
    mark: Mark | None = None
    note: str = ""
    tabled: bool = False


Chart = BarChart | RatioChart | CurveChart
Rows = tuple[tuple[str, ...], ...]


def table_of(chart: Chart) -> Rows:
    """The chart as rows of words, the heads first."""
    match chart:
        case BarChart():
            return _bar_rows(chart.unit, chart.bars)
        case RatioChart():
            return _bar_rows(f"log10 of {chart.second} / {chart.first}", chart.bars)
        case CurveChart():
            return tuple(_curve_rows(chart))


def _bar_rows(unit: str, bars: tuple[Bar, ...]) -> Rows:
    """Columns in which nothing stands are left out."""
    rows = [("", unit, "range", "note"), *((bar.label, bar.text, bar.range_text, bar.note) for bar in bars)]
    used = [at for at in range(4) if at < 2 or any(row[at] for row in rows[1:])]
    return tuple(tuple(row[at] for at in used) for row in rows)


def _curve_rows(chart: CurveChart) -> Iterator[tuple[str, ...]]:
    yield (chart.x_title, *(f"{one.label}, {chart.y_title}" for one in chart.series))
    texts = {point.x: point.x_text for one in chart.series for point in one.points}
    known = [{point.x: point.text + _aside(point.range_text) for point in one.points} for one in chart.series]
    for x in sorted(texts):
        yield (texts[x], *(one.get(x, "–") for one in known))


def alternative_of(chart: Chart) -> str:
    """A chart in a sentence or two; the table has the rest."""
    match chart:
        case BarChart() | RatioChart():
            said = "; ".join(f"{bar.label}: {bar.text}{_aside(bar.note)}" for bar in chart.bars[:20])
            return said + ("; …" if len(chart.bars) > 20 else "")
        case CurveChart():
            said = "; ".join(_curve_words(one) for one in chart.series if one.points)
            return f"{chart.y_title} over {chart.x_title}. {said}" + (
                f". {chart.mark.text}" if chart.mark else ""
            )


def _aside(note: str) -> str:
    return f" ({note})" if note else ""


def _curve_words(series: Series) -> str:
    first, last = series.points[0], series.points[-1]
    return f"{series.label}: {first.text} at {first.x_text} to {last.text} at {last.x_text}"
