"""Show benchmark plans, results and comparisons as text and JSON."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from math import ceil, log10

from aligntool.commands import shell_word
from aligntool.measure import compare
from aligntool.measure import results as saved
from aligntool.measure.fio import fio_options, is_plain
from aligntool.measure.results import Conditions, Data, DriveState, HistoryEntry, Result, Series
from aligntool.measure.schedule import BenchPlan, filling, job_of, warm_up
from aligntool.measure.unit_design import LEAST_RUNS
from aligntool.render.json import Value, document_text, dumps
from aligntool.render.lines import (
    EMPTY,
    Line,
    Style,
    columns,
    fit,
    harmless,
    paragraph,
    plain,
    stacked,
    step_line,
)
from aligntool.units import counted, format_about, format_size, mb_s, time_words

# A benchmark and its result as text.

FIGURES = ("MB/s", "range", "IOPS", "p50 µs", "p99 µs", "p99.9 µs", "CPU", "busy")
"""The column headers."""
_LATENCIES = slice(4, 7)  # in a row that begins with its title
LEAST_BAR = 1e5  # bytes per second at the left end of a bar: random I/O on a hard disk
MOST_BAR = 2e10  # at its right end: above PCIe 5.0 x4


def bench_plan_lines(plan: BenchPlan, seen: Conditions, *, width: int) -> Iterator[Line]:
    """Yield what will be run, and the warnings known so far."""
    settings = plan.settings
    target = plan.target
    where = f"a file of {format_size(plan.room)} in {target.path}" if plan.makes_file else target.path
    yield (("benchmark  ", Style.TITLE), (f"{settings.profile} on {where}", Style.PLAIN))
    yield from drive_lines(seen.drives, width=width)
    word = "pass" if settings.passes else "round" if settings.until_steady else "repeat"
    count = counted(plan.rounds, word) if plan.rounds == 1 or not settings.passes else f"{plan.rounds} passes"
    times = f"{count}{' at most' if settings.until_steady else ''}"
    span = format_size(settings.span)
    run = f"each test over its own {span}" if settings.passes else f"{settings.runtime_s:g} s each"
    tests = counted(len(plan.tests), "test")
    over = "" if plan.makes_file or settings.passes else f", over its first {span}"
    rotational = any(drive.rotational for drive in seen.drives)
    kind = f" on a typical {'hard disk' if rotational else 'SSD'}" if settings.passes else ""
    duration = f"; about {time_words(round(plan.seconds(rotational=rotational)))}{kind}"
    filled = {0: "", 1: " after filling the file", 2: " after writing everything twice"}[plan.fills]
    if plan.added:
        tests += f" and {len(plan.added)} for the verdict on command queueing"
    zeros = ", zero-filled data" if settings.data is Data.ZERO else ""
    pauses = f", pauses of {settings.pause_s:g} s" if settings.pause_s else ""
    yield from paragraph(f"  {tests}, {times}{pauses}, {run}{over}{filled}{zeros}{duration}", width)
    if not plan.writes:
        yield plain("  nothing is written")
    if plan.makes_file:
        notes = [compare.JUST_WRITTEN] if settings.passes else []
        notes += [compare.steady_file(settings.span)] if settings.until_steady else []
        yield from note_lines(notes, width, "  ")
    yield from note_lines(plan.skipped, width, "  left out: ")
    yield from note_lines(saved.warnings_of(seen, direct=settings.direct), width, "  warning: ")


def command_lines(plan: BenchPlan) -> Iterator[Line]:
    """Yield each kind of run as a command to type. fio creates no file (allow_file_create), so it must exist.

    A path that fio would misread gets a symbolic link, as in a run.
    """
    path = f"{plan.target.path}/FILE" if plan.makes_file else plan.target.path
    if not is_plain(path):
        here = "" if path.startswith("/") else '"$PWD"/'
        yield ((f"ln -s {here}{shell_word(path)} fio-target", Style.TYPE),)
        path = "fio-target"
    jobs = [filling(plan, path)] if plan.fills else []
    jobs += [warm_up(plan, path)] if plan.settings.passes else []
    jobs += [job_of(plan, test, path) for test in plan.measured]
    for job in jobs:
        yield ((" ".join(("fio", *map(shell_word, fio_options(job)))), Style.TYPE),)


def result_lines(result: Result, *, width: int) -> Iterator[Line]:
    settings = result.settings
    incomplete = ("" if result.complete else "  (incomplete)", Style.DOUBT)
    yield ((settings.profile, Style.TITLE), (f"  {result.target}, {result.when}", Style.PLAIN), incomplete)
    yield from machine_lines(result.conditions, width=width, settings=settings)
    yield EMPTY
    yield from figure_lines(result.series, width=width)
    yield EMPTY
    yield from note_lines(compare.result_notes(result), width, "  ")
    yield from note_lines(result.skipped, width, "  left out: ")
    yield from note_lines(saved.warnings_of(result.conditions, direct=settings.direct), width, "  warning: ")


def figure_lines(series: Sequence[Series], *, width: int) -> Iterator[Line]:
    """Yield the figures as a table. MB/s are 10^6 bytes per second; the range covers the repeats; CPU is the
    share of one core for each thread; busy counts the busy cores of the whole machine. If a row is wider than
    the terminal, the latencies get a table of their own.
    """
    rows = [("", *FIGURES), *((f"  {each.test.title}", *figure_cells(each)) for each in series)]
    notes = [
        "",
        *(f"{each.held_back}{' NOT steady' if each.steady is False else ''}".strip() for each in series),
    ]
    for gap in (2, 1):
        texts = list(columns(rows, gap=gap))
        if max(map(len, texts)) <= width:
            yield from _noted_rows(texts, notes, width, series)
            return
    others = [(*row[: _LATENCIES.start], *row[_LATENCIES.stop :]) for row in rows]
    yield from _noted_rows(list(columns(others)), notes, width, series)
    yield EMPTY
    yield from _noted_rows(
        list(columns([(row[0], *row[_LATENCIES]) for row in rows])), [""] * len(rows), width, ()
    )


def _row_with_bar(text: str, begin: int, end: int, series: Series) -> Line:
    """Return a row with a bar behind its rate and range, as in KDiskMark; it is invisible without colour. The
    scale is logarithmic, from LEAST_BAR to MOST_BAR, so that 30 MB/s are visible next to 7000.
    """
    share = log10(max(series.rate.median, LEAST_BAR) / LEAST_BAR) / log10(MOST_BAR / LEAST_BAR)
    bar_end = begin + round(min(share, 1.0) * (end - begin))
    style = {"read": Style.READ, "write": Style.WRITE}.get(series.test.does, Style.MIXED)
    return ((text[:begin], Style.PLAIN), (text[begin:bar_end], style), (text[bar_end:], Style.PLAIN))


def _noted_rows(
    texts: Sequence[str], notes: Sequence[str], width: int, series: Sequence[Series]
) -> Iterator[Line]:
    """Yield a table; the first text is the header. A note that does not fit in its row goes below it.
    `series`: the series of the rows if their rates get a bar, up to the end of the range column.
    """
    begin = max((len(each.test.title) + 3 for each in series), default=0)
    end = texts[0].find("range") + len("range")
    for number, (text, note) in enumerate(zip(texts, notes, strict=True)):
        fits = bool(note) and len(text) + 1 + len(note) <= width
        row: Line = ((text, Style.PLAIN if number else Style.DIM),)
        row = _row_with_bar(text, begin, end, series[number - 1]) if number and series else row
        yield (*row, (f" {note}" if fits else "", Style.DOUBT))
        if note and not fits:
            yield ((f"    {note}", Style.DOUBT),)


def figure_cells(series: Series) -> tuple[str, ...]:
    """Return the cells of the columns in FIGURES."""
    rate = series.rate
    spread = f"{mb_s(rate.low)}–{mb_s(rate.high)}" if rate.count > 1 else "one run"
    busy = series.middle("busy_cores")
    cores = "–" if busy is None else f"{busy:.1f}"
    times = (_microseconds(series.middle(name)) for name in ("p50_us", "p99_us", "p999_us"))
    return (mb_s(rate.median), spread, f"{series.iops.median:,.0f}", *times, f"{series.cpu:.0f}%", cores)


def _microseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def drive_lines(drives: Sequence[DriveState], *, width: int) -> Iterator[Line]:
    for drive in drives:
        yield from _facts(f"{drive.name}  ", drive_facts(drive), width)


def drive_facts(drive: DriveState) -> list[str]:
    """Return what is known about a measured drive, without its name."""
    facts = (
        ("{}", drive.model),
        ("firmware {}", drive.firmware),
        ("{}", drive.array_level),
        ("{}", format_about(drive.size) if drive.size else None),
        ("link {}", drive.link),
        ("scheduler {}", drive.scheduler),
        ("depth {}", drive.queue_depth),
        ("{}", _temperature(drive)),
    )
    return [words.format(value) for words, value in facts if value]


def _facts(name: str, facts: Sequence[str], width: int) -> Iterator[Line]:
    yield from paragraph(f"  {name}{', '.join(fact for fact in facts if fact)}", width, style=Style.DIM)


def _temperature(drive: DriveState) -> str:
    if drive.temperature_c is None:
        return ""
    after = drive.temperature_after_c
    return f"{drive.temperature_c:g} °C" if after is None else f"{drive.temperature_c:g} → {after:g} °C"


def machine_lines(seen: Conditions, *, width: int, settings: saved.Settings | None = None) -> Iterator[Line]:
    """Yield the conditions of a measurement. `settings`: of a benchmark; an experiment shows its own."""
    yield from drive_lines(seen.drives, width=width)
    facts = [f"kernel {seen.kernel}" if seen.kernel else "", seen.fio]
    facts += (
        [f"engine {settings.engine}", "direct I/O" if settings.direct else "BUFFERED"] if settings else []
    )
    facts += [f"governor {seen.governor}" if seen.governor else "", seen.filesystem or ""]
    if settings:
        facts += [
            f"{format_about(seen.free)} free" if seen.free else "",
            f"over {format_size(settings.span)}",
        ]
        facts[-1] += " per test" if settings.passes else ""
        facts += ["zero-filled data" if settings.data is Data.ZERO else ""]
        facts += ["" if seen.caches_dropped else "caches not dropped (needs root)"]
    if any(facts):
        yield from _facts("", facts, width)


def note_lines(sentences: Iterable[str], width: int, before: str) -> Iterator[Line]:
    """Yield the sentences, each with `before` at its start; its spaces set the indent of the lines that
    follow.
    """
    style = Style.DOUBT if "warning" in before else Style.PLAIN
    indent = " " * (len(before) - len(before.lstrip()) + 2)
    for sentence in sentences:
        yield from paragraph(f"{before}{sentence}", width, indent, style)


# Results compared: log10 of the ratios as bars; and the list of stored results.

_MOST_HALF = 16  # columns of the picture on each side of zero, at most
_OTHER_COLUMNS = 34  # columns besides the picture and the title: line, numbers, verdict
_STYLES = {compare.Verdict.FASTER: Style.GOOD, compare.Verdict.SLOWER: Style.BAD}
_SIGNS = {
    compare.Verdict.NOISE: "noise",
    compare.Verdict.SINGLE: "?",
    compare.Verdict.UNSTEADY: "?",
    compare.Verdict.CPU: "CPU-bound",
}


def compare_lines(results: Sequence[Result], names: Sequence[str], *, width: int) -> Iterator[Line]:
    """Compare each other result with the first."""
    found = compare.compare_all([(results[0], other) for other in results[1:]])
    for name, other, ratios in zip(names[1:], results[1:], found, strict=True):
        yield ((name, Style.TITLE), (f" compared with {names[0]}", Style.PLAIN))
        for letter, side in (("A", results[0]), ("B", other)):
            models = ", ".join(drive.model or drive.name for drive in side.conditions.drives)
            yield plain(f"  {letter}  {side.when}  {side.settings.profile}  {side.target}  {models}")
            yield from note_lines(compare.doubts(side), width, "     warning: ")
        changed = "; ".join(difference.words for difference in compare.differences(results[0], other))
        if changed:
            yield from paragraph(f"  differences: {changed}", width, " " * 7, Style.DOUBT)
        yield EMPTY
        yield from picture(ratios, width=width)
        yield EMPTY
    yield from note_lines(compare.unmatched(results), width, "  warning: ")
    yield from paragraph(
        "log10 of B / A in bytes per second: 0 is equal, -1 is ten times slower. faster, slower: valid if"
        " nothing else changed in between. noise: the ranges of the runs overlap, or the difference is likely"
        f" to be chance among {sum(map(len, found))} lines; ?: fewer than {LEAST_RUNS} runs, passes, or not"
        " steady.",
        width,
        "",
        Style.DIM,
    )


def picture(ratios: Sequence[compare.Ratio], *, width: int = 100) -> Iterator[Line]:
    """Draw the ratios as bars from zero in the middle; the scale extends to the next power of ten."""
    if not ratios:
        yield plain("  they have no test in common")
        return
    reach = max(1, ceil(max(abs(ratio.log_ratio) for ratio in ratios) - 1e-9))
    longest = max(len(ratio.test.title) for ratio in ratios) + 2
    half = min(max((width - longest - _OTHER_COLUMNS) // 2, 4), _MOST_HALF)
    scale = f"{-reach:<{half}d}0{reach:>{half}d}"
    yield ((" " * longest + f"  {scale}     log10    times", Style.DIM),)
    for ratio in ratios:
        style = _STYLES.get(ratio.verdict, Style.DIM)
        title = (fit(f"  {ratio.test.title}", longest) + "  ", Style.PLAIN)
        figures = (f"  {ratio.log_ratio:+8.2f} {_times(ratio.times):>8}  ", Style.PLAIN)
        sign = _SIGNS.get(ratio.verdict, ratio.verdict.value)
        yield (title, (bar(ratio.log_ratio, reach, half), style), figures, (sign, style))


def bar(log_ratio: float, reach: int, half: int = _MOST_HALF) -> str:
    """Draw a bar in `half` columns on each side of a line at zero."""
    cells = round(abs(log_ratio) / reach * half)
    left, right = ("█" * cells, "") if log_ratio < 0 else ("", "█" * cells)
    return f"{left:>{half}}│{right:<{half}}"


def _times(value: float) -> str:
    if not 0.01 <= value < 1000:
        return f"{value:.1e}"
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def compare_json(results: Sequence[Result], names: Sequence[str]) -> str:
    """Return the comparison as JSON, rates in bytes per second."""
    comparisons = compare.compare_all([(results[0], other) for other in results[1:]])
    values = {
        "first": harmless(names[0]),
        "first_complete": results[0].complete,
        "first_warnings": [harmless(doubt) for doubt in compare.doubts(results[0])],
        "others": [
            {
                "name": harmless(name),
                "complete": other.complete,
                "warnings": [harmless(doubt) for doubt in compare.doubts(other)],
                "differences": [
                    {field: harmless(value) for field, value in asdict(difference).items()}
                    for difference in compare.differences(results[0], other)
                ],
                "tests": [_ratio_values(ratio) for ratio in ratios],
            }
            for name, other, ratios in zip(names[1:], results[1:], comparisons, strict=True)
        ],
        "warnings": list(compare.unmatched(results)),
    }
    return document_text("aligntool.bench.compare", values)


def _ratio_values(ratio: compare.Ratio) -> Value:
    return {
        "title": ratio.test.title,
        "before": _spread_values(ratio.before),
        "after": _spread_values(ratio.after),
        "log10": ratio.log_ratio,
        "times": ratio.times,
        "chance": ratio.chance,
        "verdict": ratio.verdict.value,
    }


def _spread_values(spread: saved.Spread) -> Value:
    return {"median": spread.median, "low": spread.low, "high": spread.high, "runs": spread.count}


def list_lines(kept: Sequence[HistoryEntry], *, width: int) -> Iterator[Line]:
    """Yield a line for each stored result: date, profile, target, drive, first figure; below it the file
    name.
    """
    if not kept:
        yield plain("no results are saved yet")
        yield step_line("  ", "fill in FOLDER: aligntool bench FOLDER")
    for result in kept:
        if result.complaint:
            yield ((result.complaint, Style.DOUBT),)
            continue
        yield from stacked(
            (
                (f"{result.when}  {result.profile}", Style.TITLE),
                (f"  {result.target}  {result.drive}  {result.said or result.figure}", Style.PLAIN),
                ("" if result.complete else "  (incomplete)", Style.DOUBT),
            ),
            width,
        )
        yield ((f"  {result.file}", Style.DIM),)


def list_json(kept: Sequence[HistoryEntry]) -> str:
    rows = [asdict(result) | {"file": harmless(result.file)} for result in kept]
    for row in rows:
        del row["figure"]
        if row["said"] is None:
            del row["said"]
    return dumps(rows) + "\n"
