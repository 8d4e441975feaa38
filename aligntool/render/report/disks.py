"""Prepare disks, findings, topology and measurements for the HTML report."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aligntool.audit import report as reports
from aligntool.audit.report import Answer, Finding, Report, Severity
from aligntool.inventory import Disk, LinkHop, Port, link_maximum, runs_below
from aligntool.raid.ceilings import Rates, hop_words, narrowest_link
from aligntool.raid.running import ArrayView
from aligntool.render import audit, svg
from aligntool.render.lines import Style
from aligntool.render.report.maps import disk_picture, start_pictures
from aligntool.units import counted, format_rate, format_size

# Benchmarks as a page shows them: charts, sentences, conditions.


@dataclass(frozen=True, slots=True)
class Loss:
    """The share of their rate that random writes of `request` bytes keep if they start `residue` bytes past a
    boundary of `unit` bytes, measured on `target`, which is on `disk` (None: in an older file, without the
    disk).
    """

    unit: int
    request: int
    residue: int
    disk: reports.MeasuredDisk | None
    target: str
    text: str

    def is_about(self, finding: Finding, disk: Disk) -> bool:
        """Return whether it was measured on that disk, by the identity it reports, at a start equally far
        off.
        """
        cost = finding.cost
        if cost is None or finding.start is None or self.disk is None or not self.disk.is_of(disk):
            return False
        start = (cost.unit, cost.request, finding.start % self.unit)
        return start == (self.unit, self.request, self.residue)


@dataclass(frozen=True, slots=True)
class Measured:
    """One result. `notes`: remarks. `conditions`: names and their texts.
    `about`: the target and the method, a line each, for a picture in its own file.
    `figures`: all figures as a table, the header first; a row of one cell is the heading of the rows below. A
    chart with its figures in this table needs no other table.
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
    """Return "2026-11-21 23:45 UTC" for "2026-11-21T23:45:52Z"; other text stays as it is."""
    found = re.fullmatch(r"([0-9-]{10})T([0-9]{2}:[0-9]{2}):[0-9]{2}Z", when)
    return f"{found[1]} {found[2]} UTC" if found else when


# The verdict in words.


def headline(report: Report) -> tuple[str, str]:
    """Return the verdict as a sentence, and its tone: "error", "warning", "good" or "info"."""
    ((text, style),) = audit.verdict_line(report)
    warnings = report.count(Severity.WARNING)
    if style is Style.GOOD and not warnings:
        return text, "good"
    if style is Style.GOOD:
        text = f"E{text.removeprefix('OK: e')}; {counted(warnings, 'warning')} of another kind"
        style = Style.DOUBT
    return text, {Style.BAD: "error", Style.DOUBT: "warning"}.get(style, "info")


def cost_words(report: Report) -> str:
    """Return the predicted costs as a sentence, from the worst to the least, or "" if the headline is not
    about misaligned partitions.
    """
    costs = [
        finding.cost for finding in report.findings if finding.cost and finding.severity is not Severity.INFO
    ]
    if not costs or not audit.is_about_starts(report):
        return ""
    worst = min(costs, key=lambda cost: cost.write_rate)
    least = max(costs, key=lambda cost: cost.write_rate)
    share = worst.write_share + (f" to {least.write_share}" if least.write_share != worst.write_share else "")
    rate = f"random {format_size(worst.request)} writes there run at {share} of the aligned rate"
    return f"Predicted: {rate}. {audit.INTACT}"


ANSWERS = ((Answer.ON, "on", "good"), (Answer.OFF, "off", "bad"), (Answer.UNKNOWN, "unknown", "unknown"))


def answer_bar(counts: Sequence[int]) -> svg.Picture:
    """Return a bar of the starts on the grid, off it and unknown."""
    total = max(sum(counts), 1)
    return svg.strip(
        [(count / total, style) for count, (_, _, style) in zip(counts, ANSWERS, strict=True) if count], 20
    )


# The links from the processor down to each drive as a tree, and the ones that limit an array.


@dataclass(frozen=True, slots=True)
class Branch:
    """A link or a drive. `binds`: the arrays that it limits. `slower`: its possible speed if it runs below
    that.
    """

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
    """Return the tree of links below the processor. Empty if no drive's links are known."""
    root = _Node(None)
    for judged in report.judged:
        for links in judged.disk.links:
            _add_links(root, judged.disk, links)
    return tuple(_branch(node, report, arrays) for node in root.below.values())


