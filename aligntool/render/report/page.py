"""Build the HTML report: show measurements as charts and tables, and render the page."""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from math import log10
from statistics import median

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from aligntool import __version__
from aligntool.audit.report import MeasuredDisk, Severity
from aligntool.commands import is_by_hand
from aligntool.measure import compare
from aligntool.measure.alignment import AlignmentVerdict, Row
from aligntool.measure.fio import Pattern
from aligntool.measure.results import Conditions, Data, Result, warnings_of
from aligntool.measure.results import Series as Figures
from aligntool.measure.sweeps import Spans, Starts
from aligntool.raid.ceilings import ceiling_words
from aligntool.raid.running import ArrayView
from aligntool.recipes.goals import BenchTest
from aligntool.render import svg
from aligntool.render.bench import FIGURES, drive_facts, figure_cells
from aligntool.render.experiments import host_memory_words, knee_facts, range_words, setting_words
from aligntool.render.lines import harmless
from aligntool.render.report import disks, rows
from aligntool.units import counted, format_about, format_rate, format_size, significant

# The conditions of a measurement, as words for the page.


def condition_rows(seen: Conditions) -> Iterator[tuple[str, str]]:
    """Yield each known condition: its name and its text."""
    for drive in seen.drives:
        yield drive.name, ", ".join(drive_facts(drive)) or "nothing known"
    cores = f" ({seen.cores} cores)" if seen.cores else ""
    room = f", {format_about(seen.free)} free" if seen.free is not None else ""
    caches = "dropped" if seen.caches_dropped else "not dropped"
    machine = (
        ("kernel", seen.kernel),
        ("processor", f"{seen.processor or ''}{cores}".strip()),
        ("governor", seen.governor),
        ("file system", f"{seen.filesystem}{room}" if seen.filesystem else ""),
        ("caches", caches if seen.kernel else ""),
        ("fio", seen.fio),  # older files have no kernel
    )
    yield from ((word, text) for word, text in machine if text)


# Results of `aligntool bench alignment` and `aligntool bench span` as charts: predicted and measured, and the
# knee.

MOST_STARTS = 40
"""Most bars that are drawn; the table has every start."""
_EXPERIMENT_KINDS = {
    AlignmentVerdict.MATTERS: "bad",
    AlignmentVerdict.DOES_NOT: "good",
    AlignmentVerdict.CANNOT_TELL: "unknown",
}


def show_experiment(experiment: Starts | Spans, number: int) -> disks.Measured:
    """Return an experiment as the page shows it. `number`: its number on the page."""
    shown = _alignment(experiment, number) if isinstance(experiment, Starts) else _span(experiment, number)
    name = "alignment" if isinstance(experiment, Starts) else "span"
    subject = ", ".join(
        word for word in (f"bench {name} on {experiment.target}", experiment.conditions.drive) if word
    )
    incomplete = "" if experiment.complete else "incomplete: it was interrupted, or fio failed"
    summary = ", ".join(
        word for word in (disks.when_words(experiment.when), shown.summary, incomplete) if word
    )
    rows = [
        *condition_rows(experiment.conditions),
        *([("runs", setting_words(experiment.setting))] if experiment.setting else []),
    ]
    return replace(
        shown,
        title=f"{number}. {subject}",
        summary=summary,
        conditions=tuple(rows),
        about=(subject, summary),
        notes=(*shown.notes, *(f"warning: {each}" for each in experiment.warnings)),
    )


def _alignment(experiment: Starts, number: int) -> disks.Measured:
    rows = experiment.rows
    bars = tuple(_bars(rows))[:MOST_STARTS]
    unit = "share of the aligned rate; | is the prediction"
    name = f"bench-{number}-alignment"
    title = "Rate at starts off the boundary"
    chart = svg.BarChart(name, title, unit, bars, tabled=True, quarters=True)
    summary = f"{experiment.summary} ({experiment.unit_by})"
    alike: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        alike.setdefault((row.load.title, f"{row.word}; {row.why}"), []).append(row.place.title)
    notes = tuple(f"{load}, {', '.join(places)}: {verdict}" for (load, verdict), places in alike.items())
    figures = tuple(_start_figures(rows, experiment))
    return disks.Measured(
        "", summary, (chart,) if bars else (), figures, notes, (), _losses(rows, experiment)
    )


