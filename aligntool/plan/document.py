"""A plan as a JSON document, and back. Protected by a digest, so that an edited plan is not applied by accident.

The names in it are frozen, in plans, journals and records alike: docs/json.md, "Frozen names".
"""

import hashlib
import json
import types
from dataclasses import is_dataclass
from shlex import quote
from typing import Any, Union, get_args, get_origin, get_type_hints

from aligntool.errors import Refused
from aligntool.plan.goals import RaidGoal
from aligntool.plan.plans import Plan
from aligntool.plan.steps import (
    CheckContent,
    CloseJournal,
    CopyContent,
    EditFile,
    HoldContent,
    MakeArray,
    MakeFileSystem,
    MakeMember,
    MakeTable,
    ParkEntries,
    ReleaseContent,
    RewriteTable,
    RunCommand,
    ShrinkContent,
    Step,
    WriteFile,
    WriteJournal,
)
from aligntool.strict_json import as_object, wire_names

SCHEMA = "aligntool.plan"
VERSION = 1
_NO_PLAN = "aligntool audit"  # which names every disk, and what to type

STEPS: dict[str, type[Any]] = {
    "CheckContent": CheckContent,
    "ShrinkContent": ShrinkContent,
    "WriteJournal": WriteJournal,
    "ParkEntries": ParkEntries,
    "HoldContent": HoldContent,
    "CopyContent": CopyContent,
    "ReleaseContent": ReleaseContent,
    "RewriteTable": RewriteTable,
    "CloseJournal": CloseJournal,
    "MakeTable": MakeTable,
    "MakeMember": MakeMember,
    "MakeArray": MakeArray,
    "MakeFileSystem": MakeFileSystem,
    "EditFile": EditFile,
    "WriteFile": WriteFile,
    "RunCommand": RunCommand,
}
"""Every step by its name in documents. The classes may be renamed, the names may not."""

_TAGS = {kind: {"step": name} for name, kind in STEPS.items()}


def to_json(plan: Plan) -> str:
    return json.dumps(
        {"schema": SCHEMA, "version": VERSION, "digest": digest(plan), "plan": as_object(plan, _TAGS)},
        indent=2,
    )


def from_json(text: str) -> Plan:
    """Raises Refused when it is no plan, one of another version, or one that was changed since it was made."""
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise Refused("this is no plan of aligntool", hint=_NO_PLAN)
        if document.get("version") != VERSION:
            version = document.get("version")
            raise Refused(f"this plan has format {version}; this aligntool reads format {VERSION}",
                          hint=_NO_PLAN)  # fmt: skip
        plan: Plan = _in(Plan, document["plan"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Refused(f"the plan cannot be read: {error}", hint=_NO_PLAN) from error
    if digest(plan) != document.get("digest"):
        raise Refused("the plan was changed since it was made: its digest does not fit",
                      hint=_anew(plan))  # fmt: skip
    return plan


def _anew(plan: Plan) -> str:
    """What makes a plan of this disk again, where its name is enough for that."""
    words = {"realign": "plan realign", "persist": "raid persist"}.get(plan.purpose)
    if words is None:
        return _NO_PLAN
    return f"{'sudo ' if plan.disk.path.startswith('/dev/') else ''}aligntool {words} {quote(plan.disk.path)}"


def with_wanted(text: str, drives: tuple[str, ...], goal: RaidGoal) -> str:
    """The plan of an array with what was asked for in it, from which applying thinks it out again."""
    return json.dumps(
        json.loads(text) | {"wanted": {"drives": list(drives), "goal": as_object(goal)}}, indent=2
    )


def wanted_of(text: str) -> tuple[tuple[str, ...], RaidGoal]:
    """The drives and the goal of an array's plan. Raises Refused where it does not say them."""
    try:
        wanted = json.loads(text)["wanted"]
        if set(wanted) != {"drives", "goal"}:
            raise ValueError(f"{sorted(wanted)} are not drives and goal")
        return tuple(_in(str, one) for one in _list(wanted["drives"])), _in(RaidGoal, wanted["goal"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Refused(f"the plan does not say what array was asked for: {error}",
                      hint="lsblk") from error  # fmt: skip


def digest(plan: Plan) -> str:
    """The name under which a journal and a reviewer remember the plan; SHA-256 of its canonical JSON."""
    return hashlib.sha256(json.dumps(as_object(plan, _TAGS), sort_keys=True).encode()).hexdigest()


def step_name(step: Step) -> str:
    """Return the name of a step in documents."""
    return _TAGS[type(step)]["step"]


def _in(kind: Any, value: Any) -> Any:
    """`value` as a `kind`; raises TypeError, ValueError or KeyError where it is none."""
    if kind is Step:
        return _in(STEPS[value["step"]], {name: one for name, one in value.items() if name != "step"})
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return (
            None
            if value is None
            else _in(next(one for one in get_args(kind) if one is not type(None)), value)
        )
    if origin is tuple:
        return tuple(_in(get_args(kind)[0], one) for one in _list(value))
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        names = wire_names(kind)
        if set(value) != set(names):
            raise ValueError(
                f"{kind.__name__} has fields {sorted(set(value) ^ set(names))} too many or too few"
            )
        return kind(**{name: _in(hints[name], value[wire]) for wire, name in names.items()})
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value
