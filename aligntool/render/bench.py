"""The result of a benchmark, for people.

In: a Result, or a plan of one. Out: lines. Alone because which figures stand beside which is decided here: no rate
without its range, its latency and the processor's part.
"""

from collections.abc import Iterator, Sequence
from shlex import quote

from aligntool.bench.conditions import Conditions, DriveState, warnings_of
from aligntool.bench.jobs import fio_words
from aligntool.bench.meaning import JUST_WRITTEN, meaning, steady_file
from aligntool.bench.results import Result, Series
from aligntool.bench.schedule import BenchPlan, filling, job_of, warm_up
from aligntool.render.lines import EMPTY, Line, Style, fit, plain, wrapped
from aligntool.render.plan import time_words
from aligntool.units import format_about, format_size, mb_s

FIGURES = ("MB/s", "range", "IOPS", "p50 µs", "p99 µs", "p99.9 µs", "CPU", "busy")
"""Heads of the columns."""
_LATENCIES = slice(3, 6)
_GAP = 2


def plan_words(plan: BenchPlan, seen: Conditions, *, width: int) -> Iterator[Line]:
    """What is going to be run, and what is already known to spoil it."""
    settings, target = plan.settings, plan.target
    where = f"a file of {format_size(plan.room)} in {target.path}" if plan.makes_file else target.path
    yield (("benchmark  ", Style.TITLE), (f"{settings.profile} on {where}", Style.PLAIN))
    yield from drive_lines(seen.drives, width=width)
    word = "pass" if settings.passes else "round" if settings.until_steady else "repeat"
    many = "" if plan.rounds == 1 else "es" if settings.passes else "s"
    times = f"{plan.rounds} {word}{many}{' at most' if settings.until_steady else ''}"
    run = f"{settings.runtime_s:g} s each"
    if settings.passes:
        run = f"each test over {format_size(settings.span)} of its own"
    tests = f"{len(plan.tests)} {'test' if len(plan.tests) == 1 else 'tests'}"
    span = "" if plan.makes_file or settings.passes else f", over its first {format_size(settings.span)}"
    rotational = any(drive.rotational for drive in seen.drives)
    kind = f" on a usual {'hard disk' if rotational else 'SSD'}" if settings.passes else ""
    about = f"; about {time_words(round(plan.seconds(rotational=rotational)))}{kind}"
    filled = {0: "", 1: " after filling the file", 2: " after writing everything twice"}[plan.fills]
    if plan.added:
        tests += f" and {len(plan.added)} for the verdict on command queueing"
    for text in wrapped(f"  {tests}, {times}, {run}{span}{filled}{about}", width, "    "):
        yield plain(text)
    if not plan.writes:
        yield plain("  nothing is written")
    if settings.passes and plan.makes_file:
        yield from _notes((JUST_WRITTEN,), width, "  ")
    if settings.until_steady and plan.makes_file:
        yield from _notes((steady_file(settings.span),), width, "  ")
    yield from _notes(plan.skipped, width, "  left out: ")
    yield from _notes(tuple(warnings_of(seen, direct=settings.direct)), width, "  warning: ")


def command_lines(plan: BenchPlan) -> Iterator[Line]:
    """Each kind of run as it can be typed; fio makes no file (allow_file_create), so one must be there."""
    path = f"{plan.target.path}/FILE" if plan.makes_file else plan.target.path
    jobs = [filling(plan, path)] if plan.fills else []
    jobs += [warm_up(plan, path)] if plan.settings.passes else []
    jobs += [job_of(plan, test, path) for test in plan.measured]
    for job in jobs:
        yield ((" ".join(("fio", *map(quote, fio_words(job)))), Style.TYPE),)


def result_lines(result: Result, *, width: int) -> Iterator[Line]:
    settings = result.settings
    yield (
        (f"{settings.profile}", Style.TITLE),
        (f"  {result.target}, {result.when}", Style.PLAIN),
        ("" if result.complete else "  (not complete)", Style.DOUBT),
    )
    yield from drive_lines(result.conditions.drives, width=width)
    yield from _condition_lines(result, width)
    yield EMPTY
    yield from figure_lines(result.series, width=width)
    yield EMPTY
    yield from _notes(tuple(meaning(result)), width, "  ")
    yield from _notes(result.skipped, width, "  left out: ")
    yield from _notes(tuple(warnings_of(result.conditions, direct=settings.direct)), width, "  warning: ")


def figure_lines(series: Sequence[Series], *, width: int) -> Iterator[Line]:
    """MB/s are 10^6 bytes a second. The range is that of the repeats; CPU is of one core, of each thread;
    busy are the cores of the whole machine that were. Where a row is wider than the terminal, the latencies are a table
    of their own."""
    titles = [f"  {each.test.title}" for each in series]
    notes = [each.held_back + (" NOT steady" if each.steady is False else "") for each in series]
    rows = [figure_cells(each) for each in series]
    for gap in (_GAP, 1):
        if _width(titles, (FIGURES, *rows), gap) <= width:
            yield from _table(titles, (FIGURES, *rows), notes, gap, width)
            return
    others = [(*row[: _LATENCIES.start], *row[_LATENCIES.stop :]) for row in (FIGURES, *rows)]
    yield from _table(titles, others, notes, _GAP, width)
    yield EMPTY
    times = [row[_LATENCIES] for row in (FIGURES, *rows)]
    yield from _table(titles, times, [""] * len(series), _GAP, width)


