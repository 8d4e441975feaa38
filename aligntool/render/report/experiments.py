"""What `aligntool bench alignment` and `aligntool bench span` kept, as charts: predicted beside measured, and the knee.

In: a Starts or a Spans. Out: what the page shows of it. Alone because these two are no list of tests. What the figures
say is reckoned by `bench`, so that the page and `aligntool bench show` never disagree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from aligntool.audit.wishes import MeasuredDisk
from aligntool.bench.alignment import Row, Word
from aligntool.bench.experiments import Spans, Starts
from aligntool.bench.jobs import Pattern
from aligntool.bench.span import Knee
from aligntool.inventory import NvmeFacts
from aligntool.render.bench_experiments import knee_facts, setting_words
from aligntool.render.report.conditions import condition_rows
from aligntool.render.report.measured import Loss, Measured, when_words
from aligntool.render.svg_charts import Bar, BarChart, CurveChart, Mark, Point, Series
from aligntool.units import format_about

MOST_STARTS = 40
"""So many starts of a load are drawn."""
_KINDS = {Word.MATTERS: "bad", Word.DOES_NOT: "good", Word.CANNOT_TELL: "unknown"}


def experiment_shown(found: Starts | Spans, number: int) -> Measured:
    """`number`: of the result on the page."""
    shown = _alignment(found, number) if isinstance(found, Starts) else _span(found, number)
    if not found.complete:
        shown = replace(shown, summary=f"{shown.summary}, not complete: it was interrupted, or fio failed")
    warnings = tuple(f"warning: {each}" for each in found.warnings)
    name = "alignment" if isinstance(found, Starts) else "span"
    drive = next((drive.model or drive.name for drive in found.conditions.drives), "")
    who = ", ".join(word for word in (f"bench {name} on {found.target}", drive) if word)
    rows = tuple(_conditions(found))
    return replace(
        shown, title=f"{number}. {who}", notes=(*shown.notes, *warnings), conditions=rows,
        about=(who, shown.summary),
    )  # fmt: skip


def _conditions(found: Starts | Spans) -> Iterator[tuple[str, str]]:
    yield from condition_rows(found.conditions)
    if found.setting is not None:
        yield "runs", setting_words(found.setting)


def _alignment(found: Starts, number: int) -> Measured:
    rows = found.rows
    charts = tuple(
        BarChart(
            f"bench-{number}-alignment-{place}",
            f"{load.title}: share of the aligned rate that is left",
            "share of the aligned rate",
            tuple(_bars([row for row in rows if row.load == load])),
            tabled=True,
        )
        for place, load in enumerate(dict.fromkeys(row.load for row in rows if row.high), 1)
    )
    summary = ", ".join(
        word for word in (when_words(found.when), f"{found.summary} ({found.unit_by})") if word
    )
    return Measured(
        "", summary, charts, tuple(_start_figures(rows, found)),
        tuple(_said(rows)), losses=tuple(_losses(rows, found)),
    )  # fmt: skip


def _start_figures(rows: Sequence[Row], found: Starts) -> Iterator[tuple[str, ...]]:
    """Every start of every load, the aligned ones too; of no load: nothing."""
    judged = {(row.load, row.place): row for row in rows}
    if rows:
        yield (
            "start",
            "IOPS",
            "range of IOPS",
            "CPU of a core",
            "predicted",
            "measured",
            "range",
            "note",
        )
    for load in dict.fromkeys(row.load for row in rows):
        yield (load.title,)
        of_load = [rate for rate in found.rates if rate.load == load]
        for place in sorted({rate.place for rate in of_load}, key=lambda each: (each.start, each.title)):
            rates = [rate.iops for rate in of_load if rate.place == place]
            used = [rate.cpu for rate in of_load if rate.place == place and rate.cpu is not None]
            yield (place.title, *_iops(rates, used), *_shares(judged.get((load, place))))


def _iops(rates: Sequence[float], used: Sequence[float]) -> tuple[str, str, str]:
    cpu = f"{median(used):.0f}%" if used else "–"
    return f"{median(rates):,.0f}", f"{min(rates):,.0f}–{max(rates):,.0f}", cpu


def _shares(row: Row | None) -> tuple[str, str, str, str]:
    """None: an aligned start, beside which the others stand."""
    if row is None:
        return "1", "–", "–", "aligned"
    measured, range_ = (f"{row.ratio:.2f}", _range(row.low, row.high)) if row.high else ("–", "–")
    return f"{row.predicted:.2f}", measured, range_, f"{row.word}{', CPU-bound' if row.cpu_bound else ''}"


def _bars(rows: Sequence[Row]) -> Iterator[Bar]:
    """Of one load: how far two aligned starts differ, and of each other start what was predicted and measured."""
    low, high = rows[0].noise
    if high:
        yield Bar("aligned, beside another aligned start", 1.0, "1", low, high, range_text=_range(low, high))
    for row in rows[:MOST_STARTS]:
        yield Bar(f"{row.place.title}, predicted", row.predicted, f"{row.predicted:.2f}")
        if not row.high:
            yield Bar(f"{row.place.title}, measured", 0.0, "–", kind="unknown", note=row.word.value)
            continue
        kind = _KINDS.get(row.word, "unknown")
        yield Bar(
            f"{row.place.title}, measured", row.ratio, f"{row.ratio:.2f}", row.low, row.high, kind, row.word.value,
            _range(row.low, row.high),
        )  # fmt: skip


def _range(low: float, high: float) -> str:
    return f"{low:.2f}–{high:.2f}"


def _losses(rows: Sequence[Row], found: Starts) -> Iterator[Loss]:
    """Of random writes, for which the audit predicts."""
    one = found.disk
    disk = MeasuredDisk(one.name, one.path, one.size, (), one.serial, one.wwn) if one else None
    for row in rows:
        if row.load.pattern is Pattern.RANDOM_WRITE and row.high:
            text = f"{row.ratio:.2f} ({_range(row.low, row.high)}), {row.word} ({row.place.title})"
            yield Loss(found.unit, row.load.block, row.place.residue, disk, found.target, text)


def _said(rows: Sequence[Row]) -> Iterator[str]:
    """What is said of several starts in the same words is said once."""
    groups: dict[tuple[str, Word, str], list[str]] = {}
    for row in rows:
        groups.setdefault((row.load.title, row.word, row.why), []).append(row.place.title)
    for (load, word, why), places in groups.items():
        yield f"{load}, {', '.join(places)}: {word}; {why}"


def _span(found: Spans, number: int) -> Measured:
    verb = "write" if found.write else "read"
    points = tuple(_point(span, rates) for span, rates in sorted(found.curve.items()))
    facts = knee_facts(found.knee)
    said = "; ".join(word for word in (found.summary, facts) if word)
    chart = CurveChart(
        f"bench-{number}-span", f"4 KiB random {verb} at QD32 over spans that double", "span", "IOPS",
        (Series(f"random {verb}, 4KiB QD32", points),), mark=_mark(found.knee), tabled=True,
    )  # fmt: skip
    summary = ", ".join(word for word in (when_words(found.when), said) if word)
    figures = (
        ("span", "IOPS", "range of IOPS", "CPU of a core"),
        *((format_about(span), *_iops(rates, found.cpu.get(span, ()))) for span, rates in sorted(found.curve.items())),
    )  # fmt: skip
    notes = (*([found.beyond] if found.beyond else []), *_memory(found.nvme))
    return Measured(f"{number}. span: {found.target}", summary, (chart,), figures, notes)


def _point(span: int, rates: Sequence[float]) -> Point:
    low, centre, high = min(rates), median(rates), max(rates)
    return Point(span, format_about(span), centre, f"{centre:,.0f}", low, high, f"{low:,.0f}–{high:,.0f}")


def _mark(knee: Knee) -> Mark | None:
    """A line through the chart says that it is so."""
    if knee.below is None or knee.above is None or not knee.sure:
        return None
    return Mark(knee.below, f"knee: {format_about(knee.below)}–{format_about(knee.above)}")


def _memory(nvme: NvmeFacts | None) -> Iterator[str]:
    """Host Memory Buffer, which moves the knee."""
    if nvme is None or nvme.hmb_preferred is None:
        return
    got = "not known" if nvme.hmb_granted is None else format_about(nvme.hmb_granted)
    yield f"Host Memory Buffer: preferred {format_about(nvme.hmb_preferred)}, granted {got}"
