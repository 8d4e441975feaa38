"""SIGKILL while another program works on a loop device over a partition: no loop device remains, and the next run
resumes.
"""

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.linux.in_use import loops_over
from aligntool.linux.lock import lock_disk
from aligntool.linux.loops import partition_loop, read_only_loop
from aligntool.linux.programs import run_program
from aligntool.units import MIB, Extent
from tests.conftest import attach, attached, find_tool, run
from tests.mover.command_line import REFUSED, begin, realign, wait_for_child
from tests.mover.conftest import MakeDisk
from tests.mover.disks import Row
from tests.mover.filesystems import FILESYSTEMS
from tests.mover.loop_mounts import mounted

Sparse = Callable[..., Path]
pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("sfdisk", "sgdisk", "parted", "blkid", "losetup", "setpriv"),
]
NAMED = {kind.name: kind for kind in FILESYSTEMS}
PLACE = Extent(63 * 512, 2 * MIB)


def attached_to(image: Path) -> str:
    return run("losetup", "-j", image)


def wait_until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


def stand_in(folder: Path, name: str, *lines: str) -> None:
    program = folder / name
    program.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    program.chmod(stat.S_IRWXU)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder whose programs come first in PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.mark.needs_tools("mkfs.fat", "fsck.fat", "mcopy", "mdel")
def test_a_kill_during_a_check_leaves_no_loop_device_and_the_next_run_succeeds(make: MakeDisk, programs: Path) -> None:
    """The checker has the device open and never ends by itself."""
    disk = make("dos", Row(NAMED["fat16"], 63), free=12 * 2048)
    before = disk.seen()
    checker = find_tool("fsck.fat")
    stand_in(programs, "fsck.fat", 'eval "device=\\${$#}"', 'exec 5<"$device"', "exec sleep 1000")
    process = begin("realign", disk.image, "--yes")
    wait_for_child(process, "sleep")
    assert attached_to(disk.image)
    process.kill()
    process.wait()
    (programs / "fsck.fat").unlink()
    assert find_tool("fsck.fat") == checker
    realign(disk.image)
    assert attached_to(disk.image) == ""
    assert disk.seen() == before
    disk.check()


@pytest.mark.parametrize("how", ["read-only", "writable"])
def test_a_loop_device_is_detached_when_the_process_that_attached_it_ends(sparse: Sparse, how: str) -> None:
    """From the first moment, without any action of the killed process."""
    image = sparse(4 * MIB)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        with partition_loop(str(image), PLACE) if how == "writable" else read_only_loop(str(image), PLACE):
            os.write(writer, b"1")
            time.sleep(1000)
        os._exit(0)
    try:
        assert os.read(reader, 1) == b"1"
        assert attached_to(image)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
    wait_until(lambda: attached_to(image) == "")


def test_a_loop_device_of_another_program_is_refused_immediately_and_stays_attached(sparse: Sparse) -> None:
    image = sparse(4 * MIB)
    with attached(image, "-r", "-o", str(PLACE.start), "--sizelimit", str(PLACE.length)) as device:
        with pytest.raises(Refused, match="is attached to") as refused, lock_disk(str(image)):
            pass
        assert str(device) in refused.value.hint
        assert str(device) in attached_to(image)


def test_a_program_that_will_end_by_itself_is_waited_for(sparse: Sparse) -> None:
    """It was left by an aligntool that was killed, and has the device open for a moment longer."""
    image = sparse(4 * MIB)
    with read_only_loop(str(image), PLACE) as device:
        left = os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", f"exec 5<{device}; touch {image}.open; exec sleep 1")
        wait_until(Path(f"{image}.open").exists)
    assert attached_to(image)
    with lock_disk(str(image)):
        assert attached_to(image) == ""
    os.waitpid(left, 0)


def test_a_loop_device_detached_while_a_program_has_it_open_is_waited_for(sparse: Sparse) -> None:
    """As udev has it open directly after it was attached or written to."""
    image = sparse(4 * MIB)
    device = attach(image)
    with device.open("rb"):
        run("losetup", "-d", device)
        assert attached_to(image)
        left = os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", f"exec 5<{device}; touch {image}.open; exec sleep 1")
        wait_until(Path(f"{image}.open").exists)
    with lock_disk(str(image)):
        assert attached_to(image) == ""
    os.waitpid(left, 0)


@pytest.mark.needs_tools("mkfs.ext4")
def test_an_image_mounted_through_a_loop_device_is_refused_immediately(sparse: Sparse) -> None:
    image = sparse(4 * MIB)
    run("mkfs.ext4", "-q", image)
    with mounted(image, "mount", "-o", "loop"):
        assert not any(one.passing for one in loops_over(image.stat()))
        with pytest.raises(Refused, match="is attached to"), lock_disk(str(image)):
            pass


@pytest.mark.needs_tools("mkfs.ext4", "e2fsck")
@pytest.mark.parametrize(
    ("command", "words"),
    [("losetup -f '{0}'", "is attached to"), ("dd if=/dev/zero of='{0}' bs=1 count=1 conv=notrunc", "was changed")],
)
def test_an_image_that_is_attached_or_changed_while_it_is_checked_is_not_moved(
    make: MakeDisk, programs: Path, command: str, words: str
) -> None:
    """No lock keeps the kernel from attaching it, and what is mounted there is not the file system that was planned."""
    disk = make("dos", Row(NAMED["ext4"], 63), free=12 * 2048)
    extents = disk.extents()
    stand_in(programs, "e2fsck", f'"{find_tool("e2fsck")}" "$@" && {command.format(disk.image)} 2>&1')
    try:
        # A confined program cannot do that.
        assert words in realign(disk.image, "--unconfined", code=REFUSED)
        assert disk.extents() == extents
    finally:
        for line in attached_to(disk.image).splitlines():
            run("losetup", "-d", line.partition(":")[0])
    (programs / "e2fsck").unlink()
    disk.check()
    realign(disk.image)


def test_a_program_that_only_reads_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    number = tmp_path / "pid"
    child = os.fork()
    if not child:
        run_program("sh", "-c", f"echo $$ > {number}; exec sleep 1000", only_reads=True)
        os._exit(0)
    wait_until(lambda: number.exists() and number.read_text().endswith("\n"))
    os.kill(child, 9)
    os.waitpid(child, 0)
    running = Path("/proc", number.read_text().strip())
    wait_until(lambda: not running.exists() or "Z" in (running / "stat").read_text().split()[2])
