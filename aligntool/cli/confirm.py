"""The one question before anything is written.

In: a plan that was shown. Out: nothing, or a refusal. Alone because every command that writes asks it in the same
words, and because what is typed is the disk's own name and no "y" that fingers type by themselves.
"""

import sys
from pathlib import PurePath

from aligntool.errors import Refused
from aligntool.plan import EditFile, MakeMember, Plan, WriteFile


def confirm(plan: Plan, yes: bool) -> None:
    """Returns when the user typed the disk's identity, or said --yes; the plan is on the screen already.

    --yes answers this question and no other: it overrides no refusal. Raises Refused.
    """
    word, what = identity(plan)
    confirm_disk(_written_to(plan), word, what, yes)


def confirm_disk(path: str, word: str, what: str, yes: bool) -> None:
    """The same for a disk that is written to without a plan. Raises Refused."""
    from aligntool.render.lines import harmless

    if yes:
        return
    word = harmless(word)
    if not _can_ask():
        raise Refused("nobody is there to be asked; nothing was written", hint="add --yes to the command")
    print(f"\nThis writes to {harmless(path)}.", file=sys.stderr)
    print(f"Type {what}, {word}, to go on: ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    if " ".join(answer.split()) != " ".join(word.split()):
        raise Refused(f"that was not {word}; nothing was written")


def confirm_long(about: str, yes: bool) -> None:
    """Return when the user agreed to so long a measurement, or gave --yes. Raises Refused."""
    if yes:
        return
    if not _can_ask():
        raise Refused(
            f"this takes about {about}, and there is no terminal to ask on; nothing was measured",
            hint="add --yes to the command, or take fewer passes or repeats",
        )
    print(f"\nThis takes about {about}.", file=sys.stderr)
    print("Type yes to go on: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() != "yes":
        raise Refused("that was not yes; nothing was measured")


def identity(plan: Plan) -> tuple[str, str]:
    """What the user types, and what that is: the serial, else the disk's id, else the image file's name."""
    disk = plan.disk
    if plan.purpose in ("raid", "persist"):
        return PurePath(disk.path).name, "the array's name"
    if disk.serial and disk.serial.strip():
        return disk.serial.strip(), "the disk's serial number"
    if disk.disk_id:
        return disk.disk_id, "the disk's id"
    return PurePath(disk.path).name, "its name"


def _written_to(plan: Plan) -> str:
    """The disk; of an array its drives, and files of the system."""
    drives = dict.fromkeys(step.disk.path for step in plan.steps if isinstance(step, MakeMember))
    files = dict.fromkeys(step.path for step in plan.steps if isinstance(step, EditFile | WriteFile))
    return ", ".join((*drives, *files)) or plan.disk.path


def _can_ask() -> bool:
    """Standard input can be closed (`<&-`), and then Python has None in its place."""
    return sys.stdin is not None and sys.stdin.isatty()
