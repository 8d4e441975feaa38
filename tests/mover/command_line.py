"""Run aligntool as a user types it, to its end or as a process that can be killed.

A changed option has to be changed only here.
"""

import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from tests.run_aligntool import program, run_aligntool

DONE, REFUSED, STOPPED = 0, 3, 4  # docs/cli.md, "Exit codes"
LONGEST_S = 300


def aligntool(*words: str | Path, code: int | None = DONE) -> str:
    """Return all its output; `code` is the expected exit code, None: any."""
    done = run_aligntool(*words, limit_s=LONGEST_S)
    said = f"{' '.join(str(word) for word in words)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    assert code is None or done.returncode == code, said
    return said


def realign(disk: Path, *options: str, code: int | None = DONE) -> str:
    return aligntool("realign", disk, "--yes", "--not-suspended", *options, code=code)


def resume(disk: Path, *options: str, code: int | None = DONE) -> str:
    return aligntool("resume", disk, "--yes", *options, code=code)


def rollback(disk: Path, *options: str, code: int | None = DONE) -> str:
    return aligntool("rollback", disk, "--yes", *options, code=code)


def exit_code(said: str) -> int:
    """Return the exit code of the functions above."""
    return int(said.splitlines()[0].rpartition("exit ")[2])


def begin(*words: str | Path, errors: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start it in the background, without reading its output. `errors`: a file for its stderr."""
    quiet = subprocess.DEVNULL
    return subprocess.Popen(program(*words), stdin=quiet, stdout=quiet, stderr=errors or quiet)


def wait_for_child(process: subprocess.Popen[bytes], name: str) -> int:
    """Wait until a program of this name runs that the process, or a child of it, has started; return its number."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None
        programs = {number: each for number, each in _running()}
        for number, (parent, word) in programs.items():
            while parent != process.pid and parent in programs:
                parent = programs[parent][0]
            if word == name and parent == process.pid:
                return number
        time.sleep(0.02)
    raise AssertionError(f"{name} was not started")


def _running() -> Iterator[tuple[int, tuple[int, str]]]:
    """Yield each process with its parent and its name (proc(5), stat)."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            head, _, fields = file.read_text(errors="replace").rpartition(") ")
            number, _, name = head.partition(" (")
            yield int(number), (int(fields.split()[1]), name)


def kill(process: subprocess.Popen[bytes]) -> int:
    """Kill it, and wait until its child process has ended too. Return its exit code."""
    movers = []
    with suppress(OSError):  # it has ended
        for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            with suppress(ProcessLookupError):
                movers.append(os.pidfd_open(int(pid)))
    process.kill()
    code = process.wait(timeout=300)
    for mover in movers:
        assert select.select([mover], [], [], 60)[0], "what moves for a program that was killed has to end"
        os.close(mover)
    return code
