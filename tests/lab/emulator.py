"""A running QEMU, and the words that every emulated PC here has in common.

In: a command line. Out: what was said on its console, when it has turned itself off or its time is over.
Alone because PCs that boot from a disk and guests on this machine's own tree are started, watched and ended alike.
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
    """A PC without a disk and without a network, its serial line on standard output. A stock kernel hangs in some
    machines' /dev/kvm, so KVM is for those who have tried it (`guest.kvm_works`)."""
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
    """An emulated PC that is on. It is off, one way or another, when the `with` block of `started` is left."""

    def __init__(self, command: Sequence[str], console: Path, *, keyboard: bool = False) -> None:
        self.console_file = console
        stdin = subprocess.PIPE if keyboard else subprocess.DEVNULL
        with console.open("wb") as said:
            self._process = subprocess.Popen(command, stdin=stdin, stdout=said, stderr=said, start_new_session=True)

    def enter(self, line: str) -> None:
        """Type a line at the console of a PC with a keyboard."""
        assert self._process.stdin, "it has no keyboard"
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def console(self) -> str:
        """Everything said so far."""
        return self.console_file.read_text(errors="replace").replace("\r", "")

    def is_on(self) -> bool:
        return self._process.poll() is None

    def until_off(self, limit_s: float) -> str:
        """Everything on the console until the PC turned itself off, which it has to do in this time."""
        try:
            status = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.cut()
            raise AssertionError(f"still not off after {limit_s} s:\n{self.console()}") from None
        assert status == 0, f"exit {status}:\n{self.console()}"
        return self.console()

    def cut(self) -> None:
        """The power is cut: SIGKILL, to the emulator and what started it. Afterwards nobody holds the images open."""
        if self._process.stdin:
            self._process.stdin.close()
        if not self.is_on():
            return
        os.killpg(self._process.pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
        self._process.wait()
        while any(_alive(self._process.pid)):
            time.sleep(0.01)


def _alive(group: int) -> Iterator[int]:
    """The processes of a process group that have not ended yet; those that nobody waited for have."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                yield int(path.parent.name)


@contextlib.contextmanager
def started(command: Sequence[str], console: Path, *, keyboard: bool = False) -> Iterator[Running]:
    """A PC, turned on; its console goes into this file."""
    running = Running(command, console, keyboard=keyboard)
    try:
        yield running
    finally:
        running.cut()