def _width(titles: Sequence[str], rows: Sequence[Sequence[str]], gap: int) -> int:
    """Of the table, without its notes."""
    return max(map(len, titles), default=0) + sum(
        gap + max(map(len, column)) for column in zip(*rows, strict=True)
    )


def _table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str], gap: int, width: int
) -> Iterator[Line]:
    """The first row is the heads. A note that does not fit beside its row stands below it."""
    longest = max(map(len, titles), default=0)
    widths = [gap + max(map(len, column)) for column in zip(*rows, strict=True)]
    for title, row, note in zip(("", *titles), rows, ("", *notes), strict=True):
        cells = "".join(fit(cell, size, right=True) for cell, size in zip(row, widths, strict=True))
        text = fit(title, longest) + cells
        style = Style.PLAIN if title else Style.DIM
        beside = bool(note) and len(text) + 1 + len(note.strip()) <= width
        yield ((text, style), (f" {note.strip()}" if beside else "", Style.DOUBT))
        if note and not beside:
            yield ((f"    {note.strip()}", Style.DOUBT),)


def figure_cells(each: Series) -> tuple[str, ...]:
    """In the columns of FIGURES."""
    rate = each.rate
    spread = f"{mb_s(rate.low)}–{mb_s(rate.high)}" if rate.count > 1 else "one run"
    times = (_micro(each.middle(name)) for name in ("p50_us", "p99_us", "p999_us"))
    return (mb_s(rate.median), spread, f"{each.iops.median:,.0f}", *times, f"{each.cpu:.0f}%", _cores(each))


def _cores(each: Series) -> str:
    busy = each.middle("busy_cores")
    return "–" if busy is None else f"{busy:.1f}"


def _micro(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def drive_lines(drives: Sequence[DriveState], *, width: int) -> Iterator[Line]:
    for drive in drives:
        facts = [drive.model or "", f"firmware {drive.firmware}" if drive.firmware else ""]
        facts += [drive.array_level or "", format_about(drive.size) if drive.size else ""]
        facts += [
            f"link {drive.link}" if drive.link else "",
            f"scheduler {drive.scheduler}" if drive.scheduler else "",
        ]
        facts += [f"depth {drive.queue_depth}" if drive.queue_depth else "", _temperature(drive)]
        yield from _facts(f"{drive.name}  ", facts, width)


def _facts(name: str, facts: Sequence[str], width: int) -> Iterator[Line]:
    text = f"  {name}{', '.join(fact for fact in facts if fact)}"
    for line in wrapped(text, width, "    "):
        yield ((line, Style.DIM),)


def _temperature(drive: DriveState) -> str:
    if drive.temperature_c is None:
        return ""
    after = drive.temperature_after_c
    return f"{drive.temperature_c:g} °C" if after is None else f"{drive.temperature_c:g} → {after:g} °C"


def machine_lines(seen: Conditions, *, width: int) -> Iterator[Line]:
    """Of an experiment: what was so while it was measured, and why not to trust it."""
    yield from drive_lines(seen.drives, width=width)
    facts = [f"kernel {seen.kernel}" if seen.kernel else "", seen.fio, seen.filesystem or ""]
    facts.append(f"governor {seen.governor}" if seen.governor else "")
    if any(facts):
        yield from _facts("", facts, width)


def warning_lines(sentences: Sequence[str], width: int) -> Iterator[Line]:
    yield from _notes(sentences, width, "  warning: ")


def _condition_lines(result: Result, width: int) -> Iterator[Line]:
    seen, settings = result.conditions, result.settings
    facts = [f"kernel {seen.kernel}" if seen.kernel else "", seen.fio, f"engine {settings.engine}"]
    facts += [
        "direct I/O" if settings.direct else "BUFFERED",
        f"governor {seen.governor}" if seen.governor else "",
    ]
    facts += [seen.filesystem or "", f"{format_about(seen.free)} free" if seen.free else ""]
    facts += [f"over {format_size(settings.span)}" + (" of its own for each test" if settings.passes else "")]
    facts += ["" if seen.caches_dropped else "caches not dropped (needs root)"]
    yield from _facts("", facts, width)


def _notes(sentences: Sequence[str], width: int, before: str) -> Iterator[Line]:
    style = Style.DOUBT if "warning" in before else Style.PLAIN
    for sentence in sentences:
        for line in wrapped(f"{before}{sentence}", width, "    "):
            yield ((line, style),)
