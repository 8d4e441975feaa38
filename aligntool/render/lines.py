"""Build lines of styled text, and print them.

All text for people consists of `Line`s. `show` makes every piece harmless first, because models, labels and
file names on a disk are untrusted input; then it prints plain text to a pipe, or styled text through rich on
a terminal. rich is imported only for the terminal and for pictures.
"""

import shutil
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import TextIO

from aligntool.commands import split_step

LONGEST_PIECE = 4096


class Style(StrEnum):
    """The meaning of a piece; the values are rich's names for its appearance."""

    PLAIN = ""
    TITLE = "bold"
    DIM = "dim"
    GOOD = "green"
    BAD = "bold red"
    DOUBT = "yellow"
    NOTE = "cyan"
    TYPE = "bold cyan"  # a command to type
    READ = "white on blue"  # a bar behind a figure
    WRITE = "black on yellow"
    MIXED = "white on magenta"


Piece = tuple[str, Style]
Line = tuple[Piece, ...]

EMPTY: Line = ()


def plain(text: str) -> Line:
    return ((text, Style.PLAIN),)


def harmless(text: str) -> str:
    r"""Return the text unable to move the cursor, change colours, or reorder or hide text: control, format
    and surrogate characters become escapes (\x1b, \u202e).
    """
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


def show(lines: Iterable[Line], stream: TextIO, *, color: bool, width: int | None = None) -> None:
    """Print lines, styled if `color`, otherwise plain; on a terminal, folded to its width. `width`: of the
    terminal that gets them later.
    """
    if width is None and stream.isatty():
        width = shutil.get_terminal_size((80, 24)).columns
    if width is not None:
        lines = (part for line in lines for part in folded(line, width))
    if not color:
        for text in text_of(lines):
            stream.write(text)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(
        file=stream, highlight=False, soft_wrap=True, force_terminal=True, color_system="standard"
    )
    for line in lines:
        console.print(
            Text.assemble(*((harmless(piece), style.value) for piece, style in line)), soft_wrap=True
        )


NO_COLOR = "NO_COLOR"
FORCE_COLOR = ("CLICOLOR_FORCE", "FORCE_COLOR")


