"""Results of benchmarks as charts: rates as bars, sweeps, threads, passes and rounds as curves, two results as ratios.

In: results, as `aligntool bench` keeps them. Out: what the page shows of each. Alone because which figures make a curve
is decided by the figures: three sizes are a sweep, three numbers of threads a thread curve.
"""

from collections.abc import Callable, Iterator, Sequence
from math import log10

from aligntool.bench.compare import Ratio, Verdict, compare_all, differences, doubts, unmatched
from aligntool.bench.conditions import warnings_of
from aligntool.bench.experiments import Spans, Starts
from aligntool.bench.meaning import meaning
from aligntool.bench.results import Result, Spread
from aligntool.bench.results import Series as Figures
from aligntool.recipe import BenchTest
from aligntool.render.bench import FIGURES, figure_cells
from aligntool.render.report.conditions import condition_rows
from aligntool.render.report.experiments import experiment_shown
from aligntool.render.report.measured import Measured, when_words
from aligntool.render.svg_charts import Bar, BarChart, Chart, CurveChart, Point, RatioChart, Rows, Series
from aligntool.units import format_size, significant

ENOUGH = 3  # points that make a curve
_HEADS = {"range": "range of MB/s", "CPU": "CPU of a core", "busy": "cores busy"}
_NOTES = {Verdict.SINGLE: "too few runs", Verdict.CPU: "CPU-bound"}
_KINDS = {Verdict.FASTER: "good", Verdict.SLOWER: "bad", Verdict.CPU: "doubt"}

Numbered = tuple[int, Result]
Groups = dict[tuple[object, ...], list[Figures]]


def measured_of(results: Sequence[Result | Starts | Spans]) -> tuple[Measured, ...]:
    """Each result, and each of the later ones beside the first of its profile."""
    shown = [
        _one(result, number) if isinstance(result, Result) else experiment_shown(result, number)
        for number, result in enumerate(results, 1)
    ]
    pairs = list(_pairs(results))
    found = compare_all([(first[1], other[1]) for first, other in pairs])
    lines = sum(map(len, found))
    shown += [
        _beside(first, other, ratios, lines) for (first, other), ratios in zip(pairs, found, strict=True)
    ]
    return tuple(shown)


def _pairs(results: Sequence[Result | Starts | Spans]) -> Iterator[tuple[Numbered, Numbered]]:
    firsts: dict[str, Numbered] = {}
    for number, result in enumerate(results, 1):
        if isinstance(result, Result):
            first = firsts.setdefault(result.settings.profile, (number, result))
            if first[0] != number:
                yield first, (number, result)


def _one(result: Result, number: int) -> Measured:
    settings = result.settings
    charts = tuple(_charts(result, f"bench-{number}"))
    direct = "past the page cache" if settings.direct else "BUFFERED"
    summary = [
        when_words(result.when), f"{format_size(settings.span)} {direct}",
        _runs(result),
        "" if result.complete else "not complete: it was interrupted, or fio failed",
    ]  # fmt: skip
    notes = (
        *meaning(result),
        *(f"left out: {each}" for each in result.skipped),
        *(f"warning: {each}" for each in warnings_of(result.conditions, direct=settings.direct)),
    )
    title = f"{number}. {_named(result)}"
    told = ", ".join(each for each in summary if each)
    return Measured(
        title, told, charts, _figures(result), notes, tuple(_conditions(result)), about=(_named(result), told)
    )


def _named(result: Result) -> str:
    """ "crystaldiskmark on /srv, Samsung SSD 980"."""
    drive = next((drive.model or drive.name for drive in result.conditions.drives), "")
    return ", ".join(word for word in (f"{result.settings.profile} on {result.target}", drive) if word)


