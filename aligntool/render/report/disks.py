"""Disks, findings, topology and measurements as the HTML report shows them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain

from aligntool.audit.report import (
    QUESTIONS,
    Answer,
    Code,
    Finding,
    Judged,
    MeasuredDisk,
    Report,
    Severity,
    explanations,
)
from aligntool.inventory import Disk, DiskKind, LinkHop, Port, most_of, runs_below
from aligntool.raid.ceilings import Rates, hop_words, narrowest
from aligntool.raid.running import ArrayView
from aligntool.render import audit, svg
from aligntool.render.disk_map import check_drawn
from aligntool.render.lines import Style
from aligntool.render.report.maps import disk_picture, start_pictures
from aligntool.units import counted, format_rate

# Benchmarks as a page shows them: charts, sentences, conditions.


@dataclass(frozen=True, slots=True)
class Loss:
    """What random writes of `request` bytes keep of their rate `residue` bytes past a boundary of `unit` bytes, as it
    was measured on `target`, which is on `disk`; None: an older file, which lacks it."""

    unit: int
    request: int
    residue: int
    disk: MeasuredDisk | None
    target: str
    text: str

    def is_about(self, finding: Finding, disk: Disk) -> bool:
        """Whether it was measured on that disk, by what the disk calls itself, and from a start that is off as far."""
        cost = finding.cost
        if cost is None or finding.start is None or self.disk is None or not self.disk.is_of(disk):
            return False
        lies = (cost.unit, cost.request, finding.start % self.unit)
        return lies == (self.unit, self.request, self.residue)


@dataclass(frozen=True, slots=True)
class Measured:
    """One result. `notes`: remarks. `conditions`: a word and its text.
    `about`: who was measured and how, a line each, for a picture of its own.
    `figures`: all of them as a table, the heads first; a row of one cell is the head of those below it. A chart whose
    figures are there needs no table of its own.
    """

    title: str
    summary: str
    charts: tuple[svg.Chart, ...] = ()
    figures: svg.Rows = ()
    notes: tuple[str, ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()
    losses: tuple[Loss, ...] = ()
    about: tuple[str, ...] = ()


def when_words(when: str) -> str:
    """ "2026-11-21T23:45:52Z" -> "2026-11-21 23:45 UTC"; other text stays as it is."""
    found = re.fullmatch(r"([0-9-]{10})T([0-9]{2}:[0-9]{2}):[0-9]{2}Z", when)
    return f"{found[1]} {found[2]} UTC" if found else when


# The verdict in words: the headline, and figures that lead to what they count.


def headline(report: Report) -> tuple[str, str]:
    """Return the verdict in a sentence, and a word for its colour: "error", "warning", "good" or "info"."""
    ((text, style),) = audit.verdict_line(report)
    costs = [one.cost for one in report.findings if one.cost and one.severity is not Severity.INFO]
    warnings = report.count(Severity.WARNING)
    if style is Style.BAD and costs:
        rate = min(cost.write_rate for cost in costs)
        text += f"; the predicted write rate {'halves' if rate == Fraction(1, 2) else f'falls to {rate}'}"
    if style is Style.GOOD and not warnings:
        return text.replace("OK", "All is well"), "good"
    if style is Style.GOOD:
        text, style = f"E{text.removeprefix('OK: e')}; {counted(warnings, 'warning')} of another kind", Style.DOUBT
    return text, {Style.BAD: "error", Style.DOUBT: "warning"}.get(style, "info")


def tiles_of(report: Report) -> Iterator[tuple[int, str, str, str]]:
    """Number, word, the id of what has the details, and a word for the colour."""
    first: dict[str, str] = {}
    for one, *_ in audit.by_code(report):
        first.setdefault(one.severity.value, group_id(one))
        if one.severity is not Severity.INFO:
            unknown = one.code in (Code.UNKNOWN_ALIGNMENT, Code.NOT_JUDGED)
            first.setdefault("unknown" if unknown else "off" if one.code.value.startswith("AT1") else "", group_id(one))
    yield len(report.judged), "disk" if len(report.judged) == 1 else "disks", "disks", ""
    for answer, name, tone in ((Answer.ON, "on", "good"), (Answer.OFF, "off", "error"),
                               (Answer.UNKNOWN, "unknown", "warning")):  # fmt: skip
        yield report.count_answers(answer), answer.value, first.get(name, "disks"), tone
    for severity, word in zip(Severity, ("errors", "warnings", "notes"), strict=True):
        yield report.count(severity), word, first.get(severity.value, ""), severity.value


def group_id(finding: Finding) -> str:
    return f"{finding.code.value}-{finding.severity.value}".lower()


# Findings as the page shows them: one article a code, with the explanation that `aligntool explain` gives.

MOST_OF_A_KIND = 40
MOST_NEXT = 60
_THERE = "on the captured machine: "


def groups_of(report: Report, losses: Sequence[Loss] = ()) -> list[dict[str, object]]:
    """Worst first, each code once a severity. `losses`: what was measured of the boundaries in question."""
    disks = {judged.disk.name: judged.disk for judged in report.judged}
    made: list[dict[str, object]] = []
    for findings in audit.by_code(report):
        text = explanations()[findings[0].code]
        alike = audit.alike_of(findings, alone=audit.only_disk(report))
        made.append({
            "id": group_id(findings[0]), "code": findings[0].code.value, "severity": findings[0].severity.value,
            "title": text.title, "count": len(findings), "next": any(map(_has_command, findings)),
            "seen": [(summary, finding) for finding, summary in alike[:MOST_OF_A_KIND]],
            "more": max(len(alike) - MOST_OF_A_KIND, 0), "costs": audit.cost_rows(findings),
            "measured": list(dict.fromkeys(_measured(findings, disks, losses))),
            "explained": zip(QUESTIONS, text.answers, strict=True),
        })  # fmt: skip
    return made


def _measured(findings: Sequence[Finding], disks: Mapping[str, Disk], losses: Sequence[Loss]) -> Iterator[str]:
    """Beside what is predicted for a disk what was measured on it, and on no other."""
    for finding in findings:
        disk = disks.get(finding.disk or "")
        which = "" if finding.partition is None else f" partition {finding.partition}"
        for loss in losses:
            if disk is not None and loss.is_about(finding, disk):
                yield f"{disk.name}{which}: {loss.text}, on {loss.target}"


def _has_command(finding: Finding) -> bool:
    """The page explains every code itself."""
    return bool(finding.next) and not finding.next.startswith("aligntool explain ")


def commands_of(report: Report, mends: audit.Mends) -> list[tuple[str, str, str, list[str]]]:
    """What to type next, the worst first: the id of the findings, their code and title, and the commands, each where it
    is asked for first.
    """
    made: list[tuple[str, str, str, list[str]]] = []
    seen: set[str] = set()
    for findings in audit.by_code(report):
        asked = dict.fromkeys(one.next.removeprefix(_THERE) for one in findings if _has_command(one))
        if commands := [command for command in asked if command not in seen]:
            title = explanations()[findings[0].code].title
            made.append((group_id(findings[0]), findings[0].code.value, title, commands[:MOST_NEXT]))
            seen.update(commands)
    shrinks = (one.next.removeprefix(_THERE) for one in chain(*mends.values()) if one.answer == "with-shrink")
    if more := [command for command in dict.fromkeys(shrinks) if command and command not in seen]:
        made.append(("", "", "A shrink makes room", more[:MOST_NEXT]))
    return made


# Where drives hang: the links from the processor down to each drive as a tree, and which of them binds an
# array.


@dataclass(frozen=True, slots=True)
class Branch:
    """A link or a drive. `binds`: the arrays whose ceiling it sets. `slower`: what it could do, where it does less."""

    name: str
    what: str
    speed: str = ""
    binds: tuple[str, ...] = ()
    slower: str = ""
    drive: bool = False
    below: tuple["Branch", ...] = ()


@dataclass
class _Node:
    hop: LinkHop | None
    hidden: str = ""
    disks: list[Disk] = field(default_factory=list)
    below: dict[str, "_Node"] = field(default_factory=dict)


def tree_of(report: Report, arrays: Sequence[ArrayView]) -> tuple[Branch, ...]:
    """From the processor down. Empty where no drive's way is known."""
    root = _Node(None)
    for judged in report.judged:
        for way in judged.disk.links:
            _grow(root, judged.disk, way)
    return tuple(_branch(node, report, arrays) for node in root.below.values())


