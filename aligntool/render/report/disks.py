"""Disks, findings, topology and measurements as the HTML report shows them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from xml.etree.ElementTree import Element

from aligntool.audit.report import QUESTIONS, Answer, Finding, Judged, MeasuredDisk, Report, Verdict, explanations
from aligntool.audit.wording import layer_name
from aligntool.inventory import Disk, LinkHop, Partition, Port, Role, most_of, runs_below
from aligntool.raid.chunks import Rates, hop_words, narrowest
from aligntool.raid.running import ArrayView
from aligntool.render import audit, svg
from aligntool.render.disk_map import block_of, check_drawn, crossings, judgement
from aligntool.render.lines import Style, harmless
from aligntool.render.svg import box, fitting, frame, line, path, percent, words, words_width
from aligntool.units import format_about, format_rate, format_size

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


# Findings as the page shows them: one article a code, with the explanation that `aligntool explain` gives.

MOST_OF_A_KIND = 40
MOST_COMMANDS = 5  # for one code
MOST_NEXT = 60


def groups_of(report: Report, losses: Sequence[Loss] = ()) -> list[dict[str, object]]:
    """Worst first, each code once a severity. `losses`: what was measured of the boundaries in question."""
    disks = {judged.disk.name: judged.disk for judged in report.judged}
    made: list[dict[str, object]] = []
    for findings in audit.by_code(report):
        text = explanations()[findings[0].code]
        alike = audit.alike_of(findings, alone=audit.only_disk(report))
        commands = dict.fromkeys(finding.next for finding in findings if _has_command(finding))
        made.append({
            "code": findings[0].code.value, "severity": findings[0].severity.value, "title": text.title,
            "seen": [(summary, finding) for finding, summary in alike[:MOST_OF_A_KIND]],
            "more": max(len(alike) - MOST_OF_A_KIND, 0), "costs": audit.cost_rows(findings),
            "measured": list(dict.fromkeys(_measured(findings, disks, losses))),
            "commands": list(commands)[:MOST_COMMANDS], "explained": zip(QUESTIONS, text.answers, strict=True),
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


def commands_of(report: Report, mends: audit.Mends) -> tuple[tuple[str, str], ...]:
    """What to type next, and why; what the worst findings ask for comes first."""
    why: dict[str, dict[str, None]] = {}
    for finding in filter(_has_command, report.findings):
        why.setdefault(finding.next, {})[finding.code.value] = None
    made = {command: f"for {', '.join(codes)}" for command, codes in why.items()}
    for mend in chain.from_iterable(mends.values()):
        if mend.next and mend.answer == "with-shrink":
            made.setdefault(mend.next, "a shrink makes room")
    return tuple(made.items())[:MOST_NEXT]


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
        svg.Bar(f"{array.name}, {way}", most / 1e9, format_rate(most), kind="good", note="the array's ceiling")
        for way, most in (("reading", found.read), ("writing", found.write))
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


# A disk as a picture: its partitions in order, to scale as far as they stay readable, and how each one
# starts.

WIDTH = 720
PHONE = 330  # pixels that a small phone leaves for a picture
MOST_IN_A_ROW = 10
MAP_ROWS = 6
LEAST_SHARE = 0.07  # of the row: a number of two digits on a phone
ROW = 92  # pixels
_STYLES = {Style.DIM: "plain", Style.GOOD: "good", Style.BAD: "bad"}
SMALL_GAP = 0.002  # of the disk: free space below that is not drawn


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of the disk; `partition` None: free, or the disk used whole."""

    start: int
    length: int
    partition: Partition | None = None
    verdict: Verdict | None = None
    label: str = ""
    what: str = ""


def disk_picture(judged: Judged, name: str) -> svg.Picture | None:
    """`name`: what --chart takes. None: nothing is known to lie on it."""
    pieces = _pieces(judged)
    if not pieces:
        return None
    rows = [pieces[at : at + MOST_IN_A_ROW] for at in range(0, len(pieces), MOST_IN_A_ROW)]
    elements: list[Element] = []
    for number, row in enumerate(rows[:MAP_ROWS]):
        elements += _row(row, number * ROW, judged.disk.size)
    height = min(len(rows), MAP_ROWS) * ROW
    if len(rows) > MAP_ROWS:
        left = sum(len(row) for row in rows[MAP_ROWS:])
        elements.append(words(0, height + 14, f"… and {left} more; the table has them all", "dim"))
        height += 20
    title = f"Map of {judged.disk.name}"
    return svg.Picture(name, title, _alternative(judged), WIDTH, height, tuple(elements), fluid=True)


