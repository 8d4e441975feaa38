"""The disk before and after, as two bars over one scale.

In: a plan. Out: lines. Alone because drawing to scale is a subject of its own: both bars share their columns, so that a
byte stands in the same column in both, and the smallest part and the smallest gap keep a cell that can be seen.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from aligntool.plan import JournalPlace, Place, Plan, WriteJournal
from aligntool.render.lines import Line, Piece, Style
from aligntool.units import Extent, format_about

HEAD = 10
LEAST_OF_A_PART = 3
"""Columns for "[1]"."""

Bar = tuple[tuple[Extent, str, Style], ...]
"""What is drawn, in its order: later parts cover earlier ones."""


def plan_map_lines(plan: Plan, *, width: int) -> Iterator[Line]:
    """Nothing where there are more parts than a line has columns for."""
    bars = {"before": _bar(plan, after=False), "after": _bar(plan, after=True)}
    if bars["before"] == bars["after"]:
        del bars["after"]
    parts = [extent for bar in bars.values() for extent, _, _ in bar]
    columns = _columns(parts, plan.disk.size, width - HEAD - 2)
    if not columns:
        return
    end = format_about(plan.disk.size)
    yield ((" " * HEAD + "0" + end.rjust(columns[plan.disk.size] - 1), Style.DIM),)
    for name, bar in bars.items():
        yield ((f"  {name:<{HEAD - 2}}", Style.PLAIN), *_drawn(bar, columns, plan.disk.size))


def journal_of(plan: Plan) -> JournalPlace | None:
    return next((step.journal for step in plan.steps if isinstance(step, WriteJournal)), None)


def _bar(plan: Plan, *, after: bool) -> Bar:
    """Containers before what lies in them."""
    drawn = []
    journal = journal_of(plan)
    if journal and not journal.file and after is _is_free_later(plan, journal.extent):
        drawn.append((journal.extent, "J", Style.NOTE))
    for place in plan.places:
        extent = place.after if after else place.before
        if extent is not None and extent.length > 0 and extent.start < plan.disk.size:
            drawn.append((extent, str(place.number), _style(place, after=after)))
    return tuple(sorted(drawn, key=lambda part: (-part[0].length, part[0].start)))


def _is_free_later(plan: Plan, journal: Extent) -> bool:
    """A journal may lie where a file system is shrunk first; then it does not belong into the first bar."""
    return any(place.before is not None and place.before.overlaps(journal) for place in _parts(plan))


def _parts(plan: Plan) -> Sequence[Place]:
    """Partitions without those that only contain others."""
    return [
        place
        for place in plan.places
        if not any(other is not place and place.after.contains(other.after) for other in plan.places)
    ]


def _style(place: Place, *, after: bool) -> Style:
    if place.before is None or place.before == place.after:
        return Style.PLAIN
    return Style.GOOD if after else Style.BAD


def _columns(parts: Sequence[Extent], size: int, room: int) -> Mapping[int, int]:
    """The column of every byte at which a part begins or ends; empty when there is no room for them all."""
    edges = sorted({0, size, *(edge for part in parts for edge in (part.start, part.end) if edge < size)})
    stretches = list(pairwise(edges))
    least = [_least(Extent(start, end - start), parts) for start, end in stretches]
    spare = room - sum(least)
    if spare < 0:
        least = [1] * len(stretches)
        spare = room - len(stretches)
    if spare < 0 or not size:
        return {}
    columns, so_far = {0: 0}, 0
    for (_, end), cells in zip(stretches, least, strict=True):
        so_far += cells
        columns[end] = so_far + spare * end // size
    return columns


def _least(stretch: Extent, parts: Sequence[Extent]) -> int:
    """A stretch that is a whole part, or all that a part has to itself, has room for its number."""
    return LEAST_OF_A_PART if any(part == stretch for part in parts) else 1


def _drawn(bar: Bar, columns: Mapping[int, int], size: int) -> Iterator[Piece]:
    cells: list[tuple[str, Style]] = [("·", Style.DIM)] * columns[size]
    for extent, name, style in bar:
        first, end = columns[extent.start], columns[min(extent.end, size)]
        for index, char in enumerate(_part(name, end - first), first):
            cells[index] = (char, style)
    begun = 0
    for index in range(1, len(cells) + 1):
        if index == len(cells) or cells[index][1] is not cells[begun][1]:
            yield "".join(char for char, _ in cells[begun:index]), cells[begun][1]
            begun = index


def _part(name: str, width: int) -> str:
    """ "[1=====]", as much of it as there is room for."""
    if width < len(name) + 2:
        return name[-width:].rjust(width, "|")
    return f"[{name}{'=' * (width - len(name) - 2)}]"
