"""Run other programs, and look at disks in child processes with a deadline."""

import os
import pickle
import select
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn, TypeVar, cast

from aligntool.errors import Refused, Stopped
from aligntool.linux.held import all_descriptors
from aligntool.linux.sysfs import live_paths

NOT_RUN = 1000  # an exit code is at most 255
# Packages whose names are not those of their programs
PACKAGES = {
    "nvme": "nvme-cli",
    "blkid": "util-linux",
    "mkfs.xfs": "xfsprogs",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.btrfs": "btrfs-progs (openSUSE: btrfsprogs)",
    "mkfs.fat": "dosfstools",
    "mkswap": "util-linux",
    "sfdisk": "fdisk (others: util-linux)",
    "update-initramfs": "initramfs-tools",
    "unmkinitramfs": "initramfs-tools-core",
    "lsinitrd": "dracut",
    "lsinitcpio": "mkinitcpio",
    "qemu-img": "qemu-utils (Fedora, Arch: qemu-img, openSUSE: qemu-tools)",
    "qemu-storage-daemon": "qemu-utils or qemu-system-common (Fedora: qemu-img, openSUSE: qemu-tools)",
    "xz": "xz-utils (others: xz)",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "rsvg-convert": "librsvg2-bin (Fedora: librsvg2-tools, openSUSE: rsvg-convert, Arch: librsvg)",
}
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
ENDING = STOPPING[:3]  # those that end a command as Ctrl-C does; SIGQUIT ends it at once
_CLEANUP_S = 1.0  # for a child to remove its temporary folders
_SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"  # missing in a plain user's PATH
_MAX_MESSAGE = 1500  # characters of a program's last output
_KILL_GRACE_S = 1.0
_TERMINATE_S = 4.0
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Ended:
    """The exit code and the output of a program."""

    code: int  # negative: the signal that terminated it; NOT_RUN: not started, or not ended in time
    stdout: bytes
    stderr: bytes

    @property
    def output(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def errors(self) -> str:
        return self.stderr.decode("utf-8", "replace")

    @property
    def last_words(self) -> str:
        """Return the end of the output as one line."""
        return " / ".join(self._lines())[-_MAX_MESSAGE:]

    @property
    def last_lines(self) -> str:
        """Return the last three lines that are not blank as one line."""
        return " / ".join(self._lines()[-3:])

    def _lines(self) -> list[str]:
        return [line.strip() for line in f"{self.output}\n{self.errors}".splitlines() if line.strip()]


def find_program(name: str) -> str | None:
    """Return the path of a program, also in the sbin folders, or None if it is not installed."""
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + _SBIN)


_inherited: set[int] = set()


@contextmanager
def inherited(descriptor: int) -> Iterator[None]:
    """Let programs that write inherit this descriptor and its locks: one of them may outlive aligntool."""
    _inherited.add(descriptor)
    try:
        yield
    finally:
        _inherited.discard(descriptor)


def run_program(
    *words: str,
    only_reads: bool = False,
    limit_s: float | None = None,
    output: IO[str] | None = None,
    stdin: bytes = b"",
    pass_fds: tuple[int, ...] = (),
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    before_exec: Callable[[], None] | None = None,
) -> Ended:
    """Run a program to its end, in the C locale. Raises Refused if it cannot be started.

    Its output goes into a file: a program that writes to a disk must not be killed by a pipe without a reader.

    `only_reads`: the program ends when aligntool is killed; if it cannot be started the code is NOT_RUN.
    `limit_s`: terminate it after this time, with NOT_RUN. `output`: a file for its output, to be read line by line.
    `before_exec`: called in the child; it also ends the program when aligntool is killed (see linux/confined.py).
    """
    program = find_program(words[0])
    if program is None:
        package = PACKAGES.get(words[0], words[0])
        return _not_run(f"{words[0]} is not installed", f"install the package {package}", only_reads)
    with _memory_file(stdin) as source, _memory_file() as printed, _memory_file() as errors:
        try:
            child = subprocess.Popen(  # in its own session, so that Ctrl-C on the terminal does not reach it
                (*(pdeathsig_prefix("KILL") if only_reads and not before_exec else ()), program, *words[1:]),
                stdin=source, stdout=output or printed, stderr=errors, cwd=folder,
                pass_fds=pass_fds if only_reads else (*pass_fds, *_inherited),
                env={**os.environ, "LC_ALL": "C", **(environment or {})}, start_new_session=not only_reads,
                preexec_fn=before_exec,
            )  # fmt: skip
        except OSError as error:
            return _not_run(f"{words[0]} cannot be started: {error.strerror}", "", only_reads)
        if not _wait(child, limit_s, only_reads=only_reads):
            return Ended(NOT_RUN, b"", f"{words[0]} did not finish within {limit_s:g} s".encode())
        for file in (output or printed, errors):
            file.seek(0)
        return Ended(child.returncode, printed.read(), errors.read())


