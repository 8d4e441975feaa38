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


@pytest.fixture(scope="module")
def large_capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive that takes longer to unpack than a signal takes to arrive."""
    archive = tmp_path_factory.mktemp("large") / "capture.tar"
    with tarfile.open(archive, "w") as tar:
        for number in range(20_000):
            entry = tarfile.TarInfo(f"sys/block/{number // 100}/{number}")
            entry.size = 1
            tar.addfile(entry, io.BytesIO(b"1"))
    return archive


def _with_default_signals() -> None:
    """Undo what a nohup or a background job has set for these tests themselves."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _started(words: tuple[str, ...], temporary: Path, *before: str) -> subprocess.Popen[bytes]:
    """Start a command, and return when it unpacks something."""
    temporary.mkdir()
    child = subprocess.Popen(
        [*before, sys.executable, "-m", "aligntool", *words], env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        preexec_fn=_with_default_signals,
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
    words = command.replace("page.html", str(tmp_path / "page.html")).split()
    child = _started((*words, str(large_capture)), temporary)
    os.killpg(child.pid, number)
    assert child.wait(300) == INTERRUPTED and child.stdout is not None
    assert b"Traceback" not in child.stdout.read()
    assert list(temporary.iterdir()) == []
    child.stdout.close()


def test_a_signal_that_is_ignored_stays_ignored(large_capture: Path, tmp_path: Path) -> None:
    child = _started(("audit", "--sysroot", str(large_capture)), tmp_path / "temporary", "nohup")
    child.send_signal(signal.SIGHUP)
    assert child.wait(300) != INTERRUPTED and child.stdout is not None
    child.stdout.close()


def _main(tmp_path: Path, command: str) -> subprocess.Popen[bytes]:
    """Run aligntool with a function in place of its commands, and return when it is at work."""
    code = f"""
import pathlib, tempfile, time
from aligntool.cli import app
from aligntool.linux.deadline import result_in_child

def work(*_, **__):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "part").touch()
        time.sleep(60)

{command}
app.main()
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE,
        start_new_session=True, preexec_fn=_with_default_signals,
    )  # fmt: skip
    while child.poll() is None and not list(tmp_path.glob("*/part")):
        time.sleep(0.01)
    return child


@pytest.mark.parametrize("whole_group", [True, False])
def test_a_child_that_looks_at_a_disk_removes_its_folder_too(tmp_path: Path, *, whole_group: bool) -> None:
    """Ctrl-C reaches all processes of the terminal, `kill` one."""
    child = _main(tmp_path, "app.app = lambda **_: result_in_child(work)")
    (os.killpg if whole_group else os.kill)(child.pid, signal.SIGINT if whole_group else signal.SIGTERM)
    assert child.communicate(timeout=300)[1] == b"" and child.returncode == INTERRUPTED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_arrives_while_an_object_is_freed_ends_the_command(
    tmp_path: Path, number: signal.Signals
) -> None:
    command = """
class Freed:
    def __del__(self):
        work()

def freeing(**_):
    Freed()
    time.sleep(60)

app.app = freeing
"""
    child = _main(tmp_path, command)
    child.send_signal(number)
    assert child.communicate(timeout=300)[1] == b"" and child.returncode == INTERRUPTED
