"""Drives that take their time behind a real file or a loop device, and the whole command on them.

The drive and the command go before other programs (nice(1), where root may), so that a loaded machine adds little to
what the drive is told to take.
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
from tests.conftest import detach, find_tool, run
from tests.run_aligntool import program, run_aligntool

PLUGIN = Path(__file__).parent / "nbdkit_drive.py"
FIRST = ("nice", "-n", "-15")  # only a warning for who may not

needs_nbdkit = pytest.mark.needs_tools("nbdkit", "nbdfuse", "fusermount3", "losetup")


@contextmanager
def slow_drive(folder: Path, *settings: str) -> Iterator[Path]:
    """A file of 1 GiB behind which the drive of `nbdkit_drive.py` is."""
    with nbdkit_file(folder, "python", str(PLUGIN), *settings) as file:
        assert file.stat().st_size == GIB
        yield file


@contextmanager
def nbdkit_file(folder: Path, *words: str) -> Iterator[Path]:
    """A file behind which nbdkit runs: filters, plugin, settings."""
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
        # Lazily: somebody else may just look at the loop device over it, which then goes a moment later.
        run("fusermount3", "-u", "-z", file, fails=True)
        child.wait(60)
        if child.stderr:
            child.stderr.close()


@contextmanager
def device_over(file: Path, *words: str) -> Iterator[Path]:
    """The loop device reads past the page cache, or the cache would answer."""
    device = Path(run("losetup", "-f", "--show", "--direct-io=on", *words, file).strip())
    try:
        yield device
    finally:
        detach(device)


def measured(*words: str | Path) -> dict[str, Any]:
    """The result of a command that times requests, as JSON."""
    found: dict[str, Any] = json.loads(aligntool_first(*words, "--json"))
    return found


def aligntool(*words: str | Path, code: int = 0) -> tuple[str, str]:
    """Return both outputs of a command that has to end with this code."""
    done = run_aligntool(*words, code=code)
    return done.stdout, done.stderr


def aligntool_first(*words: str | Path) -> str:
    """Return the output of a command that goes before other programs."""
    return run(*FIRST, *program(*words), limit_s=1800)
