"""The steps that make an array, in words.

In: one step. Out: its title, and what belongs under it: command lines as they can be typed, and lines of files. Alone
because none of these steps moves anything, and `render.steps` is about bytes.
"""

import re
from collections.abc import Iterator, Sequence
from typing import assert_never

from aligntool.audit.words import shell_word
from aligntool.plan import ArrayStep, EditFile, MakeArray, MakeFileSystem, MakeMember, RunCommand, WriteFile

_PLAIN = re.compile(r"--?[A-Za-z-]+=[\w./:,@%+-]+|[a-z]+=[\w=,./-]+", re.ASCII)


def array_title(step: ArrayStep) -> str:
    """What it does, in a few words."""
    match step:
        case MakeMember():
            table = "make a table on" if step.entries else "take"
            return f"{table} {step.disk.path}: {step.device} becomes a member"
        case MakeArray():
            return f"make the array {step.device}, UUID {step.uuid}"
        case MakeFileSystem():
            return f"make {step.kind} on {step.device}, UUID {step.uuid}"
        case EditFile():
            return f"edit {step.path}; what it was is kept as {step.backup}, numbered after the first"
        case WriteFile():
            return f"write {step.path}; other text in it is kept as {step.backup}, numbered after the first"
        case RunCommand():
            return step.purpose
        case _:
            assert_never(step)


def array_details(step: ArrayStep) -> Iterator[str]:
    """Identity of a drive, lines of a file, and commands."""
    match step:
        case MakeMember():
            disk = step.disk
            known = (("", disk.model), ("serial ", disk.serial), ("WWN ", disk.wwn))
            yield ", ".join(f"{title}{word}" for title, word in known if word) or "no identity is known"
            if step.zeroed:
                ranges = ", ".join(f"{each.start}..{each.end}" for each in step.zeroed)
                yield f"zeroed first, so that no old signature comes back: bytes {ranges}"
        case EditFile():
            yield f"in place of a line with {step.instead_of}, else at the end:"
            yield from step.lines
        case WriteFile():
            yield "the whole file:"
            yield from step.lines
        case MakeArray() | MakeFileSystem() | RunCommand():
            yield f"$ {shell_line(step.command)}"
            if isinstance(step, RunCommand) and step.expects:
                yield f"and it must print {step.expects}"
        case _:
            assert_never(step)


def shell_line(words: Sequence[str]) -> str:
    """A command as it can be typed. `--level=0` needs no quotes, which `shell_word` would set for file names."""
    return " ".join(word if _PLAIN.fullmatch(word) else shell_word(word) for word in words)
