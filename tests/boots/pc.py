"""An emulated PC that boots from a disk image and writes nothing to it.

An image comes in; what was said on the serial line goes out. By software emulation: a stock kernel hangs in some
machines' /dev/kvm.
"""

import subprocess
from pathlib import Path

import pytest

from tests.conftest import find_tool

LONGEST_S = 180
FIRMWARE = (
    Path("/usr/share/OVMF/OVMF_CODE_4M.fd"),  # Debian, Ubuntu
    Path("/usr/share/edk2/ovmf/OVMF_CODE.fd"),  # Fedora
    Path("/usr/share/edk2/x64/OVMF_CODE.4m.fd"),  # Arch
    Path("/usr/share/qemu/ovmf-x86_64-4m-code.bin"),  # openSUSE
)


def boot(disk: Path, *, uefi: bool = False) -> str:
    """Everything on the serial line until the PC turns itself off."""
    firmware = ("-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={_firmware()}") if uefi else ()
    command = (
        find_tool("qemu-system-x86_64") or "qemu-system-x86_64",
        *("-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024"),
        *("-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot", "-nic", "none"),
        *firmware,
        *("-drive", f"file={disk},format=raw,if=virtio,snapshot=on"),
    )  # fmt: skip
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=LONGEST_S
        )
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode(errors="replace")
        raise AssertionError(f"still not off after {LONGEST_S} s:\n{said}") from None
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, f"{said}\n{done.stderr.decode(errors='replace')}"
    return said


def _firmware() -> Path:
    for path in FIRMWARE:
        if path.exists():
            return path
    pytest.skip("no UEFI firmware for QEMU (package ovmf)")