def _memory_file(content: bytes = b"") -> IO[bytes]:
    """Return a file in memory, never on a disk: the input of a program may be a key, and its output would be cut off if
    the disk is full.
    """
    file = os.fdopen(os.memfd_create("aligntool"), "w+b")
    file.write(content)
    file.seek(0)
    return file


def follow_program(*words: str, stdin: bytes, pass_fds: tuple[int, ...]) -> Iterator[str | Ended]:
    """Run a program that writes to a disk under its own journal: yield each line of its output, and then how it ended.

    If the caller stops the iteration or dies, the program gets SIGINT, which it must treat as a request to stop.
    Raises Refused if it cannot be started.
    """
    program = find_program(words[0])
    if program is None:
        raise Refused(f"{words[0]} is not installed", hint=f"install the package {PACKAGES.get(words[0], words[0])}")
    with _memory_file(stdin) as source, _memory_file() as printed, _memory_file() as errors:
        child = subprocess.Popen(
            (*pdeathsig_prefix("INT"), program, *words[1:]), stdin=source, stdout=printed, stderr=errors,
            pass_fds=(*pass_fds, *_inherited), env={**os.environ, "LC_ALL": "C"}, start_new_session=True,
        )  # fmt: skip
        try:
            offset, code = 0, None
            while code is None:
                code = child.poll()
                text = os.pread(printed.fileno(), 1 << 20, offset)
                lines, newline, _ = text.rpartition(b"\n")
                offset += len(lines + newline)
                yield from lines.decode("utf-8", "replace").splitlines()
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_PAUSE_S)
            errors.seek(0)
            yield Ended(child.returncode, text, errors.read())
        finally:
            child.send_signal(signal.SIGINT)  # none if it has ended
            child.wait()


def run_or_stop(*words: str) -> Ended:
    """Run a program. Raises Stopped with its last output unless it exits with 0."""
    ended = run_program(*words)
    if ended.code:
        raise Stopped(f"{words[0]} {how_ended(ended.code)}: {ended.last_words or 'no error message'}")
    return ended


def how_ended(code: int) -> str:
    """Return "failed with exit code 1" or "was killed by SIGKILL"."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"


def export_values(text: str) -> dict[str, str]:
    """Parse KEY=value lines, as `mdadm --export` and `blkid -o export` print them."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def pdeathsig_prefix(signal_name: str) -> tuple[str, ...]:
    """Return a prefix for a command that sends it this signal when aligntool is killed, or () if not possible."""
    setpriv = find_program("setpriv")
    return (setpriv, "--pdeathsig", signal_name) if setpriv else ()


def _not_run(why: str, hint: str, only_reads: bool) -> Ended:
    if only_reads:
        return Ended(NOT_RUN, b"", why.encode())
    raise Refused(why, hint=hint)


def _wait(child: "subprocess.Popen[bytes]", limit_s: float | None, *, only_reads: bool) -> bool:
    """Wait for the end of a program; False if it was terminated after `limit_s`."""
    try:
        child.wait(limit_s)
    except BaseException as error:  # Ctrl-C, for one
        kill_or_abandon(child) if only_reads else end_program(child, signal.SIGTERM, _TERMINATE_S)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return False
    return True


def end_program(child: "subprocess.Popen[bytes]", number: signal.Signals, grace_s: float) -> None:
    """End a program with its own session, and the programs that it runs, by a signal. Kill them if it still runs after
    this time, or upon Ctrl-C.
    """
    with suppress(subprocess.TimeoutExpired, ProcessLookupError, KeyboardInterrupt):
        if child.poll() is None:  # afterwards its number may be that of another program
            os.killpg(child.pid, number)
            child.wait(grace_s)
        return
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    kill_or_abandon(child, _TERMINATE_S)


