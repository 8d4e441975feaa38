"""Lines of text with a meaning for each piece, and the one door through which they leave.

Everything that people read is made of `Line`s. The door makes every piece harmless first, because models,
labels and file names come from disks that a stranger may have written; then it prints them plain into a pipe,
or through rich on a terminal. rich is imported only for the terminal and for pictures.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TextIO

from aligntool.render.translate import translated

LONGEST_PIECE = 4096


class Style(StrEnum):
    """What a piece means; the values are rich's words for how it looks."""

    PLAIN = ""
    TITLE = "bold"
    DIM = "dim"
    GOOD = "green"
    BAD = "bold red"
    DOUBT = "yellow"
    NOTE = "cyan"
    TYPE = "bold cyan"  # something to type
    READ = "white on blue"  # a bar behind a figure
    WRITE = "black on yellow"
    MIXED = "white on magenta"


Piece = tuple[str, Style]
Line = tuple[Piece, ...]

EMPTY: Line = ()


def plain(text: str) -> Line:
    return ((text, Style.PLAIN),)


def harmless(text: str) -> str:
    r"""Text in which nothing can move the cursor, change colours, reorder or hide: control, format and surrogate
    characters are shown as escapes (\x1b, \u202e); in the user's language.
    """
    return escaped(translated(text))


def escaped(text: str) -> str:
    """Text made harmless as it is, for what a program reads or a user has to type."""
    if text.isascii() and text.isprintable():
        return text[:LONGEST_PIECE]
    return "".join(char if char.isprintable() else _escape(char) for char in text[:LONGEST_PIECE])


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8 (surrogateescape)
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def text_of(lines: Iterable[Line]) -> Iterator[str]:
    for line in lines:
        yield "".join(harmless(piece) for piece, _ in line).rstrip() + "\n"


def show(lines: Iterable[Line], stream: TextIO, *, color: bool) -> None:
    """Print to a terminal in colour, or plain anywhere else."""
    if not color:
        for text in text_of(lines):
            stream.write(text)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True, force_terminal=True, color_system="standard")
    for line in lines:
        console.print(Text.assemble(*((harmless(piece), style.value) for piece, style in line)), soft_wrap=True)


NO_COLOR = "NO_COLOR"
FORCE_COLOR = ("CLICOLOR_FORCE", "FORCE_COLOR")


def wants_color(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether text is coloured there: https://no-color.org, then https://bixense.com/clicolors and
    https://force-color.org, then whether it is a terminal that can.
    """
    if environment.get(NO_COLOR):
        return False
    if any(environment.get(name, "0") not in ("", "0") for name in FORCE_COLOR):
        return True
    return environment.get("TERM") != "dumb" and stream.isatty()


def redraws(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether a bar may be drawn there over and over."""
    return stream.isatty() and environment.get("TERM") != "dumb" and wants_color(stream, environment)


def save_svg(lines: Iterable[Line], path: str, *, title: str, width: int) -> None:
    """A picture of the output, for the documentation."""
    from io import StringIO

    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=width, file=StringIO(), force_terminal=True, highlight=False)
    for line in lines:
        console.print(Text.assemble(*((harmless(piece), style.value) for piece, style in line)))
    console.save_svg(path, title=title)


def cell_width(text: str) -> int:
    """Columns on a terminal; wide East Asian characters take two."""
    return len(text) if text.isascii() else sum(_columns(text))


def _columns(text: str) -> Iterator[int]:
    from unicodedata import combining, east_asian_width

    return (0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Exactly `width` columns: padded, or cut with an ellipsis."""
    text = harmless(text)
    if cell_width(text) > width:
        text = _beginning(text, width - 1) + "…"
    pad = " " * (width - cell_width(text))
    return pad + text if right else text + pad


def _beginning(text: str, width: int) -> str:
    """As much of it as fits. One pass: names from disks may be thousands of characters long."""
    used = 0
    for at, columns in enumerate(_columns(text)):
        used += columns
        if used > width:
            return text[:at]
    return text


def stacked(line: Line, width: int) -> Iterator[Line]:
    """Return the line; where it is wider than `width`, its pieces one below the other, indented and wrapped."""
    if sum(cell_width(harmless(text)) for text, _ in line) <= width:
        yield line
        return
    for place, (text, style) in enumerate(line):
        if text.strip(" "):
            for part in wrapped(f"  {text.strip(' ')}" if place else text, width, "  "):
                yield ((part, style),)


def wrapped(text: str, width: int, indent: str) -> Iterator[str]:
    """A sentence in lines of at most `width` columns. It keeps its own indent; the lines after it get `indent`."""
    line = text[: len(text) - len(text.lstrip(" "))]
    fresh = True
    for space, word in _words(harmless(text.strip(" "))):
        if not fresh and cell_width(line) + len(space) + cell_width(word) > width:
            yield line
            line, fresh = indent, True
        line = line + word if fresh else f"{line}{space}{word}"
        fresh = False
    yield line


_NOT_FIRST, _NOT_LAST = "、。」』）〜ーっゃゅょァィゥェォッャュョ,.;:)]}%", "「『（(["


def _words(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pieces that a line may end after, each with the space before it: words, and in Japanese characters,
    but none that may not begin or end a line (JIS X 4051).
    """
    for number, word in enumerate(text.split(" ")):
        at = 0
        for end in range(1, len(word)) if not word.isascii() else ():
            before, after = word[end - 1], word[end]
            wide = cell_width(before) == 2 or cell_width(after) == 2
            if wide and after not in _NOT_FIRST and before not in _NOT_LAST:
                yield " " if number and not at else "", word[at:end]
                at = end
        yield " " if number and not at else "", word[at:]


def wrap_by_cells() -> None:
    """Have rich wrap Japanese. It ends lines at spaces only, and to strip the space at the end of a full line it counts
    characters (rich 13 to 15), so of a line of wide ones it cuts the end.
    """
    from rich import _wrap
    from rich.text import Text

    def words(text: str) -> Iterator[tuple[int, int, str]]:
        for at, end, word in by_spaces(text):
            for space, part in _words(word.rstrip()):
                to = at + len(space + part)
                to = to if text[to:end].strip() else end
                yield at, to, text[at:to]
                at = to

    def rstrip_end(text: Text, size: int) -> None:
        while text.cell_len > size and text.plain.endswith(" "):
            text.right_crop(1)

    by_spaces, _wrap.words = _wrap.words, words
    Text.rstrip_end = rstrip_end  # type: ignore[assignment, method-assign]


def paragraph(text: str, width: int, indent: str = "    ", style: Style = Style.PLAIN) -> Iterator[Line]:
    """A sentence as lines of one style; `indent`: of the lines after the first."""
    for line in wrapped(text, width, indent):
        yield ((line, style),)


def columns(
    rows: Sequence[Sequence[str]], *, left: Container[int] = (0,), gap: int = 2, wide: int | None = None
) -> Iterator[str]:
    """Each row of cells as a text, every column as wide as its widest cell. `left`: the columns that are not numbers.

    `wide`: of the whole; the last column gives way, down to 8.
    """
    widths = [max(cell_width(harmless(cell)) for cell in column) for column in zip(*rows, strict=True)]
    if wide is not None:
        widths[-1] = max(min(widths[-1], wide - sum(widths[:-1]) - gap * (len(widths) - 1)), 8)
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        yield (" " * gap).join(fit(cell, width, right=at not in left) for at, (cell, width) in cells)