def _figures(result: Result) -> Rows:
    """What `aligntool bench` shows on a terminal, in the same columns."""
    heads = tuple(_HEADS.get(name, name) for name in FIGURES)
    bound = any(each.held_back for each in result.series)
    rows = [
        (each.test.title, *figure_cells(each), *((each.held_back,) if bound else ()))
        for each in result.series
    ]
    return (("test", *heads, *(("note",) if bound else ())), *rows) if rows else ()


def _runs(result: Result) -> str:
    settings = result.settings
    if settings.passes:
        return f"{max(settings.passes)} passes over the same data"
    if settings.until_steady:
        return "rounds until it is steady"
    return (
        f"medians of {settings.repeats} runs with their range" if settings.repeats > 1 else "one run of each"
    )


def _charts(result: Result, name: str) -> Iterator[Chart]:
    if result.settings.passes or result.settings.until_steady:
        yield from _courses(result, name)
        return
    blocks = _groups(result, lambda test: (test.random, test.depth, test.threads), lambda test: test.block)
    threads = _groups(result, lambda test: (test.random, test.block, test.depth), lambda test: test.threads)
    drawn = {each.test for groups in (blocks, threads) for group in groups.values() for each in group}
    rest = [each for each in result.series if each.test not in drawn]
    for number, group in enumerate(blocks.values(), 1):
        yield _size_sweep(group, f"{name}-sizes-{number}")
    for number, group in enumerate(threads.values(), 1):
        yield _thread_curve(group, f"{name}-threads-{number}")
    for random, title in ((False, "Sequential"), (True, "Random")):
        bars = tuple(_bar(each, random=random) for each in rest if each.test.random is random)
        if bars:
            unit = "IOPS" if random else "MB/s (10^6 bytes a second)"
            yield BarChart(f"{name}-{title.lower()}", f"{title}, {unit.split()[0]}", unit, bars, tabled=True)


def _groups(
    result: Result, alike: Callable[[BenchTest], tuple[object, ...]], swept: Callable[[BenchTest], int]
) -> Groups:
    """Tests that differ in one thing, and their direction, alone."""
    found: Groups = {}
    for each in result.series:
        found.setdefault(alike(each.test), []).append(each)
    return {key: group for key, group in found.items() if len({swept(each.test) for each in group}) >= ENOUGH}


def _bar(each: Figures, *, random: bool) -> Bar:
    spread = each.iops if random else each.rate
    note = each.held_back
    if random:
        value, low, high = spread.median, spread.low, spread.high
        text = f"{value:,.0f} IOPS"
    else:
        value, low, high = (rate / 1e6 for rate in (spread.median, spread.low, spread.high))
        text = f"{significant(value)} MB/s"
    lasting = _range(spread, low, high, _whole if random else significant)
    return Bar(each.test.title, value, text, low, high, "doubt" if note else "plain", note, lasting)


def _range(spread: Spread, low: float, high: float, form: Callable[[float], str]) -> str:
    return f"{form(low)}–{form(high)}" if spread.count > 1 else "one run"


def _size_sweep(group: Sequence[Figures], name: str) -> CurveChart:
    test = group[0].test
    kind = "random" if test.random else "sequential"
    points = {
        write: tuple(
            _point(
                each.test.block,
                format_size(each.test.block),
                each.rate,
                1e6,
                "MB/s",
                held_back=each.held_back,
            )
            for each in group
            if each.test.write is write
        )
        for write in (False, True)
    }
    title = f"Rate over request size, {kind}, QD{test.depth}"
    return CurveChart(name, title, "request", "MB/s (10^6 bytes a second)", _sides(points), tabled=True)


def _thread_curve(group: Sequence[Figures], name: str) -> CurveChart:
    test = group[0].test
    points = {
        write: tuple(
            _point(each.test.threads, str(each.test.threads), each.iops, 1, "IOPS", held_back=each.held_back)
            for each in group
            if each.test.write is write
        )
        for write in (False, True)
    }
    title = f"IOPS over threads, {format_size(test.block)} requests, QD{test.depth} each"
    return CurveChart(name, title, "threads", "IOPS", _sides(points), tabled=True)


