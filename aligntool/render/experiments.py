"""Show alignment and span experiments and probes, as text and JSON."""

import json
from collections.abc import Iterator, Sequence
from statistics import median

from aligntool import __version__
from aligntool.documents import as_object
from aligntool.inventory import Disk, NvmeFacts
from aligntool.measure import alignment
from aligntool.measure.fio import NEAR_A_CORE
from aligntool.measure.sweeps import Setting, Spans, Starts
from aligntool.measure.unit import Boundary, KindResult, ProbeResult, document
from aligntool.measure.unit_design import Kind
from aligntool.render.bench import machine_lines, note_lines
from aligntool.render.json import document_text
from aligntool.render.lines import EMPTY, Line, Piece, Style, fit, paragraph, plain, stacked, wrapped
from aligntool.units import counted, format_about, format_size, significant

# Results of `aligntool bench alignment` and `aligntool bench span`, as text and as JSON.

_STYLES = {
    alignment.AlignmentVerdict.MATTERS: Style.BAD,
    alignment.AlignmentVerdict.DOES_NOT: Style.GOOD,
    alignment.AlignmentVerdict.NOT_FOR_READS: Style.GOOD,
    alignment.AlignmentVerdict.CANNOT_TELL: Style.DOUBT,
}
_BESIDES_BAR = 65  # columns of a span, its rates, the CPU and a note


def alignment_lines(found: Starts, rows: Sequence[alignment.Row], *, width: int) -> Iterator[Line]:
    yield from _head_lines(found, f"  unit of {format_size(found.unit)} ({found.unit_by})", width)
    if not rows:
        yield plain("nothing was measured")
        return
    for place, line in enumerate(wrapped(f"alignment {alignment.overall_text(rows)}", width, "  ")):
        before, _, rest = line.partition(" ") if place == 0 else ("", "", line)
        yield (
            (f"{before} " if before else "", Style.PLAIN),
            (rest, _STYLES[alignment.overall_verdict(rows)]),
        )
    for load in dict.fromkeys(row.load for row in rows):
        of_load = [row for row in rows if row.load == load]
        aligned = [rate.iops for rate in found.rates if rate.load == load and not rate.place.residue]
        yield EMPTY
        cpu = of_load[0].aligned_cpu
        used = "" if cpu is None else f", CPU {cpu:.0f}%"
        details = (
            f"  aligned {median(aligned):,.0f} IOPS{used}; two aligned starts:"
            f" {range_words(*of_load[0].noise)}"
        )
        title = ((load.title, Style.TITLE), (details, Style.DIM), _cpu_bound_note(cpu))
        yield from stacked(title, width)
        last_reason = ""
        for row in of_load:
            yield _start_line(row)
            if row.word is not alignment.AlignmentVerdict.DOES_NOT and row.why != last_reason:
                last_reason = row.why
                yield from paragraph(f"      {row.why}", width, "      ", Style.DIM)
    yield EMPTY
    yield from paragraph(
        "Shares of the aligned rate: predicted, then measured (median, smallest to largest). The prediction"
        " counts the units that a request touches, without a cache. CPU is the share of one core.",
        width,
        "",
        Style.DIM,
    )
    yield from note_lines(found.warnings, width, "  warning: ")


def _head_lines(found: Starts | Spans, what: str, width: int) -> Iterator[Line]:
    yield from stacked(
        (
            (found.target, Style.TITLE),
            (what + (f", {found.when}" if found.when else ""), Style.PLAIN),
            ("" if found.complete else "  (incomplete)", Style.DOUBT),
        ),
        width,
    )
    yield from machine_lines(found.conditions, width=width)
    if found.setting is not None:
        yield ((f"  {setting_words(found.setting)}", Style.DIM),)


def setting_words(setting: Setting) -> str:
    """Return the method of measurement in one line."""
    how = f"{'direct I/O' if setting.direct else 'BUFFERED'}, engine {setting.engine}"
    return f"{format_about(setting.size)}, {setting.repeats} repeats of {setting.runtime_s:g} s, {how}"


def _start_line(row: alignment.Row) -> Line:
    measured = f"{row.ratio:.2f} ({range_words(row.low, row.high)})" if row.high else "–"
    cells = f"  {fit(row.place.title, 12)}  {row.predicted:.2f}  {fit(measured, 18)}  {_cpu_cell(row.cpu)}  "
    return ((cells, Style.PLAIN), (row.word.value, _STYLES[row.word]), _cpu_bound_note(row.cpu))


def _cpu_cell(cpu: float | None) -> str:
    return fit("" if cpu is None else f"CPU {cpu:.0f}%", 8)


def _cpu_bound_note(cpu: float | None) -> Piece:
    """Return a remark if the CPU limits, by the rule of `aligntool bench`."""
    return (" CPU-bound", Style.DOUBT) if (cpu or 0) >= NEAR_A_CORE else ("", Style.PLAIN)


