"""Running a command while blktrace records what a disk is asked.

In: a device, a command, a folder for the log. Out: the log as text of blkparse, how the command ended, what was lost.
Alone because two programs run beside each other, and however it ends (Ctrl-C, a signal, an error) neither is left
behind: a trace that nobody ends goes on in the kernel.
"""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from aligntool.apply.programs import find_program
from aligntool.apply.trace_log import LOG
from aligntool.errors import Refused

_PREFIX = "trace"
_TICK_S = 0.05
_STEADY_S = 0.3  # so long no further file of the kernel is opened: all of blktrace's threads are at work
_START_S = 60.0
_STOP_S = 60.0
_PATIENCE_S = 5.0  # between one signal and the next, stronger one
_OPENED = re.compile(r"/block/.+/trace\d+$")
_DROPPED = re.compile(r"dropped (\d+)\)")
_LOCKED = "/Operation not permitted"
_BUSY = "/Device or resource busy"


@dataclass(slots=True)
class Recorded:
    """How it went."""

    text: Path  # of blkparse
    code: int = 0  # the command's; of a signal N, 128 + N, as shells have it
    seconds: float = 0.0
    interrupted: bool = False
    dropped: int = 0  # events that the kernel had no room for
    complaint: str = ""  # what else blktrace said is wrong


def record(
    device: str, debugfs: str, command: Sequence[str], folder: Path, *, output: int | None = None
) -> Recorded:
    """Runs the command to its end, with the terminal's input and output, while the device is traced. `output`: the
    descriptor that gets the command's standard output instead.

    Raises Refused where blktrace cannot start, before the command runs, and where the log cannot be read afterwards.
    """
    recorded = Recorded(folder / LOG)
    with _tracing(device, debugfs, folder, recorded):
        began = time.monotonic()
        recorded.code, recorded.interrupted = _run(command, output)
        recorded.seconds = time.monotonic() - began
    _to_text(folder, recorded.text)
    return recorded


@contextmanager
def _tracing(device: str, debugfs: str, folder: Path, recorded: Recorded) -> Iterator[None]:
    """blktrace is at work inside, and has ended, with its last events written, after it."""
    blktrace = find_program("blktrace") or "blktrace"
    words: tuple[str, ...] = (blktrace, "-d", device, "-r", debugfs, "-D", str(folder), "-o", _PREFIX)
    setpriv = find_program("setpriv")
    if setpriv is not None:  # it ends as after Ctrl-C, even when we are killed
        words = (setpriv, "--pdeathsig", "INT", *words)
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as summary:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=summary, stderr=said, start_new_session=True,
            env=os.environ | {"LC_ALL": "C"},
        )  # fmt: skip
        ready = False
        try:
            _until_ready(child, said, device)
            ready = True
            yield
        finally:
            _stop(child, device, ready=ready)
            recorded.dropped = sum(map(int, _DROPPED.findall(_read(summary))[-1:]))
            recorded.complaint = " / ".join(_read(said).split("\n")).strip(" /")


def _until_ready(child: "subprocess.Popen[bytes]", said: IO[bytes], device: str) -> None:
    """It says nothing when it has begun: each of its threads then has the kernel's file of one processor open."""
    began = time.monotonic()
    opened, since = 0, began
    while not opened or time.monotonic() - since < _STEADY_S:
        failed = "FAILED" in _read(said)
        if child.poll() is not None or failed or time.monotonic() - began > _START_S:
            raise _not_started(_read(said), device)
        now = _files_open(child.pid)
        if now != opened:
            opened, since = now, time.monotonic()
        time.sleep(_TICK_S)


def _files_open(pid: int) -> int:
    found = 0
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            found += bool(_OPENED.search(str(link.readlink())))
        except OSError:
            continue
    return found


def _not_started(said: str, device: str) -> Refused:
    if _LOCKED in said:
        return Refused(
            "the kernel lets not even root trace a disk: it is locked down, as with Secure Boot",
            hint="man 7 kernel_lockdown; record on another machine, or without Secure Boot",
        )
    if _BUSY in said:
        return Refused(
            f"{device} is being traced already",
            hint=f"if nobody needs that trace: sudo blktrace -k -d {device}",
        )
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return Refused(f"blktrace did not start on {device}: {' / '.join(lines[:2]) or 'it says nothing'}")


def _stop(child: "subprocess.Popen[bytes]", device: str, *, ready: bool) -> None:
    """It writes down what it still has; where it hangs it is killed, and the kernel told to end the trace."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
    try:
        child.wait(_STOP_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        child.kill()
        child.wait()
    if ready and child.returncode:
        words = (find_program("blktrace") or "blktrace", "-k", "-d", device)
        subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def _run(command: Sequence[str], output: int | None) -> tuple[int, bool]:
    """Its exit code, and whether it was interrupted. Raises Refused where it cannot be started."""
    try:
        child = subprocess.Popen(command, stdout=output)
    except (OSError, ValueError) as error:
        raise Refused(
            f"{command[0]} cannot be started: {getattr(error, 'strerror', None) or error}"
        ) from error
    interrupted = False
    try:
        child.wait()
    except KeyboardInterrupt:
        interrupted = True
        _end(child)
    return (child.returncode if child.returncode >= 0 else 128 - child.returncode), interrupted


def _end(child: "subprocess.Popen[bytes]") -> None:
    """The terminal has told it as well, so it gets a while before it is told again; a second Ctrl-C waits no longer."""
    try:
        for number in (None, signal.SIGINT, signal.SIGTERM):
            if number is not None:
                child.send_signal(number)
            try:
                child.wait(_PATIENCE_S if number else 1.0)
            except subprocess.TimeoutExpired:
                continue
            return
    except KeyboardInterrupt:
        pass
    child.kill()
    child.wait()


def _to_text(folder: Path, text: Path) -> None:
    """The files of all processors as one, in the order of time. Raises Refused."""
    words = (find_program("blkparse") or "blkparse", "-q", "-i", _PREFIX, "-o", text.name)
    done = subprocess.run(
        words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False,
        env=os.environ | {"LC_ALL": "C"},
    )  # fmt: skip
    if done.returncode or not text.exists():
        said = done.stderr.decode("utf-8", "replace").strip()
        raise Refused(f"blkparse ended with {done.returncode} on what blktrace wrote: {said}")


def _read(said: IO[bytes]) -> str:
    """What it said until now; where it writes next stays as it is, because both share one position."""
    return os.pread(said.fileno(), 1 << 16, 0).decode("utf-8", "replace")