def wants_color(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether to colour text: by https://no-color.org, then by https://bixense.com/clicolors and
    https://force-color.org, then by whether the stream is a terminal with colours.
    """
    if environment.get(NO_COLOR):
        return False
    if any(environment.get(name, "0") not in ("", "0") for name in FORCE_COLOR):
        return True
    return environment.get("TERM") != "dumb" and stream.isatty()


def can_redraw(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether a bar can be redrawn on the stream."""
    return stream.isatty() and environment.get("TERM") != "dumb" and wants_color(stream, environment)


def cell_width(text: str) -> int:
    """Return the number of terminal columns; wide East Asian characters take two."""
    return len(text) if text.isascii() else sum(_columns(text))


def _columns(text: str) -> Iterator[int]:
    from unicodedata import combining, east_asian_width

    return (0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Return the text in exactly `width` columns: padded, or cut with an ellipsis."""
    text = harmless(text)
    if cell_width(text) > width:
        text = _cut(text, width - 1) + "…"
    pad = " " * (width - cell_width(text))
    return pad + text if right else text + pad


def _cut(text: str, width: int) -> str:
    """Return the part that fits. One pass, because names on disks may have thousands of characters."""
    used = 0
    for at, columns in enumerate(_columns(text)):
        used += columns
        if used > width:
            return text[:at]
    return text


def stacked(line: Line, width: int) -> Iterator[Line]:
    """Yield the line, or if it is wider than `width`, its pieces one below the other, indented and
    wrapped.
    """
    if sum(cell_width(harmless(text)) for text, _ in line) <= width:
        yield line
        return
    for place, (text, style) in enumerate(line):
        if text.strip(" "):
            for part in wrapped(f"  {text.strip(' ')}" if place else text, width, "  "):
                yield ((part, style),)


def folded(line: Line, width: int) -> Iterator[Line]:
    """Yield the line, or if it is wider than `width`, its parts, broken between words. A command stays whole,
    so that it can be pasted.
    """
    shown = [(harmless(text), style) for text, style in line]
    if sum(cell_width(text) for text, _ in shown) <= width:
        yield line
        return
    first = shown[0][0]
    indent = " " * min(len(first) - len(first.lstrip(" ")) + 2, width // 2)
    row: list[Piece] = []
    used = 0
    has_words = False
    for text, style in shown:
        glued = bool(row) and not row[-1][0].endswith(" ")
        for space, word in [("", text)] if style is Style.TYPE else _breakable_pieces(text):
            is_too_wide = used + len(space) + cell_width(word) > width
            if has_words and word and is_too_wide and (space or not glued):
                yield tuple(row)
                row = [(indent, Style.PLAIN)]
                used = len(indent)
                space = ""
                has_words = False
            row.append((space + word, style))
            used += len(space) + cell_width(word)
            has_words = has_words or word not in ("", "→", "-")
            glued = False
    yield tuple(row)


CAPTURED = "on the captured machine"
ON_CAPTURED = f"{CAPTURED}: "  # begins a command for there


def step_line(indent: str, step: str) -> Line:
    """Return the line with what to do next: a command in one piece, and what is said about it, or words."""
    before, command, after = split_step(step)
    if not command:
        return ((f"{indent}→ ", Style.DIM), (step, Style.PLAIN))
    behind: Line = ((after, Style.PLAIN),) if after else EMPTY
    return ((f"{indent}→ {before}", Style.DIM), (command, Style.TYPE), *behind)


def command_lines(commands: Sequence[str], width: int, about: Sequence[str] = ()) -> Iterator[Line]:
    """Yield the next commands. `about`: what each does, as a comment behind it where all of them fit,
    otherwise below it.
    """
    longest = max(map(cell_width, commands), default=0)
    fit_behind = all(4 + longest + 4 + cell_width(text) <= width for text in about)
    for command, text in zip_longest(commands, about[: len(commands)], fillvalue=""):
        behind = " " * (longest - cell_width(command)) + f"  # {text}" if text and fit_behind else ""
        yield (*step_line("  ", command), (behind, Style.DIM))
        if text and not fit_behind:
            yield from paragraph(f"      # {text}", width, "      # ", Style.DIM)


def wrapped(text: str, width: int, indent: str) -> Iterator[str]:
    """Wrap a sentence to `width` columns. The first line keeps its own indent; the following lines get
    `indent`.
    """
    line = text[: len(text) - len(text.lstrip(" "))]
    is_empty = True
    for space, word in _breakable_pieces(harmless(text.strip(" "))):
        if not is_empty and cell_width(line) + len(space) + cell_width(word) > width:
            yield line
            line = indent
            is_empty = True
        line = line + word if is_empty else f"{line}{space}{word}"
        is_empty = False
    yield line


def fitted(text: str, stream: TextIO) -> str:
    """Return a sentence wrapped to the terminal that the stream is; for programs it stays one line."""
    if not stream.isatty():
        return harmless(text)
    return "\n".join(wrapped(text, shutil.get_terminal_size((80, 24)).columns, "  "))


_NOT_FIRST = "、。」』）〜ーっゃゅょァィゥェォッャュョ,.;:)]}%"
_NOT_LAST = "「『（(["


def _breakable_pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pieces between possible line breaks, each with the space before it: words, and in Japanese
    single characters, joined to those that may not begin or end a line (JIS X 4051).
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


def paragraph(text: str, width: int, indent: str = "    ", style: Style = Style.PLAIN) -> Iterator[Line]:
    """Wrap a sentence to lines of one style. `indent`: of the lines after the first."""
    for line in wrapped(text, width, indent):
        yield ((line, style),)


def columns(
    rows: Sequence[Sequence[str]], *, left: Container[int] = (0,), gap: int = 2, wide: int | None = None
) -> Iterator[str]:
    """Yield each row as text, with every column as wide as its widest cell. `left`: the columns to align
    left.

    `wide`: the greatest width of a row, for which the last column shrinks, down to 8 (see `fits`).
    """
    widths = _widths(rows)
    if wide is not None:
        widths[-1] = max(min(widths[-1], wide - sum(widths[:-1]) - gap * (len(widths) - 1)), _LEAST_LAST)
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        yield (" " * gap).join(fit(cell, width, right=at not in left) for at, (cell, width) in cells)


_LEAST_LAST = 8


def fits(rows: Sequence[Sequence[str]], wide: int) -> bool:
    """Return whether `columns` can make rows of at most this width."""
    widths = _widths(rows)
    return sum(widths[:-1]) + _LEAST_LAST + 2 * (len(widths) - 1) <= wide


def room_before(rows: Sequence[Sequence[str]], wide: int, last: int) -> int:
    """Return the width that is left for the first column if the last one has up to `last`."""
    widths = _widths(rows)
    return wide - sum(widths[1:-1]) - min(widths[-1], last) - 2 * (len(widths) - 1)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(cell_width(harmless(cell)) for cell in column) for column in zip(*rows, strict=True)]