def _add_links(root: _Node, disk: Disk, links: Sequence[LinkHop]) -> None:
    """Add the links of a disk, listed upwards, to the tree. A link that sysfs does not show is a branch
    too.
    """
    node = root
    for hop in reversed(links):
        if hop.hidden_uplink:
            node = node.below.setdefault(f"hidden {hop.hidden_uplink}", _Node(hop, hop.hidden_uplink))
        node = node.below.setdefault(hop.address, _Node(hop))
    if disk not in node.disks:
        node.disks.append(disk)


def _branch(node: _Node, report: Report, arrays: Sequence[ArrayView], above: LinkHop | None = None) -> Branch:
    below = tuple(_branch(child, report, arrays, node.hop) for child in node.below.values())
    limits = {
        disk.name: tuple(array.name for array in arrays if _binds(f"{disk.name} itself", array))
        for disk in node.disks
    }
    drives = [
        Branch(disk.name, disk.model or disk.kind.value, "", limits[disk.name], "", True)
        for disk in node.disks
    ]
    if node.hop is None:
        return Branch("", "", below=below)
    hop = node.hop
    binding = _arrays_limited_by(node, arrays, report)
    if node.hidden:
        speed = format_rate(hop.hidden_bandwidth) if hop.hidden_bandwidth else ""
        return Branch(
            node.hidden, "to the processor; not reported by the system", speed, binding, below=below
        )
    what = f"{hop.port}, {hop.name}" if hop.name else f"{hop.port}"
    return Branch(
        hop.address, what, _speed(hop), binding, _possible_speed(hop, above), False, (*drives, *below)
    )


def _speed(hop: LinkHop) -> str:
    lanes = f"{hop.speed_gts:g} GT/s x{hop.width}" if hop.speed_gts and hop.width else ""
    return ", ".join(word for word in (lanes, format_rate(hop.bandwidth) if hop.bandwidth else "") if word)


def _possible_speed(hop: LinkHop, above: LinkHop | None) -> str:
    """Return the speed that both ends of a drive's link support if it runs below that, by the audit's rule
    (AT501).
    """
    if hop.port is not Port.ENDPOINT:
        return ""
    most = link_maximum(hop, above if above is not None and above.port is not Port.VMD else None)
    if not most.both_ends or not runs_below(hop, most):
        return ""
    return f"{most.speed_gts:g} GT/s x{most.width}" + (
        f", {format_rate(most.bandwidth)}" if most.bandwidth else ""
    )


def _arrays_limited_by(node: _Node, arrays: Sequence[ArrayView], report: Report) -> tuple[str, ...]:
    disks = _disks_below(node)
    if node.hop is None:
        return ()
    names = {
        f"{node.hidden} above {disk.name}" if node.hidden else hop_words(disk, node.hop) for disk in disks
    }
    name = node.hidden or node.hop.address
    shared = any(uplink.name == name for uplink in report.inventory.uplinks)
    return tuple(
        array.name for array in arrays if names & bottlenecks_of(array) or (shared and _binds(name, array))
    )


def bottlenecks_of(array: ArrayView) -> frozenset[str]:
    """Return the bottlenecks of the array, for reading and for writing."""
    return frozenset({array.ceiling.binds, array.ceiling.binds_write}) - {""}


def _binds(name: str, array: ArrayView) -> bool:
    return any(what.startswith(f"{name} (") for what in bottlenecks_of(array))


def _disks_below(node: _Node) -> list[Disk]:
    return node.disks + [disk for child in node.below.values() for disk in _disks_below(child)]


def ceiling_chart(array: ArrayView, report: Report, number: int, rates: Rates) -> svg.BarChart | None:
    """Return a chart of an array's ceiling and the rates of its links and drives, or None if the ceiling is
    unknown.
    """
    ceiling = array.ceiling
    if ceiling.read is None and ceiling.write is None:
        return None
    bars = [
        svg.Bar(
            f"{array.name}, {direction}",
            most / 1e9,
            format_rate(most),
            kind=kind,
            note="ceiling of the array",
        )
        for direction, kind, most in (("reading", "read", ceiling.read), ("writing", "write", ceiling.write))
        if most is not None
    ]
    bars += _rate_bars(array, report, rates)
    title = f"Bandwidth of the links and drives of {array.name}"
    drives = [member.drive for member in array.members if member.drive in rates]
    note = "; ".join(f"{drive} itself: {rates[drive].by}" for drive in drives if drive)
    return svg.BarChart(f"links-{number}", title, "GB/s (10^9 bytes a second)", tuple(bars), note)


