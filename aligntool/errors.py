"""The two ways to stop: before the first write, and after it. And the exit codes that say which."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum

from aligntool.values import dataclass


class ExitCode(IntEnum):
    """What a script learns from aligntool; the answer to "was my disk touched?"."""

    DONE = 0
    FINDINGS = 1
    USAGE = 2
    REFUSED = 3
    STOPPED = 4
    BUG = 5
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason why nothing is begun. Codes are stable and listed in docs/refusals.md; the words are not."""

    code: str
    subject: str  # the disk, partition, file or option that it is about
    text: str
    hint: str = ""  # what to type next, a line each; "" where nothing helps
    lasting: bool = True  # False: doing what the hint says removes the reason


class Refused(Exception):
    """Nothing was written. The message says why; the hint is the next thing to type."""

    exit_code = ExitCode.REFUSED

    def __init__(
        self, reason: str, *, hint: str = "", code: str = "other", subject: str = "", refusals: Iterable[Refusal] = ()
    ) -> None:
        super().__init__(reason)
        self.hint = hint
        self._code, self._subject, self._refusals = code, subject, tuple(refusals)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Every reason, at least one."""
        return self._refusals or (Refusal(self._code, self._subject, str(self), self.hint),)


class Stopped(Exception):
    """Something was written. The journal knows how far; `aligntool resume` goes on."""

    exit_code = ExitCode.STOPPED

    def __init__(self, reason: str, *, hint: str = "aligntool resume") -> None:
        super().__init__(reason)
        self.hint = hint


@contextmanager
def failing_as(kind: type[Refused | Stopped], reason: str, after: str = "") -> Iterator[None]:
    """Raise Refused or Stopped in place of an OSError: the reason, what the system says, and what comes `after` it."""
    try:
        yield
    except OSError as error:
        raise kind(f"{reason}: {error.strerror}{after}") from error


def refuse(refusals: Iterable[Refusal]) -> None:
    """Raise Refused with every reason and every hint, each once; return where there are none."""
    found = tuple(dict.fromkeys(refusals))
    if found:
        hints = dict.fromkeys(line for one in found for line in one.hint.split("\n") if line)
        raise Refused("\n".join(dict.fromkeys(one.text for one in found)), hint="\n".join(hints), refusals=found)


def refuse_folder_name(name: str) -> None:
    """Raise Refused where the name of a file to be written ends as a folder's does: pathlib drops the slash, and would
    write a file of that name into the folder above.
    """
    if name.rpartition("/")[2] in ("", ".", ".."):
        raise Refused(f"{name!r} is the name of a folder, not of a file; nothing was written")
    if name == "-":
        hint = "leave the option out, or add --json, for standard output; ./- names a file"
        raise Refused("standard output cannot be named as a file here; nothing was written", hint=hint)