def _grow(root: _Node, disk: Disk, way: Sequence[LinkHop]) -> None:
    """Ways go from the drive up; the tree goes down. A link that sysfs does not show is a branch too."""
    node = root
    for hop in reversed(way):
        if hop.hidden_uplink:
            node = node.below.setdefault(f"hidden {hop.hidden_uplink}", _Node(hop, hop.hidden_uplink))
        node = node.below.setdefault(hop.address, _Node(hop))
    if disk not in node.disks:
        node.disks.append(disk)


def _branch(node: _Node, report: Report, arrays: Sequence[ArrayView], above: LinkHop | None = None) -> Branch:
    below = tuple(_branch(each, report, arrays, node.hop) for each in node.below.values())
    held = {
        disk.name: tuple(each.name for each in arrays if _binds(f"{disk.name} itself", each)) for disk in node.disks
    }
    drives = [Branch(disk.name, disk.model or disk.kind.value, "", held[disk.name], "", True) for disk in node.disks]
    if node.hop is None:
        return Branch("", "", below=below)
    hop, binding = node.hop, _binding(node, arrays, report)
    if node.hidden:
        speed = format_rate(hop.hidden_bandwidth) if hop.hidden_bandwidth else ""
        return Branch(node.hidden, "to the processor; the system does not show it", speed, binding, below=below)
    what = f"{hop.port}, {hop.name}" if hop.name else f"{hop.port}"
    return Branch(hop.address, what, _speed(hop), binding, _slower(hop, above), False, (*drives, *below))


