"""Exceptions and exit codes: Refused before the first write, Stopped after it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of aligntool. REFUSED and STOPPED distinguish whether anything was written."""

    DONE = 0
    FINDINGS = 1
    USAGE = 2
    REFUSED = 3
    STOPPED = 4
    BUG = 5
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason for a refusal. Codes are stable and listed in docs/refusals.md; texts are not stable."""

    code: str
    subject: str  # the disk, partition, file or option concerned
    text: str
    hint: str = ""  # the next commands, one per line; "" if none helps
    lasting: bool = True  # False: the hint removes the reason


class Refused(Exception):
    """Nothing was written. The message states the reason; the hint is the next command."""

    exit_code = ExitCode.REFUSED

    def __init__(
        self,
        reason: str,
        *,
        hint: str = "",
        code: str = "other",
        subject: str = "",
        refusals: Iterable[Refusal] = (),
    ) -> None:
        super().__init__(reason)
        self.hint = hint
        self.refusals = tuple(refusals) or (Refusal(code, subject, reason, hint),)

    def change_hints(self, change: Callable[[str], str]) -> None:
        """Replace each hint by what `change` returns for it."""
        is_joined = self.hint == _joined_hints(self.refusals)
        self.refusals = tuple(replace(each, hint=change(each.hint)) for each in self.refusals)
        self.hint = _joined_hints(self.refusals) if is_joined else change(self.hint)


def _joined_hints(refusals: Iterable[Refusal]) -> str:
    """Return the lines of the hints of all reasons, each once."""
    return "\n".join(dict.fromkeys(line for each in refusals for line in each.hint.split("\n") if line))


class Killed(Refused):
    """The child process that was to make a change ended without a last message; its progress is unknown."""


# the next command, if an error has no other and the disk or array is not known to it
CONTINUE = "aligntool resume"


class Stopped(Exception):
    """Something was written. The progress is in the journal; `aligntool resume` continues."""

    exit_code = ExitCode.STOPPED

    def __init__(self, reason: str, *, hint: str = CONTINUE) -> None:
        super().__init__(reason)
        self.hint = hint
        self.about: Sequence[str] = ()  # what each line of the hint does, if that is known


class NothingInFlight(Stopped):
    """Something was written, and nothing is in flight: nothing to continue or undo; the hint is the error's
    own.
    """


class JournalUnwritten(NothingInFlight):
    """A journal could not be written: bytes of its place were."""


@contextmanager
def failing_as(
    kind: type[Refused | Stopped], reason: str, after: str = "", *, hint: str = "", denied: str = ""
) -> Iterator[None]:
    """Raise Refused or Stopped in place of an OSError, with the reason, the system's error text, and `after`.

    `denied`: the hint if it is the permission that is missing.
    """
    try:
        yield
    except OSError as error:
        hint = denied or hint if isinstance(error, PermissionError) else hint
        text = f"{reason}: {error.strerror}{after}"
        raise (kind(text, hint=hint) if hint else kind(text)) from error


def refuse(refusals: Iterable[Refusal]) -> None:
    """Raise Refused with all reasons and hints, each once. Return if there is none."""
    found = tuple(dict.fromkeys(refusals))
    if found:
        texts = dict.fromkeys(each.text for each in found)
        raise Refused("\n".join(texts), hint=_joined_hints(found), refusals=found)


def refuse_folder_name(name: str) -> None:
    """Raise Refused if the name of an output file is that of a folder: pathlib drops a trailing slash, and
    would write a file of that name into the parent folder. Also refuse "-".
    """
    if name.rpartition("/")[2] in ("", ".", ".."):
        raise Refused(f"{name!r} is the name of a folder, not of a file; nothing was written")
    if name == "-":
        hint = "for standard output, omit the option or add --json; ./- names a file"
        raise Refused("standard output cannot be named as a file here; nothing was written", hint=hint)
