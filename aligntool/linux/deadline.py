"""Look at disks that may never answer in child processes with a deadline.

A process that waits for a dead disk, bus or file server sleeps in the kernel where no signal reaches it
(state D). So this process never opens a disk: children do, one disk at a time, and a child that is silent for
too long is killed, abandoned and replaced. Nothing here waits for a child that may not end. Time in which a
child computes or waits for a processor does not count: a busy machine is not the disk's fault.
"""

import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar, cast

from aligntool.errors import Refused
from aligntool.linux.held import all_descriptors
from aligntool.linux.process_state import ProcessProgress, progress_of, state_of, waited_for
from aligntool.linux.signals import ENDING, interrupt_once

_CLEANUP_S = 1.0  # for a child to remove its temporary folders

T = TypeVar("T")

SILENCE_S = 10.0  # a disk that does not respond for this long is abandoned
IN_ALL = 3  # times SILENCE_S: the limit for a disk that responds, but slowly
AT_MOST = 30  # times SILENCE_S by the clock: a driver that spins uses processor time, too
PROGRESS_TIMEOUT_S = SILENCE_S + 2  # longer than the limit of optional programs, such as smartctl
SPIN_UP_S = 30.0  # the additional time for a sleeping drive (a large SAS drive in a full shelf: 20 s)
_NEW_CHILD_S = 0.25  # when every child has been busy for this long, the next disk gets a new one
_MOST_CHILDREN = 64
_BEAT = b"."
_PATIENCE = b"+"
_ANSWER = b"="
_LENGTH = 8


@dataclass(slots=True)
class Pulse:
    """Reports of a running job: that the disk responded, or that it may take longer than others."""

    descriptor: int = -1
    last: float = 0.0

    def beat(self) -> None:
        now = time.monotonic()
        if self.descriptor >= 0 and now - self.last > _NEW_CHILD_S:
            self.last = now
            os.write(self.descriptor, _BEAT)

    def request_more_time(self) -> None:
        if self.descriptor >= 0:
            os.write(self.descriptor, _PATIENCE)


SILENT = Pulse()  # for work in this process, which has no deadline


@dataclass(slots=True)
class _Child:
    """A child process that reads a disk, and the time since its last report."""

    pid: int
    orders: int  # the descriptor for the number of the next job
    answers: int  # the descriptor of its results; -1: closed
    job: int
    began: float
    heard: float
    started: float  # when the job began, by the clock; the two above exclude the time in which it ran
    spare: float = 0.0  # additional seconds that the job requested
    seen: float = 0.0  # when `ran` was read
    ran: str = ""  # the processor time that it has used, in the kernel's ticks
    received: bytearray = field(default_factory=bytearray)

    def late(self, now: float, silence_s: float) -> bool:
        limits = (self.heard + silence_s, self.began + IN_ALL * silence_s, self.started + AT_MOST * silence_s)
        return now > min(limits) + self.spare

    def extend_deadlines(self, now: float) -> None:
        """Extend the deadlines by the time since the last call, if the process ran or was runnable during
        it.
        """
        state, ran = state_of(self.pid)
        if state == "R" or ran != self.ran:
            passed = now - max(self.seen, self.began)
            self.began += passed
            self.heard = min(self.heard + passed, now)
        self.seen = now
        self.ran = ran


def results_in_children(
    jobs: Sequence[Callable[[Pulse], T]], silence_s: float = SILENCE_S, *, at_once: int = 0
) -> Iterator[tuple[int, T | None]]:
    """Yield the number and the result of each job as they end; None for a job that did not end in time.

    The jobs run in forked children, so they see this process as it is now and change nothing in it. An
    exception of a job is raised here. On a healthy machine one child runs all jobs. `at_once`: for jobs that
    compute, start this many children at once, and never more.
    """
    todo = list(range(len(jobs)))[::-1]
    children: list[_Child] = []
    idle: list[_Child] = []
    try:
        while todo or children:
            _assign_jobs(jobs, todo, children, idle, at_once)
            _receive(children)
            now = time.monotonic()
            for child in list(children):
                child.extend_deadlines(now)
                answer = _take_answer(child)
                if answer is None and child.answers >= 0 and not child.late(now, silence_s):
                    continue
                children.remove(child)
                job = child.job
                if answer is None or child.answers < 0:
                    _end_child(child, kill=True)
                else:
                    idle.append(child)
                yield job, cast(T, answer[0]) if answer else None
    except KeyboardInterrupt:
        _interrupt_children(children)
        raise
    finally:
        for child in children:
            _end_child(child, kill=True)
        for child in idle:
            _end_child(child, kill=False)


def result_in_child(job: Callable[[Pulse], T], silence_s: float = SILENCE_S) -> T | None:
    """Return the result of the job, or None if it did not end in time."""
    return next(answer for _, answer in results_in_children([job], silence_s))


