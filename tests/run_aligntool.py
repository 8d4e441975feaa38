"""Run the command line without starting an interpreter: `run_aligntool("audit", image)`.

A fork calls `aligntool.__main__.main` with its own standard streams. This saves the start of an interpreter and all
imports, and runs are as separate as processes: working directory, environment, signal handlers, locks and caches end
with the fork, and a run that hangs is killed. A test of the process itself (signals, closed streams, terminals, limits,
another user) starts `program(...)`.

The parent of the forks is a small process that was forked before the tests were collected: with 7,000 tests in memory,
a fork and its own forks take twice as long. It also has no threads, whose locks would be copied into a fork.
"""

import atexit
import faulthandler
import fcntl
import gc
import importlib
import io
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from tests.suggested import changing_commands

UNSET = ("COLUMNS", "LINES", "NO_COLOR")  # a terminal or a build server may have set them
LONGEST_S = 300
MOST_INPUT = 1 << 20
FILES = 1024  # open at once, as in a shell of Debian: neither a test nor the program needs more
MOST_ASKED = 128 << 10  # bytes of a request: arguments and environment


def program(*words: str | Path) -> list[str]:
    """Return the command that starts aligntool as a separate process."""
    return [sys.executable, "-m", "aligntool", *map(str, words)]


def run_aligntool(
    *words: str | Path,
    code: int | None = None,
    stdin: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    limit_s: float = LONGEST_S,
) -> subprocess.CompletedProcess[str]:
    """Return aligntool's output and its exit code, which must be `code` if one is given.

    `env` is added to the environment of the tests.
    """
    argv = ["aligntool", *map(str, words)]
    request = {
        "argv": argv,
        "cwd": str(cwd or Path.cwd()),
        "env": {**os.environ, **(env or {})},
        "given": [*(env or ())],
    }
    with _input(stdin) as given, _memory() as out, _memory() as err, _memory() as loaded:
        pid, process = _SERVER.ask(request, given.fileno(), out.fileno(), err.fileno(), loaded.fileno())
        with os.fdopen(process, "rb") as pidfd:
            status = _wait(pid, pidfd, argv, limit_s)
        printed, complained, modules = _text(out), _text(err), _text(loaded)
    _SERVER.ask({"load": modules.split()})
    assert code is None or status == code, f"{' '.join(argv)}: exit {status}\n{printed}{complained}"
    hints = [line for line in f"{printed}\n{complained}".splitlines() if "→" in line]
    assert not [found for hint in hints for found in changing_commands(hint)], "a suggested command changes something"
    assert not [hint for hint in hints if _OPEN.search(hint)], "a command is shown to be pasted, but lacks a name"
    return subprocess.CompletedProcess(argv, status, printed, complained)


_OPEN = re.compile(r"→ (?:sudo )?aligntool\b[^;]* (?:DIR|FILE|FOLDER|IMAGE|N|NEW)(?: |$)")


class _Server:
    """The process that forks the runs, and its end of the connection."""

    def __init__(self) -> None:
        self._alone = threading.Lock()  # a test may run several at once
        self._asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            _serve(asked)
        asked.close()

    def ask(self, request: Mapping[str, object], *descriptors: int) -> tuple[int, int]:
        """Return the number of the answer, and the descriptor that came with it, or -1."""
        with self._alone:
            socket.send_fds(self._asking, [json.dumps(request).encode()], descriptors)
            answer, (*came,), _, _ = socket.recv_fds(self._asking, MOST_ASKED, 1)
        return int(answer), next(iter(came), -1)


def _serve(asked: socket.socket) -> NoReturn:
    """Answer requests until the tests end."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.closerange(3, asked.fileno())
        os.closerange(asked.fileno() + 1, min(os.sysconf("SC_OPEN_MAX"), 1 << 16))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            message, descriptors, _, _ = socket.recv_fds(asked, MOST_ASKED, 4)
            if not message:
                break
            request, came = json.loads(message), []
            if "argv" in request:
                answer = os.fork()
                if answer == 0:
                    _be_aligntool(request, descriptors)
                came = [os.pidfd_open(answer)]
            elif "ended" in request:
                answer = os.waitpid(request["ended"], 0)[1]
            else:
                answer = _load(request["load"])
            socket.send_fds(asked, [str(answer).encode()], came)
            for number in (*descriptors, *came):
                os.close(number)
    finally:
        os._exit(0)


def _load(modules: list[str]) -> int:
    """Import the modules that the program imported while it ran, so that the next run finds them loaded."""
    for name in modules:
        with suppress(Exception):
            importlib.import_module(name)
    return 0


def _be_aligntool(request: Mapping[str, Any], descriptors: list[int]) -> NoReturn:
    """In the fork: reset the state to that of a new process, and run the program."""
    status = 1
    *streams, kept = descriptors
    try:
        faulthandler.disable()
        atexit._clear()
        gc.freeze()  # a test file that is garbage-collected here would close a descriptor that is in use again
        before = set(sys.modules)
        _take_streams(streams, kept)
        _set_signals_of_a_new_process()
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        sys.argv = request["argv"]
        status = _exit_code_of_main()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.write(kept, "\n".join(sorted(set(sys.modules) - before)).encode())
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def _take_streams(streams: list[int], kept: int) -> None:
    """Make these the standard streams, and close all other descriptors but one."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, kept)
    os.closerange(kept + 1, min(os.sysconf("SC_OPEN_MAX"), 1 << 16))
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False), "utf-8")
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), "utf-8")
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), "utf-8", line_buffering=True)


def _set_signals_of_a_new_process() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # Python's default; main() changes it


def _exit_code_of_main() -> int:
    """Return the exit code as the interpreter would (`sys.exit`)."""
    try:
        importlib.import_module("aligntool.__main__").main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


def _memory() -> BinaryIO:
    """Return a file in memory."""
    return os.fdopen(os.memfd_create("run_aligntool"), "r+b")


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode()


def _input(text: str) -> BinaryIO:
    """Return the reading end of a pipe that contains the text and is closed at the other end."""
    content = text.encode()
    assert len(content) <= MOST_INPUT, "more than a pipe holds"
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, MOST_INPUT)
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(content)
    return os.fdopen(reading, "rb")


def _wait(pid: int, process: BinaryIO, argv: list[str], limit_s: float) -> int:
    """Return its exit code, negative for a signal as in subprocess. Raises if it takes too long."""
    ended = False
    try:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        ended = bool(poll.poll(limit_s * 1000))
    finally:
        if not ended:
            signal.pidfd_send_signal(process.fileno(), signal.SIGKILL)
        status = os.waitstatus_to_exitcode(_SERVER.ask({"ended": pid})[0])
    if not ended:
        raise subprocess.TimeoutExpired(argv, limit_s)
    return status


_MOST = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (FILES if _MOST < 0 else min(FILES, _MOST), _MOST))
_SERVER = _Server()
