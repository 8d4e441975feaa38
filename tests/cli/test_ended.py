"""A command that is ended by a signal removes its temporary folders, and ends as after Ctrl-C."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

INTERRUPTED = 130


@pytest.fixture
def large_capture(tmp_path: Path) -> Path:
    """An archive that takes longer to unpack than a signal takes to arrive."""
    archive = tmp_path / "capture.tar"
    with tarfile.open(archive, "w") as tar:
        for number in range(60_000):
            entry = tarfile.TarInfo(f"sys/block/{number // 100}/{number}")
            entry.size = 1
            tar.addfile(entry, io.BytesIO(b"1"))
    return archive


def _started(words: tuple[str, ...], temporary: Path, *before: str) -> subprocess.Popen[bytes]:
    """Start a command, and return when it unpacks something."""
    temporary.mkdir()
    child = subprocess.Popen(
        [*before, sys.executable, "-m", "aligntool", *words], env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    while child.poll() is None and not any(temporary.rglob("sys/block/*")):
        time.sleep(0.01)
    return child


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("command", ["audit --sysroot", "report -o page.html --sysroot", "fleet"])
def test_no_unpacked_capture_is_left_behind(
    large_capture: Path, tmp_path: Path, command: str, number: signal.Signals
) -> None:
    temporary = tmp_path / "temporary"
    child = _started((*command.split(), str(large_capture)), temporary)
    os.killpg(child.pid, number)
    assert child.wait(60) == INTERRUPTED and child.stdout is not None
    assert b"Traceback" not in child.stdout.read()
    assert list(temporary.iterdir()) == []
    child.stdout.close()


def test_a_signal_that_is_ignored_stays_ignored(large_capture: Path, tmp_path: Path) -> None:
    child = _started(("audit", "--sysroot", str(large_capture)), tmp_path / "temporary", "nohup")
    child.send_signal(signal.SIGHUP)
    assert child.wait(60) != INTERRUPTED and child.stdout is not None
    child.stdout.close()
