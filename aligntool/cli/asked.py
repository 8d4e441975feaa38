"""What the user asked of a plan: the goal, and the geometry given on the command line.

In: options. Out: one value, the words that type it again, and its place in a plan file. Alone because a plan that is
applied later must be thought out again from the same wishes: docs/cli.md, "aligntool apply".
"""

import json
from dataclasses import asdict, dataclass, field

from aligntool.errors import Refused
from aligntool.plan import Plan, RealignGoal, from_json, to_json


@dataclass(frozen=True, slots=True)
class Asked:
    """Sizes in bytes; None: the disk and the database are asked."""

    goal: RealignGoal = field(default_factory=RealignGoal)
    sector_size: int | None = None
    physical_sector_size: int | None = None
    page_size: int | None = None
    typed: tuple[str, ...] = ()  # the options that say all this


def command(name: str, disk: str, *words: str) -> str:
    """A command of aligntool on this disk, as it is typed; devices need root, image files do not."""
    from aligntool.audit.words import shell_word

    root = "sudo " if disk.startswith("/dev/") else ""
    return " ".join((f"{root}aligntool {name} {shell_word(disk)}", *words))


def plan_text(plan: Plan, asked: Asked) -> str:
    """The plan's document with the wishes in it. The digest is over the plan only; wishes that were changed lead to
    another plan, and that is refused.
    """
    document = json.loads(to_json(plan))
    document["asked"] = asdict(asked)
    return json.dumps(document, indent=2) + "\n"


def read_plan_text(text: str) -> tuple[Plan, Asked]:
    """Raises Refused."""
    plan = from_json(text)
    try:
        written = json.loads(text).get("asked", {})
        goal = written.get("goal", {})
        if "partitions" in goal:
            goal["partitions"] = tuple(goal["partitions"])
        typed = tuple(written.get("typed", ()))
        return plan, Asked(**(written | {"goal": RealignGoal(**goal), "typed": typed}))
    except (TypeError, AttributeError, ValueError) as error:
        raise Refused(
            f"the plan does not say what was asked: {error}", hint="aligntool plan realign DISK -o plan.json"
        ) from error
