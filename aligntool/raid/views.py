"""What `raid show` shows of a running array."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from aligntool.audit.arrays import sync_words
from aligntool.audit.report import Finding, Judged, Report, Severity
from aligntool.audit.wording import asked_by, layer_name
from aligntool.inventory import ArrayFacts, Disk, Layer
from aligntool.raid.chunks import Ceiling, Level, Rates, ceiling, level_of, narrowest, rate
from aligntool.raid.members import Known, dramless_words, is_dramless, link_words, shared_words
from aligntool.raid.refusals import find_array
from aligntool.units import format_size

DEEPEST = 8  # devices on devices


@dataclass(frozen=True, slots=True)
class MemberView:
    """`data_at`: the byte of its drive where the array's data begin; None: not known."""

    name: str
    data: str  # `data_at` and `aligned` in words
    drive: str | None = None
    model: str | None = None
    own_link: str | None = None  # the drive's own, now and at most
    link: str | None = None  # the narrowest on the way
    bandwidth: int | None = None  # bytes per second of that
    shares: tuple[str, ...] = ()  # uplinks that it is not alone on, and who else is there, a phrase each
    dramless: bool = False  # known to have no DRAM
    memory: str | None = None  # of a drive without DRAM: what it asks of the host's memory, and what it got
    data_at: int | None = None
    aligned: bool | None = None


@dataclass(frozen=True, slots=True)
class ArrayView:
    name: str
    path: str
    level: str
    size: int | None
    chunk: int | None
    metadata: str | None
    state: str
    members: tuple[MemberView, ...]
    contents: tuple[str, ...]  # what lies on it, a phrase each
    ceiling: Ceiling
    findings: tuple[str, ...]
    next: tuple[str, ...]  # what to type about them, each once


def arrays_of(
    report: Report, names: Sequence[str] = (), rates: Rates = MappingProxyType({}), known: Known = MappingProxyType({})
) -> tuple[ArrayView, ...]:
    """The arrays of those names or paths, or all. `rates`: of the drives, where they are known. `known`: what the drive
    database says of each. Raises Refused for a name of no array, or of several.
    """
    disks = [judged.disk for judged in report.judged]
    wanted = {find_array(disks, name, command="aligntool raid show").name for name in names}
    arrays = [judged for judged in report.judged if judged.disk.array]
    return tuple(_view(judged, report, rates, known) for judged in arrays if not names or judged.disk.name in wanted)


def _view(judged: Judged, report: Report, rates: Rates, known: Known) -> ArrayView:
    disk, facts = judged.disk, judged.disk.array
    if facts is None:
        raise ValueError(f"{disk.name} is not an array")
    members = tuple(_member(name, offset, report, known) for name, offset in _offsets(disk))
    level = level_of(facts.level)
    drives = [drive for name in facts.members if (drive := _drive(name, report))]
    layout = facts.layout or ""
    own = {one.disk.name: rates[one.disk.name] for one in drives if one.disk.name in rates}
    found = tuple(_findings(disk, [one.disk.name for one in drives], report))
    return ArrayView(
        name=disk.name,
        path=disk.path,
        level=facts.level,
        size=disk.size,
        chunk=facts.chunk,
        metadata=facts.metadata,
        state=_state(facts.degraded, level) + _busy(facts),
        members=members,
        contents=tuple(_contents(judged)),
        ceiling=ceiling([one.disk for one in drives], report.inventory.uplinks, level, layout, own),
        findings=tuple(f"{finding.code.value} {finding.summary}" for finding in found),
        next=tuple(dict.fromkeys(finding.next for finding in found if finding.next)),
    )


def _offsets(disk: Disk) -> Iterator[tuple[str, int | None]]:
    facts = disk.array
    offsets = dict(facts.member_data_offsets) if facts else {}
    for name in facts.members if facts else ():
        yield name, offsets.get(name)


