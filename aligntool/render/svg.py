"""SVG as values: elements, and the picture that they make, written by an XML writer and never by hand.

In: shapes and words in pixels, or in percent of the width. Out: SVG for a page or for a file of its own. Alone because
words in a picture come from disks: here is the one door at which they are made harmless and escaped.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from xml.etree import ElementTree

from aligntool.render.lines import cell_width, harmless

NAMESPACE = "http://www.w3.org/2000/svg"
LONGEST_WORDS = 120  # characters of one text in a picture
MARGIN = 14  # pixels around a picture of its own
MOST_LINES = 4  # of a title, and of each thing that is said about a picture
LETTER = 0.58  # width of an average letter, of the size of its font; measured on DejaVu Sans and Noto Sans

Number = int | float


@dataclass(frozen=True, slots=True)
class Element:
    tag: str
    attributes: tuple[tuple[str, str], ...] = ()
    text: str = ""
    children: tuple["Element", ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """`alternative`: what the picture says, in words. `fluid`: positions are percentages of the width, so that it
    takes the width that there is; otherwise it is scaled as a whole."""

    name: str  # what --chart takes, and the id in a page: letters, digits and hyphens
    title: str
    alternative: str
    width: int
    height: int
    elements: tuple[Element, ...]
    fluid: bool = False
    about: tuple[str, ...] = ()  # what a page says around it: a picture of its own has it below its title


def box(x: Number | str, y: Number, width: Number | str, height: Number | str, style: str) -> Element:
    named = (("x", x), ("y", y), ("width", width), ("height", height))
    return Element("rect", (*_written(named), ("class", style)))


def line(x1: Number | str, y1: Number, x2: Number | str, y2: Number, style: str) -> Element:
    return Element("line", (*_written((("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2))), ("class", style)))


def words(x: Number | str, y: Number, text: str, style: str = "", *, anchor: str = "start") -> Element:
    """`y` is the line that the letters stand on."""
    named = (*_written((("x", x), ("y", y))), ("text-anchor", anchor), ("class", style))
    return Element("text", tuple(pair for pair in named if pair[1] not in ("", "start")), text)


def path(points: Iterable[tuple[Number, Number]], style: str, *, closed: bool = False) -> Element:
    way = "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
    return Element("path", (("d", f"M{way}{'Z' if closed else ''}"), ("class", style)))


def group(children: Sequence[Element], style: str = "", *, x: Number = 0, y: Number = 0) -> Element:
    moved = (("transform", f"translate({_number(x)} {_number(y)})"),) if x or y else ()
    return Element("g", (*moved, *((("class", style),) if style else ())), "", tuple(children))


def frame(x: str, y: Number, width: str, height: Number, children: Sequence[Element]) -> Element:
    """A window with an origin of its own: what does not fit is cut off."""
    named = (("x", x), ("y", y), ("width", width), ("height", height))
    return Element("svg", _written(named), "", tuple(children))


def percent(share: float) -> str:
    return f"{share * 100:.3f}".rstrip("0").rstrip(".") + "%"


def words_width(text: str, size: Number) -> float:
    """About how wide a text is, in pixels."""
    return cell_width(harmless(text)) * LETTER * size


def fitting(text: str, width: float, size: Number) -> str:
    """As much of it as has room, with an ellipsis; nothing, where not even a letter has."""
    text = harmless(text)[:LONGEST_WORDS]
    if words_width(text, size) <= width:
        return text
    while text and words_width(text + "…", size) > width:
        text = text[:-1]
    return text + "…" if text else ""


def svg_text(picture: Picture, *, alone: bool) -> str:
    """`alone`: a file of its own, which brings its colours, has a size, and says at its top what it shows."""
    name = picture.name
    labels = (("role", "img"), ("aria-labelledby", f"{name}-title {name}-desc"))
    head = [
        Element("title", (("id", f"{name}-title"),), picture.title),
        Element("desc", (("id", f"{name}-desc"),), picture.alternative),
    ]
    drawn: Sequence[Element] = picture.elements
    width, height = picture.width, picture.height
    if alone:
        top, above = _headed(picture)
        width, height = width + 2 * MARGIN, top + height + MARGIN
        head += [Element("style", (), style_sheet("picture.css")), box(0, 0, width, height, "paper")]
        drawn = (*above, frame(str(MARGIN), top, str(picture.width), picture.height, picture.elements))
    size = _size(width, height, fluid=picture.fluid, alone=alone)
    root = Element("svg", (("xmlns", NAMESPACE), *size, *labels, ("class", "picture")), "", (*head, *drawn))
    return ElementTree.tostring(_tree(root), encoding="unicode") + "\n"


def _headed(picture: Picture) -> tuple[int, list[Element]]:
    """Where the picture begins below its title and what is said about it, and these."""
    lines: list[tuple[str, str, float]] = [
        (text, "strong", 13) for text in folded(picture.title, picture.width * 0.95, 13)
    ]
    for about in picture.about:
        lines += [(text, "small dim", 11.5) for text in folded(about, picture.width, 11.5)]
    y, elements = MARGIN, []
    for text, style, size in lines:
        y += round(size * 1.4)
        elements.append(words(MARGIN, y - 4, text, style))
    return y + 8, elements


def folded(text: str, width: float, size: Number) -> list[str]:
    """A text in lines of that width in pixels, at most MOST_LINES; the last one ends with an ellipsis if need be."""
    made: list[str] = []
    rest = harmless(text)[: MOST_LINES * LONGEST_WORDS].split()
    while rest and len(made) < MOST_LINES - 1:
        count = 1
        while count < len(rest) and words_width(" ".join(rest[: count + 1]), size) <= width:
            count += 1
        made.append(fitting(" ".join(rest[:count]), width, size))
        rest = rest[count:]
    return [*made, fitting(" ".join(rest), width, size)] if rest else made


def style_sheet(name: str) -> str:
    """A style sheet that comes with aligntool."""
    return files("aligntool.render.report").joinpath(name).read_text(encoding="utf-8")


def _size(width: int, height: int, *, fluid: bool, alone: bool) -> tuple[tuple[str, str], ...]:
    if fluid and not alone:
        return (("width", "100%"), ("height", str(height)))
    box_ = ("viewBox", f"0 0 {width} {height}")
    return (box_, ("width", str(width)), ("height", str(height))) if alone else (box_,)


def _tree(element: Element) -> ElementTree.Element:
    made = ElementTree.Element(element.tag, dict(element.attributes))
    # The style sheet is ours; everything else may have been on a disk.
    made.text = (element.text if element.tag == "style" else harmless(element.text)) or None
    made.extend(_tree(child) for child in element.children)
    return made


def _written(named: Sequence[tuple[str, Number | str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value if isinstance(value, str) else _number(value)) for name, value in named)


def _number(number: Number) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".") if isinstance(number, float) else str(number)
