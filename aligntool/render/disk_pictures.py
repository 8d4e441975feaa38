"""Maps of a disk and starts of partitions as SVG."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from aligntool.audit.report import Answer, Check, Judged, Severity, Verdict
from aligntool.audit.wording import layer_name
from aligntool.inventory import Disk, Partition, Role
from aligntool.render.audit import verdict_text, worst_of
from aligntool.render.disk_map import block_of, crossings, judgement
from aligntool.render.lines import harmless
from aligntool.render.svg import Picture, box, fitting, frame, line, path, percent, words, words_width
from aligntool.units import format_about, format_size

# A disk as a picture: its partitions in order, to scale as far as they stay readable, and how each one
# starts.

WIDTH = 720
PHONE = 330  # pixels that a small phone leaves for a picture
MOST_IN_A_ROW = 10
MOST_ROWS = 6
LEAST_SHARE = 0.07  # of the row: a number of two digits on a phone
ROW = 92  # pixels
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


def disk_picture(judged: Judged, name: str) -> Picture | None:
    """`name`: what --chart takes. None: nothing is known to lie on it."""
    pieces = _pieces(judged)
    if not pieces:
        return None
    rows = [pieces[at : at + MOST_IN_A_ROW] for at in range(0, len(pieces), MOST_IN_A_ROW)]
    elements: list[Element] = []
    for number, row in enumerate(rows[:MOST_ROWS]):
        elements += _row(row, number * ROW, judged.disk.size)
    height = min(len(rows), MOST_ROWS) * ROW
    if len(rows) > MOST_ROWS:
        left = sum(len(row) for row in rows[MOST_ROWS:])
        elements.append(words(0, height + 14, f"… and {left} more; the table has them all", "dim"))
        height += 20
    title = f"Map of {judged.disk.name}"
    return Picture(name, title, _alternative(judged), WIDTH, height, tuple(elements), fluid=True)


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
        found = {
            index
            for index, length in enumerate(lengths)
            if index not in small and (rest == 0 or length / rest * room < least)
        }
        if not found:
            break
        small |= found
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
    if verdict is None or (not verdict.matters and verdict.answer is not Answer.ON):
        return "plain"
    if verdict.answer is Answer.ON:
        return "good"
    if verdict.answer is Answer.UNKNOWN:
        return "unknown"
    worst = worst_of(verdict)
    return "bad" if worst and worst.grid.severity is Severity.ERROR else "doubt"


def _alternative(judged: Judged) -> str:
    said = []
    for piece in _pieces(judged)[:40]:
        if piece.partition is None and piece.verdict is None:
            said.append(f"free: {format_about(piece.length)}")
            continue
        who = f"partition {piece.label}" if piece.partition else "the whole disk"
        said.append(f"{who}, {harmless(piece.what)[:60]}, {format_about(piece.length)}: {verdict_text(piece.verdict)}")
    return "; ".join(said)


# Blocks over sectors, as a picture: the drawing of the 2010 article for one start of the user's own disk.

START_WIDTH = 420
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
    return Picture(name, f"Start of {who}", said, START_WIDTH, 118, elements)


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
