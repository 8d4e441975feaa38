"""Show a text that is longer than the terminal in a pager, as git and systemctl do (docs/decisions/0028)."""

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from aligntool.cli.options import colored, terminal_width
from aligntool.linux.programs import find_program
from aligntool.render.lines import Line, show

_NO_PAGER = ("", "cat")
_LENDERS = ("SUDO_UID", "DOAS_USER", "PKEXEC_UID")  # set by programs that lend another user's rights
_NO_LOGIN = (1 << 32) - 1
_NOT_RUN = (126, 127)  # exit codes of sh: the program cannot be run, or is not found


def page_lines(lines: str | Iterable[Line]) -> None:
    """Write lines, or a text as it is, to standard output. On a terminal, lines that do not fit go through
    the pager.
    """
    shown = sys.stdout if isinstance(lines, str) or not sys.stdout.isatty() else io.StringIO()
    if isinstance(lines, str):
        sys.stdout.write(lines)
    else:
        width = terminal_width() if isinstance(shown, io.StringIO) else None
        show(lines, shown, color=colored(sys.stdout), width=width)
    if isinstance(shown, io.StringIO):
        text = shown.getvalue()
        long = text.count("\n") >= shutil.get_terminal_size((80, 24)).lines
        can_page = sys.stdin is not None and sys.stdin.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        pager = pager_of(os.environ, login=login_user()) if long and can_page else None
        if pager is None or not _paged(text, *pager):
            sys.stdout.write(text)
    sys.stdout.flush()


def pager_of(environment: Mapping[str, str], *, login: int | None) -> tuple[str, Mapping[str, str]] | None:
    """Return the command line of the pager and its environment, or None if there is no pager. `login`: the
    user who logged in, None if unknown.

    A pager can start programs and write files. Whoever got another user's rights to run aligntool, by sudo,
    doas or pkexec, gets a pager that can do neither; so does root whose login is unknown.
    """
    command = next(
        (environment[name] for name in ("ALIGNTOOL_PAGER", "PAGER") if name in environment), "less"
    )
    if command.strip() in _NO_PAGER:
        return None
    own = {"LESS": environment.get("LESS", "FRX"), "LV": environment.get("LV", "-c")}
    if not _is_own(environment, login):
        command = "less"
        own = {"LESS": "FRX", "LV": "-c", "LESSSECURE": "1", "LESSOPEN": "", "LESSHISTFILE": "-"}
    return None if command == "less" and not find_program("less") else (command, own)


def _is_own(environment: Mapping[str, str], login: int | None) -> bool:
    """Return whether the rights of this process are those of the user who logged in."""
    user = os.geteuid()
    if user != os.getuid() or any(environment.get(name) for name in _LENDERS):
        return False
    return user != 0 if login is None else login == user


def login_user() -> int | None:
    """Return the id of the user who logged in (proc_pid_loginuid(5)), or None if the kernel knows none."""
    with suppress(OSError, ValueError):
        found = int(Path("/proc/self/loginuid").read_text())
        return None if found == _NO_LOGIN else found
    return None


def _paged(text: str, pager: str, own: Mapping[str, str]) -> bool:
    """Run the pager; return whether it ran. Ctrl-C is left to it, and it may end before it has read
    everything.
    """
    sys.stdout.flush()
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGPIPE)}
    try:
        coded = text.encode(sys.stdout.encoding, "backslashreplace")
        ended = subprocess.run(("sh", "-c", pager), input=coded, env={**os.environ, **own}, check=False)
    except OSError:
        return False
    finally:
        for number, action in before.items():
            signal.signal(number, action)
    return ended.returncode not in _NOT_RUN