def kill_or_abandon(child: "subprocess.Popen[bytes]", grace_s: float = _KILL_GRACE_S) -> None:
    """Kill a program. Abandon it if a dead disk blocks it in the kernel: it later ends without doing anything else."""
    child.kill()
    with suppress(subprocess.TimeoutExpired):
        child.wait(grace_s)
    child.returncode = child.returncode or NOT_RUN  # for Popen, which would warn that it still runs


# Work on disks that may never respond runs in child processes with a deadline.
#
# A process that waits for a dead disk, bus or file server sleeps in the kernel where no signal reaches it (state D). So
# this process never opens a disk: children do, one disk at a time, and a child that is silent for too long is killed,
# abandoned and replaced. Nothing here waits for a child that may not end. Time in which a child computes or waits for a
# processor does not count: a busy machine is not the disk's fault.

T = TypeVar("T")

SILENCE_S = 10.0  # a disk that does not respond for this long is abandoned
IN_ALL = 3  # times SILENCE_S: the limit for a disk that responds, but slowly
AT_MOST = 30  # times SILENCE_S by the clock: a driver that spins uses processor time, too
PROGRESS_TIMEOUT_S = SILENCE_S + 2  # longer than the limit of optional programs, such as smartctl
SPIN_UP_S = 30.0  # the additional time for a sleeping drive (a large SAS drive in a full shelf: 20 s)
_NEW_CHILD_S = 0.25  # when every child has been busy for this long, the next disk gets a new one
_MOST_CHILDREN = 64
_BEAT, _PATIENCE, _ANSWER = b".", b"+", b"="
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
        """Extend the deadlines by the time since the last call, if the process ran or was runnable during it."""
        state, ran = _state_of(self.pid)
        if state == "R" or ran != self.ran:
            passed = now - max(self.seen, self.began)
            self.began, self.heard = self.began + passed, min(self.heard + passed, now)
        self.seen, self.ran = now, ran


def results_in_children(
    jobs: Sequence[Callable[[Pulse], T]], silence_s: float = SILENCE_S, *, at_once: int = 0
) -> Iterator[tuple[int, T | None]]:
    """Yield the number and the result of each job as they end; None for a job that did not end in time.

    The jobs run in forked children, so they see this process as it is now and change nothing in it. An exception of a
    job is raised here. On a healthy machine one child runs all jobs. `at_once`: for jobs that compute, start this many
    children at once, and never more.
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


def run_while_progressing(job: Callable[[], T], what: str = "a disk", silence_s: float = PROGRESS_TIMEOUT_S) -> T:
    """Return the result of a job that may take hours: wait as long as it, or a program that it runs, makes progress.
    `what`: the name to report if the job has nothing open.

    Raises what the job raises, and Refused after `silence_s` without progress.
    """
    child = _start_child([lambda _: job()], 0)
    last_moves, last_move, answer = ProcessProgress(), time.monotonic(), None
    try:
        os.write(child.orders, bytes(_LENGTH))
        while not (answer := _take_answer(child)):
            if child.answers < 0:
                raise Refused("the process reading the disk was killed", hint="sudo dmesg")
            if (now := progress_of(child.pid)) != last_moves or now.runs:
                last_moves, last_move = now, time.monotonic()
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
    jobs: Sequence[Callable[[Pulse], object]], todo: list[int], children: list[_Child], idle: list[_Child], at_once: int
) -> None:
    now = time.monotonic()
    while todo:
        if idle:
            child = idle.pop()
            child.job, child.spare = todo.pop(), 0.0
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


def _run_jobs(jobs: Sequence[Callable[[Pulse], object]], orders: int, answers: int, unblocked: Iterable[int]) -> None:
    """Run jobs in the child until there are no more. Never return. `unblocked`: the signals that are blocked then."""
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
                answer: tuple[object, BaseException | None] = (jobs[int.from_bytes(order, "little")](pulse), None)
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
    """Close all other descriptors, except of disks that are held: a child that hangs must not keep our output open, or
    a lock.
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


