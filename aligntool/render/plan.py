"""A plan for people: the disk before and after, what it costs, every step with its bytes, and what to type.

In: a plan, and the command lines that its steps would run. Out: lines. Alone because it is what a user reads before
answering the one question.
"""

from collections.abc import Iterator, Mapping, Sequence

from aligntool.plan import Place, Plan, Used
from aligntool.render.lines import EMPTY, Line, Style, cell_width, fit, harmless, plain, wrapped
from aligntool.render.plan_map import journal_of, plan_map_lines
from aligntool.render.steps import (
    LABELS,
    distance_words,
    sector_words,
    size_words,
    span,
    step_details,
    step_title,
)
from aligntool.units import format_about, format_size

Commands = Mapping[int, Sequence[str]]
"""The command lines that a step would run, by the step's index."""

_NO_COMMANDS: Commands = {}


def plan_lines(
    plan: Plan, *, width: int, commands: Commands = _NO_COMMANDS, type_next: str = "", brief: bool = False
) -> Iterator[Line]:
    """The whole plan, or, `brief`, without its steps. `type_next`: the command that applies it."""
    yield from _title(plan, width)
    yield EMPTY
    yield from plan_map_lines(plan, width=width)
    yield EMPTY
    yield from _places(plan, width)
    yield EMPTY
    if plan.steps:
        yield from _cost(plan, width)
        yield EMPTY
        if not brief:
            yield from step_lines(plan, commands, width)
            yield EMPTY
    else:
        yield plain("Nothing to do.")
    yield from sentence_lines("Decided", plan.notes, Style.PLAIN, width)
    yield from attention_lines(plan, width=width)
    if type_next and plan.steps:
        yield (("→ ", Style.DIM), (type_next, Style.TYPE))


def attention_lines(plan: Plan, *, width: int) -> Iterator[Line]:
    """What needs the user afterwards; said before the move, and again when it is done."""
    yield from sentence_lines("Afterwards", plan.attention, Style.DOUBT, width)


def identity_words(plan: Plan) -> str:
    """What the disk is known by, wherever it is plugged in."""
    disk = plan.disk
    words = [
        disk.model,
        f"serial {disk.serial}" if disk.serial else None,
        f"disk {disk.disk_id}" if disk.disk_id else None,
    ]
    return ", ".join(word for word in words if word)


def _title(plan: Plan, width: int) -> Iterator[Line]:
    disk = plan.disk
    label = f"{LABELS.get(disk.label, disk.label)} table" if disk.label else "no partition table"
    facts = [identity_words(plan), size_words(disk.size), label, f"{disk.sector_size}-byte sectors"]
    yield ((f"{disk.path}: {plan.goal}", Style.TITLE),)
    for line in wrapped("  " + " · ".join(fact for fact in facts if fact), width, "    "):
        yield ((line, Style.DIM),)


_HEADS = ("#", "sector", "start", "new sector", "new start", "size", "what")


def _places(plan: Plan, width: int) -> Iterator[Line]:
    """A row for each partition; under one that moves, how far, and why."""
    rows = [_row(place, plan.disk.sector_size) for place in plan.places]
    if not rows:
        yield (("  no partitions", Style.DIM),)
        return
    widths = [
        max(cell_width(harmless(cell)) for cell in column) for column in zip(_HEADS, *rows, strict=True)
    ]
    widths[-1] = max(min(widths[-1], width - sum(widths[:-1]) - 2 * len(widths)), 8)
    yield ((_cells(_HEADS, widths), Style.DIM),)
    for place, row in zip(plan.places, rows, strict=True):
        yield ((_cells(row, widths), Style.PLAIN),)
        before = place.before
        moves = before is not None and before != place.after
        words = [_moves(place), place.why] if moves else [place.why]
        for line in wrapped("     " + "; ".join(word for word in words if word), width, "       "):
            if line.strip():
                yield ((line, Style.NOTE if moves else Style.DIM),)


def _moves(place: Place) -> str:
    if place.before is None or place.before.start == place.after.start:
        return f"keeps its start, becomes {size_words(place.after.length)} long"
    words = distance_words(place.after.start - place.before.start)
    if place.before.length != place.after.length:
        words += f", {size_words(place.before.length)} → {size_words(place.after.length)}"
    return words


def _row(place: Place, sector_size: int) -> tuple[str, ...]:
    before, after = place.before, place.after
    stays = before is not None and before.start == after.start
    return (
        str(place.number),
        sector_words(before.start, sector_size) if before else "",
        format_size(before.start) if before else "",
        "stays" if stays else sector_words(after.start, sector_size),
        "" if stays else format_size(after.start),
        format_about(after.length),
        place.what,
    )


def _cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    last = len(cells) - 1
    shown = [
        fit(cell, size, right=index != last)
        for index, (cell, size) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  " + "  ".join(shown)


def _cost(plan: Plan, width: int) -> Iterator[Line]:
    estimate = plan.estimate
    if estimate:
        words = f"To copy: {size_words(estimate.bytes_to_copy)}"
        if estimate.seconds is not None:
            words += f", about {time_words(estimate.seconds)}"
        yield ((words, Style.TITLE),)
        for used in estimate.used:
            text = f"  partition {used.partition}: {size_words(used.bytes)}, {_said_by(used)}"
            for line in wrapped(text, width, "    "):
                yield plain(line)
    journal = journal_of(plan)
    if journal:
        where = (
            f"in {journal.file}"
            if journal.file
            else f"in free space of this disk, bytes {span(journal.extent)}"
        )
        text = f"Journal (J): {size_words(journal.extent.length)} {where}"
        for line in wrapped(text, width, "  "):
            yield plain(line)


def step_lines(plan: Plan, commands: Commands, width: int) -> Iterator[Line]:
    """Every step with its bytes, and the commands that it would run."""
    yield (("Steps", Style.TITLE), ("  (A..B: from byte A up to, not including, byte B)", Style.DIM))
    digits = len(str(len(plan.steps)))
    indent = " " * (digits + 4)
    for index, step in enumerate(plan.steps):
        for line in wrapped(f"  {index + 1:>{digits}}. {step_title(step)}", width, indent):
            yield plain(line)
        for detail in step_details(step, sector_size=plan.disk.sector_size):
            for line in wrapped(indent + detail, width, indent + "  "):
                yield ((line, Style.DIM),)
        for command in commands.get(index, ()):
            yield ((indent + "$ ", Style.DIM), (command, Style.PLAIN))


def sentence_lines(title: str, sentences: Sequence[str], style: Style, width: int) -> Iterator[Line]:
    """A heading and a dash for each; nothing where there are none."""
    if not sentences:
        return
    yield ((title, Style.TITLE),)
    for sentence in sentences:
        for line in wrapped(f"  - {sentence}", width, "    "):
            yield ((line, style),)
    yield EMPTY


def time_words(seconds: int) -> str:
    """ "40s", "12min", "3h 20min": as exactly as anybody wants to know."""
    if seconds < 90:
        return f"{max(seconds, 1)}s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes}min"
    return f"{minutes // 60}h {minutes % 60}min"


def _said_by(used: Used) -> str:
    """ "says dumpe2fs", or why everything is taken to be used."""
    return used.by if used.by.startswith("everything") else f"says {used.by}"
