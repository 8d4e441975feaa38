"""Arrays for people: a plan of one, and those that run.

In: a plan, or views of arrays. Out: lines. Alone because an array has no map of one disk: what counts is what it is
made
of, why, and which link binds it.
"""

import json
from collections.abc import Iterator, Sequence

from aligntool import __version__
from aligntool.plan import MakeMember, Plan
from aligntool.raid import ceiling_words
from aligntool.raid.arrays import ArrayView, MemberView
from aligntool.render.lines import EMPTY, Line, Style, plain, wrapped
from aligntool.render.plan import attention_lines, sentence_lines, step_lines
from aligntool.render.steps import size_words
from aligntool.strict_json import as_object
from aligntool.units import format_size


def raid_plan_lines(plan: Plan, *, width: int, type_next: str = "") -> Iterator[Line]:
    """What it becomes, what was decided and why, every step with its commands, and what needs the user.

    `type_next`: the command that makes it so.
    """
    members = [step for step in plan.steps if isinstance(step, MakeMember)]
    yield ((f"{plan.disk.path}: {plan.goal}", Style.TITLE),)
    facts = (
        f"  {size_words(plan.disk.size)} · {plan.disk.sector_size}-byte sectors · UUID {plan.disk.disk_id}"
    )
    yield from _wrapped(facts, width, Style.DIM)
    if members:
        yield from _wrapped("  of " + ", ".join(step.device for step in members), width, Style.DIM)
    yield EMPTY
    yield from sentence_lines("Decided", plan.notes, Style.PLAIN, width)
    yield from step_lines(plan, {}, width)
    yield EMPTY
    yield from attention_lines(plan, width=width)
    if type_next and plan.steps:
        yield (("→ ", Style.DIM), (type_next, Style.TYPE))


def array_lines(views: Sequence[ArrayView], *, width: int) -> Iterator[Line]:
    """Each array with its members, its ceiling, what the audit found of its stack, and the commands that mend it."""
    if not views:
        yield plain("No md array is running here.")
    for view in views:
        words = [
            view.level,
            size_words(view.size) if view.size else "",
            f"metadata {view.metadata}" if view.metadata else "",
        ]
        words += [f"chunk {format_size(view.chunk)}" if view.chunk else "no chunk", view.state]
        yield ((f"{view.name}: ", Style.TITLE), (" · ".join(word for word in words if word), Style.PLAIN))
        for member in view.members:
            yield from _member(member, width)
        for sentence in (*view.contents, *ceiling_words(view.ceiling)):
            yield from _wrapped(f"  {sentence}", width, Style.PLAIN)
        for finding in view.findings:
            yield from _wrapped(f"  {finding}", width, Style.DOUBT)
        for step in view.next:
            yield (("  → ", Style.DIM), (step, Style.TYPE))
        yield EMPTY


def _member(member: MemberView, width: int) -> Iterator[Line]:
    words = [member.model or "", member.own_link or "", member.data]
    yield from _wrapped(f"  {member.name}: " + ", ".join(word for word in words if word), width, Style.PLAIN)
    more = [
        f"narrowest on its way: {member.link}" if member.link else "",
        *member.shares,
        member.memory or "",
    ]
    for phrase in (phrase for phrase in more if phrase):
        yield from _wrapped(f"    {phrase}", width, Style.PLAIN)


def _wrapped(text: str, width: int, style: Style) -> Iterator[Line]:
    for line in wrapped(text, width, "    "):
        yield ((line, style),)


def arrays_json(views: Sequence[ArrayView]) -> str:
    """Sizes are bytes, bandwidths bytes per second; null: not known."""
    document = {
        "schema": "aligntool.raid.show",
        "version": 1,
        "aligntool": __version__,
        "arrays": [as_object(view) for view in views],
    }
    return json.dumps(document) + "\n"
