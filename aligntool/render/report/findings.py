"""Findings as the page shows them: one article a code, with the explanation that `aligntool explain` gives.

In: a report. Out: words for the template, and what to type next. Alone because a page folds the explanation away, where
a terminal points to another command.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aligntool.audit import Code, Finding, Report, Severity
from aligntool.audit.cost import Cost
from aligntool.audit.explanations import EXPLANATIONS
from aligntool.inventory import Disk
from aligntool.render.findings import alike_of
from aligntool.render.mending import Mends
from aligntool.render.report.measured import Loss
from aligntool.units import format_size

MOST_OF_A_KIND = 40
MOST_COMMANDS = 5  # for one code
MOST_NEXT = 60


@dataclass(frozen=True, slots=True)
class Group:
    """`seen`: the sentence, and what is said under it. `costs`: a word and the prediction for it."""

    code: str
    severity: str
    title: str
    seen: tuple[tuple[str, tuple[str, ...]], ...]
    more: int
    costs: tuple[tuple[str, str], ...]
    measured: tuple[str, ...]  # beside them
    commands: tuple[str, ...]
    explained: tuple[tuple[str, str], ...]


def groups_of(report: Report, losses: Sequence[Loss] = ()) -> tuple[Group, ...]:
    """Worst first, each code once a severity. `losses`: what was measured of the boundaries in question."""
    found: dict[tuple[Severity, Code], list[Finding]] = {}
    for finding in report.findings:
        found.setdefault((finding.severity, finding.code), []).append(finding)
    alone = report.judged[0].disk.name if len(report.judged) == 1 else None
    disks = {judged.disk.name: judged.disk for judged in report.judged}
    return tuple(
        _group(findings, alone, tuple(dict.fromkeys(_measured(findings, disks, losses))))
        for findings in found.values()
    )


def _group(findings: list[Finding], alone: str | None, measured: tuple[str, ...]) -> Group:
    code, explanation = findings[0].code, EXPLANATIONS[findings[0].code]
    alike = alike_of(findings, alone=alone)
    cost = next((finding.cost for finding in findings if finding.cost), None)
    return Group(
        code=code.value,
        severity=findings[0].severity.value,
        title=explanation.title,
        seen=tuple((summary, tuple(_under(finding))) for finding, summary in alike[:MOST_OF_A_KIND]),
        more=max(len(alike) - MOST_OF_A_KIND, 0),
        costs=cost_rows(cost) if cost else (),
        measured=measured,
        commands=tuple(dict.fromkeys(finding.next for finding in findings if _is_told(finding)))[
            :MOST_COMMANDS
        ],
        explained=(
            ("What it means", explanation.means),
            ("How it is judged", explanation.judged),
            ("What it costs", explanation.costs),
            ("What to do", explanation.do),
        ),
    )


def _measured(
    findings: Sequence[Finding], disks: Mapping[str, Disk], losses: Sequence[Loss]
) -> Iterator[str]:
    """Beside what is predicted for a disk what was measured on it, and on no other."""
    for finding in findings:
        disk = disks.get(finding.disk or "")
        which = "" if finding.partition is None else f" partition {finding.partition}"
        for loss in losses:
            if disk is not None and loss.is_about(finding, disk):
                yield f"{disk.name}{which}: {loss.text}, on {loss.target}"


def _is_told(finding: Finding) -> bool:
    """The page explains every code itself."""
    return bool(finding.next) and not finding.next.startswith("aligntool explain ")


def _under(finding: Finding) -> Iterator[str]:
    if finding.cause:
        yield f"Cause: {finding.cause}"
    yield from finding.evidence


def cost_rows(cost: Cost) -> tuple[tuple[str, str], ...]:
    """The prediction, row by row."""
    request = format_size(cost.request)
    share = cost.straddle_probability
    rows = [
        (f"{request} requests that straddle", f"{float(share):.0%}"),
        ("write rate left", f"{cost.write_rate} of the aligned rate"),
        (
            "a straddling write",
            f"reads {format_size(cost.straddling_read)}, writes {format_size(cost.straddling_written)}",
        ),
        ("a straddling read", f"takes {format_size(cost.extra_read)} more"),
    ]
    if cost.write_amplification > 1:
        rows.append(("write amplification, even aligned", f"{float(cost.write_amplification):g}"))
    return tuple(rows)


def commands_of(report: Report, mends: Mends) -> tuple[tuple[str, str], ...]:
    """What to type next, and why; what the worst findings ask for comes first."""
    why: dict[str, list[str]] = {}
    for finding in report.findings:
        if _is_told(finding):
            codes = why.setdefault(finding.next, [])
            if finding.code.value not in codes:
                codes.append(finding.code.value)
    made = {command: f"for {', '.join(codes)}" for command, codes in why.items()}
    for answers in mends.values():
        for mend in answers:
            if mend.next and mend.answer == "with-shrink":
                made.setdefault(mend.next, "a shrink makes room")
    return tuple(made.items())[:MOST_NEXT]
