"""Run aligntool as a user types it, to its end or as a process that can be killed.

A changed option has to be changed only here.
"""

import os
import select
import subprocess
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


def kill(process: subprocess.Popen[bytes]) -> int:
    """Kill it, and wait until its child process has ended too. Return its exit code."""
    movers = []
    with suppress(OSError):  # it has ended
        for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            with suppress(ProcessLookupError):
                movers.append(os.pidfd_open(int(pid)))
    process.kill()
    code = process.wait(timeout=60)
    for mover in movers:
        assert select.select([mover], [], [], 60)[0], "what moves for a program that was killed has to end"
        os.close(mover)
    return code
