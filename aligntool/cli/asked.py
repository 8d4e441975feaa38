"""What the user asked of a plan: the goal, and the geometry given on the command line.

In: options. Out: one value, the words that type it again, and its place in a plan file. Alone because a plan that is
applied later must be thought out again from the same wishes: docs/cli.md, "aligntool apply".
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aligntool.errors import Refused, Stopped
from aligntool.plan import Plan, RealignGoal, from_json, to_json
from aligntool.strict_json import as_object, by_field


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


@contextmanager
def naming(disk: str) -> Iterator[None]:
    """Who works on a disk's bytes does not know what it is called: hints that say DISK get its name here."""
    from aligntool.audit.words import shell_word

    try:
        yield
    except (Refused, Stopped) as error:
        full = re.sub(r"aligntool ([a-z ]+) DISK\b", lambda found: command(found[1], disk), error.hint)
        error.hint = re.sub(r"\bDISK\b", lambda _: shell_word(disk), full)
        raise


def plan_text(plan: Plan, asked: Asked) -> str:
    """The plan's document with the wishes in it. The digest is over the plan only; wishes that were changed lead to
    another plan, and that is refused.
    """
    document = json.loads(to_json(plan))
    document["asked"] = as_object(asked)
    return json.dumps(document, indent=2) + "\n"


def read_plan_text(text: str) -> tuple[Plan, Asked]:
    """Raises Refused."""
    plan = from_json(text)
    try:
        written = json.loads(text).get("asked", {})
        goal = by_field(RealignGoal, written.get("goal", {}))
        if "partitions" in goal:
            goal["partitions"] = tuple(goal["partitions"])
        found = by_field(Asked, written)
        return plan, Asked(**(found | {"goal": RealignGoal(**goal), "typed": tuple(found.get("typed", ()))}))
    except (TypeError, AttributeError, ValueError) as error:
        raise Refused(
            f"the plan does not say what was asked: {error}", hint=command("plan realign", plan.disk.path)
        ) from error