def _speed(hop: LinkHop) -> str:
    lanes = f"{hop.speed_gts:g} GT/s x{hop.width}" if hop.speed_gts and hop.width else ""
    return ", ".join(word for word in (lanes, format_rate(hop.bandwidth) if hop.bandwidth else "") if word)


def _slower(hop: LinkHop, above: LinkHop | None) -> str:
    """A drive whose link runs below what both its ends can do, by the audit's rule (AT501)."""
    if hop.port is not Port.ENDPOINT:
        return ""
    most = most_of(hop, above if above is not None and above.port is not Port.VMD else None)
    if not most.both_ends or not runs_below(hop, most):
        return ""
    return f"{most.speed_gts:g} GT/s x{most.width}" + (f", {format_rate(most.bandwidth)}" if most.bandwidth else "")


def _binding(node: _Node, arrays: Sequence[ArrayView], report: Report) -> tuple[str, ...]:
    disks = _disks_below(node)
    if node.hop is None:
        return ()
    names = {f"{node.hidden} above {disk.name}" if node.hidden else hop_words(disk, node.hop) for disk in disks}
    name = node.hidden or node.hop.address
    shared = any(uplink.name == name for uplink in report.inventory.uplinks)
    return tuple(each.name for each in arrays if names & binding_of(each) or (shared and _binds(name, each)))


def binding_of(array: ArrayView) -> frozenset[str]:
    """What has to get faster for it to read or to write faster."""
    return frozenset({array.ceiling.binds, array.ceiling.binds_write}) - {""}


def _binds(name: str, array: ArrayView) -> bool:
    return any(what.startswith(f"{name} (") for what in binding_of(array))


def _disks_below(node: _Node) -> list[Disk]:
    return node.disks + [disk for each in node.below.values() for disk in _disks_below(each)]