def _state_of(pid: int | str) -> tuple[str, str]:
    """Return the state of a process or thread (proc(5): R is running or runnable), and its user and system time; empty
    if it has ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return "", ""
    return fields[0].decode(), b" ".join(fields[11:13]).decode()


@dataclass(frozen=True, slots=True)
class ProcessProgress:
    """A measure of progress: it changes as long as a process, or a program that it waits for, makes progress."""

    runs: bool = False  # running or runnable
    programs: tuple[int, ...] = ()
    counts: tuple[str, ...] = ()  # processor time, and the number of context switches


def progress_of(pid: int) -> ProcessProgress:
    """Measure the progress of a process whose main thread does the work.

    A process that waits for a program wakes up to check whether it has ended, so only the program counts then. Forks
    of aligntool have their own deadlines.
    """
    children = (child for child in _children_of(pid) if _state_of(child)[0] != "Z" and not _is_ours(child))
    programs = tuple(process for child in children for process in _with_children(child))
    states = [_state_of(process) for process in programs or (f"{pid}/task/{pid}",)]
    wakes = (_wakes_of(pid, thread) for pid, thread in ([(process, "*") for process in programs] or [(pid, str(pid))]))
    counts = (*(ran for _, ran in states), *wakes)
    return ProcessProgress(any(state == "R" for state, _ in states), programs, counts)


def _is_ours(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/exe").samefile("/proc/self/exe")
    return False


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    for child in _children_of(pid):
        yield from _with_children(child)


def _children_of(pid: int) -> list[int]:
    return [int(child) for text in _thread_texts(pid, "*", "children") for child in text.split()]


def _wakes_of(pid: int, threads: str) -> str:
    """Return the numbers of voluntary and involuntary context switches of its threads (proc(5):
    voluntary_ctxt_switches).
    """
    texts = _thread_texts(pid, threads, "status")
    return " ".join(word for text in texts for word in text.split("voluntary_ctxt_switches:")[1:])


def _thread_texts(pid: int, threads: str, name: str) -> Iterator[str]:
    for file in thread_paths(pid, f"{threads}/{name}"):
        with suppress(OSError):
            yield file.read_text()


def waited_for(pid: int, programs: Sequence[int] = ()) -> Iterator[str]:
    """Yield the disk or file that a process waits for, by its system call (proc(5), syscall: the first argument of a
    read is its descriptor). If it waits for programs: first drives that they wait for, then the files that the process
    has open, then anything else that the programs wait for.
    """
    found = [path for process in programs or (pid,) for path in _read_by(process)]
    if programs:
        drives = (path for path in found if path.startswith("/dev/") and not path.startswith("/dev/loop"))
        yield from (path for path in drives if Path(path).is_block_device())
        yield from _opened_by(pid, "*")
    yield from found


def _read_by(pid: int) -> Iterator[str]:
    with suppress(OSError, ValueError, IndexError):
        yield from _opened_by(pid, str(int(Path(f"/proc/{pid}/syscall").read_text().split()[1], 16)))


def _opened_by(pid: int, descriptor: str) -> Iterator[str]:
    for link in live_paths(Path(f"/proc/{pid}/fd"), descriptor):
        with suppress(OSError):
            path = str(link.readlink())
            if path.startswith("/") and not path.endswith(("/null", "/lock", " (deleted)")):
                yield path


def thread_paths(pid: int | str, pattern: str = "*") -> Iterator[Path]:
    """Yield the folders or files of a process's threads (proc(5)); none if it has ended, even during the call."""
    return live_paths(Path(f"/proc/{pid}/task"), pattern)


def has_signal(folder: Path, which: str, number: signal.Signals) -> bool:
    """Return whether a signal is in a set of a process or thread (proc(5): SigPnd, pending; SigBlk, blocked).
    `folder`: its folder in /proc. False if it has ended.
    """
    with suppress(OSError):
        for name, *words in map(str.split, (folder / "status").read_text().splitlines()):
            if name == f"{which}:":
                return bool(int(words[0], 16) >> (number - 1) & 1)
    return False


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


def interrupt_once(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal as Ctrl-C, so that temporary folders are removed. A second signal does not interrupt that."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


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
    """End a child. An idle child ends when its pipe is closed; a killed child is not waited for, because the signal may
    never reach it.
    """
    os.close(child.orders)
    if child.answers >= 0:
        os.close(child.answers)
    if kill:
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG if kill else 0)
