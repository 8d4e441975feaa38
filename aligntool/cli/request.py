"""What was asked of a plan of a disk: the goal, the geometry given, and its place in the plan's document.

A plan that is applied later is made again from the same request: docs/cli.md, "aligntool apply".
"""

import json
from dataclasses import dataclass, field

from aligntool.change import Plan, RealignGoal, from_json, to_json
from aligntool.cli.options import command
from aligntool.documents import as_object, by_field
from aligntool.errors import Refused


@dataclass(frozen=True, slots=True)
class Request:
    """Sizes in bytes; None: the disk and the database are asked."""

    goal: RealignGoal = field(default_factory=RealignGoal)
    sector_size: int | None = None
    physical_sector_size: int | None = None
    page_size: int | None = None
    typed: tuple[str, ...] = ()  # these options as words


def plan_text(plan: Plan, asked: Request) -> str:
    """The plan's document with the wishes in it. The digest is over the plan only; wishes that were changed lead to
    another plan, and that is refused.
    """
    document = json.loads(to_json(plan))
    document["asked"] = as_object(asked)
    return json.dumps(document, indent=2) + "\n"


def read_plan_text(text: str) -> tuple[Plan, Request]:
    """Raises Refused."""
    plan = from_json(text)
    try:
        written = json.loads(text).get("asked", {})
        goal = by_field(RealignGoal, written.get("goal", {}))
        if "partitions" in goal:
            goal["partitions"] = tuple(goal["partitions"])
        found = by_field(Request, written)
        return plan, Request(**(found | {"goal": RealignGoal(**goal), "typed": tuple(found.get("typed", ()))}))
    except (TypeError, AttributeError, ValueError) as error:
        raise Refused(
            f"the plan lacks what was asked for: {error}", hint=command("plan realign", plan.disk.path)
        ) from error