def _courses(result: Result, name: str) -> Iterator[CurveChart]:
    """Passes over the same data, or rounds until steady: not repeats, but a course."""
    passes = bool(result.settings.passes)
    word, unit = ("pass", "MB/s") if passes else ("round", "IOPS")
    for number, each in enumerate(result.series, 1):
        points = []
        for sample in each.samples:
            value = sample.bytes_per_s / 1e6 if passes else sample.iops
            points.append(Point(sample.number, str(sample.number), value, f"{value:,.1f} {unit}"))
        series = (Series(each.test.title, tuple(points)),)
        title = f"{each.test.title}, {word} by {word}"
        yield CurveChart(f"{name}-{word}-{number}", title, word, unit, series, doubling=False)


def _point(x: int, text: str, spread: Spread, factor: float, unit: str, *, held_back: str = "") -> Point:
    value, low, high = (each / factor for each in (spread.median, spread.low, spread.high))
    form = significant if factor > 1 else _whole
    told = f"{form(value)} {unit}" + (f", {held_back}" if held_back else "")
    return Point(x, text, value, told, low, high, _range(spread, low, high, form))


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _sides(points: dict[bool, tuple[Point, ...]]) -> tuple[Series, ...]:
    return tuple(Series("write" if write else "read", found) for write, found in points.items() if found)


def _beside(before: Numbered, after: Numbered, ratios: Sequence[Ratio], lines: int) -> Measured:
    """`lines`: that are put side by side on the page."""
    (one, first), (number, other) = before, after
    a, b = _who(first, one), _who(other, number)
    bars = tuple(map(_ratio_bar, ratios))
    chart = RatioChart(f"ratio-{number}", f"{b} beside {a}: log10 of the ratio of rates", a, b, bars)
    summary = f"log10 of bytes a second of {b} over {a}" if bars else "they have no test in common"
    about = tuple(
        f"{which}. {_named(each)}, {when_words(each.when)}" for which, each in ((one, first), (number, other))
    )
    notes = [
        f"“faster” and “slower” hold if nothing else changed in between; they reckon with chance in {lines} lines"
    ]
    notes += [f"not the same: {each.words}" for each in differences(first, other)]
    notes += [f"warning: {who}: {each}" for who, side in ((a, first), (b, other)) for each in doubts(side)]
    return Measured(
        f"{b} beside {a}", summary, (chart,) if bars else (),
        notes=(*notes, *(f"warning: {each}" for each in unmatched((first, other)))), about=about,
    )  # fmt: skip


def _who(result: Result, number: int) -> str:
    name = next((drive.model or drive.name for drive in result.conditions.drives), result.target)
    return f"{number}. {name}"


def _ratio_bar(each: Ratio) -> Bar:
    low = high = None
    if each.before.low > 0 and each.after.low > 0:
        low, high = log10(each.after.low / each.before.high), log10(each.after.high / each.before.low)
    kind = _KINDS.get(each.verdict, "unknown")
    text = f"{_signed(each.log_ratio)} ({_times(each.times)}×)"
    told = "" if low is None or high is None else f"{_signed(low)} to {_signed(high)}"
    note = _NOTES.get(each.verdict, each.verdict.value)
    return Bar(each.test.title, each.log_ratio, text, low, high, kind, note, told)


def _signed(value: float) -> str:
    """ "−0.30", "+1.00"; what rounds to nothing has no sign."""
    text = f"{value:+.2f}".replace("-", "−")
    return "0.00" if text[1:] == "0.00" else text


def _times(value: float) -> str:
    return f"{value:.2f}" if 0.1 <= value < 100 else significant(value)


def _conditions(result: Result) -> Iterator[tuple[str, str]]:
    yield from condition_rows(result.conditions)
    yield "run", f"engine {result.settings.engine}, {result.settings.runtime_s:g} s each"
    yield "aligntool", result.aligntool
