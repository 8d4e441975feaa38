"""Results side by side: log10 of the ratios, drawn; and the list of those that were kept.

In: results. Out: lines, or JSON. Alone because it is the article's picture: 0 is equal, -1 ten times slower.
"""

from collections.abc import Iterator, Sequence
from math import ceil

from aligntool import __version__
from aligntool.bench.chance import LEAST_RUNS
from aligntool.bench.compare import Ratio, Verdict, compare_all, differences, doubts, unmatched
from aligntool.bench.results import Kept, Result, Spread
from aligntool.render.json import Value, dumps
from aligntool.render.lines import EMPTY, Line, Style, fit, harmless, plain, stacked, wrapped
from aligntool.units import mb_s

_HALF = 16  # columns of the picture on each side of zero, at most
_LEAST_HALF = 4
_BESIDE = 34  # columns beside the picture and the title: line, numbers, verdict
_STYLES = {Verdict.FASTER: Style.GOOD, Verdict.SLOWER: Style.BAD}
_SIGNS = {
    Verdict.FASTER: "faster", Verdict.SLOWER: "slower", Verdict.NOISE: "noise", Verdict.SINGLE: "?",
    Verdict.UNSTEADY: "?", Verdict.CPU: "CPU-bound",
}  # fmt: skip


def compare_lines(results: Sequence[Result], names: Sequence[str], *, width: int) -> Iterator[Line]:
    """Each of the others beside the first one."""
    found = compare_all([(results[0], other) for other in results[1:]])
    for name, other, ratios in zip(names[1:], results[1:], found, strict=True):
        yield ((name, Style.TITLE), (f" beside {names[0]}", Style.PLAIN))
        yield from _who(results[0], "  A  ")
        yield from _warnings(doubts(results[0]), "     ", width)
        yield from _who(other, "  B  ")
        yield from _warnings(doubts(other), "     ", width)
        changed = "; ".join(each.words for each in differences(results[0], other))
        if changed:
            yield from _doubtful(f"  not the same: {changed}", width)
        yield EMPTY
        yield from picture(ratios, width=width)
        yield EMPTY
    yield from _warnings(unmatched(results), "  ", width)
    for line in wrapped(
        "log10 of B over A, bytes a second: 0 equal, -1 ten times slower. faster, slower: if nothing else changed in "
        f"between. noise: the ranges of the runs overlap, or among so many lines ({sum(map(len, found))} in all) one "
        f"differs so much by chance; ?: fewer than {LEAST_RUNS} runs, passes, or not steady.", width, ""
    ):  # fmt: skip
        yield ((line, Style.DIM),)


def _warnings(sentences: Sequence[str], before: str, width: int) -> Iterator[Line]:
    for sentence in sentences:
        yield from _doubtful(f"{before}warning: {sentence}", width)


def _doubtful(text: str, width: int) -> Iterator[Line]:
    for line in wrapped(text, width, "       "):
        yield ((line, Style.DOUBT),)


