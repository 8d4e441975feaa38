"""The two ways to stop: before the first write, and after it. And the exit codes that say which."""

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """What a script learns from aligntool; the answer to "was my disk touched?"."""

    DONE = 0
    FINDINGS = 1
    USAGE = 2
    REFUSED = 3
    STOPPED = 4
    BUG = 5
    INTERRUPTED = 130


class Refused(Exception):
    """Nothing was written. The message says why; the hint is the next thing to type."""

    exit_code = ExitCode.REFUSED

    def __init__(self, reason: str, *, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


class Stopped(Exception):
    """Something was written. The journal knows how far; `aligntool resume` goes on."""

    exit_code = ExitCode.STOPPED

    def __init__(self, reason: str, *, hint: str = "aligntool resume") -> None:
        super().__init__(reason)
        self.hint = hint


Objection = tuple[str, str]  # why not, and what to type next: "" where nothing helps


def refuse(reasons: Iterable[Objection]) -> None:
    """Raises Refused with every reason and every hint, each said once; returns where there are none."""
    found = list(reasons)
    if found:
        hints = dict.fromkeys(line for _, hint in found for line in hint.split("\n") if line)
        raise Refused("\n".join(dict.fromkeys(why for why, _ in found)), hint="\n".join(hints))


def objection_of(refusal: Refused) -> Objection:
    """To be said together with others."""
    return str(refusal), refusal.hint


def refuse_folder_name(name: str) -> None:
    """Raise Refused where the name of a file to be written ends as a folder's does: pathlib drops the slash, and would
    write a file of that name into the folder above.
    """
    if name.rpartition("/")[2] in ("", ".", ".."):
        raise Refused(f"{name!r} is the name of a folder, not of a file; nothing was written")
    if name == "-":
        raise Refused(
            "standard output cannot be named as a file here; nothing was written",
            hint="leave the option out, or add --json, for standard output; ./- names a file",
        )
