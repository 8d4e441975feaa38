"""Draw maps of a disk as text: its partitions and gaps, their alignment, the moves of a plan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, groupby, pairwise, takewhile
from operator import itemgetter

from aligntool.audit.report import Answer, Check, Grid, GridKind, Judged, Report, Verdict
from aligntool.audit.wording import layer_name
from aligntool.change import Place, Plan
from aligntool.inventory import Disk, Partition, Role
from aligntool.render.audit import verdict_words, worst_failed_check
from aligntool.render.lines import (
    EMPTY,
    Line,
    Piece,
    Style,
    cell_width,
    fit,
    harmless,
    paragraph,
    plain,
    wrapped,
)
from aligntool.steps import JournalPlace, MakeTable, WriteJournal
from aligntool.units import Extent, format_about, format_size

# A disk as a sequence of stretches: its partitions in order of their starts, and the free space between them.

SMALL_GAP = 0.002  # share of the disk; smaller free space is not drawn


@dataclass(frozen=True, slots=True)
class Stretch:
    """A partition, free space, or a disk without partitions. The last two have no `partition`."""

    start: int
    length: int
    partition: Partition | None = None
    verdict: Verdict | None = None
    label: str = ""
    what: str = ""

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def free(self) -> bool:
        return self.partition is None and self.verdict is None


def stretches_of(judged: Judged) -> list[Stretch]:
    """Return the stretches in order of their starts, without containers: the partitions inside are returned
    instead.
    """
    disk = judged.disk
    verdicts = judged.by_partition()
    if not disk.partitions:
        whole = verdicts.get(None)
        what = ", ".join(map(layer_name, disk.content)) or disk.content_hint or "in use"
        return [Stretch(0, disk.size or 1, None, whole, "whole", what)] if whole else []
    containers = {part.number for part in containers_of(disk)}
    parts = [
        part for part in disk.partitions if part.number not in containers and part.role is not Role.EXTENDED
    ]
    stretches: list[Stretch] = []
    end = 0
    for part in sorted(parts, key=lambda part: (part.extent.start, part.number)):
        stretches += _gap(end, part.extent.start, disk)
        place = part.extent
        what = ", ".join(map(layer_name, part.content)) or part.content_hint or part.type_name
        stretches.append(
            Stretch(place.start, place.length, part, verdicts.get(part.number), str(part.number), what)
        )
        end = max(end, place.end)
    return stretches + list(_gap(end, disk.size or 0, disk))


def containers_of(disk: Disk) -> list[Partition]:
    """Return the extended partition, and table entries that contain others."""
    return [
        part
        for part in disk.partitions
        if part.role in (Role.EXTENDED, Role.MAP)
        and any(
            part.extent.contains(other.extent) for other in disk.partitions if other.number != part.number
        )
    ]


def _gap(start: int, end: int, disk: Disk) -> Iterator[Stretch]:
    if disk.size and end - start > disk.size * SMALL_GAP:
        yield Stretch(start, end - start, what="free")


def disk_bar_lines(judged: Judged, *, width: int) -> Iterator[Line]:
    """Yield the whole disk in one line, and below it the content of the partitions; ^ marks a start off the
    grid. Yield nothing if there are more partitions than columns.
    """
    size = judged.disk.size or 0
    stretches = stretches_of(judged)
    parts = [part for part in stretches if not part.free and part.end <= size]
    around = (part for part in containers_of(judged.disk) if part.extent.start < size)
    containers = [(part.extent, str(part.number), Style.DIM) for part in around]
    bar = (
        *containers,
        *((Extent(part.start, part.length), part.label, _stretch_style(part)) for part in parts),
    )
    columns = _columns([extent for extent, _, _ in bar], size, width)
    if not parts or not columns:
        return
    end = f"  {_scale_words(columns, size)}{format_about(size)}"
    yield ((fit(judged.disk.name, width - cell_width(end)), Style.TITLE), (end, Style.DIM))
    yield tuple(_bar_pieces(bar, columns, size))
    ends = [*(columns[part.start] for part in parts[1:]), width]
    line = []
    used = 0
    for part, limit in zip(parts, ends, strict=True):
        begin = columns[part.start]
        mark = "^" * (part.verdict is not None and part.verdict.answer is Answer.OFF)
        room = limit - begin - 1
        text = harmless(f"{mark}{f'{part.what} '.lstrip()}{format_about(part.length)}")
        if cell_width(text) > room:
            text = harmless(f"{mark}{part.what}")  # the table has its size
        text = fit(text, min(cell_width(text), room)) if room > 4 else mark
        if begin >= used and text:
            line += [(" " * (begin - used), Style.PLAIN), (text, _stretch_style(part))]
            used = begin + cell_width(text)
    yield (*line,)
    yield EMPTY


def _stretch_style(stretch: Stretch) -> Style:
    return verdict_words(stretch.verdict)[0][1]


# Blocks over sectors: the picture of the 2010 article, drawn for the user's own partitions.
#
# Each start gets a ruler of the grid that it fails (or of the first one checked), and below it the blocks of
# the file system at their real offsets.

CELLS_A_UNIT = 16
MOST_UNITS = 4
USUAL_BLOCK = 4096


def map_lines(report: Report, *, width: int) -> Iterator[Line]:
    """Yield for each disk its map, then the picture of every start."""
    for judged in report.judged:
        yield from disk_bar_lines(judged, width=width)
        for verdict in judged.verdicts:
            yield from boundary_lines(judged, verdict, width=width)


def boundary_lines(judged: Judged, verdict: Verdict, *, width: int) -> Iterator[Line]:
    """Yield the picture of one start, over the grid that `check_drawn` returns."""
    partition = next((part for part in judged.disk.partitions if part.number == verdict.partition), None)
    check = check_drawn(verdict)
    name = judged.disk.name if partition is None else f"partition {partition.number} of {judged.disk.name}"
    sector_size = judged.disk.sector_size
    sector = f"sector {verdict.start // sector_size}, " if verdict.start % sector_size == 0 else ""
    title = f" starts at {sector}byte {verdict.start}: {position_words(verdict, check)}"
    room = max(width - cell_width(harmless(name)), MOST_UNITS)
    first, *rest = wrapped(title.strip(), room - 1, "")
    yield ((name, Style.TITLE), (f" {first}", Style.PLAIN))
    for line in wrapped(" ".join(rest), width - 4, "") if rest else ():
        yield plain(f"    {line}")
    if check is not None:
        yield from _ruler_lines(check, verdict.start, block_of(partition), width)
    yield EMPTY


def check_drawn(verdict: Verdict) -> Check | None:
    """Return the worst check that the start fails, else the first one, or None if no boundary was checked."""
    worst = worst_failed_check(verdict) if verdict.answer is not Answer.ON else None
    return worst or (verdict.checks[0] if verdict.checks else None)


def position_words(verdict: Verdict, check: Check | None) -> str:
    """Describe the position of a start relative to the checked boundary."""
    if verdict.answer is Answer.UNKNOWN or check is None:
        return f"unknown, {verdict.why}"
    if check.on:
        return f"on a boundary of {_grid_words(check.grid)}"
    return f"{format_size(check.off_by)} past a boundary of {_grid_words(check.grid)}"


def _grid_words(grid: Grid) -> str:
    return f"{format_size(grid.size)} ({grid.kind}, {grid.source})"


def block_of(partition: Partition | None) -> int:
    """Return the block size of the file system, or 4 KiB if none was recognised."""
    if partition and partition.content:
        unit = partition.content[0].data_unit or 0
        if 512 <= unit <= 64 * 1024:
            return unit
    return USUAL_BLOCK


def _ruler_lines(check: Check, start: int, block: int, width: int) -> Iterator[Line]:
    grid = check.grid
    head = 24 if width > 24 + 2 * CELLS_A_UNIT else 18  # beside a list, a terminal of 120 columns has 52
    units = max(min((width - head - 2) // CELLS_A_UNIT, MOST_UNITS), 2)
    cells = units * CELLS_A_UNIT
    first = start - check.off_by
    request = block if block * CELLS_A_UNIT >= grid.size else grid.size
    label = f"{grid.kind if grid.kind is not GridKind.PHYSICAL else 'sectors'} {format_size(grid.size)}"
    what = f"blocks {format_size(block)}" if request == block else f"requests {format_size(request)}"
    numbers = "".join(f"{first + index * grid.size:<{CELLS_A_UNIT}}" for index in range(units))
    yield ((" " * head + numbers.rstrip(), Style.DIM),)
    yield (
        (f"  {fit(label, head - 2)}", Style.PLAIN),
        (("|" + "-" * (CELLS_A_UNIT - 1)) * units + "|", Style.NOTE),
    )
    # drawn as off even if by less than a cell
    begin = check.off_by * CELLS_A_UNIT // grid.size or int(not check.on)
    bar = _blocks(begin, cells, request * CELLS_A_UNIT / grid.size)
    yield ((f"  {fit(what, head - 2)}", Style.PLAIN), (bar, Style.GOOD if check.on else Style.BAD))
    if not check.on:
        crossed = crossings(check, request)
        here = "^ starts here; "
        if head + begin + len(here) + len(crossed) <= width:
            yield ((" " * (head + begin) + here, Style.DIM), (crossed, Style.BAD))
            return
        yield ((" " * (head + begin) + "^", Style.DIM),)
        yield from paragraph(f"    starts here; {crossed}", width, style=Style.BAD)


def crossings(check: Check, request: int) -> str:
    """Describe how many of these requests, laid end to end, cross a boundary: the exact count over one
    period.
    """
    size = check.grid.size
    if request >= size:
        return f"every {format_size(request)} request touches one more {check.grid.kind}"
    period = size // request if size % request == 0 else size
    starts = (check.off_by + index * request for index in range(min(period, 4096)))
    across = sum(begin // size != (begin + request - 1) // size for begin in starts)
    if not across:
        return "no block straddles a boundary, but larger requests do"
    larger = f", as every {format_size(size)} request does" if period > 1 else ""
    return f"{across} of {min(period, 4096)} blocks straddle a boundary{larger}"


def _blocks(begin: int, cells: int, length: float) -> str:
    """Draw blocks from cell `begin` on, each `length` cells long, cut at the right edge."""
    row = [" "] * begin + ["="] * (cells + 1 - begin)
    for edge in takewhile(lambda edge: edge <= cells, (begin + round(index * length) for index in count())):
        row[edge] = "["
    return "".join(row)


# The disk before and after, as two bars with the same columns, in which even the smallest part and gap get a
# cell.

LABEL_COLUMNS = 10

Bar = tuple[tuple[Extent, str, Style], ...]
"""The parts in drawing order: later parts cover earlier ones."""


def plan_map_lines(plan: Plan, *, width: int) -> Iterator[Line]:
    """Yield the disk before and after the plan, or nothing if there are more parts than columns."""
    bars = {"before": _plan_bar(plan, after=False), "after": _plan_bar(plan, after=True)}
    if bars["before"] == bars["after"]:
        del bars["after"]
    elif any(step.wipe for step in plan.of(MakeTable)):
        del bars["before"]  # a plan names the old partitions, without their places
    journal = journal_of(plan)
    if journal and not journal.file:  # only while the plan runs
        bars["journal"] = ((journal.extent, "J", Style.NOTE),)
    parts = [extent for bar in bars.values() for extent, _, _ in bar]
    columns = _columns(parts, plan.disk.size, width - LABEL_COLUMNS - 2)
    if not columns:
        return
    end = f"{_scale_words(columns, plan.disk.size)}{format_about(plan.disk.size)}"
    yield ((" " * LABEL_COLUMNS + "0" + end.rjust(columns[plan.disk.size] - 1), Style.DIM),)
    for name, bar in bars.items():
        yield ((f"  {fit(name, LABEL_COLUMNS - 2)}", Style.PLAIN), *_bar_pieces(bar, columns, plan.disk.size))


def journal_of(plan: Plan) -> JournalPlace | None:
    return next((step.journal for step in plan.of(WriteJournal)), None)


def _plan_bar(plan: Plan, *, after: bool) -> Bar:
    """Return the parts in drawing order, containers before the partitions inside."""
    parts_drawn = []
    for place in plan.places:
        extent = place.after if after else place.before
        if extent is not None and extent.length > 0 and extent.start < plan.disk.size:
            parts_drawn.append((extent, str(place.number), _place_style(place, after=after)))
    return tuple(sorted(parts_drawn, key=lambda part: (-part[0].length, part[0].start)))


def _place_style(place: Place, *, after: bool) -> Style:
    if place.before is None or place.before == place.after:
        return Style.PLAIN
    return Style.GOOD if after else Style.BAD


def _columns(parts: Sequence[Extent], size: int, room: int) -> Mapping[int, int]:
    """Map the byte at which each part begins or ends to its column. Empty if there is no room for all
    parts.
    """
    edges = sorted({0, size, *(edge for part in parts for edge in (part.start, part.end) if edge < size)})
    stretches = list(pairwise(edges))
    # A stretch that is exactly one part gets room for its number: "[1]".
    cells_needed = [3 if Extent(start, end - start) in parts else 1 for start, end in stretches]
    if room < sum(cells_needed):
        cells_needed = [1] * len(stretches)
    if room < len(stretches) or not size:
        return {}
    cells = list(cells_needed)
    left = size
    # Those that are too short for their cells first: the others share the rest as if these had their length.
    for index in sorted(range(len(cells)), key=lambda each: _length(stretches[each]) / cells[each]):
        length = _length(stretches[index])
        cells[index] = max(cells[index], room * length // left)
        room -= cells[index]
        left -= length
    return dict(zip(edges, accumulate(cells, initial=0), strict=True))


def _length(stretch: tuple[int, int]) -> int:
    return stretch[1] - stretch[0]


def _scale_words(columns: Mapping[int, int], size: int) -> str:
    """Return "not to scale, " if a stretch is drawn two cells or more too long or too short."""
    width = columns[size]
    drawn = ((end - start, columns[end] - columns[start]) for start, end in pairwise(columns))
    return "not to scale, " * any(abs(cells * size - length * width) >= 2 * size for length, cells in drawn)


def _bar_pieces(bar: Bar, columns: Mapping[int, int], size: int) -> Iterator[Piece]:
    cells: list[tuple[str, Style]] = [("·", Style.DIM)] * columns[size]
    for extent, name, style in bar:
        first = columns[extent.start]
        end = columns[min(extent.end, size)]
        for index, char in enumerate(_part(name, end - first), first):
            cells[index] = (char, style)
    for style, run in groupby(cells, key=itemgetter(1)):
        yield "".join(char for char, _ in run), style


def _part(name: str, width: int) -> str:
    """Return "[1=====]" in `width` columns, or as much of the name as fits."""
    if width < len(name) + 2:
        return name[max(len(name) - width, 0) :].rjust(width, "|")
    return f"[{name}{'=' * (width - len(name) - 2)}]"
