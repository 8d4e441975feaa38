"""What a probe found: the unit, what shows it, and what was done to find it; or why it is unknown.

In: a ProbeResult. Out: lines. Alone because a size without its doubts would be believed.
"""

from collections.abc import Iterator

from aligntool.bench.inference import Boundary, Looked
from aligntool.bench.inference_design import Kind
from aligntool.bench.inference_file import ProbeResult
from aligntool.render.lines import EMPTY, Line, Style, fit, plain, wrapped
from aligntool.units import format_about, format_size, significant

_BAR = 24
_MANY_ZEROS = 0.5
_WORDS = {
    Kind.READ: "reading across it",
    Kind.WRITE: "writing across it",
    Kind.PART: "writing half of it, not the whole",
}
_TITLES = {
    Kind.READ: "Reads across a boundary, against reads beside it",
    Kind.WRITE: "Writes across a boundary, against writes beside it",
    Kind.PART: "Writes of half a size, against writes of the whole",
    Kind.SHIFT: "Writes of a whole size shifted by half, against those in place",
}


def probe_lines(result: ProbeResult, *, width: int, verbose: bool) -> Iterator[Line]:
    disk = result.disk
    named = "  ".join(word for word in (disk.model, disk.serial) if word)
    yield ((disk.path, Style.TITLE), (f"  {named}" if named else "", Style.PLAIN))
    yield EMPTY
    yield from _answer(result, width)
    if verbose or not result.inference.boundaries:
        for looked in result.inference.looked:
            yield EMPTY
            yield from _curve(looked)
    yield EMPTY
    for line in wrapped(_done(result), width, "  "):
        yield ((line, Style.DIM),)


def _answer(result: ProbeResult, width: int) -> Iterator[Line]:
    inference = result.inference
    if not inference.boundaries:
        yield (("unknown", Style.DOUBT), (": no unit shows itself beyond doubt", Style.PLAIN))
        for why in (*inference.why_unknown, *_zeros(result)):
            yield from map(plain, wrapped(f"  {why}", width, "    "))
        return
    first, *more = inference.boundaries
    yield (
        (f"works in units of {format_size(first.size)}", Style.GOOD),
        (f"  measured, confidence {first.confidence:.0%}", Style.PLAIN),
    )
    yield from _evidence(first)
    for boundary in more:
        yield ((f"and a larger boundary every {format_size(boundary.size)}", Style.NOTE),
               (f"  confidence {boundary.confidence:.0%}", Style.PLAIN))  # fmt: skip
        yield from _evidence(boundary)
    for boundary in inference.doubtful:
        yield ((f"perhaps {format_size(boundary.size)}", Style.DOUBT),
               (f"  confidence {boundary.confidence:.0%} only", Style.PLAIN))  # fmt: skip
    for why in _zeros(result):
        yield from map(plain, wrapped(f"  {why}", width, "    "))


def _evidence(boundary: Boundary) -> Iterator[Line]:
    for one in boundary.evidence:
        low, high = one.interval_us
        yield plain(
            f"  {_WORDS[one.kind]}: {significant(one.penalty_us)} µs longer "
            f"(95 %: {significant(low)}–{significant(high)}), {one.share:.0%} of a request"
        )


def _zeros(result: ProbeResult) -> Iterator[str]:
    if result.zeros >= _MANY_ZEROS:
        yield (
            f"{result.zeros:.0%} of what was read is zeros: a drive answers those without looking at its flash "
            "if they were never written or were trimmed"
        )


def _curve(looked: Looked) -> Iterator[Line]:
    """The penalty of each size; a bar for what is more than its own uncertainty."""
    yield (
        (_TITLES[looked.kind], Style.TITLE),
        (f"  {significant(looked.request_us, 4)} µs without a penalty", Style.DIM),
    )
    highest = max((one.median_us for one in looked.penalties), default=0.0)
    for one in looked.penalties:
        share = one.median_us / highest if highest > 0 else 0.0
        bar = "█" * max(round(_BAR * share), 0)
        size = fit(format_size(one.level), 8, right=True)
        yield plain(f"  {size}  {one.median_us:+9.2f} ± {significant(one.error_us, 2)} µs  {bar}")


def _done(result: ProbeResult) -> str:
    pairs = sum(looked.samples for looked in result.inference.looked)
    where = f"in {result.file}, removed again" if result.file else "on the disk itself"
    wrote = f"wrote {format_about(result.written)} {where}" if result.written else "wrote nothing"
    cut = ", interrupted" if result.interrupted else ""
    return (
        f"{pairs:,} pairs in {result.rounds} rounds, {result.elapsed_s:.1f} s{cut}; sectors of {result.sector} bytes; "
        f"read {format_about(result.read)}, {wrote}; seed {result.seed}"
    )


def probe_json(result: ProbeResult) -> str:
    import json

    from aligntool import __version__
    from aligntool.bench.inference_file import document

    return json.dumps(document(result, __version__), indent=1) + "\n"
