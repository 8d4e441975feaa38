"""Slow drives behind a real file or a loop device, and the whole command on them.

The drive and the command have priority over other programs (nice(1), if root may), so that a loaded machine adds little
to the configured times of the drive.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aligntool.units import GIB
from tests.conftest import attached, find_tool, run
from tests.run_aligntool import program, run_aligntool

PLUGIN = Path(__file__).parent / "nbdkit_drive.py"
FIRST = ("nice", "-n", "-15")  # only a warning without the permission

needs_nbdkit = pytest.mark.needs_tools("nbdkit", "nbdfuse", "fusermount3", "losetup")


@contextmanager
def slow_drive(folder: Path, *settings: str) -> Iterator[Path]:
    """Return a file of 1 GiB served by the drive of `nbdkit_drive.py`."""
    with nbdkit_file(folder, "python", str(PLUGIN), *settings) as file:
        assert file.stat().st_size == GIB
        yield file


@contextmanager
def nbdkit_file(folder: Path, *words: str) -> Iterator[Path]:
    """Return a file served by nbdkit with these filters, plugin and settings."""
    file = folder / "drive"
    file.touch()
    nbdfuse = [find_tool("nbdfuse") or "nbdfuse", str(file), "--command", "nbdkit", "-s"]
    child = subprocess.Popen([*FIRST, *nbdfuse, *words], stderr=subprocess.PIPE)
    try:
        for _ in range(300):
            if file.stat().st_size or child.poll() is not None:
                break
            time.sleep(0.1)
        assert file.stat().st_size, child.stderr.read() if child.stderr else ""
        yield file
    finally:
        # Lazily: another program may just have the loop device over it open, which is then detached a moment later.
        run("fusermount3", "-u", "-z", file, fails=True)
        child.wait(300)
        if child.stderr:
            child.stderr.close()


@contextmanager
def device_over(file: Path, *words: str) -> Iterator[Path]:
    """Return a loop device that bypasses the page cache, which would answer otherwise."""
    with attached(file, "--direct-io=on", *words) as device:
        yield device


def measured(*words: str | Path) -> dict[str, Any]:
    """Run a command that times requests, and return its result as JSON."""
    found: dict[str, Any] = json.loads(aligntool_first(*words, "--json"))
    return found


def aligntool(*words: str | Path, code: int = 0) -> tuple[str, str]:
    """Run a command, check its exit code, and return both outputs."""
    done = run_aligntool(*words, code=code)
    return done.stdout, done.stderr


def aligntool_first(*words: str | Path) -> str:
    """Run a command with priority over other programs, and return its output."""
    return run(*FIRST, *program(*words), limit_s=1800)
