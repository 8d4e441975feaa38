"""Keys that stop a program in the middle of a move on a terminal: Ctrl-Z and `fg`, Ctrl-C many times, Ctrl-\\, and
closing the terminal. Each leaves the move in flight or running, and the exit code is a documented one.
"""

import os
import pty
import select
import shlex
import signal
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest

from aligntool.errors import ExitCode
from tests.cli.old_disks import ROOT, assert_whole, first_start
from tests.run_aligntool import program, run_aligntool

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs", "e2fsck", "debugfs", "blkid")
LONGEST_S = 120


class AtTerminal:
    """A program that leads the session of a terminal."""

    def __init__(self, *words: str) -> None:
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            os.chdir(ROOT)
            os.environ |= {"TERM": "linux", "PS1": "> "}
            for each in (signal.SIGINT, signal.SIGQUIT):  # a shell starts its background programs with these ignored
                signal.signal(each, signal.SIG_DFL)
            os.execvp(words[0], words)
        self.printed = b""
        modes = termios.tcgetattr(self._terminal)
        modes[3] |= termios.NOFLSH  # or a Ctrl-C discards what was printed and not read yet
        termios.tcsetattr(self._terminal, termios.TCSANOW, modes)

    def until(self, words: bytes, *, after: int = 0) -> None:
        end = time.monotonic() + LONGEST_S
        while words not in self.printed[after:]:
            assert time.monotonic() < end, self.printed
            if select.select([self._terminal], [], [], 1)[0]:
                self.printed += os.read(self._terminal, 1 << 16)

    def types(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def closes(self) -> None:
        os.close(self._terminal)
        self._terminal = -1

    def ended(self) -> int:
        """Return the exit code."""
        end = time.monotonic() + LONGEST_S
        while not (found := os.waitpid(self.pid, os.WNOHANG))[0]:
            assert time.monotonic() < end, self.printed
            self._reads()
        while self._reads():
            pass
        return os.waitstatus_to_exitcode(found[1])

    def _reads(self) -> bool:
        """Read available output; return False if there is none."""
        with suppress(OSError):
            if self._terminal >= 0 and select.select([self._terminal], [], [], 0.05)[0]:
                self.printed += os.read(self._terminal, 1 << 16)
                return True
        return False

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._terminal)[3] & termios.ECHO)


def test_every_key_that_stops_a_move_leaves_the_disk_in_flight(disk: Path) -> None:
    slow = (disk, "--yes", "--rate", "1MiB")
    shell = AtTerminal("sh", "-i")
    shell.types(f"{shlex.join(program('realign', *slow))}\n".encode())
    shell.until(b"MiB of")
    shell.types(b"\x1a")
    shell.until(b"Stopped")
    before = len(shell.printed)
    shell.types(b"fg; echo code=$?\n")
    shell.until(b"MiB of", after=before)
    shell.types(b"\x03")
    shell.until(b"code=4", after=before)
    assert b"the journal is kept" in b" ".join(shell.printed.split()) and b"Traceback" not in shell.printed
    shell.closes()
    shell.ended()

    often = AtTerminal(*program("resume", *slow))  # a shell would end its line at echoes that come too late
    often.until(b"MiB of")
    for _ in range(20):
        often.types(b"\x03")
        time.sleep(0.02)
    assert often.ended() == ExitCode.STOPPED, often.printed
    assert b"the journal is kept" in b" ".join(often.printed.split()) and b"Traceback" not in often.printed

    quits = AtTerminal(*program("resume", *slow))
    quits.until(b"MiB of")
    quits.types(b"\x1c")
    assert quits.ended() == ExitCode.STOPPED, quits.printed
    assert b"the journal is kept" in b" ".join(quits.printed.split()) and quits.echoes()

    closed = AtTerminal(*program("rollback", *slow))
    closed.until(b"MiB of")
    closed.closes()
    assert closed.ended() == ExitCode.STOPPED
    assert "in-flight" in run_aligntool("status", "--json", disk).stdout
    run_aligntool("resume", disk, "--yes", code=ExitCode.DONE)
    assert first_start(disk) == 2048
    assert_whole(disk)
