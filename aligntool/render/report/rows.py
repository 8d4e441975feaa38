"""The rows of the page: a row for each disk, or for disks with equal tables, and the findings that belong to
it.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from aligntool.audit import report as reports
from aligntool.audit.report import Answer, Code, Cost, Finding, Judged, Report, Severity
from aligntool.commands import is_by_hand, split_step
from aligntool.inventory import Disk, DiskKind
from aligntool.render import audit, svg
from aligntool.render.lines import CAPTURED, ON_CAPTURED
from aligntool.render.report.disks import Content, Loss, disk_names
from aligntool.render.report.maps import cost_picture, damaged_map, disk_picture, small_map, start_pictures
from aligntool.render.report.stacks import Above, Level, devices_above, shortened, stacks_of
from aligntool.units import format_about, listed

MOST_DISKS = 64
"""Most rows of disks; the rest are counted."""
MOST_FINE = 6
"""Most rows that are seen at once if those after them are fine; a row that is not fine is always seen."""
MOST_LINES = 24
"""Most lines of the only row that is open when the page opens, so that a page needs two screens. A picture of
a start is as tall as five lines of the table beside it, a stack as three, two findings as four.
"""
MOST_PARTITIONS = 256
MOST_OF_A_KIND = 40
MOST_NEXT = 60


# Findings as the page shows them: with the disks that they are about.


@dataclass(frozen=True, slots=True)
class Problem:
    """The findings of one code and severity on the disks of a row. `seen`: each, with its words. `in_table`:
    the verdicts in the table of partitions state the same.
    """

    code: str
    severity: str
    title: str
    seen: Sequence[tuple[str, Finding]]
    more: int
    causes: Sequence[str]
    in_table: bool
    cost: svg.Picture | None
    measured: Sequence[str]


def problems_of(
    findings: Sequence[Finding], content: Content, place: str, alone: str | None
) -> list[Problem]:
    """Return the findings, grouped by code, worst first. `place`: names their pictures; `alone`: a disk that
    need not be named.
    """
    groups = audit.by_code(Report(content.report.inventory, (), tuple(findings)))
    return [_problem(group, content, place, alone) for group in groups]


def _problem(findings: Sequence[Finding], content: Content, place: str, alone: str | None) -> Problem:
    first = findings[0]
    merged = audit.merged_findings(findings, alone=alone)
    costs: dict[Cost, None] = dict.fromkeys(finding.cost for finding in findings if finding.cost)
    cost = next(iter(costs), None)
    return Problem(
        first.code.value,
        first.severity.value,
        reports.explanations()[first.code].title,
        [(summary, finding) for finding, summary in merged[:MOST_OF_A_KIND]],
        max(len(merged) - MOST_OF_A_KIND, 0),
        list(_causes(findings)),
        all(
            finding.partition is not None and finding.off_by is not None and not finding.layer
            for finding in findings
        ),
        cost_picture(cost, f"cost-{place}-{first.code.value}".lower()) if cost else None,
        list(dict.fromkeys(_measured_losses(findings, content))),
    )


def _causes(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield each cause, with the partitions that it explains if it does not explain all."""
    explained: dict[str, dict[int, None]] = {}
    for finding in findings:
        if finding.cause and finding.partition is not None:
            explained.setdefault(finding.cause, {})[finding.partition] = None
    every = {finding.partition for finding in findings}
    for cause, numbers in explained.items():
        who = "" if set(numbers) == every else f" of partition{'s' if len(numbers) > 1 else ''} "
        yield f"Cause{who}{listed(numbers) if who else ''}: {cause}"


def _measured_losses(findings: Sequence[Finding], content: Content) -> Iterator[str]:
    """Yield the losses that were measured on the disk of a finding, to be shown with the predicted cost."""
    disks = {judged.disk.name: judged.disk for judged in content.report.judged}
    losses: list[Loss] = [loss for measured in content.measured for loss in measured.losses]
    for finding in findings:
        disk = disks.get(finding.disk or "")
        which = "" if finding.partition is None else f" partition {finding.partition}"
        for loss in losses:
            if disk is not None and loss.is_about(finding, disk):
                yield f"{disk.name}{which}: {loss.text}, on {loss.target}"


Explained = tuple[str, str, Iterable[tuple[str, str]], Sequence[Sequence[tuple[str, str]]]]


