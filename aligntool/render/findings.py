"""Findings for people: grouped by code, worst first, each with its cause, its cost and the next thing to type."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from aligntool.audit import Code, Finding, Report, Severity
from aligntool.audit.cost import Cost
from aligntool.audit.explanations import EXPLANATIONS
from aligntool.render.lines import EMPTY, Line, Style, plain, wrapped
from aligntool.units import format_size

MOST_OF_A_KIND = 12
"""So many findings of one code are written out; the rest are counted, and --json has them all."""

_STYLES = {Severity.ERROR: Style.BAD, Severity.WARNING: Style.DOUBT, Severity.INFO: Style.NOTE}
_MARKS = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.INFO: "·"}


def finding_lines(report: Report, *, width: int, verbose: bool, quiet: bool) -> Iterator[Line]:
    groups: dict[tuple[Severity, Code], list[Finding]] = {}
    for finding in report.findings:
        groups.setdefault((finding.severity, finding.code), []).append(finding)
    alone = report.judged[0].disk.name if len(report.judged) == 1 else None
    notes = [key for key in groups if key[0] is Severity.INFO]
    for key, findings in groups.items():
        if verbose or key[0] is not Severity.INFO or (key[1] is Code.NOT_SEEN and not quiet):
            yield from _group(findings, width=width, verbose=verbose, quiet=quiet, alone=alone)
    hidden = [key for key in notes if key[1] is not Code.NOT_SEEN]
    if hidden and not verbose and not quiet:
        count = sum(len(groups[key]) for key in hidden)
        codes = ", ".join(sorted({key[1].value for key in hidden}))
        yield ((f"{count} {'note' if count == 1 else 'notes'} ({codes}); -v shows them", Style.DIM),)
        yield EMPTY


def _group(
    findings: Sequence[Finding], *, width: int, verbose: bool, quiet: bool, alone: str | None
) -> Iterator[Line]:
    """Findings of one code and severity. `alone`: the only disk there is, which need not be named again."""
    severity, code = findings[0].severity, findings[0].code
    if quiet:
        for finding in findings:
            yield ((f"{severity.value}: {finding.summary} [{code}]", Style.PLAIN),)
        return
    title = EXPLANATIONS[code].title
    style = _STYLES[severity]
    yield ((f"{_MARKS[severity]} {code} {severity.value}", style), (f"  {title}", Style.TITLE))
    alike = alike_of(findings, alone=alone)
    most = len(alike) if verbose else MOST_OF_A_KIND
    for finding, summary in alike[:most]:
        yield from _one(finding, summary, width=width)
    if len(alike) > most:
        yield ((f"    … and {len(alike) - most} more of this kind; --json lists every one", Style.DIM),)
    cost = next((finding.cost for finding in findings if finding.cost), None)
    if cost:
        yield from _labelled("cost", cost_words(cost), width=width)
    steps = list(dict.fromkeys(finding.next for finding in findings if finding.next))
    for step in steps[:3]:
        yield (("    → ", Style.DIM), (step, Style.TYPE))
    yield EMPTY


def alike_of(findings: Sequence[Finding], *, alone: str | None) -> list[tuple[Finding, str]]:
    """What is said of several disks in the same words is said once, of all of them; an only disk is not named."""
    groups: dict[tuple[str, tuple[str, ...], str | None], list[Finding]] = {}
    for finding in findings:
        words = finding.summary.removeprefix(f"{finding.disk}: ")
        if finding.disk and finding.disk == alone:
            words = words.replace(f" of {alone}", "", 1)
        groups.setdefault((words, finding.evidence, finding.cause), []).append(finding)
    said = []
    for (words, _, _), group in groups.items():
        names = ", ".join(finding.disk or "" for finding in group[:MOST_OF_A_KIND])
        names += f" and {len(group) - MOST_OF_A_KIND} more" if len(group) > MOST_OF_A_KIND else ""
        said.append(
            (group[0], f"{names}: {words}" if len(group) > 1 and names else _one_name(group[0], words, alone))
        )
    return said


def _one_name(finding: Finding, words: str, alone: str | None) -> str:
    return words if finding.disk == alone else finding.summary


def _one(finding: Finding, summary: str, *, width: int) -> Iterator[Line]:
    for line in wrapped(f"  - {summary}", width, "    "):
        yield plain(line)
    if finding.cause:
        yield from _labelled("cause", finding.cause, width=width)
    for evidence in finding.evidence:
        yield from _labelled("and", evidence, width=width)


def _labelled(label: str, text: str, *, width: int) -> Iterator[Line]:
    for line in wrapped(f"    {label}: {text}", width, "      "):
        yield ((line, Style.DIM),)


def cost_words(cost: Cost) -> str:
    """The prediction in a sentence. It is a model's, and says so."""
    request, rate = format_size(cost.request), _fraction(cost.write_rate)
    words = [
        f"predicted for {request} requests: {rate} of the aligned write rate",
        f"a straddling write reads {format_size(cost.straddling_read)}"
        f" and writes {format_size(cost.straddling_written)}",
        f"a straddling read takes {format_size(cost.extra_read)} more",
    ]
    if cost.write_amplification > 1:
        words.append(f"write amplification {float(cost.write_amplification):g} even when aligned")
    return "; ".join(words)


def _fraction(number: Fraction) -> str:
    return f"{number.numerator}/{number.denominator}" if number.denominator > 1 else str(number.numerator)