def _start_figures(rows: Sequence[Row], experiment: Starts) -> Iterator[tuple[str, ...]]:
    """Yield a row for every start of every load, aligned ones included; nothing if there are no rows."""
    judged = {(row.load, row.place): row for row in rows}
    if rows:
        yield ("start", "IOPS", "range of IOPS", "CPU of a core", "predicted", "measured", "range", "note")
    for load in dict.fromkeys(row.load for row in rows):
        yield (load.title,)
        of_load = [rate for rate in experiment.rates if rate.load == load]
        for place in sorted({rate.place for rate in of_load}, key=lambda place: (place.start, place.title)):
            rates = [rate.iops for rate in of_load if rate.place == place]
            used = [rate.cpu for rate in of_load if rate.place == place and rate.cpu is not None]
            yield (place.title, *_rate_cells(rates, used), *_share_cells(judged.get((load, place))))


def _rate_cells(rates: Sequence[float], used: Sequence[float]) -> tuple[str, str, str]:
    cpu = f"{median(used):.0f}%" if used else "–"
    return f"{median(rates):,.0f}", f"{min(rates):,.0f}–{max(rates):,.0f}", cpu


def _share_cells(row: Row | None) -> tuple[str, str, str, str]:
    """Return the cells for the shares of a row. None: an aligned start, to which the others are compared."""
    if row is None:
        return "1", "–", "–", "aligned"
    note = f"{row.word}{', CPU-bound' if row.cpu_bound else ''}"
    measured = (f"{row.ratio:.2f}", range_words(row.low, row.high)) if row.high else ("–", "–")
    return f"{row.predicted:.2f}", *measured, note


def _bars(rows: Sequence[Row]) -> Iterator[svg.Bar]:
    """Yield for each load the noise of two aligned starts, then the measured and predicted share of the
    others.
    """
    for load in dict.fromkeys(row.load for row in rows if row.high):
        of_load = [row for row in rows if row.load == load]
        noise = range_words(*of_load[0].noise)
        yield svg.Bar(load.title, 1.0, f"two aligned starts: {noise}", kind="head")
        for row in of_load:
            share, low, high = (row.ratio, row.low, row.high) if row.high else (None, None, None)
            text = f"{'–' if share is None else f'{share:.2f}'} (predicted {row.predicted:.2f})"
            kind = "unknown" if share is None else _EXPERIMENT_KINDS.get(row.word, "unknown")
            yield svg.Bar(
                row.place.title,
                share or 0.0,
                text,
                low,
                high,
                kind,
                row.word.value,
                range_words(row.low, row.high),
                row.predicted,
            )


def _losses(rows: Sequence[Row], found: Starts) -> tuple[disks.Loss, ...]:
    """Return the losses of random writes, which the audit predicts."""
    one = found.disk
    disk = MeasuredDisk(one.name, one.path, one.size, (), one.serial, one.wwn) if one else None
    return tuple(
        disks.Loss(
            found.unit,
            row.load.block,
            row.place.residue,
            disk,
            found.target,
            f"{row.ratio:.2f} ({range_words(row.low, row.high)}), {row.word} ({row.place.title})",
        )
        for row in rows
        if row.load.pattern is Pattern.RANDOM_WRITE and row.high
    )