def range_words(low: float, high: float) -> str:
    """Return a range of shares, or "not measured" if there is none, as after too few repeats."""
    return f"{low:.2f}–{high:.2f}" if high else "not measured"


def alignment_json(found: Starts, rows: Sequence[alignment.Row]) -> str:
    """Return JSON: bytes, requests per second, CPU in percent of a core, ratios as shares of the aligned
    rate.
    """
    values = {
        "when": found.when,
        "target": found.target,
        "unit": found.unit,
        "unit_by": found.unit_by,
        "verdict": alignment.overall_verdict(rows).value if rows else None,
        "matters_for": alignment.matters_for(rows),
        "rows": [as_object(row) | {"cpu_bound": row.cpu_bound} for row in rows],
        "rates": [as_object(rate) for rate in found.rates],
        **_common_fields(found),
    }
    return document_text("aligntool.bench.alignment", values, indent=1)


def _common_fields(found: Starts | Spans) -> dict[str, object]:
    """Return the fields common to both documents. `disk` is the identity that `aligntool probe` also
    stores.
    """
    return {
        "complete": found.complete,
        "settings": as_object(found.setting) if found.setting else None,
        "disk": as_object(found.disk) if found.disk else None,
        "conditions": as_object(found.conditions),
        "warnings": list(found.warnings),
    }


def span_lines(found: Spans, *, width: int) -> Iterator[Line]:
    yield from _head_lines(found, f"  random {'write' if found.write else 'read'}, 4KiB QD32", width)
    knee = found.knee
    # good only if it holds for the whole drive
    known = Style.GOOD if knee.flat and found.whole else Style.NOTE
    style = known if knee.sure and (knee.found or knee.flat) else Style.DOUBT
    yield ((knee.words, style), (f"  {knee_facts(knee)}".rstrip(), Style.PLAIN))
    if found.beyond:
        yield ((f"  {found.beyond}", Style.DOUBT),)
    for text in host_memory_words(found.nvme):
        yield from paragraph(text, width, "  ")
    yield EMPTY
    yield from _curve_lines(found, width)
    yield from note_lines(found.warnings, width, "  warning: ")


def knee_facts(knee: alignment.Knee) -> str:
    """Return the facts shown with the verdict, or "" if they are unknown."""
    sure = f"confidence {knee.confidence:.0%}"
    if knee.found:
        return f"drops to {knee.share:.0%} of the rate before; {sure}"
    return sure if knee.flat else ""


def _curve_lines(found: Spans, width: int) -> Iterator[Line]:
    cells = min(max(width - _BESIDES_BAR, 4), 30)
    highest = max((median(rates) for rates in found.curve.values()), default=0.0)
    for span, rates in sorted(found.curve.items()):
        centre = median(rates)
        cpu = median(found.cpu[span]) if found.cpu.get(span) else None
        bar = "█" * (round(cells * centre / highest) if highest else 0)
        span_word = fit(format_about(span), 9, right=True)
        rate_words = fit(f"{centre:,.0f} IOPS ({min(rates):,.0f}–{max(rates):,.0f})", 30)
        yield ((f"  {span_word}  {rate_words}  {_cpu_cell(cpu)}  {bar}", Style.PLAIN), _cpu_bound_note(cpu))


def host_memory_words(nvme: NvmeFacts | None) -> Iterator[str]:
    """Yield the facts known about the Host Memory Buffer, which moves the knee."""
    if nvme is None:
        return
    if not nvme.hmb_preferred:
        yield (
            "the drive uses no Host Memory Buffer"
            if nvme.hmb_preferred == 0
            else "Host Memory Buffer: not read"
        )
        return
    requested = f"Host Memory Buffer: {format_about(nvme.hmb_preferred)} requested"
    if nvme.hmb_granted is None:
        yield f"{requested}; granted size unknown (needs root)"
    elif not nvme.hmb_granted:
        yield f"{requested}, none granted"
    else:
        granted = nvme.hmb_granted
        mapped = alignment.mapped_bytes(nvme.hmb_granted)
        yield f"{requested}, {format_about(granted)} granted, which maps about {format_about(mapped)}"


def span_json(found: Spans, disk: Disk | None) -> str:
    """Return JSON: spans in bytes, rates in requests per second, CPU in percent of a core."""
    nvme = disk.nvme if disk else None
    bound = alignment.cpu_bound_spans(found.cpu)
    names = ("preferred", "minimum", "granted", "enabled")
    memory = {name: getattr(nvme, f"hmb_{name}") for name in names} if nvme else None
    values = {
        "when": found.when,
        "target": found.target,
        "model": disk.model if disk else None,
        "write": found.write,
        "knee": as_object(found.knee) | {"sure": found.knee.sure},
        "spanned": found.spanned,
        "drive_size": found.drive_size,
        "host_memory_buffer": memory,
        "curve": [
            {"span": span, "iops": rates, "cpu": found.cpu.get(span, []), "cpu_bound": span in bound}
            for span, rates in sorted(found.curve.items())
        ],
        **_common_fields(found),
    }
    return document_text("aligntool.bench.span", values, indent=1)


