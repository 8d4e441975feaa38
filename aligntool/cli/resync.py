"""The first resynchronisation of a new array: told, or waited for.

In: an array's device. Out: a sentence, or a bar until it is done. Alone because nothing else of aligntool waits for the
kernel, and nobody has to: the array is in use meanwhile.
"""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from aligntool.audit.arrays import sync_words
from aligntool.cli.asked import command

if TYPE_CHECKING:
    from aligntool.inventory import ArrayFacts

_PAUSE_S = 1.0


def tell_resync(device: str) -> None:
    """What runs, how far it is, and that nobody waits for it."""
    facts = _facts(device)
    if facts is not None and _runs(facts):
        print(
            f"The members are made alike in the background ({facts.sync_action}{sync_words(facts)}); the array is ready"
            f" all the same. See how far it is: {command('raid show', device)}",
            file=sys.stderr,
        )


def wait_for_resync(device: str) -> None:
    """Returns when nothing runs any more. Ctrl-C ends the waiting, and not the resynchronisation."""
    from aligntool.render.lines import wants_color
    from aligntool.render.resync import resync_bar, resync_lines

    teller = resync_bar if wants_color(sys.stderr, dict(os.environ)) else resync_lines
    try:
        with teller(sys.stderr) as tell:
            while (facts := _facts(device)) is not None and _runs(facts):
                tell(facts.sync_done, facts.sync_total, facts.sync_rate)
                time.sleep(_PAUSE_S)
    except KeyboardInterrupt:
        print("aligntool: not waited for any longer; it goes on in the background", file=sys.stderr)


def _runs(facts: "ArrayFacts") -> bool:
    return facts.sync_action in ("resync", "recover", "reshape")


def _facts(device: str) -> "ArrayFacts | None":
    from aligntool.probe.md import read_array
    from aligntool.probe.tree import Tree

    return read_array(Tree(""), f"/sys/block/{Path(device).resolve().name}")
