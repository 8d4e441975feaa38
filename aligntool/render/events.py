"""What acting says, as JSON lines for programs: docs/json.md, "Events".

In: events and the plan that they belong to. Out: one JSON object a line. Alone because programs depend on every word.
"""

from collections.abc import Mapping

from aligntool.plan import Event, Plan, Progress, Said, StepBegun, StepDone, digest, step_name
from aligntool.render.json import Value, dumps
from aligntool.render.steps import partition_of, step_title

SCHEMA = "aligntool.events"
VERSION = 1


def begin_json(plan: Plan) -> str:
    """The first line: which plan, how many steps."""
    estimate = plan.estimate
    return _line(
        {
            "event": "plan",
            "schema": SCHEMA,
            "version": VERSION,
            "digest": digest(plan),
            "disk": plan.disk.path,
            "steps": len(plan.steps),
            "bytes_to_copy": estimate.bytes_to_copy if estimate else None,
        }
    )


def event_json(plan: Plan, event: Event) -> str:
    match event:
        case StepBegun():
            return _line({"event": "step-begun", **_step(plan, event.index)})
        case Progress():
            return _line(
                {"event": "progress", **_step(plan, event.index), "done": event.done, "total": event.total}
            )
        case StepDone():
            return _line({"event": "step-done", **_step(plan, event.index)})
        case Said():
            return _line({"event": "said", "text": event.text})


def end_json(*, state: str, changed: bool, sentences: tuple[str, ...], hint: str) -> str:
    """Return the last line: "new", "old", "refused" or "interrupted", whether anything was written, and what to type
    next. It is the only line where a command refuses before it has a plan, so it names its schema, too.
    """
    return _line(
        {
            "event": "end",
            "schema": SCHEMA,
            "version": VERSION,
            "state": state,
            "changed": changed,
            "sentences": list(sentences),
            "next": hint,
        }
    )


def _step(plan: Plan, index: int) -> Mapping[str, Value]:
    """A step by its number, kind and partition; a mover that undoes steps counts them all the same."""
    if not 0 <= index < len(plan.steps):
        return {"index": index, "step": None, "partition": None, "title": ""}
    step = plan.steps[index]
    return {
        "index": index,
        "step": step_name(step),
        "partition": partition_of(step),
        "title": step_title(step),
    }


def _line(value: Value) -> str:
    return dumps(value) + "\n"
