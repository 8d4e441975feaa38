"""An emulated PC that boots from a disk image and writes nothing to it.

An image comes in; what was said on the serial line goes out. By software emulation: a stock kernel hangs in some
machines' /dev/kvm.
"""

import tempfile
from pathlib import Path

from tests.lab.emulator import pc_words, started

LONGEST_S = 180


def boot(disk: Path, *, uefi: bool = False) -> str:
    """Everything on the serial line until the PC turns itself off."""
    command = (*pc_words(uefi=uefi), "-drive", f"file={disk},format=raw,if=virtio,snapshot=on")
    with tempfile.TemporaryDirectory() as folder, started(command, Path(folder) / "console") as pc:
        return pc.until_off(LONGEST_S)
