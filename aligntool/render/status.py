"""Where a disk stands, in words: untouched, in flight, done; and how far an array came that is unfinished.

In: what the mover's journal or an array's record says. Out: lines, or JSON. Alone because it is what
somebody reads after the power came back.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from aligntool.plan import Plan, step_name
from aligntool.render.json import Value, dumps
from aligntool.render.lines import Line, Style, plain, wrapped
from aligntool.render.steps import partition_of, size_words, step_title


class Standing(Protocol):
    """What apply.recovery.status gives; said again here because telling does not know acting."""

    @property
    def state(self) -> str:
        """ "old" or "in-flight"."""
        ...

    @property
    def sentences(self) -> tuple[str, ...]: ...

    @property
    def plan(self) -> Plan | None: ...

    @property
    def step(self) -> int:
        """Of the plan: this one is next."""
        ...

    @property
    def done(self) -> int:
        """Bytes at their new place."""
        ...

    @property
    def total(self) -> int: ...

    @property
    def forward(self) -> bool:
        """False: it was being taken back."""
        ...


_STATES = {
    "old": ("nothing is in flight", Style.GOOD),
    "in-flight": ("in flight: do not mount, repair or partition this disk", Style.BAD),
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
            way = "next" if standing.forward else "being taken back, at"
            yield plain(f"  {way}: step {standing.step + 1} of {len(plan.steps)}, {title}")
        yield plain(f"  at their new place: {size_words(standing.done)} of {size_words(standing.total)}")
    for sentence in standing.sentences if plan is not None else ():
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
        "direction": ("forward" if standing.forward else "back") if plan else None,
        "step": step_name(step) if step else None,
        "partition": partition_of(step) if step else None,
        "index": standing.step if step else None,
        "done": standing.done if plan else None,
        "total": standing.total if plan else None,
        "sentences": list(standing.sentences),
        "next": list(type_next),
    }
    return dumps(document) + "\n"


def array_status_lines(
    plan: Plan,
    position: int,
    *,
    forward: bool,
    sentences: Sequence[str],
    type_next: Sequence[str],
    width: int,
) -> Iterator[Line]:
    """Of an unfinished array. `position`: the step that is next, or is being undone."""
    yield ((f"{plan.disk.path}: ", Style.TITLE), ("unfinished", Style.BAD))
    yield plain(f"  goal: {plan.goal}")
    if 0 <= position < len(plan.steps):
        way = "next" if forward else "being taken back, at"
        title = step_title(plan.steps[position])
        for line in wrapped(f"  {way}: step {position + 1} of {len(plan.steps)}, {title}", width, "    "):
            yield plain(line)
    for sentence in sentences:
        for line in wrapped(f"  - {sentence}", width, "    "):
            yield plain(line)
    for command in type_next:
        yield (("  → ", Style.DIM), (command, Style.TYPE))


def array_status_json(
    plan: Plan | None, position: int, *, forward: bool, sentences: Sequence[str], type_next: Sequence[str]
) -> str:
    """The same document as of a disk. None: no array is unfinished."""
    step = plan.steps[position] if plan and 0 <= position < len(plan.steps) else None
    document: Value = {
        "schema": "aligntool.status",
        "version": 1,
        "disk": plan.disk.path if plan else None,
        "state": "unfinished" if plan else "old",
        "goal": plan.goal if plan else None,
        "direction": ("forward" if forward else "back") if plan else None,
        "step": step_name(step) if step else None,
        "partition": None,
        "index": position if step else None,
        "done": None,
        "total": None,
        "sentences": list(sentences),
        "next": list(type_next),
    }
    return dumps(document) + "\n"
