"""Maps of a disk as text: partitions, gaps, moves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby, pairwise, takewhile
from operator import itemgetter

from aligntool.audit.report import Answer, Check, Grid, GridKind, Judged, Report, Verdict
from aligntool.audit.wording import layer_name
from aligntool.change import Place, Plan
from aligntool.inventory import Disk, Partition, Role
from aligntool.render.audit import verdict_words, worst_of
from aligntool.render.lines import EMPTY, Line, Piece, Style, cell_width, fit, harmless, paragraph, plain, wrapped
from aligntool.steps import JournalPlace, WriteJournal
from aligntool.units import Extent, format_about, format_size

# A disk as stretches: its partitions in their order, and the free space between them.

SMALL_GAP = 0.002  # of the disk: free space below that is not drawn


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of the disk; `partition` None: free, or the disk used whole."""

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
    """Return them in the order of their starts. Containers are left out: what lies in them is there."""
    disk, verdicts = judged.disk, judged.by_partition()
    if not disk.partitions:
        whole = verdicts.get(None)
        what = ", ".join(map(layer_name, disk.content)) or disk.content_hint or "in use"
        return [Stretch(0, disk.size or 1, None, whole, "whole", what)] if whole else []
    holding = {part.number for part in containers_of(disk)}
    parts = [part for part in disk.partitions if part.number not in holding and part.role is not Role.EXTENDED]
    made: list[Stretch] = []
    end = 0
    for part in sorted(parts, key=lambda part: (part.extent.start, part.number)):
        made += _gap(end, part.extent.start, disk)
        place, what = part.extent, ", ".join(map(layer_name, part.content)) or part.content_hint or part.type_name
        made.append(Stretch(place.start, place.length, part, verdicts.get(part.number), str(part.number), what))
        end = max(end, place.end)
    return made + list(_gap(end, disk.size or 0, disk))


def containers_of(disk: Disk) -> list[Partition]:
    """Return the extended partition, and entries of a table that hold others."""
    return [
        part
        for part in disk.partitions
        if part.role in (Role.EXTENDED, Role.MAP)
        and any(part.extent.contains(other.extent) for other in disk.partitions if other.number != part.number)
    ]


def _gap(start: int, end: int, disk: Disk) -> Iterator[Stretch]:
    if disk.size and end - start > disk.size * SMALL_GAP:
        yield Stretch(start, end - start, what="free")


def strip_lines(judged: Judged, *, width: int) -> Iterator[Line]:
    """The whole disk to scale in a line, and below it what its partitions are; ^ is a start off the grid. Nothing where
    there are more partitions than columns.
    """
    size, stretches = judged.disk.size or 0, stretches_of(judged)
    parts = [one for one in stretches if not one.free and one.end <= size]
    around = [(part.extent, str(part.number), Style.DIM) for part in containers_of(judged.disk)]
    bar = (*around, *((Extent(one.start, one.length), one.label, _looks(one)) for one in parts))
    columns = _columns([extent for extent, _, _ in bar], size, width)
    if not parts or not columns:
        return
    end = format_about(size)
    yield ((fit(judged.disk.name, width - cell_width(end)), Style.TITLE), (end, Style.DIM))
    yield tuple(_drawn(bar, columns, size))
    ends = [*(columns[one.start] for one in parts[1:]), width]
    line, used = [], 0
    for one, limit in zip(parts, ends, strict=True):
        begin, mark = columns[one.start], "^" * (one.verdict is not None and one.verdict.answer is Answer.OFF)
        said, room = f"{mark}{f'{one.what} '.lstrip()}{format_about(one.length)}", limit - begin - 1
        said = fit(said, min(cell_width(harmless(said)), room)) if room > 4 else mark
        if begin >= used and said:
            line += [(" " * (begin - used), Style.PLAIN), (said, _looks(one))]
            used = begin + cell_width(said)
    yield (*line,)
    yield EMPTY


def _looks(one: Stretch) -> Style:
    return verdict_words(one.verdict)[0][1]


# Blocks over sectors: the picture of the 2010 article, drawn for the user's own partitions.
#
# Each boundary in question gets a ruler of the grid that it is off (or would be judged by), and below it the
# blocks of the file system as they really lie.

CELLS_A_UNIT = 16
MOST_UNITS = 4
USUAL_BLOCK = 4096


def map_lines(report: Report, *, width: int) -> Iterator[Line]:
    """Of each disk the whole, then every start."""
    for judged in report.judged:
        yield from strip_lines(judged, width=width)
        for verdict in judged.verdicts:
            yield from boundary_lines(judged, verdict, width=width)


def boundary_lines(judged: Judged, verdict: Verdict, *, width: int) -> Iterator[Line]:
    """The picture of one start. Where nothing is off, the physical sectors are drawn."""
    partition = next((part for part in judged.disk.partitions if part.number == verdict.partition), None)
    check = check_drawn(verdict)
    name = judged.disk.name if partition is None else f"partition {partition.number} of {judged.disk.name}"
    sector_size = judged.disk.sector_size
    sector = f"sector {verdict.start // sector_size}, " if verdict.start % sector_size == 0 else ""
    title = f" starts at {sector}byte {verdict.start}: {judgement(verdict, check)}"
    room = max(width - cell_width(harmless(name)), MOST_UNITS)
    first, *rest = wrapped(title.strip(), room - 1, "")
    yield ((name, Style.TITLE), (f" {first}", Style.PLAIN))
    for line in wrapped(" ".join(rest), width - 4, "") if rest else ():
        yield plain(f"    {line}")
    if check is not None:
        yield from _drawing(check, verdict.start, block_of(partition), width)
    yield EMPTY


