"""Controllable disks: they record every write and flush, and fail on request, where and as long as requested.

An image file is served by nbdkit and shown as a file by nbdfuse, with a log of what was done. Image files and loop
devices cannot do either.
"""

import os
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import find_tool, run

PLUGIN = Path(__file__).with_name("nbdkit_disk.py")
HEAD = struct.Struct("<cQI")  # as in nbdkit_disk

needs_media = pytest.mark.needs_tools("nbdkit", "nbdfuse", "fusermount3")


@dataclass(frozen=True)
class Write:
    at: int
    content: bytes


@dataclass(frozen=True)
class Medium:
    """`disk` is the file to pass to a program; `image` is its real content."""

    disk: Path
    image: Path
    log: Path
    faults: Path

    def fail(self, *faults: tuple[str, int, int]) -> None:
        """Fail from now on: ("read" | "write" | "garble" | "flush", byte, bytes). None: the disk is repaired.
        "stall-read" and so on: it does not answer.
        """
        making = self.faults.with_suffix(".new")
        making.write_text("".join(f"{what} {start} {length}\n" for what, start, length in faults))
        making.rename(self.faults)

    def epochs(self) -> list[list[Write]]:
        """Return the writes between each two flushes; the last ones were never flushed."""
        epochs: list[list[Write]] = [[]]
        log = self.log.read_bytes()
        at = 0
        while at < len(log):
            kind, offset, length = HEAD.unpack_from(log, at)
            at += HEAD.size + length
            if kind == b"W":
                epochs[-1].append(Write(offset, log[at - length : at]))
            elif epochs[-1]:
                epochs.append([])
        return epochs


@contextmanager
def medium(image: Path) -> Iterator[Medium]:
    """Serve `image` as a disk until the block ends."""
    folder = image.with_name(f"{image.name}-medium")
    folder.mkdir()
    served = Medium(folder / "mnt" / "disk", image, folder / "log", folder / "faults")
    served.disk.parent.mkdir()
    served.log.touch()
    served.faults.touch()
    words = (f"image={image}", f"log={served.log}", f"faults={served.faults}")
    nbdkit = (find_tool("nbdkit") or "nbdkit", "-s", "--exit-with-parent", "python", str(PLUGIN), *words)
    server = subprocess.Popen(
        [find_tool("nbdfuse") or "nbdfuse", str(served.disk), "--command", *nbdkit],
        stdin=subprocess.DEVNULL,
        stderr=(folder / "errors").open("w"),
    )
    try:
        _wait(lambda: served.disk.exists() or server.poll() is not None)
        if server.poll() is not None:
            pytest.skip(f"this machine mounts no FUSE file: {(folder / 'errors').read_text().strip()}")
        yield served
    finally:
        _wait(lambda: not os.path.ismount(served.disk.parent) or _unmounted(served.disk.parent))
        server.wait(timeout=300)


def _unmounted(folder: Path) -> bool:
    """Unmount it. Another program may have the file open for a moment, for example to identify a loop device."""
    run("fusermount3", "-u", folder, fails=True)
    return not os.path.ismount(folder)


def _wait(ready: Callable[[], bool]) -> None:
    for _ in range(500):
        if ready():
            return
        time.sleep(0.02)
    raise AssertionError("the disk was not there, or not gone, after ten seconds")