def run_while_progressing(
    job: Callable[[], T], what: str = "a disk", silence_s: float = PROGRESS_TIMEOUT_S
) -> T:
    """Return the result of a job that may take hours: wait as long as it, or a program that it runs, makes
    progress. `what`: the name to report if the job has nothing open.

    Raises what the job raises, and Refused after `silence_s` without progress.
    """
    child = _start_child([lambda _: job()], 0)
    last_moves = ProcessProgress()
    last_move = time.monotonic()
    answer = None
    try:
        os.write(child.orders, bytes(_LENGTH))
        while not (answer := _take_answer(child)):
            if child.answers < 0:
                raise Refused("the process reading the disk was killed", hint="sudo dmesg")
            now = progress_of(child.pid)
            if now != last_moves or now.runs:
                last_moves = now
                last_move = time.monotonic()
            elif time.monotonic() > last_move + silence_s:
                what = next(waited_for(child.pid, now.programs), what)
                text = f"{what} did not answer within {silence_s:g} s"
                raise Refused(text, hint="sudo dmesg", code="no-answer", subject=what)
            _receive([child])
    except KeyboardInterrupt:
        _interrupt_children([child])
        raise
    finally:
        _end_child(child, kill=not answer)
    return cast(T, answer[0])


def _assign_jobs(
    jobs: Sequence[Callable[[Pulse], object]],
    todo: list[int],
    children: list[_Child],
    idle: list[_Child],
    at_once: int,
) -> None:
    now = time.monotonic()
    while todo:
        if idle:
            child = idle.pop()
            child.job = todo.pop()
            child.spare = 0.0
            child.began = child.heard = child.started = child.seen = now
        elif len(children) < (at_once or _MOST_CHILDREN) and (
            at_once or all(now - child.began > _NEW_CHILD_S for child in children)
        ):
            child = _start_child(jobs, todo.pop())
        else:
            return
        with suppress(BrokenPipeError):  # it is dead; `_receive` finds its end of the other pipe closed
            os.write(child.orders, child.job.to_bytes(_LENGTH, "little"))
        children.append(child)


def _start_child(jobs: Sequence[Callable[[Pulse], object]], job: int) -> _Child:
    child_orders, orders = os.pipe()
    answers, child_answers = os.pipe()
    # Block signals around the fork: otherwise Python may print a traceback of its own code.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    pid = os.fork()
    if pid == 0:
        _run_jobs(jobs, child_orders, child_answers, before)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(child_orders)
    os.close(child_answers)
    now = time.monotonic()
    return _Child(pid, orders, answers, job, now, now, now, seen=now)


def _run_jobs(
    jobs: Sequence[Callable[[Pulse], object]], orders: int, answers: int, unblocked: Iterable[int]
) -> None:
    """Run jobs in the child until there are no more. Never return. `unblocked`: the signals that are blocked
    then.
    """
    code = 1
    try:
        for each in ENDING:
            if signal.getsignal(each) != signal.SIG_IGN:  # as under nohup
                signal.signal(each, interrupt_once)
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        keep_only(orders, answers)
        pulse = Pulse(answers)
        while order := os.read(orders, _LENGTH):
            try:
                answer: tuple[object, BaseException | None] = (
                    jobs[int.from_bytes(order, "little")](pulse),
                    None,
                )
            except Exception as error:
                error.add_note(traceback.format_exc())
                answer = (None, error)
            content = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
            content = _ANSWER + len(content).to_bytes(_LENGTH, "little") + content
            while content:
                content = content[os.write(answers, content) :]
        code = 0
    finally:
        os._exit(code)


def keep_only(*kept: int) -> None:
    """Close all other descriptors, except of disks that are held: a child that hangs must not keep our output
    open, or a lock.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    last = min(os.sysconf("SC_OPEN_MAX"), 1 << 16)  # it can be 2^30, closed one by one before Linux 5.9
    for before, after in pairwise((2, *sorted({*kept, *all_descriptors()}), last)):
        os.closerange(before + 1, after)


def _receive(children: Sequence[_Child]) -> None:
    poll = select.poll()
    by_descriptor = {child.answers: child for child in children}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    for descriptor, _ in poll.poll(100):
        child = by_descriptor[descriptor]
        piece = os.read(descriptor, 1 << 20)  # the data available
        child.received += piece
        child.heard = time.monotonic()
        if not piece:  # it ended without a result
            os.close(descriptor)
            child.answers = -1


def _take_answer(child: _Child) -> tuple[object] | None:
    """Return the result as a tuple, or None if it is incomplete. Raises what the job raised."""
    received = child.received
    while received[:1] in (_BEAT, _PATIENCE):
        child.spare += SPIN_UP_S if received[:1] == _PATIENCE else 0.0
        del received[:1]
    start = 1 + _LENGTH
    end = start + int.from_bytes(received[1:start], "little")
    if len(received) < max(end, start + 1):  # a result has at least one byte
        return None
    answer, error = pickle.loads(received[start:end])
    del received[:end]
    if error is not None:
        raise error
    return (answer,)


def _interrupt_children(children: Iterable[_Child]) -> None:
    """Let children remove their temporary folders, for a moment; one that waits for a disk cannot."""
    deadline = time.monotonic() + _CLEANUP_S
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGTERM)
    for child in children:
        with suppress(ChildProcessError):
            while not os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if time.monotonic() > deadline:
                    return
                time.sleep(0.01)


def _end_child(child: _Child, *, kill: bool) -> None:
    """End a child. An idle child ends when its pipe is closed; a killed child is not waited for, because the
    signal may never reach it.
    """
    os.close(child.orders)
    if child.answers >= 0:
        os.close(child.answers)
    if kill:
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG if kill else 0)
