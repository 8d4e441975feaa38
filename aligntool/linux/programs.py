"""Run other programs."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from aligntool.errors import Refused, Stopped

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
_SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"  # missing in a plain user's PATH
_MAX_MESSAGE = 1500  # characters of a program's last output
_KILL_GRACE_S = 1.0
_TERMINATE_S = 4.0
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class ProgramResult:
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
    def output_tail(self) -> str:
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
) -> ProgramResult:
    """Run a program to its end, in the C locale. Raises Refused if it cannot be started.

    Its output goes into a file: a program that writes to a disk must not be killed by a pipe without a
    reader.

    `only_reads`: the program ends when aligntool is killed; if it cannot be started the code is NOT_RUN.
    `limit_s`: terminate it after this time, with NOT_RUN. `output`: a file for its output, to be read line by
    line. `before_exec`: called in the child; it also ends the program when aligntool is killed (see
    linux/confined.py).
    """
    program = find_program(words[0])
    if program is None:
        package = PACKAGES.get(words[0], words[0])
        return _not_run(f"{words[0]} is not installed", f"install the package {package}", only_reads)
    with _memory_file(stdin) as source, _memory_file() as printed, _memory_file() as errors:
        try:
            child = subprocess.Popen(  # in its own session, so that Ctrl-C on the terminal does not reach it
                (*(pdeathsig_prefix("KILL") if only_reads and not before_exec else ()), program, *words[1:]),
                stdin=source,
                stdout=output or printed,
                stderr=errors,
                cwd=folder,
                pass_fds=pass_fds if only_reads else (*pass_fds, *_inherited),
                env={**os.environ, "LC_ALL": "C", **(environment or {})},
                start_new_session=not only_reads,
                preexec_fn=before_exec,
            )
        except OSError as error:
            return _not_run(f"{words[0]} cannot be started: {error.strerror}", "", only_reads)
        if not _wait(child, limit_s, only_reads=only_reads):
            return ProgramResult(NOT_RUN, b"", f"{words[0]} did not finish within {limit_s:g} s".encode())
        for file in (output or printed, errors):
            file.seek(0)
        return ProgramResult(child.returncode, printed.read(), errors.read())


def _memory_file(content: bytes = b"") -> IO[bytes]:
    """Return a file in memory, never on a disk: the input of a program may be a key, and its output would be
    cut off if the disk is full.
    """
    file = os.fdopen(os.memfd_create("aligntool"), "w+b")
    file.write(content)
    file.seek(0)
    return file


def follow_program(*words: str, stdin: bytes, pass_fds: tuple[int, ...]) -> Iterator[str | ProgramResult]:
    """Run a program that writes to a disk under its own journal: yield each line of its output, and then how
    it ended.

    If the caller stops the iteration or dies, the program gets SIGINT, which it must treat as a request to
    stop.
    Raises Refused if it cannot be started.
    """
    program = find_program(words[0])
    if program is None:
        raise Refused(
            f"{words[0]} is not installed", hint=f"install the package {PACKAGES.get(words[0], words[0])}"
        )
    with _memory_file(stdin) as source, _memory_file() as printed, _memory_file() as errors:
        child = subprocess.Popen(
            (*pdeathsig_prefix("INT"), program, *words[1:]),
            stdin=source,
            stdout=printed,
            stderr=errors,
            pass_fds=(*pass_fds, *_inherited),
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
        try:
            offset = 0
            code = None
            while code is None:
                code = child.poll()
                text = os.pread(printed.fileno(), 1 << 20, offset)
                lines, newline, _ = text.rpartition(b"\n")
                offset += len(lines + newline)
                yield from lines.decode("utf-8", "replace").splitlines()
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_PAUSE_S)
            errors.seek(0)
            yield ProgramResult(child.returncode, text, errors.read())
        finally:
            child.send_signal(signal.SIGINT)  # none if it has ended
            child.wait()


def run_or_stop(*words: str) -> ProgramResult:
    """Run a program. Raises Stopped with its last output unless it exits with 0."""
    ended = run_program(*words)
    if ended.code:
        raise Stopped(f"{words[0]} {how_ended(ended.code)}: {ended.output_tail or 'no error message'}")
    return ended


def how_ended(code: int) -> str:
    """Return "failed with exit code 1" or "was killed by SIGKILL"."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"


def export_values(text: str) -> dict[str, str]:
    """Parse KEY=value lines, as `mdadm --export` and `blkid -o export` print them."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def pdeathsig_prefix(signal_name: str) -> tuple[str, ...]:
    """Return a prefix for a command that sends it this signal when aligntool is killed, or () if not
    possible.
    """
    setpriv = find_program("setpriv")
    return (setpriv, "--pdeathsig", signal_name) if setpriv else ()


def _not_run(why: str, hint: str, only_reads: bool) -> ProgramResult:
    if only_reads:
        return ProgramResult(NOT_RUN, b"", why.encode())
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
    """End a program with its own session, and the programs that it runs, by a signal. Kill them if it still
    runs after this time, or upon Ctrl-C.
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
    """Kill a program. Abandon it if a dead disk blocks it in the kernel: it later ends without doing anything
    else.
    """
    child.kill()
    with suppress(subprocess.TimeoutExpired):
        child.wait(grace_s)
    child.returncode = child.returncode or NOT_RUN  # for Popen, which would warn that it still runs
