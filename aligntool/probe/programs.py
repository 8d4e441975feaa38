"""Asking another program, which writes nothing to a disk: what it is called, what it said, how it ended.

In: a name and its words. Out: its exit code and its text, in the C locale. Alone because whoever asks must get the same
plain answer for a program that is missing, one that fails and one that hangs.
"""

import os
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass

_SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"  # where Debian keeps the programs of the administrator

NOT_RUN = 1000  # no program ends with more than 255


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
    late = threading.Event()
    try:
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                (*_leash(leashed), program, *words[1:]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"LC_ALL": "C"},
            ) as child,
        ):
            timer = threading.Timer(limit_s or threading.TIMEOUT_MAX, _end, (child, late))
            timer.daemon = True
            timer.start()
            try:
                output = b"".join(line for line in child.stdout or () if line.startswith(keep))
                code = child.wait()
            except BaseException:  # Ctrl-C, for one: nobody is left behind
                child.kill()
                raise
            finally:
                timer.cancel()
            errors.seek(0)
            said = errors.read()
    except OSError as error:
        return Answer(NOT_RUN, "", f"{words[0]} cannot be started: {error.strerror}")
    if late.is_set():
        return Answer(NOT_RUN, "", f"{words[0]} did not end within {limit_s:g} s")
    return Answer(code, _text(output), _text(said))


def _leash(leashed: bool) -> tuple[str, ...]:
    setpriv = find_program("setpriv") if leashed else None
    return (setpriv, "--pdeathsig", "KILL") if setpriv else ()


def _end(child: "subprocess.Popen[bytes]", late: threading.Event) -> None:
    late.set()
    child.kill()


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace")
