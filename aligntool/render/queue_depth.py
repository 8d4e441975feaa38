"""Why latency hides behind concurrency: the same drive with one command in flight and with four.

In: nothing; the figures are those of the text. Out: the words of `aligntool explain queue-depth`, and the timeline that
the terminal and the picture both draw. Alone because it explains a load, and no finding.

Little's law is the arithmetic: commands in flight = rate x time of a command (J. D. C. Little, 1961). The point that a
boot runs at QD1 and gains nothing from a deep queue is that of the article of 2022 on storage for an operating system.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aligntool.render.lines import EMPTY, Line, Style, plain, wrapped

LATENCY_US = 100  # of one command on the drive that is drawn
BUSY_US = 25  # of these, what the drive's own way takes, which commands cannot share
COMMANDS = 4

TOPIC = "queue-depth"
TITLE = "One command in flight, or four: why a fast drive can feel slow"

PARAGRAPHS = (
    "A program that needs the answer of one read before it can send the next keeps one command in flight: queue depth "
    "1, QD1. The drive then waits for the program, and the program for the drive, and nothing but the time of a "
    "single command counts.",
    "With four commands in flight, QD4, each of them takes as long as before, and mostly a little longer. But they "
    "wait at the same time: four flash chips are read at once, and only the short part that they share, the "
    "controller and the link, comes one after the other. The latency is still there; it hides behind the other "
    "commands.",
    "So commands a second = commands in flight / time of a command, until something is full: the chips, the link, or "
    "a core of the processor. Here 1 / 100 µs = 10,000 a second at QD1, and towards 4 / 100 µs = 40,000 at QD4.",
    "Starting a system and opening programs is QD1: each read says what to read next. The article of 2022 counted "
    "40,553 reads in one boot, of which 6 were sequential. There a drive is worth its QD1 rate, whatever its data "
    "sheet says at QD32.",
)
NEXT = ("aligntool estimate boot --rate-a 40 --rate-b 60", "aligntool trace LOG")


@dataclass(frozen=True, slots=True)
class Run:
    """One command: when it was sent, when the drive's own way was taken for it, when it was answered, in µs."""

    row: int
    sent: int
    answered: int


def runs(depth: int, count: int) -> tuple[Run, ...]:
    """`count` commands with `depth` in flight. A command spends its last BUSY_US on the way that all share, one after
    the other."""
    free_at = [0] * depth
    way_free = 0
    made = []
    for index in range(count):
        row = index % depth
        sent = free_at[row]
        begins = max(sent + LATENCY_US - BUSY_US, way_free)
        way_free = begins + BUSY_US
        free_at[row] = way_free
        made.append(Run(row, sent, way_free))
    return tuple(made)


def explain_topic(*, width: int) -> Iterator[Line]:
    """The page of `aligntool explain queue-depth`."""
    yield ((TITLE, Style.TITLE),)
    yield EMPTY
    yield from timeline_lines(width=width)
    for paragraph in PARAGRAPHS:
        yield EMPTY
        for text in wrapped("  " + paragraph, width, "  "):
            yield plain(text)
    yield EMPTY
    for command in NEXT:
        yield (("  → ", Style.DIM), (command, Style.TYPE))


def timeline_lines(*, width: int) -> Iterator[Line]:
    """Eight commands each way, on the same scale."""
    cells = max(min(width - 14, 64), 32)
    span = 8 * LATENCY_US
    for depth in (1, COMMANDS):
        done = runs(depth, 8)
        end = max(run.answered for run in done)
        for row in range(depth):
            head = f"  QD{depth}" if row == 0 else ""
            yield ((f"{head:<8}", Style.TITLE), (_bar(done, row, cells, span), Style.NOTE))
        told = f"8 reads in {end} µs: {8 * 1_000_000 // end:,} a second"
        yield ((" " * 8 + told, Style.GOOD if depth > 1 else Style.PLAIN),)
        yield EMPTY
    yield ((" " * 8 + f"[-waits for flash-#-shared way-]; one read alone takes {LATENCY_US} µs", Style.DIM),)


def _bar(done: tuple[Run, ...], row: int, cells: int, span: int) -> str:
    text = [" "] * cells
    for run in done:
        if run.row != row:
            continue
        first, last = run.sent * cells // span, max(run.answered * cells // span - 1, 0)
        busy = (run.answered - BUSY_US) * cells // span
        for cell in range(first, last + 1):
            text[cell] = "#" if cell >= busy else "-"
        text[first], text[last] = "[", "]"
    return "".join(text).rstrip()
