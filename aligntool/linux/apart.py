"""A child process that works on disks, and its parent, which a disk that does not answer does not hold.

A process that waits for a dead disk sleeps in the kernel, where no signal reaches it (state D). Whoever talks to the
user leaves it behind then, and kills it, so that nothing else is asked of the disk. docs/decisions/0045.
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
from aligntool.errors import Refused
from aligntool.linux.process import STOPPING, Moves, has_signal, how_ended, keep_only, moves_of, waited_for

STALL_S = 5.0  # a request that takes longer is reported, again and again
_GRACE_S = 9.0  # for what is under way when the work is stopped
_PAUSE_S = 0.5  # the same where a disk is silent already
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, <linux/prctl.h>

T = TypeVar("T")
OnNote = Callable[[str], object]
Work = Callable[[Connection], object]


class Killed(Refused):
    """The child ended without a word, so nobody knows what it had done by then."""


@contextmanager
def working(work: Work, path: str, on_note: OnNote, *, stall_s: float = STALL_S) -> Iterator["Child"]:
    """Yield a child that does this work, and sends what it returns or raises as its last message. SIGTERM interrupts
    it, as Ctrl-C does. When the block ends, so does the child, or it is left behind. `path`: of the disk.
    """
    parent = os.getpid()
    ours, theirs = Pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # until both know what to do then
    pid = os.fork()
    if pid == 0:
        _work(work, theirs, parent, before)
    theirs.close()
    child = Child(pid, ours, path, on_note, stall_s)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield child
    finally:
        child.end()


def answer_apart(
    job: Callable[[Callable[..., None]], T],
    path: str,
    tell: Callable[..., object],
    on_note: OnNote,
    *,
    stall_s: float = STALL_S,
) -> T:
    """Return what a job returns that works on a disk for long, in a child; `tell` gets what the job tells meanwhile.

    A disk that does not answer is waited for, and reported. Ctrl-C interrupts the job, which may still return something
    then; a disk that is silent is not waited for any more. Raises what the job raises, and Killed.
    """

    with working(partial(_answer, job), path, on_note, stall_s=stall_s) as child:
        noted = latest = 0  # seconds of silence: that were reported, and that there were
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
                        noted = message.seconds  # ever fewer of a long silence
                        on_note(f"{waiting_words(message)[0]}. Ctrl-C does not wait")
                    latest = message.seconds
                else:
                    noted = 0
                    tell(*cast(tuple[object, ...], message))
                    child.go_on()
            except KeyboardInterrupt:
                if child.stopped or child.silent:
                    raise
                child.stop()


def _answer(job: Callable[[Callable[..., None]], T], connection: Connection) -> list[T]:
    def told(*words: object) -> None:
        connection.send(words)
        connection.recv()

    return [job(told)]


@dataclass(slots=True)
class Child:
    """The child as its parent sees it."""

    pid: int  # 0: it has ended, or was left behind
    connection: Connection
    path: str
    on_note: OnNote
    stall_s: float
    stopped: bool = False
    silent: bool = False  # a disk has not answered for some time
    seen: Moves = field(default_factory=Moves)  # what moved when it was last looked at, and since when nothing does
    since: float = 0.0
    came: list[object] = field(default_factory=list)  # a message that Ctrl-C kept from being returned

    def receive(self) -> object:
        """The next message; that the disk is waited for, where the child gets nowhere and cannot report it: what waits
        in libparted has Python's lock, so no thread of the child runs.
        """
        while not self.came and not self.connection.poll(self.stall_s):
            if (now := moves_of(self.pid)) == self.seen and not now.runs:
                disk = next(waited_for(self.pid, now.programs), self.path)
                return Waiting(disk, "any", int(time.monotonic() - self.since))
            self.seen, self.since, self.silent = now, time.monotonic(), False
        self.seen = Moves()
        if not self.came:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
            try:
                self.came.append(self.connection.recv())
            except (EOFError, ConnectionError):
                code = self._reap()
                if self.stopped and code in (0, 1):  # interrupted where it ended anyway
                    raise KeyboardInterrupt from None
                raise Killed(f"the process that works on {self.path} {how_ended(code)}") from None
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)  # a Ctrl-C that waited is raised here
        message = self.came.pop()
        if isinstance(message, BaseException):
            raise message
        return message

    def go_on(self) -> None:
        """Answer a message for which the child waits."""
        with suppress(ConnectionError):  # it has ended, which is noticed above
            self.connection.send(None)

    def stop(self) -> None:
        """Have it stop; once, because what puts things in order there must not be interrupted again."""
        if self.pid and not self.stopped:
            self.stopped = True
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def end(self) -> None:
        """Wait until it has ended, or leave it behind. A program that shrinks a file system is waited for."""
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
                self._leave()
        self.connection.close()

    def _reap(self) -> int:
        """Return the code that it ended with; 0 where the caller of the API has its children reaped by others."""
        pid, self.pid = self.pid, 0
        with suppress(ChildProcessError):
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return 0

    def _leave(self) -> None:
        programs = moves_of(self.pid).programs
        disk = next(waited_for(self.pid, programs), self.path)
        pids = (self.pid, *programs)  # programs would go on by themselves
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.on_note(
            f"{disk} has a read or write under way that it does not answer: process {pids[-1]} waits for that and"
            " keeps the disk open until then. Nothing else is written"
        )
        self.pid = 0


def _work(work: Work, connection: Connection, parent: int, mask: Iterable[int]) -> NoReturn:
    """Be the child, to the end. `mask`: the signals to be blocked."""
    code = 1
    try:
        _belong_to(parent)
        keep_only(connection.fileno())
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            end = work(connection)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        except BaseException as error:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            error.__notes__ = [traceback.format_exc()]  # which has those that there were
            end = error
        connection.send(end)
        code = 0
    finally:
        os._exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _belong_to(parent: int) -> None:
    """End with the parent, however that ends, and leave Ctrl-C on the terminal to it."""
    os.setsid()
    signal.set_wakeup_fd(-1)  # of an event loop of the parent: that number may soon be the disk's
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else nobody learns how a program ended
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