def check_drawn(verdict: Verdict) -> Check | None:
    """Return the boundary to draw: the worst that the start is off, else the first; None where none was checked."""
    worst = worst_of(verdict) if verdict.answer is not Answer.ON else None
    return worst or (verdict.checks[0] if verdict.checks else None)


def judgement(verdict: Verdict, check: Check | None) -> str:
    """How a start lies to that boundary, in words."""
    if verdict.answer is Answer.UNKNOWN or check is None:
        return f"unknown, {verdict.why}"
    if check.on:
        return f"on a boundary of {_name(check.grid)}"
    return f"{format_size(check.off_by)} past a boundary of {_name(check.grid)}"


def _name(grid: Grid) -> str:
    return f"{format_size(grid.size)} ({grid.kind}, {grid.source})"


def block_of(partition: Partition | None) -> int:
    """The file system's block, where one was recognised; the usual 4 KiB otherwise."""
    if partition and partition.content:
        unit = partition.content[0].data_unit or 0
        if 512 <= unit <= 64 * 1024:
            return unit
    return USUAL_BLOCK


def _drawing(check: Check, start: int, block: int, width: int) -> Iterator[Line]:
    grid = check.grid
    head = 24
    units = max(min((width - head - 2) // CELLS_A_UNIT, MOST_UNITS), 2)
    cells = units * CELLS_A_UNIT
    first = start - check.off_by
    request = block if block * CELLS_A_UNIT >= grid.size else grid.size
    label = f"{grid.kind if grid.kind is not GridKind.PHYSICAL else 'sectors'} {format_size(grid.size)}"
    what = f"blocks {format_size(block)}" if request == block else f"requests {format_size(request)}"
    numbers = "".join(f"{first + index * grid.size:<{CELLS_A_UNIT}}" for index in range(units))
    yield ((" " * head + numbers.rstrip(), Style.DIM),)
    yield ((f"  {fit(label, head - 2)}", Style.PLAIN), (("|" + "-" * (CELLS_A_UNIT - 1)) * units + "|", Style.NOTE))
    begin = check.off_by * CELLS_A_UNIT // grid.size or int(not check.on)  # less than a cell off is drawn as off
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
    """How many of these requests, laid end to end, lie across a boundary: exact, over one period."""
    size = check.grid.size
    if request >= size:
        return f"every {format_size(request)} request touches one unit more"
    period = size // request if size % request == 0 else size
    starts = (check.off_by + index * request for index in range(min(period, 4096)))
    across = sum(begin // size != (begin + request - 1) // size for begin in starts)
    if not across:
        return "no block straddles, but larger requests do"
    return f"{across} of {min(period, 4096)} blocks straddle a boundary"


def _blocks(begin: int, cells: int, length: float) -> str:
    """Blocks from `begin` on, each `length` cells long, cut at the right edge."""
    row = [" "] * begin + ["="] * (cells + 1 - begin)
    for edge in takewhile(lambda edge: edge <= cells, (begin + round(index * length) for index in count())):
        row[edge] = "["
    return "".join(row)


# The disk before and after, as two bars with the same columns, in which the smallest part and gap keep a cell.

HEAD = 10

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
        yield ((f"  {fit(name, HEAD - 2)}", Style.PLAIN), *_drawn(bar, columns, plan.disk.size))


def journal_of(plan: Plan) -> JournalPlace | None:
    return next((step.journal for step in plan.steps if isinstance(step, WriteJournal)), None)


def _bar(plan: Plan, *, after: bool) -> Bar:
    """Containers before what lies in them."""
    drawn, journal = [], journal_of(plan)
    if journal and not journal.file:
        # It may lie where a file system is shrunk first; then it does not belong into the first bar. Containers of
        # other partitions do not count.
        parts = [place for place in plan.places if not any(place.after.contains(other.after) and other is not place
                 for other in plan.places)]  # fmt: skip
        later = any(place.before is not None and place.before.overlaps(journal.extent) for place in parts)
        drawn += [(journal.extent, "J", Style.NOTE)] if after is later else []
    for place in plan.places:
        extent = place.after if after else place.before
        if extent is not None and extent.length > 0 and extent.start < plan.disk.size:
            drawn.append((extent, str(place.number), _style(place, after=after)))
    return tuple(sorted(drawn, key=lambda part: (-part[0].length, part[0].start)))


def _style(place: Place, *, after: bool) -> Style:
    if place.before is None or place.before == place.after:
        return Style.PLAIN
    return Style.GOOD if after else Style.BAD


def _columns(parts: Sequence[Extent], size: int, room: int) -> Mapping[int, int]:
    """The column of every byte at which a part begins or ends; empty when there is no room for them all."""
    edges = sorted({0, size, *(edge for part in parts for edge in (part.start, part.end) if edge < size)})
    stretches = list(pairwise(edges))
    # A stretch that is a whole part, or all that a part has to itself, has room for its number: "[1]".
    least = [3 if Extent(start, end - start) in parts else 1 for start, end in stretches]
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


def _drawn(bar: Bar, columns: Mapping[int, int], size: int) -> Iterator[Piece]:
    cells: list[tuple[str, Style]] = [("·", Style.DIM)] * columns[size]
    for extent, name, style in bar:
        first, end = columns[extent.start], columns[min(extent.end, size)]
        for index, char in enumerate(_part(name, end - first), first):
            cells[index] = (char, style)
    for style, run in groupby(cells, key=itemgetter(1)):
        yield "".join(char for char, _ in run), style


def _part(name: str, width: int) -> str:
    """ "[1=====]", as much of it as there is room for."""
    if width < len(name) + 2:
        return name[max(len(name) - width, 0) :].rjust(width, "|")
    return f"[{name}{'=' * (width - len(name) - 2)}]"
