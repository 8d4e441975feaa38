"""Run work on disks in a child process, so that a disk that stops responding does not block the parent.

A process that waits for a dead disk sleeps in the kernel, where no signal reaches it (state D). The parent,
which talks to the user, then kills the child and leaves it behind, so that no further request is sent to the
disk. docs/decisions/0045.
"""

import ctypes
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar, cast

from aligntool.change import Waiting, waiting_words
from aligntool.errors import Killed
from aligntool.linux.deadline import keep_only
from aligntool.linux.process_state import ProcessProgress, has_signal, progress_of, waited_for
from aligntool.linux.programs import how_ended
from aligntool.linux.signals import STOPPING

STALL_S = 5.0  # a request that takes longer is reported, repeatedly
_GRACE_S = 9.0  # for requests in progress when the work is stopped
_PAUSE_S = 0.5  # the same if the disk is already silent
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, <linux/prctl.h>

T = TypeVar("T")
OnNote = Callable[[str], object]
Work = Callable[[Connection], object]
Job = Callable[[Callable[..., None]], T]  # called with a function that reports its progress


@contextmanager
def child_process(work: Work, path: str, on_note: OnNote, *, stall_s: float = STALL_S) -> Iterator["Child"]:
    """Yield a child process that does this work and sends its result or exception as its last message.

    SIGTERM interrupts the child as Ctrl-C does. When the block ends, the child has ended or is left behind.
    `path` is the path of the disk.
    """
    parent = os.getpid()
    ours, theirs = Pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # until both processes can handle a signal
    pid = os.fork()
    if pid == 0:
        _run_child(work, theirs, parent, before)
    theirs.close()
    child = Child(pid, ours, path, on_note, stall_s)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield child
    finally:
        child.end()


def run_in_child(
    job: Job[T], path: str, tell: Callable[..., object], on_note: OnNote, *, stall_s: float = STALL_S
) -> T:
    """Run a long job on a disk in a child process and return its result. `tell` gets the values that the job
    reports.

    Waits for a disk that does not answer, and reports it. Ctrl-C interrupts the job, which may still return a
    result; if the disk is silent, Ctrl-C also ends the wait. Raises the exceptions of the job, and Killed.
    """

    with child_process(partial(_run_job, job), path, on_note, stall_s=stall_s) as child:
        noted = latest = 0  # seconds of silence: when last reported, and at the last message
        while True:
            try:
                message = child.receive()
                if isinstance(message, list):
                    return cast(T, message[0])
                child.silent = isinstance(message, Waiting)
                if isinstance(message, Waiting):
                    if child.stopped:
                        raise KeyboardInterrupt
                    if not noted <= message.seconds < 2 * noted or message.seconds < latest:
                        noted = message.seconds  # report a long silence at doubling intervals
                        on_note(f"{waiting_words(message)[0]}. Ctrl-C does not wait for it")
                    latest = message.seconds
                else:
                    noted = 0
                    tell(*cast(tuple[object, ...], message))
                    child.acknowledge()
            except KeyboardInterrupt:
                if child.stopped or child.silent:
                    raise
                child.stop()


def _run_job(job: Job[T], connection: Connection) -> list[T]:
    def report(*words: object) -> None:
        connection.send(words)
        connection.recv()

    return [job(report)]


@dataclass(slots=True)
class Child:
    """The child process as its parent sees it."""

    pid: int  # 0: it has ended, or was left behind
    connection: Connection
    path: str
    on_note: OnNote
    stall_s: float
    stopped: bool = False
    silent: bool = False  # a disk has not answered for some time
    seen: ProcessProgress = field(default_factory=ProcessProgress)  # the child's progress when last read
    since: float = 0.0  # when it last changed
    # a received message that Ctrl-C kept from being returned
    came: list[object] = field(default_factory=list)

    def receive(self) -> object:
        """Return the next message, or Waiting if the child makes no progress and cannot report it: while
        libparted waits for a disk it holds Python's global interpreter lock, so no thread of the child runs.
        """
        while not self.came and not self.connection.poll(self.stall_s):
            now = progress_of(self.pid)
            if now == self.seen and not now.runs:
                disk = next(waited_for(self.pid, now.programs), self.path)
                return Waiting(disk, "any", int(time.monotonic() - self.since))
            self.seen = now
            self.since = time.monotonic()
            self.silent = False
        self.seen = ProcessProgress()
        if not self.came:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
            try:
                self.came.append(self.connection.recv())
            except (EOFError, ConnectionError):
                code = self._reap()
                if self.stopped and code in (0, 1):  # interrupted while it was ending anyway
                    raise KeyboardInterrupt from None
                raise Killed(f"the process working on {self.path} {how_ended(code)}") from None
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)  # a pending Ctrl-C is raised here
        message = self.came.pop()
        if isinstance(message, BaseException):
            raise message
        return message

    def acknowledge(self) -> None:
        """Send the answer to a message for which the child waits."""
        with suppress(ConnectionError):  # the child has ended, which `receive` detects
            self.connection.send(None)

    def stop(self) -> None:
        """Stop the child by SIGTERM, once only, because its cleanup must not be interrupted."""
        if self.pid and not self.stopped:
            self.stopped = True
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def end(self) -> None:
        """Stop the child and wait for its end, or leave it behind. Wait for a program that shrinks a file
        system.
        """
        self.stop()
        deadline = time.monotonic() + (_PAUSE_S if self.silent else _GRACE_S)
        while self.pid:
            if select.select([self.connection], [], [], _PAUSE_S)[0]:
                left = b""
                with suppress(ConnectionError):
                    left = os.read(self.connection.fileno(), 1 << 16)
                if not left:
                    self._reap()
            elif has_signal(Path(f"/proc/{self.pid}"), "SigBlk", signal.SIGTERM):
                deadline = time.monotonic() + _GRACE_S
            elif time.monotonic() > deadline:
                self._leave_behind()
        self.connection.close()

    def _reap(self) -> int:
        """Return the exit code of the child; 0 if the caller of the API has children reaped elsewhere."""
        pid = self.pid
        self.pid = 0
        with suppress(ChildProcessError):
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return 0

    def _leave_behind(self) -> None:
        programs = progress_of(self.pid).programs
        disk = next(waited_for(self.pid, programs), self.path)
        pids = (self.pid, *programs)  # programs would keep running without it
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.on_note(
            f"{disk} has not answered a read or write: process {pids[-1]} waits for it and keeps the disk"
            " open until then. Nothing else is written"
        )
        self.pid = 0


def _run_child(work: Work, connection: Connection, parent: int, mask: Iterable[int]) -> NoReturn:
    """Run the work in the child process and exit. `mask`: the signals to block."""
    code = 1
    try:
        _end_with(parent)
        keep_only(connection.fileno())
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            result = work(connection)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        except BaseException as error:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            error.__notes__ = [traceback.format_exc()]  # it includes the existing notes
            result = error
        connection.send(result)
        code = 0
    finally:
        os._exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end_with(parent: int) -> None:
    """Make this process end when its parent ends for any reason; leave Ctrl-C on the terminal to the
    parent.
    """
    os.setsid()
    # it belongs to an event loop of the parent; the disk may soon get that descriptor
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if SIGCHLD is ignored, exit codes of programs are lost
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