def explained_codes(report: Report) -> list[Explained]:
    """Return each code of the report: its title, what `aligntool explain` prints about it, and each predicted
    cost.
    """
    found: dict[reports.Code, dict[Cost, Finding]] = {}
    for finding in report.findings:
        costs = found.setdefault(finding.code, {})
        if finding.cost:
            costs.setdefault(finding.cost, finding)
    texts = [(code, reports.explanations()[code]) for code in sorted(found)]
    return [
        (
            code.value,
            text.title,
            zip(reports.QUESTIONS, text.answers, strict=True),
            [audit.cost_rows([finding]) for finding in found[code].values()],
        )
        for code, text in texts
    ]


# The commands to type next.


@dataclass(frozen=True, slots=True)
class Next:
    """What to do first: each command, with what it does, on the disk that it is about. `why`: if the headline
    is about that disk alone. `place`: where, if not on this machine.
    """

    disk: str = ""
    why: str = ""
    steps: Sequence[tuple[str, str]] = ()
    place: str = ""


def next_steps(report: Report) -> Next:
    """Return what to do first."""
    found = audit.next_finding(report)
    if found is None:
        return Next()
    disk = found.disk or ""
    place = CAPTURED if found.next.startswith(ON_CAPTURED) else ""
    if found.code is Code.IN_FLIGHT:
        ways = audit.ways_on(found.code, found.next)
        # with a masked name, there is only one way: in words
        steps = tuple(
            (", ".join(filter(None, (words, _before_command(way)))), _to_paste(way))
            for words, way in zip(("to finish the move", "to undo it"), ways, strict=False)
        )
        return Next(disk, found.summary, steps, place)
    command = _to_paste(found.next)
    first = "" if is_by_hand(found.next) else _before_command(found.next)
    why = found.summary if found in audit.hiding_findings(report) else ""
    return Next(disk, why, ((first, command),), place)


Commands = Sequence[tuple[str, Sequence[str]]]
"""Headings, each with the commands below it."""


def commands_of(
    findings: Sequence[Finding],
    repairs: Iterable[reports.Repair],
    seen: set[str],
    first: Collection[str] = (),
    *,
    captured: bool,
) -> Commands:
    """Return the commands that the findings and repairs recommend, those of the worst first, and add them to
    `seen`. No two rows of the page show the same command. `first`: those at the top of the page, which are
    not repeated alone. `captured`: the report is of a capture.
    """
    found = [finding.next for finding in findings if audit.has_command(finding)]
    found += [repair.next for repair in repairs if repair.answer == "with-shrink" and repair.next]
    headings: dict[str, str] = {}
    for command in found:
        headings.setdefault(_to_paste(command), _heading_of(command, captured=captured))
    fresh = [command for command in headings if command not in seen]
    if set(fresh) <= set(first):
        fresh = []
    seen.update(fresh)
    groups: dict[str, list[str]] = {}
    for command in fresh[:MOST_NEXT]:
        groups.setdefault(headings[command], []).append(command)
    return list(groups.items())


def _to_paste(step: str) -> str:
    """Return the command of a step, without the words before it; a step in words whole."""
    _, command, after = split_step(step)
    return command + after if command else step.removeprefix(ON_CAPTURED)


def _heading_of(command: str, *, captured: bool) -> str:
    if is_by_hand(command):
        return "To do with another program: these sections of the documentation"
    covers = _covered_words(command)
    first = _before_command(command)
    if captured and not command.startswith(ON_CAPTURED):
        return "Commands for the capture, here"
    return f"Commands{covers}{f' {CAPTURED}' * captured}{first and ', '}{first}"


def _covered_words(command: str) -> str:
    """Return which partitions a command plans to move, if it does not plan that for all without a shrink."""
    words = command.split()
    numbers = [value for option, value in pairwise(words) if option == "-p"]
    only = f" for {'partition' if len(numbers) == 1 else 'partitions'} {', '.join(numbers)} alone"
    shrunk = " for all misaligned partitions, after a file system is shrunk" if "--shrink" in words else ""
    return only if numbers else shrunk


def _before_command(step: str) -> str:
    """Return what is to be done before the command of a step, and on which machine it is otherwise."""
    words, command, _ = split_step(step)
    return words.removeprefix(ON_CAPTURED).removesuffix(": ") if command else ""


# A row: equal disks, their verdict, map, table, stacks and findings.