def _span(found: Spans, number: int) -> disks.Measured:
    verb = "write" if found.write else "read"
    points = tuple(
        svg.Point(
            span,
            format_about(span),
            median(rates),
            f"{median(rates):,.0f}",
            min(rates),
            max(rates),
            f"{min(rates):,.0f}–{max(rates):,.0f}",
        )
        for span, rates in sorted(found.curve.items())
    )
    knee = found.knee
    mark = None
    if knee.below is not None and knee.above is not None and knee.sure:
        mark = svg.Mark(knee.below, f"knee: {format_about(knee.below)}–{format_about(knee.above)}")
    chart = svg.CurveChart(
        f"bench-{number}-span",
        f"4 KiB random {verb} at QD32 over spans that double",
        "span",
        "IOPS",
        (svg.Series(f"random {verb}, 4KiB QD32", points, found.write),),
        mark=mark,
        tabled=True,
    )
    rows = [
        (format_about(span), *_rate_cells(rates, found.cpu.get(span, ())))
        for span, rates in sorted(found.curve.items())
    ]
    figures = (("span", "IOPS", "range of IOPS", "CPU of a core"), *rows)
    notes = (*([found.beyond] if found.beyond else []), *host_memory_words(found.nvme))
    summary = "; ".join(word for word in (found.summary, knee_facts(knee)) if word)
    return disks.Measured("", summary, (chart,), figures, notes)


# Results of benchmarks as charts: rates as bars; sweeps, threads, passes and rounds as curves; two results as
# ratios.

LEAST_CURVE_POINTS = 3  # fewest points of a curve
_HEADS = {"range": "range of MB/s", "CPU": "CPU of a core", "busy": "cores busy"}
_NOTES = {compare.Verdict.SINGLE: "too few runs", compare.Verdict.CPU: "CPU-bound"}
_RESULT_KINDS = {compare.Verdict.FASTER: "good", compare.Verdict.SLOWER: "bad", compare.Verdict.CPU: "doubt"}

Numbered = tuple[int, Result]
Groups = dict[tuple[object, ...], list[Figures]]


def show_measurements(results: Sequence[Result | Starts | Spans]) -> tuple[disks.Measured, ...]:
    """Return each result, then each later one compared with the first of its profile."""
    shown = [
        _result_shown(result, number) if isinstance(result, Result) else show_experiment(result, number)
        for number, result in enumerate(results, 1)
    ]
    pairs: list[tuple[Numbered, Numbered]] = []
    firsts: dict[str, Numbered] = {}
    for number, result in enumerate(results, 1):
        if isinstance(result, Result) and (
            first := firsts.setdefault(result.settings.profile, (number, result))
        ):
            pairs += [(first, (number, result))] if first[0] != number else []
    found = compare.compare_all([(first[1], other[1]) for first, other in pairs])
    lines = sum(map(len, found))
    shown += [
        _compared(first, other, ratios, lines) for (first, other), ratios in zip(pairs, found, strict=True)
    ]
    return tuple(shown)


def _result_shown(result: Result, number: int) -> disks.Measured:
    settings = result.settings
    passes = settings.passes
    repeats = settings.repeats
    runs = f"medians of {repeats} runs with their range" if repeats > 1 else "one run of each"
    runs = "rounds until steady" if settings.until_steady else runs
    summary = [
        disks.when_words(result.when),
        f"{format_size(settings.span)} {'with direct I/O' if settings.direct else 'BUFFERED'}",
        f"{max(passes)} passes over the same data" if passes else runs,
        "zero-filled data" if settings.data is Data.ZERO else "",
        f"pauses of {settings.pause_s:g} s" if settings.pause_s else "",
        "" if result.complete else "incomplete: it was interrupted, or fio failed",
    ]
    notes = (
        *compare.result_notes(result),
        *(f"left out: {test_skipped}" for test_skipped in result.skipped),
        *(f"warning: {warning}" for warning in warnings_of(result.conditions, direct=settings.direct)),
    )
    conditions = (
        *condition_rows(result.conditions),
        ("run", f"engine {settings.engine}, {settings.runtime_s:g} s each"),
        ("aligntool", result.aligntool),
    )
    charts = tuple(_charts(result, f"bench-{number}"))
    name = _subject_of(result)
    text = ", ".join(filter(None, summary))
    return disks.Measured(
        f"{number}. {name}", text, charts, _figures(result), notes, conditions, about=(name, text)
    )