def _drive(name: str, report: Report) -> Judged | None:
    """The disk that a member is, or is a partition of."""
    for judged in report.judged:
        if name == judged.disk.name or any(part.node == name for part in judged.disk.partitions):
            return judged
    return None


def _member(name: str, offset: int | None, report: Report, known: Known) -> MemberView:
    judged = _drive(name, report)
    if judged is None:
        return MemberView(name, "its drive was not looked at")
    disk = judged.disk
    start = next((part.extent.start for part in disk.partitions if part.node == name), 0)
    lane = narrowest(disk)
    at = None if offset is None else start + offset
    aligned, words = _data(judged, at)
    dramless = is_dramless(disk, known.get(disk.name, ()))
    return MemberView(
        name=name,
        data=words,
        drive=disk.name,
        model=disk.model,
        own_link=link_words(disk) or None,
        link=f"{lane.what}, {rate(lane.bandwidth)}" if lane else None,
        bandwidth=lane.bandwidth if lane else None,
        shares=tuple(shared_words(disk, report.inventory.uplinks)),
        dramless=dramless,
        memory=dramless_words(disk) if dramless else None,
        data_at=at,
        aligned=aligned,
    )


def _data(judged: Judged, at: int | None) -> tuple[bool | None, str]:
    if at is None:
        return None, "where its data begin is not known"
    off = [grid for grid in judged.grids if grid.severity is not Severity.INFO and grid.off_by(at)]
    if not off:
        return True, f"data at byte {at}, on the grid"
    worst = off[0]
    told = f"off {format_size(worst.size)} by {format_size(worst.off_by(at))} ({asked_by(worst)})"
    return False, f"data at byte {at}, {told}"


def _state(degraded: int | None, level: Level) -> str:
    if degraded:
        return f"DEGRADED: {degraded} missing"
    if degraded is None and level.redundant:
        return "state not known"
    return "all members there" if level.redundant else "no redundancy"


def _busy(facts: ArrayFacts) -> str:
    """What md does to the members now, how far it is, how fast, how long still; "" where it rests."""
    if facts.sync_action in (None, "idle", "frozen"):
        return ""
    return f", {facts.sync_action}{sync_words(facts)}"


def _contents(judged: Judged) -> Iterator[str]:
    disk = judged.disk
    for layer in disk.content:
        yield f"on it: {_layer(layer)}{_mounted(disk.mounted_at)}"
    if not disk.content and disk.content_hint:
        yield f"on it: {disk.content_hint}{_mounted(disk.mounted_at)}"
    for part in disk.partitions:
        what = ", ".join(_layer(layer) for layer in part.content) or part.content_hint or part.type_name
        yield (
            f"partition {part.number} at byte {part.extent.start}: {what or 'nothing known'}{_mounted(part.mounted_at)}"
        )
    if disk.holders:
        yield f"carries {', '.join(disk.holders)}"


def _layer(layer: Layer) -> str:
    stripe = ""
    if layer.stripe_unit:
        width = f", width {format_size(layer.stripe_width)}" if layer.stripe_width else ""
        stripe = f" (stripe unit {format_size(layer.stripe_unit)}{width})"
    return layer_name(layer) + stripe


def _mounted(places: Sequence[str]) -> str:
    return f", mounted at {', '.join(places)}" if places else ""


def _findings(disk: Disk, drives: Sequence[str], report: Report) -> Iterator[Finding]:
    """Errors and warnings of the array and everything stacked on it, and of its drives where they name a link."""
    above = _above(disk, report)
    for finding in report.findings:
        if finding.severity is Severity.INFO:
            continue
        if finding.disk in above or (finding.disk in drives and finding.code.value.startswith("AT5")):
            yield finding


def _above(disk: Disk, report: Report) -> frozenset[str]:
    """The array and what holds it: volumes, mappings, other arrays."""
    found = {disk.name}
    for _ in range(DEEPEST):
        found |= {judged.disk.name for judged in report.judged if not found.isdisjoint(judged.disk.slaves)}
    return frozenset(found)
