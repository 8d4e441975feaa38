"""Run a change in a child process, so that a disk that stops responding blocks only the child.

The child keeps the disk locked until its last request is answered, so no other move begins while one of its
requests may still be written. To the disk, killing the child is a power cut. docs/decisions/0045.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event as Flag
from threading import Lock, Thread
from types import FrameType
from typing import cast

from aligntool.change import ArrayPlan, ChangeState, Event, Plan, Said, Waiting, waiting_words
from aligntool.linux.applying import ChangeInProgress, apply_events
from aligntool.linux.child_process import STALL_S, Child, OnNote, child_process
from aligntool.linux.lock import inhibit_sleep
from aligntool.linux.signals import STOPPING

Locked = Callable[[OnNote], AbstractContextManager[ChangeInProgress]]
_Begun = tuple[str, ChangeState, str]  # the fields of ChangeInProgress that can be sent: hint, way, disk


@contextmanager
def apply_in_child(
    locked: Locked, plan: Plan, path: str, on_note: OnNote, *, stall_s: float = STALL_S
) -> Iterator[ChangeInProgress]:
    """Yield the ChangeInProgress of `locked`, whose events happen in a child process. The child waits until
    each event is consumed, so it stops if no more are consumed. Sleep and shutdown are inhibited while this
    process waits for it.

    Raises the exceptions of the child, and Killed.
    """
    drives = Path(path).is_block_device() or (isinstance(plan, ArrayPlan) and bool(plan.drives))
    with inhibit_sleep(f"changing {path}") if drives else nullcontext("") as note:
        if note:
            on_note(note)

        def work(connection: Connection) -> None:
            _ChildSide(connection, stall_s).act(locked, plan)

        with child_process(work, path, on_note, stall_s=stall_s) as child:
            hint, way, disk = _first_message(child)
            yield ChangeInProgress(_events(child), hint, child.stop, way, disk)


def _first_message(child: Child) -> _Begun:
    """Return the child's first message other than notes, which are passed on."""
    while not isinstance(message := child.receive(), tuple):
        if isinstance(message, Said):
            child.on_note(message.text)
        elif isinstance(message, Waiting) and not child.silent:
            child.on_note(". ".join(waiting_words(message)))
        child.silent = isinstance(message, Waiting)
    child.silent = False
    return cast(_Begun, message)


def _events(child: Child) -> Iterator[Event]:
    try:
        while (event := child.receive()) is not None:
            child.silent = isinstance(event, Waiting)
            if isinstance(event, Event):
                yield event
            if not child.silent:
                child.acknowledge()
    finally:
        child.end()


@dataclass(slots=True)
class _ChildSide:
    """The child's side: apply the plan, send its events, and report a disk that does not answer."""

    connection: Connection
    stall_s: float
    sending: Lock = field(default_factory=Lock)
    applying: ChangeInProgress | None = None
    over: Flag = field(default_factory=Flag)

    def act(self, locked: Locked, plan: Plan) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        try:
            with locked(lambda text: self._send(Said(text))) as applying:
                self._send((applying.hint, applying.way, applying.disk))
                self.applying = applying
                # Not before: looking and locking fork, and a process with threads is not safe to fork (0045).
                if applying.unanswered:
                    Thread(target=self._watch, args=(applying.unanswered,), daemon=True).start()
                # The cleanup of `locked` must know whether something was written.
                in_flight = applying.way is not ChangeState.BEGUN
                apply_events(
                    plan, applying, nullcontext(self._send_and_wait), lambda *_: None, in_flight=in_flight
                )
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # SIGTERM would interrupt the last message
            with self.sending:
                self.over.set()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.applying:
            self.applying.on_stop()
        raise KeyboardInterrupt

    def _send(self, message: Event | _Begun) -> None:
        with self.sending:
            self.connection.send(message)

    def _send_and_wait(self, event: Event) -> None:
        self._send(event)
        self.connection.recv()

    def _watch(self, unanswered: Callable[[], Waiting | None]) -> None:
        """Send Waiting every `stall_s` seconds while a disk leaves a request unanswered."""
        # they stay pending while the main thread blocks them, too
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        reported = 0.0
        while not self.over.wait(self.stall_s / 5):
            if time.monotonic() > reported + self.stall_s and (waiting := unanswered()):
                reported = time.monotonic()
                with self.sending:
                    if not self.over.is_set():
                        self.connection.send(waiting)
