"""Draw pictures of disks: a map to scale, and the blocks at a start over the sectors."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from xml.etree.ElementTree import Element

from aligntool.audit.report import Answer, Cost, Judged, Verdict
from aligntool.inventory import Disk
from aligntool.render import audit, disk_map, svg
from aligntool.render.lines import Style, harmless
from aligntool.render.svg import box, cut_to_width, element, frame, line, path, percent, words, words_width
from aligntool.units import format_about, format_size, listed

# A disk as a picture: its partitions to scale, with sizes, an axis, and the alignment of each start.

WIDTH = 720
PHONE = 330  # pixels that a small phone leaves for a picture
MOST_DRAWN = 96
LEAST_SHARE = 0.008  # of the width: three pixels on a phone
# pixels
BAR = 30
HEIGHT = 58
SMALL_HEIGHT = 18
TICKS = 5  # at most, so that their labels fit on a phone
_STYLES = {Style.DIM: "plain", Style.GOOD: "good", Style.BAD: "bad"}

Anchors = list[tuple[int, float]]
"""Offsets in bytes in ascending order, and the position from left (0) to right (1) at which each is drawn."""


def disk_picture(judged: Judged, name: str) -> svg.Picture | None:
    """Return the map of a disk, or None if nothing is known to be on it. `name`: the argument of --chart."""
    stretches = disk_map.stretches_of(judged)
    drawn = stretches[:MOST_DRAWN]
    omitted = len(stretches) - MOST_DRAWN
    if not drawn:
        return None
    lengths = [max(stretch.length, 0) for stretch in drawn]
    widths = row_shares(lengths, LEAST_SHARE)
    starts = list(accumulate(widths, initial=0.0))
    elements: list[Element] = []
    for stretch, at, share in zip(drawn, starts, widths, strict=False):
        elements += _stretch(stretch, at, share)
    elements += _outer_labels(drawn, starts, widths)
    ends = [(stretch.start, at) for stretch, at in zip(drawn, starts, strict=False)]
    ends += [(stretch.end, at) for stretch, at in zip(drawn, starts[1:], strict=True)]
    anchors = sorted(ends)
    y = BAR + HEIGHT
    for container in disk_map.containers_of(judged.disk):
        y += 24
        elements += _bracket(
            f"{container.number} extended",
            container.extent.length,
            y - 18,
            _x_of(container.extent.start, anchors),
            _x_of(container.extent.end, anchors),
        )
    elements += _axis(judged.disk, anchors, y + 6)
    least = LEAST_SHARE * sum(lengths)
    wider = [
        part.label for part, length in zip(drawn, lengths, strict=True) if length < least and not part.free
    ]
    note = f"drawn wider than to scale: {', '.join(wider)}" if wider else ""
    note += f"{'; ' if note else ''}… and {omitted} more, listed in the table" if omitted > 0 else ""
    if note:
        elements.append(words("100%", y + 44, cut_to_width(note, PHONE, 11.5), "small dim end"))
    title = f"Map of {judged.disk.name}"
    height = y + (50 if note else 30)
    return svg.Picture(name, title, _alternative(stretches), WIDTH, height, tuple(elements), fluid=True)


def small_map(judged: Judged) -> svg.Picture:
    """Return the map of a disk without words, to scale; empty if nothing is known to be on it."""
    stretches = disk_map.stretches_of(judged)[:MOST_DRAWN]
    if not stretches:
        return svg.strip((), SMALL_HEIGHT)
    shares = row_shares([max(stretch.length, 0) for stretch in stretches], LEAST_SHARE)
    styles = ("free" if stretch.free else _style(stretch.verdict) for stretch in stretches)
    return svg.strip(zip(shares, styles, strict=True), SMALL_HEIGHT)


def damaged_map() -> svg.Picture:
    return svg.strip([(1, "bad")], SMALL_HEIGHT)


def row_shares(lengths: Sequence[int], least: float) -> list[float]:
    """Return shares of the row that add up to 1: proportional, but none below `least`. Needs least × pieces <
    1.
    """
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


def _x_of(byte: int, anchors: Anchors) -> float:
    for (low, left), (high, right) in pairwise(anchors):
        if byte <= high:
            return left + (right - left) * max(byte - low, 0) / (high - low) if high > low else left
    return anchors[-1][1]


def _stretch(stretch: disk_map.Stretch, at: float, share: float) -> Iterator[Element]:
    left = percent(at)
    style = "free" if stretch.free else _style(stretch.verdict)
    title = element("title", _sentence(stretch))
    yield element("g", "", (title, box(left, BAR, percent(share), HEIGHT, style)))
    if stretch.free:
        yield from _label("free", "dim small", at, share, BAR + 34)
        return
    if _label_fits(stretch, share, WIDTH):
        yield from _label(stretch.label, "strong", at, share, BAR + 17)
    yield from _label(stretch.what, "small", at, share, BAR + 33)
    yield from _label(format_about(stretch.length), "small dim", at, share, BAR + 49, is_cut=False)
    # a triangle that points at the start: solid for an error, hollow for a warning
    if style in ("bad", "doubt"):
        yield frame(
            left, BAR - 13, "14", 13, [path([(1, 2), (11, 2), (1, 12)], f"mark-{style}", closed=True)]
        )
    elif style == "unknown":
        yield frame(left, BAR - 15, "14", 15, [words(1, 12, "?", "strong")])


def _label_fits(stretch: disk_map.Stretch, share: float, screen: int) -> bool:
    """Return whether the number of a partition fits into it, on a screen of this width."""
    return words_width(stretch.label, 13) + 8 <= share * screen


def _outer_labels(
    drawn: Sequence[disk_map.Stretch], starts: Sequence[float], widths: Sequence[float]
) -> Iterator[Element]:
    """Yield the numbers of narrow partitions, above them, where they have room: on a phone, on wider screens,
    or on both.
    """
    used = {PHONE: 0.0, WIDTH: 0.0}  # right end of the labels so far, in pixels at that width
    for stretch, at, share in zip(drawn, starts, widths, strict=False):
        width = words_width(stretch.label, 11.5)
        roomy = [
            screen
            for screen, end in used.items()
            if not stretch.free
            and not _label_fits(stretch, share, screen)
            and end <= at * screen <= screen - width
        ]
        used |= {screen: at * screen + width + 4 for screen in roomy}
        if roomy:
            style = "" if len(roomy) > 1 else " narrow" if PHONE in roomy else " wide"
            yield words(percent(at), 12, stretch.label, f"small strong{style}")


def _bracket(name: str, length: int, y: int, start: float, end: float) -> Iterator[Element]:
    """Draw a container below the partitions inside it."""
    yield line(percent(start), y, percent(end), y, "axis")
    for at in (start, end):
        yield line(percent(at), y - 4, percent(at), y + 4, "axis")
    yield from _label(f"{name} {format_about(length)}", "small dim", start, 1 - start, y + 14)


def _axis(disk: Disk, anchors: Anchors, y: int) -> Iterator[Element]:
    """Draw an axis with ticks at multiples of a power of two, or without ticks if partitions overlap."""
    size = disk.size or anchors[-1][0]
    yield line(0, y, "100%", y, "axis")
    yield words(0, y + 16, "0", "small dim")
    yield words("100%", y + 16, format_about(size), "small dim end")
    step = 1 << max(size // TICKS, 1).bit_length()
    ordered = all(left <= right for (_, left), (_, right) in pairwise(anchors))
    for tick in range(0, size + 1, step) if ordered else ():
        at = _x_of(tick, anchors)
        yield line(percent(at), y, percent(at), y + 4, "axis")
        if tick and 0.1 < at < 0.88:
            style = "small dim" if at < 0.75 else "small dim wide"
            yield words(percent(at), y + 16, format_about(tick), style, anchor="middle")


def _label(
    text: str, style: str, at: float, share: float, y: int, *, is_cut: bool = True
) -> Iterator[Element]:
    """Draw a label if it fits on a phone, or else only for wider screens, and shortened if `is_cut`."""
    size = 11.5 if "small" in style else 13
    left = percent(at)
    width = percent(share)
    room = share * PHONE - 8
    if words_width(text, size) <= room:
        yield frame(left, y - 16, width, 22, [words(5, 16, text[:200], style)])
        return
    short = cut_to_width(text, share * WIDTH - 8, size)
    if short == text or (is_cut and len(short) > 2):
        yield frame(left, y - 16, width, 22, [words(5, 16, short, f"{style} wide")])


def _style(verdict: Verdict | None) -> str:
    if verdict is not None and verdict.matters and verdict.answer is Answer.UNKNOWN:
        return "unknown"
    return _STYLES.get(audit.verdict_words(verdict)[0][1], "doubt")


def _sentence(stretch: disk_map.Stretch) -> str:
    size = format_about(stretch.length)
    if stretch.free:
        return f"free: {size}"
    subject = f"partition {stretch.label}" if stretch.partition else "the whole disk"
    return f"{subject}, {harmless(stretch.what)[:60]}, {size}: {audit.verdict_text(stretch.verdict)}"


def _alternative(stretches: Sequence[disk_map.Stretch]) -> str:
    return "; ".join(map(_sentence, stretches[:40]))


# Blocks over sectors as a picture: the drawing of the 2010 article for one start on the user's own disk.

UNITS = 4
MOST_BLOCKS = 40
MOST_STARTS = 12
"""Most starts that are drawn for a disk; the table has all of them."""
LEAST_ARROW = 10  # pixels


def start_picture(
    judged: Judged, verdict: Verdict, name: str, alike: Sequence[int] = ()
) -> svg.Picture | None:
    """Return a picture of four units of the checked grid, and below them the blocks at their real offsets.
    The missed boundary is a thick line, and the distance from it an arrow. A block that crosses a boundary
    has another colour and a thicker edge. Return None if no boundary was checked. `alike`: the partitions
    that start as far off.
    """
    check = disk_map.check_drawn(verdict)
    if check is None:
        return None
    partition = next((part for part in judged.disk.partitions if part.number == verdict.partition), None)
    subject = judged.disk.name if partition is None else f"partition {partition.number} of {judged.disk.name}"
    block = disk_map.block_of(partition)
    grid = check.grid.size
    past = check.off_by
    request = block if block * 16 >= grid else grid
    alternative = f"{subject} starts at byte {verdict.start}: {disk_map.position_words(verdict, check)}"
    alternative += "" if check.on else f"; {disk_map.crossings(check, request)}"
    width = (svg.RIGHT - svg.LEFT) / UNITS
    scale = width / grid
    who = f"partition{'s' if len(alike) > 1 else ''} {listed(alike)}: " if alike else ""
    unit_words = cut_to_width(f"{who}{check.grid.kind}, {format_size(grid)} each", svg.RIGHT - svg.LEFT, 11.5)
    elements = [words(svg.LEFT, 12, unit_words, "small dim")]
    for unit in range(UNITS):
        elements.append(box(svg.LEFT + unit * width, 18, width, 24, "plain"))
        text = str(verdict.start - past + unit * grid)
        elements.append(words(svg.LEFT + unit * width + 4, 34, text, "small"))
    crossing = 0
    for begin in range(past, UNITS * grid - request + 1, request)[:MOST_BLOCKS]:
        crosses = begin // grid != (begin + request - 1) // grid and not check.on
        crossing += crosses
        elements.append(box(svg.LEFT + begin * scale, 52, request * scale, 24, "bad" if crosses else "good"))
    kind = "blocks" if request < grid or check.on else "blocks or requests"
    caption = f"{kind} of {format_size(request)}"
    if not check.on and not crossing:
        caption = f"{caption} straddle no boundary, larger requests do"
    for unit in range(1, UNITS):
        elements.append(line(svg.LEFT + unit * width, 42, svg.LEFT + unit * width, 82, "axis"))
    distance = f"starts {format_size(past)} past it" if past else "starts on the boundary"
    elements += _distance(past, scale, distance)
    room = svg.RIGHT - svg.LEFT - 4 - words_width(distance, 12.5)
    y = 112 if words_width(caption, 11.5) + 12 <= room else 124
    elements.append(words(svg.RIGHT, y, caption, "small dim end"))
    return svg.Picture(name, f"Start of {subject}", alternative, svg.WIDTH, y + 6, tuple(elements))


def _distance(past: int, scale: float, distance: str) -> Iterator[Element]:
    """Draw the missed boundary and an arrow from it to the start, `past` bytes further, with the distance in
    words.
    """
    if not past:
        yield path([(svg.LEFT, 90), (svg.LEFT + 5, 80), (svg.LEFT + 10, 90)], "arrow")
        yield words(svg.LEFT, 104, distance, "small")
        return
    at = svg.LEFT + max(past * scale, LEAST_ARROW)
    yield line(svg.LEFT, 14, svg.LEFT, 96, "boundary")
    yield line(svg.LEFT, 88, at, 88, "distance")
    yield path([(at - 5, 84), (at, 88), (at - 5, 92)], "distance")
    yield words(svg.LEFT + 4, 106, distance, "small strong")


def start_pictures(judged: Judged, name: str) -> Iterator[svg.Picture]:
    """Yield a picture of each misaligned start; partitions that start equally far off the same grid share
    one.
    """
    groups: dict[object, list[Verdict]] = {}
    for verdict in judged.verdicts:
        if verdict.matters and verdict.answer is Answer.OFF and (check := disk_map.check_drawn(verdict)):
            groups.setdefault((check.grid, check.off_by), []).append(verdict)
    for verdicts in list(groups.values())[:MOST_STARTS]:
        number = "whole" if verdicts[0].partition is None else verdicts[0].partition
        alike = [verdict.partition for verdict in verdicts if verdict.partition is not None]
        picture = start_picture(judged, verdicts[0], f"start-{name}-{number}", alike)
        if picture:
            yield picture


# The predicted cost as two bars.


def cost_picture(cost: Cost, name: str) -> svg.Picture:
    """Draw the predicted rate of random writes off the boundary below that of aligned ones."""
    room = svg.RIGHT - svg.LEFT
    elements: list[Element] = []
    rows = (("aligned", 1.0, "1", "good"), ("here", cost.write_rate, cost.write_share, "bad"))
    for row, (label, share, text, style) in enumerate(rows):
        y = 4 + row * 24
        elements.append(box(svg.LEFT, y, room * share, 18, style))
        elements.append(words(svg.LEFT + 6, y + 13, f"{label}: {text}", "small strong"))
    request = format_size(cost.request)
    title = f"Predicted rate of random {request} writes"
    elements.append(words(svg.LEFT, 66, title, "small dim"))
    alternative = (
        f"aligned 1; here {cost.write_share} of that, because {cost.straddle_probability:.0%} straddle"
    )
    return svg.Picture(name, title, alternative, svg.WIDTH, 72, tuple(elements))
