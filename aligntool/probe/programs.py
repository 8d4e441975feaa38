"""Asking another program, which writes nothing to a disk: what it is called, what it said, how it ended.

In: a name and its words. Out: its exit code and its text, in the C locale. Alone because whoever asks must get the same
plain answer for a program that is missing, one that fails and one that hangs.
"""

import os
import select
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, cast

_SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"  # where Debian keeps the programs of the administrator

NOT_RUN = 1000  # no program ends with more than 255
_GRACE_S = 1.0  # for what was killed
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class Answer:
    code: int  # what it ended with; negative: the signal that ended it; NOT_RUN: not started, or ended here
    output: str
    errors: str

    @property
    def last_words(self) -> str:
        """The last lines with text in them, for people."""
        lines = [line.strip() for line in f"{self.output}\n{self.errors}".splitlines() if line.strip()]
        return " / ".join(lines[-3:])


def find_program(name: str) -> str | None:
    """Where it is; None: not installed. A plain user's PATH lacks the folders of the administrator's programs."""
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + _SBIN)


def ask(
    *words: str, limit_s: float | None = None, keep: tuple[bytes, ...] = (b"",), leashed: bool = False
) -> Answer:
    """Runs a program to its end, without input; after `limit_s` it is ended. Never raises for what it does.

    `keep`: what the lines begin with that are kept of its output. `leashed`: it ends when aligntool is killed.
    """
    program = find_program(words[0])
    if program is None:
        return Answer(NOT_RUN, "", f"{words[0]} is not installed")
    try:
        with tempfile.TemporaryFile() as errors:
            child = subprocess.Popen(
                (*_leash(leashed), program, *words[1:]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"LC_ALL": "C"},
            )
            try:
                output = _output(child, keep, limit_s)
            except BaseException:  # Ctrl-C, for one
                _end(child)
                raise
            errors.seek(0)
            said = errors.read()
    except OSError as error:
        return Answer(NOT_RUN, "", f"{words[0]} cannot be started: {error.strerror}")
    if output is None:
        return Answer(NOT_RUN, "", f"{words[0]} did not end within {limit_s:g} s")
    return Answer(child.returncode, _text(output), _text(said))


def _output(child: "subprocess.Popen[bytes]", keep: tuple[bytes, ...], limit_s: float | None) -> bytes | None:
    """What it wrote; None where it did not end in time. It is killed then, and not waited for: a program that waits for
    a dead disk in the kernel ends when the disk comes back.
    """
    end = None if limit_s is None else time.monotonic() + limit_s
    lines, rest = [], b""
    with cast(BinaryIO, child.stdout) as pipe:
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while _in_time(poll, end):
            piece = os.read(pipe.fileno(), _PIECE)
            *whole, rest = (rest + piece).split(b"\n")
            lines += [line + b"\n" for line in whole if line.startswith(keep)]
            if piece:
                continue
            lines += [rest] if rest.startswith(keep) else []
            with suppress(subprocess.TimeoutExpired):
                child.wait(_left(end))
                return b"".join(lines)
            break
    _end(child)
    return None


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE_S)
    child.returncode = child.returncode or NOT_RUN  # for Popen, which would complain that it still runs


def _in_time(poll: select.poll, end: float | None) -> bool:
    left = _left(end)
    return bool(poll.poll(None if left is None else left * 1000))


def _left(end: float | None) -> float | None:
    return None if end is None else max(end - time.monotonic(), 0.0)


def _leash(leashed: bool) -> tuple[str, ...]:
    setpriv = find_program("setpriv") if leashed else None
    return (setpriv, "--pdeathsig", "KILL") if setpriv else ()


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace")