def _subject_of(result: Result) -> str:
    """Return "crystaldiskmark on /srv, Samsung SSD 980"."""
    words = (f"{result.settings.profile} on {result.target}", result.conditions.drive)
    return ", ".join(word for word in words if word)


def _figures(result: Result) -> svg.Rows:
    """Return the table that `aligntool bench` shows on a terminal, with the same columns."""
    heads = tuple(_HEADS.get(name, name) for name in FIGURES)
    bound = any(series.held_back for series in result.series)
    rows = [
        (series.test.title, *figure_cells(series), *((series.held_back,) if bound else ()))
        for series in result.series
    ]
    return (("test", *heads, *(("note",) if bound else ())), *rows) if rows else ()


def _charts(result: Result, name: str) -> Iterator[svg.Chart]:
    if result.settings.passes or result.settings.until_steady:
        yield from _course_charts(result, name)
        return
    blocks = _groups(result, lambda test: (test.random, test.depth, test.threads), lambda test: test.block)
    threads = _groups(result, lambda test: (test.random, test.block, test.depth), lambda test: test.threads)
    drawn = {series.test for groups in (blocks, threads) for group in groups.values() for series in group}
    rest = [series for series in result.series if series.test not in drawn]
    for number, group in enumerate(blocks.values(), 1):
        yield _sweep_chart(group, f"{name}-sizes-{number}", sizes=True)
    for number, group in enumerate(threads.values(), 1):
        yield _sweep_chart(group, f"{name}-threads-{number}", sizes=False)
    for random, title in ((False, "Sequential"), (True, "Random")):
        bars = tuple(_bar(series, random=random) for series in rest if series.test.random is random)
        if bars:
            unit = "IOPS" if random else "MB/s (10^6 bytes a second)"
            yield svg.BarChart(
                f"{name}-{title.lower()}", f"{title}, {unit.split()[0]}", unit, bars, tabled=True
            )


def _groups(
    result: Result, key_of: Callable[[BenchTest], tuple[object, ...]], swept_value: Callable[[BenchTest], int]
) -> Groups:
    """Group the tests that are alike except for the swept parameter and their direction. Mixed tests are
    omitted.
    """
    groups: Groups = {}
    for series in result.series:
        if series.test.reads is None:
            groups.setdefault(key_of(series.test), []).append(series)
    return {
        key: group
        for key, group in groups.items()
        if len({swept_value(series.test) for series in group}) >= LEAST_CURVE_POINTS
    }


def _bar(figures: Figures, *, random: bool) -> svg.Bar:
    value, low, high, text, range_ = _value_and_range(figures, rate=not random)
    kind = figures.test.does if figures.test.reads is None else "plain"
    return svg.Bar(figures.test.title, value, text, low, high, kind, figures.held_back, range_)


def _value_and_range(figures: Figures, *, rate: bool) -> tuple[float, float, float, str, str]:
    """Return median, minimum and maximum in MB/s or IOPS, then the median and the range as words."""
    spread, factor = (figures.rate, 1e6) if rate else (figures.iops, 1.0)
    value, low, high = (number / factor for number in (spread.median, spread.low, spread.high))
    form: Callable[[float], str] = significant if rate else "{:,.0f}".format
    range_ = f"{form(low)}–{form(high)}" if spread.count > 1 else "one run"
    return value, low, high, f"{form(value)} {'MB/s' if rate else 'IOPS'}", range_


def _sweep_chart(group: Sequence[Figures], name: str, *, sizes: bool) -> svg.CurveChart:
    """Return a chart of rates over request sizes, or of IOPS over threads, for reads and for writes."""
    test = group[0].test
    if sizes:
        kind = "random" if test.random else "sequential"
        title = f"Rate over request size, {kind}, QD{test.depth}"
        heads = ("request", "MB/s (10^6 bytes a second)")
    else:
        title = f"IOPS over threads, {format_size(test.block)} requests, QD{test.depth} each"
        heads = ("threads", "IOPS")
    series = tuple(
        svg.Series("write" if write else "read", points, write)
        for write in (False, True)
        if (points := tuple(_sweep_point(each, sizes=sizes) for each in group if each.test.write is write))
    )
    return svg.CurveChart(name, title, *heads, series, tabled=True, decades=sizes)


