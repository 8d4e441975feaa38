"""`aligntool trace record` on systems that do not support it: each missing part is named, and nothing is left behind.

tests/lab/test_trace_record.py tests recordings, under a kernel that allows tracing.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.measure.record_trace import Traceable, find_traceable, lies_on
from aligntool.units import MIB
from tests.cli.old_disks import ROOT
from tests.conftest import run, unmount
from tests.measure.unit.slow_drives import aligntool

TOOL = ROOT / ".venv/bin/aligntool"
LOCKED = "kernel lockdown"


@pytest.fixture
def device(sparse: Callable[..., Path], loop: Callable[..., Path]) -> Iterator[Path]:
    yield loop(sparse(8 * MIB))


def elsewhere(before: str, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run it in a mount namespace of its own, after these shell commands."""
    script = f'set -e\n{before}\nexec "$@"'
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", TOOL, "trace", "record", *words],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip


def test_for_a_file_it_is_named_how_it_becomes_a_device(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(MIB))
    _, said = aligntool("trace", "record", image, "--", "true", code=3)
    assert (
        "is not a block device" in said
        and f"with losetup on {image}: docs/by-hand.md#a-partition-without-a-device" in said
    )
    _, said = aligntool("trace", "record", tmp_path / "none", "--", "true", code=3)
    assert "No such file" in said


def test_a_missing_command_is_reported_first(tmp_path: Path) -> None:
    _, said = aligntool("trace", "record", tmp_path, "--", "no-such-command", code=3)
    assert said.startswith("aligntool: no-such-command: command not found")
    aligntool("trace", "record", tmp_path, code=2)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "unshare")
def test_all_missing_parts_are_reported_together_with_what_to_type(device: Path) -> None:
    hidden = "umount -l /sys/kernel/debug 2>/dev/null || true\n"
    places = "/usr/sbin/blktrace /usr/bin/blktrace /usr/sbin/blkparse /usr/bin/blkparse"
    hidden += f"for each in {places}; do [ ! -e $each ] || mount --bind /dev/null $each; done"
    done = elsewhere(hidden, device, "--", "true")
    assert done.returncode == 3 and done.stdout == ""
    assert "not installed: blktrace, blkparse" in done.stderr and "install the package blktrace" in done.stderr
    assert "debugfs, through which" in done.stderr
    assert "sudo mount -t debugfs debugfs /sys/kernel/debug" in done.stderr


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
def test_only_root_may_record(device: Path) -> None:
    os.seteuid(65534)
    try:
        with pytest.raises(Refused, match="only root can trace"):
            find_traceable(str(device))
    finally:
        os.seteuid(0)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
def test_a_kernel_without_tracing_is_recognised_by_its_sysfs(device: Path) -> None:
    has = Path(f"/sys/block/{device.name}/trace").is_dir()
    try:
        find_traceable(str(device))
        said = ""
    except Refused as refusal:
        said = str(refusal)
    assert ("CONFIG_BLK_DEV_IO_TRACE" not in said) is has


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "unshare", "blkparse")
def test_an_existing_log_is_never_overwritten(device: Path, tmp_path: Path) -> None:
    log, ran = tmp_path / "log", tmp_path / "ran"
    log.write_text("mine")
    done = elsewhere("mount -t debugfs debugfs /sys/kernel/debug", device, "-o", log, "--", "touch", ran)
    assert done.returncode == 3 and "already exists; nothing was recorded" in done.stderr
    assert log.read_text() == "mine" and not ran.exists()


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "unshare", "blkparse")
def test_kernel_lockdown_is_reported_and_the_command_does_not_run(device: Path, tmp_path: Path) -> None:
    """blktrace itself reports whether it is."""
    log, ran = tmp_path / "log", tmp_path / "ran"
    mounted = "mount -t debugfs debugfs /sys/kernel/debug"
    probed = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{mounted} && exec blktrace -w 1 -D {tmp_path} -o tried -d {device}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "Operation not permitted" not in probed.stdout + probed.stderr:
        pytest.skip("this kernel lets itself be traced")
    done = elsewhere(mounted, device, "-o", log, "--", "touch", ran)
    assert done.returncode == 3 and LOCKED in done.stderr, done.stderr
    assert not log.exists() and not ran.exists()
    assert [each.name for each in tmp_path.glob(".aligntool-trace*")] == []


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.ext4", "mount", "losetup")
def test_a_log_on_the_traced_disk_is_recognised_through_loop_devices(
    sparse: Callable[..., Path], loop: Callable[..., Path], tmp_path: Path
) -> None:
    """A file system on a loop device over a file of another file system: it is stored on both disks."""
    outer = loop(sparse(64 * MIB, "outer.img"))
    place, inside = tmp_path / "outer", tmp_path / "inner"
    for folder in (place, inside):
        folder.mkdir()
    run("mkfs.ext4", "-q", outer)
    run("mount", outer, place)
    try:
        (place / "inner.img").write_bytes(bytes(32 * MIB))
        run("mkfs.ext4", "-q", place / "inner.img")
        run("mount", "-o", "loop", place / "inner.img", inside)
        try:
            traced = Traceable(str(outer), outer.name, "")
            assert lies_on(str(place), traced) and lies_on(str(inside), traced)
            assert not lies_on(str(tmp_path), traced)
        finally:
            unmount(inside)
    finally:
        unmount(place)