def ceiling_chart(array: ArrayView, report: Report, number: int, rates: Rates) -> svg.BarChart | None:
    """What the ways of an array's members and the drives themselves carry, and its ceiling. None: nothing is known."""
    found = array.ceiling
    if found.read is None and found.write is None:
        return None
    bars = [
        svg.Bar(f"{array.name}, {way}", most / 1e9, format_rate(most), kind=kind, note="the array's ceiling")
        for way, kind, most in (("reading", "read", found.read), ("writing", "write", found.write))
        if most is not None
    ]
    bars += _ways(array, report, rates)
    title = f"What the links and the drives of {array.name} carry"
    drives = [member.drive for member in array.members if member.drive in rates]
    note = "; ".join(f"{drive} itself: {rates[drive].by}" for drive in drives if drive)
    return svg.BarChart(f"links-{number}", title, "GB/s (10^9 bytes a second)", tuple(bars), note)


def _ways(array: ArrayView, report: Report, rates: Rates) -> Iterator[svg.Bar]:
    """Links that several members share, each member's own, and what each drive does alone, where that is known."""
    for uplink in report.inventory.uplinks:
        below = [member for member in array.members if member.drive in uplink.members]
        if uplink.bandwidth and below:
            binds = _binds(uplink.name, array)
            yield _carries(uplink.name, uplink.bandwidth, f"shared by {len(below)}", binds=binds)
    drives = {judged.disk.name: judged.disk for judged in report.judged}
    for member in array.members:
        disk = drives.get(member.drive or "")
        if lane := narrowest(disk) if disk else None:
            yield _carries(member.name, lane.bandwidth, "its own link", binds=lane.what in binding_of(array))
    found = array.ceiling
    for drive in [member.drive for member in array.members if member.drive in rates]:
        known = rates[drive or ""]
        for way, own, binding in (("reading", known.read, found.binds),
                                  ("writing", known.write, found.binds_write or found.binds)):  # fmt: skip
            if own:
                yield _carries(f"{drive} itself, {way}", own, "", binds=binding.startswith(f"{drive} itself ("))


def _carries(label: str, bandwidth: int, note: str, *, binds: bool) -> svg.Bar:
    note = ", ".join(word for word in ("binds" if binds else "", note) if word)
    return svg.Bar(label, bandwidth / 1e9, format_rate(bandwidth), kind="bad" if binds else "plain", note=note)


# What a report is made of, and the names of its pictures.


@dataclass(frozen=True, slots=True)
class Content:
    """`made`: when, as it is to be read. `measured`: benchmarks as charts and words. `rates`: what drives do alone,
    where it is known. `machine`: its name. `temperatures`: in °C, by the disk's name.
    """

    report: Report
    arrays: tuple[ArrayView, ...] = ()
    mends: audit.Mends = field(default_factory=dict)
    measured: tuple[Measured, ...] = ()
    made: str = ""
    rates: Rates = field(default_factory=dict)
    machine: str = ""
    temperatures: Mapping[str, float] = field(default_factory=dict)


def chart_picture(chart: svg.Chart, about: tuple[str, ...] = ()) -> svg.Picture:
    """`about`: the text below the title in a picture of its own."""
    return replace(svg.picture_of(chart), about=about)


def pictures_of(content: Content) -> Iterator[svg.Picture]:
    """All of them, in the order of the page."""
    names = disk_names(content.report)
    for judged in content.report.judged:
        if picture := disk_picture(judged, f"map-{names[judged.disk.name]}"):
            yield replace(picture, about=(audit.disk_words(judged.disk), audit.geometry_words(judged)))
        for picture in start_pictures(judged, names[judged.disk.name]):
            yield replace(picture, about=(audit.disk_words(judged.disk), picture.alternative))
    for number, array in enumerate(content.arrays, 1):
        if chart := ceiling_chart(array, content.report, number, content.rates):
            members = ", ".join(member.name for member in array.members)
            yield chart_picture(chart, (f"{array.name}, {array.level} of {members}", chart.note))
    for measured in content.measured:
        yield from (chart_picture(chart, measured.about) for chart in measured.charts)
    yield svg.queue_picture()


