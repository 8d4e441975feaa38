"""Fixtures and helpers for all tests: required tools, root, loop devices that are always detached."""

import errno
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import pytest
from hypothesis import settings

import tests.run_aligntool  # noqa: F401  (it forks before the tests are collected)
from aligntool.linux.lock import add_partitions
from aligntool.units import MIB, Extent
from tests.thorough import THOROUGH, examples, left_out

SHARED = Path(__file__).parent.parent.parent / "shared" / "data"
MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes; a container often has only 64 MiB there

_IMAGES: dict[Path, str] = {}  # the image of each loop device that `attach` returned, as sysfs has it

# No test is timed: machines are noisy. `make test` draws the same examples every time, `make test-all` new ones; a
# failure prints how to repeat it.
settings.register_profile(
    "aligntool", deadline=None, print_blob=True, max_examples=examples(100), derandomize=not THOROUGH
)
settings.load_profile("aligntool")

# A shell that starts its tests in the background makes them ignore Ctrl-C, and so would every program they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Let programs have their temporary files in memory, in a folder that is removed with what killed ones left there.
    pytest's own stay on disk, for tests marked `on_disk`.
    """
    if not hasattr(config, "workerinput") and has_room_in_memory() and tempfile.gettempdir():
        os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="aligntool-", dir=MEMORY)
        Path(os.environ["TMPDIR"]).chmod(0o1777)
        config.add_cleanup(partial(shutil.rmtree, os.environ["TMPDIR"], ignore_errors=True))


def has_room_in_memory() -> bool:
    return MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM


@pytest.hookimpl(trylast=True)  # what -k or -m selects is a sample's choice, too
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    more = set(left_out(items))
    config.hook.pytest_deselected(items=[*more])
    items[:] = [item for item in items if item not in more]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if reason := cannot_run(item):
        pytest.skip(reason)


def cannot_run(item: pytest.Item) -> str:
    """Return why this machine cannot run a test; empty if it can."""
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
    """Return whether unshare(1) works: it refuses in a chroot whose root is not a mount point."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def find_tool(name: str) -> str | None:
    """Find a program like `which`, also in the administrator's folders of Debian."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin")


def run(*command: str | Path, stdin: str | None = None, fails: bool = False, limit_s: float = 300) -> str:
    """Run a reference program in the C locale and return its standard output."""
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


def is_blank(path: str | Path) -> bool:
    """Return whether a file or a loop device has only zeros. Holes are not read: they are most of it."""
    image = Path(path)
    with image.open("rb") as file:
        os.fsync(file.fileno())
    if image.is_block_device():
        image = Path(_backing_file(image).read_text().rstrip("\n"))
    with image.open("rb", buffering=0) as content:
        return next(_written_pieces(content.fileno()), None) is None


def digest(file: Path) -> str:
    """Return the hash of all bytes, of which those of holes are not read."""
    found = hashlib.sha256()
    with file.open("rb", buffering=0) as content:
        found.update(b"%d" % content.seek(0, os.SEEK_END))
        for at, piece in _written_pieces(content.fileno()):
            found.update(b"%d" % at + piece)
    return found.hexdigest()


def _written_pieces(file: int) -> Iterator[tuple[int, bytes]]:
    """Yield each MiB that is not all zeros, with its offset. Holes are not read."""
    at = 0
    while (at := _next_data(file, at)) >= 0:
        piece = os.pread(file, MIB, at)
        if piece != bytes(len(piece)):  # `any` takes a minute for 1 GiB
            yield at, piece
        at += MIB


def _next_data(file: int, at: int) -> int:
    """Return the start of the next MiB that is not all in a hole, or -1."""
    try:
        return os.lseek(file, at, os.SEEK_DATA) // MIB * MIB
    except OSError as error:
        if error.errno != errno.ENXIO:  # only a hole up to the end
            raise
        return -1


def unmount(folder: Path, device: Path | None = None, limit_s: float = 60) -> None:
    """Unmount, and wait until the device is mounted nowhere: a mount namespace that another program of this machine
    created meanwhile has it mounted until that program ends, and until then the file system is not clean.
    """
    end = time.monotonic() + limit_s
    while os.path.ismount(folder):
        run("umount", folder, fails=time.monotonic() < end)  # busy while a program looks at each mount
    while device:
        try:
            return os.close(os.open(device, os.O_RDONLY | os.O_EXCL))  # as a mount does
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > end:
                raise
            time.sleep(0.1)


def remove_partitions(disk: str | Path, limit_s: float = 60) -> None:
    """Remove the partitions of a disk from the kernel: a program that scans all disks may have one open
    for a moment.
    """
    end = time.monotonic() + limit_s
    for file in Path("/sys/block", Path(disk).name).glob("*/partition"):
        while file.exists():
            run("partx", "--delete", "--nr", file.read_text().strip(), disk, fails=time.monotonic() < end)
            time.sleep(0.1 if file.exists() else 0)


def add_partition(disk: str | Path, number: int, extent: Extent) -> None:
    """Have the kernel show a partition that is not in the table; Debian 13 has no addpart."""
    with Path(disk).open("rb") as file:
        add_partitions(file.fileno(), [(number, extent)])


def attach(image: str | Path, *options: str) -> Path:
    """Attach an image to a loop device. The device may have been read-only before, and have partitions of an image that
    a killed program attached.
    """
    try:
        device = Path(run("losetup", "-f", "--show", *options, image).strip())
    except AssertionError as error:
        pytest.skip(f"this machine gives no loop device: {error}")
    assert stat.S_ISBLK(device.stat().st_mode), f"{device} is not a block device"
    if "-r" not in options:
        run("blockdev", "--setrw", device)
    if "-P" not in options:  # otherwise the kernel has read the table again
        remove_partitions(device)
    _IMAGES[device] = _text(_backing_file(device)).strip()
    return device


def detach(device: str | Path, limit_s: float = 60) -> None:
    """Detach a device that `attach` returned, and wait until it is detached: one that another program has open stays
    attached until that program closes it, though `losetup -d` succeeds. Its partitions would stay in the kernel and
    become those of the next image. A device that has another image by now belongs to another test.
    """
    device, end = Path(device), time.monotonic() + limit_s
    file, image = _backing_file(device), _IMAGES.pop(Path(device), "")
    if _is_attached(file, image):
        remove_partitions(device, limit_s)
        run("losetup", "-d", device)
    while _is_attached(file, image):
        assert time.monotonic() < end, f"{device} is still attached"
        time.sleep(0.02)


@contextmanager
def attached(image: str | Path, *options: str) -> Iterator[Path]:
    """Yield an image as a loop device; only this one is detached afterwards."""
    device = attach(image, *options)
    try:
        yield device
    finally:
        detach(device)


def _backing_file(device: Path) -> Path:
    return Path("/sys/block", device.name, "loop/backing_file")


def _is_attached(file: Path, image: str) -> bool:
    return image != "" and _text(file).removesuffix("(deleted)\n").strip() == image


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return a folder in memory if there is room, unless the test is marked `on_disk`.

    The power cuts of these tests are simulated, or a SIGKILL, which the page cache survives; waiting for the disk to
    flush took three quarters of the time of tests that write.
    """
    if request.node.get_closest_marker("on_disk") or not has_room_in_memory():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="aligntool-", dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def sparse(tmp_path: Path) -> Callable[..., Path]:
    """Make an empty image file of this many bytes."""

    def make(size: int, name: str = "disk.img") -> Path:
        path = tmp_path / name
        with path.open("wb") as file:
            file.truncate(size)
        return path

    return make


@pytest.fixture
def loop() -> Iterator[Callable[..., Path]]:
    """Attach an image to a loop device; only the devices attached here are detached afterwards."""
    devices: list[Path] = []

    def attach_for_test(image: Path, *, sector_size: int = 512) -> Path:
        devices.append(attach(image, "-b", str(sector_size)))
        return devices[-1]

    yield attach_for_test
    for device in reversed(devices):  # one may be on top of another
        detach(device)


@pytest.fixture
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the folder of captured real-world data is not beside this checkout")
    return SHARED
