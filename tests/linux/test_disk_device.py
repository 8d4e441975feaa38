"""The real device against the kernel's own counters, lsblk, strace and what Python reads through the page cache."""

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aligntool.linux.block import DiskDevice
from aligntool.units import KIB, MIB
from tests.conftest import run, unmount

Attach = Callable[..., Path]
Make = Callable[..., Path]


@contextmanager
def opened(path: Path, image_sector_size: int = 512) -> Iterator[DiskDevice]:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        with DiskDevice(descriptor, image_sector_size=image_sector_size) as device:
            yield device
    finally:
        os.close(descriptor)


def noise(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)


def scribble(device: DiskDevice, model: bytearray, *, seed: int, rounds: int = 120) -> None:
    """Compare random reads and writes of any length and place that the sector size allows, some concurrent, with a
    model.
    """
    chance, sector = random.Random(seed), device.sector_size
    for _ in range(rounds):
        length = chance.choice([1, 1, 2, 7, 8, 9, 64, 65, 257]) * sector
        at = chance.randrange((len(model) - 2 * length) // sector) * sector
        data = chance.randbytes(length)

        def first(at: int = at, data: bytes = data) -> None:
            device.write(at, data)

        def second(at: int = at + length, data: bytes = data) -> None:
            device.write(at, data)

        device.run_parallel([first, second])
        model[at : at + 2 * length] = data * 2
        if chance.random() < 0.2:
            device.flush()
        look = chance.randrange(max(at - 3 * sector, 0) // sector, at // sector + 1) * sector
        assert device.read(look, length) == model[look : look + length]
    assert device.read(0, len(model)) == model
    device.flush()


def test_an_image_file_contains_the_written_data_and_keeps_its_length(sparse: Make) -> None:
    image, model = sparse(4 * MIB + 300), bytearray(4 * MIB)
    with opened(image) as device:
        assert (device.size, device.sector_size) == (4 * MIB, 512)
        scribble(device, model, seed=1)
    assert image.read_bytes() == model + bytes(300)


@pytest.mark.needs_root
@pytest.mark.needs_tools("lsblk")
@pytest.mark.parametrize("sector_size", [512, 4096])
def test_a_block_device_contains_the_written_data(sparse: Make, loop: Attach, sector_size: int) -> None:
    node, model = loop(sparse(4 * MIB), sector_size=sector_size), bytearray(4 * MIB)
    with opened(node) as device:
        assert device.size == int(run("lsblk", "-bdno", "SIZE", node))
        assert device.sector_size == device.direct_grid == int(run("lsblk", "-bdno", "LOG-SEC", node))
        scribble(device, model, seed=2)
    assert node.read_bytes() == model


@pytest.mark.needs_root
def test_reads_come_from_the_medium_and_not_from_the_page_cache(sparse: Make, loop: Attach) -> None:
    image = sparse(4 * MIB)
    node = loop(image)
    with opened(node) as device:
        assert node.read_bytes() == bytes(4 * MIB)  # now the kernel has the zeroes in the cache of the node
        with image.open("r+b") as file:
            file.write(noise(MIB))
        assert device.read(0, MIB) == noise(MIB)
        assert node.read_bytes()[:MIB] == bytes(MIB), "the cache was not stale, so nothing was shown"


@pytest.fixture
def coarse_folder(sparse: Make, loop: Attach, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Return a folder on a file system whose device has 4096-byte sectors, and that device."""
    node = loop(sparse(48 * MIB, "coarse.img"), sector_size=4096)
    run("mkfs.ext4", "-q", "-O", "^has_journal", node)
    folder = tmp_path / "coarse"
    folder.mkdir()
    run("mount", node, folder)
    yield folder, node
    unmount(folder)


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.ext4", "mount")
def test_requests_finer_than_direct_io_allows_are_executed(coarse_folder: tuple[Path, Path]) -> None:
    image, model = coarse_folder[0] / "disk.img", bytearray(noise(4 * MIB))
    image.write_bytes(model)
    with opened(image) as device:
        scribble(device, model, seed=3)
        assert (device.sector_size, device.direct_grid) == (512, None)
        assert device.read(63 * 512, MIB) == model[63 * 512 : 63 * 512 + MIB]
    assert image.read_bytes() == model


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.ext4", "mount")
def test_a_fine_request_is_read_back_from_the_medium_as_well(coarse_folder: tuple[Path, Path]) -> None:
    folder, node = coarse_folder
    image = folder / "disk.img"
    image.write_bytes(noise(4 * MIB))
    counters = Path("/sys/block") / node.name / "stat"

    def sectors_read() -> int:
        return int(counters.read_text().split()[2])  # Documentation/block/stat.rst

    with opened(image) as device:
        for _ in range(2):
            device.write(512, noise(512, 7))
            before = sectors_read()
            assert device.read(512, 512) == noise(512, 7)
            assert sectors_read() >= before + 8
            before = sectors_read()
            device.read(512, 512)
            assert sectors_read() >= before + 8


@pytest.mark.needs_root
@pytest.mark.needs_tools("mount")
def test_an_image_on_a_tmpfs_can_be_read_and_written(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder)
    try:
        image, model = folder / "disk.img", bytearray(4 * MIB)
        image.write_bytes(model)
        with opened(image) as device:
            scribble(device, model, seed=4)
        assert image.read_bytes() == model
    finally:
        unmount(folder)


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.ext4", "mount")
@pytest.mark.parametrize("at", [0, 512])
def test_a_full_file_system_under_a_sparse_image_raises_enospc(coarse_folder: tuple[Path, Path], at: int) -> None:
    image = coarse_folder[0] / "disk.img"
    with image.open("wb") as file:
        file.truncate(256 * MIB)
    with opened(image) as device, pytest.raises(OSError) as caught:
        for piece in range(100):
            device.write(piece * MIB + at, bytes(MIB))
        device.flush()
    assert caught.value.errno == errno.ENOSPC
    assert str(caught.value) == "[Errno 28] No space left on device"
    assert image.stat().st_size == 256 * MIB


@pytest.mark.needs_root
def test_a_flush_reaches_the_drive(sparse: Make, loop: Attach) -> None:
    node = loop(sparse(MIB))
    counters = Path("/sys/block") / node.name / "stat"
    with opened(node) as device:
        before = int(counters.read_text().split()[15])  # flush requests completed
        device.write(0, noise(4096))
        device.flush()
        assert int(counters.read_text().split()[15]) > before


def test_the_length_of_an_image_never_changes(sparse: Make) -> None:
    image = sparse(MIB)
    with opened(image) as device:
        with pytest.raises(OSError) as caught:
            device.write(MIB - 512, bytes(1024))
        assert caught.value.errno == errno.ENOSPC
        with pytest.raises(OSError) as caught:
            device.read(MIB - 512, 1024)
        assert caught.value.errno == errno.EIO
        device.write(MIB - 512, b"x" * 512)
        device.flush()
    assert image.stat().st_size == MIB
    assert image.read_bytes()[-513:] == b"\0" + b"x" * 512


@pytest.mark.parametrize(("offset", "length"), [(1, 512), (0, 511), (256, 512), (-512, 512)])
def test_a_request_for_part_of_a_sector_raises_value_error(sparse: Make, offset: int, length: int) -> None:
    with opened(sparse(MIB)) as device:
        with pytest.raises(ValueError):
            device.read(offset, length)
        with pytest.raises(ValueError):
            device.write(offset, bytes(length))


def test_a_read_or_write_of_zero_bytes_succeeds(sparse: Make) -> None:
    with opened(sparse(MIB)) as device:
        device.write(MIB, device.read(MIB, 0))


def test_unaligned_memory_can_be_written(sparse: Make) -> None:
    image, data = sparse(MIB), bytearray(noise(64 * KIB))
    with opened(image) as device:
        for skipped in (0, 1, 3, 511, 512):
            piece = memoryview(data)[skipped : skipped + 32 * KIB]
            device.write(4096, piece)
            assert device.read(4096, 32 * KIB) == piece


def test_jobs_run_in_parallel_and_have_stopped_when_the_first_error_is_raised(sparse: Make) -> None:
    meet, left = threading.Barrier(4), []

    def fails() -> None:
        meet.wait(10)
        raise OSError(errno.EIO, "this one")

    def goes_on() -> None:
        meet.wait(10)
        threading.Event().wait(0.2)
        left.append("done")

    with opened(sparse(MIB)) as device:
        with pytest.raises(OSError, match="this one"):
            device.run_parallel([goes_on, fails, goes_on, goes_on])
        assert left == ["done"] * 3
        device.run_parallel(iter([lambda: left.append("more")]))
        assert left[3:] == ["more"]


def test_jobs_have_stopped_when_the_user_interrupts_the_wait(sparse: Make) -> None:
    stopped, began = [], threading.Event()

    def slow() -> None:
        began.set()
        threading.Event().wait(0.5)
        stopped.append(1)

    def interrupt() -> None:
        began.wait(10)
        time.sleep(0.1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with opened(sparse(MIB)) as device:
        with pytest.raises(KeyboardInterrupt):
            device.run_parallel([slow, interrupt])
        assert stopped == [1]


def test_no_further_job_begins_after_an_error(sparse: Make) -> None:
    done = []

    def fails() -> None:
        raise OSError(errno.EIO, "this one")

    def slow() -> None:
        threading.Event().wait(0.05)
        done.append(1)

    with opened(sparse(MIB)) as device, pytest.raises(OSError, match="this one"):
        device.run_parallel([fails] + [slow] * 40)
    assert len(done) < 20


def test_the_caller_runs_while_the_jobs_run(sparse: Make) -> None:
    meet, where = threading.Barrier(2), []

    def both() -> None:
        meet.wait(10)
        where.append(threading.current_thread() is threading.main_thread())

    with opened(sparse(MIB)) as device:
        device.run_parallel([both], both)
    assert sorted(where) == [False, True]


def test_an_error_of_the_caller_is_raised_after_the_running_jobs_have_ended(sparse: Make) -> None:
    began, done = threading.Event(), []

    def slow() -> None:
        began.set()
        threading.Event().wait(0.2)
        done.append(1)

    def fails() -> None:
        began.wait(10)
        raise OSError(errno.EIO, "this one")

    with opened(sparse(MIB)) as device:
        with pytest.raises(OSError, match="this one"):
            device.run_parallel([slow] * 40, fails)
        assert 0 < len(done) < 10


@pytest.mark.needs_tools("strace")
def test_the_kernel_sees_whole_direct_requests(sparse: Make, tmp_path: Path) -> None:
    image, log = sparse(4 * MIB), tmp_path / "log"
    program = (
        "import os; from aligntool.linux.block import DiskDevice\n"
        f"fd = os.open({str(image)!r}, os.O_RDWR)\n"
        "with DiskDevice(fd) as d:\n"
        "    if d.direct_grid is None: raise SystemExit(9)\n"
        "    d.write(1048576, d.read(32256, 1048576)); d.flush()\n"
    )
    traced = "trace=openat,fcntl,preadv,preadv2,pwrite64,fdatasync"
    strace = ["strace", "-f", "-y", "-s", "0", "-o", str(log), "-e", traced]
    done = subprocess.run([*strace, sys.executable, "-c", program], check=False)
    if done.returncode == 9:
        pytest.skip("the file system of the temporary folder has no direct I/O")
    assert done.returncode == 0
    calls = [line.lstrip("0123456789 ") for line in log.read_text().splitlines() if f"<{image}>" in line]
    assert any(call.startswith("fcntl") and "F_SETFL" in call and "O_DIRECT" in call for call in calls)
    assert sum(call.startswith("openat") for call in calls) == 1, "a second opener would get no lease"
    read, written, flushed = (call for call in calls if not call.startswith(("openat", "fcntl")))
    assert read.startswith("preadv") and "32256" in read and read.endswith("= 1048576")
    assert written.startswith("pwrite64") and written.endswith("1048576, 1048576) = 1048576")
    assert flushed.startswith("fdatasync") and flushed.endswith("= 0")


def test_a_thread_that_cannot_be_started_raises_oserror(tmp_path: Path) -> None:
    """As under `ulimit -v`, where a new thread finds no room for its stack."""
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(MIB))
    script = f"""
import os, pathlib, resource
from aligntool.linux.block import DiskDevice
device = DiskDevice(os.open({str(image)!r}, os.O_RDWR))
in_use = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + {MIB}, -1))
try:
    device.run_parallel([lambda: None])
except OSError as error:
    print(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{errno.EAGAIN}\n", "")
