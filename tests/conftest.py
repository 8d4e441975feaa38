"""What every test may use: tools that must be there, root, loop devices that are always given back."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

import tests.run_aligntool  # noqa: F401  (it forks before the tests are collected)
from tests.thorough import examples

SHARED = Path(__file__).parent.parent.parent / "shared" / "data"
MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes; a container often has 64 MiB there

# No test is timed: machines are noisy. A failure prints what repeats it.
settings.register_profile("aligntool", deadline=None, print_blob=True, max_examples=examples(100))
settings.load_profile("aligntool")

# A shell that starts its tests in the background has them ignore Ctrl-C, and so would every program they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if reason := cannot_run(item):
        pytest.skip(reason)


def cannot_run(item: pytest.Item) -> str:
    """Why this machine cannot run a test; empty where it can."""
    if item.get_closest_marker("needs_root") and os.geteuid() != 0:
        return "needs root: run `sudo make test`"
    for marker in item.iter_markers("needs_tools"):
        missing = [name for name in marker.args if not find_tool(name)]
        if missing:
            return f"not installed: {', '.join(missing)}; `make test` installs them"
        if "unshare" in marker.args and not _has_own_mounts():
            return "no mounts of one's own here: the root folder is not a mount point (a chroot)"
    return ""


@cache
def _has_own_mounts() -> bool:
    """unshare(1) refuses in a chroot whose root is not a mount point."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def find_tool(name: str) -> str | None:
    """Like `which`, and also where Debian puts the programs of the administrator."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin")


def run(*command: str | Path, stdin: str | None = None, fails: bool = False, limit_s: float = 300) -> str:
    """Run a program that is the source of truth, in the C locale; its standard output."""
    words = [str(word) for word in command]
    words[0] = find_tool(words[0]) or words[0]
    done = subprocess.run(
        words,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"LC_ALL": "C"},
        timeout=limit_s,
    )
    if done.returncode and not fails:
        raise AssertionError(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def unmount(folder: Path, device: Path | None = None, limit_s: float = 60) -> None:
    """Unmount, and wait until nothing has the device mounted: a mount namespace that another program of this machine
    began meanwhile has it mounted until that program ends, and until then the file system is not clean.
    """
    end = time.monotonic() + limit_s
    while os.path.ismount(folder):
        run("umount", folder, fails=time.monotonic() < end)  # busy while a program looks at each mount
    while device:
        try:
            return os.close(os.open(device, os.O_RDONLY | os.O_EXCL))  # as a mount holds it
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > end:
                raise
            time.sleep(0.1)


def remove_partitions(disk: str | Path, limit_s: float = 60) -> None:
    """Have the kernel forget the partitions of a disk: a program that looks at every disk may have one open for a
    moment.
    """
    end = time.monotonic() + limit_s
    for file in Path("/sys/block", Path(disk).name).glob("*/partition"):
        while file.exists():
            run("delpart", disk, file.read_text().strip(), fails=time.monotonic() < end)
            time.sleep(0.1 if file.exists() else 0)


def detach(device: str | Path, limit_s: float = 60) -> None:
    """Detach a loop device, and wait until it is: one that another program has open stays attached until that program
    closes it, and `losetup -d` succeeds nevertheless.
    """
    attached, end = Path("/sys/block", Path(device).name, "loop/backing_file"), time.monotonic() + limit_s
    file = _text(attached)
    run("losetup", "-d", device, fails=not file)
    while file and _text(attached) == file:
        assert time.monotonic() < end, f"{device} is still attached"
        time.sleep(0.02)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """In memory where there is room, unless the test is marked `on_disk`.

    The power cuts of these tests are simulated, or a SIGKILL, which the page cache outlives; waiting for the disk to
    flush was three quarters of the time of all that writes.
    """
    in_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM
    if request.node.get_closest_marker("on_disk") or not in_memory:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="aligntool-", dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def sparse(tmp_path: Path) -> Callable[..., Path]:
    """Make an empty image file of so many bytes."""

    def make(size: int, name: str = "disk.img") -> Path:
        path = tmp_path / name
        with path.open("wb") as file:
            file.truncate(size)
        return path

    return make


@pytest.fixture
def loop() -> Iterator[Callable[..., Path]]:
    """Attach an image to a loop device; exactly those attached here are detached afterwards."""
    attached: list[Path] = []

    def attach(image: Path, *, sector_size: int = 512) -> Path:
        try:
            device = Path(run("losetup", "-f", "--show", "-b", str(sector_size), image).strip())
        except AssertionError as error:
            pytest.skip(f"this machine gives no loop device: {error}")
        attached.append(device)
        assert stat.S_ISBLK(device.stat().st_mode), f"{device} is not a block device"
        run("blockdev", "--setrw", device)  # the number may have been somebody's read-only one
        remove_partitions(device)  # and those may still be there
        return device

    yield attach
    for device in reversed(attached):  # one may be over another
        detach(device)


@pytest.fixture
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the folder of captured real-world data is not beside this checkout")
    return SHARED
