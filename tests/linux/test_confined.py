"""A confined program reaches what it is given and nothing else, with whatever the kernel offers.

What it reaches is asked of the shell and its friends, run in place of the programs that parse disks. A kernel without
Landlock is this one behind a filter of system calls; without namespaces, a root without the right to make them.
"""

import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.linux.confined import landlock_version, run_confined, time_limit
from aligntool.linux.programs import NOT_RUN, find_program
from aligntool.linux.sysfs import opened
from aligntool.units import MIB
from tests.conftest import find_tool
from tests.mover.loop_mounts import looped
from tests.run_aligntool import program, run_aligntool

needs_landlock = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
needs_namespaces = pytest.mark.needs_tools("unshare")
SECRET = "only for root"

# One run in a process of its own: words of a shell, the file that it is given, "writes" or "".
RUN = """
import json, sys
from aligntool.linux.confined import run_confined
from aligntool.linux.sysfs import opened
words, disk, writes = sys.argv[1:4]
with opened(disk, 2 if writes else 0) as descriptor:
    ended = run_confined("sh", "-c", words, str(descriptor), disks=(descriptor,), writes=bool(writes))
print(json.dumps((ended.code, ended.output, ended.errors)))
"""
BARE = (find_tool("setpriv") or "", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", "--")


def without_landlock() -> None:
    """Answer ENOSYS to landlock_create_ruleset (444), as a kernel without it (linux/filter.h, linux/seccomp.h)."""
    code = ((0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000))
    steps = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in code))
    filter_ = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(steps))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, filter_, 0, 0) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


LAYERS = [
    pytest.param((), None, id="both", marks=(needs_landlock, needs_namespaces)),
    pytest.param(BARE, None, id="Landlock", marks=(needs_landlock, pytest.mark.needs_root)),
    pytest.param((), without_landlock, id="namespaces", marks=needs_namespaces),
]
each_layer = pytest.mark.parametrize(("prefix", "before"), LAYERS)
Before = Callable[[], None] | None


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    path = tmp_path / "disk.img"
    path.write_text("what is on the disk\n")
    return path


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