def _pieces(judged: Judged) -> list[Piece]:
    disk = judged.disk
    verdicts = judged.by_partition()
    if not disk.partitions:
        whole = verdicts.get(None)
        what = ", ".join(map(layer_name, disk.content)) or disk.content_hint or "in use"
        return [Piece(0, disk.size or 1, None, whole, "whole", what)] if whole else []
    parts = sorted(_drawn(disk), key=lambda part: (part.extent.start, part.number))
    made: list[Piece] = []
    end = 0
    for part in parts:
        made += _gap(end, part.extent.start, disk)
        place, what = part.extent, ", ".join(map(layer_name, part.content)) or part.content_hint or part.type_name
        made.append(Piece(place.start, place.length, part, verdicts.get(part.number), str(part.number), what))
        end = max(end, place.end)
    return made + list(_gap(end, disk.size or 0, disk))


def _drawn(disk: Disk) -> Iterator[Partition]:
    """Not the containers: what lies in them is drawn."""
    for part in disk.partitions:
        others = (other for other in disk.partitions if other.number != part.number)
        holds = part.role is Role.MAP and any(part.extent.contains(other.extent) for other in others)
        if part.role is not Role.EXTENDED and not holds:
            yield part


def _gap(start: int, end: int, disk: Disk) -> Iterator[Piece]:
    if disk.size and end - start > disk.size * SMALL_GAP:
        yield Piece(start, end - start, what="free")


def shares(lengths: Sequence[int], least: float) -> list[float]:
    """Parts of the row, which add up to 1: in proportion, but none below `least`. Needs least × pieces < 1."""
    small: set[int] = set()
    while True:
        rest = sum(length for index, length in enumerate(lengths) if index not in small)
        room = 1 - least * len(small)
        tiny = {at for at, length in enumerate(lengths) if rest == 0 or length / rest * room < least} - small
        if not tiny:
            break
        small |= tiny
    if len(small) == len(lengths):
        return [1 / len(lengths)] * len(lengths)
    return [least if index in small else length / rest * room for index, length in enumerate(lengths)]


def _row(row: Sequence[Piece], top: int, size: int | None) -> Iterator[Element]:
    widths = shares([max(piece.length, 0) for piece in row], LEAST_SHARE)
    at = 0.0
    for piece, share in zip(row, widths, strict=True):
        yield from _piece(piece, at, share, top)
        at += share
    last = row[-1].start + row[-1].length
    yield line(0, top + 70, "100%", top + 70, "axis")
    yield words(0, top + 84, f"{format_about(row[0].start)}", "small dim")
    yield words("100%", top + 84, "end of the disk" if last == size else format_about(last), "small dim end")


def _piece(piece: Piece, at: float, share: float, top: int) -> Iterator[Element]:
    left, width = percent(at), percent(share)
    if piece.partition is None and piece.verdict is None:
        yield box(left, top + 20, width, 44, "free")
        yield from _label("free", "dim small", at, share, top + 46)
        return
    style = _style(piece.verdict)
    yield box(left, top + 20, width, 44, style)
    yield from _label(piece.label, "strong", at, share, top + 38)
    yield from _label(piece.what, "small", at, share, top + 56)
    if style in ("bad", "doubt"):  # a triangle that points at the start, full for an error, hollow for a warning
        yield frame(left, top, "16", 20, [path([(1, 2), (13, 2), (1, 16)], f"mark-{style}", closed=True)])
    elif style == "unknown":
        yield frame(left, top, "14", 20, [words(1, 15, "?", "strong")])


def _label(text: str, style: str, at: float, share: float, y: int) -> Iterator[Element]:
    """What fits on a phone is always shown; what fits only on a wider screen is shown there."""
    size = 11.5 if "small" in style else 13
    left, width = percent(at), percent(share)
    room = share * PHONE - 8
    if words_width(text, size) <= room:
        yield frame(left, y - 16, width, 22, [words(5, 16, text[:200], style)])
    elif short := fitting(text, share * WIDTH - 8, size):
        yield frame(left, y - 16, width, 22, [words(5, 16, short, f"{style} wide")])


def _style(verdict: Verdict | None) -> str:
    if verdict is not None and verdict.matters and verdict.answer is Answer.UNKNOWN:
        return "unknown"
    return _STYLES.get(audit.verdict_words(verdict)[0][1], "doubt")


def _alternative(judged: Judged) -> str:
    said = []
    for piece in _pieces(judged)[:40]:
        if piece.partition is None and piece.verdict is None:
            said.append(f"free: {format_about(piece.length)}")
            continue
        who = f"partition {piece.label}" if piece.partition else "the whole disk"
        size, answer = format_about(piece.length), audit.verdict_text(piece.verdict)
        said.append(f"{who}, {harmless(piece.what)[:60]}, {size}: {answer}")
    return "; ".join(said)


# Blocks over sectors, as a picture: the drawing of the 2010 article for one start of the user's own disk.

UNITS = 4
MOST_BLOCKS = 40


