"""Images that another program has open, or opens while they are changed, against the kernel's leases."""

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.linux.lock import lock_disk, lock_for_others, lock_partition
from aligntool.linux.sysfs import live_paths
from tests.cli.old_disks import first_start, make_old_disk
from tests.conftest import attached, digest, find_tool, run, unmount
from tests.mover.command_line import DONE, REFUSED, STOPPED, aligntool, begin, realign, resume
from tests.mover.loop_mounts import mounted
from tests.run_aligntool import program

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs")

PATIENCE_S = 120
NOBODY = 65534


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_old_disk(tmp_path_factory.mktemp("old") / "old.img")


@pytest.fixture
def disk(old: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "disk.img"
    run("cp", "--sparse=always", old, copy)
    return copy


@contextmanager
def opened_by_another_program(image: Path, mode: str) -> Iterator[None]:
    """Have another process open the image. The block begins once it has it open."""
    opener = f"import sys\nfile = open(sys.argv[1], {mode!r})\nprint('open', flush=True)\nsys.stdin.read()\n"
    words = [sys.executable, "-c", opener, str(image)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        try:
            assert process.stdout.readline() == b"open\n"
            yield
        finally:
            process.stdin.close()


IN_CHROOT = """import os, sys
from aligntool.linux.lease import kind_of_file_system
image = os.open(sys.argv[2], os.O_RDONLY)
os.chroot(sys.argv[1])
print(kind_of_file_system(image))
"""


@pytest.mark.needs_root
def test_the_file_system_of_an_image_is_known_in_a_plain_chroot() -> None:
    with mounted(Path("none"), "mount", "-t", "tmpfs") as root:
        (root / "below/proc").mkdir(parents=True)
        (root / "below/disk.img").touch()
        run("mount", "--bind", "/proc", root / "below/proc")
        try:
            assert run(sys.executable, "-c", IN_CHROOT, root / "below", root / "below/disk.img") == "tmpfs\n"
        finally:
            unmount(root / "below/proc")


@contextmanager
def run_by_another_program(code: str, *words: object) -> Iterator[int]:
    """Run a program until the end of the block, which begins once the program is ready; yield its process."""
    code = f"import os, sys\n{code}\nprint('ready', flush=True)\nsys.stdin.read()\n"
    command = [sys.executable, "-c", code, *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.stdin.close()


@contextmanager
def moving_slowly(disk: Path, tmp_path: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Move at a limited rate. The block begins when data are being copied."""
    log = tmp_path / "log"
    with log.open("wb") as errors:
        process = begin("realign", disk, "--yes", "--rate", "4MiB", *words, errors=errors)
        try:
            end = time.monotonic() + PATIENCE_S
            while "copy partition" not in log.read_text():
                assert process.poll() is None and time.monotonic() < end, log.read_text()
                time.sleep(0.1)
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.mark.parametrize("mode", ["rb", "r+b"])
@pytest.mark.parametrize(
    "words",
    [
        ("realign", "--yes"),
        ("realign", "--yes", "--no-lease"),
        ("plan", "realign"),
        ("layout", "--part", "rest:linux", "--wipe", "DISK", "--yes"),
    ],
    ids=" ".join,
)
def test_an_image_that_another_program_has_open_is_not_changed(disk: Path, mode: str, words: tuple[str, ...]) -> None:
    before = digest(disk)
    count = 2 if words[0] == "plan" else 1
    options = [str(disk) if word == "DISK" else word for word in words[count:]]
    with opened_by_another_program(disk, mode):
        said = aligntool(*words[:count], disk, *options, code=REFUSED)
    assert f"{disk} is open in another program: " in said
    assert "python" in said
    assert digest(disk) == before
    if words[0] == "realign":
        realign(disk)
        assert first_start(disk) == 2048


def test_a_saved_plan_is_not_applied_to_an_image_that_is_open(disk: Path, tmp_path: Path) -> None:
    saved, before = tmp_path / "plan.json", digest(disk)
    aligntool("plan", "realign", disk, "-o", saved)
    with opened_by_another_program(disk, "r+b"):
        assert "is open in another program" in aligntool("apply", saved, "--yes", code=REFUSED)
    assert digest(disk) == before
    aligntool("apply", saved, "--yes")
    assert first_start(disk) == 2048


def test_a_program_that_opens_an_image_for_writing_waits_until_the_move_has_stopped(disk: Path, tmp_path: Path) -> None:
    with moving_slowly(disk, tmp_path) as process:
        with disk.open("r+b"):  # the kernel lets us wait here
            seen = digest(disk)
        assert process.wait(PATIENCE_S) == STOPPED
    assert "another program opens it for writing" in (tmp_path / "log").read_text()
    assert digest(disk) == seen, "something was written after another program had the file"
    assert "in flight" in aligntool("status", disk)
    with opened_by_another_program(disk, "rb"):
        assert "is open in another program" in resume(disk, code=REFUSED)
    resume(disk)
    assert first_start(disk) == 2048
    run("e2fsck", "-fn", f"{disk}?offset={2048 * 512}")


def test_a_program_that_reads_an_image_meanwhile_does_not_stop_a_move(disk: Path, tmp_path: Path) -> None:
    with moving_slowly(disk, tmp_path) as process:
        with disk.open("rb") as file:
            file.read(512)
        assert process.wait(PATIENCE_S) == DONE
    assert first_start(disk) == 2048
    run("e2fsck", "-fn", f"{disk}?offset={2048 * 512}")


@pytest.mark.parametrize("words", [("resume", "--yes"), ("rollback", "--yes"), ("realign", "--yes")], ids=" ".join)
def test_another_aligntool_does_not_stop_a_move(disk: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    with moving_slowly(disk, tmp_path) as process:
        said = aligntool(words[0], disk, *words[1:], code=REFUSED)
        assert "by another program" in said
        assert process.wait(PATIENCE_S) == DONE
    assert first_start(disk) == 2048


@pytest.mark.parametrize("mode", ["rb", "r+b"])
def test_an_image_that_another_program_has_open_is_not_converted(disk: Path, mode: str) -> None:
    realign(disk)
    before = digest(disk)
    with opened_by_another_program(disk, mode):
        assert "is open in another program" in aligntool("convert", disk, "--yes", code=REFUSED)
    assert digest(disk) == before


def test_the_source_of_a_copy_may_be_read_but_not_written_to(disk: Path, tmp_path: Path) -> None:
    realign(disk)
    with opened_by_another_program(disk, "r+b"):
        said = aligntool("convert", disk, "-o", tmp_path / "new.img", "--yes", code=REFUSED)
    assert "is open in another program" in said
    with opened_by_another_program(disk, "rb"):
        aligntool("convert", disk, "-o", tmp_path / "new.img", "--yes")


@pytest.mark.needs_root
@pytest.mark.needs_tools("qemu-img", "qemu-storage-daemon", "unshare", "setpriv")
def test_a_qcow2_that_another_program_has_open_is_not_changed(disk: Path, tmp_path: Path) -> None:
    qcow2 = tmp_path / "disk.qcow2"
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", disk, qcow2)
    before = digest(qcow2)
    with opened_by_another_program(qcow2, "rb"):
        assert "is open in another program" in realign(qcow2, code=REFUSED)
    assert digest(qcow2) == before
    realign(qcow2)


@contextmanager
def served_by_nbdkit(disk: Path, shown: Path) -> Iterator[None]:
    """Serve the image by nbdkit, which takes no lock, and show it as another file by FUSE."""
    shown.touch()
    server = [find_tool("nbdkit") or "nbdkit", "-s", "--exit-with-parent", "file", str(disk)]
    with subprocess.Popen([find_tool("nbdfuse") or "nbdfuse", str(shown), "--command", *server]) as process:
        try:
            end = time.monotonic() + PATIENCE_S
            while not shown.stat().st_size:
                assert process.poll() is None and time.monotonic() < end
                time.sleep(0.1)
            yield
        finally:
            run("fusermount3", "-u", shown)


@pytest.mark.needs_root
@pytest.mark.needs_tools("nbdkit", "nbdfuse", "fusermount3")
def test_an_image_that_nbdkit_serves_is_not_changed(disk: Path, tmp_path: Path) -> None:
    before = digest(disk)
    with served_by_nbdkit(disk, tmp_path / "shown.img"):
        for options in ((), ("--no-lease",)):
            assert "is open in another program: nbdkit" in realign(disk, *options, code=REFUSED)
    assert digest(disk) == before


@pytest.mark.needs_root
@pytest.mark.needs_tools("nbdkit", "nbdfuse", "fusermount3")
def test_an_image_on_a_server_takes_the_word_of_the_user(disk: Path, tmp_path: Path) -> None:
    """A lease is granted on a file system in user space, but says nothing about who has the file open behind it."""
    shown, before = tmp_path / "shown.img", digest(disk)
    with served_by_nbdkit(disk, shown):
        for words in (("realign",), ("plan", "realign")):
            said = aligntool(*words, shown, *(["--yes"] if words[0] == "realign" else []), code=REFUSED)
            assert f"whether another program has {shown} open is unknown" in said
            assert "add: --no-lease" in said
        assert digest(disk) == before
        assert "--no-lease" in aligntool("plan", "realign", shown, "--no-lease").splitlines()[-1]
        realign(shown, "--no-lease")
    assert first_start(disk) == 2048


@pytest.mark.needs_root
@pytest.mark.needs_tools("mount")
def test_an_image_on_an_overlay_takes_the_word_of_the_user(disk: Path, tmp_path: Path) -> None:
    """The lease is on the inode of the overlay; who has the file of the upper layer open has another one."""
    lower, upper, work, shown = (tmp_path / name for name in ("lower", "upper", "work", "shown"))
    for folder in (lower, upper, work, shown):
        folder.mkdir()
    below = disk.rename(upper / "disk.img")
    layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
    if subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, shown], check=False).returncode:
        pytest.skip("no overlay can be mounted here")
    try:
        image, before = shown / "disk.img", digest(below)
        with opened_by_another_program(below, "r+b"):
            said = realign(image, code=REFUSED)
            assert "overlay, shows a file of another one, which a program may have open there" in " ".join(said.split())
            assert "add: --no-lease" in said
            assert "add: --no-lease" in aligntool("plan", "realign", image, code=REFUSED)
        assert digest(below) == before
        with opened_by_another_program(image, "rb"):
            assert "is open in another program" in realign(image, "--no-lease", code=REFUSED)
        realign(image, "--no-lease")
    finally:
        unmount(shown)
    assert first_start(below) == 2048


def as_nobody(*words: str | Path) -> subprocess.CompletedProcess[str]:
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all"]
    return subprocess.run([*user, *program(*words)], capture_output=True, text=True, check=False)


@pytest.mark.needs_root
@pytest.mark.needs_tools("setpriv")
@pytest.mark.parametrize("owned", [True, False], ids=["the owner", "another user"])
def test_a_user_without_privileges(disk: Path, owned: bool) -> None:
    disk.parent.chmod(0o755)
    disk.chmod(0o666)
    if owned:
        os.chown(disk, NOBODY, NOBODY)
    with opened_by_another_program(disk, "r+b"):  # by root, whose files this user cannot see in /proc
        done = as_nobody("realign", disk, "--yes", "--no-lease" if owned else "--json")
    assert (done.returncode, "open in another program" in done.stderr or not owned) == (REFUSED, True), done
    done = as_nobody("realign", disk, "--yes")
    if not owned:
        assert (done.returncode, "CAP_LEASE" in done.stderr) == (REFUSED, True), done
        assert '"code": "no-lease"' in as_nobody("realign", disk, "--yes", "--json").stdout
        done = as_nobody("realign", disk, "--yes", "--no-lease")
    assert done.returncode == DONE, done
    assert first_start(disk) == 2048


def test_openers_are_found_although_another_process_ends_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Remove a folder when its content is asked for: between those two calls, a process may end."""
    for number in ("1", "2", "3"):
        (tmp_path / number / "fd").mkdir(parents=True)
        (tmp_path / number / "fd" / "0").touch()
    vanishing = str(tmp_path / "2" / "fd")

    def listing(call: Callable[[Path], object]) -> Callable[[Path], object]:
        def listed(path: Path) -> object:
            if str(path) == vanishing:
                shutil.rmtree(tmp_path / "2")
            return call(path)

        return listed

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", listing(os.listdir))
        patch.setattr(os, "scandir", listing(os.scandir))
        found = [*live_paths(tmp_path, "[0-9]/fd/*")]
    assert found == [tmp_path / "1/fd/0", tmp_path / "3/fd/0"]


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
@pytest.mark.parametrize("name", ["disk.img", "linked.img"])
def test_a_loop_device_whose_file_another_program_can_write_to_is_not_changed(
    disk: Path, tmp_path: Path, name: str
) -> None:
    """The lock on the device does not stop who has the file open, by whatever name."""
    os.link(disk, tmp_path / "linked.img")
    with attached(disk) as device:
        before = digest(disk)
        with opened_by_another_program(tmp_path / name, "r+b"):
            said = realign(device, code=REFUSED)
            assert f"{disk}, which {device} shows, is open for writing in python" in " ".join(said.split())
            assert digest(disk) == before
        with opened_by_another_program(disk, "rb"):
            realign(device)
    assert first_start(disk) == 2048


_OPENED = "descriptor = os.open(sys.argv[1], os.O_RDWR)\n"
_MAPPED = f"import mmap\n{_OPENED}mapping = mmap.mmap(descriptor, 4096)\nos.close(descriptor)\n"
_BY_A_THREAD = """
import ctypes, threading
def go_on():
    descriptor = os.open(sys.argv[1], os.O_RDWR)
    print('ready', flush=True)
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=go_on).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def parted(disk: Path) -> Iterator[Path]:
    """Yield a loop device over the disk, with the kernel's partitions."""
    with attached(disk) as device:
        run("partx", "-a", device)
        try:
            if not device.with_name(f"{device.name}p1").is_block_device():
                pytest.skip("this kernel shows no partitions of loop devices")
            yield device
        finally:
            run("partx", "-d", device)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "partx")
@pytest.mark.parametrize("code", [_OPENED, _MAPPED, _BY_A_THREAD], ids=["opened", "mapped", "by a thread"])
@pytest.mark.parametrize("node", ["", "p1", "other"])
def test_a_device_that_another_program_can_write_to_is_not_changed(
    disk: Path, parted: Path, tmp_path: Path, node: str, code: str
) -> None:
    """An exclusive open stops neither who has opened the disk nor a partition of it, by whatever node."""
    before = digest(disk)
    named = parted.with_name(parted.name + (node if node == "p1" else ""))
    shown = named
    if node == "other":  # as in the /dev of a container
        shown = tmp_path / "node"
        os.mknod(shown, 0o600 | stat.S_IFBLK, parted.stat().st_rdev)
        try:
            shown.open("rb").close()
        except PermissionError:
            pytest.skip("devices cannot be opened here")
    with run_by_another_program(code, shown) as pid:
        said = " ".join(realign(parted, code=REFUSED).split())
    assert f"{named} is open for writing in python" in said
    assert f"(process {pid}) → sudo fuser -v {named}" in said
    assert digest(disk) == before


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
def test_every_command_that_changes_a_device_looks_for_its_writers(disk: Path, parted: Path) -> None:
    before = digest(disk)
    with run_by_another_program(_OPENED, parted):
        for words in (
            ("layout", parted, "--part", "rest:linux", "--wipe", str(parted), "--yes"),
            ("realign", parted, "--yes", "--not-suspended", "--no-lease"),
        ):
            assert "is open for writing in python" in aligntool(*words, code=REFUSED)
        with pytest.raises(Refused, match="is open for writing"), lock_partition(f"{parted}p1"):
            pass
        with pytest.raises(Refused, match="is open for writing"), lock_for_others(str(parted), "a test"):
            pass
    assert digest(disk) == before
    with run_by_another_program("descriptor = os.open(sys.argv[1], os.O_RDONLY)", parted):
        realign(parted)
    assert first_start(disk) == 2048


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
def test_a_writer_that_comes_before_the_first_write_is_found(disk: Path) -> None:
    with attached(disk) as device, lock_disk(str(device)) as locked:
        lease = locked.lease
        written = run_by_another_program(_OPENED, device)
        with written, pytest.raises(Refused, match="is open for writing"), lease.held():
            pass
        with locked.lease.held():
            pass


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "setpriv")
def test_a_user_who_cannot_look_for_writers_has_to_vouch(disk: Path) -> None:
    with attached(disk) as device:
        owner = device.stat()
        try:
            os.chown(device, NOBODY, NOBODY)
            done = as_nobody("realign", device, "--yes")
            assert (done.returncode, "only root sees what the programs of other users" in done.stderr) == (
                REFUSED,
                True,
            ), done
            done = as_nobody("realign", device, "--yes", "--no-lease")
            assert done.returncode == DONE, done
        finally:
            os.chown(device, owner.st_uid, owner.st_gid)
    assert first_start(disk) == 2048
