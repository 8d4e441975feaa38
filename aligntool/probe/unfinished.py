"""Arrays whose making was begun and has not ended.

In: a `Tree`. Out: a sentence each. Alone because the record of it is `apply`'s own, and whoever only looks need not
understand more of it than that it is there.
"""

import json

from aligntool.probe.tree import Tree

FOLDER = "/var/lib/aligntool/arrays"
LONGEST = 16 << 20
MOST = 64


def read_unfinished(tree: Tree) -> tuple[str, ...]:
    """By the records in aligntool's folder, which root alone may read; one that is damaged is told all the same."""
    names = [name for name in tree.names(FOLDER) if name.endswith(".json")]
    return tuple(
        _sentence(f"{FOLDER}/{name}", tree.content(f"{FOLDER}/{name}", LONGEST)) for name in names[:MOST]
    )


def _sentence(file: str, content: bytes | None) -> str:
    try:
        document = json.loads(content or b"")
        plan, position = document["plan"]["plan"], document["position"]
        name, steps, purpose = plan["disk"]["path"], len(plan["steps"]), plan["purpose"]
        way = "" if document["forward"] else ", and is being taken back"
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{file}: the record of something that was begun cannot be read"
    what = "making" if purpose == "raid" else "mending"
    return f"{name}: its {what} was begun and has not ended, step {position + 1} of {steps}{way} ({file})"
