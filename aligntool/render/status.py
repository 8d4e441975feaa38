"""Where a disk stands, in words: untouched, in flight, done.

In: what the mover's journal says. Out: lines, or JSON. Alone because it is what somebody reads after the power came
back.
"""

from collections.abc import Iterator
from typing import Protocol

from aligntool.plan import Plan
from aligntool.render.json import Value, dumps
from aligntool.render.lines import Line, Style, plain, wrapped
from aligntool.render.steps import partition_of, size_words, step_title


class Standing(Protocol):
    """What apply.mover.status gives; said again here because telling does not know acting."""

    @property
    def state(self) -> str:
        """ "old", "in-flight", "new" or "unknown"."""
        ...

    @property
    def plan(self) -> Plan | None: ...

    @property
    def step(self) -> int: ...

    @property
    def done(self) -> int: ...

    @property
    def total(self) -> int: ...

    @property
    def direction(self) -> str: ...

    @property
    def sentences(self) -> tuple[str, ...]: ...


_STATES = {
    "old": ("nothing is in flight", Style.GOOD),
    "in-flight": ("in flight: do not mount, repair or partition this disk", Style.BAD),
    "new": ("nothing is in flight: the move was finished", Style.GOOD),
    "unknown": ("it cannot be told", Style.DOUBT),
}


def status_lines(
    disk: str, standing: Standing, *, width: int, type_next: tuple[str, ...] = ()
) -> Iterator[Line]:
    """`type_next`: the commands that make sense now."""
    words, style = _STATES.get(standing.state, (standing.state, Style.DOUBT))
    yield ((f"{disk}: ", Style.TITLE), (words, style))
    plan = standing.plan
    if standing.state == "in-flight" and plan is not None:
        yield plain(f"  goal: {plan.goal}")
        if 0 <= standing.step < len(plan.steps):
            title = step_title(plan.steps[standing.step])
            yield plain(f"  {standing.direction}: step {standing.step + 1} of {len(plan.steps)}, {title}")
        yield plain(f"  copied: {size_words(standing.done)} of {size_words(standing.total)}")
    for sentence in standing.sentences:
        for line in wrapped(f"  - {sentence}", width, "    "):
            yield plain(line)
    for command in type_next:
        yield (("  → ", Style.DIM), (command, Style.TYPE))


def status_json(disk: str, standing: Standing, *, type_next: tuple[str, ...] = ()) -> str:
    plan = standing.plan
    step = plan.steps[standing.step] if plan and 0 <= standing.step < len(plan.steps) else None
    document: Value = {
        "schema": "aligntool.status",
        "version": 1,
        "disk": disk,
        "state": standing.state,
        "goal": plan.goal if plan else None,
        "direction": standing.direction,
        "step": type(step).__name__ if step else None,
        "partition": partition_of(step) if step else None,
        "index": standing.step,
        "done": standing.done,
        "total": standing.total,
        "sentences": list(standing.sentences),
        "next": list(type_next),
    }
    return dumps(document) + "\n"