# The result of a probe: the unit, its evidence and the method, or the reason why it is unknown.

_WORDS = {
    Kind.READ: "reading across it",
    Kind.WRITE: "writing across it",
    Kind.PART: "writing only half of it",
}
_TITLES = {
    Kind.READ: "Reads across a boundary, compared with reads next to it",
    Kind.WRITE: "Writes across a boundary, compared with writes next to it",
    Kind.PART: "Writes of half a size, compared with writes of the whole size",
    Kind.SHIFT: "Writes of a whole size shifted by half, compared with those not shifted",
}


def probe_lines(result: ProbeResult, *, width: int, verbose: bool) -> Iterator[Line]:
    disk = result.disk
    named = "  ".join(word for word in (disk.model, disk.serial) if word)
    yield ((disk.path, Style.TITLE), (f"  {named}" if named else "", Style.PLAIN))
    yield EMPTY
    yield from _answer_lines(result, width)
    if verbose or not result.inference.boundaries:
        for looked in result.inference.looked:
            yield EMPTY
            yield from _curve(looked)
    yield EMPTY
    yield from paragraph(_method_words(result), width, "  ", Style.DIM)


def _answer_lines(result: ProbeResult, width: int) -> Iterator[Line]:
    inference = result.inference
    if not inference.boundaries:
        yield (("unknown", Style.DOUBT), (": no unit was found with certainty", Style.PLAIN))
        for why in (*inference.why_unknown, *_zeros_warning(result)):
            yield from paragraph(f"  {why}", width)
        return
    first, *more = inference.boundaries
    sure = (f"  measured, confidence {first.confidence:.0%}", Style.PLAIN)
    yield ((f"works in units of {format_size(first.size)}", Style.GOOD), sure)
    yield from _evidence(first)
    for boundary in more:
        sure = (f"  confidence {boundary.confidence:.0%}", Style.PLAIN)
        yield ((f"and a larger boundary every {format_size(boundary.size)}", Style.NOTE), sure)
        yield from _evidence(boundary)
    for boundary in inference.doubtful:
        sure = (f"  confidence {boundary.confidence:.0%} only", Style.PLAIN)
        yield ((f"possibly {format_size(boundary.size)}", Style.DOUBT), sure)
    for why in _zeros_warning(result):
        yield from paragraph(f"  {why}", width)


def _evidence(boundary: Boundary) -> Iterator[Line]:
    for item in boundary.evidence:
        low, high = item.interval_us
        longer = f"{significant(item.penalty_us)} µs longer (95 %: {significant(low)}–{significant(high)})"
        yield plain(f"  {_WORDS[item.kind]}: {longer}, {item.share:.0%} of a request")


def _zeros_warning(result: ProbeResult) -> Iterator[str]:
    if result.zeros >= 0.5:
        why = (
            "a drive returns zeros without reading its flash if the blocks were never written or were trimmed"
        )
        yield f"{result.zeros:.0%} of the data read is zeros: {why}"


def _curve(looked: KindResult) -> Iterator[Line]:
    """Yield the penalty of each size with its uncertainty and a bar."""
    alone = f"  {significant(looked.request_us, 4)} µs without a penalty"
    yield ((_TITLES[looked.kind], Style.TITLE), (alone, Style.DIM))
    highest = max((penalty.median_us for penalty in looked.penalties), default=0.0)
    for penalty in looked.penalties:
        share = penalty.median_us / highest if highest > 0 else 0.0
        bar = "█" * max(round(24 * share), 0)
        size = fit(format_size(penalty.level), 8, right=True)
        yield plain(f"  {size}  {penalty.median_us:+9.2f} ± {significant(penalty.error_us, 2)} µs  {bar}")


def _method_words(result: ProbeResult) -> str:
    pairs = sum(looked.samples for looked in result.inference.looked)
    where = f"in {result.file}, removed since" if result.file else "on the disk itself"
    wrote = f"wrote {format_about(result.written)} {where}" if result.written else "wrote nothing"
    end = ", interrupted" if result.interrupted else ""
    rounds = counted(result.rounds, "round")
    done = f"{pairs:,} pairs in {rounds}, {result.elapsed_s:.1f} s{end}; {result.sector}-byte sectors"
    return f"{done}; read {format_about(result.read)}, {wrote}; seed {result.seed}"


def probe_json(result: ProbeResult) -> str:
    return json.dumps(document(result, __version__), indent=1) + "\n"
