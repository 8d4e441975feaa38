"""Where drives hang: the links from the processor down to each drive as a tree, and which of them binds an array.

In: an audit's report and the arrays. Out: branches, and a chart of an array's links. Alone because sysfs tells each
drive's way by itself, and only together they are a tree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from aligntool.audit import Report
from aligntool.inventory import Disk, LinkHop, Port, Uplink, most_of, runs_below
from aligntool.raid.arrays import ArrayView
from aligntool.raid.ceilings import Rates, hop_words, narrowest, rate
from aligntool.render.svg_charts import Bar, BarChart


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
    """Ways are told from the drive up; the tree goes down. A link that sysfs does not show is a branch too."""
    node = root
    for hop in reversed(way):
        if hop.hidden_uplink:
            node = node.below.setdefault(f"hidden {hop.hidden_uplink}", _Node(hop, hop.hidden_uplink))
        node = node.below.setdefault(hop.address, _Node(hop))
    if disk not in node.disks:
        node.disks.append(disk)


def _branch(node: _Node, report: Report, arrays: Sequence[ArrayView], above: LinkHop | None = None) -> Branch:
    below = tuple(_branch(each, report, arrays, node.hop) for each in node.below.values())
    drives = tuple(
        Branch(disk.name, disk.model or disk.kind.value, binds=_held_back(disk.name, arrays), drive=True)
        for disk in node.disks
    )
    if node.hop is None:
        return Branch("", "", below=below)
    if node.hidden:
        speed = rate(node.hop.hidden_bandwidth) if node.hop.hidden_bandwidth else ""
        binding = _binding(node, arrays, report)
        return Branch(
            node.hidden, "to the processor; the system does not show it", speed, binding, below=below
        )
    what = f"{node.hop.port}" + (f", {node.hop.name}" if node.hop.name else "")
    return Branch(
        node.hop.address,
        what,
        _speed(node.hop),
        _binding(node, arrays, report),
        _slower(node.hop, above),
        False,
        (*drives, *below),
    )


def _speed(hop: LinkHop) -> str:
    lanes = f"{hop.speed_gts:g} GT/s x{hop.width}" if hop.speed_gts and hop.width else ""
    return ", ".join(word for word in (lanes, rate(hop.bandwidth) if hop.bandwidth else "") if word)


def _slower(hop: LinkHop, above: LinkHop | None) -> str:
    """A drive whose link runs below what both its ends can do, by the audit's rule (AT501)."""
    if hop.port is not Port.ENDPOINT:
        return ""
    most = most_of(hop, above if above is not None and above.port is not Port.VMD else None)
    if not most.both_ends or not runs_below(hop, most):
        return ""
    return f"{most.speed_gts:g} GT/s x{most.width}" + (f", {rate(most.bandwidth)}" if most.bandwidth else "")


def _binding(node: _Node, arrays: Sequence[ArrayView], report: Report) -> tuple[str, ...]:
    disks = _disks_below(node)
    names: set[str] = set()
    if node.hop is not None and node.hidden:
        names = {f"{node.hidden} above {disk.name}" for disk in disks}
    elif node.hop is not None:
        names = {hop_words(disk, node.hop) for disk in disks}
    uplink = next((each for each in report.inventory.uplinks if _is(each, node)), None)
    return tuple(
        array.name for array in arrays if names & binding_of(array) or (uplink and _binds(uplink, array))
    )


def binding_of(array: ArrayView) -> frozenset[str]:
    """What has to get faster for it to read or to write faster."""
    return frozenset({array.ceiling.binds, array.ceiling.binds_write}) - {""}


def _binds(uplink: Uplink, array: ArrayView) -> bool:
    return any(what.startswith(f"{uplink.name} (") for what in binding_of(array))


def _is(uplink: Uplink, node: _Node) -> bool:
    return node.hop is not None and uplink.name == (node.hidden or node.hop.address)


def _disks_below(node: _Node) -> list[Disk]:
    return node.disks + [disk for each in node.below.values() for disk in _disks_below(each)]


def _held_back(drive: str, arrays: Sequence[ArrayView]) -> tuple[str, ...]:
    """Arrays whose ceiling the drive itself sets, by its own rate."""
    return tuple(array.name for array in arrays if _binds_itself(drive, array))


def _binds_itself(drive: str, array: ArrayView) -> bool:
    return any(what.startswith(f"{drive} itself (") for what in binding_of(array))


def ceiling_chart(array: ArrayView, report: Report, number: int, rates: Rates) -> BarChart | None:
    """What the ways of an array's members and the drives themselves carry, and its ceiling. None: nothing is known."""
    found = array.ceiling
    if found.read is None and found.write is None:
        return None
    bars = [
        Bar(f"{array.name}, {way}", most / 1e9, rate(most), kind="good", note="the array's ceiling")
        for way, most in (("reading", found.read), ("writing", found.write))
        if most is not None
    ]
    bars += [*_shared_bars(array, report), *_link_bars(array, report), *_drive_bars(array, rates)]
    title = f"What the links and the drives of {array.name} carry"
    drives = [member.drive for member in array.members if member.drive in rates]
    note = "; ".join(f"{drive} itself: {rates[drive].by}" for drive in drives if drive)
    return BarChart(f"links-{number}", title, "GB/s (10^9 bytes a second)", tuple(bars), note)


def _shared_bars(array: ArrayView, report: Report) -> Iterator[Bar]:
    for uplink in report.inventory.uplinks:
        below = [member for member in array.members if member.drive in uplink.members]
        if uplink.bandwidth and below:
            note = f"shared by {len(below)}"
            yield _carries(uplink.name, uplink.bandwidth, note, binds=_binds(uplink, array))


def _link_bars(array: ArrayView, report: Report) -> Iterator[Bar]:
    drives = {judged.disk.name: judged.disk for judged in report.judged}
    for member in array.members:
        disk = drives.get(member.drive or "")
        if lane := narrowest(disk) if disk else None:
            yield _carries(member.name, lane.bandwidth, "its own link", binds=lane.what in binding_of(array))


def _drive_bars(array: ArrayView, rates: Rates) -> Iterator[Bar]:
    """What each drive does alone, where it is known."""
    for member in array.members:
        known = rates.get(member.drive or "")
        if known is None or member.drive is None:
            continue
        for way, own, binding in (
            ("reading", known.read, array.ceiling.binds),
            ("writing", known.write, array.ceiling.binds_write or array.ceiling.binds),
        ):
            if own:
                binds = binding.startswith(f"{member.drive} itself (")
                yield _carries(f"{member.drive} itself, {way}", own, "", binds=binds)


def _carries(label: str, bandwidth: int, note: str, *, binds: bool) -> Bar:
    note = ", ".join(word for word in ("binds" if binds else "", note) if word)
    return Bar(label, bandwidth / 1e9, rate(bandwidth), kind="bad" if binds else "plain", note=note)