def picture(ratios: Sequence[Ratio], *, width: int = 100) -> Iterator[Line]:
    """Bars from the zero in the middle; the scale reaches to the next whole power of ten."""
    if not ratios:
        yield plain("  they have no test in common")
        return
    reach = max(1, ceil(max(abs(ratio.log_ratio) for ratio in ratios) - 1e-9))
    longest = max(len(ratio.test.title) for ratio in ratios) + 2
    half = min(max((width - longest - _BESIDE) // 2, _LEAST_HALF), _HALF)
    scale = f"{-reach:<{half}d}0{reach:>{half}d}"
    yield ((" " * longest + f"  {scale}     log10    times", Style.DIM),)
    for ratio in ratios:
        style = _STYLES.get(ratio.verdict, Style.DIM)
        yield (
            (fit(f"  {ratio.test.title}", longest) + "  ", Style.PLAIN),
            (bar(ratio.log_ratio, reach, half), style),
            (f"  {ratio.log_ratio:+8.2f} {_times(ratio.times):>8}  ", Style.PLAIN),
            (_SIGNS[ratio.verdict], style),
        )


def bar(log_ratio: float, reach: int, half: int = _HALF) -> str:
    """`half` columns on each side of a line at zero."""
    cells = round(abs(log_ratio) / reach * half)
    left = "█" * cells if log_ratio < 0 else ""
    right = "█" * cells if log_ratio > 0 else ""
    return f"{left:>{half}}│{right:<{half}}"


def _times(value: float) -> str:
    if not 0.01 <= value < 1000:
        return f"{value:.1e}"
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _who(result: Result, before: str) -> Iterator[Line]:
    models = [drive.model or drive.name for drive in result.conditions.drives]
    yield plain(f"{before}{result.when}  {result.settings.profile}  {result.target}  {', '.join(models)}")


def compare_json(results: Sequence[Result], names: Sequence[str]) -> str:
    """Rates in bytes a second."""
    found = compare_all([(results[0], other) for other in results[1:]])
    document: Value = {
        "schema": "aligntool.bench.compare",
        "version": 1,
        "aligntool": __version__,
        "first": harmless(names[0]),
        "first_complete": results[0].complete,
        "first_warnings": [harmless(each) for each in doubts(results[0])],
        "others": [
            {
                "name": harmless(name),
                "complete": other.complete,
                "warnings": [harmless(each) for each in doubts(other)],
                "differences": _differences(results[0], other),
                "tests": [_test(each) for each in ratios],
            }
            for name, other, ratios in zip(names[1:], results[1:], found, strict=True)
        ],
        "warnings": list(unmatched(results)),
    }
    return dumps(document) + "\n"


def _test(each: Ratio) -> Value:
    return {
        "title": each.test.title, "before": _spread(each.before), "after": _spread(each.after),
        "log10": each.log_ratio, "times": each.times, "chance": each.chance, "verdict": each.verdict.value,
    }  # fmt: skip


def _differences(first: Result, other: Result) -> Value:
    return [
        {"what": harmless(each.what), "before": harmless(each.before), "after": harmless(each.after)}
        for each in differences(first, other)
    ]


def _spread(spread: Spread) -> Value:
    return {"median": spread.median, "low": spread.low, "high": spread.high, "runs": spread.count}


def list_lines(kept: Sequence[Kept], *, width: int) -> Iterator[Line]:
    """One line each: when, profile, target, drive, its first figure; below it the file's name, to be typed."""
    if not kept:
        yield plain("nothing was measured yet")
        yield (("  → aligntool bench FOLDER", Style.TYPE),)
    for each in kept:
        if each.experiment is not None:
            brief = each.experiment
            yield from stacked((
                (f"{brief.when}  {brief.name}", Style.TITLE),
                (f"  {brief.target}  {brief.drive}  {brief.said}", Style.PLAIN),
                ("" if brief.complete else "  (not complete)", Style.DOUBT),
            ), width)  # fmt: skip
            yield ((f"  {each.file}", Style.DIM),)
            continue
        if each.result is None:
            yield ((each.complaint, Style.DOUBT),)
            continue
        result = each.result
        drive = next((drive.model or drive.name for drive in result.conditions.drives), "")
        first = next(
            (f"{one.test.title} {mb_s(one.rate.median)} MB/s" for one in result.series), "no figures"
        )
        yield from stacked((
            (f"{result.when}  {result.settings.profile}", Style.TITLE),
            (f"  {result.target}  {drive}  {first}", Style.PLAIN),
            ("" if result.complete else "  (not complete)", Style.DOUBT),
        ), width)  # fmt: skip
        yield ((f"  {each.file}", Style.DIM),)


def list_json(kept: Sequence[Kept]) -> str:
    return dumps([_row(each) for each in kept]) + "\n"


def _row(each: Kept) -> Value:
    result, brief = each.result, each.experiment
    row: dict[str, Value] = {"file": harmless(each.file), "complaint": each.complaint or None}
    row |= {"when": None, "profile": None, "target": None, "drive": None, "complete": None}
    if result is not None:
        row |= {"when": result.when, "profile": result.settings.profile, "target": result.target}
        drives = result.conditions.drives
        row |= {"drive": (drives[0].model or drives[0].name) if drives else "", "complete": result.complete}
    if brief is not None:
        row |= {"when": brief.when, "profile": brief.name, "target": brief.target, "said": brief.said}
        row |= {"drive": brief.drive, "complete": brief.complete}
    return row
