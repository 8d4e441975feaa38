"""Stacks above a partition or disk for the page: arrays, encryption, volumes and file systems, level by
level.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aligntool.audit.report import Answer, Judged, Report, Verdict
from aligntool.audit.wording import layer_name
from aligntool.inventory import Disk, DiskKind, Layer
from aligntool.render import audit
from aligntool.render.disk_map import check_drawn
from aligntool.units import first_of, format_size

MOST_LEVELS = 8
MOST_NAMES = 3
MOST_STACKS = 8
"""Most stacks that are drawn for equal disks."""

_TONES = {Answer.ON: "good", Answer.OFF: "error", Answer.UNKNOWN: "warning"}
_WORST = ("error", "warning", "good", "")


@dataclass(frozen=True, slots=True)
class Level:
    """A box of a stack. `place`: its alignment in words. `tone`: "error", "warning", "good", or "" if
    unknown.
    """

    name: str
    what: str
    place: str
    tone: str


Above = Mapping[str, Sequence[Judged]]
"""The devices directly above each disk and partition, by kernel name."""


def devices_above(report: Report) -> Above:
    found: dict[str, list[Judged]] = {}
    for judged in report.judged:
        for name in judged.disk.slaves:
            found.setdefault(name, []).append(judged)
    return found


def stacks_of(disks: Sequence[Judged], devices: Above) -> list[list[Level]]:
    """Return the stacks above the partitions of these disks. Parts below the same levels share a stack."""
    stacks: dict[tuple[Level, ...], list[Level]] = {}
    for judged in disks:
        for base, above in _stacks_on(judged, devices):
            if above:
                stacks.setdefault(above, []).append(base)
    return [[_joined(bases), *above] for above, bases in list(stacks.items())[:MOST_STACKS]]


def _joined(bases: Sequence[Level]) -> Level:
    worst = min(bases, key=lambda level: _WORST.index(level.tone))
    return Level(shortened([level.name for level in bases]), worst.what, worst.place, worst.tone)


def shortened(names: Sequence[str]) -> str:
    """Return "vda1, vdb1, vdc1 and 5 more"."""
    return first_of(names, MOST_NAMES)


def _stacks_on(judged: Judged, devices: Above) -> Iterator[tuple[Level, tuple[Level, ...]]]:
    """Yield each part of a disk, and the levels above it."""
    disk = judged.disk
    verdicts = judged.by_partition()
    for part in disk.partitions:
        verdict = verdicts.get(part.number)
        name = part.node or f"partition {part.number}"
        above = tuple(_devices_above([part.node or ""], devices)) or tuple(_layers(part.content, verdict))
        yield _level(name, "partition", verdict), above
    if not disk.partitions and not disk.slaves:
        verdict = verdicts.get(None)
        above = tuple(_devices_above([disk.name], devices)) or tuple(_layers(disk.content, verdict))
        yield _level(disk.name, "whole disk", verdict), above


def _level(name: str, what: str, verdict: Verdict | None) -> Level:
    tone = _TONES[verdict.answer] if verdict and verdict.matters else ""
    return Level(name, what, audit.verdict_text(verdict), tone)


def _devices_above(names: Sequence[str], devices: Above) -> Iterator[Level]:
    """Yield a level for the devices directly above the named ones, then for those above these, and the
    content.
    """
    top: list[Judged] = []
    for _ in range(MOST_LEVELS):
        above = list(
            {judged.disk.name: judged for name in names for judged in devices.get(name, ())}.values()
        )
        if not above:
            break
        yield _device_level(above)
        top = above
        names = [judged.disk.name for judged in above]
        names += [part.node for judged in above for part in judged.disk.partitions if part.node]
    content = list(dict.fromkeys(filter(None, (_content_of(judged.disk) for judged in top))))
    if content:
        mounts = dict.fromkeys(mount for judged in top for mount in judged.disk.mounted_at)
        at = f"mounted at {shortened(list(mounts))}" if mounts else ""
        yield Level(shortened(content), "content", at, _worst_tone(top))


def _device_level(above: Sequence[Judged]) -> Level:
    disks = [judged.disk for judged in above]
    kinds = list(dict.fromkeys(map(_kind_words, disks)))
    tone = _worst_tone(above)
    verdicts = [verdict for judged in above for verdict in judged.verdicts if _TONES[verdict.answer] == tone]
    place = audit.verdict_text(verdicts[0]) if verdicts else ""
    return Level(shortened([disk.name for disk in disks]), shortened(kinds), place, tone)


def _worst_tone(above: Sequence[Judged]) -> str:
    tones = [_TONES[verdict.answer] for judged in above for verdict in judged.verdicts if verdict.matters]
    return min(tones, key=_WORST.index, default="")


def _kind_words(disk: Disk) -> str:
    if disk.array:
        return disk.array.level
    return (
        (disk.mapping or disk.kind.value).partition(" ")[0] if disk.kind is DiskKind.DM else disk.kind.value
    )


def _content_of(disk: Disk) -> str:
    parts = [part.content_hint or "" for part in disk.partitions]
    layers = [layer_name(layer) for layer in disk.content]
    return ", ".join(dict.fromkeys(filter(None, [*parts, *layers]))) or disk.content_hint or ""


def _layers(content: Sequence[Layer], verdict: Verdict | None) -> Iterator[Level]:
    """Yield the layers that were read inside a partition, if one lies in another; each begins where its data
    do.
    """
    if len(content) != 1 or not content[0].inner:
        return
    check = check_drawn(verdict) if verdict else None
    tone = _TONES[verdict.answer] if verdict else ""
    layer: Layer | None = content[0]
    for _ in range(MOST_LEVELS):
        if layer is None:
            return
        place = ""
        if check is not None and layer.data_start is not None:
            past = check.grid.off_by(layer.data_start)
            tone = "error" if past else "good"
            place = (
                f"data {format_size(past)} past {format_size(check.grid.size)}"
                if past
                else "data on the grid"
            )
        yield Level(layer_name(layer), "content", place, tone)
        layer = layer.inner[0] if layer.inner else None