def _sweep_point(figures: Figures, *, sizes: bool) -> svg.Point:
    value, low, high, text, range_ = _value_and_range(figures, rate=sizes)
    text += f", {figures.held_back}" if figures.held_back else ""
    x = figures.test.block if sizes else figures.test.threads
    return svg.Point(x, format_size(x) if sizes else str(x), value, text, low, high, range_)


def _course_charts(result: Result, name: str) -> Iterator[svg.CurveChart]:
    """Yield a curve for each test of passes over the same data, or of rounds until steady, which are not
    repeats.
    """
    passes = bool(result.settings.passes)
    word, unit = ("pass", "MB/s") if passes else ("round", "IOPS")
    for number, each in enumerate(result.series, 1):
        values = [
            (sample.number, sample.bytes_per_s / 1e6 if passes else sample.iops) for sample in each.samples
        ]
        points = tuple(svg.Point(at, str(at), value, f"{value:,.1f} {unit}") for at, value in values)
        title = f"{each.test.title}, {word} by {word}"
        series = (svg.Series(each.test.title, points, each.test.write if each.test.reads is None else None),)
        yield svg.CurveChart(f"{name}-{word}-{number}", title, word, unit, series, doubling=False)


def _compared(
    before: Numbered, after: Numbered, ratios: Sequence[compare.Ratio], lines: int
) -> disks.Measured:
    """Return the comparison of two results. `lines`: the number of ratios on the whole page."""
    first = before[1]
    (number, other) = after
    a, b = (f"{at}. {result.conditions.drive or result.target}" for at, result in (before, after))
    title = f"{b} compared with {a}: log10 of the ratio of rates"
    bars = tuple(map(_ratio_bar, ratios))
    chart = svg.RatioChart(f"ratio-{number}", title, a, b, bars)
    chance = f"chance is taken into account for {lines} lines"
    notes = [f"“faster” and “slower” are valid if nothing else changed in between; {chance}"]
    notes += [f"difference: {difference.words}" for difference in compare.differences(first, other)]
    notes += [
        f"warning: {who}: {doubt}" for who, side in ((a, first), (b, other)) for doubt in compare.doubts(side)
    ]
    notes += [f"warning: {warning}" for warning in compare.unmatched((first, other))]
    summary = f"log10 of {b} / {a} in bytes per second" if ratios else "they have no test in common"
    about = tuple(
        f"{at}. {_subject_of(result)}, {disks.when_words(result.when)}" for at, result in (before, after)
    )
    return disks.Measured(
        f"{b} compared with {a}", summary, (chart,) if ratios else (), notes=tuple(notes), about=about
    )


def _ratio_bar(ratio: compare.Ratio) -> svg.Bar:
    low = high = None
    if ratio.before.low > 0 and ratio.after.low > 0:
        low, high = log10(ratio.after.low / ratio.before.high), log10(ratio.after.high / ratio.before.low)
    kind = _RESULT_KINDS.get(ratio.verdict, "unknown")
    times = f"{ratio.times:.2f}" if 0.1 <= ratio.times < 100 else significant(ratio.times)
    text = f"{_signed(ratio.log_ratio)} ({times}×)"
    range_text = "" if low is None or high is None else f"{_signed(low)} to {_signed(high)}"
    note = _NOTES.get(ratio.verdict, ratio.verdict.value)
    return svg.Bar(ratio.test.title, ratio.log_ratio, text, low, high, kind, note, range_text)