@dataclass(frozen=True, slots=True)
class Row:
    """`disks`: all names; `name`: as the row shows them. `tone`: of the verdict; `answer`: the worst on
    its partitions; `worst`: of the findings.
    `parts`: number, node, sector, start, size, content, verdict, mount points, tone of the verdict.
    """

    id: str
    name: str
    disks: Sequence[str]
    facts: str
    size: str
    small: svg.Picture
    verdict: str
    tone: str
    answer: Answer
    worst: str
    codes: Sequence[tuple[str, str]]
    reported: str
    geometry: str
    picture: svg.Picture | None
    starts: Sequence[svg.Picture]
    parts: Sequence[Sequence[str]]
    more_parts: int
    stacks: Sequence[Sequence[Level]]
    answers: Sequence[str]
    about_start: str
    problems: Sequence[Problem]
    notes: Sequence[Problem]
    commands: Commands
    details: Sequence[tuple[str, str]]

    @property
    def is_fine(self) -> bool:
        """Return whether every start is on the grid, and no finding is more than a note."""
        return self.answer is Answer.ON and self.worst == Severity.INFO.value

    @property
    def is_quiet(self) -> bool:
        """Return whether the opened row has no finding, and only facts, or a table without any misaligned
        start.
        """
        if self.problems or self.notes or self.commands:
            return False
        return self.is_fine or not (self.parts or self.stacks)

    @property
    def is_short(self) -> bool:
        """Return whether the opened row is short enough to be open from the start."""
        lines = max(len(self.parts) + len(self.answers), 5 * len(self.starts))
        return lines + 3 * len(self.stacks) + 4 * (len(self.problems) // 2) <= MOST_LINES


@dataclass(frozen=True, slots=True)
class Machine:
    """What the page shows of the disks. `hidden`: disks of rows that are not shown. `problems`, `notes`,
    `commands`: those of the machine as a whole.
    """

    rows: Sequence[Row]
    hidden: int
    problems: Sequence[Problem]
    notes: Sequence[Problem]
    commands: Commands

    @property
    def seen(self) -> int:
        """The number of rows that are seen at once."""
        after_the_last = [number for number, row in enumerate(self.rows, 1) if not row.is_fine]
        return max([MOST_FINE, *after_the_last])

    @property
    def folded(self) -> str:
        """How many rows are not seen at once, or ""."""
        count = len(self.rows[self.seen :])
        return (
            f"{count} more {'row' if count == 1 else 'rows'} of disks, none with a problem" if count else ""
        )


def machine_of(content: Content) -> Machine:
    """Return the rows, those with the worst findings first. A note on the disks of several rows is one of the
    machine as a whole.
    """
    report = content.report
    groups = _equal_disks(content)
    shown = groups[:MOST_DISKS]
    row_of = {judged.disk.name: number for number, group in enumerate(shown) for judged in group}
    common = _common_notes(report, row_of)
    own: dict[int | None, list[Finding]] = {}
    for finding in report.findings:
        number = None if finding in common else row_of.get(finding.disk or "")
        own.setdefault(number, []).append(finding)
    first = {command for _, command in next_steps(report).steps}
    seen: set[str] = set()
    names = disk_names(report)
    above = devices_above(report)
    first_verdicts = audit.first_verdicts(report)
    rows = []
    for number, group in enumerate(shown):
        rows.append(_row(group, names[group[0].disk.name], own.get(number, ()), content, above, seen, first))
    rows = [
        _in_error(row, first_verdicts[row.disks[0]]) if row.disks[0] in first_verdicts else row
        for row in rows
    ]
    rest = own.get(None, [])
    problems, notes = _problems_and_notes(rest, content, "machine", None)
    return Machine(
        rows,
        sum(map(len, groups[MOST_DISKS:])),
        problems,
        notes,
        commands_of(rest, (), seen, first, captured=report.inventory.captured),
    )


def _in_error(row: Row, verdict: str) -> Row:
    """Return the row of a disk with a verdict that comes before that on its starts. The map of a disk without
    partitions shows the disk itself.
    """
    small = row.small if row.parts else damaged_map()
    return replace(row, verdict=verdict, tone="error", small=small)


def _problems_and_notes(
    findings: Sequence[Finding], content: Content, place: str, alone: str | None
) -> tuple[list[Problem], list[Problem]]:
    problems = problems_of(findings, content, place, alone)
    notes = [problem for problem in problems if problem.severity == Severity.INFO.value]
    return [problem for problem in problems if problem not in notes], notes


def _common_notes(report: Report, row_of: Mapping[str, int]) -> frozenset[Finding]:
    """Return the notes with the same words on the disks of several rows."""
    places: dict[tuple[str, str], dict[int, None]] = {}
    notes = [
        finding for finding in report.findings if finding.severity is Severity.INFO and finding.disk in row_of
    ]
    for finding in notes:
        places.setdefault(_words_key(finding), {})[row_of[finding.disk or ""]] = None
    return frozenset(finding for finding in notes if len(places[_words_key(finding)]) > 1)


def _words_key(finding: Finding) -> tuple[str, str]:
    disk = finding.disk or ""
    return finding.code.value, finding.summary.removeprefix(f"{disk}: ").replace(f" of {disk} ", " ", 1)


def _equal_disks(content: Content) -> list[list[Judged]]:
    """Return the disks in groups of those that differ in nothing that is shown but names, the worst
    first.
    """
    found: dict[str, list[Finding]] = {}
    for finding in content.report.findings:
        found.setdefault(finding.disk or "", []).append(finding)
    groups: dict[object, list[Judged]] = {}
    for judged in content.report.judged:
        name = judged.disk.name
        likeness = _likeness(judged, found.get(name, ()), content.repairs.get(name, ()))
        groups.setdefault(likeness, []).append(judged)
    keys = audit.urgency(content.report)
    return sorted(groups.values(), key=lambda group: _urgency(group, keys))


def _likeness(judged: Judged, findings: Sequence[Finding], repairs: Sequence[reports.Repair]) -> object:
    """Return everything that the page shows of a disk, but for what it shows of each by name: stacks, links
    and temperatures.
    """
    disk = judged.disk
    rows = tuple(row[5] for row in audit.table_rows(judged))  # contents
    parts = tuple(
        (part.number, part.extent, audit.partition_names(part), part.mounted_at) for part in disk.partitions
    )
    labels = tuple(layer.label for layer in disk.content)
    facts = tuple(fact for fact in audit.reported_facts(disk) if fact[0] != audit.PATH)
    longer = "(?![0-9])" if disk.name[-1:].isdigit() else ""  # nvme0n1 is not in nvme0n10
    own_name = re.compile(rf"(?<![A-Za-z0-9]){re.escape(disk.name)}{longer}")
    judgement = own_name.sub("", repr((judged.grids, judged.verdicts, findings, repairs)))
    return audit.disk_words(disk), disk.size, rows, parts, labels, disk.mounted_at, facts, judgement


def _urgency(
    group: Sequence[Judged], keys: Mapping[str | None, audit.Urgency]
) -> tuple[audit.Urgency, bool, bool]:
    """Return a key that sorts the disks of the next command first, then by severity and damage, starts that
    are not on the grid before others, unused loop devices last.
    """
    disk = group[0].disk
    worst = min(keys.get(judged.disk.name, audit.NOT_URGENT) for judged in group)
    is_on = _worst_answer(group[0]) is Answer.ON
    return worst, is_on, disk.kind is DiskKind.LOOP and not disk.partitions


def _layer_words(disk: Disk) -> str | None:
    return disk.array.level if disk.array else disk.mapping


def _row(
    group: Sequence[Judged],
    place: str,
    findings: Sequence[Finding],
    content: Content,
    above: Above,
    seen: set[str],
    first_commands: Collection[str],
) -> Row:
    first = group[0]
    disks = [judged.disk for judged in group]
    only = first.disk.name if len(group) == 1 else None
    problems, notes = _problems_and_notes(findings, content, place, only)
    repairs = [repair for disk in disks for repair in content.repairs.get(disk.name, ())]
    lines = audit.repair_lines(content.repairs.get(first.disk.name, ()), width=10_000)
    answers = ["".join(text for text, _ in line).strip() for line in lines]
    verdict, tone = _verdict(first)
    worst = min(
        (finding.severity for finding in findings), key=lambda severity: severity.rank, default=Severity.INFO
    )
    return Row(
        id=place,
        name=_names(group, content.report),
        disks=[disk.name for disk in disks],
        facts=" · ".join(
            filter(None, (audit.model_words(first.disk), first.disk.kind.value, _layer_words(first.disk)))
        ),
        size="" if first.disk.size is None else format_about(first.disk.size),
        small=small_map(first),
        verdict=verdict,
        tone=tone,
        answer=_worst_answer(first),
        worst=worst.value,
        codes=[(problem.code, problem.severity) for problem in problems],
        reported=" · ".join(_facts(group, content.temperatures)),
        geometry=audit.geometry_words(first),
        picture=disk_picture(first, f"map-{place}") if first.disk.partitions else None,
        starts=list(start_pictures(first, place)),
        parts=list(_parts(group)),
        more_parts=max(len(first.disk.partitions) - MOST_PARTITIONS, 0),
        stacks=stacks_of(group, above),
        answers=[answer for answer in answers if not answer.startswith("→")],
        about_start=audit.whole_image_note(first.disk),
        problems=problems,
        notes=notes,
        commands=commands_of(
            findings, repairs, seen, first_commands, captured=content.report.inventory.captured
        ),
        details=list(_details(group)),
    )


def _names(group: Sequence[Judged], report: Report) -> str:
    """Return "vda–vdh" for disks that follow each other, otherwise their names."""
    names = [judged.disk.name for judged in group]
    order = [judged.disk.name for judged in report.judged]
    start = order.index(names[0])
    if len(names) > 2 and order[start : start + len(names)] == names:
        return f"{names[0]}–{names[-1]}"
    return shortened(names)


def _facts(group: Sequence[Judged], temperatures: Mapping[str, float]) -> Iterator[str]:
    disks = [judged.disk for judged in group]
    table = audit.table_words(disks[0])
    if table:
        yield table
    if disks[0].firmware:
        yield f"firmware {disks[0].firmware}"
    warm = [temperatures[disk.name] for disk in disks if disk.name in temperatures]
    if warm:
        yield f"{min(warm):g} °C" if min(warm) == max(warm) else f"{min(warm):g} to {max(warm):g} °C"
    contents = (
        []
        if disks[0].partitions
        else [row[5] for judged in group for row in audit.table_rows(judged) if row[5]]
    )
    labels = [f'label "{layer.label}"' for disk in disks for layer in disk.content if layer.label]
    if contents or labels:
        yield shortened(list(dict.fromkeys([*contents, *labels])))
    mounts = [mount for disk in disks for mount in disk.mounted_at]
    if mounts:
        yield f"mounted at {', '.join(mounts)}"


def _verdict(judged: Judged) -> tuple[str, str]:
    """Return the verdict on a disk in words, and its tone."""
    verdicts = [verdict for verdict in judged.verdicts if verdict.matters]
    if not verdicts:
        return "nothing to judge", ""
    tone = min(map(_tone, verdicts), key=("error", "warning", "good").index)
    if not judged.disk.partitions:
        return audit.verdict_text(verdicts[0]), tone
    answers = [verdict.answer for verdict in verdicts]
    for answer in (Answer.OFF, Answer.UNKNOWN):
        count = answers.count(answer)
        if count:
            return f"{count} of {len(answers)} {answer}", tone
    return f"{len(answers)} on the grid", tone


def _worst_answer(judged: Judged) -> Answer:
    answers = {verdict.answer for verdict in judged.verdicts if verdict.matters}
    return next((answer for answer in (Answer.OFF, Answer.UNKNOWN) if answer in answers), Answer.ON)


def _parts(group: Sequence[Judged]) -> Iterator[Sequence[str]]:
    """Yield a row for each partition of equal disks; what differs between them is listed."""
    count = min(len(group[0].disk.partitions), MOST_PARTITIONS)
    tables = [audit.table_rows(judged) for judged in group]
    for number in range(count):
        rows = [table[number] for table in tables]
        parts = [judged.disk.partitions[number] for judged in group]
        pairs = zip(rows, parts, strict=True)
        contents = dict.fromkeys(
            " ".join(filter(None, (row[5], audit.partition_names(part)))) for row, part in pairs
        )
        mounts = dict.fromkeys(mount for part in parts for mount in part.mounted_at)
        node = rows[0][1]
        verdict = rows[0][6]
        yield (
            rows[0][0],
            node if len(group) == 1 else "",
            *rows[0][2:5],
            shortened(list(filter(None, contents))),
            audit.verdict_text(verdict),
            ", ".join(mounts),
            _tone(verdict),
        )


def _tone(verdict: reports.Verdict | None) -> str:
    if verdict is None or not verdict.matters:
        return ""
    worst = audit.worst_failed_check(verdict)
    if verdict.answer is Answer.OFF and worst:
        return "error" if worst.grid.severity is Severity.ERROR else "warning"
    return "good" if verdict.answer is Answer.ON else "warning"


def _details(group: Sequence[Judged]) -> Iterator[tuple[str, str]]:
    """Yield what the drives report; what equal drives may differ in has their names."""
    for judged in group:
        for word, text in audit.reported_facts(judged.disk):
            is_own = word == audit.PATH and len(group) > 1
            if is_own or judged is group[0]:
                yield f"{word} of {judged.disk.name}" if is_own else word, text
