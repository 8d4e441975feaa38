"""Record `aligntool demo` as the README shows it: python .ci/transcript.py [FOLDER], by default
docs/pictures.

demo.cast is for asciinema (format 2). demo.svg is the same from the first command on, as a picture that
scrolls; it begins, and stays in the end, with the first screen, which has the verdict. They depend on nothing
but the output of the demo: its folder gets a constant name and its move a constant time, bars of progress are
left out, and lines come at an even pace.
"""

import json
import os
import pty
import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROWS, COLUMNS = 24, 80
LINE_S, COMMAND_S, STEP_S, END_S = (
    0.2,
    1.5,
    0.4,
    6.0,
)  # after a line; before a command; after a step; at the end
TITLE = "aligntool demo: audit, plan, realign and audit a disk image of 2005"
FOLDER = "aligntool-demo-20050701"  # as long as the random name
# On the dark background each has a contrast of more than 7:1 (WCAG 2, AAA).
COLORS = {1: "#ff9d94", 2: "#7ee787", 3: "#e3b341", 6: "#79c0ff"}
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" xml:space="preserve"
 role="img" aria-label="{title}">
<title>{title}</title>
<style>
text {{ font: 14px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #e6e6e6; white-space: pre }}
.b {{ font-weight: bold }} .d {{ fill: #b0b0b0 }} {colors}
@media (prefers-reduced-motion: no-preference) {{
#lines {{ animation: scroll {length:.1f}s step-end 3 }}
@keyframes scroll {{ {frames} }}
}}
</style>
<rect width="100%" height="100%" rx="8" fill="#161616"/>
<svg x="12" y="10" width="{inner_width}" height="{inner_height}"><g id="lines">
{lines}
</g></svg>
</svg>
"""


def recorded() -> list[str]:
    """Return the lines that the demo prints on a terminal, with their colours."""
    child, terminal = pty.fork()
    if not child:
        size = {"COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
        environment = os.environ | size | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "TMPDIR": "/tmp"}
        environment.pop("NO_COLOR", None)
        os.execve(sys.executable, [sys.executable, "-m", "aligntool", "demo"], environment)
    printed = b""
    try:
        while found := os.read(terminal, 1 << 16):
            printed += found
    except OSError:  # EIO: the demo has ended
        pass
    if os.waitpid(child, 0)[1]:
        sys.exit(printed.decode())
    text = re.sub(r"aligntool-demo-\w{8}\b", FOLDER, printed.decode())
    text = re.sub(r"Done in \d+ s", "Done in 1 s", text)
    lines = (line.rstrip("\r").rpartition("\x1b[2K")[2] for line in text.removesuffix("\r\n").split("\n"))
    return [re.sub(r"\x1b\[\?25[lh]|\r", "", line) for line in lines if "━" not in line]


def timed(lines: list[str]) -> Iterator[tuple[float, str]]:
    """Yield each line with the seconds from the beginning at which it appears."""
    now = 0.0
    for line in lines:
        now += COMMAND_S if line.startswith("$ ") else 0
        yield round(now, 1), line
        now += STEP_S if re.match(r"\d+/\d+ ", line) else LINE_S


def cast(lines: list[str]) -> str:
    """Return the recording for asciinema."""
    head: dict[str, object] = {"version": 2, "width": COLUMNS, "height": ROWS, "title": TITLE}
    events = [[at, "o", f"{line}\r\n"] for at, line in timed(lines)]
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in (head, *events))


def drawn(line: Text) -> Iterator[str]:
    """Yield the pieces of a line as SVG."""
    for piece in line.render(Console(color_system="standard"), end=""):
        style, text = piece.style, escape(piece.text)
        names = ["b"] * bool(style and style.bold) + ["d"] * bool(style and style.dim)
        if style and style.color and style.color.number:
            names.append(f"c{style.color.number}")
        yield f'<tspan class="{" ".join(names)}">{text}</tspan>' if names else text


def svg(lines: list[str]) -> str:
    """Return a picture of a terminal: all rows one below the other, moved up behind a window after the first
    screen.
    """
    row, width = 18, COLUMNS * 8.5
    rows: list[Text] = []
    moves = {0.0: 0}
    for at, line in timed(lines[next(n for n, line in enumerate(lines) if line.startswith("$ ")) :]):
        text = Text.from_ansi(line)
        rows += text.divide(range(COLUMNS, len(text), COLUMNS))
        if len(rows) > ROWS:
            moves[at] = (ROWS - len(rows)) * row
    length = max(moves) + END_S
    texts = (f'<text y="{n * row + 14}">{"".join(drawn(text))}</text>' for n, text in enumerate(rows) if text)
    return SVG.format(
        width=width + 24, height=ROWS * row + 20, inner_width=width, inner_height=ROWS * row, title=escape(TITLE),
        colors=" ".join(f".c{number} {{ fill: {color} }}" for number, color in COLORS.items()),
        length=length, lines="\n".join(texts),
        frames=" ".join(f"{100 * at / length:.2f}% {{ transform: translateY({y}px) }}" for at, y in moves.items()),
    )  # fmt: skip


def main() -> None:
    """Write both files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "docs" / "pictures"
    lines = recorded()
    (folder / "demo.cast").write_text(cast(lines))
    (folder / "demo.svg").write_text(svg(lines))


if __name__ == "__main__":
    main()
