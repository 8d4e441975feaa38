"""Run the command line without starting an interpreter: `run_aligntool("audit", image)`.

A fork of the test process calls `aligntool.__main__.main` with standard streams of its own. It saves the start of an
interpreter and every import, and runs are as separate as processes are: working directory, environment, signal
handlers, locks and caches end with the fork, and a run that hangs is killed. A test whose subject is the process itself
(signals, closed streams, terminals, limits, another user) starts `program(...)`.
"""

import faulthandler
import fcntl
import gc
import importlib
import io
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

UNSET = ("COLUMNS", "LINES", "NO_COLOR")  # a terminal or a build server may have set them
LONGEST_S = 300
MOST_INPUT = 1 << 20
# Where a test runs several at once: a fork has a copy of the lock of a module that another thread imports, which nobody
# opens there.
_ALONE = threading.Lock()


def program(*words: str | Path) -> list[str]:
    """Return the command that starts aligntool in a process of its own."""
    return [sys.executable, "-m", "aligntool", *map(str, words)]


def run_aligntool(
    *words: str | Path,
    code: int | None = None,
    stdin: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    limit_s: float = LONGEST_S,
) -> subprocess.CompletedProcess[str]:
    """Return what aligntool printed and its exit code, which must be `code` where one is given.

    `env` is added to the environment of the tests.
    """
    argv = ["aligntool", *map(str, words)]
    with _input(stdin) as given, _memory() as out, _memory() as err, _memory() as loaded:
        streams = (given.fileno(), out.fileno(), err.fileno())
        with _ALONE:
            pid = os.fork()
        if pid == 0:
            _be_aligntool(argv, streams, loaded, cwd, env or {})
        status = _wait(pid, argv, limit_s)
        printed, complained, modules = _text(out), _text(err), _text(loaded)
    with _ALONE:
        _load(modules.split())
    assert code is None or status == code, f"{' '.join(argv)}: exit {status}\n{printed}{complained}"
    return subprocess.CompletedProcess(argv, status, printed, complained)


def _load(modules: list[str]) -> None:
    """Import what the program imported on its way, so that the next run finds it loaded."""
    for name in modules:
        with suppress(Exception):
            importlib.import_module(name)


def _be_aligntool(
    argv: list[str], streams: tuple[int, int, int], loaded: BinaryIO, cwd: Path | None, env: Mapping[str, str]
) -> NoReturn:
    """In the fork: become what a new process is, and run the program."""
    status = 1
    try:
        faulthandler.disable()
        gc.freeze()  # a file of the test that is collected here would close a number that is used again
        before = set(sys.modules)
        _take_streams(streams, loaded.fileno())
        _set_signals_of_a_new_process()
        for name in (*UNSET, *(name for name in os.environ if name.startswith("PYTEST_"))):
            os.environ.pop(name, None)
        os.environ.update(env)
        if cwd:
            os.chdir(cwd)
        sys.argv = argv
        status = _exit_code_of_main()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        loaded.write("\n".join(sorted(set(sys.modules) - before)).encode())
        loaded.flush()
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def _take_streams(streams: tuple[int, int, int], kept: int) -> None:
    """Make these the standard streams, and close all others but one."""
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
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python begins; main() changes it


def _exit_code_of_main() -> int:
    """Return what the interpreter would end with (`sys.exit`)."""
    try:
        importlib.import_module("aligntool.__main__").main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


def _memory() -> BinaryIO:
    """Return a file that lies in memory."""
    return os.fdopen(os.memfd_create("run_aligntool"), "r+b")


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode()


def _input(text: str) -> BinaryIO:
    """Return the reading end of a pipe that holds the text and is closed at its other end."""
    content = text.encode()
    assert len(content) <= MOST_INPUT, "more than a pipe holds"
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, MOST_INPUT)
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(content)
    return os.fdopen(reading, "rb")


def _wait(pid: int, argv: list[str], limit_s: float) -> int:
    """Return its exit code, negative for a signal as in subprocess. Raise where it takes too long."""
    ended = False
    with os.fdopen(os.pidfd_open(pid), "rb") as process:
        try:
            poll = select.poll()
            poll.register(process, select.POLLIN)
            ended = bool(poll.poll(limit_s * 1000))
        finally:
            if not ended:
                os.kill(pid, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not ended:
        raise subprocess.TimeoutExpired(argv, limit_s)
    return status
