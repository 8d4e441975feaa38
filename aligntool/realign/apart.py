"""Let a move happen in a process of its own, so that a disk that does not answer holds that one and nothing else.

A process that waits for a dead disk sleeps in the kernel, where no signal reaches it (state D). Whoever talks to the
user leaves it behind then. It has the disk locked until the last of its requests is answered, so no other move begins
while one of them may still be written, and it is killed: to the disk this is a power cut. docs/decisions/0045.
"""

import ctypes
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from threading import Event as Flag
from threading import Lock, Thread
from types import FrameType
from typing import NoReturn

from aligntool.change import Event, Moment, Plan, Said, Waiting, waiting_words
from aligntool.errors import Refused
from aligntool.linux.lock import awake
from aligntool.linux.process import STOPPING, Moves, has_signal, how_ended, keep_only, moves_of, waited_for
from aligntool.realign.applying import Applying, apply_events
from aligntool.steps import DriveStep

STALL_S = 5.0  # a request that takes longer is reported, again and again
_GRACE_S = 9.0  # for what is under way when the work is stopped
_PAUSE_S = 0.5  # the same where a disk is silent already
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, <linux/prctl.h>

OnNote = Callable[[str], object]
Locked = Callable[[OnNote], AbstractContextManager[Applying]]
_Begun = tuple[str, Moment, str]  # of Applying, what can be sent
_Message = Event | _Begun | BaseException | None


@contextmanager
def apart(locked: Locked, plan: Plan, path: str, on_note: OnNote, *, stall_s: float = STALL_S) -> Iterator[Applying]:
    """Yield what `locked` yields, in a child: it goes on when an event is taken, so it stops where no more are taken.
    Sleep and shutdown are inhibited as long as it is waited for.

    Raises what is raised in the child, and Refused where it was killed.
    """
    drives = Path(path).is_block_device() or any(isinstance(step, DriveStep) for step in plan.steps)
    with awake(f"changing {path}") if drives else nullcontext("") as note:
        if note:
            on_note(note)
        parent = os.getpid()
        ours, theirs = Pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # until both know what to do then
        pid = os.fork()
        if pid == 0:
            _Act(theirs, path, stall_s).act(locked, plan, parent, before)
        theirs.close()
        mover = _Mover(pid, ours, path, on_note, stall_s)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            hint, way, disk = mover.begun()
            yield Applying(mover.events(), hint, mover.stop, way, disk)
        finally:
            mover.end()


@dataclass(slots=True)
class _Mover:
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

    def begun(self) -> _Begun:
        """Return what it began with, after its notes."""
        while not isinstance(message := self._receive(), tuple):
            if isinstance(message, Said):
                self.on_note(message.text)
            elif isinstance(message, Waiting) and not self.silent:
                self.on_note(". ".join(waiting_words(message)))
            self.silent = isinstance(message, Waiting)
        self.silent = False
        return message

    def events(self) -> Iterator[Event]:
        try:
            while (event := self._receive()) is not None:
                self.silent = isinstance(event, Waiting)
                if not isinstance(event, tuple):
                    yield event
                if not self.silent:
                    with suppress(ConnectionError):  # it has ended, which is noticed above
                        self.connection.send(None)
        finally:
            self.end()

    def _receive(self) -> Event | _Begun | None:
        """The next message; that the disk is waited for, where the child gets nowhere and cannot report it: what waits
        in libparted has Python's lock, so no thread of the child runs.
        """
        while not self.connection.poll(self.stall_s):
            if (now := moves_of(self.pid)) == self.seen and not now.runs:
                disk = next(waited_for(self.pid, now.programs), self.path)
                return Waiting(disk, "any", int(time.monotonic() - self.since))
            self.seen, self.since = now, time.monotonic()
        self.seen = Moves()
        try:
            message: _Message = self.connection.recv()
        except (EOFError, ConnectionError):
            raise Refused(f"the process that works on {self.path} {how_ended(self._reap())}") from None
        if isinstance(message, BaseException):
            raise message
        return message

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
        for pid in (self.pid, *programs):  # which would go on by themselves
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.on_note(
            f"{disk} has a read or write under way that it does not answer: process {pid} waits for that and"
            " keeps the disk locked until then. Nothing else is written"
        )
        self.pid = 0


@dataclass(slots=True)
class _Act:
    """The child: what it does, and reports."""

    connection: Connection
    path: str
    stall_s: float
    sending: Lock = field(default_factory=Lock)
    applying: Applying | None = None
    over: Flag = field(default_factory=Flag)

    def act(self, locked: Locked, plan: Plan, parent: int, mask: Iterable[int]) -> NoReturn:
        """Do it all, to the end. `mask`: the signals to be blocked."""
        end: _Message = None
        code = 1
        try:
            _belong_to(parent)
            keep_only(self.connection.fileno())
            signal.signal(signal.SIGTERM, self._stop)
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                Thread(target=self._watch, daemon=True).start()
                with locked(lambda text: self._send(Said(text))) as applying:
                    self._send((applying.hint, applying.way, applying.disk))
                    self.applying = applying
                    # What undoes `locked` has to know whether something was written.
                    in_flight = applying.way is not Moment.BEGUN
                    apply_events(plan, applying, nullcontext(self._take), lambda *_: None, in_flight=in_flight)
            except BaseException as error:
                error.__notes__ = [traceback.format_exc()]  # which has those that there were
                end = error
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.over.set()
            self._send(end)
            code = 0
        finally:
            os._exit(code)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.applying:
            self.applying.on_stop()
        raise KeyboardInterrupt

    def _send(self, message: _Message) -> None:
        with self.sending:
            self.connection.send(message)

    def _take(self, event: Event) -> None:
        self._send(event)
        self.connection.recv()

    def _watch(self) -> None:
        """Report in the meantime what a disk has not answered."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # while the main thread blocks them, too, they wait
        told = 0.0
        while not self.over.wait(self.stall_s / 5):
            asked = self.applying.unanswered if self.applying else None
            if asked and time.monotonic() > told + self.stall_s and (waiting := asked()):
                told = time.monotonic()
                self._send(waiting)


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