def disk_names(report: Report) -> dict[str, str]:
    """A disk's name as a part of a picture's: letters, digits and hyphens, and no two alike."""
    made: dict[str, str] = {}
    for number, judged in enumerate(report.judged, 1):
        word = re.sub(r"[^a-z0-9]+", "-", judged.disk.name.rsplit("/", 1)[-1].lower()[:40]).strip("-")
        made[judged.disk.name] = word if word and word not in made.values() else f"{word or 'disk'}-{number}"
    return made


# A disk as the page shows it: facts, map, table, starts.

MOST_DISKS = 64
"""So many disks are shown in full; the rest are counted."""
MOST_ROWS = 256


def disk_views(content: Content) -> Iterator[dict[str, object]]:
    """Those with an error or a warning first. `rows`: number, node, sector, start, size, content, verdict, where it is
    mounted. `fold`: nothing is wrong with it, and there are others.
    """
    report, names = content.report, disk_names(content.report)
    groups = [findings[0] for findings in audit.by_code(report)]
    codes: dict[str, dict[str, Finding]] = {}
    for one in report.findings:
        codes.setdefault(one.disk or "", {})[group_id(one)] = one
    bad = {name for name, found in codes.items() if any(one.severity is not Severity.INFO for one in found.values())}
    drawn: set[object] = set()
    for judged in sorted(report.judged, key=lambda each: each.disk.name not in bad)[:MOST_DISKS]:
        disk, name = judged.disk, names[judged.disk.name]
        lines = audit.mend_lines(content.mends.get(disk.name, ()), width=10_000)
        yield {
            "id": name, "name": disk.name, "facts": " · ".join(_facts(disk, content.temperatures)),
            "geometry": audit.geometry_words(judged),
            "picture": disk_picture(judged, f"map-{name}") if disk.partitions else None,
            "starts": [] if _drawn_before(judged, drawn) else list(start_pictures(judged, name)),
            "rows": list(_rows(judged)), "more_rows": max(len(disk.partitions) - MOST_ROWS, 0),
            "answers": ["".join(text for text, _ in line).strip().replace(_THERE, "") for line in lines],
            "details": list(audit.facts_of(disk)), "unseen": disk.unseen, "verdict": _verdict(judged),
            "codes": [(group_id(one), one) for one in groups if group_id(one) in codes.get(disk.name, {})],
            "fold": disk.name not in bad and len(report.judged) > 1,
            "loop": disk.kind is DiskKind.LOOP and not disk.partitions and disk.name not in bad,
        }  # fmt: skip


def _facts(disk: Disk, temperatures: Mapping[str, float]) -> Iterator[str]:
    yield audit.disk_words(disk)
    if disk.firmware:
        yield f"firmware {disk.firmware}"
    if disk.name in temperatures:
        yield f"{temperatures[disk.name]:g} °C"
    if disk.mounted_at:
        yield f"mounted at {', '.join(disk.mounted_at)}"


def _verdict(judged: Judged) -> str:
    """ "3 off the grid, 1 on the grid"."""
    answers = [one.answer for one in judged.verdicts if one.matters]
    found = [f"{answers.count(answer)} {answer}" for answer in reversed(Answer) if answer in answers]
    return ", ".join(found) or "nothing to judge"


def _drawn_before(judged: Judged, drawn: set[object]) -> bool:
    """Whether another disk has starts that lie alike: a picture of them is on the page already."""
    alike = tuple(
        (one.start, check.grid.kind, check.grid.size, check.off_by)
        for one in judged.verdicts
        if one.matters and one.answer is Answer.OFF and (check := check_drawn(one))
    )
    found = alike in drawn
    drawn.add(alike)
    return found


def _rows(judged: Judged) -> Iterator[tuple[str, ...]]:
    disk = judged.disk
    for row, part in zip(audit.table_rows(judged)[:MOST_ROWS], disk.partitions or (None,), strict=False):
        content = " ".join(word for word in (row[5], audit.names_of(part) if part else "") if word)
        mounted = part.mounted_at if part else disk.mounted_at
        yield (*row[:5], content, audit.verdict_text(row[6]), ", ".join(mounted))