def start_picture(judged: Judged, verdict: Verdict, name: str) -> svg.Picture | None:
    """Four units of the boundary in question, and below them the blocks as they really lie; those that cross a boundary
    are drawn as such, by colour and by a thicker edge. None: no boundary was checked.
    """
    check = check_drawn(verdict)
    if check is None:
        return None
    partition = next((part for part in judged.disk.partitions if part.number == verdict.partition), None)
    who = judged.disk.name if partition is None else f"partition {partition.number} of {judged.disk.name}"
    block, grid, past = block_of(partition), check.grid.size, check.off_by
    request = block if block * 16 >= grid else grid
    said = f"{who} starts at byte {verdict.start}: {judgement(verdict, check)}"
    said += "" if check.on else f"; {crossings(check, request)}"
    width = (svg.RIGHT - svg.LEFT) / UNITS
    scale = width / grid
    elements = [words(svg.LEFT, 12, f"{check.grid.kind}, {format_size(grid)} each", "small dim")]
    for unit in range(UNITS):
        elements.append(box(svg.LEFT + unit * width, 18, width, 24, "plain"))
        text = str(verdict.start - past + unit * grid)
        elements.append(words(svg.LEFT + unit * width + 4, 34, text, "small"))
    for begin in range(past, UNITS * grid - request + 1, request)[:MOST_BLOCKS]:
        crosses = begin // grid != (begin + request - 1) // grid and not check.on
        elements.append(box(svg.LEFT + begin * scale, 52, request * scale, 24, "bad" if crosses else "good"))
    kind = "blocks" if request < grid or check.on else "blocks or requests"
    elements.append(words(svg.RIGHT, 112, f"{kind} of {format_size(request)}", "small dim end"))
    for unit in range(1, UNITS):
        elements.append(line(svg.LEFT + unit * width, 42, svg.LEFT + unit * width, 82, "axis"))
    at = svg.LEFT + past * scale
    text = "starts on the boundary" if check.on else f"starts {format_size(past)} past it"
    elements.append(path([(at - 5, 90), (at, 80), (at + 5, 90)], "arrow"))
    elements.append(words(max(at - 4, svg.LEFT), 104, text, "small"))
    return svg.Picture(name, f"Start of {who}", said, svg.WIDTH, 118, tuple(elements))


# What a report is made of, and the names of its pictures.

MOST_STARTS = 2
"""So many starts of a disk are drawn; the table has all of them."""


@dataclass(frozen=True, slots=True)
class Content:
    """`made`: when, as it is to be read. `measured`: benchmarks as charts and words. `rates`: what drives do alone,
    where it is known.
    """

    report: Report
    arrays: tuple[ArrayView, ...] = ()
    mends: audit.Mends = field(default_factory=dict)
    measured: tuple[Measured, ...] = ()
    made: str = ""
    rates: Rates = field(default_factory=dict)


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


def start_pictures(judged: Judged, name: str) -> Iterator[svg.Picture]:
    """Of the first partitions that are off."""
    off = [verdict for verdict in judged.verdicts if verdict.answer is Answer.OFF and verdict.matters]
    for verdict in off[:MOST_STARTS]:
        number = "whole" if verdict.partition is None else verdict.partition
        if picture := start_picture(judged, verdict, f"start-{name}-{number}"):
            yield picture


# A disk as the page shows it: facts, map, table, starts.

MOST_DISKS = 64
"""So many disks are shown in full; the rest are counted."""
MOST_ROWS = 256


def disk_views(report: Report, mends: audit.Mends) -> Iterator[dict[str, object]]:
    """`rows`: number, node, sector, start, size, content, verdict."""
    names = disk_names(report)
    for judged in report.judged[:MOST_DISKS]:
        disk, name = judged.disk, names[judged.disk.name]
        lines = audit.mend_lines(mends.get(disk.name, ()), width=10_000)
        yield {
            "id": name, "name": disk.name, "facts": audit.disk_words(disk), "geometry": audit.geometry_words(judged),
            "picture": disk_picture(judged, f"map-{name}"), "starts": list(start_pictures(judged, name)),
            "rows": list(_rows(judged)), "more_rows": max(len(disk.partitions) - MOST_ROWS, 0),
            "answers": ["".join(text for text, _ in line).strip() for line in lines],
            "details": list(audit.facts_of(disk)), "unseen": disk.unseen,
        }  # fmt: skip


def _rows(judged: Judged) -> Iterator[tuple[str, ...]]:
    for row, part in zip(audit.table_rows(judged)[:MOST_ROWS], judged.disk.partitions or (None,), strict=False):
        content = " ".join(word for word in (row[5], audit.names_of(part) if part else "") if word)
        yield (*row[:5], content, audit.verdict_text(row[6]))
