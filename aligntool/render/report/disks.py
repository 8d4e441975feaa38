"""A disk as the page shows it: facts, map, table, starts.

In: a judged disk and whether it can be mended. Out: words and pictures for the template. Alone because a page has room
that a terminal has not, and pictures with an alternative in words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aligntool.audit import Judged, Report, Verdict
from aligntool.realign import Mend
from aligntool.render.facts import facts_of
from aligntool.render.lines import harmless
from aligntool.render.mending import Mends, mend_lines
from aligntool.render.report.content import disk_names, facts_line, start_pictures
from aligntool.render.svg import Picture
from aligntool.render.svg_map import disk_picture
from aligntool.render.table import geometry_words, names_of, row_of, verdict_words
from aligntool.units import format_about

MOST_DISKS = 64
"""So many disks are shown in full; the rest are counted."""
MOST_ROWS = 256


@dataclass(frozen=True, slots=True)
class DiskView:
    """`rows`: number, node, sector, start, size, content, verdict."""

    id: str
    name: str
    facts: str
    geometry: str
    picture: Picture | None
    starts: tuple[Picture, ...]
    rows: tuple[tuple[str, ...], ...]
    more_rows: int
    mends: tuple[str, ...]
    details: tuple[tuple[str, str], ...]
    unseen: tuple[str, ...]


def disk_views(report: Report, mends: Mends) -> tuple[DiskView, ...]:
    names = disk_names(report)
    return tuple(
        _view(judged, names[judged.disk.name], mends.get(judged.disk.name, ()))
        for judged in report.judged[:MOST_DISKS]
    )


def _view(judged: Judged, name: str, mends: Sequence[Mend]) -> DiskView:
    disk = judged.disk
    return DiskView(
        id=name,
        name=disk.name,
        facts=facts_line(disk),
        geometry=geometry_words(judged),
        picture=disk_picture(judged, f"map-{name}"),
        starts=tuple(start_pictures(judged, name)),
        rows=_rows(judged),
        more_rows=max(len(disk.partitions) - MOST_ROWS, 0),
        mends=tuple("".join(text for text, _ in line).strip() for line in mend_lines(mends, width=10_000)),
        details=tuple(facts_of(disk)),
        unseen=tuple(f"{unseen.what}: {unseen.why}" for unseen in disk.unseen),
    )


def _rows(judged: Judged) -> tuple[tuple[str, ...], ...]:
    verdicts = judged.by_partition()
    made = []
    for part in judged.disk.partitions[:MOST_ROWS]:
        verdict = verdicts.get(part.number)
        row = row_of(judged.disk, part, verdict)
        content = " ".join(word for word in (row[5], harmless(names_of(part))) if word)
        made.append((*row[:5], content, _verdict(verdict)))
    whole = verdicts.get(None)
    if not made and whole:
        hint = judged.disk.content_hint or ", ".join(layer.kind for layer in judged.disk.content)
        size = "" if judged.disk.size is None else format_about(judged.disk.size)
        made.append(("whole", "", "0", "0B", size, hint, _verdict(whole)))
    return tuple(made)


def _verdict(verdict: Verdict | None) -> str:
    return "".join(text for text, _ in verdict_words(verdict))
