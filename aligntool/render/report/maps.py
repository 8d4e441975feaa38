"""Pictures of disks: a map to scale, and the blocks of a start over the sectors."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from xml.etree.ElementTree import Element

from aligntool.audit.report import Answer, Judged, Verdict
from aligntool.inventory import Disk
from aligntool.render import audit, svg
from aligntool.render.disk_map import Stretch, block_of, check_drawn, containers_of, crossings, judgement, stretches_of
from aligntool.render.lines import Style, escaped
from aligntool.render.svg import box, element, fitting, frame, line, path, percent, words, words_width
from aligntool.units import format_about, format_size

# A disk as a picture: its partitions to scale, with their sizes, an axis, and how each one starts.

WIDTH = 720
PHONE = 330  # pixels that a small phone leaves for a picture
MOST_DRAWN = 96
LEAST_SHARE = 0.008  # of the width: three pixels on a phone
BAR, HEIGHT = 30, 58  # pixels
TICKS = 5  # at most, so that their words fit on a phone
_STYLES = {Style.DIM: "plain", Style.GOOD: "good", Style.BAD: "bad"}

Anchors = list[tuple[int, float]]
"""Bytes in their order, and how far to the right each of them is drawn, from 0 to 1."""


def disk_picture(judged: Judged, name: str) -> svg.Picture | None:
    """`name`: what --chart takes. None: nothing is known to lie on it."""
    stretches = stretches_of(judged)
    drawn, left = stretches[:MOST_DRAWN], len(stretches) - MOST_DRAWN
    if not drawn:
        return None
    lengths = [max(one.length, 0) for one in drawn]
    widths = shares(lengths, LEAST_SHARE)
    starts = list(accumulate(widths, initial=0.0))
    elements: list[Element] = []
    for one, at, share in zip(drawn, starts, widths, strict=False):
        elements += _stretch(one, at, share)
    elements += _outer_labels(drawn, starts, widths)
    ends = [(one.start, at) for one, at in zip(drawn, starts, strict=False)]
    ends += [(one.end, at) for one, at in zip(drawn, starts[1:], strict=True)]
    anchors, y = sorted(ends), BAR + HEIGHT
    for container in containers_of(judged.disk):
        y += 24
        elements += _bracket(f"{container.number} extended", container.extent.length, y - 18,
                             _at(container.extent.start, anchors), _at(container.extent.end, anchors))  # fmt: skip
    elements += _axis(judged.disk, anchors, y + 6)
    least = LEAST_SHARE * sum(lengths)
    wider = [one.label for one, length in zip(drawn, lengths, strict=True) if length < least and not one.free]
    said = f"drawn wider than to scale: {', '.join(wider)}" if wider else ""
    said += f"{'; ' if said else ''}… and {left} more, which the table has" if left > 0 else ""
    if said:
        elements.append(words("100%", y + 44, fitting(said, PHONE, 11.5), "small dim end"))
    title, height = f"Map of {judged.disk.name}", y + (50 if said else 30)
    return svg.Picture(name, title, _alternative(stretches), WIDTH, height, tuple(elements), fluid=True)


def shares(lengths: Sequence[int], least: float) -> list[float]:
    """Parts of the row, which add up to 1: in proportion, but none below `least`. Needs least × pieces < 1."""
    small: set[int] = set()
    while True:
        rest = sum(length for index, length in enumerate(lengths) if index not in small)
        room = 1 - least * len(small)
        tiny = {at for at, length in enumerate(lengths) if rest == 0 or length / rest * room < least} - small
        if not tiny:
            break
        small |= tiny
    if len(small) == len(lengths):
        return [1 / len(lengths)] * len(lengths)
    return [least if index in small else length / rest * room for index, length in enumerate(lengths)]


def _at(byte: int, anchors: Anchors) -> float:
    for (low, left), (high, right) in pairwise(anchors):
        if byte <= high:
            return left + (right - left) * max(byte - low, 0) / (high - low) if high > low else left
    return anchors[-1][1]


def _stretch(one: Stretch, at: float, share: float) -> Iterator[Element]:
    left, style = percent(at), "free" if one.free else _style(one.verdict)
    said = element("title", _sentence(one))
    yield element("g", "", (said, box(left, BAR, percent(share), HEIGHT, style)))
    if one.free:
        yield from _label("free", "dim small", at, share, BAR + 34)
        return
    if _room_inside(one, share):
        yield from _label(one.label, "strong", at, share, BAR + 17)
    yield from _label(one.what, "small", at, share, BAR + 33)
    yield from _label(format_about(one.length), "small dim", at, share, BAR + 49)
    if style in ("bad", "doubt"):  # a triangle that points at the start, full for an error, hollow for a warning
        yield frame(left, BAR - 13, "14", 13, [path([(1, 2), (11, 2), (1, 12)], f"mark-{style}", closed=True)])
    elif style == "unknown":
        yield frame(left, BAR - 15, "14", 15, [words(1, 12, "?", "strong")])


def _room_inside(one: Stretch, share: float) -> bool:
    return words_width(one.label, 13) + 8 <= share * PHONE


def _outer_labels(drawn: Sequence[Stretch], starts: Sequence[float], widths: Sequence[float]) -> Iterator[Element]:
    """Numbers of the narrow ones stand above them: on a phone as many as have room there."""
    taken = {PHONE: 0.0, WIDTH: 0.0}  # how far to the right the words reach, in pixels of that width
    for one, at, share in zip(drawn, starts, widths, strict=False):
        if one.free or _room_inside(one, share):
            continue
        width = words_width(one.label, 11.5)
        roomy = {screen: at * screen >= end and at * screen + width <= screen for screen, end in taken.items()}
        taken |= {screen: at * screen + width + 4 for screen, fits in roomy.items() if fits}
        if roomy[WIDTH]:
            yield words(percent(at), 12, one.label, "small strong" if roomy[PHONE] else "small strong wide")


def _bracket(name: str, length: int, y: int, start: float, end: float) -> Iterator[Element]:
    """A container below what lies in it."""
    yield line(percent(start), y, percent(end), y, "axis")
    for at in (start, end):
        yield line(percent(at), y - 4, percent(at), y + 4, "axis")
    yield from _label(f"{name} {format_about(length)}", "small dim", start, 1 - start, y + 14)


def _axis(disk: Disk, anchors: Anchors, y: int) -> Iterator[Element]:
    """Ticks at powers of two. Where partitions overlap there are none."""
    size = disk.size or anchors[-1][0]
    yield line(0, y, "100%", y, "axis")
    yield words(0, y + 16, "0", "small dim")
    yield words("100%", y + 16, format_about(size), "small dim end")
    step = 1 << max(size // TICKS, 1).bit_length()
    ordered = all(left <= right for (_, left), (_, right) in pairwise(anchors))
    for tick in range(0, size + 1, step) if ordered else ():
        at = _at(tick, anchors)
        yield line(percent(at), y, percent(at), y + 4, "axis")
        if tick and 0.1 < at < 0.88:
            style = "small dim" if at < 0.75 else "small dim wide"
            yield words(percent(at), y + 16, format_about(tick), style, anchor="middle")


def _label(text: str, style: str, at: float, share: float, y: int) -> Iterator[Element]:
    """What fits on a phone is always shown; what fits only on a wider screen is shown there."""
    size = 11.5 if "small" in style else 13
    left, width = percent(at), percent(share)
    room = share * PHONE - 8
    if words_width(text, size) <= room:
        yield frame(left, y - 16, width, 22, [words(5, 16, text[:200], style)])
    elif len(short := fitting(text, share * WIDTH - 8, size)) > 2:
        yield frame(left, y - 16, width, 22, [words(5, 16, short, f"{style} wide")])


def _style(verdict: Verdict | None) -> str:
    if verdict is not None and verdict.matters and verdict.answer is Answer.UNKNOWN:
        return "unknown"
    return _STYLES.get(audit.verdict_words(verdict)[0][1], "doubt")


def _sentence(one: Stretch) -> str:
    size = format_about(one.length)
    if one.free:
        return f"free: {size}"
    who = f"partition {one.label}" if one.partition else "the whole disk"
    return f"{who}, {escaped(one.what)[:60]}, {size}: {audit.verdict_text(one.verdict)}"


def _alternative(stretches: Sequence[Stretch]) -> str:
    return "; ".join(map(_sentence, stretches[:40]))


# Blocks over sectors, as a picture: the drawing of the 2010 article for one start of the user's own disk.

UNITS = 4
MOST_BLOCKS = 40


def start_picture(judged: Judged, verdict: Verdict, name: str) -> svg.Picture | None:
    """Four units of the boundary in question, and below them the blocks as they really lie; those that cross a boundary
    are drawn as such, by colour and by a thicker edge. None: no boundary was checked.
    """
    check = check_drawn(verdict)
    if check is None:
        return None
    partition = next((part for part in judged.disk.partitions if part.number == verdict.partition), None)
    who = judged.disk.name if partition is None else f"partition {partition.number} of {judged.disk.name}"
    block, grid, past = block_of(partition), check.grid.size, check.off_by
    request = block if block * 16 >= grid else grid
    said = f"{who} starts at byte {verdict.start}: {judgement(verdict, check)}"
    said += "" if check.on else f"; {crossings(check, request)}"
    width = (svg.RIGHT - svg.LEFT) / UNITS
    scale = width / grid
    elements = [words(svg.LEFT, 12, f"{check.grid.kind}, {format_size(grid)} each", "small dim")]
    for unit in range(UNITS):
        elements.append(box(svg.LEFT + unit * width, 18, width, 24, "plain"))
        text = str(verdict.start - past + unit * grid)
        elements.append(words(svg.LEFT + unit * width + 4, 34, text, "small"))
    for begin in range(past, UNITS * grid - request + 1, request)[:MOST_BLOCKS]:
        crosses = begin // grid != (begin + request - 1) // grid and not check.on
        elements.append(box(svg.LEFT + begin * scale, 52, request * scale, 24, "bad" if crosses else "good"))
    kind = "blocks" if request < grid or check.on else "blocks or requests"
    elements.append(words(svg.RIGHT, 112, f"{kind} of {format_size(request)}", "small dim end"))
    for unit in range(1, UNITS):
        elements.append(line(svg.LEFT + unit * width, 42, svg.LEFT + unit * width, 82, "axis"))
    at = svg.LEFT + past * scale
    text = "starts on the boundary" if check.on else f"starts {format_size(past)} past it"
    elements.append(path([(at - 5, 90), (at, 80), (at + 5, 90)], "arrow"))
    elements.append(words(max(at - 4, svg.LEFT), 104, text, "small"))
    return svg.Picture(name, f"Start of {who}", said, svg.WIDTH, 118, tuple(elements))


MOST_STARTS = 2
"""So many starts of a disk are drawn; the table has all of them."""


def start_pictures(judged: Judged, name: str) -> Iterator[svg.Picture]:
    """Of the first partitions that are off."""
    off = [verdict for verdict in judged.verdicts if verdict.answer is Answer.OFF and verdict.matters]
    for verdict in off[:MOST_STARTS]:
        number = "whole" if verdict.partition is None else verdict.partition
        if picture := start_picture(judged, verdict, f"start-{name}-{number}"):
            yield picture
