"""A disk that stops answering: a loop device over a file served by nbdfuse, whose server is stopped and continued
later.

A process that waits for it cannot be killed meanwhile, so the server is always continued before anything is removed.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import attached, find_tool, run

needs_stalled = pytest.mark.needs_tools("nbdkit", "nbdfuse", "fusermount3", "losetup")


@contextmanager
def stalled_file(folder: Path) -> Iterator[Path]:
    """Return a file of 64 MiB whose reads do not return."""
    with _served(folder) as (file, server), _stopped(server):
        yield file


@contextmanager
def stalled_disk(folder: Path) -> Iterator[Path]:
    """A loop device over such a file."""
    with _served(folder) as (file, server), attached(file) as device, _stopped(server):
        yield device


@contextmanager
def _stopped(server: int) -> Iterator[None]:
    os.kill(server, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server, signal.SIGCONT)


@contextmanager
def _served(folder: Path) -> Iterator[tuple[Path, int]]:
    file, socket = folder / "stalled.img", folder / "socket"
    file.touch()
    server = subprocess.Popen([find_tool("nbdkit") or "nbdkit", "-f", "-U", str(socket), "memory", "64M"])
    _wait(socket.exists)
    shown = subprocess.Popen([find_tool("nbdfuse") or "nbdfuse", str(file), f"nbd+unix:///?socket={socket}"])
    try:
        _wait(lambda: file.stat().st_size > 0 or shown.poll() is not None)
        if shown.poll() is not None:
            pytest.skip("this machine mounts no FUSE file")
        yield file, server.pid
    finally:
        run("fusermount3", "-u", "-z", file, fails=True)
        shown.wait(300)
        server.terminate()
        server.wait(300)


def _wait(ready: Callable[[], bool]) -> None:
    for _ in range(500):
        if ready():
            return
        time.sleep(0.02)
    raise AssertionError("the disk was not there after ten seconds")
