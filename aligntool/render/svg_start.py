"""Blocks over sectors, as a picture: the drawing of the 2010 article for one start of the user's own disk.

In: a verdict and its partition. Out: a picture. Alone because it is the picture for pages and files of what `map`
draws on a terminal; what is drawn is decided there.
"""

from collections.abc import Iterator

from aligntool.audit import Check, Judged, Verdict
from aligntool.render.map import block_of, crossings, judgement
from aligntool.render.svg import Element, Picture, box, line, path, words
from aligntool.units import format_size

WIDTH = 420
LEFT, RIGHT = 2, 418
UNITS = 4
MOST_BLOCKS = 40


def start_picture(judged: Judged, verdict: Verdict, check: Check, name: str) -> Picture:
    """Four units of the boundary in question, and below them the blocks as they really lie."""
    partition = next((part for part in judged.disk.partitions if part.number == verdict.partition), None)
    who = judged.disk.name if partition is None else f"partition {partition.number} of {judged.disk.name}"
    block = block_of(partition)
    request = block if block * 16 >= check.grid.size else check.grid.size
    said = f"{who} starts at byte {verdict.start}: {judgement(verdict, check)}"
    if not check.on:
        said += f"; {crossings(check, request)}"
    elements = (*_units(check, verdict.start), *_blocks(check, request), *_arrow(check))
    return Picture(name, f"Start of {who}", said, WIDTH, 118, elements)


def _units(check: Check, start: int) -> Iterator[Element]:
    size = (RIGHT - LEFT) / UNITS
    first = start - check.off_by
    kind = f"{check.grid.kind}, {format_size(check.grid.size)} each"
    yield words(LEFT, 12, kind, "small dim")
    for unit in range(UNITS):
        yield box(LEFT + unit * size, 18, size, 24, "plain")
        yield words(LEFT + unit * size + 4, 34, str(first + unit * check.grid.size), "small")


def _blocks(check: Check, request: int) -> Iterator[Element]:
    """Those that cross a boundary are drawn as such, by colour and by a thicker edge."""
    scale = (RIGHT - LEFT) / (UNITS * check.grid.size)
    kind = "blocks" if request < check.grid.size or check.on else "blocks or requests"
    for index in range(MOST_BLOCKS):
        begin = check.off_by + index * request
        end = begin + request
        if end > UNITS * check.grid.size:
            break
        crosses = begin // check.grid.size != (end - 1) // check.grid.size and not check.on
        yield box(LEFT + begin * scale, 52, request * scale, 24, "bad" if crosses else "good")
    yield words(RIGHT, 112, f"{kind} of {format_size(request)}", "small dim end")
    for unit in range(1, UNITS):
        x = LEFT + unit * (RIGHT - LEFT) / UNITS
        yield line(x, 42, x, 82, "axis")


def _arrow(check: Check) -> Iterator[Element]:
    at = LEFT + check.off_by * (RIGHT - LEFT) / (UNITS * check.grid.size)
    yield path([(at - 5, 90), (at, 80), (at + 5, 90)], "arrow")
    text = "starts on the boundary" if check.on else f"starts {format_size(check.off_by)} past it"
    yield words(max(at - 4, LEFT), 104, text, "small")
