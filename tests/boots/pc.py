"""An emulated PC that boots from a disk image and writes nothing to it.

It returns the output of the serial line. It is emulated in software: a stock kernel hangs in the /dev/kvm of some
machines.
"""

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.emulator import Running, pc_words, started
from tests.lab.guest import CPU

LONGEST_S = 600
LIVE_LONGEST_S = 1800


def boot(disk: Path, *, uefi: bool = False, sector_size: int = 512) -> str:
    """Return the output of the serial line until the PC powers off."""
    drive = f"file={disk},format=raw,if=none,id=disk,snapshot=on"
    sectors = f"logical_block_size={sector_size},physical_block_size=4096"
    command = (*pc_words(uefi=uefi), "-drive", drive, "-device", f"virtio-blk-pci,drive=disk,{sectors}")
    with tempfile.TemporaryDirectory() as folder, started(command, Path(folder) / "console") as pc:
        return pc.until_off(LONGEST_S)


@contextmanager
def live(disk: Path, stick: Path) -> Iterator["Console"]:
    """Start a PC from `stick`, with `disk` as /dev/sda, which has a serial number and is writable."""
    command = (
        *pc_words(memory_mib=2048, accelerator=("-accel", "tcg,thread=multi", "-cpu", CPU)),
        *("-device", "virtio-scsi-pci"),
        *("-drive", f"file={disk},format=raw,if=none,id=disk", "-device", "scsi-hd,drive=disk,serial=OLD-2005"),
        *("-drive", f"file={stick},format=raw,if=none,id=stick,snapshot=on"),
        *("-device", "scsi-hd,drive=stick,bootindex=0,removable=on"),
    )
    with tempfile.TemporaryDirectory() as folder, started(command, Path(folder) / "console", keyboard=True) as pc:
        yield Console(pc)


class Console:
    """The serial line of a PC, with its input."""

    def __init__(self, pc: Running) -> None:
        self._pc = pc
        self._read = 0  # characters of the output, up to the end of the last answer

    def until(self, end: str) -> str:
        """Return the output up to a match of this pattern, without escape sequences."""
        until = time.monotonic() + LIVE_LONGEST_S
        while True:
            said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._pc.console())
            if found := re.search(end, said[self._read :]):
                text = said[self._read : self._read + found.end()]
                self._read += found.end()
                return text
            assert self._pc.is_on() and time.monotonic() < until, f"{end!r} was not said:\n{said}"
            time.sleep(0.2)

    def enter(self, line: str, end: str) -> str:
        """Type a line, and read up to a match of this pattern."""
        time.sleep(1)  # login discards what is typed before it has turned off the echo
        self._pc.enter(line)
        return self.until(end)

    def until_off(self) -> str:
        return self._pc.until_off(LIVE_LONGEST_S)
