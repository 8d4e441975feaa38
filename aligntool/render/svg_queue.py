"""QD1 against QD4 as a picture.

In: the timeline of `queue_depth`. Out: a picture. Alone because what happens is thought out there, once for both.
"""

from collections.abc import Iterator

from aligntool.render.queue_depth import BUSY_US, COMMANDS, LATENCY_US, TOPIC, Run, runs
from aligntool.render.svg import Element, Picture, box, line, words

WIDTH = 420
LEFT, RIGHT = 2, 418
READS = 8
SPAN = READS * LATENCY_US
LANE = 20


def queue_picture() -> Picture:
    """Eight reads, one after the other and four at a time, on one scale of time."""
    one, four = runs(1, READS), runs(COMMANDS, READS)
    ends = [max(run.answered for run in each) for each in (one, four)]
    elements = (
        *_block("QD1: each read waits for the one before it", one, 0),
        *_block("QD4: four reads wait at the same time", four, 66),
        *_axis(66 + 22 + COMMANDS * LANE + 34),
        *_key(66 + 22 + COMMANDS * LANE + 66),
    )
    said = (
        f"Eight reads of {LATENCY_US} µs each. One at a time they take {ends[0]} µs; with four in flight they overlap "
        f"and take {ends[1]} µs, though no single read is faster: only the last {BUSY_US} µs of each, on the way that "
        "all share, come one after the other."
    )
    return Picture(TOPIC, "Queue depth 1 against queue depth 4", said, WIDTH, 250, elements)


def _block(title: str, done: tuple[Run, ...], top: int) -> Iterator[Element]:
    end = max(run.answered for run in done)
    rows = max(run.row for run in done) + 1
    yield words(LEFT, top + 13, title, "strong")
    for number, run in enumerate(done, 1):
        y = top + 20 + run.row * LANE
        waiting = run.answered - BUSY_US
        yield box(_x(run.sent), y, _x(waiting) - _x(run.sent), LANE - 5, "plain")
        yield box(_x(waiting), y, _x(run.answered) - _x(waiting), LANE - 5, "doubt")
        yield words(_x(run.sent) + 4, y + 12, str(number), "small")
    told = f"{READS} reads in {end} µs: {READS * 1_000_000 // end:,} a second"
    yield words(RIGHT, top + 20 + rows * LANE + 12, told, "end")


def _axis(y: int) -> Iterator[Element]:
    yield line(LEFT, y, RIGHT, y, "axis")
    for at in range(0, SPAN + 1, 2 * LATENCY_US):
        anchor = "start" if at == 0 else "end" if at == SPAN else "middle"
        yield line(_x(at), y, _x(at), y + 4, "axis")
        yield words(_x(at), y + 16, f"{at} µs" if at else "0", "small dim", anchor=anchor)


def _key(y: int) -> Iterator[Element]:
    yield box(LEFT, y, 14, 12, "plain")
    yield words(LEFT + 20, y + 11, "waits for its flash", "small")
    yield box(LEFT + 170, y, 14, 12, "doubt")
    yield words(LEFT + 190, y + 11, "on the way that all share", "small")


def _x(at_us: int) -> float:
    return LEFT + at_us * (RIGHT - LEFT) / SPAN
