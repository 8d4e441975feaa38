"""Show a text that is longer than the terminal in a pager, as git and systemctl do (docs/decisions/0028)."""

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping

from aligntool.cli.options import colored
from aligntool.linux.process import find_program
from aligntool.render.lines import Line, show

_NO_PAGER = ("", "cat")
_NOT_RUN = (126, 127)  # exit codes of sh: the program cannot be run, or is not found


def page_lines(lines: str | Iterable[Line]) -> None:
    """Write lines, or a text as it is, to standard output. On a terminal, lines that do not fit go through
    the pager.
    """
    shown = sys.stdout if isinstance(lines, str) or not sys.stdout.isatty() else io.StringIO()
    if isinstance(lines, str):
        sys.stdout.write(lines)
    else:
        show(lines, shown, color=colored(sys.stdout))
    if isinstance(shown, io.StringIO):
        text = shown.getvalue()
        long = text.count("\n") >= shutil.get_terminal_size((80, 24)).lines
        pager = pager_of(os.environ) if long and os.environ.get("TERM", "dumb") != "dumb" else None
        if pager is None or not _paged(text, *pager):
            sys.stdout.write(text)
    sys.stdout.flush()


def pager_of(environment: Mapping[str, str]) -> tuple[str, Mapping[str, str]] | None:
    """Return the command line of the pager and its environment, or None if there is no pager.

    A pager can start programs and write files. A user who may run only aligntool as another user gets a pager that can
    do neither.
    """
    command = next((environment[name] for name in ("ALIGNTOOL_PAGER", "PAGER") if name in environment), "less")
    if command.strip() in _NO_PAGER:
        return None
    own = {"LESS": environment.get("LESS", "FRX"), "LV": environment.get("LV", "-c")}
    if any(environment.get(name) for name in ("SUDO_UID", "PKEXEC_UID")) or os.geteuid() != os.getuid():
        command, own["LESSSECURE"] = "less", "1"
    return None if command == "less" and not find_program("less") else (command, own)


def _paged(text: str, pager: str, own: Mapping[str, str]) -> bool:
    """Run the pager; return whether it ran. Ctrl-C is left to it, and it may end before it has read everything."""
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