def shell(prefix: tuple[str, ...], before: Before, words: str, disk: Path, writes: str = "") -> tuple[int, str, str]:
    """Run the words of a shell, confined, in a process with less than this one has. $0: the given descriptor."""
    done = subprocess.run(
        [*prefix, sys.executable, "-c", RUN, words, str(disk), writes],
        capture_output=True, text=True, check=False, preexec_fn=before,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    code, output, errors = json.loads(done.stdout)
    return code, output, errors


@each_layer
def test_only_what_is_given_can_be_read(prefix: tuple[str, ...], before: Before, disk: Path, secret: Path) -> None:
    words = f"cat /proc/self/fd/$0; cat {secret}; cat /etc/shadow; ls /root; ls /var; cat /proc/1/environ"
    _, output, errors = shell(prefix, before, words, disk)
    assert output == "what is on the disk\n"
    assert len(errors.splitlines()) == 5


@each_layer
@pytest.mark.needs_root
def test_a_block_device_is_also_found_under_its_own_path(prefix: tuple[str, ...], before: Before, disk: Path) -> None:
    with disk.open("r+b") as file:
        file.truncate(MIB)
    with looped(disk) as device:
        assert shell(prefix, before, f"head -c 19 {device}", Path(device)) == (0, "what is on the disk", "")


@each_layer
@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.ext4", "blkid")
def test_blkid_finds_the_content_behind_a_link(prefix: tuple[str, ...], before: Before, tmp_path: Path) -> None:
    image, link = tmp_path / "disk.img", tmp_path / "link"
    with image.open("wb") as file:
        file.truncate(4 * MIB)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    words = "import sys; from aligntool.linux.checks import run_blkid; print(run_blkid(sys.argv[1], *sys.argv[2:]))"
    with looped(image) as device:
        link.symlink_to(device)
        known = subprocess.run(["blkid", "-p", "-o", "value", "-s", "TYPE", link], capture_output=True, check=True)
        found = subprocess.run(
            [*prefix, sys.executable, "-c", words, link, "-o", "value", "-s", "TYPE"],
            capture_output=True, text=True, check=False, preexec_fn=before,
        )  # fmt: skip
        assert found.stdout == f"ProgramResult(code=0, stdout={known.stdout!r}, stderr=b'')\n", found.stderr


def test_a_program_gets_no_path_of_a_device_that_it_would_not_find(disk: Path) -> None:
    with opened(disk) as descriptor, pytest.raises(ValueError, match="/dev/disk/by-id/usb is not the path of a disk"):
        run_confined("blkid", "-p", "/dev/disk/by-id/usb", disks=(descriptor,))


@each_layer
def test_nothing_can_be_written_that_is_not_given_for_it(
    prefix: tuple[str, ...], before: Before, disk: Path, secret: Path
) -> None:
    words = f"echo more >> {secret}; echo new > /usr/new; echo new > {disk.parent}/new; rm {secret}; ln {secret} /new"
    _, _, errors = shell(prefix, before, words, disk)
    assert len(errors.splitlines()) == 5
    assert secret.read_text() == SECRET and not Path("/usr/new").exists()
    assert sorted(path.name for path in disk.parent.iterdir()) == ["disk.img", "secret"]


@each_layer
def test_a_disk_is_written_to_only_if_it_is_given_for_that(prefix: tuple[str, ...], before: Before, disk: Path) -> None:
    words = "echo new >> /proc/self/fd/$0"
    if before is None:  # what a descriptor in /proc opens, only Landlock restricts
        shell(prefix, before, words, disk)
    assert disk.read_text() == "what is on the disk\n"
    shell(prefix, before, words, disk, "writes")
    assert disk.read_text() == "what is on the disk\nnew\n"


@each_layer
@pytest.mark.needs_tools("bash")
def test_no_server_can_be_reached(prefix: tuple[str, ...], before: Before, disk: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = f"exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo connected >&1'"
        code, output, _ = shell(prefix, before, words, disk)
    assert code and not output


@each_layer
def test_no_process_gets_a_signal(prefix: tuple[str, ...], before: Before, disk: Path) -> None:
    code, _, errors = shell(prefix, before, f"kill -0 {os.getpid()}", disk)
    needs_scopes = before is not None or landlock_version() < 6
    assert needs_scopes or (code and "not permitted" in errors)


@each_layer
@pytest.mark.needs_root
def test_root_keeps_no_right_but_to_open_disks_of_others(prefix: tuple[str, ...], before: Before, disk: Path) -> None:
    _, output, _ = shell(prefix, before, "exec grep -E '^(Cap(Prm|Eff|Bnd)|NoNewPrivs)' /proc/self/status", disk)
    assert [int(line.split()[1], 16) for line in output.splitlines()] == [2, 2, 2, 1]


@pytest.mark.needs_root
def test_a_program_on_a_block_device_is_not_root(disk: Path) -> None:
    with disk.open("r+b") as file:
        file.truncate(MIB)
    with looped(disk) as device, opened(str(device)) as descriptor:
        ended = run_confined("sh", "-c", f"id -u; head -c 19 {device}", disks=(descriptor,))
        assert ended.output == "65534\nwhat is on the disk"
        assert run_confined("dd", "if=/dev/null", f"of={device}", "conv=notrunc", disks=(descriptor,)).code
        assert not run_confined("dd", "if=/dev/null", f"of={device}", disks=(descriptor,), writes=True).code


def test_a_program_has_limits(disk: Path) -> None:
    """Three for resources, one for the time: a shell that waits is ended."""
    with opened(disk) as descriptor:
        limits = run_confined("sh", "-c", "ulimit -v; ulimit -t; ulimit -f; ulimit -c", disks=(descriptor,)).output
        assert limits.split() == [str(4 << 20), "300", str(64 << 11), "0"]
        assert 1800 <= time_limit((descriptor,)) < 1801
        assert run_confined("sleep", "60", disks=(descriptor,), limit_s=0.2).code == NOT_RUN
    spins = run_confined("sh", "-c", "ulimit -t 1; while :; do :; done")
    assert spins.code < 0 or spins.code > 128
    assert run_confined("sh", "-c", "head -c 70M /dev/zero").code


def test_a_folder_is_given_to_be_filled(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path) as name:
        folder = Path(name)
        ended = run_confined("sh", "-c", f"mkdir {folder}/new; echo text > {folder}/new/file", folder=folder)
        assert (ended.code, (folder / "new/file").read_text()) == (0, "text\n")
        assert run_confined("sh", "-c", f"echo text > {tmp_path}/file", folder=folder).code


def test_a_program_outside_of_usr_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own-checker"
    own.write_text("#!/bin/sh\necho own\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert find_program("own-checker") == str(own)
    assert run_confined("own-checker").output == "own\n"


@pytest.mark.needs_root
@pytest.mark.needs_tools("setpriv", "mkfs.ext4", "sfdisk", "e2fsck")
def test_where_nothing_can_be_confined_the_way_on_is_named(tmp_path: Path) -> None:
    """Neither Landlock nor the right to make namespaces: a plan checks no file system, unless the user wants it."""
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(48 * MIB)
    table = "label: gpt\nfirst-lba: 34\nstart=35, size=30000\n"
    subprocess.run(["sfdisk", "-q", image], input=table, text=True, check=True)
    subprocess.run(["mkfs.ext4", "-q", "-E", f"offset={35 * 512}", image, "15000k"], check=True)
    before = image.read_bytes()
    for words, code in (((), 3), (("--unconfined",), 0)):
        done = subprocess.run(
            [*BARE, *program("realign", "--yes", "--no-lease", image, *words)],
            capture_output=True, text=True, check=False, preexec_fn=without_landlock,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        if code:
            assert done.stderr.count("is not started: it cannot be confined here, neither by Landlock") == 1
            assert "--unconfined" in done.stderr and image.read_bytes() == before
    run_aligntool("audit", image, code=0)


@needs_namespaces
@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.ext4", "losetup")
def test_no_mount_of_the_machine_is_kept_in_use(disk: Path, tmp_path: Path) -> None:
    """A file system that is unmounted while a program runs must be free for others, where mounts are not shared."""
    image, place = tmp_path / "other.img", tmp_path / "mounted"
    with image.open("wb") as file:
        file.truncate(4 * MIB)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    place.mkdir()
    with looped(image) as device:
        subprocess.run(["mount", "--make-private", device, place], check=True)
        words = 'echo started >"/proc/self/fd/$0"; sleep 5'
        with subprocess.Popen([sys.executable, "-c", RUN, words, disk, "writes"], stdout=subprocess.PIPE) as running:
            while "started" not in disk.read_text() and running.poll() is None:
                time.sleep(0.01)
            subprocess.run(["umount", place], check=True)
            again = subprocess.run(["mount", "-o", "ro", device, place], check=False).returncode
            assert again == 0 and running.poll() is None
            subprocess.run(["umount", place], check=True)
            running.terminate()