def _signed(value: float) -> str:
    """Return "−0.30" or "+1.00"; a value that rounds to zero has no sign."""
    text = f"{value:+.2f}".replace("-", "−")
    return "0.00" if text[1:] == "0.00" else text


# The page from its content. All text is made harmless first and then escaped by the template, so that no name
# on a disk is ever markup; the page forbids the network and all scripts but its own.

LONGEST = 1200
"""Most characters of one text on the page; the length of a name on a disk is not limited."""


def page_html(content: disks.Content) -> str:
    report = content.report
    counts = [report.count_answers(answer) for answer, _, _ in disks.ANSWERS]
    return render_page(
        "page.html",
        ("page.css", "picture.css"),
        content=content,
        report=report,
        headline=disks.headline(report),
        cost=disks.cost_words(report),
        bar=disks.answer_bar(counts),
        legend=legend_of(counts),
        starts=counted(sum(counts), "start"),
        problems=", ".join(
            counted(report.count(severity), _SEVERITY_WORDS[severity]) for severity in Severity
        ),
        next=rows.next_steps(report),
        disks=rows.machine_of(content),
        explained=rows.explained_codes(report),
        tree=disks.tree_of(report, content.arrays),
        measured=content.measured,
        arrays=[
            (
                array,
                _alike_members(array),
                ceiling_words(array.ceiling),
                disks.ceiling_chart(array, report, number, content.rates),
            )
            for number, array in enumerate(content.arrays, 1)
        ],
        queue=svg.queue_picture(),
    )


def _alike_members(array: ArrayView) -> list[tuple[str, ...]]:
    """Return the names of the members that differ in nothing else, their link, data and model, a row each."""
    rows: dict[tuple[str | None, ...], list[str]] = {}
    for member in array.members:
        rows.setdefault((member.link, member.data, member.model), []).append(member.name)
    return [(", ".join(names), *(word or "" for word in known)) for known, names in rows.items()]


_SEVERITY_WORDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def legend_of(counts: Sequence[int]) -> list[tuple[int, str, str]]:
    """Return the number of starts with each answer, its word, and the style of its part of the bar."""
    return [(count, word, style) for count, (_, word, style) in zip(counts, disks.ANSWERS, strict=True)]


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("aligntool.render.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "svg": _svg,
        "chart": lambda chart: _svg(svg.picture_of(chart)),
        "rows": svg.table_of,
        "size": format_size,
        "about": format_about,
        "rate": format_rate,
        "when": disks.when_words,
        "by_hand": is_by_hand,
        "name": _name_markup,
    }
    return environment


def _harmless_value(value: object) -> object:
    """Make a value harmless before it enters the page. Markup is ours; anything else may come from a disk."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return harmless(value if len(value) <= LONGEST else value[:LONGEST] + "…")


def _name_markup(name: str) -> Markup:
    """Return a name that is broken after a dot or a slash rather than inside a word."""
    return Markup("<wbr>").join(re.split(r"(?<=[._:/])", str(_harmless_value(name))))


def _svg(picture: svg.Picture) -> Markup:
    return Markup(svg.svg_text(picture, alone=False))  # written by an XML writer, which escapes


def _policy(styles: str, script: str) -> str:
    """Allow no network, and only this style and this script, by their digests (Content Security Policy Level
    3).
    """
    style, own = (b64encode(sha256(text.encode()).digest()).decode() for text in (styles, script))
    allowed = f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{own}'"
    return f"{allowed}; img-src data:; base-uri 'none'; form-action 'none'"


def render_page(
    template: str,
    sheets: Sequence[str] = ("page.css",),
    scripts: Sequence[str] = ("copy.js",),
    **values: object,
) -> str:
    """Render a page from its template and style sheets. `scripts`: without them, it shows the same."""
    styles = "".join(map(svg.report_file, sheets))
    script = "".join(map(svg.report_file, scripts))
    own = {"styles": Markup(styles), "script": Markup(script), "policy": _policy(styles, script)}
    page = _environment().get_template(template)
    return page.render(version=__version__, **own, **values)