def _rate_bars(array: ArrayView, report: Report, rates: Rates) -> Iterator[svg.Bar]:
    """Yield the links that members share, the narrowest link of each member, and the known rates of the
    drives.
    """
    for uplink in report.inventory.uplinks:
        below = [member for member in array.members if member.drive in uplink.members]
        if uplink.bandwidth and below:
            binds = _binds(uplink.name, array)
            yield _rate_bar(uplink.name, uplink.bandwidth, f"shared by {len(below)}", binds=binds)
    drives = {judged.disk.name: judged.disk for judged in report.judged}
    for member in array.members:
        disk = drives.get(member.drive or "")
        lane = narrowest_link(disk) if disk else None
        if lane:
            yield _rate_bar(
                member.name, lane.bandwidth, "its own link", binds=lane.what in bottlenecks_of(array)
            )
    ceiling = array.ceiling
    for drive in [member.drive for member in array.members if member.drive in rates]:
        known = rates[drive or ""]
        for direction, own, binding in (
            ("reading", known.read, ceiling.binds),
            ("writing", known.write, ceiling.binds_write or ceiling.binds),
        ):
            if own:
                yield _rate_bar(
                    f"{drive} itself, {direction}", own, "", binds=binding.startswith(f"{drive} itself (")
                )


def _rate_bar(label: str, bandwidth: int, note: str, *, binds: bool) -> svg.Bar:
    note = ", ".join(word for word in ("bottleneck" if binds else "", note) if word)
    return svg.Bar(
        label, bandwidth / 1e9, format_rate(bandwidth), kind="bad" if binds else "plain", note=note
    )


# The content of a report, and the names of its pictures.


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a report. `made`: its date as shown. `measured`: benchmarks as charts and words.
    `rates`: known rates of drives alone. `machine`: its name. `temperatures`: in °C, by disk name.
    """

    report: Report
    arrays: tuple[ArrayView, ...] = ()
    repairs: audit.Repairs = field(default_factory=dict)
    measured: tuple[Measured, ...] = ()
    made: str = ""
    rates: Rates = field(default_factory=dict)
    machine: str = ""
    temperatures: Mapping[str, float] = field(default_factory=dict)


def chart_picture(chart: svg.Chart, about: tuple[str, ...] = ()) -> svg.Picture:
    """Return the picture of a chart. `about`: the text below the title of a picture in its own file."""
    return replace(svg.picture_of(chart), about=about)


def pictures_of(content: Content) -> Iterator[svg.Picture]:
    """Yield all pictures in the order of the page."""
    names = disk_names(content.report)
    for judged in content.report.judged:
        picture = disk_picture(judged, f"map-{names[judged.disk.name]}")
        if picture:
            yield replace(picture, about=(audit.disk_words(judged.disk), audit.geometry_words(judged)))
        for picture in start_pictures(judged, names[judged.disk.name]):
            yield replace(picture, about=(audit.disk_words(judged.disk), picture.alternative))
    for number, array in enumerate(content.arrays, 1):
        chart = ceiling_chart(array, content.report, number, content.rates)
        if chart:
            members = ", ".join(member.name for member in array.members)
            yield chart_picture(chart, (f"{array.name}, {array.level} of {members}", chart.note))
    for measured in content.measured:
        yield from (chart_picture(chart, measured.about) for chart in measured.charts)
    yield svg.queue_picture()


def disk_names(report: Report) -> dict[str, str]:
    """Map each disk name to a unique part of a picture's name, of letters, digits and hyphens."""
    names: dict[str, str] = {}
    for number, judged in enumerate(report.judged, 1):
        word = re.sub(r"[^a-z0-9]+", "-", judged.disk.name.rsplit("/", 1)[-1].lower()[:40]).strip("-")
        names[judged.disk.name] = (
            word if word and word not in names.values() else f"{word or 'disk'}-{number}"
        )
    return names
