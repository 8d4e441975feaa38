"""Read what /proc reports of processes: their progress, what they wait for, their signals."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aligntool.linux.sysfs import live_paths


def state_of(pid: int | str) -> tuple[str, str]:
    """Return the state of a process or thread (proc(5): R is running or runnable), and its user and system
    time; empty if it has ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return "", ""
    return fields[0].decode(), b" ".join(fields[11:13]).decode()


@dataclass(frozen=True, slots=True)
class ProcessProgress:
    """A measure of progress: it changes as long as a process, or a program that it waits for, makes
    progress.
    """

    runs: bool = False  # running or runnable
    programs: tuple[int, ...] = ()
    counts: tuple[str, ...] = ()  # processor time, and the number of context switches


def progress_of(pid: int) -> ProcessProgress:
    """Measure the progress of a process whose main thread does the work.

    A process that waits for a program wakes up to check whether it has ended, so only the program counts
    then. Forks of aligntool have their own deadlines.
    """
    children = (child for child in _children_of(pid) if state_of(child)[0] != "Z" and not _is_ours(child))
    programs = tuple(process for child in children for process in _with_children(child))
    states = [state_of(process) for process in programs or (f"{pid}/task/{pid}",)]
    wakes = (
        _wakes_of(pid, thread)
        for pid, thread in ([(process, "*") for process in programs] or [(pid, str(pid))])
    )
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
    """Yield the disk or file that a process waits for, by its system call (proc(5), syscall: the first
    argument of a read is its descriptor). If it waits for programs: first drives that they wait for, then the
    files that the process has open, then anything else that the programs wait for.
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
    """Yield the folders or files of a process's threads (proc(5)); none if it has ended, even during the
    call.
    """
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
