"""A PC with the Debian of `debian` on its disk, which can be started, given commands, turned off, and cut off.

Its files are in a folder. Without a base image its only disks are the given drives, and UEFI finds a system on them or
does not. What one start writes the next one sees: the disk of the system is an overlay as old as the PC. A power cut is
a SIGKILL to QEMU: data that the PC had not yet sent to a drive are lost, like its memory; data that a drive had
accepted are kept, as by a drive with capacitors.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import run
from tests.lab import drives as lab_drives
from tests.lab.debian_agent import Agent, Done, Silent
from tests.lab.drives import Drive
from tests.lab.emulator import Running, pc_words

MEMORY_MIB = 1536
LONGEST_START_S = 1200
LONGEST_OFF_S = 600
LONGEST_S = 1800
WAIT_S = 0.4
PANIC = "Kernel panic - not syncing"
RESET = "sysrq: Resetting"
# Seen once with QEMU 7.2 in about ten starts, before the kernel printed anything: a fault of the emulator, not of the
# disks.
EMULATORS_FAULT = "msix.c:218: msix_table_mmio_write: Assertion"


class DebianPC:
    """A PC that is off at first, with these drives in addition to its system disk; their images are in its folder."""

    def __init__(self, folder: Path, base: Path | None, tool: Path, drives: Sequence[Drive] = ()) -> None:
        self.folder = folder
        self.disk = folder / "system.qcow2" if base else None
        self.tool = tool
        self.drives = tuple(drives)
        self._starts = 0
        self._running: Running | None = None
        self._agent: Agent | None = None
        if base and self.disk:
            run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, self.disk)

    @property
    def console(self) -> str:
        """Return the output of the serial line since the last start."""
        return self._running.console() if self._running else ""

    @property
    def on(self) -> bool:
        return self._running is not None

    def start(self) -> None:
        """Power on and boot, until every unit is up or has failed."""
        assert self._running is None, "it is on already"
        try:
            self._turn_on()
        except AssertionError:
            if EMULATORS_FAULT not in self.console:
                raise
            self._forget()
            self._turn_on()
        self.run("while [ $(systemctl is-system-running) = starting ]; do sleep 0.5; done", LONGEST_START_S)

    def start_or_reset(self) -> str:
        """Power on and boot. Return "", or the output of the serial line if the PC reset itself meanwhile (sysrq `b`),
        which is a power cut to its drives.
        """
        try:
            self.start()
        except AssertionError:
            said = self.console
            if RESET not in said:
                raise
            self.cut()
            return said
        return ""

    def _turn_on(self) -> None:
        """Power on, and wait until its agent answers."""
        self._starts += 1
        path = self.folder / "agent"
        path.unlink(missing_ok=True)
        self._running = Running(self._command(path), self.folder / f"console-{self._starts}")
        until = time.monotonic() + LONGEST_START_S
        while not (agent := _reached(path)):
            self._check_on(until)
            time.sleep(0.05)
        self._agent = agent
        while not self._agent.ping():
            self._check_on(until)

    def run(self, script: str, limit_s: float = LONGEST_S, *, code: int | None = 0) -> Done:
        """Run a shell script and return its output; its exit code is checked unless `code` is None."""
        done = self.wait(self.begin(script), limit_s)
        if code is not None and done.code != code:
            raise AssertionError(f"exit {done.code}, not {code}:\n{script}\n{done.out}{done.err}\n{self.console}")
        return done

    def begin(self, script: str) -> int:
        """Start a script without waiting; return its process ID."""
        return self._agent_on().start(script)

    def wait(self, pid: int, limit_s: float = LONGEST_S) -> Done:
        try:
            return self._agent_on().wait(pid, limit_s)
        except (TimeoutError, Silent, OSError) as error:
            raise AssertionError(f"{error}\n{self.console}") from None

    def off(self) -> None:
        """Turn the PC off by its own system, which first unmounts and stops everything."""
        running = self._on()
        self.begin("systemctl poweroff")
        running.until_off(LONGEST_OFF_S)
        self._forget()

    def reboot(self) -> None:
        self.off()
        self.start()

    def cut(self, after_s: float = 0) -> None:
        """Cut the power, now or after this many seconds."""
        time.sleep(after_s)
        self._on().cut()
        self._forget()

    def await_console(self, words: re.Pattern[str], pid: int, limit_s: float = LONGEST_S) -> None:
        """Wait until the serial line shows these words, printed by a command that still runs."""
        until = time.monotonic() + limit_s
        while not words.search(self.console):
            if self._agent_on().ended(pid) or time.monotonic() > until:
                raise AssertionError(f"{words.pattern} was not said\n{self.console}")
            time.sleep(WAIT_S)

    def _forget(self) -> None:
        if self._agent:
            self._agent.close()
        self._running = self._agent = None

    def _on(self) -> Running:
        assert self._running is not None, "it is off"
        return self._running

    def _agent_on(self) -> Agent:
        assert self._agent is not None, "it is off"
        return self._agent

    def _check_on(self, until: float) -> None:
        if not self._on().is_on():
            raise AssertionError(f"it turned itself off\n{self.console}")
        if PANIC in self.console:
            raise AssertionError(f"its kernel gave up\n{self.console}")
        if time.monotonic() > until:
            raise AssertionError(f"not up after {LONGEST_START_S} s\n{self.console}")

    def _command(self, agent: Path) -> tuple[str, ...]:
        return (
            *pc_words(memory_mib=MEMORY_MIB, uefi=self.disk is None),
            *("-device", "virtio-serial", "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"),
            *("-chardev", f"socket,id=agent,path={agent},server=on,wait=off"),
            *self._system_disk(),
            *("-drive", f"file={self.tool},format=raw,if=none,id=tool,readonly=on"),
            *("-device", "virtio-blk-pci,drive=tool,serial=aligntool"),
            *lab_drives.words(self.drives, self.folder),
        )

    def _system_disk(self) -> tuple[str, ...]:
        if self.disk is None:
            return ()
        return (
            *("-drive", f"file={self.disk},format=qcow2,if=none,id=system,cache=writeback"),
            *("-device", "virtio-blk-pci,drive=system,serial=system,bootindex=1"),
        )


def _reached(path: Path) -> Agent | None:
    """Return the agent, or None while it does not listen: QEMU creates the socket file a moment earlier."""
    try:
        return Agent(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return None


@contextmanager
def powered(pc: DebianPC) -> Iterator[DebianPC]:
    """Power the PC on for the length of the block, and off at its end in any case."""
    try:
        pc.start()
        yield pc
    finally:
        if pc.on:
            pc.cut()
