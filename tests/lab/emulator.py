"""A running QEMU, and the options that all emulated PCs have in common.

It returns the output of the console once the PC has powered off or its time is over. PCs that boot from a disk and
guests on this machine's own tree are started, watched and ended alike.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.conftest import find_tool

SOFTWARE = ("-accel", "tcg,thread=multi", "-cpu", "max")
KVM = ("-accel", "kvm", "-cpu", "host")
FIRMWARE = (
    Path("/usr/share/OVMF/OVMF_CODE_4M.fd"),  # Debian, Ubuntu
    Path("/usr/share/edk2/ovmf/OVMF_CODE.fd"),  # Fedora
    Path("/usr/share/edk2/x64/OVMF_CODE.4m.fd"),  # Arch
    Path("/usr/share/qemu/ovmf-x86_64-4m-code.bin"),  # openSUSE
)


def pc_words(*, memory_mib: int = 1024, uefi: bool = False, accelerator: Sequence[str] = SOFTWARE) -> tuple[str, ...]:
    """Return the options of a PC without disk and network, with its serial line on standard output. A stock kernel
    hangs in the /dev/kvm of some machines, so KVM is used only after a test (`guest.kvm_works`).
    """
    firmware = ("-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={_firmware()}") if uefi else ()
    return (
        find_tool("qemu-system-x86_64") or "qemu-system-x86_64",
        *("-machine", "q35", *accelerator, "-smp", "2", "-m", str(memory_mib)),
        *("-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot", "-nic", "none"),
        *firmware,
    )


def _firmware() -> Path:
    for path in FIRMWARE:
        if path.exists():
            return path
    pytest.skip("no UEFI firmware for QEMU (package ovmf)")


class Running:
    """A running emulated PC. It is off in any case when the `with` block of `started` ends."""

    def __init__(self, command: Sequence[str], console: Path, *, keyboard: bool = False) -> None:
        self.console_file = console
        stdin = subprocess.PIPE if keyboard else subprocess.DEVNULL
        with console.open("wb") as said:
            self._process = subprocess.Popen(command, stdin=stdin, stdout=said, stderr=said, start_new_session=True)

    def enter(self, line: str) -> None:
        """Type a line on the console of a PC with a keyboard."""
        assert self._process.stdin, "it has no keyboard"
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def console(self) -> str:
        """Return all output so far."""
        return self.console_file.read_text(errors="replace").replace("\r", "")

    def is_on(self) -> bool:
        return self._process.poll() is None

    def until_off(self, limit_s: float) -> str:
        """Return all output until the PC powers off, which it has to do within this time."""
        try:
            status = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.cut()
            raise AssertionError(f"still not off after {limit_s} s:\n{self.console()}") from None
        assert status == 0, f"exit {status}:\n{self.console()}"
        return self.console()

    def cut(self) -> None:
        """Cut the power: SIGKILL to the process group of the emulator. Afterwards no process has the images open."""
        if self._process.stdin:
            self._process.stdin.close()
        if not self.is_on():
            return
        os.killpg(self._process.pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
        self._process.wait()
        while any(_alive(self._process.pid)):
            time.sleep(0.01)


def _alive(group: int) -> Iterator[int]:
    """Return the running processes of a process group; zombies have ended."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                yield int(path.parent.name)


@contextlib.contextmanager
def started(command: Sequence[str], console: Path, *, keyboard: bool = False) -> Iterator[Running]:
    """Start a PC whose console goes into this file."""
    running = Running(command, console, keyboard=keyboard)
    try:
        yield running
    finally:
        running.cut()
